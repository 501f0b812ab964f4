//! Defines [`CallFilter`], which separates tool calls from text in the output of a local model. `generate.rs` feeds it
//! the pieces that the model generates, and passes on to the listener only text that cannot be the beginning of a call.
//!
//! | form | models |
//! |---|---|
//! | `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, repeated | Qwen3 |
//! | `{"name": ..., "parameters": {...}}`, alone or after `<\|python_tag\|>` | Llama 3 |
//! | `<\|tool_call\|>[{"name": ..., "arguments": {...}}]<\|/tool_call\|>` | Phi-4-mini |

use serde_json::Value;

use crate::chat::{ToolCall, ToolSpec};

/// The marks that begin and end a call in each form. A call of Llama 3 may also have no marks.
const FORMS: &[(&str, &str)] =
    &[("<tool_call>", "</tool_call>"), ("<|tool_call|>", "<|/tool_call|>"), ("<|python_tag|>", "<|eom_id|>")];

/// Separates text from calls, piece by piece.
#[derive(Debug, Default)]
pub(super) struct CallFilter {
    /// Whether the filter searches for calls, because the request offers tools.
    is_active: bool,
    /// The whole generated text.
    all: String,
    /// The number of bytes of `all` that were passed on as text.
    passed: usize,
}

impl CallFilter {
    /// Creates a filter for a request that offers these tools. Without tools, everything is text.
    pub(super) fn new(tools: &[ToolSpec]) -> Self {
        Self { is_active: !tools.is_empty(), ..Self::default() }
    }

    /// Searches the generated text that was not passed on for the stop sequences `stops`, of which empty ones are
    /// ignored. If the text contains a stop sequence, drops the text from the first one on, and returns true: the
    /// message ends there.
    pub(super) fn stop_at(&mut self, stops: &[String]) -> bool {
        let rest = self.all.get(self.passed..).unwrap_or_default();
        let stop_start =
            stops.iter().filter(|stop| !stop.is_empty()).filter_map(|stop| rest.find(stop.as_str())).min();
        if let Some(at) = stop_start {
            self.all.truncate(self.passed + at);
        }
        stop_start.is_some()
    }

    /// Appends a generated piece of text.
    pub(super) fn push(&mut self, piece: &str) {
        self.all.push_str(piece);
    }

    /// Returns the text that can now be passed on to the listener, and marks it as passed on. This text ends where a
    /// call begins or may begin, and before the last `held_back` bytes of the generated text, which may be the
    /// beginning of a stop sequence.
    pub(super) fn take_text(&mut self, held_back: usize) -> String {
        let mut end = self.text_end().min(self.all.len().saturating_sub(held_back));
        while !self.all.is_char_boundary(end) {
            end -= 1;
        }
        self.pass(end)
    }

    /// Ends the message: returns the text that was not passed on yet, and the calls, with the ids `call_N` from
    /// `first_id` on. If a call is malformed, or names a tool that is not in `tools`, no calls are returned, and the
    /// whole rest is text.
    pub(super) fn finish(&mut self, tools: &[ToolSpec], first_id: usize) -> (String, Vec<ToolCall>) {
        let start = self.call_start().unwrap_or(self.all.len());
        let Some(calls) = self.all.get(start..).and_then(|text| parse(text, tools, first_id)) else {
            return (self.pass(self.all.len()), Vec::new());
        };
        let before = self.all.get(..start).unwrap_or_default();
        // The white space before a call is not part of the text, unless it was passed on already.
        let end = before.trim_end().len().max(self.passed);
        (self.pass(end), calls)
    }

    /// Returns the text up to the offset `end` that was not passed on yet, and marks it as passed on.
    fn pass(&mut self, end: usize) -> String {
        let text = self.all.get(self.passed..end).unwrap_or_default().to_owned();
        self.passed = self.passed.max(end);
        text
    }

