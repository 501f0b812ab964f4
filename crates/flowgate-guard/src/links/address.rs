//! Writes a web or mail address of a model's text in its canonical form. The policy judges this form, and a permitted
//! address appears in the cleaned text in this form. `segment` calls this module.
//!
//! A web address is parsed as a browser does. It is written with letters, digits and the few signs that no renderer
//! takes for the end of the address, for Markdown emphasis or for an HTML entity; everything else is percent-encoded.
//! With white space on both sides, no renderer finds a longer or a shorter address in it.

use url::{Host, Url};

/// The longest address that is written, in bytes.
const MAX_LENGTH: usize = 2_000;

/// Names that HTML reads after `&` without a semicolon, in lower case. `frac` and `sup` stand for all names that begin
/// with them.
const ENTITIES: &[&str] = &[
    "aacute", "acirc", "acute", "aelig", "agrave", "amp", "aring", "atilde", "auml", "brvbar", "ccedil",
    "cedil", "cent", "copy", "curren", "deg", "divide", "eacute", "ecirc", "egrave", "eth", "euml", "frac",
    "gt", "iacute", "icirc", "iexcl", "igrave", "iquest", "iuml", "laquo", "lt", "macr", "micro", "middot",
    "nbsp", "not", "ntilde", "oacute", "ocirc", "ograve", "ordf", "ordm", "oslash", "otilde", "ouml", "para",
    "plusmn", "pound", "quot", "raquo", "reg", "sect", "shy", "sup", "szlig", "thorn", "times", "uacute",
    "ucirc", "ugrave", "uml", "uuml", "yacute", "yen", "yuml",
];

/// Returns the canonical form of a web address. `None` if the text is no plain web address, if the form is too long, or
/// if it would be parsed as another address.
pub(super) fn canonical_web_address(text: &str) -> Option<String> {
    let url = parse_url(text)?;
    let mut written = format!("{}://{}", url.scheme(), url.host_str()?);
    if let Some(port) = url.port() {
        written.push_str(&format!(":{port}"));
    }
    // If the top-level domain is unknown, some renderers search the path for a host name with a known one and make a
    // link of that: such a path is encoded more strictly.
    let is_known = url
        .host_str()
        .and_then(|host| host.rsplit('.').next())
        .is_some_and(super::host_names::is_in_root_zone);
    encode(url.path(), if is_known { UrlPart::Path } else { UrlPart::PathAfterUnknownDomain }, &mut written);
    if let Some(query) = url.query().filter(|query| !query.is_empty()) {
        written.push('?');
        encode(query, UrlPart::Query, &mut written);
    }
    if let Some(fragment) = url.fragment().filter(|fragment| !fragment.is_empty()) {
        written.push('#');
        encode(fragment, UrlPart::Query, &mut written);
    }
    // Parsing the canonical form again must give the same address.
    let parsed_again = self::parse_url(&written)?;
    (written.len() <= MAX_LENGTH && parsed_again.as_str() == written && parsed_again.host() == url.host())
        .then_some(written)
}

/// Returns the canonical form of a mail address, with the host name in lower case. Returns `None` for any other text,
/// and for an address that has no known top-level domain, has a sign other than letters, digits, `.`, `-` and `_`, or
/// is too long: the part before `@` may have 64 characters, and a host name 253.
pub(super) fn canonical_mail_address(text: &str) -> Option<String> {
    let (local, domain) = text.split_once('@')?;
    let is_plain = |part: &str| part.bytes().all(|b| b.is_ascii_alphanumeric()) && !part.is_empty();
    let domain = domain.to_ascii_lowercase();
    let is_host = domain.contains('.') && domain.split('.').all(is_label) && domain.len() <= 253;
    let has_top_level = domain.rsplit('.').next().is_some_and(super::host_names::is_top_level);
    (is_host && has_top_level && local.len() <= 64 && local.split(['.', '-', '_']).all(is_plain))
        .then(|| format!("{local}@{domain}"))
}

/// Parses a web address with a plain host and without user information; `None` for any other text. An IPv6 host is
/// refused: its brackets are signs of markup.
fn parse_url(text: &str) -> Option<Url> {
    let url = Url::parse(text).ok()?;
    // A host name has at most 253 characters.
    let is_plain = match url.host()? {
        Host::Domain(domain) => domain.split('.').all(is_label) && domain.len() <= 253,
        Host::Ipv4(_) => true,
        Host::Ipv6(_) => false,
    };
    let has_user = !url.username().is_empty() || url.password().is_some();
    (matches!(url.scheme(), "http" | "https") && is_plain && !has_user).then_some(url)
}

/// Returns whether a text can be a label of a host name.
fn is_label(label: &str) -> bool {
    let is_plain = label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    is_plain && (1..=63).contains(&label.len()) && !label.starts_with('-') && !label.ends_with('-')
}

/// The part of a URL to encode, which decides which signs may stay.
#[derive(Clone, Copy, PartialEq, Eq)]
enum UrlPart {
    /// A path after a host whose top-level domain is in the root zone.
    Path,
    /// A path after a host whose top-level domain is not in the root zone.
    PathAfterUnknownDomain,
    /// A query or a fragment.
    Query,
}

