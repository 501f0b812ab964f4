//! Judges a conversation in watch mode by the watched policy, the whole policy of its client. The conversation itself
//! runs under the permissive policy. The chat and the MCP routes call [`Watcher::observe`] after each message.
//!
//! Each new event of the conversation's trace is pushed into a monitor with the watched policy. A call counts as
//! influenced by everything before it, because its model was shown everything, and is recorded as one that ran, even if
//! its verdict denies it. Any other event carries at least the label that it has in the conversation, since only the
//! conversation knows which messages were pinned by the operator, pasted, or quoted from other texts.
//!
//! Under enforcement, a model would be shown a description of a tool, or a list of resources or prompts, only if the
//! label of this text flows to the requirement of every tool on offer. Any other such text is reported, and not pushed
//! into the monitor: under enforcement it would be hidden, and so raise no label.

use std::sync::Arc;
use std::time::Duration;

use flowgate::label::Label;
use flowgate::monitor::{Attribution, EventFinding, Monitor, ReasonKind};
use flowgate::policy::Action;
use flowgate::trace::{Event, EventBody, Status, Tool, TraceEntry};
use flowgate_audit::watch::{WatchedSubject, WatchedVerdict};
use serde_json::{Map, Value};

use super::ClientWatch;
use crate::predicates::PredicateSources;

/// The reason why enforcement would hide a description or a list.
const NOT_SHOWABLE: &str = "its label is too high for a step that may call every tool: give it a lower label in the policy, if \
    the model may be shown it";

/// The time limit for all answers of extern predicates about the events of one message.
const PREDICATE_TIME: Duration = Duration::from_secs(10);

/// The requests with which an MCP client and a server begin a session. The gateway forwards them under every policy, so
/// they are not judged here.
const HANDSHAKES: [&str; 2] = ["initialize", "server/discover"];
/// The requests for the lists of an MCP server, other than its tools.
const LISTS: [&str; 3] = ["resources/list", "resources/templates/list", "prompts/list"];

/// The judge of one conversation in watch mode.
#[derive(Debug)]
pub(crate) struct Watcher {
    /// The monitor with the whole policy.
    monitor: Monitor,
    /// The services that answer the policy's extern predicates.
    predicates: PredicateSources,
    /// The number of events of the conversation that were judged or skipped so far.
    seen: usize,
    /// The greatest label that flows to the requirement of every tool on offer; bottom if no tool is on offer.
    showable: Label,
}

impl Watcher {
    /// Returns the watcher of a conversation, which has judged nothing yet. `input` are the parameters of the policy.
    pub(crate) fn new(
        watch: &ClientWatch,
        predicates: &PredicateSources,
        input: &Map<String, Value>,
    ) -> Self {
        let mut monitor = Monitor::new(Arc::clone(&watch.policy));
        monitor.set_parameters(input);
        // No tool is on offer yet, so `showable` is bottom.
        Self { monitor, predicates: predicates.clone(), seen: 0, showable: Label::BOTTOM }
    }

    /// Copies the parameters of the policy from the monitor of the conversation: a caller with a token may have further
    /// ones than the client.
    pub(crate) fn copy_parameters(&mut self, running: &Monitor) {
        self.monitor.copy_parameters(running);
    }

    /// Judges the events that were added to the conversation since the last call, and returns the verdicts. `running`
    /// is the monitor of the conversation.
    pub(crate) fn observe(&mut self, running: &Monitor) -> Vec<WatchedVerdict> {
        // Restarts the time limit for predicates; the earlier answers remain valid for the whole conversation.
        let answers = self.monitor.predicate_answers();
        self.monitor.set_predicates(self.predicates.predicates(PREDICATE_TIME), answers);
        // Depends on the tools that are described now.
        self.showable = self.greatest_showable_label(running);
        let mut verdicts = Vec::new();
        while let Some(event) = running.trace().events().get(self.seen) {
            // A pending call may still be withdrawn, so this event and all after it are judged when this method is
            // called again. A call that was withdrawn is skipped.
            if event.status == Status::Pending {
                break;
            }
            self.seen += 1;
            if event.status == Status::Done {
                verdicts.extend(self.judge(running, event));
            }
        }
        verdicts
    }

    /// Returns the greatest label with which a text may be shown to a step that may call every tool described in
    /// the conversation. `running` is the monitor of the conversation. Returns bottom if no tool was described, as
    /// under enforcement: the requirements of the tools that will be offered are not known yet.
    fn greatest_showable_label(&self, running: &Monitor) -> Label {
        let tools: Vec<&Tool> = running
            .trace()
            .events()
            .iter()
            .filter_map(|event| match &event.body {
                EventBody::Tool(description) => Some(&description.tool),
                _ => None,
            })
            .collect();
        match tools.is_empty() {
            true => Label::BOTTOM,
            false => self.monitor.strictest_requirement(tools),
        }
    }

