//! The table of docs/performance.md: `make bench`.
//!
//! Each row is the library through its C ABI beside the same work by hand, the
//! floor, in alternating rounds of one run. Machines differ and are noisy: what
//! says something is the ratio. Words after `--` choose rows; `QUICK=1` makes
//! fewer and shorter rounds, `FULL=1` the long ones.
#![allow(unsafe_code, missing_docs)]

mod floor;
mod library;
mod log;
mod machine;
mod measure;
mod shared_memory;

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

fn main() {
    let words: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with('-'))
        .collect();
    let effort = Effort::of_environment();
    let folder = tempfile::tempdir().unwrap();
    let mut table = Table::new(words);
    table.say(&machine::line(folder.path()));
    log::rows(&mut table, folder.path(), effort);
    if table.wants("growth") {
        log::growth(&mut table, folder.path(), effort);
    }
}
