//! Runs conversations with an adversarial model, and records what an observer with a limited clearance sees of them.

use std::fmt::Write as _;
use std::sync::Arc;

use flowgate::label::Label;
use flowgate::monitor::Monitor;
use flowgate::policy::Policy;
use flowgate::predicates::Predicates;
use flowgate::trace::{Message, TraceEntry};
use flowgate_guard::OfferedTool;
use flowgate_guard::approve::DigestKey;
use flowgate_guard::conversation::{Conversation, ConversationSettings, Method, StepLabelling};
use flowgate_guard::history::{ClientProfile, MessageTemplate};
use serde_json::{Value, json};

use crate::chat::INSTRUCTIONS;
use crate::declared_policy::{DeclaredPolicy, StoreStatement};
use crate::form_focus::FormFocus;
use crate::forms;
use crate::observed_run::ObservedRun;
use crate::one_argument;
use crate::oracle_conditions;
use crate::oracle_label::OracleLabel;
use crate::policy::policy;
use crate::random::Random;
use crate::session::{ObservedSession, VisibleAnswer};
use crate::space::CaseDimensions;
use crate::taint_tracker::TaintTracker;
use crate::tools::CaseTools;
use crate::world;

/// One case: a policy, tools, an observer, and the messages of the user.
pub(crate) struct NoninterferenceCase {
    pub(crate) seed: u64,
    pub(crate) text: String,
    policy: Arc<Policy>,
    pub(crate) declared: DeclaredPolicy,
    pub(crate) tools: CaseTools,
    /// The observer's label, in names.
    pub(crate) observer: Value,
    /// The observer's label, as the oracle represents it.
    pub(crate) level: OracleLabel,
    pub(crate) label: Label,
    pub(crate) method: Method,
    /// Whether there are endorsements of further forms, and values that have them.
    pub(crate) has_forms: bool,
    /// Whether one argument of each tool does not flow into a part of its answers.
    pub(crate) has_one_argument: bool,
    /// The form of the statement about each tool, if the case has one for each.
    pub(crate) focus: Option<FormFocus>,
    /// Whether the user's messages from a client are trusted.
    pub(crate) trusts_client: bool,
    /// Which sessions have a chat that a client holds.
    is_chat: [bool; 2],
}

/// The state of one run of a case.
pub(crate) struct RunState<'c> {
    pub(crate) case: &'c NoninterferenceCase,
    pub(crate) taint: TaintTracker<'c>,
    pub(crate) run: ObservedRun,
    /// Source of hidden values; the second run uses another seed.
    pub(crate) hidden: Random,
    pub(crate) replay: bool,
    /// What the observer saw of the first run, in the second.
    first_log: Option<&'c [String]>,
    /// The client that holds the chat of some sessions.
    pub(crate) client: ClientProfile,
}

impl NoninterferenceCase {
    /// Generates a case, which may have endorsements of further forms.
    pub(crate) fn case(seed: u64, method: Method) -> Self {
        let has_forms = Random::of(&format!("further forms {seed}")).chance(50);
        Self::with_forms(seed, method, has_forms, false)
    }

    /// Generates a case in which one argument of each tool does not flow into a part of its answers.
    pub(crate) fn with_one_argument(seed: u64, method: Method) -> Self {
        Self::with_forms(seed, method, false, true)
    }

    /// Generates a case as it was before there were endorsements of further forms.
    pub(crate) fn without_forms(seed: u64, method: Method) -> Self {
        Self::with_forms(seed, method, false, false)
    }

