//! Writes the trace of a conversation as a person may see it, in the form that `flowgate trace export` prints and other
//! commands read. `conversation_view` calls it.
//!
//! The rules are those of `labelled_trace`: an event is shown if the clearance covers its existence, and a region if
//! the clearance covers its label and the labels of all regions that contain it. Texts are not cut. A text that was
//! parsed as a list or a map, and of which a part is hidden, is serialized again as JSON with a constant in place of the
//! part.

use flowgate::monitor::Monitor;
use flowgate::trace::{Document, Event, EventBody, EventId, NodeContent, NodeId, PathStep, Status};
use flowgate_guard::trace_lines;
use serde_json::{Map, Value, json};

use crate::approvals::clearance::{HIDDEN, ReadBound};

/// The bytes of the events of one answer, after which no further event is added.
const MAX_BYTES: usize = 4 << 20;

/// Returns a part of the trace as JSON: the events from number `from` on that the clearance covers, as many as fit into
/// one answer. Only covered events have a number. `events` has a line of a trace for each event, and `next` is the
/// number of the first event of the next answer, or null after the last one. `parameters` has the parameters of the
/// policy; since they have no label, `parameters` is empty unless the clearance covers everything.
pub(super) fn page(monitor: &Monitor, clearance: &ReadBound, from: usize) -> Value {
    let trace = monitor.trace();
    let shown = (0..trace.len()).map(EventId).filter(|id| {
        // Calls that did not run are no part of an exported trace.
        let is_done = trace.event(*id).is_some_and(|event| event.status == Status::Done);
        is_done && clearance.covers(&trace.existence_label(*id))
    });
    let (mut events, mut bytes, mut next) = (Vec::new(), 0_usize, None);
    for (number, id) in shown.enumerate().skip(from) {
        if bytes > MAX_BYTES {
            next = Some(number);
            break;
        }
        let Some(event) = trace.event(id) else { continue };
        let line = line(event, monitor, clearance);
        bytes = bytes.saturating_add(line.to_string().len());
        events.push(line);
    }
    let reads_all = clearance.is_top(monitor.policy().space());
    let parameters = if reads_all { monitor.parameters() } else { Map::new() };
    json!({"parameters": parameters, "events": events, "next": next})
}

/// Returns an event as a line of a trace, with a constant in place of what the clearance does not cover.
fn line(event: &Event, monitor: &Monitor, clearance: &ReadBound) -> Value {
    let document = &event.document;
    // The join of the labels of the root (the node 0) and of everything in it: if the clearance covers it, nothing is
    // hidden.
    if clearance.covers(&document.label_of(0)) {
        return trace_lines::line(event, monitor);
    }
    let redacted =
        RedactedDocument { document, clearance, shows_root: clearance.covers(&document.frame_label()) };
    let mut body = event.body.clone();
    match &mut body {
        EventBody::Message(message) => message.content = redacted.member("content", &message.content),
        EventBody::Call(call) => {
            // The arguments of a call must be an object in a trace, so hidden arguments become an object with a
            // constant as the name of its only member.
            let arguments = redacted.member("arguments", &Value::Null);
            let hidden = || Map::from_iter([(HIDDEN.to_owned(), Value::Bool(true))]);
            call.arguments = Ok(match arguments {
                Value::Object(arguments) => arguments,
                _ => hidden(),
            });
        }
        EventBody::Output(output) => {
            output.content = redacted.member("content", &output.content);
            output.structured = output.structured.as_ref().map(|value| redacted.member("structured", value));
            output.is_error = output.is_error.filter(|_| redacted.shows("is_error"));
        }
        EventBody::Tool(tool) => {
            let description = redacted.member("description", &Value::from(tool.description.as_str()));
            tool.description = description.as_str().unwrap_or(HIDDEN).to_owned();
            // The author of the description has written the schemas too, so they are left out.
            tool.input_schema = json!({"type": "object"}).into();
            tool.output_schema = None;
            tool.other = Map::new();
        }
    }
    let call = event.call.and_then(|call| monitor.trace().event(call));
    trace_lines::line_of(&body, call.and_then(Event::tool))
}

/// The content of an event, of which a part is hidden.
struct RedactedDocument<'d> {
    document: &'d Document,
    clearance: &'d ReadBound,
    /// Whether the clearance covers the frame of the event, which contains everything else.
    shows_root: bool,
}

impl RedactedDocument<'_> {
    /// Returns whether a member of the event is shown with all its parts.
    fn shows(&self, name: &str) -> bool {
        let node = self.document.key(0, name);
        self.shows_root && node.is_some_and(|node| self.clearance.covers(&self.document.label_of(node)))
    }

    /// Returns a member of the event as far as it is shown. `original` is the member's value in the event; if it is
    /// null, the value is taken from the document. A text that was parsed as a list or a map, and of which a part is
    /// hidden, becomes a text again.
    fn member(&self, name: &str, original: &Value) -> Value {
        if self.shows(name) {
            return match original {
                // The caller has no value, so the value of the document is used.
                Value::Null => {
                    self.document.key(0, name).map_or(Value::Null, |node| self.document.to_value(node))
                }
                original => original.clone(),
            };
        }
        let node = self.document.key(0, name).filter(|_| self.shows_root);
        let Some(node) = node else { return Value::from(HIDDEN) };
        match self.value(node) {
            value @ (Value::Array(_) | Value::Object(_)) if original.is_string() => {
                Value::from(value.to_string())
            }
            value => value,
        }
    }

    /// Returns the value of a node, with a constant in place of its hidden parts.
    fn value(&self, id: NodeId) -> Value {
        let Some(node) = self.document.node(id) else { return Value::Null };
        if !self.clearance.covers(&node.label) {
            return Value::from(HIDDEN);
        }
        match &node.content {
            NodeContent::List => self.document.children(id).map(|child| self.value(child)).collect(),
            NodeContent::Map => {
                let members =
                    self.document.children(id).filter_map(|child| match &self.document.node(child)?.step {
                        PathStep::Key(key) => Some((key.to_string(), self.value(child))),
                        _ => None,
                    });
                Value::Object(members.collect())
            }
            // A text is hidden as a whole if a part of it is: the policy can capture parts of a text, which have labels
            // of their own.
            NodeContent::Scalar(_) if !self.clearance.covers(&self.document.label_of(id)) => {
                Value::from(HIDDEN)
            }
            NodeContent::Scalar(value) => value.clone(),
        }
    }
}
