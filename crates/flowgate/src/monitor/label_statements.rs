//! Applies the `label` statements of a policy to an event. A statement can read text of the event to decide which label
//! it gives. If another statement then raises the label of this text, the decision relied on a label that was too low.
//! So the statements are applied in rounds, until no label of a text that was read is raised.
//! [`Monitor::label_and_append`] calls [`Monitor::apply_statements`] once for each event.

use super::computed_label::{compute_label, greatest_label};
use super::regions::{event_frame, region_nodes, unstructured_texts};
use super::{ApplicableStatements, Monitor, Reason, ReasonKind};
use crate::builtin;
use crate::eval::{EvalError, MissingValueMode, RegionRead};
use crate::label::{ComputedLabelUse, DimensionSet, Label, PartialLabel, Space};
use crate::policy::Action;
use crate::policy::plan::{CompiledExpr, LabelStatement, Plan, SearchOp};
use crate::trace::{ArgumentSet, EventId, NodeId, Tool};

/// The event to which label statements are applied.
pub(super) struct LabelledEvent<'e> {
    /// The event in the trace.
    pub(super) id: EventId,
    /// The statements for events of its kind.
    pub(super) applicable: &'e ApplicableStatements,
    /// The tool of an output.
    pub(super) tool: Option<&'e Tool>,
    /// The event is an output that states that the tool failed. Only statements that mention errors label it.
    pub(super) is_error: bool,
}

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
    /// Applies the label statements of an event so that the result does not depend on their order. A statement can read
    /// regions of the event to decide which label it gives ([`LabelGrant`]). If a later statement raises the label of
    /// a region that was read, the earlier decision relied on a label that was too low, so all statements are applied
    /// again. Each round begins with the event as it was before the first round, but remembers which label each region
    /// that was read has reached. The rounds end when no label of such a region is raised any more.
    ///
    /// If there are more rounds than statements, the conditions of statements depend on each other's labels in a cycle,
    /// and the event is labelled top. `reasons` receives the problems with statements, for the author of the policy.
    ///
    /// # Errors
    /// If the fuel is spent.
    pub(super) fn apply_statements(
        &mut self,
        plan: &Plan,
        labelled: &LabelledEvent<'_>,
        reasons: &mut Vec<Reason>,
        fuel: &mut u64,
    ) -> Result<(), EvalError> {
        let id = labelled.id;
        let Some(before) = self.trace.event(id).map(|event| event.document.clone()) else { return Ok(()) };
        for _ in 0..=labelled.applicable.labels.len() {
            let mut round_reasons = Vec::new();
            let raised = self.apply_statements_once(plan, labelled, &mut round_reasons, fuel)?;
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
                event.document.record_relied_on(&relied_on);
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
    /// earlier grant had relied. `reasons` receives the problems with statements.
    ///
    /// # Errors
    /// If the fuel is spent.
    fn apply_statements_once(
        &mut self,
        plan: &Plan,
        labelled: &LabelledEvent<'_>,
        reasons: &mut Vec<Reason>,
        fuel: &mut u64,
    ) -> Result<bool, EvalError> {
        let LabelledEvent { id, applicable, tool, is_error } = *labelled;
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
                    let (has_raised, failed) = self.apply_statement(plan, id, index, statement, fuel)?;
                    raised |= has_raised;
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

    /// Applies the label statement with this index to an event. Returns whether it has raised a label on which an
    /// earlier grant had relied, and the reason why it could not be evaluated, if so.
    ///
    /// # Errors
    /// If the fuel is spent.
    fn apply_statement(
        &mut self,
        plan: &Plan,
        id: EventId,
        index: usize,
        statement: &LabelStatement,
        fuel: &mut u64,
    ) -> Result<(bool, Option<Reason>), EvalError> {
        let matches = self.evaluate_statement(plan, id, statement, fuel)?;
        let StatementMatches { grants, raising_grants, referenced: (nodes, read_summary), failed } = matches;
        let mut raised = false;
        if let Some(event) = self.trace.event_mut(id) {
            for node in nodes {
                raised |= event.document.raise_subtree(node, &read_summary.label);
            }
            // A grant that takes a missing value for `None`, or that has read too high a label, may raise and not
            // lower.
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
        raised |= self.declare_granted_labels(&plan.space, id, grants, index);
        Ok((raised, failed))
    }

    /// Evaluates a label statement for an event. If a value is missing, evaluates the statement a second time with
    /// `None` for missing values; a label that only this second evaluation grants can raise a region's label, but not
    /// lower it. If the statement has read a region whose label is above the granted one, the grant can only raise as
    /// well, and raises to the greatest label that the statement could grant. If the statement cannot be evaluated, the
    /// result contains the reason, and the regions to which the statement refers become top in the statement's
    /// dimensions.
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
        let is_value_missing = matches!(result, Ok((_, true)));
        if is_value_missing {
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
                // What the first evaluation grants as well does not depend on a missing value, so it may lower.
                matches.raising_grants.retain(|grant| {
                    !grants.iter().any(|sure| (sure.node, sure.label) == (grant.node, grant.label))
                });
                // A statement that has read a region above the label that it grants lowers nothing. It still raises,
                // which may be its purpose. In any case, the labelled region carries the labels of what was read.
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
        // A definition that cannot be computed because a value is missing does not rule a region out.
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
        // Any other error is ignored: where a domain cannot be evaluated, the statement refers to no region.
        if result == Err(EvalError::Fuel) {
            return Err(EvalError::Fuel);
        }
        nodes.sort_unstable();
        nodes.dedup();
        Ok(nodes)
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
        // From here on, the evaluator moves each read that it removes from `reads` to `removed_reads`, whether or not
        // the condition held. At the end all reads have been removed, so `removed_reads` is all that was read.
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
            // The next match does not depend on these reads. They stay in the summary: a granted label reveals what it
            // was computed from, and the absence of a grant reveals what was read.
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
        // The region that each grant labels: the captured part that was created in its node, or the node itself.
        let nodes: Vec<NodeId> = match name {
            Some(name) => {
                let captured = |grant: &LabelGrant| {
                    let (_, bytes) = grant.capture.as_ref()?;
                    Some((grant.node, bytes.clone()))
                };
                let mut parts: Vec<_> = grants.iter().filter_map(captured).collect();
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
}
