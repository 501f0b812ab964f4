//! What a conversation may take, and how labels of steps are chosen.

use std::time::Duration;

use flowgate_lm::chat::Sampling;

use crate::approve::DigestKey;
use crate::screener::Screener;
use crate::screener::introspection::Introspection;
use crate::screener::judge::Judge;

/// How the label of a step is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// The strictest requirement on offer, and more where the model asks for it. No hidden text decides what a low step
    /// does.
    LowestFirst,
    /// Everything that happened so far: nothing is hidden, and everything taints what follows. Under a policy without
    /// lattices this is the unguarded loop (RTBAS, Algorithm 1) with rules on top.
    Everything,
    /// The strictest requirement on offer, and never more.
    RedactAll,
    /// Everything, and a person is asked about every call that the policy does not call harmless.
    ConfirmAlways,
    /// Everything if all calls that come of it are permitted; else the strictest requirement on offer, in a second try.
    CheapestFirst,
    /// What a [judge](crate::screener::judge) says that the step needs.
    Judge,
    /// What the model [cites](crate::screener::introspection).
    Introspection,
    /// What a draft takes its values from, which was shown everything; the step is written again from that alone, if it is
    /// less than everything.
    Provenance,
    /// Everything, with the tools on offer that a model [chooses](crate::screener::tool_filter) for what the user asks.
    ToolFilter,
}

impl Method {
    /// All of them.
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

    /// Whether a step is shown all that happened.
    pub fn shows_everything(self) -> bool {
        match self {
            Self::Everything | Self::ConfirmAlways | Self::ToolFilter => true,
            Self::CheapestFirst | Self::Provenance => true,
            Self::LowestFirst | Self::RedactAll | Self::Judge | Self::Introspection => false,
        }
    }

    /// Whether the model may ask to see what is hidden.
    pub(crate) fn has_look(self) -> bool {
        self == Self::LowestFirst
    }

    /// Whether the model may leave slots for what is hidden.
    pub(crate) fn has_slots(self) -> bool {
        matches!(self, Self::LowestFirst | Self::Provenance)
    }

    /// Whether a step that was shown everything may be written again.
    pub(crate) fn drafts(self) -> bool {
        matches!(self, Self::CheapestFirst | Self::Provenance)
    }

    /// Who says what a step depends on, if a model is asked for it.
    pub(crate) fn screener(self) -> Option<&'static dyn Screener> {
        match self {
            Self::Judge => Some(&Judge),
            Self::Introspection => Some(&Introspection),
            _ => None,
        }
    }

    /// One sentence on what a step is shown.
    pub fn doc(self) -> &'static str {
        match self {
            Self::LowestFirst => {
                "what flows into the strictest tool on offer, and more where the model asks to look"
            }
            Self::CheapestFirst => {
                "everything if all calls that come of it are permitted, else the strictest"
            }
            Self::Judge => Judge.doc(),
            Self::Introspection => Introspection.doc(),
            Self::Provenance => "a draft is shown everything; the step, what the draft takes its values from",
            Self::ToolFilter => "everything, with only the tools that a model chooses for what the user asks",
            Self::Everything => "everything, which taints all that follows",
            Self::ConfirmAlways => "everything, and a person is asked about every call that acts",
            Self::RedactAll => "what flows into the strictest tool on offer, and never more",
        }
    }

    /// Its name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::LowestFirst => "lowest-first",
            Self::Everything => "everything",
            Self::RedactAll => "redact-all",
            Self::ConfirmAlways => "confirm-always",
            Self::CheapestFirst => "cheapest-first",
            Self::Judge => Judge.name(),
            Self::Introspection => Introspection.name(),
            Self::Provenance => "provenance",
            Self::ToolFilter => "tool-filter",
        }
    }
}

/// What a conversation may take, and how it goes about it.
#[derive(Debug, Clone)]
pub struct Settings {
    /// How labels of steps are chosen.
    pub method: Method,
    /// How the model's tokens are chosen.
    pub sampling: Sampling,
    /// How many messages a model may write on one level of a turn.
    pub steps: usize,
    /// How many messages a model may write in one turn, all levels together. This limit can be felt below: what happens above
    /// spends it, too.
    pub messages: usize,
    /// How many levels may stand on one another.
    pub levels: usize,
    /// How many calls one message may hold; the others are refused.
    pub calls: usize,
    /// How long a question to a person stands.
    pub expires: Duration,
    /// The key for digests of calls; random bytes of the caller's.
    pub key: DigestKey,
}

impl Settings {
    /// The usual settings with a key of the caller's.
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
