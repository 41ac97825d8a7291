//! The child's side: the shared library as a host loads it, and the shim.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::board::Phase;

type Open = unsafe extern "C" fn(*const c_char, *mut *mut c_void, *mut *mut c_char) -> i32;
type Close = unsafe extern "C" fn(*mut c_void) -> i32;
type Verb = unsafe extern "C" fn(*mut c_void, *const c_char, *mut *mut c_char) -> i32;
type Free = unsafe extern "C" fn(*mut c_char);

/// The library, loaded by name.
#[derive(Clone, Copy)]
pub struct Library(*mut c_void);

// SAFETY: a handle of the loader's, which any thread may ask.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

/// An open database.
#[derive(Clone, Copy)]
pub struct Handle {
    library: Library,
    aware: *mut c_void,
}

// SAFETY: any thread may call any verb of a handle.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Library {
    pub fn load(path: &Path) -> Library {
        let name = CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: a NUL-terminated path; the library's initialisers ask nothing of the caller.
        let loaded = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!loaded.is_null(), "{} cannot be loaded", path.display());
        Library(loaded)
    }

    fn function(self, name: &str) -> *mut c_void {
        let name = CString::new(name).unwrap();
        // SAFETY: the handle is open for good, the name NUL-terminated.
        let found = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        assert!(!found.is_null(), "the library has no {name:?}");
        found
    }

    fn answer(self, status: i32, reply: *mut c_char) -> Result<Value, Value> {
        // SAFETY: the library answered with a NUL-terminated string of its own, freed
        // by its own function, once, after the last look at it.
        let value = unsafe {
            let value: Value = serde_json::from_slice(CStr::from_ptr(reply).to_bytes()).unwrap();
            std::mem::transmute::<*mut c_void, Free>(self.function("aware_string_free"))(reply);
            value
        };
        if status == 0 { Ok(value) } else { Err(value) }
    }

    pub fn open(self, config: &Value) -> Result<Handle, Value> {
        let config = CString::new(config.to_string()).unwrap();
        let mut aware = std::ptr::null_mut();
        let mut reply = std::ptr::null_mut();
        // SAFETY: the header's signature of aware_open; both out pointers are ours.
        let status = unsafe {
            std::mem::transmute::<*mut c_void, Open>(self.function("aware_open"))(
                config.as_ptr(),
                &mut aware,
                &mut reply,
            )
        };
        self.answer(status, reply)?;
        Ok(Handle {
            library: self,
            aware,
        })
    }
}

impl Handle {
    pub fn call(self, verb: &str, request: Value) -> Result<Value, Value> {
        let request = CString::new(request.to_string()).unwrap();
        let function = self.library.function(&format!("aware_{verb}"));
        let mut reply = std::ptr::null_mut();
        // SAFETY: every verb has this one signature; the out pointer is ours.
        let status = unsafe {
            std::mem::transmute::<*mut c_void, Verb>(function)(
                self.aware,
                request.as_ptr(),
                &mut reply,
            )
        };
        self.library.answer(status, reply)
    }

    pub fn close(self) {
        let function = self.library.function("aware_close");
        // SAFETY: the header's signature of aware_close.
        let status = unsafe { std::mem::transmute::<*mut c_void, Close>(function)(self.aware) };
        assert_eq!(status, 0);
    }
}

/// The shim's function of this name, which is preloaded.
fn shim(name: &CStr) -> *mut c_void {
    // SAFETY: asks the loader for a symbol of the whole program.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    assert!(!found.is_null(), "the shim is not preloaded");
    found
}

/// Writes it down where a kill cannot take it back.
pub fn say(what: &Value) {
    let text = CString::new(what.to_string()).unwrap();
    // SAFETY: the signature in shim.c; the text is NUL-terminated.
    unsafe {
        std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*const c_char)>(shim(
            c"torture_say",
        ))(text.as_ptr());
    }
}

/// Runs `work` with this thread's phase on the board.
pub fn during<T>(phase: Phase, work: impl FnOnce() -> T) -> T {
    // SAFETY: the signature in shim.c.
    let show = unsafe {
        std::mem::transmute::<*mut c_void, unsafe extern "C" fn(u32)>(shim(c"torture_phase"))
    };
    // SAFETY: any thread may say its phase.
    unsafe { show(phase as u32) };
    let done = work();
    // SAFETY: as above.
    unsafe { show(Phase::None as u32) };
    done
}

/// What can be made to fail. The numbers are the shim's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[repr(i32)]
pub enum Fault {
    None = 0,
    SyncFails,
    WriteFails,
    WriteShort,
    DiskFull,
    TruncateFails,
    OpenFails,
    DatabaseSyncFails,
}

/// After `skip` operations of its kind the next `count` fail.
pub fn strike(fault: Fault, skip: i32, count: i32) {
    // SAFETY: the signature in shim.c.
    unsafe {
        std::mem::transmute::<*mut c_void, unsafe extern "C" fn(c_int, c_int, c_int)>(shim(
            c"torture_fault",
        ))(fault as c_int, skip, count);
    }
}

/// How many operations failed since the last [`strike`].
pub fn struck() -> i32 {
    // SAFETY: the signature in shim.c.
    unsafe {
        std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> c_int>(shim(
            c"torture_faults_met",
        ))()
    }
}
