//! Judges a chat between an agent and a model that runs through another gateway. Replays the chat in a conversation
//! that exists for this request only, and judges each message of the model as if this gateway had received it from the
//! model. `guardrail` calls this module for both of its protocols.
//!
//! The other gateway has shown the model the whole chat. So the conversation runs under the method *everything*, under
//! which a message of the model carries the labels of everything before it. A chat is stopped if this gateway would
//! have hidden a part of the chat from the model. No person is asked: a call that a person would have to allow is
//! stopped.

use std::collections::HashSet;
use std::sync::Arc;

use axum::http::StatusCode;
use flowgate::monitor::{Outcome, Reason, ReasonKind};
use flowgate::trace::Call;
use flowgate_guard::approve::Decision;
use flowgate_guard::conversation::{CallVerdict, Conversation, HandedOverCall, Need, Turn, TurnEnd};
use flowgate_guard::history::{ClientProfile, MessageDigests, SentChat};
use flowgate_guard::view::View;
use flowgate_guard::{DescriptionAuthor, OfferedTool};
use flowgate_lm::chat::{Completion, Message, Source, Stop, ToolCall};
use flowgate_lm::wire::ReceivedRequest;
use serde_json::json;

use crate::chat::clients::ClientState;
use crate::chat::conversations::{ConversationState, recorded_elsewhere};
use crate::chat::request_decoder::with_default_provenance;
use crate::chat::turn_start::to_offered_tool;
use crate::http::client_presence::ClientPresence;
use crate::http::request_error::RequestError;

/// The most messages of the model in one chat. All of them are judged again with every request, so more would take too
/// long.
const MAX_ANSWERS: usize = 1000;
/// The reason for a chat that exceeds a limit of a conversation or of a turn.
const TOO_LONG: &str = "the chat is too long to be judged: begin a new one";

/// Why a chat or an answer is not judged as permitted.
#[derive(Debug)]
pub(super) enum NotPermitted {
    /// The policy stops it, or it cannot be judged.
    Stopped(StoppedChat),
    /// A freeze or a limit prevents it, the gateway failed, or the client has disconnected. Unlike `Stopped`, this also
    /// has an effect in watch mode.
    Failed(RequestError),
}

/// A chat or an answer that the policy stops, or that cannot be judged.
#[derive(Debug, Default)]
pub(super) struct StoppedChat {
    /// The message for the program behind the other gateway, without content of the chat.
    pub(super) reason: String,
    /// The verdicts on the calls of the message.
    pub(super) judged: Vec<CallVerdict>,
    /// The texts of the model that a rule withholds.
    pub(super) withheld: Vec<String>,
}

impl NotPermitted {
    /// Creates the refusal of a chat for a reason other than a verdict on a call.
    pub(super) fn because(reason: impl Into<String>) -> Self {
        Self::Stopped(StoppedChat { reason: reason.into(), ..StoppedChat::default() })
    }
}

impl<E: Into<RequestError>> From<E> for NotPermitted {
    /// Converts a failure of the gateway, such as a limit or the database: the chat was not judged.
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// A chat that was replayed, up to the next message of the model.
#[derive(Debug)]
pub(super) struct RecordedChat<'c> {
    client: &'c ClientState,
    pub(super) session: ConversationState,
    /// What the operator declares about the client, and the texts of this chat.
    profile: ClientProfile,
    /// The digests of the messages that were replayed so far.
    digests: Arc<MessageDigests>,
    /// The number of messages in `digests`: the first ones of the chat.
    covered: usize,
    /// The number of tools on offer.
    tools: usize,
}

