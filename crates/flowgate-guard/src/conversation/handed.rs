//! Calls that the caller runs itself, as the clients of a gateway do: it is handed those that may run, and sends back what
//! their tools answered.
//!
//! All calls of a message are judged, one after the other, before any is handed over. What comes back is the answer to a call
//! that was handed over, once; anything else that looks like an answer is nobody's.

use std::sync::Arc;

use flowgate::label::Label;
use flowgate::monitor::{Authorized, PushError};
use flowgate::trace::{Body, Entry, EventId, Output, Tool};
use flowgate_lm::chat::Part;
use serde_json::Value;

use super::{Conversation, Phase, Void, stops};
use crate::catalogue::{Offered, Words};
use crate::journal::Input;
use crate::view::{Answer, Item};

/// A call that may run, for who runs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handed {
    /// The id that its answer must bear.
    pub id: String,
    /// The tool.
    pub tool: Tool,
    /// Its arguments: the canonical print of what was judged.
    pub arguments: String,
    /// If a person allowed it: what stands for the call in the question.
    pub approved: Option<String>,
}

impl From<&Authorized> for Handed {
    fn from(call: &Authorized) -> Self {
        let (id, tool) = (call.call().id.clone(), call.call().tool.clone());
        Self { id, tool, arguments: call.arguments_json(), approved: None }
    }
}

