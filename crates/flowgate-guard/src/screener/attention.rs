//! Implements the screener *attention*: it reads from the attention of a local model which regions the next step
//! depends on (RTBAS, sections 3.3 and 7.2).
//!
//! [`AttentionScreener`] takes the role of the model that answers the question of the [judge](super::judge), so the
//! method `judge` runs with it unchanged. Like every screener it costs utility or questions when it is wrong, and never
//! permits a call that the policy denies.
//!
//! For each step, a model writes a *preliminary message* from the whole chat. The local model reads the chat as plain
//! text, followed by this message, and its attention is summarised for each tagged region. A classifier gives the
//! probability that the message depends on the region. The preliminary message is discarded.
//!
//! Provenance decides first: a region that shares a value with the message is named whatever the classifier says
//! (`draft_values.rs`), and the classifier may only add regions. `plain_chat.rs` has the form of the text; a classifier
//! is trained on text of the same form.

mod draft_values;
mod plain_chat;

use std::cmp::Ordering;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use flowgate_lm::chat::{Completion, Request, ToolCall};
use flowgate_lm::{
    AttentionLoss, AttentionModel, AttentionRequest, BoxFuture, ChatModel, Error, Listener, RegionClassifier,
    ignore_deltas, region_summaries, send_completion,
};
use serde_json::json;

pub use self::draft_values::DraftValues;
pub use self::plain_chat::{DraftText, PlainChat};
use super::judge::{ANSWER, JudgeScreener};

/// A model that answers the question of the judge from the attention of another model.
#[derive(Clone)]
pub struct AttentionScreener {
    /// The model that writes the preliminary message: the agent's own, or a smaller one (RTBAS, section 9).
    pub writer: Arc<dyn ChatModel>,
    /// What reads the attention.
    pub reader: AttentionReader,
}

/// Decides from the attention of a local model which regions a message depends on.
///
/// If the local model cannot read the chat, for example because it is too long, the answer has no regions list, and the
/// conversation then counts every region as needed.
#[derive(Clone)]
pub struct AttentionReader {
    /// The model whose attention is read.
    pub model: Arc<dyn AttentionModel>,
    /// The classifier of regions.
    pub classifier: Arc<dyn RegionClassifier>,
    /// The probability from which a region counts as needed.
    pub threshold: f64,
}

/// The error for a request that is not the question of the screener `judge`.
const NOT_OF_JUDGE: Error = Error::Unsupported(
    "the screener by attention answers only the question of `judge`; use it with `judge` only",
);

impl fmt::Debug for AttentionScreener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AttentionScreener({})", self.writer.name())
    }
}

impl fmt::Debug for AttentionReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AttentionReader({})", self.threshold)
    }
}

impl ChatModel for AttentionScreener {
    fn name(&self) -> &'static str {
        "attention"
    }

    /// Answers a question of the judge, as [`AttentionReader::answer`] does.
    ///
    /// # Errors
    /// If the request is no question of the judge, or the writer or the listener fails.
    fn complete<'a>(
        &'a self,
        request: &'a Request,
        listener: &'a mut dyn Listener,
    ) -> BoxFuture<'a, Result<Completion, Error>> {
        Box::pin(async move {
            let completion = self.reader.answer(&*self.writer, request).await?;
            send_completion(&completion, listener)?;
            Ok(completion)
        })
    }
}

impl AttentionReader {
    /// Answers a question of the judge: has `writer` draft the next message, and names the regions that the draft
    /// depends on. If the regions cannot be computed, the answer is malformed, so that every region counts as needed.
    ///
    /// # Errors
    /// If the request is no question of the judge, or the writer fails.
    pub async fn answer(&self, writer: &dyn ChatModel, request: &Request) -> Result<Completion, Error> {
        let Some(tagged) = JudgeScreener::tagged_chat(request) else {
            return Err(NOT_OF_JUDGE);
        };
        let (chat, text) = PlainChat::read(tagged);
        let draft = writer.complete(&chat, &mut ignore_deltas).await?;
        let mut completion = answer(self.needed_regions(&text, &draft).ok());
        completion.usage = draft.usage;
        Ok(completion)
    }

