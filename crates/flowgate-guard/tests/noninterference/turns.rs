//! Runs the turns of a conversation: records its views, the output of the model, and outcomes.

use flowgate::label::Label;
use flowgate::trace::EventId;
use flowgate_guard::DescriptionAuthor;
use flowgate_guard::approve::Decision;
use flowgate_guard::conversation::{Conversation, Need, Turn, TurnEnd, TurnUsage};
use flowgate_guard::view::View;
use flowgate_lm::chat::Completion;
use flowgate_lm::ignore_deltas;
use flowgate_lm::wire::{AnswerStorage, Api, ONLY_FUNCTIONS, ResponseHead};
use serde_json::{Value, json};

use crate::attention::chosen_by_attention;
use crate::forms;
use crate::model::{chosen, worst};
use crate::observed_run::{ObservedRun, ReleasedCopies};
use crate::one_argument;
use crate::oracle_label::OracleLabel;
use crate::random::Random;
use crate::run::RunState;
use crate::session::ObservedSession;
use crate::taint_tracker::CurrentModelStep;
use crate::tools;
use crate::world;

impl RunState<'_> {
    pub(crate) fn sees(&self, label: &Label) -> bool {
        self.case.sees(label)
    }

    /// Whether the observer may see a turn of this session that has no further steps.
    fn sees_turns(&self, session: &ObservedSession) -> bool {
        let least =
            OracleLabel::of_names(&self.case.declared.shapes, &session.conversation.reply_label_names());
        least.flows_to(&self.case.level)
    }

    pub(crate) fn log(&mut self, line: String) {
        self.run.log.push(line);
    }

    /// Begins a session. Descriptions by servers are hidden from some observers, as other text of servers is.
    pub(crate) fn begin(&mut self, first: Option<&ObservedSession>) -> ObservedSession {
        let case = self.case;
        let mut offered = case.offered();
        let described = offered.iter_mut().filter(|offered| offered.words == DescriptionAuthor::Server);
        for (index, offered) in described.enumerate() {
            let Some(first) = first else { continue };
            let shows = |key| first.shows(&case.level, &case.label, EventId(index), key);
            if !shows("description") {
                self.run.changed += 1;
                offered.description = world::marked(&mut self.hidden);
            }
            if !shows("inputSchema") {
                self.run.changed += 1;
                offered.parameters = tools::other_parameters(&mut self.hidden).into();
            }
            if !shows("outputSchema") {
                self.run.changed += usize::from(offered.output.is_some());
                offered.output = offered.output.take().map(|_| tools::other_parameters(&mut self.hidden));
                // The root of the event says which schemas there are.
                if !first.shows_node(&case.level, &case.label, EventId(index), 0) {
                    offered.output = Some(json!({"type": "array"})).filter(|_| self.hidden.chance(50));
                }
            }
        }
        let mut conversation = Conversation::new(case.monitor(), offered, case.settings()).expect("room");
        conversation.journal_mut().start();
        let mut session = ObservedSession::new(conversation);
        self.taint.follow(&mut session.followed, &session.conversation);
        session
    }

    /// Runs a conversation with a user.
    pub(crate) fn session(
        &mut self,
        session: &mut ObservedSession,
        first: Option<&ObservedSession>,
        number: usize,
    ) {
        let case = self.case;
        let memory = case.hides_memory();
        let mut shared = Random::new(case.seed ^ 0x5555 ^ number as u64);
        for turn in 0..if number == 0 { 2 } else { 3 } {
            if memory && self.hidden.chance(50) {
                self.run.changed += 1;
                let content = world::anything(&mut self.hidden, 2);
                session.conversation.add_context("memory", content).expect("room");
            }
            let said = format!("turn {turn}: {}", world::scalar(&mut shared));
            let often = if case.focus.is_some() { 100 } else { 60 };
            let has_links =
                case.has_forms && Random::of(&format!("links {} {number} {turn}", case.seed)).chance(often);
            let said = json!(if has_links { said + forms::LINKS } else { said });
            // The message of the first run, or another one if the observer may not see it.
            let before = first.and_then(|first| Some((first, *first.said.get(turn)?)));
            let said = match before {
                Some((first, event)) if !first.shows(&case.level, &case.label, event, "content") => {
                    let text = world::marked(&mut self.hidden);
                    let has_links = case.has_forms && self.hidden.chance(50);
                    Value::from(if has_links { text + forms::LINKS } else { text })
                }
                _ => said,
            };
            session.said.push(session.conversation.add_user_message(said).expect("room"));
            self.demand_format(session, first, &format!("{number} {turn}"));
            let (turn, is_visible) = self.turn(session, first);
            self.ended(&turn, is_visible);
        }
        let last = session.conversation.view_at(case.label);
        self.log(format!("in the end {:?}", last.request));
        self.remembered(session);
    }

    /// Checks the labels of the account's stores, which are visible to observers who may read them.
    pub(crate) fn remembered(&mut self, session: &mut ObservedSession) {
        session.conversation.stamp_writes("written");
        let remembered = session.conversation.monitor().external_state_record();
        let shapes = &self.case.declared.shapes;
        for store in remembered["stores"].as_array().into_iter().flatten() {
            if OracleLabel::of_names(shapes, &store["label"]).flows_to(&self.case.level) {
                self.run.met.insert("a store that the observer remembers");
                self.log(format!("remembers {store}"));
            }
        }
    }

    /// Runs one turn of a session until it needs the client. Returns the outcome, and whether the observer
    /// sees all of its steps.
    pub(crate) fn turn(
        &mut self,
        session: &mut ObservedSession,
        first: Option<&ObservedSession>,
    ) -> (Turn, bool) {
        let turn = session.labels.len();
        session.labels.push(Vec::new());
        session.screenings.push(0);
        let labels = first.filter(|_| self.replay).and_then(|first| first.labels.get(turn));
        let most = first.filter(|_| self.replay).and_then(|first| first.screenings.get(turn).copied());
        let mut written = Vec::new();
        let mut is_visible = self.sees_turns(session);
        self.taint.follow(&mut session.followed, &session.conversation);
        let mut judged = 0;
        loop {
            let steps = session.labels.last().map_or(0, Vec::len);
            if let Some(label) = labels.and_then(|labels| labels.get(steps)) {
                // The bits of a label are specific to its session.
                let label = session.conversation.monitor_mut().from_names(label);
                session.conversation.choose_label(label);
            }
            let need = session.conversation.need();
            self.taint.follow(&mut session.followed, &session.conversation);
            let verdicts = match &need {
                Need::User(turn) => turn.judged.clone(),
                _ => session.conversation.running_turn().judged_calls().to_vec(),
            };
            for verdict in verdicts.iter().skip(judged) {
                self.releases_outcome(session, verdict);
                self.run.met.extend(session.uses_grant(verdict, &self.case.declared));
            }
            judged = verdicts.len();
            match need {
                Need::User(turn) => {
                    is_visible &= self.case.is_strict();
                    // The number of steps is part of the sequence of labels.
                    if labels.is_none_or(|labels| steps >= labels.len()) {
                        return (turn, is_visible);
                    }
                    self.ended(&turn, is_visible);
                    session.conversation.continue_turn();
                }
                Need::Complete(_) if labels.is_some_and(|labels| steps >= labels.len()) => {
                    return (Turn::default(), false);
                }
                Need::Complete(view) => {
                    let shown = format!("{:?}", view.request);
                    self.shows("the model", session, &view, &shown);
                    let mut completion = worst(&view.request, &shown);
                    if self.case.has_forms {
                        match &self.case.focus {
                            Some(focus) => {
                                focus.replace_arguments(&mut completion, &shown, &view.request.tools);
                            }
                            None => forms::replace_arguments(&self.case.text, &mut completion, &shown),
                        }
                    }
                    if self.case.has_one_argument {
                        one_argument::replace_arguments(&mut completion, &shown);
                    }
                    if let Some(chat) = &mut session.chat {
                        chat.limit(&view.label, &mut completion);
                    }
                    let completion = streamed(&completion, self.case.seed);
                    let stands = session.conversation.accept_completion(completion.clone());
                    written.push((view, shown, completion));
                    let Some(bound) = stands else {
                        self.run.met.insert("a draft that is written again");
                        continue;
                    };
                    // Drafts that were generated again are discarded.
                    let stood = written.drain(..).find(|(view, ..)| view.bound == bound);
                    let (view, shown, completion) = stood.expect("one of them stands");
                    let names = session.conversation.monitor().to_names(&bound);
                    session.labels.last_mut().expect("a turn").push(names);
                    is_visible &=
                        self.sees(&view.label) && !completion.calls.iter().any(|call| call.name == "look");
                    self.wrote(session, view, &shown, completion);
                }
                // The first run ended its turn here, whether there was a step to ask for or not.
                Need::Screen(_)
                    if labels.is_some_and(|labels| steps >= labels.len())
                        && session.screenings.last() >= most.as_ref() =>
                {
                    return (Turn::default(), false);
                }
                Need::Screen(request) => {
                    session.screenings.last_mut().into_iter().for_each(|number| *number += 1);
                    let shown = format!("{request:?}");
                    let clearance = self.case.declared.clearance("screener");
                    self.taint.shown("the screener", &shown, &clearance);
                    if shown.contains("[hidden h") {
                        self.run.met.insert("a region that the screener may not read");
                    }
                    if clearance.flows_to(&self.case.level) {
                        self.run.met.insert("a screener that the observer may read as");
                        self.log(format!("screens {shown}"));
                    }
                    // Which screener answers depends on all that it reads.
                    let by_attention = Random::of(&shown).chance(50).then(|| chosen_by_attention(&request));
                    let answer = by_attention.flatten();
                    if answer.is_some() {
                        self.run.met.insert("a screener that reads attention");
                    }
                    session.conversation.accept_screening(&answer.unwrap_or_else(|| chosen(&request)));
                }
                Need::Fill(request) => self.fill(session, &request),
                Need::Approve(ask) => {
                    // The reader of the question may read all that it shows.
                    let carries = OracleLabel::of_names(&self.case.declared.shapes, &ask.carries);
                    self.taint.shown("a person", &format!("{ask:?}"), &carries);
                    let is_seen = self.sees(&ask.decided);
                    if is_seen {
                        self.run.met.insert("a question that the observer sees");
                        if !ask.excerpts.is_empty() {
                            self.run.met.insert("a question with excerpts");
                        }
                        let line = if carries.flows_to(&self.case.level) {
                            session.asks(&ask, &self.case.label)
                        } else {
                            format!("asks {} {} {} {}", ask.tool, ask.arguments, ask.digest, ask.times)
                        };
                        self.log(line);
                    }
                    for next in &ask.upcoming {
                        if !self.sees(&next.decided) {
                            continue;
                        }
                        self.run.met.insert("an announced question");
                        let carries = OracleLabel::of_names(&self.case.declared.shapes, &next.carries);
                        let shown = carries.flows_to(&self.case.level);
                        let line =
                            if shown { session.asks(next, &self.case.label) } else { next.digest.clone() };
                        self.log(format!("announces {} times {line}", next.times));
                    }
                    // A person with the observer's clearance may allow the call; questions above it are
                    // refused in both runs, because nothing is replayed.
                    let often = if ask.is_grantable() { 90 } else { 50 };
                    let yes = is_seen && Random::of(&ask.digest).chance(often);
                    let is_for_good =
                        ask.is_grantable() && Random::of(&format!("{} for good", ask.digest)).chance(90);
                    session.conversation.accept_decision(match (yes, is_for_good) {
                        (true, true) => Decision::AllowForConversation,
                        (true, false) => Decision::AllowOnce,
                        (false, _) => Decision::Deny,
                    });
                    if yes && is_for_good {
                        session.granted.push((ask.tool.clone(), ask.arguments.clone()));
                    }
                    if !session.conversation.monitor().session_grants().is_empty() {
                        self.run.met.insert("an approval for the rest of a conversation");
                    }
                }
                Need::Run(call) if session.chat.is_some() => self.hand(session, call),
                Need::Run(call) => self.answer(session, &call, first),
            }
        }
    }

    /// Checks a view: everything in it flows to the label of the view and to the clearance of the model.
    pub(crate) fn shows(&mut self, whom: &str, session: &ObservedSession, view: &View, shown: &str) {
        let level = self.taint.level(session.conversation.monitor(), &view.label);
        self.taint.shown(whom, shown, &level);
        let clearance = self.case.declared.clearance("model");
        self.taint.shown(whom, shown, &clearance);
        if !level.flows_to(&clearance) {
            self.taint.broken.push(format!("a view at {level:?} is above the clearance {clearance:?}"));
        }
        if let Some(floor) = session.followed.floor.as_ref().filter(|floor| !floor.flows_to(&level)) {
            self.taint.broken.push(format!("a view at {level:?} is below the task, {floor:?}"));
        }
        if shown.contains("OutputSchema") {
            self.run.met.insert("a schema that is shown");
        }
        if shown.contains("ImageData") {
            self.run.met.insert("an image that is shown");
        }
    }

    /// Records an output of the model that stands.
    pub(crate) fn wrote(
        &mut self,
        session: &mut ObservedSession,
        view: View,
        shown: &str,
        completion: Completion,
    ) {
        if view.label != view.bound {
            self.run.met.insert("a step that carries less than its bound");
        }
        if self.sees(&view.label) && !self.sees(&view.bound) {
            self.run.met.insert("a step that the observer sees because its label floats");
        }
        if self.sees(&view.label) {
            self.log(format!("sees {shown}"));
            if let Some(reply) =
                session.conversation.running_turn().replies().last().filter(|_| !completion.text.is_empty())
            {
                if !reply.withheld.is_empty() {
                    self.run.met.insert("a reply that is withheld");
                }
                if !reply.disarmed.is_empty() {
                    self.run.met.insert("a reply with an address that is disarmed");
                }
                let line = format!("says {reply:?}");
                self.log(line);
            }
            if self.case.text.contains("endorse ") {
                let copies =
                    self.case.text.contains("b in tool:") || self.case.text.contains("item in tool:");
                let forms = forms::BY_CHANCE.iter().any(|form| self.case.text.contains(form));
                let copies = match (copies, forms) {
                    (true, _) => ReleasedCopies::Any,
                    (false, true) => ReleasedCopies::Forms,
                    (false, false) => ReleasedCopies::None,
                };
                let line = ObservedRun::release(session.conversation.monitor(), &view, &completion, copies);
                self.run.log.extend(line);
            }
        }
        let slots = |arguments: &str| arguments.matches("$slot").count();
        self.run.slots += completion.calls.iter().map(|call| slots(&call.arguments)).sum::<usize>();
        let level = self.taint.level(session.conversation.monitor(), &view.label);
        if !completion.text.is_empty() {
            session.says(&level);
            if let Some(chat) = &mut session.chat {
                chat.says(&level);
            }
        }
        session.followed.wrote = Some(CurrentModelStep { level, names: view.names, completion });
        self.taint.follow(&mut session.followed, &session.conversation);
    }

    /// Records the end of a turn. The reason and the cost are visible to observers who may see all of its steps,
    /// and the outcomes of calls to observers who may see their verdicts.
    pub(crate) fn ended(&mut self, turn: &Turn, is_visible: bool) {
        self.run.looks += turn.spent.looks + turn.spent.screenings;
        if turn.ended == Some(TurnEnd::Clearance) {
            self.run.met.insert("a look beyond the model's clearance");
        }
        if is_visible {
            self.run.met.insert("a turn that the observer sees end");
            let Turn { replies, stop, spent, ended, .. } = turn;
            let TurnUsage { messages, screenings, tokens, looks, hidden, .. } = spent;
            let spent = format!("{messages} {screenings} {tokens:?} {looks} {hidden}");
            self.log(format!("ends {replies:?} {stop:?} {ended:?} {spent}"));
        }
    }
}

/// Encodes and decodes an output of the model as a stream in one of the formats.
fn streamed(completion: &Completion, seed: u64) -> Completion {
    let apis = Api::ALL;
    let api = apis[usize::try_from(seed).unwrap_or(0) % apis.len()];
    let events = api.encode_stream(
        completion,
        ResponseHead {
            id: "r",
            model: "worst",
            created: 0,
            tools: &ONLY_FUNCTIONS,
            storage: AnswerStorage::NotStored,
        },
        true,
    );
    let mut decoder = api.decoder();
    for event in events {
        decoder.feed(&event, &mut ignore_deltas).expect("what we wrote ourselves");
    }
    decoder.finish().expect("the whole stream")
}
