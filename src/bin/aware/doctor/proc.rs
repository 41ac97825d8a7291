//! What the proc file system tells: who has the database open, and how many
//! watches of files a user has.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A file, whatever its name: device and inode.
pub type Identity = (u64, u64);

/// The file at a path.
pub fn identity(path: &Path) -> Option<Identity> {
    let found = fs::metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

/// The files of a database that tell its users apart.
pub struct Files {
    pub database: Identity,
    /// The path and the number of the inode of the shared memory.
    pub shared_memory: Option<(PathBuf, u64)>,
    /// The locked file of each handle, with its number.
    pub handles: Vec<(u64, Identity)>,
}

/// A process that has the database open.
pub struct Holder {
    pub pid: u32,
    pub name: String,
    /// The handles it holds; none for a read-only one.
    pub handles: Vec<u64>,
    /// Whether the library is loaded in it, or it is this command.
    pub knows_us: bool,
    /// How many copies of SQLite have the database open in it: each maps the
    /// beginning of the shared memory, and does so once.
    pub copies: usize,
}

impl Holder {
    /// Whether another SQLite than the library's has the database open in it.
    pub fn is_strange(&self) -> bool {
        !self.knows_us || self.copies > 1
    }
}

/// Who has the database open.
pub struct Holders {
    pub processes: Vec<Holder>,
    /// Processes that could not be looked into: other users'.
    pub hidden: usize,
}

/// The proc file system at a folder.
pub struct Proc(pub PathBuf);

impl Proc {
    /// The processes other than this one that have the database open.
    pub fn holders(&self, files: &Files) -> io::Result<Holders> {
        let mut found = Holders {
            processes: Vec::new(),
            hidden: 0,
        };
        for (pid, folder) in self.processes()? {
            if pid == std::process::id() {
                continue;
            }
            let descriptors = match fs::read_dir(folder.join("fd")) {
                Ok(descriptors) => descriptors,
                Err(problem) if problem.kind() == io::ErrorKind::PermissionDenied => {
                    found.hidden += 1;
                    continue;
                }
                // It has ended meanwhile.
                Err(_) => continue,
            };
            let (mut open, mut handles) = (false, Vec::new());
            // The file behind a descriptor, without opening it.
            for file in descriptors
                .flatten()
                .filter_map(|entry| identity(&entry.path()))
            {
                open |= file == files.database;
                handles.extend(
                    files
                        .handles
                        .iter()
                        .filter(|(_, of)| *of == file)
                        .map(|(id, _)| *id),
                );
            }
            if open {
                handles.sort_unstable();
                handles.dedup();
                found.processes.push(Holder {
                    pid,
                    name: name(&folder),
                    knows_us: !handles.is_empty() || knows_us(&folder),
                    handles,
                    copies: files
                        .shared_memory
                        .as_ref()
                        .map_or(0, |file| first_mappings(&folder, file)),
                });
            }
        }
        found.processes.sort_by_key(|holder| holder.pid);
        Ok(found)
    }

    /// A limit of inotify: `max_user_watches` or `max_user_instances`.
    pub fn inotify_limit(&self, what: &str) -> Option<u64> {
        fs::read_to_string(self.0.join("sys/fs/inotify").join(what))
            .ok()?
            .trim()
            .parse()
            .ok()
    }

    /// How many inotify instances and watches the processes of a user have, of those that can be seen.
    pub fn inotify_use(&self, user: u32) -> io::Result<(u64, u64)> {
        let (mut instances, mut watches) = (0, 0);
        for (_, folder) in self.processes()? {
            if fs::metadata(&folder).map(|found| found.uid()).ok() != Some(user) {
                continue;
            }
            let Ok(descriptors) = fs::read_dir(folder.join("fd")) else {
                continue;
            };
            for entry in descriptors.flatten() {
                if fs::read_link(entry.path()).is_ok_and(|to| to == Path::new("anon_inode:inotify"))
                {
                    instances += 1;
                    let told = folder.join("fdinfo").join(entry.file_name());
                    let told = fs::read_to_string(told).unwrap_or_default();
                    watches += told
                        .lines()
                        .filter(|line| line.starts_with("inotify "))
                        .count() as u64;
                }
            }
        }
        Ok((instances, watches))
    }

    fn processes(&self) -> io::Result<impl Iterator<Item = (u32, PathBuf)> + use<>> {
        let entries = fs::read_dir(&self.0)?;
        Ok(entries.flatten().filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            Some((pid, entry.path()))
        }))
    }
}

fn name(folder: &Path) -> String {
    let told = fs::read_to_string(folder.join("comm")).unwrap_or_default();
    told.trim_end().to_owned()
}

/// How often the process has the beginning of the file mapped. The device is
/// left out: it may be another layer's.
fn first_mappings(folder: &Path, (path, inode): &(PathBuf, u64)) -> usize {
    let Ok(maps) = fs::read(folder.join("maps")) else {
        return 0;
    };
    let name = path.file_name().unwrap_or_default().as_bytes();
    let inode = inode.to_string();
    let is_first = |line: &&[u8]| {
        // from-to, permissions, offset, device, inode, and a path of any bytes.
        let mut words = line
            .split(|byte| *byte == b' ')
            .filter(|word| !word.is_empty());
        let offset = words.nth(2).unwrap_or(b"?");
        line.ends_with(name)
            && offset.iter().all(|digit| *digit == b'0')
            && words.nth(1) == Some(inode.as_bytes())
    };
    maps.split(|byte| *byte == b'\n').filter(is_first).count()
}

fn knows_us(folder: &Path) -> bool {
    let same_program = || {
        let own = identity(&std::env::current_exe().ok()?)?;
        Some(identity(&folder.join("exe"))? == own)
    };
    same_program() == Some(true)
        || fs::read_to_string(folder.join("maps"))
            .is_ok_and(|maps| maps.contains("libsession_awareness"))
}
