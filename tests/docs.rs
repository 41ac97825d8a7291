//! What the documents point at is there.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn documents() -> Vec<PathBuf> {
    let mut found = files(&root().join("docs"));
    found.extend(
        std::fs::read_dir(root())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.is_file()),
    );
    found.retain(|path| path.extension().is_some_and(|ending| ending == "md"));
    assert!(found.len() > 2, "{found:?}");
    found
}

/// Every file below a folder, but for what is built or installed.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_file() {
            found.push(path);
        } else if !["target", "build", "node_modules"].contains(&name.as_str())
            && !name.starts_with('.')
        {
            found.extend(files(&path));
        }
    }
    found
}

/// The names of all tests, in Rust, Python, C and JavaScript.
fn tests() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for folder in ["src", "tests", "bindings"] {
        for file in files(&root().join(folder)) {
            let ending = file.extension().unwrap_or_default().to_owned();
            if !["rs", "py", "c", "js", "mjs"]
                .iter()
                .any(|one| ending == *one)
            {
                continue;
            }
            for line in read(&file).lines() {
                let line = line.trim_start();
                for lead in ["fn ", "def ", "async def ", "static void ", "test('"] {
                    if let Some(rest) = line.strip_prefix(lead) {
                        let name = rest.split(['(', '<', '\'']).next().unwrap();
                        names.insert(name.to_owned());
                    }
                }
                // A program without the test harness lists its tests by their names.
                if let Some(name) = line.strip_prefix("(\"").or(line.strip_prefix('"')) {
                    names.insert(name.split('"').next().unwrap().to_owned());
                }
            }
        }
    }
    names
}

/// The cells of a row of a table.
fn cells(line: &str) -> Option<Vec<&str>> {
    let row = line.strip_prefix('|')?.trim_end().strip_suffix('|')?;
    Some(row.split(" | ").map(str::trim).collect())
}

/// What stands between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

#[test]
fn every_test_that_a_table_names_is_there() {
    let tests = tests();
    let mut named = 0;
    for document in documents() {
        let mut column = None;
        for line in read(&document).lines() {
            let Some(row) = cells(line) else {
                column = None;
                continue;
            };
            let Some(at) = column else {
                column = Some(row.iter().position(|cell| *cell == "test"));
                continue;
            };
            for name in at
                .and_then(|at| row.get(at))
                .into_iter()
                .flat_map(|cell| quoted(cell))
            {
                named += 1;
                assert!(
                    tests.contains(name),
                    "{}: there is no test {name}",
                    document.display()
                );
            }
        }
    }
    assert!(named > 10, "{named} tests are named");
}

#[test]
fn every_file_that_a_document_links_is_there() {
    for document in documents() {
        let text = read(&document);
        for link in text.split("](").skip(1) {
            let link = link.split(')').next().unwrap();
            let path = link.split('#').next().unwrap();
            if path.is_empty() || path.contains("://") {
                continue;
            }
            let folder = document.parent().unwrap();
            assert!(
                folder.join(path).exists(),
                "{} links {link}",
                document.display()
            );
        }
    }
}

/// The number of the ABI stands in the header, and where the SONAME is made.
#[test]
fn every_place_that_names_the_abi_names_the_same() {
    let header = read(&root().join("include/session_awareness.h"));
    let after = |text: &str, lead: &str| -> String {
        let rest = text
            .split_once(lead)
            .unwrap_or_else(|| panic!("no {lead}"))
            .1;
        rest.chars().take_while(char::is_ascii_digit).collect()
    };
    let abi = after(&header, "#define AWARE_ABI_VERSION ");
    for (file, lead) in [
        ("build.rs", "-soname,libsession_awareness.so."),
        ("Makefile", "ABI     := "),
        (
            "Cargo.toml",
            "[package.metadata.capi.library]\nname = \"session_awareness\"\nversion = \"",
        ),
    ] {
        assert_eq!(after(&read(&root().join(file)), lead), abi, "{file}");
    }
}
