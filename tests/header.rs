//! The committed header says what the library exports, and the bindings say
//! what the header does.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

const HEADER: &str = "include/session_awareness.h";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn generated() -> String {
    let config = cbindgen::Config::from_file(root().join("include/cbindgen.toml")).unwrap();
    let bindings = cbindgen::Builder::new()
        .with_config(config)
        .with_src(root().join("src/abi/exports.rs"))
        .generate()
        .unwrap();
    let mut text = Vec::new();
    bindings.write(&mut text);
    // The safety sections are for Rust callers; the header's preamble says the same to C.
    let text = String::from_utf8(text).unwrap();
    let mut lines: Vec<&str> = Vec::new();
    let mut in_safety = false;
    for line in text.lines() {
        in_safety = (in_safety || line.trim() == "* # Safety") && line.trim() != "*/";
        if !in_safety {
            lines.push(line);
        } else if lines.last().is_some_and(|last| last.trim() == "*") {
            lines.pop();
        }
    }
    lines.join("\n") + "\n"
}

/// The functions a C header declares.
fn declared(header: &str) -> BTreeSet<String> {
    let code: String = strip_comments(header);
    names(&code)
        .into_iter()
        .filter(|name| code.contains(&format!("{name}(")))
        .collect()
}

fn strip_comments(text: &str) -> String {
    let mut code = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("/*") {
        code += before;
        rest = after.split_once("*/").map_or("", |(_, after)| after);
    }
    code + rest
}

/// Every word of a text that begins with `aware_`.
fn names(text: &str) -> BTreeSet<String> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .filter(|word| word.starts_with("aware_") && word.len() > "aware_".len())
        .map(str::to_owned)
        .collect()
}

#[test]
fn the_header_is_up_to_date() {
    let fresh = generated();
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(root().join(HEADER), &fresh).unwrap();
    }
    assert!(
        read(HEADER) == fresh,
        "{HEADER} is stale: run `BLESS=1 cargo test --test header` and commit it"
    );
}

#[test]
fn every_exported_symbol_is_declared_and_every_declared_one_exported() {
    let library = shared_library();
    let listing = Command::new("nm")
        .args(["-D", "--defined-only"])
        .arg(&library)
        .output()
        .expect("nm, of the C compiler's binutils");
    assert!(
        listing.status.success(),
        "nm failed on {}",
        library.display()
    );
    let exported: BTreeSet<String> = String::from_utf8(listing.stdout)
        .unwrap()
        .lines()
        .filter_map(|line| line.split_whitespace().last())
        .map(str::to_owned)
        .collect();
    assert_eq!(exported, declared(&read(HEADER)));
}

#[test]
fn the_library_is_never_unloaded() {
    let dynamic = Command::new("readelf")
        .arg("-d")
        .arg(shared_library())
        .output()
        .expect("readelf, of binutils");
    let text = String::from_utf8(dynamic.stdout).unwrap();
    assert!(
        text.lines()
            .any(|line| line.contains("FLAGS_1") && line.contains("NODELETE")),
        "{text}"
    );
}

#[test]
fn every_function_says_what_a_host_asks() {
    let header = read(HEADER);
    for name in declared(&header) {
        let at = header.find(&format!("{name}(")).unwrap();
        let doc = header[..at].rfind("/**").map(|start| &header[start..at]);
        let doc = doc.filter(|doc| doc.matches("*/").count() == 1);
        let doc = doc.unwrap_or_else(|| panic!("{name} has no comment of its own"));
        assert!(
            doc.contains("Any thread"),
            "{name} does not say which threads may call it"
        );
        if header[at..].starts_with(&format!("{name}(struct aware_t *handle,\n"))
            || header[at..].starts_with(&format!("{name}(aware_t *handle,\n"))
        {
            for part in [
                "Request: ",
                "Reply: ",
                "Blocks: ",
                "Errors: ",
                "aware_string_free",
            ] {
                assert!(
                    doc.contains(part) || name == "aware_set_wake_callback",
                    "{name} says nothing of {part}"
                );
            }
        }
    }
    for define in header
        .lines()
        .filter(|line| line.starts_with("#define AWARE_") && !line.contains("_H"))
    {
        let at = header.find(define).unwrap();
        assert!(
            header[..at].trim_end().ends_with("*/"),
            "{define} has no comment"
        );
    }
}

#[test]
fn no_binding_declares_what_the_header_does_not() {
    let header = declared(&read(HEADER));
    let mut types = names(&strip_comments(&read(HEADER)));
    types.retain(|name| !header.contains(name));
    for (binding, ending) in [
        ("bindings/python", "py"),
        ("bindings/node", "js"),
        ("bindings/node", "ts"),
    ] {
        let files = sources(&root().join(binding), ending);
        assert!(!files.is_empty(), "no .{ending} in {binding}");
        let used: BTreeSet<String> = files.iter().flat_map(|file| names(&read(file))).collect();
        let unknown: Vec<_> = used
            .iter()
            .filter(|name| !header.contains(*name) && !types.contains(*name))
            .collect();
        assert!(
            unknown.is_empty(),
            "{binding} declares {unknown:?}, the header does not"
        );
    }
}

fn sources(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in
        std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
    {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        // What an installer puts there is not ours.
        if path.is_dir() && name != "node_modules" && !name.starts_with('.') {
            found.extend(sources(&path, ending));
        } else if path.extension().is_some_and(|own| own == ending) {
            found.push(path);
        }
    }
    found
}

/// The shared library cargo built beside this test.
fn shared_library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let library = test.with_file_name("libsession_awareness.so");
    assert!(library.exists(), "{} is not built", library.display());
    library
}
