//! The session tools a gateway gives its agents, as the model APIs take them,
//! so that each host does not write them again.

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use crate::contract::{Code, Error, Result, ToolFormat, ToolSchemas, ToolSchemasReply};

/// What an agent needs to know of notices, for its system prompt.
const PROMPT: &str = "Other actors can change a session you work with: a person may type straight into a child you \
spawned, or somebody may change its goal. You are then told once, in a line that begins `Session \"KEY\" changed \
(other actor).` The line comes from the gateway, not from a user, and there is only one however much has changed. \
Before you act on what you believed about that session, call session_status with the sessionKey and the changesSince \
that the line gives. It answers typed events, never message text; read the session's history where you need the words. \
When truncated is true, ask again from nextChangesSince. When historyGap or futureCursor is true, the events are not \
all there: read the whole session anew and do not take the answer for a complete list. To be told of later changes in \
a session you did not spawn, send to it with watch: true.";

#[derive(Clone, Copy, Serialize)]
struct Schema {
    #[serde(rename = "$schema", skip_serializing_if = "Option::is_none")]
    dialect: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'static str>,
    r#type: &'static str,
    properties: Properties,
    required: &'static [&'static str],
    #[serde(rename = "additionalProperties")]
    additional_properties: bool,
}

/// In the order in which a model should read them.
#[derive(Clone, Copy, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Properties {
    session_key: Property,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<Property>,
    #[serde(skip_serializing_if = "Option::is_none")]
    changes_since: Option<Property>,
    #[serde(skip_serializing_if = "Option::is_none")]
    watch: Option<Property>,
    agent_id: Property,
}

#[derive(Clone, Copy, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Property {
    r#type: &'static str,
    description: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    minimum: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    min_length: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_length: Option<u64>,
}

struct Definition {
    name: &'static str,
    description: &'static str,
    properties: Properties,
    required: &'static [&'static str],
}

const fn text(description: &'static str, max_length: Option<u64>) -> Property {
    Property {
        r#type: "string",
        description,
        minimum: None,
        min_length: Some(1),
        max_length,
    }
}

const SESSION_KEY: Property = text(
    "The session's key, exactly as a notice or a list of sessions gives it.",
    Some(512),
);

const AGENT_ID: Property = text(
    "The agent a bare key belongs to, where the notice gives one. Never beside a key that begins with agent:.",
    Some(64),
);

const TOOLS: [Definition; 2] = [
    Definition {
        name: "session_status",
        description: "Shows a session's state. With changesSince it answers what other actors did to the session after \
                      that state version: typed events, oldest first, at most 200, without message text. Asking moves \
                      nothing and may be repeated.",
        properties: Properties {
            session_key: SESSION_KEY,
            message: None,
            changes_since: Some(Property {
                r#type: "integer",
                description: "Answer the events after this state version: the number in the notice, nextChangesSince of \
                              the page before, or a stateVersion seen earlier.",
                minimum: Some(0),
                min_length: None,
                max_length: None,
            }),
            watch: None,
            agent_id: AGENT_ID,
        },
        required: &["sessionKey"],
    },
    Definition {
        name: "sessions_send",
        description: "Sends a message to another session, which runs with it. With watch you are told, once, when another \
                      actor later changes that session.",
        properties: Properties {
            session_key: SESSION_KEY,
            message: Some(text("What to send.", None)),
            changes_since: None,
            watch: Some(Property {
                r#type: "boolean",
                description: "Also watch the session from its present state on. The result's watched says whether it is; \
                              nothing is told of what happened before.",
                minimum: None,
                min_length: None,
                max_length: None,
            }),
            agent_id: AGENT_ID,
        },
        required: &["sessionKey", "message"],
    },
];

/// As the OpenAI chat API takes a tool.
#[derive(Serialize)]
struct Openai {
    r#type: &'static str,
    function: OpenaiFunction,
}

#[derive(Serialize)]
struct OpenaiFunction {
    name: &'static str,
    description: &'static str,
    parameters: Schema,
}

/// As the Anthropic messages API takes a tool.
#[derive(Serialize)]
struct Anthropic {
    name: &'static str,
    description: &'static str,
    input_schema: Schema,
}

