//! Owns one conversation of a run, and what is known about it.

use std::fmt::Write as _;

use flowgate::label::Label;
use flowgate::monitor::ReasonKind;
use flowgate::policy::GrantScope;
use flowgate::trace::{EventId, NodeId, Region, Tool, Trace};
use flowgate_guard::approve::ApprovalRequest;
use flowgate_guard::conversation::{CallVerdict, Conversation};
use flowgate_guard::history::{ClientProfile, History, MessageTemplate};
use flowgate_guard::journal::Input;
use serde_json::{Value, json};

use crate::chat::{ClientHeldChat, INSTRUCTIONS};
use crate::declared_policy::DeclaredPolicy;
use crate::oracle_label::OracleLabel;
use crate::taint_tracker::TrackedSession;
use crate::world::AnswerSpelling;

/// The forms of approvals for more than one call, and what a call may differ in that one permits.
pub(crate) const GRANTS: [&str; 7] = [
    "a grant for a conversation",
    "a grant for a conversation by class",
    "a grant for days by class",
    "a grant for good",
    "a grant of the same values",
    "a grant of another payload",
    "a grant of another value of a class",
];

/// A recorded step of a session, for its replay.
enum SessionAction {
    /// Serialised inputs of the conversation.
    Inputs(Vec<String>),
    /// An action next to the conversation.
    Beside(Box<dyn Fn(&mut Conversation)>),
}

/// An answer to a call that the observer may see.
pub(crate) struct VisibleAnswer {
    pub(crate) event: EventId,
    pub(crate) spelling: AnswerSpelling,
    /// The session of the agent that answered.
    pub(crate) child: Option<Box<ObservedSession>>,
}

/// One conversation.
pub(crate) struct ObservedSession {
    pub(crate) conversation: Conversation,
    pub(crate) answers: Vec<VisibleAnswer>,
    /// The messages of the user.
    pub(crate) said: Vec<EventId>,
    /// The schemas that the client demanded.
    pub(crate) formats: Vec<EventId>,
    /// The labels of the steps of each turn, in names.
    pub(crate) labels: Vec<Vec<Value>>,
    /// The number of requests to the screener in each turn.
    pub(crate) screenings: Vec<usize>,
    pub(crate) followed: TrackedSession,
    /// The replies of the model, as they were shown.
    pub(crate) replies: Vec<String>,
    /// The least label of the replies.
    pub(crate) said_level: Option<OracleLabel>,
    /// The chat, if a client holds it.
    pub(crate) chat: Option<ClientHeldChat>,
    /// The calls that a person allowed for the rest of the conversation.
    pub(crate) granted: Vec<(Tool, Value)>,
    /// The recorded steps, in order.
    kept: Vec<SessionAction>,
}

impl ObservedSession {
    pub(crate) fn new(conversation: Conversation) -> Self {
        Self {
            conversation,
            answers: Vec::new(),
            said: Vec::new(),
            formats: Vec::new(),
            labels: Vec::new(),
            screenings: Vec::new(),
            followed: TrackedSession::default(),
            replies: Vec::new(),
            said_level: None,
            chat: None,
            granted: Vec::new(),
            kept: Vec::new(),
        }
    }

