//! The cursor state machine: every rule of a watch as one pure function.
//!
//! | input | cursor |
//! |---|---|
//! | watch, none yet | all three = the target's version |
//! | watch again | watermarks unchanged; explicit replaces ambient, never the other way |
//! | seed (the watcher spawned the target) | all three = the event's sequence; a pending cursor keeps its own |
//! | notifying event, none open | `notified = material = s`: a notice opens |
//! | notifying event, one open | `material = s` |
//! | event of the watcher itself, or of a kind it is not told of | unchanged |
//! | ack of `lastSeen < N ≤ notified` | `lastSeen = N`; what came in between opens one notice anew |
//! | any other ack | unchanged |
//! | the database is opened | an open notice stands at the newest change |

use crate::contract::{Kind, KindSet, Provenance};
pub(crate) use crate::store::cursors::Cursor;

/// What can happen to a cursor.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Input {
    /// Somebody asks for the watch.
    Watch {
        version: u64,
        provenance: Provenance,
        kinds: Option<KindSet>,
    },
    /// The target was spawned, and the watcher is named as a parent.
    Seed { sequence: u64 },
    /// Something happened to the target.
    Event {
        sequence: u64,
        kind: Kind,
        /// The watcher did it.
        own: bool,
        /// The event names the watcher.
        named: bool,
    },
    /// The watcher has taken the notice that stood at this sequence.
    Ack { through: u64 },
    /// The database is opened.
    #[cfg_attr(not(test), allow(dead_code))] // One statement does it to all cursors.
    Opened,
}

/// What became of a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// The cursor now; `None` when there is none.
    pub cursor: Option<Cursor>,
    /// Whether it is to be stored: something moved, or it was watched again.
    pub touched: bool,
    /// Whether a notice opened.
    pub opened: bool,
    /// Whether a wake is due, should the watcher be one that is woken.
    pub wake: bool,
}

impl Step {
    fn unchanged(cursor: Option<Cursor>) -> Step {
        Step {
            cursor,
            touched: false,
            opened: false,
            wake: false,
        }
    }

    fn quiet(cursor: Cursor) -> Step {
        Step {
            touched: true,
            ..Step::unchanged(Some(cursor))
        }
    }

    fn opening(cursor: Cursor) -> Step {
        Step {
            cursor: Some(cursor),
            touched: true,
            opened: true,
            wake: cursor.provenance == Provenance::Explicit,
        }
    }

    /// The wake of a notice that was open while the cursor was ambient.
    fn promoting(self, from: &Cursor) -> Step {
        let promoted = self.cursor.is_some_and(|cursor| {
            cursor.is_pending()
                && cursor.provenance == Provenance::Explicit
                && from.provenance == Provenance::AmbientGroup
        });
        Step {
            wake: self.wake || promoted,
            ..self
        }
    }
}

/// One step of the machine.
pub(crate) fn step(cursor: Option<Cursor>, input: Input) -> Step {
    match input {
        Input::Watch {
            version,
            provenance,
            kinds,
        } => match cursor {
            None => Step::quiet(Cursor {
                provenance,
                kinds: kinds.unwrap_or(KindSet::NOTIFYING),
                ..at(version)
            }),
            Some(old) => Step::quiet(Cursor {
                provenance: match provenance {
                    Provenance::Explicit => Provenance::Explicit,
                    Provenance::AmbientGroup => old.provenance,
                },
                kinds: kinds.unwrap_or(old.kinds),
                ..old
            })
            .promoting(&old),
        },
        Input::Seed { sequence } => match cursor {
            None => Step::quiet(at(sequence)),
            Some(old) if old.is_pending() => Step::quiet(Cursor {
                provenance: Provenance::Explicit,
                ..old
            })
            .promoting(&old),
            Some(old) => Step::quiet(Cursor {
                kinds: old.kinds,
                ..at(sequence)
            }),
        },
        Input::Event {
            sequence,
            kind,
            own,
            named,
        } => match cursor {
            _ if own => Step::unchanged(cursor),
            None if named => Step::opening(Cursor {
                last_seen: 0,
                ..at(sequence)
            }),
            None => Step::unchanged(None),
            Some(old) if !named && !old.kinds.contains(kind) => Step::unchanged(cursor),
            Some(old) if old.is_pending() => Step::quiet(Cursor {
                material: sequence,
                ..old
            }),
            Some(old) => Step::opening(Cursor {
                notified: sequence,
                material: sequence,
                ..old
            }),
        },
        Input::Ack { through } => match cursor {
            Some(old) if old.last_seen < through && through <= old.notified => {
                let acked = Cursor {
                    last_seen: through,
                    notified: through.max(old.material),
                    ..old
                };
                if acked.is_pending() {
                    Step::opening(acked)
                } else {
                    Step::quiet(acked)
                }
            }
            _ => Step::unchanged(cursor),
        },
        Input::Opened => match cursor {
            Some(old) if old.material > old.notified => Step::quiet(Cursor {
                notified: old.material,
                ..old
            }),
            _ => Step::unchanged(cursor),
        },
    }
}

