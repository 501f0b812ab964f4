//! Maintains an index from values to the regions of the trace that state them ([`RegionIndex`]). The index grows with
//! the trace. The influence methods `provenance` and `nothing` look up the arguments of a call in it, and so does the
//! double of a recorded model (`replay`).
//!
//! A phrase is looked up by its rarest word and then compared character by character, so that the cost of a query
//! depends on the number of matches and not on the length of the trace.

use std::collections::HashMap;

use flowgate::label::Label;
use flowgate::trace::{EventBody, EventId, EventPosition, NodeContent, NodeId, PathStep, Trace};
use serde_json::Value;

use super::facts::{StatedValue, is_month, parse_decimal, stated_values, words};

/// The most occurrences of a word in the trace that are examined, and the most words of a value.
const MAX_EXAMINED: usize = 10_000;
/// The most distinct parts of a text that are traced one by one.
const MAX_TEXT_PARTS: usize = 200;

/// The index of a text in [`RegionIndex`].
type IndexedTextId = usize;

/// A string, a number or a key of the trace, with its region.
#[derive(Debug)]
struct IndexedText {
    event: EventId,
    node: NodeId,
    text: String,
}

/// The regions of a trace, indexed by their content.
#[derive(Debug, Default)]
pub(crate) struct RegionIndex {
    /// All texts; an [`IndexedTextId`] is an index of this list.
    texts: Vec<IndexedText>,
    /// The texts that state each number, date or time.
    facts: HashMap<StatedValue, Vec<IndexedTextId>>,
    /// The positions where each word begins.
    words: HashMap<String, Vec<(IndexedTextId, usize)>>,
    /// The regions of the messages of the user and the operator.
    pub(super) instructions: Vec<(EventId, NodeId)>,
}

/// Where a value was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ValueOrigin {
    /// The value carries no information: empty text or null.
    Empty,
    /// In these regions, one for each part of the value.
    In(Vec<(EventId, NodeId)>),
    /// Some part of the value is in no region.
    DerivedValue,
}

/// A predicate on regions: whether a region may be used.
pub(crate) type RegionFilter<'a> = dyn Fn(EventId, NodeId) -> bool + 'a;

impl RegionIndex {
    /// Adds the content of an event: its texts and numbers, and which messages are instructions of the user and the
    /// operator. A call that the model wrote is not a source of new values.
    pub(crate) fn add(&mut self, trace: &Trace, id: EventId) {
        let Some(event) = trace.event(id) else { return };
        match &event.body {
            EventBody::Call(_) => return,
            EventBody::Message(message)
                if matches!(message.role.as_str(), "user" | "system" | "developer") =>
            {
                // Node 0 is the root of the event's value.
                let content = event.document.key(0, "content");
                self.instructions.extend(content.map(|node| (id, node)));
            }
            _ => {}
        }
        for (node, labelled) in event.document.nodes().iter().enumerate() {
            match &labelled.content {
                NodeContent::Scalar(Value::String(text)) => self.add_text(id, node, text),
                NodeContent::Scalar(Value::Number(n)) => self.add_text(id, node, &n.to_string()),
                // `true`, `false` and null say nothing about where a value comes from.
                NodeContent::Scalar(_) | NodeContent::List => {}
                NodeContent::Map => {
                    // Keys are part of the map's structure.
                    for child in event.document.children(node) {
                        if let Some(PathStep::Key(key)) = event.document.node(child).map(|n| &n.step) {
                            self.add_text(id, node, key);
                        }
                    }
                }
            }
        }
    }

    /// Adds one text: its words, and the values that it states, each once.
    fn add_text(&mut self, event: EventId, node: NodeId, text: &str) {
        let text_id = self.texts.len();
        for fact in stated_values(&text.to_lowercase()) {
            let text_ids = self.facts.entry(fact).or_default();
            // This text has the greatest index, so it is the last one if the value occurred in it before.
            if text_ids.last() != Some(&text_id) {
                text_ids.push(text_id);
            }
        }
        for (word, range) in words(text) {
            self.words.entry(word).or_default().push((text_id, range.start));
        }
        self.texts.push(IndexedText { event, node, text: text.to_owned() });
    }

