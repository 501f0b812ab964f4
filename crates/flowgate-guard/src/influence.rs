//! Defines influence methods, which determine the regions that a call depends on ([`InfluenceMethod`]). They are used
//! mainly for the calls of recorded runs ([`crate::replay`]).
//!
//! | method | regions | guarantee |
//! |---|---|---|
//! | [`everything`] | every region that the agent has seen | holds for every model and every attack |
//! | [`nothing`] | only regions whose label flows to the label of the user's own words | holds if the caller has hidden all other regions from the model |
//! | [`provenance`] | the regions whose values recur in the arguments | an estimate; holds only once the call was regenerated from the redacted context |
//! | [`lambda`], [`knn`], [`introspection`] | the regions at or below a label that suffices for the call, as a model says ([`estimated`]); not in the default list | an estimate of a model |
//!
//! A method is queried once per call, before the call is judged; the monitor treats its answer as data. The
//! [registry](crate::method::MethodRegistry) lists methods by name. The methods `provenance` and `nothing` look up the
//! values of a call with `index`, which finds the regions that state a value, and `facts`, which recognises numbers,
//! dates and times in a text.

pub mod estimated;
pub mod everything;
pub(crate) mod facts;
pub(crate) mod index;
pub mod introspection;
pub mod knn;
pub mod lambda;
pub mod nothing;
pub mod provenance;

use flowgate::monitor::Attribution;
use flowgate::trace::{EventId, Trace, TraceEntry};

/// An algorithm that estimates which regions a call depends on.
pub trait InfluenceMethod: Send + Sync {
    /// Returns the name of the method on the command line and in reports.
    fn name(&self) -> &'static str;

    /// Describes in one sentence which regions the method returns, and what it assumes.
    fn doc(&self) -> &'static str;

    /// Returns the state of the method for a session with an empty trace.
    fn start(&self) -> Box<dyn AttributionSession>;
}

/// The state of a method over one session.
pub trait AttributionSession: std::fmt::Debug + Send {
    /// Records an event that has been labelled.
    fn observe(&mut self, trace: &Trace, event: EventId);

    /// Returns what a call that is about to be judged depends on.
    fn attribute(&mut self, trace: &Trace, call: &TraceEntry) -> Attribution;
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use flowgate::policy::Policy;
    use flowgate::trace::read;
    use serde_json::json;

    use super::InfluenceMethod;
    use crate::replay::replay;

    const POLICY: &str = "
lattice integrity: trusted < untrusted
label message as trusted if:
    (message: Message)
    message.role == \"user\"
label out.content.owner as trusted if:
    (out: ToolOutput) is tool:fetch
require top if:
    (call: ToolCall) is tool:fetch
require trusted if:
    (call: ToolCall) is tool:act
";

    /// Checks that a call with these `arguments` has the verdict `expected`, after the message `user` of the user and
    /// a tool's answer `page`, in which only the field `owner` is trusted.
    pub(super) fn check(
        method: &dyn InfluenceMethod,
        user: &str,
        page: &str,
        arguments: &str,
        expected: &str,
    ) {
        let call = |id: &str, name: &str, arguments: &str| {
            let function = json!({"name": name, "arguments": arguments});
            json!({"role": "assistant", "tool_calls": [{"id": id, "function": function}]})
        };
        let messages = json!([
            {"role": "user", "content": user},
            call("a", "fetch", "{}"),
            {"role": "tool", "tool_call_id": "a", "content": page},
            call("b", "act", arguments),
        ]);
        let run = read::file(&messages.to_string()).unwrap().remove(0);
        let policy = Arc::new(Policy::parse(POLICY).unwrap());
        let replayed = replay(&policy, method, &run);
        let verdict = replayed.calls[1].outcome.name();
        assert_eq!(verdict, expected, "{user:?} {arguments} {:?}", replayed.calls[1].judgement.reasons);
    }
}
