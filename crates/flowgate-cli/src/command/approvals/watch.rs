//! Runs `flowgate approvals watch`: shows the open questions of a gateway, and each new question as soon as it is
//! asked. At a terminal, the person is asked for the answer to each. The command also shows what becomes of a question
//! that it has shown, since another person may decide it.

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Read as _, stdin, stdout};
use std::thread;
use std::time::Duration;

use flowgate::monitor::PersonDecision;
use flowgate_lm::sse::EventSplitter;
use serde_json::Value;

use super::decisions::{TypedDecision, decide};
use super::{OperationResult, now, questions_of};
use crate::args::{ApprovalsFormat, GatewayArgs};
use crate::escaping;
use crate::gateway_client::{GatewayClient, GatewayError};
use crate::input::InputError;
use crate::output::Console;
use crate::progress::INTERRUPTED;
use crate::question_text;
use crate::typed_lines::TypedLines;

/// The pause before the stream of questions is opened again for the first time; each further pause is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// The longest pause before the stream of questions is opened again.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// The most ids of questions that are remembered as shown; at that number, the oldest ones are forgotten.
const MAX_SHOWN: usize = 10_000;

/// The state of `approvals watch`: the output format, the reader of the terminal, and the questions printed so far.
struct Watch<'a> {
    gateway: &'a GatewayClient,
    format: ApprovalsFormat,
    /// Reads the answers that a person types; `None` if the command only prints questions.
    lines: Option<TypedLines>,
    /// The open questions that were shown, by the value of `count` when each was shown first: its id, and how many
    /// people had approved it when it was shown last. The oldest is the first.
    shown: BTreeMap<usize, (String, usize)>,
    /// The number of questions that were shown.
    count: usize,
}

/// The result of handling a question: whether the command then continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WatchStep {
    /// The command waits for the next question.
    GoOn,
    /// The input at the terminal has ended, and so does the command.
    End,
}