/// An explicit cursor that has seen everything up to `version`.
fn at(version: u64) -> Cursor {
    Cursor {
        last_seen: version,
        notified: version,
        material: version,
        provenance: Provenance::Explicit,
        kinds: KindSet::NOTIFYING,
    }
}

/// What holds whatever happens to a cursor.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod invariants {
    use super::*;

    /// Panics when one of them is broken by these moves: each what happens (of 8),
    /// whether the watcher did it, whether it is ambient or names the watcher, and
    /// how far behind the notice an acknowledgement is.
    pub(crate) fn hold(moves: impl IntoIterator<Item = (u8, bool, bool, u64)>) {
        let mut cursor = None;
        let mut sequence = 0;
        let mut newest_material = None;
        for (what, own, ambient, back) in moves {
            let before: Option<Cursor> = cursor;
            let provenance = if ambient {
                Provenance::AmbientGroup
            } else {
                Provenance::Explicit
            };
            let mut event = |kind| {
                sequence += 1;
                Input::Event {
                    sequence,
                    kind,
                    own,
                    named: ambient,
                }
            };
            let input = match what % 8 {
                0 => Input::Watch {
                    version: sequence,
                    provenance,
                    kinds: None,
                },
                1 => {
                    sequence += 1;
                    Input::Seed { sequence }
                }
                2..=4 => event(Kind::ALL[usize::from(what % 8)]),
                5 => event(Kind::HumanDirectMessage),
                6 => Input::Ack {
                    through: before.map_or(0, |c| c.notified).saturating_sub(back),
                },
                _ => Input::Opened,
            };
            let next = step(before, input);
            cursor = next.cursor;
            let Some(now) = cursor else { continue };
            assert!(now.last_seen <= now.notified && now.notified <= now.material);
            if let Some(old) = before {
                assert!(now.last_seen >= old.last_seen && now.material >= old.material);
                // A notice opens only where none is, or for what came behind the one just taken.
                if next.opened && old.is_pending() {
                    let acked = matches!(input, Input::Ack { .. });
                    assert!(acked && now.last_seen > old.last_seen);
                }
                if !next.touched {
                    assert_eq!(now, old);
                }
            }
            assert!(!next.opened || now.is_pending());
            if let Input::Event { sequence, .. } = input
                && next.touched
            {
                newest_material = Some(sequence);
            }
            if let Some(material) = newest_material {
                // Each event that matters is covered by the open notice, or was taken.
                assert!(
                    material <= now.last_seen || (now.is_pending() && material <= now.material)
                );
            }
            if next.wake {
                assert!(now.is_pending() && now.provenance == Provenance::Explicit);
            }
        }
        // Draining to the end takes at most two notices, and then nothing is open.
        for _ in 0..2 {
            if let Some(now) = cursor.filter(Cursor::is_pending) {
                cursor = step(
                    cursor,
                    Input::Ack {
                        through: now.notified,
                    },
                )
                .cursor;
            }
        }
        if let Some(now) = cursor {
            assert!(!now.is_pending());
            assert_eq!(now.last_seen, now.material);
            assert!(newest_material.is_none_or(|material| material <= now.last_seen));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cursor(last_seen: u64, notified: u64, material: u64) -> Cursor {
        Cursor {
            last_seen,
            notified,
            material,
            ..at(0)
        }
    }

    fn human(sequence: u64) -> Input {
        Input::Event {
            sequence,
            kind: Kind::HumanDirectMessage,
            own: false,
            named: false,
        }
    }

    fn marks(step: Step) -> (u64, u64, u64, bool) {
        let cursor = step.cursor.unwrap();
        (
            cursor.last_seen,
            cursor.notified,
            cursor.material,
            step.opened,
        )
    }

    #[test]
    fn each_row_of_the_table() {
        let watch = |version| Input::Watch {
            version,
            provenance: Provenance::Explicit,
            kinds: None,
        };
        assert_eq!(marks(step(None, watch(7))), (7, 7, 7, false));
        assert_eq!(
            marks(step(Some(cursor(1, 3, 5)), watch(9))),
            (1, 3, 5, false)
        );
        assert_eq!(
            marks(step(None, Input::Seed { sequence: 4 })),
            (4, 4, 4, false)
        );
        assert_eq!(
            marks(step(Some(cursor(2, 2, 2)), Input::Seed { sequence: 4 })),
            (4, 4, 4, false)
        );
        assert_eq!(
            marks(step(Some(cursor(1, 2, 3)), Input::Seed { sequence: 4 })),
            (1, 2, 3, false)
        );
        assert_eq!(
            marks(step(Some(cursor(2, 2, 2)), human(9))),
            (2, 9, 9, true)
        );
        assert_eq!(
            marks(step(Some(cursor(2, 5, 5)), human(9))),
            (2, 5, 9, false)
        );
        assert_eq!(
            marks(step(Some(cursor(2, 5, 9)), Input::Ack { through: 5 })),
            (5, 9, 9, true)
        );
        assert_eq!(
            marks(step(Some(cursor(2, 5, 5)), Input::Ack { through: 5 })),
            (5, 5, 5, false)
        );
        // The notice was seen at 5 before another process opened the database.
        assert_eq!(
            marks(step(Some(cursor(2, 9, 9)), Input::Ack { through: 5 })),
            (5, 9, 9, true)
        );
        for late in [0, 2, 6, 9] {
            let old = Some(cursor(2, 5, 9));
            assert_eq!(
                step(old, Input::Ack { through: late }),
                Step::unchanged(old)
            );
        }
        assert_eq!(
            marks(step(Some(cursor(2, 5, 9)), Input::Opened)),
            (2, 9, 9, false)
        );
    }

    #[test]
    fn who_is_told_of_what() {
        let old = Some(cursor(2, 2, 2));
        let event = |kind, own, named| Input::Event {
            sequence: 9,
            kind,
            own,
            named,
        };
        for kind in Kind::ALL {
            assert_eq!(
                step(old, event(kind, false, false)).opened,
                kind.notifies(),
                "{kind:?}"
            );
            assert!(!step(old, event(kind, true, true)).touched);
            assert!(step(old, event(kind, false, true)).opened);
            assert_eq!(step(None, event(kind, false, false)), Step::unchanged(None));
        }
        assert_eq!(
            marks(step(None, event(Kind::GoalChanged, false, true))),
            (0, 9, 9, true)
        );
    }

    #[test]
    fn an_ambient_cursor_raises_its_wake_when_it_becomes_explicit() {
        let ambient = Cursor {
            provenance: Provenance::AmbientGroup,
            ..cursor(2, 2, 2)
        };
        let open = step(Some(ambient), human(3));
        assert!(open.opened && !open.wake);
        let watch = Input::Watch {
            version: 3,
            provenance: Provenance::Explicit,
            kinds: None,
        };
        assert!(step(open.cursor, watch).wake);
        assert!(step(open.cursor, Input::Seed { sequence: 4 }).wake);
        assert!(!step(Some(ambient), watch).wake);
        assert!(!step(step(open.cursor, watch).cursor, watch).wake);
        let again = Input::Watch {
            version: 3,
            provenance: Provenance::AmbientGroup,
            kinds: None,
        };
        let explicit = Some(cursor(2, 2, 2));
        assert_eq!(
            step(explicit, again).cursor.unwrap().provenance,
            Provenance::Explicit
        );
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_nothing_is_told_twice(
            moves in prop::collection::vec((0u8..8, any::<bool>(), any::<bool>(), 0u64..4), 1..60)
        ) {
            invariants::hold(moves);
        }
    }
}
