//! Implements the built-in functions of network addresses: the host of a URL, whether a URL is on a host, and the
//! domain of an e-mail address. With these functions, a policy restricts the recipients to which a call may send data.
//! The evaluator calls them through the table in [`builtin`](super).

use super::{Function, map_text, resolved_argument, row};
use crate::eval::Value;
use crate::url_host::{bare_host, host, registrable_domain, web_host};

pub(super) const TABLE: &[Function] = &[
    row(
        "host",
        (1, 1),
        "The host of a URL, in lower case; missing if parsers of URLs could disagree about it.",
        |e, a| map_text(e, a, "host", |url| host(url).map_or(Value::Absent, Value::text)),
    ),
    row(
        "is_url_on",
        (2, 2),
        "Whether a text is an http(s) URL on this host, or on one of a list; a leading `www.` has no effect.",
        |e, a| {
            let hosts = texts(&resolved_argument(e, a, 1)?);
            map_text(e, a, "is_url_on", |url| Value::Bool(is_url_on(url, &hosts)))
        },
    ),
    row(
        "is_url_on_domain",
        (2, 2),
        "Whether a text is an http(s) URL on this registrable domain or below it, or on one of a list.",
        |e, a| {
            let domains = texts(&resolved_argument(e, a, 1)?);
            map_text(e, a, "is_url_on_domain", |url| Value::Bool(is_url_on_domain(url, &domains)))
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

/// Returns the hosts or domains in an argument: one text, or a list of texts. Omits items that are not texts. Any other
/// value yields an empty list, which no URL matches.
fn texts(value: &Value) -> Vec<String> {
    match value.as_text() {
        Some(text) => vec![text.to_owned()],
        None => {
            let values = value.to_json();
            values
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|text| text.as_str().map(str::to_owned))
                .collect()
        }
    }
}

/// Returns whether a text is a web URL on one of these hosts. A leading `www.` has no effect, on either side.
fn is_url_on(url: &str, hosts: &[String]) -> bool {
    web_host(url).is_some_and(|found| hosts.iter().any(|host| bare_host(host) == found))
}

/// Returns whether a text is a web URL whose host is one of these registrable domains or below one.
fn is_url_on_domain(url: &str, domains: &[String]) -> bool {
    let found = web_host(url).and_then(|host| registrable_domain(&host));
    found.is_some_and(|found| domains.iter().any(|domain| domain.eq_ignore_ascii_case(&found)))
}

#[cfg(test)]
mod tests {
    use super::super::tests::check;
    use super::{is_url_on, is_url_on_domain};

    #[test]
    fn a_url_is_on_a_host_in_every_spelling_of_it_and_of_no_other() {
        let hosts = ["docs.example.org".to_owned(), "www.Shop.example".to_owned()];
        let long = format!("https://docs.example.org/{}", "a".repeat(2_048));
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
    fn a_url_is_on_a_domain_and_below_it() {
        let domains = ["Example.org".to_owned(), "co.uk".to_owned(), "alice.github.io".to_owned()];
        for (url, is_on) in [
            ("https://example.org/a", true),
            ("http://www.shop.example.org/", true),
            ("https://example.org.evil.example/", false),
            ("https://notexample.org/", false),
            // Anybody can register a name below a public suffix.
            ("https://shop.co.uk/", false),
            ("https://alice.github.io/", true),
            ("https://mallory.github.io/", false),
            ("https://example.org:8443/", false),
        ] {
            assert_eq!(is_url_on_domain(url, &domains), is_on, "{url}");
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
