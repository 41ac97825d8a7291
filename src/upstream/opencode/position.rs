//! How far a session was judged.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use super::words::Verdict;
use crate::upstream::act::{Act, ActKind, Marks, Names, Repeats};
use crate::upstream::print::Print;

/// So many user messages back, a text that comes again is a replay: OpenCode
/// writes the last one anew after a compaction, without a mark.
const REPLAYED: usize = 50;

/// So many user messages are remembered: undoing half of them in one pass
/// still leaves enough to know replays by.
const REMEMBERED: usize = 2 * REPLAYED;

/// How far a session was judged. [`Position::default`] is its start.
///
/// It is small (1 to 5 KiB, 20 at most), holds keyed hashes and ids but no text, and
/// is to be stored as what serde makes of it, together with the acts that the
/// pass found. It fits either kind of store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Position {
    /// In a database: the newest row met, of either role.
    pub(super) tail: Option<String>,
    /// In a tree: the names of all messages met.
    pub(super) roll: Roll,
    /// The newest user messages met, oldest first.
    met: Vec<Met>,
    /// Whether user messages older than those in `met` are forgotten.
    pub(super) forgetful: bool,
    /// Those of `met` that a part still to come may make a person's.
    pub(super) open: Vec<Open>,
}

/// How many names there are, and the sum of their hashes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Roll {
    count: u64,
    sum: u64,
}

impl Roll {
    /// The roll of messages of these marks.
    pub(super) fn of(marks: impl Iterator<Item = u64>) -> Roll {
        marks.fold(Roll::default(), |roll, mark| Roll {
            count: roll.count + 1,
            sum: roll.sum.wrapping_add(mark),
        })
    }
}

/// A user message that was met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Met {
    id: u64,
    /// What it shows, to know a replay by; 0 for nothing.
    shown: u64,
}

/// A user message in which nothing was typed so far.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Open {
    pub(super) id: String,
    pub(super) parts: Parts,
}

/// Which parts a message had, told from others without reading them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Parts {
    count: u64,
    stamp: u64,
}

impl Parts {
    pub(super) fn add(&mut self, id: &str, size: i64, updated: i64) {
        self.count += 1;
        let mut bytes = self.stamp.to_le_bytes().to_vec();
        bytes.extend_from_slice(&size.to_le_bytes());
        bytes.extend_from_slice(&updated.to_le_bytes());
        bytes.extend_from_slice(id.as_bytes());
        self.stamp = hash(&bytes);
    }
}

/// A user message as a store shows it now.
pub(super) struct Said<'a> {
    pub(super) id: &'a str,
    pub(super) time_ms: Option<i64>,
    pub(super) copy: bool,
    pub(super) parts: Parts,
    pub(super) verdict: Verdict,
}

impl Position {
    /// Takes in a user message. An act is a person's, and was not met before.
    pub(super) fn take(&mut self, said: Said<'_>, names: &Names) -> Option<Act> {
        let id = mark(said.id);
        let at = self
            .met
            .iter()
            .position(|met| met.id == id)
            .unwrap_or_else(|| {
                self.met.push(Met { id, shown: 0 });
                self.met.len() - 1
            });
        self.open.retain(|open| open.id != said.id);
        let (shown, act) = match said.verdict {
            Verdict::Program => (None, None),
            Verdict::Open { shown } => {
                if !said.copy {
                    let id = said.id.to_owned();
                    self.open.push(Open {
                        id,
                        parts: said.parts,
                    });
                }
                (shown, None)
            }
            Verdict::Typed {
                text,
                unquoted,
                shown,
            } => {
                let before = &self.met[at.saturating_sub(REPLAYED)..at];
                let replay = before.iter().any(|met| met.shown == short(shown));
                let act = (!said.copy && !replay).then(|| {
                    let marks = Marks {
                        id: Some(&[said.id]),
                        text_too: false,
                        thread: None,
                        time_ms: said.time_ms,
                    };
                    let mut act = names.act(ActKind::Prompt, text, &marks, &mut Repeats::default());
                    act.unquoted = unquoted;
                    act
                });
                (Some(shown), act)
            }
        };
        self.met[at].shown = shown.map_or(0, short);
        if self.met.len() > REMEMBERED {
            let oldest = self.met.remove(0);
            self.open.retain(|open| mark(&open.id) != oldest.id);
            self.forgetful = true;
        }
        act
    }

    /// Whether the user message was judged for good.
    pub(super) fn judged(&self, id: &str) -> bool {
        self.met(mark(id)) && !self.open.iter().any(|open| open.id == id)
    }

    /// Whether the user message of this mark was met.
    pub(super) fn met(&self, id: u64) -> bool {
        self.met.iter().any(|met| met.id == id)
    }

    /// The assistant has answered a message: its parts, if any was met, are all there.
    pub(super) fn answered(&mut self, id: &str) {
        self.open
            .retain(|open| open.id != id || open.parts.count == 0);
    }

    /// Forgets the messages that are undone: those whose mark is not `there`.
    pub(super) fn keep(&mut self, there: &HashSet<u64>) {
        self.met.retain(|met| there.contains(&met.id));
        self.open.retain(|open| there.contains(&mark(&open.id)));
    }
}

/// The number that an id is known by.
pub(super) fn mark(id: &str) -> u64 {
    hash(id.as_bytes())
}

fn hash(bytes: &[u8]) -> u64 {
    first(blake3::hash(bytes).as_bytes())
}

fn short(print: Print) -> u64 {
    first(print.as_bytes())
}

fn first(bytes: &[u8]) -> u64 {
    bytes[..8]
        .iter()
        .fold(0, |number, byte| number << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::opencode::fixture::{id, secret};

    #[test]
    fn a_message_of_a_long_id_is_passed_over() {
        let secret = secret();
        let row = |id: &str| format!(r#"{{"info":{{"id":"{id}","role":"user"}},"parts":[]}}"#);
        let start = Position::default();
        let rows = ["m".repeat(257), "m".repeat(1 << 20), "m".repeat(256)].map(|id| row(&id));
        let rows = rows.iter().map(|row| row.as_bytes());
        let reading = crate::upstream::opencode::feed("ses_1", &start, rows, &secret);
        assert_eq!(reading.position.open.len(), 1);
        assert_eq!(reading.position.open[0].id.len(), 256);
    }

    #[test]
    fn a_position_stays_small() {
        let secret = secret();
        let names = Names::new(&secret, "opencode", "ses_1");
        let mut position = Position::default();
        for n in 0..1_000 {
            let said = Said {
                id: &id(n),
                time_ms: None,
                copy: false,
                parts: Parts {
                    count: u64::MAX,
                    stamp: u64::MAX,
                },
                verdict: Verdict::Open {
                    shown: Some(secret.print("x")),
                },
            };
            assert_eq!(position.take(said, &names), None);
        }
        assert_eq!(
            (position.met.len(), position.open.len()),
            (REMEMBERED, REMEMBERED)
        );
        let size = serde_json::to_string(&position).unwrap().len();
        assert!(size < 20 * 1024, "{size}");
        position.answered(&id(999));
        assert!(position.judged(&id(999)) && !position.judged(&id(998)));
        assert!(!position.judged(&id(899)), "it is forgotten");
    }
}
