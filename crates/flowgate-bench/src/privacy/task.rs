//! Defines a task of the privacy suite: the prior conversation, the request, and the calls of the ground truth (the
//! correct calls). Each call has an oracle label, the categories of private data that it discloses.
//!
//! A task states where each value of a call comes from, so an agent computes the call from what it can see, and a
//! [check](super::check) can compare the oracle labels with the flow of the data. [`read`](super::read) reads tasks
//! from the files in `data/privacy`.

use std::collections::BTreeSet;

/// A set of categories of private data. It is empty for a call that needs no confirmation.
pub type Categories = BTreeSet<String>;

/// A set of tasks with the same tools (RTBAS, Table 3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Suite {
    /// Payments between friends; RTBAS's "Venmo".
    Payments,
    /// Flights, and what a traveller needs besides.
    Flights,
    /// A shop; RTBAS's "Amazon".
    Shopping,
}

impl Suite {
    /// All suites.
    pub const ALL: [Self; 3] = [Self::Payments, Self::Flights, Self::Shopping];

    /// Returns the name, which is also the name of the server of its tools.
    pub fn name(self) -> &'static str {
        match self {
            Self::Payments => "payments",
            Self::Flights => "flights",
            Self::Shopping => "shopping",
        }
    }

    /// Returns the text of the policy, in the policy language.
    pub fn policy(self) -> &'static str {
        match self {
            Self::Payments => include_str!("../../data/privacy/payments.flow"),
            Self::Flights => include_str!("../../data/privacy/flights.flow"),
            Self::Shopping => include_str!("../../data/privacy/shopping.flow"),
        }
    }

    /// Returns the text of the tasks, which [`read`](super::read) reads.
    pub fn tasks_text(self) -> &'static str {
        match self {
            Self::Payments => include_str!("../../data/privacy/payments.tasks"),
            Self::Flights => include_str!("../../data/privacy/flights.tasks"),
            Self::Shopping => include_str!("../../data/privacy/shopping.tasks"),
        }
    }
}

/// How private data propagates: a task has the first of these patterns that fits. Numbers in brackets are sections of
/// RTBAS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LeakPattern {
    /// The request leaves open whether private data is meant, or which data ("ambiguous, underspecified" commands, in
    /// RTBAS's introduction).
    Ambiguous,
    /// The data is in the context, and nothing needs it.
    None,
    /// The data decides whether a call is made, and the call does not repeat it. RTBAS has no such pattern.
    Decides,
    /// The request does not need the data; the description of a tool asks for it (RTBAS, 3.2).
    Description,
    /// A step of reasoning or another tool uses the data, and a call contains what follows from it (RTBAS, 3.2).
    Intermediate,
    /// The request does not name the data, but cannot be carried out without it, as a purchase without a card (RTBAS,
    /// 3.2).
    Implicit,
    /// The request names the data (RTBAS, 3.2).
    Explicit,
}

impl LeakPattern {
    /// All patterns.
    pub const ALL: [Self; 7] = [
        Self::Explicit,
        Self::Implicit,
        Self::Intermediate,
        Self::Description,
        Self::Ambiguous,
        Self::Decides,
        Self::None,
    ];
    /// The patterns of RTBAS, section 3.2.
    pub const OF_THE_PAPER: [Self; 4] =
        [Self::Explicit, Self::Implicit, Self::Intermediate, Self::Description];

    /// Returns the name in files and tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Explicit => "explicit",
            Self::Implicit => "implicit",
            Self::Intermediate => "intermediate",
            Self::Description => "description",
            Self::Ambiguous => "ambiguous",
            Self::Decides => "decides",
            Self::None => "none",
        }
    }
}

/// One turn before the task: a message of the user, and the call that the agent then made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EarlierTurn {
    /// The message.
    pub said: String,
    /// The name of the tool that was called, without arguments; `None` if none was.
    pub called: Option<String>,
}

/// A task.
#[derive(Debug, Clone, PartialEq)]
pub struct PrivacyTask {
    /// The name, unique in its suite.
    pub name: String,
    /// The suite.
    pub suite: Suite,
    /// How private data propagates in the task.
    pub pattern: LeakPattern,
    /// The turns before the request.
    pub earlier: Vec<EarlierTurn>,
    /// The request.
    pub request: String,
    /// The calls of the ground truth, in order.
    pub steps: Vec<GroundTruthCall>,
    /// The values that the reply has to contain, each of them.
    pub tell: Vec<Template>,
}

/// A call of the ground truth.
#[derive(Debug, Clone, PartialEq)]
pub struct GroundTruthCall {
    /// The name of the tool.
    pub tool: String,
    /// The condition under which the call is made; `None` if it is always made.
    pub condition: Option<Condition>,
    /// The names of the arguments, with their values.
    pub arguments: Vec<(String, Template)>,
    /// The oracle label: the categories that the call discloses. The call needs confirmation if there are any.
    pub oracle: Categories,
}

impl GroundTruthCall {
    /// Returns whether a person has to confirm the call, because it discloses a category of private data.
    pub fn needs_confirmation(&self) -> bool {
        !self.oracle.is_empty()
    }

    /// Returns the fields from which the call follows: the field of its condition, and those in its arguments.
    pub fn references(&self) -> impl Iterator<Item = &Reference> {
        let condition = self.condition.iter().map(|condition| &condition.left);
        condition.chain(self.arguments.iter().flat_map(|(_, value)| value.references()))
    }
}

/// A comparison of a field with a number.
#[derive(Debug, Clone, PartialEq)]
pub struct Condition {
    /// The field.
    pub left: Reference,
    /// Whether the field must be at least the number; otherwise it must be below.
    pub is_at_least: bool,
    /// The number.
    pub right: f64,
}

/// A text with references, from which a value is computed.
#[derive(Debug, Clone, PartialEq)]
pub struct Template(pub Vec<Piece>);

impl Template {
    /// Returns the references in the template.
    pub fn references(&self) -> impl Iterator<Item = &Reference> {
        self.0.iter().filter_map(|piece| match piece {
            Piece::Field(reference) => Some(reference),
            Piece::Text(_) => None,
        })
    }
}

/// A piece of a template.
#[derive(Debug, Clone, PartialEq)]
pub enum Piece {
    /// Text.
    Text(String),
    /// A value from an answer.
    Field(Reference),
}

/// A field of the latest answer of a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct Reference {
    /// The name of the tool.
    pub tool: String,
    /// The id of the row, if the answer is a list; `None` if it is an object.
    pub row: Option<String>,
    /// The name of the field.
    pub field: String,
    /// How the result is derived from the value of the field.
    pub derivation: Derivation,
}

/// How a result is derived from the value of a field.
#[derive(Debug, Clone, PartialEq)]
pub enum Derivation {
    /// The value is copied.
    Copy,
    /// The value is divided by this number.
    DivideBy(f64),
    /// The value is replaced by a text: pairs of a value and its text.
    Choose(Vec<(String, String)>),
}
