//! Matches tables of regular expressions in a text, with additional conditions in Rust. The detectors of secrets,
//! personal data, licences and injections, and the word lists, define the tables.
//!
//! The expressions have no look-around, so that their time is linear in the text; instead, a Rust function checks the
//! text around a match. If an expression has a group, the finding is the text of the group.

use std::ops::Range;
use std::sync::OnceLock;

use aho_corasick::AhoCorasick;
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
    /// Returns how many bytes at the start of a match belong to the finding; 0 rejects the match.
    cut: fn(&str) -> usize,
    /// The keywords of which the text must contain one, in any case of ASCII letters; none are required if it is empty.
    keywords: &'static [&'static str],
    /// The lowest entropy of a finding, in bits per character.
    min_entropy: f64,
    /// The number of the group that is the finding; with 0, it is the first group that is not empty.
    group: usize,
}

/// Creates a rule that reports every match of `regex`; if `regex` has groups, it reports the first group of the match
/// that is not empty. The rule has no conditions; its methods add them.
pub(super) const fn rule(kind: &'static str, regex: &'static str) -> DetectionRule {
    DetectionRule {
        kind,
        regex,
        check: |_| true,
        near: &[],
        cut: str::len,
        keywords: &[],
        min_entropy: 0.0,
        group: 0,
    }
}

impl DetectionRule {
    /// Counts only matches that satisfy `check`.
    pub(super) const fn check(self, check: fn(PatternMatch<'_>) -> bool) -> Self {
        Self { check, ..self }
    }

    /// Shortens each match to the number of bytes that `cut` returns; 0 rejects the match. This is for kinds whose
    /// length depends on their first characters.
    pub(super) const fn truncated_by(self, cut: fn(&str) -> usize) -> Self {
        Self { cut, ..self }
    }

    /// Counts only matches shortly after one of these words or phrases, given in lower case.
    pub(super) const fn after_phrases(self, near: &'static [&'static str]) -> Self {
        Self { near, ..self }
    }

