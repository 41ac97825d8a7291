//! From JSON text to a request type, with errors that name the field.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, DeserializeOwned, Deserializer, MapAccess, Unexpected, Visitor};

use super::{Error, Result};

/// The largest number of the contract, 2^53 − 1: every host's JSON can hold it exactly.
pub const MAX_NUMBER: i64 = (1 << 53) - 1;

/// Reads `text` as one request. Errors are `invalid_argument` with the field's
/// path; the path is worked out on a second reading, so that good requests do
/// not pay for it.
pub fn parse<T: DeserializeOwned>(text: &str) -> Result<T> {
    // Serde would read an array as an object's fields in their order.
    if !text.trim_start().starts_with('{') {
        return Err(Error::new(
            super::Code::InvalidArgument,
            "the request is not a JSON object",
        ));
    }
    serde_json::from_str(text).or_else(|_| parse_with_path(text))
}

fn parse_with_path<T: DeserializeOwned>(text: &str) -> Result<T> {
    let mut json = serde_json::Deserializer::from_str(text);
    let value = serde_path_to_error::deserialize(&mut json).map_err(|problem| {
        let path = problem.path().to_string();
        // serde_json ends its messages with a place in the text, which says
        // nothing to who builds the request from an object.
        let inner = problem.into_inner().to_string();
        let message = inner.split(" at line ").next().unwrap_or(&inner).to_owned();
        // A missing, unknown or repeated field is named in the message only.
        let own = ["missing field `", "unknown field `", "duplicate field `"]
            .iter()
            .find_map(|lead| message.strip_prefix(lead))
            .and_then(|rest| rest.split('`').next());
        let outer = (path != ".").then_some(path);
        let field = match (outer, own) {
            // The path of an unknown field already ends with it.
            (Some(outer), Some(own)) if last_part(&outer) == own => Some(outer),
            (Some(outer), Some(own)) => Some(format!("{outer}.{own}")),
            (Some(outer), None) => Some(outer),
            (None, own) => own.map(str::to_owned),
        };
        Error {
            field,
            ..Error::new(super::Code::InvalidArgument, message)
        }
    })?;
    json.end().map_err(|_| {
        Error::new(
            super::Code::InvalidArgument,
            "the request holds more than one JSON value",
        )
    })?;
    Ok(value)
}

fn last_part(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or(path)
}

/// For `#[serde(deserialize_with)]`: a whole number from 0 to [`MAX_NUMBER`].
pub(super) fn whole<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<u64, D::Error> {
    from.deserialize_any(Whole { least: 0 }).map(|n| n as u64)
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
        from.deserialize_any(Whole { least: -MAX_NUMBER })
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
    use super::super::{ChangesSince, Code, Config, RecordRequest, SessionsRequest, StateVersions};
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
