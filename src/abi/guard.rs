//! Between the host and the library: requests in, replies out, panics kept in.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use once_cell::sync::OnceCell;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::exports::{AWARE_OK, aware_t};
use super::{logging, registry};
use crate::contract::{self, Code, Error, Result};
use crate::engine::Awareness;
use crate::sys;

/// The longest request, in bytes.
pub(super) const REQUEST_BYTES: usize = 16 << 20;
/// The longest request of `feed`, in bytes.
pub(super) const FEED_BYTES: usize = 64 << 20;

/// The longest text that is kept room for in each thread, in bytes.
const KEPT_BYTES: usize = 64 << 10;

thread_local! {
    /// Where this thread writes its replies.
    static TEXT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    /// How many exports this thread is inside of.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    /// Where this thread last panicked.
    static PLACE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// The error envelope of a reply.
#[derive(Serialize)]
struct Failed<'a> {
    error: &'a Error,
}

/// Carries out a verb: a request from `request_json`, a reply into `reply_json`.
///
/// # Safety
/// `request_json` is NULL or a NUL-terminated string, `reply_json` NULL or
/// room for a pointer.
pub(super) unsafe fn verb<Q: DeserializeOwned, A: Serialize>(
    handle: *mut aware_t,
    request_json: *const c_char,
    reply_json: *mut *mut c_char,
    carry_out: impl Fn(&Awareness, Q) -> Result<A>,
) -> i32 {
    // SAFETY: as promised by the caller.
    unsafe { verb_of(handle, request_json, reply_json, REQUEST_BYTES, carry_out) }
}

/// As [`verb`], for a request of up to `most` bytes.
///
/// # Safety
/// As for [`verb`].
pub(super) unsafe fn verb_of<Q: DeserializeOwned, A: Serialize>(
    handle: *mut aware_t,
    request_json: *const c_char,
    reply_json: *mut *mut c_char,
    most: usize,
    carry_out: impl Fn(&Awareness, Q) -> Result<A>,
) -> i32 {
    // SAFETY: as promised by the caller.
    unsafe {
        answer(reply_json, || {
            let aware = registry::get(handle)?;
            let request = contract::parse(read(request_json, "request", most)?)?;
            carry_out(&aware, request)
        })
    }
}

/// As [`verb`], for a reply that is written as JSON text at once.
///
/// # Safety
/// As for [`verb`].
pub(super) unsafe fn verb_to_text<Q: DeserializeOwned>(
    handle: *mut aware_t,
    request_json: *const c_char,
    reply_json: *mut *mut c_char,
    carry_out: impl Fn(&Awareness, Q, &mut Vec<u8>) -> Result<()>,
) -> i32 {
    // SAFETY: as promised by the caller.
    unsafe {
        answer_by(reply_json, &mut |out| {
            let aware = registry::get(handle)?;
            let request = contract::parse(read(request_json, "request", REQUEST_BYTES)?)?;
            carry_out(&aware, request, out)
        })
    }
}

/// Writes what `call` answers into `reply`; the status to return.
///
/// # Safety
/// `reply` is NULL or room for a pointer.
pub(super) unsafe fn answer<A: Serialize>(
    reply: *mut *mut c_char,
    mut call: impl FnMut() -> Result<A>,
) -> i32 {
    // SAFETY: as promised by the caller.
    unsafe {
        answer_by(reply, &mut |out| {
            let value = call()?;
            serde_json::to_writer(out, &value)
                .map_err(|_| Error::new(Code::Internal, "the reply cannot be written as JSON"))
        })
    }
}

/// Hands what `write` writes over as `reply`, or its error; the status to return.
///
/// # Safety
/// `reply` is NULL or room for a pointer.
unsafe fn answer_by(
    reply: *mut *mut c_char,
    write: &mut dyn FnMut(&mut Vec<u8>) -> Result<()>,
) -> i32 {
    // Kept between calls, so that a reply is one allocation of its own size.
    // What a thread that is ending keeps, nobody frees.
    let keeps = !sys::thread_is_ending();
    let kept = keeps.then(|| TEXT.try_with(RefCell::take).ok()).flatten();
    let mut json = kept.unwrap_or_default();
    json.clear();
    let outcome = keep_in(|| write(&mut json));
    let status = status_of(&outcome);
    if !reply.is_null() {
        if let Err(error) = &outcome {
            json.clear();
            // An object of plain strings always serialises.
            let _ = serde_json::to_writer(&mut json, &Failed { error });
        }
        // JSON escapes NUL, so there is none in the text.
        let text = match memchr::memchr(0, &json) {
            None => {
                let mut text = Vec::with_capacity(json.len() + 1);
                text.extend_from_slice(&json);
                // SAFETY: there is no NUL in it.
                unsafe { CString::from_vec_unchecked(text) }
            }
            Some(_) => CString::default(),
        };
        // SAFETY: not NULL, so room for a pointer, as promised by the caller.
        unsafe { reply.write(text.into_raw()) };
    }
    if keeps && json.capacity() <= KEPT_BYTES {
        let _ = TEXT.try_with(|kept| kept.replace(json));
    }
    status
}

