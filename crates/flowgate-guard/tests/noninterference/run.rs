//! Conversations with the worst model, seen by somebody who may not see everything.

use std::ops::ControlFlow;
use std::sync::Arc;

use flowgate::label::Label;
use flowgate::monitor::{Authorized, Monitor};
use flowgate::policy::Policy;
use flowgate::predicates::Predicates;
use flowgate::trace::{Body, Entry, EventId, Message};
use flowgate_guard::Words;
use flowgate_guard::approve::{Decision, DigestKey};
use flowgate_guard::conversation::{Conversation, Ended, Method, Need, Settings, Spent, ToolAnswer, Turn};
use flowgate_guard::history::{Client, History};
use flowgate_guard::journal::Input;
use flowgate_guard::view::View;
use flowgate_lm::chat::{Completion, Request};
use flowgate_lm::wire::{Api, Head};
use serde_json::{Value, json};

use crate::change::{self, Before};
use crate::declared::Declared;
use crate::level::Level;
use crate::model::{chosen, filled, typed, worst};
use crate::observed::{Answered, Observed, Session};
use crate::oracle;
use crate::policy::policy;
use crate::random::Random;
use crate::space::Space;
use crate::tools::{self, Tools};
use crate::track::{Taint, Wrote};
use crate::world;

/// One case: a policy, tools, an observer, what the user says.
pub(crate) struct Run {
    seed: u64,
    pub(crate) text: String,
    policy: Arc<Policy>,
    declared: Declared,
    pub(crate) tools: Tools,
    /// What the observer may see, in names.
    pub(crate) observer: Value,
    /// The same as the oracle calls it.
    level: Level,
    label: Label,
    method: Method,
}

/// What one run is made from, besides its case.
struct Made<'c> {
    case: &'c Run,
    taint: Taint<'c>,
    run: Observed,
    /// What is not visible is drawn from another seed in the second run.
    hidden: Random,
    replay: bool,
}

impl Run {
    pub(crate) fn case(seed: u64, method: Method) -> Self {
        let mut random = Random::new(seed);
        let (space, tools) = (Space::new(&mut random), Tools::new(&mut random));
        let (text, declared) = policy(&mut random, &space, &tools);
        let policy = Policy::parse(&text).unwrap_or_else(|errors| panic!("seed {seed}: {errors:?}\n{text}"));
        let policy = Arc::new(policy);
        let observer = space.observer(&mut random);
        let level = Level::of_names(&declared.shapes, &observer);
        let label = Monitor::new(Arc::clone(&policy)).from_names(&observer);
        Self { seed, text, policy, declared, tools, observer, level, label, method }
    }

    /// A session. The observer's names are the first that it meets, so that they are the same bits in each.
    fn monitor(&self) -> Monitor {
        let mut monitor = Monitor::new(Arc::clone(&self.policy));
        let mut predicates = Predicates::new();
        predicates.define("known", |arguments| Ok(json!(oracle::is_known(&arguments[0]))));
        monitor.set_predicates(predicates, Vec::new());
        assert_eq!(monitor.from_names(&self.observer), self.label);
        if self.method == Method::Judge {
            // Labels are replayed as bits.
            let names = world::names();
            monitor.from_names(&json!({"readers": names, "sources": names}));
        }
        monitor
    }

    fn sees(&self, label: &Label) -> bool {
        label.flows_to(&self.label)
    }

    /// Whether nothing is replayed.
    fn is_strict(&self) -> bool {
        matches!(self.method, Method::LowestFirst | Method::RedactAll)
    }

    pub(crate) fn first(&self) -> Observed {
        self.run(None, false)
    }

    /// The same with everything changed that the observer may not see, by the word of the monitor or by that of the oracle.
    ///
    /// With `replay`, labels of steps are those of the first run.
    pub(crate) fn second(&self, first: &Observed, replay: bool) -> Observed {
        self.run(Some(first), replay)
    }

    fn settings(&self) -> Settings {
        let mut settings = Settings::new(self.method, DigestKey::new([1; 32]));
        settings.steps = 4;
        settings.levels = 4;
        settings
    }

