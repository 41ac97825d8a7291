//! Every verb through the C ABI, each reply checked to the last field.

use std::ffi::{CStr, CString, c_char};
use std::path::Path;

use serde_json::{Value, json};
use session_awareness::abi::*;

use crate::{CHILD, MANAGER};

const MOST: i64 = (1 << 53) - 1;

type Verb = unsafe extern "C" fn(*mut aware_t, *const c_char, *mut *mut c_char) -> i32;

/// An open handle of the C ABI.
pub struct Handle(*mut aware_t);

impl Handle {
    pub fn open(config: &Value) -> Result<Handle, Value> {
        let text = CString::new(config.to_string()).unwrap();
        let (mut handle, mut reply) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the text is NUL-terminated and both out pointers have room.
        let status = unsafe { aware_open(text.as_ptr(), &mut handle, &mut reply) };
        let reply = taken(reply);
        assert_eq!(status == AWARE_OK, !handle.is_null());
        if status == AWARE_OK {
            object(
                &reply,
                &[("opened", flag), ("abiVersion", number), ("version", text_)],
            )
            .unwrap();
            Ok(Handle(handle))
        } else {
            failure(status, &reply).unwrap();
            Err(reply["error"].clone())
        }
    }

    /// Calls a verb; the reply, or the error. What is neither is a failure of the test.
    pub fn call(&self, name: &str, request: &Value) -> Result<Value, Value> {
        let (_, verb, shape) = VERBS.iter().find(|(own, _, _)| *own == name).unwrap();
        let text = CString::new(request.to_string()).unwrap();
        let mut reply = std::ptr::null_mut();
        // SAFETY: the text is NUL-terminated and the out pointer has room.
        let status = unsafe { verb(self.0, text.as_ptr(), &mut reply) };
        let reply = taken(reply);
        let checked = if status == AWARE_OK {
            shape(&reply)
        } else {
            failure(status, &reply)
        };
        if let Err(wrong) = checked {
            let reply: String = reply.to_string().chars().take(500).collect();
            panic!("{name}: {wrong} in {reply}");
        }
        if status == AWARE_OK {
            Ok(reply)
        } else {
            Err(reply["error"].clone())
        }
    }

    pub fn close(self) {
        assert_eq!(aware_close(self.0), AWARE_OK);
    }
}

fn taken(reply: *mut c_char) -> Value {
    assert!(!reply.is_null());
    // SAFETY: a reply of the library: NUL-terminated, and freed only below.
    let bytes = unsafe { CStr::from_ptr(reply) }.to_bytes();
    let value = serde_json::from_slice(bytes);
    let value = value.unwrap_or_else(|problem| panic!("no JSON: {problem}: {bytes:?}"));
    // SAFETY: a reply of the library, freed once; `bytes` is used no more.
    unsafe { aware_string_free(reply) };
    value
}

/// Every verb with a request for a database that [`crate::corruption`] made; reads first.
pub fn requests(folder: &Path, source: &Path, round: usize) -> Vec<(&'static str, Value)> {
    let backup = folder.join(format!("copy-{round}"));
    let up = "agent:main:up-0";
    vec![
        ("stats", json!({})),
        (
            "state_versions",
            json!({"sessions": [{"sessionKey": CHILD}, {"sessionKey": "global"}, {"sessionKey": up}]}),
        ),
        (
            "changes_since",
            json!({"sessionKey": CHILD, "changesSince": 0}),
        ),
        (
            "changes_since",
            json!({"sessionKey": "global", "changesSince": 3}),
        ),
        ("sessions", json!({"limit": 1000})),
        ("events", json!({"limit": 1000})),
        (
            "events",
            json!({"sessionKey": CHILD, "kinds": ["human_direct_message"]}),
        ),
        ("watches", json!({})),
        ("watches", json!({"watcherSessionKey": MANAGER})),
        ("links", json!({})),
        ("discover", json!({})),
        (
            "drain_notices",
            json!({"watcherSessionKey": MANAGER, "ack": false}),
        ),
        ("wait_wakes", json!({"timeoutMs": 0})),
        ("backup", json!({"path": backup})),
        (
            "record",
            json!({"sessionKey": CHILD, "kind": "human_direct_message", "actorType": "human"}),
        ),
        (
            "record",
            json!({"sessionKey": CHILD, "kind": "run_completed", "actorType": "system", "dedupeKey": "run-terminal:3"}),
        ),
        (
            "record",
            json!({"events": [
                {"sessionKey": "global", "kind": "goal_changed", "actorType": "agent", "watcherSessionKeys": [MANAGER]},
                {"sessionKey": format!("agent:main:new-{round}"), "kind": "child_spawned", "actorType": "agent", "watcherSessionKeys": [MANAGER]},
            ]}),
        ),
        (
            "record",
            json!({"sessionKey": up, "kind": "human_direct_message", "actorType": "human", "wait": false}),
        ),
        ("own_message", json!({"sessionKey": up, "text": "hello"})),
        (
            "set_run_active",
            json!({"sessionKey": "agent:main:up-1", "active": true}),
        ),
        ("scan", json!({})),
        (
            "adopt",
            json!({"sessionKey": up, "catalog": "claude", "source": source}),
        ),
        (
            "adopt",
            json!({"sessionKey": format!("agent:main:far-{round}"), "catalog": "pi", "hostId": "node", "threadId": "t"}),
        ),
        ("feed", json!({"sessionKey": "agent:main:far", "rows": []})),
        (
            "watch",
            json!({"watcherSessionKey": "agent:main:w-2", "targetSessionKey": CHILD}),
        ),
        (
            "ack_notices",
            json!({"watcherSessionKey": MANAGER, "notices": [{"targetSessionKey": CHILD, "notified": 5}]}),
        ),
        ("drain_notices", json!({"watcherSessionKey": MANAGER})),
        (
            "unwatch",
            json!({"watcherSessionKey": "agent:main:w-3", "targetSessionKey": CHILD}),
        ),
        ("release", json!({"sessionKey": "agent:main:up-2"})),
        ("session_reset", json!({"sessionKey": "agent:main:w-4"})),
        ("session_delete", json!({"sessionKey": "agent:main:s-5"})),
        ("maintain", json!({})),
        ("stats", json!({})),
    ]
}

