//! Stores the sessions of people who are logged in to the page. `ApprovalService` uses it to find the person of a
//! request that has no key.
//!
//! A session has two secrets, and every request needs both. The browser sends the *cookie*, which no script can read;
//! but a browser also sends it to other ports of the same host. The page sends the *token* in a header, which only
//! scripts of the page's origin can do. The gateway stores only the digests of both, in memory: when it stops, all
//! sessions end.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, header};
use sha2::{Digest as _, Sha256};

use super::browser_origin;
use crate::identity::login_identity::LoginIdentity;
use crate::random::{self, RandomError};

/// The name of the cookie without TLS.
const COOKIE: &str = "flowgate-session";
/// The name of the cookie over TLS. By the prefix, a browser accepts the cookie only from this host and over TLS: neither
/// another host of the domain nor a page that was sent without TLS can set or replace it.
const HOST_COOKIE: &str = "__Host-flowgate-session";
/// The header with the token of the session.
const TOKEN_HEADER: &str = "x-flowgate-page";
/// The time after which a session ends.
pub(super) const LIFETIME: Duration = Duration::from_hours(12);
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
    holder: SessionHolder,
    /// The digest of the token.
    token: [u8; 32],
    /// The name of its cookie.
    cookie_name: &'static str,
    begun: Instant,
    ends: Instant,
}

/// The person who has a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SessionHolder {
    /// A person who has logged in with a key or a login link: the name in the configuration.
    Person(String),
    /// A person who has logged in at an issuer. The rights of the person are looked up in the configuration at each
    /// request.
    LoggedIn(Arc<LoginIdentity>),
}

impl SessionHolder {
    /// Returns whether both holders are the same account: the same name of the configuration, or the same subject of
    /// the same issuer.
    fn is_account_of(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Person(one), Self::Person(other)) => one == other,
            (Self::LoggedIn(one), Self::LoggedIn(other)) => {
                (&one.issuer, &one.subject) == (&other.issuer, &other.subject)
            }
            _ => false,
        }
    }
}

/// The secrets of a new session.
#[derive(Debug)]
pub(crate) struct SessionSecrets {
    cookie: String,
    is_over_tls: bool,
    /// How long the session lasts.
    lifetime: Duration,
    /// The token, which the page sends with each request.
    pub(crate) token: String,
}

impl SessionSecrets {
    /// Returns the value of `Set-Cookie` that begins the session. A cookie that a browser received over TLS is sent
    /// over TLS only.
    pub(crate) fn set_cookie(&self) -> String {
        cookie(&self.cookie, self.lifetime.as_secs(), self.is_over_tls)
    }
}

/// Returns the value of `Set-Cookie` that deletes the cookie.
pub(crate) fn delete_cookie(is_over_tls: bool) -> String {
    cookie("", 0, is_over_tls)
}

/// Returns the value of `Set-Cookie` for the cookie of a session with this value. The browser deletes the cookie
/// after `max_age` seconds and, with `is_over_tls`, sends it over TLS only.
fn cookie(value: &str, max_age: u64, is_over_tls: bool) -> String {
    let (name, secure) = (cookie_name(is_over_tls), if is_over_tls { "; Secure" } else { "" });
    format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict; Max-Age={max_age}{secure}")
}

/// Returns the name of the cookie of a session. The name for TLS has a prefix by which a browser accepts the cookie
/// only from this host.
fn cookie_name(is_over_tls: bool) -> &'static str {
    if is_over_tls { HOST_COOKIE } else { COOKIE }
}

impl PageSessions {
    /// Begins a session of the person `holder` at `now`, which lasts for `lifetime`, and no longer than
    /// [`LIFETIME`]. If the person has [`MAX_SESSIONS`] sessions already, the oldest one ends. `is_over_tls` says
    /// whether the browser has reached the page over TLS.
    ///
    /// # Errors
    /// If the system returned no random bytes.
    pub(crate) fn begin(
        &self,
        holder: SessionHolder,
        now: Instant,
        lifetime: Duration,
        is_over_tls: bool,
    ) -> Result<SessionSecrets, RandomError> {
        let secret = || random::bytes::<32>().map(|bytes| random::hex(&bytes));
        let lifetime = lifetime.min(LIFETIME);
        let secrets = SessionSecrets { cookie: secret()?, is_over_tls, lifetime, token: secret()? };
        let mut sessions = self.sessions();
        sessions.retain(|_, session| !session.is_over(now));
        // At the limit, a person's oldest session makes room for the new one.
        let of_person = || sessions.iter().filter(|(_, session)| session.holder.is_account_of(&holder));
        if of_person().count() >= MAX_SESSIONS
            && let Some(oldest) = of_person().min_by_key(|(_, session)| session.begun).map(|(id, _)| *id)
        {
            sessions.remove(&oldest);
        }
        let ends = now + lifetime;
        let (token, cookie_name) = (digest(&secrets.token), cookie_name(is_over_tls));
        let session = PageSession { holder, token, cookie_name, begun: now, ends };
        sessions.insert(digest(&secrets.cookie), session);
        Ok(secrets)
    }

