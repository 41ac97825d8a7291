use std::ffi::{CStr, CString, c_char};
use std::ptr::null_mut;

use super::guard::answer;
use super::*;
use crate::contract::Nothing;

/// Takes a reply and frees it.
fn taken(reply: *mut c_char) -> String {
    assert!(!reply.is_null());
    // SAFETY: a reply of this library, freed once.
    unsafe {
        let text = CStr::from_ptr(reply).to_str().unwrap().to_owned();
        aware_string_free(reply);
        text
    }
}

fn open(folder: &tempfile::TempDir) -> *mut aware_t {
    let config = serde_json::json!({"database": folder.path().join("a.db")}).to_string();
    let config = CString::new(config).unwrap();
    let mut handle = null_mut();
    // SAFETY: NUL-terminated, with room for the handle.
    let status = unsafe { aware_open(config.as_ptr(), &mut handle, null_mut()) };
    assert_eq!(status, AWARE_OK);
    handle
}

#[test]
fn a_panic_becomes_internal_and_its_text_stays_inside() {
    let mut reply = null_mut();
    // SAFETY: room for the reply.
    let status = unsafe { answer::<Nothing>(&mut reply, || panic!("canary of a transcript")) };
    let reply = taken(reply);
    assert_eq!(status, AWARE_INTERNAL);
    assert!(
        reply.contains(r#""code":"internal""#) && reply.contains("tests.rs"),
        "{reply}"
    );
    assert!(!reply.contains("canary"), "{reply}");
}

#[test]
fn the_payload_of_a_panic_goes_with_it() {
    let kept = std::sync::Arc::new(());
    // SAFETY: no reply is wanted.
    let status = unsafe { answer::<Nothing>(null_mut(), || std::panic::panic_any(kept.clone())) };
    assert_eq!(status, AWARE_INTERNAL);
    assert_eq!(std::sync::Arc::strong_count(&kept), 1);
}

#[test]
fn a_payload_that_panics_when_dropped_does_not_leave_the_guard() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("again");
        }
    }
    let mut reply = null_mut();
    // SAFETY: room for the reply.
    let status = unsafe { answer::<Nothing>(&mut reply, || std::panic::panic_any(Bomb)) };
    assert_eq!(status, AWARE_INTERNAL);
    taken(reply);
}

#[test]
fn the_numbers_of_the_header_are_those_of_the_codes() {
    use crate::Code;
    for (number, code) in [
        (AWARE_INVALID_ARGUMENT, Code::InvalidArgument),
        (AWARE_NOT_FOUND, Code::NotFound),
        (AWARE_STORAGE, Code::Storage),
        (AWARE_BUSY, Code::Busy),
        (AWARE_CLOSED, Code::Closed),
        (AWARE_UNSUPPORTED, Code::Unsupported),
        (AWARE_INTERNAL, Code::Internal),
    ] {
        assert_eq!(number, code as i32);
    }
}

#[test]
fn a_handle_is_usable_after_each_bad_request_and_closed_for_good_after_close() {
    let folder = tempfile::tempdir().unwrap();
    let handle = open(&folder);
    let call = |request: &[u8]| {
        let request = CString::new(request).unwrap();
        let mut reply = null_mut();
        // SAFETY: NUL-terminated, with room for the reply.
        let status = unsafe { aware_record(handle, request.as_ptr(), &mut reply) };
        (status, taken(reply))
    };
    for bad in [
        &b"\xff{}"[..],
        b"{",
        b"[]",
        br#"{"sessionKey":"a"}"#,
        br#"{"sessionKey":"\ud800"}"#,
    ] {
        let (status, reply) = call(bad);
        assert_eq!(status, AWARE_INVALID_ARGUMENT, "{reply}");
    }
    let deep = [vec![b'['; 100_000], vec![b']'; 100_000]].concat();
    let deep = [br#"{"payload":"#.as_slice(), &deep, b"}"].concat();
    assert_eq!(call(&deep).0, AWARE_INVALID_ARGUMENT);
    let good = br#"{"sessionKey":"a","kind":"compacted","actorType":"system"}"#;
    assert_eq!(call(good).0, AWARE_OK);
    assert_eq!(aware_close(handle), AWARE_OK);
    assert_eq!(aware_close(handle), AWARE_CLOSED);
    let (status, reply) = call(good);
    assert_eq!(status, AWARE_CLOSED);
    assert!(reply.contains(r#""code":"closed""#), "{reply}");
    assert_eq!(aware_wake_fd(handle), -1);
}
