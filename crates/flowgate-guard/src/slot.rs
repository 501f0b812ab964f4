//! Defines `look` and slots, the two ways in which a model works with regions that it may not see.
//!
//! With the tool `look` a model requests hidden regions by name, and the label of the following steps rises. In an
//! argument that the policy declares as payload, or for which it has a consent or an endorsement, the model may leave a
//! *slot* instead: a reference to hidden regions. The regions are copied unchanged, or passed to the filler, a separate
//! generation that has no tools and is shown only the call and those regions. With slots, the list of calls, their
//! order, their tools and all other arguments are fixed before anything hidden is read.
//!
//! A placeholder (the text shown in place of a hidden region) that the model writes as text where a slot is allowed
//! refers to the region. The region is copied into its place, the surrounding text stays, and the argument is judged
//! as a slot. [`crate::conversation`] parses slots and looks with this module, and offers them to the model.

use serde_json::{Map, Value, json};

use crate::placeholder;

/// The name of the tool `look`.
pub const LOOK: &str = "look";

/// The only key of a slot.
const SLOT: &str = "$slot";

/// The maximum number of regions that one slot or one look may name.
const MAX_NAMES: usize = 50;

/// The most characters that a refusal repeats of a name that no hidden region has.
const MAX_REPEATED_NAME: usize = 20;

/// A slot: an argument that is filled with hidden regions after the call was decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot {
    /// The names of the regions from which it is filled.
    pub names: Vec<String>,
    /// The instruction to the filler; `None` to copy the regions unchanged.
    pub fill: Option<String>,
    /// The argument as the model wrote it, if it refers to the regions by placeholders in its texts.
    pub(crate) template: Option<Value>,
}

/// A request to see hidden regions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LookRequest {
    /// The names of the regions.
    pub names: Vec<String>,
    /// Whether the level below continues, without the regions that were seen, after the level of the look ends.
    pub then_return: bool,
}

/// Parses a slot; `None` if the value is not a slot.
///
/// # Errors
/// If the value looks like a slot but is malformed; the error is a sentence about the problem.
pub(crate) fn parse_slot(value: &Value) -> Result<Option<Slot>, &'static str> {
    let Some(slot) = value.as_object().and_then(|map| map.get(SLOT)) else { return Ok(None) };
    let Value::Object(slot) = slot else { return Err("the `$slot` is not an object with a list `regions`") };
    let fill = match slot.get("fill") {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) => Some(text.clone()),
        Some(_) => return Err("the `fill` of the slot is not a string"),
    };
    // Only an argument that refers to regions by placeholders has a template.
    Ok(Some(Slot { names: parse_region_names(slot)?, fill, template: None }))
}

/// Converts an argument with placeholders in its texts to a slot; `None` if it has no placeholder. `known` is the
/// number of hidden regions of the step's view.
///
/// # Errors
/// If the name of a field contains a placeholder, or if there are too many placeholders. The error is a pair of texts:
/// the problem, and what the model is advised to do.
pub(crate) fn slot_from_placeholders(
    value: &Value,
    known: usize,
) -> Result<Option<Slot>, (&'static str, &'static str)> {
    if placeholder::is_in_keys(value, known) {
        let problem = "the name of a field contains the placeholder of a hidden region";
        return Err((problem, "write placeholders only in text values"));
    }
    match placeholder::placeholder_names(value, known) {
        names if names.is_empty() => Ok(None),
        names if names.len() > MAX_NAMES => {
            let problem = "an argument contains more than 50 placeholders of hidden regions";
            Err((problem, "refer to at most 50 regions, or divide the call"))
        }
        names => Ok(Some(Slot { names, fill: None, template: Some(value.clone()) })),
    }
}

/// Returns whether a value contains a slot at any depth.
pub(crate) fn has_slot(value: &Value) -> bool {
    match value {
        Value::Object(map) => map.contains_key(SLOT) || map.values().any(has_slot),
        Value::Array(items) => items.iter().any(has_slot),
        _ => false,
    }
}

/// Parses the arguments of `look`: the regions, and whether the lower level continues after the look (`then_return`,
/// false if it is missing).
///
/// # Errors
/// The problem with the arguments.
pub(crate) fn parse_look(arguments: &Map<String, Value>) -> Result<LookRequest, &'static str> {
    let then_return = match arguments.get("then_return") {
        None | Some(Value::Null) => false,
        Some(Value::Bool(then_return)) => *then_return,
        Some(_) => return Err("`then_return` is neither true nor false; write true or false, or omit it"),
    };
    Ok(LookRequest { names: parse_region_names(arguments)?, then_return })
}

/// Parses the list `regions` of a slot or a look.
///
/// # Errors
/// If it is missing, empty, too long or not a list of strings.
fn parse_region_names(map: &Map<String, Value>) -> Result<Vec<String>, &'static str> {
    let error = "`regions` is not a list of 1 to 50 names of hidden regions; write it in the form [\"h1\"]";
    let names: Option<Vec<String>> = match map.get("regions") {
        Some(Value::Array(names)) => names.iter().map(|name| name.as_str().map(str::to_owned)).collect(),
        _ => None,
    };
    names.filter(|names| !names.is_empty() && names.len() <= MAX_NAMES).ok_or(error)
}