    /// Returns the session whose cookie and token a request carries, and the person who has the session. `None` in
    /// these cases: the cookie or the token is missing, wrong or sent twice; the cookie has the name for sessions over
    /// TLS but the session began without TLS, or the reverse; the session is over at `now`; or the request comes from a
    /// web page of another site.
    pub(crate) fn find(&self, headers: &HeaderMap, now: Instant) -> Option<(SessionId, SessionHolder)> {
        if browser_origin::is_foreign(headers) {
            return None;
        }
        let mut tokens = headers.get_all(TOKEN_HEADER).iter();
        let (token, None) = (tokens.next()?, tokens.next()) else { return None };
        let token = digest(token.to_str().ok()?);
        let sessions = self.sessions();
        // A browser that has reached the page both over TLS and without it has two cookies.
        [HOST_COOKIE, COOKIE].into_iter().find_map(|name| {
            let id = digest(named_cookie(headers, name)?);
            // The comparison need not take constant time: it compares digests, of which nobody can guess a secret part
            // by part.
            let session = sessions.get(&id).filter(|session| session.cookie_name == name)?;
            (session.token == token && !session.is_over(now)).then(|| (id, session.holder.clone()))
        })
    }

    /// Returns whether the session has not ended yet.
    pub(crate) fn is_open(&self, id: &SessionId, now: Instant) -> bool {
        self.sessions().get(id).is_some_and(|session| !session.is_over(now))
    }

    /// Ends a session.
    pub(crate) fn end(&self, id: &SessionId) {
        self.sessions().remove(id);
    }

    /// Ends all sessions that a person of the configuration has begun with a key or a login link: the key has changed,
    /// or the person was removed.
    pub(crate) fn end_all_of(&self, person: &str) {
        self.sessions().retain(|_, session| session.holder != SessionHolder::Person(person.to_owned()));
    }

    /// Locks the sessions, also after a panic.
    fn sessions(&self) -> MutexGuard<'_, BTreeMap<SessionId, PageSession>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PageSession {
    /// Returns whether the session has ended at `now` because of its age.
    fn is_over(&self, now: Instant) -> bool {
        now >= self.ends
    }
}

/// Returns the SHA-256 digest of a cookie or a token.
fn digest(secret: &str) -> [u8; 32] {
    Sha256::digest(secret).into()
}

