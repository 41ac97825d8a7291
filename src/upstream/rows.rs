//! Reads the rows of a session file, from where the last pass stopped.
//!
//! A row is what stands between two line feeds, nothing else ends one. The last
//! line waits until its line feed is there: the position never moves past it. A
//! row of any length is handed over; no more than a fixed piece of it is held.
//!
//! Damage never stops a pass. A line that is no JSON is passed and counted; when
//! a later row is glued to a torn one, the later one is read.

use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use memchr::{memchr, memmem};

use super::print::Secret;
use super::sift::{Damage, End, Sifter, Value, Want};
use super::source::Source;

/// The piece of a file held at once, in bytes, and the first one read. A fuzzer's
/// files are small: all of them are to be read in many pieces.
const PIECE: usize = if cfg!(feature = "fuzzing") {
    48
} else {
    256 * 1024
};
const FIRST_PIECE: usize = PIECE / 16;

/// How a row that may be glued to a stub begins.
const STARTS: [&[u8]; 3] = [b"{\"type\"", b"{\"parentUuid\"", b"{\"timestamp\""];

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// How far one slice of a pass may go. At least one row is read, or looked for.
#[derive(Clone, Copy)]
pub struct Slice<'a> {
    /// Ends the slice after so many bytes.
    pub bytes: u64,
    /// Ends the slice at this time.
    pub until: Option<Instant>,
    /// Ends it at once, in the middle of a row too, without a move past that row.
    pub stop: Option<&'a AtomicBool>,
}

impl Slice<'_> {
    /// A slice without an end.
    pub const WHOLE: Slice<'static> = Slice {
        bytes: u64::MAX,
        until: None,
        stop: None,
    };

    pub(super) fn stopped(&self) -> bool {
        self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed))
    }

    fn late(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() >= until)
    }
}

/// How far a slice went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reached {
    /// The start of the first row not yet read.
    pub position: u64,
    /// Whether the slice ended before the rows did.
    pub more: bool,
    /// Lines that were looked at and held something else than one JSON value.
    pub damaged: u64,
}

/// What is looked for in rows.
#[derive(Clone, Copy)]
pub(super) struct Query<'k> {
    /// The key of the prints of long texts.
    pub secret: &'k Secret,
    /// What is wanted of a row.
    pub want: &'static Want,
    /// The bytes of which some are in every row that matters, unless it is written
    /// with escapes; when there are none, every row matters.
    pub needles: &'static [&'static str],
}

/// Reads the whole rows from `position` to the source's end and hands each JSON
/// value to `take`, with what is wanted of it. `take` ends the slice by a false.
pub(super) fn read(
    source: &mut Source,
    position: u64,
    slice: Slice<'_>,
    query: Query<'_>,
    mut take: impl FnMut(Value) -> bool,
) -> io::Result<Reached> {
    let mut window = Window::new(source);
    let filter = Filter::new(query.needles);
    let enough = Cell::new(false);
    let mut take = |value| {
        if !take(value) {
            enough.set(true);
        }
    };
    let mut reached = Reached {
        position,
        more: false,
        damaged: 0,
    };
    let mut sifter = Sifter::new(query.secret, query.want);
    let limit = position.saturating_add(slice.bytes);
    loop {
        let start = reached.position;
        let line_end = match window.line_end(start, &slice)? {
            Search::Found(line_end) => line_end,
            Search::Unfinished { more } => {
                reached.more = more;
                return Ok(reached);
            }
        };
        if window
            .held(start, line_end)
            .is_none_or(|line| filter.passes(line))
        {
            let mut line = Line {
                window: &mut window,
                slice: &slice,
                sifter: &mut sifter,
                end: line_end,
            };
            match line.read(start, &mut take)? {
                None => {
                    reached.more = true;
                    return Ok(reached);
                }
                Some(damaged) => reached.damaged += u64::from(damaged),
            }
        }
        reached.position = line_end + 1;
        if enough.get() || reached.position >= limit || slice.stopped() || slice.late() {
            reached.more = true;
            return Ok(reached);
        }
    }
}

