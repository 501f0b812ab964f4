//! Tests of `flowgate bench propagation` and `bench news-questions` with a model on a server, which a double plays: it
//! scores texts, answers questions, cites documents and writes questions.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use crate::scripted_server::{Answer, saying, scripted_server};
use crate::{POLICY, TRACE, check, flowgate, name, text};

/// Scores a text that was sent to `/v1/completions`: a token is probable if it was there before. The tokens are words with
/// the space before them; a colon ends one, and a brace begins one.
fn scored(body: &Value) -> Answer {
    let prompt = body["prompt"].as_str().unwrap();
    let mut tokens: Vec<String> = Vec::new();
    for c in prompt.chars() {
        match tokens.last_mut() {
            Some(token) if !matches!(c, ' ' | '{') && !token.ends_with(':') => token.push(c),
            _ => tokens.push(c.to_string()),
        }
    }
    let mut seen = BTreeSet::new();
    let word = |token: &str| token.trim_matches(|c: char| !c.is_alphanumeric()).to_lowercase();
    let mut logprobs = Vec::new();
    for token in &tokens {
        // A line break joins two words of different lines.
        let is_known = seen.contains(&word(token));
        seen.extend(token.split_whitespace().map(word));
        logprobs.push(if is_known { json!(-0.05) } else { json!(-4.0) });
    }
    // The first token follows nothing.
    if let Some(first) = logprobs.first_mut() {
        *first = Value::Null;
    }
    let choice = if body.get("echo").is_some() {
        json!({"text": "", "logprobs": {"tokens": tokens, "token_logprobs": logprobs}})
    } else {
        let entry = |(token, logprob): (&String, &Value)| match logprob {
            Value::Null => Value::Null,
            logprob => json!({"7": {"decoded_token": token, "logprob": logprob}}),
        };
        let entries: Vec<Value> = tokens.iter().zip(&logprobs).map(entry).collect();
        json!({"text": ".", "prompt_logprobs": entries})
    };
    let usage = json!({"prompt_tokens": tokens.len(), "completion_tokens": 0});
    ("application/json", json!({"choices": [choice], "usage": usage}).to_string())
}

fn answer(path: &str, body: &str) -> Answer {
    match path {
        "/v1/completions" => scored(&serde_json::from_str(body).unwrap()),
        _ if body.contains("NEEDED") => saying("NEEDED: 1"),
        _ => saying("the first document says so"),
    }
}

/// A model on a server has the tables of a model in a folder, except the rows that need hidden states, and no request
/// without a need: a text that a grid has scored is not scored again for the next setting.
#[test]
fn a_model_on_a_server_replaces_the_doubles() {
    let (address, count) = scripted_server(answer);
    let sizes = ["bench", "propagation", "--questions", "2", "--pairs", "3"];
    let named = [&sizes[..], &["--model", "stub", "--url", &address]].concat();
    check(&[&named[..], &["--dry-run"]].concat(), 0, "requests, sent to nobody");
    assert_eq!(count.load(Ordering::SeqCst), 0);
    let mut first = None;
    for scores in ["prompt-logprobs", "echo"] {
        let run = [&named[..], &["--scores", scores, "--format", "jsonl"]].concat();
        let output = flowgate(&run);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        let printed = String::from_utf8(output.stdout).unwrap();
        let lines: Vec<Value> = printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(lines[0]["model"].as_str().unwrap().starts_with("stub at "), "{}", lines[0]);
        let row = |set: &str, method: &str| {
            let is_row =
                |line: &&Value| line["type"] == "figures" && line["set"] == set && line["method"] == method;
            lines.iter().find(is_row)
        };
        let key_value = ["key-value/14", "key-value/unseen"];
        let others = ["news/perfect", "news/tf-idf", "agents/given", "agents/generated"];
        for set in key_value.into_iter().chain(others) {
            for method in ["naive", "prompt", "introspection"] {
                assert!(row(set, method).is_some(), "{set} {method}:\n{printed}");
            }
            assert!(row(set, "knn-lm").is_none(), "{set}");
        }
        // The double copies, so the search finds labels; the first document is rarely what is needed.
        assert_eq!(row("key-value/14", "prompt").unwrap()["exact_count"], 2, "{printed}");
        assert!(lines.iter().any(|line| line["type"] == "alignment"));
        // Both interfaces give the same figures.
        let figures: Vec<Value> = lines.into_iter().filter(|line| line["type"] == "figures").collect();
        assert_eq!(*first.get_or_insert_with(|| figures.clone()), figures);
    }
    // Batches find the same labels, and several seeds have ranges.
    let run = [&named[..], &["--batch", "4", "--seeds", "2", "--format", "jsonl"]].concat();
    let output = flowgate(&run);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let printed = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<Value> = printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!([&lines[0]["batch"], &lines[0]["seeds"]], [4, 2]);
    let exact = |figures: &[Value]| -> Vec<Value> {
        figures.iter().map(|line| line["exact_count"].clone()).collect()
    };
    let of_first: Vec<Value> =
        lines.iter().filter(|line| line["type"] == "figures" && line["seed"] == 1).cloned().collect();
    assert_eq!(Some(exact(&of_first)), first.as_deref().map(exact), "{printed}");
    assert!(lines.iter().any(|line| line["type"] == "seeds" && line["figure"] == "exact"), "{printed}");
    assert!(lines.iter().any(|line| line["type"] == "attack" && line["seed"] == 2), "{printed}");
    check(&[&named[..], &["--double", "copy"]].concat(), 2, "cannot be used with");
    check(&[&sizes[..], &["--scores", "echo"]].concat(), 2, "--model");
    check(
        &[&sizes[..], &["--model", "stub", "--url", "http://127.0.0.1:9/v1"]].concat(),
        2,
        "stub at 127.0.0.1: ",
    );
}

