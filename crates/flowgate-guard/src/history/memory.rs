//! What a client's memory says of one history that is taken in: now, or as it did when the history was taken in first.
//!
//! What a client was shown in its other sessions changes all the time. So the answers are a part of what is put into a
//! conversation, and are given again when it is made again ([`crate::journal`]).

use flowgate_lm::chat::{Part, Source};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::seen::bits;
use super::{Client, Shown, Span, Template};

/// What was found in one text; texts in which nothing was found have no entry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Recollected {
    /// Which of the texts that were looked up, counted from 0.
    text: usize,
    spans: Vec<Span>,
}

/// The memory of a client, while one history is taken in.
pub(crate) struct Memory<'c> {
    client: &'c mut Client,
    /// What it is to say, if that is known.
    given: Option<&'c [Recollected]>,
    asked: usize,
    answers: Vec<Recollected>,
    bits: u32,
}

impl<'c> Memory<'c> {
    /// The memory as it is.
    pub(crate) fn live(client: &'c mut Client) -> Self {
        Self { client, given: None, asked: 0, answers: Vec::new(), bits: 0 }
    }

    /// The memory as it was: it says the same again, and learns nothing.
    pub(crate) fn again(client: &'c mut Client, answers: &'c [Recollected]) -> Self {
        Self { client, given: Some(answers), asked: 0, answers: Vec::new(), bits: 0 }
    }

    /// Whether it is the memory as it is.
    pub(crate) fn is_live(&self) -> bool {
        self.given.is_none()
    }

    pub(crate) fn trusts(&self, source: Option<Source>) -> bool {
        self.client.trusts(source)
    }

    pub(crate) fn pinned(&self) -> &[Template] {
        &self.client.pinned
    }

    /// Whether what was shown in a session cannot be left to the client's memory: some of it was forgotten, or the user has said
    /// it before.
    pub(crate) fn leaves_out(&self, texts: &[&str]) -> bool {
        self.client.seen.has_forgotten() || self.client.seen.knows_own(texts)
    }

    /// What it has said.
    pub(crate) fn answers(self) -> Vec<Recollected> {
        self.answers
    }

    /// How many bits of what it knows its answers tell, at most.
    pub(crate) fn bits(&self) -> u32 {
        self.bits
    }

    /// Cuts parts that follow each other where what has been seen begins and ends. They may go on with what was said `before`.
    pub(crate) fn look(&mut self, before: &str, parts: &[&Part], shown: Option<&Shown>) -> Vec<Vec<Span>> {
        let first = self.asked;
        self.asked += parts.len();
        if let Some(given) = self.given {
            let known = |number: usize| {
                let known = given.binary_search_by_key(&number, |answer| answer.text).ok();
                known.and_then(|at| given.get(at)).map(|answer| answer.spans.clone())
            };
            let each = parts.iter().zip(first..);
            return each
                .map(|(part, number)| known(number).unwrap_or_else(|| whole(written(part))))
                .collect();
        }
        let seen = &self.client.seen;
        let is_compared = !seen.is_empty() || shown.is_some_and(|shown| !shown.is_empty());
        let texts = std::iter::once(before).chain(parts.iter().filter_map(|part| text(part)));
        let mut joined = seen.spans_of(&texts.collect::<Vec<_>>(), shown).into_iter().skip(1);
        let mut all = Vec::with_capacity(parts.len());
        for (part, number) in parts.iter().zip(first..) {
            // A picture that was seen is known by its address or its bytes.
            let spans = match text(part) {
                Some(_) => joined.next().unwrap_or_default(),
                None => seen.spans_of(&[written(part)], shown).pop().unwrap_or_default(),
            };
            if is_compared {
                self.bits = self.bits.saturating_add(bits(written(part), &spans));
            }
            if spans.iter().any(|span| !span.labels.is_empty()) {
                self.answers.push(Recollected { text: number, spans: spans.clone() });
            }
            all.push(spans);
        }
        all
    }

    /// Learns a text of a source with its label in names.
    pub(crate) fn add(&mut self, source: &str, text: &str, label: &Value) {
        if self.is_live() {
            self.client.seen.add(source, text, label);
        }
    }

    /// Learns what the user said.
    pub(crate) fn add_own(&mut self, text: &str) {
        if self.is_live() {
            self.client.seen.add_own(text);
        }
    }
}

fn text(part: &Part) -> Option<&str> {
    match part {
        Part::Text(text) => Some(text),
        _ => None,
    }
}

/// What is written in a part.
fn written(part: &Part) -> &str {
    match part {
        Part::Text(text) => text,
        Part::ImageUrl(url) => url,
        Part::ImageData { data, .. } => data,
    }
}

/// A text in which nothing was found.
fn whole(text: &str) -> Vec<Span> {
    if text.is_empty() { Vec::new() } else { vec![Span { range: 0..text.len(), labels: Vec::new() }] }
}
