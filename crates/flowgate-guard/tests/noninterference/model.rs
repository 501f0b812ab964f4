//! Implements an adversarial model: everything that it is shown influences everything that it writes.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use flowgate_lm::chat::{Completion, Message, Part, Request, Stop, ToolCall, Usage};
use serde_json::{Value, json};

use crate::random::Random;

/// Returns the answer of a screener's model, which depends on the whole request.
pub(crate) fn chosen(request: &Request) -> Completion {
    let shown = format!("{request:?}");
    let mut random = Random::of(&shown);
    let names: Vec<String> = (1..6).filter(|_| random.chance(40)).map(|n| format!("h{n}")).collect();
    let arguments = json!({"reasoning": "", "regions": names}).to_string();
    let arguments = if random.chance(5) { "no".to_owned() } else { arguments };
    let call = ToolCall { id: "x".to_owned(), name: "needed_regions".to_owned(), arguments };
    // The judge calls a tool, and introspection cites regions in its text.
    let cited = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    let text = if random.chance(5) { String::new() } else { format!("CITED: {cited}") };
    Completion { text, calls: vec![call], ..Completion::default() }
}

/// Returns the content of a slot: everything that was shown, or the value that the instruction asks for.
pub(crate) fn filled(request: &Request) -> Completion {
    let text = typed(request).unwrap_or_else(|| format!("{:?}", request.messages));
    Completion { text, ..Completion::default() }
}

/// Returns a value of a kind that policies endorse, if the instruction asks for one. An endorsement is a
/// declared release of the value. The value is equal in both runs, because it depends only on the
/// instruction, which is not hidden.
pub(crate) fn typed(request: &Request) -> Option<String> {
    let Some(Message::User(parts)) = request.messages.last() else { return None };
    let Some(Part::Text(text)) = parts.first() else { return None };
    // Quotes in the texts are escaped.
    let (_, rest) = text.split_once("\"instruction\": \"write ")?;
    Some(rest.split_once('"')?.0.to_owned())
}

pub(crate) fn is_typed(value: &Value) -> bool {
    value.as_str().is_some_and(|text| TYPED.contains(&text))
}

/// A region of the slot in the argument `b`.
pub(crate) struct TypedSlot {
    pub(crate) region: String,
    /// Whether the slot is to be filled with a value that the instruction states.
    pub(crate) is_written: bool,
}

/// Returns the regions of the slot in the argument `b` of a call.
pub(crate) fn typed_slots(arguments: &str) -> Vec<TypedSlot> {
    let arguments: Value = serde_json::from_str(arguments).unwrap_or_default();
    let slot = &arguments["b"]["$slot"];
    let is_written = slot["fill"].as_str().is_some_and(|fill| fill.starts_with("write "));
    let regions = slot["regions"].as_array().into_iter().flatten();
    let regions = regions.filter_map(Value::as_str);
    regions.map(|region| TypedSlot { region: region.to_owned(), is_written }).collect()
}

const TYPED: [&str; 5] = ["2024-05-19", "2023-01-02", "12:00", "13:00", "ann@example.org"];

pub(crate) fn worst(request: &Request, shown: &str) -> Completion {
    let mut random = Random::of(shown);
    let mut names: Vec<String> = Vec::new();
    for (at, _) in shown.match_indices("[hidden h") {
        let digits: String = shown[at + 9..].chars().take_while(char::is_ascii_digit).collect();
        names.push(format!("h{digits}"));
    }
    let usage = Usage { input: shown.len() as u64, output: random.next() % 100, cached: 0 };
    let stop = [Stop::End, Stop::Length][random.below(2)];
    let mut completion = Completion { usage, stop, ..Completion::default() };
    if random.chance(50) {
        let link = if random.chance(20) { " see https://a.example/x" } else { "" };
        completion.text = format!("{:x} {}{link}", random.next(), copied(&mut random, shown));
    }
    if request.tools.is_empty() {
        return completion;
    }
    for index in 0..random.below(4) {
        let mut arguments: BTreeMap<&str, Value> = BTreeMap::new();
        let tool = &request.tools[random.below(request.tools.len())];
        let mut name = tool.name.clone();
        if tool.name == "look" {
            let regions: Vec<&String> =
                (0..1 + random.below(2)).map(|_| &names[random.below(names.len())]).collect();
            arguments.insert("regions", json!(regions));
            arguments.insert("then_return", json!(random.chance(60)));
        } else {
            arguments.insert("a", Value::String(copied(&mut random, shown)));
            if !names.is_empty() && random.chance(50) {
                arguments.insert("b", json!({"$slot": slot(&mut random, &names, shown)}));
            } else if random.chance(30) {
                arguments.insert("b", Value::String(copied(&mut random, shown)));
            } else if random.chance(30) {
                // A word that answers contain, trusted or not.
                arguments.insert("b", json!(random.of_list(&["me", "you", "ann", "web"])));
            }
            if !names.is_empty() && random.chance(30) {
                arguments.insert("c", json!({"$slot": slot(&mut random, &names, shown)}));
            }
        }
        if random.chance(3) {
            let _ = write!(name, "_{}", random.next());
        }
        let spaces = " ".repeat(random.below(3));
        let fields: Vec<String> =
            arguments.iter().map(|(key, value)| format!("{spaces}{key:?}: {value}")).collect();
        let arguments = format!("{{{}}}", fields.join(","));
        completion.stop = Stop::Calls;
        completion.calls.push(ToolCall { id: format!("{index}{:x}", random.next()), name, arguments });
    }
    completion
}

fn slot(random: &mut Random, names: &[String], shown: &str) -> Value {
    let mut slot = json!({"regions": [names[random.below(names.len())]]});
    match random.below(10) {
        0..=3 => {}
        4..=6 => slot["fill"] = json!(copied(random, shown)),
        _ => slot["fill"] = json!(format!("write {}", random.of_list(&TYPED))),
    }
    slot
}

/// Returns a part of the view, or a word that policies compare with.
pub(crate) fn copied(random: &mut Random, shown: &str) -> String {
    if random.chance(50) {
        return random.of_list(&["me", "you", "secret", "x", "ann", "web", "2024-05-19"]).to_owned();
    }
    let characters: Vec<char> = shown.chars().collect();
    let start = random.below(characters.len());
    characters.iter().skip(start).take(random.below(60)).collect()
}