/// The number of an outcome.
pub(super) fn status_of<T>(outcome: &Result<T>) -> i32 {
    match outcome {
        Ok(_) => AWARE_OK,
        Err(error) => error.code as i32,
    }
}

/// Runs `call` so that no panic leaves it and no cancellation ends it, and refuses it
/// inside a log callback.
pub(super) fn keep_in<T>(call: impl FnOnce() -> Result<T>) -> Result<T> {
    if logging::inside_callback() {
        return Err(Error::new(
            Code::Busy,
            "a log callback may call nothing of the library",
        ));
    }
    install_hook();
    let guarded = || {
        DEPTH.set(DEPTH.get() + 1);
        let outcome = catch_unwind(AssertUnwindSafe(call));
        let outcome = outcome.unwrap_or_else(|panic| Err(fault(panic)));
        DEPTH.set(DEPTH.get() - 1);
        outcome
    };
    // A destructor of the host's own thread-specific values may call too, when
    // those of this library's are gone.
    if sys::thread_is_ending() {
        let moved = sys::without_cancellation(|| sys::on_another_thread(guarded));
        return moved.unwrap_or_else(|problem| {
            Err(Error::new(
                Code::Internal,
                format!("a thread cannot be started: {problem}"),
            ))
        });
    }
    sys::without_cancellation(guarded)
}

fn fault(panic: Box<dyn Any + Send>) -> Error {
    let place = || PLACE.try_with(RefCell::take).ok().flatten();
    // The panic's own text may quote what it was working on; the place does not.
    let at = place().unwrap_or_else(|| "an unknown place".to_owned());
    // Dropping the payload may panic in turn, and so may dropping that one's.
    let mut left = Some(panic);
    for _ in 0..8 {
        let Some(payload) = left.take() else { break };
        left = catch_unwind(AssertUnwindSafe(|| drop(payload))).err();
    }
    std::mem::forget(left);
    place();
    Error::new(
        Code::Internal,
        format!("a fault of the library at {at}; the handle stays usable"),
    )
}

/// Keeps the panics of this library off the host's standard error.
fn install_hook() {
    static INSTALLED: OnceCell<()> = OnceCell::new();
    INSTALLED.get_or_init(|| {
        let hosts = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            // A panic in here would end the process: nothing is asked that may be gone.
            let is_named = || {
                let name = std::thread::current().name().map(str::to_owned);
                name.is_some_and(|name| name.starts_with("aware-"))
            };
            let own = DEPTH.get() > 0 || (!sys::thread_is_ending() && is_named());
            if !own {
                return hosts(info);
            }
            let place = info
                .location()
                .map_or_else(|| "an unknown place".to_owned(), ToString::to_string);
            log::error!(target: "abi", "panic at {place}");
            let _ = PLACE.try_with(|last| last.replace(Some(place)));
        }));
    });
}

/// Reads a string of the host; an error names `what`.
///
/// # Safety
/// `text` is NULL or a NUL-terminated string that stays as it is for `'a`.
pub(super) unsafe fn read<'a>(text: *const c_char, what: &str, most: usize) -> Result<&'a str> {
    let invalid = |message: String| Err(Error::new(Code::InvalidArgument, message));
    if text.is_null() {
        return invalid(format!(
            "the {what} is NULL; pass a JSON object, {{}} at least"
        ));
    }
    // SAFETY: not NULL, so NUL-terminated, as promised by the caller.
    let bytes = unsafe { CStr::from_ptr(text) }.to_bytes();
    if bytes.len() > most {
        return invalid(format!("the {what} is longer than {} MiB", most >> 20));
    }
    std::str::from_utf8(bytes).or_else(|_| invalid(format!("the {what} is not UTF-8")))
}
