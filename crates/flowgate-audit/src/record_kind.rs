//! Defines [`RecordKind`], the kind of a record, and the name of each kind in the log. The writer of a log writes these
//! names, and the readers of logs parse them.

use std::fmt;

/// The kind of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecordKind {
    /// A call ran because a person had allowed it.
    ApprovalUsed,
    /// A call that a person had allowed does not run.
    ApprovalVoid,
    /// A person was asked whether a call may run.
    Asked,
    /// The gateway loaded a configuration.
    ConfigurationLoaded,
    /// A question was decided.
    Decided,
    /// Contents were deleted.
    Forgotten,
    /// The record signs all lines before it.
    Head,
    /// A call was judged.
    Judged,
    /// A person made a virtual key.
    KeyMade,
    /// A person revoked a virtual key.
    KeyRevoked,
    /// A person froze something or released it, or withdrew a lasting grant or a conversation grant.
    KillSwitch,
    /// An operator accepted a loss of the log or its database.
    LossAccepted,
    /// The log was opened for writing.
    Opened,
    /// An order that was recorded before may have had no effect.
    OrderUnconfirmed,
    /// A person cleared the record of texts that a client was shown.
    QuotationsCleared,
    /// A call that was permitted in the chat, and that the client then made itself, was sent to its MCP server.
    RanBeside,
    /// A text of the model was withheld.
    ReplyWithheld,
    /// A session began.
    SessionBegun,
    /// A session was deleted.
    SessionDeleted,
    /// A session ended.
    SessionEnded,
    /// A call needed a person's decision, and no person was asked.
    Unasked,
    /// A kind that this version of Flowgate does not know, by its name; a later version wrote the record. The record is
    /// verified and shown like every other one, and counts as an event.
    Unknown(String),
}

impl RecordKind {
    /// The kinds that this version writes.
    const KNOWN: [Self; 21] = [
        Self::ApprovalUsed,
        Self::ApprovalVoid,
        Self::Asked,
        Self::ConfigurationLoaded,
        Self::Decided,
        Self::Forgotten,
        Self::Head,
        Self::Judged,
        Self::KeyMade,
        Self::KeyRevoked,
        Self::KillSwitch,
        Self::LossAccepted,
        Self::Opened,
        Self::OrderUnconfirmed,
        Self::QuotationsCleared,
        Self::RanBeside,
        Self::ReplyWithheld,
        Self::SessionBegun,
        Self::SessionDeleted,
        Self::SessionEnded,
        Self::Unasked,
    ];

    /// Returns the name of the kind in the log.
    pub fn name(&self) -> &str {
        match self {
            Self::ApprovalUsed => "approval-used",
            Self::ApprovalVoid => "approval-void",
            Self::Asked => "asked",
            Self::ConfigurationLoaded => "configuration-loaded",
            Self::Decided => "decided",
            Self::Forgotten => "forgotten",
            Self::Head => "head",
            Self::Judged => "judged",
            Self::KeyMade => "key-made",
            Self::KeyRevoked => "key-revoked",
            Self::KillSwitch => "kill-switch",
            Self::LossAccepted => "loss-accepted",
            Self::Opened => "opened",
            Self::OrderUnconfirmed => "order-unconfirmed",
            Self::QuotationsCleared => "quotations-cleared",
            Self::RanBeside => "ran-beside",
            Self::ReplyWithheld => "reply-withheld",
            Self::SessionBegun => "session-begun",
            Self::SessionDeleted => "session-deleted",
            Self::SessionEnded => "session-ended",
            Self::Unasked => "unasked",
            Self::Unknown(name) => name,
        }
    }

    /// Returns the kind with this name in the log; [`Self::Unknown`] if this version does not know the name.
    pub fn from_name(name: &str) -> Self {
        let known = Self::KNOWN.into_iter().find(|kind| kind.name() == name);
        known.unwrap_or_else(|| Self::Unknown(name.to_owned()))
    }
}

impl fmt::Display for RecordKind {
    /// Writes the name of the kind. The name of an unknown kind is untrusted text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_known_by_its_name() {
        for kind in RecordKind::KNOWN {
            assert_eq!(RecordKind::from_name(kind.name()), kind);
        }
        for name in ["", "Head", "heads", "unknown"] {
            let kind = RecordKind::from_name(name);
            assert_eq!((kind.name(), &kind), (name, &RecordKind::Unknown(name.to_owned())));
        }
    }
}
