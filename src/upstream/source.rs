//! A session file: plain, or compressed with Zstandard.
//!
//! Positions are always those of the plain text, so that a file may be
//! compressed, and unpacked again, between two passes.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use super::print::{Key, Secret};
use crate::contract::MAX_NUMBER;

/// How a Zstandard file begins: with a frame, or with one to be skipped.
const FRAME: u32 = 0xfd2f_b528;
const SKIPPABLE: u32 = 0x184d_2a50;

/// The largest window a frame may ask for, as a power of two: 8 MiB.
const MAX_WINDOW_LOG: u32 = 23;

/// The bytes at the head of a file, and before a position, that are compared.
const MARKED: u64 = 4096;

/// Why a source cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is no such file, or something else than a file.
    #[error("there is no such session file")]
    Missing,
    /// It is there but cannot be opened.
    #[error("the session file cannot be opened: {0}")]
    Unreadable(#[source] io::Error),
}

/// What tells at no cost whether a file was touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The device the file is on.
    pub device: u64,
    /// Its number there.
    pub inode: u64,
    /// Its size on disk, in bytes.
    pub size: u64,
    /// When it was modified, in nanoseconds since the Unix epoch.
    pub modified_ns: i128,
}

impl Stamp {
    /// The stamp of the file at `path`.
    pub fn of(path: &Path) -> Result<Stamp, OpenError> {
        regular(path).map(|meta| Stamp::from(&meta))
    }

    /// When the file was modified, in milliseconds since the Unix epoch.
    pub fn modified_ms(&self) -> i64 {
        // A file can bear a time that the contract has no number for.
        let most = i128::from(MAX_NUMBER);
        (self.modified_ns / 1_000_000).clamp(-most, most) as i64
    }
}

impl From<&Metadata> for Stamp {
    fn from(meta: &Metadata) -> Stamp {
        Stamp {
            device: meta.dev(),
            inode: meta.ino(),
            size: meta.size(),
            modified_ns: i128::from(meta.mtime()) * 1_000_000_000 + i128::from(meta.mtime_nsec()),
        }
    }
}

/// The metadata of what is at `path` if that is a regular file.
fn regular(path: &Path) -> Result<Metadata, OpenError> {
    match fs::metadata(path) {
        Ok(meta) if meta.is_file() => Ok(meta),
        Ok(_) => Err(OpenError::Missing),
        Err(e) => Err(unopened(e)),
    }
}

/// Opens the regular file at `path`. What is no such file is never opened, and one that
/// took the place of the file meanwhile neither blocks the opening nor is read.
pub(super) fn open_regular(path: &Path) -> Result<(File, Metadata), OpenError> {
    // The opening of a device alone may have an effect.
    regular(path)?;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)
        .map_err(unopened)?;
    let meta = file.metadata().map_err(OpenError::Unreadable)?;
    if !meta.is_file() {
        return Err(OpenError::Missing);
    }
    Ok((file, meta))
}

fn unopened(e: io::Error) -> OpenError {
    match e.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => OpenError::Missing,
        _ => OpenError::Unreadable(e),
    }
}

/// The content of a file up to a position, by which a later pass knows that what
/// it read is still there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The hash of the first 4 KiB before the position.
    pub head: Key,
    /// The hash of the last 4 KiB before the position.
    pub tail: Key,
}

/// An open session file.
pub struct Source {
    body: Body,
    stamp: Stamp,
    searched: (u64, u64),
}

enum Body {
    Plain(File),
    Packed(Packed),
}

impl Source {
    /// Opens the file at `path`. What it is, its first bytes say.
    pub fn open(path: &Path) -> Result<Source, OpenError> {
        let (file, meta) = open_regular(path)?;
        let mut magic = [0; 4];
        let read = file.read_at(&mut magic, 0).map_err(OpenError::Unreadable)?;
        let magic = u32::from_le_bytes(magic);
        let body = if read == 4 && (magic == FRAME || magic & !0xf == SKIPPABLE) {
            Body::Packed(Packed::new(file).map_err(OpenError::Unreadable)?)
        } else {
            Body::Plain(file)
        };
        Ok(Source {
            body,
            stamp: Stamp::from(&meta),
            searched: (0, 0),
        })
    }

    /// The file's stamp when it was opened.
    pub fn stamp(&self) -> Stamp {
        self.stamp
    }

    /// Where the text ended when the file was opened. A compressed file does not
    /// say it and does not grow either: there it is `u64::MAX`.
    pub fn end(&self) -> u64 {
        match self.body {
            Body::Plain(_) => self.stamp.size,
            Body::Packed(_) => u64::MAX,
        }
    }

    /// Where to go on to look for the end of the line that begins at `start`.
    pub(super) fn searched(&self, start: u64) -> u64 {
        match self.searched {
            (of, to) if of == start => to.max(start),
            _ => start,
        }
    }

    /// Keeps in mind that the line that begins at `start` does not end before `to`.
    pub(super) fn set_searched(&mut self, start: u64, to: u64) {
        self.searched = (start, to);
    }

    /// The mark of what stands before `position`; `None` when the text is shorter.
    pub fn mark(&mut self, position: u64, secret: &Secret) -> io::Result<Option<Mark>> {
        let len = position.min(MARKED);
        let Some(head) = self.hash(0, len, secret)? else {
            return Ok(None);
        };
        let tail = match position - len {
            0 => Some(head),
            start => self.hash(start, len, secret)?,
        };
        Ok(tail.map(|tail| Mark { head, tail }))
    }

