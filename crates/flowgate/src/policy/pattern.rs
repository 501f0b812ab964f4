//! Matches the patterns by which statements of a policy name tools: `tool:bank/get_*`, `tool:"exact name"`,
//! `tool:r"get_(a|b)"`. The compiler compiles the patterns, and the monitor compares tools with them.
//!
//! A pattern without a server matches a tool of any server, as long as only one server offers a match. Once tools of
//! two servers match it, the pattern is *ambiguous* ([`MatchedServers`]), and a statement that would grant something by
//! it grants nothing. Otherwise, a second server could offer a tool of the same name, and so receive what the policy
//! grants to the tool of the first one.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use ::regex::{Regex, RegexBuilder};

use super::regex::{SIZE, describe};
use super::syntax::ToolName;
use crate::trace::Tool;

/// The index of a pattern in its policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct PatternId(pub(crate) usize);

/// A compiled pattern for tools.
#[derive(Debug, Clone)]
pub(crate) struct ToolPattern {
    /// The pattern as written after `tool:`.
    source: String,
    /// The pattern for the tool name; for a qualified pattern, for `server/name`.
    name: NamePattern,
    /// Whether the pattern names a server, or matches any server explicitly.
    qualified: bool,
}

/// What a pattern compares a name with.
#[derive(Debug, Clone)]
enum NamePattern {
    Exact(Arc<str>),
    Regex(Regex),
}

impl fmt::Display for ToolPattern {
    /// Writes the pattern as a policy does, with the prefix `tool:`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tool:{}", self.source)
    }
}

impl ToolPattern {
    /// Compiles a pattern. It is *qualified* if it says something about the server, that is, if it contains a slash.
    /// The pattern `*` is qualified too, since it means every tool of every server. A quoted name is never qualified,
    /// since its slash belongs to the name of the tool.
    ///
    /// # Errors
    /// If it is a regular expression that is malformed or too large.
    pub(crate) fn new(name: &ToolName) -> Result<Self, String> {
        // The source is the pattern as a policy writes it, after `tool:`.
        let (source, name, qualified) = match name {
            ToolName::Glob(text) if text == "*" => {
                (text.clone(), NamePattern::Regex(compile_whole(".*")?), true)
            }
            ToolName::Glob(text) if text.contains('*') => {
                let parts: Vec<String> = text.split('*').map(regex::escape).collect();
                (text.clone(), NamePattern::Regex(compile_whole(&parts.join(".*"))?), text.contains('/'))
            }
            ToolName::Glob(text) => {
                (text.clone(), NamePattern::Exact(text.as_str().into()), text.contains('/'))
            }
            ToolName::Exact(text) => (format!("{text:?}"), NamePattern::Exact(text.as_str().into()), false),
            ToolName::Regex(text) => {
                (format!("r\"{text}\""), NamePattern::Regex(compile_whole(text)?), text.contains('/'))
            }
        };
        Ok(Self { source, name, qualified })
    }

    /// Returns whether the pattern names a server, or matches any server explicitly.
    pub(crate) fn is_qualified(&self) -> bool {
        self.qualified
    }

    /// Returns the name that the tool must have, if the pattern names one tool and no server; otherwise `None`.
    pub(crate) fn exact_name(&self) -> Option<&Arc<str>> {
        match &self.name {
            NamePattern::Exact(name) if !self.qualified => Some(name),
            _ => None,
        }
    }

    /// Returns a tool that the pattern matches, for checks that need an example: the tool that the pattern names or,
    /// for a name with `*`, the tool whose name has the word `example` in place of each `*`. `None` for a regular
    /// expression, from which no example is derived.
    pub(crate) fn example(&self) -> Option<Tool> {
        let name = match &self.name {
            NamePattern::Exact(name) => name.to_string(),
            NamePattern::Regex(_) if self.source.starts_with("r\"") => return None,
            // A name with `*`, which is compiled to a regular expression.
            NamePattern::Regex(_) => self.source.replace('*', "example"),
        };
        Some(match name.split_once('/').filter(|_| self.qualified) {
            Some((server, name)) if !server.is_empty() => Tool::of(server, name),
            // `/pay` and `pay` name the agent's own tool.
            Some((_, name)) => Tool::local(name),
            None => Tool::local(&name),
        })
    }

