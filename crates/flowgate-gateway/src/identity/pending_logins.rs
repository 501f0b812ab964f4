//! Stores the logins that have begun at an issuer, in memory. `login` begins them, and `page::login_routes` completes
//! them.
//!
//! A login belongs to one browser, which is recognised by a cookie that no script can read. The state that the issuer
//! returns is accepted from that browser alone, once, and for ten minutes. A completed login is kept for at most one
//! minute, until the page (the web page for people) takes it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::login_identity::LoginIdentity;
use crate::random::{self, RandomError};

/// The most logins that have begun and not been completed.
pub(crate) const MAX_LOGINS: usize = 1_000;
/// The time in which a person has to log in at the issuer.
pub(crate) const LOGIN_TIME: Duration = Duration::from_mins(10);
/// The time in which the page takes a completed login.
const CLAIM_TIME: Duration = Duration::from_mins(1);

/// The logins that have begun, by the digest of the cookie of their browser.
#[derive(Debug, Default)]
pub(crate) struct PendingLogins(Mutex<BTreeMap<[u8; 32], PendingLogin>>);

/// A login of a browser.
#[derive(Debug)]
struct PendingLogin {
    begun: Instant,
    step: LoginStep,
}

/// The progress of a login.
#[derive(Debug)]
enum LoginStep {
    /// The browser was sent to the issuer and has not returned.
    AtIssuer(LoginSecrets),
    /// The page can take the login.
    Complete(LoginIdentity),
}

/// The parties of a login, which must not change until it is completed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LoginParty {
    /// The issuer at which the person logs in.
    pub(crate) issuer: String,
    /// The name under which the issuer knows the gateway.
    pub(crate) client_id: String,
}

/// The secrets of a login that has begun.
#[derive(Clone)]
pub(crate) struct LoginSecrets {
    pub(crate) party: LoginParty,
    /// The random value that the issuer returns with the code, by which the gateway recognises its login.
    pub(crate) state: String,
    /// The random value that the ID token must contain.
    pub(crate) nonce: String,
    /// The secret by which the gateway shows that it has begun the login (PKCE).
    pub(crate) verifier: String,
}

impl std::fmt::Debug for LoginSecrets {
    /// Does not write the secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LoginSecrets(..)")
    }
}

impl LoginSecrets {
    /// Creates random secrets.
    fn draw(party: LoginParty) -> Result<Self, RandomError> {
        let secret = || random::bytes::<32>().map(|bytes| URL_SAFE_NO_PAD.encode(bytes));
        Ok(Self { party, state: secret()?, nonce: secret()?, verifier: secret()? })
    }

    /// Returns the digest of the verifier, which the issuer receives at the beginning.
    pub(crate) fn challenge(&self) -> String {
        URL_SAFE_NO_PAD.encode(Sha256::digest(&self.verifier))
    }
}

impl PendingLogins {
    /// Begins a login at the issuer of `party`. Returns the value of the cookie by which the browser is recognised, and
    /// the secrets of the login. At the limit, drops the oldest login that is not complete. Completed logins are not
    /// dropped: anybody can begin logins, and must not be able to end those of authenticated people.
    ///
    /// # Errors
    /// If the system returned no random bytes.
    pub(crate) fn begin(
        &self,
        party: LoginParty,
        now: Instant,
    ) -> Result<(String, LoginSecrets), RandomError> {
        let cookie = random::hex(&random::bytes::<32>()?);
        let secrets = LoginSecrets::draw(party)?;
        let mut logins = self.logins();
        logins.retain(|_, login| !login.is_over(now));
        // At the limit, the oldest login that is not complete makes room for the new one.
        let incomplete = || logins.iter().filter(|(_, login)| matches!(login.step, LoginStep::AtIssuer(_)));
        if incomplete().count() >= MAX_LOGINS
            && let Some(oldest) = incomplete().min_by_key(|(_, login)| login.begun).map(|(id, _)| *id)
        {
            logins.remove(&oldest);
        }
        let step = LoginStep::AtIssuer(secrets.clone());
        logins.insert(digest(&cookie), PendingLogin { begun: now, step });
        Ok((cookie, secrets))
    }

    /// Removes the login of the browser with this cookie when the issuer has returned `state`, and returns its
    /// secrets. Returns `None`, and leaves the login as it is, if there is no such login, its time is over, it is
    /// complete already, or its state is not `state`: another site, which can make the browser send such a request,
    /// must not be able to end the login.
    pub(crate) fn take_returned(&self, cookie: &str, state: &str, now: Instant) -> Option<LoginSecrets> {
        let mut logins = self.logins();
        let id = digest(cookie);
        let login = logins.get(&id).filter(|login| !login.is_over(now))?;
        let LoginStep::AtIssuer(secrets) = &login.step else { return None };
        // Compared in constant time: `state` may come from another site, which tries to guess it.
        let is_own: bool = secrets.state.as_bytes().ct_eq(state.as_bytes()).into();
        let secrets = is_own.then(|| secrets.clone())?;
        logins.remove(&id);
        Some(secrets)
    }