impl<'c> RecordedChat<'c> {
    /// Replays a chat up to the next message of the model. Unmarked parts of user messages have the provenance
    /// `default_source`, if that is given. Stops early if the client has disconnected (`presence`).
    ///
    /// # Errors
    /// If the policy stops a message, does not permit an earlier call, or hides a part of the chat from the model. Also
    /// if the chat is incomplete or too long, or the client has disconnected.
    pub(super) fn replay(
        client: &'c ClientState,
        received: &ReceivedRequest,
        default_source: Option<Source>,
        presence: &ClientPresence,
    ) -> Result<Self, NotPermitted> {
        let messages: &[Message] = &received.request.messages;
        check_completeness(messages)?;
        let sources = with_default_provenance(received.sources.clone(), messages, default_source);
        // A conversation for this request alone, under the method *everything*.
        let mut session = recorded_elsewhere(client)?;
        session.begin_watching(&client.spec);
        let tools = offered_tools(client, received);
        let (tool_count, profile) = (tools.len(), client.replay_profile());
        session.conversation.offer_tools(tools)?;
        let mut chat =
            Self { client, session, profile, digests: Arc::default(), covered: 0, tools: tool_count };
        // The index after the last message of the model so far. The messages from there up to the next message of the
        // model are added to the conversation together.
        let mut answered = 0;
        for (index, message) in messages.iter().enumerate() {
            let Message::Assistant { text, calls, .. } = message else { continue };
            if presence.is_disconnected() {
                let why = "the client no longer waits for the answer";
                return Err(RequestError::new(StatusCode::REQUEST_TIMEOUT, why).into());
            }
            chat.accept(messages, &sources, answered..index)?;
            let answer = Completion { text: text.clone(), calls: calls.clone(), ..Completion::default() };
            let turn = chat.step(answer)?;
            // Only the calls are judged again: the text was judged when the model wrote it.
            check_calls(client, calls, &turn).map_err(in_history)?;
            let ConversationState { conversation, history, .. } = &mut chat.session;
            conversation.record_answer(&mut chat.profile, history, message);
            answered = index + 1;
        }
        chat.accept(messages, &sources, answered..messages.len())?;
        Ok(chat)
    }

    /// Judges whether the model may be asked for the next message. Consumes the replayed chat.
    ///
    /// # Errors
    /// If a rule stops a text of the chat, or the model may not read a part of it.
    pub(super) fn judge_request(mut self) -> Result<(), NotPermitted> {
        // A turn reports the texts that rules stop when it ends. An empty message of the model ends it.
        let turn = self.step(Completion::default())?;
        check_texts(&turn)
    }

    /// Judges the next message of the model. Returns the verdicts on its calls, which are all permitted.
    ///
    /// # Errors
    /// If the policy does not permit a call or stops the text.
    pub(super) fn judge_answer(&mut self, answer: Completion) -> Result<Vec<CallVerdict>, NotPermitted> {
        let (calls, written) = (answer.calls.clone(), texts_of(&answer));
        let turn = self.step(answer)?;
        check_calls(self.client, &calls, &turn)?;
        check_texts(&turn)?;
        let texts = || turn.replies.iter().chain(&turn.thoughts);
        if texts().any(|text| !text.withheld.is_empty()) {
            return Err(NotPermitted::Stopped(StoppedChat {
                reason: "a rule of the policy withholds the reply of the model: ask the model for something else, or \
                    ask the operator of the gateway"
                    .to_owned(),
                judged: turn.judged,
                withheld: turn.withheld,
            }));
        }
        // The gateway that asks for the judgement passes on the text that the model has written, and not the text that
        // this gateway would show. So a text that this gateway would change is stopped. `disarmed` lists addresses that
        // this gateway has made unusable in the text, but not all of them, and no permitted addresses that it has
        // rewritten in their canonical form. So the written texts are compared with the shown ones as well.
        let is_shown = |written: &String| texts().any(|shown| shown.text == *written);
        if texts().any(|text| !text.disarmed.is_empty()) || !written.iter().all(is_shown) {
            return Err(NotPermitted::Stopped(StoppedChat {
                reason: "the reply of the model has an address that the policy does not permit in a reply, or permits \
                    only in another spelling: ask the model for a reply without addresses"
                    .to_owned(),
                judged: turn.judged,
                withheld: Vec::new(),
            }));
        }
        Ok(turn.judged)
    }

