//! The C ABI as C and C++ hosts see it: each program of `tests/c` is built as
//! C11 and as C++17, and run as it is, under the sanitizers and under valgrind.
#![cfg(target_os = "linux")]

mod native;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use native::{Language, build, leave_out, root, shared_library, told};

/// One module a program, one test a way to run it.
macro_rules! programs {
    ($($program:ident)*) => {
        const PROGRAMS: &[&str] = &[$(stringify!($program)),*];
        $(
            mod $program {
                #[test]
                fn as_c11() {
                    super::runs(stringify!($program), super::Language::C11);
                }

                #[test]
                fn as_cxx17() {
                    super::runs(stringify!($program), super::Language::Cxx17);
                }

                #[test]
                fn under_sanitizers() {
                    super::runs_under_sanitizers(stringify!($program));
                }

                #[test]
                fn under_valgrind() {
                    super::runs_under_valgrind(stringify!($program));
                }
            }
        )*
    };
}

programs! {
    arguments
    closing
    copies
    fork
    handles
    header
    loading
    log_callback
    processes
    resources
    signals
    thread_ends
    threads
    timers
    unload
    verbs
    wake_callback
    wake_fd
}

/// Ends a program when it did something wrong with memory, or lost some.
const SANITIZERS: &[&str] = &[
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
    "-fno-omit-frame-pointer",
];

/// The exit status of valgrind when it has something to tell.
const VALGRIND_TELLS: i32 = 99;

fn folder() -> PathBuf {
    root().join("tests/c")
}

/// A program's source: `NAME.c`, or all of the folder `NAME`.
fn sources(program: &str) -> Vec<PathBuf> {
    let file = folder().join(program).with_extension("c");
    if file.exists() {
        return vec![file];
    }
    let mut found: Vec<PathBuf> = list(&folder().join(program))
        .into_iter()
        .filter(|path| path.extension().is_some_and(|own| own == "c"))
        .collect();
    found.sort();
    found
}

fn list(folder: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.unwrap().path())
        .collect()
}

fn built(program: &str, language: Language, flags: &[&str], way: &str) -> PathBuf {
    let into = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join("c")
        .join(way)
        .join(program);
    if let Err(said) = build(language, &sources(program), flags, &into) {
        panic!("{program} does not compile:\n{said}");
    }
    into
}

/// Runs what `command` begins, in a fresh folder.
fn run(mut command: Command) -> Output {
    let fresh = tempfile::tempdir().unwrap();
    command
        .arg(fresh.path())
        .env("SESSION_AWARENESS_LIB", shared_library())
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

fn succeeds(command: Command) {
    let output = run(command);
    assert!(output.status.success(), "{}", told(&output));
}

fn runs(program: &str, language: Language) {
    let way = match language {
        Language::C11 => "c11",
        Language::Cxx17 => "cxx17",
    };
    succeeds(Command::new(built(program, language, &[], way)));
}

fn sanitized(program: &str) -> Command {
    let mut command = Command::new(built(program, Language::C11, SANITIZERS, "sanitized"));
    command
        .env("ASAN_OPTIONS", "detect_leaks=1")
        .env("CHECK_LEAKS", "1");
    command
}

fn runs_under_sanitizers(program: &str) {
    if has_sanitizers() {
        succeeds(sanitized(program));
    }
}

fn under_valgrind(program: &str) -> Command {
    let mut command = Command::new("valgrind");
    command
        // A "possible" loss is memory that only a pointer into its middle leads to, as
        // Rust's hash maps keep one; what is really lost is lost definitely.
        .args(["--quiet", "--leak-check=full", "--show-leak-kinds=definite"])
        .arg("--errors-for-leak-kinds=definite")
        .arg(format!("--error-exitcode={VALGRIND_TELLS}"))
        .arg("--exit-on-first-error=yes")
        // Reading which functions were inlined takes longer than most programs.
        .args(["--read-inline-info=no", "--trace-children=yes"])
        // How a child of fork ends.
        .arg("--trace-children-skip=*/true")
        // Who only looks whether something is done must not keep who does it waiting.
        .arg("--fair-sched=try")
        .arg(built(program, Language::C11, &[], "valgrind"))
        .env("CHECK_LEAKS", "1")
        .env("CHECK_SLOW", "1");
    command
}

fn runs_under_valgrind(program: &str) {
    if has_valgrind() {
        succeeds(under_valgrind(program));
    }
}

fn has_sanitizers() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let probe = Path::new(env!("CARGO_TARGET_TMPDIR")).join("c/sanitized/probe");
        // Any program will do: linking tells whether the runtimes are there.
        let linked = build(Language::C11, &sources("header"), SANITIZERS, &probe);
        if let Err(said) = &linked {
            leave_out(
                "the C programs under the sanitizers",
                said.lines().next().unwrap_or_default(),
            );
        }
        linked.is_ok()
    })
}

fn has_valgrind() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let asked = Command::new("valgrind").arg("--version").output();
        if let Err(error) = &asked {
            leave_out(
                "the C programs under valgrind",
                &format!("valgrind: {error}"),
            );
        }
        asked.is_ok()
    })
}

#[test]
fn the_sanitizers_find_a_leak() {
    if has_sanitizers() {
        let output = run(sanitized("must_fail/forgotten_reply"));
        let said = told(&output);
        assert!(!output.status.success(), "{said}");
        assert!(
            said.contains("LeakSanitizer: detected memory leaks"),
            "{said}"
        );
    }
}

#[test]
fn valgrind_finds_a_leak() {
    if has_valgrind() {
        let output = run(under_valgrind("must_fail/forgotten_reply"));
        let said = told(&output);
        assert_eq!(output.status.code(), Some(VALGRIND_TELLS), "{said}");
        assert!(said.contains("definitely lost"), "{said}");
    }
}

#[test]
fn every_program_is_run() {
    let there: BTreeSet<String> = list(&folder())
        .into_iter()
        .filter(|path| path.is_dir() || path.extension().is_some_and(|own| own == "c"))
        .map(|path| path.file_stem().unwrap().to_string_lossy().into_owned())
        .filter(|name| name != "must_fail")
        .collect();
    let run: BTreeSet<String> = PROGRAMS.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(there, run);
}

#[test]
fn every_function_of_the_header_is_called() {
    let header = std::fs::read_to_string(root().join("include/session_awareness.h")).unwrap();
    let programs: String = PROGRAMS
        .iter()
        .flat_map(|program| sources(program))
        .chain([folder().join("every_verb.h"), folder().join("check.h")])
        .map(|path| std::fs::read_to_string(path).unwrap())
        .collect();
    let used = words(&programs);
    let uncalled: Vec<&str> = header
        .lines()
        .filter(|line| !line.starts_with(" *") && !line.starts_with("typedef"))
        .flat_map(words)
        .filter(|word| header.contains(&format!("{word}(")) && !used.contains(word))
        .collect();
    assert!(uncalled.is_empty(), "{uncalled:?}");
}

/// The words of a text that begin with `aware_`.
fn words(text: &str) -> BTreeSet<&str> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .filter(|word| word.starts_with("aware_"))
        .collect()
}
