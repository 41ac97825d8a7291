//! Why the command ends early.

use std::io;

use session_awareness::{Code, Error};

use crate::text;

/// Why the command ends early.
pub enum Failure {
    /// Nobody reads the output any more; no fault.
    Closed,
    /// One line for a person: what went wrong and what to do.
    Told(String),
}

impl Failure {
    pub fn new(message: impl Into<String>) -> Failure {
        Failure::Told(message.into())
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let advice = match (error.code, error.field.as_deref()) {
            (Code::NotFound, Some("database")) => {
                "; name the gateway's by --database PATH or SESSION_AWARENESS_DATABASE"
            }
            (Code::InvalidArgument, Some("database")) => {
                "; name the gateway's own by --database PATH"
            }
            (Code::Unsupported, _) => "; `aware doctor` says more",
            (Code::Busy, _) => "; try again",
            (Code::Storage, _) => "; `aware doctor` looks for the cause",
            _ => "",
        };
        let field = match error.field.as_deref() {
            Some("database") | None => String::new(),
            Some(field) => format!(" ({field})"),
        };
        Failure::Told(text::safe(&format!("{}{field}{advice}", error.message)))
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Failure::Closed;
        }
        Failure::Told(format!("the output cannot be written: {error}"))
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Failure {
        io::Error::from(error).into()
    }
}
