//! For tests that build C programs against the shared library and run them.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Output;

/// The folder of the crate.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The shared library that cargo built beside this test.
pub fn shared_library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let library = test.with_file_name("libsession_awareness.so");
    assert!(library.exists(), "{} is not built", library.display());
    // What is linked with it asks for it by this name.
    let by_soname = library.with_extension("so.1");
    match std::os::unix::fs::symlink("libsession_awareness.so", &by_soname) {
        Err(problem) if problem.kind() != std::io::ErrorKind::AlreadyExists => {
            panic!("{}: {problem}", by_soname.display())
        }
        _ => library,
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Language {
    C11,
    Cxx17,
}

/// Compiles and links `sources` into `program`; what the compiler says when it fails.
pub fn build(
    language: Language,
    sources: &[PathBuf],
    flags: &[&str],
    program: &Path,
) -> Result<(), String> {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let compiler = cc::Build::new()
        .cpp(language == Language::Cxx17)
        .target(&target)
        .host(&target)
        .opt_level(0)
        .debug(true)
        .cargo_metadata(false)
        .get_compiler();
    let library = shared_library();
    let beside = library.parent().unwrap();
    std::fs::create_dir_all(program.parent().unwrap()).unwrap();
    let mut command = compiler.to_command();
    command.args(match language {
        Language::C11 => ["-std=c11", "-x", "c"],
        Language::Cxx17 => ["-std=c++17", "-x", "c++"],
    });
    command
        .args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-pthread"])
        .args(flags)
        .arg("-I")
        .arg(root().join("include"))
        .args(sources)
        .arg("-o")
        .arg(program)
        .arg("-L")
        .arg(beside)
        .arg(format!("-Wl,-rpath,{}", beside.display()))
        // Or LD_LIBRARY_PATH, which cargo sets, would lead to an older build.
        .arg("-Wl,--disable-new-dtags")
        // A program that loads the library by name is not linked with it.
        .args(["-Wl,--as-needed", "-lsession_awareness", "-ldl"]);
    let output = command
        .output()
        .map_err(|error| format!("{}: {error}", compiler.path().display()))?;
    if output.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// What a command printed, for a message when it failed.
pub fn told(output: &Output) -> String {
    format!(
        "{}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// Says that a check was left out for want of a tool; where nothing may be
/// left out, with `CI=true`, it fails instead.
pub fn leave_out(check: &str, why: &str) {
    let said = format!("left out: {check}: {why}");
    assert!(std::env::var("CI").as_deref() != Ok("true"), "{said}");
    // Past the test runner, which keeps what a passing test prints to itself.
    let _ = writeln!(std::io::stderr(), "{said}");
}
