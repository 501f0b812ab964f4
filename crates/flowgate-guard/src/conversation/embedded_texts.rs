//! Adds texts that the client sends to a model that embeds them. The texts are an event of the trace, which the policy
//! labels and rules can read, so that the policy can judge where they go.
//!
//! A client may embed texts that it was shown, such as answers of tools. So the event carries at least the labels of
//! the texts that it quotes, like a new message ([`super::merge`]). Once the memory of shown texts has forgotten
//! some, it is not known what the texts quote, and the event has the highest label.

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
    /// The most bits about remembered texts that their labels reveal.
    pub bits: u32,
}

impl Conversation {
    /// Adds texts that the client sends to a model that embeds them, as one message of the role [`EMBEDDING_ROLE`].
    /// This is no input of the journal: the conversation is that of one request, and is not stored.
    ///
    /// # Errors
    /// If the session has no room for the texts.
    pub fn add_texts_to_embed(
        &mut self,
        client: &mut ClientProfile,
        history: &mut History,
        texts: &[String],
    ) -> Result<EmbeddedTexts, PushError> {
        // The texts may quote what the memory has forgotten.
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
