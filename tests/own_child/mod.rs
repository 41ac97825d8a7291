//! For programs that are their own children: they run their tests themselves,
//! and a child that is given a role plays it.

use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

const ROLE: &str = "AWARE_TEST_ROLE";
const DATABASE: &str = "AWARE_TEST_DATABASE";

/// A test by its name.
pub type Test = (&'static str, fn());

/// Runs those whose name holds a word of the command line, or all.
pub fn run<'a>(tests: impl IntoIterator<Item = &'a Test>) {
    let only: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with('-'))
        .collect();
    let is_chosen = |name: &str| only.is_empty() || only.iter().any(|word| name.contains(word));
    let chosen: Vec<_> = tests
        .into_iter()
        .filter(|(name, _)| is_chosen(name))
        .collect();
    println!("\nrunning {} tests", chosen.len());
    for (name, test) in &chosen {
        let begun = Instant::now();
        // A failure panics, which ends the program with its message.
        test();
        let took = begun.elapsed().as_secs_f32();
        println!("test {name} ... ok ({took:.1} s)");
    }
    println!(
        "\ntest result: ok. {} passed; 0 failed; 0 ignored; 0 measured; 0 filtered out",
        chosen.len()
    );
}

/// A command that plays a role on a database, and talks over its standard streams.
pub fn player(role: &str, database: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    give(&mut command, role, database)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    command
}

/// Gives this program, or a copy of it, a role.
pub fn give<'a>(command: &'a mut Command, role: &str, database: &Path) -> &'a mut Command {
    command.env(ROLE, role).env(DATABASE, database)
}

/// In a child: what to play.
pub fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// In a child: on which database.
pub fn own_database() -> PathBuf {
    std::env::var_os(DATABASE).unwrap().into()
}

/// In a child: says a line.
pub fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).unwrap();
}

/// In a child: waits for a line.
pub fn heed() -> String {
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).unwrap();
    line.trim().to_owned()
}

/// A small generator (SplitMix64), so that a seed alone says what was done.
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    pub fn of<T: Copy>(&mut self, among: &[T]) -> T {
        among[self.below(among.len() as u64) as usize]
    }
}
