//! The verbs of upstream sessions.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use super::outcome;
use super::pass::{self, Continuations, LOCAL, Purpose};
use super::room::Room;
use super::settle::{self, Settle, Settled};
use super::source::{OpenError, Source};
use super::{agent, file_agent, find, opencode, stores};
use crate::contract::{
    ActorType, Adopt, Adopted, Baseline, Catalog, Code, Error, Event, Feed, Kind, Link, LinkFault,
    LinksReply, LinksRequest, Outcome, OutcomeKind, OwnMessage, Recorded, Released, Remembered,
    Result, RunActive, Scan, Scanned, SessionRef, SetRunActive,
};
use crate::key::{MAX_ID_BYTES, Session};
use crate::log::page_size;
use crate::store::links::{self, LinkRow, NewLink, Progress};
use crate::store::{Tx, events};
use crate::sync::Arc;

const MOST_LINKS: usize = 1_000;
const SOURCE_BYTES: usize = 4_096;
/// So many of the host's own messages are kept a session.
const OWN_MESSAGES: u32 = 10;

/// A source that was found.
struct Located {
    thread: String,
    path: Option<PathBuf>,
    /// Where it ends now, in a file.
    end: u64,
    legacy: bool,
}

pub(crate) fn adopt(room: &Room, request: Adopt) -> Result<Adopted> {
    let session = Session::of(&request.session_key, request.agent_id.as_deref())?;
    for (field, id, most) in [
        ("threadId", &request.thread_id, MAX_ID_BYTES),
        ("hostId", &request.host_id, MAX_ID_BYTES),
        ("source", &request.source, SOURCE_BYTES),
    ] {
        match id {
            Some(id) if id.is_empty() || id.len() > most => {
                return Err(Error::invalid(field, format!("1 to {most} bytes")));
            }
            Some(id) if id.contains('\0') => return Err(Error::invalid(field, "no NUL")),
            _ => {}
        }
    }
    let host = request.host_id.as_deref().unwrap_or(LOCAL).to_owned();
    let located = if host == LOCAL {
        match followed(room, &session, &request)? {
            Some(located) => located,
            None => locate(room, &request)?,
        }
    } else {
        let thread = request.thread_id.clone();
        Located {
            thread: thread.ok_or_else(|| {
                Error::invalid("threadId", "required for a session of another host")
            })?,
            path: None,
            end: 0,
            legacy: false,
        }
    };
    if located.legacy {
        let event = room
            .store
            .write(move |tx| record_adopted(tx, &session, request.catalog))?;
        return Ok(Adopted {
            adopted: true,
            linked: false,
            reason: Some("legacy_format"),
            link: None,
            event,
        });
    }
    if located
        .path
        .as_ref()
        .is_some_and(|path| path.to_str().is_none())
    {
        return Err(Error::invalid("source", "a path that is UTF-8"));
    }
    let baseline_now = request.baseline.unwrap_or_default() == Baseline::Now;
    let catalog = request.catalog;
    let (link, event) = room.store.write(move |tx| {
        if let Some(link) = links::of_session(tx.conn()?, &session)?
            && (link.catalog, &link.thread, &link.source, &link.host)
                == (catalog, &located.thread, &located.path, &host)
        {
            links::set_misses(tx, link.id, 0, 0)?;
            let event = first_event(tx, &link)?;
            return Ok((LinkRow { misses: 0, ..link }, event));
        }
        let event = record_adopted(tx, &session, catalog)?;
        links::adopt(
            tx,
            &NewLink {
                session: &session,
                catalog,
                thread: &located.thread,
                source: located.path.as_ref().and_then(|path| path.to_str()),
                host: &host,
                adopted_event: event.sequence,
                baseline_now,
                baseline_end: baseline_now.then_some(located.end),
            },
        )?;
        let link = links::of_session(tx.conn()?, &session)?;
        Ok((
            link.ok_or_else(|| Error::storage("the link was not stored"))?,
            event,
        ))
    })?;
    if link.host == LOCAL && link.baseline_end.is_some() {
        pass_over(room, vec![link.clone()], Purpose::Baseline)?;
    }
    room.link_changed(link.catalog, link.id);
    Ok(Adopted {
        adopted: true,
        linked: true,
        reason: None,
        link: Some(told(link, None)),
        event,
    })
}

