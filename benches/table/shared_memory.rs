//! Watches from outside who holds SQLite's write lock, without taking it.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The byte of a `-shm` file that a writer locks.
const WRITE: i64 = 120;

pub struct WriteLock(PathBuf);

pub struct Watching {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Vec<u64>>>,
    /// Kept open for good: closing it would drop this process's own locks.
    _file: &'static File,
}

impl WriteLock {
    /// Of the database at `path`.
    pub fn of(path: &Path) -> WriteLock {
        let mut path = path.as_os_str().to_owned();
        path.push("-shm");
        WriteLock(path.into())
    }

    /// Begins; the database is open.
    pub fn start(self) -> Watching {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&self.0)
            .unwrap();
        let file: &'static File = Box::leak(Box::new(file));
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut held = Vec::new();
            let mut since: Option<Instant> = None;
            let mut looked = Instant::now();
            while !stopped.load(Ordering::Relaxed) {
                let locked = is_locked(file);
                // What this thread slept through it cannot tell the length of.
                let slept = looked.elapsed() > Duration::from_micros(300);
                looked = Instant::now();
                match (locked, since) {
                    _ if slept => since = None,
                    (true, None) => since = Some(looked),
                    (false, Some(begin)) => {
                        held.push((looked - begin).as_nanos() as u64);
                        since = None;
                    }
                    _ => {}
                }
            }
            held
        });
        Watching {
            stop,
            thread: Some(thread),
            _file: file,
        }
    }
}

impl Watching {
    /// Ends, and answers how long each hold was, in nanoseconds.
    pub fn stop(mut self) -> Vec<u64> {
        self.end()
    }

    fn end(&mut self) -> Vec<u64> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread
            .take()
            .map_or_else(Vec::new, |thread| thread.join().unwrap())
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.end();
    }
}

/// Open-file-description locks see the process's own POSIX locks as others'.
fn is_locked(file: &File) -> bool {
    // SAFETY: the struct is plain data, and the call fills it.
    unsafe {
        let mut lock: libc::flock = std::mem::zeroed();
        lock.l_type = libc::F_WRLCK as libc::c_short;
        lock.l_whence = libc::SEEK_SET as libc::c_short;
        lock.l_start = WRITE;
        lock.l_len = 1;
        libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &mut lock);
        lock.l_type != libc::F_UNLCK as libc::c_short
    }
}
