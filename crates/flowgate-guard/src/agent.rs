//! Drives a conversation to the end of a turn ([`Agent`]): whenever the conversation needs an input, the agent asks a
//! model, runs a tool or asks a person. `flowgate run`, the gateway and the benchmarks use it.
//!
//! This module also defines what a caller passes in: the tools that run in this process ([`ToolHandler`], [`Toolbox`]),
//! the tools that the model's provider runs ([`ProviderToolRunner`]), and an [`Observer`], which follows the turn and
//! can cancel it.
//!
//! The methods are asynchronous: a turn that waits for a model or a person costs no thread. The methods themselves
//! depend on no asynchronous runtime; the model and the observer may need one. A caller that is not asynchronous uses a
//! function such as `flowgate_lm::block_on`.

use std::collections::HashMap;
use std::fmt;
use std::future::ready;
use std::ops::ControlFlow;
use std::time::Duration;

use flowgate::monitor::{AuthorizedCall, PushError};
use flowgate_lm::chat::{Completion, Request};
use flowgate_lm::{BoxFuture, ChatModel, Delta, Error, Listener};
use serde_json::Value;

use crate::approve::{ApprovalRequest, Approver, Decision};
use crate::conversation::{Conversation, Need, ToolAnswer, Turn};
use crate::links::StreamCleaner;
use crate::view::View;
use flowgate::trace::Tool as Identity;

/// A tool that acts on the outside world. It consumes the evidence that its call was judged:
///
/// ```
/// use flowgate::monitor::AuthorizedCall;
/// use flowgate_guard::agent::ToolHandler;
///
/// fn run(tool: &dyn ToolHandler, call: AuthorizedCall) {
///     tool.call(call);
/// }
/// ```
///
/// A call that was not judged does not compile:
///
/// ```compile_fail,E0308
/// use flowgate::trace::Call;
/// use flowgate_guard::agent::ToolHandler;
///
/// fn run(tool: &dyn ToolHandler, call: Call) {
///     tool.call(call);
/// }
/// ```
///
/// Only the monitor creates evidence:
///
/// ```compile_fail,E0451
/// use flowgate::monitor::AuthorizedCall;
/// use flowgate::trace::{Call, EventId, Tool};
///
/// let call = Call::from_json("c1", Tool::local("send"), "{}");
/// let forged = AuthorizedCall { call, event: EventId(0), is_harmless: true };
/// ```
///
/// One verdict permits one call:
///
/// ```compile_fail,E0382
/// use flowgate::monitor::{Monitor, Permit};
///
/// fn twice(monitor: &mut Monitor, permit: Permit) {
///     let _ = monitor.redeem(permit);
///     let _ = monitor.redeem(permit);
/// }
/// ```
///
/// ```compile_fail,E0382
/// use flowgate::monitor::AuthorizedCall;
/// use flowgate_guard::agent::ToolHandler;
///
/// fn again(tool: &dyn ToolHandler, call: AuthorizedCall) {
///     tool.call(call);
///     tool.call(call);
/// }
/// ```
pub trait ToolHandler: Send + Sync {
    /// Runs a call. It may block: the agent does nothing else until the tool has answered.
    fn call(&self, call: AuthorizedCall) -> ToolAnswer;
}

/// A function is a tool.
impl<F: Fn(AuthorizedCall) -> ToolAnswer + Send + Sync> ToolHandler for F {
    fn call(&self, call: AuthorizedCall) -> ToolAnswer {
        self(call)
    }
}

/// The tools that an agent can run in this process, by identity. An [external](Self::external) toolbox has none: the
/// caller of the agent runs all tools.
#[derive(Default)]
pub struct Toolbox {
    tools: HashMap<Identity, Box<dyn ToolHandler>>,
    /// Whether the caller of the agent runs the tools itself; then `tools` is not used.
    is_external: bool,
}

impl fmt::Debug for Toolbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Toolbox({} tools)", self.tools.len())
    }
}