    /// Returns the tool that the pattern names, if it names one: for `bank/pay` the tool of the server, for `/pay` and
    /// for `pay` alone the agent's own tool. `None` for a pattern with `*` or a regular expression.
    pub(crate) fn tool(&self) -> Option<Tool> {
        let NamePattern::Exact(name) = &self.name else { return None };
        if !self.qualified {
            return Some(Tool::local(name));
        }
        let (server, name) = name.split_once('/')?;
        Some(if server.is_empty() { Tool::local(name) } else { Tool::of(server, name) })
    }

    /// Returns the server that the pattern names; `None` if the pattern may match tools of several servers. The empty
    /// text names the agent itself, as in `/pay`.
    pub(crate) fn server(&self) -> Option<&str> {
        let (server, _) = self.source.split_once('/').filter(|_| self.qualified)?;
        let is_name = !server.contains('*') && !self.source.starts_with("r\"");
        is_name.then_some(server)
    }

    /// Returns the part of the pattern after the server and the slash, which may contain `*`; `None` if the pattern
    /// names no server.
    pub(crate) fn name_on_server(&self) -> Option<&str> {
        self.server().and_then(|server| self.source.get(server.len() + 1..))
    }

    /// Returns whether it is certain that no tool matches both patterns; false in doubt. The compiler leaves out a
    /// declared role if it cannot apply to the tools of a statement. In doubt it keeps the role, which can only
    /// restrict what the policy may say.
    pub(crate) fn is_disjoint(&self, other: &Self) -> bool {
        let is_glob = |pattern: &Self| !pattern.source.starts_with("r\"") && !pattern.source.starts_with('"');
        // Whether `named` names one tool, and `pattern` does not match it.
        let excludes_named = |named: &Self, pattern: &Self| {
            // A name without a server can be that of a tool of any server, so it is compared only with a pattern that
            // ignores the server, too.
            let tool = named.tool().filter(|_| named.qualified || !pattern.qualified);
            tool.is_some_and(|tool| !pattern.matches(&tool))
        };
        // Both patterns name one tool.
        if let (Some(one), Some(two)) = (self.tool(), other.tool()) {
            return !self.matches(&two) && !other.matches(&one);
        }
        if excludes_named(self, other) || excludes_named(other, self) {
            return true;
        }
        let are_comparable = self.qualified == other.qualified && is_glob(self) && is_glob(other);
        if !are_comparable {
            return false;
        }
        // Two names with `*` are disjoint if neither of their parts before the first `*` begins with the other.
        let before_star = |pattern: &Self| pattern.source.split('*').next().unwrap_or_default().to_owned();
        let (one, two) = (before_star(self), before_star(other));
        !one.starts_with(&two) && !two.starts_with(&one)
    }

    /// Returns whether the pattern names this server literally, and does not only match its tools by a wildcard. False
    /// for a regular expression.
    pub(crate) fn names_server(&self, server: &str) -> bool {
        self.qualified && self.source.split_once('/').is_some_and(|(named, _)| named == server)
    }

    /// Returns whether the pattern matches a tool.
    ///
    /// A qualified pattern, such as `bank/get_*`, is compared with `server/name`; any other with the name alone. A
    /// tool that Flowgate itself defines is matched by qualified patterns only.
    pub(crate) fn matches(&self, tool: &Tool) -> bool {
        let matches = |name: &str| match &self.name {
            NamePattern::Exact(exact) => **exact == *name,
            NamePattern::Regex(regex) => regex.is_match(name),
        };
        match &tool.server {
            // An unqualified name such as `link` does not mean a tool that Flowgate itself defines.
            Some(server) if &**server == Tool::FLOWGATE_SERVER && !self.qualified => false,
            // A tool without a server is compared as `/name`, which `*/name` matches and `bank/name` does not. The
            // pattern `*`, which is qualified, matches every tool.
            None if self.qualified => matches(&format!("/{}", tool.name)) || self.source == "*",
            Some(server) if self.qualified => matches(&format!("{server}/{}", tool.name)),
            _ => matches(&tool.name),
        }
    }
}

