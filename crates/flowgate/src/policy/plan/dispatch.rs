//! Defines [`Dispatch`], an index of the variables of all rules. It maps an event to the variables that the event could
//! be bound to, by the kind of the event and by the name of its tool (for a message, its role). `rules` asks it for
//! each new event, so that the cost of a call does not grow with the number of rules about other tools.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Rule, Type};
use crate::trace::{EventBody, EventId, Trace};

/// A variable of a rule: the index of the rule, and the index among its variables over events.
type RuleVariable = (usize, usize);

/// The variables that events could be bound to.
#[derive(Debug, Default)]
pub(crate) struct Dispatch {
    /// One entry for each of [`KINDS`].
    kinds: [KindVariables; 4],
    /// The rules whose matches a later event can change without being bound to one of their own variables, for example
    /// an event that a block counts (see [`Rule::is_settled`]).
    pub(crate) unsettled: Vec<usize>,
    /// The rules that exempt tools by a pattern.
    pub(crate) exempting: Vec<usize>,
}

/// The variables that events of one kind could be bound to.
#[derive(Debug, Default)]
struct KindVariables {
    /// The variables whose conditions require a certain tool name or message role, by that name.
    named: HashMap<Arc<str>, Vec<RuleVariable>>,
    /// The variables without such a condition.
    others: Vec<RuleVariable>,
}

/// The kinds of events, in the order of [`Dispatch::kinds`].
const KINDS: [Type; 4] = [Type::Message, Type::ToolCall, Type::ToolOutput, Type::Tool];

impl Dispatch {
    /// Indexes the event variables of all rules by kind of event and by the name of the tool (or the role of the
    /// message) that their conditions require. Also lists the rules whose matches later events can change
    /// (`unsettled`), and those that exempt tools by a pattern (`exempting`).
    pub(crate) fn new(rules: &[Rule]) -> Self {
        let mut dispatch = Self::default();
        for (index, rule) in rules.iter().enumerate() {
            for (position, variable) in rule.events.iter().enumerate() {
                // A variable over any event (`Type::Event`) is indexed under every kind.
                for (ty, kind) in KINDS.iter().zip(&mut dispatch.kinds) {
                    if variable.ty == *ty || variable.ty == Type::Event {
                        match &variable.named {
                            Some(name) => {
                                kind.named.entry(Arc::clone(name)).or_default().push((index, position))
                            }
                            None => kind.others.push((index, position)),
                        }
                    }
                }
            }
            if !rule.is_settled {
                dispatch.unsettled.push(index);
            }
            if !rule.exempting.is_empty() {
                dispatch.exempting.push(index);
            }
        }
        dispatch
    }

    /// Returns the variables that the event `id` of this `kind` could be bound to. First come those whose conditions
    /// require the name of the event's tool (for a message, its role), then those whose conditions require no name.
    pub(crate) fn rule_variables<'a>(
        &'a self,
        trace: &'a Trace,
        id: EventId,
        kind: Type,
    ) -> impl Iterator<Item = RuleVariable> + 'a {
        let index = KINDS.iter().position(|known| *known == kind);
        let kind = index.and_then(|index| self.kinds.get(index));
        let named = kind.filter(|kind| !kind.named.is_empty()).and_then(|kind| {
            let event = trace.event(id)?;
            let name: &str = match &event.body {
                EventBody::Message(message) => &message.role,
                EventBody::Call(call) => &call.tool.name,
                // The tool of an output is the tool of the call that it answers, or claims to answer.
                EventBody::Output(_) => &trace.event(event.call.or(event.claimed)?)?.tool()?.name,
                EventBody::Tool(tool) => &tool.tool.name,
            };
            kind.named.get(name)
        });
        let others = kind.map_or(&[] as &[RuleVariable], |kind| kind.others.as_slice());
        named.into_iter().flatten().chain(others).copied()
    }
}
