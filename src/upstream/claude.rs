//! Claude Code: `<home>/projects/<folder>/<session>.jsonl`.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::act::{Act, ActKind, Marks, Names, Repeats, time_ms};
use super::agent::{self, Agent, Case, Env, Folder, Head, Judge, Named};
use super::sift::{Value, Want};
use super::text::{Content, Words, after_element, inside, is_empty, lead};

use Want::{Fields, Items, Presence, Scalar};

/// Claude Code.
pub struct Claude;

impl Agent for Claude {
    fn catalog(&self) -> &'static str {
        "claude"
    }

    fn store(&self, root: Option<&Path>, env: Env<'_>) -> Vec<Folder> {
        let homes = match (root, env("CLAUDE_CONFIG_DIR"), env("HOME")) {
            (Some(root), _, _) => vec![root.to_owned()],
            (None, Some(dir), _) if !dir.is_empty() => vec![PathBuf::from(dir)],
            (None, _, Some(home)) => {
                let home = PathBuf::from(home);
                vec![home.join(".claude"), home.join(".config/claude")]
            }
            (None, _, None) => vec![],
        };
        let projects = homes.into_iter().map(|home| home.join("projects"));
        projects.map(|path| Folder { path, depth: 2 }).collect()
    }

    fn named(&self, path: &Path) -> Option<Named> {
        let thread = path.file_name()?.to_str()?.strip_suffix(".jsonl")?;
        (!is_sub_agents(path)).then(|| Named {
            thread: thread.to_owned(),
            order: String::new(),
        })
    }

    fn head_want(&self) -> &'static Want {
        &HEAD
    }

    fn head_row(&self, row: &Value, head: &mut Head) -> bool {
        head.cwd = row.get("cwd").str().map(str::to_owned);
        head.cwd.is_none()
    }

    fn judge(&self, case: Case<'_>, saved: Option<&str>) -> Option<Box<dyn Judge>> {
        Some(Box::new(Rules {
            names: Names::new(case.secret, self.catalog(), case.thread),
            sub_agents: case.path.is_some_and(is_sub_agents),
            state: agent::restore(saved)?,
        }))
    }
}

/// Whether the file is a sub-agent's: beside its parent's, or in a folder of it.
fn is_sub_agents(path: &Path) -> bool {
    let name = |path: &Path| path.file_name().unwrap_or_default().to_owned();
    name(path).as_encoded_bytes().starts_with(b"agent-")
        || (path.ancestors().skip(1).take(3)).any(|folder| name(folder) == "subagents")
}

static HEAD: Want = Fields(&[("cwd", Scalar)]);

const BLOCKS: Want = Items(&Fields(&[("type", Scalar), ("text", Scalar)]));

static ROW: Want = Fields(&[
    ("type", Scalar),
    ("uuid", Scalar),
    ("sessionId", Scalar),
    ("timestamp", Scalar),
    ("isSidechain", Scalar),
    ("isMeta", Scalar),
    ("isCompactSummary", Scalar),
    ("isVisibleInTranscriptOnly", Scalar),
    ("forkedFrom", Presence),
    ("toolUseResult", Presence),
    ("sourceToolUseID", Presence),
    ("sourceToolAssistantUUID", Presence),
    ("interruptedMessageId", Presence),
    ("interruptedByShutdown", Presence),
    ("origin", Fields(&[("kind", Scalar)])),
    ("turnOrigin", Scalar),
    ("promptSource", Scalar),
    ("turnCompanion", Scalar),
    ("queueSkipAttachments", Presence),
    ("scheduledTaskId", Presence),
    ("queuePriority", Scalar),
    ("message", Fields(&[("role", Scalar), ("content", BLOCKS)])),
    (
        "attachment",
        Fields(&[
            ("type", Scalar),
            ("commandMode", Scalar),
            ("isMeta", Scalar),
            ("origin", Fields(&[("kind", Scalar)])),
            ("prompt", BLOCKS),
        ]),
    ),
]);

#[derive(Default, Serialize, Deserialize)]
struct State {
    /// The latest time of a row that says it was copied at a fork. Some copies do
    /// not say it; what is typed in a fork is later than all of them.
    copied_ms: Option<i64>,
    repeats: Repeats,
}

struct Rules {
    names: Names,
    sub_agents: bool,
    state: State,
}

