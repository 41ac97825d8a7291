//! Whole files: the samples and real stores that lie beside the repository, and
//! the properties that hold for every agent.

use std::io::Write;
use std::path::{Path, PathBuf};

use super::*;

pub(super) fn secret() -> Secret {
    Secret::new([7; 32])
}

/// A judge of rows that are handed over.
pub(super) fn judge(catalog: &str, saved: Option<&str>) -> Box<dyn Judge> {
    let case = Case {
        secret: &secret(),
        thread: "thread",
        path: None,
    };
    agent(catalog).unwrap().judge(case, saved).unwrap()
}

/// The acts in rows of a source of its own.
pub(super) fn acts_of(catalog: &str, rows: &[serde_json::Value]) -> Vec<Act> {
    let mut judge = judge(catalog, None);
    let json = rows.iter().map(|row| row.to_string());
    json.filter_map(|json| feed(json.as_bytes(), &secret(), &mut *judge))
        .collect()
}

/// Their kinds and the prints of what was typed.
pub(super) fn told(acts: &[Act]) -> Vec<(ActKind, Print)> {
    let told = acts.iter().filter(|act| !act.again);
    told.map(|act| (act.kind, act.text)).collect()
}

/// Prompts of these words.
pub(super) fn prompts(words: &[&str]) -> Vec<(ActKind, Print)> {
    let print = |words: &&str| (ActKind::Prompt, secret().print(words));
    words.iter().map(print).collect()
}

/// Whether an act is known by what another one left.
pub(super) fn knows(one: &Act, other: &Act) -> bool {
    one.keys().any(|key| other.keys().any(|k| k == key))
}

/// The folder beside the repository that holds samples; says when it is missing.
fn shared(part: &str) -> Option<PathBuf> {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared")).join(part);
    if folder.is_dir() {
        return Some(folder);
    }
    // Not by a macro, whose output a passed test keeps to itself.
    let line = format!("left out: ../shared/{part} is not there\n");
    std::io::stderr().write_all(line.as_bytes()).unwrap();
    None
}

/// The acts of a whole file, and how many of its lines were damaged.
fn acts(catalog: &str, path: &Path) -> Vec<Act> {
    let secret = secret();
    let case = Case {
        secret: &secret,
        thread: "thread",
        path: Some(path),
    };
    let mut judge = agent(catalog).unwrap().judge(case, None).unwrap();
    let mut source = Source::open(path).unwrap();
    let mut acts = Vec::new();
    let reached = scan(&mut source, 0, Slice::WHOLE, &secret, &mut *judge, |act| {
        acts.push(act)
    });
    assert!(!reached.unwrap().more);
    acts
}

/// Prompts, commands and shell inputs, each turn once.
fn counts(acts: &[Act]) -> [usize; 3] {
    let mut known = std::collections::HashSet::new();
    let mut counts = [0; 3];
    for act in acts {
        if !act.again && act.keys().all(|key| known.insert(key)) {
            counts[act.kind as usize] += 1;
        }
    }
    counts
}

#[test]
fn the_samples_hold_what_their_manifest_says() {
    let Some(samples) = shared("samples") else {
        return;
    };
    let manifest = std::fs::read_to_string(samples.join("MANIFEST.tsv")).unwrap();
    for line in manifest.lines().skip(1) {
        let fields: Vec<_> = line.split('\t').collect();
        let (file, catalog) = (fields[0], fields[4]);
        let path = samples.join(file);
        // What is no session file, and files that are not linked.
        let other = [
            "codex/deja_history.jsonl",
            "codex/synth_appserver_wire.jsonl",
        ];
        if catalog == "opencode" || other.contains(&file) {
            continue;
        }
        if head(agent(catalog).unwrap(), &path).unwrap().legacy {
            assert!(file.starts_with("pi/pimono_"), "{file}");
            continue;
        }
        let mut expected: [usize; 3] = std::array::from_fn(|i| fields[6 + i].parse().unwrap());
        if file == "codex/agentsview_blockquotes_session.jsonl" {
            // The manifest leaves `codex exec` out, the contract does not.
            expected = [1, 0, 0];
        }
        assert_eq!(counts(&acts(catalog, &path)), expected, "{file}");
    }
}

