//! What holds for trees alone.

use std::fs::{self, File};
use std::time::{Duration, SystemTime};

use serde_json::json;

use crate::upstream::opencode::fixture::*;
use crate::upstream::opencode::{Error, Look, Position};
use crate::upstream::rows::Slice;

const S: &str = "ses_dd3890f00ffeSQ1NLJzx7ES6gt";

#[test]
fn a_file_met_half_written_is_read_when_it_is_whole() {
    let lab = Lab::tree();
    lab.session(S, None);
    let (mut store, mut watch) = (lab.store(), Watch::new(S));
    let id = lab.say(S, &[text("one")]);
    let message = lab.file(&format!("message/{S}/{id}"));
    let part = fs::read_dir(lab.folder.path().join("storage/part").join(&id))
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let (whole_message, whole_part) = (fs::read(&message).unwrap(), fs::read(&part).unwrap());
    for half in [&whole_message[..0], &whole_message[..9]] {
        fs::write(&message, half).unwrap();
        assert_eq!(watch.told(&mut store), []);
    }
    fs::write(&message, &whole_message).unwrap();
    for half in [&whole_part[..0], &whole_part[..20]] {
        fs::write(&part, half).unwrap();
        assert_eq!(watch.told(&mut store), []);
    }
    fs::write(&part, &whole_part).unwrap();
    assert_eq!(watch.told(&mut store), prints(&["one"]));
    assert_eq!(watch.told(&mut store), []);
}

#[test]
fn a_session_whose_file_is_not_whole_is_not_judged() {
    let lab = Lab::tree();
    lab.session(S, Some("ses_parent"));
    lab.say(S, &[text("written by the agent")]);
    fs::write(lab.file(&format!("session/p/{S}")), "{\"id\":\"ses_dd").unwrap();
    let mut store = lab.store();
    assert_eq!(Watch::new(S).look(&mut store), Look::Moved);
    let read = store.read(S, &Position::default(), &secret(), Slice::WHOLE);
    assert!(matches!(read, Err(Error::Unreadable(_))));
}

#[test]
fn an_old_folder_is_listed_once_and_again_when_it_changes() {
    let lab = Lab::tree();
    lab.session(S, None);
    let (mut store, mut watch) = (lab.store(), Watch::new(S));
    let id = lab.say(S, &[text("one")]);
    watch.pass(&mut store);
    let folder = lab.folder.path().join("storage/message").join(S);
    let old = SystemTime::now() - Duration::from_secs(60);
    File::open(&folder).unwrap().set_modified(old).unwrap();
    assert_eq!(watch.look(&mut store), Look::Same);
    // A file that comes without a change of the folder's time is not seen: the
    // folder is not listed.
    lab.say(S, &[text("two")]);
    File::open(&folder).unwrap().set_modified(old).unwrap();
    assert_eq!(watch.look(&mut store), Look::Same);
    lab.delete(S, &id);
    assert_eq!(watch.look(&mut store), Look::Moved);
    assert_eq!(watch.told(&mut store), prints(&["two"]));
}

#[test]
fn a_young_folder_is_listed_whatever_its_time() {
    let lab = Lab::tree();
    lab.session(S, None);
    let (mut store, mut watch) = (lab.store(), Watch::new(S));
    lab.say(S, &[text("one")]);
    let folder = lab.folder.path().join("storage/message").join(S);
    let same_tick = fs::metadata(&folder).unwrap().modified().unwrap();
    assert_eq!(watch.told(&mut store), prints(&["one"]));
    assert_eq!(watch.look(&mut store), Look::Same);
    lab.say(S, &[text("two")]);
    File::open(&folder)
        .unwrap()
        .set_modified(same_tick)
        .unwrap();
    assert_eq!(watch.told(&mut store), prints(&["two"]));
}

#[test]
fn a_time_is_settled_when_no_clock_can_show_it_again() {
    let at = |secs| SystemTime::UNIX_EPOCH + Duration::from_secs(secs);
    let before = |secs| SystemTime::UNIX_EPOCH - Duration::from_secs(secs);
    let now = at(1_000_000);
    for (time, settled) in [
        (at(999_998), true),
        (at(999_999), false),
        // The clock was set back since.
        (at(1_000_001), false),
        (at(4_000_000_000), false),
        (at(i64::MAX as u64), false),
        (before(1), true),
        (before(i64::MAX as u64), true),
    ] {
        assert_eq!(super::is_settled(time, now), settled, "{time:?}");
    }
}

