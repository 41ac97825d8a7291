//! The session key grammar.
//!
//! A qualified key is `agent:<agentId>:<rest>`; any other key is bare and needs
//! its agent told beside it. Keys are compared byte for byte, never folded.

use crate::contract::{Error, Result};

/// The agent of a bare key when none is given.
pub const DEFAULT_AGENT: &str = "main";

/// The longest key and the longest id, in bytes.
pub const MAX_ID_BYTES: usize = 512;

/// A session's identity: a valid key and its agent.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Session {
    /// The agent: the one in a qualified key.
    pub agent: String,
    /// The whole key.
    pub key: String,
}

impl Session {
    /// The session of `key`, whose agent for a bare key is `agent`, else `main`.
    /// An error names `key_field` or `agent_field`.
    pub fn resolve(
        key: &str,
        agent: Option<&str>,
        key_field: &str,
        agent_field: &str,
    ) -> Result<Session> {
        Ok(Session {
            agent: agent_for(key, agent, key_field, agent_field)?.to_owned(),
            key: key.to_owned(),
        })
    }

    /// As [`Session::resolve`] for the fields `sessionKey` and `agentId`.
    pub fn of(key: &str, agent: Option<&str>) -> Result<Session> {
        Session::resolve(key, agent, "sessionKey", "agentId")
    }

    /// As [`Session::of`], of a key that is not needed otherwise.
    pub(crate) fn owning(key: String, agent: Option<&str>) -> Result<Session> {
        let agent = agent_for(&key, agent, "sessionKey", "agentId")?.to_owned();
        Ok(Session { agent, key })
    }

    /// As [`Session::resolve`] for the fields `targetSessionKey` and `targetAgentId`.
    pub fn target(key: &str, agent: Option<&str>) -> Result<Session> {
        Session::resolve(key, agent, "targetSessionKey", "targetAgentId")
    }

    /// Whether the key carries its agent itself.
    pub fn is_qualified(&self) -> bool {
        qualified(&self.key).is_some()
    }
}

/// A watcher's key: valid, and qualified or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Watcher {
    /// It can hold cursors.
    Qualified(String),
    /// A bare key is ambiguous across agents: it has no cursors and no notices.
    Bare,
}

impl Watcher {
    /// Reads a watcher's key. An error names `field`.
    pub fn read(key: &str, field: &str) -> Result<Watcher> {
        Ok(match check(key, field)? {
            Some(_) => Watcher::Qualified(key.to_owned()),
            None => Watcher::Bare,
        })
    }
}

/// The agent of the session of `key`, as in [`Session::resolve`].
pub(crate) fn agent_for<'a>(
    key: &'a str,
    agent: Option<&'a str>,
    key_field: &str,
    agent_field: &str,
) -> Result<&'a str> {
    let own = check(key, key_field)?;
    if let Some(agent) = agent
        && !is_agent_id(agent)
    {
        return Err(Error::invalid(
            agent_field,
            "an agent id is 1 to 64 of A-Z a-z 0-9 _ -, the first no _ or -",
        ));
    }
    match (own, agent) {
        (Some(own), Some(given)) if own != given => Err(Error::invalid(
            agent_field,
            "the key is of another agent; leave the agent out for a qualified key",
        )),
        (Some(own), _) => Ok(own),
        (None, given) => Ok(given.unwrap_or(DEFAULT_AGENT)),
    }
}

/// Whether a qualified key names a sub-agent: such a watcher is never woken.
pub fn is_subagent(key: &str) -> bool {
    qualified(key).is_some_and(|(_, rest)| rest.starts_with("subagent:"))
}

/// The agent of a qualified key.
pub fn agent_of(key: &str) -> Option<&str> {
    qualified(key).map(|(agent, _)| agent)
}

/// Whether `id` is an agent id.
pub fn is_agent_id(id: &str) -> bool {
    let bytes = id.as_bytes();
    (1..=64).contains(&bytes.len())
        && bytes[0].is_ascii_alphanumeric()
        && bytes
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
}

/// Checks a key and gives the agent of a qualified one.
fn check<'a>(key: &'a str, field: &str) -> Result<Option<&'a str>> {
    if key.is_empty() || key.len() > MAX_ID_BYTES {
        return Err(Error::invalid(field, "a session key is 1 to 512 bytes"));
    }
    if has_control(key) {
        return Err(Error::invalid(
            field,
            "a session key holds no control characters",
        ));
    }
    if !key.starts_with("agent:") {
        return Ok(None);
    }
    match qualified(key) {
        Some((agent, _)) => Ok(Some(agent)),
        None => Err(Error::invalid(
            field,
            "a key that begins with agent: is agent:<agentId>:<rest>, no part of it empty",
        )),
    }
}

