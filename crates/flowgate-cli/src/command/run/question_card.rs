//! Writes the text of the questions that `approver` asks the person at the terminal. The text is a *card*: it has the
//! question about a call, and the questions about later calls of the same message of the model, so that one answer can
//! be for all of them.
//!
//! The card shows each call exactly, character by character. All text of the call is escaped, so that it cannot change
//! the card around it.

use std::fmt::Write;
use std::sync::Arc;

use flowgate::label::Purpose;
use flowgate::policy::Policy;
use flowgate_guard::approve::{ApprovalRequest, Excerpt};

use super::observed_chat::ObservedChat;
use super::terminal::ChatTerminal;
use crate::output::plural;
use crate::{escaping, report};

/// Writes the cards of one conversation.
pub(super) struct CardWriter {
    /// The terminal, which knows whether there are colours.
    pub(super) terminal: Arc<ChatTerminal>,
    pub(super) policy: Arc<Policy>,
    /// The name of the policy's file.
    pub(super) name: Arc<str>,
    /// The agent that wants to call: `The model`.
    pub(super) caller: String,
    /// The conversation, as its observer has noted it.
    pub(super) chat: Arc<ObservedChat>,
}

/// Returns the number of calls on a card.
pub(super) fn calls_of_card(ask: &ApprovalRequest) -> usize {
    let further = ask.upcoming.iter().map(|next| next.times);
    further.fold(ask.times, usize::saturating_add)
}

impl CardWriter {
    /// Returns the card for a person who decides: the question `ask` and the questions that it announces, each with the
    /// arguments of its call and excerpts of the trace. `shown` has the announced questions that an earlier card of the
    /// same message has shown; these are only named.
    pub(super) fn card(&self, ask: &ApprovalRequest, shown: &[ApprovalRequest]) -> String {
        let (mut text, mut quoted) = (String::new(), Vec::new());
        self.write_title(&mut text, ask, "wants");
        self.write_question(&mut text, ask, Some(&mut quoted));
        for next in &ask.upcoming {
            if shown.iter().any(|known| known.is_same_question(next)) {
                let times =
                    if next.times > 1 { format!(" {}", plural(next.times, "time")) } else { String::new() };
                let tool = escaping::line(&next.tool.to_string());
                let _ =
                    writeln!(text, "\n{} then wants to call {tool}{times}, as was shown above.", self.caller);
            } else {
                self.write_title(&mut text, next, "then wants");
                self.write_question(&mut text, next, Some(&mut quoted));
            }
        }
        if !ask.upcoming.is_empty() {
            let calls = plural(calls_of_card(ask), "call");
            let _ = writeln!(
                text,
                "\nOne answer can be for all {calls}: a allows each of them once, d denies all of them."
            );
        }
        text.truncate(text.trim_end().len());
        text
    }

    /// Returns the question about one call without the arguments of the call and without excerpts, for an output that
    /// may be a log.
    pub(super) fn without_content(&self, ask: &ApprovalRequest) -> String {
        let mut text = String::new();
        self.write_title(&mut text, ask, "wants");
        self.write_question(&mut text, ask, None);
        text.truncate(text.trim_end().len());
        text
    }

    /// Writes the first line of a question: who wants to call which tool. `wants` is the verb.
    fn write_title(&self, text: &mut String, ask: &ApprovalRequest, wants: &str) {
        let tool = escaping::line(&ask.tool.to_string());
        let title = self.terminal.paint("1", &format!("{} {wants} to call {tool}", self.caller));
        // Writing to a text does not fail, here and below.
        let _ = writeln!(text, "\n{title}");
    }

