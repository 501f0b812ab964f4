//! Implements the built-in functions of events, such as the call that an output answers, the server of a call, and the
//! texts and images in a value. The evaluator calls them through the table in [`builtin`](super).

use super::{Function, row};
use crate::eval::{TextLocation, Value};
use crate::policy::plan::Type;

pub(super) const TABLE: &[Function] = &[
    row("tool_call", (1, 1), "The call that a tool's output answers.", |e, a| {
        Ok(a.first().map_or(Value::Absent, |output| e.call_of(output)))
    }),
    row("server", (1, 1), "The server that an event comes from.", |e, a| {
        Ok(a.first().map_or(Value::Absent, |event| e.server_of(event)))
    }),
    row("hidden", (1, 1), "How many regions were hidden from the model that decided on a call.", |e, a| {
        Ok(a.first().map_or(Value::Absent, |call| e.hidden_region_count(call)))
    }),
    row(
        "text",
        (1, 64),
        "All texts in values: `TEXT in text(x)` holds if one of them contains TEXT.",
        |e, a| {
            let mut texts = Vec::new();
            for value in a {
                // A text of an event stays a reference to it, so that a match can report its location.
                texts.extend(e.pieces(value)?.into_iter().map(|piece| match piece.location {
                    Some(TextLocation::Node(event, node)) => Value::Node(event, node),
                    _ => Value::Str(piece.text),
                }));
            }
            Ok(Value::Texts(texts.into()))
        },
    ),
    row("image", (1, 64), "The addresses of all images in values.", |e, a| {
        let mut images = Vec::new();
        for value in a {
            let mut found = Vec::new();
            e.select(value, Type::Image, &mut found)?;
            for image in found {
                let block = e.resolve(&image)?;
                let field = |value: &Value, key: &str| match value {
                    Value::Dict(entries) => entries.iter().find(|(k, _)| **k == *key).map(|(_, v)| v.clone()),
                    _ => None,
                };
                // OpenAI's format has the address in `image_url`, as a text or as the `url` of a map. Anthropic's has
                // it in `source`, as `url`, or the image itself as `data`.
                let holder = field(&block, "image_url").or_else(|| field(&block, "source"));
                images.extend(holder.and_then(|holder| match holder {
                    Value::Str(url) => Some(Value::Str(url)),
                    holder => field(&holder, "url").or_else(|| field(&holder, "data")),
                }));
            }
        }
        Ok(Value::list(images))
    }),
    row(
        "print",
        (0, 64),
        "Always true. Unlike in invariant-ai, nothing is printed, since a trace may contain confidential \
        text.",
        |_, _| Ok(Value::Bool(true)),
    ),
];

#[cfg(test)]
mod tests {
    use super::super::tests::check;

    #[test]
    fn text_of_blocks() {
        check("text", r#"[{"x": "a"}, "b", 3]"#, r#"["x", "a", "b"]"#);
        check("tool_call", "3", "absent");
        check("hidden", "3", "absent");
    }
}
