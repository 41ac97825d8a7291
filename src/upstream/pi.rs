//! Pi: `<home>/sessions/<folder>/<time>_<session>.jsonl`, of version 3.

use std::io::Read;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::act::{Act, ActKind, Marks, Names, Repeats, time_ms};
use super::agent::{self, Agent, Case, Env, Folder, Head, Judge, Named};
use super::sift::{Value, Want};
use super::source;
use super::text::{Content, Words, after_element, lead};

use Want::{Fields, Items, Scalar};

/// The first version whose rows have lasting ids.
const VERSION: i64 = 3;

/// Pi.
pub struct Pi;

impl Agent for Pi {
    fn catalog(&self) -> &'static str {
        "pi"
    }

    fn store(&self, root: Option<&Path>, env: Env<'_>) -> Vec<Folder> {
        let var = |name| env(name).filter(|dir| !dir.is_empty()).map(PathBuf::from);
        let home = var("HOME");
        let agent = match (root, var("PI_CODING_AGENT_DIR"), &home) {
            (Some(root), _, _) => Some(root.to_owned()),
            (None, Some(dir), home) => Some(expand(&dir, home.as_deref())),
            (None, None, home) => home.as_ref().map(|home| home.join(".pi/agent")),
        };
        let mut folders = Vec::new();
        if let (None, Some(dir)) = (root, var("PI_CODING_AGENT_SESSION_DIR")) {
            folders.push(Folder {
                path: expand(&dir, home.as_deref()),
                depth: 1,
            });
        }
        if let Some(agent) = agent {
            let set = session_dir(&agent.join("settings.json"));
            folders.extend(set.map(|dir| Folder {
                path: agent.join(expand(&dir, home.as_deref())),
                depth: 1,
            }));
            folders.push(Folder {
                path: agent.join("sessions"),
                depth: 2,
            });
        }
        folders
    }

    fn named(&self, path: &Path) -> Option<Named> {
        let stem = path.file_name()?.to_str()?.strip_suffix(".jsonl")?;
        let thread = stem.split_once('_').map_or(stem, |(_, thread)| thread);
        Some(Named {
            thread: thread.to_owned(),
            order: stem.to_owned(),
        })
    }

    fn head_want(&self) -> &'static Want {
        &ROW
    }

    fn head_row(&self, row: &Value, head: &mut Head) -> bool {
        let is_header = row.get("type").str() == Some("session");
        if is_header {
            head.thread = row.get("id").name().map(str::to_owned);
            head.cwd = row.get("cwd").str().map(str::to_owned);
            head.legacy = row.get("version").integer().unwrap_or(1) < VERSION;
        }
        !is_header
    }

    fn head_names_thread(&self) -> bool {
        true
    }

    fn judge(&self, case: Case<'_>, saved: Option<&str>) -> Option<Box<dyn Judge>> {
        Some(Box::new(Rules {
            names: Names::new(case.secret, self.catalog(), case.thread),
            state: agent::restore(saved)?,
        }))
    }
}

/// A folder given by a person, who may write `~` for their home.
fn expand(dir: &Path, home: Option<&Path>) -> PathBuf {
    match (dir.strip_prefix("~"), home) {
        (Ok(rest), Some(home)) => home.join(rest),
        _ => dir.to_owned(),
    }
}

/// No settings are longer, in bytes.
const SETTINGS: u64 = 1 << 20;

/// The folder that the agent's settings name for sessions.
fn session_dir(settings: &Path) -> Option<PathBuf> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Settings {
        session_dir: PathBuf,
    }
    let (file, _) = source::open_regular(settings).ok()?;
    let settings: Settings = serde_json::from_reader(file.take(SETTINGS)).ok()?;
    Some(settings.session_dir).filter(|dir| !dir.as_os_str().is_empty())
}

static ROW: Want = Fields(&[
    ("type", Scalar),
    ("id", Scalar),
    ("version", Scalar),
    ("cwd", Scalar),
    ("timestamp", Scalar),
    (
        "message",
        Fields(&[
            ("role", Scalar),
            ("timestamp", Scalar),
            ("command", Scalar),
            (
                "content",
                Items(&Fields(&[("type", Scalar), ("text", Scalar)])),
            ),
        ]),
    ),
]);

#[derive(Default, Serialize, Deserialize)]
struct State {
    /// What the header says, once it was met.
    thread: Option<String>,
    /// Rows older than the header were copied from the session it was forked from.
    begun_ms: Option<i64>,
    repeats: Repeats,
}

struct Rules {
    names: Names,
    state: State,
}

