//! Generates training examples with outputs of tools, and with calls that each copy all their arguments from one
//! output: [`tool_call_example`]. The model learns from them to copy values from the regions of a text.
//! [`Corpus`](super::Corpus) calls this module, and `ignoring.rs` uses its outputs and its names of fields and tools.

use super::draw::Draw;
use super::{CONTENT, Example, ExampleKind, SCAFFOLD, VALUE};

/// The names of the facts about a person.
pub(super) const FIELDS: &[&str] =
    &["phone", "email", "city", "account", "birthday", "employer", "badge", "room"];
/// The names of the tools that are called.
pub(super) const TOOLS: &[&str] =
    &["send_money", "create_event", "update_contact", "reserve_room", "send_email", "open_ticket"];

/// The number of requests of the user in one example, each with one call.
const CALLS: usize = 2;

/// Facts about one person: the name of the person, and names and values of fields.
pub(super) struct Contact {
    pub(super) name: String,
    facts: Vec<(&'static str, String)>,
}

/// Generates the outputs of several tools in different formats, each with facts about one person. [`CALLS`] requests of
/// the user follow. Each request names one of the persons, and is followed by a call with all facts about this person.
/// Each part of the example has the weight of its tokens in the loss: only the values in calls, which are copied, have
/// the full weight.
pub(super) fn tool_call_example(draw: &mut Draw) -> Example {
    let contacts: Vec<Contact> = (0..2 + draw.below(3)).map(|_| contact(draw)).collect();
    let mut outputs = String::new();
    for (number, contact) in contacts.iter().enumerate() {
        outputs.push_str(&format!("[tool {number}]\n{}\n", output(draw, contact)));
    }
    let mut parts: Vec<(String, f32)> = vec![(outputs, CONTENT)];
    for _ in 0..CALLS {
        let Some(Contact { name, facts }) = contacts.get(draw.below(contacts.len())) else { continue };
        parts.push((format!("User: use the contact of {name}.\n"), CONTENT));
        parts.push((format!("Call: {}(", draw.pick(TOOLS)), SCAFFOLD));
        for (at, (field, value)) in facts.iter().enumerate() {
            let separator = if at == 0 { "" } else { ", " };
            parts.push((format!("{separator}\"{field}\": \""), SCAFFOLD));
            parts.push((value.clone(), VALUE));
            parts.push(("\"".to_owned(), SCAFFOLD));
        }
        parts.push((")\n".to_owned(), SCAFFOLD));
    }
    Example { kind: ExampleKind::ToolCall, parts }
}

/// Draws a contact with two or three facts.
pub(super) fn contact(draw: &mut Draw) -> Contact {
    let count = 2 + draw.below(2);
    let fields = draw.pick_several(FIELDS, count);
    let facts = fields
        .into_iter()
        .map(|field| {
            let form = draw.form();
            (field, draw.value(form))
        })
        .collect();
    Contact { name: draw.name(), facts }
}

/// Returns the facts about a contact as the output of a tool, in a random format: JSON, YAML, a table or a mail.
pub(super) fn output(draw: &mut Draw, Contact { name, facts }: &Contact) -> String {
    // Returns all facts, each written by `form`, with `separator` between them.
    let line = |form: &dyn Fn(&str, &str) -> String, separator: &str| {
        facts.iter().map(|(field, value)| form(field, value)).collect::<Vec<_>>().join(separator)
    };
    match draw.below(4) {
        0 => format!("{{\"name\": \"{name}\", {}}}", line(&|f, v| format!("\"{f}\": \"{v}\""), ", ")),
        1 => format!("- name: {name}\n{}", line(&|f, v| format!("  {f}: {v}"), "\n")),
        2 => format!(
            "| name | {} |\n| {name} | {} |",
            line(&|f, _| f.to_owned(), " | "),
            line(&|_, v| v.to_owned(), " | ")
        ),
        _ => format!("From: {name}\nSubject: contact\n\n{}", line(&|f, v| format!("My {f} is {v}."), " ")),
    }
}
