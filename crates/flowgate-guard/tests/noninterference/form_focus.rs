//! Gives each tool of some cases one statement of one form, and lets the model write values that fit it, so that every form
//! takes effect: see [`crate::forms`].

use std::fmt::Write as _;

use flowgate::trace::Tool;
use flowgate_guard::{DescriptionAuthor, OfferedTool};
use flowgate_lm::chat::{Completion, Stop, ToolCall, ToolSpec};
use serde_json::{Value, json};

use crate::declared_policy::{
    DeclaredCondition, DeclaredIndependence, DeclaredPolicy, LabelDeclaration, PartSelector,
};
use crate::forms::{FORMS, StatementForm, statements};
use crate::oracle_label::DimensionElement;
use crate::random::Random;
use crate::space::{CaseDimensions, WrittenLabel};
use crate::tools::CaseTools;

/// What an answer of a tool says after a text, so that the answer names hosts.
const LINKS_OF_ANSWERS: &str = " at https://wiki.example.edu/ and https://a1.college.ac.uk/y";

/// The form of the statement about each tool.
pub(crate) struct FormFocus {
    forms: Vec<(Tool, &'static StatementForm)>,
    /// The name of the tool that the model calls most often, so that calls are repeated.
    favourite: String,
}

impl FormFocus {
    /// Replaces what a policy says about the argument `b` of its tools: each tool has a statement of one form, and a
    /// requirement that calls exceed without it. Some answers are trusted and public, so that they list values, and some
    /// are trusted and private, which consents are about.
    pub(crate) fn new(
        seed: u64,
        space: &CaseDimensions,
        tools: &CaseTools,
        text: &mut String,
        declared: &mut DeclaredPolicy,
    ) -> Self {
        let mut random = Random::of(&format!("one form for each tool {seed}"));
        let is_replaced = |statement: &String| {
            ["payload call.arguments.b", "endorse ", "unsafe endorse ", "consent "]
                .iter()
                .any(|head| statement.starts_with(head))
        };
        *text = statements(text).into_iter().filter(|statement| !is_replaced(statement)).collect();
        declared.payload.clear();
        declared.endorsed.clear();
        let rare: Vec<&StatementForm> = FORMS.iter().filter(|form| form.is_rare()).collect();
        let mut form = || match random.chance(50) {
            true => rare[random.below(rare.len())],
            false => &FORMS[random.below(FORMS.len())],
        };
        let forms: Vec<(Tool, &StatementForm)> = tools.all().into_iter().map(|tool| (tool, form())).collect();
        for (tool, form) in &forms {
            // A question can be granted if every reason comes from a statement with a scope.
            if random.chance(60) {
                remove(text, "require ", tool);
                declared.harmless.retain(|pattern| !DeclaredPolicy::speaks_of(pattern, tool));
                let most = space.high(&mut random).text;
                let _ = writeln!(text, "require {most} if:\n    (call: ToolCall) is tool:{}", exact(tool));
            }
            let pattern = exact(tool);
            let most = if form.is_consent() { "trusted, public" } else { "trusted" };
            let _ = writeln!(
                text,
                "require {most} for call.arguments.b if:\n    (call: ToolCall) is tool:{pattern}"
            );
            form.write(pattern, text, declared);
        }
        let start = random.below(forms.len());
        for (offset, secrecy) in [(0, "public"), (1, "private"), (2, "private")] {
            let (tool, _) = &forms[(start + offset) % forms.len()];
            remove(text, "label out", tool);
            remove(text, "label capture(", tool);
            // The labels of rows begin with another word, and stay.
            declared.answers.retain(|labels| {
                labels.condition.is_of_rows() || !DeclaredPolicy::speaks_of(&labels.pattern, tool)
            });
            let WrittenLabel { text: label, mut grant } = space.bottom();
            if secrecy == "private" {
                grant.parts[1].1 = DimensionElement::Rank(2);
            }
            let (label, pattern) = (label.replace("public", secrecy), exact(tool));
            let _ =
                writeln!(text, "label out.content as {label} if:\n    (out: ToolOutput) is tool:{pattern}");
            declared.answers.push(LabelDeclaration {
                pattern,
                target: vec![PartSelector::Key("content")],
                capture: None,
                grant,
                condition: DeclaredCondition::Always,
                independence: DeclaredIndependence::Undeclared,
            });
        }
        let favourite = forms[random.below(forms.len())].0.name.to_string();
        Self { forms, favourite }
    }

