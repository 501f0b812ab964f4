//! Generates actions of a client outside its chat: calls through a proxy, of its own and of agents that it has started.
//!
//! Everybody sees that an action takes place, its tool, and whether it is permitted. The arguments are
//! visible to observers who may see everything that the agent has seen.

use flowgate::monitor::{Attribution, Judgement, Verdict};
use flowgate::trace::{Call, EventBody, EventId, Message, Output, TraceEntry};
use flowgate_guard::conversation::{Conversation, ToolAnswer};
use serde_json::{Map, Value, json};

use crate::agents::MAIN;
use crate::chat::held;
use crate::model::copied;
use crate::observed_run::RELEASES;
use crate::random::Random;
use crate::run::RunState;
use crate::session::{ObservedSession, VisibleAnswer};
use crate::world;

/// The action of an agent: its name, that of the event, and the names of the parent events.
#[derive(Clone)]
struct AgentAction {
    agent: &'static str,
    name: String,
    parents: Vec<String>,
}

impl AgentAction {
    fn entry(&self, body: EventBody) -> TraceEntry {
        let agent = Some(self.agent).filter(|agent| *agent != MAIN).map(str::to_owned);
        TraceEntry {
            agent,
            name: Some(self.name.clone()),
            parents: self.parents.clone(),
            ..TraceEntry::from(body)
        }
    }
}

/// Judges a call outside the chat, and runs it if it is permitted.
fn judge(conversation: &mut Conversation, entry: &TraceEntry) -> (Judgement, Option<EventId>) {
    let monitor = conversation.monitor_mut();
    match monitor.judge_entry(entry.clone(), Attribution::everything()) {
        Verdict::Permit(permit) => {
            let judgement = permit.judgement().clone();
            (judgement, monitor.redeem(permit).ok().map(|call| call.event()))
        }
        verdict => (verdict.judgement().clone(), None),
    }
}

