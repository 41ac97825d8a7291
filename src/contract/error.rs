use serde::Serialize;

/// What kind of error a call answered, one number each in the C header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[repr(i32)]
pub enum Code {
    /// The request is wrong; `field` names the part at fault. Nothing was stored.
    InvalidArgument = 1,
    /// What the request names does not exist.
    NotFound = 2,
    /// The database could not be read or written.
    Storage = 3,
    /// The call cannot be carried out now: another process held the database for
    /// longer than `busyTimeoutMs`, or a handle is to be closed from its own callback.
    Busy = 4,
    /// The handle is closed, was never opened, or was taken across a `fork`.
    Closed = 5,
    /// The library, this handle or this file system does not offer it.
    Unsupported = 6,
    /// A fault of the library itself; the handle stays usable.
    Internal = 7,
}

impl Code {
    /// The code's name as it stands in an error reply.
    pub fn as_str(self) -> &'static str {
        match self {
            Code::InvalidArgument => "invalid_argument",
            Code::NotFound => "not_found",
            Code::Storage => "storage",
            Code::Busy => "busy",
            Code::Closed => "closed",
            Code::Unsupported => "unsupported",
            Code::Internal => "internal",
        }
    }
}

/// An error of any verb: a code to branch on, a message for people, and the
/// request field at fault where there is one (`events[3].kind`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{}: {message}", code.as_str())]
pub struct Error {
    /// What kind of error it is.
    pub code: Code,
    /// What went wrong, and what would be right. Never holds message text of a session.
    pub message: String,
    /// The request field at fault, in the request's own spelling.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// What the store has to know of it, beside what it tells.
    #[serde(skip)]
    pub(crate) cause: Cause,
}

/// What lies behind an error of the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Cause {
    /// Nothing that asks for more than telling it.
    #[default]
    Told,
    /// The system refused something: SQLite's extended code of it.
    System(i32),
    /// The file holds what this library never wrote.
    Damage,
}

/// What every verb answers.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error of this code with this message and no field.
    pub fn new(code: Code, message: impl Into<String>) -> Error {
        Error {
            code,
            message: message.into(),
            field: None,
            cause: Cause::default(),
        }
    }

    /// `invalid_argument` for `field`.
    pub fn invalid(field: impl Into<String>, message: impl Into<String>) -> Error {
        Error {
            field: Some(field.into()),
            ..Error::new(Code::InvalidArgument, message)
        }
    }

    /// `storage`.
    pub fn storage(message: impl Into<String>) -> Error {
        Error::new(Code::Storage, message)
    }

    /// `storage`, since the database holds what this library never wrote.
    pub(crate) fn damaged(what: impl std::fmt::Display) -> Error {
        Error {
            cause: Cause::Damage,
            ..Error::storage(format!("the database is damaged: {what}"))
        }
    }

    /// `busy`.
    pub fn busy(message: impl Into<String>) -> Error {
        Error::new(Code::Busy, message)
    }

    /// `unsupported`.
    pub fn unsupported(message: impl Into<String>) -> Error {
        Error::new(Code::Unsupported, message)
    }

    /// `closed`.
    pub fn closed() -> Error {
        Error::new(Code::Closed, "the handle is closed")
    }

    /// The same error, its field one level down: `kind` within `events[3]` is `events[3].kind`.
    pub fn within(mut self, outer: &str) -> Error {
        self.field = Some(match self.field {
            Some(inner) => format!("{outer}.{inner}"),
            None => outer.to_owned(),
        });
        self
    }
}