    /// Declares that the argument is a number where a consent limits a sum, so that a slot is filled with one. A server's own
    /// schema may be hidden, and stays as it is.
    pub(crate) fn declare_numbers(&self, offered: &mut [OfferedTool]) {
        let described = offered.iter_mut().filter(|offered| offered.words == DescriptionAuthor::Operator);
        for offered in described {
            if self.forms.iter().any(|(tool, form)| *tool == offered.tool && form.takes_numbers()) {
                offered.parameters =
                    json!({"type": "object", "properties": {"a": {}, "b": {"type": "number"}, "c": {}}})
                        .into();
            }
        }
    }

    /// Puts values that fit the statement about the tool in place of most arguments, depending on everything that the
    /// model was shown. A slot is to be filled with such a value. Looks more often, if the model may.
    pub(crate) fn replace_arguments(&self, completion: &mut Completion, shown: &str, offered: &[ToolSpec]) {
        let mut random = Random::of(&format!("fitting values {shown}"));
        let hidden = hidden_regions(shown);
        let favourite = offered.iter().find(|tool| tool.name.ends_with(&self.favourite));
        let can_look = offered.iter().any(|tool| tool.name == "look");
        if can_look && !hidden.is_empty() && random.chance(35) {
            let regions = [&hidden[random.below(hidden.len())]];
            let arguments = json!({"regions": regions, "then_return": random.chance(30)}).to_string();
            let id = format!("l{:x}", random.next());
            completion.calls.push(ToolCall { id, name: "look".to_owned(), arguments });
            completion.stop = Stop::Calls;
        }
        for call in &mut completion.calls {
            if let Some(tool) = favourite.filter(|_| call.name != "look" && random.chance(60)) {
                call.name.clone_from(&tool.name);
            }
            // A tool of two servers has a longer name for the model.
            let of_call = self.forms.iter().find(|(tool, _)| call.name.ends_with(&*tool.name));
            let Some((_, form)) = of_call else { continue };
            let Ok(Value::Object(mut arguments)) = serde_json::from_str(&call.arguments) else { continue };
            if random.chance(85) {
                arguments.insert("a".to_owned(), json!("me"));
            }
            if random.chance(90) {
                arguments.remove("c");
            }
            // A text would end a consent with a limit of a sum.
            if form.is_consent() || random.chance(85) {
                let value = form.value(&mut random, shown);
                let region = hidden.get(random.below(hidden.len()));
                let value = match region.zip(form.slot_text(&value)) {
                    Some((region, text)) if random.chance(60) => {
                        json!({"$slot": {"regions": [region], "fill": format!("write {text}")}})
                    }
                    _ => value,
                };
                arguments.insert("b".to_owned(), value);
            }
            call.arguments = Value::Object(arguments).to_string();
        }
    }
}

/// Returns the names of the hidden regions in a view.
pub(crate) fn hidden_regions(shown: &str) -> Vec<String> {
    let digits = |text: &str| text.chars().take_while(char::is_ascii_digit).collect::<String>();
    shown.split("[hidden h").skip(1).map(|text| format!("h{}", digits(text))).collect()
}

/// Removes the statements that begin with a text and are about a tool from a policy.
fn remove(policy: &mut String, head: &str, tool: &Tool) {
    let is_about = |statement: &str| {
        let pattern = statement.lines().nth(1).and_then(|line| line.split_once(" is tool:"));
        pattern.is_some_and(|(_, pattern)| DeclaredPolicy::speaks_of(pattern, tool))
    };
    let is_kept = |statement: &String| !statement.starts_with(head) || !is_about(statement);
    *policy = statements(policy).into_iter().filter(is_kept).collect();
}

/// Returns a pattern that matches a tool and no tool of another server, if the tool has a server.
pub(crate) fn exact(tool: &Tool) -> String {
    match &tool.server {
        Some(server) => format!("{server}/{}", tool.name),
        None => tool.name.to_string(),
    }
}

/// Puts into an answer words that the model writes, and hosts.
pub(crate) fn add_to_answer(answer: &mut Value) {
    let mut random = Random::of(&format!("in answers {answer}"));
    let Some(answer) = answer.as_object_mut() else { return };
    let words = ["me", "you"];
    if let Some(key) = answer.get_mut("k").filter(|_| random.chance(80)) {
        *key = json!(random.of_list(&words));
    }
    for row in answer.get_mut("rows").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(y) = row.get_mut("y").filter(|_| random.chance(60)) {
            *y = json!(random.of_list(&words));
        }
    }
    if random.chance(60)
        && let Some(Value::String(text)) = answer.get_mut("s")
    {
        text.push_str(LINKS_OF_ANSWERS);
    }
}
