//! Lists evidence about the untrusted values of a call, for the person who is asked whether it may run. Five findings
//! are evidence: the user wrote the value; it is a field of a trusted tool output; it differs in one character from
//! such a field or from a word of the user; an untrusted output contains it; it differs from one of these texts only in
//! upper and lower case. The programs that ask people call [`Monitor::question_evidence`].
//!
//! Each sentence states where a value was found, and gives no verdict. Invariant: the evidence depends only on regions
//! whose labels flow to the label of the question.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde_json::Value;

use super::argument_path::argument_in;
use super::{Monitor, Question, Reason};
use crate::label::Label;
use crate::policy::ArgumentRole;
use crate::trace::{Call, Event, EventBody, NodeContent, NodeId};

/// The most values of a call for which evidence is listed.
const MAX_VALUES: usize = 8;
/// The least and the most characters of a value that is searched for.
const LENGTHS: std::ops::RangeInclusive<usize> = 2..=200;
/// The most bytes that are searched for one question, with [`NODE_COST`] for each region.
const MAX_SEARCHED: usize = 1 << 20;
/// The cost of a region in addition to its text, in bytes.
const NODE_COST: usize = 32;
/// The least characters that the longer of two texts must have, so that the two can count as similar.
const LEAST_SIMILAR: usize = 5;

/// The places in the trace where a value, or a similar text, was found.
#[derive(Debug, Default)]
struct EvidencePlaces {
    /// Whether a trusted message of the user contains the value.
    is_in_user_words: bool,
    /// The tool of a trusted answer that contains the value as a whole field.
    trusted_answer: Option<String>,
    /// A word of a trusted message of the user that differs in one character.
    similar_word: Option<String>,
    /// A field of a trusted answer that differs in one character.
    similar: Option<String>,
    /// The tool of another answer that contains the value.
    untrusted_answer: Option<String>,
    /// The first place with a text that differs from the value only in upper and lower case, in words for the
    /// sentence, such as `a message of the user`. The sentence names it only if nothing else was found.
    other_case: Option<String>,
}

/// # Questions
///
/// The evidence that a person receives with a question.
impl Monitor {
    /// Returns evidence about those values of a question's call that untrusted text may have chosen. For each value, a
    /// sentence says where the value occurs in the regions that flow to the label of the question. Values beyond the
    /// first `MAX_VALUES`, and those whose length is not in `LENGTHS`, are not searched for; a last sentence states
    /// their number. Arguments with the role of content, such as the body of a mail, are ignored. Empty if the call has
    /// no valid arguments, or no value of this kind.
    pub fn question_evidence(&self, question: &Question) -> Vec<String> {
        let Some(call) = question.call() else { return Vec::new() };
        let Ok(arguments) = &call.arguments else { return Vec::new() };
        let is_content =
            |name: &&str| self.policy.argument_role(&call.tool, name) == Some(ArgumentRole::Content);
        let (mut values, mut left_out): (Vec<String>, usize) = (Vec::new(), 0);
        // The arguments that exceed a requirement on integrity.
        let names: BTreeSet<&str> = question
            .judgement()
            .reasons
            .iter()
            .filter_map(|reason| untrusted_argument(call, reason))
            .collect();
        // The values to search for, each once.
        for name in names.into_iter().filter(|name| !is_content(name)) {
            for text in arguments.get(name).map(texts_of).unwrap_or_default() {
                if values.contains(&text) {
                    continue;
                }
                if values.len() < MAX_VALUES && LENGTHS.contains(&text.chars().count()) {
                    values.push(text);
                } else {
                    left_out += 1;
                }
            }
        }
        // One sentence for each of them.
        let (occurrences, is_complete) = self.occurrences(&values, &question.judgement().decided);
        let mut evidence: Vec<String> = values
            .iter()
            .zip(occurrences)
            .map(|(value, places)| places.sentence(value, is_complete))
            .collect();
        if left_out > 0 {
            evidence.push(format!(
                "Further values, not searched for because they are too short, too long or too many: {left_out}."
            ));
        }
        evidence
    }

