//! Holds the form that the client demands of the model's text, such as JSON that matches a schema.
//!
//! A schema is text of the client for the model, like the description of a tool. So it is an event of the trace: a
//! message of the role [`FORMAT_ROLE`], which the policy labels and rules can read. A view below the label of the
//! schema does not show the form, and the model's text may then have any form. JSON without a schema adds no text, so
//! every view shows this form. A [conversation](crate::conversation) holds the form of the last request, and
//! [`crate::view`] shows it.

use flowgate::label::Label;
use flowgate::monitor::{EventFinding, Floors, Monitor, PushError};
use flowgate::trace::{EventId, Message, TraceEntry};
use flowgate_lm::chat::{OutputFormat, OutputSchema};
use serde_json::Value;

/// The role of the message that represents a schema in the trace.
pub const FORMAT_ROLE: &str = "response_format";

/// The form of the text, with the event of its schema.
#[derive(Debug)]
pub(crate) struct RequestedFormat {
    pub(crate) format: OutputFormat,
    /// The event of the schema, if there is one.
    pub(crate) event: Option<EventId>,
}

impl RequestedFormat {
    /// Has the policy label the schema of the format as an event; a format without a schema adds no event. `floor` is a
    /// lower bound on the label of the schema. Also returns what rules say about the schema.
    ///
    /// # Errors
    /// If the session has no room for the schema.
    pub(crate) fn new(
        monitor: &mut Monitor,
        format: OutputFormat,
        floor: Label,
    ) -> Result<(Self, Vec<EventFinding>), PushError> {
        let OutputFormat::Schema(schema) = &format else {
            return Ok((Self { format, event: None }, Vec::new()));
        };
        let message = Message::new(FORMAT_ROLE, schema.text());
        let (event, findings) = monitor.push_with_floors(TraceEntry::from(message), &Floors::from(floor))?;
        Ok((Self { format, event: Some(event) }, findings))
    }

    /// Returns the form, if a view at `label` may show it.
    pub(crate) fn visible_at(&self, monitor: &Monitor, label: &Label) -> Option<&OutputFormat> {
        let Some(event) = self.event else { return Some(&self.format) };
        let is_visible = monitor.trace().event(event).is_some_and(|event| event.label.flows_to(label));
        is_visible.then_some(&self.format)
    }

    /// Returns the label that a view at `bound` carries because of the form. The fact that there is a form contributes
    /// nothing, since the client knows it.
    pub(crate) fn view_label(&self, monitor: &Monitor, bound: &Label) -> Label {
        self.event.map_or(Label::BOTTOM, |event| monitor.view_label(event, bound))
    }
}

/// Returns the texts of a schema: its name, its description, and the keys and texts in it.
pub(crate) fn texts_of(schema: &OutputSchema) -> Vec<String> {
    let mut texts = vec![schema.name.clone(), schema.description.clone()];
    // The values that are still to be visited, the next one last. A stack and no recursion, because nothing here limits
    // the depth of the schema.
    let mut open = vec![&*schema.schema];
    while let Some(value) = open.pop() {
        match value {
            Value::String(text) => texts.push(text.clone()),
            Value::Array(items) => open.extend(items.iter().rev()),
            Value::Object(entries) => {
                texts.extend(entries.keys().cloned());
                open.extend(entries.values().rev());
            }
            _ => {}
        }
    }
    texts.retain(|text| !text.is_empty());
    texts
}
