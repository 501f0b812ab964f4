//! Holds the sessions of people who are logged in to the page. `ApprovalService` uses it to find the person of a
//! request that has no key.
//!
//! A session has two secrets. The cookie is sent by the browser, and no script can read it; but a browser also sends
//! it to other ports of the same host. The token is kept by the page, and sent in a header, which only scripts of the
//! page's origin can do. Every request needs both. The gateway holds only their digests, in memory: when it stops,
//! all sessions end.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, header};
use sha2::{Digest as _, Sha256};

use super::browser_origin;
use crate::random::{self, RandomError};

/// The name of the cookie.
const COOKIE: &str = "flowgate-session";
/// The header with the token of the session.
const TOKEN_HEADER: &str = "x-flowgate-page";
/// The time after which a session ends.
const LIFETIME: Duration = Duration::from_hours(12);
/// The most sessions of one person; a further one ends the oldest.
const MAX_SESSIONS: usize = 16;

/// The digest of the cookie of a session, by which the session is found.
pub(crate) type SessionId = [u8; 32];

/// The sessions.
#[derive(Debug, Default)]
pub(crate) struct PageSessions(Mutex<BTreeMap<SessionId, PageSession>>);

/// A session.
#[derive(Debug, Clone)]
struct PageSession {
    person: String,
    /// The digest of the token.
    token: [u8; 32],
    begun: Instant,
}

/// The secrets of a new session.
#[derive(Debug)]
pub(crate) struct SessionSecrets {
    cookie: String,
    /// The token, which the page sends with each request.
    pub(crate) token: String,
}

impl SessionSecrets {
    /// Returns the value of `Set-Cookie` that begins the session. A cookie that a browser received over TLS is sent over
    /// TLS only.
    pub(crate) fn set_cookie(&self, is_over_tls: bool) -> String {
        cookie(&self.cookie, LIFETIME.as_secs(), is_over_tls)
    }
}

/// Returns the value of `Set-Cookie` that deletes the cookie.
pub(crate) fn delete_cookie(is_over_tls: bool) -> String {
    cookie("", 0, is_over_tls)
}

/// Returns the value of `Set-Cookie` for the cookie of a session with this value. The browser deletes the cookie
/// after `max_age` seconds and, with `is_over_tls`, sends it over TLS only.
fn cookie(value: &str, max_age: u64, is_over_tls: bool) -> String {
    let secure = if is_over_tls { "; Secure" } else { "" };
    format!("{COOKIE}={value}; Path=/; HttpOnly; SameSite=Strict; Max-Age={max_age}{secure}")
}

impl PageSessions {
    /// Begins a session of a person at `now`.
    ///
    /// # Errors
    /// If the system returned no random bytes.
    pub(crate) fn begin(&self, person: &str, now: Instant) -> Result<SessionSecrets, RandomError> {
        let secret = || random::bytes::<32>().map(|bytes| random::hex(&bytes));
        let secrets = SessionSecrets { cookie: secret()?, token: secret()? };
        let mut sessions = self.sessions();
        sessions.retain(|_, session| !session.is_over(now));
        let of_person = || sessions.iter().filter(|(_, session)| session.person == person);
        if of_person().count() >= MAX_SESSIONS
            && let Some(oldest) = of_person().min_by_key(|(_, session)| session.begun).map(|(id, _)| *id)
        {
            sessions.remove(&oldest);
        }
        let session = PageSession { person: person.to_owned(), token: digest(&secrets.token), begun: now };
        sessions.insert(digest(&secrets.cookie), session);
        Ok(secrets)
    }

    /// Returns the session whose cookie and token a request carries, and the name of its person. `None` if one of them
    /// is missing or wrong, if the session is over at `now`, or if the request says that it comes from the page of
    /// another site.
    pub(crate) fn find(&self, headers: &HeaderMap, now: Instant) -> Option<(SessionId, String)> {
        if browser_origin::is_foreign(headers) {
            return None;
        }
        let mut tokens = headers.get_all(TOKEN_HEADER).iter();
        let (token, None) = (tokens.next()?, tokens.next()) else { return None };
        let (id, token) = (digest(cookie_of(headers)?), digest(token.to_str().ok()?));
        let sessions = self.sessions();
        // Digests of guesses are compared, so the time reveals nothing of the secrets.
        let session = sessions.get(&id).filter(|session| session.token == token && !session.is_over(now))?;
        Some((id, session.person.clone()))
    }

    /// Returns whether the session has not ended yet.
    pub(crate) fn is_open(&self, id: &SessionId, now: Instant) -> bool {
        self.sessions().get(id).is_some_and(|session| !session.is_over(now))
    }

    /// Ends a session.
    pub(crate) fn end(&self, id: &SessionId) {
        self.sessions().remove(id);
    }

