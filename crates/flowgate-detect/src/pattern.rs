//! Matches tables of regular expressions in a text, with additional conditions in Rust. The detectors of secrets,
//! personal data, licences and injections, and the word lists, define the tables.
//!
//! The expressions have no look-around, so that their time is linear in the text; instead, a Rust function checks the
//! text around a match. If an expression has a group, the finding is the text of the group.

use std::ops::Range;

use regex::Regex;

use super::{Finding, MAX_FINDINGS};

/// One row: an expression, and the conditions on its matches.
pub(super) struct DetectionRule {
    /// The kind of the findings.
    kind: &'static str,
    /// The regular expression.
    regex: &'static str,
    /// The condition on a match.
    check: fn(PatternMatch<'_>) -> bool,
    /// The phrases of which one must precede a match; none are required if it is empty.
    near: &'static [&'static str],
    /// Returns the number of bytes at the start of a match that are the finding.
    cut: fn(&str) -> usize,
}

/// Creates a rule without further conditions.
pub(super) const fn rule(kind: &'static str, regex: &'static str) -> DetectionRule {
    DetectionRule { kind, regex, check: |_| true, near: &[], cut: str::len }
}

impl DetectionRule {
    /// Counts only matches that satisfy `check`.
    pub(super) const fn check(self, check: fn(PatternMatch<'_>) -> bool) -> Self {
        Self { check, ..self }
    }

    /// Shortens each match to the number of bytes that `cut` returns; 0 rejects the match. For kinds whose length
    /// depends on their first characters.
    pub(super) const fn truncated_by(self, cut: fn(&str) -> usize) -> Self {
        Self { cut, ..self }
    }

    /// Counts only matches shortly after one of these words or phrases, given in lower case.
    pub(super) const fn after_phrases(self, near: &'static [&'static str]) -> Self {
        Self { near, ..self }
    }
}

/// A match of a rule, with the text around it.
#[derive(Clone, Copy)]
pub(super) struct PatternMatch<'t> {
    /// The searched text.
    whole: &'t str,
    /// The matched text.
    pub(super) text: &'t str,
    /// The offset of the match in the searched text.
    start: usize,
}

impl<'t> PatternMatch<'t> {
    /// Returns the bytes of the match in the searched text.
    fn span(&self) -> Range<usize> {
        self.start..self.start + self.text.len()
    }

    /// Returns the text before the match.
    pub(super) fn before(&self) -> &'t str {
        self.whole.get(..self.start).unwrap_or_default()
    }

    /// Returns the text after the match.
    pub(super) fn after(&self) -> &'t str {
        self.whole.get(self.start + self.text.len()..).unwrap_or_default()
    }

    /// Returns whether one of the phrases, which are in lower case, occurs as whole words in the 48 bytes before the
    /// match.
    pub(super) fn follows_phrase(&self, phrases: &[&str]) -> bool {
        let before = self.before();
        let window = before.get(before.floor_char_boundary(before.len().saturating_sub(48))..);
        let mut words = String::from(" ");
        for word in window.unwrap_or_default().split(|c: char| !c.is_alphanumeric()) {
            if !word.is_empty() {
                words.push_str(&word.to_lowercase());
                words.push(' ');
            }
        }
        phrases.iter().any(|phrase| words.contains(&format!(" {phrase} ")))
    }
}

