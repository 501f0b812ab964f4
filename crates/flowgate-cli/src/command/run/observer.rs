//! Observes a chat of `flowgate run`, or an agent to which the chat delegates a task. With `--labels`, the observer
//! prints a line for each step. With `--trace`, it writes new events to a file. For the questions to the person, it
//! notes in `observed_chat` where each event comes from, and when the model begins a message.
//!
//! The observer also shares the labels of stores with other sessions: it saves this session's labels before a tool
//! runs, and reads those of other sessions after the tool has run.

use std::future::ready;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flowgate::label::Label;
use flowgate::monitor::AuthorizedCall;
use flowgate::trace::{EventId, Region};
use flowgate_guard::agent::Observer;
use flowgate_guard::conversation::{Conversation, TurnUsage};
use flowgate_guard::slot::LOOK;
use flowgate_guard::view::View;
use flowgate_lm::BoxFuture;
use flowgate_lm::chat::Completion;
use serde_json::Value;

use super::observed_chat::ObservedChat;
use super::terminal::ChatTerminal;
use crate::output::plural;
use crate::stores::SharedStoreLabels;
use crate::trace_file::TraceFile;
use crate::{escaping, report};

/// Observes one conversation, of the chat itself or of an agent to which it has delegated a task.
pub(super) struct ChatObserver {
    pub(super) terminal: Arc<ChatTerminal>,
    /// Whether to print the labels of each step.
    pub(super) labels: bool,
    /// The file to which events are written, if the options name one.
    pub(super) trace: Option<TraceFile>,
    pub(super) shared: SharedChatState,
    /// What the questions to the person need to know about the conversation.
    chat: Arc<ObservedChat>,
    /// The version of the stored labels that the conversation has.
    pub(super) stores_version: u64,
    /// The name of the agent that is observed, if the chat has delegated a task to it.
    pub(super) agent_name: Option<String>,
    /// The current step, until its line is printed.
    step: Option<CurrentStep>,
    /// The number of events that were processed.
    events: usize,
}

/// The state that a chat shares with the agents to which it delegates tasks.
#[derive(Clone, Default)]
pub(super) struct SharedChatState {
    stores: Arc<Mutex<SharedStoreLabels>>,
    /// The labels of the running call, as names.
    pub(super) call_label: Arc<Mutex<Value>>,
}

impl SharedChatState {
    /// Creates the state of a chat with these labels of stores.
    pub(super) fn new(stores: SharedStoreLabels) -> Self {
        Self { stores: Arc::new(Mutex::new(stores)), ..Self::default() }
    }

    /// Locks the labels of stores and returns them, also if a thread panicked while it held the lock.
    pub(super) fn stores(&self) -> MutexGuard<'_, SharedStoreLabels> {
        self.stores.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The current step of the model.
struct CurrentStep {
    /// The label of the step.
    label: Label,
    /// The number of hidden regions in its view.
    hidden: usize,
    /// The completion, once there is one.
    done: Option<Completion>,
}

impl ChatObserver {
    /// Creates an observer of a conversation without events. With `labels`, it prints a line for each step;
    /// `trace` is the file to which it writes events. `shared` is the state that the chat shares with its agents, and
    /// `chat` receives what the questions to the person need to know.
    pub(super) fn new(
        terminal: Arc<ChatTerminal>,
        labels: bool,
        trace: Option<TraceFile>,
        shared: SharedChatState,
        chat: Arc<ObservedChat>,
    ) -> Self {
        Self {
            terminal,
            labels,
            trace,
            shared,
            chat,
            stores_version: 0,
            agent_name: None,
            step: None,
            events: 0,
        }
    }

