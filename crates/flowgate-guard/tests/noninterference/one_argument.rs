//! Adds to a policy statements by which one argument of each tool does not flow into a part of its answers: in few other
//! cases is that argument hidden, and the rest of the call visible.

use std::fmt::Write as _;

use flowgate_lm::chat::Completion;
use serde_json::{Value, json};

use crate::declared_policy::{
    DeclaredCondition, DeclaredIndependence, DeclaredPolicy, LabelDeclaration, PartSelector,
};
use crate::form_focus::{exact, hidden_regions};
use crate::random::Random;
use crate::space::CaseDimensions;
use crate::tools::CaseTools;

/// Adds for each tool the statement about the argument `b`, and lets hidden text pass in `b`.
pub(crate) fn add(
    seed: u64,
    space: &CaseDimensions,
    tools: &CaseTools,
    text: &mut String,
    declared: &mut DeclaredPolicy,
) {
    let mut random = Random::of(&format!("one argument {seed}"));
    for offered in tools.offered() {
        let pattern = exact(&offered.tool);
        let (label, most) = (space.bottom(), space.high(&mut random).text);
        let _ = write!(
            text,
            "label capture(out.content.s, r\"n=(?<n>[0-9]) .*\", \"n\") as {} independent of arguments.b if:\n    \
             (out: ToolOutput) is tool:{pattern}\n\
             require {most} if:\n    (call: ToolCall) is tool:{pattern}\n\
             payload call.arguments.b if:\n    (call: ToolCall) is tool:{pattern}\n",
            label.text
        );
        declared.harmless.retain(|harmless| !DeclaredPolicy::speaks_of(harmless, &offered.tool));
        declared.payload.push(pattern.clone());
        declared.answers.push(LabelDeclaration {
            pattern,
            target: vec![PartSelector::Key("content"), PartSelector::Key("s")],
            capture: Some("n"),
            grant: label.grant,
            condition: DeclaredCondition::Always,
            independence: DeclaredIndependence::OfB,
        });
    }
}

/// Leaves hidden text to the argument `b` of most calls, and to another argument of few.
pub(crate) fn replace_arguments(completion: &mut Completion, shown: &str) {
    let mut random = Random::of(&format!("hidden arguments {shown}"));
    let hidden = hidden_regions(shown);
    for call in completion.calls.iter_mut().filter(|call| call.name != "look") {
        let Ok(Value::Object(mut arguments)) = serde_json::from_str(&call.arguments) else { continue };
        if !hidden.is_empty() && random.chance(80) {
            let region = &hidden[random.below(hidden.len())];
            arguments.insert("b".to_owned(), json!({"$slot": {"regions": [region]}}));
        }
        if random.chance(75) {
            arguments.remove("c");
        }
        call.arguments = Value::Object(arguments).to_string();
    }
}
