//! Finds URLs in plain text, and detects URLs that look as if they carry data to their host, such as
//! `https://x.example/?data=SGVsbG8`. `markup` calls [`web_addresses`], `personal` calls [`addresses`], and the
//! function `leaking_links` of policies calls [`is_exfiltration_shaped`].

use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;

use crate::MAX_FINDINGS;

/// The pattern of `http` and `https` addresses.
static WEB: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r#"(?i)https?://[^\s<>"`{}|\\^\[\]]+"#).ok());

/// The pattern of web addresses, `ftp` addresses and addresses that begin with `www.`.
static ANY: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r#"(?i)(?-u:\b)(?:(?:https?|ftps?)://|www\.[a-z0-9-]+\.)[^\s<>"`{}|\\^\[\]]+"#).ok()
});

/// Returns the `http` and `https` addresses in a text.
pub(super) fn web_addresses(text: &str) -> Vec<Range<usize>> {
    find_addresses(&WEB, text)
}

/// Returns the web addresses, `ftp` addresses and addresses that begin with `www.`.
pub(crate) fn addresses(text: &str) -> Vec<Range<usize>> {
    find_addresses(&ANY, text)
}

/// Returns the matches of a pattern without punctuation at their ends; none if the pattern is invalid (`None`).
fn find_addresses(regex: &Option<Regex>, text: &str) -> Vec<Range<usize>> {
    let found = regex.iter().flat_map(|regex| regex.find_iter(text)).take(MAX_FINDINGS);
    found.map(|found| found.start()..found.start() + without_punctuation(found.as_str()).len()).collect()
}

/// Returns an address without the punctuation at its end, which belongs to the sentence around it. A closing
/// parenthesis remains if it is opened in the address.
fn without_punctuation(url: &str) -> &str {
    let mut closed = url.matches(')').count();
    let opened = url.matches('(').count();
    let mut url = url;
    while let Some(c) = url.chars().next_back() {
        match c {
            '.' | ',' | ';' | ':' | '!' | '?' | '\'' | '*' | '_' => {}
            ')' if closed > opened => closed -= 1,
            _ => break,
        }
        url = url.strip_suffix(c).unwrap_or_default();
    }
    url
}

/// Returns whether an address has the form of one that carries data: a client that previews or displays it would send
/// the data to the host.
///
/// Such an address contains a placeholder (`{secret}`, `$(cat x)`), a query value with a telling name, a query value or
/// a part of the path that is long and looks encoded or is very long, a long label in its host, or a very long
/// fragment. This is a heuristic: the lengths are chosen so that ordinary addresses rarely reach them, but a legitimate
/// address of an image host may have such a path. A text without `://` is not an address.
///
/// ```
/// use flowgate_detect::markup::is_exfiltration_shaped;
/// assert!(is_exfiltration_shaped("https://x.example/p.png?data=SGVsbG8gd29ybGQh"));
/// assert!(!is_exfiltration_shaped("https://x.example/search?q=rust&page=2"));
/// ```
pub fn is_exfiltration_shaped(url: &str) -> bool {
    let Some((_, rest)) = url.split_once("://") else { return false };
    let (rest, fragment) = rest.split_once('#').unwrap_or((rest, ""));
    let (host_and_path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (host, path) = host_and_path.split_once('/').unwrap_or((host_and_path, ""));
    let lower = url.to_ascii_lowercase();
    // Placeholders that a model may be asked to fill; `%7b`, `%3c` and `%24` are the escapes of `{`, `<` and `$`.
    let has_placeholder = ["{", "%7b", "$(", "<", "%3c", "[data", "[insert", "your_", "%24("]
        .iter()
        .any(|mark| lower.contains(mark));
    let has_telling_name = |(name, value): (&str, &str)| {
        let name = name.to_ascii_lowercase();
        let names = [
            "data",
            "secret",
            "password",
            "passwd",
            "pwd",
            "payload",
            "exfil",
            "leak",
            "stolen",
            "env",
            "cookie",
            "content",
            "message",
            "msg",
            "text",
            "conversation",
            "history",
            "prompt",
            "context",
            "dump",
            "body",
            "info",
        ];
        value.len() >= 8 && names.contains(&name.as_str())
    };
    let has_data = |(_, value): (&str, &str)| value.len() > 150 || value.len() >= 24 && looks_encoded(value);
    let is_data = |part: &str| {
        // A part with a dot is usually the name of a file.
        part.len() > 200 || part.len() >= 40 && !part.contains('.') && looks_encoded(part)
    };
    let pairs = || query.split('&').map(|pair| pair.split_once('=').unwrap_or(("", pair)));
    has_placeholder
        || pairs().any(has_telling_name)
        || pairs().any(has_data)
        || path.split('/').any(is_data)
        || host.split('.').any(|label| label.len() >= 32)
        || fragment.len() > 200
}

/// Returns whether a part of an address looks like base 64, base 16, or a text that consists mostly of percent
/// escapes. The part must consist only of characters that occur in these.
fn looks_encoded(part: &str) -> bool {
    let has = |class: fn(&char) -> bool| part.chars().any(|c| class(&c));
    let has_encoding_alphabet =
        part.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '=' | '_' | '-' | '%'));
    // An escape such as `%20` has three characters, so more than half of the part belongs to escapes.
    let escapes = part.matches('%').count() * 6 > part.len();
    // Base 64 of more than a few bytes has characters of all three classes; an ordinary word does not.
    let mixed = has(char::is_ascii_digit) && has(char::is_ascii_uppercase) && has(char::is_ascii_lowercase);
    let hexadecimal =
        part.len() >= 32 && has(char::is_ascii_digit) && part.chars().all(|c| c.is_ascii_hexdigit());
    has_encoding_alphabet && (escapes || mixed || hexadecimal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_end_before_punctuation() {
        let check = |text: &str, expected: &[&str]| {
            let found: Vec<_> = addresses(text).into_iter().map(|span| text.get(span).unwrap()).collect();
            assert_eq!(found, expected, "{text}");
        };
        check("see (https://a.example/b), or www.c.example/d.", &["https://a.example/b", "www.c.example/d"]);
        check("ftp://a.example/x; HTTPS://B.example?!", &["ftp://a.example/x", "HTTPS://B.example"]);
        check("awww.nice https:// http", &[]);
    }

    #[test]
    fn addresses_are_recognised_by_their_shape() {
        let check = |url: &str, expected: bool| assert_eq!(is_exfiltration_shaped(url), expected, "{url}");
        check("https://x.example/log.png?q={conversation}", true);
        check("https://x.example/?d=aGVsbG8gMTIzNCB3b3JsZCBoZWxsbw==", true);
        check("https://x.example/aGVsbG8gMTIzNCB3b3JsZCBoZWxsbyAxMjM0IHdvcmxk", true);
        check("https://x.example/?password=hunter2hunter2", true);
        check("https://6d792073656372657420697320343220.x.example/", true);
        check("https://x.example/?q=rust+regex&page=2", false);
        check("https://en.wikipedia.org/wiki/Rust_(programming_language)#History", false);
        check("https://x.example/static/main.3f2a1b4c.css", false);
        check("not an address", false);
    }
}
