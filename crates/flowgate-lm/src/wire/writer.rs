//! Defines [`ResponseWriter`], with which the gateway streams an answer while it is generated.
//!
//! The gateway writes the text in pieces as it is released, by [`ResponseWriter::text`]. The reasoning, the calls, the
//! stop reason and the usage follow at the end, by [`ResponseWriter::finish`]. If no text was written before the end,
//! the events equal those of [`Api::encode_stream`]. Otherwise the text is divided into the pieces that were written,
//! and the reasoning follows the text. Text that was written can no longer be changed.

use serde_json::Value;

use super::{AnswerStorage, Api, ReasoningOrder, ResponseHead, ToolForms, pieces, put};
use crate::chat::{Completion, Stop};
use crate::sse::SseEvent;

/// Encodes the stream of one answer, of whose text a part may already have been sent to the client.
#[derive(Debug)]
pub struct ResponseWriter {
    api: Api,
    /// The id, the model and the time of the answer, as in [`ResponseHead`].
    id: String,
    model: String,
    created: u64,
    /// Whether the stream reports token usage.
    usage: bool,
    /// The forms of the tools that the answer may call.
    tools: ToolForms,
    /// Whether a later request can continue from the answer by its id, as in [`AnswerStorage`].
    is_stored: bool,
    /// The id of the answer that the request continues, if it continues one.
    previous: Option<String>,
    /// The pieces of the text that were written so far.
    text_pieces: Vec<String>,
}

impl ResponseWriter {
    /// Creates the writer of an answer of which nothing is written yet. `head` has the metadata of the answer, and
    /// `usage` says whether the stream reports the token usage.
    #[must_use]
    pub fn new(api: Api, head: ResponseHead<'_>, usage: bool) -> Self {
        let (id, model) = (head.id.to_owned(), head.model.to_owned());
        let tools = head.tools.clone();
        let (is_stored, previous) = match head.storage {
            AnswerStorage::NotStored => (false, None),
            AnswerStorage::Stored(previous) => (true, previous.map(str::to_owned)),
        };
        Self {
            api,
            id,
            model,
            created: head.created,
            usage,
            tools,
            is_stored,
            previous,
            text_pieces: Vec::new(),
        }
    }

    /// Writes a further piece of the text, and returns the events to send: for the first piece, the events that begin
    /// the answer and the event with the piece; for a later piece, only the event with the piece; for an empty piece,
    /// none.
    ///
    /// To use the encoder of the format for these events as well, encodes an answer that has only this piece as its
    /// text, and returns the needed part of its stream.
    pub fn text(&mut self, piece: &str) -> Vec<SseEvent> {
        if piece.is_empty() {
            return Vec::new();
        }
        let completion = Completion { text: piece.to_owned(), ..Completion::default() };
        let mut events = self.events(&completion, &[piece]);
        // The index of the event with the piece.
        let first_text = self.api.form().events_before_text;
        events.truncate(first_text + 1);
        if !self.text_pieces.is_empty() {
            events.drain(..first_text);
            // The Responses API numbers its events. The number of this event is the number of events written before it.
            let number = first_text + self.text_pieces.len();
            events.iter_mut().for_each(|event| renumber(event, number));
        }
        self.text_pieces.push(piece.to_owned());
        events
    }