type Checked = Result<(), String>;
type Shape = fn(&Value) -> Checked;

const VERBS: [(&str, Verb, Shape); 24] = [
    ("record", aware_record, |v| {
        match (v.get("results"), v.get("queued")) {
            (Some(_), _) => object(v, &[("results", |v| list(v, recorded))]),
            (_, Some(_)) => object(v, &[("queued", flag), ("?reason", text_)]),
            _ => recorded(v),
        }
    }),
    ("state_versions", aware_state_versions, |v| {
        object(
            v,
            &[("versions", |v| {
                list(v, |v| {
                    object(
                        v,
                        &[
                            ("sessionKey", key),
                            ("agentId", agent),
                            ("stateVersion", number),
                        ],
                    )
                })
            })],
        )
    }),
    ("watch", aware_watch, |v| {
        object(
            v,
            &[
                ("watched", flag),
                ("?created", flag),
                ("?stateVersion", number),
                ("?reason", text_),
            ],
        )
    }),
    ("unwatch", aware_unwatch, |v| {
        object(v, &[("unwatched", flag)])
    }),
    ("watches", aware_watches, |v| {
        object(v, &[("watches", |v| list(v, watch)), ("more", flag)])
    }),
    ("session_reset", aware_session_reset, |v| {
        object(v, &[("removedWatches", number)])
    }),
    ("session_delete", aware_session_delete, |v| {
        object(v, &[("deleted", flag)])
    }),
    ("drain_notices", aware_drain_notices, |v| {
        object(v, &[("notices", |v| list(v, notice)), ("more", flag)])
    }),
    ("ack_notices", aware_ack_notices, |v| {
        object(v, &[("acknowledged", number), ("reopened", number)])
    }),
    ("wait_wakes", aware_wait_wakes, |v| {
        object(
            v,
            &[("wakes", |v| {
                list(v, |v| {
                    object(
                        v,
                        &[
                            ("sessionKey", key),
                            ("targetSessionKey", key),
                            ("targetAgentId", agent),
                            ("reason", text_),
                        ],
                    )
                })
            })],
        )
    }),
    ("changes_since", aware_changes_since, |v| {
        object(
            v,
            &[
                ("stateVersion", number),
                ("stateChanges", |v| {
                    object(
                        v,
                        &[
                            ("events", |v| list(v, |v| event(v, false))),
                            ("historyGap", flag),
                            ("truncated", flag),
                            ("nextChangesSince", number),
                            ("?futureCursor", flag),
                        ],
                    )
                }),
            ],
        )
    }),
    ("sessions", aware_sessions, |v| {
        object(
            v,
            &[
                ("sessions", |v| {
                    list(v, |v| {
                        object(
                            v,
                            &[
                                ("sessionKey", key),
                                ("agentId", agent),
                                ("stateVersion", number),
                                ("prunedBelow", number),
                            ],
                        )
                    })
                }),
                ("more", flag),
            ],
        )
    }),
    ("events", aware_events, |v| {
        object(
            v,
            &[("events", |v| list(v, |v| event(v, true))), ("more", flag)],
        )
    }),
    ("backup", aware_backup, |v| object(v, &[("bytes", number)])),
    ("maintain", aware_maintain, |v| {
        object(v, &[("prunedEvents", number), ("prunedCursors", number)])
    }),
    ("stats", aware_stats, stats),
    ("adopt", aware_adopt, |v| {
        object(
            v,
            &[
                ("adopted", flag),
                ("linked", flag),
                ("?reason", text_),
                ("?link", link),
                ("event", |v| event(v, true)),
            ],
        )
    }),
    ("release", aware_release, |v| {
        object(v, &[("released", flag)])
    }),
    ("links", aware_links, |v| {
        object(v, &[("links", |v| list(v, link)), ("more", flag)])
    }),
    ("discover", aware_discover, |v| {
        object(v, &[("sessions", |v| list(v, |_| Ok(()))), ("more", flag)])
    }),
    ("scan", aware_scan, |v| {
        object(v, &[("outcomes", |v| list(v, outcome))])
    }),
    ("set_run_active", aware_set_run_active, |v| {
        object(v, &[("active", flag)])
    }),
    ("own_message", aware_own_message, |v| {
        object(v, &[("remembered", flag)])
    }),
    ("feed", aware_feed, outcome),
];

