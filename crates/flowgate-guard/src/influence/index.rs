//! Which regions say what: an index that grows with the trace.
//!
//! A phrase is looked up by its rarest word and then compared letter by letter, so that asking costs as much as
//! the answer is long, not as the trace is.

use std::collections::HashMap;

use flowgate::label::Label;
use flowgate::trace::{Body, Content, EventId, NodeId, Place, Step, Trace};
use serde_json::Value;

use super::facts::{Fact, facts, is_month, number, words};

/// The place of a text in the index.
type PieceId = usize;

/// A piece of text with its region.
#[derive(Debug)]
struct Piece {
    event: EventId,
    node: NodeId,
    /// In lower case.
    text: String,
}

/// The regions of a trace by what they say.
#[derive(Debug, Default)]
pub(super) struct Index {
    pieces: Vec<Piece>,
    facts: HashMap<Fact, Vec<PieceId>>,
    /// Where each word begins.
    words: HashMap<String, Vec<(PieceId, usize)>>,
    /// The regions of what the user and the operator said.
    pub(super) instructions: Vec<(EventId, NodeId)>,
}

/// Where a value was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Found {
    /// It says nothing: empty text, a truth value, nothing at all.
    Nowhere,
    /// In these regions, one for each part of it.
    In(Vec<(EventId, NodeId)>),
    /// Some part of it is in no region.
    Derived,
}

/// Whether a region may be used.
pub(super) type Usable<'a> = dyn Fn(EventId, NodeId) -> bool + 'a;

impl Index {
    /// Adds what an event says. What the model wrote itself is a source of nothing new.
    pub(super) fn add(&mut self, trace: &Trace, id: EventId) {
        let Some(event) = trace.event(id) else { return };
        match &event.body {
            Body::Call(_) => return,
            Body::Message(message) if matches!(message.role.as_str(), "user" | "system" | "developer") => {
                let content = event.document.key(0, "content");
                self.instructions.extend(content.map(|node| (id, node)));
            }
            _ => {}
        }
        for (node, labelled) in event.document.nodes().iter().enumerate() {
            match &labelled.content {
                Content::Scalar(Value::String(text)) => self.add_text(id, node, text),
                Content::Scalar(Value::Number(n)) => self.add_text(id, node, &n.to_string()),
                Content::Scalar(_) | Content::List => {}
                Content::Map => {
                    // Keys are part of the map's structure.
                    for child in event.document.children(node) {
                        if let Some(Step::Key(key)) = event.document.node(child).map(|n| &n.step) {
                            self.add_text(id, node, key);
                        }
                    }
                }
            }
        }
    }

    fn add_text(&mut self, event: EventId, node: NodeId, text: &str) {
        let piece = self.pieces.len();
        let text = text.to_lowercase();
        for fact in facts(&text) {
            let known = self.facts.entry(fact).or_default();
            if known.last() != Some(&piece) {
                known.push(piece);
            }
        }
        for (word, range) in words(&text) {
            self.words.entry(word).or_default().push((piece, range.start));
        }
        self.pieces.push(Piece { event, node, text });
    }

    /// Whether a value contains a number or a code of some length that a usable region says.
    pub(super) fn quotes(&self, trace: &Trace, value: &Value, usable: &Usable<'_>) -> bool {
        match value {
            Value::String(text) => words(text).into_iter().any(|(word, _)| {
                let is_code = word.len() >= 6 && word.contains(|c: char| c.is_ascii_digit());
                is_code && self.phrase(trace, &word, usable).is_some()
            }),
            Value::Array(items) => items.iter().any(|item| self.quotes(trace, item, usable)),
            Value::Object(entries) => entries.values().any(|item| self.quotes(trace, item, usable)),
            _ => false,
        }
    }

    /// Finds where a value comes from: as a whole, or else part by part.
    pub(super) fn find(&self, trace: &Trace, value: &Value, usable: &Usable<'_>) -> Found {
        match value {
            Value::Null | Value::Bool(_) => Found::Nowhere,
            Value::Number(n) => {
                let fact = n.as_f64().map(number);
                let known =
                    fact.and_then(|fact| self.best(trace, self.facts.get(&fact)?.iter().copied(), usable));
                known.map_or(Found::Derived, |region| Found::In(vec![region]))
            }
            Value::String(text) => self.find_text(trace, text, usable),
            Value::Array(items) => all(items.iter().map(|item| self.find(trace, item, usable))),
            Value::Object(entries) => all(entries.iter().map(|(_, item)| self.find(trace, item, usable))),
        }
    }

    fn find_text(&self, trace: &Trace, text: &str, usable: &Usable<'_>) -> Found {
        let lower = text.trim().to_lowercase();
        if words(&lower).is_empty() {
            return Found::Nowhere;
        }
        if let Some(region) = self.phrase(trace, &lower, usable) {
            return Found::In(vec![region]);
        }
        if let Some(parts) = moment(&lower) {
            return all(parts.iter().map(|fact| self.fact(trace, fact, usable)));
        }
        if let Ok(n) = lower.parse::<f64>() {
            return self.fact(trace, &number(n), usable);
        }
        // A text put together from several: every line and every sentence must come from somewhere.
        let parts: Vec<&str> = lower
            .split(['\n', ';'])
            .flat_map(|line| line.split(", "))
            .flat_map(|line| line.split(". "))
            .collect();
        if parts.len() < 2 {
            return Found::Derived;
        }
        all(parts.iter().map(|part| {
            let part = part.trim();
            match words(part).is_empty() {
                true => Found::Nowhere,
                false => {
                    self.phrase(trace, part, usable).map_or(Found::Derived, |region| Found::In(vec![region]))
                }
            }
        }))
    }

