//! Converts labels from and to the form that servers and clients exchange in the field `_meta.ifc` of a result. A
//! server states the label of its answer in this field, and a client learns from it the label that the proxy has given
//! the answer. `answer` calls this module.
//!
//! ```json
//! {"integrity": "untrusted", "confidentiality": ["ann", "bob"]}
//! ```
//!
//! A server's statement about its answers can raise their label above the policy's, never lower it. `integrity` refers
//! to the policy's dimension of that name; `confidentiality` refers to the dimension `confidentiality`, `secrecy` or
//! `readers`. A field without a dimension in the policy is ignored. A value that is not an element of the dimension
//! is read as the top of the dimension.

use flowgate::label::Label;
use flowgate::monitor::Monitor;
use serde_json::{Map, Value};

/// The fields of `_meta.ifc`: for each, its name, its least value, and the dimensions of a policy to which it may
/// refer.
const FIELDS: [(&str, &str, &[&str]); 2] = [
    ("integrity", "trusted", &["integrity"]),
    ("confidentiality", "public", &["confidentiality", "secrecy", "readers"]),
];

/// Returns the label that the server states for a result: bottom if it states none, and top if the statement is not
/// an object.
pub(super) fn label_from_result(monitor: &mut Monitor, result: &Value) -> Label {
    let Some(ifc) = result.get("_meta").and_then(|meta| meta.get("ifc")) else { return Label::BOTTOM };
    // `from_names` reads `null` in place of the names as top.
    let Value::Object(stated) = ifc else { return monitor.from_names(&Value::Null) };
    let mut names = bottom_names(monitor);
    // A field that is absent, or has its least value, leaves its dimension at the bottom.
    for (field, least, dimensions) in FIELDS {
        let Some(value) = stated.get(field).filter(|value| value.as_str() != Some(least)) else { continue };
        if let Some(name) = dimensions.iter().find(|name| names.contains_key(**name)) {
            names.insert((*name).to_owned(), value.clone());
        }
    }
    monitor.from_names(&Value::Object(names))
}

/// Returns a label in the form in which a client receives it, as the value of `_meta.ifc`. Each field describes the
/// first of its dimensions that the policy declares. The value of a field is its least value if the label is at the
/// bottom in that dimension, the list of readers if the label names them, and otherwise `untrusted` or `private`.
pub(super) fn label_to_json(monitor: &Monitor, label: &Label) -> Value {
    let (names, least_names) = (monitor.to_names(label), bottom_names(monitor));
    let ifc_fields = FIELDS.iter().filter_map(|(field, least_value, dimensions)| {
        let name = dimensions.iter().find(|name| least_names.contains_key(**name))?;
        let value = match names.get(*name)? {
            value if Some(value) == least_names.get(*name) => Value::from(*least_value),
            Value::Array(readers) => Value::Array(readers.clone()),
            _ if *field == "integrity" => Value::from("untrusted"),
            _ => Value::from("private"),
        };
        Some(((*field).to_owned(), value))
    });
    Value::Object(ifc_fields.collect())
}

/// Returns the least value of each dimension, by the name of the dimension.
fn bottom_names(monitor: &Monitor) -> Map<String, Value> {
    match monitor.to_names(&Label::BOTTOM) {
        Value::Object(names) => names,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use flowgate::policy::Policy;
    use serde_json::json;

    use super::*;

    #[test]
    fn stated_labels_only_raise() {
        let policy = "lattice integrity: trusted < untrusted\nlattice secrecy: public < internal < private\n";
        let mut monitor = Monitor::new(Arc::new(Policy::parse(policy).unwrap()));
        let mut check = |ifc: Value, expected: Value, rendered: Value| {
            let label = label_from_result(&mut monitor, &json!({"_meta": {"ifc": ifc}}));
            assert_eq!(monitor.to_names(&label), expected);
            assert_eq!(label_to_json(&monitor, &label), rendered);
        };
        let names = |integrity: &str, secrecy: &str| json!({"integrity": integrity, "secrecy": secrecy});
        let ifc =
            |integrity: &str, secrecy: &str| json!({"integrity": integrity, "confidentiality": secrecy});
        check(json!({}), names("trusted", "public"), ifc("trusted", "public"));
        check(json!({"integrity": "trusted"}), names("trusted", "public"), ifc("trusted", "public"));
        check(json!({"integrity": "untrusted"}), names("top", "public"), ifc("untrusted", "public"));
        check(json!({"integrity": 3}), names("top", "public"), ifc("untrusted", "public"));
        check(
            json!({"confidentiality": "internal"}),
            names("trusted", "internal"),
            ifc("trusted", "private"),
        );
        check(json!({"confidentiality": ["ann"]}), names("trusted", "top"), ifc("trusted", "private"));
        check(json!({"purpose": "x"}), names("trusted", "public"), ifc("trusted", "public"));
        check(json!("untrusted"), names("top", "top"), ifc("untrusted", "private"));
        assert_eq!(label_from_result(&mut monitor, &json!({})), Label::BOTTOM);
    }
}
