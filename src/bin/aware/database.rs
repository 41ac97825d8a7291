//! Reading the database: a read-only handle, and lists that come in pages.

use session_awareness::{
    Awareness, Config, Event, EventsRequest, Link, LinksRequest, MonitorConfig, Result, Roots,
    SessionRow, SessionsAfter, SessionsRequest, WatchRow, Watches,
};

const PAGE: u64 = 1_000;

/// Opens the database beside its gateway. The handle has no threads.
pub fn open(path: &str, roots: Option<Roots>) -> Result<Awareness> {
    Awareness::open(Config {
        read_only: Some(true),
        monitor: Some(MonitorConfig {
            enabled: Some(false),
            roots,
            ..MonitorConfig::default()
        }),
        ..Config::new(path)
    })
}

/// Every event that `request` asks for, handed on page by page.
pub fn events(
    aware: &Awareness,
    request: EventsRequest,
    mut each: impl FnMut(Vec<Event>),
) -> Result<()> {
    let mut after = request.after.unwrap_or(0);
    loop {
        let page = aware.events(EventsRequest {
            after: Some(after),
            limit: Some(PAGE),
            ..request.clone()
        })?;
        let Some(last) = page.events.last() else {
            return Ok(());
        };
        after = last.sequence;
        each(page.events);
        if !page.more {
            return Ok(());
        }
    }
}

/// Every session that has a log.
pub fn sessions(aware: &Awareness) -> Result<Vec<SessionRow>> {
    let mut all: Vec<SessionRow> = Vec::new();
    loop {
        let page = aware.sessions(SessionsRequest {
            after: all.last().map(|last| SessionsAfter {
                agent_id: last.agent_id.clone(),
                session_key: last.session_key.clone(),
            }),
            limit: Some(PAGE),
        })?;
        all.extend(page.sessions);
        if !page.more {
            return Ok(all);
        }
    }
}

/// Every watch that `request` asks for.
pub fn watches(aware: &Awareness, request: &Watches) -> Result<Vec<WatchRow>> {
    let mut all = Vec::new();
    loop {
        let page = aware.watches(Watches {
            offset: Some(all.len() as u64),
            limit: Some(PAGE),
            ..request.clone()
        })?;
        all.extend(page.watches);
        if !page.more {
            return Ok(all);
        }
    }
}

/// Every link.
pub fn links(aware: &Awareness) -> Result<Vec<Link>> {
    let mut all = Vec::new();
    loop {
        let page = aware.links(LinksRequest {
            offset: Some(all.len() as u64),
            limit: Some(PAGE),
        })?;
        all.extend(page.links);
        if !page.more {
            return Ok(all);
        }
    }
}

/// The newest sequence of the log, pruned or not.
pub fn newest(aware: &Awareness) -> Result<u64> {
    let sessions = sessions(aware)?;
    Ok(sessions
        .iter()
        .map(|row| row.state_version)
        .max()
        .unwrap_or(0))
}