fn recorded(v: &Value) -> Checked {
    object(
        v,
        &[
            ("recorded", flag),
            ("?duplicate", flag),
            ("?event", |v| event(v, true)),
            ("?reason", text_),
        ],
    )
}

fn event(v: &Value, named: bool) -> Checked {
    const OF_SESSION: [(&str, Shape); 8] = [
        ("sequence", number),
        ("kind", kind),
        ("actorType", |v| one_of(v, &["human", "agent", "system"])),
        ("?actorId", id),
        ("?runId", id),
        ("occurredAt", time),
        ("summary", line),
        ("?payload", |v| {
            object(
                v,
                &[
                    ("?channel", line),
                    ("?turns", number),
                    ("?outcome", |v| {
                        one_of(v, &["error", "timeout", "cancelled"])
                    }),
                ],
            )
        }),
    ];
    const NAMES: [(&str, Shape); 3] = [("sessionKey", key), ("agentId", agent), ("?sessionId", id)];
    let mut fields = OF_SESSION.to_vec();
    fields.extend(NAMES.iter().filter(|_| named));
    object(v, &fields)
}

fn watch(v: &Value) -> Checked {
    object(
        v,
        &[
            ("watcherSessionKey", key),
            ("targetSessionKey", key),
            ("targetAgentId", agent),
            ("provenance", |v| one_of(v, &["explicit", "ambient-group"])),
            ("notifyKinds", |v| list(v, kind)),
            ("lastSeen", number),
            ("notified", number),
            ("material", number),
            ("pending", flag),
            ("?pendingSince", number),
        ],
    )?;
    let mark = |name: &str| v[name].as_u64();
    if mark("lastSeen") > mark("notified") || mark("notified") > mark("material") {
        return Err("watermarks out of order".to_owned());
    }
    Ok(())
}

fn notice(v: &Value) -> Checked {
    object(
        v,
        &[
            ("text", |v| line_of(v, 8_000)),
            ("targetSessionKey", key),
            ("targetAgentId", agent),
            ("changesSince", number),
            ("notified", number),
            ("contextKey", text_),
        ],
    )
}

fn link(v: &Value) -> Checked {
    object(
        v,
        &[
            ("sessionKey", key),
            ("agentId", agent),
            ("catalog", |v| {
                one_of(v, &["claude", "codex", "opencode", "pi"])
            }),
            ("threadId", text_),
            ("?source", text_),
            ("hostId", text_),
            ("adoptedAt", time),
            ("missing", number),
            ("?fault", |v| {
                object(v, &[("since", time), ("message", text_)])
            }),
        ],
    )
}

fn outcome(v: &Value) -> Checked {
    object(
        v,
        &[
            ("sessionKey", key),
            ("agentId", agent),
            ("catalog", |v| {
                one_of(v, &["claude", "codex", "opencode", "pi"])
            }),
            ("outcome", |v| {
                one_of(
                    v,
                    &[
                        "unchanged",
                        "activity",
                        "missing",
                        "deferred",
                        "replaced",
                        "error",
                    ],
                )
            }),
            ("humanTurns", number),
            ("prompts", number),
            ("commands", number),
            ("shells", number),
            ("?message", text_),
        ],
    )
}