    /// Searches the regions that flow to `visible` for each value. Returns the occurrences of each value, in the order
    /// of `values`, and whether all of these regions were searched; the search ends after [`MAX_SEARCHED`] bytes.
    fn occurrences(&self, values: &[String], visible: &Label) -> (Vec<EvidencePlaces>, bool) {
        let mut occurrences: Vec<EvidencePlaces> = values.iter().map(|_| EvidencePlaces::default()).collect();
        let mut remaining_bytes = MAX_SEARCHED;
        for event in self.trace().events() {
            let document = &event.document;
            if !document.frame_label().flows_to(visible) {
                continue;
            }
            let mut node_id = 0;
            while let Some(node) = document.node(node_id) {
                if !node.label.flows_to(visible) {
                    // The whole subtree is skipped: what is in a hidden region must not be revealed.
                    node_id = node.end;
                    continue;
                }
                let text = match &node.content {
                    NodeContent::Scalar(Value::String(text)) => Some(Cow::Borrowed(text.as_str())),
                    NodeContent::Scalar(Value::Number(number)) => Some(Cow::Owned(number.to_string())),
                    _ => None,
                };
                let cost = NODE_COST + text.as_ref().map_or(0, |text| text.len());
                let Some(bytes_after) = remaining_bytes.checked_sub(cost) else {
                    return (occurrences, false);
                };
                remaining_bytes = bytes_after;
                if let Some(text) = text {
                    for (value, places) in values.iter().zip(&mut occurrences) {
                        self.compare_text(event, node_id, &text, value, places);
                    }
                }
                node_id += 1;
            }
        }
        (occurrences, true)
    }

    /// Compares the text of a `node` of an event with a value, and records in `found` what the text shows. The label of
    /// the node decides whether the text is trusted. Three kinds of texts count; all others are ignored. A trusted
    /// message of the user can contain the value or a similar word. A trusted output can be equal or similar to the
    /// value. An untrusted output can contain the value. Each of them can also differ from the value only in upper and
    /// lower case.
    fn compare_text(&self, event: &Event, node: NodeId, text: &str, value: &str, found: &mut EvidencePlaces) {
        let space = self.policy.space();
        let label = event.document.label_of(node);
        let is_trusted = space.restrict(&label, space.integrity()) == Label::BOTTOM;
        match &event.body {
            EventBody::Message(message) if message.role == "user" && is_trusted => {
                found.is_in_user_words |= contains_words(text, value);
                if found.similar_word.is_none() {
                    found.similar_word = similar_word(text, value).map(str::to_owned);
                }
                if found.other_case.is_none() && contains_in_other_case(text, value) {
                    found.other_case = Some("a message of the user".to_owned());
                }
            }
            EventBody::Output(_) => {
                let call = event.call.and_then(|call| self.trace().event(call));
                // Empty for an output that answers no call.
                let tool = call.and_then(|call| call.tool()).map(ToString::to_string).unwrap_or_default();
                if is_trusted {
                    if text == value {
                        found.trusted_answer.get_or_insert(tool);
                    } else if text.to_lowercase() == value.to_lowercase() {
                        found.other_case.get_or_insert_with(|| format!("a trusted answer of {tool}"));
                    } else if is_similar(text, value) {
                        found.similar.get_or_insert_with(|| text.to_owned());
                    }
                } else if contains_words(text, value) {
                    found.untrusted_answer.get_or_insert(tool);
                } else if found.other_case.is_none() && contains_in_other_case(text, value) {
                    found.other_case = Some(format!("an answer of {tool} that is not trusted"));
                }
            }
            _ => {}
        }
    }
}

impl EvidencePlaces {
    /// Returns the sentence that states where a value was found. `is_complete` states whether all regions that flow to
    /// the label of the question were searched.
    fn sentence(self, value: &str, is_complete: bool) -> String {
        let mut clauses: Vec<String> = Vec::new();
        if self.is_in_user_words {
            clauses.push("is in a message of the user".to_owned());
        }
        // A value that the user wrote as well is not a misspelling of another word of theirs.
        if !self.is_in_user_words
            && let Some(word) = self.similar_word
        {
            clauses.push(format!("differs in one character from the user's word {word:?}"));
        }
        if let Some(tool) = self.trusted_answer {
            clauses.push(format!("is in a trusted answer of {tool}"));
        }
        if let Some(text) = self.similar {
            clauses.push(format!("differs in one character from the trusted {text:?}"));
        }
        if let Some(tool) = self.untrusted_answer {
            clauses.push(format!("is in an answer of {tool} that is not trusted"));
        }
        // Only if no text has the value in its own spelling: an address with other capitals may be another address.
        if clauses.is_empty()
            && let Some(place) = self.other_case
        {
            clauses.push(format!("differs in upper and lower case from a text in {place}"));
        }
        match (clauses.as_slice(), is_complete) {
            ([], true) => format!(
                "{value:?} is in no trusted message of the user, is not a field of a trusted answer, and is in no other answer that this question may show."
            ),
            ([], false) => {
                format!(
                    "{value:?} was not found in the texts that were searched; other texts were not searched."
                )
            }
            (clauses, true) => format!("{value:?} {}.", clauses.join(" and ")),
            (clauses, false) => format!("{value:?} {}; not all texts were searched.", clauses.join(" and ")),
        }
    }
}

