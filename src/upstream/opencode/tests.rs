//! What holds for both kinds of store.

use std::fs;
use std::path::Path;

use serde_json::json;

use super::fixture::*;
use super::*;
use crate::upstream::act::ActKind;

const S: &str = "ses_dd3890f00ffeSQ1NLJzx7ES6gt";

#[test]
fn a_turn_is_told_once_however_often_its_message_is_written() {
    for lab in labs() {
        lab.session(S, None);
        let (mut store, mut watch) = (lab.store(), Watch::new(S));
        assert_eq!(watch.pass(&mut store), []);
        let id = lab.say(S, &[text("one")]);
        let acts = watch.pass(&mut store);
        assert_eq!(acts.len(), 1);
        assert_eq!(
            (acts[0].kind, acts[0].text),
            (ActKind::Prompt, secret().print("one"))
        );
        let answer = lab.answer(S, &id);
        for role in ["user", "user", "assistant"] {
            let id = if role == "user" { &id } else { &answer };
            lab.message(
                S,
                id,
                acts[0].time_ms.unwrap(),
                json!({ "role": role, "summary": { "diffs": [] } }),
            );
            assert_eq!(watch.pass(&mut store), []);
        }
        lab.say(S, &[text("two")]);
        assert_eq!(watch.told(&mut store), prints(&["two"]));
        assert_eq!(watch.told(&mut lab.store()), []);
    }
}

#[test]
fn nothing_moved_is_told_without_reading() {
    for lab in labs() {
        lab.session(S, None);
        lab.session("ses_other", None);
        let (mut store, mut watch) = (lab.store(), Watch::new(S));
        lab.answer(S, &lab.say(S, &[text("one")]));
        watch.pass(&mut store);
        assert_eq!(watch.look(&mut store), Look::Same);
        // What happens to another session is nothing to this one.
        lab.say("ses_other", &[text("two")]);
        assert_eq!(watch.look(&mut store), Look::Same);
        assert_eq!(Watch::new("ses_other").look(&mut store), Look::Moved);
        // Nor is it in a store that was just opened.
        assert_eq!(watch.look(&mut lab.store()), Look::Same);
        lab.ask(S);
        assert_eq!(watch.look(&mut store), Look::Moved);
        assert_eq!(watch.look(&mut lab.store()), Look::Moved);
    }
}

#[test]
fn a_message_met_before_its_parts_is_judged_when_they_come() {
    for lab in labs() {
        lab.session(S, None);
        let (mut store, mut watch) = (lab.store(), Watch::new(S));
        let late = lab.ask(S);
        assert_eq!(watch.told(&mut store), []);
        lab.part(S, &late, "prt_1", &synthetic("Called the Read tool"));
        lab.part(
            S,
            &late,
            "prt_2",
            &json!({ "type": "file", "mime": "text/plain", "filename": "a.txt" }),
        );
        assert_eq!(watch.told(&mut store), []);
        // Another process goes on from the stored position.
        let mut store = lab.store();
        lab.part(S, &late, "prt_3", &text("read it"));
        assert_eq!(watch.told(&mut store), prints(&["read it"]));
        lab.answer(S, &late);
        assert_eq!(watch.told(&mut store), []);
        assert_eq!(watch.look(&mut store), Look::Same);
    }
}

#[test]
fn a_part_may_come_after_newer_messages() {
    for lab in labs() {
        lab.session(S, None);
        let (mut store, mut watch) = (lab.store(), Watch::new(S));
        let late = lab.ask(S);
        lab.answer(S, "msg_before");
        lab.say(S, &[text("newer")]);
        assert_eq!(watch.told(&mut store), prints(&["newer"]));
        lab.answer(S, "msg_before");
        assert_eq!(watch.told(&mut store), []);
        lab.part(S, &late, "prt_9", &text("late"));
        assert_eq!(watch.told(&mut store), prints(&["late"]));
        assert_eq!(watch.look(&mut store), Look::Same);
    }
}

