//! Judges the citations of a reply: the passages of the client's documents that the model says it relies on.
//!
//! A passage is text that the client itself has sent, so the only thing that a citation tells the client is which
//! passage the model chose. The label of the reply covers this choice. Still, a program may show passages, titles and
//! sources as it shows the reply, and the choice among many of them can spell a text or an address. A citation is
//! therefore released only if nothing in it would be changed or stopped in a reply. [`super::generation`] passes the
//! citations of each reply to this file.

use flowgate::label::Label;
use flowgate::trace::{Message, TraceEntry};
use flowgate_lm::chat::{Citation, CitedPiece, carried_over};

use super::{Conversation, ModelReply, blocking_messages};
use crate::links::DisarmedReply;

impl Conversation {
    /// Returns the cited pieces of a reply that the client may receive, at their positions in the text of `reply`. The
    /// model has written `written`, with the citations `pieces`; `label` is the label of the step that wrote it. Drops
    ///
    /// * all citations of a reply that is withheld, or of which the client demands a form,
    /// * the citations of a piece of the text that was changed,
    /// * a citation with an address that the policy does not permit in the reply, and
    /// * all citations if a rule stops a message with their texts.
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
        let mut pieces = carried_over(pieces, written, &reply.text);
        let method = self.settings.method.name();
        // The addresses of all citations together have the limit of one text.
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
        let message = Message::new("assistant", texts.collect::<Vec<_>>().join("\n"));
        let examined = self.monitor.push_generated(TraceEntry::from(message), label);
        // If the session has no room for the texts, no rule could examine them.
        let is_permitted = examined.is_ok_and(|(_, findings)| blocking_messages(findings).is_empty());
        if is_permitted { pieces } else { Vec::new() }
    }
}