    /// Whether a conversation that is made again from what was put into one, and kept as text meanwhile, comes to the same.
    pub(crate) fn comes_to_the_same(&self, session: &mut Session) -> bool {
        let kept: Vec<String> =
            session.conversation.inputs().iter().map(|input| json!(input).to_string()).collect();
        let inputs: Vec<Input> =
            kept.iter().map(|text| serde_json::from_str(text).expect("an input")).collect();
        let mut again =
            Conversation::new(self.monitor(), self.tools.offered(), self.settings()).expect("room");
        again.again(&mut Client::default(), &mut History::new(), &inputs).expect("the same");
        let print = |conversation: &Conversation| {
            let top = conversation.monitor().policy().space().top();
            let (view, trace) = (conversation.view_at(top).request, conversation.monitor().trace());
            format!("{view:?} {} {:?}", conversation.remember(), trace.events())
        };
        print(&session.conversation) == print(&again)
    }

    /// Whether the observer may not know that something was retrieved.
    fn hides_memory(&self) -> bool {
        let mut monitor = self.monitor();
        let message = Message { role: "memory".to_owned(), content: json!("x") };
        let (event, _) = monitor.push(Entry::from(Body::Message(message))).expect("room");
        !self.sees(&monitor.trace().existence(event))
    }

    /// Two sessions of one account, one after the other.
    fn run(&self, first: Option<&Observed>, replay: bool) -> Observed {
        let hidden = Random::new(self.seed ^ if first.is_some() { 0xabcd_ef01 } else { 0x1234 });
        let (taint, run) = (Taint::new(&self.declared), Observed::default());
        let mut made = Made { case: self, taint, run, hidden, replay };
        for number in 0..2 {
            made.taint.next_session();
            let mut session = made.begin(first.map(|first| &first.sessions[number]));
            if let Some(before) = made.run.sessions.last() {
                let remembered = before.conversation.remember();
                session.conversation.recall(&remembered).expect("what was remembered");
            }
            made.session(&mut session, first.map(|first| &first.sessions[number]), number);
            made.run.sessions.push(session);
        }
        let Made { taint, mut run, .. } = made;
        run.met.extend(taint.met);
        run.met.extend(taint.oracle.met.into_inner());
        (run.broken, run.parts) = (taint.broken, taint.parts);
        run.note(&self.label);
        run
    }
}