    fn with_forms(seed: u64, method: Method, has_forms: bool, has_one_argument: bool) -> Self {
        let mut random = Random::new(seed);
        let (space, tools) = (CaseDimensions::new(&mut random), CaseTools::new(&mut random));
        // Not drawn from the same source, so that the other cases stay what they are.
        let accepts_much = Random::of(&format!("accepts more {seed}")).chance(40);
        let (mut text, mut declared) = policy(&mut random, &space, &tools, accepts_much);
        let is_focused = has_forms && Random::of(&format!("one form for each tool? {seed}")).chance(70);
        let focus = is_focused.then(|| FormFocus::new(seed, &space, &tools, &mut text, &mut declared));
        if Random::of(&format!("grants {seed}")).chance(if is_focused { 70 } else { 40 }) {
            text = with_grants(&text, grant_scopes(seed, has_forms));
            if has_forms {
                let writers =
                    if is_focused { &["t0", "t1", "t2", "t3", "t4"][..] } else { &["t1", "t3"][..] };
                store_that_nobody_reads(writers, &mut text, &mut declared);
            }
        }
        if has_forms && !is_focused {
            forms::mix(seed, &tools, &mut text, &mut declared);
        }
        if has_one_argument {
            one_argument::add(seed, &space, &tools, &mut text, &mut declared);
            store_that_nobody_reads(&["t0", "t1", "t2", "t3", "t4"], &mut text, &mut declared);
        }
        let policy = Policy::parse(&text).unwrap_or_else(|errors| panic!("seed {seed}: {errors:?}\n{text}"));
        let policy = Arc::new(policy);
        let observer = space.observer(&mut random);
        let level = OracleLabel::of_names(&declared.shapes, &observer);
        let label = Monitor::new(Arc::clone(&policy)).from_names(&observer);
        let trusts_client = random.chance(85);
        // Labels of steps are replayed for whole turns, not for the parts of a turn between which tools run.
        let is_strict = [Method::LowestFirst, Method::NeverLook].contains(&method);
        let is_chat = [random.chance(25), random.chance(60)].map(|is_chat| is_chat && is_strict);
        Self {
            seed,
            text,
            policy,
            declared,
            tools,
            observer,
            level,
            label,
            method,
            has_forms,
            has_one_argument,
            focus,
            trusts_client,
            is_chat,
        }
    }

    /// Creates the monitor of a session. The observer's names are interned first, so that they are the same
    /// bits in each session.
    pub(crate) fn monitor(&self) -> Monitor {
        let mut monitor = Monitor::new(Arc::clone(&self.policy));
        if self.has_forms {
            monitor.record_inputs();
        }
        let mut predicates = Predicates::new();
        predicates.define("known", |arguments| Ok(json!(oracle_conditions::is_known(&arguments[0]))));
        monitor.set_predicates(predicates, Vec::new());
        assert_eq!(monitor.from_names(&self.observer), self.label);
        if self.method == Method::Judge {
            // Labels are replayed as bits.
            let names = world::names();
            monitor.from_names(&json!({"readers": names, "sources": names}));
        }
        monitor
    }

    /// Returns the tools on offer.
    pub(crate) fn offered(&self) -> Vec<OfferedTool> {
        let mut offered = self.tools.offered();
        if let Some(focus) = &self.focus {
            focus.declare_numbers(&mut offered);
        }
        offered
    }

    pub(crate) fn sees(&self, label: &Label) -> bool {
        label.flows_to(&self.label)
    }

    /// Whether nothing is replayed.
    pub(crate) fn is_strict(&self) -> bool {
        [Method::LowestFirst, Method::NeverLook].contains(&self.method)
    }

    pub(crate) fn first(&self) -> ObservedRun {
        self.run(None, false)
    }