    /// Returns whether a value contains a number, a code or an address that occurs in a region: a word of at least six
    /// bytes with a digit, a dot or an `@`. Only regions that `usable` accepts count. Shorter words recur by chance.
    /// The method `nothing` asks this about a value that is found nowhere as a whole, since such a value may still
    /// quote a region. Only strings are searched: a JSON number is always looked up as a whole. Of a text, only the
    /// first [`MAX_EXAMINED`] words are searched; of a map, only the values, not the keys.
    pub(super) fn quotes(&self, trace: &Trace, value: &Value, usable: &RegionFilter<'_>) -> bool {
        match value {
            Value::String(text) => text.split_whitespace().take(MAX_EXAMINED).any(|word| {
                let word = word.trim_matches(|c: char| !c.is_alphanumeric());
                let is_code =
                    word.len() >= 6 && word.contains(|c: char| c.is_ascii_digit() || ".@".contains(c));
                is_code && self.find_phrase(trace, word, usable).is_some()
            }),
            Value::Array(items) => items.iter().any(|item| self.quotes(trace, item, usable)),
            Value::Object(entries) => entries.values().any(|item| self.quotes(trace, item, usable)),
            _ => false,
        }
    }

    /// Finds the regions that a value comes from: as a whole, or else part by part. If several regions state a part,
    /// the one with the lowest label is taken; only regions that `usable` accepts count.
    pub(crate) fn find(&self, trace: &Trace, value: &Value, usable: &RegionFilter<'_>) -> ValueOrigin {
        match value {
            Value::Null => ValueOrigin::Empty,
            // With two possible values, the source cannot be determined.
            Value::Bool(_) => ValueOrigin::DerivedValue,
            Value::Number(n) => match parse_decimal(&n.to_string()) {
                Some(fact) => self.find_fact(trace, &fact, usable),
                None => ValueOrigin::DerivedValue,
            },
            Value::String(text) => self.find_text(trace, text, usable),
            Value::Array(items) => combine_origins(items.iter().map(|item| self.find(trace, item, usable))),
            Value::Object(entries) => combine_origins(entries.iter().flat_map(|(key, item)| {
                [self.find_text(trace, key, usable), self.find(trace, item, usable)]
            })),
        }
    }

    /// Finds the regions that a text comes from: as a whole, as a date, time or number, or else part by part. The parts
    /// are its lines, its sentences, and what commas or semicolons separate. Only regions that `usable` accepts count.
    fn find_text(&self, trace: &Trace, text: &str, usable: &RegionFilter<'_>) -> ValueOrigin {
        let text = text.trim();
        if text.is_empty() {
            return ValueOrigin::Empty;
        }
        if words(text).is_empty() {
            // A text of signs alone (`*`, `/`) has a meaning, but its source cannot be determined.
            return ValueOrigin::DerivedValue;
        }
        if let Some(region) = self.find_phrase(trace, text, usable) {
            return ValueOrigin::In(vec![region]);
        }
        if let Some(parts) = parse_date_time(text) {
            return combine_origins(parts.iter().map(|fact| self.find_fact(trace, fact, usable)));
        }
        // `007` may be an account number, which `7` is not.
        if let Some(fact) = parse_decimal(text).filter(|_| !text.starts_with('0')) {
            return self.find_fact(trace, &fact, usable);
        }
        // A composed text: every line and every sentence must come from some region.
        let parts: std::collections::HashSet<&str> = text
            .split(['\n', ';'])
            .flat_map(|line| line.split(", "))
            .flat_map(|line| line.split(". "))
            .map(str::trim)
            .filter(|part| !part.is_empty())
            .collect();
        // The limit bounds the work. A text that does not consist of several parts was searched as a whole above.
        if !(2..=MAX_TEXT_PARTS).contains(&parts.len()) {
            return ValueOrigin::DerivedValue;
        }
        // The order of the set is random, and that of the result must not be.
        let mut parts: Vec<&str> = parts.into_iter().collect();
        parts.sort_unstable();
        combine_origins(parts.iter().map(|part| {
            match words(part).is_empty() {
                // A part of signs alone, such as a line of dashes, only divides the text.
                true => ValueOrigin::Empty,
                false => self
                    .find_phrase(trace, part, usable)
                    .map_or(ValueOrigin::DerivedValue, |region| ValueOrigin::In(vec![region])),
            }
        }))
    }

