//! From JSON text to a request type, with errors that name the field.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, DeserializeOwned, Deserializer, MapAccess, Unexpected, Visitor};

use super::place::path_to;
use super::{Error, Result};

/// The largest number of the contract, 2^53 − 1: every host's JSON can hold it exactly.
pub const MAX_NUMBER: i64 = (1 << 53) - 1;

/// Reads `text` as one request. Errors are `invalid_argument` with the field's
/// path.
pub fn parse<T: DeserializeOwned>(text: &str) -> Result<T> {
    // Serde would read an array as an object's fields in their order.
    if !text.trim_start().starts_with('{') {
        return Err(Error::new(
            super::Code::InvalidArgument,
            "the request is not a JSON object",
        ));
    }
    serde_json::from_str(text).map_err(|problem| explain(text, &problem))
}

fn explain(text: &str, problem: &serde_json::Error) -> Error {
    // serde_json ends its messages with a place in the text, which says
    // nothing to who builds the request from an object.
    let told = problem.to_string();
    let message = told.split(" at line ").next().unwrap_or(&told);
    if message == "trailing characters" {
        return Error::new(
            super::Code::InvalidArgument,
            "the request holds more than one JSON value",
        );
    }
    // A missing, unknown or repeated field is named in the message only.
    let own = ["missing field `", "unknown field `", "duplicate field `"]
        .iter()
        .find_map(|lead| message.strip_prefix(lead))
        .and_then(|rest| rest.split('`').next());
    let mut stop = offset_of(text, problem);
    if message == "expected value" {
        // Told with the byte that was looked at counted in.
        stop = stop.saturating_sub(1);
    }
    let path = path_to(text, stop, own.is_some());
    let field = match own {
        Some(own) if path.is_empty() => own.to_owned(),
        Some(own) => format!("{path}.{own}"),
        None => path,
    };
    Error {
        field: Some(field).filter(|field| !field.is_empty()),
        ..Error::new(super::Code::InvalidArgument, message)
    }
}

/// How many bytes of `text` were read when the problem was met.
fn offset_of(text: &str, problem: &serde_json::Error) -> usize {
    let lines = text
        .split_inclusive('\n')
        .take(problem.line().saturating_sub(1));
    lines.map(str::len).sum::<usize>() + problem.column()
}

/// For `#[serde(deserialize_with)]`: a whole number from 0 to [`MAX_NUMBER`].
pub(super) fn whole<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<u64, D::Error> {
    from.deserialize_i64(Whole { least: 0 }).map(|n| n as u64)
}

/// As [`whole`]; absent and `null` are `None`.
pub(super) fn maybe_whole<'de, D: Deserializer<'de>>(
    from: D,
) -> std::result::Result<Option<u64>, D::Error> {
    Ok(Option::<Natural>::deserialize(from)?.map(|n| n.0))
}

/// A time in milliseconds since the epoch, before or after it; absent and `null` are `None`.
pub(super) fn maybe_time<'de, D: Deserializer<'de>>(
    from: D,
) -> std::result::Result<Option<i64>, D::Error> {
    Ok(Option::<Signed>::deserialize(from)?.map(|n| n.0))
}

/// For `#[serde(deserialize_with)]`: an object, and no array of its fields; absent and `null` are `None`.
pub(super) fn maybe_object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    from: D,
) -> std::result::Result<Option<T>, D::Error> {
    Ok(Option::<Object<T>>::deserialize(from)?.map(|object| object.0))
}

/// A list of objects.
pub(super) fn objects<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    from: D,
) -> std::result::Result<Vec<T>, D::Error> {
    let list = Vec::<Object<T>>::deserialize(from)?;
    Ok(list.into_iter().map(|object| object.0).collect())
}

/// As [`objects`]; absent and `null` are `None`.
pub(super) fn maybe_objects<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    from: D,
) -> std::result::Result<Option<Vec<T>>, D::Error> {
    let list = Option::<Vec<Object<T>>>::deserialize(from)?;
    Ok(list.map(|list| list.into_iter().map(|object| object.0).collect()))
}

struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Object<T>, D::Error> {
        from.deserialize_map(Fields(PhantomData))
    }
}

struct Fields<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Fields<T> {
    type Value = Object<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> std::result::Result<Object<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(Object)
    }
}

struct Natural(u64);

impl<'de> Deserialize<'de> for Natural {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Natural, D::Error> {
        whole(from).map(Natural)
    }
}

struct Signed(i64);

impl<'de> Deserialize<'de> for Signed {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Signed, D::Error> {
        from.deserialize_i64(Whole { least: -MAX_NUMBER })
            .map(Signed)
    }
}

struct Whole {
    least: i64,
}

