//! Finds the calls in a program that a model of Codex has written as the argument of one call. Codex runs a hook before
//! each call that the program makes, and the hook asks the gateway about it. [`super`] notes the calls that this module
//! finds, together with the call that has the program.
//!
//! The gateway has judged the program as a whole; a policy reads the calls in it by the built-in `tool_script`, and
//! this module uses the same reader. If the reader cannot read all of a program, it is not known which calls the rest
//! makes. Then no call of the program is noted, and the hook denies each of them.

use flowgate::detect::tool_script::{ScriptCall, ScriptValue, tool_script};
use flowgate_lm::chat::ToolCall;
use serde::Deserialize;
use serde_json::{Map, Number, Value};

/// The tools by which Codex runs a program, as its requests name them. Their only argument is [`INPUT`].
const PROGRAM_TOOLS: [&str; 2] = ["functions__exec", "exec"];
/// The tools by which a model of Codex waits for a program that still runs.
const WAIT_TOOLS: [&str; 2] = ["functions__wait", "wait"];
/// The name of the argument for tools that take a text and not JSON: their text becomes this argument.
const INPUT: &str = "input";
/// The bytes that count for each call in addition to its texts.
const BYTES_PER_CALL: usize = 64;

/// A call that a program makes.
#[derive(Debug, PartialEq)]
pub(super) struct ProgramCall {
    tool: String,
    arguments: Map<String, Value>,
}

/// Which arguments of a call in a program a hook states.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum StatedArguments {
    /// All of them.
    All,
    /// Some of them: the program may give further ones.
    Some,
}

/// Returns the calls that a handed-over call makes if it runs a program. There are none if the program cannot be read
/// to its end.
pub(super) fn program_calls(call: &ToolCall) -> Vec<ProgramCall> {
    if !PROGRAM_TOOLS.contains(&call.name.as_str()) {
        return Vec::new();
    }
    // If `input` is the only argument, the agent receives its text and runs it as a program. Otherwise the agent
    // receives the arguments as JSON, which is no program.
    let arguments: Map<String, Value> = serde_json::from_str(&call.arguments).unwrap_or_default();
    let program = arguments.get(INPUT).filter(|_| arguments.len() == 1).and_then(Value::as_str);
    let script = tool_script(program.unwrap_or_default());
    if script.unread.is_some() {
        return Vec::new();
    }
    script.calls.into_iter().filter_map(ProgramCall::new).collect()
}

/// Returns whether a call waits for a program of an earlier call, which therefore may still run.
pub(super) fn waits_for_program(call: &ToolCall) -> bool {
    WAIT_TOOLS.contains(&call.name.as_str())
}

impl ProgramCall {
    /// Creates the call from its form in the program. In a program, each call has one argument: a map with the
    /// arguments of the tool, or a text, which becomes the argument [`INPUT`] here as it does for policies. `None` for
    /// any other argument, which no tool takes.
    fn new(call: ScriptCall) -> Option<Self> {
        let arguments = match json(&call.argument) {
            Value::Object(arguments) => arguments,
            text @ Value::String(_) => Map::from_iter([(INPUT.to_owned(), text)]),
            _ => return None,
        };
        Some(Self { tool: call.tool, arguments })
    }

    /// Returns whether this is a call of `tool` with these `arguments`. `stated` says whether the hook states all
    /// arguments of the call or only some: in the second case, this call may have further ones.
    pub(super) fn is_equal_to(
        &self,
        tool: &str,
        arguments: &Map<String, Value>,
        stated: StatedArguments,
    ) -> bool {
        let has_equal = |(name, value): (&String, &Value)| self.arguments.get(name) == Some(value);
        self.tool == tool
            && arguments.iter().all(has_equal)
            && (stated == StatedArguments::Some || arguments.len() == self.arguments.len())
    }

    /// Returns about how many bytes of memory the call takes.
    pub(super) fn size(&self) -> usize {
        let arguments: usize = self.arguments.iter().map(|(name, value)| name.len() + size(value)).sum();
        BYTES_PER_CALL + self.tool.len() + arguments
    }
}

/// Returns about how many bytes of memory a value takes.
fn size(value: &Value) -> usize {
    let parts = match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(size).sum(),
        Value::Object(entries) => entries.iter().map(|(name, value)| name.len() + size(value)).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    };
    // 16: for the value itself, besides its texts and parts.
    parts + 16
}

