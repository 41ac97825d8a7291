//! Takes the few fields that are wanted out of a JSON row, however long it is.
//!
//! A sifter is fed a row in pieces of any size and keeps only what a [`Want`]
//! names; the rest is checked and forgotten. Its memory is bounded: at most
//! [`TEXT_LIMIT`] bytes of long texts, 512 bytes of each other one and
//! [`LIST_LIMIT`] items of a list are kept, and nothing is recursive.
//!
//! The well-kept readers of JSON streams refuse what agents really write and
//! disks really hold: half a surrogate pair (JavaScript's `\ud83d`), bytes that
//! are no UTF-8, NULs. They are no error here, in a text they become U+FFFD or
//! stay as they are. Everything else that is no JSON is an error at a known
//! place, from where a row glued to the torn one can be found; but for escapes in
//! strings that are not wanted, of which only the end is looked for: most of a
//! row is such strings.

use std::fmt;

use memchr::{memchr_iter, memchr2};

use super::print::{Print, Printer, Secret};

/// The long text kept of one row, in bytes.
pub(super) const TEXT_LIMIT: usize = 1 << 20;

/// The items kept of one list; those after them are not judged.
pub(super) const LIST_LIMIT: usize = 4096;

/// Of every text as many bytes are kept, whatever the row has kept before.
const SHORT_TEXT: usize = 512;

/// What is printed of a long text at once.
const DRAINED: usize = 4096;

/// Longer than any wanted field's name.
const LONGEST_NAME: usize = 64;

/// A number's digits after these change nothing that is wanted of it.
const LONGEST_NUMBER: usize = 40;

/// Objects and lists open at once; a row nested deeper is damaged.
const MAX_DEPTH: usize = 1 << 16;

/// What is wanted of a value. A scalar (string, number, true, false, null) at a
/// wanted place is always kept; an object or a list only where it is wanted as
/// one, and is otherwise [`Value::Other`].
pub enum Want {
    /// A scalar.
    Scalar,
    /// Only whether there is something other than null.
    Presence,
    /// These fields of an object.
    Fields(&'static [(&'static str, Want)]),
    /// The items of a list.
    Items(&'static Want),
}

/// What was kept of a value. A field that is absent reads as null.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Value {
    /// `null`, or nothing.
    #[default]
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number, as near as a double comes to it.
    Number(f64),
    /// A string.
    Text(Text),
    /// The wanted items of a list.
    List(Vec<Value>),
    /// The wanted fields of an object.
    Object(Vec<(&'static str, Value)>),
    /// Something that was not wanted in this shape.
    Other,
}

static ABSENT: Value = Value::Null;

impl Value {
    /// The field of an object; null when there is none.
    pub fn get(&self, name: &str) -> &Value {
        match self {
            Value::Object(fields) => fields
                .iter()
                .find(|(field, _)| *field == name)
                .map_or(&ABSENT, |(_, value)| value),
            _ => &ABSENT,
        }
    }

    /// Whether there is something other than null.
    pub fn is_present(&self) -> bool {
        *self != Value::Null
    }

    /// Whether this is `true` itself.
    pub fn is_true(&self) -> bool {
        *self == Value::Bool(true)
    }

    /// The text of a string that was kept whole.
    pub fn str(&self) -> Option<&str> {
        match self {
            Value::Text(text) if text.long.is_none() => Some(&text.head),
            _ => None,
        }
    }

    /// The text of a string that names something: kept whole and not empty.
    pub fn name(&self) -> Option<&str> {
        self.str().filter(|name| !name.is_empty())
    }

    /// The string.
    pub fn text(&self) -> Option<&Text> {
        match self {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// A number without a fraction that a double holds exactly.
    pub fn integer(&self) -> Option<i64> {
        match self {
            Value::Number(n) if n.fract() == 0.0 && n.abs() <= 9_007_199_254_740_992.0 => {
                Some(*n as i64)
            }
            _ => None,
        }
    }

    /// The items of a list.
    pub fn items(&self) -> &[Value] {
        match self {
            Value::List(items) => items,
            _ => &[],
        }
    }
}

/// A string of a row, or the beginning of a long one.
#[derive(Clone, Default, PartialEq)]
pub struct Text {
    /// What was kept.
    pub head: String,
    /// The print of the whole when `head` is not the whole.
    pub long: Option<Print>,
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Text({} bytes, {:?})", self.head.len(), self.long)
    }
}

/// Where a row stops being JSON, in bytes from what the sifter was first fed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Damage {
    /// The first byte that cannot stand where it stands.
    pub at: u64,
}

/// What the end of a row shows.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum End {
    /// White space alone.
    Blank,
    /// A whole value.
    Row(Value),
    /// The value is not closed. `inner` is the place of an object in it that ends
    /// where the row does: a row that was glued to a stub.
    Torn { inner: Option<u64> },
}

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Value,
    FirstItem,
    FirstName,
    Name,
    Colon,
    /// A comma or the end of what is open; white space when nothing is.
    After,
    Text,
    Escape,
    /// The byte after a backslash in a string that is not wanted.
    Skipped,
    /// Hexadecimal digits still to come, and the number so far.
    Hex(u8, u16),
    /// The rest of a word: which, and how much of it was met.
    Word(Word, u8),
    Number,
}

