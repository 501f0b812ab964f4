//! Disarms the addresses in texts that leave the guard: replies, and the contents of slots. A rendered image sends the
//! content of its URL to the host without any tool call, and a link takes the person who follows it to a destination
//! that an adversary may have chosen. A [conversation](crate::conversation) passes each reply and each filled slot
//! through this module, also while a reply is streamed.
//!
//! Each address is judged like a call of the tool `flowgate/link` with the argument `url`. In a reply, the call has the
//! label of the view; in the content of a slot, it has the label of the regions that the slot was filled from. Anything
//! that begins like an address counts: a scheme, a name with `@`, a name with dots that some renderer takes for a host
//! name.
//!
//! Renderers disagree about where an address ends and what a link is, so no single grammar is followed. A permitted
//! address is parsed as a browser does and written in one canonical form, with white space around it, which no renderer
//! extends or shortens (`address`). Every other sign that an address or a link needs is broken apart, in a way that
//! people can still read: `hxxps: / /evil .example`, `] (`, `‹img`.
//!
//! A policy without a statement for `flowgate/link` permits addresses only at a trusted and public label; one without
//! lattices permits all. Where every address is permitted, the text is left unchanged.
//!
//! **Files.** `cleaner` divides a text into segments, and `segment` cleans each of them: `rendered` and `segment_text`
//! read its characters as renderers do, `host_names` and `markup` recognise host names and markup, and `writer` writes
//! the result. `json_text` cleans the strings in a reply that must be JSON.

mod address;
mod cleaner;
mod host_names;
mod json_text;
mod markup;
pub(crate) mod rendered;
mod segment;
mod segment_text;
mod writer;

use flowgate::label::Label;
use flowgate::monitor::{Attribution, Monitor, Verdict};
use flowgate::trace::{Call, Tool, TraceEntry};
use serde_json::{Map, Value};

pub use cleaner::Cleaner;
use json_text::CleanedText;
pub use writer::{LinkDecision, LinkJudge};

use crate::placeholder::{self, StreamNeutralizer};

/// The most addresses of one reply, or of one text in a slot, that are judged; further ones are refused.
const MAX_JUDGED: usize = 200;

/// What a policy decides about addresses in text with one label, without regard to the address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LinkPolicy {
    /// Every address is permitted, whatever the state of the session.
    Any,
    /// The decision depends on the address.
    Some,
    /// No address is permitted.
    None,
}

impl LinkPolicy {
    /// Asks the policy about calls of `flowgate/link` at this label: whether it permits every address, some, or none.
    fn of(monitor: &Monitor, label: &Label) -> Self {
        let tool = Tool::of(Tool::FLOWGATE_SERVER, "link");
        if monitor.permits_any(&tool, label) {
            Self::Any
        } else if monitor.may_permit(&tool, label) {
            Self::Some
        } else {
            Self::None
        }
    }
}

/// Breaks apart every address in `text` that the policy does not permit in a text with the label `label`. Returns the
/// changed text and the refused addresses. Unless the policy permits every address, the addresses after the first
/// [`MAX_JUDGED`] are refused without being judged. `method` is the name of the conversation's method, which the
/// attribution records. `next_id` is the number of the last judged call; each judged address increases it.
pub(crate) fn disarm(
    monitor: &mut Monitor,
    method: &'static str,
    text: &str,
    label: Label,
    next_id: &mut usize,
) -> (String, Vec<String>) {
    let CleanedText { text, refused, .. } =
        DisarmedReply::new(monitor, method, label, next_id).clean(monitor, text);
    (text, refused)
}

/// Disarms a reply that must be JSON because the client demands it, as [`disarm`] does, and replaces its placeholders.
/// Both happen in the strings of the JSON, as the client decodes them. `hidden` is the number of hidden regions of the
/// view. The other parameters are those of [`disarm`].
pub(crate) fn disarm_json(
    monitor: &mut Monitor,
    method: &'static str,
    (text, hidden): (&str, usize),
    label: Label,
    next_id: &mut usize,
) -> (String, Vec<String>) {
    let mut reply = DisarmedReply::new(monitor, method, label, next_id);
    json_text::clean_json(text, &mut |text| reply.clean(monitor, &placeholder::neutralize(text, hidden)))
}

/// A reply that is being disarmed, in one or several texts.
pub(crate) struct DisarmedReply<'a> {
    policy: LinkPolicy,
    /// The name of the method that the attribution records.
    method: &'static str,
    label: Label,
    /// The number of the last judged call.
    next_id: &'a mut usize,
    /// The number of addresses found so far; only the first [`MAX_JUDGED`] are judged.
    judged: usize,
}

impl<'a> DisarmedReply<'a> {
    /// Prepares to disarm a reply whose text carries `label`: asks the policy what it decides about addresses there.
    /// `method` is the name of the method that the attribution records, and `next_id` the number of the last judged
    /// call.
    pub(crate) fn new(monitor: &Monitor, method: &'static str, label: Label, next_id: &'a mut usize) -> Self {
        Self { policy: LinkPolicy::of(monitor, &label), method, label, next_id, judged: 0 }
    }

    /// Returns whether cleaning would not change a text that is shown beside the reply: the policy refuses no address
    /// in it, and each permitted address has its canonical form already.
    pub(crate) fn leaves_unchanged(&mut self, monitor: &mut Monitor, text: &str) -> bool {
        // White space after an address only keeps it apart from further text of a reply.
        self.clean(monitor, text).text.trim() == text.trim()
    }

