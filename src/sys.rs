//! The few things only the operating system can do, each a safe function.
#![allow(unsafe_code)]

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::ops::{Deref, Range};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};
use std::time::{Duration, Instant};

use once_cell::sync::OnceCell;
use rusqlite::{Connection, Statement, ffi};
use self_cell::self_cell;

/// The statements of a connection that are used again and again, each by its text.
#[derive(Default)]
struct Statements<'a>(RefCell<Vec<(&'static str, Statement<'a>)>>);

self_cell!(
    struct ConnectionCell {
        owner: Connection,
        #[not_covariant]
        dependent: Statements,
    }
);

/// A connection with statements that stay prepared as long as it is open.
/// [`Connection::prepare_cached`] would cost a twelfth of a record's instructions.
pub(crate) struct Kept(ConnectionCell);

// SAFETY: a connection may go to another thread, and its statements may with it:
// SQLite wants that no two threads use them at once, and has no ties to a thread.
// They are in one cell, which is not `Sync`: whatever comes out of it borrows it,
// so it stays on its thread as long as anything is in use.
unsafe impl Send for Kept {}

impl Kept {
    pub(crate) fn new(conn: Connection) -> Kept {
        Kept(ConnectionCell::new(conn, |_| Statements::default()))
    }

    /// Uses the statement of this text, which is left as it was prepared. What
    /// `work` itself asks for in this way is prepared for that use alone.
    pub(crate) fn with<T>(
        &self,
        sql: &'static str,
        work: impl FnOnce(&mut Statement<'_>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<T> {
        self.0.with_dependent(|conn, Statements(kept)| {
            let Ok(mut kept) = kept.try_borrow_mut() else {
                return work(&mut conn.prepare(sql)?);
            };
            let at = keep(&mut kept, conn, sql)?;
            let (_, statement) = &mut kept[at];
            let done = work(statement);
            statement.clear_bindings();
            done
        })
    }

    pub(crate) fn into_connection(self) -> Connection {
        self.0.into_owner()
    }
}

/// Where the statement of this text is, which is prepared if need be.
fn keep<'a>(
    kept: &mut Vec<(&'static str, Statement<'a>)>,
    conn: &'a Connection,
    sql: &'static str,
) -> rusqlite::Result<usize> {
    let is_it = |(other, _): &(&str, _)| std::ptr::eq(*other, sql);
    if let Some(at) = kept.iter().position(is_it) {
        return Ok(at);
    }
    kept.push((sql, conn.prepare(sql)?));
    Ok(kept.len() - 1)
}

impl Deref for Kept {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.0.borrow_owner()
    }
}

/// Runs `start` with all signals blocked on this thread, so that threads made
/// by it inherit the mask and the host's handlers never run on them.
pub(crate) fn with_signals_blocked<T>(start: impl FnOnce() -> T) -> T {
    struct Restore(libc::sigset_t);
    impl Drop for Restore {
        fn drop(&mut self) {
            // SAFETY: the set was filled by pthread_sigmask below; it only sets this thread's mask.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, std::ptr::null_mut()) };
        }
    }
    // SAFETY: both sets are plain data on this stack that the calls fill before they are read.
    let restore = unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut old: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut old);
        Restore(old)
    };
    let made = start();
    drop(restore);
    made
}

/// Milliseconds of a clock that nobody sets, the same for all processes of the
/// machine: on Linux since it was started, without the time it slept.
pub(crate) fn uptime_ms() -> i64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the call fills `now`, which is a timespec; this clock is always there.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec * 1_000 + now.tv_nsec / 1_000_000
}

/// Starts a named library thread: all signals blocked, its panics kept from the host.
pub(crate) fn spawn<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<std::thread::JoinHandle<T>> {
    with_signals_blocked(|| {
        std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(body)
    })
}

/// Whether this thread's own values of the library are gone already, as when a
/// destructor of the host's calls: then the standard library refuses to say
/// which thread this is, and whoever asks panics.
pub(crate) fn thread_is_ending() -> bool {
    struct Last;
    impl Drop for Last {
        fn drop(&mut self) {}
    }
    thread_local! {
        /// Goes with the others, since it has a destructor.
        static LAST: Last = const { Last };
    }
    LAST.try_with(|_| ()).is_err()
}

