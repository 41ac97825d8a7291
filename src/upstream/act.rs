//! What a row says: one act of a person, and what the act is known by.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::print::{Key, Print, Secret};

/// What a person did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ActKind {
    /// Wrote to the agent; an image alone counts.
    Prompt,
    /// Ran a slash command.
    Command,
    /// Ran a shell command of their own.
    Shell,
}

/// One act of a person in an upstream session: a human turn, unless it is known
/// already or was the host's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Act {
    /// What it was.
    pub kind: ActKind,
    /// When the row says it was, in milliseconds since the Unix epoch.
    pub time_ms: Option<i64>,
    /// The print of what was typed, without what the program put around it.
    pub text: Print,
    /// Whether this is the act told before it, written in another form at another
    /// time: its keys are to be remembered beside the other's, it is not told.
    pub again: bool,
    /// The print of what was given to a command line that puts double quotes
    /// around it, when the text may be that.
    pub unquoted: Option<Print>,
    keys: [Option<Key>; 2],
}

impl Act {
    /// What the act is known by. It is known when any of these is, and all of
    /// them are to be remembered. A copy in another file has the same ones as
    /// far as the rows can tell.
    pub fn keys(&self) -> impl Iterator<Item = Key> + use<> {
        self.keys.into_iter().flatten()
    }

    /// The prints of what the host may have sent, if the act is its own.
    pub fn prints(&self) -> impl Iterator<Item = Print> + use<> {
        std::iter::once(self.text).chain(self.unquoted)
    }

    /// The act as one that was told before.
    pub(super) fn again(self) -> Act {
        Act {
            again: true,
            ..self
        }
    }
}

/// Makes the keys of the acts of one source.
pub(super) struct Names {
    secret: Secret,
    catalog: &'static str,
    /// The thread as the caller knows it.
    thread: String,
}

/// What a row has to be known by.
pub(super) struct Marks<'a> {
    /// The row's own id: what is listed names it among all rows of the catalog.
    pub id: Option<&'a [&'a str]>,
    /// Whether the row is known by its text beside its id.
    pub text_too: bool,
    /// The thread the row itself names.
    pub thread: Option<&'a str>,
    pub time_ms: Option<i64>,
}

impl Names {
    pub fn new(secret: &Secret, catalog: &'static str, thread: &str) -> Names {
        Names {
            secret: secret.clone(),
            catalog,
            thread: thread.to_owned(),
        }
    }

    pub fn secret(&self) -> &Secret {
        &self.secret
    }

    /// The act of this kind, text and marks.
    pub fn act(&self, kind: ActKind, text: Print, marks: &Marks<'_>, repeats: &mut Repeats) -> Act {
        let id = marks.id.map(|id| self.id(id));
        let by_text = (id.is_none() || marks.text_too).then(|| self.text(text, marks, repeats));
        Act {
            kind,
            time_ms: marks.time_ms,
            text,
            again: false,
            unquoted: None,
            keys: [id, by_text],
        }
    }

    fn id(&self, id: &[&str]) -> Key {
        let mut fields = vec![b"id".as_slice(), self.catalog.as_bytes()];
        fields.extend(id.iter().map(|part| part.as_bytes()));
        self.secret.key(&fields)
    }

    /// The key of thread, time, text and the count among rows equal in all three.
    fn text(&self, text: Print, marks: &Marks<'_>, repeats: &mut Repeats) -> Key {
        let thread = marks.thread.unwrap_or(&self.thread);
        let time = marks.time_ms.map(i64::to_le_bytes);
        let time = time.as_ref().map_or(&[][..], |time| time);
        let key = |count: u32| {
            self.secret.key(&[
                b"text",
                self.catalog.as_bytes(),
                thread.as_bytes(),
                time,
                text.as_bytes(),
                &count.to_le_bytes(),
            ])
        };
        match repeats.count(key(0)) {
            0 => key(0),
            count => key(count),
        }
    }
}

/// How often rows equal in thread, time and text were met: the rows met last, and
/// so, where rows have times, all that can be equal.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Repeats(VecDeque<(u64, u32)>);

impl Repeats {
    const KEPT: usize = 64;

