//! What programs put around the words a person typed.

use super::print::{Print, Secret, is_blank};
use super::sift::{Text, Value};

/// The text without white space and byte order marks at its start.
pub(super) fn lead(text: &str) -> &str {
    text.trim_start_matches(is_blank)
}

/// Whether nothing but white space is there.
pub(super) fn is_empty(text: &str) -> bool {
    lead(text).is_empty()
}

/// Whether `text` begins with `start` in any case; `start` is ASCII.
pub(super) fn starts_with(text: &str, start: &str) -> bool {
    text.get(..start.len())
        .is_some_and(|head| head.eq_ignore_ascii_case(start))
}

/// What follows the element that `text` begins with: `open` is its start tag, or
/// the beginning of one, `close` its end tag.
pub(super) fn after_element<'t>(text: &'t str, open: &str, close: &str) -> Option<&'t str> {
    let (_, rest) = text.strip_prefix(open)?.split_once(close)?;
    Some(rest)
}

/// What stands between the first `open` and the `close` after it.
pub(super) fn inside<'t>(text: &'t str, open: &str, close: &str) -> Option<&'t str> {
    let (_, rest) = text.split_once(open)?;
    Some(rest.split_once(close).map_or(rest, |(inside, _)| inside))
}

/// The texts of `message.content`, and what else is in it.
#[derive(Default)]
pub(super) struct Content<'r> {
    /// The texts in order.
    pub texts: Vec<&'r Text>,
    /// Whether there is an image or a document.
    pub has_media: bool,
    /// Whether there are blocks, all of them tool results.
    pub only_tools: bool,
}

impl<'r> Content<'r> {
    /// Reads a string, or a list of blocks with `type` and `text`; bare strings in
    /// the list count as texts.
    pub fn of(content: &'r Value) -> Content<'r> {
        if let Some(text) = content.text() {
            return Content {
                texts: vec![text],
                ..Content::default()
            };
        }
        let mut found = Content::default();
        let mut tools = 0;
        for block in content.items() {
            match block.get("type").str() {
                Some("image" | "document" | "input_image" | "local_image") => {
                    found.has_media = true
                }
                Some("tool_result") => tools += 1,
                Some("text" | "input_text") | None => {
                    found
                        .texts
                        .extend(block.text().or(block.get("text").text()));
                }
                Some(_) => {}
            }
        }
        found.only_tools = tools > 0 && tools == content.items().len();
        found
    }
}

/// The words a person typed, as they were left of the texts of a row.
#[derive(Default)]
pub(super) struct Words<'r>(Vec<(Option<&'r Text>, String)>);

impl<'r> Words<'r> {
    /// Words that are not a text's as it stands.
    pub fn made(words: String) -> Words<'static> {
        Words(vec![(None, words)])
    }

    /// Adds what was left of a text.
    pub fn push(&mut self, text: &'r Text, left: impl Into<String>) {
        let left = left.into();
        if !is_empty(&left) {
            self.0.push((Some(text), left));
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Their print.
    pub fn print(&self, secret: &Secret) -> Print {
        let mut printer = secret.printer();
        for (text, left) in &self.0 {
            match text.and_then(|text| text.long) {
                None => printer.feed(left),
                // Of a text too long to be kept the whole was printed as it was read.
                Some(print) if self.0.len() == 1 => return print,
                Some(print) => printer.feed(&format!("{print:?}")),
            }
            printer.feed("\n");
        }
        printer.finish()
    }

    /// A hash of them without any white space.
    pub fn dense(&self, secret: &Secret) -> u64 {
        let mut printer = secret.printer();
        for (text, left) in &self.0 {
            match text.and_then(|text| text.long) {
                None => left.split(is_blank).for_each(|word| printer.feed(word)),
                Some(print) => printer.feed(&format!("{print:?}")),
            }
        }
        u64::from_le_bytes(
            printer.finish().as_bytes()[..8]
                .try_into()
                .unwrap_or_default(),
        )
    }
}