/// Runs `call` on a thread of its own, and waits for it. It must not panic.
pub(crate) fn on_another_thread<T>(call: impl FnOnce() -> T) -> io::Result<T> {
    struct Lent<V>(V);
    // SAFETY: only one of the two threads uses it at a time, see below.
    unsafe impl<V> Send for Lent<V> {}
    impl<V> Lent<V> {
        fn take(self) -> V {
            self.0
        }
    }
    let call = Lent(call);
    let thread = with_signals_blocked(|| {
        let builder = std::thread::Builder::new().name("aware-call".to_owned());
        // SAFETY: this thread does nothing but wait until the other has ended, so
        // what `call` borrows is there all the while, and nobody else uses it.
        unsafe { builder.spawn_unchecked(move || Lent((call.take())())) }
    })?;
    let done = thread.join();
    done.map(Lent::take)
        .map_err(|_| io::Error::other("the call panicked"))
}

#[cfg(target_os = "linux")]
const PTHREAD_CANCEL_DISABLE: libc::c_int = 1;
#[cfg(not(target_os = "linux"))]
use libc::PTHREAD_CANCEL_DISABLE;

unsafe extern "C" {
    /// Not among those of the crate `libc`.
    fn pthread_setcancelstate(state: libc::c_int, before: *mut libc::c_int) -> libc::c_int;
}

/// Runs `call` so that a `pthread_cancel` of this thread comes after it: the system
/// would end the thread in the middle of what others wait for, or the process.
pub(crate) fn without_cancellation<T>(call: impl FnOnce() -> T) -> T {
    let mut before = 0;
    // SAFETY: sets this thread's state and writes the one before, an int.
    let refused = unsafe { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &mut before) };
    let done = call();
    if refused == 0 {
        // SAFETY: a state that the system told.
        unsafe { pthread_setcancelstate(before, std::ptr::null_mut()) };
    }
    done
}

/// A non-blocking pipe that no child process inherits. What the host is shown is a
/// descriptor of its own: should it close that, as it must not, the pipe still has a
/// reader, and to write to it is no SIGPIPE.
pub(crate) struct Pipe {
    shown: Option<File>,
    read: File,
    write: File,
}

impl Drop for Pipe {
    fn drop(&mut self) {
        let identity = |end: &File| {
            end.metadata()
                .ok()
                .map(|found| crate::files::identity_in(&found))
        };
        let own = identity(&self.read);
        if let Some(shown) = self.shown.take()
            && identity(&shown) != own
        {
            // Closed by the host, for which another file may have its number now.
            let _ = shown.into_raw_fd();
        }
    }
}

impl Pipe {
    pub(crate) fn new() -> io::Result<Pipe> {
        let mut ends = [0; 2];
        #[cfg(target_os = "linux")]
        // SAFETY: `ends` has room for the two descriptors the call writes.
        let made = unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_NONBLOCK | libc::O_CLOEXEC) };
        #[cfg(not(target_os = "linux"))]
        // SAFETY: `ends` has room for the two descriptors; fcntl only sets flags on them.
        let made = unsafe {
            let made = libc::pipe(ends.as_mut_ptr());
            for end in ends.iter().filter(|_| made == 0) {
                libc::fcntl(*end, libc::F_SETFL, libc::O_NONBLOCK);
                libc::fcntl(*end, libc::F_SETFD, libc::FD_CLOEXEC);
            }
            made
        };
        if made != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call succeeded, so both are open descriptors that nobody else owns.
        let [read, write] = ends.map(|end| File::from(unsafe { OwnedFd::from_raw_fd(end) }));
        Ok(Pipe {
            shown: Some(read.try_clone()?),
            read,
            write,
        })
    }

    /// A descriptor of the read end for the host; it stays the pipe's.
    pub(crate) fn fd(&self) -> RawFd {
        self.shown.as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }

    /// Makes the read end readable with one byte, when none waits in it.
    pub(crate) fn signal(&self) {
        use io::Write;
        if self.waiting() == 0 {
            // Full means readable, which is all that is wanted.
            let _ = (&self.write).write(&[1]);
        }
    }

    /// Takes every byte out, so that the read end is not readable.
    pub(crate) fn clear(&self) {
        use io::Read;
        let mut bytes = [0; 64];
        // Not until there is none: the host may have made reading it block.
        while self.waiting() > 0 && matches!((&self.read).read(&mut bytes), Ok(n) if n > 0) {}
    }

    fn waiting(&self) -> libc::c_int {
        let mut bytes: libc::c_int = 0;
        // SAFETY: FIONREAD writes one int, and `bytes` is one.
        let asked = unsafe { libc::ioctl(self.read.as_raw_fd(), libc::FIONREAD, &mut bytes) };
        if asked == 0 { bytes } else { 0 }
    }
}

