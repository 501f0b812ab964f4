//! Resolves the name of a server, with a cache.
//!
//! ureq resolves the address for each request, even over an open connection, and a lookup with a time limit
//! needs a thread. Numeric addresses are therefore not looked up, and the addresses of a name are cached for
//! as long as connections are kept.

use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{NextTimeout, time};

/// The cached addresses of the server that was resolved last.
#[derive(Debug)]
pub(super) struct AddressCache {
    cached: Mutex<Option<CachedAddresses>>,
    /// How long the addresses are cached.
    lifetime: Duration,
    lookup: DefaultResolver,
}

#[derive(Debug)]
struct CachedAddresses {
    /// The scheme and the authority that the addresses belong to.
    server_origin: (Option<String>, Option<String>),
    since: Instant,
    addresses: ResolvedSocketAddrs,
}

impl AddressCache {
    /// Creates a resolver that caches addresses for this time.
    pub(super) fn new(kept: Duration) -> Self {
        Self { cached: Mutex::default(), lifetime: kept, lookup: DefaultResolver::default() }
    }
}

impl Resolver for AddressCache {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        if uri.host().is_some_and(is_address) {
            // Parsing a numeric address needs no time limit, and therefore no thread.
            let timeout = NextTimeout { after: time::Duration::NotHappening, ..timeout };
            return self.lookup.resolve(uri, config, timeout);
        }
        let of = (uri.scheme_str().map(str::to_owned), uri.authority().map(ToString::to_string));
        let mut known = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) =
            known.as_ref().filter(|known| known.server_origin == of && known.since.elapsed() < self.lifetime)
        {
            return Ok(known.addresses.clone());
        }
        *known = None;
        // Releases the lock, so that other requests do not wait for this lookup.
        drop(known);
        let addresses = self.lookup.resolve(uri, config, timeout)?;
        let new = CachedAddresses { server_origin: of, since: Instant::now(), addresses: addresses.clone() };
        *self.cached.lock().unwrap_or_else(PoisonError::into_inner) = Some(new);
        Ok(addresses)
    }
}

/// Whether a host is a numeric IP address.
fn is_address(host: &str) -> bool {
    let plain = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    plain.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timeout() -> NextTimeout {
        NextTimeout {
            after: time::Duration::from_secs(10),
            reason: ureq::Timeout::Resolve,
            ..NextTimeout::default()
        }
    }

    fn resolve(names: &AddressCache, uri: &str) -> Vec<String> {
        let found = names.resolve(&uri.parse().unwrap(), &Config::default(), timeout()).unwrap();
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_is_written_as_an_address_is_one() {
        let names = AddressCache::new(Duration::from_secs(60));
        for (uri, expected) in [
            ("http://127.0.0.1:8080/v1", "127.0.0.1:8080"),
            ("http://[::1]:8080/v1", "[::1]:8080"),
            ("https://10.0.0.1/v1", "10.0.0.1:443"),
        ] {
            assert_eq!(resolve(&names, uri), [expected]);
        }
        assert!(names.cached.lock().unwrap().is_none());
        assert!(!is_address("localhost") && !is_address("1.2.3") && !is_address(""));
    }

    #[test]
    fn a_name_is_known_for_a_while() {
        let put = |names: &AddressCache, of: &str, ago: Duration| {
            let addresses =
                names.resolve(&"http://10.1.1.1:1/".parse().unwrap(), &Config::default(), timeout());
            let of = (Some("http".to_owned()), Some(of.to_owned()));
            let since = Instant::now().checked_sub(ago).unwrap();
            *names.cached.lock().unwrap() =
                Some(CachedAddresses { server_origin: of, since, addresses: addresses.unwrap() });
        };
        let names = AddressCache::new(Duration::from_secs(60));
        put(&names, "localhost:9", Duration::ZERO);
        assert_eq!(resolve(&names, "http://localhost:9/v1"), ["10.1.1.1:1"]);
        // Another server, and the same one after its entry expired.
        assert!(resolve(&names, "http://localhost:8/v1").contains(&"127.0.0.1:8".to_owned()));
        put(&names, "localhost:9", Duration::from_secs(61));
        assert!(resolve(&names, "http://localhost:9/v1").contains(&"127.0.0.1:9".to_owned()));
        // Without a cache time nothing is cached.
        let names = AddressCache::new(Duration::ZERO);
        put(&names, "localhost:9", Duration::ZERO);
        assert!(resolve(&names, "http://localhost:9/v1").contains(&"127.0.0.1:9".to_owned()));
    }
}
