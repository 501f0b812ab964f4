//! An agent: a conversation with a model, tools that really run, and a person who decides.

use std::collections::HashMap;
use std::fmt;
use std::ops::ControlFlow;
use std::time::Duration;

use flowgate::monitor::{Authorized, PushError};
use flowgate_lm::chat::{Completion, Request};
use flowgate_lm::{Complete, Delta, Error};
use serde_json::Value;

use crate::approve::{Approver, Decision};
use crate::conversation::{Conversation, Need, ToolAnswer, Turn};
use crate::links::Live;
use crate::view::View;
use flowgate::trace::Tool as Identity;

/// Something that acts on the world. It takes the evidence that its call was judged, by value.
pub trait Tool: Send + Sync {
    /// Runs a call.
    fn call(&self, call: Authorized) -> ToolAnswer;
}

/// A function is a tool.
impl<F: Fn(Authorized) -> ToolAnswer + Send + Sync> Tool for F {
    fn call(&self, call: Authorized) -> ToolAnswer {
        self(call)
    }
}

/// The tools that can run, by identity.
#[derive(Default)]
pub struct Toolbox {
    tools: HashMap<Identity, Box<dyn Tool>>,
    is_elsewhere: bool,
}

impl fmt::Debug for Toolbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Toolbox({} tools)", self.tools.len())
    }
}

impl Toolbox {
    /// No tools.
    pub fn new() -> Self {
        Self::default()
    }

    /// Tools that the caller runs: their calls are [handed over](Conversation::hand_over).
    pub fn elsewhere() -> Self {
        Self { is_elsewhere: true, ..Self::default() }
    }

    /// Adds a tool.
    pub fn add(&mut self, identity: Identity, tool: impl Tool + 'static) {
        self.tools.insert(identity, Box::new(tool));
    }

    fn run(&self, call: Authorized) -> ToolAnswer {
        match self.tools.get(&call.call().tool) {
            Some(tool) => tool.call(call),
            None => ToolAnswer::error("the tool is not there"),
        }
    }
}

/// Hears of what an agent does.
pub trait Observer {
    /// The conversation stands like this, and what it needs next is about to be met.
    fn stands(&mut self, _conversation: &Conversation) {}
    /// The model is asked, and shown this.
    fn asking(&mut self, _view: &View) {}
    /// The model writes, and this may be shown already: it will stand in the reply as it is here, whatever comes after it.
    fn says(&mut self, _text: &str) {}
    /// The model has answered.
    fn answered(&mut self, _completion: &Completion) {}
    /// A person has decided, and the conversation is about to hear of it. What others have written to stores meanwhile is known
    /// now: see [`Conversation::recall`].
    ///
    /// # Errors
    /// If it cannot be: then the call does not run.
    fn before_decided(&mut self, _conversation: &mut Conversation) -> Result<(), String> {
        Ok(())
    }
    /// A call is about to run. What must be known before it does, such as what the stores carry that it writes to, is
    /// kept now.
    ///
    /// # Errors
    /// If it cannot be kept: then the call does not run.
    fn before_run(&mut self, _conversation: &mut Conversation, _call: &Authorized) -> Result<(), String> {
        Ok(())
    }
    /// A call has run, and its answer is about to be labelled. What others have written to stores meanwhile is known now:
    /// see [`Conversation::recall`].
    ///
    /// # Errors
    /// If it cannot be: then the answer is not shown to anybody.
    fn after_run(&mut self, _conversation: &mut Conversation) -> Result<(), String> {
        Ok(())
    }
    /// A call runs.
    fn running(&mut self, _call: &Authorized) {}
    /// A tool has answered.
    fn ran(&mut self, _answer: &ToolAnswer) {}
    /// Whether to stop as soon as possible.
    fn is_cancelled(&self) -> bool {
        false
    }
}

/// Hears nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unobserved;

impl Observer for Unobserved {}

/// Why a turn could not be finished. The conversation can go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TurnError {
    /// The model gave no answer.
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

impl std::error::Error for TurnError {}

/// Everything that drives a conversation.
pub struct Agent<'a> {
    /// Who writes.
    pub model: &'a dyn Complete,
    /// Whom a screener asks; a smaller model will do.
    pub screener: &'a dyn Complete,
    /// Who fills slots; a smaller model will do.
    pub filler: &'a dyn Complete,
    /// What can run.
    pub tools: &'a Toolbox,
    /// Who decides.
    pub approver: &'a mut dyn Approver,
    /// What time it is, counted from whenever.
    pub clock: &'a dyn Fn() -> Duration,
    /// Who hears of it.
    pub observer: &'a mut dyn Observer,
}

impl fmt::Debug for Agent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Agent({})", self.model.name())
    }
}

