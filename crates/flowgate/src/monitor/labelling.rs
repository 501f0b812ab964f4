//! Labels events: with the labels that the policy declares, joined with those of the sources of the event (RTBAS,
//! Algorithm 4). The monitor calls it for each event that is pushed and for each call that is examined.

use super::{ApplicableStatements, CallDependency, EventFinding, Floors, Monitor, Reason, ReasonKind};
use crate::builtin;
use crate::eval::{EvalError, MissingValueMode, RegionRead};
use crate::label::{ComputedLabelUse, DimensionSet, Label, PartialLabel, Space};
use crate::policy::Action;
use crate::policy::pattern::PatternId;
use crate::policy::plan::{CompiledExpr, CompiledQuery, LabelStatement, Plan, SearchOp};
use crate::trace::{
    Document, EventBody, EventId, EventPosition, NodeId, PathStep, PossibleInfluence, Status, Tool,
    TraceEntry,
};

use super::attribution::Attribution;
use super::computed_label::{compute_label, greatest_label};
use super::regions::{event_frame, region_nodes, unstructured_texts};

/// The label that one match of a label statement grants.
struct LabelGrant {
    node: NodeId,
    capture: Option<(String, std::ops::Range<usize>)>,
    label: PartialLabel,
    read_label: Label,
    /// Whether the region depends on no argument of the call.
    is_independent: bool,
}

/// The grants of a statement, and whether a value that it needs was missing; or why it cannot be evaluated.
type GrantResult = Result<(Vec<LabelGrant>, bool), EvalError>;

/// The regions that a statement has read, and the join of their labels.
#[derive(Default)]
struct ReadSummary {
    reads: Vec<RegionRead>,
    label: Label,
}

/// The result of evaluating a label statement.
#[derive(Default)]
struct StatementMatches {
    /// The labels that it grants.
    grants: Vec<LabelGrant>,
    /// The labels that may raise and not lower: what the statement would also grant if missing values were
    /// `None`, and grants for which it has read more than the granted label.
    raising_grants: Vec<LabelGrant>,
    /// The regions that the statement refers to, matched or not, and what its conditions have read. A region
    /// to which the statement does not apply reveals that by the label that it has instead.
    referenced: (Vec<NodeId>, ReadSummary),
    /// The reason why it could not be evaluated.
    failed: Option<Reason>,
}