/// Appends a part of a URL to `written`. Percent-encodes every character that some renderer could take for the end of
/// the URL, for a sign of emphasis, or for a part of an HTML entity.
fn encode(text: &str, part: UrlPart, written: &mut String) {
    let mut rest = text;
    let mut before = ' ';
    while let Some(c) = rest.chars().next() {
        let after = rest.get(c.len_utf8()..).unwrap_or_default();
        let next = after.chars().next().unwrap_or(' ');
        let is_between = before.is_ascii_alphanumeric() && next.is_ascii_alphanumeric();
        // Whether the character is written as it is. The other ones are percent-encoded.
        let is_plain = match c {
            // A letter may not complete an entity such as `&amp`.
            'A'..='Z' | 'a'..='z' | '0'..='9' => before != '&' || !begins_entity(rest),
            // The percent sign of an escape stays, so that the byte is not encoded twice.
            '%' => begins_with_hex_byte(after),
            // Two slashes can begin an address without a scheme.
            '/' => before != '/',
            // Some renderers could take the text around this dot for a host name.
            '.' if part != UrlPart::Path => is_between && !ends_name(after),
            // Between alphanumeric characters, these signs are neither emphasis nor the punctuation after an address.
            '.' | '-' | '_' | '+' => is_between,
            // Two equal signs mark highlighted text in an extension of Markdown.
            '=' => part == UrlPart::Query && before != '=',
            // An ampersand stays only in a query, before a letter or a digit, or before a sign that two hexadecimal
            // digits follow, as in an escape.
            '&' => {
                part == UrlPart::Query
                    && (next.is_ascii_alphanumeric()
                        || begins_with_hex_byte(after.get(1..).unwrap_or_default()))
            }
            _ => false,
        };
        if is_plain {
            written.push(c);
        // In a query, a plus sign means a space.
        } else if c == '+' && part == UrlPart::Query {
            written.push_str("%20");
        } else {
            let mut bytes = [0; 4];
            c.encode_utf8(&mut bytes).bytes().for_each(|byte| written.push_str(&format!("%{byte:02X}")));
        }
        before = c;
        rest = after;
    }
}

/// Returns whether some renderer takes the text after a dot for the last label of a host name.
fn ends_name(after: &str) -> bool {
    let end = after.find(|c: char| !c.is_ascii_alphanumeric() && c != '-').unwrap_or(after.len());
    super::host_names::begins_top_level(after.get(..end).unwrap_or_default())
}

/// Returns whether the text after a percent sign begins with two hexadecimal digits, which together encode a byte.
fn begins_with_hex_byte(after: &str) -> bool {
    after.get(..2).is_some_and(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// Returns whether an ampersand before this text begins an HTML entity.
fn begins_entity(rest: &str) -> bool {
    // No name in `ENTITIES` is longer than 8 characters.
    let head: String = rest.chars().take(8).collect::<String>().to_ascii_lowercase();
    ENTITIES.iter().any(|name| head.starts_with(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_one_form() {
        for (text, expected) in [
            ("https://a.example", "https://a.example/"),
            ("HTTPS://A.Example:443/b?", "https://a.example/b"),
            ("http://a.example:8080/b/../c#", "http://a.example:8080/c"),
            ("https://a.example/a_(b)*c~d", "https://a.example/a%5F%28b%29%2Ac%7Ed"),
            ("https://a.example/a.b-c_d/e.", "https://a.example/a.b-c_d/e%2E"),
            ("https://a.example/?a=1&b=2&&c==", "https://a.example/?a=1&b=2%26&c=%3D"),
            ("https://a.example/?a=1&copy=2", "https://a.example/?a=1&%63opy=2"),
            (
                "https://a.example/x?u=https://b.example//c",
                "https://a.example/x?u=https%3A/%2Fb%2Eexample/%2Fc",
            ),
            ("https://a.com/a.b.md?x=a.md#b.md", "https://a.com/a.b.md?x=a%2Emd#b%2Emd"),
            ("https://a.example/evil.com/a.b?1.2", "https://a.example/evil%2Ecom/a.b?1.2"),
            ("https://a.example/100%", "https://a.example/100%25"),
            ("https://a.example/ö", "https://a.example/%C3%B6"),
            ("https://b\u{fc}cher.example/", "https://xn--bcher-kva.example/"),
            ("https://0x7f.1/", "https://127.0.0.1/"),
            ("https://2130706433/", "https://127.0.0.1/"),
        ] {
            assert_eq!(canonical_web_address(text).as_deref(), Some(expected), "{text}");
            assert_eq!(canonical_web_address(expected).as_deref(), Some(expected), "again");
        }
        for text in [
            "https://u@a.example/",
            "https://u:p@a.example/",
            "https://[::1]/",
            "https://-a.example/",
            "https://a_b.example/",
            "https:///",
            "ftp://a.example/",
            "javascript:alert(1)",
            "data:text/html,x",
            "a.example",
            "https://a.example:99999/",
        ] {
            assert_eq!(canonical_web_address(text), None, "{text}");
        }
        assert_eq!(canonical_web_address(&format!("https://a.example/{}", "x".repeat(MAX_LENGTH))), None);
    }

    #[test]
    fn mail_addresses_are_plain() {
        for (text, expected) in [
            ("a.b-c_d@Example.ORG", Some("a.b-c_d@example.org")),
            ("a+b@example.org", None),
            ("a@b@example.org", None),
            ("a..b@example.org", None),
            ("a@example", None),
            ("a@1.2.3.4", None),
            ("@example.org", None),
        ] {
            assert_eq!(canonical_mail_address(text).as_deref(), expected, "{text}");
        }
    }
}
