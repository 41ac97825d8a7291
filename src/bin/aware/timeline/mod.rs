//! `aware timeline`: one self-contained page.

mod model;
mod page;

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use session_awareness::{Awareness, EventsRequest, Watches};

use crate::args::TimelineOptions;
use crate::failure::Failure;
use crate::output::{Look, Output};
use crate::{database, progress, text};
use model::Model;

#[derive(Serialize)]
struct Written {
    out: String,
    bytes: u64,
    sessions: u64,
    events: u64,
    watches: u64,
    pending: u64,
}

pub fn run(aware: &Awareness, options: &TimelineOptions, out: &mut Output) -> Result<(), Failure> {
    let stats = aware.stats()?;
    let reading = progress::bar(stats.events, "reading events");
    let mut model = Model::new(&options.title, &stats.database, text::now_ms());
    for session in database::sessions(aware)? {
        model.add_session(&session);
    }
    let request = EventsRequest {
        after: Some(options.since),
        ..EventsRequest::default()
    };
    database::events(aware, request, |page| {
        reading.inc(page.len() as u64);
        page.iter().for_each(|event| model.add_event(event));
    })?;
    for watch in database::watches(aware, &Watches::default())? {
        model.add_watch(&watch);
    }
    reading.finish_and_clear();
    let html = page::render(&options.title, &serde_json::to_string(&model)?);
    write(&options.out, &html).map_err(|problem| {
        Failure::new(format!(
            "{} cannot be written: {problem}; name another file by --out",
            text::safe(&options.out.to_string_lossy())
        ))
    })?;
    let written = Written {
        out: options.out.to_string_lossy().into_owned(),
        bytes: html.len() as u64,
        sessions: model.sessions() as u64,
        events: model.events() as u64,
        watches: model.watches() as u64,
        pending: model.pending() as u64,
    };
    if out.json {
        return out.document(&written);
    }
    let told = format!(
        "  {}: {}, {}, {}, {} pending",
        text::bytes(written.bytes),
        text::counted(written.sessions, "session"),
        text::counted(written.events, "event"),
        text::counted(written.watches, "watch"),
        text::count(written.pending),
    );
    out.line(&[Look::Strong.of(&written.out), told.into()])
}

/// Writes the whole file or none of it. It holds session keys: its owner alone may read it.
fn write(path: &Path, html: &str) -> io::Result<()> {
    // A device or a pipe is written to, never replaced.
    if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        return OpenOptions::new()
            .write(true)
            .open(path)?
            .write_all(html.as_bytes());
    }
    let mut partial = path.as_os_str().to_owned();
    partial.push(format!(".{}.part", std::process::id()));
    let partial = PathBuf::from(partial);
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&partial)?;
    let written = file
        .write_all(html.as_bytes())
        .and_then(|()| fs::rename(&partial, path));
    if written.is_err() {
        let _ = fs::remove_file(&partial);
    }
    written
}