#[test]
fn a_part_may_come_after_the_answer() {
    for lab in labs() {
        lab.session(S, None);
        let (mut store, mut watch) = (lab.store(), Watch::new(S));
        let late = lab.ask(S);
        assert_eq!(watch.told(&mut store), []);
        lab.answer(S, &late);
        assert_eq!(watch.told(&mut store), []);
        lab.part(S, &late, "prt_9", &text("late"));
        assert_eq!(watch.told(&mut store), prints(&["late"]));
    }
}

#[test]
fn an_answered_message_waits_for_nothing() {
    for lab in labs() {
        lab.session(S, None);
        let (mut store, mut watch) = (lab.store(), Watch::new(S));
        let tool = lab.say(
            S,
            &[synthetic("The following tool was executed by the user")],
        );
        let aborted = lab.say(S, &[synthetic("a note")]);
        watch.pass(&mut store);
        assert_eq!(watch.position.open.len(), 2);
        lab.answer(S, &tool);
        watch.pass(&mut store);
        assert_eq!(watch.position.open.len(), 1);
        assert_eq!(watch.position.open[0].id, aborted);
    }
}

#[test]
fn links_on_one_session_are_looked_at_alike() {
    for lab in labs() {
        lab.session(S, None);
        let (mut store, mut one, mut other) = (lab.store(), Watch::new(S), Watch::new(S));
        lab.say(S, &[text("one")]);
        lab.say(S, &[synthetic("a note"), synthetic("another")]);
        one.pass(&mut store);
        let links = [one.link(), other.link(), one.link()];
        let looks = store.look(&links);
        assert_eq!(looks, Ok(vec![Look::Same, Look::Moved, Look::Same]));
        assert_eq!(other.told(&mut store), prints(&["one"]));
        let looks = lab.store().look(&[one.link(), other.link()]);
        assert_eq!(looks, Ok(vec![Look::Same, Look::Same]));
    }
}

#[test]
fn an_undone_turn_is_neither_repeated_nor_missed() {
    for lab in labs() {
        lab.session(S, None);
        let (mut store, mut watch) = (lab.store(), Watch::new(S));
        lab.answer(S, &lab.say(S, &[text("one")]));
        let two = lab.say(S, &[text("two")]);
        let answer = lab.answer(S, &two);
        assert_eq!(watch.told(&mut store), prints(&["one", "two"]));
        // At the next submit the undone rows go, and their numbers are given again.
        for id in [&answer, &two] {
            lab.delete(S, id);
        }
        lab.say(S, &[text("three")]);
        assert_eq!(watch.told(&mut store), prints(&["three"]));
        assert_eq!(watch.told(&mut lab.store()), []);
    }
}

#[test]
fn the_text_of_an_undone_turn_may_be_typed_again() {
    for lab in labs() {
        lab.session(S, None);
        let (mut store, mut watch) = (lab.store(), Watch::new(S));
        lab.answer(S, &lab.say(S, &[text("one")]));
        let two = lab.say(S, &[text("two")]);
        assert_eq!(watch.told(&mut store).len(), 2);
        lab.delete(S, &two);
        lab.say(S, &[text("two")]);
        assert_eq!(watch.told(&mut store), prints(&["two"]));
        lab.say(S, &[text("two")]);
        assert_eq!(watch.told(&mut store), []);
    }
}

#[test]
fn an_undone_turn_leaves_older_ones_told_than_are_remembered() {
    for lab in labs() {
        lab.session(S, None);
        let (mut store, mut watch) = (lab.store(), Watch::new(S));
        let ids: Vec<String> = (0..130)
            .map(|n| lab.say(S, &[text(&format!("text {n}"))]))
            .collect();
        assert_eq!(watch.told(&mut store).len(), 130);
        lab.delete(S, &ids[129]);
        lab.say(S, &[text("new")]);
        assert_eq!(watch.told(&mut store), prints(&["new"]));
    }
}

