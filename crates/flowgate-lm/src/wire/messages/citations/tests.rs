//! Tests of the citations of answers, and of the documents that they cite.

use proptest::prelude::*;

use super::super::super::{AnswerStorage, Api, DecodeOptions, ONLY_FUNCTIONS, ReceivedRequest, ResponseHead};
use super::super::{decode_request, encode_request, encode_response, encode_stream};
use super::*;
use crate::chat::Completion;
use crate::json::Json;
use crate::wire::ReasoningOrder;

/// Decodes a request with one message of the user that has these blocks, and with the further fields `more`.
fn decoded(blocks: &Value, more: &str) -> Result<ReceivedRequest, WireError> {
    let message = json!({"role": "user", "content": blocks});
    let text = format!(r#"{{"model":"m","max_tokens":1,"messages":[{message}]{more}}}"#);
    decode_request(&Json::parse(&text).unwrap(), &DecodeOptions::default())
}

/// Returns the field `citations` of a document.
fn enabled(is_enabled: bool) -> Value {
    json!({"enabled": is_enabled})
}

/// Returns a citable document with the text `data`.
fn text(data: &str) -> Value {
    json!({"type": "document", "title": "T", "source": {"type": "text", "media_type": "text/plain", "data": data}, "citations": enabled(true)})
}

/// Returns a citable document that consists of blocks.
fn blocks(texts: &[&str]) -> Value {
    let texts: Vec<Value> = texts.iter().map(|text| json!({"type": "text", "text": text})).collect();
    json!({"type": "document", "context": "C", "source": {"type": "content", "content": texts}, "citations": enabled(true)})
}

/// Returns a citable search result.
fn result(texts: &[&str]) -> Value {
    let texts: Vec<Value> = texts.iter().map(|text| json!({"type": "text", "text": text})).collect();
    json!({"type": "search_result", "source": "S", "title": "T", "content": texts, "citations": enabled(true)})
}

/// Returns a PDF.
fn pdf(is_enabled: bool) -> Value {
    let source = json!({"type": "base64", "media_type": "application/pdf", "data": "AA"});
    json!({"type": "document", "source": source, "citations": enabled(is_enabled)})
}

/// All documents must have the same setting, and so must all search results. A `citations` that is null or does not
/// enable citations is like an absent one.
#[test]
fn citations_are_enabled_for_all_documents_or_none() {
    let check = |blocks: Value, more: &str, expected: &str| {
        let shown = match decoded(&blocks, more) {
            Ok(received) => {
                let shown = |document: &CitableDocument| format!("{:?} {}", document.kind, document.index);
                received.citable.iter().map(shown).collect::<Vec<_>>().join(", ")
            }
            Err(error) => error.to_string(),
        };
        assert_eq!(shown, expected, "{blocks}");
    };
    let without = |mut block: Value, citations: Value| {
        block["citations"] = citations;
        block
    };
    check(json!([text("a"), blocks(&["b", "c"]), pdf(true), text("d")]), "", "Text 0, Blocks 1, Text 3");
    check(json!([text("a"), result(&["b"]), result(&["c"])]), "", "Text 0, SearchResult 0, SearchResult 1");
    for off in [Value::Null, json!({}), enabled(false)] {
        check(json!([without(text("a"), off.clone()), pdf(false), result(&["b"])]), "", "SearchResult 0");
        let mixed = "`messages[0].content[1].citations` must be enabled for all documents of a request or for none, and for \
            all of its search results or for none";
        check(json!([text("a"), without(text("b"), off.clone())]), "", mixed);
        check(json!([without(text("a"), off.clone()), text("b")]), "", mixed);
        check(json!([result(&["a"]), without(result(&["b"]), off)]), "", mixed);
    }
    // Documents that the format cannot express may not be cited.
    check(json!([text(""), blocks(&[]), blocks(&["a", ""])]), "", "");
    check(
        json!([json!({"type": "search_result", "title": "T", "content": "a", "citations": enabled(true)})]),
        "",
        "",
    );
    check(
        json!([without(text("a"), json!({"enabled": 1}))]),
        "",
        "`messages[0].content[0].citations.enabled` is neither true nor false",
    );
    check(
        json!([without(text("a"), json!({"enabled": true, "pages": 1}))]),
        "",
        "`messages[0].content[0].citations.pages` is not known",
    );
    let result_of_tool =
        json!({"type": "tool_result", "tool_use_id": "c", "content": [text("a"), result(&["b"])]});
    check(json!([text("d"), result_of_tool, text("e")]), "", "Text 0, Text 1, SearchResult 0, Text 2");
    for key in ["output_config", "output_format"] {
        let format = r#"{"type":"json_schema","schema":{}}"#;
        let format =
            if key == "output_config" { format!(r#"{{"format":{format}}}"#) } else { format.to_owned() };
        let more = format!(r#","{key}":{format}"#);
        let problem = format!(
            "`{key}` demands a format of the text, but citations divide the text of an answer into blocks; disable \
            `citations` of the documents, or leave this field out"
        );
        check(json!([text("a")]), &more, &problem);
        check(json!([result(&["a"])]), &more, &problem);
        check(json!([pdf(false)]), &more, "");
    }
}

/// The operator can have the field dropped.
#[test]
fn citations_can_be_dropped() {
    let text =
        format!(r#"{{"model":"m","max_tokens":1,"messages":[{{"role":"user","content":[{}]}}]}}"#, text("a"));
    let options = DecodeOptions {
        dropped_fields: vec!["messages.content.citations".to_owned()],
        ..DecodeOptions::default()
    };
    let received = decode_request(&Json::parse(&text).unwrap(), &options).unwrap();
    assert!(received.citable.is_empty());
}

/// A message with the citations of an earlier answer, which a client sends back, is decoded like one without them.
#[test]
fn citations_of_messages_are_dropped() {
    let message = |content: Value| {
        let text =
            json!({"model": "m", "max_tokens": 1, "messages": [{"role": "assistant", "content": content}]});
        decode_request(&Json::parse(&text.to_string()).unwrap(), &DecodeOptions::default()).unwrap().request
    };
    let cited = json!([
        {"type": "text", "text": "It is "},
        {"type": "text", "text": "green", "citations": [{"type": "char_location", "cited_text": "hunter2"}]},
        {"type": "text", "text": ".", "citations": null},
    ]);
    assert_eq!(message(cited), message(json!("It is green.")));
}

/// Encodes a request with these blocks, applies `change` to the body, as a view that hides something would, and marks
/// the documents in the body. Returns the body, the documents that it has, and the request.
fn marked(blocks: &Value, change: impl Fn(String) -> String) -> (Value, SentDocuments, ReceivedRequest) {
    let received = decoded(blocks, "").unwrap();
    let body = change(encode_request(&received.request, "m", false).to_string());
    let mut body = serde_json::from_str(&body).unwrap();
    let sent = mark_citable(&mut body, &received.citable);
    (body, sent, received)
}

/// Documents are sent as the client sent them if the view shows them as a whole, and otherwise as texts.
#[test]
fn only_whole_documents_are_sent_as_documents() {
    let sent = |blocks: Value, change: fn(String) -> String| marked(&blocks, change).0["messages"].clone();
    let same = |text: String| text;
    let user = |content: Value| json!([{"role": "user", "content": content}]);
    let all = json!([text("a"), blocks(&["b", "c"]), pdf(true), result(&["d", "e"]), {"type": "text", "text": "f"}]);
    assert_eq!(sent(all.clone(), same), user(all));
    assert_eq!(sent(json!([text("a")]), same), user(json!([text("a")])));
    assert_eq!(
        sent(json!([text("a"), text("secret")]), |body| body.replace("secret", "[hidden h1]")),
        user(json!([text("a"), {"type": "text", "text": "Title: T\n\n[hidden h1]"}]))
    );
    // Without citations, the title stays in the text.
    let mut plain = text("a");
    plain["citations"] = enabled(false);
    assert_eq!(sent(json!([plain]), same), user(json!("Title: T\n\na")));
    let output = json!({"type": "tool_result", "tool_use_id": "c", "content": [result(&["a"])]});
    assert_eq!(sent(json!([output]), same), user(json!([output])));
    // A message of the model stays a text.
    let mut body = json!({"messages": [{"role": "assistant", "content": "Title: T\n\na"}]});
    let before = body.clone();
    mark_citable(&mut body, &decoded(&json!([text("a")]), "").unwrap().citable);
    assert_eq!(body, before);
}

/// Returns the body of an answer whose second text block has this citation.
fn answer(citation: &Value) -> Value {
    let blocks = json!([{"type": "text", "text": "It is "}, {"type": "text", "text": "green", "citations": [citation]}, {"type": "text", "text": "."}]);
    json!({"content": blocks, "stop_reason": "end_turn"})
}

/// Returns a citation of the passage `text`, as a server reports it.
fn place(kind: &str, index: usize, text: &str, (start, end): (usize, usize)) -> Value {
    let unit = if kind == "char_location" { "char" } else { "block" };
    let document = if kind == "search_result_location" { "search_result_index" } else { "document_index" };
    let mut place = json!({"type": kind, "cited_text": text, document: index, "document_title": "the server's", "title": "its", "source": "its"});
    put(&mut place, &format!("start_{unit}_index"), start);
    put(&mut place, &format!("end_{unit}_index"), end);
    place
}

/// A citation refers to the client's documents, although the server counts the documents that were sent to it. It takes
/// nothing from the server but the choice of the passage.
#[test]
fn citations_refer_to_the_documents_of_the_client() {
    let request = json!([
        text("secret"),
        text("Grün. Rot."),
        pdf(true),
        blocks(&["one", "two"]),
        result(&["three"]),
        text("Grün. Rot."),
    ]);
    let check = |citation: Value, expected: Value| {
        let (_, sent, received) = marked(&request, |body| body.replace("secret", "[hidden h1]"));
        let body = answer(&citation);
        let completion = super::super::decode_response(&body).unwrap();
        let pieces = sent.verified(&received.citable, &completion.text, &reported_citations(&body));
        let cited: Vec<(&str, Vec<Value>)> = pieces
            .iter()
            .map(|piece| {
                let text = completion.text.get(piece.start..piece.end).unwrap();
                (text, piece.citations.iter().map(encode_citation).collect())
            })
            .collect();
        let expected = if expected.is_null() { vec![] } else { vec![("green", vec![expected])] };
        assert_eq!(cited, expected, "{body}");
    };
    let of_text = |index: usize, text: &str, start: usize, end: usize| {
        json!({"type": "char_location", "cited_text": text, "document_index": index, "document_title": "T",
            "start_char_index": start, "end_char_index": end, "file_id": null})
    };
    check(place("char_location", 0, "Rot.", (6, 10)), of_text(1, "Rot.", 6, 10));
    check(place("char_location", 0, "Rot.", (7, 11)), of_text(1, "Rot.", 6, 10));
    check(place("char_location", 3, "Grün.", (0, 5)), of_text(4, "Grün.", 0, 5));
    check(
        place("content_block_location", 2, "two", (1, 2)),
        json!({"type": "content_block_location", "cited_text": "two", "document_index": 3, "document_title": null,
            "start_block_index": 1, "end_block_index": 2, "file_id": null}),
    );
    check(
        place("search_result_location", 0, "three", (0, 1)),
        json!({"type": "search_result_location", "cited_text": "three", "search_result_index": 0, "title": "T", "source": "S",
            "start_block_index": 0, "end_block_index": 1}),
    );
    // A passage that the document does not have, the hidden text, and two citations of a PDF.
    check(place("char_location", 0, "Blau.", (0, 5)), Value::Null);
    check(place("char_location", 0, "secret", (0, 6)), Value::Null);
    check(place("char_location", 1, "Rot.", (6, 10)), Value::Null);
    check(
        json!({"type": "page_location", "cited_text": "Rot.", "document_index": 1, "start_page_number": 1, "end_page_number": 2}),
        Value::Null,
    );
    // The title and the context are not part of the text of a document.
    check(place("char_location", 0, "Title: T", (0, 8)), Value::Null);
    // Documents that do not exist, positions of another kind, and citations that are not valid.
    check(place("char_location", 4, "Rot.", (6, 10)), Value::Null);
    check(place("search_result_location", 1, "three", (0, 1)), Value::Null);
    check(place("content_block_location", 0, "Rot.", (0, 1)), Value::Null);
    check(place("web_search_result_location", 0, "Rot.", (0, 1)), Value::Null);
    check(json!("Rot."), Value::Null);
    check(json!({"type": "char_location", "cited_text": "Rot.", "document_index": -1}), Value::Null);
}

/// Citations beyond a limit (on their number, the size of their texts, or the searched documents) are dropped.
#[test]
fn citations_are_bounded() {
    let (_, sent, received) = marked(&json!([text("a")]), |body| body);
    let many = vec![place("char_location", 0, "a", (0, 1)); MAX_CITATIONS + 9];
    let body = json!({"content": [{"type": "text", "text": "A.", "citations": many}]});
    let pieces = sent.verified(&received.citable, "A.", &reported_citations(&body));
    assert_eq!(pieces[0].citations.len(), MAX_CITATIONS);
    let long = "a".repeat(MAX_PASSAGES / 2);
    let many = vec![place("char_location", 0, &long, (0, 1)); 3];
    let body = json!({"content": [{"type": "text", "text": "A.", "citations": many}]});
    assert_eq!(reported_citations(&body)[0].citations.len(), 2);
    // Documents are searched as long as they are not too large together.
    let mut citable = received.citable.to_vec();
    citable[0].texts = vec!["a".repeat(MAX_SEARCHED / 4 - 1)];
    let place =
        ReportedCitation { kind: DocumentKind::Text, index: 0, text: "a".to_owned(), start: 0, end: 1 };
    let reported = [ReportedPiece { start: 0, end: 2, citations: vec![place; 9] }];
    assert_eq!(sent.verified(&citable, "A.", &reported)[0].citations.len(), 4);
    // Each citation counts with the title that it repeats.
    citable[0].texts = vec!["a".to_owned()];
    citable[0].title = Some("t".repeat(MAX_PASSAGES / 3 - 1));
    assert_eq!(sent.verified(&citable, "A.", &reported)[0].citations.len(), 3);
}

/// Pieces that are empty, beyond the text, inside a character, or overlap an earlier one have no citations.
#[test]
fn pieces_are_in_order() {
    let (_, sent, received) = marked(&json!([text("a")]), |body| body);
    let place =
        ReportedCitation { kind: DocumentKind::Text, index: 0, text: "a".to_owned(), start: 0, end: 1 };
    let reported = [(0, 0), (0, 2), (1, 3), (3, 4), (4, 5), (3, 5), (5, 90)]
        .map(|(start, end)| ReportedPiece { start, end, citations: vec![place.clone()] });
    let pieces = sent.verified(&received.citable, "abcü", &reported);
    let ranges: Vec<(usize, usize)> = pieces.iter().map(|piece| (piece.start, piece.end)).collect();
    assert_eq!(ranges, [(0, 2), (3, 5)]);
}

/// Returns a citation of a text.
fn citation() -> Citation {
    Citation {
        kind: DocumentKind::Text,
        index: 0,
        title: None,
        source: None,
        text: "Rot.".to_owned(),
        start: 6,
        end: 10,
    }
}

proptest! {
    /// For any citations, the blocks of a text together are the text, and a stream has the same citations as an answer
    /// that is not streamed.
    #[test]
    fn blocks_are_the_text(text in "[aü]{0,12}", places in prop::collection::vec((0_usize..16, 0_usize..16), 0..4)) {
        let piece = |(start, end): (usize, usize)| CitedPiece { start, end, citations: vec![citation()] };
        let citations: Vec<CitedPiece> = places.into_iter().map(piece).collect();
        let completion = Completion { text: text.clone(), citations, ..Completion::default() };
        let pieces = text_pieces(&completion.text, &completion.citations);
        prop_assert_eq!(pieces.iter().map(|(piece, _)| *piece).collect::<String>(), text.as_str());
        let head = ResponseHead {
            id: "r", model: "m", created: 1, tools: &ONLY_FUNCTIONS, storage: AnswerStorage::NotStored,
        };
        let reported = reported_citations(&encode_response(&completion, head));
        let cited: Vec<usize> = pieces.iter().map(|(_, citations)| citations.len()).filter(|count| *count > 0).collect();
        prop_assert_eq!(reported.iter().map(|piece| piece.citations.len()).collect::<Vec<_>>(), cited);
        let mut decoder = Api::Messages.decoder();
        for event in encode_stream(&completion, &[&text], head, ReasoningOrder::First) {
            decoder.feed(&event, &mut crate::ignore_deltas).unwrap();
        }
        prop_assert_eq!(decoder.take_citations(), reported);
        prop_assert_eq!(decoder.finish().unwrap().text, text);
    }
}
