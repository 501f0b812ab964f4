//! Generates small, unusual and well-formed policies and traces from bytes, to compare evaluators.
//!
//! The source is bytes rather than a random generator, so that both property tests and fuzzers can drive it.
//! After the last byte every choice is the first alternative, which ends generation.

use serde_json::{Value, json};

/// Choices, read from bytes.
pub(crate) struct Choices<'a> {
    bytes: &'a [u8],
}

impl<'a> Choices<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// Returns a number below `n`.
    fn below(&mut self, n: usize) -> usize {
        let Some((first, rest)) = self.bytes.split_first() else { return 0 };
        self.bytes = rest;
        usize::from(*first) % n.max(1)
    }

    fn of<'t, T: ?Sized>(&mut self, list: &[&'t T]) -> &'t T {
        let index = self.below(list.len());
        list.get(index).or(list.first()).expect("lists of choices are not empty")
    }
}

const WORDS: [&str; 5] = ["x", "abc", "bob", "a b", "eve x"];

/// Generates a list of messages.
pub(crate) fn trace(choices: &mut Choices<'_>) -> Vec<Value> {
    let mut calls: Vec<String> = Vec::new();
    let count = choices.below(9);
    let mut messages = Vec::new();
    for index in 0..count {
        let mut message = match choices.below(8) {
            0 | 1 => json!({"role": choices.of(&["user", "system"]), "content": content(choices)}),
            2..=4 => {
                let proposed: Vec<Value> = (0..1 + choices.below(2))
                    .map(|nth| {
                        let id = format!("c{index}_{nth}");
                        calls.push(id.clone());
                        let name = choices.of(&["send", "read", "log-it"]);
                        json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments(choices)}})
                    })
                    .collect();
                json!({"role": "assistant", "content": content(choices), "tool_calls": proposed})
            }
            5 | 6 => {
                let which = choices.below(calls.len() + 1);
                let id = calls.get(which).cloned().unwrap_or_else(|| "nobody".to_owned());
                json!({"role": "tool", "tool_call_id": id, "content": answer(choices)})
            }
            _ => json!({"tools": [{"name": choices.of(&["send", "read"]), "description": choices.of(&WORDS),
                "inputSchema": {"type": "object", "properties": {"to": {"type": "string", "description": "x"}}}}]}),
        };
        if choices.below(6) == 5 && message.get("role").is_some() {
            message["metadata"] = json!({"agent": choices.of(&["helper", "other"])});
        }
        messages.push(message);
    }
    messages
}

fn content(choices: &mut Choices<'_>) -> Value {
    match choices.below(6) {
        0..=2 => json!(choices.of(&WORDS)),
        3 => Value::Null,
        4 => {
            json!([{"type": "text", "text": choices.of(&WORDS)}, {"type": "text", "text": choices.of(&WORDS)}])
        }
        _ => {
            json!([{"type": "text", "text": choices.of(&WORDS)}, {"type": "image_url", "image_url": {"url": "https://a.b/x"}}])
        }
    }
}

fn answer(choices: &mut Choices<'_>) -> Value {
    match choices.below(5) {
        0 | 1 => json!(choices.of(&WORDS)),
        2 => json!("[{\"k\": 1, \"to\": \"bob\"}, {\"k\": 2}]"),
        3 => json!([{"k": 1}, {"k": "x"}]),
        _ => json!(12),
    }
}

fn arguments(choices: &mut Choices<'_>) -> Value {
    let mut arguments = json!({"to": choices.of(&["bob", "eve"])});
    match choices.below(4) {
        0 => {}
        1 => arguments["n"] = json!(choices.below(5)),
        2 => arguments["n"] = json!("x"),
        _ => arguments["items"] = json!([{"k": choices.below(3)}, {"k": 1}, 3]),
    }
    arguments
}

/// Generates a policy with one to three rules.
pub(crate) fn policy(choices: &mut Choices<'_>) -> String {
    let mut source = String::from(
        "LIMIT := 2\nis_short(m: Message) :=\n    len(text(m)) < LIMIT\nseen(name: str) :=\n    (c: ToolCall)\n    c.function.name == name\n\n",
    );
    for index in 0..1 + choices.below(3) {
        let mut rule = RuleGenerator { names: Vec::new(), lines: Vec::new(), count: 0, choices };
        let events = rule.choices.below(4);
        for _ in 0..events {
            rule.event("    ");
        }
        for _ in 0..rule.choices.below(4) {
            rule.condition("    ", 0);
        }
        if rule.lines.is_empty() {
            rule.event("    ");
        }
        let said = match rule.names.first() {
            Some((name, _)) if rule.choices.below(2) == 1 => {
                format!("Violation(\"rule {index}\", {name}, n=LIMIT)")
            }
            _ => format!("\"rule {index}\""),
        };
        let action = rule.choices.of(&["raise", "raise", "ask", "log"]);
        let lines = rule.lines.join("\n");
        source.push_str(&format!("{action} {said} if:\n{lines}\n\n"));
    }
    source
}

struct RuleGenerator<'c, 'b> {
    /// The variables over events, with their types.
    names: Vec<(String, &'static str)>,
    lines: Vec<String>,
    count: usize,
    choices: &'c mut Choices<'b>,
}

impl RuleGenerator<'_, '_> {
    fn fresh(&mut self, prefix: &str) -> String {
        self.count += 1;
        format!("{prefix}{}", self.count)
    }

    fn event(&mut self, indent: &str) -> String {
        let name = self.fresh("e");
        let ty = self.choices.of(&["ToolCall", "Message", "ToolOutput", "Tool", "ToolCall"]);
        self.lines.push(format!("{indent}({name}: {ty})"));
        self.names.push((name.clone(), ty));
        name
    }

