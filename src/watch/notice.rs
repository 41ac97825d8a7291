//! Notices: read from the cursors, acknowledged on them.

use rusqlite::Connection;

use super::cursor::{Input, step};
use super::register::apply;
use crate::contract::{AckNotices, Acknowledged, DrainNotices, Drained, Error, Notice, Result};
use crate::key::{DEFAULT_AGENT, Session, Watcher};
use crate::log::page_size;
use crate::store::Tx;
use crate::store::cursors::{self, CursorRow};

const PAGE: usize = 100;
const MOST_NOTICES: usize = 1_000;

/// A checked `drain_notices`.
pub(crate) struct Drain {
    watcher: Watcher,
    most: usize,
    /// Whether the notices are acknowledged too.
    pub ack: bool,
}

pub(crate) fn drain(request: &DrainNotices) -> Result<Drain> {
    Ok(Drain {
        watcher: Watcher::read(&request.watcher_session_key, "watcherSessionKey")?,
        most: page_size(request.limit, PAGE, MOST_NOTICES)?,
        ack: request.ack.unwrap_or(true),
    })
}

impl Drain {
    /// The notices, left as they are.
    pub(crate) fn peek(&self, conn: &Connection) -> Result<Drained> {
        let (rows, more) = self.pending(conn)?;
        Ok(Drained {
            notices: rows.iter().map(notice).collect(),
            more,
        })
    }

    /// The notices, acknowledged in the same transaction.
    pub(crate) fn take(&self, tx: &Tx<'_>) -> Result<Drained> {
        let (rows, more) = self.pending(tx.conn()?)?;
        let mut notices = Vec::with_capacity(rows.len());
        for row in rows {
            notices.push(notice(&row));
            acknowledge(tx, row.cursor.notified, row)?;
        }
        Ok(Drained { notices, more })
    }

    fn pending(&self, conn: &Connection) -> Result<(Vec<CursorRow>, bool)> {
        let Watcher::Qualified(watcher) = &self.watcher else {
            return Ok((Vec::new(), false));
        };
        let mut rows = cursors::pending_of(conn, watcher, self.most + 1)?;
        let more = rows.len() > self.most;
        rows.truncate(self.most);
        Ok((rows, more))
    }
}

pub(crate) fn ack(
    request: &AckNotices,
) -> Result<impl FnOnce(&Tx<'_>) -> Result<Acknowledged> + use<>> {
    let watcher = Watcher::read(&request.watcher_session_key, "watcherSessionKey")?;
    if request.notices.len() > MOST_NOTICES {
        return Err(Error::invalid("notices", "at most 1,000 notices"));
    }
    let notices = request
        .notices
        .iter()
        .enumerate()
        .map(|(at, notice)| {
            let target = Session::target(
                &notice.target_session_key,
                notice.target_agent_id.as_deref(),
            )
            .map_err(|error| error.within(&format!("notices[{at}]")))?;
            Ok((target, notice.notified))
        })
        .collect::<Result<Vec<_>>>()?;
    Ok(move |tx: &Tx<'_>| {
        let mut done = Acknowledged {
            acknowledged: 0,
            reopened: 0,
        };
        let Watcher::Qualified(watcher) = watcher else {
            return Ok(done);
        };
        for (target, notified) in notices {
            let Some(row) = cursors::of_pair(tx.conn()?, &watcher, &target)? else {
                continue;
            };
            let (moved, reopened) = acknowledge(tx, notified, row)?;
            done.acknowledged += u64::from(moved);
            done.reopened += u64::from(reopened);
        }
        Ok(done)
    })
}

/// Whether the cursor moved, and whether a notice opened anew.
fn acknowledge(tx: &Tx<'_>, through: u64, row: CursorRow) -> Result<(bool, bool)> {
    let next = step(Some(row.cursor), Input::Ack { through });
    apply(
        tx,
        &row.watcher.clone(),
        &row.target.clone(),
        Some(row),
        next,
    )?;
    Ok((next.touched, next.opened))
}