/// Returns the value of a cookie; `None` if the request has no such cookie, or several.
pub(super) fn named_cookie<'h>(headers: &'h HeaderMap, wanted: &str) -> Option<&'h str> {
    // A request can have several headers `Cookie`. Each has pairs `NAME=VALUE` with semicolons between them.
    let lines = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
    let pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let mut values = pairs.filter(|(name, _)| *name == wanted).map(|(_, value)| value);
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

    fn begin(sessions: &PageSessions, name: &str, now: Instant) -> SessionSecrets {
        sessions.begin(SessionHolder::Person(name.to_owned()), now, LIFETIME, false).unwrap()
    }

    /// A session lasts no longer than what it was begun with, and no longer than any.
    #[test]
    fn sessions_are_bounded() {
        let (sessions, now) = (PageSessions::default(), Instant::now());
        let check = |lifetime: Duration, expected: Duration| {
            let holder = SessionHolder::Person("ann".to_owned());
            let secrets = sessions.begin(holder, now, lifetime, false).unwrap();
            let headers = headers(&format!("{COOKIE}={}", secrets.cookie), &secrets.token);
            let second = Duration::from_secs(1);
            assert!(sessions.find(&headers, now + expected - second).is_some(), "{lifetime:?}");
            assert!(sessions.find(&headers, now + expected).is_none(), "{lifetime:?}");
        };
        check(Duration::from_mins(5), Duration::from_mins(5));
        check(LIFETIME * 2, LIFETIME);
    }

    #[test]
    fn all_sessions_of_a_person_end() {
        let (sessions, now) = (PageSessions::default(), Instant::now());
        let begun = ["ann", "ann", "bob"].map(|name| begin(&sessions, name, now));
        sessions.end_all_of("ann");
        let is_open = begun.map(|secrets| {
            sessions.find(&headers(&format!("{COOKIE}={}", secrets.cookie), &secrets.token), now).is_some()
        });
        assert_eq!(is_open, [false, false, true]);
    }

    #[test]
    fn a_request_needs_the_cookie_and_the_token() {
        let (sessions, now) = (PageSessions::default(), Instant::now());
        let [ann, bob] = ["ann", "bob"].map(|name| begin(&sessions, name, now));
        let check = |cookie: &str, token: &str, expected: Option<&str>| {
            let found = sessions.find(&headers(cookie, token), now).map(|(_, holder)| holder);
            let expected = expected.map(|name| SessionHolder::Person(name.to_owned()));
            assert_eq!(found, expected, "{cookie} {token}");
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
        let first = begin(&sessions, "ann", now);
        let (id, _) = find(&first, now + LIFETIME - Duration::from_secs(1)).unwrap();
        assert!(find(&first, now + LIFETIME).is_none() && !sessions.is_open(&id, now + LIFETIME));
        assert!(sessions.is_open(&id, now));
        let other = begin(&sessions, "bob", now);
        let later = now + Duration::from_secs(1);
        let more: Vec<SessionSecrets> = (0..MAX_SESSIONS).map(|_| begin(&sessions, "ann", later)).collect();
        // The oldest session of the person has ended for the last one, and no session of another person.
        assert!(find(&first, later).is_none() && find(&other, later).is_some());
        assert!(more.iter().all(|secrets| find(secrets, later).is_some()));
        let (id, _) = find(&other, later).unwrap();
        sessions.end(&id);
        assert!(find(&other, later).is_none() && !sessions.is_open(&id, later));
    }

    #[test]
    fn the_cookie_is_for_the_browser_alone() {
        let set_cookie = |is_over_tls: bool| {
            let (cookie, token) = ("c".to_owned(), "t".to_owned());
            SessionSecrets { cookie, is_over_tls, lifetime: LIFETIME, token }.set_cookie()
        };
        let expected = "flowgate-session=c; Path=/; HttpOnly; SameSite=Strict; Max-Age=43200";
        assert_eq!(set_cookie(false), expected);
        // A browser accepts the prefix only with `Secure`, with `Path=/` and without `Domain`.
        assert_eq!(set_cookie(true), format!("__Host-{expected}; Secure"));
        let deleted = "flowgate-session=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0";
        assert_eq!(delete_cookie(false), deleted);
        assert_eq!(delete_cookie(true), format!("__Host-{deleted}; Secure"));
    }

    /// Another host of the domain can set a cookie without the prefix, and not one with it.
    #[test]
    fn a_session_over_tls_has_a_cookie_of_its_host() {
        let (sessions, now) = (PageSessions::default(), Instant::now());
        let begin = |name: &str, is_over_tls: bool| {
            sessions.begin(SessionHolder::Person(name.to_owned()), now, LIFETIME, is_over_tls).unwrap()
        };
        let (tls, plain) = (begin("ann", true), begin("bob", false));
        let check = |cookies: &[(&str, &str)], token: &str, expected: Option<&str>| {
            let line = cookies.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>();
            let found = sessions.find(&headers(&line.join("; "), token), now).map(|(_, holder)| holder);
            let expected = expected.map(|name| SessionHolder::Person(name.to_owned()));
            assert_eq!(found, expected, "{cookies:?}");
        };
        check(&[(HOST_COOKIE, &tls.cookie)], &tls.token, Some("ann"));
        check(&[(COOKIE, &tls.cookie)], &tls.token, None);
        check(&[(HOST_COOKIE, &plain.cookie)], &plain.token, None);
        // Both cookies of one browser.
        for (secrets, name) in [(&tls, "ann"), (&plain, "bob")] {
            check(&[(COOKIE, &plain.cookie), (HOST_COOKIE, &tls.cookie)], &secrets.token, Some(name));
        }
    }
}
