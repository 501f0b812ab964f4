//! Remembers the texts that were seen in a client's sessions, with their labels, so that a message of the client
//! carries the labels of the texts that it quotes.
//!
//! Agents put retrieved text into messages of the user (`Context: ...`). The label of such a message follows from its
//! sender, except for quotations. Every span of 20 or more letters and digits that was seen with a label carries that
//! label, however the client spells it (see [`super::normalization`]), transforms it (see [`super::readings`]) or
//! splits it (see [`super::query`]).
//!
//! Texts are remembered as *windows*: all their stretches of [`SHORTEST`] bytes in normal form, each as a fingerprint.
//! [`super::lookup`] adds texts and finds quotations of them. An adversary must not be able to exploit what is
//! remembered:
//!
//! * Each source (a server, a tool, the model) has its own share of the windows. A source that has used up its share
//!   forgets its own oldest texts, and those of no other source. Forgetting never raises the label of a new text. A
//!   text that was shown in a session is recognised there as long as the session lasts, even if this memory has
//!   forgotten it ([`SessionTexts`]).
//! * A text that the user said first stays the user's: it does not get the label of a source that repeats it later.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::query::QuotationQuery;
use super::remembered_texts::normalized_texts;
pub use super::windows::SHORTEST;
use super::windows::{MarkedWindows, RecentWindows, WindowMark, windows};

/// The default number of windows that are remembered for all sources: at most about 160 MB.
const DEFAULT_ROOM: usize = 8 << 20;
/// How many sources could together fill the whole memory: one source may use the room divided by this number.
pub const SHARE: usize = 8;
/// The most sources with separate room; the others share the room of the first source, [`OTHERS`].
const MAX_SOURCES: usize = 64;
/// The most labels that are distinguished.
const MAX_LABELS: usize = 10_000;
/// The most bytes of the user's own texts that wait to be stored; they are stored with the next text of a source.
const MAX_WAITING: usize = 1 << 18;
/// The most spans into which one text is split: their bounds reveal what was compared.
const MAX_SPANS: usize = 8;

/// The source of the user's own texts.
const OWN: &str = "user";
/// The source of texts whose source is unknown or has no separate room.
const OTHERS: &str = "others";

/// The texts of a client's sessions that carry a label, as windows of their normal form.
#[derive(Debug, Clone)]
pub struct QuotationMemory {
    /// The most windows that may be remembered.
    room: usize,
    sources: Vec<RememberedSource>,
    windows: MarkedWindows,
    /// The texts that the user said before any source did.
    own: RecentWindows,
    /// The labels of the windows, each given by the names of its elements, since each session numbers labels in its own
    /// way. The first one represents top.
    labels: Vec<Value>,
    /// What was learned since [`Self::take_learned`] was last called, if it is to be stored.
    new: Option<LearnedTexts>,
    /// The user's own texts that wait to be stored.
    waiting: Vec<RememberedText>,
    /// The number of forgotten windows in total. Any other loss of texts counts as one forgotten window, so that the
    /// memory is known to be incomplete.
    forgotten: u64,
    /// The number of windows that each source forgot since [`Self::take_full_sources`] was last called.
    full: BTreeMap<String, u64>,
}

/// A source of texts, and how much of its texts is remembered.
#[derive(Debug, Clone)]
struct RememberedSource {
    name: String,
    /// The number of the younger generation. Windows of generations before the previous one are forgotten.
    generation: u32,
    /// The numbers of windows in the younger and in the older generation.
    windows: [usize; 2],
    /// The number of windows forgotten so far.
    forgotten: u64,
}

/// Texts that a memory has learned and that are to be stored, so that they survive a restart.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LearnedTexts {
    /// The texts, in order.
    pub texts: Vec<RememberedText>,
    /// The sources whose oldest texts were forgotten, and the most windows of each that are remembered.
    pub full: BTreeMap<String, usize>,
}

/// A text with its label, which is given by the names of its elements.
#[derive(Debug, Clone, PartialEq)]
pub struct RememberedText {
    /// Where it comes from.
    pub source: String,
    /// Its label. The user's own texts have none.
    pub label: Value,
    /// Its content in normal form.
    pub normalized: String,
}

