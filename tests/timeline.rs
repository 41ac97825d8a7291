//! The page of `aware timeline`, looked at in a headless Chromium: what it
//! shows, how fast, by keyboard, and what axe-core says of it.
#![cfg(target_os = "linux")]

#[allow(dead_code)]
mod native;

use std::path::{Path, PathBuf};
use std::process::Command;

use native::{leave_out, root, told};
use serde_json::json;
use session_awareness::*;

/// A key that would become an element, a text that would end the data, and one that turns the line.
const HOSTILE: &str = "</script><img src=x onerror=\"document.title='owned'\">\u{202e}gnp";

fn open(path: &Path) -> Awareness {
    let monitor = MonitorConfig {
        enabled: Some(false),
        ..MonitorConfig::default()
    };
    Awareness::open(Config {
        monitor: Some(monitor),
        retention: Some(Retention {
            max_events: Some(100_000),
            ..Retention::default()
        }),
        ..Config::new(path.to_str().unwrap())
    })
    .unwrap()
}

fn now_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.unwrap().as_millis() as i64
}

fn event(key: &str, kind: Kind, actor: ActorType, minutes_ago: f64) -> NewEvent {
    NewEvent {
        occurred_at: Some(now_ms() - (minutes_ago * 60_000.0) as i64),
        ..NewEvent::new(key, kind, actor)
    }
}

fn payload(value: serde_json::Value) -> Option<Payload> {
    value.as_object().cloned()
}

/// A gateway's afternoon: a manager and what it spawned, people who step in, and what is still unseen.
fn small(path: &Path) {
    let aware = open(path);
    let main = "agent:main:main";
    let child = |name: &str| format!("agent:main:subagent:{name}");
    let mut events = Vec::new();
    for (n, name) in ["research", "draft", "review", "figures"]
        .iter()
        .enumerate()
    {
        let start = 170.0 - 31.0 * n as f64;
        events.push(NewEvent {
            actor_id: Some(main.into()),
            watcher_session_keys: Some(vec![main.into()]),
            ..event(&child(name), Kind::ChildSpawned, ActorType::Agent, start)
        });
        for step in 1..=(3 + n) {
            events.push(NewEvent {
                run_id: Some(format!("run-{n}-{step}")),
                ..event(
                    &child(name),
                    Kind::RunCompleted,
                    ActorType::System,
                    start - 6.3 * step as f64,
                )
            });
        }
        if n == 1 {
            events.push(NewEvent {
                payload: payload(json!({"outcome": "timeout"})),
                ..event(
                    &child(name),
                    Kind::RunFailed,
                    ActorType::System,
                    start - 44.0,
                )
            });
        }
    }
    events.push(event(main, Kind::GoalChanged, ActorType::Human, 176.0));
    for minutes in [174.0, 150.5, 121.0, 60.2, 12.0] {
        events.push(NewEvent {
            payload: payload(json!({"channel": "telegram"})),
            ..event(main, Kind::HumanDirectMessage, ActorType::Human, minutes)
        });
    }
    events.push(event(main, Kind::Compacted, ActorType::System, 90.0));
    events.push(event(
        "agent:ops:main",
        Kind::Adopted,
        ActorType::Human,
        140.0,
    ));
    events.push(event(
        "agent:ops:main",
        Kind::UpstreamMissing,
        ActorType::System,
        35.0,
    ));
    events.push(event(
        HOSTILE,
        Kind::HumanDirectMessage,
        ActorType::Human,
        80.0,
    ));
    // A burst: marks that lie on each other.
    for n in 0..37 {
        events.push(event(
            "global",
            Kind::RunCompleted,
            ActorType::System,
            100.0 + 0.02 * f64::from(n),
        ));
    }
    events.push(NewEvent {
        summary: Some("</script><script>document.title='owned'</script>".into()),
        ..event("global", Kind::RunFailed, ActorType::System, 20.0)
    });
    aware.record_batch(events).unwrap();
    for (watcher, target, provenance) in [
        ("agent:ops:main", main, Provenance::Explicit),
        (main, "agent:ops:main", Provenance::Explicit),
        (
            "agent:main:group:standup",
            "global",
            Provenance::AmbientGroup,
        ),
        ("agent:ops:main", HOSTILE, Provenance::Explicit),
    ] {
        let request = Watch {
            provenance: Some(provenance),
            ..Watch::new(watcher, target)
        };
        aware.watch(request).unwrap();
    }
    // What nobody has looked at yet.
    for (key, minutes) in [
        (child("research"), 41.0),
        (child("draft"), 18.5),
        (child("draft"), 9.0),
        ("agent:ops:main".into(), 27.0),
    ] {
        let typed = NewEvent {
            payload: payload(json!({"channel": "codex"})),
            ..event(&key, Kind::HumanDirectMessage, ActorType::Human, minutes)
        };
        aware.record(typed).unwrap();
    }
    aware.close().unwrap();
}