fn notice(row: &CursorRow) -> Notice {
    let since = row.cursor.last_seen;
    Notice {
        text: text(&row.target, since),
        target_session_key: row.target.key.clone(),
        target_agent_id: row.target.agent.clone(),
        changes_since: since,
        notified: row.cursor.notified,
        context_key: context_key(&row.target),
    }
}

/// What a notice says of a target.
pub(crate) fn text(target: &Session, since: u64) -> String {
    let key = quoted(&target.key);
    let agent = if target.is_qualified() || target.agent == DEFAULT_AGENT {
        String::new()
    } else {
        format!(" agentId {}", quoted(&target.agent))
    };
    format!(
        "Session {key} changed (other actor). Reconcile before acting: session_status sessionKey {key}{agent} changesSince {since}."
    )
}

/// The key in quotes that it cannot break out of.
fn quoted(key: &str) -> String {
    let mut text = String::with_capacity(key.len() + 2);
    text.push('"');
    for c in key.chars() {
        match c {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\u{2028}' => text.push_str("\\u2028"),
            '\u{2029}' => text.push_str("\\u2029"),
            c => text.push(c),
        }
    }
    text.push('"');
    text
}

fn context_key(target: &Session) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut key = String::with_capacity(14 + 2 * (target.agent.len() + 1 + target.key.len()));
    key.push_str("session-state:");
    let (agent, colon) = match target.is_qualified() {
        true => ("", ""),
        false => (target.agent.as_str(), ":"),
    };
    for byte in [agent, colon, &target.key].into_iter().flat_map(str::bytes) {
        key.push(DIGITS[usize::from(byte >> 4)] as char);
        key.push(DIGITS[usize::from(byte & 15)] as char);
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_agreed_text() {
        let child = Session::of("agent:main:subagent:child", None).unwrap();
        assert_eq!(
            text(&child, 12),
            "Session \"agent:main:subagent:child\" changed (other actor). Reconcile before acting: \
             session_status sessionKey \"agent:main:subagent:child\" changesSince 12."
        );
        assert_eq!(
            context_key(&child),
            "session-state:6167656e743a6d61696e3a7375626167656e743a6368696c64"
        );
        let bare = Session::of("global", None).unwrap();
        assert!(text(&bare, 0).ends_with("session_status sessionKey \"global\" changesSince 0."));
        assert_eq!(context_key(&bare), "session-state:6d61696e3a676c6f62616c");
        let other = Session::of("global", Some("ops")).unwrap();
        assert!(text(&other, 3).ends_with("sessionKey \"global\" agentId \"ops\" changesSince 3."));
        assert_ne!(context_key(&other), context_key(&bare));
    }

    #[test]
    fn no_character_makes_two_lines_of_a_notice() {
        for c in '\0'..=char::MAX {
            let key = format!("agent:main:a{c}b");
            let Ok(session) = Session::of(&key, None) else {
                // The separators of C0 and C1, NEL among them, are in no key.
                assert!(c.is_control() || c == ':', "{c:?}");
                continue;
            };
            let text = text(&session, 1);
            // What any reader of lines takes for the end of one.
            let ends = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}');
            assert!(!text.contains(ends), "{c:?}");
            let quoted = serde_json::to_string(&key).unwrap();
            // Bidirectional and zero-width characters stay as they are, inside the quotes.
            assert!(
                matches!(c, '\u{2028}' | '\u{2029}') || text.contains(&quoted),
                "{c:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn no_key_breaks_out_of_its_quotes(key in "[a\"\\\\\u{2028}\u{2029}é ]{1,20}") {
            let quoted = quoted(&key);
            prop_assert_eq!(serde_json::from_str::<String>(&quoted).unwrap(), key);
            let breaks = quoted.contains(['\u{2028}', '\u{2029}']);
            prop_assert!(!breaks);
        }
    }
}
