//! A conversation with the worst model, seen by somebody who may not see everything.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;

use flowgate::label::Label;
use flowgate::monitor::Monitor;
use flowgate::policy::Policy;
use flowgate::trace::{Body, Content, Entry, EventId, Message, Node, Tool};
use flowgate_guard::approve::{Decision, DigestKey};
use flowgate_guard::conversation::{Conversation, Method, Need, Settings, ToolAnswer};
use flowgate_guard::{Offered, Words};
use flowgate_lm::chat::{Completion, Request, ToolCall};
use serde_json::{Value, json};

use crate::policy::{TOOLS, policy};
use crate::random::Random;
use crate::world::{self, Spelling};

/// One case: a policy, an observer, what the user says.
pub(crate) struct Run {
    seed: u64,
    text: String,
    policy: Arc<Policy>,
    observer: Label,
    observer_name: String,
    method: Method,
}

/// What the observer saw of a run, and what the run was.
pub(crate) struct Observed {
    /// Views, calls and questions at or below the observer's label.
    pub(crate) log: Vec<String>,
    /// The answers to the calls that the observer may know to run, in order, with their spelling.
    answers: Vec<(EventId, Spelling)>,
    conversation: Conversation,
    pub(crate) looks: usize,
    pub(crate) slots: usize,
    /// The labels of the steps of each turn.
    labels: Vec<Vec<Label>>,
    /// How many hidden parts were given other values than in the first run.
    pub(crate) changed: usize,
}

impl Observed {
    /// The first thing that the observer would notice.
    pub(crate) fn difference(one: &Self, two: &Self) -> Option<String> {
        let longest = one.log.len().max(two.log.len());
        let differs = (0..longest).find(|index| one.log.get(*index) != two.log.get(*index))?;
        let (a, b) = (one.log.get(differs), two.log.get(differs));
        let same = a.zip(b).map_or(0, |(a, b)| a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count());
        let at = |line: Option<&String>| match line {
            None => "nothing more".to_owned(),
            Some(line) => {
                let from = (0..=same.saturating_sub(300)).rev().find(|at| line.is_char_boundary(*at));
                line[from.unwrap_or(0)..].chars().take(600).collect()
            }
        };
        Some(format!("at {differs}:\n  first  {}\n  second {}", at(a), at(b)))
    }
}

impl Run {
    pub(crate) fn case(seed: u64, method: Method) -> Self {
        let mut random = Random::new(seed);
        let text = policy(&mut random);
        let policy = Policy::parse(&text).unwrap_or_else(|errors| panic!("seed {seed}: {errors:?}\n{text}"));
        let mut element = |dimension: &str, names: &[&str]| {
            let name = names[random.below(names.len())];
            (name.to_owned(), policy.space().element(dimension, name).expect("declared").label)
        };
        let (integrity, one) = element("integrity", &["trusted", "untrusted"]);
        let (secrecy, two) = element("secrecy", &["public", "internal", "private"]);
        Self {
            seed,
            text,
            observer: one.join(&two),
            observer_name: format!("{integrity}, {secrecy}"),
            policy: Arc::new(policy),
            method,
        }
    }

    pub(crate) fn observer(&self) -> &str {
        &self.observer_name
    }

