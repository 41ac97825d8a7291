//! The shared library as a host in C has it: loaded by its path.

use std::ffi::{CStr, CString, c_char, c_void};
use std::path::Path;
use std::ptr::null_mut;
use std::sync::OnceLock;

use serde_json::{Value, json};

type Verb = unsafe extern "C" fn(*mut c_void, *const c_char, *mut *mut c_char) -> i32;
type Open = unsafe extern "C" fn(*const c_char, *mut *mut c_void, *mut *mut c_char) -> i32;

/// The path of the library under measure.
pub fn path() -> String {
    std::env::var("SESSION_AWARENESS_LIB").unwrap_or_else(|_| {
        let built = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/target/release/libsession_awareness.so"
        );
        built.to_owned()
    })
}

fn symbol(name: &str) -> *mut c_void {
    static LIBRARY: OnceLock<usize> = OnceLock::new();
    let library = *LIBRARY.get_or_init(|| {
        let path = CString::new(path()).unwrap();
        // SAFETY: a NUL-terminated path; the library is never closed.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        assert!(!library.is_null(), "{path:?} cannot be loaded: make build");
        library as usize
    });
    let name = CString::new(name).unwrap();
    // SAFETY: an open library and a NUL-terminated name.
    let found = unsafe { libc::dlsym(library as *mut c_void, name.as_ptr()) };
    assert!(!found.is_null(), "{name:?} is not in the library");
    found
}

/// A verb with its request, ready to be called.
pub struct Call {
    handle: usize,
    verb: Verb,
    free: unsafe extern "C" fn(*mut c_char),
    request: CString,
}

impl Call {
    /// Calls it and frees the reply.
    pub fn make(&self) {
        let reply = self.reply();
        // SAFETY: a reply, freed once.
        unsafe { (self.free)(reply) };
    }

    pub fn answer(&self) -> Value {
        let reply = self.reply();
        // SAFETY: a reply is NUL-terminated, and freed once.
        unsafe {
            let value = serde_json::from_slice(CStr::from_ptr(reply).to_bytes()).unwrap();
            (self.free)(reply);
            value
        }
    }

    fn reply(&self) -> *mut c_char {
        let mut reply = null_mut();
        // SAFETY: the request is NUL-terminated, and there is room for the reply.
        let status = unsafe {
            (self.verb)(
                self.handle as *mut c_void,
                self.request.as_ptr(),
                &mut reply,
            )
        };
        // SAFETY: a reply is NUL-terminated.
        let said = || unsafe { CStr::from_ptr(reply) };
        assert_eq!(status, 0, "{:?} {:?}", self.request, said());
        reply
    }
}

/// An open handle; dropping it closes it.
pub struct Handle(usize);

impl Handle {
    pub fn open(database: &Path) -> Handle {
        Handle::with(json!({"database": database, "monitor": {"enabled": false}}))
    }

    pub fn with(config: Value) -> Handle {
        let config = CString::new(config.to_string()).unwrap();
        Handle::open_raw(&config)
    }

    pub fn open_raw(config: &CStr) -> Handle {
        // SAFETY: aware_open of the header.
        let open: Open = unsafe { std::mem::transmute(symbol("aware_open")) };
        let (mut handle, mut reply) = (null_mut(), null_mut());
        // SAFETY: NUL-terminated, with room for the handle and the reply.
        let status = unsafe { open(config.as_ptr(), &mut handle, &mut reply) };
        // SAFETY: a reply is NUL-terminated.
        let said = || unsafe { CStr::from_ptr(reply) };
        assert_eq!(status, 0, "{:?}", said());
        Handle(handle as usize)
    }

    pub fn call(&self, verb: &str, request: &Value) -> Call {
        Call {
            handle: self.0,
            // SAFETY: every verb of the header has this shape.
            verb: unsafe { std::mem::transmute::<*mut c_void, Verb>(symbol(verb)) },
            // SAFETY: aware_string_free of the header.
            free: unsafe {
                std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_char)>(symbol(
                    "aware_string_free",
                ))
            },
            request: CString::new(request.to_string()).unwrap(),
        }
    }

    pub fn ask(&self, verb: &str, request: Value) -> Value {
        self.call(verb, &request).answer()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: aware_close of the header.
        unsafe {
            let close: unsafe extern "C" fn(*mut c_void) -> i32 =
                std::mem::transmute(symbol("aware_close"));
            assert_eq!(close(self.0 as *mut c_void), 0);
        }
    }
}