    /// How often this one was met before.
    fn count(&mut self, key: Key) -> u32 {
        let short = u64::from_le_bytes(key.as_bytes()[..8].try_into().unwrap_or_default());
        let at = self.0.iter().position(|(known, _)| *known == short);
        let before = at.and_then(|at| self.0.remove(at)).map_or(0, |(_, n)| n);
        self.0.push_back((short, before + 1));
        if self.0.len() > Repeats::KEPT {
            self.0.pop_front();
        }
        before
    }
}

/// The milliseconds since the Unix epoch of an RFC 3339 time.
pub(super) fn time_ms(text: &str) -> Option<i64> {
    let time = chrono::DateTime::parse_from_rfc3339(text).ok()?;
    Some(time.timestamp_millis())
}

/// The time in the first 48 bits of a UUID of version 7, in milliseconds since
/// the Unix epoch.
pub(super) fn uuid_time_ms(id: &str) -> Option<i64> {
    let bytes = id.as_bytes();
    if !is_uuid(id) || bytes[14] != b'7' {
        return None;
    }
    i64::from_str_radix(&[&id[..8], &id[9..13]].concat(), 16).ok()
}

/// Whether a text is a UUID, and so names the same thing everywhere.
pub(super) fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(i, byte)| match i {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        Names::new(&Secret::new([7; 32]), "x", "thread")
    }

    fn act(names: &Names, repeats: &mut Repeats, id: Option<&[&str]>, text: &str) -> Vec<Key> {
        let marks = Marks {
            id,
            text_too: false,
            thread: None,
            time_ms: Some(5),
        };
        let text = names.secret().print(text);
        names
            .act(ActKind::Prompt, text, &marks, repeats)
            .keys()
            .collect()
    }

    #[test]
    fn a_row_without_id_is_known_by_thread_time_text_and_count() {
        let (names, mut repeats) = (names(), Repeats::default());
        let first = act(&names, &mut repeats, None, "yes");
        let other = act(&names, &mut repeats, None, "no");
        let again = act(&names, &mut repeats, None, "yes");
        assert!(first != other && first != again && other != again);
        // A reading from the start counts anew.
        assert_eq!(act(&names, &mut Repeats::default(), None, "yes"), first);
        let thread = Names::new(names.secret(), "x", "other");
        assert_ne!(act(&thread, &mut Repeats::default(), None, "yes"), first);
        let catalog = Names::new(names.secret(), "y", "thread");
        assert_ne!(act(&catalog, &mut Repeats::default(), None, "yes"), first);
    }

    #[test]
    fn an_id_is_enough() {
        let (names, mut repeats) = (names(), Repeats::default());
        let first = act(&names, &mut repeats, Some(&["1", "2"]), "yes");
        assert_eq!(first.len(), 1);
        assert_eq!(act(&names, &mut repeats, Some(&["1", "2"]), "no"), first);
        assert_ne!(act(&names, &mut repeats, Some(&["12"]), "yes"), first);
    }

    #[test]
    fn what_is_counted_is_bounded() {
        let (names, mut repeats) = (names(), Repeats::default());
        for n in 0..1000 {
            act(&names, &mut repeats, None, &n.to_string());
        }
        assert_eq!(repeats.0.len(), Repeats::KEPT);
        assert!(serde_json::to_string(&repeats).unwrap().len() < 2048);
    }

    #[test]
    fn times_and_uuids_are_read() {
        assert_eq!(time_ms("1970-01-01T00:00:01.5Z"), Some(1500));
        assert_eq!(time_ms("1970-01-01T01:00:00+01:00"), Some(0));
        assert_eq!(time_ms("1969-12-31T23:59:59.999Z"), Some(-1));
        assert_eq!(time_ms("1970-01-01T00:00:00.123456789123Z"), Some(123));
        for wrong in [
            "yesterday",
            "",
            "1970-01-01",
            "1970-02-30T00:00:00Z",
            "1970-01-01T00:00:00",
        ] {
            assert_eq!(time_ms(wrong), None, "{wrong}");
        }
        let id = "01a22c79-48ed-7480-a102-2d91c8ce991a";
        assert_eq!(uuid_time_ms(id), Some(0x01a2_2c79_48ed));
        assert_eq!(uuid_time_ms("01a22c79-48ed-4480-a102-2d91c8ce991a"), None);
        assert_eq!(uuid_time_ms("rollout-7"), None);
        assert!(
            is_uuid(id)
                && !is_uuid("item-1")
                && !is_uuid(&id[1..])
                && !is_uuid(&id.replace('7', "g"))
        );
    }
}