    pub(crate) fn policy_text(&self) -> &str {
        &self.text
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

    fn conversation(&self) -> Conversation {
        let offered = |index: usize| Offered {
            tool: Tool::local(&format!("t{index}")),
            description: format!("the tool number {index}"),
            parameters: json!({"type": "object", "properties": {"a": {}, "b": {}}}),
            output: index
                .is_multiple_of(2)
                .then(|| json!({"type": "object", "properties": {"s": {"type": "string"}}})),
            words: Words::Operator,
        };
        let mut settings = Settings::new(self.method, DigestKey::new([1; 32]));
        settings.steps = 4;
        settings.levels = 4;
        let monitor = Monitor::new(Arc::clone(&self.policy));
        Conversation::new(monitor, (0..TOOLS).map(offered).collect(), settings).expect("room")
    }

    /// Whether the observer may not know that something was retrieved.
    fn hides_memory(&self) -> bool {
        let mut monitor = Monitor::new(Arc::clone(&self.policy));
        let message = Message { role: "memory".to_owned(), content: json!("x") };
        let (event, _) = monitor.push(Entry::from(Body::Message(message))).expect("room");
        !monitor.trace().existence(event).flows_to(&self.observer)
    }

    fn run(&self, first: Option<&Observed>, replay: bool) -> Observed {
        let mut run = Observed {
            log: Vec::new(),
            answers: Vec::new(),
            conversation: self.conversation(),
            looks: 0,
            slots: 0,
            labels: Vec::new(),
            changed: 0,
        };
        // What is not visible is drawn from another seed in the second run.
        let mut hidden = Random::new(self.seed ^ if first.is_some() { 0xabcd_ef01 } else { 0x1234 });
        let mut shared = Random::new(self.seed ^ 0x5555);
        let memory = self.hides_memory();
        for turn in 0..3 {
            if memory && hidden.chance(50) {
                run.changed += 1;
                let content = world::anything(&mut hidden, 2);
                run.conversation.note("memory", content).expect("room");
            }
            let user = json!(format!("turn {turn}: {}", world::scalar(&mut shared)));
            run.conversation.user(user).expect("room");
            run.labels.push(Vec::new());
            let labels = first.filter(|_| replay).and_then(|first| first.labels.get(turn));
            self.turn(&mut run, first, labels, &mut hidden);
        }
        let last = run.conversation.view_at(self.observer);
        run.log.push(format!("in the end {:?}", last.request));
        run
    }

    fn turn(
        &self,
        run: &mut Observed,
        first: Option<&Observed>,
        labels: Option<&Vec<Label>>,
        hidden: &mut Random,
    ) {
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
                    run.labels.last_mut().expect("a turn").push(view.label);
                    let shown = format!("{:?}", view.request);
                    if view.label.flows_to(&self.observer) {
                        run.log.push(format!("sees {shown}"));
                    }
                    let completion = worst(&view.request, &shown);
                    run.slots += completion.calls.iter().filter(|c| c.arguments.contains("$slot")).count();
                    run.conversation.completed(completion);
                }
                Need::Screen(request) => run.conversation.screened(&chosen(&request)),
                Need::Fill(request) => {
                    // It may say anything, and so does: all of what it was shown.
                    let text = format!("{:?}", request.messages);
                    run.conversation.filled(&Completion { text, ..Completion::default() });
                }
                Need::Approve(ask) => {
                    if ask.decided.flows_to(&self.observer) {
                        run.log.push(format!("asks {} {} {}", ask.tool, ask.arguments, ask.digest));
                    }
                    // A person who knows no more than the observer may say yes; what was asked above that is
                    // refused in both runs, since nothing is replayed.
                    let yes = ask.decided.flows_to(&self.observer) && Random::of(&ask.digest).chance(50);
                    run.conversation.decided(if yes { Decision::Allow } else { Decision::Refuse });
                }
                Need::Run(call) => {
                    let trace = run.conversation.monitor().trace();
                    let event = trace.event(call.event()).expect("it is there");
                    // Who may know that it runs may know what an honest tool makes of it.
                    let exists = event.decided.flows_to(&self.observer);
                    if exists {
                        run.log.push(format!("runs {} {}", call.call().tool, call.arguments_json()));
                    }
                    self.answer(run, first, hidden, exists);
                }
            }
        }
    }

    fn answer(&self, run: &mut Observed, first: Option<&Observed>, hidden: &mut Random, exists: bool) {
        let nth = run.answers.len();
        let recorded = first.filter(|_| exists).and_then(|first| Some((first, first.answers.get(nth)?)));
        let fresh = |random: &mut Random, errors: usize| {
            let (value, spelling) = (world::answer(random), world::spelling(random));
            (world::spell(&value, spelling), random.chance(errors), spelling)
        };
        let (content, is_error, spelling) = match recorded {
            None => fresh(hidden, 5),
            Some((first, (event, spelling))) => {
                let event = first.conversation.monitor().trace().event(*event).expect("it is there");
                let Body::Output(output) = &event.body else { panic!("an output") };
                let document = &event.document;
                let content = document.key(0, "content").expect("an answer has content");
                let shows =
                    |node| document.node(node).is_some_and(|node: &Node| node.label.flows_to(&self.observer));
                let before = run.changed;
                if !shows(0) || !shows(content) {
                    run.changed += 1;
                    let is_text = matches!(
                        document.node(content).map(|node: &Node| &node.content),
                        Some(Content::Scalar(value)) if !value.is_null()
                    );
                    if is_text {
                        (world::plain(hidden), output.is_error, *spelling)
                    } else {
                        // An error is top whatever the tool's answers are; that there was one is as visible as they are.
                        fresh(hidden, if output.is_error { 100 } else { 20 })
                    }
                } else {
                    let value = world::changed(document, content, &self.observer, hidden, &mut run.changed);
                    // What has not changed is spelled as it was.
                    let is_by_chance = output.content.is_string() && matches!(spelling, Spelling::Value);
                    let text = if run.changed == before || is_by_chance {
                        output.content.clone()
                    } else {
                        world::spell(&value, *spelling)
                    };
                    (text, output.is_error, *spelling)
                }
            }
        };
        let answer = ToolAnswer { content, structured: None, is_error, carries: None };
        run.conversation.ran(answer);
        if exists {
            let last = run.conversation.monitor().trace().len() - 1;
            run.answers.push((EventId(last), spelling));
        }
    }
}

