//! Codex: `<home>/sessions/YYYY/MM/DD/rollout-<time>-<thread>.jsonl`, later
//! segments of a thread with `_<segment>` after it, cold files with `.zst` after
//! that, archived ones in `<home>/archived_sessions`.
//!
//! A prompt is written twice: as the item that the model sees (`response_item` of
//! role user) and as an event (`user_message`, in paginated threads
//! `item_completed` with a `UserMessage`). The event counts and the item is its
//! mirror; only in files that have had no such event yet the item counts. Which of
//! the two comes first differs.
//!
//! A fork of the older kind begins with its parent's rows, written anew at the
//! time of the fork. They are known by turn ids older than the fork or, in the
//! versions without these, by having been written at once; a prompt that was given
//! to such a version with the fork itself is taken for one of them.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::act::{Act, ActKind, Marks, Names, Repeats, is_uuid, time_ms, uuid_time_ms};
use super::agent::{self, Agent, Case, Env, Folder, Head, Judge, Named};
use super::sift::{Value, Want};
use super::text::{Words, after_element, inside, lead, starts_with};

use Want::{Fields, Items, Presence, Scalar};

/// Codex.
pub struct Codex;

impl Agent for Codex {
    fn catalog(&self) -> &'static str {
        "codex"
    }

    fn store(&self, root: Option<&Path>, env: Env<'_>) -> Vec<Folder> {
        let var = |name| env(name).filter(|dir| !dir.is_empty()).map(PathBuf::from);
        let home = root
            .map(Path::to_owned)
            .or_else(|| var("CODEX_HOME"))
            .or_else(|| var("HOME").map(|home| home.join(".codex")));
        home.map(|home| folders(&home)).unwrap_or_default()
    }

    fn named(&self, path: &Path) -> Option<Named> {
        let name = path.file_name()?.to_str()?;
        let plain = name.strip_suffix(".zst").unwrap_or(name);
        let stem = plain.strip_prefix("rollout-")?.strip_suffix(".jsonl")?;
        let name = after_time(stem);
        // A segment stands after the thread, both UUIDs that begin with their time.
        let (thread, last) = match name.split_once('_') {
            Some((thread, segment)) if is_uuid(thread) && is_uuid(segment) => (thread, segment),
            _ => (name, name),
        };
        Some(Named {
            thread: thread.to_owned(),
            order: last.to_owned(),
        })
    }

    fn head_want(&self) -> &'static Want {
        &ROW
    }

    fn head_row(&self, row: &Value, head: &mut Head) -> bool {
        let Some(meta) = meta(row) else { return true };
        head.thread = thread(meta).map(str::to_owned);
        head.cwd = meta.get("cwd").str().map(str::to_owned);
        head.sub_agent = is_sub_agents(meta);
        false
    }

    fn judge(&self, case: Case<'_>, saved: Option<&str>) -> Option<Box<dyn Judge>> {
        Some(Box::new(Rules {
            names: Names::new(case.secret, self.catalog(), case.thread),
            default_thread: case.thread.to_owned(),
            state: agent::restore(saved)?,
        }))
    }

    fn siblings(&self, source: &Path) -> Vec<Folder> {
        let home = source.ancestors().skip(1).find_map(|folder| {
            let name = folder.file_name()?;
            (name == SESSIONS || name == ARCHIVED).then(|| folder.parent())?
        });
        home.map(folders).unwrap_or_default()
    }
}

const SESSIONS: &str = "sessions";
const ARCHIVED: &str = "archived_sessions";

fn folders(home: &Path) -> Vec<Folder> {
    let folder = |name, depth| Folder {
        path: home.join(name),
        depth,
    };
    vec![folder(SESSIONS, 4), folder(ARCHIVED, 1)]
}

/// What follows `YYYY-MM-DDThh-mm-ss-`, or the `YYYY-MM-DD-` of the first versions.
fn after_time(stem: &str) -> &str {
    let matches = |pattern: &str| {
        stem.len() > pattern.len()
            && stem.bytes().zip(pattern.bytes()).all(|(byte, p)| match p {
                b'0' => byte.is_ascii_digit(),
                p => byte == p,
            })
    };
    ["0000-00-00T00-00-00-", "0000-00-00-"]
        .into_iter()
        .find(|pattern| matches(pattern))
        .map_or(stem, |pattern| &stem[pattern.len()..])
}

const CONTENT: Want = Items(&Fields(&[("type", Scalar), ("text", Scalar)]));

const PASSED_ON: Want = Fields(&[("turn_id", Scalar), ("content_item_kinds", Items(&Scalar))]);

static ROW: Want = Fields(&[
    ("type", Scalar),
    ("timestamp", Scalar),
    ("ordinal", Scalar),
    (
        "metadata",
        Fields(&[
            ("inherited_user_message", Scalar),
            ("harness_authored_configuration", Scalar),
            ("compaction_output", Scalar),
        ]),
    ),
    (
        "payload",
        Fields(&[
            ("type", Scalar),
            // session_meta
            ("id", Scalar),
            ("session_id", Scalar),
            ("timestamp", Scalar),
            ("cwd", Scalar),
            ("source", Fields(&[("subagent", Presence)])),
            ("thread_source", Scalar),
            ("forked_from_id", Scalar),
            ("history_mode", Scalar),
            ("history_base", Fields(&[("end_ordinal_exclusive", Scalar)])),
            // response_item
            ("role", Scalar),
            ("content", CONTENT),
            ("internal_chat_message_metadata_passthrough", PASSED_ON),
            // event_msg
            ("turn_id", Scalar),
            ("message", Scalar),
            ("images", Items(&Presence)),
            ("local_images", Items(&Presence)),
            ("audio", Items(&Presence)),
            ("local_audio", Items(&Presence)),
            ("kind", Scalar),
            (
                "item",
                Fields(&[("type", Scalar), ("id", Scalar), ("content", CONTENT)]),
            ),
        ]),
    ),
    // Before 0.32 a row was what is now its payload.
    ("id", Scalar),
    ("cwd", Scalar),
    ("role", Scalar),
    ("content", CONTENT),
    ("record_type", Scalar),
]);