#[test]
fn the_text_of_a_deleted_message_may_be_typed_again() {
    for lab in labs() {
        lab.session(S, None);
        let (mut store, mut watch) = (lab.store(), Watch::new(S));
        let one = lab.say(S, &[text("one")]);
        lab.say(S, &[text("two")]);
        assert_eq!(watch.told(&mut store).len(), 2);
        lab.delete(S, &one);
        lab.say(S, &[text("one")]);
        assert_eq!(watch.told(&mut store), prints(&["one"]));
    }
}

#[test]
fn undoing_everything_is_no_end() {
    for lab in labs() {
        lab.session(S, None);
        let (mut store, mut watch) = (lab.store(), Watch::new(S));
        let ids = [lab.say(S, &[text("one")]), lab.say(S, &[text("two")])];
        assert_eq!(watch.told(&mut store).len(), 2);
        for id in &ids {
            lab.delete(S, id);
        }
        assert_eq!(watch.told(&mut store), []);
        assert_eq!(watch.look(&mut store), Look::Same);
        lab.say(S, &[text("three")]);
        assert_eq!(watch.told(&mut store), prints(&["three"]));
    }
}

#[test]
fn clocks_that_are_late_hide_nothing() {
    for lab in labs() {
        lab.session(S, None);
        let (mut store, mut watch) = (lab.store(), Watch::new(S));
        lab.answer(S, &lab.say(S, &[text("one")]));
        assert_eq!(watch.told(&mut store), prints(&["one"]));
        // The client's clock made the id, the server's the time.
        let now = lab.now();
        let late = id(now - 3_600_000);
        lab.message(S, &late, now, json!({ "role": "user" }));
        lab.part(S, &late, "prt_late", &text("from a late client"));
        assert_eq!(watch.told(&mut store), prints(&["from a late client"]));
        assert_eq!(watch.told(&mut lab.store()), []);
    }
}

#[test]
fn a_text_that_comes_again_within_fifty_messages_is_a_replay() {
    for lab in labs() {
        lab.session(S, None);
        let (mut store, mut watch) = (lab.store(), Watch::new(S));
        let say = |n: usize| lab.say(S, &[text(&format!("text {n}"))]);
        (0..50).for_each(|n| drop(say(n)));
        assert_eq!(watch.told(&mut store).len(), 50);
        say(0);
        assert_eq!(watch.told(&mut store), []);
        say(1);
        say(50);
        assert_eq!(watch.told(&mut store), prints(&["text 50"]));
        // 51 messages later.
        say(2);
        say(3);
        assert_eq!(watch.told(&mut store), prints(&["text 2", "text 3"]));
        assert_eq!(Watch::new(S).told(&mut store).len(), 53);
    }
}

#[test]
fn a_replay_is_known_by_the_names_of_what_was_attached() {
    for lab in labs() {
        lab.session(S, None);
        let (mut store, mut watch) = (lab.store(), Watch::new(S));
        let image = json!({ "type": "file", "mime": "image/png", "filename": "a.png", "url": "data:image/png;base64,iVBORw0K" });
        lab.say(S, &[text("what is this"), image.clone()]);
        lab.say(S, std::slice::from_ref(&image));
        assert_eq!(watch.told(&mut store), prints(&["what is this"]));
        lab.say(
            S,
            &[text("what is this"), text("[Attached image/png: a.png]")],
        );
        lab.say(S, &[text("[Attached image/png: a.png]")]);
        assert_eq!(watch.told(&mut store), []);
        lab.say(S, &[text("what is this")]);
        assert_eq!(watch.told(&mut store), prints(&["what is this"]));
    }
}