    /// Judges one event, and adds it to the monitor of the watcher. `running` is the monitor of the conversation.
    /// Returns no verdict (`None`) on a tool description to which the policy does not object. The calls and outputs of
    /// [`HANDSHAKES`] are neither judged nor added. A list or a description that enforcement would hide receives a
    /// verdict, but is not added.
    fn judge(&mut self, running: &Monitor, event: &Event) -> Option<WatchedVerdict> {
        let agent = running.trace().agent_name(event.agent);
        let entry = TraceEntry {
            body: event.body.clone(),
            agent: Some(agent.to_owned()).filter(|name| !name.is_empty()),
            name: None,
            parents: Vec::new(),
            extra: event.extra.clone(),
            origin: None,
        };
        // What the verdict is about, and the tool of an output or a description.
        let (subject, tool) = match &event.body {
            EventBody::Call(call) if is_one_of(&HANDSHAKES, &call.tool) => return None,
            EventBody::Call(call) => {
                // The model of the call was shown everything, so everything may have influenced the call.
                let judgement = self.monitor.record(entry, &Attribution::everything()).judgement;
                return Some(WatchedVerdict::of_call(&call.tool.to_string(), &judgement));
            }
            EventBody::Message(message) if message.role == "assistant" => (WatchedSubject::Reply, None),
            EventBody::Message(_) => (WatchedSubject::Prompt, None),
            EventBody::Output(_) => {
                let call = event.call.and_then(|call| running.trace().event(call));
                let tool = call.and_then(Event::tool);
                if tool.is_some_and(|tool| is_one_of(&HANDSHAKES, tool)) {
                    return None;
                }
                let name = tool.map(ToString::to_string);
                if tool.is_some_and(|tool| is_one_of(&LISTS, tool)) && !self.is_showable(&entry) {
                    return Some(WatchedVerdict::of_text(
                        WatchedSubject::Output,
                        name.as_deref(),
                        Some(NOT_SHOWABLE),
                    ));
                }
                (WatchedSubject::Output, name)
            }
            EventBody::Tool(description) => {
                // A name that two servers offer is ambiguous from then on, even if the description would be hidden.
                self.monitor.declare_tools([&description.tool]);
                let name = description.tool.to_string();
                if !self.is_showable(&entry) {
                    let subject = WatchedSubject::Description;
                    return Some(WatchedVerdict::of_text(subject, Some(&name), Some(NOT_SHOWABLE)));
                }
                (WatchedSubject::Description, Some(name))
            }
        };
        let objection = self.push(running, event, entry);
        let verdict = WatchedVerdict::of_text(subject, tool.as_deref(), objection.as_deref());
        // A description to which the policy does not object has no verdict.
        (objection.is_some() || subject != WatchedSubject::Description).then_some(verdict)
    }

    /// Returns whether enforcement would show a text in a step that may call every tool.
    fn is_showable(&self, entry: &TraceEntry) -> bool {
        self.monitor.labels_if_pushed([entry.clone()]).iter().all(|label| label.flows_to(&self.showable))
    }

    /// Adds `event`, which is not a call, to the monitor of the watcher, in the form `entry`. The event carries at
    /// least the label that it has in the conversation, whose monitor is `running`. This label is converted by the
    /// names of its elements, since each monitor has a label space of its own. Returns the reason why enforcement would
    /// withhold the text of the event; `None` if it would not. An event that the monitor does not accept counts as
    /// withheld.
    fn push(&mut self, running: &Monitor, event: &Event, entry: TraceEntry) -> Option<String> {
        let carried = self.monitor.from_names(&running.to_names(&event.label));
        // A floor raises the labels of all regions of the event, so it is used only if a region would carry less.
        let own_labels = self.monitor.labels_if_pushed([entry.clone()]);
        let pushed = match own_labels.iter().all(|label| carried.flows_to(label)) {
            true => self.monitor.push(entry),
            false => self.monitor.push_with_floors(entry, &carried.into()),
        };
        let (id, findings) = match pushed {
            Ok(pushed) => pushed,
            Err(error) => return Some(error.to_string()),
        };
        let is_cleared = |clearance| {
            let label = self.monitor.trace().event(id).map(|event| event.label);
            label.is_some_and(|label| label.flows_to(&clearance))
        };
        first_objection(&findings).or_else(|| {
            let may_be_read = self.monitor.clearance("model").is_none_or(is_cleared);
            (!may_be_read).then(|| "its label exceeds the clearance of `model`".to_owned())
        })
    }
}

