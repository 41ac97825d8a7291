//! Texts for people: keys made safe to show, times, ages and sizes.

use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use unicode_width::UnicodeWidthChar;

/// Whether a character could move the cursor, turn the writing direction, hide,
/// or pass for a space: none of them may reach a terminal or a page.
fn is_treacherous(c: char) -> bool {
    c.is_control()
        || (c.is_whitespace() && c != ' ')
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}')
}

/// A text as it may be shown: what is treacherous stands as `\u{202e}`, and a
/// backslash is doubled, so that no two texts look the same by it.
pub fn safe(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        // At the start there is no letter that a combining mark could stand on.
        let floating = shown.is_empty() && c.width() == Some(0);
        match c {
            '\\' => shown.push_str("\\\\"),
            c if floating || is_treacherous(c) => {
                let _ = write!(shown, "\\u{{{:x}}}", u32::from(c));
            }
            c => shown.push(c),
        }
    }
    shown
}

/// JSON that says the same and holds nothing treacherous, in or out of quotes.
pub fn safe_json(json: &str) -> String {
    let mut shown = String::with_capacity(json.len());
    for c in json.chars() {
        // Line feeds here are the layout's: within a string they are escaped already.
        if c != '\n' && is_treacherous(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(shown, "\\u{unit:04x}");
            }
        } else {
            shown.push(c);
        }
    }
    shown
}

/// A word of a shell command.
pub fn shell(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:=@,%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

pub fn now_ms() -> i64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// A local date and time, to the millisecond.
pub fn time(ms: i64) -> String {
    match Timestamp::from_millisecond(ms) {
        Ok(time) => time
            .to_zoned_datetime(TimeZone::system())
            .strftime("%Y-%m-%d %H:%M:%S%.3f")
            .to_string(),
        Err(_) => format!("{ms} ms"),
    }
}

/// A local time to the second, with the day when it is not that of `now`, and the year when it is not this one.
pub fn short_time(ms: i64, now: i64) -> String {
    let zone = TimeZone::system();
    let (Ok(time), Ok(now)) = (
        Timestamp::from_millisecond(ms),
        Timestamp::from_millisecond(now),
    ) else {
        return time(ms);
    };
    let (time, now) = (
        time.to_zoned_datetime(zone.clone()),
        now.to_zoned_datetime(zone),
    );
    let format = if time.date() == now.date() {
        "%H:%M:%S"
    } else if time.year() == now.year() {
        "%m-%d %H:%M:%S"
    } else {
        "%Y-%m-%d %H:%M"
    };
    time.strftime(format).to_string()
}

/// A local date and time, or `-` for one that is not known.
pub fn time_if(ms: i64) -> String {
    if ms > 0 { time(ms) } else { "-".to_owned() }
}

/// A span of time in its two largest units.
pub fn age(ms: i64) -> String {
    let seconds = ms.max(0) / 1_000;
    let units = [("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)];
    let largest = units
        .iter()
        .position(|(_, size)| seconds >= *size)
        .unwrap_or(3);
    let mut left = seconds;
    let mut parts = Vec::new();
    for (name, size) in &units[largest..(largest + 2).min(units.len())] {
        parts.push(format!("{}{name}", left / size));
        left %= size;
    }
    parts.join(" ")
}

/// A size in the largest unit that leaves a number above one.
pub fn bytes(n: u64) -> String {
    let mut size = n as f64;
    let mut units = ["B", "KiB", "MiB", "GiB"].into_iter();
    let mut unit = units.next().unwrap_or_default();
    while size >= 1024.0 {
        let Some(next) = units.next() else { break };
        (size, unit) = (size / 1024.0, next);
    }
    if unit == "B" {
        format!("{n} B")
    } else {
        format!("{size:.1} {unit}")
    }
}

/// A number in groups of three.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// `1 event`, `2 events`.
pub fn counted(n: u64, one: &str) -> String {
    let ending = match n {
        1 => "",
        _ if one.ends_with("ch") || one.ends_with("ss") => "es",
        _ => "s",
    };
    format!("{} {one}{ending}", count(n))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_move_hide_or_turn_text_is_shown_as_what_it_is() {
        for (raw, shown) in [
            ("agent:main:main", "agent:main:main"),
            ("schön 日本 नमस्ते", "schön 日本 नमस्ते"),
            ("a\u{202e}b", r"a\u{202e}b"),
            ("a\u{200b}b", r"a\u{200b}b"),
            ("\u{1b}[31m", r"\u{1b}[31m"),
            ("\u{9b}2J", r"\u{9b}2J"),
            ("a\u{a0}b\u{2028}c", r"a\u{a0}b\u{2028}c"),
            ("\u{301}a\u{301}", "\\u{301}a\u{301}"),
            (r"\u{202e}", r"\\u{202e}"),
            ("\u{e0041}", r"\u{e0041}"),
        ] {
            assert_eq!(safe(raw), shown, "{raw:?}");
        }
    }

    #[test]
    fn safe_json_says_the_same() {
        let value = serde_json::json!({"a\u{202e}": ["\u{9b}", "\u{e0041}\n\\", "\u{feff}é"]});
        let json = serde_json::to_string_pretty(&value).unwrap();
        let shown = safe_json(&json);
        assert!(
            !shown.chars().any(|c| c != '\n' && is_treacherous(c)),
            "{shown:?}"
        );
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&shown).unwrap(),
            value
        );
    }

    #[test]
    fn a_short_time_leaves_out_what_goes_without_saying() {
        let day = 86_400_000;
        // Noon here, in whatever zone that is.
        let noon = (0..96)
            .map(|quarter| 1_796_040_000_000 + quarter * 900_000)
            .find(|ms| time(*ms).ends_with(" 12:00:00.000"))
            .unwrap();
        assert_eq!(short_time(noon - 1_000, noon), "11:59:59");
        let before = short_time(noon - 2 * day, noon);
        assert!(before.len() == 14 && before.ends_with(":00"), "{before}");
        let long_ago = short_time(noon - 400 * day, noon);
        assert!(
            long_ago.len() == 16 && long_ago.starts_with("202"),
            "{long_ago}"
        );
    }

    #[test]
    fn spans_sizes_and_counts_read_well() {
        assert_eq!(age(0), "0s");
        assert_eq!(age(61_000), "1m 1s");
        assert_eq!(age(90_000_000), "1d 1h");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(64 << 20), "64.0 MiB");
        assert_eq!(count(50_000), "50,000");
        assert_eq!(counted(2, "watch"), "2 watches");
        assert_eq!(shell("it's"), r"'it'\''s'");
        assert_eq!(shell("/a/b-1.db"), "/a/b-1.db");
    }
}
