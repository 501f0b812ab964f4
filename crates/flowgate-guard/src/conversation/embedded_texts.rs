//! Adds to the trace the texts that a client sends to an embedding model. The embeddings route of the gateway calls
//! this module. The texts become one event: the policy labels this event, and rules of the policy can judge to which
//! model the texts go.
//!
//! A client may embed texts that it was shown, such as answers of tools. So the event carries at least the labels of
//! the texts that it quotes, like a new message ([`super::merge`]). Once the memory of shown texts has forgotten some
//! of them, it is unknown what the new texts quote, and the event is labelled top.

use flowgate::monitor::{Floors, PushError};
use flowgate::trace::{Message, TraceEntry};

use super::{Conversation, blocking_messages};
use crate::history::lookup::QuotationLookup;
use crate::history::{ClientProfile, History};

/// The role of the message that holds texts to embed.
pub const EMBEDDING_ROLE: &str = "embedding";

/// The result of adding texts that a client embeds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EmbeddedTexts {
    /// The messages of the rules that stop the texts; empty if no rule does.
    pub stopped: Vec<String>,
    /// The upper bound on the bits that the labels of the new texts reveal about remembered texts.
    pub bits: u32,
}

impl Conversation {
    /// Adds the texts that the client sends to an embedding model, as one message of the role [`EMBEDDING_ROLE`]. The
    /// journal does not record the texts, because such a conversation serves one request only and is not stored.
    ///
    /// # Errors
    /// If the session has no room for the texts.
    pub fn add_texts_to_embed(
        &mut self,
        client: &mut ClientProfile,
        history: &mut History,
        texts: &[String],
    ) -> Result<EmbeddedTexts, PushError> {
        // If the memory has forgotten texts, the new texts may quote these, so they are labelled top.
        let is_incomplete = client.quotations.has_forgotten();
        let mut memory = QuotationLookup::live(client);
        let quoted = match is_incomplete {
            true => self.monitor.policy().space().top(),
            false => self.quoted_label(&mut memory, history, texts.to_vec()),
        };
        let message = Message::new(EMBEDDING_ROLE, texts.join("\n"));
        let (_, findings) =
            self.monitor.push_with_floors(TraceEntry::from(message), &Floors::from(quoted))?;
        Ok(EmbeddedTexts { stopped: blocking_messages(findings), bits: memory.bits() })
    }
}
