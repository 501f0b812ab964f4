//! Stores the login links that have not been used yet, in memory. A link logs one person in to the page once, within
//! five minutes. `flowgate serve --login-link` prints one at the start. A person with a key makes further ones by
//! `flowgate login-link`, so that the key need not be typed into a browser.
//!
//! The link contains a random token behind `#`: a browser does not send this part of an address to a server. The
//! gateway stores only the digest of the token. `link_routes` has the routes.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::random::{self, RandomError};

/// The time in which a link can be used.
pub(super) const LINK_LIFETIME: Duration = Duration::from_mins(5);
/// The most links of one person that wait; a further one replaces the oldest.
const MAX_LINKS: usize = 4;

/// The links that have not been used.
#[derive(Default)]
pub(crate) struct LoginLinks(Mutex<Vec<LoginLink>>);

/// A link.
struct LoginLink {
    /// The name of the person in the configuration.
    person: String,
    /// The digest of the token.
    digest: [u8; 32],
    ends: Instant,
}

impl std::fmt::Debug for LoginLinks {
    /// Does not write the digests of the tokens.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LoginLinks(..)")
    }
}

impl LoginLinks {
    /// Makes a link for a person at `now`, and returns its path and fragment: what follows the address of the
    /// gateway. If the person has [`MAX_LINKS`] links already, the oldest one is removed.
    ///
    /// # Errors
    /// If the system returned no random bytes.
    pub(crate) fn make(&self, person: &str, now: Instant) -> Result<String, RandomError> {
        let token = random::hex(&random::bytes::<32>()?);
        let mut links = self.links();
        links.retain(|link| now < link.ends);
        if links.iter().filter(|link| link.person == person).count() >= MAX_LINKS
            // The links are in the order in which they were made.
            && let Some(oldest) = links.iter().position(|link| link.person == person)
        {
            links.remove(oldest);
        }
        links.push(LoginLink {
            person: person.to_owned(),
            digest: digest(&token),
            ends: now + LINK_LIFETIME,
        });
        Ok(format!("/ui/#link/{token}"))
    }

    /// Returns the name of the person whose link has this token, and removes the link: it is used once. `None` if there
    /// is no such link, or its time is over at `now`.
    pub(super) fn take(&self, token: &str, now: Instant) -> Option<String> {
        let digest = digest(token);
        let mut links = self.links();
        links.retain(|link| now < link.ends);
        // Compares with every link, in a time that does not depend on the token.
        let mut found = None;
        for (index, link) in links.iter().enumerate() {
            if bool::from(link.digest.ct_eq(&digest)) {
                found = Some(index);
            }
        }
        found.map(|index| links.remove(index).person)
    }

    /// Removes the links of a person, whose key has changed or who was removed from the configuration.
    pub(crate) fn remove_all_of(&self, person: &str) {
        self.links().retain(|link| link.person != person);
    }

    /// Locks the links, also after a panic.
    fn links(&self) -> MutexGuard<'_, Vec<LoginLink>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the digest of a token.
fn digest(token: &str) -> [u8; 32] {
    Sha256::digest(token).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(link: &str) -> &str {
        link.strip_prefix("/ui/#link/").unwrap()
    }

    #[test]
    fn a_link_is_used_once_and_in_time() {
        let (links, now) = (LoginLinks::default(), Instant::now());
        let link = links.make("ann", now).unwrap();
        assert_eq!(token(&link).len(), 64);
        for wrong in [
            "",
            "0",
            token(&link).get(1..).unwrap(),
            &format!("{}0", token(&link)),
            &token(&link).to_uppercase(),
        ] {
            assert_eq!(links.take(wrong, now), None, "{wrong}");
        }
        assert_eq!(links.take(token(&link), now).as_deref(), Some("ann"));
        assert_eq!(links.take(token(&link), now), None, "it is used once");
        let late = links.make("ann", now).unwrap();
        assert_eq!(links.take(token(&late), now + LINK_LIFETIME), None, "its time is over");
        let in_time = links.make("ann", now).unwrap();
        let last = now + LINK_LIFETIME - Duration::from_secs(1);
        assert_eq!(links.take(token(&in_time), last).as_deref(), Some("ann"));
    }

    #[test]
    fn links_are_bounded_and_end_with_their_person() {
        let (links, now) = (LoginLinks::default(), Instant::now());
        let of_bob = links.make("bob", now).unwrap();
        let made: Vec<String> = (0..=MAX_LINKS).map(|_| links.make("ann", now).unwrap()).collect();
        let (oldest, rest) = made.split_first().unwrap();
        assert_eq!(links.take(token(oldest), now), None, "the oldest makes room");
        assert_eq!(links.take(token(rest.first().unwrap()), now).as_deref(), Some("ann"));
        links.remove_all_of("ann");
        assert_eq!(links.take(token(rest.last().unwrap()), now), None);
        assert_eq!(links.take(token(&of_bob), now).as_deref(), Some("bob"));
        assert_eq!(format!("{links:?}"), "LoginLinks(..)");
    }
}