/// How much of one source is remembered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceShare {
    /// The source.
    pub source: String,
    /// The number of remembered windows of its texts.
    pub windows: usize,
    /// The number of forgotten windows.
    pub forgotten: u64,
}

/// A span of a text, and the labels with which it was seen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct QuotationSpan {
    /// Its bytes.
    pub range: Range<usize>,
    /// The labels, each given by the names of its elements; empty if the span has not been seen.
    pub labels: Vec<Value>,
}

impl QuotationMemory {
    /// Creates an empty memory with room for `room` windows (stretches of [`SHORTEST`] bytes, by which texts are
    /// recognised). Each source may fill its share of the room.
    pub fn with_room(room: usize) -> Self {
        Self {
            room,
            sources: Vec::new(),
            windows: MarkedWindows::default(),
            own: RecentWindows::default(),
            // The label with the number 0, which represents top.
            labels: vec![Value::Null],
            new: None,
            waiting: Vec::new(),
            forgotten: 0,
            full: BTreeMap::new(),
        }
    }

    /// Starts recording what is learned, to be [taken out](Self::take_learned).
    pub fn record_learned(&mut self) {
        self.new.get_or_insert_default();
    }

    /// Returns what was learned since the last call, for the database; nothing if the memory is not stored. The user's
    /// own texts are stored only so that they are left out of the texts of other sources. They therefore wait
    /// (`waiting`) until there is a text of another source, or a source that has used up its room.
    pub fn take_learned(&mut self) -> LearnedTexts {
        let Some(new) = self.new.as_mut().filter(|new| !new.texts.is_empty() || !new.full.is_empty()) else {
            return LearnedTexts::default();
        };
        let mut learned = std::mem::take(new);
        let own = std::mem::take(&mut self.waiting);
        // The user's own texts come first. A text of another source is remembered without the passages that the user
        // wrote; restoring the texts in this order leaves out the same passages.
        learned.texts.splice(0..0, own);
        learned
    }

    /// Puts back what [`take_learned`](Self::take_learned) took out and the caller could not store. It precedes what
    /// was learned since then. Does nothing in a memory that is not stored.
    pub fn restore_learned(&mut self, mut learned: LearnedTexts) {
        let Some(new) = &mut self.new else { return };
        learned.texts.append(&mut new.texts);
        learned.full.append(&mut new.full);
        *new = learned;
    }

    /// Adds a text that was stored, without queueing it to be stored again.
    pub fn restore_text(&mut self, remembered: &RememberedText) {
        // Normalises the text again, since the normal form may have changed since it was stored.
        let forms = normalized_texts(&remembered.normalized);
        // The user's own texts have no label.
        if remembered.source == OWN {
            forms.iter().for_each(|normalized| self.own.add(normalized, self.source_room()));
            return;
        }
        // While the queue is taken out, nothing is queued to be stored again.
        let queue = self.new.take();
        let label = self.label_number(&remembered.label);
        for normalized in &forms {
            self.remember(&remembered.source, normalized, label);
        }
        self.new = queue;
    }

    /// Remembers a text of a source with `label`, which is written by the names of its elements. Queues the text to
    /// be stored if any of it is new. A text that is shorter than a window cannot be recognised.
    pub fn add_text(&mut self, source: &str, text: &str, label: &Value) {
        if text.len() < SHORTEST {
            return;
        }
        let number = self.label_number(label);
        for normalized in normalized_texts(text) {
            if self.remember(source, &normalized, number)
                && let Some(new) = &mut self.new
            {
                let text = String::from_utf8_lossy(&normalized).into_owned();
                new.texts.push(RememberedText {
                    source: source.to_owned(),
                    label: label.clone(),
                    normalized: text,
                });
            }
        }
    }