/// Whether a text holds a control character.
pub(crate) fn has_control(text: &str) -> bool {
    !is_plain(text) && text.chars().any(char::is_control)
}

/// Whether a text is of printable ASCII alone, as most are.
pub(crate) fn is_plain(text: &str) -> bool {
    // Without an early end, so that many bytes are looked at at once.
    text.bytes()
        .fold(true, |plain, b| plain & (b' '..0x7f).contains(&b))
}

fn has_empty_part(rest: &[u8]) -> bool {
    let next = rest.get(1..).unwrap_or_default();
    let pairs = rest.iter().zip(next);
    pairs.fold(false, |found, (one, other)| {
        found | (*one == b':' && *other == b':')
    })
}

fn qualified(key: &str) -> Option<(&str, &str)> {
    let (agent, rest) = key.strip_prefix("agent:")?.split_once(':')?;
    let bytes = rest.as_bytes();
    let whole = !matches!(bytes.first(), None | Some(b':'))
        && bytes.last() != Some(&b':')
        && !has_empty_part(bytes);
    (whole && is_agent_id(agent)).then_some((agent, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::Code;
    use proptest::prelude::*;

    #[test]
    fn the_grammar() {
        for (key, agent, subagent) in [
            ("agent:main:main", Some("main"), false),
            ("agent:main:subagent:child", Some("main"), true),
            ("agent:a:subagent:x:subagent:y", Some("a"), true),
            ("agent:dev:acp:123", Some("dev"), false),
            ("agent:A-1_b:x", Some("A-1_b"), false),
            ("agent:main:telegram:group:1:thread:9", Some("main"), false),
            ("agent:main:subagent", Some("main"), false),
            ("agent:main:subagents:x", Some("main"), false),
            ("agent:main:a b", Some("main"), false),
            ("global", None, false),
            ("subagent:child", None, false),
            ("Agent:main:main", None, false),
            ("agent", None, false),
            (" agent:main:main", None, false),
            ("a\u{2028}b", None, false),
        ] {
            assert_eq!(check(key, "f").unwrap(), agent, "{key}");
            assert_eq!(is_subagent(key), subagent, "{key}");
        }
    }

    #[test]
    fn what_is_no_key() {
        let long = "x".repeat(513);
        let long_agent = format!("agent:{}:x", "a".repeat(65));
        for key in [
            "",
            "a\nb",
            "a\u{0}b",
            "a\u{7f}",
            "a\u{85}b",
            &long,
            "agent:",
            "agent:main",
            "agent:main:",
            "agent::x",
            "agent:main::x",
            "agent:main:x:",
            "agent:-a:x",
            "agent:_a:x",
            "agent:a b:x",
            "agent:é:x",
            &long_agent,
        ] {
            let error = check(key, "watcherSessionKey").unwrap_err();
            assert_eq!(error.code, Code::InvalidArgument, "{key:?}");
            assert_eq!(error.field.as_deref(), Some("watcherSessionKey"));
        }
    }

    #[test]
    fn a_bare_key_has_the_agent_given_else_main() {
        assert_eq!(Session::of("global", None).unwrap().agent, "main");
        assert_eq!(Session::of("global", Some("ops")).unwrap().agent, "ops");
        assert_eq!(
            Session::of("agent:ops:x", Some("ops")).unwrap().agent,
            "ops"
        );
        let error = Session::of("agent:ops:x", Some("main")).unwrap_err();
        assert_eq!(error.field.as_deref(), Some("agentId"));
        let error = Session::target("global", Some("")).unwrap_err();
        assert_eq!(error.field.as_deref(), Some("targetAgentId"));
    }

    proptest! {
        #[test]
        fn no_key_is_misread(key in "(agent)?[:a-z_ -]{0,12}") {
            match check(&key, "f") {
                // A qualified key is put together again from its parts, to the byte.
                Ok(Some(agent)) => {
                    let (own, rest) = qualified(&key).unwrap();
                    prop_assert_eq!(own, agent);
                    prop_assert_eq!(format!("agent:{agent}:{rest}"), key);
                }
                Ok(None) => prop_assert!(!key.starts_with("agent:")),
                Err(error) => prop_assert_eq!(error.code, Code::InvalidArgument),
            }
        }
    }
}
