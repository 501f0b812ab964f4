//! Decides whether a renderer could make a link of a text that is not marked as one. Words with dots could be taken
//! for a host name (`evil.example`), and a word before a colon for a scheme (`https`). The answer is yes if any known
//! renderer does so, since a link that is missed could send content to its host. `segment`, `segment_text` and
//! `address` call this module.

/// The most characters after a dot in which a top-level domain is searched: the longest one in the root zone has 24.
pub(super) const LONGEST_END: usize = 24;

/// Top-level names outside the root zone that some resolver answers.
const OTHERS: &[&str] = &[
    "bit",
    "corp",
    "eth",
    "example",
    "home",
    "i2p",
    "internal",
    "invalid",
    "lan",
    "local",
    "localdomain",
    "localhost",
    "onion",
    "test",
];

/// Schemes that clients open without two slashes.
const SCHEMES: &[&str] = &[
    "about",
    "bitcoin",
    "blob",
    "callto",
    "cid",
    "data",
    "facetime",
    "feed",
    "file",
    "ftp",
    "ftps",
    "geo",
    "git",
    "gopher",
    "http",
    "https",
    "im",
    "imap",
    "intent",
    "irc",
    "ircs",
    "javascript",
    "jabber",
    "ldap",
    "ldaps",
    "magnet",
    "mailto",
    "market",
    "matrix",
    "mid",
    "msteams",
    "news",
    "nntp",
    "rtsp",
    "sftp",
    "sip",
    "sips",
    "skype",
    "slack",
    "sms",
    "smsto",
    "smb",
    "spotify",
    "ssh",
    "steam",
    "tel",
    "telnet",
    "tg",
    "urn",
    "vbscript",
    "view-source",
    "vscode",
    "webcal",
    "whatsapp",
    "ws",
    "wss",
    "xmpp",
    "zoommtg",
];

/// Returns whether `label` is a top-level domain, in ASCII or in another script: in the root zone, or one that some
/// resolver answers outside of it. Any label in the encoded form of another script (`xn--`) counts.
pub(super) fn is_top_level(label: &str) -> bool {
    let lower = label.to_ascii_lowercase();
    if lower.is_ascii() {
        return lower.starts_with("xn--") || tld::exist(&lower) || OTHERS.contains(&lower.as_str());
    }
    // As a part of a host, a label in another script is converted to the ASCII form under which the root zone lists it.
    let host = url::Host::parse(&format!("a.{lower}"));
    matches!(host, Ok(url::Host::Domain(host)) if host.strip_prefix("a.").is_some_and(tld::exist))
}

/// Returns whether `label` is in the root zone, so that every renderer knows it.
pub(super) fn is_in_root_zone(label: &str) -> bool {
    tld::exist(&label.to_ascii_lowercase())
}

/// Returns whether a renderer could take the beginning of a label for a top-level domain: all of it, the part before
/// the first sign, or the label without underscores, which some renderers drop.
pub(super) fn begins_top_level(label: &str) -> bool {
    // The part before the first `-` or `_`, which may be in another script.
    let word = label.split(['-', '_']).next().unwrap_or_default();
    // The part before the first character that is not an ASCII letter or digit.
    let letters = word
        .find(|c: char| !c.is_ascii_alphanumeric())
        .map_or(word, |end| word.get(..end).unwrap_or_default());
    let joined = label.replace('_', "");
    [label, word, letters, &joined].iter().any(|label| !label.is_empty() && is_top_level(label))
}

/// Returns whether some renderer takes a name with dots for a host name, given its labels. It does if the name ends in
/// a top-level domain, has a label `www`, or contains an IPv4 address. It also does if a path follows the name
/// (`is_path_next`) and the name does not end in a number, as `1.5/2` does. A single label is no name with dots.
pub(super) fn is_host(labels: &[&str], is_path_next: bool) -> bool {
    let is_number = |label: &&str| label.bytes().all(|b| b.is_ascii_digit());
    // At markup next to an IPv4 address, some renderers end the address and others do not, so the first and the last
    // number may be part of a longer label.
    let is_ipv4_address = |four: &[&str]| match four {
        [first, second, third, last] => {
            first.ends_with(|c: char| c.is_ascii_digit())
                && is_number(second)
                && is_number(third)
                && last.starts_with(|c: char| c.is_ascii_digit())
        }
        _ => false,
    };
    let Some((last, others)) = labels.split_last() else { return false };
    // `www` also counts after other signs: not every renderer takes these for a part of the word.
    let ends_in_www = |label: &&str| {
        let word = label.rsplit(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
        word.eq_ignore_ascii_case("www")
    };
    !others.is_empty()
        && (is_top_level(last)
            || others.iter().any(ends_in_www)
            || labels.windows(4).any(is_ipv4_address)
            || is_path_next && !is_number(last))
}

/// Returns whether a word before a colon is a known scheme.
pub(super) fn is_scheme(word: &str) -> bool {
    SCHEMES.contains(&word.to_ascii_lowercase().as_str())
}