impl Toolbox {
    /// Creates an empty toolbox.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a toolbox for tools that the caller runs: their calls are [handed over](Conversation::hand_over).
    pub fn external() -> Self {
        Self { is_external: true, ..Self::default() }
    }

    /// Adds a tool.
    pub fn add(&mut self, identity: Identity, tool: impl ToolHandler + 'static) {
        self.tools.insert(identity, Box::new(tool));
    }

    /// Runs the tool of a call. A call of a tool that is not in the toolbox is answered with an error.
    fn run(&self, call: AuthorizedCall) -> ToolAnswer {
        match self.tools.get(&call.call().tool) {
            Some(tool) => tool.call(call),
            None => ToolAnswer::error(
                "the tool has no implementation in this program: do without it, or add it to the program's toolbox",
            ),
        }
    }
}

/// Runs the calls of tools that the provider of a model runs. It consumes the evidence that a call was judged, as a
/// [`ToolHandler`] does.
pub trait ProviderToolRunner: Send + Sync {
    /// Returns whether the provider runs this tool.
    fn runs(&self, tool: &Identity) -> bool;

    /// Has the provider run a call, and returns the output of the tool, or the provider's failure as an error of the
    /// tool.
    ///
    /// # Errors
    /// If the turn was cancelled.
    fn call(&self, call: AuthorizedCall) -> BoxFuture<'_, Result<ToolAnswer, Error>>;
}

/// Observes what an agent does.
pub trait Observer: Send {
    /// Reports the state of the conversation before its next need is served.
    fn before_need(&mut self, _conversation: &Conversation) {}
    /// Is called before the model is queried with this view.
    fn before_completion(&mut self, _view: &View) {}
    /// Is called with each piece of text that the model streams. The text may be shown at once: whatever the model
    /// writes next, it is part of the reply.
    fn on_text(&mut self, _text: &str) {}
    /// Waits until the observer can take more text.
    fn ready(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(ready(()))
    }
    /// Is called after the model has answered.
    fn after_completion(&mut self, _completion: &Completion) {}
    /// Is called after a person has approved a call, before the conversation receives the decision. The conversation
    /// then judges the call again. The observer joins the labels that other conversations have written to stores since
    /// the question was asked ([`Conversation::join_external_state`]), so that the call is judged by the current
    /// labels. Unless it is overridden, this method does nothing.
    ///
    /// # Errors
    /// If the state cannot be joined. The call does not run.
    fn before_decision<'a>(
        &'a mut self,
        _conversation: &'a mut Conversation,
    ) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(ready(Ok(())))
    }
    /// Is called before a call runs. The observer persists what must be durable by then, such as the labels of the
    /// stores that the call writes to. Unless it is overridden, this method does nothing.
    ///
    /// # Errors
    /// If something cannot be persisted. The call does not run.
    fn before_run<'a>(
        &'a mut self,
        _conversation: &'a mut Conversation,
        _call: &'a AuthorizedCall,
    ) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(ready(Ok(())))
    }
    /// Is called after a call has run, before its answer is labelled. The observer joins what other conversations
    /// have since written to stores: see [`Conversation::join_external_state`].
    ///
    /// # Errors
    /// If the state cannot be joined. The answer is withheld from everybody, also from the model. The error is the
    /// cause, and does not advise to try again: the message for the model says that the call ran.
    fn after_run<'a>(&'a mut self, _conversation: &'a mut Conversation) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(ready(Ok(())))
    }
    /// Is called before this process, or the provider on its behalf, runs the tool of a call. Not called for a call
    /// that the embedding program runs itself.
    fn on_tool_call(&mut self, _call: &AuthorizedCall) {}
    /// Is called after a tool in this process or at the provider has answered, unless its answer is withheld.
    fn on_tool_answer(&mut self, _answer: &ToolAnswer) {}
    /// Returns whether the agent is to stop as soon as possible.
    fn is_cancelled(&self) -> bool {
        false
    }
}

/// An observer that does nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NullObserver;

impl Observer for NullObserver {}

/// Why a turn could not be finished. The conversation remains usable.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TurnError {
    /// A model gave no answer, or the turn was cancelled.
    Model(Error),
    /// The session has no room for the user's message.
    Full(PushError),
}

