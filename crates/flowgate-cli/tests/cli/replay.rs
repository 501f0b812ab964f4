//! `flowgate replay`: summaries of corpora.

use crate::{POLICY, TRACE, check, file, flowgate, name, text};

#[test]
fn a_corpus_is_summed_up_by_suite() {
    let payment = std::fs::read_to_string(TRACE).unwrap().replace('\n', "");
    let run = |suite: &str, attack: &str, origin: &str| {
        let messages = payment.replace("\"tool_calls\"", &format!("\"origin\": {origin:?}, \"tool_calls\""));
        format!(
            "{{\"suite\":{suite:?},\"attack\":{attack:?},\"attack_succeeded\":true,\"user_task_id\":\"t\",\"messages\":{messages}}}\n"
        )
    };
    let corpus =
        [run("payment", "none", "user"), run("payment", "direct", "injection"), run("other", "none", "user")]
            .concat();
    let path = file("corpus.jsonl", corpus.as_bytes());
    let output = flowgate(&[
        "replay",
        "--policy",
        POLICY,
        "--influence",
        "everything",
        "--format",
        "json",
        name(&path),
    ]);
    let line: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    for (key, expected) in [
        ("runs", 2),
        ("injected_calls", 2),
        ("injected_permitted", 0),
        ("attacks_succeeded", 0),
        ("benign_tasks", 1),
        ("benign_without_question", 0),
        ("questions", 2),
    ] {
        assert_eq!(line.get(key), Some(&expected.into()), "{key} in {line}");
    }
    assert_eq!(
        (line.get("suite"), line.get("influence")),
        (Some(&"payment".into()), Some(&"everything".into()))
    );
    assert!(text(&output).contains("1 run of the suite `other` was skipped"));
    let everywhere = format!("*={POLICY}");
    check(&["replay", "--policy", &everywhere, "--influence", "all", name(&path)], 0, "all      provenance");
    check(
        &["replay", "--policy", POLICY, "--policy", POLICY, name(&path)],
        2,
        "two policies have the name `payment`",
    );
    let elsewhere = format!("nowhere={POLICY}");
    check(&["replay", "--policy", &elsewhere, name(&path)], 2, "no run was judged");
    let broken = file("broken-corpus.jsonl", format!("{{\n{corpus}").as_bytes());
    check(&["replay", "--policy", POLICY, name(&broken)], 2, "not strict JSON");
    // Without the origins of calls, the summary has no figures of attacks.
    let plain = file("plain.jsonl", format!("{{\"messages\":{payment}}}\n").as_bytes());
    let output = flowgate(&["replay", "--policy", POLICY, "--format", "json", name(&plain)]);
    let line: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(line.get("injected_calls").is_none() && line.get("benign_tasks") == Some(&1.into()), "{line}");
}
