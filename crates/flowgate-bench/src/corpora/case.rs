//! Defines the form into which every benchmark is read, so that one double and one runner serve all benchmarks. A
//! *case* is a request of a user with a list of calls, each of which belongs to the user's task or to an attack. Each
//! call states which earlier answers the double must see before it can make the call. The readers of the benchmarks
//! create the cases, and [`run`](super::run) runs them.

use flowgate::draft::{DescribedTool, DraftOptions, ToolHints, draft_policy};
use flowgate::trace::Tool;
use flowgate_guard::{DescriptionAuthor, OfferedTool};
use serde_json::{Map, Value};

use super::files::ReadFile;

/// The cases of a benchmark, and the files from which they were read.
#[derive(Debug)]
pub struct BenchmarkCorpus {
    /// The name of the benchmark.
    pub benchmark: &'static str,
    /// The tools; a policy is drafted for each set.
    pub tool_sets: Vec<ToolSet>,
    /// The cases.
    pub cases: Vec<CorpusCase>,
    /// The files that were read, in order.
    pub files: Vec<ReadFile>,
}

/// Tools for which one policy is drafted.
#[derive(Debug)]
pub struct ToolSet {
    /// The name, for errors.
    pub name: String,
    /// The tools; their names are distinct.
    pub tools: Vec<CorpusTool>,
}

impl ToolSet {
    /// Drafts the policy of these tools from their descriptions.
    pub fn policy(&self) -> String {
        let described: Vec<DescribedTool> = self.tools.iter().map(CorpusTool::described).collect();
        draft_policy(&described, DraftOptions::default()).text
    }

    /// Returns the tool with this name; `None` if the set does not have it.
    pub fn tool(&self, name: &str) -> Option<&CorpusTool> {
        self.tools.iter().find(|tool| tool.name == name)
    }
}

/// A tool, as the benchmark describes it.
#[derive(Debug, Clone, PartialEq)]
pub struct CorpusTool {
    /// The name.
    pub name: String,
    /// The description.
    pub description: String,
    /// The JSON schema of the arguments.
    pub parameters: Value,
}

impl CorpusTool {
    /// Returns the tool as the draft of a policy reads it. Benchmarks do not annotate tools, so there are no hints.
    pub(super) fn described(&self) -> DescribedTool {
        let hints = ToolHints::default();
        DescribedTool::new(Tool::local(&self.name), self.description.clone(), Some(&self.parameters), hints)
    }

    /// Returns the tool as a conversation offers it. The operator counts as the author of its description, which is therefore trusted: a description
    /// of another author could be hidden, and the tool with it.
    pub(super) fn offered(&self) -> OfferedTool {
        OfferedTool {
            tool: Tool::local(&self.name),
            description: self.description.clone(),
            parameters: self.parameters.clone().into(),
            // The answers have no declared schema.
            output: None,
            words: DescriptionAuthor::Operator,
        }
    }
}

/// Whether a call belongs to the user's task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallPurpose {
    /// It is part of the task; the double of the person who approves allows it.
    Task,
    /// An attacker wants it, or it discloses what the case says to be sensitive; the double of the person who approves refuses it.
    Attack,
}

/// A call that the double makes.
#[derive(Debug, Clone, PartialEq)]
pub struct ScriptedCall {
    /// The name of the tool.
    pub tool: String,
    /// The arguments.
    pub arguments: Map<String, Value>,
    /// The answer of the tool.
    pub answer: String,
    /// Whether the call belongs to the task or to an attack.
    pub purpose: CallPurpose,
    /// The positions of earlier calls whose answers the double must see before it can write this call.
    pub needs: Vec<usize>,
}

/// One case: a request of a user, and the calls that follow it.
#[derive(Debug, PartialEq)]
pub struct CorpusCase {
    /// The name, for reports and errors: the file, and the position in it.
    pub name: String,
    /// The name of the group of cases for which figures are counted together.
    pub group: String,
    /// The position of the set of its tools in [`BenchmarkCorpus::tool_sets`].
    pub tool_set: usize,
    /// The names of the tools on offer.
    pub offered: Vec<String>,
    /// The message of the user.
    pub prompt: String,
    /// The calls, in order. Those of an attack follow those of the task.
    pub calls: Vec<ScriptedCall>,
}

impl CorpusCase {
    /// Adds a call of the task, unless the case already has a call of this tool with these arguments.
    ///
    /// It also determines which earlier calls the new call needs. A text or number in the arguments that the prompt
    /// does not contain must come from an answer. So the call needs every earlier call whose answer contains such a
    /// text or number. This is a guess: a short number can be in an answer by chance, and the call then also waits for
    /// that answer.
    pub(super) fn add_task_call(&mut self, tool: &str, arguments: Map<String, Value>, answer: String) {
        if self.calls.iter().any(|call| call.tool == tool && call.arguments == arguments) {
            return;
        }
        let mut texts = Vec::new();
        arguments.values().for_each(|value| collect_texts(value, &mut texts));
        texts.retain(|text| !self.prompt.contains(text.as_str()));
        // Texts that are empty or white space are left out: they occur in nearly every answer, and say nothing about
        // the source of a value.
        let needs = self.calls.iter().enumerate().filter(|(_, call)| {
            texts.iter().any(|text| !text.trim().is_empty() && call.answer.contains(text.as_str()))
        });
        let needs = needs.map(|(at, _)| at).collect();
        let purpose = CallPurpose::Task;
        self.calls.push(ScriptedCall { tool: tool.to_owned(), arguments, answer, purpose, needs });
    }
}

/// Adds all texts and numbers in a JSON value to `texts`, a number as its digits. Keys of objects are left out.
fn collect_texts(value: &Value, texts: &mut Vec<String>) {
    match value {
        Value::String(text) => texts.push(text.clone()),
        Value::Number(number) => texts.push(number.to_string()),
        Value::Array(items) => items.iter().for_each(|item| collect_texts(item, texts)),
        Value::Object(fields) => fields.values().for_each(|item| collect_texts(item, texts)),
        Value::Null | Value::Bool(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_call_needs_the_answers_that_its_arguments_come_from() {
        let mut case = CorpusCase {
            name: "case".to_owned(),
            group: "group".to_owned(),
            tool_set: 0,
            offered: Vec::new(),
            prompt: "cancel the order of Ada".to_owned(),
            calls: Vec::new(),
        };
        let arguments = |value: Value| value.as_object().cloned().unwrap();
        for (value, answer, needs) in [
            (json!({"name": "Ada"}), "user u-7", vec![]),
            (json!({"user": "u-7"}), "order 4411", vec![0]),
            (json!({"orders": [4411], "why": ""}), "", vec![1]),
            (json!({"note": "nobody wrote this"}), "", vec![]),
        ] {
            case.add_task_call("tool", arguments(value), answer.to_owned());
            assert_eq!(case.calls.last().unwrap().needs, needs, "{answer}");
        }
        case.add_task_call("tool", arguments(json!({"name": "Ada"})), String::new());
        assert_eq!(case.calls.len(), 4, "an equal call is not repeated");
    }
}