impl Monitor {
    /// Labels a message, an output or a description and appends it.
    ///
    /// `base` is the label of a part that no statement mentions, and `floor` what every part carries at least: what the
    /// model had seen, or the call and the stores that the tool has read. A statement can lower `base`, and never below
    /// `floor`; a part that the policy declares independent of the arguments carries the decision to call in place of the
    /// call.
    pub(super) fn label_and_append(
        &mut self,
        entry: TraceEntry,
        place: EventPosition,
        view: Option<Label>,
        given: &Floors,
        is_failure: bool,
        fuel: &mut u64,
    ) -> (EventId, Vec<EventFinding>) {
        let policy = std::sync::Arc::clone(&self.policy);
        let plan = &policy.plan;
        let unlabelled = plan.default.unwrap_or_else(|| plan.space.top());
        let seen = place.context;
        let mut reasons = Vec::new();
        let (mut base, mut floor, mut independent_floor) = (unlabelled, Label::BOTTOM, None);
        let mut call = None;
        let mut tool: Option<Tool> = None;
        let mut influence = PossibleInfluence::Of(Vec::new());
        let mut reads: Vec<usize> = Vec::new();
        let mut is_unsolicited = false;
        let mut applicable = std::sync::Arc::clone(&self.messages);
        match &entry.body {
            EventBody::Message(message) if matches!(message.role.as_str(), "assistant" | "model") => {
                // A message of the model carries the label of what the model saw, and no less.
                (base, floor) = (Label::BOTTOM, view.unwrap_or(seen));
                influence =
                    view.map_or(PossibleInfluence::All, |view| PossibleInfluence::View(view, Vec::new()));
            }
            EventBody::Output(output) => {
                let calls: Vec<EventId> = self.trace.calls_with_id(&output.call_id).collect();
                let problem = match calls.as_slice() {
                    [] => Some("no call of the trace has the id that the output answers"),
                    [only] if self.trace.event(*only).is_none_or(|e| e.status != Status::Done) => {
                        Some("the call that the output answers was not running")
                    }
                    [only] if !self.answered.insert(*only) => {
                        Some("the call that the output answers already has an output")
                    }
                    [only] if self.unpermitted.contains(only) => {
                        Some("the call that the output answers was not permitted")
                    }
                    [only] => {
                        call = Some(*only);
                        None
                    }
                    _ => Some("several calls have the id that the output answers"),
                };
                if let Some(problem) = problem {
                    is_unsolicited = true;
                    reasons.push(Reason::new(ReasonKind::Unsolicited, Action::Log, problem));
                    (base, floor) = (plan.space.top(), plan.space.top());
                    influence = PossibleInfluence::All;
                }
                if let Some(call) = call {
                    let called = self.trace.event(call);
                    floor = called.map_or(Label::BOTTOM, |event| event.label.join(&event.decided));
                    let decision = called.map(|event| event.document.frame_label().join(&event.observed));
                    let mut read_label = Label::BOTTOM;
                    if let Some(access) = self.accesses.get(&call) {
                        read_label = self.stores.label(&access.reads);
                        reads.clone_from(&access.reads);
                    }
                    floor = floor.join(&read_label);
                    independent_floor = decision.map(|decision| decision.join(&read_label));
                    influence = PossibleInfluence::Of(vec![call]);
                    tool = self.trace.event(call).and_then(|e| e.tool()).cloned();
                    if let Some(tool) = &tool {
                        applicable = self.applicable(tool);
                    }
                }
            }
            EventBody::Tool(_) => applicable = std::sync::Arc::clone(&self.tools),
            EventBody::Message(_) | EventBody::Call(_) => {}
        }
        let is_error = matches!(&entry.body, EventBody::Output(output) if output.is_error == Some(true));
        if is_error {
            // A tool's error text is top unless a statement mentions errors, whatever the default is.
            base = plan.space.top();
        }
        if is_failure && call.is_some() {
            // There is no answer that statements could label; the given floors cover what it might have
            // contained.
            base = Label::BOTTOM;
        }
        let is_declared = !is_failure
            && (call.is_some() || matches!(entry.body, EventBody::Message(_) | EventBody::Tool(_)));
        let mut document = Document::new(&entry.body, base);
        if applicable.captures_content {
            document.keep_content_undivided();
        }
        if document.defect.is_some() {
            let message = "the output looks like JSON or YAML, but parsers could read it differently; it is \
                labelled as a whole";
            reasons.push(Reason::new(ReasonKind::Malformed, Action::Log, message));
        }
        if document.is_oversize {
            let message = "the event has more parts than are labelled separately; it is labelled as a whole";
            reasons.push(Reason::new(ReasonKind::Limit, Action::Log, message));
        }
        if document.twins_differ {
            let message = "the text and the structured form of the answer differ; it is labelled as a whole";
            reasons.push(Reason::new(ReasonKind::Malformed, Action::Log, message));
        }
        let id = self.trace.append(entry, place, document, Status::Done, call, influence);
        self.trace.record_store_read(id, &reads);
        if let Some(event) = self.trace.event_mut(id) {
            given.raise_blocks(&mut event.document);
            event.document.origin.is_irregular = is_unsolicited;
        }
        if is_declared
            && self
                .apply_statements(plan, id, &applicable, tool.as_ref(), is_error, &mut reasons, fuel)
                .is_err()
        {
            let message = "the evaluation of the statements for this event exceeded its fuel, so the event \
                is labelled top";
            reasons.push(Reason::new(ReasonKind::Limit, Action::Deny, message));
            if let Some(event) = self.trace.event_mut(id) {
                event.document.set_subtree(0, plan.space.top());
                event.document.origin.is_irregular = true;
            }
        }
        // The outcome of a failed call depends on what any answer of its tool would depend on.
        let of_any_answer = tool.as_ref().filter(|_| is_failure).map(|tool| self.output_floor(tool));
        if let Some(event) = self.trace.event_mut(id) {
            event.document.label_frame_by_content(&plan.space);
            event.document.join_twins();
            let independent_floor = independent_floor.unwrap_or(floor);
            event.document.raise_outcome(&floor.join(&given.whole), &independent_floor.join(&given.whole));
            event.document.origin.raised = floor.join(&of_any_answer.unwrap_or(given.whole));
        }
        self.trace.update_labels(id, &seen);
        (id, reasons.into_iter().map(|reason| EventFinding { event: id, reason }).collect())
    }