    /// Runs the case with everything changed that the observer may not see, according to the monitor or to
    /// the oracle.
    ///
    /// With `replay`, the labels of steps are those of the first run.
    pub(crate) fn second<'c>(&'c self, first: &'c ObservedRun, replay: bool) -> ObservedRun {
        self.run(Some(first), replay)
    }

    pub(crate) fn settings(&self) -> ConversationSettings {
        let mut settings = ConversationSettings::new(self.method, DigestKey::new([1; 32]));
        settings.steps = 4;
        settings.levels = 4;
        settings.step_labels = if self.floats() { StepLabelling::Floating } else { StepLabelling::Fixed };
        settings.hides_context = self.hides_memory();
        settings
    }

    /// Whether the labels of steps float; in some cases they are fixed.
    pub(crate) fn floats(&self) -> bool {
        !self.seed.is_multiple_of(5) && !self.hides_memory()
    }

    /// Whether the replay of a session's serialised journal does not diverge.
    pub(crate) fn comes_to_the_same(&self, session: &mut ObservedSession) -> bool {
        let mut again = Conversation::new(self.monitor(), self.offered(), self.settings()).expect("room");
        session.repeat(&mut again);
        let print = |conversation: &Conversation| {
            let top = conversation.monitor().policy().space().top();
            let (view, trace) = (conversation.view_at(top).request, conversation.monitor().trace());
            format!("{view:?} {} {:?}", conversation.monitor().external_state_record(), trace.events())
        };
        print(&session.conversation) == print(&again)
    }

    /// Whether memories are retrieved of which the observer may not see that they are. The labels of steps are then fixed.
    pub(crate) fn hides_memory(&self) -> bool {
        if !self.seed.is_multiple_of(3) {
            return false;
        }
        let mut monitor = self.monitor();
        let (event, _) = monitor.push(TraceEntry::from(Message::new("memory", "x"))).expect("room");
        !self.sees(&monitor.trace().existence_label(event))
    }

    /// Runs two consecutive sessions of one account.
    fn run<'c>(&'c self, first: Option<&'c ObservedRun>, replay: bool) -> ObservedRun {
        let hidden = Random::new(self.seed ^ if first.is_some() { 0xabcd_ef01 } else { 0x1234 });
        let (taint, run) = (TaintTracker::new(&self.declared), ObservedRun::default());
        let client = ClientProfile { is_interactive: self.trusts_client, ..ClientProfile::default() };
        let first_log = first.map(|first| &*first.log);
        let mut made = RunState { case: self, taint, run, hidden, replay, first_log, client };
        made.client.pinned.push(MessageTemplate::new(INSTRUCTIONS));
        for number in 0..2 {
            made.taint.next_session();
            let mut session = made.begin(first.map(|first| &first.sessions[number]));
            if let Some(before) = made.run.sessions.last() {
                let remembered = before.conversation.monitor().external_state_record();
                session.conversation.join_external_state(&remembered).expect("what was remembered");
            }
            let first = first.map(|first| &first.sessions[number]);
            if self.is_chat[number] {
                made.chat(&mut session, first, number);
            } else {
                made.session(&mut session, first, number);
            }
            made.run.sessions.push(session);
        }
        let RunState { taint, mut run, .. } = made;
        run.met.extend(taint.met);
        run.met.extend(taint.oracle.met.into_inner());
        (run.broken, run.parts) = (taint.broken, taint.parts);
        run.note(&self.label);
        run
    }
}

impl RunState<'_> {
    /// Returns the answer of the first run with this index among those that the observer may see.
    ///
    /// `None` once the observer has seen anything else than of the first run: after a difference that the policy releases,
    /// the calls of the two runs no longer correspond, and neither do their answers.
    pub(crate) fn answer_before<'s>(
        &self,
        first: Option<&'s ObservedSession>,
        index: Option<usize>,
    ) -> Option<(&'s ObservedSession, &'s VisibleAnswer)> {
        if self.first_log.is_some_and(|first| !first.starts_with(&self.run.log)) {
            return None;
        }
        let first = first?;
        let answered = first.answers.get(index?)?;
        first.trace().event(answered.event).is_some().then_some((first, answered))
    }
}

/// Declares stores that these tools write and no tool reads: calls of tools that read no store can be approved for the
/// rest of a conversation.
fn store_that_nobody_reads(tools: &[&str], text: &mut String, declared: &mut DeclaredPolicy) {
    for &tool in tools {
        let _ = writeln!(text, "store s{}: written by {tool}, read by nobody", declared.stores.len());
        declared.stores.push(StoreStatement { written: tool.to_owned(), read: "nobody".to_owned() });
    }
}

/// Returns the scopes for which the policy of a case lets people answer: in some cases one for all statements, since a
/// question has the shortest scope of its reasons.
fn grant_scopes(seed: u64, has_forms: bool) -> &'static [&'static str] {
    static SCOPES: [&str; 4] = ["conversation", "conversation by class", "30 days by class", "always"];
    let mut random = Random::of(&format!("scopes {seed}"));
    match (has_forms, random.chance(70)) {
        (false, _) => &SCOPES[..1],
        (true, true) => {
            let one = random.below(SCOPES.len());
            SCOPES.get(one..=one).expect("one of them")
        }
        (true, false) => &SCOPES,
    }
}

/// Lets people answer the questions of a policy for more than one call, for one of these scopes each.
fn with_grants(policy: &str, scopes: &[&str]) -> String {
    let line = |line: &str| match line.strip_suffix(" if:") {
        Some(head)
            if head.starts_with("ask ") || head.starts_with("require ") && !head.ends_with(" else deny") =>
        {
            let scope = Random::of(head).of_list(scopes);
            format!("{head} grant {scope} if:\n")
        }
        _ => format!("{line}\n"),
    };
    policy.lines().map(line).collect()
}