/// The words of JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word {
    True,
    False,
    Null,
}

impl Word {
    fn spelled(self) -> &'static [u8] {
        match self {
            Word::True => b"true",
            Word::False => b"false",
            Word::Null => b"null",
        }
    }
}

/// What the string being read is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Name,
    Value,
}

/// An open object or list that is wanted.
enum Frame {
    Object {
        wants: &'static [(&'static str, Want)],
        /// The wanted field whose value comes next.
        next: Option<&'static (&'static str, Want)>,
        fields: Vec<(&'static str, Value)>,
    },
    List {
        want: &'static Want,
        items: Vec<Value>,
    },
}

/// Sifts one value at a time.
pub(super) struct Sifter<'s> {
    secret: &'s Secret,
    want: &'static Want,
    step: Step,
    /// Bytes fed before the present piece.
    fed: u64,
    /// Where each open object (low bit 1) or list (0) began.
    open: Vec<u64>,
    /// The wanted ones of `open`; they are its first.
    frames: Vec<Frame>,
    root: Value,
    /// Whether anything but white space was met.
    begun: bool,
    /// The start of the inner object that was closed last, if it was the last thing.
    inner: Option<u64>,

    role: Role,
    /// Whether the string is wanted.
    keep: bool,
    /// What is kept of the string, unescaped, not yet decoded; or a number.
    bytes: Vec<u8>,
    /// How much of the string may be kept.
    room: usize,
    /// The kept beginning and the printer of a string longer than that.
    long: Option<Box<(String, Printer)>>,
    /// The first half of a surrogate pair.
    half: Option<u16>,
    /// What is left of [`TEXT_LIMIT`].
    budget: usize,
}

