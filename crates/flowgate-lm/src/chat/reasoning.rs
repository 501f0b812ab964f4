//! Defines the reasoning of a model, which it writes before its message: the parameters by which a request asks for
//! reasoning ([`Reasoning`]), and the parts of the reasoning that the model's server returns ([`ReasoningPart`]), each
//! with the evidence by which this server recognises it later ([`Seal`]).
//!
//! [`Sampling`](super::Sampling) contains the parameters. [`Message`](super::Message) and
//! [`Completion`](super::Completion) contain the parts. The wire formats translate both.

use serde::{Deserialize, Serialize};

/// A part of a model's reasoning, as the model's server sent it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ReasoningPart {
    /// The texts that can be read: the reasoning, or summaries of it. Empty if the server returns no readable text.
    pub texts: Vec<String>,
    /// The evidence by which the server recognises the part. It must be sent back unchanged.
    #[serde(default)]
    pub seal: Seal,
    /// The model that wrote the part; empty if that is unknown. The part is sent to no other model, because no other
    /// model can read the seal.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub author: String,
}

impl ReasoningPart {
    /// Returns all readable texts as one, with an empty line between them; empty if there is none.
    #[must_use]
    pub fn text(&self) -> String {
        self.texts.join("\n\n")
    }

    /// Returns whether the part can be sent to this model: the model wrote it, or its author is unknown.
    pub(crate) fn is_readable_by(&self, model: &str) -> bool {
        self.author.is_empty() || self.author == model
    }

    /// Returns the size of the texts and the seal of this part, in bytes. The limit on the size of an answer and the
    /// estimates of tokens use it.
    pub(crate) fn size(&self) -> usize {
        let seal = match &self.seal {
            Seal::None => 0,
            Seal::Signature(text) | Seal::Redacted(text) | Seal::Part { signature: text, .. } => text.len(),
            Seal::Item { id, encrypted } => id.len() + encrypted.as_ref().map_or(0, String::len),
        };
        seal + self.texts.iter().map(String::len).sum::<usize>()
    }
}

/// The evidence by which a model's server recognises a part of its reasoning. Only the server can read it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Seal {
    /// The part has no seal, and cannot be sent back.
    #[default]
    None,
    /// The signature of a thinking block of Anthropic's format, or of a thought of Gemini's.
    Signature(String),
    /// The content of a redacted thinking block of Anthropic's format, which has no readable text.
    Redacted(String),
    /// The signature that a server of Gemini's format adds to a call or to the text of a message. It represents the
    /// reasoning that preceded this call or text.
    Part {
        /// The signature.
        signature: String,
        /// The index of the signed call; `None` if the text is signed.
        call: Option<usize>,
    },
    /// A reasoning item of OpenAI's Responses API.
    Item {
        /// The id of the item.
        id: String,
        /// The encrypted reasoning, if the request asked for it.
        encrypted: Option<String>,
    },
}

/// The parameters of a request for the model's reasoning. `None` leaves a parameter to the server.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Reasoning {
    /// How much effort the model is to spend on reasoning and on its message.
    pub effort: Option<Effort>,
    /// Whether the model thinks before it answers, in Anthropic's and Gemini's formats.
    pub thinking: Option<ThinkingMode>,
    /// How thinking blocks are returned, in Anthropic's and Gemini's formats.
    pub display: Option<ThinkingDisplay>,
    /// How the reasoning is summarised, in OpenAI's Responses API.
    pub summary: Option<ReasoningSummary>,
    /// Whether OpenAI's Responses API returns the encrypted reasoning, so that it can be sent back.
    pub is_returned: bool,
}

/// Whether a model thinks before it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ThinkingMode {
    /// The model does not think.
    Disabled,
    /// The model decides.
    Adaptive,
    /// The model thinks, with at most this many tokens.
    Enabled(u32),
}

/// Declares an enumeration whose variants are words of requests (`Low = "low"`), with the functions that convert
/// between a variant and its word.
macro_rules! words {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum $name {
            $($(#[$doc])* $variant,)*
        }

        impl $name {
            /// All variants.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// Returns the word that a request contains for this value.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)*
                }
            }

            /// Returns the variant with this name in requests; `None` if there is none.
            #[must_use]
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|known| known.name() == name)
            }
        }
    };
}

words! {
    /// How much a model is to reason.
    Effort {
        /// Not at all.
        None = "none",
        /// As little as possible.
        Minimal = "minimal",
        /// Little.
        Low = "low",
        /// The default of most models.
        Medium = "medium",
        /// Much.
        High = "high",
        /// More than `High`.
        Xhigh = "xhigh",
        /// As much as possible.
        Max = "max",
    }
}

words! {
    /// How thinking blocks are returned.
    ThinkingDisplay {
        /// With a summary of the thinking.
        Summarized = "summarized",
        /// Without readable text.
        Omitted = "omitted",
    }
}

words! {
    /// How reasoning is summarised.
    ReasoningSummary {
        /// The server decides.
        Auto = "auto",
        /// In few words.
        Concise = "concise",
        /// In more words.
        Detailed = "detailed",
    }
}

words! {
    /// How long the model's text is to be.
    Verbosity {
        /// Short.
        Low = "low",
        /// The default.
        Medium = "medium",
        /// Long.
        High = "high",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_have_their_names() {
        let all: Vec<&str> = Effort::ALL.iter().map(|effort| effort.name()).collect();
        assert_eq!(all, ["none", "minimal", "low", "medium", "high", "xhigh", "max"]);
        assert_eq!(Effort::from_name("xhigh"), Some(Effort::Xhigh));
        assert_eq!(Effort::from_name("XHIGH"), None);
        assert_eq!(Verbosity::from_name("max"), None);
    }

    /// Conversations that were stored before a field existed are read with its default.
    #[test]
    fn stored_forms_are_read_with_defaults() {
        assert_eq!(serde_json::from_str::<Reasoning>("{}").ok(), Some(Reasoning::default()));
        assert_eq!(
            serde_json::from_str::<ReasoningPart>(r#"{"texts":[]}"#).ok(),
            Some(ReasoningPart::default())
        );
    }
}
