//! Implements the influence methods that let a model say on which regions a call depends. Each is an
//! [`EstimatedMethod`] with a [`LabelEstimator`], which finds labels each of which suffices: the text of the regions at
//! or below it determines the call (Permissive Information-Flow Analysis, section 3).
//!
//! | estimator | how it finds labels | model |
//! |---|---|---|
//! | [`super::lambda`] | a search for labels whose regions make the call nearly as probable as all regions do | one that scores |
//! | [`super::knn`] | the same search, with the utility of the kNN-LM | a local one, with hidden states |
//! | [`super::introspection`] | it asks which regions the call needs | one for chats |
//!
//! The methods need a model, so they are in no default list: a program that wants one registers it
//! ([`MethodRegistry::register_influence`](crate::method::MethodRegistry::register_influence)).
//!
//! On a recorded run the result is an *estimate*, for two reasons. The call was generated from the whole context, and
//! is not generated again. And the result depends on the judgement of a model, and hidden text can mislead that model.
//! Where an answer is to be generated again at the label, use [`crate::propagation::Propagator`]. If the model fails,
//! or the call cannot be read, the call depends on everything.

use std::fmt;
use std::sync::Arc;

use flowgate::label::span::SpanElement;
use flowgate::label::{Label, LabelSpan};
use flowgate::monitor::{Attribution, CallDependency};
use flowgate::trace::{EventBody, EventId, NodeContent, NodeId, Trace, TraceEntry};
use flowgate_lm::Error;
use serde_json::{Value, json};

use super::{AttributionSession, InfluenceMethod};
use crate::propagation::{Candidate, LabelledContext, LabelledDocument, prefer};

/// A way to find the labels whose regions suffice for a call.
pub trait LabelEstimator: Send + Sync {
    /// Returns the name of the method on the command line and in reports.
    fn name(&self) -> &'static str;

    /// Describes in one sentence which regions the method returns.
    fn doc(&self) -> &'static str;

    /// Returns labels each of which suffices for the call `asked`: the text of the regions at or below it determines
    /// the call. Each is an element of the lattice of the regions' labels.
    ///
    /// # Errors
    /// If the model fails.
    fn labels(&self, asked: &EstimatedCall<'_>) -> Result<Vec<SpanElement>, Error>;
}

/// A call, with all regions that precede it.
#[derive(Debug, Clone, Copy)]
pub struct EstimatedCall<'a> {
    /// The regions, as documents.
    pub context: &'a LabelledContext,
    /// The call, as text.
    pub call: &'a str,
    /// The lattice of the regions' labels.
    pub span: &'a LabelSpan,
}

/// An influence method that asks an estimator.
#[derive(Clone)]
pub struct EstimatedMethod {
    estimator: Arc<dyn LabelEstimator>,
    /// Bounds, the most preferred one first. Of the labels that the estimator finds, one that flows to an earlier
    /// bound is taken before any other.
    preferred: Vec<Label>,
}

impl fmt::Debug for EstimatedMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EstimatedMethod({})", self.estimator.name())
    }
}

impl EstimatedMethod {
    /// Creates the method. It tries the bounds of `preferred` in order, and takes the first label that the estimator
    /// finds for a call and that flows to the bound. If no label flows to any bound, it takes the one with the fewest
    /// regions.
    #[must_use]
    pub fn new(estimator: Arc<dyn LabelEstimator>, preferred: Vec<Label>) -> Self {
        Self { estimator, preferred }
    }
}

impl InfluenceMethod for EstimatedMethod {
    fn name(&self) -> &'static str {
        self.estimator.name()
    }

    fn doc(&self) -> &'static str {
        self.estimator.doc()
    }

    fn start(&self) -> Box<dyn AttributionSession> {
        Box::new(EstimatedSession { method: self.clone(), regions: Vec::new() })
    }
}

/// The regions of one session, in order.
#[derive(Debug)]
struct EstimatedSession {
    method: EstimatedMethod,
    /// The event and the node of each region, and its text with the label.
    regions: Vec<(EventId, NodeId, LabelledDocument)>,
}

