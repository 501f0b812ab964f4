//! The forms of events and answers of each coding agent, for the tests of `flowgate hook --harness`.

use serde_json::{Value, json};

use Event::{After, Before, Prompt, Start};

/// An event in the words of the tests; each agent has its own form.
pub(crate) enum Event<'a> {
    Start(&'a str),
    Prompt(&'a str),
    Before(&'a str),
    After(&'a str, &'a str),
}

/// Returns the event as the agent `harness` writes it. A tool is `NAME` or `NAME ARGUMENT`, and of a server `SERVER/NAME`.
pub(crate) fn input(harness: &str, event: &Event<'_>) -> Value {
    let mut input = match harness {
        "cursor" => json!({"conversation_id": "s/1", "generation_id": "g", "workspace_roots": ["/"]}),
        "opencode" => json!({"session": "s/1"}),
        _ => json!({"session_id": "s/1", "cwd": "/", "transcript_path": null}),
    };
    let mut put =
        |key: &str, value: Value| drop(input.as_object_mut().unwrap().insert(key.to_owned(), value));
    let [start, prompt, before, after] = match harness {
        "codex" | "copilot" => ["SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse"],
        "gemini" => ["SessionStart", "BeforeAgent", "BeforeTool", "AfterTool"],
        "cursor" => ["sessionStart", "beforeSubmitPrompt", "preToolUse", "postToolUse"],
        _ => ["session.start", "chat.message", "tool.execute.before", "tool.execute.after"],
    };
    let name = match event {
        Start(_) => start,
        Prompt(_) => prompt,
        Before(_) => before,
        After(..) => after,
    };
    put(if harness == "opencode" { "event" } else { "hook_event_name" }, json!(name));
    let tool = match (event, harness) {
        (Start(source), "opencode") => {
            put("resumed", json!(*source == "resume"));
            return input;
        }
        (Start(source), _) => {
            put("source", json!(source));
            return input;
        }
        (Prompt(text), "opencode") => {
            put("text", json!(text));
            put("from_model", json!(false));
            put("has_files", json!(false));
            return input;
        }
        (Prompt(text), _) => {
            put("prompt", json!(text));
            return input;
        }
        (Before(tool) | After(tool, _), _) => tool,
    };
    if let After(_, response) = event {
        let (key, response) = match harness {
            "codex" => ("tool_response", json!(response)),
            "gemini" => ("tool_response", json!({"llmContent": response})),
            "cursor" => ("tool_output", json!(json!({"output": response, "exitCode": 0}).to_string())),
            "copilot" => ("tool_result", json!({"result_type": "success", "text_result_for_llm": response})),
            _ => ("output", json!(response)),
        };
        put(key, response);
    }
    let (tool, argument) = tool.split_once(' ').unwrap_or((tool, ""));
    let arguments = json!({"argument": argument});
    let id = json!(format!("call_{tool}_{argument}"));
    let server = tool.split_once('/');
    match (harness, server) {
        ("opencode", _) => {
            put("tool", json!(tool.replace('/', "_")));
            put("args", arguments);
            put("call", id);
            return input;
        }
        ("codex", Some((server, tool))) => put("tool_name", json!(format!("mcp__{server}__{tool}"))),
        ("gemini", Some((server, tool))) => {
            put("tool_name", json!(format!("mcp_{server}_{tool}")));
            put("mcp_context", json!({"server_name": server, "tool_name": tool}));
        }
        ("cursor", Some((_, tool))) => put("tool_name", json!(format!("MCP:{tool}"))),
        ("copilot", Some((server, tool))) => put("tool_name", json!(format!("{server}-{tool}"))),
        _ => put("tool_name", json!(tool)),
    }
    let is_text = harness == "cursor" && server.is_some();
    put("tool_input", if is_text { json!(arguments.to_string()) } else { arguments });
    if matches!(harness, "codex" | "cursor") {
        put("tool_use_id", id);
    }
    input
}

/// Returns an answer of the command in a short form: `-`, `deny`, `ask` or `block`, with the reason.
pub(crate) fn short_form(harness: &str, said: &str) -> String {
    if said.is_empty() || (harness == "cursor" && said.trim() == "{}") {
        return "-".to_owned();
    }
    let said: Value = serde_json::from_str(said).unwrap();
    let specific = &said["hookSpecificOutput"];
    let replaced = said["modifiedResult"]["textResultForLlm"].as_str();
    let replaced = replaced.or(said["updated_mcp_tool_output"]["content"][0]["text"].as_str());
    let stopped = said["continue"].as_bool().is_some_and(|continues| !continues) || replaced.is_some();
    let decision = [&said["decision"], &specific["permissionDecision"], &said["permissionDecision"]];
    let decision = decision.into_iter().chain([&said["permission"]]).find_map(Value::as_str);
    let decision = decision.unwrap_or(if stopped { "block" } else { "nothing" });
    let reasons = [&said["reason"], &specific["permissionDecisionReason"], &said["permissionDecisionReason"]];
    let reason = reasons.into_iter().chain([&said["user_message"]]).find_map(Value::as_str).or(replaced);
    format!("{decision} {}", reason.unwrap().strip_prefix("flowgate: ").unwrap())
}
