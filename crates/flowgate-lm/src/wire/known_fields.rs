//! Declares which fields the objects of a client's request may have, and what becomes of each.
//!
//! Each format has one file with its declarations, which its decoder obeys ([`super::fields`]) and which
//! `docs/wire-forms.md` lists: [`listed`] returns them all for the test that compares the two.

use super::{Api, chat_completions, messages, responses};

/// What becomes of a field.
#[derive(Debug, Clone, Copy)]
pub(super) enum FieldRule {
    /// It is understood; the text says what it becomes.
    Read(&'static str),
    /// It is dropped, for this reason.
    Dropped(&'static str),
    /// It may have these values only, as JSON, which describe what holds anyway; any other is refused for this reason.
    Only(&'static [&'static str], &'static str),
    /// It is refused, for this reason.
    Refused(&'static str),
}

/// The fields of one kind of object.
#[derive(Debug, Clone, Copy)]
pub(super) struct KnownFields {
    /// The object, as the documentation names it.
    pub(super) title: &'static str,
    /// The fields in order, each with its rule.
    pub(super) rows: &'static [(&'static str, FieldRule)],
}

impl KnownFields {
    /// Returns the rule of a field, if the field is known.
    pub(super) fn rule(&self, name: &str) -> Option<&FieldRule> {
        self.rows.iter().find(|(known, _)| *known == name).map(|(_, rule)| rule)
    }
}

/// Declares the objects of a format, and lists them in `OBJECTS`.
macro_rules! known_fields {
    ($($name:ident = $title:literal { $($field:literal: $rule:expr,)* })*) => {
        $(pub(in crate::wire) const $name: KnownFields =
            KnownFields { title: $title, rows: &[$(($field, $rule)),*] };)*
        /// All objects of the format.
        pub(in crate::wire) const OBJECTS: &[KnownFields] = &[$($name),*];
    };
}
pub(super) use known_fields;

/// A field of a request, as `docs/wire-forms.md` lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedField {
    /// The format.
    pub api: Api,
    /// The object that has the field.
    pub object: &'static str,
    /// The name of the field.
    pub field: &'static str,
    /// What becomes of it: `accepted`, `dropped`, `only` and its values, or `refused`.
    pub outcome: String,
    /// What it becomes, or why it is dropped or refused.
    pub reason: &'static str,
}

/// Returns all known fields of the requests of a format, in order.
#[must_use]
pub fn listed(api: Api) -> Vec<ListedField> {
    let objects = match api {
        Api::ChatCompletions => chat_completions::OBJECTS,
        Api::Responses => responses::OBJECTS,
        Api::Messages => messages::OBJECTS,
    };
    let row = |object: &KnownFields, (field, rule): &(&'static str, FieldRule)| {
        let (outcome, reason) = match rule {
            FieldRule::Read(reason) => ("accepted".to_owned(), *reason),
            FieldRule::Dropped(reason) => ("dropped".to_owned(), *reason),
            FieldRule::Only(values, reason) => {
                let values: Vec<String> = values.iter().map(|value| format!("`{value}`")).collect();
                (format!("only {}", values.join(", ")), *reason)
            }
            FieldRule::Refused(reason) => ("refused".to_owned(), *reason),
        };
        ListedField { api, object: object.title, field, outcome, reason }
    };
    objects.iter().flat_map(|object| object.rows.iter().map(move |known| row(object, known))).collect()
}

/// What an operator lets clients send although the format does not understand it. All of it is dropped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DroppedParts {
    /// The paths of fields, without indices: `safeguards`, `tools.vendor_hint`.
    pub fields: Vec<String>,
    /// The types of tools that the provider runs: `web_search`.
    pub tools: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A field has one rule, and every rule says why in one line of words.
    #[test]
    fn every_field_has_one_rule_with_a_reason() {
        for api in Api::ALL {
            let all = listed(api);
            for (index, row) in all.iter().enumerate() {
                let is_same = |other: &&ListedField| (other.object, other.field) == (row.object, row.field);
                assert_eq!(all.iter().position(|other| is_same(&other)), Some(index), "{row:?}");
                let is_plain = !row.reason.contains(['\n', '|']) && !row.reason.ends_with('.');
                assert!(!row.reason.is_empty() && is_plain, "{row:?}");
            }
        }
    }
}