fn stats(v: &Value) -> Checked {
    for name in [
        "events",
        "sessions",
        "watches",
        "links",
        "linksInError",
        "pending",
        "failedAppends",
        "storageFaults",
        "shedEvents",
        "queuedEvents",
        "queuedWakes",
        "databaseBytes",
        "walBytes",
        "watchedFolders",
        "unwatchedFolders",
    ] {
        number(&v[name]).map_err(|wrong| format!("{name}: {wrong}"))?;
    }
    flag(&v["damaged"])?;
    text_(&v["schemaVersion"])?;
    match (v["damaged"].as_bool(), v.get("damage")) {
        (Some(true), Some(Value::String(_))) | (Some(false), None) => Ok(()),
        _ => Err("damaged and not said how, or the other way".to_owned()),
    }
}

fn failure(status: i32, reply: &Value) -> Checked {
    object(
        reply,
        &[("error", |v| {
            object(v, &[("code", text_), ("message", text_), ("?field", text_)])
        })],
    )?;
    // What else a right request can meet: no link to feed, and a file that is not ours any more.
    let code = reply["error"]["code"].as_str().unwrap_or_default();
    let numbers = [
        ("invalid_argument", AWARE_INVALID_ARGUMENT),
        ("not_found", AWARE_NOT_FOUND),
        ("storage", AWARE_STORAGE),
        ("unsupported", AWARE_UNSUPPORTED),
    ];
    match numbers.contains(&(code, status)) {
        true => Ok(()),
        false => Err(format!("status {status} for {code}")),
    }
}

fn object(v: &Value, fields: &[(&str, Shape)]) -> Checked {
    let found = v.as_object().ok_or("no object")?;
    for (name, shape) in fields {
        let own = name.trim_start_matches('?');
        match found.get(own) {
            Some(value) => shape(value).map_err(|wrong| format!("{own}: {wrong}"))?,
            None if name.starts_with('?') => {}
            None => return Err(format!("no {own}")),
        }
    }
    let known = |name: &String| {
        fields
            .iter()
            .any(|(own, _)| own.trim_start_matches('?') == name)
    };
    match found.keys().find(|name| !known(name)) {
        Some(name) => Err(format!("an unknown {name}")),
        None => Ok(()),
    }
}

fn list(v: &Value, shape: Shape) -> Checked {
    let items = v.as_array().ok_or("no list")?;
    items.iter().try_for_each(shape)
}

fn check(right: bool, what: &str) -> Checked {
    right.then_some(()).ok_or_else(|| what.to_owned())
}

fn flag(v: &Value) -> Checked {
    check(v.is_boolean(), "no bool")
}

fn number(v: &Value) -> Checked {
    check(
        v.as_i64().is_some_and(|n| (0..=MOST).contains(&n)),
        "no number",
    )
}

fn time(v: &Value) -> Checked {
    check(
        v.as_i64().is_some_and(|n| (-MOST..=MOST).contains(&n)),
        "no time",
    )
}

fn text_(v: &Value) -> Checked {
    check(v.is_string(), "no text")
}

fn id(v: &Value) -> Checked {
    check(v.as_str().is_some_and(|id| id.len() <= 512), "no id")
}

fn line(v: &Value) -> Checked {
    line_of(v, 800)
}

fn line_of(v: &Value, most: usize) -> Checked {
    let text = v.as_str().ok_or("no text")?;
    let breaks = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}');
    check(text.len() <= most && !text.chars().any(breaks), "no line")
}

fn one_of(v: &Value, names: &[&str]) -> Checked {
    check(
        v.as_str().is_some_and(|name| names.contains(&name)),
        "an unknown name",
    )
}

fn kind(v: &Value) -> Checked {
    one_of(
        v,
        &[
            "human_direct_message",
            "upstream_missing",
            "goal_changed",
            "child_spawned",
            "run_completed",
            "run_failed",
            "compacted",
            "adopted",
        ],
    )
}

fn agent(v: &Value) -> Checked {
    let text = v.as_str().ok_or("no text")?;
    let right = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    check(
        (1..=64).contains(&text.len()) && text.chars().all(right) && !text.starts_with(['_', '-']),
        "no agent",
    )
}

fn key(v: &Value) -> Checked {
    let text = v.as_str().ok_or("no text")?;
    let plain = (1..=512).contains(&text.len()) && !text.chars().any(char::is_control);
    let parts: Vec<&str> = text.split(':').collect();
    let right = match parts[..] {
        ["agent", owner, ..] => {
            parts.len() > 2
                && agent(&owner.into()).is_ok()
                && parts.iter().all(|part| !part.is_empty())
        }
        _ => true,
    };
    check(plain && right && text != "agent:", "no key")
}
