//! Converts the trace of a conversation to JSON as a person may see it: every region with its label, the label of what
//! each step of the model saw, and the verdicts on calls with the regions that influenced them. `conversation_view`
//! calls it.
//!
//! A region is shown if its label and the labels of all regions that contain it flow to the person's clearance. Events
//! are renumbered, so that the numbers do not reveal how many are left out.

use flowgate::label::Label;
use flowgate::monitor::{Monitor, Outcome, Reason};
use flowgate::policy::Action;
use flowgate::trace::{
    Document, Event, EventBody, EventId, NodeContent, NodeId, PossibleInfluence, Region, Status,
};
use flowgate_guard::conversation::CallVerdict;
use serde_json::{Value, json};

use crate::approvals::clearance::ReadBound;

/// The most events of one answer.
const MAX_EVENTS: usize = 100;
/// The most bytes of the texts of one answer.
const MAX_BYTES: usize = 512 << 10;
/// The most fields of one event.
const MAX_FIELDS: usize = 200;
/// The most bytes of the text of one field.
const MAX_TEXT: usize = 8 << 10;
/// The most verdicts of one answer.
const MAX_VERDICTS: usize = 300;
/// The most labels that the answers about one conversation distinguish.
const MAX_LABELS: usize = 128;

/// A trace at the end of a conversation, as a person with a clearance may see it.
#[derive(Debug)]
pub(crate) struct LabelledTrace<'m> {
    monitor: &'m Monitor,
    /// The clearance of the person.
    clearance: ReadBound,
    /// The events whose existence the clearance covers.
    shown: Vec<EventId>,
    /// The labels that occur in the events up to the end of the answer, in the order of their first occurrence. A label
    /// therefore has the same number in all answers about a conversation.
    labels: Vec<Label>,
    /// The bytes of texts in the answer.
    bytes: usize,
}

impl<'m> LabelledTrace<'m> {
    /// Creates the trace of a monitor's session for a person with this clearance. Events whose existence the person
    /// may not learn are left out.
    pub(crate) fn new(monitor: &'m Monitor, clearance: ReadBound) -> Self {
        let trace = monitor.trace();
        let shown = (0..trace.len()).map(EventId).filter(|id| {
            // Calls that did not run are shown by their verdicts.
            let is_done = trace.event(*id).is_some_and(|event| event.status == Status::Done);
            is_done && clearance.covers(&trace.existence_label(*id))
        });
        let shown = shown.collect();
        Self { monitor, clearance, shown, labels: Vec::new(), bytes: 0 }
    }

    /// Returns a part of the trace as JSON: the events from number `from` on, as many as fit into one answer, with the
    /// verdicts on calls between them, and `next`, the number of the first event of the next answer, or null after the
    /// last event. `judged` are all verdicts of the conversation, in order.
    pub(crate) fn page(mut self, from: usize, judged: &[CallVerdict]) -> Value {
        let (mut events, mut end) = (Vec::new(), from);
        // The labels of the events before `from` are numbered first, so that a label has the same number in all
        // answers.
        for id in self.shown.clone().into_iter().take(from) {
            self.number_labels(id);
        }
        for (number, id) in self.shown.clone().into_iter().enumerate().skip(from).take(MAX_EVENTS) {
            if self.bytes > MAX_BYTES {
                break;
            }
            events.extend(self.event(number, id));
            end = number + 1;
        }
        let is_last = end >= self.shown.len();
        // The number of a verdict is the number of the event that follows it. This answer has the verdicts with a
        // number after `from`, up to `end`. The first answer also has the verdicts before the first event, and the
        // last answer the verdicts after the last event.
        let number_of = |verdict: &CallVerdict| self.shown.partition_point(|id| id.0 < verdict.event);
        let is_here = |verdict: &&CallVerdict| {
            let number = number_of(verdict);
            self.clearance.covers(&verdict.decided)
                && (number > from || from == 0)
                && (number <= end || is_last)
        };
        let of_page: Vec<&CallVerdict> = judged.iter().filter(is_here).collect();
        let left_out = of_page.len().saturating_sub(MAX_VERDICTS);
        let listed = of_page.into_iter().take(MAX_VERDICTS);
        let verdicts: Vec<Value> = listed.map(|verdict| self.verdict(number_of(verdict), verdict)).collect();
        let labels: Vec<Value> = self.labels.iter().map(|label| self.label(label)).collect();
        json!({
            "labels": labels,
            "events": events,
            "verdicts": verdicts,
            "verdicts_left_out": left_out,
            "next": (!is_last).then_some(end),
        })
    }