/// The rules of a table, each with its compiled expression; `None` if the expression is invalid.
pub(super) struct CompiledRules(Vec<(&'static DetectionRule, Option<Regex>)>);

/// After a failed check, a match of at most this length is searched for another match; longer ones are skipped, so
/// that time stays linear.
const LOOK_INTO: usize = 64;

impl CompiledRules {
    /// Compiles a table. Word boundaries are ASCII boundaries, since the library's fast automaton has no Unicode ones.
    pub(super) fn new(rules: &'static [DetectionRule]) -> Self {
        let compile = |rule: &DetectionRule| Regex::new(&rule.regex.replace(r"\b", r"(?-u:\b)")).ok();
        Self(rules.iter().map(|rule| (rule, compile(rule))).collect())
    }

    /// Returns the findings of the rules in order. Where two overlap, the earlier rule takes precedence. A match of a
    /// rule is a finding if the rule's `check` accepts it and, where the rule names phrases (`near`), one of them is
    /// shortly before. If the expression has a group, only the first group is the finding.
    pub(super) fn find(&self, text: &str) -> Vec<Finding> {
        let mut findings = DisjointFindings::default();
        for (rule, regex) in &self.0 {
            // An invalid expression never matches; a test compiles all of them.
            let Some(regex) = regex else { continue };
            let has_group = regex.captures_len() > 1;
            let mut at = 0;
            while let Some(found) = regex.find_at(text, at) {
                let group = if has_group {
                    regex.captures_at(text, found.start()).and_then(|groups| groups.get(1))
                } else {
                    Some(found)
                };
                let matched = group.and_then(|group| {
                    // Some kinds have a length that a regular expression cannot state; `cut` returns it.
                    let length = (rule.cut)(group.as_str());
                    let span = group.start()..group.start() + length;
                    Some(PatternMatch { whole: text, text: text.get(span)?, start: group.start() })
                });
                let accepted = matched.filter(|matched| {
                    (rule.check)(*matched)
                        && (rule.near.is_empty() || matched.follows_phrase(rule.near))
                        && findings.insert(Finding { kind: rule.kind, span: matched.span() })
                });
                // After a finding, the search continues at its end. A rejected match may overlap a valid one, so the
                // search continues one byte after its start, unless it is so long that this could take quadratic time.
                at = match accepted {
                    Some(matched) => matched.span().end.max(found.start() + 1),
                    None if found.len() > LOOK_INTO => found.end(),
                    None => found.start() + 1,
                };
                at = text.ceil_char_boundary(at);
                if findings.is_full() || at >= text.len() {
                    break;
                }
            }
        }
        findings.into_vec()
    }

    /// Returns the kinds whose expression does not compile; the list must be empty.
    #[cfg(test)]
    pub(super) fn uncompiled_kinds(&self) -> Vec<&'static str> {
        self.0.iter().filter(|(_, regex)| regex.is_none()).map(|(rule, _)| rule.kind).collect()
    }
}

/// Findings that do not overlap, in order.
#[derive(Default)]
pub(super) struct DisjointFindings(std::collections::BTreeMap<usize, Finding>);

impl DisjointFindings {
    /// Adds a finding unless it is empty, overlaps another one, or exceeds [`MAX_FINDINGS`]. Returns whether it was
    /// added.
    pub(super) fn insert(&mut self, finding: Finding) -> bool {
        let Range { start, end } = finding.span;
        // The other findings are disjoint, so only the last one that begins before `end` can overlap.
        let taken = self.0.range(..end).next_back().is_some_and(|(_, other)| other.span.end > start);
        if taken || start >= end || self.is_full() {
            return false;
        }
        self.0.insert(start, finding);
        true
    }

    /// Returns whether there are [`MAX_FINDINGS`] findings, so that no more are added.
    fn is_full(&self) -> bool {
        self.0.len() >= MAX_FINDINGS
    }

    /// Returns the findings, in order.
    pub(super) fn into_vec(self) -> Vec<Finding> {
        self.0.into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earlier_rules_win_and_failed_matches_are_looked_into() {
        static RULES: &[DetectionRule] = &[
            rule("PAIR", r"\b[0-9]+ [0-9]+\b").check(|m| m.text.ends_with("22")),
            rule("NUMBER", r"\b[0-9]+\b"),
            rule("AFTER", r"x=([a-z]+)").after_phrases(&["set of"]),
        ];
        let check = |text: &str, expected: &[(&str, &str)]| {
            let found = CompiledRules::new(RULES).find(text);
            let found: Vec<_> = found.iter().map(|f| (f.kind, text.get(f.span.clone()).unwrap())).collect();
            assert_eq!(found, expected, "{text}");
        };
        check("11 22", &[("PAIR", "11 22")]);
        check("11 33", &[("NUMBER", "11"), ("NUMBER", "33")]);
        check("33 11 22", &[("NUMBER", "33"), ("PAIR", "11 22")]);
        check("a Set  of: x=ab", &[("AFTER", "ab")]);
        check("reset of x=ab", &[]);
    }

    #[test]
    fn findings_are_bounded() {
        static RULES: &[DetectionRule] = &[rule("A", "a")];
        assert_eq!(CompiledRules::new(RULES).find(&"a".repeat(MAX_FINDINGS + 5)).len(), MAX_FINDINGS);
    }
}