/// The tools in the shape that `request` asks for.
pub(crate) fn schemas(request: ToolSchemas) -> Result<ToolSchemasReply> {
    let tools = TOOLS.iter().map(|tool| shaped(tool, request.format));
    Ok(ToolSchemasReply {
        format: request.format,
        tools: tools
            .collect::<serde_json::Result<_>>()
            .map_err(|_| Error::new(Code::Internal, "a tool cannot be written as JSON"))?,
        prompt: PROMPT,
    })
}

fn shaped(tool: &Definition, format: ToolFormat) -> serde_json::Result<Box<RawValue>> {
    let (name, description) = (tool.name, tool.description);
    let schema = Schema {
        dialect: None,
        title: None,
        description: None,
        r#type: "object",
        properties: tool.properties,
        required: tool.required,
        additional_properties: false,
    };
    match format {
        ToolFormat::Openai => to_raw_value(&Openai {
            r#type: "function",
            function: OpenaiFunction {
                name,
                description,
                parameters: schema,
            },
        }),
        ToolFormat::Anthropic => to_raw_value(&Anthropic {
            name,
            description,
            input_schema: schema,
        }),
        ToolFormat::JsonSchema => to_raw_value(&Schema {
            dialect: Some("https://json-schema.org/draft/2020-12/schema"),
            title: Some(name),
            description: Some(description),
            ..schema
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::{Value, json};

    use super::*;

    fn told(format: &str) -> Value {
        let request = serde_json::from_value(json!({ "format": format })).unwrap();
        serde_json::to_value(schemas(request).unwrap()).unwrap()
    }

    /// The schema of each tool by its name.
    fn by_name(format: &str, name: &str, schema: &str) -> Vec<(Value, Value)> {
        let told = told(format);
        told["tools"]
            .as_array()
            .unwrap()
            .iter()
            .map(|tool| {
                (
                    tool.pointer(name).unwrap().clone(),
                    tool.pointer(schema).unwrap().clone(),
                )
            })
            .collect()
    }

    #[test]
    fn the_three_shapes_hold_the_same_schemas() {
        let openai = by_name("openai", "/function/name", "/function/parameters");
        assert_eq!(
            openai,
            by_name("anthropic", "/name", "/input_schema"),
            "as OpenAI and as Anthropic take them"
        );
        let alone = by_name("json-schema", "/title", "");
        for ((name, schema), (title, mut whole)) in openai.iter().zip(alone) {
            assert_eq!(*name, title);
            let whole = whole.as_object_mut().unwrap();
            for own in ["$schema", "title", "description"] {
                assert!(whole.remove(own).is_some(), "{own}");
            }
            assert_eq!(schema.as_object().unwrap(), whole);
        }
        let names: Vec<_> = openai.iter().map(|(name, _)| name.clone()).collect();
        assert_eq!(names, ["session_status", "sessions_send"]);
    }

    #[test]
    fn every_field_is_described_and_what_is_required_is_there() {
        for (_, schema) in by_name("anthropic", "/name", "/input_schema") {
            let properties = schema["properties"].as_object().unwrap();
            for property in properties.values() {
                assert!(property["description"].as_str().unwrap().ends_with('.'));
            }
            let names: BTreeSet<_> = properties.keys().map(String::as_str).collect();
            let required = schema["required"].as_array().unwrap();
            assert!(
                required
                    .iter()
                    .all(|one| names.contains(one.as_str().unwrap()))
            );
            assert_eq!(schema["additionalProperties"], false);
        }
    }

    /// What a notice tells the agent to pass is what the tool takes, and what
    /// the prompt speaks of is in the answer.
    #[test]
    fn notice_prompt_and_tool_speak_of_the_same_fields() {
        let notice = crate::watch::notice::text(
            &crate::key::Session::of("global", Some("ops")).unwrap(),
            12,
        );
        let (name, schema) = by_name("anthropic", "/name", "/input_schema").swap_remove(0);
        assert!(notice.contains(name.as_str().unwrap()), "{notice}");
        for field in ["sessionKey", "agentId", "changesSince"] {
            assert!(notice.contains(&format!(" {field} ")), "{field}: {notice}");
            assert!(schema["properties"].get(field).is_some(), "{field}");
        }
        let beginning = notice.replace("global", "KEY");
        let beginning = beginning.split_inclusive('.').next().unwrap();
        assert!(PROMPT.contains(beginning), "{beginning}");
        for field in [
            "truncated",
            "nextChangesSince",
            "historyGap",
            "futureCursor",
        ] {
            assert!(PROMPT.contains(field), "{field}");
        }
    }
}
