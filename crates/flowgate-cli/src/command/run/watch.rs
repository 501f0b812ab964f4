//! Observes a turn: prints the lines of `--labels`, writes the file of `--trace`, and collects the sources of events
//! for questions.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flowgate::label::Label;
use flowgate::monitor::Authorized;
use flowgate::trace::{EventId, Region};
use flowgate_guard::agent::Observer;
use flowgate_guard::conversation::{Conversation, Spent};
use flowgate_guard::slot::LOOK;
use flowgate_guard::view::View;
use flowgate_lm::chat::Completion;
use serde_json::Value;

use super::approver::Sources;
use super::shell::Shell;
use super::trace::TraceFile;
use crate::output::plural;
use crate::stores::Stores;
use crate::{report, visible};

/// The observer of an agent.
pub(super) struct Watch {
    pub(super) shell: Arc<Shell>,
    /// Whether to print the labels of each step.
    pub(super) labels: bool,
    pub(super) trace: Option<TraceFile>,
    pub(super) shared: Shared,
    pub(super) sources: Sources,
    /// The version of the stores that the conversation knows.
    pub(super) knows: u64,
    /// The agent of these steps, if it is not the chat's.
    pub(super) who: Option<String>,
    step: Option<Step>,
    events: usize,
}

/// The state that a chat shares with its agents.
#[derive(Clone, Default)]
pub(super) struct Shared {
    stores: Arc<Mutex<Stores>>,
    /// The labels of the running call, as names.
    pub(super) carried: Arc<Mutex<Value>>,
}

impl Shared {
    pub(super) fn new(stores: Stores) -> Self {
        Self { stores: Arc::new(Mutex::new(stores)), ..Self::default() }
    }

    pub(super) fn stores(&self) -> MutexGuard<'_, Stores> {
        self.stores.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The current step of the model.
struct Step {
    label: Label,
    hidden: usize,
    done: Option<Completion>,
}

impl Watch {
    pub(super) fn new(
        shell: Arc<Shell>,
        labels: bool,
        trace: Option<TraceFile>,
        shared: Shared,
        sources: Sources,
    ) -> Self {
        Self { shell, labels, trace, shared, sources, knows: 0, who: None, step: None, events: 0 }
    }

    /// Processes the new events.
    pub(super) fn follow(&mut self, conversation: &Conversation) {
        let monitor = conversation.monitor();
        if let Some(trace) = &mut self.trace
            && let Err(error) = trace.follow(monitor)
        {
            self.shell.error(&format!("the trace cannot be written: {error}; it ends here"));
            self.trace = None;
        }
        let mut sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        for index in self.events..monitor.trace().len() {
            let region = Region { event: EventId(index), path: Default::default(), span: None };
            sources.insert(region.event, report::source(&region, monitor));
        }
        drop(sources);
        self.events = monitor.trace().len();
        if let Some(Step { label, hidden, done: Some(done) }) =
            self.step.take_if(|step| step.done.is_some()).filter(|_| self.labels)
        {
            let words = visible::line(&monitor.describe(&label).join(", "));
            let words = if words.is_empty() { "no labels".to_owned() } else { words };
            let looked = if done.calls.iter().any(|call| call.name == LOOK) { ", looks" } else { "" };
            let line = format!(
                "{}step: {words}; {hidden} hidden; {} + {} tokens; {}{looked}",
                self.prefix(),
                done.usage.input,
                done.usage.output,
                plural(done.calls.len(), "call"),
            );
            self.shell.say(&self.shell.paint("2", &line));
        }
    }

    /// Stores the current labels of stores.
    pub(super) fn keep(&mut self, conversation: &mut Conversation) -> Result<(), String> {
        self.shared.stores().keep(conversation, &mut self.knows)
    }

    /// Prints the summary of a turn.
    pub(super) fn sum(&self, spent: &Spent) {
        if self.labels {
            let line = format!("{}{}", self.prefix(), summary(spent));
            self.shell.say(&self.shell.paint("2", &line));
        }
    }
}

impl Watch {
    fn prefix(&self) -> String {
        self.who.as_ref().map_or_else(String::new, |who| format!("{who}: "))
    }
}

impl Observer for Watch {
    fn before_run(&mut self, conversation: &mut Conversation, call: &Authorized) -> Result<(), String> {
        let kept = self.keep(conversation);
        if let Err(problem) = &kept {
            self.shell.error(problem);
        }
        *self.shared.carried.lock().unwrap_or_else(PoisonError::into_inner) = conversation.carried_by(call);
        kept
    }

    fn after_run(&mut self, conversation: &mut Conversation) -> Result<(), String> {
        let known = self.shared.stores().renew(conversation, &mut self.knows);
        if let Err(problem) = &known {
            self.shell.error(problem);
        }
        known
    }

    fn stands(&mut self, conversation: &Conversation) {
        self.follow(conversation);
    }

    fn asking(&mut self, view: &View) {
        self.step = Some(Step { label: view.label, hidden: view.names.len(), done: None });
    }

    fn answered(&mut self, completion: &Completion) {
        if let Some(step) = &mut self.step {
            step.done = Some(completion.clone());
        }
    }

    fn is_cancelled(&self) -> bool {
        self.shell.is_cancelled()
    }
}

fn summary(spent: &Spent) -> String {
    let most = if spent.bits == 0 {
        "the lowest steps reveal nothing hidden".to_owned()
    } else {
        format!("the lowest steps reveal at most {} of hidden text", plural(spent.bits, "bit"))
    };
    format!(
        "turn: {}, {} filled, {} + {} tokens; {}; {}, {} allowed; {} ran, {} refused; {most}",
        plural(spent.messages, "message"),
        plural(spent.fills, "slot"),
        spent.tokens.input,
        spent.tokens.output,
        plural(spent.looks, "look"),
        plural(spent.questions, "question"),
        spent.allowed,
        plural(spent.ran, "call"),
        spent.refused,
    )
}
