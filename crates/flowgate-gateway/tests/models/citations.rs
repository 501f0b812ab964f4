//! Tests of citations in the Messages API: an answer cites only documents that the model was shown as a whole, and only
//! passages that the client's own copy of the document contains.

use flowgate_lm::chat::{Citation, CitedPiece, Completion, DocumentKind};
use flowgate_lm::wire::Api;
use serde_json::{Value, json};

use crate::FORMS;
use crate::gateway::{KEY, POLICY, TestGateway, config, tools};
use crate::upstream::{UpstreamDouble, says};

const SHOWS_ALL: &str = "user-messages = \"trust-unmarked-even-if-pasted\"\nmethod = \"everything\"";
const SHOWS_TRUSTED: &str = "user-messages = \"trust-unmarked-even-if-pasted\"";
const GREEN: &str = "The grass is green. ";
const ANSWER: &str = "It is green.";
const LINK: &str = "https://evil.example/?q=1";

/// Returns a document of a client's request that the answer may cite.
fn document(title: &str, text: &str) -> Value {
    let source = json!({"type": "text", "media_type": "text/plain", "data": text});
    json!({"type": "document", "title": title, "source": source, "citations": {"enabled": true}})
}

/// Returns the result of a search, in a client's request, that the answer may cite.
fn found(source: &str) -> Value {
    let content = json!([{"type": "text", "text": "The sky is blue."}, {"type": "text", "text": GREEN}]);
    json!({"type": "search_result", "title": "T", "source": source, "content": content, "citations": {"enabled": true}})
}

/// Returns a citation as the model's server reports it, with a title and a source that the client's document does not
/// have.
fn cites(kind: DocumentKind, index: usize, text: &str, (start, end): (usize, usize)) -> Citation {
    let (title, source) = (Some("the server's".to_owned()), Some("its".to_owned()));
    Citation { kind, index, title, source, text: text.to_owned(), start, end }
}

/// Returns an answer of the model with this text. `pieces` has parts of the text, each with the passage that it cites.
fn answer(text: &str, pieces: &[(&str, Citation)]) -> Completion {
    let cited = |(piece, citation): &(&str, Citation)| {
        let start = text.find(piece).unwrap();
        CitedPiece { start, end: start + piece.len(), citations: vec![citation.clone()] }
    };
    Completion { citations: pieces.iter().map(cited).collect(), ..says(text) }
}

/// Returns the body of a request whose message has these parts, such as documents, before a question.
fn request(parts: &Value, streams: bool) -> Value {
    let question = json!({"type": "text", "text": "What colour is the grass?"});
    let content: Vec<Value> = parts.as_array().unwrap().iter().cloned().chain([question]).collect();
    let tool = &tools()[1];
    json!({
        "model": "double",
        "max_tokens": 100,
        "stream": streams,
        "messages": [{"role": "user", "content": content}],
        "tools": [{"name": tool.name, "input_schema": *tool.parameters}],
    })
}

/// Sends a request. Returns the name of the conversation and the body of the answer.
fn send(gateway: &TestGateway, body: &Value) -> (Option<String>, String) {
    let headers = [("authorization", &*format!("Bearer {KEY}"))];
    let (status, conversation, text) =
        gateway.post_for("/v1/messages", &headers, &body.to_string(), "x-flowgate-conversation");
    assert_eq!(status, 200, "{text}");
    (conversation, text)
}

/// Returns the text blocks of an answer, each with its citations.
fn blocks(text: &str, streams: bool) -> Vec<(String, Vec<Value>)> {
    let mut blocks: Vec<(String, Vec<Value>)> = Vec::new();
    if !streams {
        let body: Value = serde_json::from_str(text).unwrap();
        for block in body["content"].as_array().unwrap() {
            let citations = block["citations"].as_array().cloned().unwrap_or_default();
            blocks.push((block["text"].as_str().unwrap().to_owned(), citations));
        }
        return blocks;
    }
    for event in text.lines().filter_map(|line| line.strip_prefix("data: ")) {
        let event: Value = serde_json::from_str(event).unwrap();
        let delta = &event["delta"];
        match (event["type"].as_str().unwrap(), delta["type"].as_str().unwrap_or_default()) {
            ("content_block_start", _) => blocks.push((String::new(), Vec::new())),
            (_, "text_delta") => blocks.last_mut().unwrap().0 += delta["text"].as_str().unwrap(),
            (_, "citations_delta") => blocks.last_mut().unwrap().1.push(delta["citation"].clone()),
            _ => {}
        }
    }
    blocks
}