    /// Returns the features of a verdict that follows from an approval for the rest of the conversation: the scope that
    /// the policy offers, and whether the call has the approved value of `b` or another value. A payload argument may
    /// have any other value.
    pub(crate) fn uses_grant(&self, verdict: &CallVerdict, declared: &DeclaredPolicy) -> Vec<&'static str> {
        let granted = verdict.reasons.iter().filter(|reason| reason.kind == ReasonKind::Granted);
        // The shortest scope of the statements counts.
        let Some(reason) = granted.min_by_key(|reason| reason.grant_scope) else { return Vec::new() };
        let scope = match (reason.grant_scope, reason.grants_class) {
            (GrantScope::Always, _) => "a grant for good",
            (GrantScope::Days(_), _) => "a grant for days by class",
            (_, true) => "a grant for a conversation by class",
            (_, false) => "a grant for a conversation",
        };
        let b = verdict.arguments.get("b");
        let mut granted = self.granted.iter().filter(|(tool, _)| *tool == verdict.tool);
        let is_payload =
            declared.payload.iter().any(|pattern| DeclaredPolicy::speaks_of(pattern, &verdict.tool));
        let value = match (granted.any(|(_, arguments)| arguments.get("b") == b), is_payload) {
            (true, _) => "a grant of the same values",
            (false, true) => "a grant of another payload",
            (false, false) => "a grant of another value of a class",
        };
        vec![scope, value]
    }

    /// Performs an action on the session next to its conversation, and records it for the replay.
    pub(crate) fn beside<T>(&mut self, act: impl Fn(&mut Conversation) -> T + 'static) -> T {
        self.keep();
        let done = act(&mut self.conversation);
        self.kept.push(SessionAction::Beside(Box::new(move |conversation| drop(act(conversation)))));
        done
    }

    fn keep(&mut self) {
        let inputs =
            self.conversation.journal_mut().take().iter().map(|input| json!(input).to_string()).collect();
        self.kept.push(SessionAction::Inputs(inputs));
    }

    /// Replays the session on another conversation.
    pub(crate) fn repeat(&mut self, conversation: &mut Conversation) {
        self.keep();
        let (mut client, mut history) = (ClientProfile::default(), History::new());
        client.pinned.push(MessageTemplate::new(INSTRUCTIONS));
        client.is_interactive = self.chat.as_ref().is_some_and(|chat| chat.is_trusted);
        for kept in &self.kept {
            match kept {
                SessionAction::Inputs(inputs) => {
                    let inputs: Vec<Input> =
                        inputs.iter().map(|text| serde_json::from_str(text).expect("an input")).collect();
                    conversation.replay(&mut client, &mut history, &inputs).expect("the same");
                }
                SessionAction::Beside(act) => act(conversation),
            }
        }
    }

    pub(crate) fn trace(&self) -> &Trace {
        self.conversation.monitor().trace()
    }

    /// Records the last reply, which the model wrote at this level.
    pub(crate) fn says(&mut self, level: &OracleLabel) {
        self.replies
            .extend(self.conversation.running_turn().replies().last().map(|reply| reply.text.clone()));
        self.said_level = Some(self.said_level.as_ref().map_or(level.clone(), |before| before.join(level)));
    }

    /// Whether a part of an event flows to the observer, according to both the monitor and the oracle.
    pub(crate) fn shows(&self, level: &OracleLabel, label: &Label, event: EventId, key: &str) -> bool {
        let node = self.trace().event(event).and_then(|found| found.document.key(0, key));
        node.is_some_and(|node| self.shows_node(level, label, event, node))
    }

    /// Whether an observer may see a node of an event, by the monitor and by the oracle.
    pub(crate) fn shows_node(
        &self,
        level: &OracleLabel,
        label: &Label,
        event: EventId,
        node: NodeId,
    ) -> bool {
        let Some(found) = self.trace().event(event) else { return false };
        let bounds = &self.followed.bounds[event.0].parts[node];
        found.document.node(node).is_some_and(|node| node.label.flows_to(label))
            && bounds.iter().all(|bound| bound.flows_to(level))
    }

    /// Formats a question as a person sees it. Events are numbered among those that the observer may see.
    pub(crate) fn asks(&self, ask: &ApprovalRequest, observer: &Label) -> String {
        // A call is in the trace if it was permitted, which an observer that may see its judgement need not
        // be able to see.
        let is_known = |id: usize| {
            let event = self.trace().event(EventId(id)).expect("it is there");
            let call = event.call.and_then(|call| self.trace().event(call)).unwrap_or(event);
            self.trace().existence_label(EventId(id)).flows_to(observer) && call.decided.flows_to(observer)
        };
        let place = |region: &Region| {
            let shown = (0..region.event.0).filter(|id| is_known(*id));
            format!("#{} {} {:?}", shown.count(), region.path, region.span)
        };
        let mut line = format!("asks {} {} {} {:?}", ask.tool, ask.arguments, ask.digest, ask.label);
        let _ = write!(line, "; {} times {} {:?}", ask.times, ask.summary, ask.evidence);
        for reason in &ask.reasons {
            let regions: Vec<String> =
                reason.regions.iter().map(|(region, label)| format!("{} {label:?}", place(region))).collect();
            let _ = write!(
                line,
                "; {:?} {} {:?} {:?} {:?} {:?} {regions:?}",
                reason.kind, reason.message, reason.part, reason.label, reason.required, reason.categories
            );
        }
        for excerpt in &ask.excerpts {
            let _ = write!(line, "; {} {:?} {}", place(&excerpt.region), excerpt.label, excerpt.text);
        }
        line
    }
}
