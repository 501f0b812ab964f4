//! A conversation with the worst model, seen by somebody who may not see everything.

use std::ops::ControlFlow;
use std::sync::Arc;

use flowgate::label::Label;
use flowgate::monitor::{Authorized, Monitor};
use flowgate::policy::Policy;
use flowgate::trace::{Body, Entry, EventId, Message};
use flowgate_guard::Words;
use flowgate_guard::approve::{Decision, DigestKey};
use flowgate_guard::conversation::{Conversation, Method, Need, Settings};
use flowgate_guard::history::{Client, History};
use flowgate_guard::journal::Input;
use flowgate_lm::chat::Completion;
use flowgate_lm::wire::{Api, Head};
use serde_json::{Value, json};

use crate::change::{self, Before};
use crate::model::{chosen, filled, typed, worst};
use crate::observed::Observed;
use crate::policy::policy;
use crate::random::Random;
use crate::space::Space;
use crate::tools::{self, Tools};
use crate::world;

/// One case: a policy, tools, an observer, what the user says.
pub(crate) struct Run {
    seed: u64,
    pub(crate) text: String,
    policy: Arc<Policy>,
    pub(crate) tools: Tools,
    /// What the observer may see, in names.
    pub(crate) observer: Value,
    label: Label,
    method: Method,
}

impl Run {
    pub(crate) fn case(seed: u64, method: Method) -> Self {
        let mut random = Random::new(seed);
        let (space, tools) = (Space::new(&mut random), Tools::new(&mut random));
        let text = policy(&mut random, &space, &tools);
        let policy = Policy::parse(&text).unwrap_or_else(|errors| panic!("seed {seed}: {errors:?}\n{text}"));
        let policy = Arc::new(policy);
        let observer = space.observer(&mut random);
        let label = Monitor::new(Arc::clone(&policy)).from_names(&observer);
        Self { seed, text, policy, tools, observer, label, method }
    }