/// How many descriptors can be kept from children of `fork`.
const GUARDED: usize = 256;
const NONE: RawFd = -1;

/// Descriptors that a child of `fork` closes before anything else runs in it.
static GUARDS: [AtomicI32; GUARDED] = [const { AtomicI32::new(NONE) }; GUARDED];

/// Keeps a descriptor from children of `fork`, as the close-on-exec flag keeps it
/// from programs they start: a lock on it ends with this process. Drop it before
/// the descriptor is closed.
pub(crate) struct NotInChild(Option<usize>);

impl NotInChild {
    pub(crate) fn guard(file: &File) -> NotInChild {
        static REGISTERED: OnceCell<()> = OnceCell::new();
        REGISTERED.get_or_init(|| {
            // SAFETY: the handler lives as long as the process, since the library
            // is never unloaded, and does only what a child of fork may do.
            unsafe { libc::pthread_atfork(None, None, Some(close_guarded)) };
        });
        let fd = file.as_raw_fd();
        let free = |slot: &AtomicI32| {
            slot.compare_exchange(NONE, fd, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        };
        // With more handles than that the lock may outlive the process in a child of it.
        NotInChild(GUARDS.iter().position(free))
    }
}

impl Drop for NotInChild {
    fn drop(&mut self) {
        if let Some(slot) = self.0 {
            GUARDS[slot].store(NONE, Ordering::Release);
        }
    }
}

unsafe extern "C" fn close_guarded() {
    for slot in &GUARDS {
        let fd = slot.swap(NONE, Ordering::AcqRel);
        if fd != NONE {
            // SAFETY: close is async-signal-safe; the descriptor is the child's copy
            // of one that only the parent uses.
            unsafe { libc::close(fd) };
        }
    }
}

/// Has this thread wait for its turn when it is woken. The system lets whom it
/// wakes go on at once otherwise, in the place of the thread that woke it: here a
/// host that queues an event, and does not wait for it.
pub(crate) fn wait_for_a_turn() {
    #[cfg(target_os = "linux")]
    // SAFETY: plain system calls on this thread, with plain data on the stack.
    unsafe {
        let none: libc::sched_param = std::mem::zeroed();
        // Whoever runs with a policy of their own knows why. Refused or not, the
        // thread is only a little earlier or later.
        if libc::sched_getscheduler(0) == libc::SCHED_OTHER {
            libc::sched_setscheduler(0, libc::SCHED_BATCH, &none);
        }
    }
}

/// The process's id: a child of `fork` has another.
pub(crate) fn process_id() -> u32 {
    std::process::id()
}

/// One value a process: a child of `fork` gets a fresh one and never touches
/// the locks of its parent's, which another thread may have held at the fork.
pub(crate) struct PerProcess<T: 'static> {
    current: AtomicPtr<Incarnation<T>>,
}

struct Incarnation<T: 'static> {
    process: u32,
    value: T,
    parent: Option<&'static Incarnation<T>>,
}

