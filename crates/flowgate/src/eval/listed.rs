//! Evaluates the conditions of `endorse` and `consent` statements that ask whether trusted text lists a value of the
//! judged call:
//!
//! * `VALUE in tool:NAME` holds if an answer of the tool contains the value in a list that only trusted principals
//!   could extend.
//! * `VALUE in tool:NAME({id: call.arguments.id})` holds if the value is a field of the answer to a call with that
//!   argument. The argument of the judged call must be trusted. The policy must vouch for the field, that is, give it a
//!   label below the top of each integrity dimension. The other fields of the answer may be untrusted: a policy can
//!   vouch for the sender of a mail, but not for its body.
//! * `is_url_on(VALUE, tool:NAME)` and `is_url_on(VALUE, Message)` hold if the value is a URL on a host that is named
//!   in a trusted answer of the tool, or in a trusted message. `is_url_on_domain` does the same for the registrable
//!   domain of the host.
//!
//! So the author of the value can choose one of the listed values or hosts, and nothing else.
//!
//! Invariant: the result depends only on regions that are no more confidential than the judged call. So the verdict,
//! which carries the label of the call, reveals nothing about more confidential regions.

use std::sync::Arc;

use super::{Evaluator, Frame, Result, Value};
use crate::label::{DimensionSet, Label, Space};
use crate::policy::plan::{CompiledExpr, ListSource, ListedForm};
use crate::trace::{Document, Event, EventBody, EventId, NodeContent, NodeId, Status};
use crate::url_host::{named_hosts, registrable_domain, web_host};

/// The most listed values. The author of an endorsed value chooses one of them, which is a choice of at most 16 bits.
const MAX_LISTED: usize = 1 << 16;

/// The arguments of an answered call by name, with the values that they must have.
type MatchedArguments = Vec<(Arc<str>, Value)>;

/// The value, host or registrable domain that is searched for in a list.
enum SearchedValue {
    Value(Value),
    Host(String),
    Domain(String),
}

