//! Link flags of the shared library. Nothing is generated here: the header is
//! committed and a test compares it with the source.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let os = std::env::var("CARGO_CFG_TARGET_OS").unwrap_or_default();
    if os == "linux" {
        // Library threads and thread-locals must outlive a host's dlclose.
        println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
        // The number is that of the ABI: programs linked with another one do not start.
        println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libsession_awareness.so.1");
    }
}