impl Visitor<'_> for Whole {
    type Value = i64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a whole number from {} to {MAX_NUMBER}", self.least)
    }

    fn visit_i64<E: serde::de::Error>(self, n: i64) -> std::result::Result<i64, E> {
        if (self.least..=MAX_NUMBER).contains(&n) {
            Ok(n)
        } else {
            Err(E::invalid_value(Unexpected::Signed(n), &self))
        }
    }

    fn visit_u64<E: serde::de::Error>(self, n: u64) -> std::result::Result<i64, E> {
        match i64::try_from(n) {
            Ok(n) if n <= MAX_NUMBER => Ok(n),
            _ => Err(E::invalid_value(Unexpected::Unsigned(n), &self)),
        }
    }

    // JSON has one kind of number: 3.0 is 3.
    fn visit_f64<E: serde::de::Error>(self, n: f64) -> std::result::Result<i64, E> {
        if n.fract() == 0.0 && n >= self.least as f64 && n <= MAX_NUMBER as f64 {
            Ok(n as i64)
        } else {
            Err(E::invalid_value(Unexpected::Float(n), &self))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{
        AckNotices, ChangesSince, Code, Config, RecordRequest, SessionsRequest, StateVersions,
    };
    use serde_json::Value;

    use super::*;

    fn fault<T: DeserializeOwned + fmt::Debug>(text: &str) -> (Option<String>, String) {
        let error = parse::<T>(text).expect_err(text);
        assert_eq!(error.code, Code::InvalidArgument, "{text}");
        (error.field, error.message)
    }

    #[test]
    fn an_error_names_the_field() {
        for (text, field) in [
            (r#"{"sessionKey":"a","changesSince":-1}"#, "changesSince"),
            (r#"{"sessionKey":"a","changesSince":1.5}"#, "changesSince"),
            (r#"{"sessionKey":"a","changesSince":"3"}"#, "changesSince"),
            (
                r#"{"sessionKey":"a","changesSince":9007199254740992}"#,
                "changesSince",
            ),
            (r#"{"sessionKey":"a","changesSince":1e300}"#, "changesSince"),
            (r#"{"sessionKey":"a","changesSince":null}"#, "changesSince"),
            (r#"{"sessionKey":"a"}"#, "changesSince"),
            (r#"{"sessionKey":"a","changesSince":0,"x":1}"#, "x"),
            (r#"{"sessionKey":7,"changesSince":0}"#, "sessionKey"),
            (
                r#"{"sessionKey":"a","sessionKey":"b","changesSince":0}"#,
                "sessionKey",
            ),
        ] {
            assert_eq!(
                fault::<ChangesSince>(text).0.as_deref(),
                Some(field),
                "{text}"
            );
        }
        let (field, message) = fault::<RecordRequest>(
            r#"{"events":[{"sessionKey":"a","kind":"x","actorType":"human"}]}"#,
        );
        assert_eq!(field.as_deref(), Some("events[0].kind"));
        assert!(message.contains("human_direct_message"), "{message}");
        let (field, _) =
            fault::<RecordRequest>(r#"{"events":[{"sessionKey":"a","kind":"compacted"}]}"#);
        assert_eq!(field.as_deref(), Some("events[0].actorType"));
        let (field, _) = fault::<RecordRequest>(r#"{"events":[{"tpyo":1}]}"#);
        assert_eq!(field.as_deref(), Some("events[0].tpyo"));
    }

    /// The field by a crate that follows the path while it reads.
    fn followed<T: DeserializeOwned>(text: &str) -> Option<String> {
        let mut json = serde_json::Deserializer::from_str(text);
        let problem = serde_path_to_error::deserialize::<_, T>(&mut json).err()?;
        let path = problem.path().to_string();
        let message = problem.into_inner().to_string();
        let own = ["missing", "unknown", "duplicate"]
            .iter()
            .find_map(|what| message.strip_prefix(&format!("{what} field `")))
            .and_then(|rest| rest.split('`').next());
        match own {
            None => Some(path),
            Some(own) if path == "." || path == own => Some(own.to_owned()),
            Some(own) if path.ends_with(&format!(".{own}")) => Some(path),
            Some(own) => Some(format!("{path}.{own}")),
        }
    }

    /// Puts something wrong in each place of a good request, and compares the fields
    /// that are named; how many requests were refused.
    fn name_the_same<T: DeserializeOwned + fmt::Debug>(good: &str) -> usize {
        parse::<T>(good).unwrap();
        let good: Value = serde_json::from_str(good).unwrap();
        let mut wrong = Vec::new();
        spoil(&good, &wrong_in, &mut |text| wrong.push(text));
        // What is no object has no fields.
        wrong.retain(|text| text.starts_with('{'));
        let mut refused = 0;
        for text in wrong {
            for text in [
                text.clone(),
                text.replace(',', " ,\r\n\t").replace(':', " : "),
            ] {
                let field = parse::<T>(&text)
                    .err()
                    .map(|error| error.field.unwrap_or(".".to_owned()));
                assert_eq!(field, followed::<T>(&text), "{text}");
                refused += usize::from(field.is_some());
            }
        }
        refused
    }

    fn wrong_in(value: &Value) -> Vec<String> {
        let mut wrong: Vec<String> = [
            "null",
            "true",
            "-1",
            "1.5",
            "1e300",
            "9007199254740992",
            r#""""#,
            r#""a\"],}b""#,
            "[]",
            "{}",
            "[[]]",
            r#"[{"a":[1]}]"#,
            r#"{"a\u0062":[{"x":"}"}]}"#,
        ]
        .map(str::to_owned)
        .into();
        if let Value::Object(fields) = value {
            let text = value.to_string();
            let more = |field: &str| match fields.is_empty() {
                true => format!("{{{field}}}"),
                false => text.replacen('{', &format!("{{{field},"), 1),
            };
            wrong.push(more(r#""b\u00e9":{"x":[1]}"#));
            for (name, value) in fields {
                let mut without = fields.clone();
                without.remove(name);
                wrong.push(Value::Object(without).to_string());
                wrong.push(more(&format!("{}:{value}", Value::from(name.as_str()))));
            }
        }
        wrong
    }

    /// Hands on the text of `value` with each part of it in turn given to `by`.
    fn spoil(value: &Value, by: &dyn Fn(&Value) -> Vec<String>, to: &mut dyn FnMut(String)) {
        by(value).into_iter().for_each(&mut *to);
        match value {
            Value::Array(items) => {
                for (at, item) in items.iter().enumerate() {
                    spoil(item, by, &mut |text| {
                        let mut parts: Vec<_> = items.iter().map(Value::to_string).collect();
                        parts[at] = text;
                        to(format!("[{}]", parts.join(",")));
                    });
                }
            }
            Value::Object(fields) => {
                for name in fields.keys() {
                    spoil(&fields[name], by, &mut |text| {
                        let parts = fields.iter().map(|(other, value)| {
                            let value = if other == name {
                                text.clone()
                            } else {
                                value.to_string()
                            };
                            format!("{}:{value}", Value::from(other.as_str()))
                        });
                        to(format!("{{{}}}", parts.collect::<Vec<_>>().join(",")));
                    });
                }
            }
            _ => {}
        }
    }

    #[test]
    fn an_error_names_the_field_that_following_the_path_names() {
        let event = r#"{"sessionKey":"agent:main:a","kind":"compacted","actorType":"human","actorId":"b",
            "occurredAt":-3,"dedupeKey":"d","payload":{"goalId":"g"}}"#;
        let one = name_the_same::<RecordRequest>(event);
        let refused = [
            one,
            name_the_same::<RecordRequest>(&format!(
                r#"{{"events":[{event},{event}],"wait":false}}"#
            )),
            name_the_same::<ChangesSince>(r#"{"sessionKey":"a","changesSince":1,"limit":2}"#),
            name_the_same::<StateVersions>(
                r#"{"sessions":[{"sessionKey":"a"},{"sessionKey":"b"}]}"#,
            ),
            name_the_same::<SessionsRequest>(
                r#"{"after":{"sessionKey":"a","agentId":"b"},"limit":3}"#,
            ),
            name_the_same::<AckNotices>(
                r#"{"watcherSessionKey":"a","notices":[{"targetSessionKey":"b","notified":1}]}"#,
            ),
            name_the_same::<Config>(
                r#"{"database":"a","retention":{"maxEvents":1,"maxAgeMs":2},"monitor":{"roots":{"claude":"/a"},"intervalMs":3}}"#,
            ),
        ];
        assert!(refused.iter().all(|refused| *refused > 50), "{refused:?}");
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for text in [
            "",
            "[]",
            "not json",
            "3",
            "null",
            "\"x\"",
            "{} {}",
            "{",
            "{\"sessionKey\"",
        ] {
            assert_eq!(
                parse::<ChangesSince>(text).unwrap_err().code,
                Code::InvalidArgument,
                "{text}"
            );
        }
    }

    #[test]
    fn an_array_is_no_object_at_any_depth() {
        assert_eq!(
            parse::<ChangesSince>(r#"["a", 0]"#).unwrap_err().code,
            Code::InvalidArgument
        );
        for (text, field) in [
            (r#"{"events":[["a","main"]]}"#, "events[0]"),
            (r#"{"events":{}}"#, "events"),
        ] {
            assert_eq!(fault::<RecordRequest>(text).0.as_deref(), Some(field));
        }
        assert_eq!(
            fault::<SessionsRequest>(r#"{"after":["a","b"]}"#)
                .0
                .as_deref(),
            Some("after")
        );
        assert_eq!(
            fault::<StateVersions>(r#"{"sessions":[["a"]]}"#)
                .0
                .as_deref(),
            Some("sessions[0]")
        );
        assert_eq!(
            fault::<Config>(r#"{"database":"a","retention":[1,2]}"#)
                .0
                .as_deref(),
            Some("retention")
        );
    }

    #[test]
    fn a_number_without_a_fraction_is_whole() {
        let request: ChangesSince = parse(r#"{"sessionKey":"a","changesSince":3.0}"#).unwrap();
        assert_eq!(request.changes_since, 3);
    }
}