    /// A session. The observer's names are the first that it meets, so that they are the same bits in each.
    fn monitor(&self) -> Monitor {
        let mut monitor = Monitor::new(Arc::clone(&self.policy));
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

    pub(crate) fn first(&self) -> Observed {
        self.run(None, false)
    }

    /// The same with everything changed that the observer may not see.
    ///
    /// With `replay`, labels of steps are those of the first run.
    pub(crate) fn second(&self, first: &Observed, replay: bool) -> Observed {
        self.run(Some(first), replay)
    }

    /// What servers say of their tools is hidden from some, like anything that they say.
    fn conversation(&self, first: Option<&Observed>, hidden: &mut Random) -> (Conversation, usize) {
        let mut offered = self.tools.offered();
        let mut changed = 0;
        let described = offered.iter_mut().filter(|offered| offered.words == Words::Server);
        for (index, offered) in described.enumerate() {
            let Some(event) = first.and_then(|first| first.trace().event(EventId(index))) else { continue };
            let shows = |key| {
                let node = event.document.key(0, key).and_then(|node| event.document.node(node));
                node.is_some_and(|node| self.sees(&node.label))
            };
            if !shows("description") {
                changed += 1;
                offered.description = world::plain(hidden).to_string();
            }
            if !shows("inputSchema") {
                changed += 1;
                offered.parameters = tools::other_parameters(hidden);
                offered.output = Some(json!({"type": "array"})).filter(|_| hidden.chance(50));
            }
        }
        let mut settings = Settings::new(self.method, DigestKey::new([1; 32]));
        settings.steps = 4;
        settings.levels = 4;
        let mut conversation = Conversation::new(self.monitor(), offered, settings).expect("room");
        conversation.keep_inputs();
        (conversation, changed)
    }

    /// Whether a conversation that is made again from what was put into this one, and kept as text meanwhile, comes to the
    /// same.
    pub(crate) fn comes_to_the_same(&self, run: &mut Observed) -> bool {
        let kept: Vec<String> =
            run.conversation.inputs().iter().map(|input| json!(input).to_string()).collect();
        let inputs: Vec<Input> =
            kept.iter().map(|text| serde_json::from_str(text).expect("an input")).collect();
        let (mut again, _) = self.conversation(None, &mut Random::new(0));
        again.again(&mut Client::default(), &mut History::new(), &inputs).expect("the same");
        let print = |conversation: &Conversation| {
            let top = conversation.monitor().policy().space().top();
            let (view, trace) = (conversation.view_at(top).request, conversation.monitor().trace());
            format!("{view:?} {} {:?}", conversation.remember(), trace.events())
        };
        print(&run.conversation) == print(&again)
    }

    /// Whether the observer may not know that something was retrieved.
    fn hides_memory(&self) -> bool {
        let mut monitor = self.monitor();
        let message = Message { role: "memory".to_owned(), content: json!("x") };
        let (event, _) = monitor.push(Entry::from(Body::Message(message))).expect("room");
        !self.sees(&monitor.trace().existence(event))
    }

    /// What the user says, or anything else if the observer may not see it.
    fn said(&self, said: Value, first: Option<&Observed>, turn: usize, hidden: &mut Random) -> Value {
        let event = first.and_then(|first| first.trace().event(*first.said.get(turn)?));
        let Some(document) = event.map(|event| &event.document) else { return said };
        let content = document.key(0, "content").and_then(|node| document.node(node));
        if content.is_some_and(|node| self.sees(&node.label)) { said } else { world::plain(hidden) }
    }

    fn run(&self, first: Option<&Observed>, replay: bool) -> Observed {
        // What is not visible is drawn from another seed in the second run.
        let mut hidden = Random::new(self.seed ^ if first.is_some() { 0xabcd_ef01 } else { 0x1234 });
        let mut shared = Random::new(self.seed ^ 0x5555);
        let (conversation, changed) = self.conversation(first, &mut hidden);
        let mut run = Observed::new(conversation, changed);
        let memory = self.hides_memory();
        for turn in 0..3 {
            if memory && hidden.chance(50) {
                run.changed += 1;
                let content = world::anything(&mut hidden, 2);
                run.conversation.note("memory", content).expect("room");
            }
            let user = json!(format!("turn {turn}: {}", world::scalar(&mut shared)));
            let user = self.said(user, first, turn, &mut hidden);
            run.said.push(run.conversation.user(user).expect("room"));
            run.labels.push(Vec::new());
            let labels = first.filter(|_| replay).and_then(|first| first.labels.get(turn));
            self.turn(&mut run, first, labels, &mut hidden);
        }
        let last = run.conversation.view_at(self.label);
        run.log.push(format!("in the end {:?}", last.request));
        run.note(&self.label);
        run
    }

    fn turn(
        &self,
        run: &mut Observed,
        first: Option<&Observed>,
        labels: Option<&Vec<Label>>,
        hidden: &mut Random,
    ) {
        let mut written = Vec::new();
        loop {
            let steps = run.labels.last().map_or(0, Vec::len);
            if let Some(label) = labels.and_then(|labels| labels.get(steps)) {
                run.conversation.choose(*label);
            }
            match run.conversation.need() {
                Need::User(turn) => {
                    run.looks += turn.spent.looks + turn.spent.screenings;
                    // How many steps there were is a part of the sequence of labels.
                    if labels.is_none_or(|labels| steps >= labels.len()) {
                        return;
                    }
                    run.conversation.go_on();
                }
                Need::Complete(_) if labels.is_some_and(|labels| steps >= labels.len()) => return,
                Need::Complete(view) => {
                    let shown = format!("{:?}", view.request);
                    let completion = streamed(&worst(&view.request, &shown), self.seed);
                    let stands = run.conversation.completed(completion.clone());
                    written.push((view, shown, completion));
                    let Some(label) = stands else { continue };
                    // What was written again is as if it had never been written.
                    let stood = written.drain(..).find(|(view, ..)| view.label == label);
                    let (view, shown, completion) = stood.expect("one of them stands");
                    run.labels.last_mut().expect("a turn").push(label);
                    if self.sees(&label) {
                        run.log.push(format!("sees {shown}"));
                    }
                    if self.sees(&label) && self.text.contains("endorse ") {
                        run.release(&view, &completion);
                    }
                    run.slots += completion.calls.iter().filter(|c| c.arguments.contains("$slot")).count();
                }
                Need::Screen(request) => run.conversation.screened(&chosen(&request)),
                // Whether a model can do anything with a hidden text is a fact about the text. That there is a value of a
                // kind that is endorsed is released with it.
                Need::Fill(request)
                    if typed(&request).is_none() && Random::of(&format!("{request:?}")).chance(10) =>
                {
                    run.conversation.unfilled();
                }
                Need::Fill(request) => run.conversation.filled(&filled(&request)),
                Need::Approve(ask) => {
                    if self.sees(&ask.decided) {
                        run.log.push(format!("asks {} {} {}", ask.tool, ask.arguments, ask.digest));
                    }
                    // A person who knows no more than the observer may say yes; what was asked above that is
                    // refused in both runs, since nothing is replayed.
                    let yes = self.sees(&ask.decided) && Random::of(&ask.digest).chance(50);
                    run.conversation.decided(if yes { Decision::Allow } else { Decision::Refuse });
                }
                Need::Run(call) => self.answer(run, &call, first, hidden),
            }
        }
    }

    fn answer(&self, run: &mut Observed, call: &Authorized, first: Option<&Observed>, hidden: &mut Random) {
        // Who may know that it runs may know what an honest tool makes of it.
        let exists = self.sees(&run.trace().event(call.event()).expect("it is there").decided);
        if exists {
            run.log.push(format!("runs {} {}", call.call().tool, call.arguments_json()));
        }
        let before =
            first.filter(|_| exists).and_then(|first| first.answers.get(run.answers.len()).zip(Some(first)));
        let (answer, spelling) = match before {
            None => change::fresh(hidden, 5),
            Some(((event, spelling), first)) => {
                let event = first.trace().event(*event).expect("it is there");
                let Body::Output(output) = &event.body else { panic!("an output") };
                let speaks_of_errors = self.text.contains("is_error");
                let (document, observer, spelling) = (&event.document, &self.label, *spelling);
                let before = Before { output, document, spelling, observer, speaks_of_errors };
                before.changed(hidden, &mut run.changed)
            }
        };
        run.conversation.ran(answer);
        if exists {
            let last = run.trace().len() - 1;
            run.answers.push((EventId(last), spelling));
        }
    }
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
