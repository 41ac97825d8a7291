//! Pages of the log, each from one snapshot.

use rusqlite::Connection;

use super::page_size;
use crate::contract::text::{self, EventView};
use crate::contract::{
    ChangesReply, ChangesSince, Error, EventsReply, EventsRequest, Result, SessionsReply,
    SessionsRequest, StateChanges, StateVersion, StateVersions, StateVersionsReply,
};
use crate::key::{self, Session};
use crate::store::events::{self, Head};

const PAGE: usize = 200;
const MOST_ROWS: usize = 1_000;

/// A checked `changes_since`.
pub(crate) struct Changes {
    session: Session,
    since: u64,
    most: usize,
}

/// What a page of changes is, but for its events.
struct Page {
    head: Head,
    truncated: bool,
    next: u64,
}

pub(crate) fn changes_since(request: &ChangesSince) -> Result<Changes> {
    Ok(Changes {
        session: Session::of(&request.session_key, request.agent_id.as_deref())?,
        most: page_size(request.limit, PAGE, PAGE)?,
        since: request.changes_since,
    })
}

impl Changes {
    fn page(&self, conn: &Connection, mut show: impl FnMut(EventView<'_>)) -> Result<Page> {
        let head = events::head(conn, &self.session)?;
        let (mut shown, mut last, mut truncated) = (0, 0, false);
        events::of_session(conn, &self.session, self.since, self.most + 1, |event| {
            truncated = shown == self.most;
            if !truncated {
                shown += 1;
                last = event.sequence;
                show(event);
            }
        })?;
        Ok(Page {
            head,
            truncated,
            next: if truncated { last } else { head.last },
        })
    }

    pub(crate) fn read(&self, conn: &Connection) -> Result<ChangesReply> {
        let mut events = Vec::new();
        let page = self.page(conn, |event| events.push(event.into()))?;
        Ok(ChangesReply {
            state_version: page.head.last,
            state_changes: StateChanges {
                events,
                history_gap: self.since < page.head.pruned,
                truncated: page.truncated,
                next_changes_since: page.next,
                future_cursor: self.since > page.head.last,
            },
        })
    }

    /// As [`Changes::read`], to JSON text: the rows are copied straight into it.
    pub(crate) fn write(&self, conn: &Connection, out: &mut Vec<u8>) -> Result<()> {
        let mut events = Vec::with_capacity(4_096);
        let page = self.page(conn, |event| {
            if !events.is_empty() {
                events.push(b',');
            }
            event.write(&mut events);
        })?;
        text::raw(out, r#"{"stateVersion":"#);
        text::number(out, page.head.last);
        text::raw(out, r#","stateChanges":{"events":["#);
        out.append(&mut events);
        text::raw(out, r#"],"historyGap":"#);
        text::flag(out, self.since < page.head.pruned);
        text::raw(out, r#","truncated":"#);
        text::flag(out, page.truncated);
        text::raw(out, r#","nextChangesSince":"#);
        text::number(out, page.next);
        if self.since > page.head.last {
            text::raw(out, r#","futureCursor":true"#);
        }
        text::raw(out, "}}");
        Ok(())
    }
}

/// The agent and key of each session asked for.
pub(crate) fn asked(request: &StateVersions) -> Result<Vec<(&str, &str)>> {
    if request.sessions.len() > MOST_ROWS {
        return Err(Error::invalid("sessions", "at most 1,000 sessions"));
    }
    let mut asked = Vec::with_capacity(request.sessions.len());
    for (at, session) in request.sessions.iter().enumerate() {
        let key = session.session_key.as_str();
        let agent = key::agent_for(key, session.agent_id.as_deref(), "sessionKey", "agentId")
            .map_err(|error| error.within(&format!("sessions[{at}]")))?;
        asked.push((agent, key));
    }
    Ok(asked)
}

pub(crate) fn state_versions(
    conn: &Connection,
    asked: &[(&str, &str)],
) -> Result<StateVersionsReply> {
    let mut versions = Vec::with_capacity(asked.len());
    events::versions(conn, asked.iter().copied(), |agent, key, version| {
        versions.push(StateVersion {
            state_version: version,
            session_key: key.to_owned(),
            agent_id: agent.to_owned(),
        });
    })?;
    Ok(StateVersionsReply { versions })
}

/// As [`state_versions`], to JSON text.
pub(crate) fn write_state_versions(
    conn: &Connection,
    asked: &[(&str, &str)],
    out: &mut Vec<u8>,
) -> Result<()> {
    text::raw(out, r#"{"versions":["#);
    let mut first = true;
    events::versions(conn, asked.iter().copied(), |agent, key, version| {
        text::raw(
            out,
            if first {
                r#"{"sessionKey":"#
            } else {
                r#",{"sessionKey":"#
            },
        );
        first = false;
        text::string(out, key);
        text::raw(out, r#","agentId":""#);
        text::raw(out, agent);
        text::raw(out, r#"","stateVersion":"#);
        text::number(out, version);
        text::raw(out, "}");
    })?;
    text::raw(out, "]}");
    Ok(())
}

pub(crate) fn sessions(
    request: &SessionsRequest,
) -> Result<impl FnOnce(&Connection) -> Result<SessionsReply> + use<>> {
    let most = page_size(request.limit, PAGE, MOST_ROWS)?;
    let after = request
        .after
        .as_ref()
        .map(|after| {
            Session::of(&after.session_key, Some(&after.agent_id))
                .map_err(|error| error.within("after"))
        })
        .transpose()?;
    Ok(move |conn: &Connection| {
        let after = after
            .as_ref()
            .map(|after| (after.agent.as_str(), after.key.as_str()));
        let mut sessions = events::heads(conn, after, most + 1)?;
        let more = sessions.len() > most;
        sessions.truncate(most);
        Ok(SessionsReply { sessions, more })
    })
}

pub(crate) fn events(
    request: EventsRequest,
) -> Result<impl FnOnce(&Connection) -> Result<EventsReply>> {
    let most = page_size(request.limit, PAGE, MOST_ROWS)?;
    let (key, agent) = match (request.session_key, request.agent_id) {
        (Some(key), agent) => {
            let session = Session::of(&key, agent.as_deref())?;
            (Some(session.key), Some(session.agent))
        }
        (None, Some(agent)) if !key::is_agent_id(&agent) => {
            return Err(Error::invalid("agentId", "not an agent id"));
        }
        (None, agent) => (None, agent),
    };
    let after = request.after.unwrap_or(0);
    let kinds = request.kinds.unwrap_or_default();
    Ok(move |conn: &Connection| {
        let filter = events::Filter {
            after,
            key: key.as_deref(),
            agent: agent.as_deref(),
            kinds: &kinds,
        };
        let mut events = events::filtered(conn, &filter, most + 1)?;
        let more = events.len() > most;
        events.truncate(most);
        Ok(EventsReply { events, more })
    })
}