    /// Returns the offset up to which the generated text is certainly not part of a call: the offset of the first call,
    /// or of characters at the end of the text that may become the opening mark of a call. White space before this
    /// offset is left out as well, since a call may follow. If the request offers no tools, returns the end of the
    /// text.
    fn text_end(&self) -> usize {
        if !self.is_active {
            return self.all.len();
        }
        if let Some(start) = self.call_start() {
            return self.all.get(..start).unwrap_or_default().trim_end().len();
        }
        // Whether the last `length` bytes are the beginning of a mark.
        let may_open = |length: &usize| {
            let tail = self.all.len().checked_sub(*length).and_then(|at| self.all.get(at..));
            tail.is_some_and(|tail| FORMS.iter().any(|(open, _)| open.starts_with(tail)))
        };
        // `cut` is the length of the longest such beginning. A whole mark cannot occur here: it would have been a call.
        let longest = FORMS.iter().map(|(open, _)| open.len()).max().unwrap_or(0);
        let cut = (1..longest).rev().find(may_open).unwrap_or(0);
        self.all.get(..self.all.len() - cut).unwrap_or_default().trim_end().len()
    }

    /// Returns the offset at which the first call seems to begin: at the first opening mark, such as `<tool_call>`, or
    /// at a `{` that begins the message. If the text from there on turns out not to be a call, [`Self::finish`] returns
    /// it as text. `None` if the text has no such place, or if the request offers no tools.
    fn call_start(&self) -> Option<usize> {
        if !self.is_active {
            return None;
        }
        // The number of bytes of white space at the beginning.
        let blank = self.all.len() - self.all.trim_start().len();
        if self.all.trim_start().starts_with('{') {
            return Some(blank);
        }
        FORMS.iter().filter_map(|(open, _)| self.all.find(open)).min()
    }
}

/// Parses a text that consists only of calls of `tools`: one JSON object, or calls between the marks in [`FORMS`]. The
/// calls get the ids `call_N`, with numbers from `first_id` on. Returns `None` if there is no call, if a call is
/// malformed or names another tool, or if there is other text. The caller then treats the whole text as text of the
/// message.
fn parse(text: &str, tools: &[ToolSpec], first_id: usize) -> Option<Vec<ToolCall>> {
    let mut objects: Vec<Value> = Vec::new();
    let mut rest = text.trim();
    if rest.starts_with('{') {
        objects.push(serde_json::from_str(rest).ok()?);
    } else {
        while !rest.is_empty() {
            let (open, close) = FORMS.iter().find(|(open, _)| rest.starts_with(open))?;
            let after = rest.strip_prefix(open)?;
            // The model may end the message instead of writing the closing mark.
            let (inside, next) = after.split_once(close).unwrap_or((after, ""));
            match serde_json::from_str(inside.trim()).ok()? {
                Value::Array(list) => objects.extend(list),
                object => objects.push(object),
            }
            rest = next.trim();
        }
    }
    let mut calls = Vec::new();
    for (index, object) in objects.iter().enumerate() {
        calls.push(read_call(object, tools, first_id + index)?);
    }
    if calls.is_empty() { None } else { Some(calls) }
}

