//! Generates random policies in the policy language.

use std::fmt::Write as _;

use flowgate_guard::FORMAT_ROLE;

use crate::declared_policy::{
    DeclaredCondition, DeclaredIndependence, DeclaredPolicy, LabelDeclaration, PartSelector, StoreStatement,
};
use crate::forms::IN_EQUAL_CALLS;
use crate::labels::DependentLabel;
use crate::random::Random;
use crate::rules;
use crate::space::{CaseDimensions, WrittenLabel};
use crate::tools::CaseTools;

/// The writer of a policy.
pub(crate) struct PolicyWriter<'a> {
    pub(crate) random: &'a mut Random,
    pub(crate) space: &'a CaseDimensions,
    pub(crate) tools: &'a CaseTools,
    pub(crate) text: String,
    /// The same declarations as data.
    pub(crate) declared: DeclaredPolicy,
    /// The word that the predicate `is_mine` compares with.
    pub(crate) word: &'static str,
    /// Whether the tools accept much more than what most text carries, so that the labels of steps can float.
    accepts_much: bool,
}

pub(crate) fn policy(
    random: &mut Random,
    space: &CaseDimensions,
    tools: &CaseTools,
    accepts_much: bool,
) -> (String, DeclaredPolicy) {
    let declared = DeclaredPolicy { shapes: space.shapes(), tools: tools.all(), ..DeclaredPolicy::default() };
    let word = random.of_list(&["me", "you"]);
    let text = space.declaration();
    let mut writer = PolicyWriter { random, space, tools, text, declared, word, accepts_much };
    writer.predicates();
    writer.clearances();
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
    // Statements may read what later ones label: their order has no effect.
    let parts =
        [DependentLabel::Text, DependentLabel::More, DependentLabel::Fields, DependentLabel::Computed];
    for part in parts {
        for tool in tools.indices() {
            writer.deciding(tool, part);
        }
    }
    for _ in 0..writer.random.below(3) {
        rules::rule(&mut writer);
    }
    (writer.text, writer.declared)
}