    /// Ends the stream with the answer `completion`, and returns the events that were not written yet. If the text of
    /// `completion` does not begin with the text that was written, the written text is the text of the answer, because
    /// a stream cannot take text back. If some text was written, the citations are dropped, since a text with citations
    /// would have to be divided into several blocks.
    #[must_use]
    pub fn finish(self, completion: &Completion) -> Vec<SseEvent> {
        let written: String = self.text_pieces.concat();
        let rest = completion.text.strip_prefix(&written);
        let text = if rest.is_some() { completion.text.clone() } else { written };
        // If the format sends a refusal in a field of its own, the text that was already sent cannot become a refusal.
        let separates_refusals = self.api.form().separates_refusals;
        let stop = match completion.stop {
            Stop::Refused if !self.text_pieces.is_empty() && separates_refusals => Stop::End,
            stop => stop,
        };
        let mut completion = Completion { text, stop, ..completion.clone() };
        if !self.text_pieces.is_empty() {
            completion.citations.clear();
        }
        let written_pieces = self.text_pieces.iter().map(String::as_str);
        // Encode the whole answer with the same pieces of text, and drop the events that were written already.
        let all: Vec<&str> = written_pieces.chain(pieces(rest.unwrap_or_default())).collect();
        let mut events = self.events(&completion, &all);
        if !self.text_pieces.is_empty() {
            events.drain(..(self.api.form().events_before_text + self.text_pieces.len()).min(events.len()));
        }
        events
    }

    /// Returns all events of an answer whose text is divided into `pieces`. If some text was already written, the
    /// reasoning follows the text; otherwise it precedes the text.
    fn events(&self, completion: &Completion, pieces: &[&str]) -> Vec<SseEvent> {
        let storage = match self.is_stored {
            true => AnswerStorage::Stored(self.previous.as_deref()),
            false => AnswerStorage::NotStored,
        };
        let head = ResponseHead {
            id: &self.id,
            model: &self.model,
            created: self.created,
            tools: &self.tools,
            storage,
        };
        let order =
            if self.text_pieces.is_empty() { ReasoningOrder::First } else { ReasoningOrder::AfterText };
        self.api.encode_pieces(completion, pieces, head, (self.usage, order))
    }
}

/// Replaces the sequence number of an event, if its format has one: only the Responses API numbers its events. An event
/// that is not JSON stays unchanged.
fn renumber(event: &mut SseEvent, number: usize) {
    if let Ok(mut body) = serde_json::from_str::<Value>(&event.data)
        && body.get("sequence_number").is_some()
    {
        put(&mut body, "sequence_number", number);
        event.data = body.to_string();
    }
}

#[cfg(test)]
mod tests {
    use super::super::ONLY_FUNCTIONS;
    use super::*;
    use crate::chat::{Citation, CitedPiece, DocumentKind, ReasoningPart, ToolCall, Usage};

    /// For any division of the text, the events equal those of an answer that is encoded as a whole in the same pieces.
    #[test]
    fn partial_events_equal_the_whole_answer() {
        let call = ToolCall {
            id: "c".to_owned(),
            name: "send".to_owned(),
            arguments: "{\"to\":\"bob\"}".to_owned(),
        };
        let completion = |text: &str, calls: Vec<ToolCall>| Completion {
            text: text.to_owned(),
            stop: if calls.is_empty() { Stop::End } else { Stop::Calls },
            calls,
            usage: Usage { input: 7, output: 3, cached: 0 },
            thoughts: vec![ReasoningPart { texts: vec!["I see.".to_owned()], ..ReasoningPart::default() }],
            citations: Vec::new(),
        };
        for api in Api::ALL {
            for (parts, rest, calls) in [
                (&["Grüße, ", "otters", "!"][..], "", vec![]),
                (&["Grüße"], " and a longer text that is written in more than one piece", vec![call.clone()]),
                (&[], "all at once", vec![]),
                (&[], "", vec![call.clone()]),
                (&["said"], "", vec![call.clone(), call.clone()]),
            ] {
                let head = ResponseHead {
                    id: "r",
                    model: "m",
                    created: 1,
                    tools: &ONLY_FUNCTIONS,
                    storage: AnswerStorage::NotStored,
                };
                let whole = completion(&format!("{}{rest}", parts.concat()), calls);
                let mut writer = ResponseWriter::new(api, head, true);
                let mut events: Vec<SseEvent> = parts.iter().flat_map(|part| writer.text(part)).collect();
                events.extend(writer.finish(&whole));
                let all: Vec<&str> = parts.iter().copied().chain(pieces(rest)).collect();
                let order = match parts {
                    [] => ReasoningOrder::First,
                    _ => ReasoningOrder::AfterText,
                };
                let expected = api.encode_pieces(&whole, &all, head, (true, order));
                // The number of input tokens is unknown when the first text is written.
                let data = |event: &SseEvent| event.data.replace("\"input_tokens\":0", "\"input_tokens\":7");
                let (got, expected): (Vec<String>, Vec<String>) =
                    (events.iter().map(data).collect(), expected.iter().map(data).collect());
                assert_eq!(got, expected, "{api:?} {parts:?}");
                let mut decoder = api.decoder();
                for event in &events {
                    decoder.feed(event, &mut crate::ignore_deltas).unwrap();
                }
                let read = decoder.finish().unwrap();
                assert_eq!((read.text, read.usage), (whole.text, whole.usage));
            }
        }
    }

