//! The page around the data.

use base64::prelude::{BASE64_STANDARD, Engine};
use sha2::{Digest, Sha256};

use crate::text;

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// The page with its data, a JSON document.
pub fn render(title: &str, data: &str) -> String {
    // Nothing runs but this script and nothing is fetched, whatever a key or a
    // summary says: what is not of these hashes is refused.
    let policy = format!(
        "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; base-uri 'none'; form-action 'none'",
        hash(SCRIPT),
        hash(STYLE)
    );
    let data = for_script(data);
    let title = for_html(&text::safe(title));
    let parts = [
        ("{{policy}}", policy.as_str()),
        ("{{title}}", &title),
        ("{{style}}", STYLE),
        ("{{data}}", &data),
        ("{{script}}", SCRIPT),
    ];
    // One after the other: what is put in is never looked through for places.
    let mut page = String::with_capacity(PAGE.len() + STYLE.len() + SCRIPT.len() + data.len());
    let mut rest = PAGE;
    for (place, part) in parts {
        let (before, after) = rest.split_once(place).unwrap_or((rest, ""));
        page.push_str(before);
        page.push_str(part);
        rest = after;
    }
    page.push_str(rest);
    page
}

fn hash(inline: &str) -> String {
    BASE64_STANDARD.encode(Sha256::digest(inline.as_bytes()))
}

/// JSON that ends no element of HTML: the characters that could stand in strings alone.
fn for_script(json: &str) -> String {
    text::safe_json(json)
        .replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
}

fn for_html(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_in_stays_text_and_in_its_place() {
        let nasty = "</script><img src=x onerror=alert(1)>{{script}}\u{2028}&";
        let data = serde_json::to_string(&[nasty]).unwrap();
        let page = render(nasty, &data);
        assert!(!page.contains("<img"), "the key became an element");
        let embedded = page.split_once("type=\"application/json\">").unwrap().1;
        let embedded = embedded.split_once("</script>").unwrap().0;
        assert_eq!(
            serde_json::from_str::<Vec<String>>(embedded).unwrap(),
            [nasty]
        );
        assert!(page.contains(STYLE) && page.ends_with("</html>\n"));
        assert_eq!(page.matches(SCRIPT).count(), 1);
    }

    #[test]
    fn the_page_fetches_nothing() {
        for part in [PAGE, STYLE, SCRIPT] {
            for word in ["http:", "https:", "@import", "url(", "fetch(", "innerHTML"] {
                assert!(!part.contains(word), "{word}");
            }
        }
    }
}