    /// Remembers a text as the user's own, so that a source that repeats it later does not label it. The caller passes
    /// only text that quotes nothing. A text that is shorter than a window has no effect. If the texts that wait to be
    /// stored exceed a limit, the oldest are dropped.
    pub fn add_user_text(&mut self, text: &str) {
        if text.len() < SHORTEST {
            return;
        }
        for normalized in normalized_texts(text) {
            self.add_own_normalized(&normalized);
        }
        let mut waiting: usize = self.waiting.iter().map(|own| own.normalized.len()).sum();
        while waiting > MAX_WAITING && !self.waiting.is_empty() {
            waiting -= self.waiting.remove(0).normalized.len();
        }
    }

    /// Remembers a normalized text of the user, unless all windows of it are remembered as the user's own already. If
    /// the memory is stored (`new` is set), queues the text to be stored; the user's own text has no label.
    fn add_own_normalized(&mut self, normalized: &[u8]) {
        if windows(normalized).all(|window| self.own.has(&window)) {
            return;
        }
        self.own.add(normalized, self.source_room());
        if self.new.is_some() {
            let text = String::from_utf8_lossy(normalized).into_owned();
            self.waiting.push(RememberedText {
                source: OWN.to_owned(),
                label: Value::Null,
                normalized: text,
            });
        }
    }

    /// Returns the most windows that one generation of a source may have: half of the source's share of the room, but
    /// at least one.
    fn source_room(&self) -> usize {
        (self.room / SHARE / 2).max(1)
    }

    /// Returns the number of a label, which is assigned when the label is first used. Beyond the limit, labels share
    /// the number 0, which is top.
    fn label_number(&mut self, label: &Value) -> usize {
        let number = self.labels.iter().position(|known| known == label);
        number.unwrap_or_else(|| {
            if self.labels.len() >= MAX_LABELS {
                return 0;
            }
            self.labels.push(label.clone());
            self.labels.len() - 1
        })
    }

    /// Returns the number of a source, and assigns one when the source is first named. Beyond [`MAX_SOURCES`], further
    /// sources share the number 0, which belongs to [`OTHERS`]. The first call must therefore name [`OTHERS`]: another
    /// name would share the number 0, too.
    fn source_number(&mut self, name: &str) -> usize {
        if let Some(number) = self.sources.iter().position(|source| source.name == name) {
            return number;
        }
        // The number 0 belongs to the shared source, whatever the first name is.
        let name = if self.sources.is_empty() { OTHERS } else { name };
        if self.sources.len() >= MAX_SOURCES {
            return 0;
        }
        self.sources.push(RememberedSource {
            name: name.to_owned(),
            generation: 0,
            windows: [0; 2],
            forgotten: 0,
        });
        self.sources.len() - 1
    }

    /// Remembers the windows of a normal form of a text, except for those that the user said first, and forgets old
    /// ones where the room is full. Returns whether any window is new with this source and label.
    fn remember(&mut self, source: &str, normalized: &[u8], label: usize) -> bool {
        // The shared source is registered first, so that it has the number 0. All sources without room of their own
        // share it.
        self.source_number(OTHERS);
        let source = self.source_number(source);
        let room_of_source = self.source_room();
        let mut is_new = false;
        for window in windows(normalized) {
            if self.own.has(&window) {
                continue;
            }
            let mark_of = |memory: &Self, source: usize, label: usize| {
                let generation = memory.sources.get(source).map_or(0, |source| source.generation);
                WindowMark { source, generation, label }
            };
            // A window for whose marks there is no room is marked with the shared source and top instead.
            let mark = mark_of(self, source, label);
            let mark_if_full = mark_of(self, 0, 0);
            if !self.windows.add(window, mark, mark_if_full) {
                continue;
            }
            is_new = true;
            let Some(remembered) = self.sources.get_mut(source) else { continue };
            // The windows of a source are in two generations: if the young one is full, the old one is forgotten.
            let [young, _] = &mut remembered.windows;
            *young += 1;
            if *young >= room_of_source {
                self.age_source(source);
            }
            // Forgets the oldest windows of the largest sources until the rest fits into the room.
            while self.windows.len() > self.room && self.age_largest() {}
        }
        is_new
    }

