//! Contains the rules that other projects, such as Betterleaks, publish for the detection of secrets.
//! `deploy/secret-rules` translates the file of such a project, and `build.rs` includes the result if the environment
//! variable `FLOWGATE_SECRET_RULES` names it. Otherwise, the list is empty. [`secrets`](super) searches for these rules
//! after those for the formats of issuers.

use super::{DetectionRule, rule};

/// The published rules. Where matches overlap, earlier rows take precedence.
pub(super) const RULES: &[DetectionRule] = include!(concat!(env!("OUT_DIR"), "/secret_rules.rs"));

/// Creates a rule from the fields that `deploy/secret-rules` writes. A text is searched if it contains one of the
/// `keywords`, in lower case, or if there are none. The secret is the group with the number `group` of the expression;
/// with 0, the first group that is not empty. Its entropy is at least `min_entropy`, in bits per character.
#[expect(clippy::allow_attributes, reason = "whether the function is used depends on the build")]
#[allow(dead_code, reason = "a build without published rules has none to create")]
const fn published_rule(
    kind: &'static str,
    regex: &'static str,
    keywords: &'static [&'static str],
    group: usize,
    min_entropy: f64,
) -> DetectionRule {
    rule(kind, regex).if_text_contains(keywords).with_group(group).with_min_entropy(min_entropy)
}