impl AttributionSession for EstimatedSession {
    /// Collects the texts of an event with their labels, as documents that a later call may depend on. Numbers and
    /// booleans count as texts. Calls are no documents: the model wrote them.
    fn observe(&mut self, trace: &Trace, id: EventId) {
        let Some(event) = trace.event(id).filter(|event| !matches!(event.body, EventBody::Call(_))) else {
            return;
        };
        for (node, labelled) in event.document.nodes().iter().enumerate() {
            let text = match &labelled.content {
                NodeContent::Scalar(Value::String(text)) => text.clone(),
                NodeContent::Scalar(Value::Null) | NodeContent::List | NodeContent::Map => continue,
                NodeContent::Scalar(value) => value.to_string(),
            };
            self.regions.push((id, node, LabelledDocument { text, label: labelled.label }));
        }
    }

    /// Attributes the decision and each argument of a call to the regions at or below the chosen label. Returns that
    /// the call depends on everything if the entry is no call or does not fit the trace, if the arguments are
    /// malformed, or if the model fails.
    fn attribute(&mut self, trace: &Trace, entry: &TraceEntry) -> Attribution {
        let method = self.method.estimator.name();
        let everything = Attribution { method, ..Attribution::everything() };
        let (EventBody::Call(call), Ok(position)) = (&entry.body, trace.position_of(entry)) else {
            return everything;
        };
        let Ok(arguments) = &call.arguments else { return everything };
        let seen: Vec<_> =
            self.regions.iter().filter(|(event, ..)| trace.has_seen(&position, *event)).collect();
        let context = LabelledContext {
            preamble: "What an agent has read:\n".to_owned(),
            documents: seen.iter().map(|(.., document)| document.clone()).collect(),
            // The line break keeps a token from spanning the end of the question.
            question: "The call that the agent makes next:\n".to_owned(),
            // The question is a constant, so it has the least label.
            question_label: Label::BOTTOM,
        };
        let completion = json!({"tool": call.tool.name, "arguments": arguments}).to_string();
        let Ok(documents) = self.needed(&context, &completion) else { return everything };
        let regions: Vec<(EventId, NodeId)> = documents
            .into_iter()
            .filter_map(|document| seen.get(document).map(|(event, node, _)| (*event, *node)))
            .collect();
        // The method estimates the call as a whole: the decision and each argument depend on the same regions. It hides
        // no region from the model (`hidden`).
        let dependency = || CallDependency::Regions(regions.clone());
        let arguments = arguments.iter().map(|(name, _)| (name.clone(), dependency())).collect();
        Attribution { method, decision: dependency(), arguments, hidden: 0 }
    }
}

impl EstimatedSession {
    /// Returns the documents at or below the chosen label, by their indices in `context`. The method tries its
    /// preferred bounds in order, and chooses the first label found that flows to the bound. If no label flows to
    /// any bound, it chooses the one with the fewest documents. If no label is found at all, returns all documents.
    /// `completion` is the call, as text.
    ///
    /// # Errors
    /// If the regions have too many labels, or the model fails.
    fn needed(&self, context: &LabelledContext, completion: &str) -> Result<Vec<usize>, Error> {
        let span = LabelSpan::new(&context.labels()).map_err(|_| {
            Error::Failed(
                "the regions have more than 128 different labels; use another influence method".to_owned(),
            )
        })?;
        let asked = EstimatedCall { context, call: completion, span: &span };
        let found = self.method.estimator.labels(&asked)?;
        let candidate =
            |element: &_| Candidate { label: span.label(*element), documents: span.documents(*element) };
        let candidates: Vec<Candidate> = found.iter().map(candidate).collect();
        let chosen = candidates.get(prefer(&candidates, &self.method.preferred));
        Ok(chosen.map_or_else(|| span.documents(span.top()), |candidate| candidate.documents.clone()))
    }
}
