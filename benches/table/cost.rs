//! What the library weighs in a host, and what the bindings add to a call.

use std::path::Path;
use std::process::Command;

use crate::library;
use crate::measure::{Pair, Row, Samples, Side, Table, mib, time};
use crate::upstream::Role;
use crate::{Effort, log};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Runs a command to its end; what it printed, if it is there and went well.
fn output(command: &mut Command) -> Option<String> {
    let output = command.output().ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

pub fn sizes(table: &mut Table, folder: &Path) {
    table.head("Size");
    let stripped = folder.join("stripped.so");
    let strip = Command::new("strip")
        .arg("-o")
        .arg(&stripped)
        .arg(library::path())
        .status();
    if strip.is_ok_and(|status| status.success()) {
        let bytes = std::fs::metadata(&stripped).unwrap().len() as f64;
        table.row(Row::figure(
            "stripped library",
            mib(bytes),
            String::new(),
            "4 MB",
            Some(bytes <= 4e6),
        ));
    } else {
        table.say("left out: the stripped library's size, there is no strip");
    }
    let host = folder.join("host");
    let built = output(
        Command::new("cc")
            .args(["-O1", "-o"])
            .arg(&host)
            .arg(root().join("benches/host.c"))
            .arg("-ldl"),
    );
    let Some(told) = built.and_then(|_| {
        output(
            Command::new(&host)
                .arg("memory")
                .arg(library::path())
                .arg(folder.join("host.db")),
        )
    }) else {
        return table.say("left out: the memory of a host in C, there is no compiler");
    };
    let kib: Vec<f64> = told
        .split_whitespace()
        .map(|word| word.parse().unwrap())
        .collect();
    for (what, now, most) in [
        ("memory of dlopen and open in a host in C", kib[1], 5e6),
        ("and after 100,000 records", kib[2], 12e6),
    ] {
        let bytes = (now - kib[0]) * 1024.0;
        let aim = mib(most);
        table.row(Row::figure(
            what,
            mib(bytes),
            String::new(),
            &aim,
            Some(bytes <= most),
        ));
    }
}

/// Calls of a binding, told to make some and answering how long each took.
struct Binding(Role);

impl Binding {
    /// Starts one, with databases in folders of their own.
    fn start(mut command: Command, folder: &Path) -> Option<Binding> {
        for name in ["own", "by-hand"] {
            command.arg(log::own(folder, name).join("a.db"));
        }
        command.env("SESSION_AWARENESS_LIB", library::path());
        let mut role = Role::of(command);
        let ready = (role.line().trim() == "ready").then_some(Binding(role));
        log::settle();
        ready
    }

    fn calls(&mut self, what: &str, count: usize) -> Samples {
        self.0.say(&format!("{what} {count}"));
        let taken: Vec<u64> = serde_json::from_str(&self.0.line()).unwrap();
        let mut samples = Samples::default();
        taken.into_iter().for_each(|ns| samples.add(ns));
        samples
    }
}

pub fn bindings(table: &mut Table, folder: &Path, effort: Effort) {
    table.head(
        "What the bindings add to the C call (floor: that call, and what JSON and the way to C add by hand)",
    );
    let mut python = Command::new("python3");
    python
        .arg(root().join("benches/bindings.py"))
        .env("PYTHONPATH", root().join("bindings/python/src"));
    let mut node = Command::new("node");
    node.arg(root().join("benches/bindings.mjs"));
    let has_node = root().join("bindings/node/node_modules/koffi").is_dir();
    let rows = [
        ("python", "record", "Python `record`", 15.0),
        ("python", "queue", "Python `record`, `wait:false`", 15.0),
        ("node", "record", "Node `recordSync`", 10.0),
        ("node", "queue", "Node `record`, `wait:false`", 10.0),
        ("node", "promise", "Node `record`, a promise", 60.0),
    ];
    // What is added by hand, where nothing is checked, says what can be reached.
    const TIMES: f64 = 1.5;
    for (name, command, there) in [("python", python, true), ("node", node, has_node)] {
        let started = there
            .then(|| Binding::start(command, &log::own(folder, name)))
            .flatten();
        let Some(mut binding) = started else {
            table.say(&format!(
                "left out: the binding for {name}, it is not installed"
            ));
            continue;
        };
        for (_, call, what, most) in rows.iter().filter(|row| row.0 == name) {
            let (mut all, mut c) = (Side::default(), Side::default());
            let mut above = Pair::default();
            for round in 0..=effort.rounds(40) {
                let mut calls = |what: &str| binding.calls(what, 100);
                let ours = calls(call);
                let alone = calls(&format!("{call}C"));
                let hand = calls(&format!("{call}Hand"));
                // The call of C is two ways there and back, which are the binding's.
                let way = calls("empty");
                if round > 0 {
                    let in_c = alone.p50() - 2.0 * way.p50();
                    let beyond = |samples: &Samples| Samples::of((samples.p50() - in_c).max(0.0));
                    above.library.round(beyond(&ours));
                    above.floor.round(beyond(&hand));
                    c.round(Samples::of(in_c));
                    all.round(ours);
                }
            }
            let (ours, hand) = (above.library.p50(), above.floor.p50());
            let row = Row::figure(
                format!("{what}: {} in all", time(all.p50())),
                format!("{} above", time(ours)),
                format!("{} and {}", time(c.p50()), time(hand)),
                &format!("{} or {TIMES} ×", time(most * 1e3)),
                Some(ours <= most * 1e3 || above.ratio() <= TIMES),
            );
            table.row(row.at_ratio(above.ratio()));
        }
    }
}