#[test]
fn a_session_of_a_sub_agent_has_no_turns() {
    for lab in labs() {
        lab.session(S, None);
        lab.session("ses_kid", Some(S));
        lab.say("ses_kid", &[text("written by the agent")]);
        let (mut store, mut watch) = (lab.store(), Watch::new("ses_kid"));
        assert_eq!(watch.look(&mut store), Look::Moved);
        assert_eq!(watch.told(&mut store), []);
        assert_eq!(watch.look(&mut store), Look::Same);
    }
}

#[test]
fn what_a_fork_copied_is_not_told() {
    for lab in labs() {
        lab.session(S, None);
        let (first, second) = (lab.now(), lab.now());
        let ask = |session: &str, id: &str, created: i64, said: &str| {
            lab.message(session, id, created, json!({ "role": "user" }));
            lab.part(session, id, &id.replace("msg", "prt"), &text(said));
        };
        ask(S, &id(first), first, "one");
        ask(S, &id(second), second, "two");
        // Forked within a second: only the session's beginning tells.
        lab.session("ses_fork", None);
        ask("ses_fork", &id(lab.now()), first, "one");
        ask("ses_fork", &id(lab.now()), second, "two");
        lab.say("ses_fork", &[text("in the fork")]);
        let mut store = lab.store();
        assert_eq!(Watch::new(S).told(&mut store), prints(&["one", "two"]));
        assert_eq!(
            Watch::new("ses_fork").told(&mut store),
            prints(&["in the fork"])
        );
    }
}

#[test]
fn a_session_that_goes_is_told() {
    for lab in labs() {
        lab.session(S, None);
        lab.session("ses_other", None);
        lab.say(S, &[text("one")]);
        let (mut store, mut watch, other) = (lab.store(), Watch::new(S), Watch::new("ses_other"));
        watch.pass(&mut store);
        // Another one comes, so that there are as many as before.
        lab.delete_session(S);
        lab.session("ses_new", None);
        let looks = store.look(&[watch.link(), other.link()]);
        assert_eq!(looks, Ok(vec![Look::Gone, Look::Same]));
        assert_eq!(
            store.read(S, &watch.position, &secret(), Slice::WHOLE),
            Ok(None)
        );
        for thread in ["", "..", "../../p", "ses_never", "a/b", &"x".repeat(300)] {
            assert_eq!(Watch::new(thread).look(&mut store), Look::Gone, "{thread}");
        }
        // It may come back.
        lab.session(S, None);
        lab.say(S, &[text("two")]);
        assert_eq!(watch.told(&mut store), prints(&["two"]));
    }
}

#[test]
fn a_store_that_goes_is_missing() {
    for lab in labs() {
        lab.session(S, None);
        let (mut store, watch) = (lab.store(), Watch::new(S));
        assert_eq!(watch.look(&mut store), Look::Same);
        match &lab.db {
            Some(_) => fs::remove_file(lab.source()).unwrap(),
            None => fs::remove_dir_all(lab.source()).unwrap(),
        }
        assert_eq!(store.look(&[watch.link()]), Err(Error::Missing));
        assert_eq!(store.discover(10), Err(Error::Missing));
        assert_eq!(
            store.read(S, &watch.position, &secret(), Slice::WHOLE),
            Err(Error::Missing)
        );
    }
    let folder = tempfile::TempDir::new().unwrap();
    assert_eq!(Store::new(folder.path()).look(&[]), Err(Error::Missing));
    assert_eq!(
        Store::new(&folder.path().join("opencode.db")).look(&[]),
        Err(Error::Missing)
    );
}

