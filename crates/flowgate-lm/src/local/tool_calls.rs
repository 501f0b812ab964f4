//! Finds tool calls in what a model has generated, and withholds their text while it is generated.
//!
//! | form | models |
//! |---|---|
//! | `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, repeated | Qwen3 |
//! | `{"name": ..., "parameters": {...}}`, alone or after `<\|python_tag\|>` | Llama 3 |
//! | `<\|tool_call\|>[{"name": ..., "arguments": {...}}]<\|/tool_call\|>` | Phi-4-mini |

use serde_json::Value;

use crate::chat::{ToolCall, ToolSpec};

/// How a form of calls begins and ends.
const FORMS: &[(&str, &str)] =
    &[("<tool_call>", "</tool_call>"), ("<|tool_call|>", "<|/tool_call|>"), ("<|python_tag|>", "<|eom_id|>")];

/// Separates text from calls, piece by piece.
#[derive(Debug, Default)]
pub(super) struct CallFilter {
    is_active: bool,
    /// All that was generated.
    all: String,
    /// How many bytes of it were passed on as text.
    passed: usize,
}

impl CallFilter {
    /// A filter that finds calls of these tools; without tools, everything is text.
    pub(super) fn new(tools: &[ToolSpec]) -> Self {
        Self { is_active: !tools.is_empty(), ..Self::default() }
    }

    /// Drops everything from the first of these texts on, if one was generated and not passed on. Returns whether it was.
    pub(super) fn stop_at(&mut self, stops: &[String]) -> bool {
        let open = self.all.get(self.passed..).unwrap_or_default();
        let found =
            stops.iter().filter(|stop| !stop.is_empty()).filter_map(|stop| open.find(stop.as_str())).min();
        if let Some(at) = found {
            self.all.truncate(self.passed + at);
        }
        found.is_some()
    }

    /// Appends what was generated.
    pub(super) fn push(&mut self, piece: &str) {
        self.all.push_str(piece);
    }

    /// Returns the text that can be passed on: what is neither a part of a call nor, except for the last `held` bytes, of a text
    /// that may still end the message.
    pub(super) fn take_text(&mut self, held: usize) -> String {
        let mut end = self.text_end();
        if end == self.all.len() {
            end = end.saturating_sub(held);
        }
        while !self.all.is_char_boundary(end) {
            end -= 1;
        }
        self.pass(end)
    }

    /// Returns the rest of the text, and the calls. A call that is malformed, or of no tool, is text.
    pub(super) fn finish(&mut self, tools: &[ToolSpec], first_id: usize) -> (String, Vec<ToolCall>) {
        let start = self.call_start().unwrap_or(self.all.len());
        let Some(calls) = self.all.get(start..).and_then(|text| parse(text, tools, first_id)) else {
            return (self.pass(self.all.len()), Vec::new());
        };
        let before = self.all.get(..start).unwrap_or_default();
        // The line breaks before a call are not text.
        let end = before.trim_end().len().max(self.passed);
        (self.pass(end), calls)
    }

    fn pass(&mut self, end: usize) -> String {
        let text = self.all.get(self.passed..end).unwrap_or_default().to_owned();
        self.passed = self.passed.max(end);
        text
    }

    /// Where the text ends, as far as can be known: at a call, or at what may become the mark of one.
    fn text_end(&self) -> usize {
        if !self.is_active {
            return self.all.len();
        }
        if let Some(start) = self.call_start() {
            return self.all.get(..start).unwrap_or_default().trim_end().len();
        }
        let begins = |length: &usize| {
            let tail = self.all.len().checked_sub(*length).and_then(|at| self.all.get(at..));
            tail.is_some_and(|tail| FORMS.iter().any(|(open, _)| open.starts_with(tail)))
        };
        let longest = FORMS.iter().map(|(open, _)| open.len()).max().unwrap_or(0);
        let cut = (1..longest).rev().find(begins).unwrap_or(0);
        // The spaces before a call are not text either.
        self.all.get(..self.all.len() - cut).unwrap_or_default().trim_end().len()
    }

    fn call_start(&self) -> Option<usize> {
        if !self.is_active {
            return None;
        }
        let blank = self.all.len() - self.all.trim_start().len();
        if self.all.trim_start().starts_with('{') {
            return Some(blank);
        }
        FORMS.iter().filter_map(|(open, _)| self.all.find(open)).min()
    }
}

/// Reads calls; `None` if one is malformed.
fn parse(text: &str, tools: &[ToolSpec], first_id: usize) -> Option<Vec<ToolCall>> {
    let mut objects = Vec::new();
    let mut rest = text.trim();
    if rest.starts_with('{') {
        objects.push(serde_json::from_str(rest).ok()?);
    } else {
        while !rest.is_empty() {
            let (open, close) = FORMS.iter().find(|(open, _)| rest.starts_with(open))?;
            let after = rest.strip_prefix(open)?;
            // The end mark may be the end of the message.
            let (inside, next) = after.split_once(close).unwrap_or((after, ""));
            match serde_json::from_str(inside.trim()).ok()? {
                Value::Array(list) => objects.extend(list),
                object => objects.push(object),
            }
            rest = next.trim();
        }
    }
    let call = |(index, object): (usize, &Value)| {
        let name = object.get("name")?.as_str()?;
        let is_known = tools.iter().any(|tool| tool.name == name);
        let arguments = object.get("arguments").or_else(|| object.get("parameters"))?;
        // Some models write the arguments as a text that contains JSON.
        let arguments = arguments.as_str().map_or_else(|| arguments.to_string(), str::to_owned);
        is_known.then(|| ToolCall {
            id: format!("call_{}", first_id + index),
            name: name.to_owned(),
            arguments,
        })
    };
    objects.iter().enumerate().map(call).collect::<Option<Vec<_>>>().filter(|calls| !calls.is_empty())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

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
    fn forms() {
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
        let stops = ["STOP".to_owned(), String::new()];
        let mut filter = CallFilter::new(&tools());
        let mut passed = String::new();
        for (piece, is_stopped) in [("abcé", false), ("dST", false), ("OPx", true)] {
            filter.push(piece);
            assert_eq!(filter.stop_at(&stops), is_stopped, "{piece}");
            passed += &filter.take_text(3);
        }
        assert_eq!(passed + &filter.finish(&tools(), 0).0, "abcéd");
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
