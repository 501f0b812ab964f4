//! Defines the origin of a question to people: a call in the chat of a conversation, a call of an MCP client, or a tool
//! that a server offers. The other files of `questions` store it in the column `turn` as one number: at least 0 for the
//! chat, negative for the other two.

/// The origin of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QuestionOrigin {
    /// A call in a message of the model.
    Chat {
        /// The number of persisted turns of the conversation when the question is asked.
        turns: i64,
        /// The number of persisted turns when the first question about the same message was asked.
        since: i64,
    },
    /// A call of an MCP client, outside the chat. Such a question remains open across the turns of its conversation,
    /// for the same call and the same reasons.
    OutsideChat,
    /// A tool that a server offers.
    ToolOffer,
}

impl QuestionOrigin {
    /// The stored number of [`ToolOffer`](Self::ToolOffer); all others are greater.
    pub(super) const TOOL_OFFER: i64 = -2;
    /// The stored number of [`OutsideChat`](Self::OutsideChat); the numbers of turns are greater.
    const OUTSIDE_CHAT: i64 = -1;

    /// Returns the number of persisted turns that the conversation had when the question was asked; `None` if the
    /// question is not one of the chat.
    pub(crate) fn turns(self) -> Option<i64> {
        match self {
            Self::Chat { turns, .. } => Some(turns),
            Self::OutsideChat | Self::ToolOffer => None,
        }
    }

    /// Returns the number that the column `turn` of a question has for this origin.
    pub(super) fn to_column(self) -> i64 {
        match self {
            Self::Chat { turns, .. } => turns,
            Self::OutsideChat => Self::OUTSIDE_CHAT,
            Self::ToolOffer => Self::TOOL_OFFER,
        }
    }

    /// Returns the least number in the column `turn` of an earlier question that counts as the same question if it is
    /// equal: a question of the chat is compared only with questions about the same message.
    pub(super) fn first_column(self) -> i64 {
        match self {
            Self::Chat { since, .. } => since,
            Self::OutsideChat | Self::ToolOffer => self.to_column(),
        }
    }

    /// Returns the number of persisted turns that a number in the column `turn` means; `None` for a question outside
    /// the chat, whose number is negative.
    pub(super) fn turns_of_column(number: i64) -> Option<i64> {
        (number >= 0).then_some(number)
    }
}
