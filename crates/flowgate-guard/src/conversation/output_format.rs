//! Sets the form that the client demands of the model's text: any JSON object, or JSON with a schema. The client sends
//! the form with each request, so a form that equals the last one changes nothing.
//!
//! A client may build a schema from texts that it was shown, such as the ids in an answer of a tool. So a schema
//! carries at least the labels of the texts that it quotes, like a new message ([`super::merge`]). [`super::apply`]
//! calls this module with the client's memory or, in a replay, with the recorded quotations.

use flowgate::label::Label;
use flowgate::monitor::PushError;
use flowgate_lm::chat::{OutputFormat, Part};

use super::{Conversation, blocking_messages};
use crate::history::History;
use crate::history::lookup::QuotationLookup;
use crate::requested_format::{RequestedFormat, texts_of};

impl Conversation {
    /// Returns whether the client demands a form of the model's text.
    pub fn has_output_format(&self) -> bool {
        self.format.is_some()
    }

    /// Returns whether this is the form that the client demanded last; `None` means none.
    pub(super) fn has_format(&self, format: Option<&OutputFormat>) -> bool {
        self.format.as_ref().map(|requested| &requested.format) == format
    }

    /// Replaces the form, from the next step on, and has the policy label the schema of the new form. Notes in
    /// `history` if no statement labels the schema: such a schema is not remembered.
    ///
    /// # Errors
    /// If the session has no room for the schema. No form is demanded then.
    pub(super) fn replace_format(
        &mut self,
        memory: &mut QuotationLookup<'_>,
        history: &mut History,
        format: Option<&OutputFormat>,
    ) -> Result<(), PushError> {
        self.format = None;
        let Some(format) = format else { return Ok(()) };
        // The schema may quote what was added since the last message.
        self.memorize_session(memory, history);
        let quoted = match format {
            OutputFormat::Schema(schema) => self.quoted_label(memory, history, texts_of(schema)),
            OutputFormat::JsonObject => Label::BOTTOM,
        };
        let (requested, findings) = RequestedFormat::new(&mut self.monitor, format.clone(), quoted)?;
        self.turn.rule_messages.extend(blocking_messages(findings));
        let label =
            requested.event.and_then(|event| self.monitor.trace().event(event)).map(|event| event.label);
        // A schema that no statement labels is top only for that reason. It is not remembered: otherwise it would taint
        // the same words of other authors. So its event is excluded from later memories of this session (`unknown`),
        // and counts as recorded already in the memory of the client (`memorized`).
        if label == Some(self.monitor.policy().space().top()) && quoted == Label::BOTTOM {
            history.unknown.extend(requested.event.map(|event| event.0));
            history.memorized.0 = self.monitor.trace().len();
        }
        self.format = Some(requested);
        Ok(())
    }

    /// Searches `texts` for quotations of texts that the client was shown, and returns the join of the labels of the
    /// quoted texts. In a replay, `memory` has the recorded quotations, and nothing is searched.
    pub(super) fn quoted_label(
        &mut self,
        memory: &mut QuotationLookup<'_>,
        history: &mut History,
        texts: Vec<String>,
    ) -> Label {
        if memory.is_live() {
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            // The client's memory may lack texts of this session, so the session remembers its texts itself.
            if history.has_unknown || memory.is_incomplete_for(&texts) {
                self.track_shown_texts(history);
            }
        }
        let parts: Vec<Part> = texts.into_iter().map(Part::Text).collect();
        let parts: Vec<&Part> = parts.iter().collect();
        // No text precedes these texts (`""`), in which a quotation could begin.
        let spans = memory.find_quotations("", &parts, history.shown.0.as_ref());
        let names = spans.iter().flatten().flat_map(|span| &span.labels);
        names.fold(Label::BOTTOM, |label, names| label.join(&self.monitor.from_names(names)))
    }
}
