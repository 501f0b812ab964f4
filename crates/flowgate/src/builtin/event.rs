//! Events: the call behind an output, the server behind a call.

use super::{Spec, plain, row};
use crate::eval::Value;

pub(super) const TABLE: &[Spec] = &[
    row("tool_call", (1, 1), "The call that a tool's output answers.", |e, a| {
        Ok(a.first().map_or(Value::Absent, |output| e.call_of(output)))
    }),
    row("text", (1, 1), "All text in a value, one piece a line.", |e, a| {
        let value = plain(e, a, 0)?;
        let mut lines = Vec::new();
        collect(&value, &mut lines);
        Ok(Value::text(lines.join("\n")))
    }),
];

fn collect(value: &Value, lines: &mut Vec<String>) {
    match value {
        Value::Str(text) => lines.push(text.to_string()),
        Value::List(items) => items.iter().for_each(|item| collect(item, lines)),
        Value::Dict(entries) => entries.iter().for_each(|(_, item)| collect(item, lines)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::check;

    #[test]
    fn text_of_blocks() {
        check("text", r#"[{"type": "text", "text": "a"}, "b", 3]"#, r#""text\na\nb""#);
        check("tool_call", "3", "absent");
    }
}
