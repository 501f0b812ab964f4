//! Generates outputs of tools, and a call whose arguments are copied from one of them: [`tool_call`].

use super::draw::Draw;
use super::{CONTENT, Example, ExampleKind, SCAFFOLD, VALUE};

/// The names of the facts about a person.
const FIELDS: &[&str] = &["phone", "email", "city", "account", "birthday", "employer", "badge", "room"];
/// The names of the tools that are called.
const TOOLS: &[&str] =
    &["send_money", "create_event", "update_contact", "reserve_room", "send_email", "open_ticket"];

/// Generates the outputs of several tools in different formats, each with facts about one person, and a call with the
/// facts about one of them (`needed`), whom the user names at the beginning.
pub(super) fn tool_call(draw: &mut Draw) -> Example {
    let count = 2 + draw.below(3);
    let needed = draw.below(count);
    let mut parts: Vec<(String, f32)> = Vec::new();
    let mut call = Vec::new();
    for number in 0..count {
        let how_many = 2 + draw.below(2);
        let record: Vec<(&str, String)> = draw
            .pick_several(FIELDS, how_many)
            .into_iter()
            .map(|field| {
                let form = draw.form();
                (field, draw.value(form))
            })
            .collect();
        // All fields of the record, each in this form.
        let line = |form: &dyn Fn(&str, &str) -> String, separator: &str| {
            record.iter().map(|(field, value)| form(field, value)).collect::<Vec<_>>().join(separator)
        };
        let name = draw.name();
        let body = match draw.below(4) {
            0 => format!("{{\"name\": \"{name}\", {}}}", line(&|f, v| format!("\"{f}\": \"{v}\""), ", ")),
            1 => format!("- name: {name}\n{}", line(&|f, v| format!("  {f}: {v}"), "\n")),
            2 => format!(
                "| name | {} |\n| {name} | {} |",
                line(&|f, _| f.to_owned(), " | "),
                line(&|_, v| v.to_owned(), " | ")
            ),
            _ => {
                format!("From: {name}\nSubject: contact\n\n{}", line(&|f, v| format!("My {f} is {v}."), " "))
            }
        };
        parts.push((format!("[tool {number}]\n{body}\n"), CONTENT));
        if number == needed {
            parts.insert(0, (format!("User: use the contact of {name}.\n"), CONTENT));
            call = record.clone();
        }
    }
    parts.push((format!("Call: {}(", draw.pick(TOOLS)), SCAFFOLD));
    for (at, (field, value)) in call.iter().enumerate() {
        let separator = if at == 0 { "" } else { ", " };
        parts.push((format!("{separator}\"{field}\": \""), SCAFFOLD));
        parts.push((value.clone(), VALUE));
        parts.push(("\"".to_owned(), SCAFFOLD));
    }
    parts.push((")".to_owned(), SCAFFOLD));
    Example { kind: ExampleKind::ToolCall, parts }
}
