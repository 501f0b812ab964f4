//! Tests of `--param` in the commands that judge recorded runs: the parameters of the option and of the run decide, and one
//! that a policy reads and nothing sets is named.

use serde_json::{Value, json};

use crate::{file, flowgate, name, text};

const POLICY: &str = "\
lattice integrity: trusted < untrusted
label m as trusted if:
    (m: Message)
    m.role == \"user\"
label out as trusted if:
    (out: ToolOutput) is tool:read
    tool_call(out).arguments.path.startswith(f\"{input.project}/\")
require untrusted if:
    (call: ToolCall) is tool:read
require trusted if:
    (call: ToolCall) is tool:send
";

/// Returns the messages of a run: a file of a project is read, and then a mail is sent.
fn messages() -> Value {
    let call = |id: &str, tool: &str, arguments: Value| {
        json!({"role": "assistant", "content": null,
               "tool_calls": [{"id": id, "type": "function", "function": {"name": tool, "arguments": arguments.to_string()}}]})
    };
    json!([
        {"role": "user", "content": "Send the file."},
        call("c1", "read", json!({"path": "/p/a"})),
        {"role": "tool", "tool_call_id": "c1", "content": "a text"},
        call("c2", "send", json!({"text": "a text"})),
    ])
}

#[test]
fn parameters_decide_in_every_command_that_judges_runs() {
    let policy = file("parameters.flow", POLICY.as_bytes());
    let trace = file("parameters.json", messages().to_string().as_bytes());
    let tool = |name: &str, property: &str| json!({"name": name, "description": name, "inputSchema": {"type": "object", "properties": {property: {"type": "string"}}}});
    let tools = json!({"tools": [tool("read", "path"), tool("send", "text")]});
    let tools = file("parameters-tools.json", tools.to_string().as_bytes());
    let (policy, trace) = (name(&policy), name(&trace));
    // Each command, with the exit codes without and with the parameter, and a part of what it then prints.
    for (words, without, with, part) in [
        (&["check", policy, trace][..], 1, 0, "2 calls permitted, 0 to be confirmed"),
        (&["explain", policy, trace], 1, 0, "send"),
        (&["suggest", policy, trace], 1, 0, "not permitted without a question: 0"),
        (&["replay", "--policy", policy, trace], 0, 0, "parameters"),
        (&["labels", policy, trace], 0, 0, "a step at the base label is shown:\n      a text"),
        // What is trusted lets attacks escape, so the grade without the parameter is too good.
        (&["attack", policy, trace, "--tools", name(&tools), "--form", "plain"], 0, 1, "escape"),
    ] {
        let output = flowgate(words);
        let said = text(&output);
        assert_eq!(output.status.code(), Some(without), "{words:?}\n{said}");
        let warning = "parameters.flow is not set, so the verdicts can differ from those of the agent; add --param \
                       project=VALUE";
        assert!(said.contains(warning), "{words:?}\n{said}");
        let output = flowgate(&[words, &["--param", "project=/p"]].concat());
        let said = text(&output);
        assert_eq!(output.status.code(), Some(with), "{words:?}\n{said}");
        assert!(said.contains(part) && !said.contains("is not set"), "{words:?}: {part}\n{said}");
    }
    // A missing one counts as a warning.
    assert_eq!(flowgate(&["replay", "--policy", policy, trace, "--deny-warnings"]).status.code(), Some(1));
    let questions = |more: &[&str]| {
        let output = flowgate(&[&["replay", "--policy", policy, "--format", "json", trace], more].concat());
        let row: Value = serde_json::from_slice(&output.stdout).unwrap();
        row["questions"].clone()
    };
    for method in [&[][..], &["--method", "lowest-first"]] {
        assert_eq!(questions(method), json!(1), "{method:?}");
        assert_eq!(questions(&[method, &["--param", "project=/p"]].concat()), json!(0), "{method:?}");
    }
}

/// A run says which parameters its policy had; the command line has the last word.
#[test]
fn a_run_has_parameters_of_its_own() {
    let policy = file("parameters-run.flow", POLICY.as_bytes());
    let parameters = json!({"project": "/p"});
    let lines: Vec<String> = [json!({"policy_parameters": parameters})]
        .into_iter()
        .chain(messages().as_array().unwrap().clone())
        .map(|line| line.to_string())
        .collect();
    let run = json!({"policy_parameters": parameters, "messages": messages()}).to_string();
    let check = |trace: &str, more: &[&str], code: i32, part: &str| {
        let trace = file("parameters-run.jsonl", trace.as_bytes());
        let output = flowgate(&[&["check", name(&policy), name(&trace)], more].concat());
        let said = text(&output);
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains(part) && !said.contains("is not set"), "{part}\n{said}");
    };
    for trace in [lines.join("\n"), run] {
        check(&trace, &[], 0, "2 calls permitted");
        check(&trace, &["--param", "project=/other"], 1, "1 call permitted, 1 to be confirmed");
    }
    let wrong = "`policy_parameters` is not an object; write one with the values of `input.NAME`";
    check("{\"policy_parameters\": 1}", &[], 2, wrong);
}
