//! The fuzz target of the verbs, over its committed inputs and inputs made of them.
//! The targets of the library's inside are run the same way in `src/fuzzing.rs`.

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use proptest::test_runner::{TestError, TestRunner};

#[path = "../fuzz/verbs.rs"]
mod verbs;

fn corpus() -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/verbs");
    let mut inputs: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            (name, fs::read(entry.path()).unwrap())
        })
        .collect();
    inputs.sort();
    inputs
}

/// A verb that was added without the target calling it shows here.
#[test]
fn every_verb_of_the_header_is_called() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let header = fs::read_to_string(root.join("include/session_awareness.h")).unwrap();
    let functions = header.split("\nint32_t aware_").skip(1);
    let mut declared: Vec<&str> = functions
        .filter_map(|function| function.split(';').next()?.split_once('('))
        .filter(|(_, parameters)| parameters.contains("request_json"))
        .map(|(name, _)| name)
        .collect();
    declared.sort();
    let mut called = verbs::VERBS.map(|(name, _)| name);
    called.sort();
    assert_eq!(called.as_slice(), declared);
    let inputs = corpus();
    for verb in called {
        let begins = format!("{verb} ");
        let lines = inputs
            .iter()
            .flat_map(|(_, input)| input.split(|byte| *byte == b'\n'));
        let used = lines
            .into_iter()
            .any(|line| line.starts_with(begins.as_bytes()));
        assert!(used, "no committed input calls {verb}");
    }
}

#[test]
fn the_verbs_stand_their_committed_inputs() {
    let inputs = corpus();
    assert!(inputs.len() >= 3);
    for (name, input) in inputs {
        println!("verbs/{name}");
        verbs::run(&input);
    }
}

#[test]
fn the_verbs_stand_inputs_made_of_them() {
    let lines: Vec<Vec<u8>> = corpus()
        .iter()
        .flat_map(|(_, input)| input.split(|byte| *byte == b'\n').map(<[u8]>::to_vec))
        .filter(|line| !line.is_empty())
        .collect();
    let change = (any::<prop::sample::Index>(), any::<u8>(), 0..5_u8);
    let line = (
        prop::sample::select(lines),
        prop::collection::vec(change, 0..3),
    )
        .prop_map(|(mut line, changes)| {
            for (at, byte, how) in changes {
                let at = at.index(line.len());
                match how {
                    0 => line[at] = byte,
                    1 => line.insert(at, byte),
                    2 if line.len() > 1 => drop(line.remove(at)),
                    3 => line[at] ^= 1 << (byte & 7),
                    _ => line[at] = b"\n\"\\{}[],:0"[usize::from(byte) % 10],
                }
            }
            line
        });
    let input = prop::collection::vec(line, 1..12).prop_map(|lines| lines.join(&b'\n'));
    let mut runner = TestRunner::new(ProptestConfig {
        // Found inputs become files of the corpus, not seeds of this engine.
        failure_persistence: None,
        ..ProptestConfig::with_cases(150)
    });
    let held = runner.run(&input, |input| {
        verbs::run(&input);
        Ok(())
    });
    match held {
        Ok(()) => {}
        Err(TestError::Fail(why, input)) => {
            panic!("{why}: {}", input.escape_ascii())
        }
        Err(aborted) => panic!("{aborted}"),
    }
}
