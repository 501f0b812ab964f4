//! Defines [`SecureUrl`], an address to which secrets may be sent: an address with HTTPS, or one on this machine. All
//! addresses of servers and issuers in this crate have this type.

use std::fmt;

use http::Uri;

/// The longest address, in bytes.
const MAX_LENGTH: usize = 2048;

/// How an address is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Channel {
    /// By HTTPS.
    Https,
    /// By HTTP, on this machine.
    ThisMachine,
}

/// Returns how an address is reached; `None` if others could read what is sent to it. Only the three usual names of
/// this machine count, compared as texts: another spelling of an IP address could be resolved differently.
pub(crate) fn channel(uri: &Uri) -> Option<Channel> {
    match uri.scheme_str() {
        Some("https") => Some(Channel::Https),
        Some("http") => {
            let is_local = matches!(uri.host(), Some("127.0.0.1" | "localhost" | "[::1]"));
            is_local.then_some(Channel::ThisMachine)
        }
        _ => None,
    }
}

/// An address to which secrets may be sent: with HTTPS, or on this machine. It has no user name and no fragment, and
/// only visible ASCII characters, so that it can be printed.
#[derive(Clone, PartialEq, Eq)]
pub struct SecureUrl {
    text: String,
    channel: Channel,
}

impl SecureUrl {
    /// Reads an address. `None` if the text is not an address, if secrets must not be sent to it, if it has no host, or
    /// if it has a user name, a fragment, a character other than visible ASCII, or more than 2048 bytes.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() > MAX_LENGTH || text.contains('#') || !text.bytes().all(|byte| byte.is_ascii_graphic())
        {
            return None;
        }
        let uri: Uri = text.parse().ok()?;
        // An address without an authority is refused like one with a user name.
        let has_user = uri.authority().is_none_or(|authority| authority.as_str().contains('@'));
        let channel = channel(&uri)?;
        let has_host = uri.host().is_some_and(|host| !host.is_empty());
        (has_host && !has_user).then(|| Self { text: text.to_owned(), channel })
    }

    /// Returns the address as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns whether the address is on this machine, without TLS.
    pub(crate) fn is_local(&self) -> bool {
        self.channel == Channel::ThisMachine
    }

    /// Returns whether this is the address of the issuer `named`, with or without a slash at the end.
    pub(crate) fn is_issuer(&self, named: &str) -> bool {
        self.text.trim_end_matches('/') == named.trim_end_matches('/')
    }
}

impl fmt::Display for SecureUrl {
    /// Writes the address, truncated to 100 characters.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.text.char_indices().nth(100) {
            None => f.write_str(&self.text),
            Some((end, _)) => write!(f, "{}...", self.text.get(..end).unwrap_or_default()),
        }
    }
}

impl fmt::Debug for SecureUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_sent_by_https_or_on_this_machine() {
        for (url, expected) in [
            ("https://issuer.example/token", Some(Channel::Https)),
            ("http://127.0.0.1:80/token", Some(Channel::ThisMachine)),
            ("http://localhost/token", Some(Channel::ThisMachine)),
            ("http://[::1]/token", Some(Channel::ThisMachine)),
            ("http://issuer.example/token", None),
            ("http://127.0.0.1.example/token", None),
            ("http://localhost.example/token", None),
            ("http://127.1/token", None),
            ("ftp://localhost/token", None),
            ("https://me:pw@issuer.example", None),
            ("http://localhost@issuer.example/", None),
            ("https://issuer.example/#part", None),
            ("https://issuer.example/\u{202e}", None),
            ("https://issuer.example/\x1b[2J", None),
            ("https:///token", None),
            ("issuer.example", None),
            ("", None),
        ] {
            assert_eq!(SecureUrl::parse(url).map(|url| url.channel), expected, "{url}");
        }
        let long = format!("https://issuer.example/{}", "a".repeat(MAX_LENGTH));
        assert_eq!(SecureUrl::parse(&long), None);
        let cut = SecureUrl::parse(long.get(..500).unwrap()).unwrap().to_string();
        assert_eq!((cut.len(), cut.ends_with("...")), (103, true));
    }
}