    /// Returns a label as JSON: the names of its elements, and the indices of those listed labels of the answer
    /// (`self.labels`) to which this label flows.
    fn label(&self, label: &Label) -> Value {
        let flows = self.labels.iter().enumerate().filter(|(_, upper)| label.flows_to(upper));
        json!({
            "elements": self.monitor.describe(label),
            "flows_to": flows.map(|(index, _)| index).collect::<Vec<_>>(),
        })
    }

    /// Returns the index of a label in the list of labels of the answer. Adds a label that is not in the list; returns
    /// `None` if the list is full.
    fn index_of(&mut self, label: &Label) -> Option<usize> {
        let index = self.labels.iter().position(|listed| listed == label);
        if index.is_none() && self.labels.len() < MAX_LABELS {
            self.labels.push(*label);
            return Some(self.labels.len() - 1);
        }
        index
    }

    /// Returns the event `id`, which has this number in the answer, as JSON; `None` if there is no such event. The
    /// JSON has its kind and source, the event that it answers, the label of what the model saw before it, and its
    /// fields. A field that the clearance does not cover has only its path.
    fn event(&mut self, number: usize, id: EventId) -> Option<Value> {
        let monitor = self.monitor;
        let event = monitor.trace().event(id)?;
        let (kind, source) = kind_of(event, monitor);
        let saw = label_seen(event).and_then(|label| self.index_of(&label));
        let answers = event.call.and_then(|call| self.number_of(call));
        let (listed, left_out) = self.listed_fields(event);
        let mut fields = Vec::new();
        for field in listed {
            let path = event.document.path(field.node).to_string();
            let Some(ShownField { label, shown_at, value }) = field.shown else {
                fields.push(json!({"path": path, "hidden": true}));
                continue;
            };
            let (text, is_cut) = excerpt(value);
            self.bytes = self.bytes.saturating_add(text.len());
            let (label, shown_at) = (self.index_of(&label), self.index_of(&shown_at));
            fields.push(
                json!({"path": path, "label": label, "shown_at": shown_at, "text": text, "is_cut": is_cut}),
            );
        }
        Some(json!({
            "number": number,
            "kind": kind,
            "source": source,
            "answers": answers,
            // The upper bound on the labels that the step of the model was shown; null for other events.
            "saw": saw,
            "fields": fields,
            "left_out": left_out,
        }))
    }

    /// Numbers the labels of the event `id`, which belongs to an earlier answer, in the same order as
    /// [`event`](Self::event) numbers them.
    fn number_labels(&mut self, id: EventId) {
        let monitor = self.monitor;
        let Some(event) = monitor.trace().event(id) else { return };
        let of_fields = self.listed_fields(event).0.into_iter().filter_map(|field| field.shown);
        let labels = of_fields.flat_map(|field| [field.label, field.shown_at]);
        for label in label_seen(event).into_iter().chain(labels) {
            // A label beyond the limit has no number.
            let _ = self.index_of(&label);
        }
    }

