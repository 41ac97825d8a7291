//! `aware follow`.

use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use session_awareness::{Awareness, Event, EventsRequest};

use crate::args::FollowOptions;
use crate::database;
use crate::failure::Failure;
use crate::output::{Look, Output};
use crate::text;
use crate::views::{actor, kind, session_name};

/// How long an event may go unseen. A look is one read by the log's own order,
/// some 20 µs, and takes no lock that a writer waits for; watching the log's
/// file by the system's events would wake this at every commit instead.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// How long a gateway may take to make a database anew.
const MAKING: Duration = Duration::from_secs(5);

pub fn run(
    aware: &Awareness,
    path: &str,
    options: &FollowOptions,
    out: &mut Output,
) -> Result<(), Failure> {
    let mut after = match options.since {
        Some(since) => since,
        None => database::newest(aware)?,
    };
    // A key that cannot be one is told at once.
    aware.events(EventsRequest {
        session_key: options.key.clone(),
        agent_id: options.agent.clone(),
        limit: Some(1),
        ..EventsRequest::default()
    })?;
    let mut file = identity(path);
    let mut changed: Option<Instant> = None;
    loop {
        // A file of another making counts from its own start.
        let now = identity(path);
        if now.is_some() && now != file {
            (file, after, changed) = (now, 0, Some(Instant::now()));
        }
        let page = match aware.events(EventsRequest {
            after: Some(after),
            limit: Some(1_000),
            ..EventsRequest::default()
        }) {
            // There will be a file again, and soon its tables.
            Err(_) if now.is_none() || changed.is_some_and(|at| at.elapsed() < MAKING) => {
                std::thread::sleep(LOOK_EVERY);
                continue;
            }
            page => page?,
        };
        for event in &page.events {
            after = event.sequence;
            if !wanted(event, options) {
                continue;
            }
            if out.json {
                out.line_document(event)?;
                continue;
            }
            let mut shown_kind = kind(event.kind);
            shown_kind.0 = format!("{:<21}", shown_kind.0);
            out.line(&[
                Look::Faint.of(text::time(event.occurred_at)),
                Look::Strong.of(format!(" {:>7} ", event.sequence)),
                shown_kind,
                Look::Name.of(session_name(event)),
                "  ".into(),
                (&event.summary).into(),
                Look::Faint.of("  by "),
                actor(event),
            ])?;
        }
        out.flush()?;
        if !page.more {
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

/// Chosen here rather than by the library, so that what is not wanted is read once.
fn wanted(event: &Event, options: &FollowOptions) -> bool {
    let agent = match (&options.key, &options.agent) {
        (Some(key), None) if !key.starts_with("agent:") => Some("main"),
        (_, agent) => agent.as_deref(),
    };
    (options.kind.is_empty() || options.kind.contains(&event.kind))
        && (options.key.is_none() || options.key == event.session_key)
        && (agent.is_none() || agent == event.agent_id.as_deref())
}

/// Which file is at the path.
fn identity(path: &str) -> Option<(u64, u64)> {
    let found = std::fs::metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}
