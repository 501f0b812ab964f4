//! Finds the parts of a sent chat that quote texts which the client was shown before, so that these parts carry the
//! labels of the texts. The merge of the chat into a conversation uses it. The schema of a form that a client demands,
//! and texts that a client embeds, are looked up in the same way.
//!
//! In a live conversation, the lookup searches the guard's memory of the texts that the client was shown. This memory
//! changes independently of the conversation, because it also contains texts that the client was shown in other
//! conversations. The results of the lookup are therefore recorded with the inputs of the conversation, and a replay
//! uses the recorded results ([`crate::journal`]).

use flowgate_lm::chat::{Part, Source};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::quotation_memory::revealed_bits;
use super::{ClientProfile, MessageTemplate, QuotationSpan, SessionTexts, TAIL};

/// The quotations in one text; texts without any have no entry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TextQuotations {
    /// The index of the text among those that were looked up, from 0.
    text: usize,
    spans: Vec<QuotationSpan>,
}

/// The memory of a client, while texts of one input are looked up in it, such as the new messages of a sent chat.
pub(crate) struct QuotationLookup<'c> {
    client: &'c mut ClientProfile,
    /// The recorded answers, in a replay.
    recorded: Option<&'c [TextQuotations]>,
    /// Answers that were recorded under another policy: their labels are added to those of the present memory, which
    /// may have forgotten the texts.
    earlier: &'c [TextQuotations],
    /// The number of texts looked up so far.
    looked_up: usize,
    /// The answers so far, live.
    answers: Vec<TextQuotations>,
    /// An upper bound on the bits about remembered texts that the answers reveal.
    bits: u32,
    /// The texts for [`add_joined_user_texts`](Self::add_joined_user_texts): texts of the user without quotations,
    /// joined; of a long one, only its beginning and its end.
    user_texts: String,
}

impl<'c> QuotationLookup<'c> {
    /// Creates a lookup that reads and updates the client's current memory.
    pub(crate) fn live(client: &'c mut ClientProfile) -> Self {
        let (answers, user_texts) = (Vec::new(), String::new());
        Self { client, recorded: None, earlier: &[], looked_up: 0, answers, bits: 0, user_texts }
    }

    /// Creates a lookup that reads and updates the client's current memory, and adds the labels of `earlier`, the
    /// answers for the same texts under another policy.
    pub(crate) fn live_after(client: &'c mut ClientProfile, earlier: &'c [TextQuotations]) -> Self {
        Self { earlier, ..Self::live(client) }
    }

    /// Creates a lookup that returns the recorded answers, and adds nothing to the client's memory.
    pub(crate) fn from_recorded(client: &'c mut ClientProfile, answers: &'c [TextQuotations]) -> Self {
        Self {
            client,
            recorded: Some(answers),
            // The recorded answers contain those of earlier policies already.
            earlier: &[],
            looked_up: 0,
            answers: Vec::new(),
            bits: 0,
            user_texts: String::new(),
        }
    }

    /// Returns whether the lookup uses the client's current memory, and not recorded answers.
    pub(crate) fn is_live(&self) -> bool {
        self.recorded.is_none()
    }

    /// Returns whether a part of a user's message is trusted as the user's own text; `source` is where the client
    /// declares that the part comes from.
    pub(crate) fn trusts(&self, source: Option<Source>) -> bool {
        self.client.trusts(source)
    }

    /// Returns whether the client's system messages are trusted without being pinned.
    pub(crate) fn trusts_system(&self) -> bool {
        self.client.trusts_system
    }

    /// Returns the pinned messages of the client, which the operator knows verbatim except for marked holes.
    pub(crate) fn pinned(&self) -> &[MessageTemplate] {
        &self.client.pinned
    }

    /// Returns whether the client's memory may lack labelled texts that these texts quote: it has forgotten some, or it
    /// holds one of these texts as the user's own. It does not label the user's own words, even if a source repeats
    /// them.
    pub(crate) fn is_incomplete_for(&self, texts: &[&str]) -> bool {
        self.client.quotations.has_forgotten() || self.client.quotations.has_user_text(texts)
    }