impl fmt::Display for TurnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Model(error) => error.fmt(f),
            Self::Full(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for TurnError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Model(error) => Some(error),
            Self::Full(error) => Some(error),
        }
    }
}

/// Drives conversations: has the models, the tools and the approver that serve the needs of a conversation.
pub struct Agent<'a> {
    /// The model that writes the messages of the chat.
    pub model: &'a dyn ChatModel,
    /// The model that a screener queries; a smaller one suffices.
    pub screener: &'a dyn ChatModel,
    /// The model that fills slots; a smaller one suffices.
    pub filler: &'a dyn ChatModel,
    /// The tools that can run.
    pub tools: &'a Toolbox,
    /// Runs the calls of tools of the provider, also if the caller runs the other calls; `None` if there are none.
    pub provider_tools: Option<&'a dyn ProviderToolRunner>,
    /// The approver of calls.
    pub approver: &'a mut dyn Approver,
    /// Returns the time since an arbitrary fixed point, by which a late decision is recognised.
    pub clock: &'a (dyn Fn() -> Duration + Sync),
    /// The observer.
    pub observer: &'a mut dyn Observer,
}

impl fmt::Debug for Agent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Agent({})", self.model.name())
    }
}

impl Agent<'_> {
    /// Runs one turn: from a message of the user to the model's reply.
    ///
    /// # Errors
    /// If the session has no room for the message, or the turn cannot be finished: see
    /// [`continue_turn`](Self::continue_turn). Calls that ran before are recorded in the conversation.
    pub async fn run_turn(
        &mut self,
        conversation: &mut Conversation,
        content: Value,
    ) -> Result<Turn, TurnError> {
        conversation.add_user_message(content).map_err(TurnError::Full)?;
        self.continue_turn(conversation).await
    }

    /// Runs one turn on a task of another agent. `carries` is the label of that agent's call, as
    /// [`Monitor::to_names`](flowgate::monitor::Monitor::to_names) writes it.
    ///
    /// # Errors
    /// If the session has no room for the task, or the turn cannot be finished: see
    /// [`continue_turn`](Self::continue_turn).
    pub async fn run_task(
        &mut self,
        conversation: &mut Conversation,
        content: Value,
        carries: &Value,
    ) -> Result<Turn, TurnError> {
        conversation.add_task(content, carries).map_err(TurnError::Full)?;
        self.continue_turn(conversation).await
    }

    /// Serves the needs of the conversation until it waits for the user, or for a decision that the approver postponed.
    /// If the future is dropped before it completes, the conversation remains in the middle of a turn.
    ///
    /// # Errors
    /// If the screener's model fails, if the model fails on a step that is not [raised](Conversation::is_raised), or if
    /// the observer cancels the turn.
    pub async fn continue_turn(&mut self, conversation: &mut Conversation) -> Result<Turn, TurnError> {
        loop {
            self.observer.before_need(conversation);
            match conversation.need() {
                Need::User(turn) => return Ok(turn),
                Need::Complete(view) => {
                    self.observer.before_completion(&view);
                    let cleaner = conversation.stream_cleaner();
                    match self.complete_streaming(&view.request, cleaner).await {
                        Ok(completion) => {
                            self.observer.after_completion(&completion);
                            conversation.accept_completion(completion);
                        }
                        // Whether the model fails on a raised step may depend on hidden text, so the failure ends only
                        // that level.
                        Err(error) if error != Error::Cancelled && conversation.is_raised() => {
                            conversation.fail_completion();
                        }
                        Err(error) => return self.abort_turn(conversation, error),
                    }
                }
                Need::Screen(request) => match self.complete(self.screener, &request).await {
                    Ok(completion) => conversation.accept_screening(&completion),
                    Err(error) => return self.abort_turn(conversation, error),
                },
                Need::Fill(request) => match self.complete(self.filler, &request).await {
                    Ok(completion) => conversation.accept_fill(&completion),
                    Err(Error::Cancelled) => return self.abort_turn(conversation, Error::Cancelled),
                    // A model that fails on a text reveals a fact about that text, which is hidden here, so the failure
                    // stays inside the conversation.
                    Err(_) => conversation.fail_fill(),
                },
                Need::Approve(request) => {
                    if let Some(postponed) = self.ask_approver(conversation, &request).await {
                        return Ok(postponed);
                    }
                }
                Need::Run(_) if self.observer.is_cancelled() => {
                    conversation.record_voided_call("the turn was stopped");
                    conversation.accept_tool_answer(ToolAnswer::error(
                        "the turn was stopped, so the call did not run",
                    ));
                    return self.abort_turn(conversation, Error::Cancelled);
                }
                Need::Run(call) if self.provider_tools.is_some_and(|tools| tools.runs(&call.call().tool)) => {
                    match self.run_at_provider(conversation, call).await {
                        Ok(answer) => conversation.accept_tool_answer(answer),
                        Err(error) => return self.abort_turn(conversation, error),
                    }
                }
                Need::Run(call) if self.tools.is_external => {
                    match self.observer.before_run(conversation, &call).await {
                        Ok(()) => conversation.hand_over(call),
                        Err(problem) => {
                            conversation.record_voided_call(&problem);
                            conversation.accept_tool_answer(ToolAnswer::error(format!(
                                "the call did not run: {problem}"
                            )));
                        }
                    }
                }
                Need::Run(call) => {
                    let answer = self.run(conversation, call).await;
                    conversation.accept_tool_answer(answer);
                }
            }
        }
    }

    /// Asks the approver, and passes the decision to the conversation. If the approver postpones the decision, returns
    /// the turn, which then waits for it.
    async fn ask_approver(
        &mut self,
        conversation: &mut Conversation,
        request: &ApprovalRequest,
    ) -> Option<Turn> {
        let asked_at = (self.clock)();
        let decision = self.approver.decide(request).await;
        let in_time = (self.clock)().saturating_sub(asked_at) <= request.expires;
        if in_time && matches!(decision, Decision::Undecided) {
            return Some(conversation.postpone());
        }
        // An approved call is judged again, by the current labels of the stores.
        let has_current_state =
            !decision.allows() || self.observer.before_decision(conversation).await.is_ok();
        // A decision that is late, or that the observer cannot prepare for, counts as no answer.
        let is_valid = in_time && has_current_state;
        conversation.accept_decision(if is_valid { decision } else { Decision::Unanswered });
        None
    }

    /// Queries the model, and passes its text to the observer while it is generated, as far as `cleaner` releases it:
    /// without addresses that the policy forbids and without placeholders. If `cleaner` is `None`, passes no text.
    ///
    /// # Errors
    /// If the model fails, or the observer cancels the turn.
    async fn complete_streaming(
        &mut self,
        request: &Request,
        cleaner: Option<StreamCleaner>,
    ) -> Result<Completion, Error> {
        let mut listener = ReplyListener { observer: &mut *self.observer, cleaner };
        listener.complete(self.model, request).await
    }

    /// Runs a call in this process and returns the answer of its tool. If the observer fails before the call, the call
    /// does not run, and an approval of it is recorded as void. If the observer fails after the call, the answer is
    /// withheld. In both cases, an error is returned in place of the answer.
    async fn run(&mut self, conversation: &mut Conversation, call: AuthorizedCall) -> ToolAnswer {
        if let Err(problem) = self.observer.before_run(conversation, &call).await {
            conversation.record_voided_call(&problem);
            return ToolAnswer::error(format!("the call did not run: {problem}"));
        }
        self.observer.on_tool_call(&call);
        let answer = self.tools.run(call);
        self.release_answer(conversation, answer).await
    }

    /// Has the provider run a call, and returns the answer of its tool, or an error in its place: see
    /// [`run`](Self::run).
    ///
    /// # Errors
    /// If the turn was cancelled.
    async fn run_at_provider(
        &mut self,
        conversation: &mut Conversation,
        call: AuthorizedCall,
    ) -> Result<ToolAnswer, Error> {
        let Some(tools) = self.provider_tools else {
            return Ok(ToolAnswer::error(
                "the call did not run: this program cannot run tools of the provider; do without the tool",
            ));
        };
        if let Err(problem) = self.observer.before_run(conversation, &call).await {
            conversation.record_voided_call(&problem);
            return Ok(ToolAnswer::error(format!("the call did not run: {problem}")));
        }
        // If the turn is cancelled while the call runs, the approval of the call is used nevertheless.
        conversation.record_begun_call();
        self.observer.on_tool_call(&call);
        let answer = tools.call(call).await?;
        Ok(self.release_answer(conversation, answer).await)
    }

    /// Returns the answer of a tool that has run, or an error in its place if the observer fails.
    async fn release_answer(&mut self, conversation: &mut Conversation, answer: ToolAnswer) -> ToolAnswer {
        match self.observer.after_run(conversation).await {
            Ok(()) => {
                self.observer.on_tool_answer(&answer);
                answer
            }
            Err(problem) => ToolAnswer::error(format!(
                "the call ran, so do not repeat it before you have checked its effect; its answer is withheld, since \
                the current labels of the stores could not be read: {problem}"
            )),
        }
    }

    /// Queries a model whose text is not part of the reply: a screener or a filler.
    ///
    /// # Errors
    /// If the model fails, or the observer cancels the turn.
    async fn complete(&mut self, model: &dyn ChatModel, request: &Request) -> Result<Completion, Error> {
        ReplyListener { observer: &mut *self.observer, cleaner: None }.complete(model, request).await
    }

    /// Ends the turn in the conversation because of `error`, and returns `error` to the caller of the agent.
    fn abort_turn(&self, conversation: &mut Conversation, error: Error) -> Result<Turn, TurnError> {
        conversation.stop();
        Err(TurnError::Model(error))
    }
}

