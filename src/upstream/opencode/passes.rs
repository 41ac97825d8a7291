//! How a session is cut into passes makes no difference to what is told.

use proptest::prelude::*;
use serde_json::json;

use super::fixture::*;
use super::*;

const S: &str = "ses_dd3890f00ffeSQ1NLJzx7ES6gt";

/// What happens to a session, or beside it.
#[derive(Clone, Debug)]
enum Step {
    /// A turn; some messages are the program's.
    Say {
        text: usize,
        typed: bool,
    },
    /// A turn whose text comes with the next step.
    SayLate {
        text: usize,
    },
    /// A turn typed where the clock is late by so many milliseconds.
    SayWithLateClock {
        text: usize,
        by: i64,
    },
    /// The first message is written again.
    Rewrite,
    Answer,
    /// So many turns are undone, and the next one is typed.
    Undo {
        turns: usize,
        text: usize,
    },
    /// Another session gets a message, which may be deleted at once.
    Elsewhere {
        deleted: bool,
    },
    /// Rows get other numbers.
    Vacuum,
}

/// Steps, each with whether a pass follows, and whether by another process.
fn steps() -> impl Strategy<Value = Vec<(Step, bool, bool)>> {
    let text = 0..12_usize;
    let step = prop_oneof![
        6 => (text.clone(), prop::bool::weighted(0.8)).prop_map(|(text, typed)| Step::Say { text, typed }),
        3 => text.clone().prop_map(|text| Step::SayLate { text }),
        2 => (text.clone(), 13..10_000_000_i64).prop_map(|(text, by)| Step::SayWithLateClock { text, by }),
        2 => Just(Step::Rewrite),
        6 => Just(Step::Answer),
        3 => (1..4_usize, text).prop_map(|(turns, text)| Step::Undo { turns, text }),
        2 => any::<bool>().prop_map(|deleted| Step::Elsewhere { deleted }),
        1 => Just(Step::Vacuum),
    ];
    prop::collection::vec((step, any::<bool>(), prop::bool::weighted(0.2)), 1..40)
}

/// A session under way.
struct Story {
    lab: Lab,
    /// The messages that are there, as they came: id, time, and whether the user's.
    messages: Vec<(String, i64, bool)>,
    late: Option<(String, String)>,
}

impl Story {
    fn new(lab: Lab) -> Story {
        lab.session(S, None);
        lab.session("ses_other", None);
        let (messages, late) = (Vec::new(), None);
        let mut story = Story {
            lab,
            messages,
            late,
        };
        if story.lab.db.is_some() {
            // So many that a replay can be too far away to be one.
            (100..140).for_each(|text| story.step(&Step::Say { text, typed: true }));
        }
        story
    }

    fn step(&mut self, step: &Step) {
        self.catch_up();
        let now = self.lab.now();
        match step {
            Step::Say { text: said, typed } => {
                let said = format!("text {said}");
                let part = if *typed {
                    text(&said)
                } else {
                    synthetic(&said)
                };
                self.say(&id(now), now, Some(part));
            }
            Step::SayLate { text } => {
                let said = format!("text {text}");
                self.late = Some((id(now), said));
                self.say(&id(now), now, None);
            }
            Step::SayWithLateClock { text: said, by } => {
                // In a tree nothing tells in which order the files of one pass
                // came. Of two equal texts any may be the replay there.
                let said = match &self.lab.db {
                    Some(_) => format!("text {said}"),
                    None => format!("text {said} at {now}"),
                };
                self.say(&id(now - by), now, Some(text(&said)));
            }
            Step::Rewrite => {
                if let Some((id, created, true)) = self.messages.first() {
                    self.lab.message(
                        S,
                        id,
                        *created,
                        json!({ "role": "user", "summary": { "diffs": [] } }),
                    );
                }
            }
            Step::Answer => {
                let asked = self.messages.iter().rfind(|(.., user)| *user);
                let answer = self.lab.answer(S, asked.map_or("msg_none", |(id, ..)| id));
                self.messages.push((answer, now, false));
            }
            Step::Undo { turns, text: said } => {
                for _ in 0..*turns {
                    if let Some(from) = self.messages.iter().rposition(|(.., user)| *user) {
                        self.messages
                            .drain(from..)
                            .for_each(|(id, ..)| self.lab.delete(S, &id));
                    }
                }
                self.say(&id(now), now, Some(text(&format!("text {said}"))));
            }
            Step::Elsewhere { deleted } => {
                let id = self.lab.say("ses_other", &[text("elsewhere")]);
                if *deleted {
                    self.lab.delete("ses_other", &id);
                }
            }
            Step::Vacuum if self.lab.db.is_some() => self.lab.sql("VACUUM"),
            Step::Vacuum => {}
        }
    }

    fn say(&mut self, id: &str, created: i64, part: Option<serde_json::Value>) {
        self.lab.message(S, id, created, json!({ "role": "user" }));
        if let Some(part) = part {
            self.lab.part(S, id, &id.replace("msg", "prt"), &part);
        }
        self.messages.push((id.to_owned(), created, true));
    }

    fn catch_up(&mut self) {
        if let Some((id, said)) = self.late.take() {
            self.lab
                .part(S, &id, &id.replace("msg", "prt"), &text(&said));
        }
    }
}

/// The times of the turns that are told, of those that stay.
fn told(lab: Lab, steps: &[(Step, bool, bool)], in_passes: bool) -> Vec<i64> {
    let mut story = Story::new(lab);
    let (mut store, mut watch) = (story.lab.store(), Watch::new(S));
    let mut acts = Vec::new();
    for (step, passed, reopened) in steps {
        story.step(step);
        if in_passes && *reopened {
            store = story.lab.store();
        }
        if in_passes && *passed {
            acts.extend(watch.pass(&mut store));
        }
    }
    story.catch_up();
    acts.extend(watch.pass(&mut store));
    assert_eq!(watch.look(&mut store), Look::Same);
    assert_eq!(watch.pass(&mut story.lab.store()), []);
    let mut times: Vec<i64> = acts.iter().filter_map(|act| act.time_ms).collect();
    times.sort_unstable();
    assert!(
        times.windows(2).all(|pair| pair[0] < pair[1]),
        "no turn is told twice"
    );
    times.retain(|told| story.messages.iter().any(|(_, time, _)| time == told));
    times
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn passes_over_a_database_tell_what_one_tells(steps in steps()) {
        prop_assert_eq!(told(Lab::database(), &steps, true), told(Lab::database(), &steps, false));
    }

    #[test]
    fn passes_over_a_tree_tell_what_one_tells(steps in steps()) {
        prop_assert_eq!(told(Lab::tree(), &steps, true), told(Lab::tree(), &steps, false));
    }
}