    /// Processes the events that were added since the last call of this function: writes them to the trace file, and
    /// records where each comes from. Then prints the line of the current step if the step is complete.
    pub(super) fn process_new_events(&mut self, conversation: &Conversation) {
        let monitor = conversation.monitor();
        if let Some(trace) = &mut self.trace
            && let Err(error) = trace.write_new_events(monitor)
        {
            self.terminal.error(&format!("the file of --trace cannot be written: {error}; the run continues, but no further events are written to it"));
            self.trace = None;
        }
        for index in self.events..monitor.trace().len() {
            // The region is the whole event.
            let region = Region { event: EventId(index), path: Default::default(), span: None };
            self.chat.add_source(region.event, report::region_source(&region, monitor));
        }
        self.events = monitor.trace().len();
        // A complete step is removed here even without `labels`, so that its line is printed once at most.
        if let Some(CurrentStep { label, hidden, done: Some(done) }) =
            self.step.take_if(|step| step.done.is_some()).filter(|_| self.labels)
        {
            let words = escaping::line(&monitor.describe(&label).join(", "));
            let words = if words.is_empty() { "no labels".to_owned() } else { words };
            let looked = if done.calls.iter().any(|call| call.name == LOOK) { ", looks" } else { "" };
            let line = format!(
                "{}step: {words}; {hidden} hidden; tokens: {} read, {} written; {}{looked}",
                self.prefix(),
                done.usage.input,
                done.usage.output,
                plural(done.calls.len(), "call"),
            );
            self.terminal.print(&self.terminal.paint("2", &line));
        }
    }

    /// Saves the labels that the conversation has for stores, for other sessions.
    pub(super) fn save_store_labels(&mut self, conversation: &mut Conversation) -> Result<(), String> {
        self.shared.stores().save_labels(conversation, &mut self.stores_version)
    }

    /// With `--labels`, prints a line about the work of a turn: its messages, tokens, looks, questions and calls.
    pub(super) fn print_summary(&self, spent: &TurnUsage) {
        if self.labels {
            let line = format!("{}{}", self.prefix(), usage_summary(spent));
            self.terminal.print(&self.terminal.paint("2", &line));
        }
    }
}

impl ChatObserver {
    /// Returns the beginning of each printed line: the name of the agent to which the task was delegated; empty for the
    /// chat itself.
    fn prefix(&self) -> String {
        self.agent_name.as_ref().map_or_else(String::new, |who| format!("{who}: "))
    }
}

impl Observer for ChatObserver {
    /// Saves the labels of stores, since the call may write to a store. Notes the label of the call in the shared
    /// state: if the call delegates a task to an agent, the task carries this label. An error is printed and returned,
    /// and prevents the call.
    fn before_run<'a>(
        &'a mut self,
        conversation: &'a mut Conversation,
        call: &'a AuthorizedCall,
    ) -> BoxFuture<'a, Result<(), String>> {
        let saved = self.save_store_labels(conversation);
        if let Err(problem) = &saved {
            self.terminal.error(problem);
        }
        *self.shared.call_label.lock().unwrap_or_else(PoisonError::into_inner) =
            conversation.call_label_names(call);
        Box::pin(ready(saved))
    }

    /// Joins to the conversation the labels of stores that other sessions wrote, before the answer is labelled. An
    /// error is printed and returned.
    fn after_run<'a>(&'a mut self, conversation: &'a mut Conversation) -> BoxFuture<'a, Result<(), String>> {
        let refreshed = self.shared.stores().refresh_session(conversation, &mut self.stores_version);
        if let Err(problem) = &refreshed {
            self.terminal.error(problem);
        }
        Box::pin(ready(refreshed))
    }

    /// Processes the events so far. The agent calls this before it serves the next need of the conversation.
    fn before_need(&mut self, conversation: &Conversation) {
        self.process_new_events(conversation);
    }

    /// Records the step that begins, which is another message of the model: its label, and how many regions are hidden
    /// from it.
    fn before_completion(&mut self, view: &View) {
        self.chat.begin_message();
        self.step = Some(CurrentStep { label: view.label, hidden: view.names.len(), done: None });
    }

    /// Stores the message of the model with the current step, whose line can then be printed.
    fn after_completion(&mut self, completion: &Completion) {
        if let Some(step) = &mut self.step {
            step.done = Some(completion.clone());
        }
    }

    /// Returns whether Ctrl-C has cancelled the turn.
    fn is_cancelled(&self) -> bool {
        self.terminal.is_cancelled()
    }
}

/// Returns the line about the work of a turn, for `--labels`: messages, slots, tokens, looks, questions and calls, and
/// how many bits of hidden text an observer of the steps at the base label can have learned.
fn usage_summary(spent: &TurnUsage) -> String {
    let leakage = if spent.bits == 0 {
        "the steps at the base label reveal nothing hidden".to_owned()
    } else {
        format!("the steps at the base label reveal at most {} of hidden text", plural(spent.bits, "bit"))
    };
    format!(
        "turn: {}, {} filled; tokens: {} read, {} written; {}; {}, {} allowed; {} ran, {} refused; {leakage}",
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