    /// Makes the younger generation of a source the older one, and forgets the previous older one. A window that occurs
    /// again is marked as young, so that it is remembered longer than others.
    fn age_source(&mut self, source: usize) {
        let room_of_source = self.source_room();
        let Some(remembered) = self.sources.get_mut(source) else { return };
        let [young, old] = remembered.windows;
        remembered.generation += 1;
        remembered.windows = [0, young];
        // The older generation had no window, so nothing is forgotten.
        if old == 0 {
            return;
        }
        let evicted = u64::try_from(old).unwrap_or(u64::MAX);
        // `forgotten` counts all losses. `full` reports to the operator what was lost because the share of the source
        // or the whole room was used up.
        remembered.forgotten += evicted;
        self.forgotten += evicted;
        *self.full.entry(remembered.name.clone()).or_default() += evicted;
        if let Some(new) = &mut self.new {
            // The database keeps the texts of two full generations.
            new.full.insert(remembered.name.clone(), 2 * room_of_source);
        }
        // Of this source, only the marks of the two newest generations stay.
        let oldest = remembered.generation.saturating_sub(1);
        self.windows.retain(|mark| mark.source != source || mark.generation >= oldest);
    }

    /// Makes room when all sources together have too many windows: [ages](Self::age_source) the source with the most
    /// windows by one generation, which forgets its older generation, if that has any windows. Returns false if no
    /// source has any window.
    fn age_largest(&mut self) -> bool {
        let size = |source: &RememberedSource| source.windows.iter().sum::<usize>();
        let largest = self.sources.iter().enumerate().max_by_key(|(_, source)| size(source));
        match largest.filter(|(_, source)| size(source) > 0) {
            Some((largest, _)) => {
                self.age_source(largest);
                true
            }
            None => false,
        }
    }

    /// Ages all sources and the user's texts by one generation, and so forgets the texts that were not seen again
    /// since the previous call. The caller decides how much time is between two calls.
    pub fn forget_stale(&mut self) {
        // Forgetting by age is not a limit that was reached, so it is not reported. What was lost before is still
        // reported: the caller may not have been able to store it.
        let full = self.full.clone();
        let full_in_database = self.new.as_ref().map(|new| new.full.clone());
        (0..self.sources.len()).for_each(|source| self.age_source(source));
        self.own.age();
        self.full = full;
        if let (Some(new), Some(full)) = (&mut self.new, full_in_database) {
            new.full = full;
        }
    }

    /// Forgets all texts of a source, which may be the user. Without a source (`None`), forgets the texts of all
    /// sources and of the user.
    pub fn clear(&mut self, source: Option<&str>) {
        match source {
            None => {
                let new = self.new.take().map(|_| LearnedTexts::default());
                // Clearing counts as forgetting, so that the memory is known to be incomplete.
                *self = Self { new, forgotten: self.forgotten + 1, ..Self::with_room(self.room) };
            }
            Some(OWN) => {
                // `forgotten` stays: the user's own texts have no labels, so no label is lost.
                (self.own, self.waiting) = (RecentWindows::default(), Vec::new());
            }
            Some(name) => {
                let Some(source) = self.sources.iter().position(|source| source.name == name) else { return };
                self.windows.retain(|mark| mark.source != source);
                if let Some(known) = self.sources.get_mut(source) {
                    known.windows = [0; 2];
                }
                // As above, the memory is known to be incomplete.
                self.forgotten += 1;
                if let Some(new) = &mut self.new {
                    new.texts.retain(|text| text.source != name);
                }
            }
        }
    }

    /// Returns how many windows of each source are remembered and forgotten, including the user's own texts. Sources
    /// without any are left out.
    pub fn shares(&self) -> Vec<SourceShare> {
        // The forgotten windows of the user's own texts are not counted.
        let own = SourceShare { source: OWN.to_owned(), windows: self.own.len(), forgotten: 0 };
        let share_of = |source: &RememberedSource| SourceShare {
            source: source.name.clone(),
            windows: source.windows.iter().sum(),
            forgotten: source.forgotten,
        };
        let shares = std::iter::once(own).chain(self.sources.iter().map(share_of));
        shares.filter(|share| share.windows > 0 || share.forgotten > 0).collect()
    }

