//! What is held to hold for any input: the bodies of the fuzz targets in `fuzz/`,
//! each a function of bytes that panics when something does not.
//!
//! `make test` runs them over the committed inputs and over inputs made anew,
//! `make fuzz` with a coverage-guided fuzzer. The verbs' target is in
//! `fuzz/verbs.rs`, since it calls the C ABI.

use crate::key::{Session, Watcher, agent_of, is_subagent};
use crate::upstream::fuzzing;
use crate::watch::{cursor, notice};

/// The body of a target.
pub type Target = fn(&[u8]);

/// The name and the body of each target.
pub const TARGETS: [(&str, Target); 8] = [
    ("claude", fuzzing::claude),
    ("codex", fuzzing::codex),
    ("pi", fuzzing::pi),
    ("opencode", fuzzing::opencode),
    ("opencode_file", fuzzing::opencode_file),
    ("tail", fuzzing::tail),
    ("cursor", cursor_machine),
    ("key", key),
];

/// Runs the target of this name; panics when there is none.
pub fn run(target: &str, data: &[u8]) {
    let named = TARGETS.into_iter().find(|(name, _)| *name == target);
    named.expect("a target of this name").1(data);
}

/// The cursor machine keeps its invariants through any sequence of inputs.
fn cursor_machine(data: &[u8]) {
    let moves = data.iter().map(|byte| {
        let back = u64::from(byte >> 5 & 3);
        (byte & 7, byte & 8 != 0, byte & 16 != 0, back)
    });
    cursor::invariants::hold(moves);
}

/// A key is taken exactly when the grammar has it, and no notice about it is more
/// than one line or ends its quotes early. An agent id may stand before the key, with
/// a line feed between them.
fn key(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let (agent, key) = match text.split_once('\n') {
        Some((agent, key)) => (Some(agent), key),
        None => (None, text),
    };
    let own = grammar(key);
    let read = Watcher::read(key, "f");
    match &own {
        Err(()) => assert!(read.is_err(), "{key:?}"),
        Ok(own) => {
            assert_eq!(agent_of(key), own.as_deref(), "{key:?}");
            let qualified = matches!(read, Ok(Watcher::Qualified(same)) if same == key);
            assert_eq!(qualified, own.is_some(), "{key:?}");
            let sub = own.as_ref().map(|own| format!("agent:{own}:subagent:"));
            assert_eq!(
                is_subagent(key),
                sub.is_some_and(|sub| key.starts_with(&sub))
            );
        }
    }
    let wanted = match (own, agent) {
        (Err(()), _) => None,
        (Ok(_), Some(given)) if !is_agent(given) => None,
        (Ok(Some(own)), given) => given.is_none_or(|given| given == own).then_some(own),
        (Ok(None), given) => Some(given.unwrap_or("main").to_owned()),
    };
    let session = Session::of(key, agent);
    assert_eq!(
        session.as_ref().ok().map(|session| &session.agent),
        wanted.as_ref(),
        "{agent:?} {key:?}"
    );
    let Ok(session) = session else { return };
    assert_eq!(session.key, key);
    let text = notice::text(&session, 7);
    let ends = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}');
    assert!(!text.contains(ends), "{text:?}");
    let rest = text
        .strip_prefix("Session ")
        .expect("a notice's first word");
    let mut values = serde_json::Deserializer::from_str(rest).into_iter::<String>();
    assert_eq!(values.next().and_then(Result::ok).as_deref(), Some(key));
    let after = &rest[values.byte_offset()..];
    assert!(after.starts_with(
        " changed (other actor). Reconcile before acting: session_status sessionKey \""
    ));
    assert!(after.ends_with(" changesSince 7."));
}

/// The grammar of keys, written another way: the agent of a qualified one, none of a
/// bare one, an error for what is no key.
fn grammar(key: &str) -> Result<Option<String>, ()> {
    let controls = |c: char| matches!(u32::from(c), 0..=0x1f | 0x7f..=0x9f);
    if !(1..=512).contains(&key.len()) || key.contains(controls) {
        return Err(());
    }
    let mut parts = key.split(':');
    if parts.next() != Some("agent") || !key.contains(':') {
        return Ok(None);
    }
    let agent = parts.next().unwrap_or("");
    let rest: Vec<&str> = parts.collect();
    let sound = is_agent(agent) && !rest.is_empty() && !rest.contains(&"");
    sound.then(|| Some(agent.to_owned())).ok_or(())
}