    /// Searches only texts that contain one of these keywords, given in lower case. One search finds the keywords of
    /// all rules of a table, so that a long table costs little in a text without them.
    pub(super) const fn if_text_contains(self, keywords: &'static [&'static str]) -> Self {
        Self { keywords, ..self }
    }

    /// Counts only findings of at least this entropy, in bits per character.
    pub(super) const fn with_min_entropy(self, min_entropy: f64) -> Self {
        Self { min_entropy, ..self }
    }

    /// Makes the group with the number `group` the finding. Without this, the finding is the first group that is not
    /// empty.
    pub(super) const fn with_group(self, group: usize) -> Self {
        Self { group, ..self }
    }

    /// Compiles the expression. Word boundaries are ASCII boundaries, since the library's fast automaton has no Unicode
    /// ones.
    fn compile(&self) -> Option<Regex> {
        Regex::new(&self.regex.replace(r"\b", r"(?-u:\b)")).ok()
    }

    /// Returns the part of a match that is the finding: the whole match (`found`) if the expression has no groups, and
    /// otherwise the group with the number `group` of the rule, or `None` if the match lacks it. With the number 0, the
    /// finding is the first group that is not empty, or the whole match if there is no such group.
    fn finding(&self, regex: &Regex, text: &str, found: Range<usize>) -> Option<Range<usize>> {
        if regex.captures_len() == 1 {
            return Some(found);
        }
        let groups = regex.captures_at(text, found.start)?;
        let group = match self.group {
            0 => groups.iter().skip(1).flatten().find(|group| !group.is_empty()).or_else(|| groups.get(0)),
            number => groups.get(number),
        };
        group.map(|group| group.range())
    }

    /// Returns whether a match satisfies all conditions of the rule.
    fn accepts(&self, matched: PatternMatch<'_>) -> bool {
        (self.check)(matched)
            && (self.near.is_empty() || matched.follows_phrase(self.near))
            && (self.min_entropy == 0.0 || entropy(matched.text) >= self.min_entropy)
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

/// A table of rules, with their compiled expressions.
pub(super) struct CompiledRules {
    rules: Vec<CompiledRule>,
    /// Finds the keywords of all rules.
    keywords: Option<AhoCorasick>,
    /// For each keyword of `keywords`, the index in `rules` of the rule that names it.
    rule_of_keyword: Vec<usize>,
}

/// A rule with its expression. The expression is compiled when a text is first searched for it; it is `None` if it is
/// invalid.
struct CompiledRule {
    rule: &'static DetectionRule,
    regex: OnceLock<Option<Regex>>,
}

/// The maximum length in bytes of a rejected match in which the search looks for a further match. A longer rejected
/// match is skipped as a whole, so that the time stays linear.
const LOOK_INTO: usize = 64;

impl CompiledRules {
    /// Creates the searcher of a table of rules. An expression is compiled only when a search first needs it.
    pub(super) fn new(rules: &'static [DetectionRule]) -> Self {
        let named = rules.iter().enumerate();
        let named = named.flat_map(|(index, rule)| rule.keywords.iter().map(move |word| (*word, index)));
        let (words, rule_of_keyword): (Vec<&str>, Vec<usize>) = named.unzip();
        Self {
            rules: rules.iter().map(|rule| CompiledRule { rule, regex: OnceLock::new() }).collect(),
            // Building fails only for more keywords than any table has. Every rule is then searched for.
            keywords: AhoCorasick::builder().ascii_case_insensitive(true).build(words).ok(),
            rule_of_keyword,
        }
    }

    /// Searches `text` for all rules, and adds each match that satisfies the conditions of its rule to `findings`.
    /// Leaves out a match that overlaps a finding that is there already, so earlier rules take precedence.
    pub(super) fn find_into(&self, text: &str, findings: &mut DisjointFindings) {
        let named = self.rules_named_in(text);
        for (CompiledRule { rule, regex }, is_named) in self.rules.iter().zip(named) {
            if !is_named {
                continue;
            }
            // An invalid expression never matches; a test compiles all of them.
            let Some(regex) = regex.get_or_init(|| rule.compile()) else { continue };
            let mut at = 0;
            while let Some(found) = regex.find_at(text, at) {
                let matched = rule.finding(regex, text, found.range()).and_then(|group| {
                    // Some kinds have a length that a regular expression cannot state; `cut` returns it.
                    let length = (rule.cut)(text.get(group.clone())?);
                    let span = group.start..group.start + length;
                    Some(PatternMatch { whole: text, text: text.get(span)?, start: group.start })
                });
                let accepted = matched.filter(|matched| {
                    rule.accepts(*matched)
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
    }

    /// Returns the findings of the rules in order, as [`find_into`](Self::find_into) does.
    pub(super) fn find(&self, text: &str) -> Vec<Finding> {
        let mut findings = DisjointFindings::default();
        self.find_into(text, &mut findings);
        findings.into_vec()
    }

    /// Returns for each rule whether the text contains one of its keywords; `true` for a rule without keywords.
    fn rules_named_in(&self, text: &str) -> Vec<bool> {
        let mut named: Vec<bool> = self.rules.iter().map(|row| row.rule.keywords.is_empty()).collect();
        // The number of rules of which no keyword was found yet.
        let mut missing = named.iter().filter(|is_named| !**is_named).count();
        if missing == 0 {
            return named;
        }
        // Without the searcher of keywords, every rule is searched for.
        let Some(keywords) = &self.keywords else { return vec![true; self.rules.len()] };
        // Keywords may overlap: `key` is in `api_key`.
        for found in keywords.find_overlapping_iter(text) {
            let rule = self.rule_of_keyword.get(found.pattern().as_usize());
            let Some(is_named) = rule.and_then(|rule| named.get_mut(*rule)) else { continue };
            if !std::mem::replace(is_named, true) {
                missing -= 1;
                if missing == 0 {
                    break;
                }
            }
        }
        named
    }

    /// Returns the kinds whose expression does not compile; the list must be empty.
    #[cfg(test)]
    pub(super) fn uncompiled_kinds(&self) -> Vec<&'static str> {
        let invalid = self.rules.iter().filter(|row| row.rule.compile().is_none());
        invalid.map(|row| row.rule.kind).collect()
    }
}

/// Returns the Shannon entropy of a text, in bits per character. Characters outside ASCII, which no key contains, count
/// only in the length.
pub(super) fn entropy(text: &str) -> f64 {
    let mut counts = [0_u32; 128];
    for c in text.chars() {
        if let Some(count) = counts.get_mut(c as usize) {
            *count += 1;
        }
    }
    let total = text.chars().count().max(1) as f64;
    let terms = counts.iter().filter(|count| **count > 0).map(|count| f64::from(*count) / total);
    terms.map(|p| -p * p.log2()).sum()
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

    /// Returns whether there are [`MAX_FINDINGS`] findings; then no more are added.
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
    fn published_rules_have_keywords_groups_and_entropy() {
        static RULES: &[DetectionRule] = &[
            rule("KEY", "acme[=:]([a-z0-9]{8})(!?)").if_text_contains(&["acme"]).with_min_entropy(2.5),
            rule("EITHER", "left=([0-9]+)|right=([0-9]+)").if_text_contains(&["left", "RIGHT="]),
            rule("SECOND", "(?i)user=([a-z]+) pass=([a-z]+)")
                .if_text_contains(&["ser=", "user="])
                .with_group(2),
        ];
        let check = |text: &str, expected: &[(&str, &str)]| {
            let found = CompiledRules::new(RULES).find(text);
            let found: Vec<_> = found.iter().map(|f| (f.kind, text.get(f.span.clone()).unwrap())).collect();
            assert_eq!(found, expected, "{text}");
        };
        check("acme=a1b2c3d4!", &[("KEY", "a1b2c3d4")]);
        check("acme=aaaaaaa4 acme=a1b2c3d4", &[("KEY", "a1b2c3d4")]);
        check("left=1 right=22", &[("EITHER", "1"), ("EITHER", "22")]);
        check("USER=bob PASS=tulip", &[("SECOND", "tulip")]);
        check("pass=tulip", &[]);
    }

    #[test]
    fn findings_are_bounded() {
        static RULES: &[DetectionRule] = &[rule("A", "a")];
        assert_eq!(CompiledRules::new(RULES).find(&"a".repeat(MAX_FINDINGS + 5)).len(), MAX_FINDINGS);
    }
}