/// What `expected.json` says of one file of a real store.
#[derive(serde::Deserialize)]
struct Driven {
    file: String,
    human_turns: usize,
    slash_prompts: Vec<String>,
    human_shell: usize,
}

#[test]
fn real_stores_hold_what_was_typed() {
    for (catalog, store) in [("codex", "real/codex-0.171.0"), ("pi", "real/pi-1.6.0")] {
        let Some(store) = shared(store) else {
            return;
        };
        let expected = std::fs::read(store.join("expected.json")).unwrap();
        let expected: Vec<Driven> = serde_json::from_slice(&expected).unwrap();
        for driven in expected {
            let acts = acts(catalog, &store.join(&driven.file));
            let prompts = driven.human_turns + driven.slash_prompts.len();
            let told = counts(&acts);
            assert_eq!(told, [prompts, 0, driven.human_shell], "{}", driven.file);
        }
    }
}

/// Files that are sessions of an agent with a judge here, and the committed inputs of its fuzz target.
fn session_files() -> Vec<(&'static str, PathBuf)> {
    let inputs = AGENTS.map(|agent| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
        (agent.catalog(), folder.join(agent.catalog()))
    });
    let folders = ["claude", "codex", "pi"].map(|catalog| (catalog, format!("samples/{catalog}")));
    let real = [
        ("codex", "real/codex-0.171.0".to_owned()),
        ("pi", "real/pi-1.6.0".to_owned()),
    ];
    let mut files = Vec::new();
    for (catalog, folder) in inputs {
        let found = std::fs::read_dir(folder).unwrap();
        let found = found.map(|entry| entry.unwrap().path());
        // What is broken as a whole cannot be read at all.
        let whole = found.filter(|path| !path.ends_with("packed_broken"));
        files.extend(whole.map(|path| (catalog, path)));
    }
    for (catalog, folder) in folders.into_iter().chain(real) {
        let Some(folder) = shared(&folder) else {
            continue;
        };
        for entry in walkdir::WalkDir::new(folder).into_iter().flatten() {
            if entry
                .path()
                .extension()
                .is_some_and(|extension| extension == "jsonl")
            {
                files.push((catalog, entry.into_path()));
            }
        }
    }
    files
}

#[test]
fn a_pass_may_stop_after_any_row() {
    for (catalog, path) in session_files() {
        let whole = acts(catalog, &path);
        let secret = secret();
        let mut source = Source::open(&path).unwrap();
        let (mut told, mut saved, mut position) = (Vec::new(), None, 0);
        loop {
            let case = Case {
                secret: &secret,
                thread: "thread",
                path: Some(&path),
            };
            let mut judge = agent(catalog)
                .unwrap()
                .judge(case, saved.as_deref())
                .unwrap();
            let one = Slice {
                bytes: 1,
                ..Slice::WHOLE
            };
            let reached = scan(&mut source, position, one, &secret, &mut *judge, |act| {
                told.push(act)
            });
            let reached = reached.unwrap();
            position = reached.position;
            let state = judge.save();
            assert!(state.len() < 6 * 1024, "{path:?}");
            saved = Some(state);
            if !reached.more {
                break;
            }
        }
        assert_eq!(told, whole, "{path:?}");
    }
}

/// The acts of a file with every row read.
fn thoroughly(catalog: &str, path: &Path) -> Vec<Act> {
    let secret = secret();
    let case = Case {
        secret: &secret,
        thread: "thread",
        path: Some(path),
    };
    let mut judge = fuzzing::Thorough(agent(catalog).unwrap().judge(case, None).unwrap());
    let mut source = Source::open(path).unwrap();
    let mut acts = Vec::new();
    scan(&mut source, 0, Slice::WHOLE, &secret, &mut judge, |act| {
        acts.push(act)
    })
    .unwrap();
    acts
}

#[test]
fn rows_passed_unread_would_tell_nothing() {
    for (catalog, path) in session_files() {
        assert_eq!(acts(catalog, &path), thoroughly(catalog, &path), "{path:?}");
    }
}