/// Returns the message for the model that no hidden region has this name. The caller adds the advice to name only
/// regions that the chat shows as hidden. The name is a text of the model, so it is cut after [`MAX_REPEATED_NAME`]
/// characters, and a placeholder in it is replaced.
pub(crate) fn unknown_region(name: &str) -> String {
    let repeated: String = name.chars().take(MAX_REPEATED_NAME).collect();
    format!("there is no hidden region `{}`", placeholder::neutralize(&repeated, 0))
}

/// Returns the schema of a slot, which the model sees as an alternative to the schema of an argument that may be a
/// slot.
pub(crate) fn slot_schema() -> Value {
    json!({
        "type": "object",
        "description": "Stands for hidden text that you need not see. With `fill`, a text is written from it.",
        "properties": {SLOT: {
            "type": "object",
            "properties": {
                "regions": {"type": "array", "items": {"type": "string"}, "minItems": 1},
                "fill": {"type": "string", "description": "What to write from the regions; leave out to copy them"},
            },
            "required": ["regions"],
        }},
        "required": [SLOT],
    })
}

/// Returns the specification of the tool `look` for the model.
pub(crate) fn look_spec() -> flowgate_lm::chat::ToolSpec {
    flowgate_lm::chat::ToolSpec {
        name: LOOK.to_owned(),
        description: "Shows hidden regions such as `[hidden h1]`. Look only if you must read them to decide what \
            to do: what you do afterwards counts as influenced by them, and may need a person's consent. To pass \
            hidden text on without reading it, leave a `$slot` in an argument that allows one. Call the tools that \
            do not depend on hidden text before you look."
            .to_owned(),
        parameters: json!({
            "type": "object",
            "properties": {
                "regions": {"type": "array", "items": {"type": "string"}, "minItems": 1},
                "then_return": {
                    "type": "boolean",
                    "description": "true if there is more to do afterwards that does not depend on the regions",
                },
            },
            "required": ["regions"],
        }).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `check` takes a value, and what is read from it: `none`, the names and the instruction of a slot, or the error.
    #[test]
    fn slots_are_read_strictly() {
        let check = |value: Value, expected: &str| {
            let shown = match parse_slot(&value) {
                Ok(None) => "none".to_owned(),
                Ok(Some(slot)) => format!("{} {:?}", slot.names.join(","), slot.fill),
                Err(error) => error.to_owned(),
            };
            assert_eq!(shown, expected, "{value}");
        };
        let names =
            "`regions` is not a list of 1 to 50 names of hidden regions; write it in the form [\"h1\"]";
        check(json!("text"), "none");
        check(json!({"a": 1}), "none");
        check(json!({"$slot": {"regions": ["h1", "h2"]}}), "h1,h2 None");
        check(json!({"$slot": {"regions": ["h1"], "fill": "sum up"}}), "h1 Some(\"sum up\")");
        check(json!({"$slot": {"regions": []}}), names);
        check(json!({"$slot": {"regions": [1]}}), names);
        check(json!({"$slot": "h1"}), "the `$slot` is not an object with a list `regions`");
        check(json!({"$slot": {"regions": ["h1"], "fill": 1}}), "the `fill` of the slot is not a string");
        assert!(has_slot(&json!([{"a": {"$slot": 1}}])) && !has_slot(&json!({"a": ["$slot"]})));
    }

    #[test]
    fn a_slot_holds_only_so_many_regions() {
        for (count, is_read) in
            [(MAX_NAMES - 1, true), (MAX_NAMES, true), (MAX_NAMES + 1, false), (MAX_NAMES + 2, false)]
        {
            let texts: Value = (1..=count).map(|number| json!(format!("[hidden h{number}]"))).collect();
            let read = slot_from_placeholders(&texts, count);
            assert_eq!(
                read.map(|slot| slot.map(|slot| slot.names.len())).ok(),
                is_read.then_some(Some(count))
            );
            let names: Value = (1..=count).map(|number| json!(format!("h{number}"))).collect();
            assert_eq!(parse_slot(&json!({"$slot": {"regions": names}})).is_ok(), is_read, "{count}");
        }
        assert!(matches!(slot_from_placeholders(&json!(["text"]), 1), Ok(None)));
    }

    /// The advice fits the problem with the placeholders.
    #[test]
    fn each_problem_with_placeholders_has_its_own_advice() {
        let many: Value = (1..=MAX_NAMES + 1).map(|number| json!(format!("[hidden h{number}]"))).collect();
        for (value, advice) in [
            (json!({"[hidden h1]": 1}), "write placeholders only in text values"),
            (many, "refer to at most 50 regions, or divide the call"),
        ] {
            assert_eq!(slot_from_placeholders(&value, MAX_NAMES + 1).unwrap_err().1, advice, "{value}");
        }
    }

    /// A slot that a model writes by the schema is read as a slot.
    #[test]
    fn a_slot_written_by_the_schema_is_read() {
        let schema = slot_schema();
        let inner = &schema["properties"][SLOT];
        assert_eq!((&schema["required"], &inner["required"]), (&json!([SLOT]), &json!(["regions"])));
        let names: Vec<&String> = inner["properties"].as_object().unwrap().keys().collect();
        assert_eq!(names, ["regions", "fill"]);
    }
}