    /// Returns the quotations that were found in all texts that were looked up, for the journal.
    pub(crate) fn into_answers(self) -> Vec<TextQuotations> {
        self.answers
    }

    /// Returns an upper bound on the bits about remembered texts that the answers reveal; 0 in a replay.
    pub(crate) fn bits(&self) -> u32 {
        self.bits
    }

    /// Splits consecutive parts at the bounds of quotations: returns the spans of each part. A quotation may begin in
    /// `before`, the end of the text before the parts. `shown` are the labelled texts that this session was shown;
    /// `None` if the session does not remember them. A replay returns the recorded answers; a live conversation records
    /// the answers.
    pub(crate) fn find_quotations(
        &mut self,
        before: &str,
        parts: &[&Part],
        shown: Option<&SessionTexts>,
    ) -> Vec<Vec<QuotationSpan>> {
        let first_number = self.looked_up;
        self.looked_up += parts.len();
        if let Some(recorded) = self.recorded {
            let recorded_spans = |number: usize| spans_of_text(recorded, number).map(<[_]>::to_vec);
            let numbered = parts.iter().zip(first_number..);
            return numbered
                .map(|(part, number)| {
                    recorded_spans(number).unwrap_or_else(|| unlabelled_span(part_content(part)))
                })
                .collect();
        }
        let memory = &self.client.quotations;
        // `bits` bounds what the spans reveal about the remembered texts; if none are remembered, they reveal nothing.
        let is_compared = !memory.is_empty() || shown.is_some_and(|shown| !shown.is_empty());
        let texts = std::iter::once(before).chain(parts.iter().filter_map(|part| part_text(part)));
        // The texts are compared together, since a quotation may continue from one to the next; `before` has no part.
        let mut spans_of_texts = memory.spans_of(&texts.collect::<Vec<_>>(), shown).into_iter().skip(1);
        let mut spans_of_parts = Vec::with_capacity(parts.len());
        for (part, number) in parts.iter().zip(first_number..) {
            let found = match part_text(part) {
                Some(_) => spans_of_texts.next().unwrap_or_default(),
                None => {
                    image_spans(part, memory.spans_of(&[part_content(part)], shown).pop().unwrap_or_default())
                }
            };
            let spans = match spans_of_text(self.earlier, number) {
                Some(earlier) => joined_spans(&found, earlier),
                None => found,
            };
            if is_compared {
                self.bits = self.bits.saturating_add(revealed_bits(part_content(part), &spans));
            }
            if spans.iter().any(|span| !span.labels.is_empty()) {
                self.answers.push(TextQuotations { text: number, spans: spans.clone() });
            }
            spans_of_parts.push(spans);
        }
        spans_of_parts
    }

    /// Adds a text of a source to the client's memory, with the names of its label; does nothing in a replay.
    pub(crate) fn add(&mut self, source: &str, text: &str, label: &Value) {
        if self.is_live() {
            self.client.quotations.add_text(source, text, label);
        }
    }

    /// Adds a text of the user to the client's memory, and keeps it for
    /// [`add_joined_user_texts`](Self::add_joined_user_texts), which adds it once more, joined with others. Does
    /// nothing in a replay, which does not change the memory.
    pub(crate) fn add_user_text(&mut self, text: &str) {
        if self.is_live() {
            self.client.quotations.add_user_text(text);
            self.user_texts.push('\n');
            // Of a long text, only its ends can be joined with other texts.
            if text.len() <= 2 * TAIL {
                self.user_texts.push_str(text);
            } else {
                self.user_texts.push_str(text.get(..text.floor_char_boundary(TAIL)).unwrap_or_default());
                self.user_texts.push('\n');
                self.user_texts
                    .push_str(text.get(text.ceil_char_boundary(text.len() - TAIL)..).unwrap_or_default());
            }
        }
    }

    /// Adds the texts of the user in the sent chat to the client's memory once more, joined with each other and with
    /// `before`, the end of the user's earlier texts. If another source later quotes several of them in one text, the
    /// borders between them then also count as the user's own words. Does nothing in a replay.
    pub(crate) fn add_joined_user_texts(&mut self, before: &str) {
        let joined = std::mem::take(&mut self.user_texts);
        if !joined.is_empty() {
            self.client.quotations.add_user_text(&format!("{before}{joined}"));
        }
    }
}

