//! Random policies, in the language's own words.

use std::fmt::Write as _;

use crate::labels::Decided;
use crate::random::Random;
use crate::rules;
use crate::space::Space;
use crate::tools::Tools;

/// What a policy is written with, and what has been written.
pub(crate) struct Writer<'a> {
    pub(crate) random: &'a mut Random,
    pub(crate) space: &'a Space,
    pub(crate) tools: &'a Tools,
    pub(crate) text: String,
}

pub(crate) fn policy(random: &mut Random, space: &Space, tools: &Tools) -> String {
    let mut writer = Writer { random, space, tools, text: space.declaration() };
    writer.predicates();
    writer.messages();
    writer.default();
    writer.stores();
    for tool in tools.described() {
        writer.description(tool);
    }
    for tool in tools.indices() {
        writer.answers(tool);
        writer.calls(tool);
    }
    // Statements read what later ones raise: the order in which they stand means nothing.
    let parts = [Decided::Text, Decided::More, Decided::Fields, Decided::Computed];
    for part in parts {
        for tool in tools.indices() {
            writer.deciding(tool, part);
        }
    }
    for _ in 0..writer.random.below(3) {
        rules::rule(&mut writer);
    }
    writer.text
}

impl Writer<'_> {
    pub(crate) fn label(&mut self) -> String {
        self.space.label(self.random)
    }

    pub(crate) fn low(&mut self) -> String {
        self.space.low(self.random)
    }

    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.random.chance(percent)
    }

    /// A statement about the answers of a tool.
    pub(crate) fn out(&mut self, tool: usize, head: &str, conditions: &[&str]) {
        self.of_tool(tool, head, "out: ToolOutput", conditions);
    }

    /// A statement about the calls of a tool.
    pub(crate) fn call(&mut self, tool: usize, head: &str, conditions: &[&str]) {
        self.of_tool(tool, head, "call: ToolCall", conditions);
    }

    fn of_tool(&mut self, tool: usize, head: &str, variable: &str, conditions: &[&str]) {
        let pattern = self.tools.pattern(self.random, tool);
        let _ = writeln!(self.text, "{head} if:\n    ({variable}) is tool:{pattern}");
        for condition in conditions {
            let _ = writeln!(self.text, "    {condition}");
        }
    }

    fn predicates(&mut self) {
        let word = self.random.of_list(&["me", "you"]);
        let _ = write!(
            self.text,
            "is_mine(out: ToolOutput) :=\n    out.content.k == \"{word}\"\n\
             says(call: ToolCall) :=\n    \"{word}\" in str(call.arguments)\n"
        );
    }

    fn messages(&mut self) {
        let roles = self.random.of_list(&["\"user\"", "\"user\", \"system\""]);
        let label = if self.chance(90) { self.space.bottom() } else { self.low() };
        let _ = write!(self.text, "label m as {label} if:\n    (m: Message)\n    m.role in [{roles}]\n");
        if self.chance(30) {
            let label = self.label();
            let _ = write!(self.text, "label m as {label} if:\n    (m: Message)\n    m.role == \"memory\"\n");
        }
    }

    /// What is not labelled is not top.
    fn default(&mut self) {
        if self.chance(12) {
            let label = self.space.bottom();
            let label = self.random.of_list(&[label.as_str(), "trusted, public", "untrusted, internal"]);
            let _ = writeln!(self.text, "default {label}");
        }
    }

    fn stores(&mut self) {
        for store in 0..self.random.below(3) {
            let (writer, reader) = (self.tools.any(self.random), self.tools.any(self.random));
            let _ = writeln!(self.text, "store s{store}: written by {writer}, read by {reader}");
        }
    }

    /// What a server says of its tool.
    fn description(&mut self, tool: usize) {
        if self.chance(85) {
            let label = if self.chance(60) { self.space.bottom() } else { self.label() };
            self.of_tool(tool, &format!("label t as {label}"), "t: Tool", &[]);
        }
        if self.chance(15) {
            let label = self.label();
            self.of_tool(
                tool,
                &format!("label t.inputSchema as {label}"),
                "t: Tool",
                &["\"number\" in t.description"],
            );
        }
    }

    fn calls(&mut self, tool: usize) {
        match self.random.below(6) {
            0 => {}
            1 | 2 => self.call(tool, "require top", &[]),
            3 => {
                let label = self.label();
                self.call(tool, &format!("require {label} else deny"), &[]);
            }
            _ => {
                let label = self.low();
                self.call(tool, &format!("require {label}"), &[]);
            }
        }
        if self.chance(20) {
            let label = self.label();
            self.call(tool, &format!("require {label} for call.arguments.a"), &[]);
        }
        if self.chance(20) {
            let label = self.label();
            let condition = self.random.of_list(&[
                "call.arguments.a == \"me\"",
                "call.arguments.b is None",
                "call.arguments.a not in [\"me\", \"you\"]",
                "says(call)",
            ]);
            self.call(tool, &format!("require {label}"), &[condition]);
        }
        if self.chance(40)
            && let Some(element) = self.space.computed(self.random, "call.arguments.a")
        {
            let place = self.random.of_list(&["", " for call.arguments.b"]);
            self.call(tool, &format!("require {element}{place}"), &[]);
        }
        if self.chance(60) {
            self.call(tool, "payload call.arguments.b", &[]);
        }
        if self.chance(30) {
            self.endorse(tool);
        }
        if self.chance(20) {
            self.consent(tool);
        }
    }

    /// See [`crate::model::typed`], which writes what is endorsed.
    fn endorse(&mut self, tool: usize) {
        let (kind, condition) = [
            ("endorse", "is_date(call.arguments.b)"),
            ("endorse", "call.arguments.b in [\"12:00\", \"13:00\"]"),
            ("unsafe endorse", "is_email(call.arguments.b)"),
        ][self.random.below(3)];
        self.call(tool, &format!("{kind} call.arguments.b as trusted"), &[condition]);
    }

    /// Standing consent to what one argument carries.
    fn consent(&mut self, tool: usize) {
        let label = self.random.of_list(&["private", "internal"]);
        let condition =
            self.random.of_list(&["call.arguments.a in [\"me\", \"you\"]", "call.arguments.a is not None"]);
        self.call(tool, &format!("consent {label} for call.arguments.b"), &[condition]);
    }
}