#[test]
fn a_judge_begins_anew_when_it_cannot_go_on() {
    let secret = secret();
    let case = Case {
        secret: &secret,
        thread: "thread",
        path: None,
    };
    for agent in AGENTS {
        assert!(agent.judge(case, Some("not its state")).is_none());
        let saved = agent.judge(case, None).unwrap().save();
        assert!(agent.judge(case, Some(&saved)).is_some());
    }
}

mod damage {
    use super::*;
    use proptest::prelude::*;

    /// Rows that each agent tells, to be damaged.
    const ROWS: [&str; 7] = [
        r#"{"type":"user","uuid":"u1","timestamp":"2026-09-20T08:00:02.002Z","message":{"role":"user","content":[{"type":"text","text":"hello"}]},"origin":{"kind":"human"}}"#,
        r#"{"type":"attachment","uuid":"u2","attachment":{"type":"queued_command","commandMode":"prompt","prompt":"x"}}"#,
        r#"{"timestamp":"2026-09-20T08:00:02.002Z","type":"session_meta","payload":{"id":"t","timestamp":"2026-09-20T08:00:00Z","forked_from_id":"p","source":"cli"}}"#,
        r#"{"timestamp":"2026-09-20T08:00:09.002Z","type":"event_msg","payload":{"type":"user_message","message":"\ud83d hello","images":[]}}"#,
        r#"{"timestamp":"2026-09-20T08:00:09.003Z","type":"response_item","payload":{"type":"message","role":"user","content":[{"type":"input_text","text":"hello"}],"internal_chat_message_metadata_passthrough":{"turn_id":"01a22c79-48ed-7480-a102-2d91c8ce991a","content_item_kinds":["user.text"]}}}"#,
        r#"{"type":"session","version":3,"id":"s","timestamp":"2026-09-20T08:00:00Z"}"#,
        r#"{"type":"message","id":"a","timestamp":"2026-09-20T08:00:01Z","message":{"role":"user","content":"<skill name=x>y</skill>z"}}"#,
    ];

    fn damaged() -> impl Strategy<Value = Vec<u8>> {
        let change = (any::<prop::sample::Index>(), any::<u8>(), 0..4_u8);
        let row = (
            prop::sample::select(&ROWS[..]),
            prop::collection::vec(change, 0..4),
        )
            .prop_map(|(row, changes)| {
                let mut row = row.as_bytes().to_vec();
                for (at, byte, how) in changes {
                    if row.is_empty() {
                        break;
                    }
                    let at = at.index(row.len());
                    match how {
                        0 => row[at] = byte,
                        1 => row.insert(at, byte),
                        2 => drop(row.remove(at)),
                        _ => row.truncate(at),
                    }
                }
                row
            });
        let line = prop_oneof![8 => row, 1 => prop::collection::vec(any::<u8>(), 0..64)];
        let end = prop::sample::select(vec![&b"\n"[..], b"\n", b"\n", b"\r\n", b"", b"\0"]);
        prop::collection::vec((line, end), 0..12).prop_map(|lines| {
            lines
                .into_iter()
                .flat_map(|(line, end)| [line, end.to_vec()])
                .flatten()
                .collect()
        })
    }

    proptest! {
        /// Nothing in a file makes a judge fail, and what follows damage is told.
        #[test]
        fn never_fails_a_file(bytes in damaged()) {
            let file = tempfile::NamedTempFile::new().unwrap();
            for (catalog, sound) in [("claude", ROWS[0]), ("codex", ROWS[3]), ("pi", ROWS[6])] {
                let sound = sound.replace("hello", "after").replace("2026", "9998");
                std::fs::write(file.path(), [&bytes[..], b"\n", sound.as_bytes(), b"\n"].concat()).unwrap();
                let told = acts(catalog, file.path());
                prop_assert_eq!(&told, &thoroughly(catalog, file.path()));
                let words = if catalog == "claude" { "after" } else if catalog == "codex" { "\u{fffd} after" } else { "z" };
                let print = secret().print(words);
                prop_assert!(told.iter().any(|act| act.text == print), "{catalog}");
            }
        }
    }
}