/// What the first row says of the file, in an envelope or bare.
fn meta(row: &Value) -> Option<&Value> {
    match row.get("type").str() {
        Some("session_meta") => Some(row.get("payload")),
        None if row.get("id").is_present() && !row.get("record_type").is_present() => Some(row),
        _ => None,
    }
}

fn thread(meta: &Value) -> Option<&str> {
    (meta.get("id").name()).or(meta.get("session_id").name())
}

fn is_sub_agents(meta: &Value) -> bool {
    let source = meta.get("source");
    source.get("subagent").is_present()
        || source.str() == Some("subagent")
        || matches!(
            meta.get("thread_source").str(),
            Some("subagent" | "agent" | "guardian_review")
        )
}

/// The rows copied at a fork lie no further apart than this, in milliseconds;
/// what a person types after it comes later.
const COPYING_GAP_MS: i64 = 1000;

/// Where a file stands that may begin with rows copied from its parent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
enum Fork {
    /// It has none, or they are over.
    #[default]
    Own,
    /// The next row will tell.
    Begun,
    /// Copied rows, the last one of this time.
    Copying(i64),
}

#[derive(Default, Serialize, Deserialize)]
struct State {
    /// Whether the first `session_meta` was met. Later ones are ancestors'.
    met: bool,
    thread: Option<String>,
    sub_agents: bool,
    /// The header's own time.
    begun_ms: Option<i64>,
    /// Rows numbered below this belong to the file this one continues.
    base_end: i64,
    /// Whether the file may begin with rows copied from its parent.
    forked: bool,
    fork: Fork,
    /// Whether prompts are written as events, so that items only mirror them.
    events: bool,
    /// A review runs: the prompts are its.
    review: bool,
    /// The turns met last, the present one at the end, each with the acts told of it.
    turns: VecDeque<(String, u32)>,
    pairs: VecDeque<Pair>,
    repeats: Repeats,
}

/// How one prompt was met so far.
#[derive(Serialize, Deserialize)]
struct Pair {
    /// A hash of the text without white space, since one form joins with a line
    /// feed what the other joins without.
    text: u64,
    forms: u8,
    told: bool,
    /// The time of the row it was told by.
    time: Option<i64>,
}

/// The turns that may still go on: a shell command is a turn of its own, within
/// another one.
const TURNS: usize = 8;

/// The prompts that may still wait for their mirror.
const PAIRS: usize = 16;

/// What stands in the rows that [`Rules`] learns from, the most frequent first.
const NEEDLES: [&str; 11] = [
    "\"assistant\"",
    "\"user\"",
    "\"user_message\"",
    "\"UserMessage\"",
    "\"agent_message\"",
    "\"task_",
    "\"turn_context\"",
    "\"turn_started\"",
    "\"turn_complete\"",
    "\"turn_aborted\"",
    "ed_review_mode\"",
];

/// The forms a prompt is written in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Item = 1,
    Message = 2,
    Completed = 4,
}

struct Rules {
    names: Names,
    default_thread: String,
    state: State,
}

impl Judge for Rules {
    fn want(&self) -> &'static Want {
        &ROW
    }

    fn needles(&self) -> &'static [&'static str] {
        // While it is open where the copied rows end, every row's time counts.
        match self.state.met && self.state.fork == Fork::Own {
            true => &NEEDLES,
            false => &[],
        }
    }

    fn judge(&mut self, row: &Value) -> Option<Act> {
        if let Some(meta) = meta(row).filter(|_| !self.state.met) {
            self.begin(meta, row);
            return None;
        }
        if self.state.sub_agents {
            return None;
        }
        let kind = row.get("type").str()?;
        let time = row.get("timestamp").str().and_then(time_ms);
        self.step(time, kind == "session_meta");
        let payload = row.get("payload");
        match kind {
            "response_item" => self.item(row, payload, time),
            "event_msg" => self.event(row, payload, time),
            "message" => self.item(row, row, time),
            "turn_context" => {
                self.turn(payload.get("turn_id").name());
                None
            }
            _ => None,
        }
    }

    fn save(&self) -> String {
        agent::save(&self.state)
    }

    fn renew(&mut self) {
        self.state.repeats = Repeats::default();
    }
}

impl Rules {
    /// Learns what the file is.
    fn begin(&mut self, meta: &Value, row: &Value) {
        let time = |value: &Value| value.get("timestamp").str().and_then(time_ms);
        let state = &mut self.state;
        state.met = true;
        state.thread = thread(meta).map(agent::short);
        state.sub_agents = is_sub_agents(meta);
        state.begun_ms = time(meta).or(time(row));
        state.events = meta.get("history_mode").str() == Some("paginated");
        let base = meta.get("history_base");
        state.base_end = base.get("end_ordinal_exclusive").integer().unwrap_or(0);
        if meta.get("forked_from_id").is_present() && !base.is_present() {
            state.forked = true;
            state.fork = Fork::Begun;
        }
    }

