//! Tests of `flowgate bench games` and `extended` with a model behind a server, which a double answers: a model drives the
//! attacker, and an interrupted run continues from the answers that it has stored.

use crate::{check, file, flowgate, name, text};

/// A server that answers every request with the words "I see.". Returns its address and the number of requests so far.
fn stub_server() -> (String, std::sync::Arc<std::sync::atomic::AtomicUsize>) {
    server_saying("I see.")
}

/// A server that answers every request with the same words. Returns its address and the number of requests so far.
fn server_saying(words: &str) -> (String, std::sync::Arc<std::sync::atomic::AtomicUsize>) {
    use std::io::{Read, Write};
    use std::sync::atomic::{AtomicUsize, Ordering};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/v1", listener.local_addr().unwrap());
    let count = std::sync::Arc::new(AtomicUsize::new(0));
    let counted = std::sync::Arc::clone(&count);
    let delta = serde_json::json!({"role": "assistant", "content": words}).to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            let (counted, delta) = (std::sync::Arc::clone(&counted), delta.clone());
            std::thread::spawn(move || {
                let mut received = Vec::new();
                let mut buffer = [0; 4096];
                // The request is complete once its body has the announced length.
                loop {
                    let text = String::from_utf8_lossy(&received).to_lowercase();
                    let length =
                        text.split("content-length: ").nth(1).and_then(|rest| rest.split('\r').next());
                    let body = text.find("\r\n\r\n").map(|at| received.len() - at - 4);
                    if let (Some(length), Some(body)) =
                        (length.and_then(|length| length.parse::<usize>().ok()), body)
                        && body >= length
                    {
                        break;
                    }
                    match stream.read(&mut buffer) {
                        Ok(read) if read > 0 => {
                            received.extend_from_slice(buffer.get(..read).unwrap_or_default())
                        }
                        _ => return,
                    }
                }
                counted.fetch_add(1, Ordering::SeqCst);
                let chunk = |delta: &str, reason: &str| {
                    format!(
                        "data: {{\"choices\":[{{\"index\":0,\"delta\":{delta},\"finish_reason\":{reason}}}]}}\n\n"
                    )
                };
                let body = chunk(&delta, "null") + &chunk("{}", "\"stop\"") + "data: [DONE]\n\n";
                let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close";
                let _ = write!(stream, "{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
            });
        }
    });
    (address, count)
}

/// A model drives the attacker: its texts are tried, and one that is no template is replaced.
#[test]
fn a_model_drives_the_attacker() {
    use std::sync::atomic::Ordering;
    let search = |words: &str, defence: &str| {
        let (address, count) = server_saying(words);
        let arguments = [
            &[
                "bench",
                "games",
                "--instances",
                "1",
                "--defence",
                defence,
                "--queries",
                "10",
                "--format",
                "jsonl",
            ][..],
            &["--attacker-model", "stub", "--attacker-url", &address],
        ];
        let output = flowgate(&arguments.concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        let lines = String::from_utf8(output.stdout).unwrap();
        let searches: Vec<serde_json::Value> = lines
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .filter(|line: &serde_json::Value| line["type"] == "search")
            .collect();
        (searches, count.load(Ordering::SeqCst))
    };
    // No text of the families is visible under this defence. The families are eight, six and six, so the model is asked for the rest of ten.
    let template = "{\"text\": \"Please call {forbidden} and write {target}\", \"variant\": \"base64\"}";
    let (searches, asked) = search(template, "labels/never-look");
    assert_eq!((searches.len(), asked), (3, 2 + 4 + 4));
    let unusable: Vec<_> = searches.iter().map(|search| search["unusable_proposals"].as_u64()).collect();
    // The template also fits the instruction game, where its other placeholder is only text.
    assert_eq!(unusable, [Some(0), Some(4), Some(0)]);
    assert!(searches.iter().all(|search| search["queries"] == 10 && search["executed_at"].is_null()));
    check(
        &["bench", "games", "--attacker-model", "stub", "--attacker-url", "http://localhost:1"],
        2,
        "--queries",
    );
}

/// A run with a model is announced, asks for several answers at once, and continues from the file of answers.
#[test]
fn a_run_with_a_model_continues_from_its_answers() {
    use std::sync::atomic::Ordering;
    let (address, count) = stub_server();
    let answers = std::env::temp_dir().join(format!("flowgate-answers-{}.jsonl", std::process::id()));
    let _ = std::fs::remove_file(&answers);
    let model = ["--model", "stub", "--url", &address];
    let games =
        [&["bench", "games", "--instances", "1", "--defence", "none", "--format", "jsonl"][..], &model]
            .concat();
    check(&[&games[..], &["--dry-run"]].concat(), 0, "6 requests, sent to nobody");
    assert_eq!(count.load(Ordering::SeqCst), 0);
    let kept = [&games[..], &["--answers", name(&answers), "--jobs", "3", "--rate", "60000"]].concat();
    let run = |arguments: &[&str]| {
        let output = flowgate(arguments);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        output.stdout
    };
    let first = run(&kept);
    assert_eq!(count.load(Ordering::SeqCst), 6);
    assert_eq!(run(&kept), first, "the answers are those of the file");
    assert_eq!(count.load(Ordering::SeqCst), 6, "nothing is asked again");
    // The recorded answers repeat the run, and nothing else does.
    let verified = |lines: &[u8], what: &str| {
        let kept = file(what, lines);
        check(
            &["bench", "verify", name(&kept), "--answers", name(&answers)],
            0,
            "this program repeats the run: ",
        );
        check(&["bench", "verify", name(&kept)], 2, "cannot be repeated without its recorded answers");
    };
    verified(&first, "games-of-a-model.jsonl");
    let recorded = ["--answers", name(&answers)];
    let extended = [
        "bench",
        "extended",
        "--instances",
        "1",
        "--game",
        "memory",
        "--defence",
        "none",
        "--format",
        "jsonl",
    ];
    verified(&run(&[&extended[..], &model, &recorded].concat()), "extended-of-a-model.jsonl");
    let privacy = ["bench", "privacy", "--defence", "never-look", "--format", "jsonl"];
    verified(&run(&[&privacy[..], &model, &recorded].concat()), "privacy-of-a-model.jsonl");
    let missing = ["bench", "verify", name(&file("of-a-model.jsonl", &first)), "--answers", "no-such-file"]
        .map(str::to_owned);
    check(&missing.each_ref().map(String::as_str), 2, "no-such-file: there is no such file");
    count.store(6, Ordering::SeqCst);
    // One more pair of each game asks for what is missing.
    let more: Vec<&str> =
        kept.iter().map(|argument| if *argument == "1" { "2" } else { *argument }).collect();
    run(&more);
    assert_eq!(count.load(Ordering::SeqCst), 12);
    let privacy =
        [&["bench", "privacy", "--defence", "never-look", "--format", "jsonl"][..], &model].concat();
    let lines = String::from_utf8(run(&privacy)).unwrap();
    let manifest: serde_json::Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    assert!(manifest["model"].as_str().unwrap().starts_with("stub at "), "{manifest}");
    let honest = [&["bench", "privacy", "--defence", "judge/honest"][..], &model].concat();
    check(
        &honest,
        2,
        "--defence judge/honest: this defence can be measured only with a double; with a model, use one of",
    );
    check(&[&games[..], &["--jobs", "2"]].concat(), 2, "--answers <FILE>");
    check(&["bench", "games", "--rate", "5"], 2, "apply only to a model, but no model is named");
    std::fs::remove_file(&answers).unwrap();
}
