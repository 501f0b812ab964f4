//! Caches compiled policies for `policy_api`: its clients send the text of the policy with every request, and most send
//! the same text again. [`PolicyCache`] keeps the most recently used policies, up to limits on their number and size.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flowgate::policy::{Diagnostic, Dialect, Policy};

use crate::metrics::Metric;

/// The dialect and the text of a policy.
type PolicyKey = (Dialect, Arc<str>);

/// The most recently used policies, bounded in number and size.
#[derive(Debug)]
pub(super) struct PolicyCache {
    /// The most policies.
    policies: usize,
    /// The most bytes of all policies together.
    bytes: usize,
    cached: Mutex<CachedPolicies>,
}

/// The cached policies, in the order of their last uses.
#[derive(Debug, Default)]
struct CachedPolicies {
    /// The compiled policies, each with the number of its last use.
    compiled: HashMap<PolicyKey, (Arc<Policy>, u64)>,
    /// The keys by the number of their last use.
    used: BTreeMap<u64, PolicyKey>,
    /// The number of uses so far.
    uses: u64,
    /// The bytes of all cached policies.
    bytes: usize,
    /// The number of lookups that found a policy.
    hits: u64,
    /// The number of lookups that found no policy.
    misses: u64,
}

impl PolicyCache {
    /// Creates a cache of at most `policies` policies and `bytes` bytes, as [`Policy::size`] counts them.
    pub(super) fn new(policies: usize, bytes: usize) -> Self {
        Self { policies, bytes, cached: Mutex::default() }
    }

    /// Returns the compiled policy of the text `source` in this dialect, from the cache if it is there; otherwise
    /// compiles and caches it. The error is the diagnostics of the compiler. A policy that is larger than the cache is
    /// not cached.
    pub(super) fn get_or_insert(
        &self,
        dialect: Dialect,
        source: &str,
    ) -> Result<Arc<Policy>, Vec<Diagnostic>> {
        let key: PolicyKey = (dialect, Arc::from(source));
        if let Some(policy) = self.lock().get(&key) {
            return Ok(policy);
        }
        // Compiled without the lock: two clients that send a new policy at the same time compile it twice.
        let policy = Arc::new(Policy::parse_as(source, dialect)?);
        // A cache for no policies (`self.policies` is 0) stays empty.
        if policy.size() <= self.bytes && self.policies > 0 {
            self.lock().insert(key, Arc::clone(&policy), self.policies, self.bytes);
        }
        Ok(policy)
    }

    /// Returns the metrics of the cache. The last part of each says whether it is a counter.
    pub(super) fn figures(&self) -> [Metric; 4] {
        let cached = self.lock();
        let number = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        [
            ("flowgate_policy_cache_hits_total", "Policies that were compiled already.", cached.hits, true),
            ("flowgate_policy_cache_misses_total", "Policies that had to be compiled.", cached.misses, true),
            ("flowgate_policy_cache_policies", "Compiled policies.", number(cached.compiled.len()), false),
            ("flowgate_policy_cache_bytes", "Bytes of compiled policies.", number(cached.bytes), false),
        ]
    }

    /// Locks the cached policies, also after a panic.
    fn lock(&self) -> MutexGuard<'_, CachedPolicies> {
        self.cached.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CachedPolicies {
    /// Returns a cached policy, and marks it as the most recently used one; `None` if it is not cached. Counts the hit
    /// or the miss.
    fn get(&mut self, key: &PolicyKey) -> Option<Arc<Policy>> {
        let Some((policy, used)) = self.compiled.get_mut(key) else {
            self.misses += 1;
            return None;
        };
        self.hits += 1;
        self.uses += 1;
        // `self.used` has the keys by the numbers of their last uses: this key moves to the end.
        let previous_use = std::mem::replace(used, self.uses);
        if let Some(key) = self.used.remove(&previous_use) {
            self.used.insert(self.uses, key);
        }
        Some(Arc::clone(policy))
    }

    /// Adds a policy. Then evicts the least recently used policies until the cache is within its limits: at most
    /// `policies` policies, which together have at most `bytes` bytes.
    fn insert(&mut self, key: PolicyKey, policy: Arc<Policy>, policies: usize, bytes: usize) {
        // Another thread has compiled and added the policy at the same time.
        if self.compiled.contains_key(&key) {
            return;
        }
        self.uses += 1;
        self.bytes += policy.size();
        self.used.insert(self.uses, key.clone());
        self.compiled.insert(key, (policy, self.uses));
        while self.compiled.len() > policies || self.bytes > bytes {
            // The policy whose last use has the lowest number.
            let Some((_, oldest)) = self.used.pop_first() else { return };
            if let Some((policy, _)) = self.compiled.remove(&oldest) {
                self.bytes -= policy.size();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_recently_used_policy_stays_cached() {
        let source = |name: &str| format!("raise \"{name}\" if:\n    (m: Message)\n");
        let bytes = source("a").len();
        let check = |policies: usize, bytes: usize, asked: &[&str], expected: [u64; 4]| {
            let cache = PolicyCache::new(policies, bytes);
            for name in asked {
                cache.get_or_insert(Dialect::Flowgate, &source(name)).unwrap();
            }
            assert_eq!(cache.figures().map(|(_, _, value, _)| value), expected, "{asked:?}");
        };
        let two = bytes as u64 * 2;
        check(2, 1000, &["a", "a", "b", "a"], [2, 2, 2, two]);
        check(2, 1000, &["a", "b", "a", "c", "a"], [2, 3, 2, two]);
        check(2, 1000, &["a", "b", "a", "c", "b"], [1, 4, 2, two]);
        check(9, bytes * 2, &["a", "b", "c", "a"], [0, 4, 2, two]);
        check(9, bytes - 1, &["a", "a"], [0, 2, 0, 0]);
        check(0, 1000, &["a", "a"], [0, 2, 0, 0]);
    }

    #[test]
    fn a_large_pattern_takes_more_than_its_source() {
        let cache = PolicyCache::new(9, 100_000);
        let source = |times: u32| {
            format!("raise \"a\" if:\n    (m: Message)\n    match(r\"\\w{{{times}}}\", m.content)\n")
        };
        cache.get_or_insert(Dialect::Flowgate, &source(9)).unwrap();
        assert_eq!(cache.lock().compiled.len(), 0, "a class of letters has hundreds of ranges");
        cache.get_or_insert(Dialect::Flowgate, &source(1)).unwrap();
        assert_eq!(cache.lock().compiled.len(), 1);
    }

    #[test]
    fn dialects_and_mistakes_are_cached_separately() {
        let cache = PolicyCache::new(9, 1000);
        cache.get_or_insert(Dialect::Flowgate, "").unwrap();
        cache.get_or_insert(Dialect::Compat, "").unwrap();
        assert!(cache.get_or_insert(Dialect::Flowgate, "raise").is_err());
        assert_eq!(cache.figures().map(|(_, _, value, _)| value), [0, 3, 2, 0]);
    }
}
