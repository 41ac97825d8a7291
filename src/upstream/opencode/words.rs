//! What a user message says, and whether a person typed it.
//!
//! OpenCode writes a message first and its parts after it, one by one. No
//! field says who wrote a message; of a part, `synthetic` and `ignored` say
//! that the program did.

use std::borrow::Cow;
use std::cmp::Reverse;

use crate::upstream::print::{Print, Printer, Secret, is_blank};
use crate::upstream::sift::{TEXT_LIMIT, Text, Value, Want};

const SCALAR: Want = Want::Scalar;
const TIME: Want = Want::Fields(&[("created", SCALAR)]);
const PLACE: &[(&str, Want)] = &[("value", SCALAR), ("start", SCALAR), ("end", SCALAR)];
const INFO_FIELDS: &[(&str, Want)] = &[
    ("id", SCALAR),
    ("role", SCALAR),
    ("parentID", SCALAR),
    ("time", TIME),
];

/// A message without its parts: `message.data`, a file of `storage/message/`,
/// or the `info` of a fed row.
pub(super) static INFO: Want = Want::Fields(INFO_FIELDS);

/// A part: `part.data`, or a file of `storage/part/`.
pub(super) static PART: Want = Want::Fields(&[
    ("type", SCALAR),
    ("text", SCALAR),
    ("synthetic", SCALAR),
    ("ignored", SCALAR),
    ("metadata", Want::Fields(&[("compaction_continue", SCALAR)])),
    ("mime", SCALAR),
    ("filename", SCALAR),
    ("source", Want::Fields(&[("text", Want::Fields(PLACE))])),
]);

/// A fed row: a message and its parts.
pub(super) static ROW: Want = Want::Fields(&[
    ("info", Want::Fields(INFO_FIELDS)),
    ("parts", Want::Items(&PART)),
]);

/// `session_message.data` of a row of type `user`.
pub(super) static PROMPT: Want = Want::Fields(&[
    ("text", SCALAR),
    ("time", TIME),
    (
        "files",
        Want::Items(&Want::Fields(&[(
            "source",
            Want::Fields(&[("text", SCALAR), ("start", SCALAR), ("end", SCALAR)]),
        )])),
    ),
]);

/// What OpenCode says in the person's place after a shell input.
const TOOL_RUN: &str = "The following tool was executed by the user";

/// The mentions of one message that are looked at.
const MENTIONS: usize = 256;

/// What is to be thought of a user message, as far as its parts are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// A person typed it.
    Typed {
        /// The typed text.
        text: Print,
        /// What `opencode run` was given, if it was that.
        unquoted: Option<Print>,
        /// The typed text and the names of what is attached.
        shown: Print,
    },
    /// Nothing in it was typed; a part still to come may change that.
    Open { shown: Option<Print> },
    /// The program made it, whatever else comes.
    Program,
}

/// The parts of one user message, taken in by the order of their ids.
pub(super) struct Words<'a> {
    secret: &'a Secret,
    /// The typed texts, line by line; `None` when they are too long to look into.
    text: Option<String>,
    typed: Printer,
    /// The print of the only typed text, when it is a long one.
    alone: Option<Print>,
    shown: Printer,
    mentions: Vec<Mention>,
    program: bool,
}