/// Returns the spans of the text with this number; `None` if it has no quotation. `answers` are sorted by number.
fn spans_of_text(answers: &[TextQuotations], number: usize) -> Option<&[QuotationSpan]> {
    let at = answers.binary_search_by_key(&number, |answer| answer.text).ok()?;
    answers.get(at).map(|answer| &answer.spans[..])
}

/// Returns disjoint spans of a text that have the labels of both lists, cut at the bounds of both. A gap between spans
/// becomes a span without labels.
fn joined_spans(spans: &[QuotationSpan], others: &[QuotationSpan]) -> Vec<QuotationSpan> {
    let all = || spans.iter().chain(others);
    let mut bounds: Vec<usize> = all().flat_map(|span| [span.range.start, span.range.end]).collect();
    bounds.sort_unstable();
    bounds.dedup();
    let between = bounds.iter().zip(bounds.iter().skip(1));
    let joined = between.map(|(&start, &end)| {
        let mut labels: Vec<Value> = Vec::new();
        for label in all().filter(|span| span.range.contains(&start)).flat_map(|span| &span.labels) {
            if !labels.contains(label) {
                labels.push(label.clone());
            }
        }
        QuotationSpan { range: start..end, labels }
    });
    joined.collect()
}

/// Returns the spans of an image that is compared by its URL or its data: `spans`, if they cover 95% of a URL or half
/// of the data with quotations, and otherwise one span without labels. Images of one format begin alike, and those of
/// one server have most of their URL in common.
fn image_spans(part: &Part, spans: Vec<QuotationSpan>) -> Vec<QuotationSpan> {
    let image = part_content(part);
    // A URL that begins with `data:` is no address, but contains the image itself.
    let is_address = matches!(part, Part::ImageUrl(url) if !url.starts_with("data:"));
    let quoted: usize =
        spans.iter().filter(|span| !span.labels.is_empty()).map(|span| span.range.len()).sum();
    let is_quotation = match is_address {
        true => quoted.saturating_mul(20) >= image.len().saturating_mul(19),
        false => quoted.saturating_mul(2) >= image.len(),
    };
    if is_quotation { spans } else { unlabelled_span(image) }
}

/// Returns the text of a part; `None` for an image.
fn part_text(part: &Part) -> Option<&str> {
    match part {
        Part::Text(text) => Some(text),
        _ => None,
    }
}

/// Returns what is compared of a part: its text, or the URL or the data of an image.
fn part_content(part: &Part) -> &str {
    match part {
        Part::Text(text) => text,
        Part::ImageUrl(url) => url,
        Part::ImageData { data, .. } => data,
    }
}

/// Returns a single span without labels that covers the text; no span if the text is empty.
fn unlabelled_span(text: &str) -> Vec<QuotationSpan> {
    if text.is_empty() {
        Vec::new()
    } else {
        vec![QuotationSpan { range: 0..text.len(), labels: Vec::new() }]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A text has the labels of the present memory and the earlier ones, wherever they overlap.
    #[test]
    fn earlier_labels_are_added() {
        let span = |start: usize, end: usize, labels: &[&str]| QuotationSpan {
            range: start..end,
            labels: labels.iter().map(|label| Value::from(*label)).collect(),
        };
        let check = |spans: &[QuotationSpan], others: &[QuotationSpan], expected: &[QuotationSpan]| {
            assert_eq!(joined_spans(spans, others), expected);
        };
        let plain = [span(0, 9, &[])];
        check(&plain, &[], &plain);
        check(&plain, &plain, &plain);
        let quoted = [span(0, 3, &[]), span(3, 6, &["a"]), span(6, 9, &[])];
        check(&plain, &quoted, &quoted);
        check(&quoted, &quoted, &quoted);
        let other = [span(0, 5, &["b"]), span(5, 9, &[])];
        let both = [span(0, 3, &["b"]), span(3, 5, &["a", "b"]), span(5, 6, &["a"]), span(6, 9, &[])];
        check(&quoted, &other, &both);
    }
}