    /// Takes note of the time of a row: those copied at a fork were all written at
    /// once, or have kept their old times.
    fn step(&mut self, time: Option<i64>, ancestor: bool) {
        let Some(time) = time else { return };
        let near = |other: i64| (time - other).abs() <= COPYING_GAP_MS;
        let begun = self.state.begun_ms;
        let old = ancestor || begun.is_some_and(|begun| time < begun);
        let copied = match self.state.fork {
            Fork::Own => return,
            Fork::Begun => old || begun.is_some_and(near),
            Fork::Copying(last) => old || near(last),
        };
        self.state.fork = if copied {
            Fork::Copying(time)
        } else {
            Fork::Own
        };
    }

    /// Takes note of the turn that a row belongs to.
    fn turn(&mut self, turn: Option<&str>) {
        let Some(turn) = turn.map(agent::short) else {
            return;
        };
        let turns = &mut self.state.turns;
        let known = turns.iter().position(|(known, _)| *known == turn);
        let present = known.and_then(|at| turns.remove(at)).unwrap_or((turn, 0));
        turns.push_back(present);
        if turns.len() > TURNS {
            turns.pop_front();
        }
    }

    /// Whether the row's own fields, or the file's, say that it was copied or that
    /// no person wrote it.
    fn is_copy(&self, row: &Value) -> bool {
        let state = &self.state;
        let turn_ms = state.turns.back().and_then(|(turn, _)| uuid_time_ms(turn));
        let from_parent = match turn_ms.zip(state.begun_ms) {
            // The turn's id holds its time.
            Some((turn, begun)) => turn < begun,
            None => state.fork != Fork::Own,
        };
        let metadata = row.get("metadata");
        (state.forked && from_parent)
            || (row.get("ordinal").integer()).is_some_and(|ordinal| ordinal < state.base_end)
            || [
                "inherited_user_message",
                "harness_authored_configuration",
                "compaction_output",
            ]
            .iter()
            .any(|field| metadata.get(field).is_true())
    }

    /// A row as the model sees it.
    fn item(&mut self, row: &Value, payload: &Value, time: Option<i64>) -> Option<Act> {
        match payload.get("role").str() {
            Some("user") => {}
            Some("assistant") => {
                // The agent answers: whatever was typed before has met its mirror.
                self.state.pairs.clear();
                return None;
            }
            _ => return None,
        }
        let passed_on = payload.get("internal_chat_message_metadata_passthrough");
        self.turn(passed_on.get("turn_id").name());
        let is_message = matches!(payload.get("type").str(), None | Some("message"));
        if !is_message || self.is_copy(row) {
            return None;
        }
        let kinds = passed_on.get("content_item_kinds").items();
        let (kind, words) = typed_item(payload.get("content"), kinds)?;
        let id = payload.get("id").name();
        match kind {
            ActKind::Shell => Some(self.act(kind, &words, id, time)),
            _ => self.prompt(Form::Item, &words, id, time),
        }
    }

    /// A row that says what happened.
    fn event(&mut self, row: &Value, payload: &Value, time: Option<i64>) -> Option<Act> {
        let turn = payload.get("turn_id").name();
        let (form, words, id) = match payload.get("type").str()? {
            "user_message" => (Form::Message, message(payload)?, None),
            "item_completed" => {
                let item = payload.get("item");
                let words = (item.get("type").str() == Some("UserMessage"))
                    .then(|| blocks(item.get("content")))??;
                self.turn(turn);
                (Form::Completed, words, item.get("id").name())
            }
            "agent_message" => {
                self.state.pairs.clear();
                return None;
            }
            "entered_review_mode" => {
                self.state.review = true;
                return None;
            }
            "exited_review_mode" | "task_started" | "turn_started" | "task_complete"
            | "turn_complete" | "turn_aborted" => {
                self.turn(turn);
                self.state.review = false;
                return None;
            }
            _ => return None,
        };
        self.state.events = true;
        if self.is_copy(row) {
            return None;
        }
        self.prompt(form, &words, id, time)
    }

    /// A prompt in one of its forms; told in the first that counts.
    fn prompt(
        &mut self,
        form: Form,
        words: &Words<'_>,
        id: Option<&str>,
        time: Option<i64>,
    ) -> Option<Act> {
        if self.state.review {
            return None;
        }
        let counts = form != Form::Item || !self.state.events;
        let text = words.dense(self.names.secret());
        let pairs = &mut self.state.pairs;
        let waiting = pairs
            .iter_mut()
            .find(|pair| pair.text == text && pair.forms & form as u8 == 0);
        match waiting {
            Some(pair) => {
                pair.forms |= form as u8;
                let (told, told_at) = (pair.told, pair.time);
                if counts {
                    (pair.told, pair.time) = (true, time);
                }
                match (counts, told) {
                    (false, _) => None,
                    (true, false) => Some(self.act(ActKind::Prompt, words, id, time)),
                    (true, true) if told_at == time => None,
                    (true, true) => Some(self.again(words, time)),
                }
            }
            None => {
                if pairs.len() == PAIRS {
                    pairs.pop_front();
                }
                pairs.push_back(Pair {
                    text,
                    forms: form as u8,
                    told: counts,
                    time,
                });
                counts.then(|| self.act(ActKind::Prompt, words, id, time))
            }
        }
    }

    /// The act, known by the row's id, else by its place in the turn, and by its text.
    fn act(
        &mut self,
        kind: ActKind,
        words: &Words<'_>,
        id: Option<&str>,
        time_ms: Option<i64>,
    ) -> Act {
        let state = &mut self.state;
        let thread = state.thread.as_deref().unwrap_or(&self.default_thread);
        // What is no UUID is a number within its thread.
        let scope = |id: &str| match is_uuid(id.strip_prefix("msg_").unwrap_or(id)) {
            true => "",
            false => thread,
        };
        let place;
        let id = match (id, state.turns.back_mut()) {
            (Some(id), _) => Some([scope(id), id, ""]),
            (None, Some((turn, told))) => {
                place = told.to_string();
                *told += 1;
                Some([scope(turn), turn.as_str(), &place])
            }
            (None, None) => None,
        };
        let marks = Marks {
            id: id.as_ref().map(|id| id.as_slice()),
            text_too: true,
            thread: Some(thread),
            time_ms,
        };
        let print = words.print(self.names.secret());
        self.names.act(kind, print, &marks, &mut state.repeats)
    }

