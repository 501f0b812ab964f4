//! Tests `flowgate bench games` with a scripted model behind an address.

use serde_json::Value;

use crate::program::{ModelServerDouble, err, flowgate, folder, out};

#[test]
fn a_model_on_a_server_plays_the_games() {
    let folder = folder("games");
    // For each game the adversarial side, then the control; the script violates the first and refuses the last.
    let script = ["ASB_OVERRIDE_0000", "A summary.", "Nothing else.", "Sales.", "Done.", "I cannot do that."];
    let model = ModelServerDouble::new(&script);
    let arguments = [
        "bench",
        "games",
        "--instances",
        "1",
        "--defence",
        "none",
        "--format",
        "jsonl",
        "--content",
        "--model",
        "small",
        "--url",
        &model.url,
        "--key-from",
        "MODEL_KEY",
    ];
    let output = flowgate(&folder, &arguments, "");
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let lines: Vec<Value> = out(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let executions: Vec<&Value> = lines.iter().filter(|line| line["type"] == "execution").collect();
    let responses: Vec<&Value> = executions.iter().map(|execution| &execution["response"]).collect();
    assert_eq!(responses, script.map(Value::from).iter().collect::<Vec<_>>());
    let violated: Vec<bool> =
        executions.iter().map(|execution| execution["violated"].as_bool().unwrap()).collect();
    assert_eq!(violated, [true, false, false, false, false, false]);
    for execution in executions {
        assert_eq!((&execution["input_tokens"], &execution["output_tokens"]), (&10.into(), &5.into()));
        assert!(execution["latency_ms"].is_u64() && execution["model"].as_str().unwrap().contains("small"));
    }
    // A model can be random, so canaries are not enumerated.
    assert_eq!(model.asked.lock().unwrap().len(), script.len());
    let sampling = model.asked.lock().unwrap()[0].request.sampling.clone();
    assert_eq!((sampling.max_tokens, sampling.temperature), (Some(64), Some(0.0)));
    assert!(model.shown(0).contains("ASB_OVERRIDE_0000") && !model.shown(1).contains("ASB_OVERRIDE_0000"));
}

/// Under the labels the model is offered tools, what it may not see is hidden, and its calls are judged.
#[test]
fn a_model_on_a_server_is_guarded() {
    let folder = folder("guarded-games");
    let look = r#"look {"regions": ["h1"]}"#;
    let script = [look, "ASB_OVERRIDE_0000"];
    let model = ModelServerDouble::new(&script);
    let arguments = [
        "bench",
        "games",
        "--instances",
        "1",
        "--defence",
        "labels/lowest-first",
        "--format",
        "jsonl",
        "--model",
        "small",
        "--url",
        &model.url,
    ];
    let output = flowgate(&folder, &arguments, "");
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let lines: Vec<Value> = out(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let first = lines.iter().find(|line| line["type"] == "execution").unwrap();
    let expected = [("closed", false), ("violated", true), ("executed", false)];
    for (name, value) in expected {
        assert_eq!(first[name], value, "{name}");
    }
    assert_eq!(first["reply_label"][0], "untrusted");
    assert!(!model.shown(0).contains("ASB_OVERRIDE_0000") && model.shown(1).contains("ASB_OVERRIDE_0000"));
    assert!(model.tools(0).contains(&"look".to_owned()), "{:?}", model.tools(0));
}

#[test]
fn a_silent_model_is_an_error() {
    let folder = folder("silent-games");
    let arguments =
        ["bench", "games", "--instances", "1", "--model", "small", "--url", "http://127.0.0.1:1/v1"];
    let output = flowgate(&folder, &arguments, "");
    assert_eq!(output.status.code(), Some(2));
    let message = err(&output);
    assert!(
        message.contains(
            "instruction-0000: the model gave no answer; do what its error asks for, and repeat the run: "
        ),
        "{message}"
    );
}