    /// Returns the fields of an event that the clearance covers, and one entry for each hidden node; and whether fields
    /// are left out, because there are too many.
    fn listed_fields<'e>(&self, event: &'e Event) -> (Vec<ListedField<'e>>, bool) {
        let (document, mut fields, mut left_out) = (&event.document, Vec::new(), false);
        // The root contains every field, so its label decides first. The label of an answer's root can be above the
        // label of the answer's existence.
        let frame = document.frame_label();
        if !self.clearance.covers(&frame) {
            // The node 0 is the root.
            return (vec![ListedField { node: 0, shown: None }], false);
        }
        for node in roots(&event.body).iter().filter_map(|root| document.key(0, root)) {
            left_out |= !self.list_fields(document, node, &frame, &mut fields);
        }
        (fields, left_out)
    }

    /// Adds the fields at a node of the event's JSON and below it: each value other than null, and one entry for each
    /// hidden node. `around` is the join of the labels of the nodes that contain this one. Returns false if fields are
    /// left out, because there are too many.
    fn list_fields<'e>(
        &self,
        document: &'e Document,
        id: NodeId,
        around: &Label,
        fields: &mut Vec<ListedField<'e>>,
    ) -> bool {
        let Some(node) = document.node(id) else { return true };
        if fields.len() >= MAX_FIELDS {
            return false;
        }
        if !self.clearance.covers(&node.label) {
            fields.push(ListedField { node: id, shown: None });
            return true;
        }
        let shown_at = around.join(&node.label);
        // A null has no text to show, such as the content of a message that has only calls.
        if let NodeContent::Scalar(value) = &node.content
            && !value.is_null()
        {
            fields.push(ListedField {
                node: id,
                shown: Some(ShownField { label: node.label, shown_at, value }),
            });
        }
        let children: Vec<NodeId> = document.children(id).collect();
        children.into_iter().all(|child| self.list_fields(document, child, &shown_at, fields))
    }

    /// Returns the number under which an event is shown; `None` if it is not shown.
    fn number_of(&self, id: EventId) -> Option<usize> {
        self.shown.binary_search(&id).ok()
    }

    /// Returns a verdict as JSON. The caller has checked that the clearance covers the label of the verdict.
    /// Reasons that name a region that the clearance does not cover are left out. `number` is the number of the
    /// event that follows the verdict.
    fn verdict(&self, number: usize, verdict: &CallVerdict) -> Value {
        let outcome = match verdict.outcome {
            Outcome::Permit => "permitted",
            Outcome::Confirm => "asked",
            Outcome::Deny => "refused",
        };
        let (arguments, is_cut) = excerpt(&Value::Object(verdict.arguments.clone()));
        json!({
            "before": number,
            "tool": verdict.tool.to_string(),
            "outcome": outcome,
            "arguments": arguments,
            "is_cut": is_cut,
            "label": verdict.label,
            "reasons": verdict.reasons.iter().filter_map(|reason| self.reason(reason)).collect::<Vec<_>>(),
        })
    }

    /// Returns a reason of a verdict as JSON; `None` if the clearance does not cover one of the regions that it names.
    fn reason(&self, reason: &Reason) -> Option<Value> {
        if !reason.regions.iter().all(|(region, _)| self.covers(region)) {
            return None;
        }
        let action = match reason.action {
            Action::Deny => "refuses",
            Action::Ask => "asks",
            Action::Log => "notes",
        };
        let regions = reason.regions.iter().filter_map(|(region, label)| self.region(region, label));
        let line = reason.statement.as_ref().map(|span| self.monitor.policy().line(span));
        Some(json!({
            "action": action,
            "message": reason.message,
            "line": line,
            "regions": regions.collect::<Vec<_>>(),
        }))
    }

    /// Returns whether the clearance covers a region with everything in it, and the regions that contain it. False if
    /// the trace has no such region.
    fn covers(&self, region: &Region) -> bool {
        let trace = self.monitor.trace();
        let Some(document) = trace.event(region.event).map(|event| &event.document) else { return false };
        if !self.clearance.covers(&trace.existence_label(region.event)) {
            return false;
        }
        // The whole event is covered, so its regions need not be searched.
        if self.clearance.covers(&document.label_of(0)) {
            return true;
        }
        let Some(node) = (0..document.nodes().len()).find(|node| document.path(*node) == region.path) else {
            return false;
        };
        // `label_of` joins the labels of everything in the node.
        let mut enclosing = document.enclosing(node).filter_map(|node| document.node(node));
        self.clearance.covers(&document.label_of(node))
            && enclosing.all(|node| self.clearance.covers(&node.label))
    }

    /// Returns a region that influenced a call as JSON, with the names of its label's elements; `None` if its event is
    /// not shown, such as a call that did not run.
    fn region(&self, region: &Region, label: &[String]) -> Option<Value> {
        let number = self.number_of(region.event)?;
        Some(json!({"event": number, "path": region.path.to_string(), "label": label}))
    }
}

/// A field of an event.
struct ListedField<'e> {
    node: NodeId,
    /// `None` if the clearance does not cover it.
    shown: Option<ShownField<'e>>,
}

/// A field that the clearance covers.
struct ShownField<'e> {
    label: Label,
    /// The join of its label with those of the nodes that contain it: a model that is shown the field is shown these
    /// too.
    shown_at: Label,
    value: &'e Value,
}

/// Returns the upper bound on the labels that a step of the model was shown; `None` for an event that is no step.
fn label_seen(event: &Event) -> Option<Label> {
    match (&event.body, &event.influence) {
        // The label of the frame is the label of the decision to call. The label of the whole call can be higher, since
        // its slots may have been filled with text that the deciding step did not see.
        (EventBody::Call(_), PossibleInfluence::View(..)) => Some(event.document.frame_label()),
        (EventBody::Message(message), PossibleInfluence::View(label, _)) if message.role == "assistant" => {
            Some(*label)
        }
        _ => None,
    }
}

/// Returns the kind of an event and its source: the role of a message, or the name of the tool.
fn kind_of(event: &Event, monitor: &Monitor) -> (&'static str, String) {
    match &event.body {
        EventBody::Message(message) => ("message", message.role.clone()),
        EventBody::Call(call) => ("call", call.tool.to_string()),
        EventBody::Tool(tool) => ("description", tool.tool.to_string()),
        EventBody::Output(_) => {
            let call = event.call.and_then(|call| monitor.trace().event(call)).and_then(Event::tool);
            ("answer", call.map(ToString::to_string).unwrap_or_default())
        }
    }
}