    /// Ends all sessions of a person.
    pub(crate) fn end_all_of(&self, person: &str) {
        self.sessions().retain(|_, session| session.person != person);
    }

    /// Locks the sessions, also after a panic.
    fn sessions(&self) -> MutexGuard<'_, BTreeMap<SessionId, PageSession>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PageSession {
    /// Returns whether the session has ended at `now` because of its age.
    fn is_over(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.begun) >= LIFETIME
    }
}

/// Returns the SHA-256 digest of a cookie or a token.
fn digest(secret: &str) -> [u8; 32] {
    Sha256::digest(secret).into()
}

/// Returns the value of the session's cookie in a request; `None` if the request has no such cookie, or several.
fn cookie_of(headers: &HeaderMap) -> Option<&str> {
    let lines = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
    let pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let mut values = pairs.filter(|(name, _)| *name == COOKIE).map(|(_, value)| value);
    match (values.next(), values.next()) {
        (Some(value), None) => Some(value),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the headers of a request with this cookie line and token.
    fn headers(cookie: &str, token: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::COOKIE, cookie.parse().unwrap());
        headers.insert(TOKEN_HEADER, token.parse().unwrap());
        headers
    }

    #[test]
    fn all_sessions_of_a_person_end() {
        let (sessions, now) = (PageSessions::default(), Instant::now());
        let begun = ["ann", "ann", "bob"].map(|name| sessions.begin(name, now).unwrap());
        sessions.end_all_of("ann");
        let is_open = begun.map(|secrets| {
            sessions.find(&headers(&format!("{COOKIE}={}", secrets.cookie), &secrets.token), now).is_some()
        });
        assert_eq!(is_open, [false, false, true]);
    }

    #[test]
    fn a_request_needs_the_cookie_and_the_token() {
        let (sessions, now) = (PageSessions::default(), Instant::now());
        let [ann, bob] = ["ann", "bob"].map(|name| sessions.begin(name, now).unwrap());
        let check = |cookie: &str, token: &str, expected: Option<&str>| {
            let found = sessions.find(&headers(cookie, token), now).map(|(_, person)| person);
            assert_eq!(found.as_deref(), expected, "{cookie} {token}");
        };
        let cookie = format!("{COOKIE}={}", ann.cookie);
        check(&cookie, &ann.token, Some("ann"));
        check(&format!("other=1; {cookie}"), &ann.token, Some("ann"));
        check(&cookie, &bob.token, None);
        check(&cookie, "", None);
        check(&cookie, &ann.cookie, None);
        check("", &ann.token, None);
        check(&format!("{COOKIE}="), &ann.token, None);
        // Another site of the host may add a cookie of the same name.
        check(&format!("{cookie}; {COOKIE}={}", bob.cookie), &ann.token, None);
        let mut foreign = headers(&cookie, &ann.token);
        foreign.insert("sec-fetch-site", "cross-site".parse().unwrap());
        assert!(sessions.find(&foreign, now).is_none());
        let mut twice = headers(&cookie, &ann.token);
        twice.append(TOKEN_HEADER, ann.token.parse().unwrap());
        assert!(sessions.find(&twice, now).is_none());
    }

    #[test]
    fn sessions_end() {
        let (sessions, now) = (PageSessions::default(), Instant::now());
        let find = |secrets: &SessionSecrets, at: Instant| {
            sessions.find(&headers(&format!("{COOKIE}={}", secrets.cookie), &secrets.token), at)
        };
        let first = sessions.begin("ann", now).unwrap();
        let (id, _) = find(&first, now + LIFETIME - Duration::from_secs(1)).unwrap();
        assert!(find(&first, now + LIFETIME).is_none() && !sessions.is_open(&id, now + LIFETIME));
        assert!(sessions.is_open(&id, now));
        let other = sessions.begin("bob", now).unwrap();
        let later = now + Duration::from_secs(1);
        let more: Vec<SessionSecrets> =
            (0..MAX_SESSIONS).map(|_| sessions.begin("ann", later).unwrap()).collect();
        // The oldest session of the person has ended for the last one, and no session of another person.
        assert!(find(&first, later).is_none() && find(&other, later).is_some());
        assert!(more.iter().all(|secrets| find(secrets, later).is_some()));
        let (id, _) = find(&other, later).unwrap();
        sessions.end(&id);
        assert!(find(&other, later).is_none() && !sessions.is_open(&id, later));
    }

    #[test]
    fn the_cookie_is_for_the_browser_alone() {
        let secrets = SessionSecrets { cookie: "c".to_owned(), token: "t".to_owned() };
        let expected = "flowgate-session=c; Path=/; HttpOnly; SameSite=Strict; Max-Age=43200";
        assert_eq!(secrets.set_cookie(false), expected);
        assert_eq!(secrets.set_cookie(true), format!("{expected}; Secure"));
        assert_eq!(delete_cookie(false), "flowgate-session=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0");
    }
}