    /// Returns the sources that forgot texts for lack of room since the last call, with the number of windows.
    pub fn take_full_sources(&mut self) -> BTreeMap<String, u64> {
        std::mem::take(&mut self.full)
    }

    /// Returns whether anything was ever forgotten.
    pub fn has_forgotten(&self) -> bool {
        self.forgotten > 0
    }

    /// Records that texts may have been lost elsewhere, so that this memory counts as incomplete.
    pub fn note_forgotten(&mut self) {
        self.forgotten += 1;
    }

    /// Returns whether the texts contain anything that the user said before.
    pub(crate) fn has_user_text(&self, texts: &[&str]) -> bool {
        self.own.len() > 0 && QuotationQuery::new(texts).has_window(|window| self.own.has(window))
    }

    /// Returns for each of these consecutive texts the spans that cover it, split where a quotation of a remembered
    /// text begins or ends. `shown` are the texts of one session, which are compared in addition to those of this
    /// memory.
    pub(crate) fn spans_of(&self, texts: &[&str], shown: Option<&SessionTexts>) -> Vec<Vec<QuotationSpan>> {
        let session = shown.filter(|shown| !shown.windows.is_empty());
        // Without remembered texts, nothing is quoted.
        if self.windows.is_empty() && session.is_none() {
            return texts.iter().map(|text| split_spans(text, Vec::new(), &[])).collect();
        }
        // The labels of the session are numbered after those of this memory.
        let own_labels = self.labels.len();
        let labels: Vec<&Value> =
            self.labels.iter().chain(session.iter().flat_map(|shown| &shown.labels)).collect();
        // For each text the quoted ranges, each with the index of its label in `labels`.
        let quotations = QuotationQuery::new(texts).find_marked(|window, marks| {
            marks.extend(self.windows.get(window).iter().map(|mark| mark.label));
            marks.extend(
                session
                    .into_iter()
                    .flat_map(|session| session.windows.get(window))
                    .map(|mark| own_labels + mark.label),
            );
        });
        texts.iter().zip(quotations).map(|(text, found)| split_spans(text, found, &labels)).collect()
    }

    /// Returns the spans of a text, split where a quotation of a remembered text begins or ends.
    pub fn spans(&self, text: &str) -> Vec<QuotationSpan> {
        self.spans_of(&[text], None).pop().unwrap_or_default()
    }

    /// Returns whether nothing is remembered, so that no text is compared.
    pub(crate) fn is_empty(&self) -> bool {
        self.windows.is_empty()
    }
}

impl Default for QuotationMemory {
    fn default() -> Self {
        Self::with_room(DEFAULT_ROOM)
    }
}

/// The labelled texts of one session, including those that the user said first or that the client's memory forgot.
#[derive(Debug, Default)]
pub(crate) struct SessionTexts {
    windows: MarkedWindows,
    labels: Vec<Value>,
}

impl SessionTexts {
    /// Remembers a text with `label`, which is written by the names of its elements.
    pub(crate) fn add_text(&mut self, text: &str, label: &Value) {
        if text.len() < SHORTEST {
            return;
        }
        // The first label represents top, which is also the label of a text beyond the limit.
        if self.labels.is_empty() {
            self.labels.push(Value::Null);
        }
        let label = self.labels.iter().position(|known| known == label).unwrap_or_else(|| {
            if self.labels.len() >= MAX_LABELS {
                return 0;
            }
            self.labels.push(label.clone());
            self.labels.len() - 1
        });
        // A window for whose marks there is no room is marked with top instead. A session distinguishes no sources and
        // forgets nothing, so `source` and `generation` are always 0.
        let mark = |label| WindowMark { source: 0, generation: 0, label };
        for normalized in normalized_texts(text) {
            for window in windows(&normalized) {
                self.windows.add(window, mark(label), mark(0));
            }
        }
    }

    /// Returns whether nothing was added.
    pub(crate) fn is_empty(&self) -> bool {
        self.windows.is_empty()
    }
}