    /// A date without a year is said by a text that names the day, whatever year it means.
    fn fact(&self, trace: &Trace, fact: &Fact, usable: &Usable<'_>) -> Found {
        let exact = self.facts.get(fact).into_iter().flatten().copied();
        let any_year = match fact {
            Fact::Date { month, day, .. } => {
                self.facts.get(&Fact::Date { year: None, month: *month, day: *day })
            }
            _ => None,
        };
        let candidates = exact.chain(any_year.into_iter().flatten().copied());
        self.best(trace, candidates, usable).map_or(Found::Derived, |region| Found::In(vec![region]))
    }

    /// The lowest usable region that contains the phrase, `needle` being in lower case.
    fn phrase(&self, trace: &Trace, needle: &str, usable: &Usable<'_>) -> Option<(EventId, NodeId)> {
        let mut rarest: Option<(usize, &[(PieceId, usize)])> = None;
        for (word, range) in words(needle) {
            // If any word occurs nowhere, neither does the phrase.
            let places = self.words.get(&word)?;
            if rarest.is_none_or(|(_, fewest)| places.len() < fewest.len()) {
                rarest = Some((range.start, places));
            }
        }
        let (offset, places) = rarest?;
        let pieces = places.iter().filter_map(|(piece, start)| {
            let at = start.checked_sub(offset)?;
            self.pieces.get(*piece).filter(|known| stands_at(&known.text, at, needle)).map(|_| *piece)
        });
        self.best(trace, pieces, usable)
    }

    /// The lowest of the regions; of those that cannot be compared, the first.
    fn best(
        &self,
        trace: &Trace,
        pieces: impl Iterator<Item = PieceId>,
        usable: &Usable<'_>,
    ) -> Option<(EventId, NodeId)> {
        let mut best: Option<((EventId, NodeId), Label)> = None;
        for piece in pieces.filter_map(|piece| self.pieces.get(piece)) {
            let region = (piece.event, piece.node);
            let label = trace
                .event(piece.event)
                .and_then(|event| event.document.node(piece.node))
                .map(|node| node.label);
            let Some(label) = label.filter(|_| usable(piece.event, piece.node)) else { continue };
            if best.as_ref().is_none_or(|(_, known)| label.flows_to(known) && !known.flows_to(&label)) {
                best = Some((region, label));
            }
        }
        best.map(|(region, _)| region)
    }
}

/// Only what the agent had seen can have been used.
pub(super) fn seen<'a>(trace: &'a Trace, place: &'a Place) -> impl Fn(EventId, NodeId) -> bool + 'a {
    move |event, _| trace.has_seen(place, event)
}

fn all(parts: impl Iterator<Item = Found>) -> Found {
    let mut regions = Vec::new();
    for part in parts {
        match part {
            Found::Nowhere => {}
            Found::In(more) => regions.extend(more),
            Found::Derived => return Found::Derived,
        }
    }
    if regions.is_empty() { Found::Nowhere } else { Found::In(regions) }
}

/// The date and the time of a text that is nothing but these.
fn moment(text: &str) -> Option<Vec<Fact>> {
    let is_plain = text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'-' | b':' | b' ' | b't'));
    let parts: Vec<Fact> = facts(text)
        .into_iter()
        .filter(|fact| matches!(fact, Fact::Date { .. } | Fact::Time { .. }))
        .collect();
    (is_plain && !parts.is_empty()).then_some(parts)
}

/// Whether `needle` stands at `at`, white space aside, and is not a piece of a longer word, number or address.
fn stands_at(text: &str, at: usize, needle: &str) -> bool {
    let (Some(before), Some(rest)) = (text.get(..at), text.get(at..)) else { return false };
    let mut hay = rest.char_indices().peekable();
    let mut needles = needle.chars().peekable();
    let mut end = rest.len();
    loop {
        match (needles.next(), hay.peek().copied()) {
            (None, Some((position, _))) => {
                end = position;
                break;
            }
            (None, None) => break,
            (Some(_), None) => return false,
            (Some(n), Some((_, h))) if n.is_whitespace() && h.is_whitespace() => {
                while needles.peek().is_some_and(|c| c.is_whitespace()) {
                    needles.next();
                }
                while hay.peek().is_some_and(|(_, c)| c.is_whitespace()) {
                    hay.next();
                }
            }
            (Some(n), Some((_, h))) if n == h => {
                hay.next();
            }
            _ => return false,
        }
    }
    let after = rest.get(end..).unwrap_or("");
    // The 13 of `June 13` is a day, not a number that somebody could have meant by `13`.
    let is_number = needle.bytes().all(|b| b.is_ascii_digit());
    if is_number
        && (before.split_whitespace().last().is_some_and(is_month)
            || after.split_whitespace().next().is_some_and(is_month))
    {
        return false;
    }
    // `smith@x.org` is not `bob.smith@x.org`, and `site.org` is not `site.org/page`.
    let is_token = !needle.contains(char::is_whitespace)
        && needle.contains(|c: char| c.is_numeric() || "@./:_-".contains(c));
    let connects = |c: char| is_token && "@./:_-+%?#&=\\".contains(c);
    let mut left = before.chars().rev();
    let mut right = after.chars();
    let glued = |side: &mut dyn Iterator<Item = char>| match side.next() {
        Some(c) if c.is_alphanumeric() => true,
        Some(c) if connects(c) => side.next().is_some_and(char::is_alphanumeric) || matches!(c, '@'),
        _ => false,
    };
    !glued(&mut left) && !glued(&mut right)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phrases_stand_alone() {
        let check = |text: &str, needle: &str, expected: bool| {
            let found = text.match_indices(needle).any(|(at, _)| stands_at(text, at, needle));
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
        assert!(stands_at("a  long\nline", 0, "a long line"));
    }
}
