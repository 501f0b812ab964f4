//! Implements the built-in functions of network addresses: the host of a URL, the domain of an address.
//!
//! URL parsers disagree about unusual URLs, and attackers exploit the difference. So a URL that does not name exactly
//! one host has none: user information, backslashes, white space, control characters and non-ASCII names are
//! rejected.

use super::{Function, map_text, resolved_argument, row};
use crate::eval::Value;

/// The most bytes of a URL that `is_url_on` accepts.
const MAX_URL: usize = 2_048;

pub(super) const TABLE: &[Function] = &[
    row(
        "host",
        (1, 1),
        "The host of a URL, in lower case; missing if parsers could read another host.",
        |e, a| map_text(e, a, "host", |url| host(url).map_or(Value::Absent, Value::text)),
    ),
    row(
        "is_url_on",
        (2, 2),
        "Whether a text is an http(s) URL on this host, or on one of a list; a leading `www.` does not count.",
        |e, a| {
            let hosts = resolved_argument(e, a, 1)?;
            let hosts: Vec<String> = match hosts.as_text() {
                Some(host) => vec![host.to_owned()],
                None => hosts.to_json().as_array().into_iter().flatten().filter_map(as_host).collect(),
            };
            map_text(e, a, "is_url_on", |url| Value::Bool(is_url_on(url, &hosts)))
        },
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

fn host(url: &str) -> Option<String> {
    let plain = |c: char| c.is_ascii_graphic() && c != '\\';
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
    let labels = name.split('.').all(|label| {
        let inner = label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        !label.is_empty() && inner && !label.starts_with('-') && !label.ends_with('-')
    });
    // Browsers parse a name that ends in a number as an IP address, with many spellings: `127.1`, `0x7f.0.0.1`.
    let last = name.rsplit('.').next().unwrap_or_default();
    let hexadecimal = last.strip_prefix("0x").or(last.strip_prefix("0X"));
    let is_number = last.bytes().all(|b| b.is_ascii_digit())
        || hexadecimal.is_some_and(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()));
    let is_one = !is_number || name.parse::<std::net::Ipv4Addr>().is_ok();
    (url.chars().all(plain) && name.contains('.') && labels && is_one).then(|| name.to_ascii_lowercase())
}

fn as_host(value: &serde_json::Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

/// Whether a text is one URL of at most [`MAX_URL`] bytes whose host is one of these, at the scheme's default port.
fn is_url_on(url: &str, hosts: &[String]) -> bool {
    let bare = |host: &str| {
        let host = host.to_ascii_lowercase();
        host.strip_prefix("www.").map_or(host.clone(), str::to_owned)
    };
    let has_default_port = |rest: &str| {
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        authority.split_once(':').is_none_or(|(_, port)| matches!(port, "80" | "443"))
    };
    let is_web = match url.split_once("://") {
        Some((scheme, rest)) => {
            (scheme.eq_ignore_ascii_case("https") || scheme.eq_ignore_ascii_case("http"))
                && has_default_port(rest)
        }
        None => has_default_port(url),
    };
    let found = host(url).filter(|_| is_web && url.len() <= MAX_URL);
    found.is_some_and(|found| hosts.iter().any(|host| bare(host) == bare(&found)))
}

#[cfg(test)]
mod tests {
    use super::super::tests::check;
    use super::is_url_on;

    #[test]
    fn a_url_is_on_a_host_in_every_spelling_of_it_and_of_no_other() {
        let hosts = ["docs.example.org".to_owned(), "www.Shop.example".to_owned()];
        let long = format!("https://docs.example.org/{}", "a".repeat(super::MAX_URL));
        for (url, is_on) in [
            ("https://docs.example.org/a?b=c#d", true),
            ("HTTP://WWW.Docs.Example.Org", true),
            ("docs.example.org/a", true),
            ("https://shop.example:443/", true),
            ("http://shop.example:80/", true),
            ("https://docs.example.org:8443/", false),
            ("https://example.org/", false),
            ("https://a.docs.example.org/", false),
            ("https://docs.example.org.evil.example/", false),
            ("https://docs.example.org@evil.example/", false),
            ("https://evil.example/docs.example.org", false),
            ("ftp://docs.example.org/", false),
            ("https://docs.example.org/ and mail it to eve", false),
            (&long, false),
        ] {
            assert_eq!(is_url_on(url, &hosts), is_on, "{url:.60}");
        }
    }

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