    /// Returns the names of the regions of `chat` on which the message `draft` depends: the regions that share a value
    /// with the message, unless text outside of all regions states this value as well, and the regions that the
    /// classifier adds.
    ///
    /// # Errors
    /// If the message is empty or has too many values, the chat is too long for the model, or the classifier fails.
    fn needed_regions(&self, chat: &PlainChat, draft: &Completion) -> Result<Vec<String>, Error> {
        if draft.calls.is_empty() && draft.text.trim().is_empty() {
            return Err(Error::Unsupported("the drafted message is empty"));
        }
        let values =
            DraftValues::of(draft).ok_or(Error::Unsupported("the drafted message has too many values"))?;
        let values = values.without(&chat.untagged());
        let DraftText { prompt, continuation } = chat.with_draft(draft);
        let attention = self.model.attention(&AttentionRequest {
            // No beginning of the chat was computed before.
            prefix: None,
            prompt: &prompt,
            continuation: &continuation,
            loss: AttentionLoss::NegativeLogProbability,
        })?;
        let ranges: Vec<Range<usize>> = chat.regions().iter().map(|(_, range)| range.clone()).collect();
        let probabilities = self.classifier.probabilities(&region_summaries(&attention, &ranges))?;
        let scored = chat.regions().iter().zip(probabilities);
        // A probability that is not a number cannot be compared with the threshold; its region is named.
        let is_needed = |probability: f64| probability.partial_cmp(&self.threshold) != Some(Ordering::Less);
        let shares_value =
            |range: &Range<usize>| values.share_in(chat.text().get(range.clone()).unwrap_or_default()) > 0.0;
        Ok(scored
            .filter(|((_, range), probability)| shares_value(range) || is_needed(*probability))
            .map(|((name, _), _)| name.clone())
            .collect())
    }
}

/// Returns an answer in the form of the judge that names these regions. With `None`, the answer is malformed on
/// purpose: every region then counts as needed.
fn answer(regions: Option<Vec<String>>) -> Completion {
    let arguments = match regions {
        Some(regions) => json!({"reasoning": "the attention of a local model", "regions": regions}),
        None => json!({"reasoning": "the attention could not be computed"}),
    };
    let (id, name) = ("attention".to_owned(), ANSWER.to_owned());
    let calls = vec![ToolCall { id, name, arguments: arguments.to_string() }];
    Completion { calls, ..Completion::default() }
}

#[cfg(test)]
mod tests {
    use flowgate_lm::chat::{Message, Part, Usage};
    use flowgate_lm::{Attention, RegionSummary, ScriptedModel, block_on};

    use super::super::{Screener as _, TaggedChat};
    use super::*;

    /// A double that attends to each byte of the prompt that also occurs in the continuation as a digit.
    struct SharedDigits;

    impl AttentionModel for SharedDigits {
        fn attention(&self, request: &AttentionRequest<'_>) -> Result<Attention, Error> {
            if request.prompt.len() > 1000 {
                return Err(Error::TooManyTokens { tokens: request.prompt.len(), limit: 1000 });
            }
            let tokens: Vec<_> = (0..request.prompt.len()).map(|at| at..at + 1).collect();
            let is_shared =
                |byte: u8| byte.is_ascii_digit() && request.continuation.as_bytes().contains(&byte);
            let weights: Vec<f32> =
                request.prompt.bytes().map(|byte| f32::from(u8::from(is_shared(byte)))).collect();
            let gradients = vec![1.0; weights.len()];
            let output = std::iter::once(0..request.continuation.len()).collect();
            Attention::new(tokens, output, (1, 1), weights, gradients).ok_or(Error::Unsupported("this shape"))
        }
    }

    /// A classifier that returns the share of the attention.
    struct Share(Option<f64>);

    impl RegionClassifier for Share {
        fn probabilities(&self, regions: &[RegionSummary]) -> Result<Vec<f64>, Error> {
            Ok(regions.iter().map(|region| self.0.unwrap_or(region.plain.sum)).collect())
        }
    }

    fn tagged(first: &str) -> TaggedChat {
        let text = |text: &str| vec![Part::Text(text.to_owned())];
        let mut request = Request::default();
        request.messages.push(Message::User(text("Pay the bill.")));
        let content = text(&format!(
            "<<REGION_7f_h1>>{first}<</REGION_7f_h1>> and <<REGION_7f_h2>>IBAN 99<</REGION_7f_h2>>"
        ));
        request.messages.push(Message::Tool { call_id: "c".to_owned(), content, is_error: None });
        TaggedChat { request, nonce: "7f".to_owned(), names: vec!["h1".to_owned(), "h2".to_owned()] }
    }

