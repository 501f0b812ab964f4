//! Looks up parts of a history in the client's memory: live, or from the recorded answers.
//!
//! What a client was shown in its other sessions changes all the time. The answers are therefore part of the inputs of
//! a conversation, and a replay uses the recorded ones ([`crate::journal`]).

use flowgate_lm::chat::{Part, Source};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::seen::bits;
use super::{Client, Shown, Span, Template};

/// The quotations in one text; texts without any have no entry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Recollected {
    /// The index of the text among those that were looked up, from 0.
    text: usize,
    spans: Vec<Span>,
}

/// The memory of a client during the intake of one history.
pub(crate) struct Memory<'c> {
    client: &'c mut Client,
    /// The recorded answers, in a replay.
    given: Option<&'c [Recollected]>,
    asked: usize,
    answers: Vec<Recollected>,
    bits: u32,
    /// Texts of the user in which nothing was found, in order.
    own: Vec<String>,
}

impl<'c> Memory<'c> {
    /// Creates a memory that reads and updates the client's current state.
    pub(crate) fn live(client: &'c mut Client) -> Self {
        Self { client, given: None, asked: 0, answers: Vec::new(), bits: 0, own: Vec::new() }
    }

    /// Creates a memory that returns the recorded answers and learns nothing.
    pub(crate) fn again(client: &'c mut Client, answers: &'c [Recollected]) -> Self {
        Self { client, given: Some(answers), asked: 0, answers: Vec::new(), bits: 0, own: Vec::new() }
    }

    /// Whether it uses the current state.
    pub(crate) fn is_live(&self) -> bool {
        self.given.is_none()
    }

    pub(crate) fn trusts(&self, source: Option<Source>) -> bool {
        self.client.trusts(source)
    }

    pub(crate) fn pinned(&self) -> &[Template] {
        &self.client.pinned
    }

    /// Whether the client's memory does not cover what was shown in a session: some of it was forgotten, or the user
    /// said it first.
    pub(crate) fn leaves_out(&self, texts: &[&str]) -> bool {
        self.client.seen.has_forgotten() || self.client.seen.knows_own(texts)
    }

    /// Returns the recorded answers.
    pub(crate) fn answers(self) -> Vec<Recollected> {
        self.answers
    }

    /// Returns the most bits about remembered texts that the answers reveal.
    pub(crate) fn bits(&self) -> u32 {
        self.bits
    }

    /// Splits consecutive parts at the bounds of quotations. A quotation may begin in `before`.
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
            let spans = match text(part) {
                Some(_) => joined.next().unwrap_or_default(),
                None => of_image(part, seen.spans_of(&[written(part)], shown).pop().unwrap_or_default()),
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

    /// Adds a text of a source, with its label by name.
    pub(crate) fn add(&mut self, source: &str, text: &str, label: &Value) {
        if self.is_live() {
            self.client.seen.add(source, text, label);
        }
    }

    /// Adds a text of the user. [`end_own`](Self::end_own) records how it is read together with others.
    pub(crate) fn add_own(&mut self, text: &str) {
        if self.is_live() {
            self.client.seen.add_own(&[text]);
            self.own.push(text.to_owned());
        }
    }

    /// Records the texts of the user, joined as a client may join them, after the end of those of earlier messages.
    pub(crate) fn end_own(&mut self, before: &str) {
        let own = std::mem::take(&mut self.own);
        if !own.is_empty() {
            let texts = std::iter::once(before).chain(own.iter().map(String::as_str));
            self.client.seen.add_own(&texts.collect::<Vec<_>>());
        }
    }
}

/// Returns the spans of an image that is matched by its URL or its data. Images of one format begin alike, and those of
/// one server have most of their URL in common: an image is a quotation only if most of it is.
fn of_image(part: &Part, spans: Vec<Span>) -> Vec<Span> {
    let image = written(part);
    let is_address = matches!(part, Part::ImageUrl(url) if !url.starts_with("data:"));
    let quoted: usize =
        spans.iter().filter(|span| !span.labels.is_empty()).map(|span| span.range.len()).sum();
    let is_quotation = match is_address {
        true => quoted.saturating_mul(20) >= image.len().saturating_mul(19),
        false => quoted.saturating_mul(2) >= image.len(),
    };
    if is_quotation { spans } else { whole(image) }
}

fn text(part: &Part) -> Option<&str> {
    match part {
        Part::Text(text) => Some(text),
        _ => None,
    }
}

/// Returns the content of a part as text.
fn written(part: &Part) -> &str {
    match part {
        Part::Text(text) => text,
        Part::ImageUrl(url) => url,
        Part::ImageData { data, .. } => data,
    }
}

/// Returns a single span without labels.
fn whole(text: &str) -> Vec<Span> {
    if text.is_empty() { Vec::new() } else { vec![Span { range: 0..text.len(), labels: Vec::new() }] }
}