/// Asks about these parts, streamed and not, and checks the blocks of the answer: their texts, and the citations of
/// each (`expected`). The first argument has the form of the upstream, further settings of the client, and the policy;
/// `completion` is what the upstream answers. Returns the bodies that the upstream received.
fn check(
    (form, more, policy): (Api, &str, &str),
    parts: &Value,
    completion: &Completion,
    expected: &[(&str, Vec<Value>)],
) -> Vec<String> {
    let name = FORMS.into_iter().find(|(known, _)| *known == form).unwrap().1;
    let completed = completion.clone();
    let upstream = UpstreamDouble::new(move |_| completed.clone());
    let gateway = TestGateway::configured(&config(&upstream.url, name, more), policy);
    for streams in [false, true] {
        let (_, text) = send(&gateway, &request(parts, streams));
        let blocks = blocks(&text, streams);
        let blocks: Vec<(&str, Vec<Value>)> =
            blocks.iter().map(|(text, citations)| (text.as_str(), citations.clone())).collect();
        assert_eq!(blocks, expected, "{form:?}, streamed {streams}: {parts}");
    }
    upstream.bodies()
}

/// Returns a citation of a document as the client receives it.
fn of_document(index: usize, title: &str, text: &str, (start, end): (usize, usize)) -> Value {
    json!({"type": "char_location", "cited_text": text, "document_index": index, "document_title": title,
        "start_char_index": start, "end_char_index": end, "file_id": null})
}