    /// The prompt told before, as the event after its item has it. A migration keeps
    /// the event's time alone.
    fn again(&mut self, words: &Words<'_>, time_ms: Option<i64>) -> Act {
        let marks = Marks {
            id: None,
            text_too: true,
            thread: self.state.thread.as_deref().or(Some(&self.default_thread)),
            time_ms,
        };
        let print = words.print(self.names.secret());
        let repeats = &mut self.state.repeats;
        self.names
            .act(ActKind::Prompt, print, &marks, repeats)
            .again()
    }
}

/// What was typed, in a `user_message`. Its `kind`, where it has one, is `plain`.
fn message(payload: &Value) -> Option<Words<'_>> {
    let mut words = Words::default();
    if let Some(text) = payload.get("message").text() {
        words.push(text, request(&text.head));
    }
    let media = ["images", "local_images", "audio", "local_audio"]
        .iter()
        .any(|field| !payload.get(field).items().is_empty());
    let plain = matches!(payload.get("kind").str(), None | Some("plain"));
    (plain && (media || !words.is_empty())).then_some(words)
}

/// What was typed, in the content of a `UserMessage`: texts, images, skills.
fn blocks(content: &Value) -> Option<Words<'_>> {
    let mut words = Words::default();
    let mut other = false;
    for block in content.items() {
        match block.get("text").text() {
            Some(text) => words.push(text, request(&text.head)),
            None => other |= block.get("type").is_present(),
        }
    }
    (other || !words.is_empty()).then_some(words)
}

/// What was typed, in an item of role user. The kinds of its blocks say which are a
/// person's; without them one block of the program's makes the whole the program's.
fn typed_item<'r>(content: &'r Value, kinds: &[Value]) -> Option<(ActKind, Words<'r>)> {
    let one = std::slice::from_ref(content);
    let blocks = if content.text().is_some() {
        one
    } else {
        content.items()
    };
    let has_kinds = !kinds.is_empty() && kinds.len() == blocks.len();
    let mut words = Words::default();
    let mut media = false;
    for (i, block) in blocks.iter().enumerate() {
        let text = block.text().or(block.get("text").text());
        let head = text.map_or("", |text| lead(&text.head));
        let kind = if has_kinds {
            kinds[i].str().unwrap_or("")
        } else {
            kind_of(head)
        };
        match kind {
            "shell.user_command" => {
                let command = inside(head, "<command>", "</command>").unwrap_or(head);
                return Some((ActKind::Shell, Words::made(command.to_owned())));
            }
            "user.heartbeat" => {}
            kind if kind.starts_with("user.") => match text {
                Some(text) => words.push(text, request(without_image(head))),
                None => media = true,
            },
            _ if has_kinds => {}
            _ => return None,
        }
    }
    (media || !words.is_empty()).then_some((ActKind::Prompt, words))
}

/// How texts begin, in any case, that no person typed.
const MACHINE: [&str; 23] = [
    "# AGENTS.md instructions",
    "<INSTRUCTIONS>",
    "<user_instructions>",
    "<environment_context>",
    "<turn_aborted>",
    "<subagent_notification>",
    "<agent_message_board_notification>",
    "<goal_context>",
    "<codex_internal_context source=",
    "<extension_context>",
    "<external_",
    "<recommended_plugins>",
    "<skill>",
    "<hook_prompt hook_run_id=",
    "<user_action>",
    "<warning>",
    "Warning: apply_patch was requested via",
    "Warning: The maximum number of unified exec processes",
    "Warning: Your account was flagged",
    "Here is a list of plugins that are available but not installed.",
    "Another language model started to solve this problem",
    "The following is the Codex agent history",
    "<permissions instructions>",
];

/// The kind of a block that names none, by how its text begins.
fn kind_of(text: &str) -> &'static str {
    let shell = ["<user_shell_command>", "<user_shell_cmd>"];
    if shell.iter().any(|start| starts_with(text, start)) {
        "shell.user_command"
    } else if MACHINE.iter().any(|start| starts_with(text, start)) {
        "unknown"
    } else {
        "user.text"
    }
}

/// The text without the tags that stand around an image.
fn without_image(mut text: &str) -> &str {
    loop {
        let rest = if starts_with(text, "<image name=") {
            text.split_once('>').map(|(_, rest)| rest)
        } else {
            text.strip_prefix("<image>")
                .or(text.strip_prefix("</image>"))
        };
        match rest {
            Some(rest) => text = lead(rest),
            None => return text,
        }
    }
}

