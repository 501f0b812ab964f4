//! Defines how a wire format (such as chat completions) declares the fields that the objects of a client's request may
//! have: for each field, a rule says whether it is read, dropped, restricted to some values, or refused.
//!
//! The file of each format contains these declarations, made with [`known_fields!`], below the descriptor of the format
//! (`FORM`). The decoder of the format refuses requests that violate the declarations ([`super::fields`]). The document
//! `docs/wire-forms.md` lists all declared fields; [`listed`] returns them for the test that compares the document with
//! the declarations.
//!
//! This module also defines [`DecodeOptions`], by which a caller accepts more in the requests of one client.

use std::fmt;

use super::Api;
use crate::chat::ProviderTool;

/// How the decoder treats a field.
#[derive(Debug, Clone, Copy)]
pub(super) enum FieldRule {
    /// The field is read; the text describes what it means or how it is used.
    Read(&'static str),
    /// The field is dropped, for this reason.
    Dropped(&'static str),
    /// The field may have only these values (as JSON), with which it asks for what the gateway does in any case. Any
    /// other value is refused, for this reason.
    Only(&'static [&'static str], &'static str),
    /// The field is refused, for this reason.
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
    /// Returns the rule of the field `name`; `None` if the field is not declared.
    pub(super) fn rule(&self, name: &str) -> Option<&FieldRule> {
        self.rows.iter().find(|(known, _)| *known == name).map(|(_, rule)| rule)
    }
}

/// Declares one constant of type [`KnownFields`] for each kind of object of a format, and lists them in `OBJECTS`.
macro_rules! known_fields {
    ($($name:ident = $title:literal { $($field:literal: $rule:expr,)* })*) => {
        $(pub(in crate::wire) const $name: KnownFields =
            KnownFields { title: $title, rows: &[$(($field, $rule)),*] };)*
        /// All objects of the format.
        pub(in crate::wire) const OBJECTS: &[KnownFields] = &[$($name),*];
    };
}
pub(super) use known_fields;

/// How the decoder treats a field of a request, as [`listed`] reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FieldOutcome {
    /// The field is read.
    Accepted,
    /// The field is dropped.
    Dropped,
    /// The field may have only these values, as JSON.
    Only(&'static [&'static str]),
    /// A request with the field is refused.
    Refused,
}

impl fmt::Display for FieldOutcome {
    /// Writes the outcome as `docs/wire-forms.md` contains it: `accepted`, `dropped`, `refused`, or `only` with the
    /// permitted values.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Accepted => f.write_str("accepted"),
            Self::Dropped => f.write_str("dropped"),
            Self::Only(values) => {
                let values: Vec<String> = values.iter().map(|value| format!("`{value}`")).collect();
                write!(f, "only {}", values.join(", "))
            }
            Self::Refused => f.write_str("refused"),
        }
    }
}

/// A field of a request, as `docs/wire-forms.md` lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedField {
    /// The format.
    pub api: Api,
    /// The object that has the field.
    pub object: &'static str,
    /// The name of the field.
    pub field: &'static str,
    /// How the decoder treats the field.
    pub outcome: FieldOutcome,
    /// What the field means or how it is used, or why it is dropped or refused.
    pub reason: &'static str,
}

/// Returns all known fields of the requests of a format, in order: the rows of the table in `docs/wire-forms.md`.
#[must_use]
pub fn listed(api: Api) -> Vec<ListedField> {
    listed_rows(api, api.form().objects)
}

/// Returns the rows that `docs/wire-forms.md` has for the objects of the format `api`: one for each field that
/// `objects` declare, in order.
pub(super) fn listed_rows(api: Api, objects: &[KnownFields]) -> Vec<ListedField> {
    let row = |object: &KnownFields, (field, rule): &(&'static str, FieldRule)| {
        let (outcome, reason) = match rule {
            FieldRule::Read(reason) => (FieldOutcome::Accepted, *reason),
            FieldRule::Dropped(reason) => (FieldOutcome::Dropped, *reason),
            FieldRule::Only(values, reason) => (FieldOutcome::Only(values), *reason),
            FieldRule::Refused(reason) => (FieldOutcome::Refused, *reason),
        };
        ListedField { api, object: object.title, field, outcome, reason }
    };
    objects.iter().flat_map(|object| object.rows.iter().map(move |known| row(object, known))).collect()
}

/// What a decoder accepts in the requests of one client, in addition to what it supports for all clients.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DecodeOptions {
    /// The paths of fields that are dropped instead of being rejected, without the indices of lists: for example
    /// `diagnostics`, `tools.vendor_hint`.
    pub dropped_fields: Vec<String>,
    /// The types of tools of the provider that are dropped instead of being rejected: for example `image_generation`.
    pub dropped_tools: Vec<String>,
    /// The tools of the provider that a client may ask for, because the caller has the provider run each call in a
    /// separate request. They are offered to the model as functions.
    pub provider_tools: Vec<ProviderTool>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A field of an object has one rule, and the text of every rule is one line that the table can contain.
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