    /// The hash of `len` bytes at `start`, at most [`MARKED`].
    fn hash(&mut self, start: u64, len: u64, secret: &Secret) -> io::Result<Option<Key>> {
        let mut bytes = [0; MARKED as usize];
        let bytes = &mut bytes[..len as usize];
        let whole = self.read_exact_at(start, bytes)?;
        Ok(whole.then(|| secret.bytes(bytes)))
    }

    fn read_exact_at(&mut self, mut at: u64, mut bytes: &mut [u8]) -> io::Result<bool> {
        while !bytes.is_empty() {
            match self.read_at(at, bytes)? {
                0 => return Ok(false),
                n => {
                    at += n as u64;
                    bytes = &mut bytes[n..];
                }
            }
        }
        Ok(true)
    }

    /// Reads some of the text at `at`; 0 bytes are its end.
    pub(super) fn read_at(&mut self, at: u64, bytes: &mut [u8]) -> io::Result<usize> {
        match &mut self.body {
            Body::Plain(file) => retry(|| file.read_at(bytes, at)),
            Body::Packed(packed) => packed.read_at(at, bytes),
        }
    }
}

/// What lies behind so much text is not read: a few bytes can be made to unpack
/// to any length, and each step back unpacks from the start.
const LONGEST_UNPACKED: u64 = 1 << 30;

/// A compressed file, read forwards; going back begins anew.
struct Packed {
    text: zstd::Decoder<'static, BufReader<File>>,
    at: u64,
}

impl Packed {
    fn new(mut file: File) -> io::Result<Packed> {
        file.seek(SeekFrom::Start(0))?;
        let mut text = zstd::Decoder::new(file)?;
        text.window_log_max(MAX_WINDOW_LOG)?;
        Ok(Packed { text, at: 0 })
    }

    fn read_at(&mut self, at: u64, bytes: &mut [u8]) -> io::Result<usize> {
        if at >= LONGEST_UNPACKED {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "it is longer than 1 GiB when unpacked",
            ));
        }
        if at < self.at {
            let file = self.text.get_ref().get_ref().try_clone()?;
            *self = Packed::new(file)?;
        }
        let skip = at - self.at;
        self.at += io::copy(&mut (&mut self.text).take(skip), &mut io::sink())?;
        if self.at < at {
            return Ok(0);
        }
        let n = retry(|| self.text.read(bytes))?;
        self.at += n as u64;
        Ok(n)
    }
}

fn retry(mut read: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match read() {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compressed_file_that_unpacks_without_end_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bomb.jsonl.zst");
        let mut packer = zstd::Encoder::new(File::create(&path).unwrap(), 1).unwrap();
        let zeros = vec![0; 1 << 20];
        for _ in 0..8 {
            std::io::Write::write_all(&mut packer, &zeros).unwrap();
        }
        packer.finish().unwrap();
        let mut packed = Packed::new(File::open(&path).unwrap()).unwrap();
        let mut bytes = [1; 8];
        assert_eq!(packed.read_at(7 << 20, &mut bytes).unwrap(), 8);
        assert_eq!(bytes, [0; 8]);
        assert_eq!(packed.read_at(8 << 20, &mut bytes).unwrap(), 0, "its end");
        let problem = packed.read_at(LONGEST_UNPACKED, &mut bytes).unwrap_err();
        assert!(problem.to_string().contains("1 GiB"), "{problem}");
    }

    #[test]
    fn what_is_no_file_is_missing() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f");
        for path in [
            dir.path(),
            &file,
            &file.join("below"),
            Path::new("/dev/null"),
        ] {
            assert!(
                matches!(Source::open(path), Err(OpenError::Missing)),
                "{path:?}"
            );
            assert!(
                matches!(Stamp::of(path), Err(OpenError::Missing)),
                "{path:?}"
            );
        }
        fs::write(&file, "text").unwrap();
        let source = Source::open(&file).unwrap();
        assert_eq!((source.end(), source.stamp().size), (4, 4));
        let stamp = Stamp::of(&file).unwrap();
        assert_eq!(
            (stamp.device, stamp.inode),
            (source.stamp().device, source.stamp().inode)
        );
    }

    #[test]
    fn a_mark_tells_a_rewritten_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let secret = Secret::new([7; 32]);
        let mark = |text: &[u8], at: u64| {
            fs::write(&path, text).unwrap();
            Source::open(&path).unwrap().mark(at, &secret).unwrap()
        };
        let text: Vec<u8> = (0..20_000_u32).map(|i| (i % 251) as u8).collect();
        let at = 10_000;
        let whole = mark(&text, at).unwrap();
        assert_eq!(mark(&text[..at as usize], at), Some(whole));
        assert_eq!(mark(&text[..at as usize - 1], at), None);
        for (changed, same) in [
            (0, false),
            (4095, false),
            (5000, true),
            (5904, false),
            (9999, false),
            (10_000, true),
        ] {
            let mut text = text.clone();
            text[changed] ^= 1;
            assert_eq!(mark(&text, at) == Some(whole), same, "{changed}");
        }
        assert!(mark(b"", 0).is_some());
    }
}
