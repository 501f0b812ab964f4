//! Computes the requirement of a call (the greatest label that it, and each of its arguments, may carry), and the
//! reasons against a call that exceeds it.
//!
//! Each `require` bounds the dimensions that it names. A dimension without a bound must be at its bottom, so a tool
//! that no statement mentions may be called only with trusted and public data. A bound on one argument also bounds the
//! decision to make the call. `payload` exempts an argument from integrity, and from nothing else. `consent` exempts an
//! argument from confidentiality, if nothing untrusted influenced the call (robust declassification: an attacker who
//! could choose the destination, or what is released, could otherwise exploit the consent). [`super::call_examination`]
//! calls [`Monitor::check_requirements`] for each call, after [`super::endorsement`].

use super::argument_path::argument_of_node;
use super::computed_label::compute_label;
use super::consent_limits::is_within_limits;
use super::regions::{event_frame, region_nodes};
use super::{ApplicableStatements, Attribution, CallDependency, Monitor, Reason, ReasonKind};
use crate::builtin;
use crate::eval::{EvalError, Evaluator, Frame, MissingValueMode};
use crate::label::{ComputedLabelUse, DimensionSet, Label, PartialLabel, Space};
use crate::policy::plan::{CompiledQuery, Plan};
use crate::policy::{Action, GrantClause, GrantScope, Span};
use crate::trace::{EventId, NodeId};

/// The maximum number of reasons that are reported against one call, without those that `must_be_reported` demands.
const MAX_REASONS: usize = 50;

/// The result of comparing a call with its requirements.
pub(super) struct RequirementOutcome {
    /// The reasons against the call.
    pub(super) reasons: Vec<Reason>,
    /// Whether the policy lets everything flow into the tool.
    pub(super) is_harmless: bool,
    /// The excesses that standing consent covers.
    pub(super) consented: Vec<Reason>,
    /// The `require` and `payload` statements that applied.
    pub(super) applied: Vec<Span>,
}

/// An argument that may carry this label, by standing consent.
struct ConsentedArgument {
    /// The regions of the argument to which the consent applies.
    nodes: Vec<NodeId>,
    label: PartialLabel,
    /// The first line of the `consent` statement.
    span: Span,
}

/// One upper bound on the labels of a call: a match of a `require` statement.
struct UpperBound {
    label: PartialLabel,
    span: Span,
    /// Whether the bound is on everything that the agent has seen, besides what the decision is attributed to.
    is_strict: bool,
    /// For how long, and for what, a person may approve an excess.
    grant: GrantClause,
    /// Whether an excess denies the call; otherwise a person is asked.
    denies: bool,
    /// Whether the bound permits the labels that flow to it, in the dimensions that it names. Otherwise it only forbids
    /// the labels that do not flow to it, and another statement must permit the others.
    grants: bool,
    /// Whether the statement declares the tool harmless.
    is_harmless: bool,
    /// The greatest label that does not exceed the bound: top in the dimensions that the bound does not name.
    ceiling: Label,
    /// The nodes that the bound is about; `None` for the whole call.
    nodes: Option<Vec<NodeId>>,
}

impl Monitor {
    /// Compares every part of the call `event` with the label that the part may carry. Returns the reasons against the
    /// call, what a consent covers, and which statements applied. `applicable` are the statements that apply to the
    /// tool, and `attribution` states what the call depends on.
    ///
    /// Names that the requirements of the call introduce do not stay in the name table: no data carries them yet, and
    /// otherwise calls that an observer cannot see could fill the table.
    pub(super) fn check_requirements(
        &mut self,
        event: EventId,
        applicable: &ApplicableStatements,
        attribution: &Attribution,
        fuel: &mut u64,
    ) -> RequirementOutcome {
        let plan = &self.policy.plan;
        let requirements = applicable.requirements.iter().filter_map(|index| plan.requirements.get(*index));
        let consents = applicable.consents.iter().filter_map(|index| plan.consents.get(*index));
        let mut labels = requirements.map(|s| &s.label).chain(consents.map(|s| &s.label));
        let saved_names = labels.any(|label| !label.computed.is_empty()).then(|| self.name_table.clone());
        let required = self.evaluate_requirements(event, applicable, attribution, fuel);
        if let Some(saved_names) = saved_names {
            self.name_table = saved_names;
        }
        required
    }