#[test]
fn what_is_not_remembered_is_judged_anew_where_it_was_not_met() {
    let lab = Lab::tree();
    lab.session(S, None);
    let mut watch = Watch::new(S);
    (0..130).for_each(|n| drop(lab.say(S, &[text(&format!("text {n}"))])));
    let told = watch.pass(&mut lab.store());
    assert_eq!(told.len(), 130);
    assert_eq!(watch.look(&mut lab.store()), Look::Same);
    lab.say(S, &[text("new")]);
    let again = watch.pass(&mut lab.store());
    // The same keys as before: those who store what was told know it.
    assert_eq!(again[..130], told);
    assert_eq!(again[130].text, secret().print("new"));
    assert_eq!(again.len(), 131);
}

#[test]
fn the_folders_that_tell_of_a_session() {
    let lab = Lab::tree();
    lab.session(S, None);
    let (mut store, mut watch) = (lab.store(), Watch::new(S));
    let storage = lab.folder.path().join("storage");
    fs::create_dir(storage.join("message")).unwrap();
    assert_eq!(store.folders(&watch.link()), [storage.join("message")]);
    let open = lab.say(S, &[synthetic("a note")]);
    watch.pass(&mut store);
    let folders = [
        storage.join("message").join(S),
        storage.join("part"),
        storage.join("part").join(open),
    ];
    assert_eq!(store.folders(&watch.link()), folders);
    assert!(store.concerns(&folders[0].join("msg_1.json")));
    assert!(!store.concerns(&lab.folder.path().join("auth.json")));
}

#[test]
fn the_samples_hold_what_their_manifest_says() {
    let Some(samples) = shared("samples/opencode") else {
        return;
    };
    for (sample, prompts) in [("ocmanager_storage", 1), ("synth_storage", 2)] {
        let folder = tempfile::TempDir::new().unwrap();
        std::os::unix::fs::symlink(samples.join(sample), folder.path().join("storage")).unwrap();
        let mut store = crate::upstream::opencode::Store::new(folder.path());
        let found = store.discover(10).unwrap();
        let told = found
            .iter()
            .map(|found| Watch::new(&found.thread).pass(&mut store).len());
        assert_eq!(told.sum::<usize>(), prompts, "{sample}");
    }
}

#[test]
fn other_files_are_passed_over() {
    let lab = Lab::tree();
    lab.session(S, None);
    let id = lab.say(S, &[text("one")]);
    fs::create_dir_all(lab.file(&format!("message/{S}/msg_folder"))).unwrap();
    fs::write(
        lab.folder
            .path()
            .join("storage/message")
            .join(S)
            .join("notes.txt"),
        "x",
    )
    .unwrap();
    fs::write(lab.folder.path().join("storage/session/loose.json"), "{}").unwrap();
    fs::write(
        lab.folder
            .path()
            .join("storage/part")
            .join(&id)
            .join("prt_0.json.tmp"),
        json!(text("x")).to_string(),
    )
    .unwrap();
    let (mut store, mut watch) = (lab.store(), Watch::new(S));
    assert_eq!(watch.told(&mut store), prints(&["one"]));
    assert_eq!(store.discover(10).unwrap().len(), 1);
}

#[test]
fn a_file_that_is_not_whole_keeps_no_slice_from_coming_further() {
    let lab = Lab::tree();
    lab.session(S, None);
    for _ in 0..3 {
        lab.say(S, &[text("x")]);
    }
    // Read before the others, by its name.
    fs::write(lab.file(&format!("message/{S}/a")), "{\"role\":").unwrap();
    let mut store = lab.store();
    let mut position = Position::default();
    let mut messages = 0;
    for slices in 1.. {
        let one = Slice {
            bytes: 1,
            ..Slice::WHOLE
        };
        let reading = store.read(S, &position, &secret(), one).unwrap().unwrap();
        messages += reading.acts.len();
        assert!(
            reading.position != position || !reading.more,
            "no way is made"
        );
        position = reading.position;
        if !reading.more {
            break;
        }
        assert!(slices < 10);
    }
    assert!(messages >= 1);
}