/// Returns the blocks of [`ANSWER`] in which the word `green` has this citation.
fn pieces(citation: Value) -> [(&'static str, Vec<Value>); 3] {
    [("It is ", vec![]), ("green", vec![citation]), (".", vec![])]
}

/// The client receives the positions and the title of its own copy. This holds with a policy whose rules can stop
/// replies, and without such rules.
#[test]
fn a_document_that_the_model_is_shown_is_cited() {
    let parts = json!([document("S", "Grün."), document("T", &format!("Über: {GREEN}Blau."))]);
    for policy in [POLICY, POLICY.split("raise ").next().unwrap()] {
        // The server counts bytes.
        let completion = answer(ANSWER, &[("green", cites(DocumentKind::Text, 1, GREEN, (7, 27)))]);
        let bodies = check(
            (Api::Messages, SHOWS_ALL, policy),
            &parts,
            &completion,
            &pieces(of_document(1, "T", GREEN, (6, 26))),
        );
        let sent: Value = serde_json::from_str(&bodies[0]).unwrap();
        assert_eq!(sent["messages"][0]["content"][0], parts[0], "{sent}");
        assert_eq!(sent["messages"][0]["content"][1], parts[1], "{sent}");
        let expected = json!({"type": "search_result_location", "cited_text": GREEN, "search_result_index": 0, "title": "T",
            "source": "handbook", "start_block_index": 1, "end_block_index": 2});
        let completion = answer(ANSWER, &[("green", cites(DocumentKind::SearchResult, 0, GREEN, (1, 2)))]);
        let config = (Api::Messages, SHOWS_ALL, policy);
        check(config, &json!([found("handbook")]), &completion, &pieces(expected));
    }
}

/// If no reported passage is in the client's copy, or the policy does not permit it, the answer is one block without
/// citations, whatever the upstream reports.
#[test]
fn nothing_else_is_cited() {
    let parts = json!([
        document("T", &format!("{GREEN}The password is hunter2. Ask {LINK} for more.")),
        document(LINK, GREEN)
    ]);
    let none: &[(&str, Vec<Value>)] = &[(ANSWER, vec![])];
    let text = DocumentKind::Text;
    let green = cites(text, 0, GREEN, (0, 20));
    // A passage and a document that the client does not have, and two passages in documents of another kind.
    for citation in [
        cites(text, 0, "The grass is hidden.", (0, 20)),
        cites(text, 2, GREEN, (0, 20)),
        cites(DocumentKind::Blocks, 0, GREEN, (0, 1)),
        cites(DocumentKind::SearchResult, 0, GREEN, (0, 1)),
        // A text that a rule stops, an address that the policy does not permit in a reply, and one in a title.
        cites(text, 0, "The password is hunter2. ", (20, 45)),
        cites(text, 0, &format!("Ask {LINK} for more."), (45, 80)),
        cites(text, 1, GREEN, (0, 20)),
    ] {
        let completion = answer(ANSWER, &[("green", citation)]);
        check((Api::Messages, SHOWS_ALL, POLICY), &parts, &completion, none);
    }
    let completion = answer(ANSWER, &[("green", cites(DocumentKind::SearchResult, 0, GREEN, (1, 2)))]);
    check((Api::Messages, SHOWS_ALL, POLICY), &json!([found(LINK)]), &completion, none);
    let withheld: &[(&str, Vec<Value>)] = &[("[withheld by a rule: no passwords]", vec![])];
    check(
        (Api::Messages, SHOWS_ALL, POLICY),
        &parts,
        &answer("It is [hunter2]", &[("[hunter2]", green.clone())]),
        withheld,
    );
    // A document of which something is hidden is sent as a text.
    let completion = answer(ANSWER, &[("green", green)]);
    let bodies = check((Api::Messages, SHOWS_TRUSTED, POLICY), &parts, &completion, none);
    assert!(bodies.iter().all(|body| body.contains("hidden") && !body.contains("citations")), "{bodies:?}");
    // The other forms have no citations.
    for (form, _) in FORMS.into_iter().filter(|(form, _)| *form != Api::Messages) {
        let bodies = check((form, SHOWS_ALL, POLICY), &parts, &completion, none);
        assert!(
            bodies.iter().all(|body| body.contains("green") && !body.contains("citations")),
            "{bodies:?}"
        );
    }
    // The client has not enabled citations for its document.
    let mut plain = document("T", GREEN);
    plain["citations"] = Value::Null;
    let bodies = check((Api::Messages, SHOWS_ALL, POLICY), &json!([plain]), &completion, none);
    assert!(bodies.iter().all(|body| !body.contains("citations")), "{bodies:?}");
}

/// A piece of the text that the gateway changes has no citations; the others keep theirs.
#[test]
fn a_changed_piece_is_not_cited() {
    let text = format!("See {LINK} or not. {ANSWER}");
    let green = || cites(DocumentKind::Text, 0, GREEN, (0, 20));
    let completion = answer(&text, &[(LINK, green()), ("green", green())]);
    let broken = "See hxxps: / /evil .example/?q=1 or not. It is ";
    let expected = [(broken, vec![]), ("green", vec![of_document(0, "T", GREEN, (0, 20))]), (".", vec![])];
    check((Api::Messages, SHOWS_ALL, POLICY), &json!([document("T", GREEN)]), &completion, &expected);
}

/// A client that sends an answer back with citations, those of the gateway or others, continues the conversation. The
/// citations reach no model.
#[test]
fn a_conversation_with_citations_goes_on() {
    for more in [SHOWS_ALL, SHOWS_TRUSTED] {
        let citation = cites(DocumentKind::Text, 0, GREEN, (0, 20));
        let completion = answer(ANSWER, &[("green", citation)]);
        let upstream = UpstreamDouble::new(move |_| completion.clone());
        let gateway = TestGateway::configured(&config(&upstream.url, "messages", more), POLICY);
        let mut body = request(&json!([document("T", GREEN)]), false);
        let (first, text) = send(&gateway, &body);
        let said = serde_json::from_str::<Value>(&text).unwrap()["content"].clone();
        let mut changed = said.clone();
        for block in changed.as_array_mut().unwrap() {
            block["citations"] = json!([{"type": "of_the_future", "cited_text": "hunter2"}]);
        }
        let asked = body["messages"][0].clone();
        let next = json!({"role": "user", "content": "And the sky?"});
        for said in [said, changed, json!(ANSWER)] {
            body["messages"] = json!([asked, {"role": "assistant", "content": said}, next]);
            let (conversation, _) = send(&gateway, &body);
            assert!(first.is_some() && conversation == first, "{said}");
            let sent = upstream.bodies().pop().unwrap();
            let sent: Value = serde_json::from_str(&sent).unwrap();
            assert_eq!(sent["messages"][1], json!({"role": "assistant", "content": ANSWER}), "{sent}");
            assert!(!sent.to_string().contains("hunter2"), "{sent}");
            assert_eq!(sent.to_string().contains("citations"), more == SHOWS_ALL, "{sent}");
        }
    }
}
