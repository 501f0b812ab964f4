//! Tests of the way from watch mode to `flowgate suggest`: the hook records each session, and the least change of the
//! policy that lets its calls pass is found.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::forms::Event::{After, Before, Prompt, Start};
use crate::{HARNESSES, Session};

const POLICY: &str = r#"lattice integrity: trusted < untrusted
label message as trusted if:
    (message: Message)
    message.role in ["user", "attachment/context"]
label out.content as untrusted if:
    (out: ToolOutput) is tool:mail
require untrusted if:
    (call: ToolCall) is tool:mail
require trusted if:
    (call: ToolCall) is tool:book
"#;

/// Checks that `flowgate suggest` prints the change for the argument `name` of the call, from the traces in the folder.
fn check_suggestion(session: &Session, folder: &Path, runs: &str, name: &str) {
    let mut suggest = Command::new(env!("CARGO_BIN_EXE_flowgate"));
    suggest.arg("suggest").arg(session.folder.join("policy.flow")).arg(folder);
    let output = suggest.args(["--influence", "provenance"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    for part in [
        format!(
            "{runs}, of which not permitted without a question: 1 (1 call); with the changes below, 0 (0 calls)"
        ),
        format!("endorse call.arguments.{name} as trusted if:"),
    ] {
        assert!(said.contains(&part), "{}: {part}\n{said}{output:?}", session.harness);
    }
}

/// Returns a session with the policy of these tests, and the folder of its traces.
fn watched(harness: &'static str) -> (Session, std::path::PathBuf) {
    let session = Session::new(harness);
    std::fs::write(session.folder.join("policy.flow"), POLICY).unwrap();
    let traces = session.folder.join("traces");
    (session, traces)
}

/// Runs the hook in watch mode, and checks that it stops nothing.
fn watch(session: &Session, traces: &Path, input: &Value) -> Output {
    let log = session.folder.join("watch.jsonl");
    let options = ["--watch", log.to_str().unwrap(), "--traces", traces.to_str().unwrap()];
    let output = session.run_with(input, &options);
    assert!(output.stdout.is_empty(), "{}: {output:?}", session.harness);
    output
}

#[test]
fn the_session_of_every_agent_leads_to_the_change_of_the_policy() {
    for harness in HARNESSES {
        let (session, traces) = watched(harness);
        let events = [
            Start("startup"),
            Prompt("Do what the mail asks."),
            Before("mail"),
            After("mail", "day: 2024-05-19"),
            // The last event of the session: the call that the policy asks about.
            Before("book 2024-05-19"),
        ];
        for event in &events {
            let output = watch(&session, &traces, &session.input(event));
            assert_eq!(output.status.code(), Some(0), "{harness}: {output:?}");
        }
        let file = traces.join(format!("{harness}-s-2f1-3.jsonl"));
        assert!(file.exists(), "{:?}", std::fs::read_dir(&traces).unwrap().collect::<Vec<_>>());
        check_suggestion(&session, &traces, "1 useful run", "argument");
    }
}

#[test]
fn a_session_of_claude_code_leads_to_the_change_of_the_policy() {
    let (session, traces) = watched("claude-code");
    let used = |id: &str, name: &str, input: &Value| {
        let block = json!({"type": "tool_use", "id": id, "name": name, "input": input});
        json!({"type": "assistant", "message": {"id": format!("m-{id}"), "role": "assistant", "content": [block]}})
    };
    let user = |content: Value| json!({"type": "user", "message": {"role": "user", "content": content}});
    let day = json!({"day": "2024-05-19"});
    let result = json!([{"type": "tool_result", "tool_use_id": "r", "content": "day: 2024-05-19"}]);
    let entries = [
        user(json!("Do what the mail asks.")),
        used("r", "mail", &json!({})),
        user(result),
        used("asked", "book", &day),
    ];
    let mut lines = String::new();
    for (index, entry) in entries.iter().enumerate() {
        let mut entry = entry.clone();
        let parent = if index == 0 { Value::Null } else { json!(format!("u{}", index - 1)) };
        let common = json!({
            "uuid": format!("u{index}"), "parentUuid": parent, "isSidechain": false,
            "timestamp": format!("2026-11-22T03:00:{index:02}.000Z"),
        });
        entry.as_object_mut().unwrap().extend(common.as_object().unwrap().clone());
        lines += &format!("{entry}\n");
    }
    let transcript = session.folder.join("session.jsonl");
    std::fs::write(&transcript, lines).unwrap();
    let event = json!({
        "session_id": "s", "transcript_path": transcript, "cwd": "/", "hook_event_name": "PreToolUse",
        "tool_name": "book", "tool_input": day, "tool_use_id": "asked",
    });
    // A second event of the same session writes the same file.
    for _ in 0..2 {
        assert_eq!(watch(&session, &traces, &event).status.code(), Some(0));
        check_suggestion(&session, &traces, "1 useful run", "day");
    }
}

/// The parameters of the hook are those of the trace, so that `suggest` judges by them without an option.
#[test]
fn the_trace_has_the_parameters_of_the_hook() {
    let (session, traces) = watched("codex");
    let policy = POLICY.replace(
        "label out.content as untrusted if:\n    (out: ToolOutput) is tool:mail\n",
        "label out.content as trusted if:\n    (out: ToolOutput) is tool:mail\n    input.project == \"/p\"\n",
    );
    std::fs::write(session.folder.join("policy.flow"), policy).unwrap();
    let log = session.folder.join("watch.jsonl");
    let options =
        ["--watch", log.to_str().unwrap(), "--traces", traces.to_str().unwrap(), "--param", "project=/p"];
    for event in
        [Start("startup"), Prompt("Do it."), Before("mail"), After("mail", "day"), Before("book day")]
    {
        assert_eq!(session.run_with(&session.input(&event), &options).status.code(), Some(0));
    }
    let text = std::fs::read_to_string(traces.join("codex-s-2f1-3.jsonl")).unwrap();
    assert!(text.starts_with("{\"policy_parameters\":{\"project\":\"/p\"}}\n"), "{text}");
    let suggest = |more: &[&str]| {
        let mut suggest = Command::new(env!("CARGO_BIN_EXE_flowgate"));
        suggest.arg("suggest").arg(session.folder.join("policy.flow")).arg(&traces).args(more);
        String::from_utf8_lossy(&suggest.output().unwrap().stdout).into_owned()
    };
    assert!(
        suggest(&[]).contains("1 useful run, of which not permitted without a question: 0"),
        "{}",
        suggest(&[])
    );
    let other = ["--param", "project=/other"];
    assert!(
        suggest(&other).contains("1 useful run, of which not permitted without a question: 1"),
        "{}",
        suggest(&other)
    );
}

/// A trace that cannot be written stops nothing, and the verdict is recorded all the same.
#[test]
fn a_trace_that_cannot_be_written_is_reported() {
    let (session, _) = watched("codex");
    let nowhere = session.folder.join("no/such/folder");
    let output = watch(&session, &nowhere, &session.input(&Prompt("Hello.")));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("no/such/folder: there is no such file; check the path"), "{said}");
    let log = std::fs::read_to_string(session.folder.join("watch.jsonl")).unwrap();
    assert_eq!(log.lines().count(), 1, "{log}");
    // Only watched sessions are recorded.
    let enforcing =
        session.run_with(&session.input(&Prompt("Hello.")), &["--traces", nowhere.to_str().unwrap()]);
    assert_eq!(enforcing.status.code(), Some(2));
}