    /// Evaluates the `require`, `payload` and `consent` statements, and returns the reasons against parts of the call
    /// that exceed the bounds. Each `require` is first evaluated as written. If a missing value leaves it undecided, it
    /// is evaluated again with `None` for missing values; the bounds of this second evaluation only restrict. A
    /// `require` that cannot be evaluated is a reason to deny. `applicable` are the statements that apply to the tool,
    /// and `attribution` states what the call depends on.
    fn evaluate_requirements(
        &mut self,
        event: EventId,
        applicable: &ApplicableStatements,
        attribution: &Attribution,
        fuel: &mut u64,
    ) -> RequirementOutcome {
        let policy = std::sync::Arc::clone(&self.policy);
        let plan = &policy.plan;
        let space = &plan.space;
        let mut required = RequirementOutcome {
            reasons: self.hidden_dependency_reasons(attribution),
            is_harmless: false,
            consented: Vec::new(),
            applied: Vec::new(),
        };
        // Without dimensions, there are no labels to compare.
        if space.dimensions().is_empty() {
            return required;
        }
        // First the bounds of all `require` statements are collected; then the call is compared with them.
        let mut bounds: Vec<UpperBound> = Vec::new();
        let tool = self.trace.event(event).and_then(|call| call.tool()).cloned();
        for statement in applicable.requirements.iter().filter_map(|index| plan.requirements.get(*index)) {
            if let Some(mut reason) = self.ambiguity_reason(plan, &statement.query, tool.as_ref()) {
                reason.statement = Some(statement.span.clone());
                required.reasons.push(reason);
                continue;
            }
            // Whether a value was missing in the first of the two evaluations.
            let mut missed = false;
            for missing in [MissingValueMode::FailsAll, MissingValueMode::IsNone] {
                let is_second = missing == MissingValueMode::IsNone;
                // If no value was missing, the second evaluation would give the same bounds.
                if is_second && !missed {
                    continue;
                }
                // A match that depends on a missing value restricts and grants nothing.
                let grants = missing == MissingValueMode::FailsAll;
                let Self { trace, name_table, parameters, answers, .. } = self;
                let mut evaluator =
                    builtin::evaluator(plan, trace, fuel, missing).with_inputs(parameters, answers);
                evaluator.doubt_restricts = !grants;
                let result = for_each_match(&mut evaluator, &statement.query, event, |evaluator, frame| {
                    let reads_before = evaluator.reads.len();
                    let mut label = compute_label(
                        evaluator,
                        space,
                        name_table,
                        &statement.label,
                        frame,
                        ComputedLabelUse::Requirement,
                    )?;
                    // The values that a computed bound reads must themselves be allowed at that bound; otherwise it
                    // permits nothing. The reads of the conditions do not count here, so they are removed.
                    evaluator.reads.drain(..reads_before.min(evaluator.reads.len()));
                    let reads = evaluator.read_label();
                    if !space.exceeded_dimensions(&reads, &label.label, label.dims).is_empty() {
                        label.label = Label::BOTTOM;
                    }
                    let target = statement.target.as_ref();
                    let nodes = target.map(|target| region_nodes(evaluator.trace, target, frame, event));
                    let (span, denies) = (statement.span.clone(), statement.denies);
                    let (is_strict, grant) = (statement.is_strict, statement.grant);
                    // The statement permits the whole call at every label.
                    let is_harmless = grants && statement.label.is_top && nodes.is_none();
                    let ceiling = space.replace(&space.top(), &label);
                    bounds.push(UpperBound {
                        label,
                        span,
                        is_strict,
                        grant,
                        denies,
                        grants,
                        is_harmless,
                        ceiling,
                        nodes,
                    });
                    Ok(())
                });
                missed |= evaluator.missed;
                if let Err(error) = result {
                    let kind =
                        if error == EvalError::Fuel { ReasonKind::Limit } else { ReasonKind::RuleError };
                    let message = format!("the requirement cannot be evaluated: {error}");
                    let mut reason = Reason::new(kind, Action::Deny, message);
                    reason.statement = Some(statement.span.clone());
                    required.reasons.push(reason);
                }
            }
        }
        required.applied.extend(bounds.iter().map(|bound| bound.span.clone()));
        let (payloads, exempting) = self.payload_nodes(plan, event, applicable, fuel);
        required.applied.extend(exempting);
        required.is_harmless = !bounds.is_empty() && bounds.iter().all(|bound| bound.is_harmless);
        let consents = self.consented_arguments(plan, event, applicable, fuel);
        let excesses = self.compare(space, event, &bounds, &payloads, &consents, attribution);
        // What a consent covers is no reason against the call.
        let (consented, excesses): (Vec<Reason>, Vec<Reason>) =
            excesses.into_iter().partition(|reason| reason.kind == ReasonKind::Consent);
        required.consented = consented;
        required.reasons.extend(excesses);
        required
    }

