//! What the shim shows and writes down, read from the process that kills.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

const BYTES: usize = 4_096;
const SLOTS: usize = 64;

/// What a thread is doing. The numbers are the shim's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum Phase {
    None = 0,
    Record,
    Batch,
    Queue,
    Drain,
    Peek,
    Ack,
    Watch,
    Scan,
    Prune,
    Open,
    Close,
    /// No thread's own: pages on their way from the log to the database.
    Checkpoint,
}

/// Those a run must have been killed in often enough.
pub const SPREAD: [Phase; 8] = [
    Phase::Record,
    Phase::Batch,
    Phase::Drain,
    Phase::Ack,
    Phase::Scan,
    Phase::Prune,
    Phase::Checkpoint,
    Phase::Open,
];

/// The layout of `struct board` in shim.c.
#[repr(C)]
struct Shared {
    slots: AtomicU32,
    writing: AtomicU32,
    checkpoint: AtomicU32,
    recovery: AtomicU32,
    phase: [AtomicU32; SLOTS],
}

/// The shared memory a child shows its phases in.
pub struct Board(*const Shared);

// SAFETY: all of it is atomics, and the mapping lives as long as the board.
unsafe impl Sync for Board {}

impl Board {
    /// Makes the file, all zeroes, and maps it.
    pub fn make(path: &Path) -> Board {
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(path)
            .unwrap();
        file.set_len(BYTES as u64).unwrap();
        // SAFETY: a new mapping of a file as long as the mapping, which nothing else is made of.
        let memory = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        assert_ne!(memory, libc::MAP_FAILED);
        Board(memory.cast())
    }

    fn shared(&self) -> &Shared {
        // SAFETY: mapped in `make`, page-aligned, of atomics alone, unmapped by `drop`.
        unsafe { &*self.0 }
    }

    /// Whether a thread is inside a call of this phase.
    pub fn is_inside(&self, phase: Phase) -> bool {
        if phase == Phase::Checkpoint {
            return self.is_at_work(phase);
        }
        let threads = &self.shared().phase;
        threads
            .iter()
            .any(|now| now.load(Ordering::Relaxed) == phase as u32)
    }

    /// Whether the write transaction that is open is led by a call of this phase.
    pub fn is_at_work(&self, phase: Phase) -> bool {
        let shared = self.shared();
        match phase {
            Phase::Checkpoint => shared.checkpoint.load(Ordering::Relaxed) != 0,
            _ => shared.writing.load(Ordering::Relaxed) == phase as u32,
        }
    }

    /// Whether the write-ahead log of a killed process is being read.
    pub fn is_recovering(&self) -> bool {
        self.shared().recovery.load(Ordering::Relaxed) != 0
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        // SAFETY: the mapping `make` made; nobody has a reference into it any more.
        unsafe { libc::munmap(self.0.cast_mut().cast(), BYTES) };
    }
}

/// One record of the journal.
#[derive(Debug)]
pub enum Entry {
    Said(String),
    Made {
        file: u32,
        name: String,
    },
    /// A file that was there is met under this number.
    Met {
        file: u32,
        name: String,
    },
    Removed {
        name: String,
    },
    Wrote {
        file: u32,
        place: u64,
        bytes: Vec<u8>,
    },
    Cut {
        file: u32,
        length: u64,
    },
    Synced {
        file: u32,
    },
    /// What was to be synced is in the cache alone, and nothing will try again.
    SyncFailed {
        file: u32,
    },
    FolderSynced,
}

/// The whole records of a journal; a torn last one was never written.
pub fn entries(path: &Path) -> Vec<Entry> {
    let bytes = std::fs::read(path).unwrap_or_default();
    let mut rest = &bytes[..];
    let mut entries = Vec::new();
    while let Some((head, behind)) = rest.split_first_chunk::<20>() {
        let word = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().unwrap());
        let (file, length) = (word(4), word(8) as usize);
        let place = u64::from_le_bytes(head[12..].try_into().unwrap());
        let Some((data, behind)) = behind.split_at_checked(length) else {
            break;
        };
        rest = behind;
        let text = || String::from_utf8(data.to_vec()).unwrap();
        entries.push(match word(0) as u8 {
            b'S' => Entry::Said(text()),
            b'C' => Entry::Made { file, name: text() },
            b'O' => Entry::Met { file, name: text() },
            b'U' => Entry::Removed { name: text() },
            b'W' => Entry::Wrote {
                file,
                place,
                bytes: data.to_vec(),
            },
            b'T' => Entry::Cut {
                file,
                length: place,
            },
            b'F' => Entry::Synced { file },
            b'E' => Entry::SyncFailed { file },
            b'D' => Entry::FolderSynced,
            kind => panic!("a journal holds a record of kind {kind}"),
        });
    }
    entries
}