impl Agent<'_> {
    /// One turn: the user says something, and the model does what it asks for and answers.
    ///
    /// # Errors
    /// If the model cannot be asked. What had run until then has run, and stands in the conversation.
    pub fn turn(&mut self, conversation: &mut Conversation, content: Value) -> Result<Turn, TurnError> {
        conversation.user(content).map_err(TurnError::Full)?;
        self.go_on(conversation)
    }

    /// One turn on a task that another agent sets, whose call carries this, in names.
    ///
    /// # Errors
    /// As [`turn`](Self::turn).
    pub fn task(
        &mut self,
        conversation: &mut Conversation,
        content: Value,
        carries: &Value,
    ) -> Result<Turn, TurnError> {
        conversation.task(content, carries).map_err(TurnError::Full)?;
        self.go_on(conversation)
    }

    /// Goes on until it is the user's turn.
    ///
    /// # Errors
    /// If the model cannot be asked.
    pub fn go_on(&mut self, conversation: &mut Conversation) -> Result<Turn, TurnError> {
        loop {
            self.observer.stands(conversation);
            match conversation.need() {
                Need::User(turn) => return Ok(turn),
                Need::Complete(view) => {
                    self.observer.asking(&view);
                    let live = conversation.live();
                    match self.ask_aloud(&view.request, live) {
                        Ok(completion) => {
                            self.observer.answered(&completion);
                            conversation.completed(completion);
                        }
                        Err(error) if error != Error::Cancelled && conversation.is_raised() => {
                            conversation.failed();
                        }
                        Err(error) => return self.stop(conversation, error),
                    }
                }
                Need::Screen(request) => match self.ask(self.screener, &request) {
                    Ok(completion) => conversation.screened(&completion),
                    Err(error) => return self.stop(conversation, error),
                },
                Need::Fill(request) => match self.ask(self.filler, &request) {
                    Ok(completion) => conversation.filled(&completion),
                    Err(Error::Cancelled) => return self.stop(conversation, Error::Cancelled),
                    // That a model fails on hidden text is a fact about the text, and known to nobody else.
                    Err(_) => conversation.unfilled(),
                },
                Need::Approve(ask) => {
                    let asked = (self.clock)();
                    let decision = self.approver.decide(&ask);
                    let in_time = (self.clock)().saturating_sub(asked) <= ask.expires;
                    match decision {
                        Decision::Later if in_time => return Ok(conversation.postpone()),
                        decision => {
                            let is_known = decision != Decision::Allow
                                || self.observer.before_decided(conversation).is_ok();
                            let holds = in_time && is_known;
                            conversation.decided(if holds { decision } else { Decision::Silent });
                        }
                    }
                }
                Need::Run(_) if self.observer.is_cancelled() => {
                    conversation.note_void("the turn was stopped");
                    conversation.ran(ToolAnswer::error("the turn was stopped, and the call did not run"));
                    return self.stop(conversation, Error::Cancelled);
                }
                Need::Run(call) if self.tools.is_elsewhere => {
                    match self.observer.before_run(conversation, &call) {
                        Ok(()) => conversation.hand_over(call),
                        Err(problem) => {
                            conversation.note_void(&problem);
                            conversation.ran(ToolAnswer::error(format!("the call did not run: {problem}")));
                        }
                    }
                }
                Need::Run(call) => {
                    let answer = self.run(conversation, call);
                    conversation.ran(answer);
                }
            }
        }
    }

    /// Asks the model, and tells what it says as far as that may be shown.
    fn ask_aloud(&mut self, request: &Request, live: Option<Live>) -> Result<Completion, Error> {
        let Some(mut live) = live else { return self.ask(self.model, request) };
        if self.observer.is_cancelled() {
            return Err(Error::Cancelled);
        }
        let (model, observer) = (self.model, &mut *self.observer);
        model.complete(request, &mut |delta| {
            match delta {
                Delta::Text(piece) => match live.more(piece).as_str() {
                    "" => {}
                    text => observer.says(text),
                },
                // What was shown cannot be taken back, and another attempt would say something else.
                Delta::Again if live.has_begun() => return ControlFlow::Break(()),
                _ => {}
            }
            if observer.is_cancelled() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
    }

    fn run(&mut self, conversation: &mut Conversation, call: Authorized) -> ToolAnswer {
        if let Err(problem) = self.observer.before_run(conversation, &call) {
            return ToolAnswer::error(format!("the call did not run: {problem}"));
        }
        self.observer.running(&call);
        let answer = self.tools.run(call);
        match self.observer.after_run(conversation) {
            Ok(()) => {
                self.observer.ran(&answer);
                answer
            }
            Err(problem) => {
                ToolAnswer::error(format!("the call ran, and its answer is kept back: {problem}"))
            }
        }
    }

    fn ask(&self, model: &dyn Complete, request: &Request) -> Result<Completion, Error> {
        if self.observer.is_cancelled() {
            return Err(Error::Cancelled);
        }
        model.complete(request, &mut |_| {
            if self.observer.is_cancelled() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
    }

    fn stop(&self, conversation: &mut Conversation, error: Error) -> Result<Turn, TurnError> {
        conversation.stop();
        Err(TurnError::Model(error))
    }
}