    /// A model that refuses after text was sent: the text stays text.
    #[test]
    fn a_refusal_after_text_is_text() {
        for (api, expected) in [
            (Api::ChatCompletions, Stop::End),
            (Api::Responses, Stop::End),
            (Api::Messages, Stop::Refused),
            (Api::GenerateContent, Stop::Refused),
        ] {
            let head = ResponseHead {
                id: "r",
                model: "m",
                created: 1,
                tools: &ONLY_FUNCTIONS,
                storage: AnswerStorage::NotStored,
            };
            let mut writer = ResponseWriter::new(api, head, true);
            let mut events = writer.text("I can");
            let refused =
                Completion { text: "I cannot.".to_owned(), stop: Stop::Refused, ..Completion::default() };
            events.extend(writer.finish(&refused));
            assert!(events.iter().all(|event| !event.data.contains("\"refusal\":\"")), "{events:#?}");
            assert!(events.iter().all(|event| !event.data.contains("response.refusal")), "{events:#?}");
            let mut decoder = api.decoder();
            for event in &events {
                decoder.feed(event, &mut crate::ignore_deltas).unwrap();
            }
            let read = decoder.finish().unwrap();
            assert_eq!((read.text.as_str(), read.stop), ("I cannot.", expected), "{api:?}");
        }
    }

    /// A text that was written as one piece can no longer be divided by its citations; one that was not can be.
    #[test]
    fn written_text_has_no_citations() {
        let (kind, text) = (DocumentKind::Text, "a".to_owned());
        let citation = Citation { kind, index: 0, title: None, source: None, text, start: 0, end: 1 };
        let citations = vec![CitedPiece { start: 0, end: 3, citations: vec![citation] }];
        let completion = Completion { text: "one two".to_owned(), citations, ..Completion::default() };
        for written in ["", "one"] {
            let head = ResponseHead {
                id: "r",
                model: "m",
                created: 1,
                tools: &ONLY_FUNCTIONS,
                storage: AnswerStorage::NotStored,
            };
            let mut writer = ResponseWriter::new(Api::Messages, head, false);
            let mut events = writer.text(written);
            events.extend(writer.finish(&completion));
            let mut decoder = Api::Messages.decoder();
            for event in &events {
                decoder.feed(event, &mut crate::ignore_deltas).unwrap();
            }
            assert_eq!(decoder.take_citations().is_empty(), !written.is_empty(), "{events:?}");
            assert_eq!(decoder.finish().unwrap().text, "one two", "{events:?}");
        }
    }

    #[test]
    fn written_text_cannot_be_changed() {
        let mut writer = ResponseWriter::new(
            Api::Messages,
            ResponseHead {
                id: "r",
                model: "m",
                created: 1,
                tools: &ONLY_FUNCTIONS,
                storage: AnswerStorage::NotStored,
            },
            false,
        );
        writer.text("one");
        let events = writer.finish(&Completion { text: "two".to_owned(), ..Completion::default() });
        assert!(events.iter().all(|event| !event.data.contains("two")), "{events:?}");
        assert!(events.iter().any(|event| event.data.contains("message_stop")));
    }
}
