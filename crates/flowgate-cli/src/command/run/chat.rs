//! Runs the turns of a chat of `flowgate run`, and the commands of the person at the terminal, such as `/why`. `run`
//! builds the [`TerminalChat`] and calls it.

use std::time::Instant;

use flowgate::label::Label;
use flowgate::policy::Policy;
use flowgate::trace::EventBody;
use flowgate_guard::agent::{Agent, Toolbox, TurnError};
use flowgate_guard::conversation::{Conversation, Method, Need, Turn, TurnEnd};
use flowgate_lm::chat::{Message, Part};
use flowgate_lm::{Error, block_on};

use super::approver::TerminalApprover;
use super::cancellable_model::CancellableModel;
use super::grants;
use super::observer::ChatObserver;
use super::terminal::{ChatTerminal, LineInput};
use crate::output::{Console, plural};
use crate::{escaping, report};

/// What `/help` prints.
const HELP: &str = "\
/view    show what the model sees next
/tools   list the tools, offered or not, with their descriptions
/labels  list the labels of all events so far
/why     show why the last refused call did not run
/grants  list what you have allowed for the rest of the conversation
/withdraw  withdraw all of that; with a number of the list, one grant
/quit    end the chat (also Ctrl-D); Ctrl-C stops the turn, Ctrl-C again quits
Anything else is a message to the model.";

/// A chat and its participants.
pub(super) struct TerminalChat<'a> {
    pub(super) conversation: Conversation,
    pub(super) policy: &'a Policy,
    pub(super) method: Method,
    /// The model that writes the steps.
    pub(super) writer: CancellableModel,
    /// The model that chooses the hidden regions that a step needs, if the method is a screener.
    pub(super) screener: CancellableModel,
    /// The model that writes the contents of slots.
    pub(super) filler: CancellableModel,
    pub(super) tools: &'a Toolbox,
    /// Asks the person whether a call may run.
    pub(super) person: TerminalApprover,
    /// Prints and stores what happens while a turn runs.
    pub(super) observer: ChatObserver,
    pub(super) terminal: &'a ChatTerminal,
}

