//! Implements the built-in functions of network addresses: the host of a URL, the domain of an address.
//!
//! URL parsers disagree about unusual URLs, and attackers exploit the difference. So a URL that does not name exactly
//! one host has none: user information, backslashes, white space, control characters and non-ASCII names are
//! rejected.

use super::{Function, map_text, row};
use crate::eval::Value;

pub(super) const TABLE: &[Function] = &[
    row(
        "host",
        (1, 1),
        "The host of a URL, in lower case; missing if parsers could read another host.",
        |e, a| map_text(e, a, "host", |url| host(url).map_or(Value::Absent, Value::text)),
    ),
    row("domain", (1, 1), "The domain of an e-mail address, in lower case.", |e, a| {
        map_text(e, a, "domain", |address| match crate::detect::emails(address).next() {
            Some(span) if span == (0..address.len()) => address
                .rsplit_once('@')
                .map_or(Value::Absent, |(_, domain)| Value::text(domain.to_lowercase())),
            _ => Value::Absent,
        })
    }),
];

/// Returns the host of a URL in lower case; `None` unless all URL parsers agree on it.
fn host(url: &str) -> Option<String> {
    let is_plain = |c: char| c.is_ascii_graphic() && c != '\\';
    let rest = match url.split_once("://") {
        Some(("http" | "https" | "HTTP" | "HTTPS", rest)) => rest,
        Some((scheme, _)) if !scheme.contains(['/', '?', '#', '.']) => return None,
        _ => url,
    };
    let authority = rest.split(['/', '?', '#']).next()?;
    let name = match authority.split_once(':') {
        Some((name, port)) if !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()) => name,
        Some(_) => return None,
        None => authority,
    };
    let has_valid_labels = name.split('.').all(|label| {
        let inner = label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        !label.is_empty() && inner && !label.starts_with('-') && !label.ends_with('-')
    });
    // Browsers parse a name that ends in a number as an IP address, with many spellings: `127.1`, `0x7f.0.0.1`.
    let last = name.rsplit('.').next().unwrap_or_default();
    let hexadecimal = last.strip_prefix("0x").or(last.strip_prefix("0X"));
    let is_number = last.bytes().all(|b| b.is_ascii_digit())
        || hexadecimal.is_some_and(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()));
    let is_unambiguous = !is_number || name.parse::<std::net::Ipv4Addr>().is_ok();
    (url.chars().all(is_plain) && name.contains('.') && has_valid_labels && is_unambiguous)
        .then(|| name.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::super::tests::check;

    #[test]
    fn hosts_are_plain_or_missing() {
        for (url, expected) in [
            ("https://Trusted.com/a?b", "\"trusted.com\""),
            ("www.site.org", "\"www.site.org\""),
            ("http://a.b:8080/x", "\"a.b\""),
            ("https://trusted.com@evil.com/", "absent"),
            ("https://trusted.com\\\\@evil.com/", "absent"),
            ("https://trusted.com:80@evil.com/", "absent"),
            ("https://evil.com#trusted.com", "\"evil.com\""),
            ("https://evil.com/trusted.com", "\"evil.com\""),
            ("javascript://trusted.com/%0aalert(1)", "absent"),
            ("https://trusted..com", "absent"),
            ("https://tru\u{e9}sted.com", "absent"),
            ("https://a.b c", "absent"),
            ("localhost", "absent"),
            ("https://127.0.0.1/", "\"127.0.0.1\""),
            ("https://127.1/", "absent"),
            ("https://0x7f.0.0.1/", "absent"),
            ("https://127.0.0.0x1/", "absent"),
            ("https://127.0.0.01/", "absent"),
            ("https://1.2.3.0x7g/", "\"1.2.3.0x7g\""),
            ("https://a.1b/", "\"a.1b\""),
        ] {
            check("host", &format!("\"{url}\""), expected);
        }
        check("domain", "\"Ann@Example.ORG\"", "\"example.org\"");
        check("domain", "\"ann\"", "absent");
    }
}