impl<'s> Sifter<'s> {
    /// A sifter for a value of which `want` is wanted.
    pub fn new(secret: &'s Secret, want: &'static Want) -> Sifter<'s> {
        Sifter {
            secret,
            want,
            step: Step::Value,
            fed: 0,
            open: Vec::new(),
            frames: Vec::new(),
            root: Value::Null,
            begun: false,
            inner: None,
            role: Role::Value,
            keep: false,
            bytes: Vec::new(),
            room: 0,
            long: None,
            half: None,
            budget: TEXT_LIMIT,
        }
    }

    /// Begins with another value.
    pub fn restart(&mut self) {
        self.step = Step::Value;
        self.fed = 0;
        self.open.clear();
        self.frames.clear();
        self.root = Value::Null;
        self.begun = false;
        self.inner = None;
        self.long = None;
        self.half = None;
        self.budget = TEXT_LIMIT;
    }

    /// Whether the value is complete; only white space may follow.
    pub fn is_complete(&self) -> bool {
        self.step == Step::After && self.open.is_empty()
    }

    /// Takes the complete value.
    pub fn take(&mut self) -> Value {
        std::mem::take(&mut self.root)
    }

    /// What the end of the row shows.
    pub fn end(&mut self) -> End {
        if self.step == Step::Number {
            self.end_number();
        }
        if !self.begun {
            End::Blank
        } else if self.is_complete() {
            End::Row(self.take())
        } else {
            let inner = self.inner.filter(|_| self.step == Step::After);
            End::Torn { inner }
        }
    }

    /// Reads a piece of the row. After damage the sifter is of no further use,
    /// but that a complete value can still be taken.
    pub fn feed(&mut self, piece: &[u8]) -> Result<(), Damage> {
        let mut i = 0;
        while let Some(&byte) = piece.get(i) {
            match self.step {
                Step::Text if !self.keep => match string_end(&piece[i..]) {
                    StringEnd::At(end) => {
                        i += end;
                        self.end_string();
                    }
                    StringEnd::Later { escaped } => {
                        if escaped {
                            self.step = Step::Skipped;
                        }
                        break;
                    }
                },
                Step::Skipped => self.step = Step::Text,
                Step::Text => {
                    let rest = &piece[i..];
                    let end = memchr2(b'"', b'\\', rest).unwrap_or(rest.len());
                    self.string_bytes(&rest[..end]);
                    i += end;
                    match piece.get(i) {
                        None => break,
                        Some(b'"') => self.end_string(),
                        Some(_) => self.step = Step::Escape,
                    }
                }
                Step::Number => {
                    let rest = &piece[i..];
                    let in_number =
                        |b: &u8| matches!(b, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
                    let end = rest
                        .iter()
                        .position(|b| !in_number(b))
                        .unwrap_or(rest.len());
                    let room = LONGEST_NUMBER.saturating_sub(self.bytes.len());
                    self.bytes.extend_from_slice(&rest[..end.min(room)]);
                    i += end;
                    if end < rest.len() {
                        self.end_number();
                    }
                    continue;
                }
                Step::Escape => match unescape(byte) {
                    Some(b'u') => self.step = Step::Hex(4, 0),
                    Some(plain) => {
                        self.string_bytes(&[plain]);
                        self.step = Step::Text;
                    }
                    None => return Err(self.damage(i)),
                },
                Step::Hex(left, unit) => {
                    let Some(digit) = (byte as char).to_digit(16) else {
                        return Err(self.damage(i));
                    };
                    let unit = unit << 4 | digit as u16;
                    if left > 1 {
                        self.step = Step::Hex(left - 1, unit);
                    } else {
                        self.string_unit(unit);
                        self.step = Step::Text;
                    }
                }
                Step::Word(word, met) => {
                    let rest = &word.spelled()[met as usize..];
                    let same = rest
                        .iter()
                        .zip(&piece[i..])
                        .take_while(|(a, b)| a == b)
                        .count();
                    i += same;
                    if same == rest.len() {
                        self.step = Step::After;
                    } else if i == piece.len() {
                        self.step = Step::Word(word, met + same as u8);
                    } else {
                        return Err(self.damage(i));
                    }
                    continue;
                }
                _ if matches!(byte, b' ' | b'\t' | b'\r' | b'\n') => {}
                _ => {
                    self.begun = true;
                    if !self.token(byte, self.fed + i as u64) {
                        return Err(self.damage(i));
                    }
                }
            }
            i += 1;
        }
        self.fed += piece.len() as u64;
        Ok(())
    }

    fn damage(&self, i: usize) -> Damage {
        Damage {
            at: self.fed + i as u64,
        }
    }

    /// Takes a byte outside of strings and numbers; false when it cannot stand there.
    fn token(&mut self, byte: u8, at: u64) -> bool {
        let in_object = self.open.last().is_some_and(|start| start & 1 == 1);
        match (self.step, byte) {
            (Step::Value | Step::FirstItem, b'{') => return self.open_object(at),
            (Step::Value | Step::FirstItem, b'[') => return self.open_list(at),
            (Step::Value | Step::FirstItem, b'"') => match self.wanted() {
                Some(Want::Presence) => {
                    self.put(Value::Other);
                    self.begin_string(Role::Value, false);
                }
                wanted => self.begin_string(Role::Value, wanted.is_some()),
            },
            (Step::Value | Step::FirstItem, b't') => self.word(Word::True, Value::Bool(true)),
            (Step::Value | Step::FirstItem, b'f') => self.word(Word::False, Value::Bool(false)),
            (Step::Value | Step::FirstItem, b'n') => self.word(Word::Null, Value::Null),
            (Step::Value | Step::FirstItem, b'-' | b'0'..=b'9') => {
                self.bytes.clear();
                self.bytes.push(byte);
                self.step = Step::Number;
            }
            (Step::FirstItem, b']') => self.close(),
            (Step::FirstName, b'}') => self.close(),
            (Step::FirstName | Step::Name, b'"') => {
                let wanted = self.frames.len() == self.open.len();
                self.begin_string(Role::Name, wanted);
            }
            (Step::Colon, b':') => self.step = Step::Value,
            (Step::After, b',') if !self.open.is_empty() => {
                self.inner = None;
                self.step = if in_object { Step::Name } else { Step::Value };
            }
            (Step::After, b'}') if in_object => self.close(),
            (Step::After, b']') if !in_object && !self.open.is_empty() => self.close(),
            _ => return false,
        }
        true
    }

    /// What is wanted of the value that begins now.
    fn wanted(&self) -> Option<&'static Want> {
        if self.open.is_empty() {
            return Some(self.want);
        }
        if self.frames.len() < self.open.len() {
            return None;
        }
        match self.frames.last()? {
            Frame::Object { next, .. } => next.map(|(_, want)| want),
            Frame::List { want, items } => Some(*want).filter(|_| items.len() < LIST_LIMIT),
        }
    }

    /// Puts a value where it belongs. Of fields of one name the last holds.
    fn put(&mut self, value: Value) {
        match self.frames.last_mut() {
            None => self.root = value,
            Some(Frame::List { items, .. }) => items.push(value),
            Some(Frame::Object { next, fields, .. }) => {
                let Some((name, _)) = next.take() else { return };
                match fields.iter_mut().find(|(field, _)| field == name) {
                    Some((_, old)) => *old = value,
                    None => fields.push((name, value)),
                }
            }
        }
    }

    /// Puts a scalar if it is wanted.
    fn scalar(&mut self, value: impl FnOnce(&[u8]) -> Value) {
        self.inner = None;
        let Some(want) = self.wanted() else { return };
        match (want, value(&self.bytes)) {
            (Want::Presence, value) if value != Value::Null => self.put(Value::Other),
            (_, value) => self.put(value),
        }
    }

    fn word(&mut self, word: Word, value: Value) {
        self.scalar(|_| value);
        self.step = Step::Word(word, 1);
    }

    fn open_object(&mut self, at: u64) -> bool {
        match self.wanted() {
            Some(Want::Fields(wants)) => self.frames.push(Frame::Object {
                wants,
                next: None,
                fields: Vec::with_capacity(wants.len().min(8)),
            }),
            Some(_) => self.put(Value::Other),
            None => {}
        }
        self.step = Step::FirstName;
        self.open.push(at << 1 | 1);
        self.open.len() <= MAX_DEPTH
    }

    fn open_list(&mut self, at: u64) -> bool {
        match self.wanted() {
            Some(Want::Items(want)) => self.frames.push(Frame::List {
                want,
                items: Vec::new(),
            }),
            Some(_) => self.put(Value::Other),
            None => {}
        }
        self.step = Step::FirstItem;
        self.open.push(at << 1);
        self.open.len() <= MAX_DEPTH
    }

    fn close(&mut self) {
        let start = self.open.pop().unwrap_or_default();
        self.inner = (start & 1 == 1).then_some(start >> 1);
        self.step = Step::After;
        if self.frames.len() > self.open.len() {
            match self.frames.pop() {
                Some(Frame::Object { fields, .. }) => self.put(Value::Object(fields)),
                Some(Frame::List { items, .. }) => self.put(Value::List(items)),
                None => {}
            }
        }
    }

    fn begin_string(&mut self, role: Role, keep: bool) {
        self.role = role;
        self.keep = keep;
        self.bytes.clear();
        self.room = SHORT_TEXT + self.budget;
        self.inner = None;
        self.step = Step::Text;
    }

    fn string_bytes(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.end_half();
            self.push(bytes);
        }
    }

    /// Adds a `\u` escape; the halves of a pair come one after the other.
    fn string_unit(&mut self, unit: u16) {
        if let (Some(high), 0xdc00..=0xdfff) = (self.half, unit) {
            self.half = None;
            let pair = 0x10000 + ((high as u32 - 0xd800) << 10) + (unit as u32 - 0xdc00);
            return self.push_char(char::from_u32(pair));
        }
        self.end_half();
        match unit {
            0xd800..=0xdbff => self.half = Some(unit),
            _ => self.push_char(char::from_u32(unit.into())),
        }
    }

    fn end_half(&mut self) {
        if self.half.take().is_some() {
            self.push_char(None);
        }
    }

    fn push_char(&mut self, char: Option<char>) {
        let char = char.unwrap_or(char::REPLACEMENT_CHARACTER);
        self.push(char.encode_utf8(&mut [0; 4]).as_bytes());
    }

    fn push(&mut self, bytes: &[u8]) {
        if self.role == Role::Name {
            // One byte more than the longest shows that no field is meant.
            let room = (LONGEST_NAME + 1).saturating_sub(self.bytes.len());
            return self
                .bytes
                .extend_from_slice(&bytes[..bytes.len().min(room)]);
        }
        self.bytes.extend_from_slice(bytes);
        if self.long.is_none() && self.bytes.len() > self.room {
            let mut cut = self.room;
            while cut > 0 && self.room - cut < 3 && self.bytes[cut] & 0xc0 == 0x80 {
                cut -= 1;
            }
            let head = decode(&self.bytes[..cut]);
            self.long = Some(Box::new((head, self.secret.printer())));
        }
        if let Some(long) = &mut self.long
            && self.bytes.len() >= DRAINED
        {
            drain_text(&mut self.bytes, false, |piece| long.1.feed(piece));
        }
    }

    fn end_string(&mut self) {
        self.end_half();
        match self.role {
            Role::Name => {
                if let Some(Frame::Object { wants, next, .. }) = self.frames.last_mut()
                    && self.keep
                {
                    *next = wants
                        .iter()
                        .find(|(name, _)| name.as_bytes() == self.bytes.as_slice());
                }
                self.step = Step::Colon;
            }
            Role::Value => {
                if self.keep {
                    let text = self.end_text();
                    self.put(Value::Text(text));
                }
                self.step = Step::After;
            }
        }
    }

    fn end_text(&mut self) -> Text {
        let text = match self.long.take() {
            Some(long) => {
                let (head, mut printer) = *long;
                drain_text(&mut self.bytes, true, |piece| printer.feed(piece));
                Text {
                    head,
                    long: Some(printer.finish()),
                }
            }
            None => Text {
                head: decode(&self.bytes),
                long: None,
            },
        };
        let over = text.head.len().saturating_sub(SHORT_TEXT);
        self.budget = self.budget.saturating_sub(over);
        text
    }

    fn end_number(&mut self) {
        self.scalar(|bytes| {
            let text = std::str::from_utf8(bytes).unwrap_or_default();
            text.parse().map_or(Value::Other, Value::Number)
        });
        self.step = Step::After;
    }
}