    /// Cleans a text of the reply. Addresses beyond the limit of the reply are refused without being judged.
    fn clean(&mut self, monitor: &mut Monitor, text: &str) -> CleanedText {
        // Where every address is permitted, nothing is changed. `has_address` is false, since it would let a caller
        // insert a space after the text.
        if self.policy == LinkPolicy::Any {
            return CleanedText { text: text.to_owned(), refused: Vec::new(), has_address: false };
        }
        let mut has_address = false;
        let mut judge = |url: &str| {
            self.judged += 1;
            let is_judged = self.policy == LinkPolicy::Some && self.judged <= MAX_JUDGED;
            if is_judged && is_permitted(monitor, self.method, url, self.label, self.next_id) {
                has_address = true;
                LinkDecision::Permitted
            } else {
                LinkDecision::Refused
            }
        };
        let (text, refused) = clean(text, &mut judge);
        CleanedText { text, refused, has_address }
    }
}

/// Breaks apart, in a text, every address that `judge` refuses, and the characters that a link needs (such as
/// `](`). Returns the disarmed text, and a list of the refused addresses and of the characters that were broken
/// apart.
pub fn clean(text: &str, judge: LinkJudge<'_>) -> (String, Vec<String>) {
    let mut cleaner = Cleaner::default();
    let mut cleaned = cleaner.push(text, judge);
    cleaned.push_str(&cleaner.finish(judge));
    (cleaned, cleaner.into_refused())
}

/// Cleans a reply while it is generated, and releases only text that is final whatever follows.
#[derive(Debug)]
pub(crate) struct StreamCleaner {
    policy: LinkPolicy,
    placeholders: StreamNeutralizer,
    cleaner: Cleaner,
    /// Whether any text was released to be shown.
    has_begun: bool,
}

impl StreamCleaner {
    /// Creates the cleaner for text generated from a view with this label and `hidden` hidden regions.
    pub(crate) fn new(monitor: &Monitor, label: &Label, hidden: usize) -> Self {
        let placeholders = StreamNeutralizer::new(hidden);
        Self { placeholders, ..Self::with_policy(LinkPolicy::of(monitor, label)) }
    }

    /// Creates the cleaner for a view without hidden regions, under this decision of the policy.
    fn with_policy(policy: LinkPolicy) -> Self {
        Self {
            policy,
            placeholders: StreamNeutralizer::default(),
            cleaner: Cleaner::default(),
            has_begun: false,
        }
    }

    /// Takes the next piece of the reply, and returns the further text that may be shown: without placeholders, and
    /// with addresses broken apart if the policy permits no address. From the first address that needs a decision,
    /// everything is held back: the whole text is judged once at the end.
    pub(crate) fn push(&mut self, piece: &str) -> String {
        let piece = self.placeholders.push(piece);
        let shown = match self.policy {
            LinkPolicy::Any => piece,
            LinkPolicy::Some => self.cleaner.push(&piece, &mut |_| LinkDecision::Unknown),
            LinkPolicy::None => self.cleaner.push(&piece, &mut |_| LinkDecision::Refused),
        };
        self.has_begun |= !shown.is_empty();
        shown
    }

    /// Returns whether the policy permits every address, so that none is broken apart.
    pub(crate) fn permits_all(&self) -> bool {
        self.policy == LinkPolicy::Any
    }

    /// Returns whether anything has been shown, which cannot be taken back.
    pub(crate) fn has_begun(&self) -> bool {
        self.has_begun
    }
}

/// Disarms every text and key in a value, which has the label `label`, as [`disarm`] does. Returns the refused
/// addresses. `method` is the name of the method that the attribution records, and `next_id` the number of the last
/// judged call.
pub(crate) fn disarm_value(
    monitor: &mut Monitor,
    method: &'static str,
    value: &mut Value,
    label: Label,
    next_id: &mut usize,
) -> Vec<String> {
    match value {
        Value::String(text) => {
            let (cleaned, refused) = disarm(monitor, method, text, label, next_id);
            *text = cleaned;
            refused
        }
        Value::Array(items) => {
            let each = items.iter_mut().map(|item| disarm_value(monitor, method, item, label, next_id));
            each.flatten().collect()
        }
        Value::Object(entries) => {
            let taken = std::mem::take(entries);
            let mut refused = Vec::new();
            for (key, mut value) in taken {
                let (mut key, more) = disarm(monitor, method, &key, label, next_id);
                refused.extend(more);
                refused.extend(disarm_value(monitor, method, &mut value, label, next_id));
                // Cleaning may have made two keys equal. Spaces are appended, so that both entries remain.
                while entries.contains_key(&key) {
                    key.push(' ');
                }
                entries.insert(key, value);
            }
            refused
        }
        _ => Vec::new(),
    }
}

/// Returns whether the policy permits an address: judges the call `flowgate/link` with the URL as its argument, as if
/// it depended on text with `label`. `method` is the name of the method that the attribution records. Increases
/// `next_id`, the number of the last judged call.
fn is_permitted(
    monitor: &mut Monitor,
    method: &'static str,
    url: &str,
    label: Label,
    next_id: &mut usize,
) -> bool {
    let mut arguments = Map::new();
    arguments.insert("url".to_owned(), Value::String(url.to_owned()));
    *next_id += 1;
    let tool = Tool::of(Tool::FLOWGATE_SERVER, "link");
    let call = Call { id: format!("link{next_id}"), tool, arguments: Ok(arguments) };
    // The call depends on a view with this label that hides no region (0).
    let verdict = monitor.judge_entry(TraceEntry::from(call), Attribution::view(method, label, 0));
    matches!(verdict, Verdict::Permit(_))
}

#[cfg(test)]
mod tests;