    /// Stores a completed login until the page takes it. Returns the value of a new cookie, by which the browser is
    /// recognised: the login of its earlier cookie was removed when the browser returned from the issuer.
    ///
    /// # Errors
    /// If the system returned no random bytes.
    pub(crate) fn complete(&self, identity: LoginIdentity, now: Instant) -> Result<String, RandomError> {
        let cookie = random::hex(&random::bytes::<32>()?);
        let login = PendingLogin { begun: now, step: LoginStep::Complete(identity) };
        self.logins().insert(digest(&cookie), login);
        Ok(cookie)
    }

    /// Takes the completed login of the browser with this cookie, once. `None` if there is no such login, it is not
    /// complete, or its time is over.
    pub(crate) fn take_complete(&self, cookie: &str, now: Instant) -> Option<LoginIdentity> {
        let mut logins = self.logins();
        let id = digest(cookie);
        // A login that is not complete is not removed: its browser may still return from the issuer.
        let is_complete = matches!(logins.get(&id)?.step, LoginStep::Complete(_));
        let login = is_complete.then(|| logins.remove(&id)).flatten().filter(|login| !login.is_over(now))?;
        match login.step {
            LoginStep::Complete(identity) => Some(identity),
            LoginStep::AtIssuer(_) => None,
        }
    }

    /// Locks the logins.
    fn logins(&self) -> MutexGuard<'_, BTreeMap<[u8; 32], PendingLogin>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PendingLogin {
    /// Returns whether the time for this step of the login has ended.
    fn is_over(&self, now: Instant) -> bool {
        let most = match self.step {
            LoginStep::AtIssuer(_) => LOGIN_TIME,
            LoginStep::Complete(_) => CLAIM_TIME,
        };
        now.saturating_duration_since(self.begun) >= most
    }
}

/// Returns the key of a login in the map: the digest of its cookie, so that no lookup compares the secret itself.
fn digest(cookie: &str) -> [u8; 32] {
    Sha256::digest(cookie).into()
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    fn party() -> LoginParty {
        LoginParty { issuer: "https://a.example".to_owned(), client_id: "gate".to_owned() }
    }

    fn identity() -> LoginIdentity {
        LoginIdentity {
            issuer: "https://a.example".to_owned(),
            subject: "1".to_owned(),
            name: "ann".to_owned(),
            groups: Vec::new(),
            expires: SystemTime::UNIX_EPOCH,
        }
    }

    #[test]
    fn a_state_is_accepted_once_from_its_browser() {
        let (logins, now) = (PendingLogins::default(), Instant::now());
        let [ann, bob] = [(); 2].map(|()| logins.begin(party(), now).unwrap());
        assert!(logins.take_returned(&ann.0, &bob.1.state, now).is_none());
        assert!(logins.take_returned(&bob.0, &ann.1.state, now).is_none());
        assert!(logins.take_returned(&ann.0, &ann.1.state, now).is_some());
        assert!(logins.take_returned(&ann.0, &ann.1.state, now).is_none());
        let secrets = logins.take_returned(&bob.0, &bob.1.state, now).unwrap();
        assert_eq!(secrets.nonce, bob.1.nonce);
        assert!(logins.take_returned(&bob.0, &bob.1.state, now).is_none());
        let late = logins.begin(party(), now).unwrap();
        assert!(logins.take_returned(&late.0, &late.1.state, now + LOGIN_TIME).is_none());
        assert!(logins.take_returned("", "", now).is_none());
    }

    #[test]
    fn a_complete_login_is_taken_once() {
        let (logins, now) = (PendingLogins::default(), Instant::now());
        let (begun, _) = logins.begin(party(), now).unwrap();
        assert!(logins.take_complete(&begun, now).is_none());
        let [one, late] = [(); 2].map(|()| logins.complete(identity(), now).unwrap());
        assert_eq!(logins.take_complete(&one, now), Some(identity()));
        assert_eq!(logins.take_complete(&one, now), None);
        assert_eq!(logins.take_complete(&late, now + CLAIM_TIME), None);
    }

    #[test]
    fn the_number_of_logins_is_bounded() {
        let (logins, now) = (PendingLogins::default(), Instant::now());
        let first = logins.begin(party(), now).unwrap();
        for number in 0..MAX_LOGINS {
            logins.begin(party(), now + Duration::from_micros(1 + u64::try_from(number).unwrap())).unwrap();
        }
        assert_eq!(logins.logins().len(), MAX_LOGINS);
        assert!(logins.take_returned(&first.0, &first.1.state, now).is_none());
    }

    #[test]
    fn secrets_are_not_shown() {
        let (logins, now) = (PendingLogins::default(), Instant::now());
        let (_, secrets) = logins.begin(party(), now).unwrap();
        let shown = format!("{logins:?} {secrets:?}");
        for secret in [&secrets.state, &secrets.nonce, &secrets.verifier] {
            assert!(secret.len() == 43 && !shown.contains(secret.as_str()));
        }
    }
}