impl Judge for Rules {
    fn want(&self) -> &'static Want {
        &ROW
    }

    fn needles(&self) -> &'static [&'static str] {
        &["\"user\"", "\"queued_command\""]
    }

    fn judge(&mut self, row: &Value) -> Option<Act> {
        if self.sub_agents {
            return None;
        }
        let kind = row.get("type").str()?;
        let time_ms = row.get("timestamp").str().and_then(time_ms);
        if kind == "user" && row.get("forkedFrom").is_present() {
            self.state.copied_ms = self.state.copied_ms.max(time_ms);
            return None;
        }
        let (kind, words) = match kind {
            "user" => user(row)?,
            "attachment" => queued(row)?,
            _ => return None,
        };
        if time_ms.is_some() && time_ms <= self.state.copied_ms {
            return None;
        }
        let id = row.get("uuid").name().map(|uuid| [uuid]);
        let marks = Marks {
            id: id.as_ref().map(|id| id.as_slice()),
            text_too: false,
            thread: row.get("sessionId").name(),
            time_ms,
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

/// A person's act in a row of type `user`.
fn user(row: &Value) -> Option<(ActKind, Words<'_>)> {
    let flags = [
        "isMeta",
        "isCompactSummary",
        "isVisibleInTranscriptOnly",
        "turnCompanion",
    ];
    let fields = [
        "toolUseResult",
        "sourceToolUseID",
        "sourceToolAssistantUUID",
        "interruptedMessageId",
        "interruptedByShutdown",
    ];
    if is_foreign(row)
        || flags.iter().any(|flag| row.get(flag).is_true())
        || fields.iter().any(|field| row.get(field).is_present())
    {
        return None;
    }
    let origin = row.get("origin").get("kind").str();
    let turn_origin = row.get("turnOrigin").str();
    let source = row.get("promptSource").str();
    if [origin, turn_origin]
        .into_iter()
        .flatten()
        .any(|kind| kind != "human")
        || matches!(source, Some("sdk" | "system"))
    {
        return None;
    }
    let delivered = row.get("queueSkipAttachments").is_present()
        || row.get("scheduledTaskId").is_present()
        || row.get("queuePriority").str() == Some("later");
    let message = row.get("message");
    if (delivered && origin.is_none()) || !matches!(message.get("role").str(), None | Some("user"))
    {
        return None;
    }
    let content = Content::of(message.get("content"));
    let told = origin.is_some() || turn_origin.is_some() || source.is_some();
    (!content.only_tools)
        .then(|| typed(content, told))
        .flatten()
}

/// A person's act in an attachment: what was typed while the agent was busy and
/// given to it in the middle of its turn, without a row of type `user`.
fn queued(row: &Value) -> Option<(ActKind, Words<'_>)> {
    let command = row.get("attachment");
    if is_foreign(row)
        || row.get("isMeta").is_true()
        || command.get("isMeta").is_true()
        || command.get("type").str() != Some("queued_command")
        || command.get("commandMode").str() != Some("prompt")
    {
        return None;
    }
    let origin = command.get("origin").get("kind").str();
    if origin.is_some_and(|kind| kind != "human") {
        return None;
    }
    typed(Content::of(command.get("prompt")), origin.is_some())
}

/// Whether the row is a sub-agent's or copied from another session.
fn is_foreign(row: &Value) -> bool {
    row.get("isSidechain").is_true() || row.get("forkedFrom").is_present()
}

/// Elements that the program puts before what was typed.
const BEFORE: [(&str, &str); 5] = [
    ("<system-reminder>", "</system-reminder>"),
    ("<system_instruction>", "</system_instruction>"),
    ("<ide_opened_file>", "</ide_opened_file>"),
    ("<ide_selection>", "</ide_selection>"),
    ("<ide_diagnostics>", "</ide_diagnostics>"),
];

/// What a person who pressed Escape leaves before the next words.
const INTERRUPTED: [&str; 2] = [
    "[Request interrupted by user for tool use]",
    "[Request interrupted by user]",
];

/// How texts begin that no person typed.
const MACHINE: [&str; 27] = [
    "<bash-stdout>",
    "<bash-stderr>",
    "<local-command-stdout>",
    "<local-command-stderr>",
    "<local-command-caveat>",
    "Caveat: The messages below were generated by the user while running local commands",
    "<task-notification>",
    "This session is being continued from a previous conversation",
    "Stop hook feedback:",
    "<user-prompt-submit-hook>",
    "<post-tool-use-hook>",
    "<teammate-message",
    "<cross-session-message",
    "<agent-message",
    "<subagent-message>",
    "Another Claude session sent a message:",
    "[Cross-session idle notice]",
    "<channel source=",
    "<tick>",
    "Goal check-in:",
    "A session-scoped Stop hook is now active",
    "Continue from where you left off.",
    "(Re-invocation of ",
    "Your claude.ai usage limit has reset",
    "Base directory for this skill:",
    "[Image: original ",
    "[Image: source: ",
];

/// What was typed, if the texts are not the program's. `told` says that the row
/// names where its text came from.
fn typed(content: Content<'_>, told: bool) -> Option<(ActKind, Words<'_>)> {
    let mut words = Words::default();
    for text in content.texts {
        let left = after_prefixes(&text.head);
        if words.is_empty() && !is_empty(left) {
            if is_machine(left) {
                return None;
            }
            if let Some((kind, typed)) = command(left, told) {
                return Some((kind, Words::made(typed)));
            }
        }
        words.push(text, unwrapped(left));
    }
    (content.has_media || !words.is_empty()).then_some((ActKind::Prompt, words))
}

fn after_prefixes(text: &str) -> &str {
    let mut left = lead(text);
    loop {
        let rest = BEFORE
            .iter()
            .find_map(|(open, close)| after_element(left, open, close))
            .or_else(|| INTERRUPTED.iter().find_map(|mark| left.strip_prefix(mark)));
        match rest {
            Some(rest) => left = lead(rest),
            None => return left,
        }
    }
}

fn is_machine(text: &str) -> bool {
    let stopped = || {
        let many = text.trim_start_matches(|c: char| c.is_ascii_digit());
        many.len() < text.len() && many.starts_with(" background agents were stopped by the user")
            || text.starts_with("Background agent `") && text.contains("` was stopped by the user")
    };
    MACHINE.iter().any(|start| text.starts_with(start))
        || text.starts_with("PreToolUse:") && text.contains("hook blocking error")
        || stopped()
}

/// A slash command or a shell command, and how it was typed.
fn command(text: &str, told: bool) -> Option<(ActKind, String)> {
    let command = ["<command-name>", "<command-message>", "<command-args>"];
    if command.iter().any(|tag| text.starts_with(tag)) {
        let name = inside(text, "<command-name>", "</command-name>").unwrap_or_default();
        let args = inside(text, "<command-args>", "</command-args>").unwrap_or_default();
        return Some((ActKind::Command, format!("{name} {args}")));
    }
    if text.starts_with("<bash-input>") {
        let typed = inside(text, "<bash-input>", "</bash-input>").unwrap_or_default();
        return Some((ActKind::Shell, typed.to_owned()));
    }
    let name = text.trim_end().strip_prefix('/')?;
    let is_name = name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name
            .chars()
            .all(|c| c.is_alphanumeric() || "-_:.".contains(c));
    (is_name && !told).then(|| (ActKind::Command, text.to_owned()))
}

/// The text without the tags around pasted content and memory notes.
fn unwrapped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('<') {
        let tag = &rest[at..];
        let name = tag[1..].strip_prefix('/').unwrap_or(&tag[1..]);
        let wrapper =
            name.starts_with("pasted_content id=") || name.starts_with("user-memory-input>");
        if !wrapper {
            out.push_str(&rest[..=at]);
            rest = &tag[1..];
            continue;
        }
        // Nor does any other tag end when this one does not: they are not looked through
        // one by one.
        let Some(end) = tag.find('>') else { break };
        out.push_str(&rest[..at]);
        rest = &tag[end + 1..];
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::super::tests::{acts_of, judge, knows, prompts, secret, told};
    use super::super::{feed, head};
    use super::*;
    use serde_json::{Value as Json, json};

    /// A row of type user with these fields more.
    fn user(content: impl Into<Json>, more: Json) -> Json {
        let mut row = json!({
            "type": "user", "uuid": "u", "sessionId": "s", "timestamp": "2026-09-20T08:00:01.000Z",
            "isSidechain": false, "message": {"role": "user", "content": content.into()},
        });
        let fields = row.as_object_mut().unwrap();
        fields.extend(more.as_object().unwrap().clone());
        row
    }

    fn kind(row: Json) -> Option<ActKind> {
        acts_of("claude", &[row]).first().map(|act| act.kind)
    }

    fn plain(content: impl Into<Json>) -> Json {
        user(content, json!({}))
    }

    #[test]
    fn a_prompt_is_told_with_its_words() {
        let text = |text: &str| json!({"type": "text", "text": text});
        for (content, words) in [
            (json!("fix the test"), "fix the test"),
            (json!([text("one"), text("two")]), "one\ntwo"),
            (json!(["bare"]), "bare"),
            (
                json!([text("see"), {"type": "image", "source": {}}, text("this")]),
                "see this",
            ),
            (json!("/etc/hosts looks wrong"), "/etc/hosts looks wrong"),
            (
                json!(
                    "\u{feff}  <system-reminder>\nx\n</system-reminder>\n<system-reminder>y</system-reminder> go on"
                ),
                "go on",
            ),
            (
                json!([
                    text("<ide_selection>lines</ide_selection>"),
                    text("explain")
                ]),
                "explain",
            ),
            (
                json!("[Request interrupted by user for tool use]\nno, the other"),
                "no, the other",
            ),
            (
                json!("<system-reminder> is what, exactly?"),
                "<system-reminder> is what, exactly?",
            ),
            (
                json!("<pasted_content id=\"1\">\nnote < 5\n</pasted_content id=\"1\"> read it"),
                "note < 5 read it",
            ),
            (
                json!("<user-memory-input>use tabs</user-memory-input>"),
                "use tabs",
            ),
        ] {
            let acts = acts_of("claude", &[plain(content.clone())]);
            assert_eq!(told(&acts), prompts(&[words]), "{content}");
        }
        assert_eq!(
            kind(plain(json!([{"type": "image", "source": {}}]))),
            Some(ActKind::Prompt)
        );
        assert_eq!(
            kind(plain(json!([{"type": "document"}]))),
            Some(ActKind::Prompt)
        );
        // The least a row needs.
        let bare = json!({"type": "user", "message": {"content": "hello"}});
        assert_eq!(kind(bare), Some(ActKind::Prompt));
    }

    #[test]
    fn commands_and_shell_inputs_are_told_as_typed() {
        for (content, kind, typed) in [
            (
                "<command-name>/review</command-name>\n<command-message>review</command-message>\n<command-args>src only</command-args>",
                ActKind::Command,
                "/review src only",
            ),
            (
                "<command-message>init</command-message><command-name>/init</command-name>",
                ActKind::Command,
                "/init",
            ),
            ("<command-args>x", ActKind::Command, "x"),
            (" /compact\n", ActKind::Command, "/compact"),
            (
                "<bash-input>git status</bash-input>",
                ActKind::Shell,
                "git status",
            ),
        ] {
            let acts = acts_of("claude", &[plain(content)]);
            assert_eq!(told(&acts), [(kind, secret().print(typed))], "{content}");
        }
        // A row that says where its text came from says what it is, too.
        let typed = user("/compact", json!({"promptSource": "typed"}));
        assert_eq!(kind(typed), Some(ActKind::Prompt));
    }

    #[test]
    fn what_the_fields_call_a_program_s_is_not_told() {
        for more in [
            json!({"isSidechain": true}),
            json!({"isMeta": true}),
            json!({"isCompactSummary": true}),
            json!({"isVisibleInTranscriptOnly": true}),
            json!({"turnCompanion": true}),
            json!({"toolUseResult": "x"}),
            json!({"toolUseResult": {}}),
            json!({"sourceToolUseID": "t"}),
            json!({"sourceToolAssistantUUID": "t"}),
            json!({"interruptedMessageId": "m"}),
            json!({"interruptedByShutdown": true}),
            json!({"origin": {"kind": "task-notification"}}),
            json!({"origin": {"kind": "something new"}, "promptSource": "typed"}),
            json!({"turnOrigin": "scheduled"}),
            json!({"promptSource": "sdk"}),
            json!({"promptSource": "system", "origin": {"kind": "human"}}),
            json!({"scheduledTaskId": "s"}),
            json!({"queueSkipAttachments": true}),
            json!({"queuePriority": "later"}),
            json!({"forkedFrom": {"sessionId": "p", "messageUuid": "u"}}),
            json!({"type": "progress"}),
            json!({"type": 7}),
            json!({"message": "text"}),
            json!({"message": {"role": "assistant", "content": "x"}}),
            json!({"message": {"role": "user", "content": 12345}}),
        ] {
            assert_eq!(kind(user("typed?", more.clone())), None, "{more}");
        }
        for more in [
            json!({"origin": {"kind": "human"}, "turnOrigin": "human", "promptSource": "queued"}),
            json!({"promptSource": "suggestion_accepted"}),
            json!({"toolUseResult": null, "isMeta": false, "forkedFrom": null}),
            json!({"origin": {"kind": "human"}, "queuePriority": "later"}),
            json!({"isSidechain": "no", "origin": "x"}),
        ] {
            assert_eq!(
                kind(user("typed", more.clone())),
                Some(ActKind::Prompt),
                "{more}"
            );
        }
    }

    #[test]
    fn texts_that_programs_write_are_not_told() {
        let mut texts: Vec<String> = MACHINE
            .iter()
            .map(|start| format!("\u{feff} {start} …"))
            .collect();
        texts.extend(
            [
                "",
                " \n",
                "[Request interrupted by user]",
                "<system-reminder>x</system-reminder>",
                "<ide_opened_file>x</ide_opened_file>",
                "<system-reminder>x</system-reminder><task-notification>y",
                "PreToolUse:Bash [x] hook blocking error: no",
                "Background agent `x` was stopped by the user",
                "3 background agents were stopped by the user",
            ]
            .map(str::to_owned),
        );
        for text in texts {
            assert_eq!(kind(plain(text.as_str())), None, "{text}");
            // The field is also on output, so the text counts first.
            assert_eq!(
                kind(user(text.as_str(), json!({"promptSource": "typed"}))),
                None,
                "{text}"
            );
        }
        for text in [
            "PreToolUse:Bash is slow",
            "background agents were stopped by the user",
        ] {
            assert_eq!(kind(plain(text)), Some(ActKind::Prompt), "{text}");
        }
        let result = json!({"type": "tool_result", "content": "x"});
        assert_eq!(kind(plain(json!([result, result]))), None);
        let interrupted =
            json!({"type": "text", "text": "[Request interrupted by user for tool use]"});
        assert_eq!(kind(plain(json!([result, interrupted]))), None);
        let typed = json!({"type": "text", "text": "stop that"});
        assert_eq!(kind(plain(json!([result, typed]))), Some(ActKind::Prompt));
    }

    #[test]
    fn what_was_typed_while_busy_is_told_once() {
        let queued = |attachment: Json| {
            json!({"type": "attachment", "uuid": "q", "timestamp": "2026-09-20T08:00:12.000Z",
                "isSidechain": false, "attachment": attachment})
        };
        let with = |prompt: Json, mode: &str, origin: Json| {
            queued(
                json!({"type": "queued_command", "prompt": prompt, "commandMode": mode, "origin": origin}),
            )
        };
        let blocks = json!([{"type": "text", "text": "also rename"}, {"type": "image"}]);
        let (prompt, note) = ("prompt", "task-notification");
        for (row, is_told) in [
            (
                with(json!("also rename"), prompt, json!({"kind": "human"})),
                true,
            ),
            (with(json!("also rename"), prompt, json!(null)), true),
            (with(blocks, prompt, json!(null)), true),
            (
                with(json!("also rename"), prompt, json!({"kind": "peer"})),
                false,
            ),
            (
                with(json!("<task-notification>x"), prompt, json!(null)),
                false,
            ),
            (with(json!("also rename"), note, json!(null)), false),
            (
                queued(json!({"type": "queued_command", "prompt": "x"})),
                false,
            ),
            (
                queued(json!({"type": "todo_reminder", "content": "x"})),
                false,
            ),
            (
                json!({"type": "queue-operation", "operation": "enqueue", "content": "x"}),
                false,
            ),
            (json!({"type": "last-prompt", "lastPrompt": "x"}), false),
        ] {
            assert_eq!(
                !acts_of("claude", std::slice::from_ref(&row)).is_empty(),
                is_told,
                "{row}"
            );
        }
    }

    #[test]
    fn a_turn_is_known_by_its_uuid_wherever_it_is() {
        let row = |uuid: Json, session: &str, text: &str| {
            user(text, json!({"uuid": uuid, "sessionId": session}))
        };
        let acts = |row: Json| acts_of("claude", &[row]).remove(0);
        let one = acts(row(json!("u1"), "s1", "hello"));
        assert!(knows(&one, &acts(row(json!("u1"), "s2", "hello"))));
        assert!(!knows(&one, &acts(row(json!("u2"), "s1", "hello"))));
        assert_eq!(one.time_ms, Some(1_789_891_201_000));
        // Without one, by session, time and text.
        let none = acts(row(json!(null), "s1", "hello"));
        assert!(knows(&none, &acts(row(json!(""), "s1", " hello"))));
        assert!(!knows(&none, &acts(row(json!(null), "s2", "hello"))));
        let twice = acts_of(
            "claude",
            &[row(json!(null), "s1", "x"), row(json!(null), "s1", "x")],
        );
        assert!(!knows(&twice[0], &twice[1]));
        // Handed over again, a row is the same one.
        let mut judge = judge("claude", None);
        let json = row(json!(null), "s1", "x").to_string();
        let first = feed(json.as_bytes(), &secret(), &mut *judge).unwrap();
        judge.renew();
        assert!(knows(
            &first,
            &feed(json.as_bytes(), &secret(), &mut *judge).unwrap()
        ));
    }

    #[test]
    fn what_was_typed_before_a_fork_is_not_told_in_it() {
        let at = |second: u8, more: Json| {
            let mut row = user("x", more);
            row["timestamp"] = json!(format!("2026-09-20T08:00:{second:02}.000Z"));
            row
        };
        let copy = json!({"forkedFrom": {"sessionId": "p"}});
        let tool = json!({"forkedFrom": {"sessionId": "p"}, "toolUseResult": {}});
        // The first row stands there again, without a word of where it is from.
        let rows = [at(1, copy), at(5, tool), at(1, json!({})), at(6, json!({}))];
        let acts = acts_of("claude", &rows);
        assert_eq!(acts.len(), 1);
        assert_eq!(acts[0].time_ms, Some(1_789_891_206_000));
    }

    #[test]
    fn files_of_sub_agents_are_known_by_their_place() {
        let secret = secret();
        for (path, theirs) in [
            ("/p/slug/0f0e.jsonl", false),
            ("/subagents/.claude/projects/slug/0f0e.jsonl", false),
            ("/p/slug/agent-1.jsonl", true),
            ("/p/slug/0f0e/subagents/x.jsonl", true),
            ("/p/slug/0f0e/subagents/workflows/1/x.jsonl", true),
        ] {
            let path = Path::new(path);
            assert_eq!(Claude.named(path).is_none(), theirs, "{path:?}");
            let case = Case {
                secret: &secret,
                thread: "t",
                path: Some(path),
            };
            let mut judge = Claude.judge(case, None).unwrap();
            let act = feed(plain("x").to_string().as_bytes(), &secret, &mut *judge);
            assert_eq!(act.is_none(), theirs, "{path:?}");
        }
        assert_eq!(Claude.named(Path::new("/p/slug/x.txt")), None);
    }

    #[test]
    fn the_store_is_where_the_environment_says() {
        let env = |name: &str| match name {
            "HOME" => Some("/home/dev".into()),
            _ => None,
        };
        let paths = |root: Option<&str>, env: Env<'_>| {
            let folders = Claude.store(root.map(Path::new), env);
            folders
                .into_iter()
                .map(|f| f.path.display().to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            paths(None, &env),
            [
                "/home/dev/.claude/projects",
                "/home/dev/.config/claude/projects"
            ]
        );
        assert_eq!(paths(Some("/r"), &env), ["/r/projects"]);
        assert_eq!(
            paths(None, &|name| (name == "CLAUDE_CONFIG_DIR")
                .then(|| "/c".into())),
            ["/c/projects"]
        );
        assert!(paths(None, &|_| None).is_empty());
    }

    #[test]
    fn the_head_is_read_past_rows_without_a_folder() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t1.jsonl");
        let long = "x".repeat(600_000);
        let rows = [
            json!({"type": "mode"}).to_string(),
            "damaged".to_owned(),
            plain(long).to_string(),
            user("x", json!({"cwd": "/w"})).to_string(),
            String::new(),
        ];
        std::fs::write(&path, rows.join("\n")).unwrap();
        let found = head(&Claude, &path).unwrap();
        assert_eq!(
            (found.thread.as_deref(), found.cwd.as_deref()),
            (Some("t1"), Some("/w"))
        );
    }
}