/// What was typed, without what an editor or a browser put before it.
fn request(text: &str) -> &str {
    let mut text = lead(text);
    while let Some(rest) =
        after_element(text, "<in-app-browser-context", "</in-app-browser-context>")
    {
        text = lead(rest);
    }
    let context = [
        "# Context from my IDE setup:",
        "# Files mentioned by the user:",
        "# Response annotations:",
    ];
    if context.iter().any(|start| text.starts_with(start))
        && let Some((_, request)) = text.rsplit_once("## My request for Codex:")
    {
        return request;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::tests::{acts_of, knows, prompts, secret, told};
    use super::super::{Act, head};
    use super::*;
    use serde_json::{Value as Json, json};

    const THREAD: &str = "01a22c79-48ed-7480-a102-2d91c8ce991a";

    /// A row written so many milliseconds after 09:00 on one day.
    fn row(ms: i64, kind: &str, payload: Json) -> Json {
        let at = jiff::Timestamp::from_millisecond(1_796_029_200_000 + ms).unwrap();
        json!({"timestamp": at.to_string(), "type": kind, "payload": payload})
    }

    fn meta(ms: i64, more: Json) -> Json {
        let at = row(ms, "", json!({}))["timestamp"].clone();
        let mut meta = json!({"id": THREAD, "timestamp": at, "cwd": "/w", "source": "cli"});
        meta.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        row(ms, "session_meta", meta)
    }

    fn content(texts: &[&str]) -> Json {
        texts
            .iter()
            .map(|text| json!({"type": "input_text", "text": text}))
            .collect()
    }

    fn item(ms: i64, texts: &[&str]) -> Json {
        row(
            ms,
            "response_item",
            json!({"type": "message", "role": "user", "content": content(texts)}),
        )
    }

    fn item_of(ms: i64, texts: &[&str], kinds: &[&str]) -> Json {
        let mut row = item(ms, texts);
        row["payload"]["internal_chat_message_metadata_passthrough"] =
            json!({"turn_id": "t", "content_item_kinds": kinds});
        row
    }

    fn answer(ms: i64) -> Json {
        row(
            ms,
            "response_item",
            json!({"type": "message", "role": "assistant", "content": content(&["ok"])}),
        )
    }

    fn event(ms: i64, kind: &str, more: Json) -> Json {
        let mut payload = json!({"type": kind});
        payload
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        row(ms, "event_msg", payload)
    }

    fn message(ms: i64, text: &str) -> Json {
        event(
            ms,
            "user_message",
            json!({"message": text, "images": [], "text_elements": []}),
        )
    }

    fn completed(ms: i64, id: &str, text: &str) -> Json {
        let content = json!([{"type": "text", "text": text}]);
        event(
            ms,
            "item_completed",
            json!({"turn_id": "t", "item": {"type": "UserMessage", "id": id, "content": content}}),
        )
    }

    fn started(ms: i64, turn: &str) -> Json {
        event(ms, "task_started", json!({"turn_id": turn}))
    }

    fn acts(rows: &[Json]) -> Vec<Act> {
        acts_of("codex", rows)
    }

    fn texts(rows: &[Json]) -> Vec<(ActKind, super::super::Print)> {
        told(&acts(rows))
    }

    #[test]
    fn a_prompt_and_its_mirror_are_one() {
        let legacy = meta(0, json!({}));
        let paged = meta(0, json!({"history_mode": "paginated"}));
        for rows in [
            vec![
                legacy.clone(),
                item(1, &["a"]),
                message(1, "a"),
                answer(2),
                item(3, &["b"]),
                message(4, "b"),
            ],
            vec![
                legacy.clone(),
                message(1, "a"),
                item(1, &["a"]),
                answer(2),
                message(3, "b"),
                item(4, &["b"]),
            ],
            vec![
                paged.clone(),
                item(1, &["a"]),
                completed(2, "1", "a"),
                answer(2),
                item(3, &["b"]),
                completed(4, "2", "b"),
            ],
            vec![
                paged.clone(),
                completed(1, "1", "a"),
                item(1, &["a"]),
                answer(2),
                completed(3, "2", "b"),
                item(4, &["b"]),
            ],
            vec![
                legacy.clone(),
                item(1, &["a"]),
                message(1, "a"),
                completed(1, "1", "a"),
                item(2, &["b"]),
                completed(2, "2", "b"),
                message(2, "b"),
            ],
            // A migration closes the turn before between the two.
            vec![
                paged.clone(),
                item(1, &["a"]),
                started(1, "r1"),
                completed(1, "1", "a"),
                answer(2),
                item(3, &["b"]),
                event(3, "task_complete", json!({"turn_id": "r1"})),
                started(3, "r2"),
                completed(3, "2", "b"),
            ],
            // No event ever: the items count.
            vec![
                legacy.clone(),
                item(1, &["a"]),
                answer(2),
                item(3, &["b"]),
                answer(4),
            ],
            vec![item(1, &["a"]), item(3, &["b"])],
        ] {
            assert_eq!(texts(&rows), prompts(&["a", "b"]), "{rows:?}");
        }
    }

    #[test]
    fn equal_prompts_are_as_many_as_were_typed() {
        let legacy = meta(0, json!({}));
        let twice = [
            legacy.clone(),
            item(1, &["yes"]),
            message(1, "yes"),
            item(2, &["yes"]),
            message(2, "yes"),
        ];
        assert_eq!(texts(&twice).len(), 2);
        let items = [
            legacy.clone(),
            item(1, &["yes"]),
            item(2, &["yes"]),
            answer(3),
            item(4, &["yes"]),
        ];
        assert_eq!(texts(&items).len(), 3);
        let acts = acts(&[legacy, message(1, "yes"), message(1, "yes")]);
        assert!(acts.len() == 2 && !knows(&acts[0], &acts[1]));
    }

    #[test]
    fn a_turn_goes_on_after_another_within_it() {
        let shell = "<user_shell_command>\n<command>\nls\n</command>\n</user_shell_command>";
        let of = |turn: &str, mut row: Json| {
            row["payload"]["internal_chat_message_metadata_passthrough"] = json!({"turn_id": turn});
            row
        };
        let rows = [
            meta(0, json!({})),
            started(1, "t1"),
            of("t1", item(2, &["begin"])),
            message(2, "begin"),
            started(3, "t2"),
            of("t2", item(3, &[shell])),
            of("t1", item(4, &["steer"])),
            message(4, "steer"),
        ];
        let acts = acts(&rows);
        assert_eq!(told(&acts).len(), 3);
        assert!(!knows(&acts[0], &acts[2]) && !knows(&acts[0], &acts[1]));
    }

    #[test]
    fn a_prompt_that_is_no_text_is_told() {
        let image = json!({"type": "input_image", "image_url": "data:"});
        let mut wrapped = item(1, &["<image name=[Image #1]>", "</image>", "look"]);
        wrapped["payload"]["content"]
            .as_array_mut()
            .unwrap()
            .insert(1, image.clone());
        let shown = event(
            1,
            "user_message",
            json!({"message": "look", "local_images": ["/a.png"]}),
        );
        assert_eq!(
            texts(&[meta(0, json!({})), wrapped, shown]),
            prompts(&["look"])
        );
        let mut alone = item(1, &[]);
        alone["payload"]["content"] = json!([image]);
        let shown = event(
            1,
            "user_message",
            json!({"message": "", "images": ["data:"]}),
        );
        assert_eq!(texts(&[meta(0, json!({})), alone, shown]), prompts(&[""]));
        let nothing = event(
            1,
            "user_message",
            json!({"message": " ", "images": [], "local_images": null}),
        );
        assert_eq!(texts(&[nothing]), []);
        let skill = event(
            1,
            "item_completed",
            json!({"item": {"type": "UserMessage", "id": "1", "content": [{"type": "skill", "name": "x"}]}}),
        );
        assert_eq!(texts(&[skill]), prompts(&[""]));
    }

    #[test]
    fn what_surrounds_the_words_is_taken_off() {
        for text in [
            "# Context from my IDE setup:\n\n## Active file: a.rs\n\n## My request for Codex:\nrename it",
            "# Files mentioned by the user:\nx\n## My request for Codex:\ny\n## My request for Codex:\nrename it",
            "<in-app-browser-context id=1>x</in-app-browser-context>\nrename it",
        ] {
            assert_eq!(
                texts(&[message(1, text), item(1, &[text])]),
                prompts(&["rename it"]),
                "{text}"
            );
        }
        let plain = "# Context from my IDE setup: what is it?";
        assert_eq!(texts(&[message(1, plain)]), prompts(&[plain]));
    }

    #[test]
    fn what_the_program_writes_in_the_user_s_role_is_not_told() {
        let legacy = meta(0, json!({}));
        for start in MACHINE {
            for text in [start.to_owned(), format!(" {} …", start.to_uppercase())] {
                assert_eq!(texts(&[legacy.clone(), item(1, &[&text])]), [], "{text}");
                // One such block makes the whole the program's.
                assert_eq!(
                    texts(&[legacy.clone(), item(1, &["x", &text])]),
                    [],
                    "{text}"
                );
            }
        }
        let role = |role: &str| {
            row(
                1,
                "response_item",
                json!({"role": role, "content": content(&["x"])}),
            )
        };
        let compacted = row(
            1,
            "compacted",
            json!({"message": "", "replacement_history":
            [{"type": "message", "role": "user", "content": content(&["x"])}]}),
        );
        for rows in [
            vec![role("developer")],
            vec![role("assistant")],
            vec![compacted],
            vec![event(
                1,
                "user_message",
                json!({"message": "x", "kind": "environment_context"}),
            )],
            vec![event(1, "agent_message", json!({"message": "x"}))],
            vec![event(
                1,
                "item_completed",
                json!({"item": {"type": "HookPrompt", "content": [{"text": "x"}]}}),
            )],
            vec![event(
                1,
                "item_started",
                json!({"item": {"type": "UserMessage", "content": [{"text": "x"}]}}),
            )],
            vec![row(
                1,
                "response_item",
                json!({"type": "agent_message", "role": "user", "content": content(&["x"])}),
            )],
            vec![row(
                1,
                "response_item",
                json!({"role": "user", "content": 12345}),
            )],
            vec![row(1, "event_msg", json!("user_message"))],
        ] {
            let mut all = vec![legacy.clone()];
            all.extend(rows);
            assert_eq!(texts(&all), [], "{all:?}");
        }
    }

    #[test]
    fn kinds_are_stronger_than_texts() {
        let legacy = meta(0, json!({}));
        let tag = "<environment_context>\nx\n</environment_context>";
        let told = [
            (
                vec!["typed", tag],
                vec!["user.text", "environments.environment_context"],
                vec!["typed"],
            ),
            (vec![tag], vec!["user.text"], vec![tag]),
            (vec!["a", "b"], vec!["user.text", "user.image"], vec!["a b"]),
            (vec!["x"], vec!["user.heartbeat"], vec![]),
            (vec!["x"], vec!["goal.internal_context"], vec![]),
            (vec!["x"], vec!["unknown"], vec![]),
            // Kinds that do not go with the blocks say nothing.
            (
                vec!["x"],
                vec!["goal.internal_context", "user.text"],
                vec!["x"],
            ),
        ];
        for (blocks, kinds, words) in told {
            let rows = [legacy.clone(), item_of(1, &blocks, &kinds)];
            assert_eq!(texts(&rows), prompts(&words), "{kinds:?}");
        }
    }

    #[test]
    fn a_shell_command_is_told_as_typed() {
        let text = "<user_shell_command>\n<command>\nls -l\n</command>\n<result>\nx\n</result>\n</user_shell_command>";
        let shell = [(ActKind::Shell, secret().print("ls -l"))];
        for mode in ["legacy", "paginated"] {
            let meta = meta(0, json!({"history_mode": mode}));
            assert_eq!(texts(&[meta.clone(), item(1, &[text])]), shell);
            assert_eq!(
                texts(&[meta, item_of(1, &[text], &["shell.user_command"])]),
                shell
            );
        }
    }

    #[test]
    fn threads_of_sub_agents_have_no_human_turns() {
        for (more, is_told) in [
            (
                json!({"source": {"subagent": {"thread_spawn": {"parent_thread_id": "p"}}}}),
                false,
            ),
            (json!({"source": {"subagent": "review"}}), false),
            (json!({"thread_source": "subagent"}), false),
            (json!({"thread_source": "agent"}), false),
            (json!({"thread_source": "guardian_review"}), false),
            (
                json!({"source": "exec", "originator": "codex_exec", "thread_source": "user"}),
                true,
            ),
            (json!({"source": "mcp"}), true),
            (json!({"source": null, "thread_source": null}), true),
            (json!({"source": {"custom": "x"}}), true),
        ] {
            // The metas after the first one are ancestors'.
            let rows = [
                meta(0, more.clone()),
                meta(
                    0,
                    json!({"source": if is_told { json!({"subagent": "x"}) } else { json!("cli") }}),
                ),
                item(1, &["x"]),
                message(1, "x"),
            ];
            assert_eq!(texts(&rows).len(), usize::from(is_told), "{more}");
        }
    }

    #[test]
    fn a_review_s_prompts_are_not_told() {
        let enter = event(1, "entered_review_mode", json!({}));
        for end in [
            event(3, "exited_review_mode", json!({})),
            event(3, "turn_aborted", json!({})),
            started(3, "t2"),
            event(3, "task_complete", json!({"turn_id": "t1"})),
        ] {
            let rows = [
                meta(0, json!({})),
                enter.clone(),
                item(2, &["x"]),
                message(2, "x"),
                answer(2),
                end,
                item(4, &["y"]),
                message(4, "y"),
            ];
            assert_eq!(texts(&rows), prompts(&["y"]));
        }
    }

    /// A fork that begins with its parent's rows, all written at 60,000 ms.
    fn fork(turn: impl Fn(i64, &str) -> Vec<Json>) -> Vec<Json> {
        let mut rows = vec![
            meta(60_000, json!({"id": "fork", "forked_from_id": THREAD})),
            meta(60_001, json!({})),
        ];
        rows.extend(turn(60_001, "one"));
        rows.push(answer(60_002));
        rows.extend(turn(60_020, "two"));
        rows
    }

    #[test]
    fn rows_copied_at_a_fork_are_not_told() {
        let bare = |ms: i64, text: &str| vec![item(ms, &[text]), message(ms, text)];
        let mut rows = fork(bare);
        assert_eq!(texts(&rows), []);
        rows.extend(bare(62_000, "three"));
        rows.extend(bare(62_500, "two"));
        assert_eq!(texts(&rows), prompts(&["three", "two"]));

        // Turn ids hold their time, and one may be typed at once after the fork.
        let id = |ms: i64| {
            let hex = format!("{:012x}", 1_796_029_200_000 + ms);
            format!("{}-{}-7000-8000-000000000000", &hex[..8], &hex[8..])
        };
        let turn = |begun: i64| {
            let id = id(begun);
            move |ms: i64, text: &str| vec![started(ms, &id), item(ms, &[text]), message(ms, text)]
        };
        let mut rows = fork(turn(10_000));
        rows.extend(turn(60_100)(60_110, "three"));
        assert_eq!(texts(&rows), prompts(&["three"]));

        // Copies that kept their times.
        let mut rows = vec![
            meta(60_000, json!({"forked_from_id": "p"})),
            meta(1, json!({})),
        ];
        rows.extend(bare(10, "one"));
        rows.extend(bare(20_000, "two"));
        rows.extend(bare(61_000, "three"));
        assert_eq!(texts(&rows), prompts(&["three"]));

        // A fork of nothing.
        let mut rows = vec![meta(60_000, json!({"forked_from_id": "p"}))];
        rows.extend(bare(70_000, "one"));
        assert_eq!(texts(&rows), prompts(&["one"]));
    }

    #[test]
    fn a_segment_tells_what_comes_after_its_base() {
        let base = json!({"history_mode": "paginated", "forked_from_id": "p",
            "history_base": {"thread_id": "p", "end_ordinal_exclusive": 14, "end_byte_offset": 9}});
        let numbered = |ordinal: i64, mut row: Json| {
            row["ordinal"] = json!(ordinal);
            row
        };
        let rows = [
            numbered(14, meta(0, base)),
            numbered(13, completed(1, "1", "old")),
            numbered(15, completed(1, "2", "new")),
            numbered(16, completed(2, "3", "newer")),
        ];
        assert_eq!(texts(&rows), prompts(&["new", "newer"]));
        for field in [
            "inherited_user_message",
            "harness_authored_configuration",
            "compaction_output",
        ] {
            let mut row = message(1, "x");
            row["metadata"] = json!({field: true});
            assert_eq!(texts(&[row.clone()]), [], "{field}");
            row["metadata"] = json!({field: false, "client_authored": false});
            assert_eq!(texts(&[row]).len(), 1, "{field}");
        }
    }

    #[test]
    fn a_migrated_turn_is_known() {
        let legacy = acts(&[
            meta(0, json!({})),
            started(1, THREAD),
            item(1, &["one"]),
            message(2, "one"),
            answer(3),
            item(4, &["two"]),
            message(5, "two"),
        ]);
        let migrated = acts(&[
            meta(0, json!({"history_mode": "paginated"})),
            item(1, &["one"]),
            started(2, "rollout-1"),
            completed(2, "item-1", "one"),
            answer(3),
            item(4, &["two"]),
            started(5, "rollout-4"),
            completed(5, "item-2", "two"),
        ]);
        assert_eq!((told(&legacy).len(), told(&migrated).len()), (2, 2));
        for act in &migrated {
            assert!(legacy.iter().any(|old| knows(old, act)));
        }
        assert!(!knows(&migrated[0], &migrated[1]));
        // Numbers name a turn within its thread alone, UUIDs everywhere.
        let told_as = |thread: &str, id: &str, ms| {
            let meta = meta(0, json!({"id": thread, "history_mode": "paginated"}));
            acts(&[meta, completed(ms, id, "x")]).remove(0)
        };
        assert!(!knows(
            &told_as("a", "item-1", 1),
            &told_as("b", "item-1", 2)
        ));
        assert!(knows(
            &told_as("a", "item-1", 1),
            &told_as("a", "item-1", 2)
        ));
        assert!(knows(&told_as("a", THREAD, 1), &told_as("b", THREAD, 2)));
    }

    #[test]
    fn rows_without_an_envelope_are_read() {
        let bare = |text: &str| json!({"type": "message", "id": null, "role": "user", "content": content(&[text])});
        let rows = [
            json!({"id": "old1", "timestamp": "2025-07-30T10:00:00.000Z", "instructions": null}),
            json!({"record_type": "state"}),
            bare("<user_instructions>\nx\n</user_instructions>"),
            bare("hello"),
            json!({"type": "reasoning", "id": "rs_1"}),
            bare("hello"),
        ];
        let acts = acts(&rows);
        assert_eq!(told(&acts), prompts(&["hello", "hello"]));
        assert!(!knows(&acts[0], &acts[1]));
    }

    #[test]
    fn names_of_files_are_read() {
        let name = |name: &str| {
            Codex
                .named(&Path::new("/h/sessions/2026/11/30").join(name))
                .map(|n| n.thread)
        };
        let segment = "01a22c79-e5e6-7ec1-b702-5e5662169828";
        for file in [
            format!("rollout-2026-11-30T12-41-15-{THREAD}.jsonl"),
            format!("rollout-2026-11-30T12-41-15-{THREAD}.jsonl.zst"),
            format!("rollout-2026-11-30T12-41-55-{THREAD}_{segment}.jsonl"),
            format!("rollout-2025-05-01-{THREAD}.jsonl"),
        ] {
            assert_eq!(name(&file).as_deref(), Some(THREAD), "{file}");
        }
        assert_eq!(
            name("rollout-2026-01-02T03-04-05-codex_abc.jsonl").as_deref(),
            Some("codex_abc")
        );
        for file in ["history.jsonl", "rollout-x.json", "rollout-x.jsonl.tmp"] {
            assert_eq!(name(file), None, "{file}");
        }
    }

    #[test]
    fn a_session_is_followed_through_its_store() {
        let dir = tempfile::tempdir().unwrap();
        let day = dir.path().join("sessions/2026/11/30");
        let archive = dir.path().join("archived_sessions");
        std::fs::create_dir_all(&day).unwrap();
        std::fs::create_dir_all(&archive).unwrap();
        let name = format!("rollout-2026-11-30T12-41-15-{THREAD}.jsonl");
        let segment = format!(
            "rollout-2026-11-30T12-41-55-{THREAD}_01a22c79-e5e6-7ec1-b702-5e5662169828.jsonl"
        );
        let (source, packed) = (day.join(&name), day.join(format!("{name}.zst")));
        let write =
            |path: &Path, more| std::fs::write(path, format!("{}\n", meta(0, more))).unwrap();
        write(&source, json!({}));
        let follow = |from: &Path| {
            let live = crate::upstream::find::live_files_of(&Codex, &Codex.siblings(from));
            live.get(THREAD).filter(|now| *now != from).cloned()
        };
        assert_eq!(follow(&source), None);
        let found = head(&Codex, &source).unwrap();
        assert_eq!(found.cwd.as_deref(), Some("/w"));
        // Compressed in its place, beside the plain one and then alone.
        std::fs::write(
            &packed,
            zstd::encode_all(&std::fs::read(&source).unwrap()[..], 3).unwrap(),
        )
        .unwrap();
        assert_eq!(follow(&source), None);
        std::fs::remove_file(&source).unwrap();
        assert_eq!(follow(&source).as_ref(), Some(&packed));
        assert_eq!(head(&Codex, &packed).unwrap(), found);
        // Archived.
        std::fs::rename(&packed, archive.join(&name)).unwrap();
        assert_eq!(follow(&source), Some(archive.join(&name)));
        // Gone on with in a later segment.
        write(
            &day.join(&segment),
            json!({"history_base": {"end_ordinal_exclusive": 3}}),
        );
        assert_eq!(follow(&source), Some(day.join(&segment)));
        assert_eq!(follow(Path::new("/elsewhere/x.jsonl")), None);
    }

    #[test]
    fn the_store_is_where_the_environment_says() {
        let paths = |root: Option<&str>, env: Env<'_>| {
            let folders = Codex.store(root.map(Path::new), env);
            folders
                .into_iter()
                .map(|f| f.path.display().to_string())
                .collect::<Vec<_>>()
        };
        let env = |name: &str| (name == "HOME").then(|| "/home/dev".into());
        assert_eq!(
            paths(None, &env),
            [
                "/home/dev/.codex/sessions",
                "/home/dev/.codex/archived_sessions"
            ]
        );
        assert_eq!(paths(Some("/r"), &env)[0], "/r/sessions");
        assert_eq!(
            paths(None, &|name| (name == "CODEX_HOME").then(|| "/c".into()))[0],
            "/c/sessions"
        );
        assert!(paths(None, &|_| None).is_empty());
    }
}
