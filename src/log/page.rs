//! Pages of the log, each from one snapshot.

use rusqlite::Connection;

use super::page_size;
use crate::contract::{
    ChangesReply, ChangesSince, Error, EventsReply, EventsRequest, Result, SessionsReply,
    SessionsRequest, StateChanges, StateVersion, StateVersions, StateVersionsReply,
};
use crate::key::{self, Session};
use crate::store::events;

const PAGE: usize = 200;
const MOST_ROWS: usize = 1_000;

pub(crate) fn changes_since(
    request: &ChangesSince,
) -> Result<impl FnOnce(&Connection) -> Result<ChangesReply> + use<>> {
    let session = Session::of(&request.session_key, request.agent_id.as_deref())?;
    let most = page_size(request.limit, PAGE, PAGE)?;
    let since = request.changes_since;
    Ok(move |conn: &Connection| {
        let head = events::head(conn, &session)?;
        let mut changes = events::of_session(conn, &session, since, most + 1)?;
        let truncated = changes.len() > most;
        changes.truncate(most);
        let next = match changes.last() {
            Some(last) if truncated => last.sequence,
            _ => head.last,
        };
        Ok(ChangesReply {
            state_version: head.last,
            state_changes: StateChanges {
                history_gap: since < head.pruned,
                truncated,
                next_changes_since: next,
                future_cursor: since > head.last,
                events: changes,
            },
        })
    })
}

pub(crate) fn state_versions(
    request: &StateVersions,
) -> Result<impl FnOnce(&Connection) -> Result<StateVersionsReply> + use<>> {
    if request.sessions.len() > MOST_ROWS {
        return Err(Error::invalid("sessions", "at most 1,000 sessions"));
    }
    let sessions = request
        .sessions
        .iter()
        .enumerate()
        .map(|(at, session)| {
            Session::of(&session.session_key, session.agent_id.as_deref())
                .map_err(|error| error.within(&format!("sessions[{at}]")))
        })
        .collect::<Result<Vec<_>>>()?;
    Ok(move |conn: &Connection| {
        let versions = sessions
            .into_iter()
            .map(|session| {
                Ok(StateVersion {
                    state_version: events::head(conn, &session)?.last,
                    session_key: session.key,
                    agent_id: session.agent,
                })
            })
            .collect::<Result<_>>()?;
        Ok(StateVersionsReply { versions })
    })
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
