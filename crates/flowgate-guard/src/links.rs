//! Addresses in text that leaves: a rendered image or link tells its host whatever stands in the address, without any
//! tool call, and leads whoever follows it to where a stranger wants them.
//!
//! Each address in a reply is judged like a call of the tool `flowgate/link` with the argument `url`, by the label of what the
//! model was shown; so is each in what fills a slot, by the label of the regions that it was filled from. Whatever begins like an
//! address counts: a scheme, a name with `@`, a name with dots that some reader takes for a host's.
//!
//! Renderers disagree about where an address ends and about what a link is, so none of their grammars is followed. An address that is
//! permitted is read as a browser reads it and written in one canonical form, with white space around it, which no renderer makes
//! longer or shorter (`address`). Everything else that an address or a link needs is broken apart, in a way that people still can
//! read: `hxxps: / /evil .example`, `] (`, `‹img`.
//!
//! A policy that says nothing of `flowgate/link` lets only what is trusted and public altogether lead anywhere; one without
//! lattices lets everything. Where every address is permitted, a text stays as it is.

mod address;
mod cleaner;
mod names;
mod segment;
pub(crate) mod view;

use flowgate::label::Label;
use flowgate::monitor::{Attribution, Monitor, Verdict};
use flowgate::trace::{Body, Call, Entry, Tool};
use serde_json::{Map, Value};

pub use cleaner::{Answer, Cleaner, Judge};

use crate::placeholder::Neutral;

/// How many addresses of one text are judged; others are refused.
const MAX_JUDGED: usize = 200;

/// What a policy says of all addresses at a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Policy {
    /// Every address is permitted, whatever has happened.
    Any,
    /// It depends on the address.
    Some,
    /// None is.
    None,
}

impl Policy {
    fn of(monitor: &Monitor, label: &Label) -> Self {
        let tool = Tool::of(Tool::OWN, "link");
        if monitor.permits_any(&tool, label) {
            Self::Any
        } else if monitor.may_permit(&tool, label) {
            Self::Some
        } else {
            Self::None
        }
    }
}

/// A text that leads only where it may, and the addresses that it does not lead to any more.
pub(crate) fn disarm(
    monitor: &mut Monitor,
    method: &'static str,
    text: &str,
    label: Label,
    next_id: &mut usize,
) -> (String, Vec<String>) {
    let policy = Policy::of(monitor, &label);
    if policy == Policy::Any {
        return (text.to_owned(), Vec::new());
    }
    let mut judged = 0;
    let mut judge = |url: &str| {
        judged += 1;
        let is_judged = policy == Policy::Some && judged <= MAX_JUDGED;
        if is_judged && is_permitted(monitor, method, url, label, next_id) {
            Answer::Permitted
        } else {
            Answer::Refused
        }
    };
    clean(text, &mut judge)
}

/// Cleans a whole text: what it becomes, and what it does not lead to any more.
pub fn clean(text: &str, judge: Judge<'_>) -> (String, Vec<String>) {
    let mut cleaner = Cleaner::default();
    let mut cleaned = cleaner.push(text, judge);
    cleaned.push_str(&cleaner.finish(judge));
    (cleaned, cleaner.refused())
}

/// What the model says, as far as it may be shown while it is being written: as it stands, whatever follows.
#[derive(Debug)]
pub(crate) struct Live {
    policy: Policy,
    placeholders: Neutral,
    cleaner: Cleaner,
    has_begun: bool,
}

impl Live {
    pub(crate) fn new(monitor: &Monitor, label: &Label) -> Self {
        Self::under(Policy::of(monitor, label))
    }

    fn under(policy: Policy) -> Self {
        Self { policy, placeholders: Neutral::default(), cleaner: Cleaner::default(), has_begun: false }
    }

    /// What may be shown besides, now that there is more. From an address on that has to be judged, everything waits for the
    /// end: it is judged once, with the whole text.
    pub(crate) fn more(&mut self, piece: &str) -> String {
        let piece = self.placeholders.push(piece);
        let shown = match self.policy {
            Policy::Any => piece,
            Policy::Some => self.cleaner.push(&piece, &mut |_| Answer::Unknown),
            Policy::None => self.cleaner.push(&piece, &mut |_| Answer::Refused),
        };
        self.has_begun |= !shown.is_empty();
        shown
    }

    /// Whether something has been shown that cannot be taken back.
    pub(crate) fn has_begun(&self) -> bool {
        self.has_begun
    }
}

/// The same for every text in a value.
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
                // Two names may have become one.
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
    let tool = Tool::of(Tool::OWN, "link");
    let call = Call { id: format!("link{next_id}"), tool, arguments: Ok(arguments) };
    let verdict = monitor.judge_entry(Entry::from(Body::Call(call)), Attribution::view(method, label, 0));
    matches!(verdict, Verdict::Permit(_))
}

#[cfg(test)]
mod tests;