impl<T: Default + Sync> PerProcess<T> {
    pub(crate) const fn new() -> PerProcess<T> {
        PerProcess {
            current: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    /// This process's value, made at the first call.
    pub(crate) fn get(&'static self) -> &'static T {
        &self.incarnation().value
    }

    /// The values of the processes this one was forked from, nearest first.
    pub(crate) fn inherited(&'static self) -> impl Iterator<Item = &'static T> {
        std::iter::successors(self.incarnation().parent, |parent| parent.parent)
            .map(|parent| &parent.value)
    }

    fn incarnation(&'static self) -> &'static Incarnation<T> {
        let process = process_id();
        let mut seen = self.current.load(Ordering::Acquire);
        loop {
            // SAFETY: what is stored is null or comes from Box::leak below and is never freed.
            let parent = unsafe { seen.as_ref::<'static>() };
            if let Some(own) = parent.filter(|incarnation| incarnation.process == process) {
                return own;
            }
            let fresh = Box::into_raw(Box::new(Incarnation {
                process,
                value: T::default(),
                parent,
            }));
            match self
                .current
                .compare_exchange(seen, fresh, Ordering::AcqRel, Ordering::Acquire)
            {
                // SAFETY: just made, now owned by the static and never freed.
                Ok(_) => return unsafe { &*fresh },
                Err(now) => {
                    // SAFETY: not stored, so still this call's own.
                    drop(unsafe { Box::from_raw(fresh) });
                    seen = now;
                }
            }
        }
    }
}

/// Whether this process may read and write at `path`; the error says why not.
/// Opens nothing: that would drop the process's locks on a database.
pub(crate) fn usable(path: &Path) -> io::Result<()> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: the path is NUL-terminated and lives for the call.
    let asked = unsafe {
        libc::faccessat(
            libc::AT_FDCWD,
            path.as_ptr(),
            libc::R_OK | libc::W_OK,
            libc::AT_EACCESS,
        )
    };
    match asked {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// What the system said to SQLite when a call on this connection last failed to
/// read, write or open; `None` when it said nothing.
pub(crate) fn sqlite_errno(conn: &Connection) -> Option<io::Error> {
    // SAFETY: the handle is open as long as the connection, which is this thread's for the call.
    let errno = unsafe { ffi::sqlite3_system_errno(conn.handle()) };
    (errno != 0).then(|| io::Error::from_raw_os_error(errno))
}

/// What the system said when a read of the connection's database or log last
/// failed, once: SQLite tells an error of the disk in the middle of a statement
/// as damage of the file, and its code does not show it. As long as the disk
/// refuses every read it is told again.
pub(crate) fn take_read_errno(conn: &Connection) -> Option<io::Error> {
    [
        ffi::SQLITE_FCNTL_FILE_POINTER,
        ffi::SQLITE_FCNTL_JOURNAL_POINTER,
    ]
    .into_iter()
    .filter_map(|which| {
        let mut file: *mut ffi::sqlite3_file = std::ptr::null_mut();
        let mut errno: libc::c_int = 0;
        // SAFETY: the connection is open while it is borrowed and no other thread
        // uses it. Both questions answer a file that lives as long as it, or NULL;
        // one without methods is closed. The read is of one byte into room for
        // one, far beyond the end of any file, which notes "no error".
        unsafe {
            let asked = ffi::sqlite3_file_control(
                conn.handle(),
                c"main".as_ptr(),
                which,
                (&raw mut file).cast(),
            );
            if asked != ffi::SQLITE_OK || file.is_null() || (*file).pMethods.is_null() {
                return None;
            }
            let methods = &*(*file).pMethods;
            let (control, read) = (methods.xFileControl?, methods.xRead?);
            control(file, ffi::SQLITE_FCNTL_LAST_ERRNO, (&raw mut errno).cast());
            if errno != 0 {
                let mut byte = 0u8;
                read(file, (&raw mut byte).cast(), 1, 1 << 50);
            }
        }
        (errno != 0).then(|| io::Error::from_raw_os_error(errno))
    })
    // Of both files, or the other's would be told at the next time.
    .fold(None, |first, why| first.or(Some(why)))
}

/// Locks bytes of a file for reading. The lock is the descriptor's, not the
/// process's: no other open or close of the file drops it, and it is in the way
/// of this process's own POSIX locks as of any other's.
pub(crate) fn lock_for_reading(file: &File, bytes: Range<i64>) -> io::Result<()> {
    set_lock(file, bytes, true)
}

/// Ends a lock of [`lock_for_reading`].
pub(crate) fn unlock(file: &File, bytes: Range<i64>) -> io::Result<()> {
    set_lock(file, bytes, false)
}

fn set_lock(file: &File, bytes: Range<i64>, held: bool) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        // SAFETY: flock is plain data, for which zero is a value.
        let mut range: libc::flock = unsafe { std::mem::zeroed() };
        range.l_type = if held { libc::F_RDLCK } else { libc::F_UNLCK } as _;
        range.l_whence = libc::SEEK_SET as _;
        range.l_start = bytes.start as _;
        range.l_len = (bytes.end - bytes.start) as _;
        // SAFETY: the descriptor is open while `file` is borrowed; the call reads `range`.
        if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &range) } == -1 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (file, bytes, held);
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Has every wait of the connection for a lock end after `patience` by the
/// monotonic clock. SQLite's own waiting adds up the sleeps it asked for, which
/// the host's signals may have cut short.
pub(crate) fn wait_for_locks(conn: &Connection, patience: Duration) -> rusqlite::Result<()> {
    let patience_ms = usize::try_from(patience.as_millis()).unwrap_or(usize::MAX);
    // SAFETY: the connection is open while it is borrowed. What SQLite keeps is a
    // function of this library, which is never unloaded, and a number in the
    // place of a pointer, which nobody follows.
    let result = unsafe {
        ffi::sqlite3_busy_handler(
            conn.handle(),
            Some(wait_a_little),
            std::ptr::without_provenance_mut(patience_ms),
        )
    };
    match result {
        ffi::SQLITE_OK => Ok(()),
        code => Err(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)),
    }
}

/// The longest sleep between two looks at a lock.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Called by SQLite, on the thread that waits, when a lock is taken: `count` is
/// how often before in this wait. Not 0 means: try again.
extern "C" fn wait_a_little(patience_ms: *mut libc::c_void, count: libc::c_int) -> libc::c_int {
    thread_local! {
        static SINCE: std::cell::Cell<Option<Instant>> = const { std::cell::Cell::new(None) };
    }
    let now = Instant::now();
    if count == 0 {
        SINCE.set(Some(now));
    }
    let waited = SINCE.get().map_or(Duration::ZERO, |since| now - since);
    let patience = Duration::from_millis(patience_ms.addr() as u64);
    let Some(left) = patience.checked_sub(waited).filter(|left| !left.is_zero()) else {
        return 0;
    };
    let step = Duration::from_micros(250) * 2u32.pow(count.clamp(0, 10).unsigned_abs());
    // Goes on sleeping after a signal.
    std::thread::sleep(step.min(LOOK_AGAIN).min(left));
    1
}

/// The name of the network file system `path` is on, where SQLite's
/// write-ahead log does not work; `None` on any other file system.
pub(crate) fn network_file_system(path: &Path) -> Option<&'static str> {
    #[cfg(target_os = "linux")]
    {
        use std::os::unix::ffi::OsStrExt;
        let path = std::ffi::CString::new(path.as_os_str().as_bytes()).ok()?;
        // SAFETY: `stat` is plain data that the call fills; the path is NUL-terminated.
        let kind = unsafe {
            let mut stat: libc::statfs = std::mem::zeroed();
            if libc::statfs(path.as_ptr(), &mut stat) != 0 {
                return None;
            }
            // The type is signed on some machines; the magic numbers are 32 bits.
            stat.f_type as u32
        };
        match kind {
            0x6969 => Some("NFS"),
            0x517b | 0xff53_4d42 | 0xfe53_4d42 => Some("SMB"),
            0x0102_1997 => Some("9p"),
            _ => None,
        }
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = path;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pipe_holds_one_byte_however_often_it_is_signalled() {
        let pipe = Pipe::new().unwrap();
        for _ in 0..3 {
            pipe.signal();
        }
        assert_eq!(pipe.waiting(), 1);
        pipe.clear();
        assert_eq!(pipe.waiting(), 0);
        pipe.clear();
        pipe.signal();
        assert_eq!(pipe.waiting(), 1);
    }

    #[test]
    fn a_library_thread_has_all_signals_blocked_and_its_maker_has_not() {
        let blocked = || {
            // SAFETY: reads this thread's mask into plain data on the stack.
            unsafe {
                let mut mask: libc::sigset_t = std::mem::zeroed();
                libc::pthread_sigmask(libc::SIG_SETMASK, std::ptr::null(), &mut mask);
                libc::sigismember(&mask, libc::SIGTERM) == 1
                    && libc::sigismember(&mask, libc::SIGCHLD) == 1
            }
        };
        let before = blocked();
        assert!(spawn("aware-test", blocked).unwrap().join().unwrap());
        assert_eq!(blocked(), before);
    }

    #[test]
    fn a_local_folder_is_no_network_file_system() {
        assert_eq!(network_file_system(&std::env::temp_dir()), None);
    }
}