fn record_adopted(tx: &Tx<'_>, session: &Session, catalog: Catalog) -> Result<Event> {
    match settle::tell(
        tx,
        session,
        Kind::Adopted,
        ActorType::Human,
        catalog,
        None,
        None,
        false,
    )? {
        Recorded::Stored { event, .. } => Ok(event),
        Recorded::Not { .. } => Err(Error::storage("the adoption was not recorded")),
    }
}

/// The event of the link's adoption; made up from the link when it was pruned.
fn first_event(tx: &Tx<'_>, link: &LinkRow) -> Result<Event> {
    if let Some(event) = events::of_sequence(tx.conn()?, link.adopted_event)? {
        return Ok(event);
    }
    let catalog = link.catalog.as_str();
    Ok(Event {
        sequence: link.adopted_event,
        session_key: Some(link.session.key.clone()),
        agent_id: Some(link.session.agent.clone()),
        session_id: None,
        kind: Kind::Adopted,
        actor_type: ActorType::Human,
        actor_id: None,
        run_id: None,
        occurred_at: link.adopted_at,
        summary: format!("adopted from {catalog}"),
        payload: crate::contract::PublicPayload::from_json(format!(r#"{{"channel":"{catalog}"}}"#)),
    })
}

/// The source of a link that was adopted from the path the request names, and
/// whose session has gone on elsewhere since: it is the same one.
fn followed(room: &Room, session: &Session, request: &Adopt) -> Result<Option<Located>> {
    let named = request.source.as_deref().map(absolute).transpose()?;
    let link = room.store.read(|conn| links::of_session(conn, session))?;
    let is_it = |link: &LinkRow| {
        link.catalog == request.catalog
            && link.host == LOCAL
            && named.is_some()
            && link.adopted_source == named
            && link.source != named
            && request
                .thread_id
                .as_ref()
                .is_none_or(|thread| *thread == link.thread)
            && link.source.as_ref().is_some_and(|path| path.is_file())
    };
    Ok(link.filter(is_it).map(|link| Located {
        thread: link.thread,
        path: link.source,
        end: 0,
        legacy: false,
    }))
}

/// Finds the source of an adoption on this machine.
fn locate(room: &Room, request: &Adopt) -> Result<Located> {
    let source = request.source.as_deref().map(absolute).transpose()?;
    let thread = request.thread_id.clone();
    if request.catalog == Catalog::Opencode {
        let thread = thread.ok_or_else(|| {
            Error::invalid(
                "threadId",
                "required for OpenCode, whose stores hold many sessions",
            )
        })?;
        let path = match source {
            Some(path) => {
                let held = opencode::Store::new(&path)
                    .holds(&thread)
                    .map_err(unreadable_store)?;
                held.then_some(path)
            }
            None => room
                .opencode_home()
                .map_or(Ok(None), |home| opencode::find(&home, &thread))
                .map_err(unreadable_store)?,
        };
        let path =
            path.ok_or_else(|| not_found("threadId", "no such session in OpenCode's store"))?;
        return Ok(Located {
            thread,
            path: Some(path),
            end: 0,
            legacy: false,
        });
    }
    let agent = file_agent(request.catalog)?;
    let path = match (source, &thread) {
        (Some(path), _) => path,
        (None, Some(thread)) => find::live(agent, &room.folders(agent, request.catalog), thread)
            .ok_or_else(|| not_found("threadId", "no such session in the agent's own store"))?,
        (None, None) => {
            return Err(Error::invalid(
                "source",
                "the session's file, or a threadId to look it up by",
            ));
        }
    };
    let end = Source::open(&path).map_err(unopened)?.end();
    let head = agent::head(agent, &path).map_err(unopened)?;
    let named = || agent.named(&path).map(|named| named.thread);
    let stem = || {
        path.file_stem()
            .map(|stem| stem.to_string_lossy().into_owned())
    };
    Ok(Located {
        thread: thread
            .or(head.thread)
            .or_else(named)
            .or_else(stem)
            .unwrap_or_default(),
        path: Some(path),
        end,
        legacy: head.legacy,
    })
}

fn absolute(source: &str) -> Result<PathBuf> {
    std::path::absolute(Path::new(source)).map_err(|problem| {
        Error::invalid("source", format!("the path cannot be resolved: {problem}"))
    })
}

fn not_found(field: &str, message: &str) -> Error {
    Error {
        field: Some(field.to_owned()),
        ..Error::new(Code::NotFound, message)
    }
}

fn unopened(error: OpenError) -> Error {
    match error {
        OpenError::Missing => not_found("source", "there is no file at this path"),
        error => Error {
            field: Some("source".to_owned()),
            ..Error::storage(error.to_string())
        },
    }
}

fn unreadable_store(error: opencode::Error) -> Error {
    match error {
        opencode::Error::Missing => {
            not_found("source", "there is no store of OpenCode at this path")
        }
        error => Error {
            field: Some("source".to_owned()),
            ..Error::storage(error.to_string())
        },
    }
}

pub(crate) fn release(room: &Room, request: &SessionRef) -> Result<Released> {
    let session = Session::of(&request.session_key, request.agent_id.as_deref())?;
    let released = room.store.write(move |tx| {
        let link = links::of_session(tx.conn()?, &session)?;
        links::release(tx, &session)?;
        Ok(link.map(|link| (link.catalog, link.id)))
    })?;
    if let Some((catalog, id)) = released {
        room.link_changed(catalog, id);
    }
    Ok(Released {
        released: released.is_some(),
    })
}

pub(crate) fn list(room: &Room, request: &LinksRequest) -> Result<LinksReply> {
    let most = page_size(request.limit, MOST_LINKS, MOST_LINKS)?;
    let offset = request.offset.unwrap_or(0);
    let (mut rows, mut faults) = room
        .store
        .read(|conn| Ok((links::page(conn, most + 1, offset)?, links::faults(conn)?)))?;
    let more = rows.len() > most;
    rows.truncate(most);
    let links = rows.into_iter().map(|link| {
        let fault = faults.remove(&link.id);
        told(link, fault)
    });
    Ok(LinksReply {
        links: links.collect(),
        more,
    })
}

fn told(link: LinkRow, fault: Option<LinkFault>) -> Link {
    Link {
        session_key: link.session.key,
        agent_id: link.session.agent,
        catalog: link.catalog,
        thread_id: link.thread,
        source: link.source.map(|path| path.to_string_lossy().into_owned()),
        host_id: link.host,
        adopted_at: link.adopted_at,
        missing: link.misses,
        fault,
    }
}

pub(crate) fn scan(room: &Room, request: &Scan) -> Result<Scanned> {
    if let Some(key) = &request.session_key {
        // Its agent is not told: any will do, the key itself must be one.
        Session::of(key, None)?;
    }
    let key = request.session_key.as_deref();
    let (links, runs, faulty) = room.store.read(|conn| {
        let links = links::local(conn, request.catalog, key)?;
        let mut faulty = HashSet::new();
        for catalog in Catalog::ALL {
            faulty.extend(links::faulty(conn, catalog)?);
        }
        Ok((links, links::all_runs(conn)?, faulty))
    })?;
    let marked: HashSet<Session> = runs.into_iter().map(|(session, _)| session).collect();
    let mut on = Continuations::default();
    let mut outcomes = Vec::with_capacity(links.len());
    let mut others = Vec::new();
    for link in links {
        // Most files are as they were. Of what could not be read it is to be noted that it can.
        let unmarked = Some(&link)
            .filter(|link| !marked.contains(&link.session) && !faulty.contains(&link.id));
        match unmarked.and_then(|link| pass::unchanged(link, &mut on)) {
            Some(unchanged) => outcomes.push(unchanged),
            None => others.push(link.id),
        }
    }
    if !others.is_empty() {
        let rows = room.store.read(|conn| links::of_ids(conn, &others))?;
        outcomes.extend(pass_over(room, rows, Purpose::Scan)?);
    }
    outcomes.sort_by(|one, other| {
        (&one.session_key, &one.agent_id).cmp(&(&other.session_key, &other.agent_id))
    });
    Ok(Scanned { outcomes })
}

/// One pass over each of the links.
fn pass_over(room: &Room, rows: Vec<LinkRow>, purpose: Purpose) -> Result<Vec<Outcome>> {
    let mut outcomes = Vec::with_capacity(rows.len());
    let mut stores: Vec<(PathBuf, Vec<LinkRow>)> = Vec::new();
    let mut on = Continuations::default();
    for row in rows {
        if row.catalog != Catalog::Opencode {
            outcomes.push(pass::whole_file(
                room,
                file_agent(row.catalog)?,
                row,
                purpose,
                &mut on,
            )?);
            continue;
        }
        let source = row.source.clone().unwrap_or_default();
        match stores.iter_mut().find(|(path, _)| *path == source) {
            Some((_, of_store)) => of_store.push(row),
            None => stores.push((source, vec![row])),
        }
    }
    for (source, rows) in stores {
        let mut store = room.store_of(&source);
        stores::whole_store(room, &mut store, rows, purpose, |_, outcome| {
            outcomes.push(outcome)
        })?;
        room.keep_store(source, store);
    }
    outcomes.iter().for_each(|outcome| room.note(outcome));
    Ok(outcomes)
}

pub(crate) fn set_run_active(room: &Room, request: &SetRunActive) -> Result<RunActive> {
    let session = Session::of(&request.session_key, request.agent_id.as_deref())?;
    let active = request.active;
    let (wakes, marked) = (Arc::clone(&room.wakes), session.clone());
    room.store
        .write(move |tx| wakes.set_run(tx, &marked, active))?;
    // Another handle may run it still.
    let active = pass::is_running(room, &session)?;
    if !active {
        // What came while the host ran it is looked for at once.
        let link = room.store.look(|conn| links::of_session(conn, &session))?;
        if let Some(link) = link {
            room.link_changed(link.catalog, link.id);
        }
    }
    Ok(RunActive { active })
}

pub(crate) fn own_message(room: &Room, request: &OwnMessage) -> Result<Remembered> {
    let session = Session::of(&request.session_key, request.agent_id.as_deref())?;
    let print = *room.secret()?.print(&request.text).as_bytes();
    room.store
        .write(move |tx| links::add_own_message(tx, &session, &print, OWN_MESSAGES))?;
    Ok(Remembered { remembered: true })
}

pub(crate) fn feed(room: &Room, request: &Feed) -> Result<Outcome> {
    let session = Session::of(&request.session_key, request.agent_id.as_deref())?;
    let missing = request.missing.unwrap_or(false);
    if request.rows.is_some() == missing {
        return Err(Error::invalid("rows", "either rows or missing:true"));
    }
    for _ in 0..8 {
        let link = room
            .store
            .read(|conn| links::of_session(conn, &session))?
            .ok_or_else(|| not_found("sessionKey", "the session has no link"))?;
        if link.host == LOCAL {
            return Err(Error::invalid(
                "sessionKey",
                "the link's source is on this machine, and read by the library itself",
            ));
        }
        if pass::is_running(room, &session)? {
            return Ok(outcome::outcome(
                &link,
                OutcomeKind::Deferred,
                outcome::Counts::default(),
            ));
        }
        if missing {
            match settle::miss::<()>(room, &link, Purpose::Scan)? {
                pass::Step::Done(outcome) => return Ok(outcome),
                _ => continue,
            }
        }
        let settle = judge_rows(room, &link, request)?;
        let moved = settle.progress.state != link.progress.state;
        match settle::settle(room, &link, settle)? {
            Settled::Stored(counts, _) => {
                let kind = if moved || counts.any() {
                    OutcomeKind::Activity
                } else {
                    OutcomeKind::Unchanged
                };
                return Ok(outcome::outcome(&link, kind, counts));
            }
            Settled::Deferred => {
                return Ok(outcome::outcome(
                    &link,
                    OutcomeKind::Deferred,
                    outcome::Counts::default(),
                ));
            }
            Settled::Stale => {}
        }
    }
    Err(Error::new(
        Code::Busy,
        "other calls changed the link all the while",
    ))
}

/// Judges rows that the host read elsewhere.
fn judge_rows(room: &Room, link: &LinkRow, request: &Feed) -> Result<Settle> {
    let secret = &room.secret()?;
    let rows = request
        .rows
        .iter()
        .flatten()
        .map(|row| row.get().as_bytes());
    let (acts, state) = if link.catalog == Catalog::Opencode {
        let position = stores::position_of(link);
        let reading = opencode::feed(&link.thread, &position, rows, secret);
        (reading.acts, serde_json::to_string(&reading.position).ok())
    } else {
        let agent = file_agent(link.catalog)?;
        let case = agent::Case {
            secret,
            thread: &link.thread,
            path: None,
        };
        let saved = link.progress.state.as_deref();
        let judge = agent.judge(case, saved).or_else(|| agent.judge(case, None));
        let mut judge = judge.ok_or_else(|| Error::storage("the rows cannot be judged"))?;
        judge.renew();
        let acts = rows
            .filter_map(|row| agent::feed(row, secret, judge.as_mut()))
            .collect();
        (acts, Some(judge.save()))
    };
    Ok(Settle {
        room_wants: state != link.progress.state || link.misses > 0,
        acts,
        skip: link.skip_before(),
        baseline_end: link.baseline_end,
        source: None,
        source_id: settle::source_id(secret, link, None),
        secret: secret.clone(),
        progress: Progress {
            state,
            ..Progress::default()
        },
    })
}