/// Reads a call of one of `tools` from its JSON, and gives it the id `call_NUMBER`. Returns `None` if the name or the
/// arguments are missing, or if no tool has this name.
fn read_call(object: &Value, tools: &[ToolSpec], number: usize) -> Option<ToolCall> {
    let name = object.get("name")?.as_str()?;
    if !tools.iter().any(|tool| tool.name == name) {
        return None;
    }
    let arguments = object.get("arguments").or_else(|| object.get("parameters"))?;
    // Some models write the arguments as a text that contains JSON.
    let arguments = arguments.as_str().map_or_else(|| arguments.to_string(), str::to_owned);
    Some(ToolCall { id: format!("call_{number}"), name: name.to_owned(), arguments })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// The tools `pay` and `read`, without descriptions.
    fn tools() -> Vec<ToolSpec> {
        let tool = |name: &str| ToolSpec {
            name: name.into(),
            description: String::new(),
            parameters: Arc::new(Value::Null),
        };
        vec![tool("pay"), tool("read")]
    }

    /// Generates a text in pieces of every size; all give the same text and calls.
    fn check(generated: &str, text: &str, calls: &[(&str, &str)]) {
        for size in [1, 2, 5, 1000] {
            let mut filter = CallFilter::new(&tools());
            let mut passed = String::new();
            let characters: Vec<char> = generated.chars().collect();
            for piece in characters.chunks(size) {
                filter.push(&piece.iter().collect::<String>());
                passed += &filter.take_text(0);
            }
            let (rest, found) = filter.finish(&tools(), 3);
            assert_eq!(passed + &rest, text, "{generated} in pieces of {size}");
            let found: Vec<(&str, &str)> =
                found.iter().map(|call| (call.name.as_str(), call.arguments.as_str())).collect();
            assert_eq!(found, calls, "{generated}");
        }
    }

    #[test]
    fn calls_are_read_in_every_form() {
        check("Just text, é < 3. ", "Just text, é < 3. ", &[]);
        check(
            "I pay.\n<tool_call>\n{\"name\": \"pay\", \"arguments\": {\"b\": 1, \"a\": 2}}\n</tool_call>\n<tool_call>{\"name\":\"read\",\"arguments\":{}}</tool_call>",
            "I pay.",
            &[("pay", r#"{"b":1,"a":2}"#), ("read", "{}")],
        );
        check(r#"{"name": "pay", "parameters": {"x": [1]}}"#, "", &[("pay", r#"{"x":[1]}"#)]);
        check(r#"<|python_tag|>{"name": "pay", "parameters": {}}"#, "", &[("pay", "{}")]);
        check(
            r#"<|tool_call|>[{"name": "pay", "arguments": "{\"a\":1}"}, {"name": "read", "arguments": {}}]<|/tool_call|>"#,
            "",
            &[("pay", r#"{"a":1}"#), ("read", "{}")],
        );
        // Not calls: an unknown tool, malformed JSON, text after a call.
        for text in [
            r#"{"name": "other", "parameters": {}}"#,
            r#"<tool_call>{"name": "pay", </tool_call>"#,
            r#"<tool_call>{"name": "pay", "arguments": {}}</tool_call> and more"#,
            "<tool_ca",
            r#"{"answer": 1}"#,
        ] {
            check(text, text, &[]);
        }
    }

    #[test]
    fn stop_texts_are_not_passed_on() {
        for (stop, pieces, text) in [
            ("STOP", ["abcé", "dST", "OPx"], "abcéd"),
            // White space and the beginning of a mark are left out of the text, and a stop sequence can begin before
            // them.
            ("B \nC", ["aaB", " \n", "Cx"], "aa"),
            ("B<t", ["aaB", "<", "tx"], "aa"),
        ] {
            let stops = [stop.to_owned(), String::new()];
            let mut filter = CallFilter::new(&tools());
            let mut passed = String::new();
            for (index, piece) in pieces.into_iter().enumerate() {
                filter.push(piece);
                assert_eq!(filter.stop_at(&stops), index == 2, "{stop:?} {piece:?}");
                passed += &filter.take_text(stop.len() - 1);
            }
            assert_eq!(passed + &filter.finish(&tools(), 0).0, text, "{stop:?}");
        }
    }

    #[test]
    fn ids_count_on_and_without_tools_everything_is_text() {
        let generated = r#"<tool_call>{"name":"pay","arguments":{}}</tool_call>"#;
        let mut filter = CallFilter::new(&tools());
        filter.push(generated);
        assert_eq!(filter.finish(&tools(), 7).1[0].id, "call_7");
        let mut filter = CallFilter::new(&[]);
        filter.push(generated);
        assert_eq!(filter.take_text(0), generated);
    }
}