/// Splits a text into consecutive spans, each quoted with the same labels throughout. `found` are the quoted ranges,
/// which may overlap, each with the index of its label in `labels`.
fn split_spans(text: &str, found: Vec<(Range<usize>, usize)>, labels: &[&Value]) -> Vec<QuotationSpan> {
    if text.is_empty() {
        return Vec::new();
    }
    if found.is_empty() {
        return vec![QuotationSpan { range: 0..text.len(), labels: Vec::new() }];
    }
    // Sweep over the cuts (the offsets at which spans begin or end), and count the open spans of each label. The
    // boolean says whether a span of the label begins at the cut.
    let mut cuts: BTreeMap<usize, Vec<(usize, bool)>> = [(0, Vec::new()), (text.len(), Vec::new())].into();
    for (span, label) in merge_overlapping(found) {
        cuts.entry(span.start).or_default().push((label, true));
        cuts.entry(span.end).or_default().push((label, false));
    }
    let mut open: BTreeMap<usize, usize> = BTreeMap::new();
    let ends: Vec<usize> = cuts.keys().copied().skip(1).collect();
    let mut spans: Vec<QuotationSpan> = Vec::new();
    for ((start, changes), end) in cuts.into_iter().zip(ends) {
        for (label, begins) in changes {
            let count = open.entry(label).or_default();
            *count = if begins { *count + 1 } else { count.saturating_sub(1) };
        }
        let open_labels = open.iter().filter(|(_, count)| **count > 0);
        let mut span_labels: Vec<Value> = Vec::new();
        for label in open_labels.filter_map(|(label, _)| labels.get(*label)) {
            if !span_labels.contains(label) {
                span_labels.push((*label).clone());
            }
        }
        match spans.last_mut() {
            Some(last) if last.labels == span_labels => last.range.end = end,
            _ => spans.push(QuotationSpan { range: start..end, labels: span_labels }),
        }
    }
    limit_spans(spans)
}

/// Merges the ranges of each label that overlap or touch. Each range has the index of its label.
fn merge_overlapping(mut found: Vec<(Range<usize>, usize)>) -> Vec<(Range<usize>, usize)> {
    found.sort_by_key(|(span, label)| (*label, span.start, span.end));
    let mut merged: Vec<(Range<usize>, usize)> = Vec::new();
    for (span, label) in found {
        match merged.last_mut() {
            Some((last, last_label)) if *last_label == label && span.start <= last.end => {
                last.end = last.end.max(span.end)
            }
            _ => merged.push((span, label)),
        }
    }
    merged
}

/// Limits the number of spans to [`MAX_SPANS`], since their bounds reveal what was compared. The last spans beyond the
/// limit merge into one span that carries the labels of all of them.
fn limit_spans(mut spans: Vec<QuotationSpan>) -> Vec<QuotationSpan> {
    if spans.len() <= MAX_SPANS {
        return spans;
    }
    let rest = spans.split_off(MAX_SPANS - 1);
    let (start, end) =
        (rest.first().map_or(0, |span| span.range.start), rest.last().map_or(0, |span| span.range.end));
    let mut labels: Vec<Value> = Vec::new();
    for label in rest.into_iter().flat_map(|span| span.labels) {
        if !labels.contains(&label) {
            labels.push(label);
        }
    }
    spans.push(QuotationSpan { range: start..end, labels });
    spans
}

/// Returns the greatest number of bits that the spans of a text reveal about the remembered texts: whether it has
/// quotations, how many, and where they end.
pub(crate) fn revealed_bits(text: &str, spans: &[QuotationSpan]) -> u32 {
    let length = u32::try_from(text.len()).unwrap_or(u32::MAX).saturating_add(1);
    let cuts = u32::try_from(spans.len().saturating_sub(1)).unwrap_or(u32::MAX);
    // The bits of a number from 0 to the length of the text.
    let bits_of_offset = u32::BITS - length.leading_zeros();
    match spans.iter().any(|span| !span.labels.is_empty()) {
        // Only that the text has no quotation.
        false => 1,
        // Each piece reveals whether it is hidden, and where it ends.
        true => (cuts + 1).saturating_mul(bits_of_offset + 1),
    }
}

#[cfg(test)]
mod tests;