impl Judge for Rules {
    fn want(&self) -> &'static Want {
        &ROW
    }

    fn needles(&self) -> &'static [&'static str] {
        &["\"user\"", "\"bashExecution\"", "\"session\""]
    }

    fn judge(&mut self, row: &Value) -> Option<Act> {
        let time = row.get("timestamp").str();
        let own_ms = time.and_then(time_ms);
        match row.get("type").str()? {
            "session" if self.state.thread.is_none() => {
                self.state.thread = row.get("id").name().map(agent::short);
                self.state.begun_ms = own_ms;
                return None;
            }
            "message" => {}
            _ => return None,
        }
        if let (Some(own), Some(begun)) = (own_ms, self.state.begun_ms)
            && own < begun
        {
            return None;
        }
        let message = row.get("message");
        let (kind, words) = match message.get("role").str()? {
            "user" => typed(Content::of(message.get("content")))?,
            "bashExecution" => {
                let mut words = Words::default();
                let command = message.get("command").text()?;
                words.push(command, command.head.as_str());
                (ActKind::Shell, words)
            }
            _ => return None,
        };
        // Copies keep both; ids alone are unlike only within a file.
        let id = row.get("id").name().zip(time).map(|(id, time)| [id, time]);
        let marks = Marks {
            id: id.as_ref().map(|id| id.as_slice()),
            text_too: false,
            thread: self.state.thread.as_deref(),
            time_ms: own_ms.or_else(|| message.get("timestamp").integer()),
        };
        let print = words.print(self.names.secret());
        Some(self.names.act(kind, print, &marks, &mut self.state.repeats))
    }

    fn save(&self) -> String {
        agent::save(&self.state)
    }

    fn renew(&mut self) {
        self.state.repeats = Repeats::default();
    }
}

