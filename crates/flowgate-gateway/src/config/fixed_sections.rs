//! Tells which sections of the configuration file a reload cannot change, because they describe what the process opens
//! once: the database, the audit log, the TLS settings and the like. `config` computes their digests, and
//! `chat::reload` compares those of two configurations.

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};

/// The sections that a reload changes.
const RELOADED: [&str; 9] =
    ["clients", "issuers", "login", "upstreams", "mcp", "people", "predicates", "prices", "watch"];

/// The digests of all other sections, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FixedSections(BTreeMap<String, [u8; 32]>);

impl FixedSections {
    /// Computes the digests of the sections that are not in [`RELOADED`]. `table` is the parsed configuration file,
    /// after environment variables have set their fields.
    pub(super) fn of(table: toml::Table) -> Self {
        let fixed = table.into_iter().filter(|(name, _)| !RELOADED.contains(&name.as_str()));
        Self(
            fixed
                .map(|(name, section)| (name, Sha256::digest(serde_json::json!(section).to_string()).into()))
                .collect(),
        )
    }

    /// Returns the names of the sections that differ in `later`, or that only one of the two has, in alphabetical
    /// order.
    pub(crate) fn changed_in(&self, later: &Self) -> Vec<String> {
        let mut names: Vec<&String> = self.0.keys().chain(later.0.keys()).collect();
        names.sort();
        names.dedup();
        let is_changed = |name: &&String| self.0.get(*name) != later.0.get(*name);
        names.into_iter().filter(is_changed).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_sections() {
        let check = |before: &str, later: &str, expected: &[&str]| {
            let of = |text: &str| FixedSections::of(toml::from_str(text).unwrap());
            let changed = of(before).changed_in(&of(later));
            assert_eq!(changed, expected, "{before} {later}");
        };
        let store = "[store]\nfile = \"a\"\nmemory-mib = 4\n";
        check("", "", &[]);
        check(store, store, &[]);
        // The order of the entries means nothing.
        check(store, "[store]\nmemory-mib = 4\nfile = \"a\"\n", &[]);
        check(store, "[store]\nfile = \"b\"\n", &["store"]);
        check("", store, &["store"]);
        check(store, "[audit]\nfile = \"x\"\n", &["audit", "store"]);
        check(
            "[clients.a]\nkey-from = \"A\"\n",
            "[people.b]\nkey-from = \"B\"\n[upstreams.c]\n[mcp.d]\n[prices]\n",
            &[],
        );
    }
}