    /// Finds a region that states a number, a date or a time. A region that names the day without a year also states
    /// a date, if some usable region contains the year. Only regions that `usable` accepts count.
    fn find_fact(&self, trace: &Trace, fact: &StatedValue, usable: &RegionFilter<'_>) -> ValueOrigin {
        let exact = self.facts.get(fact).into_iter().flatten().copied();
        // Whether some usable region contains the year as a word.
        let is_stated = |year: &u16| {
            let positions = self.words.get(&year.to_string()).into_iter().flatten();
            let texts = positions.filter_map(|(text_id, _)| self.texts.get(*text_id));
            texts.take(MAX_EXAMINED).any(|indexed| usable(indexed.event, indexed.node))
        };
        let any_year = match fact {
            StatedValue::Date { year: Some(year), month, day } if is_stated(year) => {
                self.facts.get(&StatedValue::Date { year: None, month: *month, day: *day })
            }
            _ => None,
        };
        let candidates = exact.chain(any_year.into_iter().flatten().copied());
        self.lowest_region(trace, candidates, usable)
            .map_or(ValueOrigin::DerivedValue, |region| ValueOrigin::In(vec![region]))
    }

    /// Returns the region with the lowest label that contains the phrase `needle`, among those that `usable` accepts;
    /// `None` if none does.
    fn find_phrase(
        &self,
        trace: &Trace,
        needle: &str,
        usable: &RegionFilter<'_>,
    ) -> Option<(EventId, NodeId)> {
        // The word of the phrase with the fewest occurrences: its offset in the phrase, and its positions.
        let mut rarest: Option<(usize, &[(IndexedTextId, usize)])> = None;
        for (word, range) in words(needle) {
            // If some word occurs nowhere, neither does the phrase.
            let positions = self.words.get(&word)?;
            if rarest.is_none_or(|(_, fewest)| positions.len() < fewest.len()) {
                rarest = Some((range.start, positions));
            }
        }
        let (offset, positions) = rarest?;
        // The number of examined positions is bounded: a word that occurs everywhere identifies little.
        let text_ids = positions.iter().take(MAX_EXAMINED).filter_map(|(text_id, start)| {
            let at = start.checked_sub(offset)?;
            self.texts.get(*text_id).filter(|indexed| occurs_at(&indexed.text, at, needle)).map(|_| *text_id)
        });
        self.lowest_region(trace, text_ids, usable)
    }

    /// Returns the region of these texts with the lowest label, among those that `usable` accepts; among incomparable
    /// labels, the first. `None` if none is usable.
    fn lowest_region(
        &self,
        trace: &Trace,
        text_ids: impl Iterator<Item = IndexedTextId>,
        usable: &RegionFilter<'_>,
    ) -> Option<(EventId, NodeId)> {
        let mut best: Option<((EventId, NodeId), Label)> = None;
        for indexed in text_ids.filter_map(|text_id| self.texts.get(text_id)) {
            let region = (indexed.event, indexed.node);
            let label = trace
                .event(indexed.event)
                .and_then(|event| event.document.node(indexed.node))
                .map(|node| node.label);
            let Some(label) = label.filter(|_| usable(indexed.event, indexed.node)) else { continue };
            let is_lower =
                best.as_ref().is_none_or(|(_, lowest)| label.flows_to(lowest) && !lowest.flows_to(&label));
            if is_lower {
                best = Some((region, label));
            }
        }
        best.map(|(region, _)| region)
    }
}

/// Returns a filter that accepts the regions which the agent has seen at `position`, the position of its call in the
/// trace: only these regions can have influenced the call.
pub(crate) fn seen_filter<'a>(
    trace: &'a Trace,
    position: &'a EventPosition,
) -> impl Fn(EventId, NodeId) -> bool + 'a {
    move |event, _| trace.has_seen(position, event)
}

/// Returns the origin of a value that consists of parts with these origins: the regions of all parts, or a derived
/// value if a part is derived, or an empty value if all parts are empty.
fn combine_origins(parts: impl Iterator<Item = ValueOrigin>) -> ValueOrigin {
    let mut regions = Vec::new();
    for part in parts {
        match part {
            ValueOrigin::Empty => {}
            ValueOrigin::In(more) => regions.extend(more),
            ValueOrigin::DerivedValue => return ValueOrigin::DerivedValue,
        }
    }
    if regions.is_empty() { ValueOrigin::Empty } else { ValueOrigin::In(regions) }
}