/// 50,000 events of 500 sessions over a day, some of them unseen.
fn large(path: &Path) {
    const SESSIONS: usize = 500;
    const EVENTS: usize = 50_000;
    let aware = open(path);
    let key = |n: usize| match n % 10 {
        0 => format!("agent:team-{}:main", n / 10),
        _ => format!("agent:team-{}:subagent:task-{n:03}", n / 10),
    };
    // A fixed series: the same page each time.
    let mut seed = 7_u64;
    let mut random = move || {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as f64 / f64::from(1_u32 << 31)
    };
    for n in (0..SESSIONS).filter(|n| n % 10 != 0) {
        aware.watch(Watch::new(key(n - n % 10), key(n))).unwrap();
    }
    let kinds = [
        (Kind::RunCompleted, 0.62),
        (Kind::HumanDirectMessage, 0.72),
        (Kind::ChildSpawned, 0.8),
        (Kind::Compacted, 0.88),
        (Kind::RunFailed, 0.94),
        (Kind::GoalChanged, 0.98),
        (Kind::Adopted, 1.1),
    ];
    for batch in 0..EVENTS / 1_000 {
        let events = (0..1_000).map(|n| {
            // Each has an event; the first ones are the busy ones.
            let session = match batch * 1_000 + n {
                each if each < SESSIONS => each,
                _ => ((random() * random() * SESSIONS as f64) as usize).min(SESSIONS - 1),
            };
            let pick = random();
            let kind = kinds.iter().find(|(_, below)| pick < *below).unwrap().0;
            let share = (batch * 1_000 + n) as f64 / EVENTS as f64;
            let minutes = 23.5 * 60.0 * (1.0 - share) + 8.0 * random();
            event(&key(session), kind, ActorType::System, minutes)
        });
        aware.record_batch(events.collect()).unwrap();
        if batch < EVENTS / 1_000 - 2 {
            for n in (0..SESSIONS).step_by(10) {
                aware.drain_notices(DrainNotices::new(key(n))).unwrap();
            }
        }
    }
    aware.close().unwrap();
}

fn page(database: &Path, out: &Path) {
    let output = Command::new(env!("CARGO_BIN_EXE_aware"))
        .args(["timeline", "--database"])
        .arg(database)
        .arg("--out")
        .arg(out)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", told(&output));
}

fn chromium() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .flat_map(|folder| {
            ["chromium", "chromium-browser", "google-chrome"].map(|name| folder.join(name))
        })
        .find(|program| program.is_file())
}

#[test]
fn the_page_shows_a_gateway_in_a_browser() {
    let Some(chromium) = chromium() else {
        return leave_out("the timeline in a browser", "chromium is not here");
    };
    let tools = root().join("tests/timeline/node_modules/playwright-core");
    if !tools.is_dir() {
        return leave_out(
            "the timeline in a browser",
            "`make test` fetches what it needs",
        );
    }
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    small(&at("small.db"));
    large(&at("large.db"));
    open(&at("empty.db")).close().unwrap();
    for name in ["small", "large", "empty"] {
        page(&at(&format!("{name}.db")), &at(&format!("{name}.html")));
    }
    // To look at what the browser saw: TIMELINE_KEEP=folder.
    let keep = std::env::var_os("TIMELINE_KEEP").map(PathBuf::from);
    if let Some(keep) = &keep {
        for name in ["small", "large", "empty"] {
            std::fs::copy(
                at(&format!("{name}.html")),
                keep.join(format!("{name}.html")),
            )
            .unwrap();
        }
    }
    let output = Command::new("node")
        .arg(root().join("tests/timeline/check.mjs"))
        .arg(folder.path())
        .arg(chromium)
        .arg(keep.unwrap_or_else(|| folder.path().to_owned()))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", told(&output));
    println!("{}", told(&output));
}