    /// Finds the parts of the call that the influence method attributes to regions which the same method hides from the
    /// model, and returns a reason to deny for each. Such an attribution contradicts the view.
    fn hidden_dependency_reasons(&self, attribution: &Attribution) -> Vec<Reason> {
        let arguments =
            attribution.arguments.iter().map(|(name, source)| (format!("arguments.{name}"), source));
        let parts = std::iter::once(("decision".to_owned(), &attribution.decision)).chain(arguments);
        let hidden = parts.filter(|(_, source)| **source == CallDependency::Hidden);
        hidden
            .map(|(part, _)| {
                let message = format!(
                    "the influence method `{}` reports that this part depends on text that the same method hides from the model; correct the method, or use another one",
                    attribution.method
                );
                Reason { part: Some(part), ..Reason::new(ReasonKind::Hidden, Action::Deny, message) }
            })
            .collect()
    }

    /// Returns the parts of the call `event` that `payload` statements exempt from integrity, and these statements. A
    /// statement exempts nothing if its conditions read untrusted values, since the author of these values would decide
    /// the exemption. It also exempts nothing if its pattern matches tools of two servers. `applicable` are the
    /// statements that apply to the tool.
    fn payload_nodes(
        &mut self,
        plan: &Plan,
        event: EventId,
        applicable: &ApplicableStatements,
        fuel: &mut u64,
    ) -> (Vec<NodeId>, Vec<Span>) {
        let (mut nodes, mut applied) = (Vec::new(), Vec::new());
        for statement in applicable.payloads.iter().filter_map(|index| plan.payloads.get(*index)) {
            let tool = self.trace.event(event).and_then(|call| call.tool());
            if self.ambiguity_reason(plan, &statement.query, tool).is_some() {
                continue;
            }
            let mut evaluator = builtin::evaluator(plan, &self.trace, fuel, MissingValueMode::FailsAll)
                .with_inputs(&self.parameters, &self.answers);
            // A statement that cannot be evaluated exempts nothing.
            let mut exempted = Vec::new();
            let result = for_each_match(&mut evaluator, &statement.query, event, |evaluator, frame| {
                let reads = evaluator.read_label();
                let reads_only_trusted = plan.space.restrict(&reads, plan.space.integrity()) == Label::BOTTOM;
                if reads_only_trusted {
                    exempted.extend(region_nodes(evaluator.trace, &statement.target, frame, event));
                }
                Ok(())
            });
            if result.is_ok() && !exempted.is_empty() {
                nodes.extend(exempted);
                applied.push(statement.span.clone());
            }
        }
        (nodes, applied)
    }

    /// Returns the arguments of the call `event` for which a `consent` statement holds, each with the label that the
    /// argument may carry; none if a part of the call is untrusted. Withdrawn consents, those with a pattern that
    /// matches tools of two servers, those that cannot be evaluated, and those whose limits the call exceeds do not
    /// count. `applicable` are the statements that apply to the tool.
    fn consented_arguments(
        &mut self,
        plan: &Plan,
        event: EventId,
        applicable: &ApplicableStatements,
        fuel: &mut u64,
    ) -> Vec<ConsentedArgument> {
        let space = &plan.space;
        let statements = applicable.consents.iter().filter_map(|index| plan.consents.get(*index));
        let mut consented = Vec::new();
        for statement in statements {
            let Some(call) = self.trace.event(event) else { return Vec::new() };
            let is_trusted = space.restrict(&call.document.label_of(0), space.integrity()) == Label::BOTTOM;
            let is_withdrawn = self.withdrawn.contains(&statement.span.start);
            if !is_trusted
                || is_withdrawn
                || self.ambiguity_reason(plan, &statement.query, call.tool()).is_some()
            {
                continue;
            }
            let Self { trace, name_table, parameters, answers, .. } = self;
            let mut evaluator = builtin::evaluator(plan, trace, fuel, MissingValueMode::FailsAll)
                .with_inputs(parameters, answers);
            let mut covered = Vec::new();
            let result = for_each_match(&mut evaluator, &statement.query, event, |evaluator, frame| {
                let label_use = ComputedLabelUse::Requirement;
                let label = compute_label(evaluator, space, name_table, &statement.label, frame, label_use)?;
                let nodes = region_nodes(evaluator.trace, &statement.target, frame, event);
                covered.push(ConsentedArgument { nodes, label, span: statement.span.clone() });
                Ok(())
            });
            // A statement that cannot be evaluated, or whose limit is exceeded, consents to nothing.
            if result.is_ok() && is_within_limits(plan, &self.trace, statement, event, fuel) {
                consented.append(&mut covered);
            }
        }
        consented
    }