impl<'a> Words<'a> {
    pub(super) fn new(secret: &'a Secret) -> Words<'a> {
        Words {
            secret,
            text: Some(String::new()),
            typed: secret.printer(),
            alone: None,
            shown: secret.printer(),
            mentions: Vec::new(),
            program: false,
        }
    }

    /// Takes in a [`PART`].
    pub(super) fn part(&mut self, part: &Value) {
        match part.get("type").str() {
            Some("text") => {
                let flags = [
                    part.get("synthetic"),
                    part.get("ignored"),
                    part.get("metadata").get("compaction_continue"),
                ];
                if !flags.into_iter().any(Value::is_true) {
                    self.text(part.get("text"));
                }
            }
            Some("file") => {
                self.mention(part.get("source").get("text"), "value");
                if let Some(mime) = part.get("mime").str()
                    && (mime.starts_with("image/") || mime == "application/pdf")
                {
                    // A replay of the message holds this text instead of the file.
                    let name = part.get("filename").str().unwrap_or("file");
                    self.shown.feed(&format!("\n[Attached {mime}: {name}]"));
                }
            }
            Some("compaction" | "subtask") => self.program = true,
            _ => {}
        }
    }

    /// Takes in a [`PROMPT`].
    pub(super) fn prompt(&mut self, prompt: &Value) {
        self.text(prompt.get("text"));
        for file in prompt.get("files").items() {
            self.mention(file.get("source"), "text");
        }
    }

    fn text(&mut self, text: &Value) {
        let first = self.text.as_deref() == Some("");
        match text.text() {
            Some(Text { head, long: None }) => {
                let text = without_reminders(head);
                if text.trim_matches(is_blank) != TOOL_RUN {
                    self.alone = None;
                    self.print(&text);
                    if let Some(all) = &mut self.text {
                        all.push_str(if first { "" } else { "\n" });
                        all.push_str(&text);
                    }
                    self.text = self.text.take().filter(|all| all.len() <= TEXT_LIMIT);
                }
            }
            Some(Text {
                long: Some(long), ..
            }) => {
                self.alone = first.then_some(*long);
                self.print(&format!("{long:?}"));
                self.text = None;
            }
            None => {}
        }
    }

    fn mention(&mut self, place: &Value, value: &str) {
        if self.mentions.len() < MENTIONS {
            self.mentions.push(Mention {
                value: place.get(value).str().map(str::to_owned),
                start: place.get("start").integer().unwrap_or(0),
                end: place.get("end").integer().unwrap_or(0),
            });
        }
    }

    fn print(&mut self, text: &str) {
        for printer in [&mut self.typed, &mut self.shown] {
            printer.feed("\n");
            printer.feed(text);
        }
    }

    pub(super) fn verdict(self) -> Verdict {
        if self.program {
            return Verdict::Program;
        }
        let nothing = self.secret.print("");
        let shown = Some(self.shown.finish()).filter(|shown| *shown != nothing);
        let typed = self
            .text
            .as_deref()
            .is_none_or(|text| more_than(text, &self.mentions));
        match shown {
            Some(shown) if typed => Verdict::Typed {
                text: self.alone.unwrap_or_else(|| self.typed.finish()),
                unquoted: self
                    .text
                    .as_deref()
                    .and_then(unquoted)
                    .map(|text| self.secret.print(&text)),
                shown,
            },
            shown => Verdict::Open { shown },
        }
    }
}

/// Where a text names a file, and by which words.
struct Mention {
    value: Option<String>,
    /// In UTF-16 units.
    start: i64,
    end: i64,
}

/// Whether `text` says more than what it mentions. Not every version counts the
/// places of mentions in the same units, so the words are looked for as well.
fn more_than(text: &str, mentions: &[Mention]) -> bool {
    let mut unit = 0;
    let outside = text.chars().any(|c| {
        let at = unit;
        unit += c.len_utf16() as i64;
        !is_blank(c)
            && !mentions
                .iter()
                .any(|mention| (mention.start..mention.end).contains(&at))
    });
    let mut values: Vec<&str> = mentions
        .iter()
        .filter_map(|mention| mention.value.as_deref())
        .collect();
    values.sort_by_key(|value| Reverse(value.len()));
    let rest = values.into_iter().fold(Cow::Borrowed(text), |rest, value| {
        rest.replace(value, "").into()
    });
    outside && !rest.chars().all(is_blank)
}

/// `text` without its whole `<system-reminder>` blocks.
fn without_reminders(text: &str) -> Cow<'_, str> {
    let mut kept = String::new();
    let mut rest = text;
    while let Some((before, block)) = rest.split_once("<system-reminder>")
        && let Some((_, after)) = block.split_once("</system-reminder>")
    {
        kept.push_str(before);
        rest = after;
    }
    if rest.len() == text.len() {
        return text.into();
    }
    (kept + rest).into()
}

