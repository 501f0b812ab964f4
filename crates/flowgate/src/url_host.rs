//! Reads the host of a URL ([`host`], [`web_host`]), its registrable domain (the name that one owner has registered,
//! such as `example.co.uk`), and the hosts that a text names ([`named_hosts`]).
//!
//! URL parsers disagree about unusual URLs, and attackers exploit the difference. So a URL has a host here only if all
//! parsers read the same one: user information, backslashes, white space, control characters and non-ASCII names are
//! rejected.
//!
//! Three parts of the crate use this module: the built-in functions on URLs, the compiler of lists of permitted hosts,
//! and the conditions that look for the host of a URL in trusted text.

/// The most bytes of a URL that is compared.
const MAX_URL: usize = 2_048;

/// Returns the host of a URL, in lower case. The URL must have no scheme, or the scheme `http` or `https` in lower case
/// or in upper case. `None` for a URL with another scheme, for a host without a dot, and for any URL from which
/// different parsers could read different hosts.
pub(crate) fn host(url: &str) -> Option<String> {
    let is_plain = |c: char| c.is_ascii_graphic() && c != '\\';
    let rest = match url.split_once("://") {
        Some(("http" | "https" | "HTTP" | "HTTPS", rest)) => rest,
        Some((scheme, _)) if is_scheme(scheme) => return None,
        _ => url,
    };
    let authority = rest.split(['/', '?', '#']).next()?;
    // The host without the port. User information (`user@`) remains in it, and fails the test of the labels below.
    let name = match authority.split_once(':') {
        Some((name, port)) if !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()) => name,
        Some(_) => return None,
        None => authority,
    };
    let has_valid_labels = name.split('.').all(|label| {
        let has_valid_bytes = label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        !label.is_empty() && has_valid_bytes && !label.starts_with('-') && !label.ends_with('-')
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

/// Returns whether the text before `://` is a scheme. A text that contains a character of a host, a path or a query is
/// not a scheme: the `://` then belongs to another URL within this one, as in `x.example/?to=https://y.example`.
fn is_scheme(text: &str) -> bool {
    !text.contains(['/', '?', '#', '.'])
}

/// Returns the host of a web URL, without a leading `www.`, for the comparison with permitted hosts; `None` for any
/// other text. A web URL has the scheme `http` or `https`, or no scheme; the port 80 or 443 (with either scheme), or no
/// port; and at most [`MAX_URL`] bytes.
pub(crate) fn web_host(url: &str) -> Option<String> {
    let (scheme, rest) =
        url.split_once("://").filter(|(scheme, _)| is_scheme(scheme)).unwrap_or(("https", url));
    let is_web = scheme.eq_ignore_ascii_case("https") || scheme.eq_ignore_ascii_case("http");
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let has_default_port = authority.split_once(':').is_none_or(|(_, port)| matches!(port, "80" | "443"));
    let found = host(url).filter(|_| is_web && has_default_port && url.len() <= MAX_URL)?;
    Some(bare_host(&found))
}

/// Returns a host in lower case without a leading `www.`.
pub(crate) fn bare_host(host: &str) -> String {
    let host = host.to_ascii_lowercase();
    host.strip_prefix("www.").map_or(host.clone(), str::to_owned)
}

/// Returns the registrable domain of a host: one label more than the public suffix below which anybody can register a
/// name (the Public Suffix List, with its private section). `None` for a public suffix and for an address.
pub(crate) fn registrable_domain(host: &str) -> Option<String> {
    if host.parse::<std::net::IpAddr>().is_ok() {
        return None;
    }
    psl::domain_str(host).map(str::to_owned)
}

/// Returns the hosts that a text names in web URLs: each has `http://` or `https://` before it, or begins with `www.`.
/// Other names do not count, since a bare `report.sh` is more often a file than a host.
pub(crate) fn named_hosts(text: &str) -> impl Iterator<Item = String> {
    // Whether no URL begins after the character, since the character and what follows it are parts of one word.
    let is_word = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | '@' | ':' | '/' | '%' | '+');
    let is_separator = |c: char| {
        c.is_whitespace()
            || c.is_control()
            || matches!(
                c,
                '<' | '>' | '"' | '\'' | '`' | '|' | '(' | ')' | '[' | ']' | '{' | '}' | ',' | ';' | '*'
            )
    };
    text.split(is_separator).flat_map(move |token| {
        let lower = token.to_ascii_lowercase();
        // The positions at which a URL may begin: the first occurrence of each prefix, unless it is within a word.
        let starts = ["http://", "https://", "www."].into_iter().filter_map(move |start| {
            let at = lower.find(start)?;
            let before = token.get(..at)?.chars().next_back();
            (!before.is_some_and(is_word)).then_some(at)
        });
        // Only the first URL of a token: a later start is a part of that URL.
        let url = starts.min().and_then(|at| token.get(at..));
        url.and_then(host_in_sentence)
    })
}

/// Returns the host of a web URL that is a part of a sentence; the URL may end with punctuation of the sentence.
fn host_in_sentence(url: &str) -> Option<String> {
    let authority_start = url.find("://").map_or(0, |at| at + 3);
    let rest = url.get(authority_start..)?;
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    // Punctuation at the end belongs to the sentence, not to the host.
    let authority = rest.get(..end)?.trim_end_matches(['.', ':', '!']);
    web_host(&format!("{}{authority}", url.get(..authority_start)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_names_the_hosts_of_its_urls_and_no_others() {
        for (text, expected) in [
            ("Read https://Docs.example.org/a?b, please.", vec!["docs.example.org"]),
            ("Visit www.example.org.", vec!["example.org"]),
            ("(http://a.example) and [b](https://b.example/x)", vec!["a.example", "b.example"]),
            ("\"https://a.example:443/\"", vec!["a.example"]),
            ("https://a.example:8443/", vec![]),
            ("run report.sh, see readme.md", vec![]),
            ("mail me@www.example.org", vec![]),
            ("https://a.example@evil.example/", vec![]),
            ("https://a.example\\@evil.example/", vec![]),
            ("https://a.example/?next=https://evil.example/", vec!["a.example"]),
            ("notahttps://a.example", vec![]),
            ("ftp://www.example.org/", vec![]),
            ("https://localhost/", vec![]),
            ("https://www.\u{e9}.example/", vec![]),
            ("www.", vec![]),
        ] {
            assert_eq!(named_hosts(text).collect::<Vec<_>>(), expected, "{text}");
        }
    }

    #[test]
    fn a_url_within_a_url_does_not_hide_the_host() {
        for (url, expected) in [
            ("x.example/?to=https://y.example", Some("x.example")),
            ("www.x.example:443/a#https://y.example", Some("x.example")),
            ("x.example:8443/?to=https://y.example", None),
            ("https://x.example/?to=ftp://y.example", Some("x.example")),
            ("ftp://x.example/?to=https://y.example", None),
            ("evil@x.example/?to=https://y.example", None),
        ] {
            assert_eq!(web_host(url).as_deref(), expected, "{url}");
        }
    }

    /// Compares the host with that of the crate `url`, which reads URLs as browsers do. A URL that `url` rejects goes
    /// nowhere, so any answer is safe for it.
    fn agrees_with_browsers(url: &str) -> bool {
        let absolute = if url.contains("://") { url.to_owned() } else { format!("https://{url}") };
        match (host(url), url::Url::parse(&absolute)) {
            (Some(host), Ok(parsed)) => parsed.host_str() == Some(&host) && parsed.username().is_empty(),
            (None, _) | (_, Err(_)) => true,
        }
    }

    #[test]
    fn the_host_is_the_one_that_browsers_read() {
        for (url, expected) in [
            ("https://A.example/x", Some("a.example")),
            ("HTTPS://a.example:443?b#c", Some("a.example")),
            ("a.example/?to=https://b.example", Some("a.example")),
            ("https://192.0.2.1/", Some("192.0.2.1")),
            ("https://xn--bcher-kva.example/", Some("xn--bcher-kva.example")),
            ("https://a.example@b.example/", None),
            ("https://a.example\\@b.example/", None),
            ("https:/\\b.example/", None),
            ("https:a.example/", None),
            ("https:///a.example/", None),
            ("https://a.example:80:b.example/", None),
            ("https://a.exa\tmple/", None),
            ("https://a%2eexample/", None),
            ("https://0x7f.1/", None),
            ("https://127.1/", None),
            ("https://192.0.2.08/", None),
            ("https://[::1]/", None),
            ("javascript://a.example/%0aalert(1)", None),
        ] {
            assert_eq!(host(url).as_deref(), expected, "{url}");
            assert!(agrees_with_browsers(url), "{url}");
        }
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(4_096))]

        #[test]
        fn no_url_has_another_host_than_browsers_read(
            scheme in "(https?:|HTTPS:|ftp:|)",
            slashes in r"(//|/|\\|///|)",
            authority in r"(a\.example|b\.example|192\.0\.2\.1|0x7f\.1|xn--a|[aB0-9.:@%\\\[\]xX_\-é]){1,4}",
            rest in r"([/?#@:\\.a]|//b\.example){0,4}",
        ) {
            let url = format!("{scheme}{slashes}{authority}{rest}");
            proptest::prop_assert!(agrees_with_browsers(&url), "{url:?}");
        }
    }

    #[test]
    fn the_registrable_domain_is_one_label_below_the_public_suffix() {
        for (host, expected) in [
            ("shop.example.org", Some("example.org")),
            ("example.co.uk", Some("example.co.uk")),
            ("co.uk", None),
            ("org", None),
            ("alice.github.io", Some("alice.github.io")),
            ("github.io", None),
            ("192.0.2.1", None),
        ] {
            assert_eq!(registrable_domain(host).as_deref(), expected, "{host}");
        }
    }
}
