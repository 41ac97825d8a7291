//! The sessions in the agents' own stores.

use std::cmp::Reverse;

use super::room::Room;
use super::{file_agent, find, opencode};
use crate::contract::{Catalog, Discover, Discovered, MAX_NUMBER, Result, UpstreamSession};
use crate::log::page_size;
use crate::store::links;

const PAGE: usize = 100;
const MOST_SESSIONS: usize = 1_000;

pub(crate) fn discover(room: &Room, request: &Discover) -> Result<Discovered> {
    let most = page_size(request.limit, PAGE, MOST_SESSIONS)?;
    let offset = usize::try_from(request.offset.unwrap_or(0)).unwrap_or(usize::MAX);
    let wanted = offset.saturating_add(most).saturating_add(1);
    let catalogs = match request.catalog {
        Some(catalog) => vec![catalog],
        None => Catalog::ALL.to_vec(),
    };
    let mut sessions = Vec::new();
    for catalog in catalogs {
        sessions.extend(newest(room, catalog, wanted)?);
    }
    sessions.sort_by_key(|session| (Reverse(session.updated_at), session.thread_id.clone()));
    let mut page: Vec<UpstreamSession> = sessions.into_iter().skip(offset).take(most + 1).collect();
    let more = page.len() > most;
    page.truncate(most);
    room.store.read(|conn| {
        page.iter_mut().try_for_each(|session| {
            session.adopted = links::is_adopted(conn, session.catalog, &session.thread_id)?;
            Ok(())
        })
    })?;
    Ok(Discovered {
        sessions: page,
        more,
    })
}

/// The newest sessions of one agent.
fn newest(room: &Room, catalog: Catalog, most: usize) -> Result<Vec<UpstreamSession>> {
    let session = |thread_id, source: std::path::PathBuf, cwd, updated_at| UpstreamSession {
        catalog,
        thread_id,
        source: source.to_string_lossy().into_owned(),
        cwd,
        // A store may hold any number.
        updated_at: i64::clamp(updated_at, -MAX_NUMBER, MAX_NUMBER),
        adopted: false,
    };
    if catalog == Catalog::Opencode {
        let Some(home) = room.opencode_home() else {
            return Ok(Vec::new());
        };
        let (found, failed) = opencode::discover(&home, most);
        for error in failed {
            log::warn!(target: "upstream", "a store is left out of what is found: {error}");
        }
        return Ok(found
            .into_iter()
            .map(|(source, found)| session(found.thread, source, found.cwd, found.updated_ms))
            .collect());
    }
    let agent = file_agent(catalog)?;
    Ok(find::sessions(agent, &room.folders(agent, catalog))
        .take(most)
        .map(|found| session(found.thread, found.source, found.cwd, found.modified_ms))
        .collect())
}