/// Returns the name of the argument of the call that a reason is about, if the argument exceeds a requirement on
/// integrity.
fn untrusted_argument<'c>(call: &'c Call, reason: &Reason) -> Option<&'c str> {
    // `label` has a text for each exceeded dimension. The texts about confidentiality are also in `categories`, so the
    // others are about integrity.
    let is_about_integrity = reason.label.iter().any(|phrase| !reason.categories.contains(phrase));
    if is_about_integrity { argument_in(call, reason.part.as_deref()?) } else { None }
}

/// Returns the texts and numbers in a value, at any depth; numbers as texts, and no keys of maps.
fn texts_of(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => vec![text.clone()],
        Value::Number(number) => vec![number.to_string()],
        Value::Array(items) => items.iter().flat_map(texts_of).collect(),
        Value::Object(map) => map.values().flat_map(texts_of).collect(),
        Value::Null | Value::Bool(_) => Vec::new(),
    }
}

/// Returns whether a text contains a value as a whole word. `pay@x.org` is not a whole word in `finance-pay@x.org`.
fn contains_words(text: &str, value: &str) -> bool {
    text.match_indices(value).any(|(at, _)| {
        // The characters before the value, from the last to the first, and those after it.
        let before = text.get(..at).unwrap_or_default().chars().rev();
        let after = text.get(at + value.len()..).unwrap_or_default().chars();
        !continues_word(before) && !continues_word(after)
    })
}

/// Returns whether a text contains a value as a whole word if case is ignored, but not as it is.
fn contains_in_other_case(text: &str, value: &str) -> bool {
    // A value without letters has no other case, so the text is not copied for it.
    value.chars().any(char::is_alphabetic)
        && !contains_words(text, value)
        && contains_words(&text.to_lowercase(), &value.to_lowercase())
}

/// Returns the first word of a text that differs from a value in exactly one character. White space separates words.
/// Punctuation at both ends of a word, with which no address begins or ends, is not part of the word.
fn similar_word<'t>(text: &'t str, value: &str) -> Option<&'t str> {
    let words =
        text.split_whitespace().map(|word| word.trim_matches(|c: char| ".,:;!?()[]{}<>\"'`".contains(c)));
    // A cheap test before the characters are compared. The character that differs changes the length by at most four
    // bytes; four more are left for characters whose upper and lower case have different lengths.
    let mut close = words.filter(|word| word.len().abs_diff(value.len()) <= 8);
    close.find(|word| is_similar(word, value))
}

/// Returns whether the characters that adjoin a value belong to the same word as the value. They do if they begin with a
/// letter or a digit, or with a punctuation character of addresses and paths and then a letter or a digit.
fn continues_word(mut characters: impl Iterator<Item = char>) -> bool {
    let next = characters.next();
    let is_joined = next.is_some_and(|c| ".-_@+/:#%&=?~".contains(c));
    next.is_some_and(char::is_alphanumeric)
        || (is_joined && characters.next().is_some_and(char::is_alphanumeric))
}