/// Sifts one value handed over in memory.
pub(super) fn read_value(json: &[u8], secret: &Secret, want: &'static Want) -> Option<Value> {
    let mut sifter = Sifter::new(secret, want);
    sifter.feed(json).ok()?;
    match sifter.end() {
        End::Row(value) => Some(value),
        End::Blank | End::Torn { .. } => None,
    }
}

/// Passes by what cannot matter, at the cost of a glance.
struct Filter(Vec<memmem::Finder<'static>>);

impl Filter {
    fn new(needles: &'static [&'static str]) -> Filter {
        // The characters of a needle are ASCII: escaped, they begin so.
        let escaped = (!needles.is_empty()).then_some("\\u00");
        let needles = needles.iter().copied().chain(escaped);
        Filter(needles.map(memmem::Finder::new).collect())
    }

    fn passes(&self, line: &[u8]) -> bool {
        self.0.is_empty() || self.0.iter().any(|needle| needle.find(line).is_some())
    }
}

/// A line without its line feed.
struct Line<'l, 's, 'k> {
    window: &'l mut Window<'s>,
    slice: &'l Slice<'l>,
    sifter: &'l mut Sifter<'k>,
    end: u64,
}

impl Line<'_, '_, '_> {
    /// Hands over every whole object of the line; whether it was damaged, or
    /// `None` when the reading was stopped.
    fn read(&mut self, start: u64, take: &mut impl FnMut(Value)) -> io::Result<Option<bool>> {
        let mut from = start;
        if start == 0 && self.window.starts_with(0, self.end, BYTE_ORDER_MARK)? {
            from += BYTE_ORDER_MARK.len() as u64;
        }
        let mut damaged = false;
        loop {
            let next = match self.sift(from)? {
                None => return Ok(None),
                Some(Err(Damage { at })) => {
                    // Whole, and the next row or a hole follows at once: its line feed
                    // is lost. An object out of the inside of a row is followed by
                    // the rest of that row.
                    if self.sifter.is_complete()
                        && let b'{' | 0 = self.window.piece(from + at, self.end)?[0]
                    {
                        take(self.sifter.take());
                    }
                    // A row glued to a stub is met at its first byte, or two later
                    // when the stub was torn inside a string, which that row's
                    // first quotation mark then closes.
                    let glued = (from + at).saturating_sub(2).max(from + 1);
                    self.find_start(glued)?
                }
                Some(Ok(())) => match self.sifter.end() {
                    End::Blank => return Ok(Some(damaged)),
                    End::Row(value) => {
                        take(value);
                        return Ok(Some(damaged));
                    }
                    End::Torn { inner } => match inner {
                        Some(at) if self.is_start(from + at)? => Some(from + at),
                        _ => None,
                    },
                },
            };
            damaged = true;
            match next {
                Some(start) => from = start,
                None => return Ok(Some(damaged)),
            }
        }
    }

    /// Feeds the rest of the line; `None` when stopped.
    fn sift(&mut self, mut at: u64) -> io::Result<Option<Result<(), Damage>>> {
        self.sifter.restart();
        while at < self.end {
            let piece = self.window.piece(at, self.end)?;
            at += piece.len() as u64;
            if let Err(damage) = self.sifter.feed(piece) {
                return Ok(Some(Err(damage)));
            }
            if at < self.end && self.slice.stopped() {
                return Ok(None);
            }
        }
        Ok(Some(Ok(())))
    }

    /// The first place at or after `at` where a row seems to begin.
    fn find_start(&mut self, mut at: u64) -> io::Result<Option<u64>> {
        while at < self.end {
            let piece = self.window.piece(at, self.end)?;
            match memchr(b'{', piece) {
                None => at += piece.len() as u64,
                Some(i) => {
                    at += i as u64;
                    if self.is_start(at)? {
                        return Ok(Some(at));
                    }
                    at += 1;
                }
            }
        }
        Ok(None)
    }

    fn is_start(&mut self, at: u64) -> io::Result<bool> {
        for start in STARTS {
            if self.window.starts_with(at, self.end, start)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// What became of the search for the end of a line.
enum Search {
    Found(u64),
    /// It is not there yet, or, with `more` to search, not found in this slice.
    Unfinished {
        more: bool,
    },
}

/// The piece of the source that is in memory.
struct Window<'s> {
    source: &'s mut Source,
    /// The end of what may be read.
    end: u64,
    bytes: Vec<u8>,
    /// Where the bytes held begin in the source, and how many they are.
    base: u64,
    held: usize,
    /// How many to hold after the next reading: few at first, since often no more
    /// than the head or the last rows are read.
    next: usize,
}

impl<'s> Window<'s> {
    fn new(source: &'s mut Source) -> Window<'s> {
        Window {
            end: source.end(),
            source,
            bytes: Vec::new(),
            base: 0,
            held: 0,
            next: FIRST_PIECE,
        }
    }

    /// Searches for the line feed that ends the line begun at `start`, from where the
    /// slice before gave up.
    fn line_end(&mut self, start: u64, slice: &Slice<'_>) -> io::Result<Search> {
        let begun = self.source.searched(start);
        let mut at = begun;
        loop {
            if let Some(held) = self.from(at) {
                if let Some(i) = memchr(b'\n', held) {
                    return Ok(Search::Found(at + i as u64));
                }
                at += held.len() as u64;
            }
            // A slice that ends with nothing found has searched a piece at least.
            if slice.stopped() || at - begun >= PIECE as u64 && slice.late() {
                self.source.set_searched(start, at);
                return Ok(Search::Unfinished { more: true });
            }
            if !self.more(start, at)? {
                return Ok(Search::Unfinished { more: false });
            }
        }
    }

    /// What is there from `at` on, at least one byte of what lies before `end`.
    fn piece(&mut self, at: u64, end: u64) -> io::Result<&[u8]> {
        if self.from(at).is_none() && !self.more(at, at)? {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let held = self.from(at).unwrap_or_default();
        let len = held.len().min((end - at) as usize);
        Ok(&held[..len])
    }

    fn starts_with(&mut self, at: u64, end: u64, text: &[u8]) -> io::Result<bool> {
        if end.saturating_sub(at) < text.len() as u64 {
            return Ok(false);
        }
        let mut seen = 0;
        while seen < text.len() {
            let piece = self.piece(at + seen as u64, end)?;
            let n = piece.len().min(text.len() - seen);
            if piece[..n] != text[seen..seen + n] {
                return Ok(false);
            }
            seen += n;
        }
        Ok(true)
    }

    /// The bytes from `start` to `end` if all of them are held.
    fn held(&self, start: u64, end: u64) -> Option<&[u8]> {
        self.from(start)?.get(..usize::try_from(end - start).ok()?)
    }

    /// The held bytes from `at` on, if there are any.
    fn from(&self, at: u64) -> Option<&[u8]> {
        let skip = usize::try_from(at.checked_sub(self.base)?).ok()?;
        self.bytes[..self.held]
            .get(skip..)
            .filter(|held| !held.is_empty())
    }

    /// Reads on so that bytes at `at` are held, and those from `keep` on if they
    /// still fit; false when there are no bytes at `at`.
    fn more(&mut self, keep: u64, at: u64) -> io::Result<bool> {
        let kept = match self.from(keep) {
            Some(held) if self.base + self.held as u64 == at && held.len() < PIECE => held.len(),
            _ => 0,
        };
        self.bytes.copy_within(self.held - kept..self.held, 0);
        self.base = at - kept as u64;
        self.held = kept;
        self.next = self.next.max(kept + FIRST_PIECE).min(PIECE);
        // Most readings are of a few rows, for which the whole piece is much to clear.
        let left = usize::try_from(self.end.saturating_sub(at)).unwrap_or(usize::MAX);
        let needed = self.next.min(kept.saturating_add(left));
        if self.bytes.len() < needed {
            self.bytes.resize(needed, 0);
        }
        while self.held < self.next {
            let place = self.base + self.held as u64;
            let room = (self.end.saturating_sub(place)).min((self.next - self.held) as u64);
            let into = &mut self.bytes[self.held..self.held + room as usize];
            match self.source.read_at(place, into)? {
                0 => break,
                n => self.held += n,
            }
        }
        self.next = (self.next * 2).min(PIECE);
        Ok(self.held > kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Write;

    static WANT: Want = Want::Fields(&[("type", Want::Scalar), ("n", Want::Scalar)]);

    fn query<'k>(secret: &'k Secret, needles: &'static [&'static str]) -> Query<'k> {
        Query {
            secret,
            want: &WANT,
            needles,
        }
    }

    fn file(bytes: &[u8]) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    /// The numbers in the rows from `position` on, and how far the slice went.
    fn numbers(source: &mut Source, position: u64, slice: Slice<'_>) -> (Vec<i64>, Reached) {
        let mut numbers = Vec::new();
        let secret = Secret::new([7; 32]);
        let reached = read(source, position, slice, query(&secret, &[]), |row| {
            numbers.extend(row.get("n").integer());
            true
        });
        (numbers, reached.unwrap())
    }

    fn all(bytes: &[u8]) -> (Vec<i64>, Reached) {
        let file = file(bytes);
        numbers(&mut Source::open(file.path()).unwrap(), 0, Slice::WHOLE)
    }

    #[test]
    fn rows_end_at_line_feeds_alone() {
        let text = "{\"n\":1}\n{\"n\":2,\"t\":\"\u{2028}\u{2029}\u{85}\u{b}\u{c}\"}\r\n \r\n\n{\r\"n\":3}\r\n";
        let (rows, reached) = all(text.as_bytes());
        assert_eq!(rows, [1, 2, 3]);
        let end = Reached {
            position: text.len() as u64,
            more: false,
            damaged: 0,
        };
        assert_eq!(reached, end);
    }

    #[test]
    fn the_last_line_waits_for_its_end() {
        for (text, position) in [
            ("", 0),
            ("{\"n\":1}", 0),
            ("{\"n\":1}\n", 8),
            ("{\"n\":1}\n{\"n\"", 8),
            ("{\"n\":1}\n{\"n\":2}", 8),
        ] {
            let (rows, reached) = all(text.as_bytes());
            assert_eq!(reached.position, position, "{text}");
            assert_eq!(rows.len() as u64, position / 8, "{text}");
        }
    }

    #[test]
    fn damage_is_passed_and_counted() {
        for (text, rows, damaged) in [
            ("\u{feff}{\"n\":1}\n", vec![1], 0),
            ("{\"n\":1}\n\0\0\0\0\n{\"n\":2}\n", vec![1, 2], 1),
            ("{broken\nnot json\n\"x\"\n42\n[1]\n{\"n\":2}\n", vec![2], 2),
            // Rows glued to a stub, a hole or each other.
            ("{\"n\":1,\"x\":\"to{\"type\":\"\",\"n\":2}\n", vec![2], 1),
            ("\0\0\0{\"timestamp\":\"\",\"n\":2}\n", vec![2], 1),
            ("{\"n\":1}{\"type\":\"\",\"n\":2}\n", vec![1, 2], 1),
            ("{\"n\":1}\0\0{\"type\":\"\",\"n\":2}\n", vec![1, 2], 1),
            ("{\"n\":1}x\n", vec![], 1),
            (
                "{\"n\"{\"x\":{\"parentUuid\":{\"type\":\"\",\"n\":2}\n",
                vec![2],
                1,
            ),
            // No row is made of the inside of another.
            ("{\"x\":[{\"type\":\"\",\"n\":2}]\n", vec![], 1),
            ("x{\"x\":[{\"type\":\"\",\"n\":2}]}\n", vec![], 1),
            ("{\"x\":{\"n\":2}\n", vec![], 1),
        ] {
            let (got, reached) = all(text.as_bytes());
            assert_eq!((got, reached.damaged), (rows, damaged), "{text:?}");
            assert_eq!(reached.position, text.len() as u64, "{text:?}");
        }
    }

    #[test]
    fn a_row_glued_to_any_stub_is_read() {
        let row = r#"{"type":"user","s":"a\"b\\c\u00e9","t":[1,{"u":true},null],"n":1}"#;
        let next = r#"{"type":"user","s":"x","n":2}"#;
        for len in 0..=row.len() {
            let (rows, reached) = all(format!("{}{next}\n", &row[..len]).as_bytes());
            let expected = if len == row.len() {
                vec![1, 2]
            } else {
                vec![2]
            };
            assert_eq!(rows, expected, "{}", &row[..len]);
            assert_eq!(reached.damaged, u64::from(len > 0));
        }
    }

    /// Rows of which some are longer than what is held at once.
    fn rows_of(lengths: &[usize]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (n, len) in lengths.iter().enumerate() {
            let filler = "x".repeat(*len);
            writeln!(bytes, "{{\"type\":\"{filler}\",\"n\":{n}}}").unwrap();
        }
        bytes
    }

    #[test]
    fn rows_longer_than_the_window_are_read() {
        let bytes = rows_of(&[10, 3 * PIECE, 10, PIECE - 20, PIECE, 5, 2 * PIECE + 1, 1]);
        let (rows, reached) = all(&bytes);
        assert_eq!(rows, [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(reached.position, bytes.len() as u64);
        // And what is glued to them.
        let mut torn = rows_of(&[2 * PIECE]);
        torn.truncate(torn.len() - 3);
        let (rows, _) = all(&[torn, rows_of(&[PIECE])].concat());
        assert_eq!(rows, [0]);
        // A tear after a colon: the whole is read before it shows.
        let mut torn = rows_of(&[2 * PIECE]);
        torn.truncate(torn.len() - 3);
        let (rows, _) = all(&[b"{\"x\":", &torn[..], b"7}\n"].concat());
        assert_eq!(rows, [7]);
    }

    #[test]
    fn a_slice_ends_where_it_must_and_moves_on() {
        let bytes = rows_of(&[100; 50]);
        let file = file(&bytes);
        let mut source = Source::open(file.path()).unwrap();
        let mut got = Vec::new();
        let mut position = 0;
        loop {
            let slice = Slice {
                bytes: 300,
                ..Slice::WHOLE
            };
            let (rows, reached) = numbers(&mut source, position, slice);
            got.extend(rows);
            assert!(reached.position > position);
            position = reached.position;
            if !reached.more {
                break;
            }
        }
        assert_eq!(got, (0..50).collect::<Vec<_>>());
        let late = Slice {
            until: Some(Instant::now()),
            ..Slice::WHOLE
        };
        assert_eq!(numbers(&mut source, 0, late).0, [0]);
        let stop = AtomicBool::new(true);
        let stopped = Slice {
            stop: Some(&stop),
            ..Slice::WHOLE
        };
        let (_, reached) = numbers(&mut source, 0, stopped);
        assert!(reached.more);
    }

    #[test]
    fn the_end_of_a_long_line_is_searched_in_slices() {
        let long = vec![b'x'; 20 * PIECE];
        let mut bytes = b"{\"n\":1}\n".to_vec();
        bytes.extend_from_slice(&long);
        let unfinished = file(&bytes);
        bytes.extend_from_slice(b"\n{\"n\":2}\n");
        for (file, rows) in [(unfinished, vec![1]), (file(&bytes), vec![1, 2])] {
            let mut source = Source::open(file.path()).unwrap();
            let (mut got, mut position, mut slices) = (Vec::new(), 0, 0);
            loop {
                let late = Slice {
                    until: Some(Instant::now()),
                    ..Slice::WHOLE
                };
                let (more, reached) = numbers(&mut source, position, late);
                got.extend(more);
                position = reached.position;
                slices += 1;
                if !reached.more {
                    break;
                }
            }
            assert_eq!(got, rows);
            // Each slice goes on where the one before gave up: not from the start.
            assert!((10..=24).contains(&slices), "{slices}");
        }
    }

    #[test]
    fn rows_without_a_needle_are_passed() {
        let text = "{\"type\":\"a\",\"n\":1}\n{\"type\":\"b\",\"n\":2}\nno row\n{\"type\":\"\\u0061\",\"n\":3}\n";
        let file = file(text.as_bytes());
        let mut source = Source::open(file.path()).unwrap();
        let secret = Secret::new([7; 32]);
        let mut rows = Vec::new();
        let reached = read(
            &mut source,
            0,
            Slice::WHOLE,
            query(&secret, &["\"a\""]),
            |row| {
                rows.extend(row.get("n").integer());
                true
            },
        );
        assert_eq!(rows, [1, 3]);
        assert_eq!(reached.unwrap().position, text.len() as u64);
    }

    #[test]
    fn a_compressed_file_reads_as_its_text() {
        let bytes = rows_of(&[10, 2 * PIECE, 30, 40]);
        let (rows, reached) = all(&bytes);
        // Frames that end inside of rows.
        let mut packed = Vec::new();
        for frame in [&bytes[..7], &bytes[7..PIECE], &bytes[PIECE..]] {
            packed.extend(zstd::encode_all(frame, 3).unwrap());
        }
        let whole = file(&packed);
        let mut source = Source::open(whole.path()).unwrap();
        let (got, end) = numbers(&mut source, 0, Slice::WHOLE);
        assert_eq!((got, end.position), (rows.clone(), reached.position));
        // Going on in the middle, and going back.
        let second = bytes.iter().position(|b| *b == b'\n').unwrap() as u64 + 1;
        for _ in 0..2 {
            assert_eq!(numbers(&mut source, second, Slice::WHOLE).0, rows[1..]);
        }
        let secret = Secret::new([7; 32]);
        let plain = file(&bytes);
        let mut plain = Source::open(plain.path()).unwrap();
        for position in [0, 5, second, reached.position] {
            let mark = plain.mark(position, &secret).unwrap();
            assert!(mark.is_some());
            assert_eq!(source.mark(position, &secret).unwrap(), mark);
        }
        assert_eq!(source.mark(reached.position + 1, &secret).unwrap(), None);
        // One that is cut off is an error, not an end.
        let cut = file(&packed[..packed.len() - 5]);
        let mut source = Source::open(cut.path()).unwrap();
        let secret = Secret::new([7; 32]);
        assert!(read(&mut source, 0, Slice::WHOLE, query(&secret, &[]), |_| true).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Whatever a file holds, every row is passed, and a pass in slices is a pass.
        #[test]
        fn slices_make_the_whole(
            lines in prop::collection::vec(
                prop_oneof![
                    3 => Just("{\"type\":\"user\",\"n\":1}".to_owned().into_bytes()),
                    1 => Just(b"{\"type\":\"us".to_vec()),
                    1 => prop::collection::vec(any::<u8>(), 0..40),
                    1 => Just(rows_of(&[PIECE])),
                ],
                0..12,
            ),
            slice in 1..600_u64,
        ) {
            let bytes = lines.join(&b'\n');
            let whole = all(&bytes);
            let end = memchr::memrchr(b'\n', &bytes).map_or(0, |i| i as u64 + 1);
            prop_assert_eq!(whole.1.position, end);
            let file = file(&bytes);
            let mut source = Source::open(file.path()).unwrap();
            let (mut rows, mut damaged, mut position) = (Vec::new(), 0, 0);
            loop {
                let (more, reached) =
                    numbers(&mut source, position, Slice { bytes: slice, ..Slice::WHOLE });
                rows.extend(more);
                damaged += reached.damaged;
                position = reached.position;
                if !reached.more {
                    break;
                }
            }
            prop_assert_eq!((rows, damaged, position), (whole.0, whole.1.damaged, end));
        }
    }
}
