//! Defines the values of `user-messages` and `system-messages` in a section `[clients.NAME]`: the extent to which the
//! messages of a client are trusted. `file` reads them, and `chat::clients` passes them to the guard, which labels
//! messages by them.

/// The extent to which a client's user messages are trusted as the user's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UserMessageTrust {
    /// No part.
    Untrusted,
    /// The parts that the client marks as typed by a person.
    Marked,
    /// The marked and the unmarked parts, although the agent may have pasted untrusted text into the unmarked ones.
    TrustUnmarkedEvenIfPasted,
}

impl UserMessageTrust {
    /// Returns the name that the configuration file has for the value.
    pub fn name(self) -> &'static str {
        match self {
            Self::Untrusted => "untrusted",
            Self::Marked => "marked",
            Self::TrustUnmarkedEvenIfPasted => "trust-unmarked-even-if-pasted",
        }
    }

    /// Returns whether those parts of user messages are trusted that the client has not marked with a provenance.
    pub(crate) fn trusts_unmarked(self) -> bool {
        self == Self::TrustUnmarkedEvenIfPasted
    }

    /// Returns whether those parts of user messages are trusted that the client has marked as typed by a person.
    pub(crate) fn believes_marks(self) -> bool {
        self != Self::Untrusted
    }
}

/// The extent to which a client's system messages are trusted as the operator's own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SystemMessageTrust {
    /// Those that the operator has pinned.
    #[default]
    Pinned,
    /// All of them, although the agent's program may have filled untrusted text into them.
    TrustEvenIfFilledIn,
}

impl SystemMessageTrust {
    /// Returns whether system messages are trusted even if the operator has not pinned them.
    pub(crate) fn trusts_all(self) -> bool {
        self == Self::TrustEvenIfFilledIn
    }
}
