//! Names the kinds of targets that a freeze can stop. The routes for people, the database and the checks of requests
//! share these names.

use serde::{Deserialize, Serialize};

/// The kinds of targets of a freeze.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum FreezeKind {
    /// All requests of a client.
    Client,
    /// All requests of a conversation.
    Conversation,
    /// All calls of a tool.
    Tool,
    /// All calls of tools of a server.
    Server,
    /// A standing consent of a policy.
    Consent,
    /// What people have approved for the rest of a conversation.
    Grants,
}

impl FreezeKind {
    /// All kinds.
    const ALL: [Self; 6] =
        [Self::Client, Self::Conversation, Self::Tool, Self::Server, Self::Consent, Self::Grants];

    /// Returns the name of the kind in requests, the database and the audit log.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Conversation => "conversation",
            Self::Tool => "tool",
            Self::Server => "server",
            Self::Consent => "consent",
            Self::Grants => "grants",
        }
    }

    /// Returns the kind with this [name](Self::name); `None` if there is none.
    pub(super) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}