/// Listens to the model while it writes a reply: passes the text to the observer, and ends the generation when the
/// observer has cancelled the turn.
struct ReplyListener<'o> {
    observer: &'o mut dyn Observer,
    /// Cleans the text that is shown early; `None` if no text may be shown early.
    cleaner: Option<StreamCleaner>,
}

impl ReplyListener<'_> {
    /// Queries a model with this listener. If the observer has cancelled the turn already, fails with
    /// [`Error::Cancelled`] and queries nothing.
    async fn complete(&mut self, model: &dyn ChatModel, request: &Request) -> Result<Completion, Error> {
        if self.observer.is_cancelled() {
            return Err(Error::Cancelled);
        }
        model.complete(request, self).await
    }
}

impl Listener for ReplyListener<'_> {
    /// Passes the text in a piece of the model's output to the observer, as far as `cleaner` lets it be shown early;
    /// without `cleaner`, no text is shown early. Returns `Break` to end the generation: if the observer has cancelled
    /// the turn, or if the model begins again after some text was shown.
    fn on_delta(&mut self, delta: Delta<'_>) -> ControlFlow<()> {
        // Reasoning is judged as a whole, and the user receives it before the text. After reasoning, no text is
        // therefore shown early, unless some text was shown before it.
        if matches!(delta, Delta::Reasoning(_))
            && self.cleaner.as_ref().is_some_and(|cleaner| !cleaner.has_begun())
        {
            self.cleaner = None;
        }
        match (delta, &mut self.cleaner) {
            // The cleaner may hold the end of the text back until it has seen more.
            (Delta::Text(piece), Some(cleaner)) => match cleaner.push(piece).as_str() {
                "" => {}
                text => self.observer.on_text(text),
            },
            // Text that was shown cannot be retracted, and another attempt would produce other text.
            (Delta::Restart, Some(cleaner)) if cleaner.has_begun() => return ControlFlow::Break(()),
            _ => {}
        }
        if self.observer.is_cancelled() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// Waits until the observer can take more text.
    fn ready(&mut self) -> BoxFuture<'_, ()> {
        self.observer.ready()
    }
}
