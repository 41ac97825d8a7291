//! Sessions of other agents' programs: watching their files, and telling what
//! a person typed there from everything else.
//!
//! `agent.rs` says how to add an agent. What one row says is judged in the
//! agents' own files (`claude.rs`, `codex.rs`, `pi.rs`, `opencode.rs`), which
//! know nothing of links or databases; `pass.rs` and `stores.rs` read a source on
//! from where the last pass stopped, and `settle.rs` stores what they found;
//! `monitor.rs` has that done in the background; `verbs.rs` and `discover.rs` are what a host calls.

mod act;
mod agent;
mod claude;
mod codex;
pub(crate) mod discover;
mod find;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod monitor;
mod opencode;
mod outcome;
mod pass;
mod pi;
mod print;
mod room;
mod rows;
mod settle;
mod sift;
mod source;
mod stores;
#[cfg(test)]
mod tests;
mod text;
pub(crate) mod verbs;

pub(crate) use monitor::{Monitor, Settings};
pub(crate) use room::Room;

use agent::Agent;
#[cfg(test)]
use {
    act::{Act, ActKind},
    agent::{Case, Judge, feed, head, scan},
    print::{Print, Secret},
    rows::Slice,
    source::Source,
};

use crate::contract::{Catalog, Error, Result};

/// The agents whose sessions are files of JSON rows.
static AGENTS: [&dyn Agent; 3] = [&claude::Claude, &codex::Codex, &pi::Pi];

/// The agent of this name.
fn agent(catalog: &str) -> Option<&'static dyn Agent> {
    AGENTS.into_iter().find(|agent| agent.catalog() == catalog)
}

/// The agent of a catalog whose sessions are files of JSON rows.
fn file_agent(catalog: Catalog) -> Result<&'static dyn Agent> {
    agent(catalog.as_str())
        .ok_or_else(|| Error::unsupported("sessions of this catalog are no files of rows"))
}
