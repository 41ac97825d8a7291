//! Keyed hashes: what is kept of a text, and what a turn is known by.
//!
//! Text of a transcript never leaves this room. What other rooms and the
//! database see of it are keyed hashes, which tell only whether two texts or
//! two turns are the same, and only to who holds the key.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The bytes of a hash.
const BYTES: usize = 16;

/// The key of all hashes of one database.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; 32]);

impl Secret {
    /// The secret with these random bytes.
    pub fn new(bytes: [u8; 32]) -> Secret {
        Secret(bytes)
    }

    /// The print of a whole text.
    pub fn print(&self, text: &str) -> Print {
        let mut printer = self.printer();
        printer.feed(text);
        printer.finish()
    }

    /// A printer for a text that comes in pieces.
    pub fn printer(&self) -> Printer {
        Printer {
            hash: blake3::Hasher::new_keyed(&self.0),
            words: String::new(),
            begun: false,
            gap: false,
        }
    }

    /// The key of what `fields` name together. Unlike lists have unlike keys.
    pub(super) fn key(&self, fields: &[&[u8]]) -> Key {
        let mut hash = blake3::Hasher::new_keyed(&self.0);
        for field in fields {
            hash.update(&(field.len() as u64).to_le_bytes());
            hash.update(field);
        }
        Key(cut(&hash))
    }

    /// The hash of raw bytes, to tell whether a file is still the same.
    pub(super) fn bytes(&self, bytes: &[u8]) -> Key {
        self.key(&[b"bytes", bytes])
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// The keyed hash of a text after trimming and collapsing its white space.
///
/// Two texts that differ only in white space have one print. A byte order mark
/// counts as white space.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Print([u8; BYTES]);

/// The keyed hash that a turn, or a file's content, is known by.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key([u8; BYTES]);

macro_rules! hash_type {
    ($name:ident) => {
        impl $name {
            /// The hash as it is stored.
            pub fn as_bytes(&self) -> &[u8; BYTES] {
                &self.0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:032x})"), self.number())
            }
        }

        impl $name {
            fn number(&self) -> u128 {
                u128::from_be_bytes(self.0)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(&format_args!("{:032x}", self.number()))
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<str>::deserialize(from)?;
                u128::from_str_radix(&text, 16)
                    .map(|number| $name(number.to_be_bytes()))
                    .map_err(serde::de::Error::custom)
            }
        }
    };
}

hash_type!(Print);
hash_type!(Key);

/// Makes a [`Print`] of a text fed in pieces; where the pieces end is of no matter.
#[derive(Clone)]
pub struct Printer {
    hash: blake3::Hasher,
    /// What is not yet hashed.
    words: String,
    begun: bool,
    gap: bool,
}

impl Printer {
    /// Adds a piece.
    pub fn feed(&mut self, mut piece: &str) {
        loop {
            let (blanks, rest) = piece.split_at(span(piece, true));
            let (word, rest) = rest.split_at(span(rest, false));
            self.gap |= !blanks.is_empty();
            if word.is_empty() {
                return;
            }
            if self.gap && self.begun {
                self.words.push(' ');
            }
            self.words.push_str(word);
            self.begun = true;
            self.gap = false;
            if self.words.len() >= 1024 {
                self.hash.update(self.words.as_bytes());
                self.words.clear();
            }
            piece = rest;
        }
    }

    /// The print of all pieces together.
    pub fn finish(mut self) -> Print {
        self.hash.update(self.words.as_bytes());
        Print(cut(&self.hash))
    }
}

/// What a print takes for white space.
pub(super) fn is_blank(c: char) -> bool {
    c.is_whitespace() || c == '\u{feff}'
}

/// How long the white space, or what is none, at the start of a text is.
fn span(text: &str, blank: bool) -> usize {
    let mut at = 0;
    while let Some(byte) = text.as_bytes().get(at) {
        let c = match byte.is_ascii() {
            true => *byte as char,
            false => text[at..].chars().next().unwrap_or_default(),
        };
        if is_blank(c) != blank {
            break;
        }
        at += c.len_utf8();
    }
    at
}

fn cut(hash: &blake3::Hasher) -> [u8; BYTES] {
    let mut out = [0; BYTES];
    hash.finalize_xof().fill(&mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn secret() -> Secret {
        Secret::new([7; 32])
    }

    #[test]
    fn white_space_and_a_byte_order_mark_do_not_matter() {
        let print = secret().print("run the tests");
        for same in [
            "  run   the\ntests ",
            "\u{feff}run the tests",
            "run\u{a0}the\u{2028}tests\r\n",
        ] {
            assert_eq!(secret().print(same), print, "{same:?}");
        }
        for other in ["", "runthe tests", "run the test s", "Run the tests"] {
            assert_ne!(secret().print(other), print, "{other:?}");
        }
        assert_ne!(Secret::new([8; 32]).print("run the tests"), print);
    }

    #[test]
    fn lists_of_fields_do_not_run_into_each_other() {
        let secret = secret();
        let one = secret.key(&[b"a", b"bc"]);
        assert_ne!(one, secret.key(&[b"ab", b"c"]));
        assert_ne!(one, secret.key(&[b"a", b"bc", b""]));
        assert_eq!(one, secret.key(&[b"a", b"bc"]));
    }

    #[test]
    fn a_hash_is_stored_and_read_back() {
        let print = secret().print("x");
        let text = serde_json::to_string(&print).unwrap();
        assert_eq!(serde_json::from_str::<Print>(&text).unwrap(), print);
        assert!(serde_json::from_str::<Key>("\"zz\"").is_err());
    }

    proptest! {
        #[test]
        fn pieces_make_the_print_of_the_whole(pieces in prop::collection::vec("[ \u{feff}\t\na-cé]{0,6}", 0..8)) {
            let mut printer = secret().printer();
            for piece in &pieces {
                printer.feed(piece);
            }
            prop_assert_eq!(printer.finish(), secret().print(&pieces.concat()));
        }
    }
}