/// Converts a value of a program to JSON, as JavaScript serializes it: a whole number has no fraction (`3` and not
/// `3.0`). Whole numbers are converted to integers only below 9e15, since larger ones may not be exact.
fn json(value: &ScriptValue) -> Value {
    match value {
        ScriptValue::Bool(value) => Value::Bool(*value),
        #[expect(
            clippy::cast_possible_truncation,
            reason = "checked to be a whole number that an integer holds"
        )]
        ScriptValue::Number(number) if number.fract() == 0.0 && number.abs() < 9e15 => {
            Value::from(*number as i64)
        }
        ScriptValue::Number(number) => Number::from_f64(*number).map_or(Value::Null, Value::Number),
        ScriptValue::Text(text) => Value::from(text.as_str()),
        ScriptValue::List(items) => items.iter().map(json).collect(),
        ScriptValue::Map(entries) => {
            Value::Object(entries.iter().map(|(key, value)| (key.clone(), json(value))).collect())
        }
        // `null`, and kinds of values that a later version may add.
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn calls(tool: &str, arguments: &Value) -> Vec<(String, Value)> {
        let call = ToolCall { id: "1".to_owned(), name: tool.to_owned(), arguments: arguments.to_string() };
        let found = program_calls(&call).into_iter();
        found.map(|call| (call.tool, Value::Object(call.arguments))).collect()
    }

    /// The calls of a program are known only if the reader can read all of the program. The tests of the reader have
    /// more programs that it cannot read.
    #[test]
    fn the_calls_of_a_program_are_those_that_it_can_make() {
        let run = |cmd: &str| ("exec_command".to_owned(), json!({"cmd": cmd}));
        let rows = [
            ("text(await tools.exec_command({cmd: 'ls'}))", vec![run("ls")]),
            (
                "for (const cmd of ['ls', 'ls', 'pwd']) await tools.exec_command({cmd});",
                vec![run("ls"), run("ls"), run("pwd")],
            ),
            (
                "await tools.mcp__m__f({n: 3, x: 0.5, list: [-1, null, {a: true}]}); await tools.mcp__m__g()",
                vec![
                    ("mcp__m__f".to_owned(), json!({"n": 3, "x": 0.5, "list": [-1, null, {"a": true}]})),
                    ("mcp__m__g".to_owned(), json!({})),
                ],
            ),
            (
                "text(await tools.apply_patch('*** Begin Patch'))",
                vec![("apply_patch".to_owned(), json!({"input": "*** Begin Patch"}))],
            ),
            ("await tools.f(3); await tools.f(null); await tools.f(['a'])", vec![]),
            // The second call is computed, so the first one is not known either.
            (
                "const r = await tools.exec_command({cmd: 'ls'}); await tools.exec_command({cmd: r.output})",
                vec![],
            ),
            (
                "await tools.exec_command({cmd: 'ls'}); let c = 'a'; c = c + 'b'; await tools.exec_command({cmd: c})",
                vec![],
            ),
            (
                "await tools.exec_command({cmd: 'ls'}); while (true) await tools.exec_command({cmd: 'pwd'})",
                vec![],
            ),
            ("await tools.exec_command({cmd: 'ls'}); await tools[load('tool')]({cmd: 'pwd'})", vec![]),
            ("*** Begin Patch", vec![]),
        ];
        for (program, expected) in rows {
            for tool in PROGRAM_TOOLS {
                assert_eq!(calls(tool, &json!({"input": program})), expected, "{program}");
            }
        }
        // A text of another tool runs nothing, and neither do other arguments, which the agent receives as JSON.
        let program = "await tools.exec_command({cmd: 'ls'})";
        for (tool, arguments) in [
            ("apply_patch", json!({"input": program})),
            ("functions__exec", json!({"input": program, "more": 1})),
            ("functions__exec", json!({"script": program})),
            ("functions__exec", json!([program])),
        ] {
            assert_eq!(calls(tool, &arguments), vec![], "{tool} {arguments}");
        }
    }

    /// A row has the tool and the arguments that a hook states for the call `exec_command`, and whether they are all or
    /// some of its arguments.
    #[test]
    fn a_hook_states_all_or_some_arguments() {
        use StatedArguments::{All, Some};
        let call = ProgramCall {
            tool: "exec_command".to_owned(),
            arguments: json!({"cmd": "ls", "workdir": "/"}).as_object().cloned().unwrap(),
        };
        for (tool, arguments, stated, expected) in [
            ("exec_command", json!({"cmd": "ls", "workdir": "/"}), All, true),
            ("exec_command", json!({"cmd": "ls", "workdir": "/"}), Some, true),
            ("exec_command", json!({"cmd": "ls"}), Some, true),
            ("exec_command", json!({"cmd": "ls"}), All, false),
            ("exec_command", json!({"cmd": "pwd"}), Some, false),
            ("exec_command", json!({"cmd": "ls", "tty": true}), Some, false),
            ("exec_command", json!({"cmd": "ls", "tty": true}), All, false),
            ("write_stdin", json!({"cmd": "ls"}), Some, false),
        ] {
            let arguments = arguments.as_object().unwrap();
            assert_eq!(
                call.is_equal_to(tool, arguments, stated),
                expected,
                "{tool} {arguments:?} {stated:?}"
            );
        }
    }
}
