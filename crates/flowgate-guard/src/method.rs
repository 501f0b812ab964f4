//! Defines the methods of conversations: algorithms that choose the label of a step, and with it what the step is
//! shown.
//!
//! A method is a type that implements [`StepMethod`], in one file. A conversation queries the trait's functions, and
//! otherwise treats all methods alike; [`MethodRegistry`] lists the methods that a program offers by name. An embedding
//! program adds a method without a change here: it implements the trait, registers the method, and passes it to
//! [`ConversationSettings::new`](crate::conversation::ConversationSettings::new).
//!
//! Whatever a method chooses, the monitor judges every call with the label of what the model was shown. An error of a
//! method therefore never permits a call that the policy denies. It costs utility, questions to a person, or bits: a
//! choice that depends on hidden text reveals bits of this text to an observer of the steps, and the conversation
//! counts them for each turn ([`TurnUsage::bits`](crate::conversation::TurnUsage::bits)).
//!
//! Some methods judge the drafts of steps, as the submodule [`draft`] defines. A *draft* is here a message that the
//! model writes with everything in view; the method accepts it, or has the step generated again at a lower label.
//!
//! | method | a step is shown |
//! |---|---|
//! | [`lowest_first`] | what flows to the strictest requirement on offer, and more when the model looks at hidden regions |
//! | [`cheapest_first`] | everything if all resulting calls are permitted, otherwise what flows to the strictest requirement on offer |
//! | [`judge`], [`introspection`] | what flows to the labels of the hidden regions that a [screener](crate::screener) names |
//! | [`provenance`] | what flows to the labels of the regions from which a draft takes its values |
//! | [`everything`], [`tool_filter`], [`confirm_acting`] | everything |
//! | [`never_look`] | what flows to the strictest requirement on offer; the model cannot look at hidden regions |

pub mod cheapest_first;
pub mod confirm_acting;
pub mod draft;
pub mod everything;
pub mod introspection;
pub mod judge;
pub mod lowest_first;
pub mod never_look;
pub mod provenance;
mod registry;
pub mod tool_filter;

use std::fmt;
use std::ops::Deref;

use flowgate::monitor::Judgement;

pub use registry::{MethodRegistry, NameTaken, UnknownMethod};

use crate::screener::{Screener, ToolSelector};
use draft::DraftJudge;

/// A method that chooses the label of a step.
///
/// Only the name and the description are required. A method that overrides no other function shows a step what flows to
/// the strictest requirement on offer.
pub trait StepMethod: fmt::Debug + Send + Sync {
    /// Returns the name of the method in configurations, on the command line and in reports.
    fn name(&self) -> &'static str;

    /// Describes in one sentence what a step is shown.
    fn doc(&self) -> &'static str;

    /// Returns whether a step is shown everything that happened. If the method judges drafts, this concerns the draft,
    /// and a rewrite may be shown less.
    fn shows_everything(&self) -> bool {
        false
    }

    /// Returns whether the model may request hidden regions with `look`.
    fn has_look(&self) -> bool {
        false
    }

    /// Returns whether the model may leave slots to be filled with hidden regions.
    fn has_slots(&self) -> bool {
        false
    }

    /// Returns the screener that decides what a step depends on, if the method queries a model for that.
    fn screener(&self) -> Option<&dyn Screener> {
        None
    }

    /// Returns the selector of the tools of a turn, if the method queries a model for that.
    fn tool_selector(&self) -> Option<&dyn ToolSelector> {
        None
    }

    /// Starts a judge of drafts for one conversation; `None` if the method rewrites no step. A draft is a step that was
    /// shown more than the base label allows.
    fn start_drafts(&self) -> Option<Box<dyn DraftJudge>> {
        None
    }

    /// Returns whether a step that acts raises the label of the rest of the turn to its own, so that later steps see
    /// what it did. A step acts when a call of it is released to run that the policy does not declare harmless. A step
    /// whose acting calls are all refused raises nothing.
    ///
    /// Whether a call was released can depend on text that is hidden from the step. The bits that the method counts for
    /// its choice of the next label must cover this. The bits of a [draft judge](Self::start_drafts) that can choose
    /// any label do.
    fn raises_level(&self) -> bool {
        false
    }

    /// Returns whether a person is asked about a call that the policy permits.
    fn confirms(&self, _permitted: &Judgement) -> bool {
        false
    }

    /// Returns the bits of hidden text that a question about a call of a step above the base label can reveal.
    fn question_bits(&self) -> usize {
        0
    }
}

/// A handle of a method: a value that can be copied and compared, and refers to the implementation.
#[derive(Clone, Copy)]
pub struct Method(&'static dyn StepMethod);

#[expect(non_upper_case_globals, reason = "each is named as the type that it is a handle of")]
impl Method {
    /// See [`lowest_first`].
    pub const LowestFirst: Self = Self(&lowest_first::LowestFirst);
    /// See [`cheapest_first`].
    pub const CheapestFirst: Self = Self(&cheapest_first::CheapestFirst);
    /// See [`judge`].
    pub const Judge: Self = Self(&judge::Judge);
    /// See [`introspection`].
    pub const Introspection: Self = Self(&introspection::Introspection);
    /// See [`provenance`].
    pub const Provenance: Self = Self(&provenance::Provenance);
    /// See [`everything`].
    pub const Everything: Self = Self(&everything::Everything);
    /// See [`tool_filter`].
    pub const ToolFilter: Self = Self(&tool_filter::ToolFilter);
    /// See [`confirm_acting`].
    pub const ConfirmActing: Self = Self(&confirm_acting::ConfirmActing);
    /// See [`never_look`].
    pub const NeverLook: Self = Self(&never_look::NeverLook);

    /// Creates the handle of a method.
    pub const fn new(method: &'static dyn StepMethod) -> Self {
        Self(method)
    }
}

impl Deref for Method {
    type Target = dyn StepMethod;

    fn deref(&self) -> &Self::Target {
        self.0
    }
}

/// Methods are equal if they have the same name, which is unique in a registry.
impl PartialEq for Method {
    /// Compares the names: a registry has one method of each name.
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for Method {}

impl fmt::Debug for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Method({})", self.name())
    }
}
