//! Link flags of the shared library, and whether it is built for
//! ThreadSanitizer. Nothing is generated here: the header is
//! committed and a test compares it with the source.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-check-cfg=cfg(tsan)");
    if std::env::var("CARGO_CFG_SANITIZE")
        .is_ok_and(|list| list.split(',').any(|one| one == "thread"))
    {
        println!("cargo:rustc-cfg=tsan");
    }
    let os = std::env::var("CARGO_CFG_TARGET_OS").unwrap_or_default();
    if os == "linux" {
        // Library threads and thread-locals must outlive a host's dlclose.
        println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
        // The number is that of the ABI: programs linked with another one do not start.
        println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libsession_awareness.so.1");
    }
}