    /// Adds the messages with the indices `new` in `messages`, the whole chat, to the conversation. None of them
    /// is a message of the model. `sources` is the declared provenance of the whole chat. If `new` is empty, the model
    /// continues without a message in between.
    ///
    /// # Errors
    /// If the conversation has no room, or its history lacks one of the messages before the new ones.
    fn accept(
        &mut self,
        messages: &[Message],
        sources: &flowgate_lm::chat::Sources,
        new: std::ops::Range<usize>,
    ) -> Result<(), NotPermitted> {
        let ConversationState { conversation, history, .. } = &mut self.session;
        if new.is_empty() {
            conversation.continue_turn();
            return Ok(());
        }
        // `self.digests` covers the first `self.covered` messages. The messages between them and the new ones are the
        // model's (usually one, and none at the beginning): they were added to the conversation as answers and have no
        // digests yet. So they are passed in full together with the new messages.
        let full = messages.get(self.covered..new.end).unwrap_or_default();
        let sent = SentChat::continuing(&self.digests, full).with_sources(sources.starting_at(self.covered));
        (self.digests, self.covered) = (sent.message_digests(), new.end);
        let merged = conversation.accept_chat(&mut self.profile, history, &sent)?;
        let merged = merged.ok_or_else(|| {
            NotPermitted::because(format!(
                "the chat cannot be replayed from message {} on, since a message before it is missing: begin a new chat",
                new.start + 1
            ))
        })?;
        // Words that quote texts the client was shown before are hidden. Which words are hidden tells the model
        // something about these texts; `bits` is an upper bound on that, summed for each client.
        self.client.add_leaked_bits(merged.bits);
        Ok(())
    }

    /// Adds `answer`, the next message of the model, to the conversation, and returns the turn that ends with this
    /// message. The calls that the policy permits count as run; all others are refused, and the verdicts in the turn
    /// say why.
    ///
    /// # Errors
    /// If the model may not read a part of the chat, or a limit of the conversation or of the turn is reached.
    fn step(&mut self, answer: Completion) -> Result<Turn, NotPermitted> {
        match self.session.conversation.need() {
            Need::Complete(view) => self.check_view(&view)?,
            // The turn has ended before the message of the model, because of a limit or the labels of the chat.
            Need::User(turn) if turn.ended == Some(TurnEnd::Clearance) => return Err(not_cleared()),
            _ => return Err(NotPermitted::because(TOO_LONG)),
        }
        let conversation = &mut self.session.conversation;
        let calls = answer.calls.into_iter().map(|call| named_for_model(self.client, conversation, call));
        // `stop` says, for example, that the reply was cut off. A message without text has no reply that could be cut
        // off.
        let stop = if answer.text.is_empty() { Stop::End } else { answer.stop };
        let answer = Completion { calls: calls.collect(), stop, ..answer };
        conversation.accept_completion(answer);
        loop {
            match conversation.need() {
                Need::Run(call) => conversation.hand_over(call),
                Need::Approve(_) => conversation.accept_decision(Decision::Unasked),
                Need::User(turn) => return Ok(turn),
                // All calls were refused. A guarded conversation would ask the model again; here, the turn ends, and
                // the caller stops the chat because of the verdicts.
                Need::Complete(_) => {
                    let judged = conversation.running_turn_mut().take_judged_calls();
                    conversation.stop();
                    return Ok(Turn { judged, ..Turn::default() });
                }
                // Cannot happen: the method *everything* hides nothing, so there is nothing to screen or to fill in.
                Need::Screen(_) | Need::Fill(_) => {
                    return Err(NotPermitted::because(
                        "the chat cannot be judged because of a bug in the gateway: report it",
                    ));
                }
            }
        }
    }

    /// Checks that the view has the whole chat and all tools: the gateway that asks for the judgement shows its model
    /// everything, so a chat of which this gateway would hide a part is refused.
    fn check_view(&self, view: &View) -> Result<(), NotPermitted> {
        // `names` are the hidden regions.
        let shows_all = view.names.is_empty() && view.request.tools.len() == self.tools;
        if shows_all { Ok(()) } else { Err(not_cleared()) }
    }
}