impl PolicyWriter<'_> {
    pub(crate) fn label(&mut self) -> WrittenLabel {
        self.space.label(self.random)
    }

    pub(crate) fn low(&mut self) -> WrittenLabel {
        self.space.low(self.random)
    }

    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.random.chance(percent)
    }

    /// Writes a statement about the calls of a tool. Returns the pattern for the tool.
    pub(crate) fn call(&mut self, tool: usize, head: &str, conditions: &[&str]) -> String {
        self.of_tool(tool, head, "call: ToolCall", conditions)
    }

    pub(crate) fn of_tool(&mut self, tool: usize, head: &str, variable: &str, conditions: &[&str]) -> String {
        let pattern = self.tools.pattern(self.random, tool);
        let _ = writeln!(self.text, "{head} if:\n    ({variable}) is tool:{pattern}");
        for condition in conditions {
            let _ = writeln!(self.text, "    {condition}");
        }
        pattern
    }

    fn predicates(&mut self) {
        let word = self.word;
        let _ = write!(
            self.text,
            "extern known(word: str) -> bool\n\
             is_mine(out: ToolOutput) :=\n    out.content.k == \"{word}\"\n\
             says(call: ToolCall) :=\n    \"{word}\" in str(call.arguments)\n"
        );
    }

    /// Writes clearances of endpoints that read text.
    fn clearances(&mut self) {
        for (endpoint, percent) in [("model", 12), ("screener", 25), ("filler", 25)] {
            if self.chance(percent) {
                let WrittenLabel { text, grant } = self.label();
                let tool = format!("flowgate/{endpoint}");
                let _ = write!(self.text, "require {text} if:\n    (call: ToolCall) is tool:{tool}\n");
                self.declared.clearances.push((endpoint, grant));
            }
        }
    }

    fn messages(&mut self) {
        let roles = [vec!["user"], vec!["user", "system"]][self.random.below(2)].clone();
        let label = if self.chance(90) { self.space.bottom() } else { self.low() };
        self.message(roles, label);
        if self.chance(30) {
            let label = self.label();
            self.message(vec!["memory"], label);
        }
        // Not drawn from the same source, so that the other cases stay what they are.
        let mut random = Random::of(&format!("formats {}", self.text));
        if random.chance(60) {
            let label = if random.chance(50) { self.space.bottom() } else { self.space.low(&mut random) };
            self.message(vec![FORMAT_ROLE], label);
        }
    }

    fn message(&mut self, roles: Vec<&'static str>, label: WrittenLabel) {
        let WrittenLabel { text, grant } = label;
        let quoted = roles.iter().map(|role| format!("\"{role}\"")).collect::<Vec<_>>().join(", ");
        let _ = write!(self.text, "label m as {text} if:\n    (m: Message)\n    m.role in [{quoted}]\n");
        self.declared.messages.push((roles, grant));
    }

    /// Writes a default label for unlabelled text.
    fn default(&mut self) {
        if self.chance(12) {
            let (text, level) = self.space.unlabelled(self.random);
            let _ = writeln!(self.text, "default {text}");
            self.declared.default = Some(level);
        }
    }

    fn stores(&mut self) {
        for store in 0..self.random.below(3) {
            let (written, read) = (self.tools.any(self.random), self.tools.any(self.random));
            let _ = writeln!(self.text, "store s{store}: written by {written}, read by {read}");
            self.declared.stores.push(StoreStatement { written, read });
        }
    }

    /// Writes the label of a server's description of its tool.
    fn description(&mut self, tool: usize) {
        if self.chance(85) {
            let label = if self.chance(60) { self.space.bottom() } else { self.label() };
            self.describes(tool, "t", &[], label, DeclaredCondition::Always);
        }
        if self.chance(15) {
            let label = self.label();
            self.describes(
                tool,
                "t.inputSchema",
                &[PartSelector::Key("inputSchema")],
                label,
                DeclaredCondition::Describes("number"),
            );
        }
    }

    fn describes(
        &mut self,
        tool: usize,
        place: &str,
        way: &[PartSelector],
        label: WrittenLabel,
        condition: DeclaredCondition,
    ) {
        let texts: &[&str] = match condition {
            DeclaredCondition::Always => &[],
            _ => &["\"number\" in t.description"],
        };
        let pattern = self.of_tool(tool, &format!("label {place} as {}", label.text), "t: Tool", texts);
        let (target, grant, capture) = (way.to_vec(), label.grant, None);
        self.declared.descriptions.push(LabelDeclaration {
            pattern,
            target,
            capture,
            grant,
            condition,
            independence: DeclaredIndependence::Undeclared,
        });
    }

    /// Decides by chance, more rarely where the tools are to accept much.
    fn narrows(&mut self, percent: usize) -> bool {
        let rarely = if self.accepts_much { percent / 6 } else { percent };
        self.chance(rarely)
    }

    fn calls(&mut self, tool: usize) {
        match self.random.below(6) {
            0 | 3..=5 if self.accepts_much => {
                let label = self.space.high(self.random).text;
                self.call(tool, &format!("require {label}"), &[]);
            }
            0 => {}
            1 | 2 => {
                let pattern = self.call(tool, "require top", &[]);
                self.declared.harmless.push(pattern);
            }
            3 => {
                let label = self.label().text;
                self.call(tool, &format!("require {label} else deny"), &[]);
            }
            _ => {
                let label = self.low().text;
                self.call(tool, &format!("require {label}"), &[]);
            }
        }
        if self.narrows(20) {
            let label = self.label().text;
            self.call(tool, &format!("require {label} for call.arguments.a"), &[]);
        }
        if self.narrows(20) {
            let label = self.label().text;
            let condition = self.random.of_list(&[
                "call.arguments.a == \"me\"",
                "call.arguments.b is None",
                "call.arguments.a not in [\"me\", \"you\"]",
                "says(call)",
                "known(call.arguments.a)",
            ]);
            self.call(tool, &format!("require {label}"), &[condition]);
        }
        if self.narrows(40)
            && let Some((element, _)) = self.space.computed(self.random, "call.arguments.a")
        {
            let place = self.random.of_list(&["", " for call.arguments.b"]);
            self.call(tool, &format!("require {element}{place}"), &[]);
        }
        if self.chance(60) {
            let pattern = self.call(tool, "payload call.arguments.b", &[]);
            self.declared.payload.push(pattern);
        }
        if self.chance(50) {
            self.call(tool, "payload call.arguments.c", &[]);
        }
        if self.chance(30) {
            self.endorse(tool);
        }
        if self.chance(20) {
            self.consent(tool);
        }
    }

    /// Writes an endorsement of the values that [`crate::model::typed`] generates, or of what an answer contains.
    fn endorse(&mut self, tool: usize) {
        let (kind, condition) = [
            ("endorse", "is_date(call.arguments.b)"),
            ("endorse", "call.arguments.b in [\"12:00\", \"13:00\"]"),
            ("unsafe endorse", "is_email(call.arguments.b)"),
            ("endorse", "fullmatch(r\"20[0-9]{2}-[0-9]{2}-[0-9]{2}|1[0-9]:00\", call.arguments.b)"),
            // The words of the world stand in answers, trusted or not.
            ("endorse", "call.arguments.b in tool:*"),
            ("endorse", IN_EQUAL_CALLS),
        ][self.random.below(6)];
        let pattern = self.call(tool, &format!("{kind} call.arguments.b as trusted"), &[condition]);
        self.declared.endorsed.push(pattern);
    }

    /// Writes a standing consent for one argument.
    fn consent(&mut self, tool: usize) {
        let label = self.random.of_list(&["private", "internal"]);
        let condition =
            self.random.of_list(&["call.arguments.a in [\"me\", \"you\"]", "call.arguments.a is not None"]);
        self.call(tool, &format!("consent {label} for call.arguments.b"), &[condition]);
    }
}
