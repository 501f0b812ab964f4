//! Defines [`ToolForms`], which records in which form a client has declared those of its tools that are not plain
//! functions. Only the Responses API has other forms: it groups tools in namespaces, and has custom tools, which take a
//! text instead of JSON.
//!
//! In a decoded request, every tool is a function with one name and JSON arguments, so that policies deal with only one
//! form. The decoder of a request records the other forms. The encoder of the answer writes the calls in these forms.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::safeguards::SafeguardAnswer;
use crate::chat::ToolCall;

/// The name of the only argument of a custom tool when it is offered as a function; the argument is the tool's text.
const INPUT: &str = "input";

/// The form of a tool that is not a plain function.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct ToolForm {
    /// The namespace, and the name of the tool in it; `None` if the tool is in no namespace.
    pub(super) namespace: Option<(String, String)>,
    /// Whether the tool is a custom tool, whose input is a plain text instead of JSON.
    pub(super) is_custom: bool,
}

/// The forms of the tools of a request, and what the answer says about the danger of its calls.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ToolForms {
    /// The forms by the names of the tools; plain functions have no entry.
    forms: BTreeMap<String, ToolForm>,
    /// What the answer says about the danger of its calls; `None` if the request does not ask for verdicts.
    safeguards: Option<SafeguardAnswer>,
}

/// The forms of a request whose tools are all plain functions, and that does not ask for verdicts.
pub static ONLY_FUNCTIONS: ToolForms = ToolForms { forms: BTreeMap::new(), safeguards: None };

impl ToolForms {
    /// Returns whether all tools of the request are plain functions.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.forms.is_empty()
    }

    /// Records that the request asks, in its field `safeguards`, whether the calls of the answer are dangerous. The
    /// answer will say [`SafeguardAnswer::Unsupported`] unless [`Self::answer_safeguards`] sets another value.
    pub(super) fn ask_for_verdicts(&mut self) {
        self.safeguards = Some(SafeguardAnswer::default());
    }

    /// Sets what the answer says about the danger of its calls. Has no effect if the request does not ask for verdicts.
    pub fn answer_safeguards(&mut self, answer: SafeguardAnswer) {
        self.safeguards = self.safeguards.map(|_| answer);
    }

    /// Returns the field `safeguard_results` of an answer with these calls, which has the verdict on each call, or says
    /// that the gateway gives none. `None` if the request does not ask for verdicts.
    pub(super) fn safeguard_results(&self, calls: &[ToolCall]) -> Option<Value> {
        self.safeguards.map(|answer| answer.results(calls))
    }

    /// Records the form of the tool `name`, in place of the form of an earlier tool with this name. A plain function
    /// has no entry.
    pub(super) fn insert(&mut self, name: &str, form: ToolForm) {
        if form == ToolForm::default() {
            self.forms.remove(name);
        } else {
            self.forms.insert(name.to_owned(), form);
        }
    }

    /// Returns the form of a tool; `None` for a plain function.
    pub(super) fn of(&self, name: &str) -> Option<&ToolForm> {
        self.forms.get(name)
    }
}

/// Returns the name under which a tool in a namespace is known to the policies and to the model.
pub(super) fn qualified_name(namespace: &str, name: &str) -> String {
    format!("{namespace}__{name}")
}

/// Returns the JSON arguments of a call of a custom tool, whose input is the text `input`.
pub(super) fn custom_arguments(input: &str) -> String {
    json!({INPUT: input}).to_string()
}

/// Returns the text that a custom tool receives, from the JSON arguments of a call: an object whose only field is
/// `input`. Arguments of any other form, which a model can write although [`custom_schema`] does not permit them, are
/// returned unchanged.
pub(super) fn custom_input(arguments: &str) -> String {
    let parsed: Option<Value> = serde_json::from_str(arguments).ok();
    let only = parsed.as_ref().and_then(Value::as_object).filter(|object| object.len() == 1);
    let input = only.and_then(|object| object.get(INPUT)).and_then(Value::as_str);
    input.unwrap_or(arguments).to_owned()
}

/// Returns the schema of the arguments of a custom tool in the form of a function: one string, the tool's text.
pub(super) fn custom_schema() -> Value {
    json!({
        "type": "object",
        "properties": {INPUT: {"type": "string"}},
        "required": [INPUT],
        "additionalProperties": false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_survives_the_arguments() {
        for text in ["", "*** Begin Patch\n\"x\"\n", "{\"input\":1}"] {
            assert_eq!(custom_input(&custom_arguments(text)), text);
        }
        for other in ["{}", "{\"input\":1}", "{\"input\":\"a\",\"more\":1}", "not json"] {
            assert_eq!(custom_input(other), other);
        }
    }
}
