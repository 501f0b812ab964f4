//! Random policies over five tools, in the language's own words.

use std::fmt::Write as _;

use crate::random::Random;

/// How many tools there are: `t0`, `t1`, ...
pub(crate) const TOOLS: usize = 5;

const PARTS: [&str; 7] = [
    "out.content.k",
    "out.content.s",
    "out.content.rows",
    "out.content.rows[*].x",
    "out.content.rows[*].y",
    "out.content.rows[*]",
    "out.content.more.z",
];

/// A point of the lattice, or of some of its dimensions.
fn label(random: &mut Random) -> String {
    let integrity = random.of_list(&["trusted", "untrusted"]);
    let secrecy = random.of_list(&["public", "internal", "private"]);
    match random.below(5) {
        0 => integrity.to_owned(),
        1 => secrecy.to_owned(),
        _ => format!("{integrity}, {secrecy}"),
    }
}

fn low(random: &mut Random) -> String {
    if random.chance(60) { "trusted, public".to_owned() } else { label(random) }
}

pub(crate) fn policy(random: &mut Random) -> String {
    let mut text =
        "lattice integrity: trusted < untrusted\nlattice secrecy: public < internal < private\n".to_owned();
    let roles = random.of_list(&["\"user\"", "\"user\", \"system\""]);
    let _ = write!(text, "label m as trusted, public if:\n    (m: Message)\n    m.role in [{roles}]\n");
    if random.chance(30) {
        let _ =
            write!(text, "label m as {} if:\n    (m: Message)\n    m.role == \"memory\"\n", label(random));
    }
    for store in 0..random.below(3) {
        let (writer, reader) = (random.below(TOOLS), random.below(TOOLS));
        let _ = writeln!(text, "store s{store}: written by t{writer}, read by t{reader}");
    }
    for tool in 0..TOOLS {
        one_tool(random, tool, &mut text);
    }
    for _ in 0..random.below(3) {
        rule(random, &mut text);
    }
    text
}

fn one_tool(random: &mut Random, tool: usize, text: &mut String) {
    let out = format!("if:\n    (out: ToolOutput) is tool:t{tool}\n");
    if random.chance(80) {
        let _ = write!(text, "label out.content as {} {out}", low(random));
    }
    for _ in 0..random.below(4) {
        let _ = write!(text, "label {} as {} {out}", random.of_list(&PARTS), label(random));
    }
    if random.chance(40) {
        let (read, value) = (random.of_list(&["x", "y"]), random.of_list(&["me", "you"]));
        // A label that depends on the very text it labels tells something of it, and its author means it to.
        let target = if read == "x" { "y" } else { "x" };
        let _ = write!(
            text,
            "label row.{target} as {} {out}    (row: dict) in out.content.rows\n    row.{read} == \"{value}\"\n",
            label(random)
        );
    }
    if random.chance(20) {
        let _ = writeln!(text, "label out.content.s as {} {out}    out.content.k == \"me\"", label(random));
    }
    let call = format!("if:\n    (call: ToolCall) is tool:t{tool}\n");
    match random.below(6) {
        0 => {}
        1 | 2 => {
            let _ = write!(text, "require top {call}");
        }
        3 => {
            let _ = write!(text, "require {} else deny {call}", label(random));
        }
        _ => {
            let _ = write!(text, "require {} {call}", low(random));
        }
    }
    if random.chance(20) {
        let _ = write!(text, "require {} for call.arguments.a {call}", label(random));
    }
    if random.chance(15) {
        let _ = writeln!(text, "require {} {call}    call.arguments.a == \"me\"", label(random));
    }
    if random.chance(60) {
        let _ = write!(text, "payload call.arguments.b {call}");
    }
}

fn rule(random: &mut Random, text: &mut String) {
    let action = random.of_list(&["raise", "ask"]);
    let (tool, other) = (random.below(TOOLS), random.below(TOOLS));
    let word = random.of_list(&["me", "you", "secret"]);
    let body = match random.below(6) {
        0 => format!("(call: ToolCall) is tool:t{tool}\n    \"{word}\" in str(call.arguments)"),
        1 => format!(
            "(out: ToolOutput) -> (call: ToolCall)\n    out is tool:t{other}\n    call is tool:t{tool}"
        ),
        2 => format!(
            "(out: ToolOutput) -> (call: ToolCall)\n    \"{word}\" in str(out.content)\n    call is tool:t{tool}"
        ),
        3 => format!(
            "(out: ToolOutput) => (call: ToolCall)\n    out is tool:t{other}\n    call is tool:t{tool}"
        ),
        4 => format!(
            "(call: ToolCall) is tool:t{tool}\n    count(min=2):\n        (earlier: ToolCall) -> call\n        earlier is tool:t{other}"
        ),
        _ => format!("(m: Message)\n    m.role == \"assistant\"\n    \"{word}\" in m.content"),
    };
    let _ = write!(text, "{action} \"a rule\" if:\n    {body}\n");
}