    /// Returns one reason for each part of the call and each bound that the part exceeds, or a reason of kind `Consent`
    /// where a standing consent covers the excess. Once there are [`MAX_REASONS`] reasons against the call, only those
    /// are added that name a further person who must approve, or the first one that denies because nobody can approve.
    ///
    /// A part is the decision or one argument. `bounds` are those of the `require` statements, `payloads` the nodes
    /// that are exempt from integrity, and `consents` the arguments that a standing consent covers.
    fn compare(
        &self,
        space: &Space,
        event: EventId,
        bounds: &[UpperBound],
        payloads: &[NodeId],
        consents: &[ConsentedArgument],
        attribution: &Attribution,
    ) -> Vec<Reason> {
        let Some(call) = self.trace.event(event) else { return Vec::new() };
        let document = &call.document;
        let arguments = document.key(0, "arguments");
        let count = document.nodes().len();
        // A mask states for each node whether it is in one of some subtrees.
        let mask = |roots: &[NodeId]| {
            let mut mask = vec![false; count];
            for root in roots {
                let end = document.node(*root).map_or(*root, |node| node.end);
                mask.get_mut(*root..end).into_iter().flatten().for_each(|inside| *inside = true);
            }
            mask
        };
        let is_in = |mask: &[bool], node: NodeId| mask.get(node).copied().unwrap_or(false);
        let (in_arguments, in_payload) = (mask(arguments.as_slice()), mask(payloads));
        let in_consent: Vec<Vec<bool>> = consents.iter().map(|consent| mask(&consent.nodes)).collect();
        let in_target: Vec<Option<Vec<bool>>> =
            bounds.iter().map(|bound| bound.nodes.as_ref().map(|nodes| mask(nodes))).collect();
        let mut reasons: Vec<Reason> = Vec::new();
        // Named regions are an estimate. A view is all that the model was shown, and `Everything` all that the agent
        // had seen.
        let is_estimate = matches!(attribution.decision, CallDependency::Regions(_));
        for (id, node) in document.nodes().iter().enumerate() {
            // The decision: the choice of the tool, the fact that it is called, and which arguments there
            // are.
            let is_decision = Some(id) == arguments || !is_in(&in_arguments, id);
            // The dimensions in which nothing is required of the part.
            let lifted = if is_in(&in_payload, id) { space.integrity() } else { DimensionSet::NONE };
            // The dimensions that no statement bounds here, in which the part must be at the bottom.
            let mut unbounded = space.all();
            // For each exceeded bound: the dimensions, the label of the part, and the bound; `None` where no statement
            // bounds the dimensions.
            let mut exceeded: Vec<(DimensionSet, Label, Option<&UpperBound>)> = Vec::new();
            for (bound, target) in bounds.iter().zip(&in_target) {
                let applies_here = target.as_ref().is_none_or(|target| is_in(target, id));
                // A bound on an argument also bounds the decision, but allows nothing there.
                if is_decision || applies_here {
                    if applies_here && bound.grants {
                        unbounded = unbounded.without(bound.label.dims);
                    }
                    // A strict bound limits all that the agent had seen (`context`). If the attribution is no estimate,
                    // the label of the decision covers that already.
                    let is_strict = bound.is_strict && is_decision && is_estimate;
                    let label = if is_strict { node.label.join(&call.context) } else { node.label };
                    // A quick check: the ceiling is the bound with all other dimensions at top. A label that flows to it
                    // exceeds the bound in no dimension.
                    if label.flows_to(&bound.ceiling) {
                        continue;
                    }
                    let over = space.exceeded_dimensions(
                        &label,
                        &bound.label.label,
                        bound.label.dims.without(lifted),
                    );
                    exceeded.push((over, label, Some(bound)));
                }
            }
            if !unbounded.is_empty() {
                exceeded.push((
                    space.exceeded_dimensions(&node.label, &Label::BOTTOM, unbounded.without(lifted)),
                    node.label,
                    None,
                ));
            }
            let (part, argument) =
                if is_decision { ("decision".to_owned(), None) } else { argument_of_node(document, id) };
            for (mut over, label, bound) in exceeded.into_iter().filter(|(over, ..)| !over.is_empty()) {
                for (consent, _) in consents.iter().zip(&in_consent).filter(|(_, mask)| is_in(mask, id)) {
                    let covered = covered_dimensions(space, consent, &node.label, over);
                    if covered.is_empty() {
                        continue;
                    }
                    over = over.without(covered);
                    if !has_reason(&reasons, &part, Some(&consent.span)) {
                        let label = space.describe(&node.label, covered, &self.name_table);
                        let message =
                            format!("{part} carries {}, which a standing consent permits", label.join(", "));
                        reasons.push(Reason {
                            statement: Some(consent.span.clone()),
                            part: Some(part.clone()),
                            label,
                            ..Reason::new(ReasonKind::Consent, Action::Log, message)
                        });
                    }
                }
                if over.is_empty() {
                    continue;
                }
                // A reason that changes who must approve, or whether anybody can approve, is never left out.
                let must_be_reported = self.must_be_reported(&reasons, &label, bound, over);
                let count = reasons.iter().filter(|reason| reason.kind != ReasonKind::Consent).count();
                // An argument has several nodes, but is reported once for each bound.
                let is_reported = has_reason(&reasons, &part, bound.map(|bound| &bound.span));
                if (count >= MAX_REASONS || is_reported) && !must_be_reported {
                    continue;
                }
                reasons.push(self.excess_reason(
                    event,
                    &label,
                    over,
                    bound,
                    (part.clone(), argument.as_deref()),
                    attribution,
                ));
            }
        }
        reasons
    }