impl Made<'_> {
    fn sees(&self, label: &Label) -> bool {
        self.case.sees(label)
    }

    fn log(&mut self, line: String) {
        self.run.log.push(line);
    }

    /// A session. What servers say of their tools is hidden from some, like anything that they say.
    fn begin(&mut self, first: Option<&Session>) -> Session {
        let case = self.case;
        let mut offered = case.tools.offered();
        let described = offered.iter_mut().filter(|offered| offered.words == Words::Server);
        for (index, offered) in described.enumerate() {
            let Some(first) = first else { continue };
            let shows = |key| first.shows(&case.level, &case.label, EventId(index), key);
            if !shows("description") {
                self.run.changed += 1;
                offered.description = world::marked(&mut self.hidden);
            }
            if !shows("inputSchema") {
                self.run.changed += 1;
                offered.parameters = tools::other_parameters(&mut self.hidden);
                offered.output = Some(json!({"type": "array"})).filter(|_| self.hidden.chance(50));
            }
        }
        let mut conversation = Conversation::new(case.monitor(), offered, case.settings()).expect("room");
        conversation.keep_inputs();
        let mut session = Session::new(conversation);
        self.taint.follow(&mut session.followed, &session.conversation);
        session
    }

    /// A conversation with a user.
    fn session(&mut self, session: &mut Session, first: Option<&Session>, number: usize) {
        let case = self.case;
        let memory = case.hides_memory();
        let mut shared = Random::new(case.seed ^ 0x5555 ^ number as u64);
        for turn in 0..if number == 0 { 2 } else { 3 } {
            if memory && self.hidden.chance(50) {
                self.run.changed += 1;
                let content = world::anything(&mut self.hidden, 2);
                session.conversation.note("memory", content).expect("room");
            }
            let said = json!(format!("turn {turn}: {}", world::scalar(&mut shared)));
            // The same is said again, or anything else if the observer may not see it.
            let before = first.and_then(|first| Some((first, *first.said.get(turn)?)));
            let said = match before {
                Some((first, event)) if !first.shows(&case.level, &case.label, event, "content") => {
                    Value::from(world::marked(&mut self.hidden))
                }
                _ => said,
            };
            session.said.push(session.conversation.user(said).expect("room"));
            self.turn(session, first);
        }
        let last = session.conversation.view_at(case.label);
        self.log(format!("in the end {:?}", last.request));
        self.remembered(session);
    }

    /// What the account's stores carry is seen by who may see as much.
    fn remembered(&mut self, session: &mut Session) {
        session.conversation.stamp("written");
        let remembered = session.conversation.remember();
        let shapes = &self.case.declared.shapes;
        for store in remembered["stores"].as_array().into_iter().flatten() {
            if Level::of_names(shapes, &store["label"]).flows_to(&self.case.level) {
                self.run.met.insert("a store that the observer remembers");
                self.log(format!("remembers {store}"));
            }
        }
    }

    /// One turn of a session, until it is somebody else's.
    fn turn(&mut self, session: &mut Session, first: Option<&Session>) {
        let turn = session.labels.len();
        session.labels.push(Vec::new());
        let labels = first.filter(|_| self.replay).and_then(|first| first.labels.get(turn));
        let mut written = Vec::new();
        let mut is_visible = self.sees(session.conversation.base());
        self.taint.follow(&mut session.followed, &session.conversation);
        loop {
            let steps = session.labels.last().map_or(0, Vec::len);
            if let Some(label) = labels.and_then(|labels| labels.get(steps)) {
                // The bits of a label are those of its session.
                let label = session.conversation.beside().from_names(label);
                session.conversation.choose(label);
            }
            let need = session.conversation.need();
            self.taint.follow(&mut session.followed, &session.conversation);
            match need {
                Need::User(turn) => {
                    self.ended(&turn, is_visible && self.case.is_strict());
                    // How many steps there were is a part of the sequence of labels.
                    if labels.is_none_or(|labels| steps >= labels.len()) {
                        return;
                    }
                    session.conversation.go_on();
                }
                Need::Complete(_) if labels.is_some_and(|labels| steps >= labels.len()) => return,
                Need::Complete(view) => {
                    let shown = format!("{:?}", view.request);
                    self.shows("the model", session, &view, &shown);
                    let completion = streamed(&worst(&view.request, &shown), self.case.seed);
                    let stands = session.conversation.completed(completion.clone());
                    written.push((view, shown, completion));
                    let Some(label) = stands else {
                        self.run.met.insert("a draft that is written again");
                        continue;
                    };
                    // What was written again is as if it had never been written.
                    let stood = written.drain(..).find(|(view, ..)| view.label == label);
                    let (view, shown, completion) = stood.expect("one of them stands");
                    let names = session.conversation.monitor().to_names(&label);
                    session.labels.last_mut().expect("a turn").push(names);
                    is_visible &=
                        self.sees(&label) && !completion.calls.iter().any(|call| call.name == "look");
                    self.wrote(session, view, &shown, completion);
                }
                Need::Screen(request) => {
                    let shown = format!("{request:?}");
                    let clearance = self.case.declared.clearance("screener");
                    self.taint.shown("the screener", &shown, &clearance);
                    if shown.contains("[hidden h") {
                        self.run.met.insert("a region that the screener may not read");
                    }
                    session.conversation.screened(&chosen(&request));
                }
                Need::Fill(request) => self.fill(session, &request),
                Need::Approve(ask) => {
                    // Who is shown the question may see all that it shows.
                    let carries = Level::of_names(&self.case.declared.shapes, &ask.carries);
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
                            format!("asks {} {} {}", ask.tool, ask.arguments, ask.digest)
                        };
                        self.log(line);
                    }
                    // A person who knows no more than the observer may say yes; what was asked above that is
                    // refused in both runs, since nothing is replayed.
                    let yes = is_seen && Random::of(&ask.digest).chance(50);
                    session.conversation.decided(if yes { Decision::Allow } else { Decision::Refuse });
                }
                Need::Run(call) => {
                    self.answer(session, &call, first);
                }
            }
        }
    }

    /// A model is shown a view: nothing in it that does not flow there, nor anything that the model may not see.
    fn shows(&mut self, whom: &str, session: &Session, view: &View, shown: &str) {
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
        if shown.contains("ImageData") {
            self.run.met.insert("an image that is shown");
        }
    }

    /// What the model wrote stands.
    fn wrote(&mut self, session: &mut Session, view: View, shown: &str, completion: Completion) {
        if self.sees(&view.label) {
            self.log(format!("sees {shown}"));
            if let Some(reply) = session.conversation.replies().last().filter(|_| !completion.text.is_empty())
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
                let line = Observed::release(session.conversation.monitor(), &view, &completion);
                self.run.log.extend(line);
            }
        }
        let slots = |arguments: &str| arguments.matches("$slot").count();
        self.run.slots += completion.calls.iter().map(|call| slots(&call.arguments)).sum::<usize>();
        let level = self.taint.level(session.conversation.monitor(), &view.label);
        if !completion.text.is_empty() {
            session.says(&level);
        }
        session.followed.wrote = Some(Wrote { level, names: view.names, completion });
        self.taint.follow(&mut session.followed, &session.conversation);
    }

    /// A slot is filled by who may read what it is filled from.
    fn fill(&mut self, session: &mut Session, request: &Request) {
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
            // What else the call holds is none of the filler's business.
            self.taint.shown("who fills one slot", &shown, &level);
            if level.flows_to(&self.case.level) {
                self.run.met.insert("a fill that the observer sees");
                self.log(format!("fills {shown}"));
            }
            if slots(wrote) > 1 {
                self.run.met.insert("two slots in a message");
            }
        }
        // Whether a model can do anything with a hidden text is a fact about the text. That there is a value of a
        // kind that is endorsed is released with it.
        if typed(request).is_none() && Random::of(&shown).chance(10) {
            self.run.met.insert("a slot that nobody could fill");
            session.conversation.unfilled();
        } else {
            self.run.met.insert("a slot that was filled");
            session.conversation.filled(&filled(request));
        }
    }

    /// A turn is over. Who may see all of its steps may see why it ended and what they took. What became of calls is seen by
    /// who may see their verdicts.
    fn ended(&mut self, turn: &Turn, is_visible: bool) {
        self.run.looks += turn.spent.looks + turn.spent.screenings;
        if turn.ended == Some(Ended::Clearance) {
            self.run.met.insert("a look beyond the model's clearance");
        }
        if is_visible {
            self.run.met.insert("a turn that the observer sees end");
            let Turn { replies, stop, spent, ended, .. } = turn;
            let Spent { messages, screenings, tokens, looks, hidden, .. } = spent;
            let spent = format!("{messages} {screenings} {tokens:?} {looks} {hidden}");
            self.log(format!("ends {replies:?} {stop:?} {ended:?} {spent}"));
        }
    }

    fn answer(&mut self, session: &mut Session, call: &Authorized, first: Option<&Session>) {
        let case = self.case;
        let event = session.trace().event(call.event()).expect("it is there").clone();
        let tool = &call.call().tool;
        let arguments = call.arguments_json();
        self.taint.ran(&session.followed, call.event(), &event, &arguments);
        // Who may know that it runs may know what an honest tool makes of it.
        let exists = self.sees(&event.decided);
        if exists {
            self.log(format!("runs {} {tool} {arguments}", call.call().id));
        }
        let before = first
            .filter(|_| exists)
            .and_then(|first| Some((first, first.answers.get(session.answers.len())?)));
        if case.tools.is_agent(tool) && session.followed.floor.is_none() {
            self.ask_agent(session, call, exists, before);
            return;
        }
        let echo = case.tools.echoes(tool).then(|| self.taint.echo(tool, &arguments));
        if echo.is_some() {
            self.run.met.insert(if exists { "an echo that is seen" } else { "an echo that is hidden" });
        }
        let (answer, spelling) = match before {
            None => change::fresh(&mut self.hidden, 5, echo.as_deref()),
            Some((first, answered)) => {
                let event = first.trace().event(answered.event).expect("it is there");
                let Body::Output(output) = &event.body else { panic!("an output") };
                let flows: Vec<bool> = first.followed.bounds[answered.event.0]
                    .parts
                    .iter()
                    .map(|bounds| bounds.iter().any(|bound| bound.flows_to(&case.level)))
                    .collect();
                let before = Before {
                    output,
                    document: &event.document,
                    spelling: answered.spelling,
                    observer: &case.label,
                    flows: &flows,
                    echo: echo.as_deref(),
                    speaks_of_errors: case.text.contains("is_error"),
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
        self.ran(session, answer, exists.then_some((spelling, None)));
    }

    fn ran(
        &mut self,
        session: &mut Session,
        answer: ToolAnswer,
        seen: Option<(world::Spelling, Option<Box<Session>>)>,
    ) {
        session.conversation.ran(answer);
        let event = EventId(session.trace().len() - 1);
        self.taint.follow(&mut session.followed, &session.conversation);
        if let Some((spelling, child)) = seen {
            session.answers.push(Answered { event, spelling, child });
        }
    }

    /// The tool is an agent: it is given what it was called with as a task, and answers what it says in the end. It works for
    /// an account of its own: what it wrote to stores of this one, the policy would have to say of the tool.
    fn ask_agent(
        &mut self,
        session: &mut Session,
        call: &Authorized,
        exists: bool,
        before: Option<(&Session, &Answered)>,
    ) {
        self.run.met.insert(if exists { "an agent that is seen" } else { "an agent that is hidden" });
        let first = before.and_then(|(_, answered)| answered.child.as_deref());
        let mut child = self.begin(first);
        let level = session.followed.bounds[call.event().0].of(0, &self.taint.oracle.bottom());
        child.followed.floor = Some(level.clone());
        let carries = session.conversation.carried_by(call);
        child.conversation.task(Value::from(call.arguments_json()), &carries).expect("room");
        let account = self.taint.enter(None);
        self.turn(&mut child, first);
        self.taint.enter(Some(account));
        let text: Vec<&str> = child.replies.iter().map(String::as_str).collect();
        let answer =
            ToolAnswer { carries: Some(child.conversation.carried()), ..ToolAnswer::text(text.join("\n")) };
        session.followed.carries = Some(child.said_level.clone().unwrap_or(level));
        self.ran(session, answer, exists.then_some((world::Spelling::Value, Some(Box::new(child)))));
    }
}

/// How many slots a message holds.
fn slots(wrote: &Wrote) -> usize {
    wrote.completion.calls.iter().map(|call| call.arguments.matches("$slot").count()).max().unwrap_or(0)
}

/// What who fills a slot is asked.
fn task(request: &Request) -> Option<Value> {
    let Some(flowgate_lm::chat::Message::User(parts)) = request.messages.last() else { return None };
    let Some(flowgate_lm::chat::Part::Text(text)) = parts.first() else { return None };
    serde_json::from_str(text.get(text.find('{')?..)?).ok()
}

/// What a model wrote, as it comes from a server that streams it in one of the forms.
fn streamed(completion: &Completion, seed: u64) -> Completion {
    let apis = Api::ALL;
    let api = apis[usize::try_from(seed).unwrap_or(0) % apis.len()];
    let events = api.encode_stream(completion, Head { id: "r", model: "worst", created: 0 }, true);
    let mut decoder = api.decoder();
    for event in events {
        decoder.feed(&event, &mut |_| ControlFlow::Continue(())).expect("what we wrote ourselves");
    }
    decoder.finish().expect("the whole stream")
}
