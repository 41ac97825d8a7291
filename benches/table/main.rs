//! The table of docs/performance.md: `make bench`.
//!
//! Each row is the library through its C ABI beside the same work by hand, the
//! floor, in alternating rounds of one run. Machines differ and are noisy: what
//! says something is the ratio. Words after `--` choose rows; `QUICK=1` makes
//! fewer and shorter rounds, `FULL=1` the long ones.
#![allow(unsafe_code, missing_docs)]

mod cost;
mod floor;
mod library;
mod log;
mod machine;
mod measure;
mod shared_memory;
mod upstream;

use measure::Table;

/// How long to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    Quick,
    Usual,
    Full,
}

impl Effort {
    pub const QUICK: Effort = Effort::Quick;

    fn of_environment() -> Effort {
        let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        match (set("FULL"), set("QUICK")) {
            (true, _) => Effort::Full,
            (_, true) => Effort::Quick,
            _ => Effort::Usual,
        }
    }

    /// Rounds, where `usual` are made as a rule.
    pub fn rounds(self, usual: usize) -> usize {
        match self {
            Effort::Quick => usual.div_ceil(3).max(3),
            Effort::Usual => usual,
            Effort::Full => usual * 2,
        }
    }

    /// Seconds, where `full` are wanted.
    pub fn seconds(self, full: u64) -> u64 {
        match self {
            Effort::Quick => full.div_ceil(6),
            Effort::Usual | Effort::Full => full,
        }
    }
}

/// Where docs/performance.md has the table.
const BEGIN: &str = "<!-- the table begins -->\n";
const END: &str = "<!-- the table ends -->\n";

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [role, name, words @ ..] = arguments.as_slice()
        && role == "--role"
    {
        return upstream::play(name, words);
    }
    let words = arguments.iter().filter(|word| !word.starts_with('-'));
    let effort = Effort::of_environment();
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut table = Table::new(words.cloned().collect());
    table.say(&machine::line(folder));
    log::rows(&mut table, folder, effort);
    upstream::rows(&mut table, folder, effort);
    if table.wants("bindings") {
        cost::bindings(&mut table, folder, effort);
    }
    if table.wants("sizes") {
        cost::sizes(&mut table, folder);
    }
    if table.wants("growth") {
        log::growth(&mut table, folder, effort);
        upstream::growth(&mut table, folder);
    }
    if std::env::var_os("BLESS").is_some() {
        bless(table.text());
    }
}

/// Puts the table into docs/performance.md.
fn bless(table: &str) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/performance.md");
    let text = std::fs::read_to_string(path).unwrap();
    let (before, rest) = text.split_once(BEGIN).unwrap();
    let (_, after) = rest.split_once(END).unwrap();
    std::fs::write(path, format!("{before}{BEGIN}\n{table}\n{END}{after}")).unwrap();
}