/// Compiles a regular expression that must match the whole text.
pub(crate) fn compile_whole(pattern: &str) -> Result<Regex, String> {
    let compiled =
        RegexBuilder::new(&format!(r"\A(?:{pattern})\z")).size_limit(SIZE).dot_matches_new_line(true).build();
    compiled.map_err(|error| describe(&error))
}

/// The servers whose tools each unqualified pattern has matched.
#[derive(Debug, Clone, Default)]
pub(crate) struct MatchedServers {
    /// At most two servers for each pattern, by its index; `None` is the agent itself.
    seen: HashMap<usize, Vec<Option<Arc<str>>>>,
}

impl MatchedServers {
    /// Records that a tool exists: adds its server to each pattern without a server that matches the tool. Two servers
    /// make a pattern ambiguous, so no further ones are recorded.
    pub(crate) fn register_tool(&mut self, patterns: &[ToolPattern], tool: &Tool) {
        for (index, pattern) in patterns.iter().enumerate() {
            if !pattern.is_qualified() && pattern.matches(tool) {
                let servers = self.seen.entry(index).or_default();
                if servers.len() < 2 && !servers.contains(&tool.server) {
                    servers.push(tool.server.clone());
                }
            }
        }
    }

    /// Returns whether the pattern `id` is ambiguous and therefore grants nothing: whether tools of two servers match
    /// it. `tool`, if there is one, counts as registered, although it may not be.
    pub(crate) fn is_ambiguous_for(
        &self,
        patterns: &[ToolPattern],
        id: PatternId,
        tool: Option<&Tool>,
    ) -> bool {
        // Whether the pattern matches the tool, and only tools of other servers are recorded for the pattern.
        let is_of_second_server = |tool: &Tool| {
            let matches =
                patterns.get(id.0).is_some_and(|pattern| !pattern.is_qualified() && pattern.matches(tool));
            matches && self.seen.get(&id.0).is_some_and(|servers| !servers.contains(&tool.server))
        };
        self.is_ambiguous(id) || tool.is_some_and(is_of_second_server)
    }

    /// Returns whether tools of two servers match the pattern.
    pub(crate) fn is_ambiguous(&self, pattern: PatternId) -> bool {
        self.seen.get(&pattern.0).is_some_and(|servers| servers.len() > 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_names() {
        let check = |name: ToolName, tool: &Tool, expected: bool| {
            assert_eq!(ToolPattern::new(&name).unwrap().matches(tool), expected, "{name:?} {tool}");
        };
        let glob = |text: &str| ToolName::Glob(text.into());
        let (local, bank) = (Tool::local("get_balance"), Tool::of("bank", "get_balance"));
        for (pattern, in_local, in_bank) in [
            ("get_balance", true, true),
            ("get_*", true, true),
            ("get", false, false),
            ("bank/get_balance", false, true),
            ("bank/*", false, true),
            ("evil/get_balance", false, false),
            ("*/get_balance", true, true),
            ("*", true, true),
        ] {
            check(glob(pattern), &local, in_local);
            check(glob(pattern), &bank, in_bank);
        }
        check(ToolName::Regex("get_(balance|iban)".into()), &local, true);
        check(ToolName::Regex("get_(balance|iban)".into()), &Tool::local("get_balance\n"), false);
        check(ToolName::Regex("a|get_balance".into()), &Tool::local("xget_balance"), false);
        check(ToolName::Exact("get.balance".into()), &Tool::local("get_balance"), false);
        let error = ToolPattern::new(&ToolName::Regex("(".into())).unwrap_err();
        assert_eq!(error, "unclosed group");
    }

    #[test]
    fn a_second_server_makes_an_unqualified_pattern_ambiguous() {
        let patterns =
            ["get_balance", "bank/get_balance"].map(|p| ToolPattern::new(&ToolName::Glob(p.into())).unwrap());
        let mut servers = MatchedServers::default();
        servers.register_tool(&patterns, &Tool::of("bank", "get_balance"));
        servers.register_tool(&patterns, &Tool::of("bank", "get_balance"));
        assert!(!servers.is_ambiguous(PatternId(0)));
        servers.register_tool(&patterns, &Tool::of("evil", "get_balance"));
        assert!(servers.is_ambiguous(PatternId(0)) && !servers.is_ambiguous(PatternId(1)));
    }
}
