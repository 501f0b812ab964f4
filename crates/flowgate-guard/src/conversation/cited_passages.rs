//! Judges the citations of a reply before the client receives them: the passages of the client's documents that support
//! the reply, according to the model. [`super::generation`] passes the citations of each reply to this module.
//!
//! A passage is text that the client itself has sent, so a citation tells the client only which passage the model
//! chose. The label of the reply covers this choice. However, the client may show passages, titles and sources to its
//! user, and the model can choose them so that together they spell a forbidden text or address. A citation is therefore
//! released only if its texts could be released, unchanged, as a reply.

use flowgate::label::Label;
use flowgate::trace::{Message, TraceEntry};
use flowgate_lm::chat::{Citation, CitedPiece, carried_over};

use super::{Conversation, ModelReply, blocking_messages};
use crate::links::DisarmedReply;

impl Conversation {
    /// Returns the cited pieces of a reply that the client may receive, at their positions in the text of `reply`.
    /// `written` is the text that the model wrote, before the guard changed it to that of `reply`; `pieces` are its
    /// cited pieces, and `label` is the label of the step that wrote it. The function drops:
    ///
    /// * all citations if the reply is withheld, or if the client demands a form (JSON) of the reply;
    /// * the citations of a piece whose text was changed;
    /// * a citation with an address that the policy does not permit in the reply;
    /// * all citations if a rule stops a message that consists of their texts.
    pub(super) fn judge_citations(
        &mut self,
        pieces: Vec<CitedPiece>,
        written: &str,
        reply: &ModelReply,
        label: Label,
    ) -> Vec<CitedPiece> {
        if pieces.is_empty() || !reply.withheld.is_empty() || self.format.is_some() {
            return Vec::new();
        }
        // Drops the pieces whose text was changed, and moves the others to their positions in the reply.
        let mut pieces = carried_over(pieces, written, &reply.text);
        let method = self.settings.method.name();
        // One judge of addresses for all citations: its limit on the number of addresses applies to them together.
        let mut links = DisarmedReply::new(&self.monitor, method, label, self.numbers.addresses_mut());
        for piece in &mut pieces {
            piece.citations.retain(|citation| {
                citation.shown_texts().all(|text| links.leaves_unchanged(&mut self.monitor, text))
            });
        }
        pieces.retain(|piece| !piece.citations.is_empty());
        if pieces.is_empty() || !self.monitor.may_stop_replies() {
            return pieces;
        }
        let texts = pieces.iter().flat_map(|piece| &piece.citations).flat_map(Citation::shown_texts);
        // The rules examine the texts of all citations as one message of the model.
        let message = Message::new("assistant", texts.collect::<Vec<_>>().join("\n"));
        let examined = self.monitor.push_generated(TraceEntry::from(message), label);
        // If the session has no room for the texts, no rule could examine them.
        let is_permitted = examined.is_ok_and(|(_, findings)| blocking_messages(findings).is_empty());
        if is_permitted { pieces } else { Vec::new() }
    }
}