/// Where a string ends.
enum StringEnd {
    /// At the quotation mark there.
    At(usize),
    /// Not in this piece; the first byte of the next may be escaped.
    Later { escaped: bool },
}

/// Looks for the end of a string that goes on with `text`, outside of an escape.
fn string_end(text: &[u8]) -> StringEnd {
    let mut from = 0;
    for quote in memchr_iter(b'"', text) {
        if !escapes_next(&text[from..quote]) {
            return StringEnd::At(quote);
        }
        from = quote + 1;
    }
    StringEnd::Later {
        escaped: escapes_next(&text[from..]),
    }
}

/// Whether what follows is escaped: of two backslashes the first one escapes the other.
fn escapes_next(text: &[u8]) -> bool {
    let backslashes = text.iter().rev().take_while(|byte| **byte == b'\\');
    backslashes.count() % 2 == 1
}

/// The byte that an escape stands for; `u` begins four digits.
fn unescape(byte: u8) -> Option<u8> {
    Some(match byte {
        b'"' | b'\\' | b'/' | b'u' => byte,
        b'n' => b'\n',
        b't' => b'\t',
        b'r' => b'\r',
        b'b' => 8,
        b'f' => 12,
        _ => return None,
    })
}

/// The text, with U+FFFD for what is no UTF-8.
fn decode(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => String::from_utf8_lossy(bytes).into_owned(),
    }
}

