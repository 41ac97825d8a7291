//! `aware status`.

use serde::Serialize;
use session_awareness::{Awareness, Inspection, Stats, Tally};

use crate::failure::Failure;
use crate::output::{Look, Output, Text};
use crate::text;

/// A read-only handle's own counters say nothing of the gateway's: they are left out.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Status<'a> {
    database: &'a str,
    database_bytes: u64,
    wal_bytes: u64,
    schema_version: &'a str,
    version: &'a str,
    sessions: u64,
    events: u64,
    watches: u64,
    pending: u64,
    links: u64,
    links_in_error: u64,
    handles: &'a [session_awareness::HandleRow],
    runs: &'a [session_awareness::RunMark],
    failed_appends: Tally,
    shed_events: Tally,
}

pub fn run(aware: &Awareness, out: &mut Output) -> Result<(), Failure> {
    let (stats, found) = (aware.stats()?, aware.inspect()?);
    if out.json {
        return out.document(&Status {
            database: &stats.database,
            database_bytes: stats.database_bytes,
            wal_bytes: stats.wal_bytes,
            schema_version: &stats.schema_version,
            version: stats.version,
            sessions: stats.sessions,
            events: stats.events,
            watches: stats.watches,
            pending: stats.pending,
            links: stats.links,
            links_in_error: stats.links_in_error,
            handles: &found.handles,
            runs: &found.run_marks,
            failed_appends: found.failed_appends,
            shed_events: found.shed_events,
        });
    }
    show(&stats, &found, out)
}

fn show(stats: &Stats, found: &Inspection, out: &mut Output) -> Result<(), Failure> {
    let mut line = |name: &str, texts: Vec<Text>| {
        let mut all = vec![Look::Faint.of(format!("{name:<10}"))];
        all.extend(texts);
        out.line(&all)
    };
    let size = format!(
        "  {}, write-ahead log {}, schema {}",
        text::bytes(stats.database_bytes),
        text::bytes(stats.wal_bytes),
        stats.schema_version
    );
    line(
        "database",
        vec![Look::Strong.of(&stats.database), size.into()],
    )?;
    let now = text::now_ms();
    if found.handles.is_empty() {
        line("open by", vec![Look::Warning.of("no gateway")])?;
    }
    for handle in &found.handles {
        let mut told = format!("handle {}", handle.id);
        if let Some(version) = &handle.version {
            told += &format!(", library {version}");
        }
        if handle.opened_at > 0 {
            told += &format!(", for {}", text::age(now - handle.opened_at));
        }
        line("open by", vec![told.into()])?;
    }
    let sessions = format!("{} with a log", text::count(stats.sessions));
    line("sessions", vec![sessions.into()])?;
    line("events", vec![text::count(stats.events).into()])?;
    line("watches", vec![text::count(stats.watches).into()])?;
    let pending = if stats.pending > 0 {
        Look::Warning
    } else {
        Look::Plain
    };
    line("pending", vec![pending.of(text::count(stats.pending))])?;
    let mut links = vec![text::count(stats.links).into()];
    if stats.links_in_error > 0 {
        let broken = text::count(stats.links_in_error);
        links.push(Look::Bad.of(format!("  {broken} in error")));
    }
    line("links", links)?;
    for mark in &found.run_marks {
        let since = if mark.set_at > 0 {
            format!("  for {}", text::age(now - mark.set_at))
        } else {
            String::new()
        };
        line(
            "running",
            vec![Look::Name.of(&mark.session_key), since.into()],
        )?;
    }
    for (name, tally) in [
        ("failed", found.failed_appends),
        ("shed", found.shed_events),
    ] {
        if tally.total > 0 {
            let last = format!("  the last at {}", text::time_if(tally.last_at));
            line(
                name,
                vec![
                    Look::Bad.of(text::counted(tally.total, "event")),
                    last.into(),
                ],
            )?;
        }
    }
    Ok(())
}
