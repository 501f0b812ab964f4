//! Which words with dots in them are names of hosts, and which words before a colon are schemes.

/// Top-level names that are not in the root zone, and that somebody resolves.
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

/// Schemes that readers open without two slashes.
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

/// Whether a name ends at this label in the domain name system. A label of it may be followed by letters of another script.
pub(super) fn is_top_level(label: &str) -> bool {
    let lower = label.to_ascii_lowercase();
    if lower.is_ascii() {
        return lower.starts_with("xn--") || tld::exist(&lower) || OTHERS.contains(&lower.as_str());
    }
    let host = url::Host::parse(&format!("a.{lower}"));
    matches!(host, Ok(url::Host::Domain(host)) if host.strip_prefix("a.").is_some_and(tld::exist))
}

/// Whether a reader could take the beginning of a label for the end of a name.
pub(super) fn begins_top_level(label: &str) -> bool {
    let word = label.split(['-', '_']).next().unwrap_or_default();
    let letters = word
        .find(|c: char| !c.is_ascii_alphanumeric())
        .map_or(word, |end| word.get(..end).unwrap_or_default());
    let joined = label.replace('_', "");
    [label, word, letters, &joined].iter().any(|label| !label.is_empty() && is_top_level(label))
}

/// Whether a name with dots is a host's to some reader.
pub(super) fn is_host(labels: &[&str], is_path_next: bool) -> bool {
    let is_number = |label: &&str| label.bytes().all(|b| b.is_ascii_digit());
    let Some((last, others)) = labels.split_last() else { return false };
    // After other letters, too: not every reader takes them for a part of the word.
    let ends_in_www = |label: &&str| {
        let word = label.rsplit(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
        word.eq_ignore_ascii_case("www")
    };
    !others.is_empty()
        && (is_top_level(last)
            || others.iter().any(ends_in_www)
            || labels.len() == 4 && labels.iter().all(is_number)
            || is_path_next && !is_number(last))
}

/// Whether a word before a colon is known to lead somewhere.
pub(super) fn is_scheme(word: &str) -> bool {
    SCHEMES.contains(&word.to_ascii_lowercase().as_str())
}
