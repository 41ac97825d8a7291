//! What the verbs and the monitor share: the database, the key of its hashes,
//! the agents' homes, and the sign to stop.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

use super::agent::{Agent, Folder};
use super::monitor::{Mailbox, Told};
use super::opencode;
use super::print::Secret;
use crate::contract::{Catalog, Outcome, OutcomeKind, Result, Roots};
use crate::key::Session;
use crate::store::{Store, links};
use crate::sync::{Arc, Mutex, lock};
use crate::watch::Wakes;

/// The upstream side of one handle.
pub(crate) struct Room {
    pub(super) store: Arc<Store>,
    pub(super) wakes: Arc<Wakes>,
    roots: Roots,
    /// How often everything is looked at; and at most one miss a link is counted in it.
    pub(super) interval: Duration,
    /// Ends every reading of an agent's file.
    pub(super) stop: AtomicBool,
    monitors: Mutex<Vec<(Catalog, Mailbox)>>,
    stats: Mutex<BTreeMap<Catalog, CatalogStats>>,
    warned: AtomicBool,
    /// A bit for each catalog of which faults may be noted.
    faults: AtomicU8,
    /// The stores of OpenCode that the last scans looked at: what is known of
    /// one makes the next look cheap.
    stores: Mutex<BTreeMap<PathBuf, opencode::Store>>,
}

/// So many stores are kept open for scans.
const KEPT_STORES: usize = 4;

/// What the background did for a catalog.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CatalogStats {
    pub passes: u64,
    pub last_pass_ms: u64,
    pub lag_ms: u64,
    pub watched: usize,
    pub unwatched: usize,
}

impl Room {
    pub(crate) fn new(
        store: Arc<Store>,
        wakes: Arc<Wakes>,
        roots: Roots,
        interval: Duration,
    ) -> Room {
        Room {
            store,
            wakes,
            roots,
            interval,
            stop: AtomicBool::new(false),
            monitors: Mutex::default(),
            stats: Mutex::default(),
            warned: AtomicBool::new(false),
            faults: AtomicU8::new(u8::MAX),
            stores: Mutex::default(),
        }
    }

    /// The key of the database's hashes: of the database that is at the path now.
    pub(super) fn secret(&self) -> Result<Secret> {
        self.store.read(links::secret).map(Secret::new)
    }

    /// Whether the handle is closing.
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// The folders with the agent's sessions, also those an environment variable
    /// names by a relative path, as absolute ones: links keep what is found there.
    pub(super) fn folders(&self, agent: &dyn Agent, catalog: Catalog) -> Vec<Folder> {
        let mut folders = agent.store(self.root(catalog).as_deref(), &|name| {
            std::env::var_os(name)
        });
        for folder in &mut folders {
            if let Ok(path) = std::path::absolute(&folder.path) {
                folder.path = path;
            }
        }
        folders
    }

    /// Where OpenCode keeps its stores.
    pub(super) fn opencode_home(&self) -> Option<opencode::Home> {
        opencode::Home::new(self.root(Catalog::Opencode).as_deref(), &|name| {
            std::env::var_os(name)
        })
    }

    /// Tells the catalog's monitor that a link came, went, was turned to another
    /// source, or is to be looked at.
    pub(super) fn link_changed(&self, catalog: Catalog, id: i64) {
        let monitors = lock(&self.monitors);
        let of_catalog = monitors.iter().filter(|(of, _)| *of == catalog);
        of_catalog.for_each(|(_, monitor)| monitor.tell(Told::Link(id)));
    }

    /// Has the catalog's monitor told of what concerns it.
    pub(super) fn add_monitor(&self, catalog: Catalog, monitor: Mailbox) {
        lock(&self.monitors).push((catalog, monitor));
    }

    /// The store at `source`, with what is known of it if it was kept.
    pub(super) fn store_of(&self, source: &Path) -> opencode::Store {
        let kept = lock(&self.stores).remove(source);
        kept.filter(|store| store.fits(source))
            .unwrap_or_else(|| opencode::Store::new(source))
    }

    /// Keeps a store for the next scan.
    pub(super) fn keep_store(&self, source: PathBuf, store: opencode::Store) {
        let mut stores = lock(&self.stores);
        if !self.is_stopped() && (stores.len() < KEPT_STORES || stores.contains_key(&source)) {
            stores.insert(source, store);
        }
    }

    /// Ends every reading, and lets the monitor's threads end.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        for (_, monitor) in lock(&self.monitors).iter() {
            monitor.tell(Told::Nothing);
        }
    }

    /// What the background did, by catalog.
    pub(crate) fn stats(&self) -> BTreeMap<Catalog, CatalogStats> {
        lock(&self.stats).clone()
    }

    fn may_be_faulty(&self, catalog: Catalog) -> bool {
        self.faults.load(Ordering::Relaxed) & bit(catalog) != 0
    }

    /// Whether faults are noted of the catalog: what others note is seen each interval.
    pub(super) fn set_faulty(&self, catalog: Catalog, faulty: bool) {
        if faulty {
            self.faults.fetch_or(bit(catalog), Ordering::Relaxed);
        } else {
            self.faults.fetch_and(!bit(catalog), Ordering::Relaxed);
        }
    }

    /// Notes in the database whether the source of a session could be read: it is
    /// written when that changes. The rows are for people; a failure to note is none of the pass.
    pub(super) fn note(&self, outcome: &Outcome) {
        let fault = match outcome.outcome {
            OutcomeKind::Error => outcome.message.clone(),
            // It was not looked at.
            OutcomeKind::Deferred => return,
            _ if !self.may_be_faulty(outcome.catalog) => return,
            _ => None,
        };
        if fault.is_some() {
            self.set_faulty(outcome.catalog, true);
        }
        let session = Session {
            key: outcome.session_key.clone(),
            agent: outcome.agent_id.clone(),
        };
        let noted = self
            .store
            .look(|conn| Ok(links::noted_fault(conn, &session)? != fault));
        let noted = noted.and_then(|changed| match changed {
            true => self
                .store
                .write(move |tx| links::note_fault(tx, &session, fault.as_deref())),
            false => Ok(()),
        });
        if let Err(error) = noted {
            log::debug!(target: "upstream", "the state of a link is not noted: {error}");
        }
    }

    pub(super) fn count(&self, catalog: Catalog, change: impl FnOnce(&mut CatalogStats)) {
        change(lock(&self.stats).entry(catalog).or_default());
    }

    pub(super) fn set_watched(&self, catalog: Catalog, watched: usize, unwatched: usize) {
        self.count(catalog, |stats| {
            (stats.watched, stats.unwatched) = (watched, unwatched)
        });
    }

    /// The system lets no more folders be watched: said once a handle.
    pub(super) fn watch_limit_met(&self) {
        if !self.warned.swap(true, Ordering::Relaxed) {
            log::warn!(target: "upstream", "the system's limit of watched folders is met: the others are looked at every interval alone");
        }
    }

    /// The agent's home, when the host named it.
    pub(super) fn root(&self, catalog: Catalog) -> Option<PathBuf> {
        self.roots.of(catalog).map(PathBuf::from)
    }
}

fn bit(catalog: Catalog) -> u8 {
    1 << catalog as u8
}