    /// Applies the label statements repeatedly, until no label was granted on the basis of a region that was
    /// later labelled higher. Each round starts with such regions at the labels that they had reached.
    ///
    /// So the labels that a grant relies on do not depend on the order of statements. A grant that relied on
    /// a label too early has no visible effect; whether there was one may depend on hidden text.
    #[expect(
        clippy::too_many_arguments,
        reason = "one call, from the function above, which has found all of it out"
    )]
    /// Applies the label statements of an event until none raises a label that the condition of another has read: then
    /// the labels are those that the conditions rely on. A cycle of such statements ends with the label top.
    fn apply_statements(
        &mut self,
        plan: &Plan,
        id: EventId,
        applicable: &ApplicableStatements,
        tool: Option<&Tool>,
        is_error: bool,
        reasons: &mut Vec<Reason>,
        fuel: &mut u64,
    ) -> Result<(), EvalError> {
        // Each round begins with the unlabelled event, with the labels raised that the last round has relied on.
        let Some(before) = self.trace.event(id).map(|event| event.document.clone()) else { return Ok(()) };
        for _ in 0..=applicable.labels.len() {
            let mut found = Vec::new();
            let raised =
                self.apply_statements_once(plan, id, applicable, tool, is_error, &mut found, fuel)?;
            if !raised {
                reasons.append(&mut found);
                return Ok(());
            }
            if let Some(event) = self.trace.event_mut(id) {
                let relied_on = event.document.relied_on_labels();
                event.document = before.clone();
                event.document.raise_nodes(&relied_on);
            }
        }
        if let Some(event) = self.trace.event_mut(id) {
            event.document.set_subtree(0, plan.space.top());
            event.document.origin.is_irregular = true;
        }
        let message = "statements of the policy raise labels on which each other's conditions depend, in a \
            cycle, so the event is labelled top";
        reasons.push(Reason::new(ReasonKind::RuleError, Action::Log, message));
        Ok(())
    }

    /// Applies the label statements once: first those that read nothing, then the others in order. Returns
    /// whether one raised a label that another had relied on.
    #[expect(clippy::too_many_arguments, reason = "one call, from the function above")]
    fn apply_statements_once(
        &mut self,
        plan: &Plan,
        id: EventId,
        applicable: &ApplicableStatements,
        tool: Option<&Tool>,
        is_error: bool,
        reasons: &mut Vec<Reason>,
        fuel: &mut u64,
    ) -> Result<bool, EvalError> {
        let space = &plan.space;
        let mut raised = false;
        // The dimensions of statements that cannot be applied, since their pattern is ambiguous. They end at top.
        let mut closed = DimensionSet::NONE;
        let statements = || {
            let statements = applicable.labels.iter().filter_map(|index| plan.labels.get(*index));
            statements.filter(|statement| !is_error || statement.mentions_error)
        };
        // First raise what is raised whatever the values are, so that no statement relies on the lower label.
        for statement in statements() {
            if self.ambiguity_reason(plan, &statement.query, tool).is_none()
                && let Some(event) = self.trace.event_mut(id)
            {
                let most = greatest_label(space, &statement.label);
                for node in unstructured_texts(&event.document, statement) {
                    event.document.raise_subtree(node, &most);
                }
            }
        }
        for reading in [false, true] {
            for statement in statements().filter(|s| s.reads == reading) {
                let reason = if let Some(reason) = self.ambiguity_reason(plan, &statement.query, tool) {
                    // The statement may exist to raise what another statement lowers.
                    closed = closed.union(statement.label.dims);
                    Some(reason)
                } else {
                    let found = self.matches(plan, id, statement, fuel)?;
                    let StatementMatches {
                        grants,
                        raising_grants: unsure,
                        referenced: (nodes, looked_at),
                        failed,
                    } = found;
                    if let Some(event) = self.trace.event_mut(id) {
                        for node in nodes {
                            raised |= event.document.raise_subtree(node, &looked_at.label);
                        }
                        // A grant that takes a missing value for `None`, or that has read too high a label,
                        // may raise and not lower.
                        for grant in unsure {
                            raised |= event.document.raise_subtree(grant.node, &grant.label.label);
                        }
                        // What is granted relies on what was read, and so does the decision not to grant it.
                        for read in looked_at.reads.iter().filter(|read| read.event == id) {
                            event.document.mark_read(read.node, read.deep);
                        }
                    }
                    raised |= self.grant(space, id, grants);
                    failed
                };
                if let Some(mut reason) = reason {
                    reason.statement = Some(statement.span.clone());
                    reasons.push(reason);
                }
            }
        }
        let Some(event) = self.trace.event_mut(id) else { return Ok(raised) };
        event.document.join_captures();
        event.document.raise_dims_to_top(space, closed);
        Ok(raised)
    }

    /// Returns the matches of a statement, and those that it would have if missing values were `None`. If it
    /// cannot be evaluated, the result contains the reason.
    ///
    /// # Errors
    /// If the fuel is spent.
    fn matches(
        &mut self,
        plan: &Plan,
        id: EventId,
        statement: &LabelStatement,
        fuel: &mut u64,
    ) -> Result<StatementMatches, EvalError> {
        let saved_roster = (!statement.label.computed.is_empty()).then(|| self.roster.clone());
        let mut matches = StatementMatches::default();
        let mut too_high = Vec::new();
        let space = &plan.space;
        let (mut found, mut looked_at) =
            self.grants(plan, id, statement, MissingValueMode::FailsAll, fuel)?;
        if let Ok((_, true)) = found {
            let (more, also) = self.grants(plan, id, statement, MissingValueMode::IsNone, fuel)?;
            looked_at.label = looked_at.label.join(&also.label);
            looked_at.reads.extend(also.reads);
            match more {
                Ok((grants, _)) => matches.raising_grants = grants,
                Err(problem) => found = Err(problem),
            }
        }
        match found {
            Ok((grants, _)) => {
                matches.raising_grants.retain(|grant| {
                    !grants.iter().any(|sure| (sure.node, sure.label) == (grant.node, grant.label))
                });
                // A statement that reads more than the label it grants lowers nothing. It still raises, which
                // may be its purpose, and the region carries what was read in any case.
                let is_fair = |grant: &LabelGrant| {
                    space
                        .exceeded_dimensions(&grant.read_label, &grant.label.label, grant.label.dims)
                        .is_empty()
                };
                let (fair, unfair): (Vec<LabelGrant>, Vec<LabelGrant>) =
                    grants.into_iter().partition(is_fair);
                matches.grants = fair;
                too_high = unfair;
            }
            Err(problem) => {
                // The statement may exist to raise what another statement lowers.
                looked_at.label = looked_at.label.join(&space.restrict(&space.top(), statement.label.dims));
                matches.failed = Some(Reason::new(ReasonKind::RuleError, Action::Log, problem.to_string()));
            }
        }
        if let (Some(roster), true) =
            (saved_roster, matches.grants.is_empty() && matches.raising_grants.is_empty())
        {
            // Names in labels that are not granted take no slots.
            self.roster = roster;
        }
        // The raised label does not depend on what the statement was not permitted to read.
        let label =
            PartialLabel { dims: statement.label.dims, label: greatest_label(space, &statement.label) };
        matches.raising_grants.extend(too_high.into_iter().map(|grant| LabelGrant { label, ..grant }));
        let nodes = match looked_at.label {
            Label::BOTTOM => Vec::new(),
            _ => self.referenced_regions(plan, id, statement, fuel)?,
        };
        matches.referenced = (nodes, looked_at);
        Ok(matches)
    }

    /// Returns the regions that a statement would label if all its conditions held.
    fn referenced_regions(
        &self,
        plan: &Plan,
        id: EventId,
        statement: &LabelStatement,
        fuel: &mut u64,
    ) -> Result<Vec<NodeId>, EvalError> {
        let mut evaluator = builtin::evaluator(plan, &self.trace, fuel, MissingValueMode::IsNone)
            .with_inputs(&self.parameters, &self.answers);
        evaluator.doubt_restricts = true;
        // The value of a name matters only if a domain needs it.
        let needed_by_domains = statement.query.ops.iter().fold(0, |needs, op| match op {
            SearchOp::Each(_, _, domain) => needs | domain.required_slots(),
            _ => needs,
        });
        let leads = |op: &&SearchOp| match op {
            SearchOp::Test(_) => false,
            SearchOp::Let(slot, _) => CompiledExpr::Slot(*slot).required_slots() & needed_by_domains != 0,
            SearchOp::Each(..) | SearchOp::Events(..) => true,
        };
        let ops: Vec<SearchOp> = statement.query.ops.iter().filter(leads).cloned().collect();
        let mut nodes = Vec::new();
        let mut frame = event_frame(&statement.query, id);
        let result = evaluator.solve(&ops, &mut frame, &mut |evaluator, frame| {
            let found = region_nodes(evaluator.trace, &statement.target, frame, id);
            evaluator.spend(found.len())?;
            nodes.extend(found);
            Ok(false)
        });
        // Where a domain cannot be evaluated, the statement refers to no region.
        if result == Err(EvalError::Fuel) {
            return Err(EvalError::Fuel);
        }
        nodes.sort_unstable();
        nodes.dedup();
        Ok(nodes)
    }

    /// Returns a reason against the statement if one of its patterns has become ambiguous.
    ///
    /// A tool that has not run yet counts for its own call only: a name that the model invents is not an
    /// offer of a server.
    pub(super) fn ambiguity_reason(
        &self,
        plan: &Plan,
        query: &CompiledQuery,
        tool: Option<&Tool>,
    ) -> Option<Reason> {
        let is_ambiguous = |id: &&PatternId| self.servers.is_ambiguous_for(&plan.patterns, **id, tool);
        let pattern: &PatternId = query.patterns.iter().find(is_ambiguous)?;
        let name = plan.patterns.get(pattern.0)?;
        let message = format!(
            "`{name}` matches tools of two servers, so the statement grants nothing; name the server"
        );
        Some(Reason::new(ReasonKind::AmbiguousTool, Action::Deny, message))
    }

    /// Returns what the statement grants, whether a value that it needs was missing, and what it has read.
    fn grants(
        &mut self,
        plan: &Plan,
        id: EventId,
        statement: &LabelStatement,
        missing: MissingValueMode,
        fuel: &mut u64,
    ) -> Result<(GrantResult, ReadSummary), EvalError> {
        let Self { trace, roster, parameters, answers, .. } = self;
        let mut evaluator = builtin::evaluator(plan, trace, fuel, missing).with_inputs(parameters, answers);
        evaluator.doubt_restricts = missing == MissingValueMode::IsNone;
        evaluator.touched = Some(Label::BOTTOM);
        evaluator.quiet = statement.query.is_quiet;
        let mut grants = Vec::new();
        let mut frame = event_frame(&statement.query, id);
        let result = evaluator.solve(&statement.query.ops, &mut frame, &mut |evaluator, frame| {
            let reads_before = evaluator.reads.len();
            let label = compute_label(
                evaluator,
                &plan.space,
                roster,
                &statement.label,
                frame,
                ComputedLabelUse::Data,
            )?;
            for node in region_nodes(evaluator.trace, &statement.target, frame, id) {
                evaluator.spend(1)?;
                let capture = match &statement.target.capture {
                    None => None,
                    Some((regex, name)) => {
                        let Some(document) = evaluator.trace.event(id).map(|event| &event.document) else {
                            continue;
                        };
                        let value = document.to_value(node);
                        let Some(text) = value.as_str() else { continue };
                        evaluator.spend(text.len() / 16)?;
                        let group = regex.captures(text).and_then(|found| found.name(name));
                        let Some(group) = group else { continue };
                        Some((name.clone(), group.range()))
                    }
                };
                let read_label = evaluator.read_label();
                let is_independent = statement.is_independent;
                grants.push(LabelGrant { node, capture, label, read_label, is_independent });
            }
            // A granted label reveals what it was computed from, and the absence of a grant reveals what was
            // read.
            evaluator.truncate_reads(reads_before);
            Ok(false)
        });
        let label = evaluator.touched.unwrap_or(plan.space.top());
        let (missed, looked_at) = (evaluator.missed, ReadSummary { reads: evaluator.forgotten, label });
        match result {
            Err(EvalError::Fuel) => Err(EvalError::Fuel),
            result => Ok((result.map(|_| (grants, missed)), looked_at)),
        }
    }

    /// Applies grants. Returns whether that raised a label that an earlier grant had relied on.
    fn grant(&mut self, space: &Space, id: EventId, mut grants: Vec<LabelGrant>) -> bool {
        let Some(event) = self.trace.event_mut(id) else { return false };
        let mut raised = false;
        // Captured parts shift the nodes after them, so all captures of a statement are made at once. Several grants may
        // name the same part.
        grants.sort_by_key(|grant| grant.node);
        let name = grants.iter().find_map(|grant| grant.capture.as_ref()).map(|(name, _)| name.clone());
        let nodes: Vec<NodeId> = match name {
            Some(name) => {
                let mut parts: Vec<_> =
                    grants.iter().filter_map(|g| Some((g.node, g.capture.as_ref()?.1.clone()))).collect();
                parts.dedup_by_key(|(node, _)| *node);
                let created = event.document.capture(&name, &parts);
                let part =
                    |grant: &LabelGrant| parts.binary_search_by_key(&grant.node, |(text, _)| *text).ok();
                grants.iter().filter_map(|grant| created.get(part(grant)?).copied()).collect()
            }
            None => grants.iter().map(|grant| grant.node).collect(),
        };
        for (grant, node) in grants.iter().zip(nodes) {
            raised |= event.document.declare(space, node, &grant.label);
            // In the other dimensions, the choice of the label reveals what was read.
            let rest = space.restrict(&grant.read_label, space.all().without(grant.label.dims));
            raised |= event.document.raise_subtree(node, &rest);
            if grant.is_independent {
                event.document.mark_independent(node);
            }
        }
        raised
    }

    /// Returns the document of a call, labelled by what its parts depend on.
    pub(super) fn label_call(&self, entry: &TraceEntry, attribution: &Attribution, seen: &Label) -> Document {
        let join = |start: Label, regions: &[(EventId, NodeId)]| {
            regions.iter().fold(start, |label, (event, node)| {
                let document = self.trace.event(*event).map(|event| &event.document);
                // The label of a region covers everything in it: a field may carry more than the row around
                // it.
                let found = document.filter(|document| document.node(*node).is_some());
                label.join(&found.map_or(*seen, |document| document.label_of(*node)))
            })
        };
        let label = |source: &CallDependency| match source {
            CallDependency::Everything | CallDependency::Hidden => *seen,
            CallDependency::Regions(regions) => join(Label::BOTTOM, regions),
            CallDependency::View(view) => *view,
            CallDependency::Slot { view, regions } => join(*view, regions),
        };
        let mut document = Document::new(&entry.body, label(&attribution.decision));
        if let Some(arguments) = document.key(0, "arguments") {
            let children: Vec<NodeId> = document.children(arguments).collect();
            for child in children {
                let Some(PathStep::Key(name)) = document.node(child).map(|node| node.step.clone()) else {
                    continue;
                };
                document.set_subtree(child, label(attribution.argument(&name)));
            }
        }
        document
    }
}