    fn pick(&mut self, indent: &str) -> (String, &'static str) {
        if self.names.is_empty() {
            self.event(indent);
        }
        let index = self.choices.below(self.names.len());
        self.names.get(index).cloned().expect("there is one")
    }

    fn condition(&mut self, indent: &str, depth: usize) {
        let line = match self.choices.below(if depth < 2 { 20 } else { 15 }) {
            0..=5 => self.of_one(indent),
            6 => {
                let ((a, _), (b, _)) = (self.pick(indent), self.pick(indent));
                format!("{a} {} {b}", self.choices.of(&["->", "->", "~>", "=>"]))
            }
            7 => {
                let ((a, _), (b, _)) = (self.pick(indent), self.pick(indent));
                format!("{a}.arguments.to == {b}.arguments.to")
            }
            8 => format!("{} or {}", self.of_one(indent), self.of_one(indent)),
            9 => format!("not ({} and {})", self.of_one(indent), self.of_one(indent)),
            10 => {
                let (event, _) = self.pick(indent);
                let name = self.fresh("r");
                let field = self.choices.of(&["content", "arguments.items", "content.a"]);
                self.lines.push(format!("{indent}({name}: dict) in {event}.{field}"));
                format!("{name}.k == {}", self.choices.of(&["1", "2", "\"x\""]))
            }
            11 => {
                let (event, _) = self.pick(indent);
                let name = self.fresh("w");
                self.lines.push(format!("{indent}({name}: str) in {event}.content.split(\" \")"));
                format!("{name} == \"x\"")
            }
            12 => {
                let (event, _) = self.pick(indent);
                let name = self.fresh("v");
                self.lines.push(format!("{indent}{name} := {event}.arguments.n"));
                format!("{name} > 1")
            }
            13 => {
                let name = self.fresh("p");
                match self.choices.below(7) {
                    4 => {
                        let (event, _) = self.pick(indent);
                        self.lines.push(format!("{indent}({name}: ToolCall) in {event}"));
                        format!("{name} is tool:send")
                    }
                    5 => {
                        let (event, _) = self.pick(indent);
                        self.lines.push(format!("{indent}({name}: Function) in {event}.tool_calls"));
                        format!("{name}.name == \"send\"")
                    }
                    6 => {
                        let (event, _) = self.pick(indent);
                        self.lines.push(format!("{indent}({name}: dict) in {event}"));
                        format!("{name}.k == 1")
                    }
                    0 => {
                        self.lines.push(format!("{indent}({name}: TextChunk)"));
                        format!("\"x\" in {name}.text")
                    }
                    1 => {
                        self.lines.push(format!("{indent}({name}: Image)"));
                        format!("\"x\" in {name}.image_url.url")
                    }
                    2 => {
                        self.lines.push(format!("{indent}({name}: Function)"));
                        format!("{name}.name == \"send\"")
                    }
                    _ => {
                        self.lines.push(format!("{indent}({name}: ToolParameter)"));
                        format!("{name}.name == \"to\"")
                    }
                }
            }
            14 => format!("any([w in \"abc x\" for w in [\"x\", \"y\"] if {}])", self.of_one(indent)),
            _ => return self.block(indent, depth),
        };
        self.lines.push(format!("{indent}{line}"));
    }

    /// Generates a condition on one event.
    fn of_one(&mut self, indent: &str) -> String {
        let (event, ty) = self.pick(indent);
        match (self.choices.below(9), ty) {
            (0 | 1, "ToolCall" | "ToolOutput") => {
                format!("{event} is tool:{}", self.choices.of(&["send", "read", "log-it"]))
            }
            (2, "ToolCall" | "ToolOutput") => {
                let to = self.choices.of(&["\"bob\"", "\"b.*\"", "*", "\"^(?!bob$).*$\""]);
                format!("{event} is tool:send({{to: {to}}})")
            }
            (3, "ToolCall") => format!("{event}.function.arguments.n > 1"),
            (4, "ToolCall") => format!("{event}.arguments.n + 1 == 2"),
            (0 | 1, "Message") => format!("{event}.role == \"{}\"", self.choices.of(&["user", "assistant"])),
            (2, "Message") => format!("is_short({event})"),
            (3, "Message") => {
                let calls = self.choices.of(&[".tool_calls", "[\"tool_calls\"]", "[\"tool\" + \"_calls\"]"]);
                format!("len({event}{calls}) > 0")
            }
            (5, _) => format!("seen(\"{}\")", self.choices.of(&["send", "read"])),
            (6, "Message" | "ToolOutput") => format!("{event}.content.lower() == \"abc\""),
            (7, "Message" | "ToolOutput") => format!("any(find(\"[ax]\", {event}.content))"),
            (4, "ToolOutput") => format!("{event}.role == \"tool\""),
            (_, "Tool") => format!("\"x\" in {event}.description"),
            (_, "Message" | "ToolOutput") => format!("\"x\" in {event}.content"),
            _ => format!("{event} is tool:send or True"),
        }
    }

    /// Generates a block with its own variables.
    fn block(&mut self, indent: &str, depth: usize) {
        let known = self.names.len();
        let head = self.choices.of(&[
            "count(min=1)",
            "count(min=2)",
            "count(max=1)",
            "not count(min=1)",
            "forall",
            "not forall",
            "count(min=1, max=LIMIT)",
            "not",
        ]);
        self.lines.push(format!("{indent}{head}:"));
        let inner = format!("{indent}    ");
        self.event(&inner);
        for _ in 0..1 + self.choices.below(2) {
            self.condition(&inner, depth + 1);
        }
        self.names.truncate(known);
    }
}