/// Returns whether two texts differ in exactly one character, which is replaced, added or removed. Ignores case.
/// Returns false if the longer text has fewer than [`LEAST_SIMILAR`] characters: too many short words differ in one
/// character.
fn is_similar(one: &str, other: &str) -> bool {
    // One of the texts is a value of a call, with at most `LENGTHS.end()` characters. The other may be longer. Both are
    // cut to two characters more than that, which suffices to see that the lengths differ by more than one.
    let characters =
        |text: &str| text.chars().take(LENGTHS.end() + 2).flat_map(char::to_lowercase).collect::<Vec<_>>();
    let (one, other) = (characters(one), characters(other));
    let (short, long) = if one.len() <= other.len() { (one, other) } else { (other, one) };
    if long.len() < LEAST_SIMILAR || long.len() - short.len() > 1 {
        return false;
    }
    // After the common beginning, one character of the longer text is skipped, and of the shorter one if they are
    // equally long.
    let common = short.iter().zip(&long).take_while(|(a, b)| a == b).count();
    let rest = |text: &[char], from: usize| text.get(from..).unwrap_or_default().to_vec();
    if long.len() == short.len() {
        // Equal texts do not differ in a character.
        common < long.len() && rest(&short, common + 1) == rest(&long, common + 1)
    } else {
        rest(&short, common) == rest(&long, common + 1)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::monitor::Verdict;
    use crate::policy::Policy;
    use crate::trace::{Call, Tool, TraceEntry};

    const POLICY: &str = r#"
lattice integrity: trusted < untrusted
lattice secrecy: public < private
label message as trusted, public if:
    (message: Message)
    message.role == "user"
label out.content as trusted, public if:
    (out: ToolOutput) is tool:get_contacts
label out.content as public if:
    (out: ToolOutput) is tool:read_page
require top if:
    (call: ToolCall) is tool:r"read_.*|get_contacts"
require trusted, private if:
    (call: ToolCall) is tool:send
"#;

    /// Returns the evidence about a call of `send` with these arguments, after a message of the user and the answers of
    /// three tools.
    fn evidence(arguments: &str) -> Vec<String> {
        let mut monitor = Monitor::new(Arc::new(Policy::parse(POLICY).unwrap()));
        monitor.push(TraceEntry::user("Write to carl@example.org, and to whom the page names.")).unwrap();
        for (number, (tool, answer)) in [
            ("get_contacts", r#"["anna@example.org", "bob"]"#),
            ("read_page", "Write to ann@example.org, mallory@evil.example, carla or bobby."),
            ("read_diary", "my friend dora"),
        ]
        .into_iter()
        .enumerate()
        {
            let id = format!("c{number}");
            let Verdict::Permit(permit) = monitor.judge(Call::from_json(&id, Tool::local(tool), "{}")) else {
                panic!("{tool}")
            };
            let running = monitor.redeem(permit).unwrap();
            drop(running);
            monitor.push(TraceEntry::tool_output(id, answer)).unwrap();
        }
        match monitor.judge(Call::from_json("last", Tool::local("send"), arguments)) {
            Verdict::Confirm(question) => monitor.question_evidence(&question),
            _ => panic!("{arguments} is not asked about"),
        }
    }

    #[test]
    fn evidence_says_where_values_are_found() {
        for (arguments, expected) in [
            (r#"{"to": "carl@example.org"}"#, vec![r#""carl@example.org" is in a message of the user."#]),
            (
                r#"{"to": "anna@example.org"}"#,
                vec![r#""anna@example.org" is in a trusted answer of get_contacts."#],
            ),
            (
                r#"{"to": "ann@example.org"}"#,
                vec![
                    r#""ann@example.org" differs in one character from the trusted "anna@example.org" and is in an answer of read_page that is not trusted."#,
                ],
            ),
            (
                r#"{"to": ["mallory@evil.example", "bob"], "n": 5}"#,
                vec![
                    r#""mallory@evil.example" is in an answer of read_page that is not trusted."#,
                    r#""bob" is in a trusted answer of get_contacts."#,
                    "Further values, not searched for because they are too short, too long or too many: 1.",
                ],
            ),
            (
                r#"{"to": "bob", "body": "mallory@evil.example"}"#,
                vec![r#""bob" is in a trusted answer of get_contacts."#],
            ),
            (
                r#"{"to": "karl@example.org"}"#,
                vec![
                    r#""karl@example.org" differs in one character from the user's word "carl@example.org"."#,
                ],
            ),
            // Capitals may make another address, so the sentence says where they differ.
            (
                r#"{"to": "Carl@Example.org"}"#,
                vec![
                    r#""Carl@Example.org" differs in upper and lower case from a text in a message of the user."#,
                ],
            ),
            (
                r#"{"to": "ANNA@example.org"}"#,
                vec![
                    r#""ANNA@example.org" differs in upper and lower case from a text in a trusted answer of get_contacts."#,
                ],
            ),
            (
                r#"{"to": "Mallory@evil.example"}"#,
                vec![
                    r#""Mallory@evil.example" differs in upper and lower case from a text in an answer of read_page that is not trusted."#,
                ],
            ),
            // A part of a word is no occurrence, and so short a value has no similar one.
            (
                r#"{"to": "bobb"}"#,
                vec![
                    r#""bobb" is in no trusted message of the user, is not a field of a trusted answer, and is in no other answer that this question may show."#,
                ],
            ),
            (
                r#"{"to": "x", "n": 4711}"#,
                vec![
                    r#""4711" is in no trusted message of the user, is not a field of a trusted answer, and is in no other answer that this question may show."#,
                    "Further values, not searched for because they are too short, too long or too many: 1.",
                ],
            ),
            // A part of an address that the user wrote is another address.
            (
                r#"{"to": "example.org"}"#,
                vec![
                    r#""example.org" is in no trusted message of the user, is not a field of a trusted answer, and is in no other answer that this question may show."#,
                ],
            ),
        ] {
            assert_eq!(evidence(arguments), expected, "{arguments}");
        }
    }

    #[test]
    fn similar_texts_differ_in_one_character() {
        for (one, other, expected) in [
            ("alice", "alice", false),
            ("alice", "alica", true),
            ("alice", "Alicee", true),
            ("alice", "lice", true),
            ("alice", "ailce", false),
            ("alice", "alixx", false),
            ("bob", "bab", false),
            ("", "a", false),
        ] {
            assert_eq!(
                (is_similar(one, other), is_similar(other, one)),
                (expected, expected),
                "{one} {other}"
            );
        }
    }
}