/// What a screener's model answers: anything, depending on all that it sees.
fn chosen(request: &Request) -> Completion {
    let shown = format!("{request:?}");
    let mut random = Random::of(&shown);
    let names: Vec<String> = (1..6).filter(|_| random.chance(40)).map(|n| format!("h{n}")).collect();
    let arguments = json!({"reasoning": "", "regions": names}).to_string();
    let arguments = if random.chance(5) { "no".to_owned() } else { arguments };
    let call = ToolCall { id: "x".to_owned(), name: "needed_regions".to_owned(), arguments };
    Completion { calls: vec![call], ..Completion::default() }
}

/// What the worst model writes: everything that it sees decides everything that it does.
fn worst(request: &Request, shown: &str) -> Completion {
    let mut random = Random::of(shown);
    let mut names: Vec<String> = Vec::new();
    for (at, _) in shown.match_indices("[hidden h") {
        let digits: String = shown[at + 9..].chars().take_while(char::is_ascii_digit).collect();
        names.push(format!("h{digits}"));
    }
    let mut completion = Completion::default();
    if random.chance(50) {
        completion.text = format!("{:x} me", random.next());
    }
    for index in 0..random.below(4) {
        let mut arguments: HashMap<&str, Value> = HashMap::new();
        let tool = &request.tools[random.below(request.tools.len())];
        let mut name = tool.name.clone();
        if tool.name == "look" {
            let regions: Vec<&String> =
                (0..1 + random.below(2)).map(|_| &names[random.below(names.len())]).collect();
            arguments.insert("regions", json!(regions));
            arguments.insert("then_return", json!(random.chance(60)));
        } else {
            arguments.insert("a", Value::String(copied(&mut random, shown)));
            if !names.is_empty() && random.chance(50) {
                let mut slot = json!({"regions": [names[random.below(names.len())]]});
                if random.chance(50) {
                    slot["fill"] = json!(copied(&mut random, shown));
                }
                arguments.insert("b", json!({"$slot": slot}));
            } else if random.chance(30) {
                arguments.insert("b", Value::String(copied(&mut random, shown)));
            }
        }
        if random.chance(3) {
            let _ = write!(name, "_{}", random.next());
        }
        let mut keys: Vec<&&str> = arguments.keys().collect();
        keys.sort();
        let spaces = " ".repeat(random.below(3));
        let fields: Vec<String> =
            keys.iter().map(|key| format!("{spaces}{key:?}: {}", arguments[**key])).collect();
        let arguments = format!("{{{}}}", fields.join(","));
        completion.calls.push(ToolCall { id: format!("{index}{:x}", random.next()), name, arguments });
    }
    completion
}

/// Some of what is seen, or something that policies ask for.
fn copied(random: &mut Random, shown: &str) -> String {
    if random.chance(50) {
        return random.of_list(&["me", "you", "secret", "x"]).to_owned();
    }
    let characters: Vec<char> = shown.chars().collect();
    let start = random.below(characters.len());
    characters.iter().skip(start).take(random.below(60)).collect()
}

impl Observed {
    /// What happened, with labels, for whoever looks for a leak.
    pub(crate) fn dump(&self) -> String {
        let monitor = self.conversation.monitor();
        let mut text = String::new();
        for (turn, labels) in self.labels.iter().enumerate() {
            let labels: Vec<String> = labels.iter().map(|label| monitor.describe(label).join("+")).collect();
            let _ = writeln!(text, "turn {turn}: {}", labels.join(", "));
        }
        for (index, event) in monitor.trace().events().iter().enumerate() {
            let exists = monitor.trace().existence(EventId(index));
            let body = match &event.body {
                Body::Message(message) => format!("{}: {}", message.role, message.content),
                Body::Call(call) => format!("call {} {:?}", call.tool, call.arguments),
                Body::Output(output) => format!("out error={} {}", output.is_error, output.content),
                Body::Tool(_) => continue,
            };
            let body: String = body.chars().take(160).collect();
            let labels = [exists, event.label, event.decided].map(|label| monitor.describe(&label).join("+"));
            let _ = writeln!(
                text,
                "#{index} exists {} label {} decided {}: {body}",
                labels[0], labels[1], labels[2]
            );
        }
        text
    }
}