    /// Returns whether an excess of `label` over `upper_bound` in the dimensions `over` must be reported as a reason
    /// even if the list of reasons is full ([`MAX_REASONS`]) or has one for the same part and statement. Otherwise too
    /// few people, or the wrong ones, could approve the call. True in two cases:
    ///
    /// * the excess needs the approval of a person whom none of `reasons` names;
    /// * nobody can approve the excess, and none of `reasons` denies the call yet.
    ///
    /// Without an `upper_bound`, the bound is bottom.
    fn must_be_reported(
        &self,
        reasons: &[Reason],
        label: &Label,
        upper_bound: Option<&UpperBound>,
        over: DimensionSet,
    ) -> bool {
        let allowed = upper_bound.map_or(Label::BOTTOM, |upper_bound| upper_bound.label.label);
        match self.approvers_of_excess(label, &allowed, over) {
            None => reasons.iter().all(|reason| reason.action != Action::Deny),
            Some(names) => {
                names.iter().any(|name| !reasons.iter().any(|reason| reason.approvers.contains(name)))
            }
        }
    }

    /// Returns the reason that a part of the call, which carries `label`, exceeds a bound in the dimensions `over`.
    /// `part` is `decision`, or the path of an argument such as `arguments.to`; `argument` is the name of this
    /// argument. Without an `upper_bound`, no statement bounds these dimensions, so the part must be at their bottom.
    fn excess_reason(
        &self,
        event: EventId,
        label: &Label,
        over: DimensionSet,
        upper_bound: Option<&UpperBound>,
        (part, argument): (String, Option<&str>),
        attribution: &Attribution,
    ) -> Reason {
        let space = self.policy.space();
        let greatest_allowed = upper_bound.map_or(Label::BOTTOM, |upper_bound| upper_bound.label.label);
        let (carried, allowed) = (
            space.describe(label, over, &self.name_table),
            space.describe(&greatest_allowed, over, &self.name_table),
        );
        let is_bounded = upper_bound.is_some();
        let kind = if is_bounded { ReasonKind::Requirement } else { ReasonKind::Undeclared };
        // `None` if nobody can approve the excess.
        let approvers = self.approvers_of_excess(label, &greatest_allowed, over);
        let message = excess_message(&part, &carried, &allowed, is_bounded, approvers.is_some());
        let action = if approvers.is_none() || upper_bound.is_some_and(|upper_bound| upper_bound.denies) {
            Action::Deny
        } else {
            Action::Ask
        };
        let approvers = approvers.unwrap_or_default();
        // An excess over the people who must approve needs an approval for each call, so the grant does not apply.
        let exceeds_approvers = over.without(space.approvers()) != over;
        let grant = upper_bound.map(|bound| &bound.grant).filter(|_| !exceeds_approvers);
        // A strict bound applies to everything that the agent has seen, not only to what the method attributes to the
        // decision, except if a view shows exactly what that was.
        let is_strict = upper_bound.is_some_and(|upper_bound| upper_bound.is_strict)
            && !matches!(attribution.decision, CallDependency::View(_));
        let source = match argument {
            Some(name) => attribution.argument(name),
            None if is_strict => &CallDependency::Everything,
            None => &attribution.decision,
        };
        // The dimensions of confidentiality. The categories of the reason describe the label in these dimensions.
        let secret = over.without(space.integrity()).without(space.approvers());
        Reason {
            statement: upper_bound.map(|upper_bound| upper_bound.span.clone()),
            part: Some(part),
            regions: self.exceeding_regions(event, source, &greatest_allowed, over),
            grant_scope: grant.map_or(GrantScope::Call, |grant| grant.scope),
            grants_class: grant.is_some_and(|grant| grant.is_by_class),
            approvers,
            categories: space.describe(label, secret, &self.name_table),
            label: carried,
            required: allowed,
            ..Reason::new(kind, action, message)
        }
    }
}