#[test]
fn a_slice_ends_between_messages() {
    for lab in labs() {
        lab.session(S, None);
        (0..10).for_each(|n| drop(lab.answer(S, &lab.say(S, &[text(&format!("text {n}"))]))));
        let mut store = lab.store();
        let whole = Watch::new(S).pass(&mut store);
        let mut position = Position::default();
        let mut acts = Vec::new();
        let mut slices = 0;
        loop {
            let slice = Slice {
                bytes: 1,
                ..Slice::WHOLE
            };
            let reading = store.read(S, &position, &secret(), slice).unwrap().unwrap();
            position = reading.position;
            acts.extend(reading.acts);
            slices += 1;
            if !reading.more {
                break;
            }
        }
        assert_eq!(acts, whole);
        assert_eq!(slices, 20);
        let stop = std::sync::atomic::AtomicBool::new(true);
        let slice = Slice {
            stop: Some(&stop),
            ..Slice::WHOLE
        };
        match store.read(S, &Position::default(), &secret(), slice) {
            Ok(Some(reading)) => assert!(reading.more && reading.acts.len() <= 1),
            failed => assert_eq!(failed, Err(Error::Stopped)),
        }
    }
}

#[test]
fn sessions_are_found_newest_first() {
    for lab in labs() {
        for (thread, parent) in [
            ("ses_b", None),
            ("ses_a", None),
            ("ses_kid", Some("ses_a")),
            ("ses_c", None),
        ] {
            lab.session(thread, parent);
        }
        let home = Home::new(Some(lab.folder.path()), &|_| None).unwrap();
        let (found, failed) = discover(&home, 2);
        assert_eq!(failed, []);
        let threads: Vec<_> = found
            .iter()
            .map(|(source, found)| (source.as_path(), found.thread.as_str()))
            .collect();
        let source = lab.source();
        assert_eq!(
            threads,
            [(source.as_path(), "ses_c"), (source.as_path(), "ses_a")]
        );
        assert_eq!(found[0].1.cwd.as_deref(), Some("/home/dev"));
        assert_eq!(found[0].1.updated_ms, BEGIN + 40);
        assert_eq!(find(&home, "ses_b"), Ok(Some(source)));
        assert_eq!(find(&home, "ses_d"), Ok(None));
        assert_eq!(find(&home, "../ses_b"), Ok(None));
    }
}

#[test]
fn damaged_data_stops_nothing() {
    for lab in labs() {
        lab.session(S, None);
        let (mut store, mut watch) = (lab.store(), Watch::new(S));
        for data in [
            "",
            "{",
            "null",
            "[]",
            "{\"role\":\"user\"",
            "{\"role\":7,\"time\":\"x\"}",
            "\u{0}",
        ] {
            let id = lab.ask(S);
            lab.part(S, &id, &format!("prt_{}", lab.now()), &json!("no object"));
            match &lab.db {
                Some(db) => drop(
                    db.execute("UPDATE message SET data = ?1 WHERE id = ?2", [data, &id])
                        .unwrap(),
                ),
                None => fs::write(lab.file(&format!("message/{S}/{id}")), data).unwrap(),
            }
        }
        for data in [
            "",
            "{\"type\":\"text\",\"text\":\"cut of",
            "{\"type\":\"text\",\"text\":[1]}",
            "7",
        ] {
            let id = lab.say(S, &[text("whole")]);
            match &lab.db {
                Some(db) => drop(
                    db.execute(
                        "UPDATE part SET data = ?1 WHERE message_id = ?2",
                        [data, &id],
                    )
                    .unwrap(),
                ),
                None => {
                    let folder = lab.folder.path().join("storage/part").join(&id);
                    for entry in fs::read_dir(folder).unwrap() {
                        fs::write(entry.unwrap().path(), data).unwrap();
                    }
                }
            }
        }
        lab.say(S, &[text("sound")]);
        assert_eq!(watch.told(&mut store), prints(&["sound"]));
        assert_eq!(watch.told(&mut store), []);
    }
}

#[test]
fn nothing_tells_a_text() {
    for lab in labs() {
        lab.session(S, None);
        lab.say(
            S,
            &[
                text("canary"),
                json!({ "type": "file", "mime": "image/png", "filename": "canary.png" }),
            ],
        );
        lab.say(S, &[synthetic("canary")]);
        let reading = lab
            .store()
            .read(S, &Position::default(), &secret(), Slice::WHOLE)
            .unwrap();
        assert!(!format!("{reading:?}").contains("canary"));
        assert!(
            !serde_json::to_string(&reading.unwrap().position)
                .unwrap()
                .contains("canary")
        );
    }
}

