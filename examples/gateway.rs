//! A gateway that keeps its sessions aware of each other, in one story.
//!
//! usage: cargo run --example gateway [DATABASE]
//!
//! DATABASE is a file that is not there yet; without it a temporary one is used. What happens is
//! what happened in four real sessions (data/traffic.jsonl), in that order and with those times.
//! Each step is checked: the exit status is 0 only when the story went as it is told.

use std::error::Error;
use std::fmt::{Debug, Display};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde::Deserialize;
use serde_json::json;
use session_awareness::{
    AckNotices, AckedNotice, ActorType, Awareness, ChangesSince, Config, DrainNotices, Kind,
    NewEvent, Notice, Provenance, WaitWakes, Watch, WatchReply,
};

const MANAGER: &str = "agent:main:main";
const RESEARCH: &str = "agent:main:subagent:research";
const BUILD: &str = "agent:main:subagent:build";
const COORDINATOR: &str = "agent:ops:main";
const PEER: &str = "agent:coder:main";
const GROUP: &str = "agent:main:telegram:group:travel";

/// Which session of this gateway each session of the data plays, and the channel people use there.
const CAST: [(&str, &str, &str); 4] = [
    ("pi", RESEARCH, "telegram"),
    ("opencode", PEER, "slack"),
    ("codex-1", GROUP, "telegram"),
    ("codex-2", BUILD, "telegram"),
];

type Told<T = ()> = Result<T, Box<dyn Error>>;

/// A line of the data: who did what when, and where.
#[derive(Debug, Deserialize)]
struct Act {
    at: i64,
    session: String,
    who: ActorType,
    what: String,
}

/// Ends the story when it does not happen as told.
fn expect<T: PartialEq<W> + Debug, W: Debug>(what: &str, actual: T, wanted: W) -> Told {
    if actual == wanted {
        return Ok(());
    }
    Err(format!("not as told: {what}: wanted {wanted:?}, got {actual:?}").into())
}

fn chapter(title: &str) {
    println!("\n{title}");
}

fn say(label: &str, text: impl Display) {
    println!("  {label:<13} {text}");
}

// What a gateway does when something happens in one of its sessions.

/// Takes the next act of the data, records it and tells it.
fn happens(awareness: &Awareness, traffic: &mut impl Iterator<Item = Act>) -> Told {
    let act = traffic.next().ok_or("the data is at its end")?;
    let role = CAST.iter().find(|(session, ..)| *session == act.session);
    let (_, key, channel) = role.ok_or("a session that is not of the cast")?;
    let told = record(awareness, &act, key, channel)?;
    let (seconds, millis) = (act.at / 1000, act.at % 1000);
    let (hours, minutes) = (seconds / 3600 % 24, seconds / 60 % 60);
    let clock = format!("{hours:02}:{minutes:02}:{:02}.{millis:03}", seconds % 60);
    say(&clock, format!("{key}  {told}"));
    Ok(())
}

/// Records one act; returns how it reads in the log.
fn record(awareness: &Awareness, act: &Act, key: &str, channel: &str) -> Told<String> {
    let mut event = NewEvent::new(key, Kind::HumanDirectMessage, act.who);
    event.occurred_at = Some(act.at);
    if act.what == "session_started" {
        if key != RESEARCH && key != BUILD {
            return Ok("session started (not a change to record)".into());
        }
        event.kind = Kind::ChildSpawned;
        event.actor_type = ActorType::Agent;
        event.actor_id = Some(MANAGER.into());
        event.watcher_session_keys = Some(vec![MANAGER.into()]);
    } else if act.what == "human_turn" {
        event.payload = json!({ "channel": channel }).as_object().cloned();
    } else {
        let run = format!("run-{}", act.at);
        // A run ends once: whichever part of the gateway tells it second stores nothing.
        event.dedupe_key = Some(format!("run-terminal:{run}"));
        event.run_id = Some(run);
        if act.what == "run_completed" {
            event.kind = Kind::RunCompleted;
            event.actor_id = Some(key.into());
        } else {
            event.kind = Kind::RunFailed;
            event.payload = json!({ "outcome": "timeout" }).as_object().cloned();
        }
    }
    let recorded = awareness.record(event)?;
    let event = recorded.event().ok_or("not as told: the act is recorded")?;
    Ok(format!("#{} {}", event.sequence, event.summary))
}

// What a watching session does.

fn wakes_within(awareness: &Awareness, timeout_ms: u64) -> Told<Vec<(String, String)>> {
    let request = WaitWakes {
        timeout_ms,
        ..WaitWakes::default()
    };
    let wakes = awareness.wait_wakes(request)?.wakes;
    Ok(wakes
        .into_iter()
        .map(|wake| (wake.session_key, wake.target_session_key))
        .collect())
}