/// Runs `flowgate approvals watch` until the input of the terminal ends or Ctrl-C is pressed. A lost connection is
/// reopened. Returns an error if the first connection cannot be opened, or if the gateway refuses a request.
pub(super) fn run(format: ApprovalsFormat, options: &GatewayArgs, output: &mut Console) -> OperationResult {
    let gateway = GatewayClient::new(options, output)?;
    // The program waits for the gateway or for a line, so the handler ends it.
    let handler = ctrlc::set_handler(|| std::process::exit(i32::from(INTERRUPTED)));
    handler.map_err(|error| InputError(format!("Ctrl-C cannot be handled: {error}; try again")))?;
    let asks = format == ApprovalsFormat::Text && stdin().is_terminal() && stdout().is_terminal();
    let lines = asks.then(TypedLines::start_reading);
    let mut watch = Watch { gateway: &gateway, format, lines, shown: BTreeMap::new(), count: 0 };
    // `stream` sets `has_begun` and resets `pause` when it is connected.
    let (mut pause, mut has_begun) = (FIRST_PAUSE, false);
    // The outer `Result` is for errors of the input; the caller prints an error of the gateway.
    loop {
        match watch.stream(&mut has_begun, &mut pause, output) {
            Ok(WatchStep::End) => return Ok(Ok(0)),
            Ok(WatchStep::GoOn) => {}
            // A repeated request would be refused as well, for example because of a wrong key.
            Err(error @ GatewayError::Refused(..)) => return Ok(Err(error)),
            Err(error) if !has_begun => return Ok(Err(error)),
            Err(GatewayError::Failed(why)) => output.warning(&format!("{why}; trying again")),
        }
        thread::sleep(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

impl Watch<'_> {
    /// Opens the gateway's stream of questions, and shows each new or changed question until the stream ends. The open
    /// questions are listed only after the stream has begun, so that none is missed in between. Once it has begun,
    /// `has_begun` becomes true, and `pause`, the time before the stream is opened again, is reset. Returns
    /// [`WatchStep::GoOn`] at the end of the stream, and [`WatchStep::End`] at the end of the input at the terminal.
    fn stream(
        &mut self,
        has_begun: &mut bool,
        pause: &mut Duration,
        output: &mut Console,
    ) -> Result<WatchStep, GatewayError> {
        let mut reader = self.gateway.stream("/api/v1/approvals/events")?;
        let mut splitter = EventSplitter::default();
        // `is_open`: whether this stream has delivered its first bytes.
        let (mut buffer, mut is_open) = (vec![0_u8; 16 << 10], false);
        loop {
            // The stream has ended or broken, or its time limit has passed.
            let Ok(count @ 1..) = reader.read(&mut buffer) else { return Ok(WatchStep::GoOn) };
            if !is_open {
                if !*has_begun && self.lines.is_some() {
                    output.note("waiting for questions; Ctrl-C ends this");
                }
                (is_open, *has_begun, *pause) = (true, true, FIRST_PAUSE);
                let answer = self.gateway.get("/api/v1/approvals")?;
                for question in questions_of(&answer) {
                    if self.handle(question, output)? == WatchStep::End {
                        return Ok(WatchStep::End);
                    }
                }
            }
            for event in splitter.feed(buffer.get(..count).unwrap_or_default()) {
                let damaged = |_| {
                    GatewayError::Failed(format!(
                        "{}: the answer has an event that is not a question (too long, or not UTF-8); check the address of the gateway, and a proxy in front of it",
                        self.gateway.address()
                    ))
                };
                let event = event.map_err(damaged)?;
                // An event that is not JSON has no question.
                let Ok(question) = serde_json::from_str::<Value>(&event.data) else { continue };
                if self.handle(&question, output)? == WatchStep::End {
                    return Ok(WatchStep::End);
                }
            }
        }
    }

    /// Handles a question from the list or from the stream:
    ///
    /// * An open question that was not shown yet is printed, and the person is asked for the answer.
    /// * If a shown question has a new approval but needs further ones, prints who has approved it and who has to.
    /// * If a shown question is no longer open, prints what became of it.
    /// * Any other question is ignored.
    ///
    /// With JSON, prints the question in the first three cases, and asks nothing.
    fn handle(&mut self, question: &Value, output: &mut Console) -> Result<WatchStep, GatewayError> {
        let id = question_text::text(question, "id").to_owned();
        // `shown` has the questions with consecutive numbers, so that its first entry is the oldest question.
        let known = self.shown.iter().find(|(_, (shown, _))| *shown == id);
        // The number of the question among the shown ones, and how many people had approved it when it was shown last.
        let known = known.map(|(number, (_, approvals))| (*number, *approvals));
        let is_open = question_text::text(question, "state") == "open";
        let approvals = question.get("approved_by").and_then(Value::as_array).map_or(0, Vec::len);
        match (is_open, known) {
            // The question was shown already, and has no new approval: an open question can be in the list and in the
            // stream.
            (true, Some((_, before))) if approvals <= before => return Ok(WatchStep::GoOn),
            (true, Some((number, _))) => drop(self.shown.insert(number, (id, approvals))),
            (true, None) => {
                self.count += 1;
                self.shown.insert(self.count, (id, approvals));
                if self.shown.len() > MAX_SHOWN {
                    self.shown.pop_first();
                }
            }
            (false, Some((number, _))) => drop(self.shown.remove(&number)),
            // The question was never shown as open, so the person need not learn that it is closed.
            (false, None) => return Ok(WatchStep::GoOn),
        }
        if self.format == ApprovalsFormat::Json {
            output.line(&escaping::json_line(question));
            return Ok(WatchStep::GoOn);
        }
        if !is_open || known.is_some() {
            let call = question.get("call").unwrap_or(&Value::Null);
            let tool = escaping::line(question_text::text(call, "tool"));
            let became =
                question_text::approvals(question).unwrap_or_else(|| question_text::outcome(question));
            output.line(&format!("{tool}: {became}"));
            return Ok(WatchStep::GoOn);
        }
        output.line("");
        question_text::print(question, now(), output);
        self.answer(question, output)
    }

    /// Asks the person for the decision on a question, and sends the decision. Does nothing without a terminal, or if
    /// the person may give no decision. An empty line leaves the question open; an unknown key repeats the prompt. If
    /// the gateway refuses the decision, for example because it comes too late, prints why.
    fn answer(&self, question: &Value, output: &mut Console) -> Result<WatchStep, GatewayError> {
        let Some(lines) = &self.lines else { return Ok(WatchStep::GoOn) };
        let key = |decision: PersonDecision| match decision {
            PersonDecision::AllowOnce => "a",
            PersonDecision::AllowForConversation => "c",
            PersonDecision::AllowLasting => "g",
            PersonDecision::Deny => "d",
        };
        let mut offered = PersonDecision::ALL.to_vec();
        offered.retain(|decision| TypedDecision::from(*decision).objection(question).is_none());
        if offered.is_empty() {
            return Ok(WatchStep::GoOn);
        }
        let words: Vec<String> =
            offered.iter().map(|decision| format!("{} {}", key(*decision), decision.words())).collect();
        let prompt = format!("{}, Enter later: ", words.join(", "));
        let chosen = loop {
            // The person types no further lines: the command ends.
            let Some(line) = lines.ask(&prompt, output) else { return Ok(WatchStep::End) };
            if line.is_empty() {
                return Ok(WatchStep::GoOn);
            }
            if let Some(decision) = offered.iter().find(|decision| key(**decision) == line) {
                break TypedDecision::from(*decision);
            }
        };
        let (id, digest) = (question_text::text(question, "id"), question_text::text(question, "digest"));
        match decide(self.gateway, id, digest, &chosen) {
            // The stream delivers the decided question, and `handle` prints it.
            Ok(_) => {}
            Err(GatewayError::Refused(sentence)) => output.error(&sentence),
            Err(GatewayError::Failed(why)) => return Err(GatewayError::Failed(why)),
        }
        Ok(WatchStep::GoOn)
    }
}