/// Parses a text that consists only of a date, a time, or both: `2024-05-19`, `12:00`, `2024-05-19 12:00:00`. Returns
/// one value for each; `None` for any other text.
fn parse_date_time(text: &str) -> Option<Vec<StatedValue>> {
    // The form of the text: each digit is replaced by `0`.
    let shape: String = text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    let date = shape.starts_with("0000-00-00");
    let clock =
        if date { shape.get(10..).unwrap_or("").trim_start_matches([' ', 'T']) } else { shape.as_str() };
    if !(matches!(clock, "00:00" | "00:00:00") || (date && clock.is_empty())) {
        return None;
    }
    let parts: Vec<StatedValue> = stated_values(&text.to_lowercase())
        .into_iter()
        .filter(|fact| matches!(fact, StatedValue::Date { .. } | StatedValue::Time { .. }))
        .collect();
    // A date or a time that does not exist, such as `2024-13-40`, states no value.
    (parts.len() == usize::from(date) + usize::from(!clock.is_empty())).then_some(parts)
}

/// The kind of a phrase, which decides what may be adjacent to it.
#[derive(PartialEq)]
enum PhraseKind {
    /// Words.
    Words,
    /// A number, a code or an id: spelled exactly, and not part of a longer one.
    Token,
    /// A mail address, a host or a URL: spelled exactly, and adjacent to nothing that could extend it.
    Address,
}

/// Returns whether `text` has `needle` at the byte `at`, and not as a part of a longer word, number or address. Runs of
/// white space are equal; upper and lower case are equal only in plain words.
fn occurs_at(text: &str, at: usize, needle: &str) -> bool {
    let kind = kind_of_phrase(needle);
    let (Some(before), Some(rest)) = (text.get(..at), text.get(at..)) else { return false };
    let Some(end) = match_end(rest, needle, &kind) else { return false };
    let after = rest.get(end..).unwrap_or("");
    // The 13 of `June 13` is a day, and not the number `13`: a number next to the name of a month is no match.
    let is_number = needle.bytes().all(|b| b.is_ascii_digit());
    let is_month = |word: Option<&str>| word.is_some_and(|word| is_month(&word.to_lowercase()));
    if is_number && (is_month(before.split_whitespace().last()) || is_month(after.split_whitespace().next()))
    {
        return false;
    }
    !extends_left(before, &kind) && !extends_right(after, &kind)
}

/// Guesses the kind of a phrase from its form: words with spaces, an address with `@`, `/` or a dot, or a number or
/// code.
fn kind_of_phrase(phrase: &str) -> PhraseKind {
    if phrase.contains(char::is_whitespace) {
        return PhraseKind::Words;
    }
    let has_inner_dot = phrase.trim_end_matches('.').contains('.');
    if phrase.contains(['@', '/']) || has_inner_dot && phrase.contains(char::is_alphabetic) {
        return PhraseKind::Address;
    }
    if phrase.contains(|c: char| c.is_numeric() || ":_-".contains(c)) {
        return PhraseKind::Token;
    }
    PhraseKind::Words
}

/// Compares the phrase `needle`, which is of this `kind`, with the beginning of `rest`, character by character. Returns
/// the offset in `rest` after the match; `None` if `rest` does not begin with the phrase.
fn match_end(rest: &str, needle: &str, kind: &PhraseKind) -> Option<usize> {
    let are_equal = |a: char, b: char| a == b || (*kind == PhraseKind::Words && a.eq_ignore_ascii_case(&b));
    let mut haystack = rest.char_indices().peekable();
    let mut needles = needle.chars().peekable();
    loop {
        match (needles.next(), haystack.peek().copied()) {
            (None, Some((position, _))) => return Some(position),
            (None, None) => return Some(rest.len()),
            (Some(_), None) => return None,
            (Some(wanted), Some((_, found))) if wanted.is_whitespace() && found.is_whitespace() => {
                while needles.peek().is_some_and(|c| c.is_whitespace()) {
                    needles.next();
                }
                while haystack.peek().is_some_and(|(_, c)| c.is_whitespace()) {
                    haystack.next();
                }
            }
            (Some(wanted), Some((_, found))) if are_equal(wanted, found) => {
                haystack.next();
            }
            _ => return None,
        }
    }
}

