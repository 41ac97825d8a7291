//! What holds when the disk fails or the file is damaged.
//!
//! This program is its own child: with a role in the environment it plays it.
//! `AWARE_CORRUPTION_SEEDS` says how many damaged files are tried, and
//! `AWARE_CORRUPTION_FIRST` with which seed they begin.
#![cfg(target_os = "linux")]
#![allow(unsafe_code)]

mod corruption;
mod faults;
#[allow(dead_code)]
#[path = "../native/mod.rs"]
mod native;
#[allow(dead_code)]
#[path = "../own_child/mod.rs"]
mod own_child;
mod verbs;

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

const MANAGER: &str = "agent:main:main";
const CHILD: &str = "agent:main:subagent:child";

/// A part that a child plays on a database, by its name.
type Role = (&'static str, fn(&Path));

fn main() {
    if let Some(role) = own_child::role() {
        let (_, play) = corruption::ROLES
            .iter()
            .chain(faults::ROLES)
            .find(|(name, _)| *name == role)
            .unwrap();
        return play(&own_child::own_database());
    }
    own_child::run(faults::TESTS.iter().chain(corruption::TESTS));
}

/// A child that plays a role, and the conversation with it, line by line.
struct Player {
    child: Child,
    ears: ChildStdin,
    lines: Receiver<String>,
}

impl Player {
    fn start(role: &str, database: &Path) -> Player {
        Player::start_with(role, database, std::iter::empty::<(&str, &str)>())
    }

    fn start_with(
        role: &str,
        database: &Path,
        env: impl IntoIterator<Item = (impl AsRef<OsStr>, impl AsRef<OsStr>)>,
    ) -> Player {
        let mut child = own_child::player(role, database).envs(env).spawn().unwrap();
        let (tell, lines) = channel();
        let mouth = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in mouth.lines().map_while(Result::ok) {
                if tell.send(line).is_err() {
                    return;
                }
            }
        });
        Player {
            ears: child.stdin.take().unwrap(),
            child,
            lines,
        }
    }

    /// The next line; `None` when the child has ended. One that says nothing for a minute hangs.
    fn hear(&mut self) -> Option<String> {
        use std::sync::mpsc::RecvTimeoutError;
        match self.lines.recv_timeout(Duration::from_secs(60)) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => {
                let _ = self.child.kill();
                panic!("the child hangs");
            }
        }
    }

    fn expect(&mut self, wanted: &str) {
        let heard = self.hear();
        if heard.as_deref() != Some(wanted) {
            let _ = self.child.kill();
            panic!("{heard:?} instead of {wanted:?}; {:?}", self.child.wait());
        }
    }

    fn tell(&mut self, line: &str) {
        let _ = writeln!(self.ears, "{line}");
    }

    /// Waits for the end, which must be a good one.
    fn end(mut self) {
        drop(self.ears);
        while let Ok(line) = self.lines.recv_timeout(Duration::from_secs(60)) {
            println!("{line}");
        }
        let ended = self.child.wait().unwrap();
        assert!(ended.success(), "{ended}");
    }
}