impl Conversation {
    /// The call that was just [to run](super::Need::Run) runs elsewhere. The turn [ends](super::Turn::calls) when all calls
    /// of the message have been dealt with, and goes on when the answers are [sent](Conversation::sent).
    #[expect(
        clippy::needless_pass_by_value,
        reason = "the evidence is used up: nobody else can run the call"
    )]
    pub fn hand_over(&mut self, call: Authorized) {
        self.put(|| Input::HandOver);
        let Phase::Running { index, event } = self.phase else { return };
        self.said = self.said.join(&self.step().map_or(self.base, |step| step.label));
        let approved = self.approved.take().map(|(_, digest)| digest);
        self.turn.calls.push(Handed { approved, ..Handed::from(&call) });
        self.answer(index, Answer::Handed(event));
    }

    /// An approved call that was [to run](super::Need::Run) does not: a record says why.
    pub fn note_void(&mut self, cause: &str) {
        if let Some((tool, digest)) = self.approved.take() {
            self.turn.void.push(Void { tool, digest, reasons: Vec::new(), cause: cause.to_owned() });
        }
    }

    /// Approved calls of a turn that is not finished, and will not run: taken out, since `cause` has ended the turn.
    pub fn give_up_approved(&mut self, cause: &str) -> Vec<Void> {
        self.note_void(cause);
        let mut void = std::mem::take(&mut self.turn.void);
        for call in &mut self.turn.calls {
            let Some(digest) = call.approved.take() else { continue };
            let (tool, reasons) = (call.tool.clone(), Vec::new());
            void.push(Void { tool, digest, reasons, cause: cause.to_owned() });
        }
        void
    }

    /// Whether calls of the last message run elsewhere.
    pub(super) fn waits_for_answers(&self) -> bool {
        let is_handed = |answer: &Answer| matches!(answer, Answer::Handed(_));
        self.step().is_some_and(|step| step.calls.iter().any(|made| is_handed(&made.answer)))
    }

    /// Whether these very tools are on offer already: each with its description and the schema of its arguments, in a server's
    /// words.
    pub fn offers<'a>(&self, tools: impl ExactSizeIterator<Item = (Tool, &'a str, &'a Value)>) -> bool {
        let Some(offered) = &self.offered else { return false };
        offered.len() == tools.len()
            && offered.iter().zip(tools).all(|(known, (tool, description, parameters))| {
                (&known.tool, known.description.as_str(), &known.parameters)
                    == (&tool, description, parameters)
                    && known.output.is_none()
                    && known.words == Words::Server
            })
    }

    /// The tools that are on offer from the next turn on. What is said of a tool that has changed is another description,
    /// and labelled anew.
    ///
    /// # Errors
    /// If the session has no room.
    pub fn offer(&mut self, tools: Vec<Offered>) -> Result<(), PushError> {
        // Agents say the same with every message.
        let is_same = |offered: &Vec<Arc<Offered>>| offered.iter().map(Arc::as_ref).eq(&tools);
        if self.offered.as_ref().is_some_and(is_same) {
            return Ok(());
        }
        self.put(|| Input::Offer(tools.clone()));
        self.offered = None;
        self.items.forget_shown();
        let tools: Vec<Arc<Offered>> = tools.into_iter().map(Arc::new).collect();
        self.catalogue.update(&mut self.monitor, tools.clone())?;
        self.offered = Some(tools);
        let strictest = self.monitor.strictest(self.catalogue.tools());
        self.lowest = self.cleared(strictest);
        Ok(())
    }

    /// What a tool that ran elsewhere answered: the label of the answer, or nothing if no such call was handed over or it has
    /// been answered.
    pub(super) fn answered_elsewhere(
        &mut self,
        id: &str,
        content: &[Part],
        is_error: Option<bool>,
        floor: Label,
    ) -> Result<Option<Label>, PushError> {
        let Some((item, index, event)) = self.handed(id) else { return Ok(None) };
        let floor = match self.seen_beside(id, content) {
            Some((ran, label, true)) if floor.flows_to(&label) => {
                self.set_answer(item, index, Answer::Output(ran));
                return Ok(Some(label));
            }
            // It was seen how the call ran: whatever the caller says of that, it carries as much.
            Some((_, label, _)) => floor.join(&label),
            None => floor,
        };
        let content = match content {
            [Part::Text(text)] => Value::String(text.clone()),
            parts => parts.iter().map(super::sent::block).collect(),
        };
        let tool = self.monitor.trace().event(event).and_then(|call| call.tool());
        let floor = tool.map_or(floor, |tool| floor.join(&self.monitor.answer_floor(tool)));
        let output = Output { call_id: id.to_owned(), tool: None, content, structured: None, is_error };
        let (event, findings) = self.monitor.push_raised(Entry::from(Body::Output(output)), &floor.into())?;
        let label = self.monitor.trace().event(event).map_or(Label::BOTTOM, |event| event.label);
        let found = stops(findings);
        let answer = if found.is_empty() { Answer::Output(event) } else { self.stopped(event, found) };
        self.set_answer(item, index, answer);
        Ok(Some(label))
    }

    /// The answer of a call that has one is now this text, which carries what was there before. Returns what it carries.
    pub(super) fn answer_rewritten(&mut self, id: &str, text: &str, floor: &Label) -> Option<Label> {
        let (item, index) = self
            .find_call(
                |answer| match answer {
                    Answer::Output(event) => Some(*event),
                    _ => None,
                },
                id,
            )
            .map(|(item, index, _)| (item, index))?;
        let before = match &self.made(item, index)?.answer {
            Answer::Output(event) => self.monitor.trace().event(*event).map(|event| event.label),
            _ => None,
        };
        let label = floor.join(&before.unwrap_or_else(|| self.monitor.policy().space().top()));
        self.set_answer(item, index, Answer::Rewritten { text: text.to_owned(), label });
        Some(label)
    }

    fn handed(&self, id: &str) -> Option<(usize, usize, EventId)> {
        self.find_call(
            |answer| match answer {
                Answer::Handed(event) => Some(*event),
                _ => None,
            },
            id,
        )
    }

    /// The item, the call in it and its event, of the call with this id whose answer is of some kind.
    fn find_call(
        &self,
        kind: impl Fn(&Answer) -> Option<EventId>,
        id: &str,
    ) -> Option<(usize, usize, EventId)> {
        let has_id = |event: &EventId| {
            let event = self.monitor.trace().event(*event);
            // An answer points to its call.
            let call = event.and_then(|event| event.call).and_then(|call| self.monitor.trace().event(call));
            matches!(call.or(event).map(|call| &call.body), Some(Body::Call(call)) if call.id == id)
        };
        self.items.steps().find_map(|(at, step)| {
            let found = step.calls.iter().enumerate();
            found
                .filter_map(|(index, made)| Some((at, index, kind(&made.answer)?)))
                .find(|(_, _, event)| has_id(event))
        })
    }

    fn made(&self, item: usize, index: usize) -> Option<&crate::view::Made> {
        match self.items.get(item)? {
            Item::Step(step) => step.calls.get(index),
            _ => None,
        }
    }

    fn set_answer(&mut self, item: usize, index: usize, answer: Answer) {
        if let Some(Item::Step(step)) = self.items.get_mut(item)
            && let Some(made) = step.calls.get_mut(index)
        {
            made.answer = answer;
        }
    }
}