impl TerminalChat<'_> {
    /// Runs one turn on the person's message, and prints its replies. Returns the exit code: 0 if the turn is
    /// complete and no reply was withheld, otherwise 1.
    pub(super) fn run_turn(&mut self, text: &str, output: &mut Console) -> u8 {
        let begun = Instant::now();
        self.terminal.begin_turn();
        self.writer.begin_turn();
        let mut agent = Agent {
            model: &self.writer,
            screener: &self.screener,
            filler: &self.filler,
            tools: self.tools,
            provider_tools: None,
            approver: &mut self.person,
            clock: &|| begun.elapsed(),
            observer: &mut self.observer,
        };
        let ended = block_on(agent.run_turn(&mut self.conversation, text.into()));
        self.terminal.end_turn();
        self.observer.process_new_events(&self.conversation);
        // The labels of stores are saved even if no call ran: that nothing was written is information as well, so the
        // label of a store can rise without a write.
        if let Err(problem) = self.observer.save_store_labels(&mut self.conversation) {
            self.terminal.error(&problem);
        }
        let (turn, problem) = match ended {
            Ok(turn) => (turn, None),
            Err(TurnError::Model(Error::Cancelled)) => (
                self.take_unfinished_turn(),
                Some("the turn was stopped; calls that had run before cannot be undone".to_owned()),
            ),
            Err(TurnError::Model(error)) => {
                (self.take_unfinished_turn(), Some(escaping::line(&error.to_string())))
            }
            // Other errors occur before the first step, so there is no turn to print.
            Err(error) => (Turn::default(), Some(error.to_string())),
        };
        let mut code = self.print_turn(&turn, output);
        if let Some(problem) = problem {
            self.terminal.error(&problem);
            code = 1;
        }
        self.observer.print_summary(&turn.spent);
        code
    }

    /// Returns what a turn has done before it ended early. The turn is empty if the conversation does not wait for the
    /// user.
    fn take_unfinished_turn(&mut self) -> Turn {
        match self.conversation.need() {
            Need::User(turn) => turn,
            _ => Turn::default(),
        }
    }

    /// Prints the replies of a turn, and notes about what was withheld, removed or left undone. Returns the exit
    /// code: 0 if nothing was withheld or left undone, otherwise 1.
    fn print_turn(&self, turn: &Turn, output: &mut Console) -> u8 {
        let mut code = 0;
        for reply in &turn.replies {
            if reply.withheld.is_empty() {
                output.line(&escaping::multiline(&reply.text));
            } else {
                let rules = escaping::line(&reply.withheld.join("; "));
                self.terminal.note(&format!("a reply of the model was withheld: {rules}"));
                code = 1;
            }
        }
        for (tool, argument, url) in &turn.disarmed {
            self.terminal.note(&escaping::line(&format!(
                "a link in `{argument}` of {tool} was removed, because the policy does not permit this argument to contain the address {url}; see `require` of `tool:flowgate/link`"
            )));
        }
        match turn.ended {
            // A turn that ends because the model gave no answer has an error, which the caller prints. No turn ends with
            // an open question here, since the person at the terminal is asked at once.
            None | Some(TurnEnd::Model | TurnEnd::Asked) => {}
            Some(TurnEnd::Steps) => {
                self.terminal.error(
                    "the model reached the limit of steps in one turn; write `continue`, or ask for less at \
                    once",
                );
                code = 1;
            }
            Some(TurnEnd::Clearance) => {
                self.terminal.error(
                    "the next step needs text above the clearance that the policy gives `model`, so nothing was sent to \
                    the model server; ask without that text, or permit it in the policy: see `require` of \
                    `tool:flowgate/model`",
                );
                code = 1;
            }
            Some(TurnEnd::Full) => {
                self.terminal.error("the session has reached its size limit; begin a new one");
                code = 1;
            }
        }
        code
    }

    /// Reads lines of the person, and runs each as a command or as a turn, until the chat ends. Returns the
    /// exit code of the last turn, or 0 without a turn.
    pub(super) fn run(&mut self, output: &mut Console) -> u8 {
        if self.terminal.has_person() {
            self.terminal.print("Write a message; /help lists the commands.");
        }
        let mut code = 0;
        while let LineInput::Line(line) = self.terminal.next_message() {
            let text = line.trim();
            if let Some(which) = argument_of(text, "/withdraw") {
                grants::withdraw(&mut self.conversation, which, self.terminal);
                continue;
            }
            // A command is a slash followed only by lowercase letters, so that a message can begin with a path such as
            // `/etc/hosts`.
            let command = text
                .strip_prefix('/')
                .filter(|word| !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase()));
            match (text, command) {
                ("", _) => {}
                (_, Some("help")) => self.terminal.print(HELP),
                (_, Some("labels")) => self.print_labels(),
                (_, Some("view")) => self.print_view(),
                (_, Some("tools")) => self.print_tools(),
                (_, Some("why")) => self.print_last_refusal(),
                (_, Some("grants")) => grants::print(&self.conversation, self.terminal),
                (_, Some("quit" | "exit")) => return code,
                (_, Some(other)) => {
                    self.terminal.error(&format!("there is no command /{other}; /help lists the commands"))
                }
                (text, None) => code = self.run_turn(text, output),
            }
        }
        if self.terminal.has_person() {
            self.terminal.print("");
        }
        code
    }

    /// Returns the bound of the next step: the step is shown what flows to this label. If the method shows everything,
    /// the bound is joined with the `context` of the last event: the join of the labels of everything seen so far.
    fn next_label(&self) -> Label {
        let base = *self.conversation.base_label();
        if !self.method.shows_everything() {
            return base;
        }
        let events = self.conversation.monitor().trace().events();
        events.last().map_or(base, |event| event.context.join(&base))
    }

    /// Returns a label in words, one per dimension.
    fn describe_label(&self, label: &Label) -> String {
        let words = escaping::line(&self.conversation.monitor().describe(label).join(", "));
        if words.is_empty() { "no labels".to_owned() } else { words }
    }

    /// Runs `/labels`: prints the bound of the next step, and the source and the label of each event.
    fn print_labels(&self) {
        let monitor = self.conversation.monitor();
        self.terminal
            .print(&format!("at most   {} for the next step", self.describe_label(&self.next_label())));
        for (index, event) in monitor.trace().events().iter().enumerate() {
            let id = flowgate::trace::EventId(index);
            // The region is the whole event.
            let region = flowgate::trace::Region { event: id, path: Default::default(), span: None };
            let source = escaping::line(&report::region_source(&region, monitor));
            self.terminal.print(&format!(
                "{:<4} {source}   {}",
                id.to_string(),
                self.describe_label(&event.label)
            ));
        }
    }

    /// Runs `/tools`: prints each tool with its description, its label, and whether the next step offers it.
    fn print_tools(&self) {
        let (monitor, next) = (self.conversation.monitor(), self.next_label());
        for event in monitor.trace().events() {
            let EventBody::Tool(tool) = &event.body else { continue };
            let offered = if event.label.flows_to(&next) { "on offer" } else { "not on offer" };
            let name = escaping::line(&tool.tool.to_string());
            let label = self.describe_label(&event.label);
            self.terminal.print(&format!(
                "{} ({offered}; its description carries {label})",
                self.terminal.paint("1", &name)
            ));
            for line in escaping::multiline(&tool.description).lines() {
                self.terminal.print(&format!("    {line}"));
            }
        }
    }

    /// Runs `/view`: prints the messages and the tools that the next step is shown.
    fn print_view(&self) {
        let view = self.conversation.view_at(self.next_label());
        // `names` has one entry for each placeholder, that is for each hidden region.
        self.terminal.print(&format!(
            "What the next step is shown (at most {}; {} hidden):",
            self.describe_label(&view.label),
            plural(view.names.len(), "part")
        ));
        for message in &view.request.messages {
            let shown = match message {
                Message::System(parts) => format!("system: {}", parts_text(parts)),
                Message::User(parts) => format!("user: {}", parts_text(parts)),
                Message::Assistant { text, calls, .. } => {
                    let calls = calls
                        .iter()
                        .map(|call| format!("\n  {} = {} {}", call.id, call.name, call.arguments));
                    format!("model: {text}{}", calls.collect::<String>())
                }
                Message::Tool { call_id, content, is_error } => {
                    format!(
                        "{call_id}{}: {}",
                        if *is_error == Some(true) { " (error)" } else { "" },
                        parts_text(content)
                    )
                }
            };
            self.terminal.print(&escaping::multiline(&shown));
        }
        let tools: Vec<&str> = view.request.tools.iter().map(|tool| tool.name.as_str()).collect();
        self.terminal.print(&format!("tools: {}", escaping::line(&tools.join(", "))));
    }

    /// Runs `/why`: prints the last call that did not run and the answer to it, without hiding anything from the
    /// person.
    fn print_last_refusal(&self) {
        let whole_chat = self.conversation.view_at(self.policy.space().top()).request;
        let calls = whole_chat.messages.iter().flat_map(|message| match message {
            Message::Assistant { calls, .. } => calls.as_slice(),
            _ => &[],
        });
        let calls: Vec<_> = calls.collect();
        let refusal = whole_chat.messages.iter().rev().find_map(|message| match message {
            Message::Tool { call_id, content, is_error: Some(true) } => {
                // The guard answers a refused call with an object that has the field `refused`. An error without this
                // field comes from a tool.
                let refusal: serde_json::Value = serde_json::from_str(&parts_text(content)).ok()?;
                refusal.get("refused")?;
                let call = calls.iter().find(|call| call.id == *call_id)?;
                Some((call.name.clone(), call.arguments.clone(), refusal))
            }
            _ => None,
        });
        match refusal {
            None => self.terminal.print("No call has been refused so far."),
            Some((name, arguments, refusal)) => {
                self.terminal.print(&escaping::line(&format!("{name} {arguments}")));
                self.terminal.print(&escaping::json(&refusal));
            }
        }
    }
}

/// Returns what follows a command and white space in a line, or an empty text if nothing follows; `None` if the line
/// has no such command.
fn argument_of<'a>(line: &'a str, command: &str) -> Option<&'a str> {
    let rest = line.strip_prefix(command)?;
    let is_command = rest.is_empty() || rest.starts_with(char::is_whitespace);
    is_command.then(|| rest.trim_start())
}

/// Returns the text of a message's parts; an image is named by its address or type.
fn parts_text(parts: &[Part]) -> String {
    let part = |part: &Part| match part {
        Part::Text(text) => text.clone(),
        Part::ImageUrl(url) => format!("[image at {url}]"),
        Part::ImageData { media_type, .. } => format!("[image, {media_type}]"),
    };
    parts.iter().map(part).collect::<Vec<_>>().join("\n")
}
