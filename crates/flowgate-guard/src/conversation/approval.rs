//! Builds the request that a person decides on: the call, the reasons of the verdict, and excerpts of the regions that
//! the reasons name.
//!
//! The request carries a label: its reader must be cleared for the verdict and for every region that a reason names.
//! [`super::calls`] builds the request when a call needs a person's decision. The gateway builds it again when it shows
//! a question once more.

use flowgate::label::Label;
use flowgate::monitor::{Question, Reason, ReasonKind};
use flowgate::trace::{self, EventBody, Tool};
use serde_json::Value;

use super::Conversation;
use crate::approve::{ApprovalRequest, Excerpt};

/// The length of an excerpt of a region, in characters.
const MAX_EXCERPT_CHARS: usize = 400;

impl Conversation {
    /// Builds the approval request for a question of the monitor. It has one excerpt for each region that a reason
    /// names. Its `times` is 1 and its `upcoming` is empty: no further questions are announced.
    ///
    /// The request has labels of four kinds:
    ///
    /// * `label` is the label of the call.
    /// * `decided` is the label of the verdict, which can be higher: a reader who is not cleared for it must not learn
    ///   that the question exists.
    /// * `reasons_carry` are the labels of the reasons, one by one.
    /// * `carries` is the join of `decided` and of the labels of the reasons: a reader of the whole question must be
    ///   cleared for it.
    pub fn approval_request(&self, question: &Question) -> ApprovalRequest {
        let judgement = question.judgement();
        let call = question.call();
        let mut excerpts: Vec<Excerpt> = Vec::new();
        for (region, label) in judgement.reasons.iter().flat_map(|reason| &reason.regions) {
            let Some(excerpt) = self.excerpt_of(region, label) else { continue };
            if !excerpts.contains(&excerpt) {
                excerpts.push(excerpt);
            }
        }
        // A question always has a call with well-formed arguments: the monitor denies any other call.
        let arguments = call.and_then(|call| call.arguments.clone().ok()).unwrap_or_default();
        let reasons_carry: Vec<Label> =
            judgement.reasons.iter().map(|reason| self.reason_label(reason, judgement.decided)).collect();
        let carries = reasons_carry.iter().fold(judgement.decided, |joined, label| joined.join(label));
        ApprovalRequest {
            evidence: self.monitor.question_evidence(question),
            summary: {
                let classes = self.monitor.granted_classes(question);
                let sentences = [Some(question.summary(self.monitor.policy())), classes];
                sentences.into_iter().flatten().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(" ")
            },
            // A question always has a call, so the default is not used.
            tool: call.map_or_else(|| Tool::local(""), |call| call.tool.clone()),
            arguments: Value::Object(arguments),
            label: judgement.label.clone(),
            decided: judgement.decided,
            reasons: judgement.reasons.clone(),
            excerpts,
            digest: self.settings.key.digest(question),
            // A call that refers to no external state has an empty digest of it.
            state: match question.state() {
                state if state.is_empty() => state,
                state => self.settings.key.text_digest(&state),
            },
            carries: self.monitor.to_names(&carries),
            reasons_carry: reasons_carry.iter().map(|label| self.monitor.to_names(label)).collect(),
            approvers: question.approvers(),
            grant_scope: question.grant_scope(),
            changeable: self.monitor.changeable_arguments(question),
            expires: self.settings.expires,
            // The call is asked about once, and no further questions are announced.
            times: 1,
            upcoming: Vec::new(),
        }
    }

    /// Returns the excerpt of a region; `None` if the trace does not have the region. `label` has the phrases of its
    /// label that exceed the requirement.
    fn excerpt_of(&self, region: &trace::Region, label: &[String]) -> Option<Excerpt> {
        let event = self.monitor.trace().event(region.event)?;
        let document = &event.document;
        let node = (0..document.nodes().len()).find(|node| document.path(*node) == region.path)?;
        // Of a list or a map, only the structure contributed the label; its contents may carry more.
        let is_scalar = matches!(document.node(node)?.content, trace::NodeContent::Scalar(_));
        let value =
            if is_scalar { document.to_value(node) } else { Value::String("(the structure)".to_owned()) };
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let text = text.chars().take(MAX_EXCERPT_CHARS).collect();
        let source = self.excerpt_source(event);
        Some(Excerpt { region: region.clone(), source, label: label.to_vec(), text })
    }

    /// Describes for a person what an event is, such as `the answer of read_mail`. The description may name the tool:
    /// the label of a call flows to the label of its answer, so a reader of the answer may know the tool.
    fn excerpt_source(&self, event: &trace::Event) -> String {
        let answered = event.call.and_then(|call| self.monitor.trace().event(call));
        match (&event.body, answered.and_then(|call| call.tool())) {
            (EventBody::Message(message), _) => format!("a message of the {}", message.role),
            (EventBody::Call(call), _) => format!("the call of {}", call.tool),
            (EventBody::Tool(tool), _) => format!("the description of {}", tool.tool),
            (EventBody::Output(_), Some(tool)) => format!("the answer of {tool}"),
            (EventBody::Output(_), None) => "an answer without a call".to_owned(),
        }
    }

    /// Returns the label of a reason: the join of the labels of the regions that it names, with all they contain, and
    /// of the lists and maps around them. A reason that names no region, or comes from a rule, has the label of the
    /// verdict, `decided`.
    fn reason_label(&self, reason: &Reason, decided: Label) -> Label {
        // A rule's message may quote any text that the rule has matched, so it carries the label of the whole verdict.
        if reason.regions.is_empty() || matches!(reason.kind, ReasonKind::Rule | ReasonKind::RuleError) {
            return decided;
        }
        let region_labels = reason.regions.iter().map(|(region, _)| {
            // A region that the trace does not have counts as top.
            self.region_label(region).unwrap_or_else(|| self.monitor.policy().space().top())
        });
        region_labels.fold(Label::BOTTOM, |joined, label| joined.join(&label))
    }

    /// Returns the join of the labels of a region, with all it contains, and of the lists and maps around it; `None` if
    /// the trace does not have the region.
    fn region_label(&self, region: &trace::Region) -> Option<Label> {
        let document = &self.monitor.trace().event(region.event)?.document;
        let node = (0..document.nodes().len()).find(|node| document.path(*node) == region.path)?;
        // `label_of` covers everything in the region. The lists and maps around the region show that it exists, so
        // their own labels count as well. The labels of their other contents do not.
        let enclosing = document.enclosing(node).filter_map(|node| document.node(node));
        Some(enclosing.fold(document.label_of(node), |label, node| label.join(&node.label)))
    }
}
