//! `aware links` and `aware discover`.

use serde::Serialize;
use session_awareness::{Awareness, Discover, Link};

use crate::args::DiscoverOptions;
use crate::failure::Failure;
use crate::output::{Column, Look, Output};
use crate::views::named;
use crate::{database, progress, text};

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
        Column::Long("THREAD"),
        Column::Left("STATE"),
        Column::Left("ADOPTED"),
        Column::Long("SOURCE"),
    ];
    let rows = links
        .iter()
        .map(|link| {
            vec![
                Look::Name.of(named(&link.session_key, &link.agent_id)),
                link.catalog.as_str().into(),
                (&link.thread_id).into(),
                match link.missing {
                    0 => Look::Good.of("there"),
                    n => Look::Bad.of(format!("missing, {n} of 3")),
                },
                Look::Faint.of(text::time(link.adopted_at)),
                match &link.source {
                    Some(source) => Look::Faint.of(source),
                    None => Look::Faint.of(format!("on {}", link.host_id)),
                },
            ]
        })
        .collect();
    out.table(&columns, rows, "no session is tied to another program's")
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
        Column::Long("SOURCE"),
    ];
    let rows = found
        .sessions
        .iter()
        .map(|session| {
            vec![
                session.catalog.as_str().into(),
                Look::Name.of(&session.thread_id),
                text::time(session.updated_at).into(),
                if session.adopted {
                    Look::Good.of("yes")
                } else {
                    Look::Faint.of("no")
                },
                session.cwd.as_deref().unwrap_or("-").into(),
                Look::Faint.of(&session.source),
            ]
        })
        .collect();
    out.table(
        &columns,
        rows,
        "no session is found; --root names a store elsewhere",
    )?;
    if found.more {
        out.line(&[Look::Faint.of("there are more: see --limit")])?;
    }
    Ok(())
}
