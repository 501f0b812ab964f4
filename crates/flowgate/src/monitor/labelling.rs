//! Labels events: with the labels that the policy declares, joined with the labels of the sources of the event, such as
//! the call that an output answers (Algorithm 4 of the paper RTBAS). The monitor calls [`Monitor::label_and_append`]
//! for each event that is pushed, and [`Monitor::label_call`] for each call that is examined.

use super::{ApplicableStatements, CallDependency, EventFinding, Floors, Monitor, Reason, ReasonKind};
use crate::builtin;
use crate::eval::{EvalError, MissingValueMode, RegionRead};
use crate::label::{ComputedLabelUse, DimensionSet, Label, PartialLabel, Space};
use crate::policy::Action;
use crate::policy::pattern::PatternId;
use crate::policy::plan::{CompiledExpr, CompiledQuery, LabelStatement, Plan, SearchOp};
use crate::trace::{
    ArgumentSet, Document, Event, EventBody, EventId, EventPosition, NodeId, PathStep, PossibleInfluence,
    Status, Tool, TraceEntry,
};

use super::attribution::Attribution;
use super::computed_label::{compute_label, greatest_label};
use super::regions::{event_frame, region_nodes, unstructured_texts};

/// The label that one match of a label statement grants.
struct LabelGrant {
    /// The node that gets the label, or in whose text a part gets it.
    node: NodeId,
    /// The name and the bytes of the captured part of the node's text, if the statement captures one.
    capture: Option<(String, std::ops::Range<usize>)>,
    /// The granted label, in the dimensions that the statement names.
    label: PartialLabel,
    /// The join of the labels of the regions that the statement has read for this match.
    read_label: Label,
    /// The arguments of the call on which the region does not depend.
    independent_of: ArgumentSet,
}

/// The grants of a statement, and whether a value that the statement needs was missing; or the reason why the statement
/// cannot be evaluated.
type GrantResult = Result<(Vec<LabelGrant>, bool), EvalError>;

/// The regions that a statement has read, and the join of their labels.
#[derive(Default)]
struct ReadSummary {
    reads: Vec<RegionRead>,
    label: Label,
}

/// The effects of a label statement on an event: the labels that it grants, and what it has read.
#[derive(Default)]
struct StatementMatches {
    /// The labels that the statement grants.
    grants: Vec<LabelGrant>,
    /// The labels that may raise a region's label but not lower it. The statement would grant some of them only if
    /// missing values were `None`; for the others, it has read a region above the granted label.
    raising_grants: Vec<LabelGrant>,
    /// The regions that the statement refers to, matched or not, and what its conditions have read. All of these
    /// regions carry the labels of what was read, since the label of each reveals whether the conditions hold.
    referenced: (Vec<NodeId>, ReadSummary),
    /// The reason why the statement could not be evaluated.
    failed: Option<Reason>,
}