/// Hands the text in `bytes` on, what is no UTF-8 as U+FFFD, and takes it out.
/// A character that is not yet whole stays, unless this was the last of it.
fn drain_text(bytes: &mut Vec<u8>, last: bool, mut sink: impl FnMut(&str)) {
    let mut done = 0;
    for chunk in bytes.utf8_chunks() {
        sink(chunk.valid());
        done += chunk.valid().len();
        let bad = chunk.invalid();
        if bad.is_empty() {
            break;
        }
        let at_end = done + bad.len() == bytes.len();
        let unfinished = || std::str::from_utf8(bad).is_err_and(|e| e.error_len().is_none());
        if at_end && !last && unfinished() {
            break;
        }
        sink("\u{fffd}");
        done += bad.len();
    }
    bytes.drain(..done);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    static WANT: Want = Want::Fields(&[
        ("a", Want::Scalar),
        ("here", Want::Presence),
        ("é\"\n", Want::Scalar),
        (
            "in",
            Want::Fields(&[("b", Want::Scalar), ("c", Want::Presence)]),
        ),
        ("list", Want::Items(&Want::Fields(&[("t", Want::Scalar)]))),
    ]);

    fn secret() -> Secret {
        Secret::new([7; 32])
    }

    /// The end or the damage of a row fed in pieces that end at `cuts`.
    fn sift_in(json: &[u8], cuts: &[usize]) -> Result<End, (u64, Option<Value>)> {
        let secret = secret();
        let mut sifter = Sifter::new(&secret, &WANT);
        let mut from = 0;
        for cut in cuts.iter().copied().chain([json.len()]) {
            let cut = cut.clamp(from, json.len());
            if let Err(damage) = sifter.feed(&json[from..cut]) {
                let complete = sifter.is_complete().then(|| sifter.take());
                return Err((damage.at, complete));
            }
            from = cut;
        }
        Ok(sifter.end())
    }

    fn row(json: impl AsRef<[u8]>) -> Value {
        match sift_in(json.as_ref(), &[]) {
            Ok(End::Row(value)) => value,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_wanted_is_kept_and_nothing_else() {
        let kept = row(
            r#" {"x":{"a":1},"a":"text","here":[{"a":2}],"in":{"b":true,"c":null,"d":1},
               "list":[{"t":"1","x":[]},"bare",[{"t":1}],{}]} "#,
        );
        assert_eq!(kept.get("a").str(), Some("text"));
        assert_eq!(*kept.get("here"), Value::Other);
        assert!(kept.get("in").get("b").is_true());
        assert!(!kept.get("in").get("c").is_present());
        let items = kept.get("list").items();
        assert_eq!(items.len(), 4);
        assert_eq!(items[0].get("t").str(), Some("1"));
        assert_eq!(items[1].str(), Some("bare"));
        assert_eq!(items[2], Value::Other);
        assert!(!kept.get("x").is_present() && !kept.get("y").is_present());
    }

    #[test]
    fn values_come_in_every_shape() {
        for (json, value) in [
            (r#"{"a":"\"\\\/\b\f\n\r\t"}"#, "\"\\/\u{8}\u{c}\n\r\t"),
            (r#"{"a":"\u00e9\u20AC\ud83d\ude00"}"#, "é€😀"),
            // Half a pair, as JavaScript writes it.
            (r#"{"a":"x\ud83d"}"#, "x\u{fffd}"),
            (r#"{"a":"\ud83dy\ude00"}"#, "\u{fffd}y\u{fffd}"),
            (r#"{"a":"\ud83d\ud83d\ude00\n"}"#, "\u{fffd}😀\n"),
            // Line breaks for others than JSON, and control characters.
            ("{\"a\":\"\u{2028}\u{0}\t\"}", "\u{2028}\u{0}\t"),
            // The last field of a name holds; a name may be escaped.
            (r#"{"a":1,"\u0061":"last"}"#, "last"),
        ] {
            assert_eq!(row(json).get("a").str(), Some(value), "{json}");
        }
        assert_eq!(
            row(b"{\"a\":\"x\xff\xfey\xe2\x82\"}").get("a").str(),
            Some("x\u{fffd}\u{fffd}y\u{fffd}")
        );
        assert_eq!(row(r#"{"é\"\n":"x"}"#).get("é\"\n").str(), Some("x"));
        for (json, value) in [
            (r#"{"a":-12}"#, Some(-12)),
            (r#"{"a":1.2e1}"#, Some(12)),
            (r#"{"a":1.5}"#, None),
            (r#"{"a":123456789012345678901234567890}"#, None),
            (r#"{"a":1e999}"#, None),
            (r#"{"a":"1"}"#, None),
        ] {
            assert_eq!(row(json).get("a").integer(), value, "{json}");
        }
        for json in ["42", "\"x\"", "[1]", "null", "[{\"a\":1}]"] {
            assert!(!row(json).get("a").is_present(), "{json}");
        }
        assert_eq!(sift_in(b" \t\r", &[]), Ok(End::Blank));
    }

    #[test]
    fn a_string_that_is_not_wanted_ends_where_it_ends_in_any_pieces() {
        for string in [
            r#""#,
            r#"\\"#,
            r#"\""#,
            r#"\\\""#,
            r#"\\\\"#,
            r#"x\"\\"#,
            r#"\"\"x\\\\\\"#,
            r#"\u0022"#,
            r#"\n\\n\""#,
        ] {
            for json in [
                format!(r#"{{"x":"{string}","a":1}}"#),
                format!(r#"{{"x":{{"{string}":"{string}"}},"a":1}}"#),
                format!(r#"{{"x":["{string}","{string}"],"a":1}}"#),
            ] {
                let one =
                    |end: End| matches!(end, End::Row(row) if row.get("a").integer() == Some(1));
                for first in 0..json.len() {
                    for second in first..json.len() {
                        let end = sift_in(json.as_bytes(), &[first, second]).unwrap();
                        assert!(one(end), "{json} cut at {first} and {second}");
                    }
                }
            }
        }
        // Its escapes are not looked at, those of what is wanted are.
        assert_eq!(row(r#"{"x":"\x\u12","a":1}"#).get("a").integer(), Some(1));
        assert!(sift_in(br#"{"x":1,"a":"\x"}"#, &[]).is_err());
    }

    #[test]
    fn a_long_text_is_cut_and_printed_whole() {
        let text = "wört ".repeat(TEXT_LIMIT / 3);
        let kept = row(json!({"a": text, "in": {"b": "after"}}).to_string());
        let long = kept.get("a").text().unwrap();
        assert!(text.starts_with(&long.head));
        assert!((TEXT_LIMIT..TEXT_LIMIT + SHORT_TEXT + 1).contains(&long.head.len()));
        assert_eq!(long.long, Some(secret().print(&text)));
        assert_eq!(kept.get("a").str(), None);
        assert_eq!(kept.get("in").get("b").str(), Some("after"));
    }

    #[test]
    fn a_long_text_may_come_in_any_pieces() {
        // A character across the limit, and one that is none.
        let mut json = b"{\"a\":\"".to_vec();
        let start = json.len();
        json.resize(start + TEXT_LIMIT + SHORT_TEXT - 1, b'x');
        json.extend_from_slice("é\u{2028}".as_bytes());
        json.extend_from_slice(b"\xe2\x82y\\ud83d\\ude00\"}");
        let whole = sift_in(&json, &[]).unwrap();
        for cut in start + TEXT_LIMIT + SHORT_TEXT - 3..json.len() {
            assert_eq!(sift_in(&json, &[cut]).unwrap(), whole, "{cut}");
            assert_eq!(sift_in(&json, &[9, cut, cut + 1]).unwrap(), whole, "{cut}");
        }
    }

    #[test]
    fn memory_is_bounded() {
        let many = format!(
            "{{\"list\":[{}0]}}",
            "{\"t\":\"x\"},".repeat(3 * LIST_LIMIT)
        );
        assert_eq!(row(many).get("list").items().len(), LIST_LIMIT);
        let deep =
            |levels: usize| format!("{{\"x\":{}{}}}", "[".repeat(levels), "]".repeat(levels));
        assert!(matches!(
            sift_in(deep(MAX_DEPTH - 1).as_bytes(), &[]),
            Ok(End::Row(_))
        ));
        assert!(sift_in(deep(MAX_DEPTH).as_bytes(), &[]).is_err());
        let name = format!("{{\"{}\":1,\"a\":2}}", "a".repeat(1 << 20));
        assert_eq!(row(name).get("a").integer(), Some(2));
    }

    #[test]
    fn damage_has_a_place() {
        for (json, at) in [
            ("\0\0{}", 0),
            ("not json", 1),
            ("x", 0),
            ("{broken", 1),
            (r#"{"a" 1}"#, 5),
            (r#"{"a":1,}"#, 7),
            (r#"{"a":1]"#, 6),
            (r#"["x"}"#, 4),
            (r#"[1,]"#, 3),
            (r#"{"a":tru}"#, 8),
            (r#"{"a":"\x"}"#, 7),
            (r#"{"a":"\u12g4"}"#, 10),
            (r#"{"a":1 2}"#, 7),
            (r#"{"a":.5}"#, 5),
            (r#"{a:1}"#, 1),
        ] {
            assert_eq!(sift_in(json.as_bytes(), &[]), Err((at, None)), "{json}");
        }
        let complete = |json: &str| sift_in(json.as_bytes(), &[]).unwrap_err();
        assert_eq!(complete(r#"{"a":1}{"a":2}"#).0, 7);
        assert_eq!(
            complete(r#"{"a":1} x"#).1.unwrap().get("a").integer(),
            Some(1)
        );
    }

    #[test]
    fn a_row_inside_a_torn_one_is_found() {
        for (json, inner) in [
            (r#"{"a":"#, None),
            (r#"{"a":{"b":1}"#, Some(5)),
            (r#"{"x":[1,{"b":{}} "#, Some(8)),
            (r#"{"x":{"b":1},"#, None),
            (r#"{"x":{"b":1},"a":2"#, None),
            (r#"{"x":[{"b":1}]"#, None),
            (r#"{"a":"tor"#, None),
            (r#"{"a":nul"#, None),
        ] {
            assert_eq!(
                sift_in(json.as_bytes(), &[]),
                Ok(End::Torn { inner }),
                "{json}"
            );
        }
    }

    /// What a sifter keeps of a value that is already read.
    fn project(want: &Want, json: &serde_json::Value) -> Value {
        use serde_json::Value as Json;
        match (want, json) {
            (_, Json::Null) => Value::Null,
            (Want::Presence, _) => Value::Other,
            (_, Json::Bool(b)) => Value::Bool(*b),
            (_, Json::Number(n)) => Value::Number(n.as_f64().unwrap()),
            (_, Json::String(s)) => Value::Text(Text {
                head: s.clone(),
                long: None,
            }),
            (Want::Items(want), Json::Array(items)) => {
                Value::List(items.iter().map(|item| project(want, item)).collect())
            }
            (Want::Fields(wants), Json::Object(map)) => Value::Object(
                map.iter()
                    .filter_map(|(name, json)| {
                        let (name, want) = wants.iter().find(|(n, _)| n == name)?;
                        Some((*name, project(want, json)))
                    })
                    .collect(),
            ),
            _ => Value::Other,
        }
    }

    fn any_json() -> impl Strategy<Value = serde_json::Value> {
        let name =
            prop::sample::select(vec!["a", "here", "é\"\n", "in", "b", "c", "list", "t", "x"]);
        let leaf = prop_oneof![
            Just(json!(null)),
            any::<bool>().prop_map(|b| json!(b)),
            any::<i64>().prop_map(|n| json!(n)),
            any::<f64>().prop_map(|n| json!(n)),
            ".{0,12}".prop_map(|s| json!(s)),
        ];
        leaf.prop_recursive(5, 40, 6, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(|v| json!(v)),
                prop::collection::vec((name.clone(), inner), 0..6).prop_map(|v| {
                    serde_json::Value::Object(
                        v.into_iter().map(|(k, v)| (k.to_owned(), v)).collect(),
                    )
                }),
            ]
        })
    }

    /// Valid JSON, with some bytes changed or cut off.
    fn any_row() -> impl Strategy<Value = Vec<u8>> {
        let changes = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3);
        (
            any_json(),
            changes,
            any::<prop::sample::Index>(),
            any::<bool>(),
        )
            .prop_map(|(json, changes, cut, cuts)| {
                let mut bytes = json.to_string().into_bytes();
                for (at, byte) in changes {
                    let at = at.index(bytes.len());
                    bytes[at] = byte;
                }
                if cuts {
                    bytes.truncate(cut.index(bytes.len() + 1));
                }
                bytes
            })
    }

    proptest! {
        #[test]
        fn it_keeps_what_a_parser_of_the_whole_would(json in any_json(), pretty in any::<bool>()) {
            let text = if pretty {
                serde_json::to_string_pretty(&json).unwrap()
            } else {
                json.to_string()
            };
            prop_assert_eq!(row(&text), project(&WANT, &json));
        }

        #[test]
        fn where_pieces_end_is_of_no_matter(
            row in prop_oneof![any_row(), prop::collection::vec(any::<u8>(), 0..64)],
            mut cuts in prop::collection::vec(0..200_usize, 0..8),
        ) {
            cuts.sort();
            let every: Vec<_> = (0..row.len()).collect();
            let whole = sift_in(&row, &[]);
            prop_assert_eq!(&sift_in(&row, &cuts), &whole);
            prop_assert_eq!(&sift_in(&row, &every), &whole);
        }

        #[test]
        fn what_a_strict_parser_takes_is_taken(row in any_row()) {
            if serde_json::from_slice::<serde::de::IgnoredAny>(&row).is_ok() {
                prop_assert!(matches!(sift_in(&row, &[]), Ok(End::Row(_))));
            }
        }
    }
}