/// Returns whether the text `before` a match makes the match part of a longer word, number or address. This is a guess
/// from the last two characters of `before`; which ones continue the match depends on the `kind` of the phrase.
fn extends_left(before: &str, kind: &PhraseKind) -> bool {
    // `site.org` is the destination of `https://site.org`.
    let before = match kind {
        PhraseKind::Address => {
            before.strip_suffix("https://").or_else(|| before.strip_suffix("http://")).unwrap_or(before)
        }
        _ => before,
    };
    let mut left = before.chars().rev();
    match (left.next(), kind) {
        (None, _) => false,
        (Some(c), PhraseKind::Address) => {
            // A bracket or a quote opens something only if it is not itself part of a longer address.
            let opens = |c: Option<char>| c.is_none_or(|c| c.is_whitespace() || "]([{<\"'`,;:|".contains(c));
            // White space, a separator, and a bracket or a quote that opens something are no part of the address.
            !(c.is_whitespace() || (",;:|".contains(c)) || ("<([{\"'`".contains(c) && opens(left.next())))
        }
        (Some(c), _) if c.is_alphanumeric() => true,
        (Some(c), PhraseKind::Token) => {
            "@./:_-+%?#&=\\~".contains(c) && left.next().is_some_and(char::is_alphanumeric)
        }
        (Some(_), PhraseKind::Words) => false,
    }
}

/// Returns whether the text after a match makes the match part of a longer word, number or address. This is a guess
/// from the first two characters of `after`; which ones continue the match depends on the `kind` of the phrase.
fn extends_right(after: &str, kind: &PhraseKind) -> bool {
    let mut right = after.chars();
    // Whether a punctuation mark before `next` ends a sentence, and is no part of an address.
    let ends = |next: Option<char>| next.is_none_or(|c| c.is_whitespace() || ">)]}\"'`".contains(c));
    match (right.next(), kind) {
        (None, _) => false,
        (Some(c), PhraseKind::Address) => match c {
            _ if c.is_whitespace() || ">)]}\"'`,;|".contains(c) => false,
            // The end of a sentence.
            '.' | '?' | '!' | ':' => !ends(right.next()),
            _ => true,
        },
        (Some(c), _) if c.is_alphanumeric() => true,
        (Some(c), PhraseKind::Token) => {
            "@./:_-+%?#&=\\~".contains(c) && right.next().is_some_and(char::is_alphanumeric)
        }
        (Some(_), PhraseKind::Words) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `check` takes a text, a phrase, and whether the phrase is in the text as a whole, and not only as part of
    /// something longer.
    #[test]
    fn phrases_stand_alone() {
        let check = |text: &str, needle: &str, expected: bool| {
            let found = text.match_indices(needle).any(|(at, _)| occurs_at(text, at, needle));
            assert_eq!(found, expected, "{needle:?} in {text:?}");
        };
        check("write to bob@x.org.", "bob@x.org", true);
        check("write to (bob@x.org), please", "bob@x.org", true);
        check("write to big.bob@x.org", "bob@x.org", false);
        check("write to bob@x.org.evil.com", "bob@x.org", false);
        check("see www.site.org/page", "www.site.org", false);
        check("see www.site.org.", "www.site.org", true);
        check("id 213", "13", false);
        check("at 13:00", "13", false);
        check("delete 13, now", "13", true);
        check("on june 13, now", "13", false);
        check("bobby", "bob", false);
        check("bob's note", "bob", true);
        check("mail o'ann@x.org", "ann@x.org", false);
        check("mail a!ann@x.org", "ann@x.org", false);
        check("mail \u{200b}ann@x.org", "ann@x.org", false);
        check("mail <ann@x.org>", "ann@x.org", true);
        check("see http://good.org/~evil.com", "evil.com", false);
        check("see http://good.org/(evil.com)", "evil.com", false);
        check("see [it](good.com) or (good.com)", "good.com", true);
        check("see https://good.org now", "good.org", true);
        check("see //evil.com/", "evil.com", false);
        check("see https://d.x/AbC1", "https://d.x/aBc1", false);
        assert!(occurs_at("a  long\nline", 0, "A long line"));
    }
}
