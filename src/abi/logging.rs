//! What the library logs, handed to the host's callback.

use std::cell::Cell;
use std::ffi::{CString, c_char, c_void};

use log::{Level, LevelFilter, Log, Metadata, Record};

use crate::sync::{Arc, Condvar, Mutex, lock, wait};
use crate::sys::PerProcess;

/// The host's function.
pub(super) type Callback = unsafe extern "C" fn(*mut c_void, i32, *const c_char, *const c_char);

static HOST: PerProcess<Host> = PerProcess::new();
static BRIDGE: Bridge = Bridge;

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

#[derive(Default)]
struct Host {
    current: Mutex<Option<Arc<Target>>>,
    returned: Condvar,
}

struct Target {
    callback: Callback,
    user: *mut c_void,
    level: LevelFilter,
    /// How many calls of it are running; guarded by `Host::current`'s lock.
    running: Mutex<usize>,
}

// SAFETY: `user` is only ever handed back to the host, which promises that its
// callback may be called from any thread.
unsafe impl Send for Target {}
// SAFETY: as above; nothing here reads through it.
unsafe impl Sync for Target {}

/// Whether this thread is inside the log callback.
pub(super) fn inside_callback() -> bool {
    INSIDE.get()
}

/// Sets who is told. Returns when no call of the old callback is running, at
/// once from inside one.
pub(super) fn set(callback: Option<Callback>, user: *mut c_void, max_level: i32) {
    // A Rust host that has a logger of its own keeps it.
    let _ = log::set_logger(&BRIDGE);
    let level = match max_level {
        _ if callback.is_none() => LevelFilter::Off,
        ..=0 => LevelFilter::Off,
        1 => LevelFilter::Error,
        2 => LevelFilter::Warn,
        3 => LevelFilter::Info,
        4 => LevelFilter::Debug,
        5.. => LevelFilter::Trace,
    };
    let host = HOST.get();
    let fresh = callback.map(|callback| {
        Arc::new(Target {
            callback,
            user,
            level,
            running: Mutex::new(0),
        })
    });
    let mut current = lock(&host.current);
    log::set_max_level(level);
    let old = std::mem::replace(&mut *current, fresh);
    if let Some(old) = old
        && !inside_callback()
    {
        while *lock(&old.running) > 0 {
            current = wait(&host.returned, current);
        }
    }
}

struct Bridge;

impl Log for Bridge {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        // What dependencies say is not for the host, and a callback's own doings never come back to it.
        let own = record
            .module_path()
            .is_some_and(|path| path.starts_with("session_awareness"));
        if !own || !self.enabled(record.metadata()) || inside_callback() {
            return;
        }
        let host = HOST.get();
        let target = {
            let current = lock(&host.current);
            // Who is told may be another by now, who asked for less.
            let wants = |target: &&Arc<Target>| record.level() <= target.level;
            let Some(target) = current.as_ref().filter(wants).map(Arc::clone) else {
                return;
            };
            *lock(&target.running) += 1;
            target
        };
        INSIDE.set(true);
        call(&target, record);
        INSIDE.set(false);
        let current = lock(&host.current);
        *lock(&target.running) -= 1;
        host.returned.notify_all();
        drop(current);
    }

    fn flush(&self) {}
}

fn call(target: &Target, record: &Record<'_>) {
    let text = |text: String| CString::new(text.replace('\0', " ")).unwrap_or_default();
    let name = text(record.target().to_owned());
    let message = text(record.args().to_string());
    let level = match record.level() {
        Level::Error => 1,
        Level::Warn => 2,
        Level::Info => 3,
        Level::Debug => 4,
        Level::Trace => 5,
    };
    // SAFETY: the host promised a function of this type and a `user` that lives
    // until the callback is replaced; both strings live for the call.
    unsafe { (target.callback)(target.user, level, name.as_ptr(), message.as_ptr()) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicI32, Ordering};

    unsafe extern "C" fn keep_highest(
        user: *mut c_void,
        level: i32,
        _: *const c_char,
        _: *const c_char,
    ) {
        // SAFETY: `user` is a number that outlives the test.
        let highest = unsafe { &*user.cast::<AtomicI32>() };
        highest.fetch_max(level, Ordering::SeqCst);
    }

    /// A line may be on its way when the callback is replaced by one that asks for less.
    #[test]
    fn a_callback_gets_no_line_of_a_level_it_did_not_ask_for() {
        static HIGHEST: AtomicI32 = AtomicI32::new(0);
        let user = std::ptr::from_ref(&HIGHEST).cast_mut().cast();
        set(Some(keep_highest), user, 2);
        // As it was for the one before.
        log::set_max_level(LevelFilter::Trace);
        for level in [Level::Trace, Level::Debug, Level::Info] {
            log::log!(level, "a line");
        }
        log::warn!("a line");
        assert_eq!(HIGHEST.load(Ordering::SeqCst), 2);
        set(None, std::ptr::null_mut(), 0);
    }
}