fn is_agent(id: &str) -> bool {
    let first = |c: char| matches!(c, 'A'..='Z' | 'a'..='z' | '0'..='9');
    let other = |c: char| first(c) || c == '_' || c == '-';
    id.starts_with(first) && id.len() <= 64 && id.chars().all(other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::Catalog;
    use proptest::prelude::*;
    use proptest::test_runner::{TestError, TestRunner};
    use std::fs;
    use std::path::{Path, PathBuf};

    /// The committed inputs of a target.
    fn corpus(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
        let mut inputs: Vec<_> = fs::read_dir(folder.join(target))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .map(|path| (path.clone(), fs::read(path).unwrap()))
            .collect();
        inputs.sort();
        inputs
    }

    #[test]
    fn every_target_stands_its_committed_inputs() {
        for (target, body) in TARGETS {
            let inputs = corpus(target);
            assert!(inputs.len() >= 3, "{target} has inputs");
            for (path, input) in inputs {
                let name = path.file_name().unwrap().to_string_lossy().into_owned();
                // Said before, since what fails may not come back.
                println!("{target}/{name}");
                body(&input);
            }
        }
    }

    /// Inputs made of the committed ones: cut, joined and changed.
    fn made(target: &'static str) -> impl Strategy<Value = Vec<u8>> {
        let inputs: Vec<Vec<u8>> = corpus(target).into_iter().map(|(_, bytes)| bytes).collect();
        let change = (any::<prop::sample::Index>(), any::<u8>(), 0..5_u8);
        let piece = (
            prop::sample::select(inputs),
            any::<prop::sample::Index>(),
            any::<prop::sample::Index>(),
        )
            .prop_map(|(input, one, other)| {
                let (one, other) = (one.index(input.len() + 1), other.index(input.len() + 1));
                input[one.min(other)..one.max(other)].to_vec()
            });
        (
            prop::collection::vec(piece, 1..4),
            prop::collection::vec(change, 0..6),
        )
            .prop_map(|(pieces, changes)| {
                let mut bytes = pieces.concat();
                for (at, byte, how) in changes {
                    if bytes.is_empty() {
                        break;
                    }
                    let at = at.index(bytes.len());
                    match how {
                        0 => bytes[at] = byte,
                        1 => bytes.insert(at, byte),
                        2 => drop(bytes.remove(at)),
                        3 => bytes[at] ^= 1 << (byte & 7),
                        _ => bytes[at] = b"\n\"\\{}[],:0"[usize::from(byte) % 10],
                    }
                }
                bytes
            })
    }

    /// Runs a target on so many inputs made of its committed ones.
    fn try_made(target: &'static str, cases: u32) {
        let body = TARGETS.into_iter().find(|(name, _)| *name == target);
        let body = body.unwrap().1;
        let mut runner = TestRunner::new(ProptestConfig {
            // Found inputs become files of the corpus, not seeds of this engine.
            failure_persistence: None,
            ..ProptestConfig::with_cases(cases)
        });
        let held = runner.run(&made(target), |input| {
            body(&input);
            Ok(())
        });
        match held {
            Ok(()) => {}
            Err(TestError::Fail(why, input)) => {
                panic!("{target}: {why}: {}", input.escape_ascii())
            }
            Err(aborted) => panic!("{target}: {aborted}"),
        }
    }

    #[test]
    fn every_target_stands_inputs_made_of_its_own() {
        for (target, _) in TARGETS {
            let cases = match target {
                "opencode" => 60,
                "opencode_file" => 100,
                "cursor" | "key" => 2_000,
                _ => 300,
            };
            try_made(target, cases);
        }
    }

    /// An agent that was added without a target, or a target that `make fuzz` leaves out, shows here.
    #[test]
    fn every_agent_has_a_target_and_every_target_is_run() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let read = |name: &str| fs::read_to_string(root.join(name)).unwrap();
        let (makefile, manifest) = (read("Makefile"), read("fuzz/Cargo.toml"));
        let list = makefile.lines().find(|line| line.starts_with("FUZZ "));
        let run: Vec<_> = list.unwrap().split_whitespace().skip(2).collect();
        for catalog in Catalog::ALL {
            let name = catalog.as_str();
            assert!(TARGETS.iter().any(|(target, _)| *target == name), "{name}");
        }
        for target in TARGETS.map(|(name, _)| name).into_iter().chain(["verbs"]) {
            assert!(run.contains(&target), "the Makefile leaves out {target}");
            assert!(
                manifest.contains(&format!("name = \"{target}\"\n")),
                "{target}"
            );
            let program = format!("fuzz/fuzz_targets/{target}.rs");
            assert!(root.join(&program).is_file(), "{program}");
        }
    }
}