/// Returns the refusal of a chat of which the model may not read a part.
fn not_cleared() -> NotPermitted {
    NotPermitted::because(
        "the policy does not permit that the model reads a part of the chat or the description of a tool: begin a new \
         chat, or ask the operator of the gateway",
    )
}

/// Returns the refusal of a chat because of one of its earlier messages; `stopped` is the refusal of this message.
fn in_history(stopped: NotPermitted) -> NotPermitted {
    match stopped {
        NotPermitted::Stopped(stopped) => NotPermitted::Stopped(StoppedChat {
            reason: format!("an earlier message of the chat: {}; begin a new chat", stopped.reason),
            ..stopped
        }),
        // A failure of the gateway is not about a message of the chat.
        failed => failed,
    }
}

/// Returns the texts of an answer that an agent can show to a person: the reply and the readable reasoning.
fn texts_of(answer: &Completion) -> Vec<String> {
    let thoughts = answer.thoughts.iter().flat_map(|thought| &thought.texts);
    std::iter::once(&answer.text).chain(thoughts).filter(|text| !text.is_empty()).cloned().collect()
}

/// Checks that a chat has the output of each call before the next message of the model, and the call of each output.
/// The other gateway can be configured to leave messages out, but an output that is not judged raises no label, and an
/// output without its call would not have the label of its tool. Also refuses calls with equal ids in one message, and
/// more than [`MAX_ANSWERS`] messages of the model.
fn check_completeness(messages: &[Message]) -> Result<(), NotPermitted> {
    // `open` has the ids of those calls of the model's last message whose output has not been found yet. `answers` is
    // the number of the model's messages.
    let mut open: Vec<&str> = Vec::new();
    let mut answers = 0_usize;
    for message in messages {
        match message {
            Message::Tool { call_id, .. } => match open.iter().position(|id| id == call_id) {
                Some(index) => drop(open.remove(index)),
                None => {
                    return Err(NotPermitted::because(
                        "an output in the chat belongs to no call before it: the gateway that asks must not leave out calls",
                    ));
                }
            },
            // Another message follows although outputs are missing: the check below fails.
            _ if !open.is_empty() => break,
            Message::Assistant { calls, .. } => {
                answers += 1;
                open = calls.iter().map(|call| call.id.as_str()).collect();
                let distinct: HashSet<&str> = open.iter().copied().collect();
                if distinct.len() < open.len() {
                    return Err(NotPermitted::because(
                        "two calls of one message have the same id: give each call its own id",
                    ));
                }
            }
            Message::System(_) | Message::User(_) => {}
        }
    }
    if !open.is_empty() {
        return Err(NotPermitted::because(
            "a call of the chat has no output: the gateway that asks must not leave out messages of tools",
        ));
    }
    if answers > MAX_ANSWERS {
        return Err(NotPermitted::because(format!(
            "the chat has more than {MAX_ANSWERS} messages of the model: begin a new one"
        )));
    }
    Ok(())
}

/// Returns the tools of a request, and the tools that the model has called in the chat but that the request no longer
/// offers: the calls of a tool that is not on offer could not be replayed.
fn offered_tools(client: &ClientState, received: &ReceivedRequest) -> Vec<OfferedTool> {
    let request = &received.request;
    let mut tools: Vec<OfferedTool> =
        request.tools.iter().map(|tool| to_offered_tool(&client.spec, tool)).collect();
    let called = request.messages.iter().flat_map(|message| match message {
        Message::Assistant { calls, .. } => calls.as_slice(),
        _ => &[],
    });
    let mut known: HashSet<_> = tools.iter().map(|offered| offered.tool.clone()).collect();
    for call in called {
        let tool = client.spec.tool_of(&call.name);
        if known.insert(tool.clone()) {
            tools.push(OfferedTool {
                tool,
                description: String::new(),
                parameters: json!({"type": "object"}).into(),
                output: None,
                // The empty description has no text of a third party.
                words: DescriptionAuthor::Operator,
            });
        }
    }
    tools
}

