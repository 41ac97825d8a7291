//! `aware links` and `aware discover`.

use serde::Serialize;
use session_awareness::{Awareness, Discover, Link};

use crate::args::DiscoverOptions;
use crate::failure::Failure;
use crate::output::{Column, Look, Output, Text};
use crate::views::{named, when};
use crate::{database, progress};

#[derive(Serialize)]
struct LinkList {
    links: Vec<Link>,
}

pub fn links(aware: &Awareness, out: &mut Output) -> Result<(), Failure> {
    let links = database::links(aware)?;
    if out.json {
        return out.document(&LinkList { links });
    }
    let columns = [
        Column::Long("SESSION"),
        Column::Left("PROGRAM"),
        Column::Spare("THREAD"),
        Column::Long("STATE"),
        Column::Spare("ADOPTED"),
        Column::Long("SOURCE"),
    ];
    let rows = links
        .iter()
        .map(|link| {
            vec![
                Look::Name.of(named(&link.session_key, &link.agent_id)),
                link.catalog.as_str().into(),
                (&link.thread_id).into(),
                match (link.missing, &link.fault) {
                    (0, None) => Look::Good.of("there"),
                    (0, Some(fault)) => Look::Bad.of(format!("in error: {}", fault.message)),
                    (n, _) => Look::Bad.of(format!("missing, {n} of 3")),
                },
                when(Look::Faint, link.adopted_at),
                match &link.source {
                    Some(source) => path(source),
                    None => Look::Faint.of(format!("on {}", link.host_id)),
                },
            ]
        })
        .collect();
    out.table(&columns, rows, "no session is tied to another program's")
}

/// A path; where a terminal is narrow, with `~` for the home of who looks.
fn path(path: &str) -> Text {
    let home = std::env::var("HOME").unwrap_or_default();
    let rest = path
        .strip_prefix(&home)
        .filter(|rest| !home.is_empty() && rest.starts_with('/'));
    let short = rest.map_or_else(|| path.to_owned(), |rest| format!("~{rest}"));
    Look::Faint.of(path).or(short)
}

pub fn discover(
    aware: &Awareness,
    options: &DiscoverOptions,
    out: &mut Output,
) -> Result<(), Failure> {
    let walking = progress::spinner("walking the agents' stores");
    let found = aware.discover(Discover {
        catalog: options.catalog,
        limit: Some(options.limit),
        offset: None,
    });
    walking.finish_and_clear();
    let found = found?;
    if out.json {
        return out.document(&found);
    }
    let columns = [
        Column::Left("PROGRAM"),
        Column::Long("THREAD"),
        Column::Left("UPDATED"),
        Column::Left("ADOPTED"),
        Column::Long("FOLDER"),
        Column::Spare("SOURCE"),
    ];
    let rows = found
        .sessions
        .iter()
        .map(|session| {
            vec![
                session.catalog.as_str().into(),
                Look::Name.of(&session.thread_id),
                when(Look::Plain, session.updated_at),
                if session.adopted {
                    Look::Good.of("yes")
                } else {
                    Look::Faint.of("no")
                },
                session.cwd.as_deref().map_or_else(|| "-".into(), path),
                path(&session.source),
            ]
        })
        .collect();
    out.table(
        &columns,
        rows,
        "no session is found; --root claude=DIR names a home elsewhere",
    )?;
    if found.more {
        out.line(&[Look::Faint.of("there are more: see --limit")])?;
    }
    Ok(())
}
