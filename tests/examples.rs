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

// ---- the C of the documents ----------------------------------------------------

/// The blocks of C code of a document.
fn blocks_of_c(document: &str) -> Vec<String> {
    let text = std::fs::read_to_string(root().join(document)).unwrap();
    let blocks = text.split("```c\n").skip(1);
    blocks
        .map(|rest| rest.split("\n```").next().unwrap().to_owned())
        .collect()
}

/// Builds a program as a document has it and runs it in a fresh folder.
fn run_c(name: &str, program: &str, flags: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("program.c");
    std::fs::write(&source, program).unwrap();
    let binary = folder.path().join("program");
    if let Err(said) = build(Language::C11, &[source], flags, &binary) {
        panic!("{name} does not compile:\n{said}\n{program}");
    }
    let output = Command::new(&binary)
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{name}: {}", told(&output));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_c_of_the_readme_runs() {
    let blocks = blocks_of_c("README.md");
    let (includes, body) = blocks[0].split_once("\n\n").unwrap();
    let program =
        format!("#include <stdio.h>\n{includes}\n\nint main(void)\n{{\n{body}\nreturn 0;\n}}\n");
    let said = run_c("the C of README.md", &program, &[]);
    assert_eq!(said, "{\"notices\":[],\"more\":false}\n");
}

/// A host around the lines of the guide: it watches, is written to, and ends its
/// loop with the first wake.
const UV_HOST: &str = r#"
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <uv.h>
#include <session_awareness.h>

static aware_t *handle;
static uv_poll_t waiting;
static int turns;

static int start_turns(const char *reply)
{
    int some = strstr(reply, "\"sessionKey\":\"agent:main:main\"") != NULL;
    turns += some;
    if (some) uv_poll_stop(&waiting);
    return some;
}

FUNCTION

int main(void)
{
    uv_loop_t *loop = uv_default_loop();
    if (aware_open("{\"database\":\"a.db\"}", &handle, NULL) != AWARE_OK) return 2;
    STATEMENTS
    if (aware_watch(handle, "{\"watcherSessionKey\":\"agent:main:main\",\"targetSessionKey\":\"agent:main:c\"}", NULL)) return 3;
    if (aware_record(handle, "{\"sessionKey\":\"agent:main:c\",\"kind\":\"human_direct_message\",\"actorType\":\"human\"}", NULL)) return 4;
    uv_run(loop, UV_RUN_DEFAULT);
    printf("%d turn\n", turns);
    return aware_close(handle);
}
"#;

#[test]
fn the_wake_loop_of_the_guide_runs_in_libuv() {
    let flags = match Command::new("pkg-config")
        .args(["--cflags", "--libs", "libuv"])
        .output()
    {
        Ok(output) if output.status.success() => String::from_utf8(output.stdout).unwrap(),
        Ok(_) => return leave_out("the wake loop in libuv", "there is no libuv"),
        Err(error) => return leave_out("the wake loop in libuv", &format!("pkg-config: {error}")),
    };
    let blocks = blocks_of_c("docs/hosts.md");
    let block = blocks
        .iter()
        .find(|block| block.contains("uv_poll_start"))
        .unwrap();
    let (function, statements) = block.split_once("\n}\n").unwrap();
    let program = UV_HOST
        .replace("FUNCTION", &format!("{function}\n}}"))
        .replace("STATEMENTS", &statements.replace("&poll", "&waiting"));
    // It stands before the program that needs it.
    let flags: Vec<&str> = ["-Wl,--no-as-needed"]
        .into_iter()
        .chain(flags.split_whitespace())
        .collect();
    let said = run_c("the wake loop of docs/hosts.md", &program, &flags);
    assert_eq!(said, "1 turn\n");
}