/// λ is tuned for a model on a server as well, on each phrasing. No server returns hidden states, so knn-lm has no row.
#[test]
fn lambda_is_chosen_for_a_model_on_a_server() {
    let (address, count) = scripted_server(answer);
    let sizes = ["lm", "tune", "--questions", "2", "--pairs", "3"];
    let named = [&sizes[..], &["--model", "stub", "--url", &address]].concat();
    check(&[&named[..], &["--dry-run"]].concat(), 0, "requests, sent to nobody");
    assert_eq!(count.load(Ordering::SeqCst), 0);
    let run = |scores: &str| {
        let output = flowgate(&[&named[..], &["--scores", scores]].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    let printed = run("prompt-logprobs");
    assert!(printed.starts_with("stub at 127.0.0.1, seed 1: share of questions"), "{printed}");
    for set in ["key-value/14", "key-value/unseen", "news/perfect", "news/tf-idf"] {
        let rows: Vec<&str> = printed.lines().filter(|line| line.starts_with(&format!("{set} "))).collect();
        assert!(matches!(rows.as_slice(), [row] if row.contains(" prompt ")), "{set}:\n{printed}");
    }
    // The double copies, so some λ finds the labels of every question.
    assert!(
        printed.lines().any(|line| line.starts_with("key-value/14 ") && line.contains(" 1.00")),
        "{printed}"
    );
    assert!(count.load(Ordering::SeqCst) > 0);
    // Another interface, and batches, give the same.
    assert_eq!(printed, run("echo"));
    let batched = flowgate(&[&named[..], &["--batch", "4"]].concat());
    assert_eq!(printed, String::from_utf8(batched.stdout).unwrap());
    check(&[&sizes[..], &["--scores", "echo"]].concat(), 2, "--model");
    check(
        &[&sizes[..], &["--model", "stub", "--url", "http://127.0.0.1:9/v1"]].concat(),
        2,
        "stub at 127.0.0.1: ",
    );
    #[cfg(not(feature = "local"))]
    check(&sizes, 2, "this program evaluates no models: name one on a server with `--model` and `--url`");
    #[cfg(feature = "local")]
    check(&[&named[..], &["models/mine"]].concat(), 2, "cannot be used with");
}

/// `replay` judges recorded runs with what a model says about the calls. A model that fails for every call is an error: the
/// figures would be those of `everything`.
#[test]
fn a_model_says_on_what_recorded_calls_depend() {
    let (address, count) = scripted_server(answer);
    let replay = ["replay", "--policy", POLICY, TRACE, "--format", "json"];
    let named = [&replay[..], &["--model", "stub", "--url", &address]].concat();
    for method in ["lambda", "introspection"] {
        let before = count.load(Ordering::SeqCst);
        let output = flowgate(&[&named[..], &["--influence", method]].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        let printed = String::from_utf8(output.stdout).unwrap();
        let rows: Vec<Value> = printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let methods = rows.iter().filter_map(|row| row["influence"].as_str());
        assert_eq!(methods.collect::<Vec<_>>(), [method], "{printed}");
        assert!(count.load(Ordering::SeqCst) > before, "{method}");
    }
    let refused = |more: &[&str], expected: &str| check(&[&named[..], more].concat(), 2, expected);
    refused(&["--influence", "all"], "a model is named, but no method that asks a model");
    refused(&["--influence", "knn-lm"], "--influence knn-lm: no server returns the hidden states");
    refused(&["--influence", "lambda", "--lambda=-1"], "λ must be a number that is at least 0");
    let alone = |more: &[&str], expected: &str| check(&[&replay[..], more].concat(), 2, expected);
    alone(&["--influence", "lambda"], "--influence lambda: this method asks a model");
    alone(&["--influence", "lambdas"], "nothing, lambda, knn-lm, introspection and all");
    let silent = ["--influence", "lambda", "--model", "stub", "--url", "http://127.0.0.1:9/v1"];
    alone(&silent, "which count as depending on everything: ");
}

/// A folder with two pairs of articles and no questions.
fn articles() -> PathBuf {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("news-questions");
    let _ = std::fs::remove_dir_all(&folder);
    for (kind, builder) in [("legit", "Ann"), ("fake", "Bob")] {
        std::fs::create_dir_all(folder.join(kind)).unwrap();
        for pair in 1..3 {
            let text = format!("The bridge {pair} has {pair}00 metres.\n\n{builder}{pair} built it.");
            std::fs::write(folder.join(kind).join(format!("biz0{pair}.{kind}.txt")), text).unwrap();
        }
    }
    folder
}

/// Writes three questions about the pair in the request: two are right, and the third says that one article alone states
/// what both do.
fn written(_: &str, body: &str) -> Answer {
    let pair = if body.contains("bridge 1") { 1 } else { 2 };
    let length = format!("The bridge {pair} has {pair}00 metres");
    let asked = |what: &str, answer: String, fact: Value| {
        json!({"question": format!("{what} the bridge {pair}?"), "answer": answer, "facts": [fact]})
            .to_string()
    };
    let metres = format!("{pair}00 metres");
    let lines = [
        asked("How long is", format!("It has {metres}."), json!({"words": metres, "A": length, "B": length})),
        asked(
            "Who built",
            format!("Bob{pair} did."),
            json!({"words": format!("Bob{pair}"), "A": null, "B": format!("Bob{pair} built it.")}),
        ),
        asked(
            "What length has",
            format!("It has {metres}."),
            json!({"words": metres, "A": length, "B": null}),
        ),
    ];
    saying(&format!("```\n{}\n```", lines.join("\n")))
}

/// The questions of a model are checked against the articles, and `bench propagation` reads those that are printed.
#[test]
fn a_model_writes_questions_about_articles() {
    let folder = articles();
    let (address, count) = scripted_server(written);
    let command = ["bench", "news-questions", name(&folder)];
    check(&command, 2, "no model is named to write the questions");
    check(&[&command[..], &["--dry-run"]].concat(), 0, "2 requests, sent to nobody");
    let named = [&command[..], &["--model", "stub", "--url", &address]].concat();
    let output = flowgate(&[&named[..], &["--pairs", "1"]].concat());
    assert_eq!((output.status.code(), count.load(Ordering::SeqCst)), (Some(0), 1), "{}", text(&output));
    let output = flowgate(&named);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains(
            "refused: biz01: article B has the words `100 metres` of a fact, but the model quotes no sentence of this article"
        ),
        "{said}"
    );
    assert!(said.contains("4 questions about 2 pairs, 2 refused"), "{said}");
    let printed = String::from_utf8(output.stdout).unwrap();
    let facts: Vec<Value> =
        printed.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["facts"].clone()).collect();
    let (both, fake) = (json!([["legit", "fake"]]), json!([["fake"]]));
    assert_eq!(facts, [both.clone(), fake.clone(), both, fake]);
    std::fs::write(folder.join("questions.jsonl"), printed).unwrap();
    let read = ["bench", "propagation", "--double", "copy", "--questions", "2", "--pairs", "3", "--news"];
    check(&[&read[..], &[name(&folder)]].concat(), 0, "news/perfect");
    let broken = [&command[..], &["--model", "stub", "--url", "http://127.0.0.1:9/v1"]].concat();
    check(&broken, 2, "stub at 127.0.0.1, pair biz01: ");
}