/// What `opencode run` was given, when `text` is what it makes of an argument
/// that holds a space: in double quotes, with a backslash before each inner one.
fn unquoted(text: &str) -> Option<String> {
    let inner = text
        .trim_matches(is_blank)
        .strip_prefix('"')?
        .strip_suffix('"')?;
    Some(inner.replace("\\\"", "\""))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::upstream::opencode::fixture::{secret, synthetic, text};
    use crate::upstream::rows::read_value;

    fn value(json: &serde_json::Value, want: &'static Want) -> Value {
        read_value(json.to_string().as_bytes(), &secret(), want).unwrap()
    }

    fn verdict(parts: &[serde_json::Value]) -> Verdict {
        let secret = secret();
        let mut words = Words::new(&secret);
        for part in parts {
            words.part(&value(part, &PART));
        }
        words.verdict()
    }

    fn typed(parts: &[serde_json::Value]) -> Option<Print> {
        match verdict(parts) {
            Verdict::Typed { text, .. } => Some(text),
            Verdict::Open { .. } | Verdict::Program => None,
        }
    }

    fn image() -> serde_json::Value {
        json!({ "type": "file", "mime": "image/png", "filename": "a.png", "url": "data:image/png;base64,iVBORw0K" })
    }

    fn mention(value: &str, start: usize) -> serde_json::Value {
        let place = json!({ "value": value, "start": start, "end": start + value.len() });
        json!({
            "type": "file", "mime": "text/plain", "filename": "a.rs", "url": "file:///home/dev/a.rs",
            "source": { "type": "file", "path": "a.rs", "text": place }
        })
    }

    #[test]
    fn all_typed_texts_are_one_turn() {
        let print = |text| Some(secret().print(text));
        assert_eq!(typed(&[text("fix it")]), print("fix it"));
        assert_eq!(
            typed(&[text(" fix "), synthetic("a note"), text("it\n")]),
            print("fix it")
        );
        assert_eq!(
            typed(&[synthetic("a note"), json!({ "type": "file" }), text("last")]),
            print("last")
        );
        assert_eq!(typed(&[text("look"), image()]), print("look"));
    }

    #[test]
    fn what_the_program_wrote_is_not_typed() {
        let flagged = |flag: &str| json!({ "type": "text", "text": "x", flag: true });
        let goes_on = json!({ "type": "text", "text": "Continue", "metadata": { "compaction_continue": true } });
        for part in [
            flagged("synthetic"),
            flagged("ignored"),
            goes_on,
            text("The following tool was executed by the user\n"),
            text("<system-reminder>\nplan mode\n</system-reminder>"),
            text(" <system-reminder>a</system-reminder>\n<system-reminder>b</system-reminder> "),
            text(" \n\u{feff}"),
            text(""),
            json!({ "type": "reasoning", "text": "x" }),
            json!({ "type": "agent", "name": "general" }),
            json!({ "type": "text" }),
            json!({ "type": "text", "text": 7 }),
            json!({ "text": "x" }),
            json!([]),
            json!(null),
        ] {
            assert_eq!(
                verdict(std::slice::from_ref(&part)),
                Verdict::Open { shown: None },
                "{part}"
            );
        }
        assert_eq!(
            typed(&[json!({ "type": "text", "text": "x", "synthetic": false, "ignored": null })]),
            typed(&[text("x")])
        );
    }

    #[test]
    fn a_compaction_or_a_command_for_a_sub_agent_is_the_programs() {
        for part in [
            json!({ "type": "compaction", "auto": true }),
            json!({ "type": "compaction", "auto": false }),
            json!({ "type": "subtask", "prompt": "review", "agent": "general", "command": "review" }),
        ] {
            assert_eq!(verdict(&[text("x"), part]), Verdict::Program);
        }
    }

    #[test]
    fn an_image_or_a_mention_alone_is_no_turn() {
        assert!(matches!(
            verdict(&[image()]),
            Verdict::Open { shown: Some(_) }
        ));
        for (said, mentions) in [
            ("@a.rs", vec![mention("@a.rs", 0)]),
            (
                "@a.rs @b.rs ",
                vec![mention("@a.rs", 0), mention("@b.rs", 6)],
            ),
            // Counted in columns, not in characters.
            (
                "@日本.rs @b.rs",
                vec![mention("@日本.rs", 0), mention("@b.rs", 10)],
            ),
            ("@a @a.rs", vec![mention("@a", 0), mention("@a.rs", 3)]),
            // A name of which only the place is right.
            ("@a.rs", vec![mention("xa.rs", 0)]),
        ] {
            let parts: Vec<_> = std::iter::once(text(said)).chain(mentions).collect();
            assert_eq!(typed(&parts), None, "{said}");
        }
        for (said, mentions) in [
            ("look at @a.rs", vec![mention("@a.rs", 8)]),
            ("@b.rs", vec![]),
            ("?", vec![mention("@a.rs", 5)]),
        ] {
            let parts: Vec<_> = std::iter::once(text(said)).chain(mentions).collect();
            assert_eq!(typed(&parts), Some(secret().print(said)), "{said}");
        }
        // The mention of an agent is an act: it sends the agent off.
        assert!(
            typed(&[
                text("@general"),
                json!({ "type": "agent", "source": { "value": "@general", "start": 0, "end": 8 } })
            ])
            .is_some()
        );
    }

    #[test]
    fn whole_reminders_are_cut_out() {
        for (said, left) in [
            ("a<system-reminder>b</system-reminder>c", "ac"),
            (
                "<system-reminder>a</system-reminder>b<system-reminder>c",
                "b<system-reminder>c",
            ),
            ("</system-reminder>a", "</system-reminder>a"),
            ("<system-reminder>a", "<system-reminder>a"),
            ("no reminder", "no reminder"),
        ] {
            assert_eq!(without_reminders(said), left);
        }
    }

    #[test]
    fn what_a_command_line_was_given_is_inside_its_quotes() {
        for (stored, given) in [
            ("\"two words\"", Some("two words")),
            ("\"two words\"\n", Some("two words")),
            ("\"say \\\"hi\\\" now\"", Some("say \"hi\" now")),
            ("\"C:\\my dir\\\"", Some("C:\\my dir\\")),
            ("\"\"", Some("")),
            ("\"", None),
            ("oneword", None),
            ("\"two\" words", None),
        ] {
            assert_eq!(unquoted(stored).as_deref(), given, "{stored}");
        }
        let Verdict::Typed { text, unquoted, .. } = verdict(&[text("\"two words\"\n")]) else {
            panic!("it was typed");
        };
        assert_eq!(text, secret().print("\"two words\""));
        assert_eq!(unquoted, Some(secret().print("two words")));
    }

    #[test]
    fn a_text_too_long_to_be_kept_has_the_print_of_the_whole() {
        let long = "word ".repeat(TEXT_LIMIT / 4);
        assert_eq!(typed(&[text(&long)]), Some(secret().print(&long)));
        assert_eq!(
            typed(&[synthetic("a note"), text(&long)]),
            Some(secret().print(&long))
        );
        assert!(
            typed(&[text(&long), text("more")]).is_some_and(|both| both != secret().print(&long))
        );
        assert_eq!(typed(&[synthetic(&long)]), None);
        // Many shorter ones are as much.
        let half = "word ".repeat(TEXT_LIMIT / 8);
        let both = format!("{half}\n{half}");
        assert_eq!(
            typed(&[text(&half), text(&half)]),
            Some(secret().print(&both))
        );
    }

    #[test]
    fn a_message_says_what_it_is() {
        let info = value(
            &json!({ "id": "msg_1", "role": "assistant", "parentID": "msg_0", "time": { "created": 7, "completed": 9 }, "summary": {} }),
            &INFO,
        );
        assert_eq!(info.get("id").str(), Some("msg_1"));
        assert_eq!(info.get("parentID").str(), Some("msg_0"));
        assert_eq!(info.get("time").get("created").integer(), Some(7));
    }

    proptest! {
        #[test]
        fn any_parts_are_judged(parts in prop::collection::vec(".{0,200}", 0..4), start in any::<i64>(), end in any::<i64>()) {
            let place = json!({ "value": parts.first(), "start": start, "end": end });
            let mut all = vec![json!({ "type": "file", "source": { "text": place } })];
            all.extend(parts.iter().map(|part| text(part)));
            verdict(&all);
        }

        #[test]
        fn a_quoted_argument_is_found_again(given in "[a-c \"\\\\]{1,20}") {
            let stored = format!("\"{}\"", given.replace('"', "\\\""));
            prop_assert_eq!(unquoted(&stored), Some(given));
        }
    }
}
