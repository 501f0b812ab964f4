//! Influence methods: which regions a call depends on.
//!
//! | method | what it says | what that guarantees |
//! |---|---|---|
//! | [`everything`] | every region that the agent has seen | holds for every model and every attack |
//! | [`nothing`] | nothing above the user's own words, the rest is hidden | holds if the model is really shown only that |
//! | [`provenance`] | the regions whose values reappear in the arguments | an estimate, until the call is generated again from the redacted context |
//!
//! A method is asked once for each call, before the call is judged; its answer is data that the monitor reads.

pub mod everything;
mod facts;
mod index;
pub mod nothing;
pub mod provenance;

use flowgate::monitor::Attribution;
use flowgate::trace::{Entry, EventId, Trace};

/// A way of telling what a call depends on.
pub trait Influence: Send + Sync {
    /// Its name on the command line and in reports.
    fn name(&self) -> &'static str;

    /// One sentence on what it assumes and guarantees.
    fn doc(&self) -> &'static str;

    /// Begins with an empty trace.
    fn start(&self) -> Box<dyn Session>;
}

/// The state of a method over one session.
pub trait Session {
    /// Takes note of an event that has been labelled.
    fn observe(&mut self, trace: &Trace, event: EventId);

    /// Says what a call depends on that is about to be judged.
    fn attribute(&mut self, trace: &Trace, call: &Entry) -> Attribution;
}

/// All methods, the most careful first.
pub const METHODS: [&dyn Influence; 3] =
    [&everything::Everything, &provenance::Provenance, &nothing::Nothing];

/// The method called `name`.
pub fn find(name: &str) -> Option<&'static dyn Influence> {
    METHODS.into_iter().find(|method| method.name() == name)
}