fn is_woken(awareness: &Awareness, watcher: &str, target: &str) -> Told {
    let wanted = [(watcher.to_owned(), target.to_owned())];
    expect("one wake", wakes_within(awareness, 5000)?, wanted)?;
    say("wake", format!("{watcher}, for {target}"));
    Ok(())
}

fn is_not_woken(awareness: &Awareness) -> Told {
    expect("no wake", wakes_within(awareness, 100)?, [])?;
    say("no wake", "for anyone");
    Ok(())
}

fn drains_one_notice(awareness: &Awareness, watcher: &str, ack: bool) -> Told<Notice> {
    let request = DrainNotices {
        ack: Some(ack),
        ..DrainNotices::new(watcher)
    };
    let mut notices = awareness.drain_notices(request)?.notices;
    expect("one notice", notices.len(), 1)?;
    let notice = notices.remove(0);
    say("notice", &notice.text);
    Ok(notice)
}

fn drains_nothing(awareness: &Awareness, watcher: &str) -> Told {
    expect(
        "no notice",
        awareness.drain_notices(DrainNotices::new(watcher))?.notices,
        [],
    )?;
    say("no notice", format!("for {watcher}"));
    Ok(())
}

/// Asks for the changes after the notice's `changesSince`: the watcher is in sync again.
fn reconciles(
    awareness: &Awareness,
    watcher: &str,
    target: &str,
    notice: &Notice,
    wanted: &[&str],
) -> Told {
    let since = notice.changes_since;
    let reply = awareness.changes_since(ChangesSince::new(target, since))?;
    let changes = reply.state_changes;
    expect(
        "nothing is missing",
        changes.history_gap || changes.truncated,
        false,
    )?;
    let summaries: Vec<&str> = changes
        .events
        .iter()
        .map(|event| event.summary.as_str())
        .collect();
    expect("the changes", summaries, wanted)?;
    for event in &changes.events {
        let actor = event.actor_type.as_str();
        say(
            &format!("since {since}"),
            format!("#{} {} ({actor})", event.sequence, event.summary),
        );
    }
    say(
        "in sync",
        format!("{watcher} with {target} at {}", reply.state_version),
    );
    Ok(())
}

fn watches(awareness: &Awareness, watcher: &str, target: &str, provenance: Provenance) -> Told {
    let request = Watch {
        provenance: Some(provenance),
        ..Watch::new(watcher, target)
    };
    match awareness.watch(request)? {
        WatchReply::Watched {
            created: true,
            state_version,
            ..
        } => {
            say(
                "watch",
                format!("{watcher} watches {target} from version {state_version}"),
            );
            Ok(())
        }
        other => Err(format!("not as told: the watch is new: got {other:?}").into()),
    }
}

// The story.

fn a_person_writes_to_a_child(
    awareness: &Awareness,
    traffic: &mut impl Iterator<Item = Act>,
) -> Told {
    chapter("1. A manager spawns a child; a person writes to the child by another channel.");
    happens(awareness, traffic)?;
    happens(awareness, traffic)?;
    is_woken(awareness, MANAGER, RESEARCH)?;
    let notice = drains_one_notice(awareness, MANAGER, true)?;
    reconciles(
        awareness,
        MANAGER,
        RESEARCH,
        &notice,
        &["human message via telegram"],
    )?;
    drains_nothing(awareness, MANAGER)
}

fn a_second_change_while_it_drains(
    awareness: &Awareness,
    traffic: &mut impl Iterator<Item = Act>,
) -> Told {
    chapter("2. A second change while the manager drains: exactly one more notice opens.");
    happens(awareness, traffic)?;
    is_woken(awareness, MANAGER, RESEARCH)?;
    let notice = drains_one_notice(awareness, MANAGER, false)?;
    happens(awareness, traffic)?;
    is_not_woken(awareness)?;
    let reply = awareness.ack_notices(AckNotices {
        watcher_session_key: MANAGER.into(),
        notices: vec![AckedNotice {
            target_session_key: RESEARCH.into(),
            target_agent_id: None,
            notified: notice.notified,
        }],
    })?;
    expect(
        "one handled, one more",
        (reply.acknowledged, reply.reopened),
        (1, 1),
    )?;
    say(
        "acknowledged",
        format!("up to {}; one more notice is open", notice.notified),
    );
    is_woken(awareness, MANAGER, RESEARCH)?;
    happens(awareness, traffic)?;
    happens(awareness, traffic)?;
    is_not_woken(awareness)
}

fn the_gateway_restarts(awareness: &Awareness) -> Told {
    chapter("3. The gateway restarts with that notice pending: it is there again, and its wake.");
    say("restart", "the database is closed and opened again");
    is_woken(awareness, MANAGER, RESEARCH)?;
    let notice = drains_one_notice(awareness, MANAGER, true)?;
    let wanted = [
        "human message via telegram",
        "child run completed",
        "child run completed",
    ];
    reconciles(awareness, MANAGER, RESEARCH, &notice, &wanted)?;
    drains_nothing(awareness, MANAGER)
}

