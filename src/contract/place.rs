//! Which field a place in a JSON text belongs to.
//!
//! A crate that follows the path while it reads would be compiled into every
//! request type a second time, about 0.3 MB. The reader tells where it stopped,
//! and the path to there is one walk over the text; a test holds it to the crate's.

/// One step from a value to one inside it.
enum Step<'a> {
    /// A field, as the text has it between its quotes; `None` before its value.
    Field(Option<&'a str>),
    Index(usize),
}

/// The path of the field that ends at the byte `stop` of `text`, or begins there,
/// such as `events[0].kind`; with `inside`, of the object that a field was read of
/// there, or that ends there. Empty for the whole value.
pub(super) fn path_to(text: &str, stop: usize, inside: bool) -> String {
    let bytes = text.as_bytes();
    let stop = stop.min(bytes.len());
    let mut steps = Vec::new();
    let mut string = None;
    let mut at = 0;
    while at < stop {
        match bytes[at] {
            b'{' => steps.push(Step::Field(None)),
            b'[' => steps.push(Step::Index(0)),
            b'}' | b']' if at + 1 < stop || !inside => {
                steps.pop();
            }
            b',' => match steps.last_mut() {
                Some(Step::Index(index)) => *index += 1,
                Some(Step::Field(name)) => *name = None,
                None => {}
            },
            b'"' => {
                let end = end_of_string(bytes, at + 1);
                string = text.get(at + 1..end);
                at = end;
            }
            b':' => {
                if let Some(Step::Field(name)) = steps.last_mut() {
                    *name = string;
                }
            }
            _ => {}
        }
        at += 1;
    }
    if inside {
        steps.pop();
    }
    let mut path = String::new();
    for step in steps {
        match step {
            Step::Index(index) => path.push_str(&format!("[{index}]")),
            Step::Field(Some(name)) if path.is_empty() => path.push_str(name),
            Step::Field(Some(name)) => path.extend([".", name]),
            Step::Field(None) => {}
        }
    }
    path
}

/// Where the quote that ends a string is, or the text.
fn end_of_string(bytes: &[u8], from: usize) -> usize {
    let mut at = from;
    while let Some(found) = bytes
        .get(at..)
        .and_then(|rest| memchr::memchr2(b'"', b'\\', rest))
    {
        if bytes[at + found] == b'"' {
            return at + found;
        }
        at += found + 2;
    }
    bytes.len()
}