#[test]
fn a_store_may_be_read_in_any_thread() {
    fn is_send<T: Send>() {}
    is_send::<Store>();
}

#[test]
fn fed_rows_are_judged_alike() {
    let row = |id: &str, role: &str, parts: serde_json::Value| {
        let info = json!({ "id": id, "sessionID": S, "role": role, "time": { "created": BEGIN } });
        json!({ "info": info, "parts": parts }).to_string()
    };
    let rows = [
        row(&id(BEGIN), "user", json!([text("one")])),
        row(&id(BEGIN + 1), "assistant", json!([text("an answer")])),
        row(&id(BEGIN + 2), "user", json!([])),
        row(&id(BEGIN + 3), "user", json!([synthetic("a note")])),
        row(&id(BEGIN + 2_000), "user", json!([text("a fork's copy")])),
        "7".to_owned(),
        "{\"info\":null,\"parts\":7}".to_owned(),
        row(&id(BEGIN + 4), "user", json!([text("one")])),
    ];
    let feed = |position: &Position, rows: &[String]| {
        feed(
            S,
            position,
            rows.iter().map(|row| row.as_bytes()),
            &secret(),
        )
    };
    let first = feed(&Position::default(), &rows);
    assert_eq!(
        first.acts.iter().map(|act| act.text).collect::<Vec<_>>(),
        prints(&["one"])
    );
    assert_eq!(first.acts[0].time_ms, Some(BEGIN));
    assert_eq!(feed(&first.position, &rows).acts, []);
    // The parts of a row that was handed over without them.
    let late = row(&id(BEGIN + 2), "user", json!([text("late")]));
    let then = feed(&first.position, &[late]);
    assert_eq!(then.acts[0].text, secret().print("late"));
}

fn copied(from: &Path) -> tempfile::TempDir {
    fn copy(from: &Path, to: &Path) {
        for entry in fs::read_dir(from).unwrap() {
            let (from, to) = (
                entry.as_ref().unwrap().path(),
                to.join(entry.unwrap().file_name()),
            );
            if from.is_dir() {
                fs::create_dir(&to).unwrap();
                copy(&from, &to);
            } else {
                fs::write(&to, fs::read(&from).unwrap()).unwrap();
            }
        }
    }
    let to = tempfile::TempDir::new().unwrap();
    copy(from, to.path());
    to
}

#[test]
fn real_stores_hold_what_was_typed() {
    for (version, source) in [("opencode-1.18.33", "opencode.db"), ("opencode-1.1.65", "")] {
        let Some(real) = shared("real").map(|real| real.join(version)) else {
            return;
        };
        let folder = copied(&real);
        let mut store = Store::new(&folder.path().join(source));
        let driven = driven(&real);
        for driven in &driven {
            let mut watch = Watch::new(&driven.file);
            let acts = watch.pass(&mut store);
            assert_eq!(acts.len(), driven.prompts(), "{}", driven.file);
            for Typed { text, how } in &driven.human {
                let print = secret().print(text);
                let is_it = |act: &Act| act.text == print || act.unquoted == Some(print);
                assert!(acts.iter().any(is_it), "{how}: {text}");
            }
            assert_eq!(watch.look(&mut store), Look::Same);
            assert_eq!(
                watch.look(&mut Store::new(&folder.path().join(source))),
                Look::Same
            );
        }
        let sub_agents = driven
            .iter()
            .filter(|driven| driven.note.starts_with("sub-agent"))
            .count();
        assert_eq!(
            store.discover(100).unwrap().len(),
            driven.len() - sub_agents
        );
    }
}
