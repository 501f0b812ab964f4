//! Answers the calls of a step in a generated run: as tools, as agents that are tools, and as fillers of slots.

use flowgate::label::Label;
use flowgate::monitor::AuthorizedCall;
use flowgate::trace::{Document, EventBody, EventId, Tool};
use flowgate_guard::conversation::{CallVerdict, ToolAnswer};
use flowgate_lm::chat::Request;
use serde_json::Value;

use crate::changed_answers::{self, FirstAnswer};
use crate::declared_policy::DeclaredIndependence;
use crate::forms;
use crate::model::{filled, typed};
use crate::observed_run::RELEASES;
use crate::random::Random;
use crate::run::RunState;
use crate::session::{ObservedSession, VisibleAnswer};
use crate::taint_tracker::CurrentModelStep;
use crate::world::AnswerSpelling;

impl RunState<'_> {
    /// Fills a slot, and checks that the filler may read the regions of the slot.
    pub(crate) fn fill(&mut self, session: &mut ObservedSession, request: &Request) {
        let shown = format!("{request:?}");
        let clearance = self.case.declared.clearance("filler");
        self.taint.shown("the filler", &shown, &clearance);
        if let Some(wrote) = &session.followed.wrote
            && let Some(task) = task(request)
            && let Some(regions) = wrote.filled_from(&task)
        {
            let oracle = session.followed.regions(&regions, &wrote.names, &wrote.level);
            let hidden = regions.iter().filter_map(|name| wrote.names.get(name)).map(|hidden| hidden.label);
            let monitor = session.conversation.monitor();
            let levels = hidden.map(|label| self.taint.level(monitor, &label));
            let level = levels.fold(wrote.level.clone(), |level, hidden| level.join(&hidden));
            if !oracle.flows_to(&level) {
                self.taint.broken.push(format!("a slot is filled at {level:?} from regions at {oracle:?}"));
            }
            // The filler is not shown the rest of the call.
            self.taint.shown("who fills one slot", &shown, &level);
            if level.flows_to(&self.case.level) {
                self.run.met.insert("a fill that the observer sees");
                self.log(format!("fills {shown}"));
            }
            if slots(wrote) > 1 {
                self.run.met.insert("two slots in a message");
            }
        }
        // Whether a model can use a hidden text is information about the text. That a value of an endorsed
        // kind exists is released together with the value.
        if typed(request).is_none() && Random::of(&shown).chance(10) {
            self.run.met.insert("a slot that nobody could fill");
            session.conversation.fail_fill();
        } else {
            self.run.met.insert("a slot that was filled");
            let tool = task(request).and_then(|task| task["tool"].as_str().map(str::to_owned));
            let is_endorsed = |tool: String| self.case.declared.takes_endorsed_values_only(&tool);
            if typed(request).is_some() && tool.is_some_and(is_endorsed) {
                self.run.met.insert("a slot that takes endorsed values only");
            }
            session.conversation.accept_fill(&filled(request));
        }
    }

    /// Answers a call that the conversation waits for.
    pub(crate) fn answer(
        &mut self,
        session: &mut ObservedSession,
        call: &AuthorizedCall,
        first: Option<&ObservedSession>,
    ) {
        let exists = self.runs(session, call) || self.shows_part_of_answer(session, call);
        let tool = &call.call().tool;
        let before = self.answer_before(first, exists.then_some(session.answers.len()));
        if self.case.tools.is_agent(tool) && session.followed.floor.is_none() {
            self.ask_agent(session, call, exists, before);
            return;
        }
        let (answer, spelling) = self.answer_of(tool, &call.arguments_json(), exists, before);
        self.ran(session, answer, exists.then_some((spelling, None)));
    }

    /// Records that a call runs. Returns whether the observer may see it.
    pub(crate) fn runs(&mut self, session: &ObservedSession, call: &AuthorizedCall) -> bool {
        let event = session.trace().event(call.event()).expect("it is there");
        let (tool, arguments) = (&call.call().tool, call.arguments_json());
        self.taint.ran(&session.followed, call.event(), event, &arguments);
        // An observer that may see that the call runs may see what the tool derives from the call.
        let exists = self.sees(&event.decided);
        if exists {
            self.log(format!("runs {} {tool} {arguments}", call.call().id));
        }
        exists
    }

    /// Whether the observer may see a part of the answer that does not depend on the arguments that are hidden.
    pub(crate) fn shows_part_of_answer(&self, session: &ObservedSession, call: &AuthorizedCall) -> bool {
        let event = session.trace().event(call.event()).expect("it is there");
        let declared = self.case.declared.independent_parts(&call.call().tool);
        declared.into_iter().any(|independence| {
            // Not `decided`, which includes the hidden arguments: they must not tell which answers are paired.
            let least = match independence {
                DeclaredIndependence::OfB => label_without(&event.document, "b"),
                _ => event.document.frame_label(),
            };
            self.sees(&least.join(&event.observed))
        })
    }

    /// Logs the outcome of a call that the policy releases: of a call with slots if a part of the answer does not depend
    /// on arguments, since the part reveals that the call ran and so that the slots could be filled; and of a call that
    /// is endorsed by single fields of answers, for which the policy vouches although what is around them is untrusted.
    pub(crate) fn releases_outcome(&mut self, session: &ObservedSession, verdict: &CallVerdict) {
        let Some(wrote) = &session.followed.wrote else { return };
        let has_slots = wrote.completion.calls.iter().any(|call| call.arguments.contains("$slot"));
        let shows_part = has_slots && !self.case.declared.independent_parts(&verdict.tool).is_empty();
        let is_released = shows_part || forms::is_endorsed_by_fields(&self.case.text, &verdict.tool);
        if is_released && wrote.level.flows_to(&self.case.level) {
            self.log(format!("{RELEASES} that {} was called: {}", verdict.tool, verdict.outcome.name()));
        }
    }

    /// Returns the answer of a tool: random in the first run, and in the second run the same with everything
    /// replaced that the observer may not see.
    pub(crate) fn answer_of(
        &mut self,
        tool: &Tool,
        arguments: &str,
        exists: bool,
        before: Option<(&ObservedSession, &VisibleAnswer)>,
    ) -> (ToolAnswer, AnswerSpelling) {
        let case = self.case;
        let echo = case.tools.echoes(tool).then(|| self.taint.echo(tool, arguments));
        if echo.is_some() {
            self.run.met.insert(if exists { "an echo that is seen" } else { "an echo that is hidden" });
        }
        let (answer, spelling) = match before {
            None => changed_answers::fresh(&mut self.hidden, 5, echo.as_deref(), case.focus.is_some()),
            Some((first, answered)) => {
                let event = first.trace().event(answered.event).expect("it is there");
                let EventBody::Output(output) = &event.body else { panic!("an output") };
                let flows: Vec<bool> = first.followed.bounds[answered.event.0]
                    .parts
                    .iter()
                    .map(|bounds| bounds.iter().any(|bound| bound.flows_to(&case.level)))
                    .collect();
                let before = FirstAnswer {
                    output,
                    document: &event.document,
                    spelling: answered.spelling,
                    observer: &case.label,
                    flows: &flows,
                    echo: echo.as_deref(),
                    speaks_of_errors: case.text.contains("is_error"),
                    has_values: case.focus.is_some(),
                };
                before.changed(&mut self.hidden, &mut self.run.changed)
            }
        };
        let printed = answer.content.to_string();
        if printed.len() > 2000 {
            self.run.met.insert("a long text");
        }
        if printed.contains("image/png") {
            self.run.met.insert("an image");
        }
        (answer, spelling)
    }

    fn ran(
        &mut self,
        session: &mut ObservedSession,
        answer: ToolAnswer,
        seen: Option<(AnswerSpelling, Option<Box<ObservedSession>>)>,
    ) {
        session.conversation.accept_tool_answer(answer);
        let event = EventId(session.trace().len() - 1);
        self.taint.follow(&mut session.followed, &session.conversation);
        if let Some((spelling, child)) = seen {
            session.answers.push(VisibleAnswer { event, spelling, child });
        }
    }

    /// Runs an agent as a tool: its task consists of the arguments, and its answer is its final reply. The
    /// agent uses its own account; a write to the stores of this account would have to be declared for
    /// the tool.
    fn ask_agent(
        &mut self,
        session: &mut ObservedSession,
        call: &AuthorizedCall,
        exists: bool,
        before: Option<(&ObservedSession, &VisibleAnswer)>,
    ) {
        self.run.met.insert(if exists { "an agent that is seen" } else { "an agent that is hidden" });
        let first = before.and_then(|(_, answered)| answered.child.as_deref());
        let mut child = self.begin(first);
        let level = session.followed.bounds[call.event().0].of(0, &self.taint.oracle.bottom());
        child.followed.floor = Some(level.clone());
        let carries = session.conversation.call_label_names(call);
        child.conversation.add_task(Value::from(call.arguments_json()), &carries).expect("room");
        let account = self.taint.enter(None);
        let (turn, is_visible) = self.turn(&mut child, first);
        self.ended(&turn, is_visible);
        self.taint.enter(Some(account));
        let text: Vec<&str> = child.replies.iter().map(String::as_str).collect();
        let answer = ToolAnswer {
            carries: Some(child.conversation.reply_label_names()),
            ..ToolAnswer::text(text.join("\n"))
        };
        session.followed.carries = Some(child.said_level.clone().unwrap_or(level));
        self.ran(session, answer, exists.then_some((AnswerSpelling::Value, Some(Box::new(child)))));
    }
}

/// Returns the join of the labels of a call without those of an argument.
fn label_without(document: &Document, name: &str) -> Label {
    let argument = document.key(0, "arguments").and_then(|place| document.key(place, name));
    let left_out = argument.map_or(0..0, |node| node..document.nodes()[node].end);
    let kept = document.nodes().iter().enumerate().filter(|(id, _)| !left_out.contains(id));
    kept.fold(Label::BOTTOM, |label, (_, node)| label.join(&node.label))
}

/// Returns the greatest number of slots in one call of a message.
fn slots(wrote: &CurrentModelStep) -> usize {
    wrote.completion.calls.iter().map(|call| call.arguments.matches("$slot").count()).max().unwrap_or(0)
}

/// Returns the task of a filler, from its request.
fn task(request: &Request) -> Option<Value> {
    let Some(flowgate_lm::chat::Message::User(parts)) = request.messages.last() else { return None };
    let Some(flowgate_lm::chat::Part::Text(text)) = parts.first() else { return None };
    serde_json::from_str(text.get(text.find('{')?..)?).ok()
}
