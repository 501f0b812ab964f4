//! Generates random rules, which may refer to every event of the trace.

use std::fmt::Write as _;

use crate::policy::PolicyWriter;

pub(crate) fn rule(writer: &mut PolicyWriter<'_>) {
    let PolicyWriter { random, tools, text, .. } = writer;
    let action = random.of_list(&["raise", "ask"]);
    let (tool, other) = (tools.any(random), tools.any(random));
    let word = random.of_list(&["me", "you", "secret"]);
    let body = match random.below(10) {
        0 => format!("(call: ToolCall) is tool:{tool}\n    \"{word}\" in str(call.arguments)"),
        1 => {
            format!("(out: ToolOutput) -> (call: ToolCall)\n    out is tool:{other}\n    call is tool:{tool}")
        }
        2 => format!(
            "(out: ToolOutput) -> (call: ToolCall)\n    \"{word}\" in str(out.content)\n    call is tool:{tool}"
        ),
        3 => {
            format!("(out: ToolOutput) => (call: ToolCall)\n    out is tool:{other}\n    call is tool:{tool}")
        }
        4 => format!(
            "(call: ToolCall) is tool:{tool}\n    count(min=2):\n        (earlier: ToolCall) -> call\n        earlier is tool:{other}"
        ),
        5 => format!("(call: ToolCall) is tool:{tool}\n    hidden(call) > {}", random.below(3)),
        6 => format!("(call: ToolCall) is tool:{tool}\n    says(call)"),
        7 => format!("(out: ToolOutput) -> (call: ToolCall)\n    is_mine(out)\n    call is tool:{tool}"),
        8 => format!("(m: Message)\n    m.role == \"assistant\"\n    \"{word}\" in m.content"),
        _ => format!("(out: ToolOutput) is tool:{other}\n    is_mine(out)"),
    };
    let _ = write!(text, "{action} \"a rule\" if:\n    {body}\n");
}