/// Returns the names of the members of an event's JSON that contain its content.
fn roots(body: &EventBody) -> &'static [&'static str] {
    match body {
        EventBody::Message(_) | EventBody::Output(_) => &["content", "structured"],
        EventBody::Call(_) => &["arguments"],
        EventBody::Tool(_) => &["description"],
    }
}

/// Returns a value as text, at most [`MAX_TEXT`] bytes of it, and whether it was cut.
fn excerpt(value: &Value) -> (String, bool) {
    let mut text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let is_cut = text.len() > MAX_TEXT;
    if is_cut {
        text.truncate(text.floor_char_boundary(MAX_TEXT));
    }
    (text, is_cut)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use flowgate::monitor::Attribution;
    use flowgate::policy::Policy;
    use flowgate::trace::{Tool, TraceEntry};

    use super::*;

    const POLICY: &str = "
lattice secrecy: public < private
label message as public if:
    (message: Message)
require private if:
    (call: ToolCall) is tool:read
label out.content as public if:
    (out: ToolOutput) is tool:read
label out.content.number as private if:
    (out: ToolOutput) is tool:read
";

    /// A field above the clearance is hidden, and the other fields of the event are shown.
    #[test]
    fn a_field_is_shown_if_its_own_label_permits() {
        let policy = Arc::new(Policy::parse(POLICY).unwrap());
        let mut monitor = Monitor::new(policy);
        monitor.push(TraceEntry::user(json!("Read it."))).unwrap();
        monitor.record(TraceEntry::tool_call("c", Tool::local("read"), "{}"), &Attribution::everything());
        monitor.push(TraceEntry::tool_output("c", json!({"name": "Ann", "number": "7-22"}))).unwrap();
        let mut check = |clearance: &str, expected: [Option<&str>; 2]| {
            let clearance = monitor.from_names(&json!({"secrecy": clearance}));
            let page = LabelledTrace::new(&monitor, clearance.into()).page(0, &[]);
            let events = page["events"].as_array().unwrap();
            let fields = events.last().unwrap()["fields"].as_array().unwrap();
            let texts: Vec<Option<&str>> = fields.iter().map(|field| field["text"].as_str()).collect();
            assert_eq!(texts, expected, "{page}");
            assert_eq!(fields[1]["hidden"].is_null(), expected[1].is_some(), "{page}");
        };
        check("private", [Some("Ann"), Some("7-22")]);
        check("public", [Some("Ann"), None]);
    }

    /// The page compares a region of one answer with a step of another.
    #[test]
    fn a_label_has_the_same_number_in_every_answer() {
        let mut monitor = Monitor::new(Arc::new(Policy::parse(POLICY).unwrap()));
        monitor.push(TraceEntry::user(json!("Read them."))).unwrap();
        for index in 0..MAX_EVENTS {
            let id = format!("c{index}");
            monitor.record(TraceEntry::tool_call(&id, Tool::local("read"), "{}"), &Attribution::everything());
            let answer = json!({"name": "Ann", "number": "7-22"});
            monitor.push(TraceEntry::tool_output(&id, answer)).unwrap();
        }
        let top = monitor.from_names(&json!({"secrecy": "private"}));
        let page = |from: usize| LabelledTrace::new(&monitor, top.into()).page(from, &[]);
        let first = page(0);
        let mut from = 0;
        while let Some(next) = page(from)["next"].as_u64() {
            from = usize::try_from(next).unwrap();
            let further = page(from);
            assert_eq!(further["labels"], first["labels"], "from {from}");
            for event in further["events"].as_array().unwrap() {
                // Every event is shown, so their numbers are those of the trace.
                let id = EventId(usize::try_from(event["number"].as_u64().unwrap()).unwrap());
                let document = &monitor.trace().event(id).unwrap().document;
                for field in event["fields"].as_array().unwrap() {
                    let has_path = |node: &NodeId| document.path(*node).to_string() == field["path"];
                    let node = (0..document.nodes().len()).find(has_path).unwrap();
                    let expected = monitor.describe(&document.node(node).unwrap().label);
                    let number = usize::try_from(field["label"].as_u64().unwrap()).unwrap();
                    assert_eq!(further["labels"][number]["elements"], json!(expected), "{field}");
                }
            }
        }
        assert!(from > MAX_EVENTS, "{from}");
    }
}
