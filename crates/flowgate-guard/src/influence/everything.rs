//! Implements the influence method `everything`, naive tainting: every region that the agent has seen influences every
//! call.
//!
//! The method is sound for any model, since a model may use anything that it sees. It raises the most questions,
//! because one untrusted region makes every later call untrusted. [`MethodRegistry`](crate::method::MethodRegistry)
//! offers it by name.

use flowgate::monitor::Attribution;
use flowgate::trace::{EventId, Trace, TraceEntry};

use super::{AttributionSession, InfluenceMethod};

/// The method *everything*.
#[derive(Debug, Clone, Copy)]
pub struct EverythingMethod;

impl InfluenceMethod for EverythingMethod {
    fn name(&self) -> &'static str {
        "everything"
    }

    fn doc(&self) -> &'static str {
        "every region that the agent has seen influences the call; holds for every model"
    }

    fn start(&self) -> Box<dyn AttributionSession> {
        Box::new(Self)
    }
}

impl AttributionSession for EverythingMethod {
    /// Ignores the event: a call depends on every event that the agent has seen, whatever its content.
    fn observe(&mut self, _: &Trace, _: EventId) {}

    /// Attributes the whole entry to everything that the agent has seen.
    fn attribute(&mut self, _: &Trace, _: &TraceEntry) -> Attribution {
        Attribution::everything()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::check;
    use super::EverythingMethod;

    #[test]
    fn everything_read_influences_the_call() {
        let arguments = r#"{"to": "bob@x.org"}"#;
        check(&EverythingMethod, "pay bob@x.org", r#"{"note": "hello"}"#, arguments, "confirm");
        check(&EverythingMethod, "pay bob@x.org", r#"{"owner": "ann@x.org"}"#, arguments, "confirm");
    }
}