    fn screen(chat: TaggedChat, draft: &str, fixed: Option<f64>) -> Option<Vec<String>> {
        let draft = draft.to_owned();
        let writer = ScriptedModel::from_function(move |request| {
            // The writer reads the chat without tags and without the tool of the judge.
            assert!(!format!("{request:?}").contains("REGION_7f") && request.tools.is_empty());
            let name = "pay".to_owned();
            let calls = vec![ToolCall { id: "1".to_owned(), name, arguments: draft.clone() }];
            Ok(Completion { calls, usage: Usage { input: 7, output: 3, cached: 0 }, ..Completion::default() })
        });
        let screener = AttentionScreener {
            writer: Arc::new(writer),
            reader: AttentionReader {
                model: Arc::new(SharedDigits),
                classifier: Arc::new(Share(fixed)),
                threshold: 0.5,
            },
        };
        let question = JudgeScreener.question(chat);
        let completion = block_on(screener.complete(&question, &mut ignore_deltas)).unwrap();
        assert_eq!(completion.usage, Usage { input: 7, output: 3, cached: 0 });
        JudgeScreener.parse_answer(&completion)
    }

    #[test]
    fn the_regions_with_attention_are_named() {
        let check = |draft: &str, expected: &[&str]| {
            let expected: Vec<String> = expected.iter().map(|name| (*name).to_owned()).collect();
            assert_eq!(screen(tagged("Amount 77"), draft, None), Some(expected), "{draft}");
        };
        check(r#"{"amount": 77}"#, &["h1"]);
        check(r#"{"iban": "99"}"#, &["h2"]);
        check(r#"{"amount": 77, "iban": "99"}"#, &["h1", "h2"]);
        check(r#"{"amount": 5}"#, &[]);
        check("not JSON, 99", &["h2"]);
    }

    /// If the network gives every region the probability 0, a region that shares a value with the draft is named all
    /// the same. If it gives every region the probability 1, the other regions are named as well.
    #[test]
    fn a_network_adds_regions_and_drops_none_that_a_match_finds() {
        let check = |draft: &str, probability: f64, expected: &[&str]| {
            let expected: Vec<String> = expected.iter().map(|name| (*name).to_owned()).collect();
            assert_eq!(screen(tagged("Amount 77"), draft, Some(probability)), Some(expected), "{draft}");
        };
        check(r#"{"amount": 77}"#, 0.0, &["h1"]);
        check(r#"{"amount": "77.00"}"#, 0.0, &["h1"]);
        check(r#"{"iban": "IBAN 99"}"#, 0.0, &["h2"]);
        check(r#"{"amount": 77, "iban": "99"}"#, 0.0, &["h1", "h2"]);
        check(r#"{"amount": 5}"#, 0.0, &[]);
        check(r#"{"amount": 77}"#, 1.0, &["h1", "h2"]);
        // The user's own words are visible anyway, so no region is needed for them.
        let bill = screen(tagged("the bill: 77"), r#"{"what": "the bill"}"#, Some(0.0));
        assert_eq!(bill, Some(Vec::new()));
        let many: Vec<String> = (100..2200).map(|number| number.to_string()).collect();
        let many = format!("[{}]", many.join(","));
        assert_eq!(screen(tagged("Amount 77"), &many, Some(0.0)), None, "every region counts");
    }

    #[test]
    fn a_failure_names_no_list_so_that_every_region_counts() {
        assert_eq!(screen(tagged(&"7".repeat(2000)), "{}", None), None, "the chat is too long");
        let all = Some(vec!["h1".to_owned(), "h2".to_owned()]);
        assert_eq!(screen(tagged("Amount 77"), "{}", Some(f64::NAN)), all);
    }

    #[test]
    fn other_requests_are_refused() {
        let screener = AttentionScreener {
            writer: Arc::new(ScriptedModel::from_answers([])),
            reader: AttentionReader {
                model: Arc::new(SharedDigits),
                classifier: Arc::new(Share(None)),
                threshold: 0.5,
            },
        };
        let error = block_on(screener.complete(&Request::default(), &mut ignore_deltas)).unwrap_err();
        assert_eq!(error, NOT_OF_JUDGE);
    }

    #[test]
    fn an_empty_message_names_no_list() {
        let (_, chat) = PlainChat::read(tagged("Amount 77"));
        let reader = AttentionReader {
            model: Arc::new(SharedDigits),
            classifier: Arc::new(Share(Some(0.0))),
            threshold: 0.5,
        };
        let named = |text: &str| {
            reader.needed_regions(&chat, &Completion { text: text.to_owned(), ..Completion::default() })
        };
        assert_eq!(named(" \n"), Err(Error::Unsupported("the drafted message is empty")));
        assert_eq!(named("It is 77."), Ok(vec!["h1".to_owned()]));
    }
}