impl Monitor {
    /// Labels a message, an output or a tool description, and appends it at `position`. `view` is set for a message of
    /// a model that was shown a view. `caller_floors` are lower bounds from the caller. `is_failure` means that the
    /// event is the outcome of a failed call, which no statement labels. Returns the event and the findings about it.
    ///
    /// `base` is the label of a part that no statement mentions. `floor` is the least label of every part: the label of
    /// what the model had seen, or the label of the call joined with the stores that the tool has read. A statement can
    /// lower `base`, but not below `floor`. For a part that the policy declares independent of the arguments, or of
    /// some of them, the labels of these arguments are left out of the floor.
    pub(super) fn label_and_append(
        &mut self,
        entry: TraceEntry,
        position: EventPosition,
        view: Option<Label>,
        caller_floors: &Floors,
        is_failure: bool,
        fuel: &mut u64,
    ) -> (EventId, Vec<EventFinding>) {
        let policy = std::sync::Arc::clone(&self.policy);
        let plan = &policy.plan;
        let unlabelled = plan.default.unwrap_or_else(|| plan.space.top());
        // What the agent had seen before this event.
        let seen = position.context;
        let mut reasons = Vec::new();
        let (mut base, mut floor, mut read_label) = (unlabelled, Label::BOTTOM, Label::BOTTOM);
        let mut call = None;
        let mut tool: Option<Tool> = None;
        // What the event may depend on: of a message of the client or a description of a tool, nothing in the trace.
        let mut influence = PossibleInfluence::Of(Vec::new());
        let mut read_stores: Vec<usize> = Vec::new();
        let mut is_unsolicited = false;
        let mut applicable = std::sync::Arc::clone(&self.messages);
        // The kind of the event decides on the base, the floor, and the statements that apply.
        match &entry.body {
            EventBody::Message(message) if matches!(message.role.as_str(), "assistant" | "model") => {
                // A message of the model carries the label of what the model saw, and no less.
                (base, floor) = (Label::BOTTOM, view.unwrap_or(seen));
                influence =
                    view.map_or(PossibleInfluence::All, |view| PossibleInfluence::View(view, Vec::new()));
            }
            EventBody::Output(output) => {
                // An output must be the first one for a call that is running and was permitted. `insert` returns false
                // if the call has an output already.
                let calls: Vec<EventId> = self.trace.calls_with_id(&output.call_id).collect();
                let problem = match calls.as_slice() {
                    [] => Some(
                        "no call of the trace has the id that the output answers, so the output is labelled top",
                    ),
                    [only] if self.trace.event(*only).is_none_or(|e| e.status != Status::Done) => Some(
                        "the call that the output answers was not running, so the output is labelled top",
                    ),
                    [only] if !self.answered.insert(*only) => Some(
                        "the call that the output answers already has an output, so this one is labelled top",
                    ),
                    [only] if self.unpermitted.contains(only) => Some(
                        "the call that the output answers was not permitted, so the output is labelled top",
                    ),
                    [only] => {
                        call = Some(*only);
                        None
                    }
                    _ => Some(
                        "several calls have the id that the output answers, so the output is labelled top",
                    ),
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
                    if let Some(access) = self.accesses.get(&call) {
                        read_label = self.stores.label(&access.reads);
                        read_stores.clone_from(&access.reads);
                    }
                    floor = floor.join(&read_label);
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
            // There is no answer that statements could label; the floors of the caller cover what it might have
            // contained.
            base = Label::BOTTOM;
        }
        // Whether label statements apply to the event.
        let is_declared = !is_failure
            && (call.is_some() || matches!(entry.body, EventBody::Message(_) | EventBody::Tool(_)));
        // The tree of the event, with findings about its form.
        let mut document = Document::new(&entry.body, base);
        if applicable.captures_content {
            // A statement captures parts of a text, so a text in JSON stays one text in place of its fields.
            document.keep_content_undivided();
        }
        if document.defect.is_some() {
            let message = "the output looks like JSON or YAML, but parsers could read it differently; its \
                parts are not labelled separately";
            reasons.push(Reason::new(ReasonKind::Malformed, Action::Log, message));
        }
        if document.is_oversize {
            let message =
                "the event has too many parts to label them separately, so the whole event carries one label";
            reasons.push(Reason::new(ReasonKind::Limit, Action::Log, message));
        }
        if document.twins_differ {
            let message = "the text and the `structuredContent` of the answer differ, so its parts are not labelled separately";
            reasons.push(Reason::new(ReasonKind::Malformed, Action::Log, message));
        }
        let ambiguous = self.ambiguous_dimensions(plan, &applicable, tool.as_ref());
        // The event is appended before the statements apply, since their conditions read it in the trace.
        let id = self.trace.append(entry, position, document, Status::Done, call, influence);
        self.trace.record_store_read(id, &read_stores);
        if let Some(event) = self.trace.event_mut(id) {
            caller_floors.raise_blocks(&mut event.document);
            event.document.origin.is_irregular = is_unsolicited;
            event.document.origin.ambiguous = ambiguous;
            event.document.origin.has_block_floors = !caller_floors.blocks.is_empty();
        }
        if is_declared
            && self
                .apply_statements(plan, id, &applicable, tool.as_ref(), is_error, &mut reasons, fuel)
                .is_err()
        {
            let message = "the evaluation of the statements for this event exceeded its fuel, so the event \
                is labelled top; simplify the statements";
            reasons.push(Reason::new(ReasonKind::Limit, Action::Deny, message));
            if let Some(event) = self.trace.event_mut(id) {
                // Node 0 is the root of the event. Its label now follows from no statement.
                event.document.set_subtree(0, plan.space.top());
                event.document.origin.is_irregular = true;
            }
        }
        // The outcome of a failed call depends on what any answer of its tool would depend on. This is a part of the
        // caller's floor, and `origin.raised` has it in place of the whole, which also covers what the answer contains.
        let of_any_answer = tool.as_ref().filter(|_| is_failure).map(|tool| self.output_floor(tool));
        // The least label of a part that does not depend on some arguments of the call.
        let is_independent = tool.as_ref().is_some_and(|tool| self.has_independent_output(tool));
        let called = call.filter(|_| is_independent).and_then(|call| self.trace.event(call)).cloned();
        let floor_without = |arguments: ArgumentSet| {
            let floor = match &called {
                Some(called) if arguments != ArgumentSet::NONE => {
                    floor_without(called, arguments, &plan.independent_arguments).join(&read_label)
                }
                _ => floor,
            };
            floor.join(&caller_floors.whole)
        };
        if let Some(event) = self.trace.event_mut(id) {
            // A statement that labels the content labels the existence of the event as well.
            event.document.label_frame_by_content(&plan.space);
            // The structured form of an output may repeat its text, so it carries the label of the text.
            event.document.join_twins();
            // The floors come last, since no statement may lower a label below them.
            event.document.raise_outcome(floor_without);
            event.document.origin.raised = floor.join(&of_any_answer.unwrap_or(caller_floors.whole));
        }
        self.trace.update_labels(id, &seen);
        (id, reasons.into_iter().map(|reason| EventFinding { event: id, reason }).collect())
    }

    /// Applies the label statements of an event in rounds, until a round raises no label on which a grant of that round
    /// had relied. So the labels do not depend on the order of the statements. Each round begins with the unlabelled
    /// event, raised to the labels that earlier rounds relied on; the grants of earlier rounds have no effect.
    ///
    /// If there are more rounds than statements, the conditions of statements depend on each other's labels in a cycle,
    /// and the event is labelled top. `tool` is the tool of an output, and `is_error` states that the tool failed.
    /// `reasons` receives the problems with statements.
    ///
    /// # Errors
    /// If the fuel is spent.
    #[expect(clippy::too_many_arguments, reason = "called once, by `label_and_append`")]
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
        let Some(before) = self.trace.event(id).map(|event| event.document.clone()) else { return Ok(()) };
        for _ in 0..=applicable.labels.len() {
            let mut round_reasons = Vec::new();
            let raised =
                self.apply_statements_once(plan, id, applicable, tool, is_error, &mut round_reasons, fuel)?;
            if !raised {
                reasons.append(&mut round_reasons);
                if let Some(event) = self.trace.event_mut(id) {
                    event.document.forget_rounds();
                }
                return Ok(());
            }
            // The next round begins with the unlabelled event again.
            if let Some(event) = self.trace.event_mut(id) {
                let relied_on = event.document.relied_on_labels();
                event.document = before.clone();
                event.document.raise_nodes(&relied_on);
            }
        }
        // There were more rounds than statements. The label of the event (node 0) then follows from no statement.
        if let Some(event) = self.trace.event_mut(id) {
            event.document.set_subtree(0, plan.space.top());
            event.document.origin.is_irregular = true;
        }
        let message = "the conditions of some statements depend on labels that these statements raise, in a cycle, so the event is labelled top; remove a condition from one of them";
        reasons.push(Reason::new(ReasonKind::RuleError, Action::Log, message));
        Ok(())
    }

    /// Executes one round of [`apply_statements`](Self::apply_statements): applies each label statement once, first
    /// those that read nothing, then the others in order. Returns whether a statement raised a label on which an
    /// earlier grant had relied. `tool` is the tool of an output, and `is_error` states that the tool failed. `reasons`
    /// receives the problems with statements.
    ///
    /// # Errors
    /// If the fuel is spent.
    #[expect(clippy::too_many_arguments, reason = "called once, by `apply_statements`")]
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
            let statements = applicable.labels.iter();
            let statements = statements.filter_map(|index| Some((*index, plan.labels.get(*index)?)));
            // A statement labels the output of a failed tool only if it mentions errors.
            statements.filter(|(_, statement)| !is_error || statement.mentions_error)
        };
        // A text at which a statement expects a list or a map gets the greatest label of the statement, whatever the
        // values are. These texts are raised first, so that no statement relies on the lower label.
        for (index, statement) in statements() {
            if self.ambiguity_reason(plan, &statement.query, tool).is_none()
                && let Some(event) = self.trace.event_mut(id)
            {
                let greatest = greatest_label(space, &statement.label);
                for node in unstructured_texts(&event.document, statement) {
                    event.document.raise_subtree(node, &greatest);
                    event.document.mark_labelled_by(node, index);
                }
            }
        }
        for reads_regions in [false, true] {
            for (index, statement) in statements().filter(|(_, s)| s.reads == reads_regions) {
                let reason = if let Some(reason) = self.ambiguity_reason(plan, &statement.query, tool) {
                    // The statement may exist to raise what another statement lowers.
                    closed = closed.union(statement.label.dims);
                    Some(reason)
                } else {
                    let matches = self.evaluate_statement(plan, id, statement, fuel)?;
                    let StatementMatches {
                        grants,
                        raising_grants,
                        referenced: (nodes, read_summary),
                        failed,
                    } = matches;
                    if let Some(event) = self.trace.event_mut(id) {
                        for node in nodes {
                            raised |= event.document.raise_subtree(node, &read_summary.label);
                        }
                        // A grant that takes a missing value for `None`, or that has read too high a label,
                        // may raise and not lower.
                        for grant in raising_grants {
                            raised |= event.document.raise_subtree(grant.node, &grant.label.label);
                            event.document.mark_labelled_by(grant.node, index);
                        }
                        // A grant relies on the labels of the regions that were read, and so does the absence of one.
                        for read in read_summary.reads.iter().filter(|read| read.event == id) {
                            // `deep`: the nodes below were read as well.
                            event.document.mark_read(read.node, read.deep);
                        }
                    }
                    raised |= self.declare_granted_labels(space, id, grants, index);
                    failed
                };
                if let Some(mut reason) = reason {
                    reason.statement = Some(statement.span.clone());
                    reasons.push(reason);
                }
            }
        }
        // A text shows its captured parts, so it carries their labels as well.
        let Some(event) = self.trace.event_mut(id) else { return Ok(raised) };
        event.document.join_captures();
        event.document.raise_dims_to_top(space, closed);
        Ok(raised)
    }

    /// Evaluates a label statement for an event. If a value is missing, evaluates the statement a second time with
    /// `None` for missing values; what only this evaluation grants can raise a label, but not lower it. A grant for
    /// which the statement has read a region above the granted label can only raise as well, to the greatest label that
    /// the statement could grant. If the statement cannot be evaluated, the result contains the reason, and raises the
    /// regions to which the statement refers to top in the statement's dimensions.
    ///
    /// # Errors
    /// If the fuel is spent.
    fn evaluate_statement(
        &mut self,
        plan: &Plan,
        id: EventId,
        statement: &LabelStatement,
        fuel: &mut u64,
    ) -> Result<StatementMatches, EvalError> {
        // Computing a label can add names to the name table.
        let saved_names = (!statement.label.computed.is_empty()).then(|| self.name_table.clone());
        let mut matches = StatementMatches::default();
        let mut too_high = Vec::new();
        let space = &plan.space;
        // First as written; if a value was missing, also with `None` for it.
        let (mut result, mut read_summary) =
            self.evaluate_in_mode(plan, id, statement, MissingValueMode::FailsAll, fuel)?;
        // `true`: a value was missing.
        if let Ok((_, true)) = result {
            let (result_with_none, reads_with_none) =
                self.evaluate_in_mode(plan, id, statement, MissingValueMode::IsNone, fuel)?;
            read_summary.label = read_summary.label.join(&reads_with_none.label);
            read_summary.reads.extend(reads_with_none.reads);
            match result_with_none {
                Ok((grants, _)) => matches.raising_grants = grants,
                Err(problem) => result = Err(problem),
            }
        }
        match result {
            Ok((grants, _)) => {
                matches.raising_grants.retain(|grant| {
                    !grants.iter().any(|sure| (sure.node, sure.label) == (grant.node, grant.label))
                });
                // A statement that reads more than the label it grants lowers nothing. It still raises, which
                // may be its purpose, and the region carries what was read in any case.
                let reads_within_grant = |grant: &LabelGrant| {
                    space
                        .exceeded_dimensions(&grant.read_label, &grant.label.label, grant.label.dims)
                        .is_empty()
                };
                let (granted, excessive): (Vec<LabelGrant>, Vec<LabelGrant>) =
                    grants.into_iter().partition(reads_within_grant);
                matches.grants = granted;
                too_high = excessive;
            }
            Err(problem) => {
                // The statement may exist to raise what another statement lowers.
                read_summary.label =
                    read_summary.label.join(&space.restrict(&space.top(), statement.label.dims));
                matches.failed = Some(Reason::new(ReasonKind::RuleError, Action::Log, problem.to_string()));
            }
        }
        if let (Some(name_table), true) =
            (saved_names, matches.grants.is_empty() && matches.raising_grants.is_empty())
        {
            // Names in labels that are not granted do not remain in the name table.
            self.name_table = name_table;
        }
        // The raised label does not depend on what the statement was not permitted to read.
        let label =
            PartialLabel { dims: statement.label.dims, label: greatest_label(space, &statement.label) };
        matches.raising_grants.extend(too_high.into_iter().map(|grant| LabelGrant { label, ..grant }));
        // The regions to which the caller joins what was read.
        let nodes = match read_summary.label {
            // Regions need not be found to join bottom into them.
            Label::BOTTOM => Vec::new(),
            _ => self.referenced_regions(plan, id, statement, fuel)?,
        };
        matches.referenced = (nodes, read_summary);
        Ok(matches)
    }

    /// Returns the regions that a statement would label if all its conditions held: evaluates only the steps of its
    /// query that enumerate items and events, and no tests. The caller joins the labels of what the tests have read
    /// into these regions, since the presence or absence of a label reveals the result of the tests.
    ///
    /// # Errors
    /// If the fuel is spent.
    fn referenced_regions(
        &self,
        plan: &Plan,
        id: EventId,
        statement: &LabelStatement,
        fuel: &mut u64,
    ) -> Result<Vec<NodeId>, EvalError> {
        let mut evaluator = builtin::evaluator(plan, &self.trace, fuel, MissingValueMode::IsNone)
            .with_inputs(&self.parameters, &self.answers);
        // A missing value does not rule a region out.
        evaluator.doubt_restricts = true;
        // A name that a condition defines matters only if the values of a variable are computed from it. Sets of slots
        // are represented by bits, one for each slot.
        let needed_by_domains = statement.query.ops.iter().fold(0, |needs, op| match op {
            SearchOp::Each(_, _, domain) => needs | domain.required_slots(),
            _ => needs,
        });
        let enumerates = |op: &&SearchOp| match op {
            SearchOp::Test(_) => false,
            SearchOp::Let(slot, _) => CompiledExpr::Slot(*slot).required_slots() & needed_by_domains != 0,
            SearchOp::Each(..) | SearchOp::Events(..) => true,
        };
        let ops: Vec<SearchOp> = statement.query.ops.iter().filter(enumerates).cloned().collect();
        let mut nodes = Vec::new();
        let mut frame = event_frame(&statement.query, id);
        let result = evaluator.solve(&ops, &mut frame, &mut |evaluator, frame| {
            let found = region_nodes(evaluator.trace, &statement.target, frame, id);
            evaluator.spend(found.len())?;
            nodes.extend(found);
            // `false`: the search for further matches continues.
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

    /// Checks whether one of the tool patterns of a statement is ambiguous, that is, matches tools of two servers. If
    /// so, returns the reason, since the statement then grants nothing; otherwise `None`. `query` is the query of the
    /// statement.
    ///
    /// `tool` is the tool of the event. If it has neither been declared nor run, it counts for this event only: a name
    /// that the model invents does not show that a server offers the tool.
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

    /// Returns the dimensions that label statements with an ambiguous pattern name. `tool` is the tool of the event.
    fn ambiguous_dimensions(
        &self,
        plan: &Plan,
        applicable: &ApplicableStatements,
        tool: Option<&Tool>,
    ) -> DimensionSet {
        let statements = applicable.labels.iter().filter_map(|index| plan.labels.get(*index));
        let is_ambiguous =
            |statement: &&LabelStatement| self.ambiguity_reason(plan, &statement.query, tool).is_some();
        statements
            .filter(is_ambiguous)
            .fold(DimensionSet::NONE, |dims, statement| dims.union(statement.label.dims))
    }

    /// Evaluates a label statement once, in one mode of missing values. Returns the labels that it grants, whether a
    /// value that it needs was missing, and a summary of what it has read.
    ///
    /// # Errors
    /// If the fuel is spent. Any other error is part of the result.
    fn evaluate_in_mode(
        &mut self,
        plan: &Plan,
        id: EventId,
        statement: &LabelStatement,
        missing: MissingValueMode,
        fuel: &mut u64,
    ) -> Result<(GrantResult, ReadSummary), EvalError> {
        let Self { trace, name_table, parameters, answers, .. } = self;
        let mut evaluator = builtin::evaluator(plan, trace, fuel, missing).with_inputs(parameters, answers);
        // What is granted only with missing values can only raise, so a condition in doubt counts as satisfied.
        evaluator.doubt_restricts = missing == MissingValueMode::IsNone;
        // From here on, the evaluator keeps the reads that it removes from `reads`: of conditions that held or not. At
        // the end, it has removed all of them, so they are all that was read.
        evaluator.removed_label = Some(Label::BOTTOM);
        // Whether the query may iterate over the items of a list without recording a read of the list itself. A
        // labelled row already reveals that the list has this row.
        evaluator.quiet = statement.query.is_quiet;
        let mut grants = Vec::new();
        let mut frame = event_frame(&statement.query, id);
        let result = evaluator.solve(&statement.query.ops, &mut frame, &mut |evaluator, frame| {
            let reads_before = evaluator.reads.len();
            let label = compute_label(
                evaluator,
                &plan.space,
                name_table,
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
                        // The regular expression takes time for each byte of the text: one step pays for 16 bytes.
                        evaluator.spend(text.len() / 16)?;
                        let group = regex.captures(text).and_then(|found| found.name(name));
                        let Some(group) = group else { continue };
                        Some((name.clone(), group.range()))
                    }
                };
                let read_label = evaluator.read_label();
                let independent_of = statement.independent_of;
                grants.push(LabelGrant { node, capture, label, read_label, independent_of });
            }
            // The next assignment does not depend on these reads. They stay in the summary, since a granted label
            // reveals what it was computed from, and the absence of a grant what was read.
            evaluator.truncate_reads(reads_before);
            // `false`: the search for further matches continues.
            Ok(false)
        });
        // If the label of a query without steps cannot be computed, no step has removed what was read for it.
        evaluator.truncate_reads(0);
        let label = evaluator.removed_label.unwrap_or(plan.space.top());
        let (missed, read_summary) =
            (evaluator.missed, ReadSummary { reads: evaluator.removed_reads, label });
        match result {
            Err(EvalError::Fuel) => Err(EvalError::Fuel),
            result => Ok((result.map(|_| (grants, missed)), read_summary)),
        }
    }

    /// Applies `grants`, the labels that one `label` statement grants to regions of an event, and creates the regions
    /// that the statement captures; a statement has at most one capture. `statement` is its index in the policy.
    /// Returns whether a label was raised that the conditions of an earlier statement had read; then the caller must
    /// apply the statements again.
    fn declare_granted_labels(
        &mut self,
        space: &Space,
        id: EventId,
        mut grants: Vec<LabelGrant>,
        statement: usize,
    ) -> bool {
        let Some(event) = self.trace.event_mut(id) else { return false };
        let mut raised = false;
        // Captured parts shift the nodes after them, so all captures of a statement are made at once. Several grants
        // may name the same part.
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
            event.document.mark_labelled_by(node, statement);
            // In the other dimensions, the region carries the label of what was read, which the choice of the label
            // reveals.
            let read_elsewhere = space.restrict(&grant.read_label, space.all().without(grant.label.dims));
            raised |= event.document.raise_subtree(node, &read_elsewhere);
            // The policy declares that the region does not depend on these arguments of the call.
            if grant.independent_of != ArgumentSet::NONE {
                event.document.mark_independent(node, grant.independent_of);
            }
        }
        raised
    }

    /// Returns the document of a call. Its decision and each argument carry the labels of the regions on which they
    /// depend by `attribution`; `seen` is the label of everything that the agent had seen.
    pub(super) fn label_call(&self, entry: &TraceEntry, attribution: &Attribution, seen: &Label) -> Document {
        let join = |start: Label, regions: &[(EventId, NodeId)]| {
            regions.iter().fold(start, |label, (event, node)| {
                let document = self.trace.event(*event).map(|event| &event.document);
                // The label of a region covers everything in it: a field may carry more than the map around it. A
                // region that does not exist counts as everything that the agent had seen.
                let found = document.filter(|document| document.node(*node).is_some());
                label.join(&found.map_or(*seen, |document| document.label_of(*node)))
            })
        };
        let label = |dependency: &CallDependency| match dependency {
            CallDependency::Everything | CallDependency::Hidden => *seen,
            CallDependency::Regions(regions) => join(Label::BOTTOM, regions),
            CallDependency::View(view) => *view,
            CallDependency::Slot { view, regions } => join(*view, regions),
        };
        // All of the call carries the label of the decision; then each argument gets its own.
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

/// Returns what a part of the answer to a call carries that does not depend on some arguments of the call: the label of
/// the decision to call, what the verdict has observed, and the labels of the other arguments. `names` are the names
/// of arguments that the policy declares so, by their numbers.
fn floor_without(call: &Event, arguments: ArgumentSet, names: &[String]) -> Label {
    let label = if arguments.contains(ArgumentSet::ALL) {
        call.document.frame_label()
    } else {
        let set_of = |name: &str| ArgumentSet::of_name(names.iter().position(|other| other == name)?);
        call.document
            .label_without_arguments(|name| set_of(name).is_some_and(|argument| arguments.contains(argument)))
    };
    label.join(&call.observed)
}