fn a_coordinator_watches_a_peer(
    awareness: &Awareness,
    traffic: &mut impl Iterator<Item = Act>,
) -> Told {
    chapter("4. A coordinator watches a peer it did not spawn.");
    happens(awareness, traffic)?;
    watches(awareness, COORDINATOR, PEER, Provenance::Explicit)?;
    happens(awareness, traffic)?;
    is_woken(awareness, COORDINATOR, PEER)?;
    let notice = drains_one_notice(awareness, COORDINATOR, true)?;
    reconciles(
        awareness,
        COORDINATOR,
        PEER,
        &notice,
        &["human message via slack"],
    )?;
    happens(awareness, traffic)?;
    drains_nothing(awareness, COORDINATOR)
}

fn a_group_in_ambient_mode(awareness: &Awareness, traffic: &mut impl Iterator<Item = Act>) -> Told {
    chapter("5. A group in ambient mode: a notice for the next turn, but no wake.");
    happens(awareness, traffic)?;
    happens(awareness, traffic)?;
    watches(awareness, MANAGER, GROUP, Provenance::AmbientGroup)?;
    happens(awareness, traffic)?;
    happens(awareness, traffic)?;
    is_not_woken(awareness)?;
    happens(awareness, traffic)?;
    let notice = drains_one_notice(awareness, MANAGER, true)?;
    let wanted = [
        "child run completed",
        "human message via telegram",
        "child run completed",
    ];
    reconciles(awareness, MANAGER, GROUP, &notice, &wanted)
}

fn a_run_fails_by_timeout(awareness: &Awareness, traffic: &mut impl Iterator<Item = Act>) -> Told {
    chapter("6. A run fails by timeout: no notice tells of it, the next changes do.");
    happens(awareness, traffic)?;
    happens(awareness, traffic)?;
    is_woken(awareness, MANAGER, BUILD)?;
    let notice = drains_one_notice(awareness, MANAGER, true)?;
    reconciles(
        awareness,
        MANAGER,
        BUILD,
        &notice,
        &["human message via telegram"],
    )?;
    happens(awareness, traffic)?;
    happens(awareness, traffic)?;
    is_woken(awareness, MANAGER, BUILD)?;
    let notice = drains_one_notice(awareness, MANAGER, true)?;
    let wanted = ["child run completed", "human message via telegram"];
    reconciles(awareness, MANAGER, BUILD, &notice, &wanted)?;
    happens(awareness, traffic)?;
    is_not_woken(awareness)?;
    drains_nothing(awareness, MANAGER)?;
    happens(awareness, traffic)?;
    happens(awareness, traffic)?;
    is_woken(awareness, MANAGER, BUILD)?;
    let notice = drains_one_notice(awareness, MANAGER, true)?;
    let wanted = [
        "child run timed out",
        "human message via telegram",
        "child run completed",
    ];
    reconciles(awareness, MANAGER, BUILD, &notice, &wanted)
}

fn tell(database: &Path) -> Told {
    let acts: Result<Vec<Act>, _> = include_str!("data/traffic.jsonl")
        .lines()
        .map(serde_json::from_str)
        .collect();
    let mut traffic = acts?.into_iter();
    let database = database.to_str().ok_or("the path is not UTF-8")?;
    println!("One gateway, six moments. Times are those of the data, in UTC.");
    let awareness = Awareness::open(Config::new(database))?;
    a_person_writes_to_a_child(&awareness, &mut traffic)?;
    a_second_change_while_it_drains(&awareness, &mut traffic)?;
    awareness.close()?;
    let awareness = Awareness::open(Config::new(database))?;
    the_gateway_restarts(&awareness)?;
    a_coordinator_watches_a_peer(&awareness, &mut traffic)?;
    a_group_in_ambient_mode(&awareness, &mut traffic)?;
    a_run_fails_by_timeout(&awareness, &mut traffic)?;
    awareness.close()?;
    expect("every act is told", traffic.len(), 0)?;
    println!("\nAll of it happened as told.");
    Ok(())
}

/// A folder that goes with this value.
struct Temporary(PathBuf);

impl Temporary {
    fn new() -> Told<Temporary> {
        let folder = std::env::temp_dir().join(format!("gateway-{}", std::process::id()));
        std::fs::create_dir(&folder)?;
        Ok(Temporary(folder))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn run() -> Told {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.as_slice() {
        [help] if help == "-h" || help == "--help" => Err("usage: gateway [DATABASE]".into()),
        [database] if Path::new(database).exists() => {
            Err(format!("{database} is there already; the story needs a fresh database").into())
        }
        [database] => tell(Path::new(database)),
        [] => tell(&Temporary::new()?.0.join("gateway.db")),
        _ => Err("usage: gateway [DATABASE]".into()),
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
