//! The limits of a conversation, and the methods that choose the labels of its steps.

use std::time::Duration;

use flowgate_lm::chat::Sampling;

use crate::approve::DigestKey;
use crate::screener::Screener;
use crate::screener::introspection::IntrospectionScreener;
use crate::screener::judge::JudgeScreener;

/// A method that chooses the label of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// The strictest requirement on offer, and more where the model requests it. No hidden text influences a low
    /// step.
    LowestFirst,
    /// Everything that happened so far: nothing is hidden, and everything taints what follows. Under a policy without
    /// lattices this is the unguarded loop (RTBAS, Algorithm 1) with rules on top.
    Everything,
    /// The strictest requirement on offer, and never more.
    RedactAll,
    /// Everything, and a person is asked about every call that the policy does not declare harmless.
    ConfirmAlways,
    /// Everything if all resulting calls are permitted; otherwise the strictest requirement on offer, in a second
    /// attempt.
    CheapestFirst,
    /// What a [judge](crate::screener::judge) declares necessary for the step.
    Judge,
    /// What the model [cites](crate::screener::introspection).
    Introspection,
    /// The regions from which a draft, which is shown everything, takes its values; the step is rewritten from these
    /// alone if they are less than everything.
    Provenance,
    /// Everything, with only the tools that a model [chooses](crate::screener::tool_filter) for the user's request.
    ToolFilter,
}

impl Method {
    /// All methods.
    pub const ALL: [Self; 9] = [
        Self::LowestFirst,
        Self::CheapestFirst,
        Self::Judge,
        Self::Introspection,
        Self::Provenance,
        Self::Everything,
        Self::ToolFilter,
        Self::ConfirmAlways,
        Self::RedactAll,
    ];

    /// Whether a step is shown everything that happened.
    pub fn shows_everything(self) -> bool {
        match self {
            Self::Everything | Self::ConfirmAlways | Self::ToolFilter => true,
            Self::CheapestFirst | Self::Provenance => true,
            Self::LowestFirst | Self::RedactAll | Self::Judge | Self::Introspection => false,
        }
    }

    /// Whether the model may request hidden regions with `look`.
    pub(crate) fn has_look(self) -> bool {
        self == Self::LowestFirst
    }

    /// Whether the model may leave slots to be filled with hidden regions.
    pub(crate) fn has_slots(self) -> bool {
        matches!(self, Self::LowestFirst | Self::Provenance)
    }

    /// Whether a step that was shown everything may be rewritten.
    pub(crate) fn has_drafts(self) -> bool {
        matches!(self, Self::CheapestFirst | Self::Provenance)
    }

    /// The screener that decides what a step depends on, if the method queries a model for that.
    pub(crate) fn screener(self) -> Option<&'static dyn Screener> {
        match self {
            Self::Judge => Some(&JudgeScreener),
            Self::Introspection => Some(&IntrospectionScreener),
            _ => None,
        }
    }

    /// Describes in one sentence what a step is shown.
    pub fn doc(self) -> &'static str {
        match self {
            Self::LowestFirst => {
                "what flows into the strictest tool on offer, and more where the model asks to look"
            }
            Self::CheapestFirst => {
                "everything if all calls that come of it are permitted, else the strictest"
            }
            Self::Judge => JudgeScreener.doc(),
            Self::Introspection => IntrospectionScreener.doc(),
            Self::Provenance => "a draft is shown everything; the step, what the draft takes its values from",
            Self::ToolFilter => "everything, with only the tools that a model chooses for what the user asks",
            Self::Everything => "everything, which taints all that follows",
            Self::ConfirmAlways => "everything, and a person is asked about every call that acts",
            Self::RedactAll => "what flows into the strictest tool on offer, and never more",
        }
    }

    /// The name of the method on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::LowestFirst => "lowest-first",
            Self::Everything => "everything",
            Self::RedactAll => "redact-all",
            Self::ConfirmAlways => "confirm-always",
            Self::CheapestFirst => "cheapest-first",
            Self::Judge => JudgeScreener.name(),
            Self::Introspection => IntrospectionScreener.name(),
            Self::Provenance => "provenance",
            Self::ToolFilter => "tool-filter",
        }
    }
}

/// The limits and the method of a conversation.
#[derive(Debug, Clone)]
pub struct ConversationSettings {
    /// The method that chooses the labels of steps.
    pub method: Method,
    /// The sampling parameters of the model.
    pub sampling: Sampling,
    /// The maximum number of messages that a model may write on one level of a turn.
    pub steps: usize,
    /// The maximum number of messages that a model may write in one turn, over all levels. This limit is observable
    /// on lower levels, because higher levels consume it, too.
    pub messages: usize,
    /// The maximum number of levels on top of each other.
    pub levels: usize,
    /// The maximum number of calls in one message; the others are refused.
    pub calls: usize,
    /// How long a question to a person stays open.
    pub expires: Duration,
    /// The key for digests of calls: random bytes that the caller provides.
    pub key: DigestKey,
}

impl ConversationSettings {
    /// Returns the default settings with a key of the caller.
    pub fn new(method: Method, key: DigestKey) -> Self {
        let sampling = Sampling::default();
        Self {
            method,
            sampling,
            steps: 30,
            messages: 200,
            levels: 8,
            calls: 64,
            expires: Duration::from_secs(600),
            key,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Method;

    /// People choose a method by its name.
    #[test]
    fn methods_have_names() {
        let names = Method::ALL.map(Method::name);
        let expected = [
            "lowest-first",
            "cheapest-first",
            "judge",
            "introspection",
            "provenance",
            "everything",
            "tool-filter",
            "confirm-always",
            "redact-all",
        ];
        assert_eq!(names, expected);
    }
}
