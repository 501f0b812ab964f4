//! What a client's memory says of one history that is taken in: now, or as it did when the history was taken in first.
//!
//! What a client was shown in its other sessions changes all the time. So the answers are a part of what is put into a
//! conversation, and are given again when it is made again ([`crate::journal`]).

use std::ops::Range;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Client, Template};

/// A part of a text, and the labels with which it had been seen, in names.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Spotted {
    pub(crate) range: Range<usize>,
    pub(crate) labels: Vec<Value>,
}

/// What was found in one text; texts in which nothing was found have no entry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Recollected {
    /// Which of the texts that were looked up, counted from 0.
    text: usize,
    spans: Vec<Spotted>,
}

/// The memory of a client, while one history is taken in.
pub(crate) struct Memory<'c> {
    client: &'c mut Client,
    /// What it is to say, if that is known.
    given: Option<&'c [Recollected]>,
    asked: usize,
    answers: Vec<Recollected>,
}

impl<'c> Memory<'c> {
    /// The memory as it is.
    pub(crate) fn live(client: &'c mut Client) -> Self {
        Self { client, given: None, asked: 0, answers: Vec::new() }
    }

    /// The memory as it was: it says the same again, and learns nothing.
    pub(crate) fn again(client: &'c mut Client, answers: &'c [Recollected]) -> Self {
        Self { client, given: Some(answers), asked: 0, answers: Vec::new() }
    }

    pub(crate) fn is_interactive(&self) -> bool {
        self.client.is_interactive
    }

    pub(crate) fn pinned(&self) -> &[Template] {
        &self.client.pinned
    }

    /// What it has said.
    pub(crate) fn answers(self) -> Vec<Recollected> {
        self.answers
    }

    /// Cuts a text where what has been seen begins and ends.
    pub(crate) fn spans(&mut self, text: &str, budget: &mut usize) -> Vec<Spotted> {
        let number = self.asked;
        self.asked += 1;
        if let Some(given) = self.given {
            let known = given.binary_search_by_key(&number, |answer| answer.text);
            return match known.ok().and_then(|at| given.get(at)) {
                Some(answer) => answer.spans.clone(),
                None if text.is_empty() => Vec::new(),
                None => vec![Spotted { range: 0..text.len(), labels: Vec::new() }],
            };
        }
        let spans: Vec<Spotted> = self
            .client
            .seen
            .spans(text, budget)
            .into_iter()
            .map(|span| Spotted { range: span.range, labels: span.labels.into_iter().cloned().collect() })
            .collect();
        if spans.iter().any(|span| !span.labels.is_empty()) {
            self.answers.push(Recollected { text: number, spans: spans.clone() });
        }
        spans
    }

    /// Learns a text with its label in names.
    pub(crate) fn add(&mut self, text: &str, label: impl FnOnce() -> Value) {
        if self.given.is_none() {
            self.client.seen.add(text, &label());
        }
    }
}