impl RunState<'_> {
    /// Creates the root event, from which agents without other parents start.
    pub(crate) fn root(&mut self, session: &mut ObservedSession) {
        let acts = AgentAction { agent: MAIN, name: "root".to_owned(), parents: Vec::new() };
        self.says(session, &acts, "user", "begin".to_owned());
    }

    /// Performs the actions between two turns.
    pub(crate) fn acts(
        &mut self,
        session: &mut ObservedSession,
        first: Option<&ObservedSession>,
        turn: usize,
        shared: &mut Random,
    ) {
        // Writes of the chat's steps raise the stores to the lowest label of a step, which actions below that
        // label would reveal.
        let sees_steps = self.sees(session.conversation.base_label());
        let acts = shared.below(4);
        for number in 0..if sees_steps { acts } else { 0 } {
            let agent = [MAIN, "left", "right"][shared.below(3)];
            let (kind, tool, which) = (shared.below(6), shared.next(), shared.next());
            let is_new = !session.followed.agents.knows(agent);
            let joins = shared.chance(if is_new { 85 } else { 40 });
            // The first agents start at the root, with the lowest labels.
            let others: Vec<&(String, usize, &str)> =
                held(session).named.iter().filter(|(.., other)| *other != agent).collect();
            let which = if is_new && which.is_multiple_of(2) { 0 } else { which };
            let parent = others.get(usize::try_from(which % others.len().max(1) as u64).unwrap_or(0));
            let parent = parent.filter(|_| joins).map(|(name, event, other)| (name.clone(), *event, *other));
            let parents: Vec<usize> = parent.iter().map(|(_, event, _)| *event).collect();
            session.followed.agents.joins(agent, &parents);
            let names = parent.iter().map(|(name, ..)| name.clone()).collect();
            let acts = AgentAction { agent, name: format!("b{turn}-{number}"), parents: names };
            if parent.as_ref().is_some_and(|(name, ..)| name != "root") {
                self.run.met.insert("an agent that is told what another has seen");
            }
            match kind {
                0 => self.shows_beside(session, &acts, shared.next()),
                1 => {
                    let level = session.followed.level_of(agent, &self.taint.oracle.bottom());
                    let seen = self.seen_by(session, agent);
                    let text = copied(&mut Random::of(&seen), &seen);
                    session.followed.beside = Some(level);
                    self.says(session, &acts, "assistant", text);
                    session.followed.beside = None;
                }
                _ => self.calls(session, first, &acts, tool),
            }
        }
    }

    /// Returns everything that an agent has seen, as text.
    fn seen_by(&self, session: &ObservedSession, agent: &str) -> String {
        let events = session.trace().events();
        session.followed.agents.seen(agent).map(|event| format!("{:?}\n", events[event].body)).collect()
    }

    /// Adds a text outside the chat, as retrieved by a client. The user may quote it later.
    fn shows_beside(&mut self, session: &mut ObservedSession, acts: &AgentAction, seed: u64) {
        let level = self.taint.oracle.level_of_role("memory");
        let is_seen = level.flows_to(&self.case.level);
        let text = match is_seen {
            true => world::unlike_others(&mut Random::new(seed)),
            false => world::unlike_others(&mut self.hidden),
        };
        if !is_seen {
            self.run.changed += 1;
            held(session).shown = Some(text.clone());
        }
        self.says(session, acts, "memory", text);
    }

    fn says(&mut self, session: &mut ObservedSession, acts: &AgentAction, role: &str, text: String) {
        let message = Message::new(role, Value::String(text));
        let entry = acts.entry(EventBody::Message(message));
        let event = session
            .beside(move |conversation| conversation.monitor_mut().push(entry.clone()).expect("room").0);
        self.happened(session, acts, event);
    }

    fn happened(&mut self, session: &mut ObservedSession, acts: &AgentAction, event: EventId) {
        self.taint.follow(&mut session.followed, &session.conversation);
        held(session).named.push((acts.name.clone(), event.0, acts.agent));
    }

    /// Judges a call with everything that its agent has seen.
    fn calls(
        &mut self,
        session: &mut ObservedSession,
        first: Option<&ObservedSession>,
        acts: &AgentAction,
        tool: u64,
    ) {
        let tools = self.case.tools.all();
        let tool = tools[usize::try_from(tool % tools.len() as u64).unwrap_or(0)].clone();
        let level = session.followed.level_of(acts.agent, &self.taint.oracle.bottom());
        let main = session.followed.level_of(MAIN, &self.taint.oracle.bottom());
        let seen = self.seen_by(session, acts.agent);
        let mut random = Random::of(&seen);
        let mut arguments = Map::new();
        for name in ["a", "b"] {
            if random.chance(70) {
                arguments.insert(name.to_owned(), json!(copied(&mut random, &seen)));
            }
        }
        let print = Value::Object(arguments.clone()).to_string();
        let call = Call { id: acts.name.clone(), tool: tool.clone(), arguments: Ok(arguments) };
        let entry = acts.entry(EventBody::Call(call));
        let (judgement, event) = session.beside(move |conversation| judge(conversation, &entry));
        let exists = self.sees(&judgement.decided);
        let outcome = judgement.outcome().name();
        self.log(format!("{RELEASES} that {tool} is called beside the chat: {outcome} {exists}"));
        if exists {
            let reasons: Vec<_> =
                judgement.reasons.iter().map(|r| (&r.message, &r.part, &r.label, &r.required)).collect();
            self.log(format!("beside, {:?} calls {tool} {print}: {outcome} {reasons:?}", acts.agent));
        }
        let Some(event) = event else { return };
        let is_hidden = !main.flows_to(&self.case.level);
        self.run.met.insert(match (acts.agent == MAIN, exists) {
            (true, true) => "a call beside the chat that is seen",
            (true, false) => "a call beside the chat that is hidden",
            (false, true) if is_hidden => "an agent that has not seen what another has",
            (false, true) => "a call of another agent that is seen",
            (false, false) => "a call of another agent that is hidden",
        });
        session.followed.beside = Some(level);
        self.happened(session, acts, event);
        session.followed.beside = None;
        let call = session.trace().event(event).expect("it is there");
        self.taint.ran(&session.followed, event, call, &print);
        let place = exists.then_some(session.answers.len());
        let (answer, spelling) = self.answer_of(&tool, &print, exists, self.answer_before(first, place));
        let ToolAnswer { content, structured, is_error, .. } = answer;
        let call_id = acts.name.clone();
        let output = Output { call_id, tool: None, content, structured, is_error: Some(is_error) };
        let answered =
            AgentAction { name: format!("{}-answer", acts.name), parents: Vec::new(), ..acts.clone() };
        let entry = answered.entry(EventBody::Output(output));
        let event = session.beside(move |conversation| {
            let monitor = conversation.monitor_mut();
            let floor = monitor.output_floor(&tool);
            monitor.push_with_floors(entry.clone(), &floor.into()).expect("room").0
        });
        self.happened(session, &answered, event);
        if exists {
            session.answers.push(VisibleAnswer { event, spelling, child: None });
        }
    }
}