    /// Appends a question to `text`, below its title. `quoted` has the excerpts that the card has quoted so far; an
    /// excerpt in it is not quoted again. If `quoted` is `None`, quotes nothing, and leaves out the arguments of the
    /// call.
    fn write_question<'a>(
        &self,
        text: &mut String,
        ask: &'a ApprovalRequest,
        quoted: Option<&mut Vec<&'a Excerpt>>,
    ) {
        if quoted.is_some() {
            for line in escaping::json(&ask.arguments).lines() {
                let _ = writeln!(text, "    {line}");
            }
            if !ask.summary.is_empty() {
                let _ = writeln!(text, "{}", escaping::line(&ask.summary));
                for sentence in &ask.evidence {
                    let _ = writeln!(text, "  {}", escaping::line(sentence));
                }
            }
        }
        if ask.times > 1 {
            let times = plural(ask.times, "time");
            let _ = writeln!(text, "It makes this call {times}; the answer is for all of them.");
        }
        let _ = writeln!(text, "It carries {}. Why you are asked:", escaping::line(&ask.label.join(", ")));
        for reason in report::group_reasons(&ask.reasons) {
            let _ = writeln!(text, "  - {}", escaping::line(&reason.message));
            if let Some(statement) = report::statement(&reason, &self.policy, &self.name) {
                let _ = writeln!(
                    text,
                    "{}",
                    self.terminal.paint("2", &format!("      │ {}", escaping::line(&statement)))
                );
            }
        }
        self.write_excerpts(text, ask, quoted);
    }

    /// Appends to `text`, for each excerpt of the trace that a question has, how the excerpt concerns the call, and then
    /// the excerpt in quotation marks. `quoted` is as for [`Self::write_question`].
    fn write_excerpts<'a>(
        &self,
        text: &mut String,
        ask: &'a ApprovalRequest,
        mut quoted: Option<&mut Vec<&'a Excerpt>>,
    ) {
        for excerpt in &ask.excerpts {
            let location = escaping::line(&self.location(excerpt));
            let effect = self.effect(excerpt, &location);
            let Some(quoted) = quoted.as_deref_mut() else {
                let _ = writeln!(text, "  {effect}");
                continue;
            };
            // The label is not compared: in the question about another tool, the same text can exceed the requirement
            // in other dimensions.
            if quoted.iter().any(|known| (&known.region, &known.text) == (&excerpt.region, &excerpt.text)) {
                let _ = writeln!(text, "  {effect}, as quoted above");
                continue;
            }
            let _ = writeln!(text, "  {effect}");
            let quotation = format!("      “{}”", escaping::excerpt(&excerpt.text, 400));
            let _ = writeln!(text, "{}", self.terminal.paint("2", &quotation));
            quoted.push(excerpt);
        }
    }

    /// Returns where an excerpt is: its region and, if it is known, the source of its event.
    fn location(&self, excerpt: &Excerpt) -> String {
        match self.chat.source(excerpt.region.event) {
            Some(source) => format!("{} in the {source}", excerpt.region),
            None => excerpt.region.to_string(),
        }
    }

    /// Returns a clause about how an excerpt concerns the call, by the label of the excerpt. An untrusted text may have
    /// led the model to the call; a confidential text would be passed on by the call. `location` says where the
    /// excerpt is.
    fn effect(&self, excerpt: &Excerpt, location: &str) -> String {
        let space = self.policy.space();
        // A word of the label is about integrity if a dimension of integrity has an element of this name; all other
        // words count as confidential.
        let trust = space.dimensions().iter().filter(|dimension| dimension.purpose == Purpose::Integrity);
        let names: Vec<&str> = trust.map(|dimension| dimension.name.as_str()).collect();
        let (untrusted, confidential): (Vec<&String>, Vec<&String>) = excerpt
            .label
            .iter()
            .partition(|word| names.iter().any(|name| space.element(name, word).is_some()));
        let listed = |words: &[&String]| {
            escaping::line(&words.iter().map(|word| word.as_str()).collect::<Vec<_>>().join(", "))
        };
        match (untrusted.is_empty(), confidential.is_empty()) {
            (false, true) => {
                format!("the model may have been led to this call by {location} ({})", listed(&untrusted))
            }
            (true, false) => format!("the call would pass on {location} ({})", listed(&confidential)),
            (false, false) => format!(
                "the model may have been led to this call by {location} ({}), and the call would pass it on ({})",
                listed(&untrusted),
                listed(&confidential)
            ),
            (true, true) => format!("the call depends on {location}"),
        }
    }
}
