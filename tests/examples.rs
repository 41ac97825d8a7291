//! The examples tell one story, and tell it to the byte alike in every language.
#![cfg(target_os = "linux")]

mod native;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use native::{Language, build, leave_out, root, shared_library, told};

/// What a gateway prints on a fresh database, in a fresh folder.
fn story(mut gateway: Command) -> String {
    let fresh = tempfile::tempdir().unwrap();
    let output = gateway
        .arg(fresh.path().join("gateway.db"))
        .env("SESSION_AWARENESS_LIB", shared_library())
        .output()
        .unwrap_or_else(|error| panic!("{gateway:?}: {error}"));
    assert!(output.status.success(), "{gateway:?}: {}", told(&output));
    String::from_utf8(output.stdout).unwrap()
}

fn in_rust() -> Command {
    let mut command = Command::new(env!("CARGO"));
    command.args(["run", "--quiet", "--example", "gateway"]);
    // The library as it was built for this test, not once more.
    if cfg!(feature = "command") {
        command.args(["--features", "command"]);
    }
    if !cfg!(debug_assertions) {
        command.arg("--release");
    }
    command.arg("--").current_dir(root());
    command
}

fn in_c() -> Command {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    Command::new(BUILT.get_or_init(|| {
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("c/gateway");
        let source = root().join("examples/gateway.c");
        if let Err(said) = build(Language::C11, &[source], &[], &program) {
            panic!("gateway.c does not compile:\n{said}");
        }
        program
    }))
}

fn in_python() -> Option<Command> {
    if let Err(error) = Command::new("python3").arg("--version").output() {
        leave_out("gateway.py", &format!("python3: {error}"));
        return None;
    }
    let mut command = Command::new("python3");
    command.arg(root().join("examples/gateway.py"));
    Some(command)
}

#[test]
fn the_gateways_tell_the_same_story() {
    let story_in_rust = story(in_rust());
    assert!(
        story_in_rust.ends_with("\nAll of it happened as told.\n"),
        "{story_in_rust}"
    );
    is_told_alike("gateway.c", &story(in_c()), &story_in_rust);
    if let Some(gateway) = in_python() {
        is_told_alike("gateway.py", &story(gateway), &story_in_rust);
    }
}

/// Fails with the first line that is another.
fn is_told_alike(name: &str, told: &str, wanted: &str) {
    for (at, (told, wanted)) in told.lines().zip(wanted.lines()).enumerate() {
        assert_eq!(told, wanted, "{name}, line {}", at + 1);
    }
    assert_eq!(told, wanted, "{name}");
}

#[test]
fn a_gateway_refuses_a_database_that_is_there() {
    let there = tempfile::NamedTempFile::new().unwrap();
    for mut gateway in [in_c(), in_rust()] {
        let output = gateway.arg(there.path()).output().unwrap();
        assert_eq!(
            output.status.code(),
            Some(1),
            "{gateway:?}: {}",
            told(&output)
        );
        assert!(told(&output).contains("there already"), "{}", told(&output));
    }
}