/// What was typed: the words after what the program put before them.
fn typed(content: Content<'_>) -> Option<(ActKind, Words<'_>)> {
    let mut words = Words::default();
    let mut skill = false;
    for text in content.texts {
        let mut left = lead(&text.head);
        if words.is_empty() {
            while let Some(rest) = after_element(left, "<skill name=", "</skill>")
                .inspect(|_| skill = true)
                .or_else(|| after_element(left, "<user_message_time>", "</user_message_time>"))
            {
                left = lead(rest);
            }
        }
        words.push(text, left);
    }
    if !words.is_empty() || content.has_media {
        Some((ActKind::Prompt, words))
    } else {
        // A skill called without a word more is a slash command alone.
        skill.then_some((ActKind::Command, words))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{acts_of, knows, prompts, secret, told};
    use super::super::{Act, head};
    use super::*;
    use serde_json::{Value as Json, json};

    fn header(second: u8, more: Json) -> Json {
        let mut row = json!({"type": "session", "version": 3, "id": "s", "cwd": "/w",
            "timestamp": format!("2026-09-22T07:00:{second:02}.000Z")});
        row.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        row
    }

    fn message(id: &str, second: u8, message: Json) -> Json {
        json!({"type": "message", "id": id, "parentId": null, "message": message,
            "timestamp": format!("2026-09-22T07:00:{second:02}.000Z")})
    }

    fn user(id: &str, second: u8, content: Json) -> Json {
        message(
            id,
            second,
            json!({"role": "user", "content": content, "timestamp": 5}),
        )
    }

    fn acts(rows: &[Json]) -> Vec<Act> {
        acts_of("pi", rows)
    }

    #[test]
    fn prompts_and_shell_commands_are_told_as_typed() {
        let text = |text: &str| json!([{"type": "text", "text": text}]);
        let skill = "<skill name=\"tidy\" location=\"/x\">\nbody\n</skill>\n\n";
        for (content, words) in [
            (text("plan it"), "plan it"),
            (json!("plan it"), "plan it"),
            (
                json!([{"type": "image", "data": "x", "mimeType": "image/png"}]),
                "",
            ),
            (text(&format!("{skill}tidy src")), "tidy src"),
            (text("<user_message_time>7:00</user_message_time>go"), "go"),
            (text("/mode"), "/mode"),
            (
                text("<file name=\"/w/a\">x</file>\nlook"),
                "<file name=\"/w/a\">x</file> look",
            ),
        ] {
            let acts = acts(&[header(0, json!({})), user("a", 1, content.clone())]);
            assert_eq!(told(&acts), prompts(&[words]), "{content}");
        }
        let alone = acts(&[user("a", 1, text(skill))]);
        assert_eq!(told(&alone), [(ActKind::Command, secret().print(""))]);
        let shell = json!({"role": "bashExecution", "command": "ls -l", "output": "x", "excludeFromContext": true});
        let shell = acts(&[message("b", 1, shell)]);
        assert_eq!(told(&shell), [(ActKind::Shell, secret().print("ls -l"))]);
        assert_eq!(shell[0].time_ms, Some(1_790_060_401_000));
    }

    #[test]
    fn other_rows_are_not_told() {
        let x = json!([{"type": "text", "text": "x"}]);
        for row in [
            message("a", 1, json!({"role": "assistant", "content": x})),
            message("a", 1, json!({"role": "toolResult", "content": x})),
            message("a", 1, json!({"role": "custom", "content": x})),
            message("a", 1, json!({"role": "system", "content": x})),
            message("a", 1, json!({"role": "bashExecution"})),
            message("a", 1, json!("user")),
            user("a", 1, json!([])),
            user("a", 1, json!(" \n")),
            user("a", 1, json!(7)),
            json!({"type": "compaction", "id": "a", "summary": "x", "retainedTail": [{"role": "user", "content": x}]}),
            json!({"type": "custom_message", "id": "a", "content": "x"}),
            json!({"type": "branch_summary", "id": "a", "summary": "x"}),
            json!({"type": "session_info", "name": "x", "message": {"role": "user", "content": "x"}}),
            json!({"message": {"role": "user", "content": "x"}}),
        ] {
            assert_eq!(
                told(&acts(&[header(0, json!({})), row.clone()])),
                [],
                "{row}"
            );
        }
    }

    #[test]
    fn copies_in_a_fork_are_older_than_its_header() {
        let parent = acts(&[
            header(0, json!({})),
            user("a1", 1, json!("one")),
            user("a2", 2, json!("two")),
        ]);
        let forked = header(10, json!({"id": "f", "parentSession": "/x.jsonl"}));
        let fork = acts(&[
            forked,
            user("a1", 1, json!("one")),
            user("b1", 11, json!("three")),
        ]);
        assert_eq!(told(&parent), prompts(&["one", "two"]));
        assert_eq!(told(&fork), prompts(&["three"]));
        // Only the first header is the file's.
        let twice = [
            header(0, json!({})),
            header(10, json!({"id": "x"})),
            user("a1", 1, json!("one")),
        ];
        assert_eq!(told(&acts(&twice)), prompts(&["one"]));
    }

    #[test]
    fn a_turn_is_known_by_id_and_time() {
        let one = |id: &str, second| {
            acts(&[header(0, json!({})), user(id, second, json!("x"))]).remove(0)
        };
        assert!(knows(&one("a1", 1), &one("a1", 1)));
        assert!(!knows(&one("a1", 1), &one("a2", 1)));
        assert!(!knows(&one("a1", 1), &one("a1", 2)));
    }

    #[test]
    fn the_header_says_what_the_file_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("2026-09-22T07-00-00-000Z_other.jsonl");
        for (version, legacy) in [
            (json!(3), false),
            (json!(4), false),
            (json!(2), true),
            (json!(null), true),
            (json!("3"), true),
        ] {
            std::fs::write(
                &path,
                format!("damaged\n{}\n", header(0, json!({"version": version}))),
            )
            .unwrap();
            let found = head(&Pi, &path).unwrap();
            assert_eq!(found.legacy, legacy, "{version}");
            assert_eq!(
                (found.thread.as_deref(), found.cwd.as_deref()),
                (Some("s"), Some("/w"))
            );
        }
        std::fs::write(&path, "").unwrap();
        assert_eq!(head(&Pi, &path).unwrap().thread.as_deref(), Some("other"));
    }

    #[test]
    fn the_store_is_where_the_environment_and_the_settings_say() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path();
        let store = |root: Option<&Path>, vars: &[(&str, &str)]| {
            let env = |name: &str| match name {
                "HOME" => Some(home.into()),
                name => vars.iter().find(|(n, _)| *n == name).map(|(_, v)| v.into()),
            };
            Pi.store(root, &env)
        };
        let folder = |path: PathBuf, depth| Folder { path, depth };
        let usual = folder(home.join(".pi/agent/sessions"), 2);
        assert_eq!(store(None, &[])[..], *std::slice::from_ref(&usual));
        assert_eq!(
            store(Some(Path::new("/r")), &[("PI_CODING_AGENT_DIR", "/c")]),
            [folder("/r/sessions".into(), 2)]
        );
        assert_eq!(
            store(None, &[("PI_CODING_AGENT_DIR", "~/c")]),
            [folder(home.join("c/sessions"), 2)]
        );
        let flat = store(None, &[("PI_CODING_AGENT_SESSION_DIR", "/flat")]);
        assert_eq!(flat, [folder("/flat".into(), 1), usual.clone()]);
        std::fs::create_dir_all(home.join(".pi/agent")).unwrap();
        let settings = home.join(".pi/agent/settings.json");
        std::fs::write(&settings, r#"{"theme":1,"sessionDir":"~/kept"}"#).unwrap();
        assert_eq!(
            store(None, &[]),
            [folder(home.join("kept"), 1), usual.clone()]
        );
        std::fs::write(&settings, "{broken").unwrap();
        assert_eq!(store(None, &[]), [usual]);
    }
}