/// Returns the message that a part of a call carries more than it may. `is_bounded` states whether a `require` bounds
/// the exceeded dimensions, and `can_be_approved` whether somebody can approve the excess.
fn excess_message(
    part: &str,
    carried: &[String],
    allowed: &[String],
    is_bounded: bool,
    can_be_approved: bool,
) -> String {
    let (carried, allowed) = (carried.join(", "), allowed.join(", "));
    let message = if is_bounded {
        format!("{part} carries {carried}, and may carry at most {allowed}")
    } else {
        format!("{part} carries {carried}, but no `require` permits that, so it may carry at most {allowed}")
    };
    if can_be_approved {
        return message;
    }
    format!(
        "{message}; this label names no person who could approve, so name the people who must \
        approve in a `label` statement"
    )
}

/// Returns whether one of `reasons` names this part of the call and this statement; `None` if no statement bounds the
/// exceeded dimensions.
fn has_reason(reasons: &[Reason], part: &str, statement: Option<&Span>) -> bool {
    reasons
        .iter()
        .any(|reason| reason.part.as_deref() == Some(part) && reason.statement.as_ref() == statement)
}

/// Returns the dimensions of `over` in which a consent covers a part that carries `label`. Those of approvers are not
/// among them, since a consent does not replace the approval of a person.
fn covered_dimensions(
    space: &Space,
    consent: &ConsentedArgument,
    label: &Label,
    over: DimensionSet,
) -> DimensionSet {
    // The intersection of `over` with the dimensions of the consent.
    let shared = over.without(over.without(consent.label.dims)).without(space.approvers());
    // Of these, the consent covers the dimensions in which `label` flows to the label of the consent.
    shared.without(space.exceeded_dimensions(label, &consent.label.label, shared))
}

/// Calls `found` for each assignment of the query's variables with which the query matches `event`. An error of `found`
/// or of the search ends the search and is returned.
pub(super) fn for_each_match(
    evaluator: &mut Evaluator<'_>,
    query: &CompiledQuery,
    event: EventId,
    mut found: impl FnMut(&mut Evaluator<'_>, &Frame) -> Result<(), EvalError>,
) -> Result<(), EvalError> {
    let mut values: Frame = event_frame(query, event);
    evaluator.solve(&query.ops, &mut values, &mut |evaluator, frame| {
        found(evaluator, frame)?;
        let is_done = false;
        Ok(is_done)
    })?;
    Ok(())
}
