//! What a transaction owes the tables. The head of a session and the `material`
//! of its watchers move with every event; of events that follow one another
//! only the last is written.

use std::cell::RefCell;

use rusqlite::params;

use super::cursors::{self, Told};
use super::{Tx, fault};
use crate::contract::{Error, Kind, Result};
use crate::key::Session;
use crate::sys::Kept;

#[derive(Default)]
pub(super) struct Owed {
    head: RefCell<Option<(Session, u64)>>,
    told: RefCell<Option<Known>>,
}

/// Who is told of an event of this kind and session: all have a notice open.
pub(super) struct Known {
    target: Session,
    kind: Kind,
    but: Option<String>,
    whom: Whom,
    /// Where their `material` is to stand.
    material: Option<u64>,
    /// SQLite's number of the database when this was found out, which changes
    /// when another connection writes.
    version: i64,
}

/// The cursors of those told.
pub(crate) enum Whom {
    /// These, by their ids.
    Each(Vec<i64>),
    /// More than are worth a list; each has a notice open.
    Many,
}

impl Owed {
    /// Begins with what the transaction before knew, as long as it still holds.
    pub(super) fn begin(conn: &Kept, known: Option<Known>) -> Result<Owed> {
        let known = match known {
            Some(known) if known.version == data_version(conn)? => Some(known),
            _ => None,
        };
        Ok(Owed {
            head: RefCell::default(),
            told: RefCell::new(known),
        })
    }

    /// What the next transaction may begin with. Call when nothing is owed.
    pub(super) fn into_known(self) -> Option<Known> {
        self.told.into_inner()
    }

    /// Owes nothing more, and knows nothing: what it was of is undone.
    pub(super) fn forget(&self) {
        self.head.take();
        self.told.take();
    }
}

/// A number that changes when another connection has written.
pub(super) fn data_version(conn: &Kept) -> Result<i64> {
    conn.with("PRAGMA data_version", |ask| {
        ask.query_row([], |row| row.get(0))
    })
    .map_err(fault)
}

/// Writes all that is owed.
pub(super) fn settle(tx: &Tx<'_>) -> Result<()> {
    settle_head(tx)?;
    settle_told(tx)
}

/// Moves the head of a session, now or before anybody can look.
pub(super) fn move_head(tx: &Tx<'_>, session: &Session, sequence: u64) -> Result<()> {
    {
        let mut head = tx.owed.head.borrow_mut();
        if let Some((_, last)) = head.as_mut().filter(|(of, _)| of == session) {
            *last = sequence;
            return Ok(());
        }
    }
    settle_head(tx)?;
    tx.owed.head.replace(Some((session.clone(), sequence)));
    Ok(())
}

fn settle_head(tx: &Tx<'_>) -> Result<()> {
    let Some((session, sequence)) = tx.owed.head.take() else {
        return Ok(());
    };
    let moved = tx
        .conn
        .with(
            "INSERT INTO session_state_heads(agent_id, session_key, last_sequence) VALUES (?1, ?2, ?3)
             ON CONFLICT DO UPDATE SET last_sequence = excluded.last_sequence
             WHERE excluded.last_sequence > last_sequence",
            |upsert| upsert.execute(params![session.agent, session.key, sequence as i64]),
        )
        .map_err(fault)?;
    if moved == 0 {
        return Err(Error::damaged("the sequences of the log do not rise"));
    }
    Ok(())
}

/// Moves `material` of those told, now or before anybody can look; false when
/// it is not known who they are, and that each has a notice open.
pub(crate) fn move_known(tx: &Tx<'_>, told: &Told<'_>, sequence: u64) -> bool {
    let mut known = tx.owed.told.borrow_mut();
    let known = known.as_mut().filter(|known| {
        known.kind == told.kind && known.but.as_deref() == told.but && known.target == *told.target
    });
    let Some(known) = known else { return false };
    known.material = Some(sequence);
    true
}

/// Notes that these are all that are told, each with a notice open that stands
/// at the newest event. Call when nothing is owed: who they are was read just now.
pub(crate) fn know(tx: &Tx<'_>, told: &Told<'_>, whom: Whom) -> Result<()> {
    tx.owed.told.replace(Some(Known {
        target: told.target.clone(),
        kind: told.kind,
        but: told.but.map(str::to_owned),
        whom,
        material: None,
        version: data_version(tx.conn)?,
    }));
    Ok(())
}

/// To be called before cursors change by other hands.
pub(super) fn forget_told(tx: &Tx<'_>) -> Result<()> {
    settle_told(tx)?;
    tx.owed.told.take();
    Ok(())
}

fn settle_told(tx: &Tx<'_>) -> Result<()> {
    let mut known = tx.owed.told.borrow_mut();
    let Some(known) = known.as_mut() else {
        return Ok(());
    };
    let Some(material) = known.material.take() else {
        return Ok(());
    };
    match &known.whom {
        Whom::Each(ids) => ids
            .iter()
            .try_for_each(|id| cursors::update_material(tx, *id, material)),
        Whom::Many => {
            let told = Told {
                target: &known.target,
                kind: known.kind,
                but: known.but.as_deref(),
            };
            cursors::advance_known(tx, &told, material)
        }
    }
}
