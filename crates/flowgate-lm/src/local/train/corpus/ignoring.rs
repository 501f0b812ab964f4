//! Generates outputs of tools, and calls that ignore them because all their arguments come from the request of the
//! user: [`ignoring_example`]. A model that was trained only on calls with values of outputs would always copy from an
//! output. [`Corpus`](super::Corpus) calls this module.

use super::draw::Draw;
use super::tool_call::{FIELDS, TOOLS, contact, output};
use super::{CONTENT, Example, ExampleKind, SCAFFOLD, VALUE};

/// The number of requests of the user in one example, each with one call.
const CALLS: usize = 2;

/// Generates the outputs of several tools, and requests that state all values of their calls. The calls have the same
/// form as those of `tool_call.rs`, so the model must read the request to decide whether to copy from an output. A
/// request can name a person and a field of an output, but with another value.
pub(super) fn ignoring_example(draw: &mut Draw) -> Example {
    let contacts: Vec<_> = (0..2 + draw.below(3)).map(|_| contact(draw)).collect();
    let mut outputs = String::new();
    for (number, contact) in contacts.iter().enumerate() {
        outputs.push_str(&format!("[tool {number}]\n{}\n", output(draw, contact)));
    }
    let mut parts: Vec<(String, f32)> = vec![(outputs.clone(), CONTENT)];
    for _ in 0..CALLS {
        // Half of the requests name a person of an output, the others a new person.
        let known = contacts.get(draw.below(contacts.len())).map(|contact| contact.name.clone());
        let name = known.filter(|_| draw.below(2) == 0).unwrap_or_else(|| draw.name());
        let facts = new_facts(draw, &outputs);
        let stated: Vec<String> = facts.iter().map(|(field, value)| format!("{field} {value}")).collect();
        let ask = draw.pick(&["update", "write down for", "use for"]);
        parts.push((format!("User: {ask} {name}: {}.\n", stated.join(", ")), CONTENT));
        parts.push((format!("Call: {}(", draw.pick(TOOLS)), SCAFFOLD));
        for (at, (field, value)) in facts.iter().enumerate() {
            let separator = if at == 0 { "" } else { ", " };
            parts.push((format!("{separator}\"{field}\": \""), SCAFFOLD));
            parts.push((value.clone(), VALUE));
            parts.push(("\"".to_owned(), SCAFFOLD));
        }
        parts.push((")\n".to_owned(), SCAFFOLD));
    }
    Example { kind: ExampleKind::Ignoring, parts }
}

/// Draws one or two fields, each with a value that is not in `outputs`. If 100 draws find no such value, the value is
/// the empty text.
fn new_facts(draw: &mut Draw, outputs: &str) -> Vec<(&'static str, String)> {
    let count = 1 + draw.below(2);
    let mut facts = Vec::new();
    for field in draw.pick_several(FIELDS, count) {
        let form = draw.form();
        // A value that is also in an output could have been copied from there, so it is drawn again, at most 100 times.
        let value =
            std::iter::repeat_with(|| draw.value(form)).take(100).find(|value| !outputs.contains(value));
        facts.push((field, value.unwrap_or_default()));
    }
    facts
}