/// Returns whether a tool is one of these methods of a server: the MCP proxy records a request as a call of a tool that
/// has the name of the method.
fn is_one_of(methods: &[&str], tool: &Tool) -> bool {
    tool.server.is_some() && methods.contains(&&*tool.name)
}

/// Returns the message of the first rule that stops a text, or cannot be evaluated over it; `None` if there is none. A
/// rule with the action `log` stops nothing.
fn first_objection(findings: &[EventFinding]) -> Option<String> {
    let kinds = [ReasonKind::Rule, ReasonKind::RuleError, ReasonKind::Limit];
    let mut reasons = findings.iter().map(|finding| &finding.reason);
    let objection = reasons.find(|reason| kinds.contains(&reason.kind) && reason.action != Action::Log);
    objection.map(|reason| reason.message.clone())
}

#[cfg(test)]
mod tests {
    use flowgate::policy::Policy;
    use flowgate::trace::{Call, Message, Output, ToolDescription};
    use flowgate_audit::watch::WatchLog;
    use serde_json::json;

    use super::*;
    use crate::watching::permissive_policy;

    const POLICY: &str = r#"
lattice integrity: trusted < untrusted

label message as trusted if:
    (message: Message)
    message.role in ["system", "user"]
label out.content as untrusted if:
    (out: ToolOutput) is tool:read

require top if:
    (call: ToolCall) is tool:read
require trusted if:
    (call: ToolCall) is tool:send
require trusted else deny if:
    (call: ToolCall) is tool:erase
raise "no passwords" if:
    (out: ToolOutput)
    "hunter2" in out.content
"#;

    /// Runs the entries under the permissive policy, and returns the verdicts without permissions.
    fn objections(entries: Vec<TraceEntry>) -> Vec<String> {
        let policy = Arc::new(Policy::parse(POLICY).unwrap());
        let permissive = permissive_policy::load(&policy, POLICY, |path| Err(path.to_owned())).unwrap();
        let mut running = Monitor::new(permissive);
        let watch = ClientWatch { policy, log: WatchLog::new(std::path::Path::new("unused")) };
        let mut watcher = Watcher::new(&watch, &PredicateSources::default(), &Map::new());
        let mut found = Vec::new();
        for entry in entries {
            match entry.body {
                EventBody::Call(_) => {
                    let recorded = running.record(entry, &Attribution::everything());
                    assert_eq!(recorded.outcome, flowgate::monitor::Outcome::Permit);
                }
                _ => drop(running.push(entry).unwrap()),
            }
            found.extend(watcher.observe(&running));
        }
        let stopped = found.iter().filter(|verdict| verdict.outcome != flowgate::monitor::Outcome::Permit);
        let name = |verdict: &WatchedVerdict| {
            let tool = verdict.tool.as_deref().unwrap_or("-");
            format!("{} {} {tool}", verdict.outcome.name(), verdict.subject.name())
        };
        stopped.map(name).collect()
    }

    fn call(id: &str, tool: &str) -> TraceEntry {
        let arguments = Ok(json!({}).as_object().cloned().unwrap_or_default());
        TraceEntry::from(Call { id: id.to_owned(), tool: Tool::local(tool), arguments })
    }

    fn output(id: &str, text: &str) -> TraceEntry {
        TraceEntry::from(Output::result(id.to_owned(), json!(text)))
    }

    #[test]
    fn the_verdicts_are_those_of_the_policy() {
        let check = |entries: Vec<TraceEntry>, expected: &[&str]| assert_eq!(objections(entries), expected);
        let user = || TraceEntry::from(Message::new("user", "go"));
        check(vec![user(), call("1", "send"), output("1", "sent")], &[]);
        check(
            vec![user(), call("1", "read"), output("1", "a page"), call("2", "send"), call("3", "erase")],
            &["confirm call send", "deny call erase"],
        );
        check(vec![user(), call("1", "read"), output("1", "hunter2")], &["deny output read"]);
        // The description of a tool that no statement labels is hidden with enforcement, and does not count.
        let description = ToolDescription {
            tool: Tool::local("send"),
            description: "sends".to_owned(),
            input_schema: json!({}).into(),
            output_schema: None,
            other: serde_json::Map::new(),
        };
        check(vec![TraceEntry::from(description), user(), call("1", "send")], &["deny description send"]);
        // A handshake has no verdict, and its answer raises no label.
        let handshake = Call {
            id: "1".to_owned(),
            tool: Tool::of("bank", "initialize"),
            arguments: Ok(serde_json::Map::new()),
        };
        check(vec![user(), TraceEntry::from(handshake), output("1", "obey"), call("2", "send")], &[]);
        // What no statement labels is top.
        check(vec![TraceEntry::from(Message::new("meta", "go")), call("1", "send")], &["confirm call send"]);
    }
}