/// Returns the call with the name by which the guarded conversation offers the tool to the model. It may differ from
/// the client's name for the tool.
fn named_for_model(client: &ClientState, conversation: &Conversation, call: ToolCall) -> ToolCall {
    let name = conversation.tool_name(&client.spec.tool_of(&call.name)).map(str::to_owned);
    // A tool that is not on offer has no such name. Its call receives a name that no tool has, and is therefore
    // refused.
    ToolCall { name: name.unwrap_or_else(|| format!("{} (not on offer)", call.name)), ..call }
}

/// Checks that each call of a message was permitted and would run unchanged. `calls` are the calls as the model has
/// written them, and `turn` has the verdicts and the permitted calls as this gateway would hand them over.
///
/// # Errors
/// Why the message is stopped, with the verdicts.
fn check_calls(client: &ClientState, calls: &[ToolCall], turn: &Turn) -> Result<(), NotPermitted> {
    // The refusal for `reason`, with the verdicts of the turn for the audit log.
    let stopped = |reason| {
        let (judged, withheld) = (turn.judged.clone(), turn.withheld.clone());
        Err(NotPermitted::Stopped(StoppedChat { reason, judged, withheld }))
    };
    if let Some(verdict) = turn.judged.iter().find(|verdict| verdict.outcome != Outcome::Permit) {
        return stopped(objection_to(client, verdict));
    }
    if calls.len() != turn.calls.len()
        || !calls.iter().zip(&turn.calls).all(|(made, ran)| is_same(client, made, ran))
    {
        return stopped(
            "a call of the model is malformed, names a tool that the request does not offer, or exceeds the limit on calls: ask the model again"
                .to_owned(),
        );
    }
    Ok(())
}

/// Returns whether the permitted call `ran` is the call `made` by the model: they have the same tool, and their
/// arguments are well-formed and equal JSON values.
fn is_same(client: &ClientState, made: &ToolCall, ran: &HandedOverCall) -> bool {
    // The arguments alone are compared, so the id of the call can be empty.
    let read = |arguments: &str| Call::from_json("", ran.tool.clone(), arguments).arguments;
    let (written, judged) = (read(&made.arguments), read(&ran.arguments));
    client.spec.tool_of(&made.name) == ran.tool && written.is_ok() && written == judged
}

/// Checks that no rule stops a message or an output of the turn, and that the turn did not end early.
///
/// # Errors
/// Why the chat is stopped.
fn check_texts(turn: &Turn) -> Result<(), NotPermitted> {
    if !turn.rule_messages.is_empty() {
        return Err(NotPermitted::because(
            "a rule of the policy stops a message of the chat or an output of a tool: begin a new chat, or ask the operator \
             of the gateway",
        ));
    }
    // A turn ends early because a limit is reached, or there is no room for the chat.
    match turn.ended {
        None => Ok(()),
        Some(_) => Err(NotPermitted::because(TOO_LONG)),
    }
}

/// Describes why a call is not permitted, for the program whose chat runs through the gateway that asks for the
/// judgement. The text has no content of the chat.
fn objection_to(client: &ClientState, verdict: &CallVerdict) -> String {
    let tool = client.spec.name_of(&verdict.tool);
    let mut reasons: Vec<String> = verdict.reasons.iter().map(describe).collect();
    // Compares neighbours only: a repetition elsewhere in the list does no harm.
    reasons.dedup();
    let reasons = reasons.join("; ");
    match verdict.outcome {
        Outcome::Confirm => format!(
            "a person would have to allow the call of `{tool}`, and nobody can be asked here: {reasons}"
        ),
        _ => format!("the policy does not permit the call of `{tool}`: {reasons}"),
    }
}

/// Describes a reason of a verdict, without content of the chat: the message of a rule may quote such content, so this
/// message is left out. A reason about a label also names this label, and the greatest label that is permitted.
fn describe(reason: &Reason) -> String {
    match reason.kind {
        ReasonKind::Rule | ReasonKind::RuleError => "a rule of the policy".to_owned(),
        kind if reason.label.is_empty() => kind.name().to_owned(),
        kind => format!(
            "{}: the label is {}, and at most {} is permitted",
            kind.name(),
            reason.label.join(" "),
            reason.required.join(" ")
        ),
    }
}
