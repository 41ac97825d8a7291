//! For tests of sessions that agents write: where everything lies, and a handle.

use std::path::PathBuf;

use session_awareness::{Awareness, Catalog, Config, MonitorConfig, Roots, Watch};
use tempfile::TempDir;

/// Who watches.
pub const MANAGER: &str = "agent:main:main";
/// What is watched, and is to be linked.
pub const SESSION: &str = "agent:main:up";

/// A database, and a folder for what the agents write.
pub struct Place {
    pub folder: TempDir,
}

impl Place {
    pub fn new() -> Place {
        Place {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    /// Where an agent writes a file of this name, in a folder that is there.
    pub fn path(&self, name: &str) -> PathBuf {
        let path = self.folder.path().join("agents").join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        path
    }

    pub fn database(&self) -> PathBuf {
        self.folder.path().join("a.db")
    }

    /// Without a background: nothing is looked at before it is asked for.
    pub fn config(&self) -> Config {
        let mut roots = Roots::default();
        for catalog in Catalog::ALL {
            let home = self.path(catalog.as_str());
            roots.set(catalog, home.to_str().unwrap());
        }
        let monitor = MonitorConfig {
            enabled: Some(false),
            roots: Some(roots),
            ..MonitorConfig::default()
        };
        Config {
            monitor: Some(monitor),
            ..Config::new(self.database().to_str().unwrap())
        }
    }

    pub fn open(&self) -> Awareness {
        self.open_with(self.config())
    }

    /// With the background on.
    pub fn open_watching(&self, interval_ms: u64, file_events: bool) -> Awareness {
        let mut config = self.config();
        let monitor = config.monitor.as_mut().unwrap();
        monitor.enabled = Some(true);
        monitor.interval_ms = Some(interval_ms);
        monitor.initial_delay_ms = Some(0);
        monitor.file_events = Some(file_events);
        self.open_with(config)
    }

    fn open_with(&self, config: Config) -> Awareness {
        let aware = Awareness::open(config).unwrap();
        aware.watch(Watch::new(MANAGER, SESSION)).unwrap();
        aware
    }
}
