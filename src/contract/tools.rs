//! The session tools in the shapes that model APIs take.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Whose shape of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ToolFormat {
    /// `{"type": "function", "function": {"name", "description", "parameters"}}`, as the OpenAI
    /// chat API takes it; its responses API takes what is in `function`, beside `type`.
    Openai,
    /// `{"name", "description", "input_schema"}`, as the Anthropic messages API takes it.
    Anthropic,
    /// A JSON Schema of the tool's input alone (draft 2020-12), its name in `title`.
    JsonSchema,
}

/// The request of `tool_schemas`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolSchemas {
    /// Whose shape.
    pub format: ToolFormat,
}

/// The reply of `tool_schemas`.
#[derive(Clone, Debug, Serialize)]
pub struct ToolSchemasReply {
    /// The shape that was asked for.
    pub format: ToolFormat,
    /// `session_status`, then `sessions_send`: each the JSON object of that shape.
    pub tools: Vec<Box<RawValue>>,
    /// A paragraph for the agent's system prompt: what a notice means and what to do on it.
    pub prompt: &'static str,
}