impl Evaluator<'_> {
    /// Returns whether trusted text lists the value. `source` states which text counts: answers of a tool, or messages.
    /// The agent must have seen the text before the judged call, which is the first value in `frame`. `form` states
    /// whether the text must list the whole value, its host or its registrable domain. False if there are more than
    /// [`MAX_LISTED`] listed values.
    pub(super) fn is_listed(
        &mut self,
        value: &Value,
        source: &ListSource,
        form: ListedForm,
        frame: &mut Frame,
    ) -> Result<bool> {
        // The judged call, what is searched for, and the arguments that an answered call must have.
        let Some(Value::Event(call)) = frame.first() else { return Ok(false) };
        let call = *call;
        let value = self.resolve(value)?;
        let Some(wanted) = SearchedValue::of(value, form) else { return Ok(false) };
        let (plan, trace) = (self.plan, self.trace);
        let Some(judged) = trace.event(call) else { return Ok(false) };
        let matched = match source {
            ListSource::MatchingAnswers(_, arguments) => match self.trusted_arguments(arguments, frame)? {
                Some(matched) => matched,
                None => return Ok(false),
            },
            ListSource::Answers(_) | ListSource::Messages => Vec::new(),
        };
        // Whether text of this label is no more confidential than the call.
        let is_readable = |label: &Label| {
            plan.space.exceeded_dimensions(label, &judged.label, secrecy(&plan.space)).is_empty()
        };
        let is_readable_and_trusted = |label: &Label| is_readable(label) && is_trusted(&plan.space, label);
        let is_readable_and_vouched_for =
            |label: &Label| is_readable(label) && is_vouched_for(&plan.space, label);
        // Searches every event that can list values and that the agent had seen.
        let mut remaining = MAX_LISTED;
        for (index, event) in trace.events().iter().enumerate() {
            self.spend(1)?;
            if !self.is_of_source(event, source) || !trace.sees(call, EventId(index)) {
                continue;
            }
            let (listed, visited) = match source {
                ListSource::MatchingAnswers(..) => {
                    if !self.has_arguments(event, &matched, &is_readable)? {
                        continue;
                    }
                    listed_nodes(&event.document, &is_readable, &is_readable_and_vouched_for)
                }
                ListSource::Answers(_) | ListSource::Messages => {
                    listed_nodes(&event.document, &is_readable_and_trusted, &is_readable_and_trusted)
                }
            };
            self.spend(visited)?;
            if listed.len() > remaining {
                return Ok(false);
            }
            remaining -= listed.len();
            for node in listed {
                let found = match (source, event.document.node(node).map(|node| &node.content)) {
                    // The policy vouches for the field. So its value is used without recording a read: a recorded read
                    // could exceed the label that the statement grants, and then nothing would be granted.
                    (ListSource::MatchingAnswers(..), Some(NodeContent::Scalar(value))) => {
                        Value::from_json(value)
                    }
                    _ => self.resolve(&Value::Node(EventId(index), node))?,
                };
                self.charge_value(&found)?;
                if wanted.is_listed_by(&found) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Returns the values that the arguments of an answered call must have; `None` if one of them is missing, or not
    /// trusted: the author of such an argument could choose which answer is searched. `frame` contains the values of
    /// variables.
    fn trusted_arguments(
        &mut self,
        arguments: &[(Arc<str>, CompiledExpr)],
        frame: &mut Frame,
    ) -> Result<Option<MatchedArguments>> {
        let mut matched = Vec::new();
        for (name, value) in arguments {
            let value = self.evaluate(value, frame)?;
            // A field of the judged call must be trusted. Any other value is a constant of the policy, or was computed
            // from a text of the call. Such a text counts as read, and an `endorse` statement grants nothing if it has
            // read a text above the label that it grants.
            if let Value::Node(event, node) = &value {
                let document = self.trace.event(*event).map(|event| &event.document);
                let label = document.map(|document| document.label_of(*node));
                if !label.is_some_and(|label| is_trusted(&self.plan.space, &label)) {
                    return Ok(None);
                }
            }
            let value = self.resolve(&value)?;
            if value.is_absent_or_none() {
                return Ok(None);
            }
            matched.push((Arc::clone(name), value));
        }
        Ok(Some(matched))
    }

    /// Returns whether the call that `answer` answers has the arguments `matched`. An argument that is more
    /// confidential than the judged call (not `is_readable`) counts as unequal: otherwise the verdict would reveal
    /// whether it is equal.
    fn has_arguments(
        &mut self,
        answer: &Event,
        matched: &MatchedArguments,
        is_readable: &impl Fn(&Label) -> bool,
    ) -> Result<bool> {
        let Some((id, call)) = answer.call.and_then(|id| Some((id, self.trace.event(id)?))) else {
            return Ok(false);
        };
        let document = &call.document;
        let Some(arguments) = document.key(0, "arguments") else { return Ok(false) };
        for (name, expected) in matched {
            let Some(node) = document.key(arguments, name) else { return Ok(false) };
            if !is_readable(&document.label_of(node)) {
                return Ok(false);
            }
            let found = self.resolve(&Value::Node(id, node))?;
            self.charge_value(&found)?;
            if !found.equals(expected) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns whether an event can list values for `source`. For a tool pattern, it is an output that answers a call
    /// of a tool that the pattern matches; for messages, it is a message that the model did not write.
    fn is_of_source(&self, event: &Event, source: &ListSource) -> bool {
        // The label of an irregular event, such as an answer to no call, depends on how the event came about, so such
        // an event lists nothing.
        let is_done = event.status == Status::Done && !event.document.origin.is_irregular;
        is_done
            && match (source, &event.body) {
                (
                    ListSource::Answers(pattern) | ListSource::MatchingAnswers(pattern, _),
                    EventBody::Output(_),
                ) => {
                    let call = event.call.and_then(|call| self.trace.event(call));
                    let pattern = self.plan.patterns.get(pattern.0);
                    call.and_then(Event::tool)
                        .zip(pattern)
                        .is_some_and(|(tool, pattern)| pattern.matches(tool))
                }
                (ListSource::Messages, EventBody::Message(message)) => {
                    !matches!(message.role.as_str(), "assistant" | "model")
                }
                _ => false,
            }
    }
}

impl SearchedValue {
    /// Returns the part of a value that is searched for: the whole value, its host, or its registrable domain, as
    /// `form` says. `None` for a value that no list can contain.
    fn of(value: Value, form: ListedForm) -> Option<Self> {
        let host = || value.as_text().and_then(web_host);
        match form {
            ListedForm::Host => host().map(Self::Host),
            ListedForm::RegistrableDomain => {
                host().and_then(|host| registrable_domain(&host)).map(Self::Domain)
            }
            // Numbers with a fraction are left out: two different ones could be equal after parsing.
            ListedForm::Whole => matches!(value, Value::Str(_) | Value::Int(_)).then_some(Self::Value(value)),
        }
    }

    /// Returns whether `found`, one text or number of a list, lists the value: it equals the value, or names its host
    /// or a host of its registrable domain.
    fn is_listed_by(&self, found: &Value) -> bool {
        let mut hosts = found.as_text().into_iter().flat_map(named_hosts);
        match self {
            Self::Value(value) => {
                // The number 1 does not list the text `1`.
                std::mem::discriminant(found) == std::mem::discriminant(value) && found.equals(value)
            }
            Self::Host(host) => hosts.any(|found| found == *host),
            Self::Domain(domain) => {
                hosts.any(|found| registrable_domain(&found).is_some_and(|found| found == *domain))
            }
        }
    }
}

/// Returns the scalars of a document whose labels satisfy `may_list`, within nodes whose labels satisfy `may_enter`;
/// and how many nodes were visited. A node that may not be entered counts as visited, since the list or map around it,
/// which may be entered, shows that it exists. Its subtree is skipped and not counted, so that the fuel reveals nothing
/// about the subtree.
fn listed_nodes(
    document: &Document,
    may_enter: &impl Fn(&Label) -> bool,
    may_list: &impl Fn(&Label) -> bool,
) -> (Vec<NodeId>, usize) {
    let (mut listed, mut next, mut visited) = (Vec::new(), 0, 0);
    while let Some(node) = document.node(next) {
        visited += 1;
        if !may_enter(&node.label) {
            // The index after the last node of the subtree.
            next = node.end;
            continue;
        }
        if matches!(node.content, NodeContent::Scalar(_)) && may_list(&node.label) {
            listed.push(next);
        }
        next += 1;
    }
    (listed, visited)
}

/// Returns whether a label is at the bottom in every integrity dimension.
fn is_trusted(space: &Space, label: &Label) -> bool {
    space.restrict(label, space.integrity()) == Label::BOTTOM
}

/// Returns whether the policy vouches for text of this label: whether the label is below the top in every integrity
/// dimension.
fn is_vouched_for(space: &Space, label: &Label) -> bool {
    let integrity = space.integrity();
    (0..space.dimensions().len())
        .filter(|index| integrity.has(*index))
        .map(DimensionSet::single)
        .all(|one| space.restrict(label, one) != space.restrict(&space.top(), one))
}

/// Returns all dimensions except the integrity dimensions. They express how confidential a text is, or how old.
fn secrecy(space: &Space) -> DimensionSet {
    space.all().without(space.integrity())
}
