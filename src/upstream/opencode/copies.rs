//! Which messages a fork copied.
//!
//! A fork is a new session with copies of the messages of the old one. They get
//! new ids and keep their times, and an id of OpenCode begins with the time at
//! which it was made.

/// A message made so many milliseconds after its own time is a copy. Ids are
/// made in the same act as times; a slow disk does not come between.
const SURELY_LATER: i64 = 1_000;

/// The lag within which ids of a session's own messages are made.
const OWN_LAG: i64 = 12;

/// What the time in an id is counted up to: it has 36 bits for milliseconds.
const WRAP: i64 = 1 << 36;

/// Where a message comes from, as its own fields say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    Own,
    Copy,
    /// The fields cannot tell: the message has to be compared with others.
    Unsure,
}

/// The origin of a message of this id and time, in a session begun at
/// `session_created`. Times are milliseconds since the epoch.
pub(super) fn origin(id: &str, created: Option<i64>, session_created: Option<i64>) -> Origin {
    let Some(created) = created else {
        return Origin::Own;
    };
    let Some(made) = made_at(id) else {
        return Origin::Unsure;
    };
    // A row may hold any number for a time.
    let since = |time: i64| (made - time.rem_euclid(WRAP) + WRAP / 2).rem_euclid(WRAP) - WRAP / 2;
    let older_than_session =
        session_created.is_some_and(|begun| created < begun && since(begun) >= 0);
    match since(created) {
        lag if lag > SURELY_LATER || older_than_session => Origin::Copy,
        lag if lag > OWN_LAG => Origin::Unsure,
        // The clock of an attached client may be late by any time.
        _ => Origin::Own,
    }
}

/// The time in an id, in milliseconds since the epoch modulo [`WRAP`]; `None`
/// for an id that OpenCode did not make.
fn made_at(id: &str) -> Option<i64> {
    let id = id.strip_prefix("msg_")?;
    let is_native = id.len() == 26 && id.bytes().all(|b| b.is_ascii_alphanumeric());
    // 48 bits: the milliseconds, and a counter of 12 bits.
    let made = i64::from_str_radix(id.get(..12)?, 16).ok()?;
    is_native.then_some(made >> 12)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An id made at a time, as OpenCode makes it.
    fn id(made: i64) -> String {
        format!(
            "msg_{:012x}hHR1j0stW6IuV0",
            (made.rem_euclid(WRAP)) << 12 | 1
        )
    }

    const TIME: i64 = 1_796_042_322_281;

    #[test]
    fn an_own_message_has_the_time_of_its_id() {
        for lag in [-3_600_000, -1, 0, 12] {
            assert_eq!(
                origin(&id(TIME + lag), Some(TIME), Some(TIME)),
                Origin::Own,
                "{lag}"
            );
        }
        assert_eq!(
            origin("msg_22c76f169001hHR1j0stW6IuV0", Some(TIME), None),
            Origin::Own
        );
        assert_eq!(origin(&id(TIME), None, None), Origin::Own);
    }

    #[test]
    fn a_copy_is_made_later_than_it_says() {
        assert_eq!(origin(&id(TIME + 1_001), Some(TIME), None), Origin::Copy);
        assert_eq!(
            origin(&id(TIME + 86_400_000), Some(TIME), None),
            Origin::Copy
        );
        assert_eq!(
            origin(
                "msg_22c775da2001ijGsNtaFnHcaRc",
                Some(1_796_042_326_953),
                None
            ),
            Origin::Copy
        );
    }

    #[test]
    fn a_fork_within_the_second_is_told_by_when_its_session_began() {
        assert_eq!(
            origin(&id(TIME + 300), Some(TIME), Some(TIME + 290)),
            Origin::Copy
        );
        assert_eq!(
            origin(&id(TIME + 300), Some(TIME), Some(TIME - 5)),
            Origin::Unsure
        );
        assert_eq!(origin(&id(TIME + 300), Some(TIME), None), Origin::Unsure);
        // A client whose clock is late types into a session that has just begun.
        assert_eq!(
            origin(&id(TIME - 500), Some(TIME), Some(TIME - 20)),
            Origin::Own
        );
    }

    #[test]
    fn any_number_is_a_time() {
        for time in [i64::MIN, i64::MIN + 1, -1, 0, i64::MAX] {
            for begun in [None, Some(i64::MIN), Some(i64::MAX)] {
                origin(&id(TIME), Some(time), begun);
                origin("msg_ffffffffffffhHR1j0stW6IuV0", Some(time), begun);
            }
            // What counts is the distance within one turn of the counter.
            let near = time.rem_euclid(WRAP);
            assert_eq!(origin(&id(near), Some(time), None), Origin::Own);
            assert_eq!(origin(&id(near + 5_000), Some(time), None), Origin::Copy);
        }
    }

    #[test]
    fn the_time_in_an_id_wraps() {
        let edge = 27 * WRAP;
        assert_eq!(origin(&id(edge), Some(edge - 5), None), Origin::Own);
        assert_eq!(
            origin(&id(edge + 1_996), Some(edge - 5), None),
            Origin::Copy
        );
        assert_eq!(origin(&id(edge - 5), Some(edge), None), Origin::Own);
    }

    #[test]
    fn an_id_of_another_make_tells_nothing() {
        for id in [
            "msg_a1",
            "message-user",
            "",
            "msg_+2c76f169001hHR1j0stW6IuV0",
            "msg_22c76f16900éhHR1j0stW6IuV",
        ] {
            assert_eq!(origin(id, Some(TIME), Some(TIME)), Origin::Unsure, "{id}");
        }
    }
}
