//! Computes what the policy says about a tool before any call: up to which label its calls can be permitted, which
//! label its outputs can carry, and which arguments are payload, endorsed or covered by a consent. `flowgate-guard`
//! chooses the label of a step by these bounds: initially, a step is shown only regions that flow to the strictest
//! requirement of the tools on offer.
//!
//! If a step is to be shown more, [`Monitor::raise_stores_for_view`] first raises the labels of the stores that its
//! calls could write to. That a call writes nothing can also depend on what was shown, so the stores are raised even if
//! no call runs.

use std::collections::BTreeMap;

use super::{Monitor, applicable_statements, computed_label};
use crate::label::{DimensionSet, Label, Space};
use crate::policy::Action;
use crate::policy::pattern::PatternId;
use crate::policy::plan::{
    CompiledExpr, CompiledQuery, Endorsement, EventVariable, Plan, QueryItem, Requirement, Rule, TargetPath,
    TargetStep, Type,
};
use crate::rules::{ObservedEvents, events_read_by, reads_kind};
use crate::trace::{ArgumentSet, Tool};

/// # Tools
///
/// What the policy requires, allows and labels for a tool or an endpoint, before any call.
impl Monitor {
    /// Returns the strictest requirement of these tools: the greatest label at which the decision to call each of them
    /// can be permitted without a question. Without tools it is top.
    pub fn strictest_requirement<'t>(&self, tools: impl IntoIterator<Item = &'t Tool>) -> Label {
        let plan = &self.policy.plan;
        let bounds = tools.into_iter().map(|tool| decision_bound(plan, tool));
        bounds.fold(plan.space.top(), |strictest, bound| plan.space.greatest_below(&strictest, &bound))
    }

    /// Returns the clearance of an endpoint that reads prompts, such as a model: the greatest label that every
    /// `require` for the tool `flowgate/ENDPOINT` allows. It is top in a dimension that none of these statements
    /// bounds. `None` if no statement names the endpoint.
    ///
    /// Patterns that match tools of every server do not count: they are about tools that act, and an endpoint only
    /// reads. A `require` for an argument does not count either.
    pub fn clearance(&self, endpoint: &str) -> Option<Label> {
        let plan = &self.policy.plan;
        let naming_endpoint = requirements(plan, &Tool::of(Tool::FLOWGATE_SERVER, endpoint))
            .into_iter()
            .filter(|requirement| {
                let names = |id: &PatternId| {
                    plan.patterns.get(id.0).is_some_and(|pattern| pattern.names_server(Tool::FLOWGATE_SERVER))
                };
                requirement.target.is_none() && requirement.query.tools.iter().any(names)
            });
        naming_endpoint
            .map(|requirement| greatest_required_label(&plan.space, requirement))
            .reduce(|a, b| plan.space.greatest_below(&a, &b))
    }

    /// Returns whether a `require` applies to this tool by the name of its server: the author of the policy has
    /// considered this server. A pattern that matches tools of every server names no server.
    pub fn is_named(&self, tool: &Tool) -> bool {
        let plan = &self.policy.plan;
        let names = |id: &PatternId| {
            let pattern = plan.patterns.get(id.0).filter(|pattern| pattern.matches(tool));
            pattern.is_some_and(|pattern| tool.server.as_deref().is_some_and(|s| pattern.names_server(s)))
        };
        requirements(plan, tool).into_iter().any(|requirement| requirement.query.tools.iter().any(names))
    }

    /// Returns whether a statement of the policy may label the outputs of a tool. An output that no statement
    /// labels is top, unless the policy declares another default.
    pub fn labels_outputs(&self, tool: &Tool) -> bool {
        !applicable_statements::statements_for_tool(&self.policy.plan, tool).labels.is_empty()
    }

    /// Returns whether a statement of the policy labels the outputs of this tool in particular: one of its patterns
    /// matches this tool, but not every tool.
    pub fn labels_outputs_by_name(&self, tool: &Tool) -> bool {
        let plan = &self.policy.plan;
        // No tool has this name, so a pattern that matches it is taken for one that matches every tool.
        let no_tool = Tool::local("\u{fffd}");
        let names = |id: &PatternId| {
            plan.patterns.get(id.0).is_some_and(|pattern| pattern.matches(tool) && !pattern.matches(&no_tool))
        };
        let statements = applicable_statements::statements_for_tool(plan, tool).labels;
        let statements = statements.iter().filter_map(|index| plan.labels.get(*index));
        statements.into_iter().any(|statement| statement.query.tools.iter().any(names))
    }

    /// Returns whether the policy declares that a part of the outputs of a tool does not depend on the arguments of the
    /// call, or on some of them. Such a part has a lower label than these arguments, so it reveals below their label
    /// that the call ran.
    pub fn has_independent_output(&self, tool: &Tool) -> bool {
        let statements = applicable_statements::statements_for_tool(&self.policy.plan, tool).labels;
        let mut statements = statements.iter().filter_map(|index| self.policy.plan.labels.get(*index));
        statements.any(|statement| statement.independent_of != ArgumentSet::NONE)
    }

    /// Returns whether a statement of the policy may label the description of a tool.
    pub fn labels_description(&self, tool: &Tool) -> bool {
        let plan = &self.policy.plan;
        let matches = |id: &PatternId| plan.patterns.get(id.0).is_some_and(|pattern| pattern.matches(tool));
        let labels = applicable_statements::statements_for_kind(plan, Type::Tool).labels;
        labels.iter().filter_map(|index| plan.labels.get(*index)).any(|s| s.query.tools.iter().all(matches))
    }

    /// Returns whether a statement of the policy may label messages.
    pub fn labels_messages(&self) -> bool {
        !applicable_statements::statements_for_kind(&self.policy.plan, Type::Message).labels.is_empty()
    }

    /// Returns whether a `require` applies to this tool. A tool without one may be called only at the bottom
    /// label.
    pub fn has_requirement(&self, tool: &Tool) -> bool {
        !requirements(&self.policy.plan, tool).is_empty()
    }

    /// Describes `label` in the dimensions in which it exceeds `upper`: one text for each.
    pub fn describe_excess(&self, label: &Label, upper: &Label) -> Vec<String> {
        let space = self.policy.space();
        space.describe(label, space.exceeded_dimensions(label, upper, space.all()), &self.name_table)
    }

    /// Returns the names of the payload arguments of this tool, sorted. Only `payload` statements without further
    /// conditions count, and only if their pattern does not match tools of two servers.
    pub fn payload_arguments(&self, tool: &Tool) -> Vec<String> {
        let plan = &self.policy.plan;
        let mut names: Vec<String> = Vec::new();
        for payload in applicable_statements::statements_for_tool(plan, tool)
            .payloads
            .iter()
            .filter_map(|i| plan.payloads.get(*i))
        {
            // The target is a whole argument: `arguments.NAME`.
            if let [TargetStep::Key(first), TargetStep::Key(name)] = payload.target.steps.as_slice()
                && **first == *"arguments"
                && is_unconditional(&payload.query)
                && self.ambiguity_reason(plan, &payload.query, Some(tool)).is_none()
            {
                names.push(name.to_string());
            }
        }
        names.sort();
        names.dedup();
        names
    }

    /// Returns the names of the arguments of this tool for which the policy has a standing consent, sorted. Whether the
    /// consent applies depends on the call. Consents with a pattern that matches tools of two servers do not count, and
    /// neither do those for a part of an argument.
    pub fn consent_arguments(&self, tool: &Tool) -> Vec<String> {
        let plan = &self.policy.plan;
        let applicable = applicable_statements::statements_for_tool(plan, tool).consents;
        let consents = applicable.iter().filter_map(|index| plan.consents.get(*index));
        let mut names: Vec<String> = consents
            .filter(|consent| self.ambiguity_reason(plan, &consent.query, Some(tool)).is_none())
            // The name of the argument, if the consent is for a whole argument: `arguments.NAME`.
            .filter_map(|consent| match consent.target.steps.as_slice() {
                [TargetStep::Key(first), TargetStep::Key(name)] if **first == *"arguments" => {
                    Some(name.to_string())
                }
                _ => None,
            })
            .collect();
        names.sort();
        names.dedup();
        names
    }

    /// Returns the arguments of this tool whose endorsed values have a bound, each with the bound: see
    /// [`endorsement_bounds`](Self::endorsement_bounds).
    pub fn endorsed_arguments(&self, tool: &Tool) -> BTreeMap<String, u32> {
        let bounds = self.endorsement_bounds(tool).into_iter();
        bounds.filter_map(|(argument, bits)| Some((argument, bits?))).collect()
    }

    /// Returns the arguments of this tool that `endorse` statements are about, by name. The number of an argument is an
    /// upper bound, in bits, on what the author of an endorsed value decides by choosing it: `n` bits mean that at most
    /// `2^n` values are endorsed. It is `None` if one of the statements has no such bound, or is about a part of the
    /// argument or the items of a list in it, since any of them can endorse a value. Statements with a pattern that
    /// matches tools of two servers never apply, so they do not count. Whether a value is endorsed depends on the call.
    pub fn endorsement_bounds(&self, tool: &Tool) -> BTreeMap<String, Option<u32>> {
        let plan = &self.policy.plan;
        let applicable = applicable_statements::statements_for_tool(plan, tool).endorsements;
        let mut bounds: BTreeMap<String, Option<u32>> = BTreeMap::new();
        for endorsement in applicable.iter().filter_map(|index| plan.endorsements.get(*index)) {
            let Some((name, is_whole)) = endorsed_argument(endorsement) else { continue };
            if self.ambiguity_reason(plan, &endorsement.query, Some(tool)).is_some() {
                continue;
            }
            let bits = endorsement.value.bits.filter(|_| is_whole);
            // The author also chooses which of the statements applies: two sets of values have at most twice as many
            // as the larger one, which is one bit more.
            let add_alternative = |most_bits: &mut Option<u32>| {
                *most_bits = most_bits.zip(bits).map(|(most, bits)| most.max(bits).saturating_add(1));
            };
            bounds.entry(name.to_owned()).and_modify(add_alternative).or_insert(bits);
        }
        bounds
    }

    /// Returns whether every call of a tool with this label is permitted without a question, whatever its arguments and
    /// the trace are. `false` can also mean that this is unknown. True under three conditions:
    ///
    /// * no rule can stop calls of the tool; `log` rules stop none;
    /// * no `require` for the tool can fail (see `cannot_fail`);
    /// * the label flows to the greatest label at which the policy permits the decision to call the tool
    ///   (`decision_bound`).
    pub fn permits_any(&self, tool: &Tool, label: &Label) -> bool {
        // `named` is the name that the rule requires of the tool; without one, it may be any tool.
        let can_stop = |variable: &EventVariable| {
            matches!(variable.ty, Type::ToolCall | Type::Event)
                && variable.named.as_ref().is_none_or(|name| *name == tool.name)
        };
        let mut rules = self.policy.plan.rules.iter().filter(|rule| rule.action != Action::Log);
        // A rule without variables, or one that also looks at other events, can match at any time.
        let may_be_stopped = rules.any(|rule| {
            rule.events.is_empty() || !rule.other_event_kinds.is_empty() || rule.events.iter().any(can_stop)
        });
        !may_be_stopped
            && requirements(&self.policy.plan, tool).into_iter().all(|it| self.cannot_fail(it, tool))
            && label.flows_to(&decision_bound(&self.policy.plan, tool))
    }

    /// Returns whether a requirement can be evaluated for every call of the tool. A requirement that cannot be evaluated
    /// denies the call. Conditions and computed bounds fail on values of the wrong type, for example, and a pattern that
    /// matches tools of two servers always fails.
    fn cannot_fail(&self, requirement: &Requirement, tool: &Tool) -> bool {
        is_unconditional(&requirement.query)
            && requirement.label.computed.is_empty()
            && self.ambiguity_reason(&self.policy.plan, &requirement.query, Some(tool)).is_none()
    }

    /// Returns whether some call of a tool may be permitted at a label without a question. `false` means that certainly
    /// no such call is permitted; `true` can also mean that this is unknown.
    pub fn may_permit(&self, tool: &Tool, label: &Label) -> bool {
        label.flows_to(&greatest_permitted_label(&self.policy.plan, tool))
    }

    /// Returns whether a rule may stop a reply of the model to the user. `false` means that certainly no rule can.
    pub fn may_stop_replies(&self) -> bool {
        // `named` is the role that the rule requires of the message; without one, the message may have any role.
        let is_reply = |variable: &EventVariable| {
            matches!(variable.ty, Type::Message | Type::Event)
                && variable.named.as_ref().is_none_or(|role| matches!(&**role, "assistant" | "model"))
        };
        let rules = self.policy.plan.rules.iter().filter(|rule| rule.action != Action::Log);
        // A rule without variables, or one that also looks at other events, can match at any time.
        rules.into_iter().any(|rule| {
            rule.events.is_empty() || !rule.other_event_kinds.is_empty() || rule.events.iter().any(is_reply)
        })
    }

    /// Returns the rules that can stop an output of a tool.
    ///
    /// A rule can stop an output if the output can complete a match: one of its variables may be the last event of a
    /// match (`can_be_last`), the match may change with later events (`!is_settled`), or the rule may match at any
    /// output (`reads_kind`), since it calls a predicate that reads the trace or has no event variable.
    pub(super) fn rules_about_outputs(&self, tool: &Tool) -> impl Iterator<Item = &Rule> {
        let rules = self.policy.plan.rules.iter().filter(|rule| rule.action != Action::Log);
        rules.filter(|rule| {
            // Whether an output of the tool, as the value of this variable, can complete a match.
            let can_complete = |variable: &EventVariable| {
                matches!(variable.ty, Type::ToolOutput | Type::Event)
                    && (variable.can_be_last || !rule.is_settled)
                    && variable.named.as_ref().is_none_or(|name| *name == tool.name)
            };
            reads_kind(rule, Type::ToolOutput) || rule.events.iter().any(can_complete)
        })
    }

    /// Returns the least label that every output of a tool carries because rules can stop outputs of the tool. Whether
    /// a rule stops an output is observable, and depends on what the rule reads in the output and in other events. A
    /// rule that reads no other events (`ObservedEvents::Nothing`) still reads the output itself.
    ///
    /// The label does not cover outputs that are errors, since their text is top. A rule could stop such an error, and
    /// any hidden output could be one. So if a rule can stop outputs of the tool, [`view_label`](Self::view_label)
    /// returns the bound of the view for a hidden output.
    pub fn output_floor(&self, tool: &Tool) -> Label {
        let plan = &self.policy.plan;
        // The label of what no statement labels.
        let undeclared = plan.default.unwrap_or(plan.space.top());
        // The order of `ObservedEvents` is by inclusion, so the greatest covers what every rule reads.
        match self.rules_about_outputs(tool).map(events_read_by).max() {
            None => Label::BOTTOM,
            Some(ObservedEvents::Nothing) => self.greatest_output_label(tool, undeclared),
            Some(ObservedEvents::Calls) => {
                // The label of all calls and outputs so far, which such rules read.
                self.trace.calls_context().join(&self.greatest_output_label(tool, undeclared))
            }
            Some(ObservedEvents::Everything) => self.policy.space().top(),
        }
    }

    /// Returns the greatest label that any part of an output of this tool can carry. It follows from the policy alone:
    /// an element that a statement computes from the output counts as the top of its dimension. In a dimension in which
    /// no unconditional statement labels the whole output, parts may also carry the element of `undeclared`.
    pub(super) fn greatest_output_label(&self, tool: &Tool, undeclared: Label) -> Label {
        let plan = &self.policy.plan;
        let space = &plan.space;
        let indices = applicable_statements::statements_for_tool(plan, tool).labels;
        let statements: Vec<_> = indices.into_iter().filter_map(|index| plan.labels.get(index)).collect();
        // Whether the target is the whole output or its content.
        let is_whole = |target: &TargetPath| {
            // Slot 0 is the output; another root is a variable that ranges over its rows.
            let is_path_from_output = target.root == 0 && target.capture.is_none();
            let is_output_or_content = match target.steps.as_slice() {
                [] => true,
                [TargetStep::Key(name)] => **name == *"content",
                _ => false,
            };
            is_path_from_output && is_output_or_content
        };
        // The statements that label the whole of every output, and so the dimensions in which no part is undeclared.
        let covering = statements.iter().filter(|s| {
            is_whole(&s.target)
                && is_unconditional(&s.query)
                && self.ambiguity_reason(plan, &s.query, Some(tool)).is_none()
        });
        let covered = covering.fold(DimensionSet::NONE, |dims, statement| dims.union(statement.label.dims));
        let base = space.restrict(&undeclared, space.all().without(covered));
        statements.iter().fold(base, |greatest, statement| {
            greatest.join(&computed_label::greatest_label(space, &statement.label))
        })
    }

    /// Raises the labels of stores before an agent that was shown what flows to `below` is shown what flows to `view`.
    /// Every store that a call could write to carries at least the label `view` from now on, unless the policy permits
    /// the tool of the call only at labels that flow to `below`. The store carries `view` whether or not a call writes
    /// to it, since the absence of a write is information, too. In the same way, the label of what rules read of other
    /// calls is raised to `view`.
    ///
    /// The set of these stores does not depend on `view`, since the label of a hidden region may depend on
    /// its content.
    pub fn raise_stores_for_view(&mut self, below: &Label, view: &Label) {
        let policy = std::sync::Arc::clone(&self.policy);
        let plan = &policy.plan;
        // From now on, the label of what rules read of other calls covers the view.
        self.trace.record_view(view);
        let mut tools: Vec<Tool> = self.known_tools.iter().cloned().collect();
        // `access` may create stores, whose order must not depend on the order of a hash set.
        tools.sort_by(|a, b| (&a.server, &a.name).cmp(&(&b.server, &b.name)));
        for tool in tools {
            // A harmless call writes to declared stores only.
            let harmless = is_harmless(plan, &tool);
            if !greatest_permitted_label(plan, &tool).flows_to(below) {
                let access = self.access(tool, harmless);
                self.stores.raise(&access.writes, view);
            }
        }
    }
}

/// Returns the name of the argument that an `endorse` statement is about, and whether it endorses the whole argument
/// rather than a part of it or the items of a list in it.
fn endorsed_argument(endorsement: &Endorsement) -> Option<(&str, bool)> {
    let (target, query) = (&endorsement.target, &endorsement.query);
    if target.root == 0 {
        return match target.steps.as_slice() {
            [TargetStep::Key(first), TargetStep::Key(name), rest @ ..] if **first == *"arguments" => {
                Some((name, rest.is_empty()))
            }
            _ => None,
        };
    }
    let variable = query.variables.iter().find(|variable| variable.slot == target.root)?;
    match variable.domain.as_ref()?.variable_path()? {
        (0, keys) => match keys.as_slice() {
            ["arguments", name, ..] => Some((*name, false)),
            _ => None,
        },
        _ => None,
    }
}

/// Returns the `require` statements that apply to a tool.
fn requirements<'p>(plan: &'p Plan, tool: &Tool) -> Vec<&'p Requirement> {
    let indices = applicable_statements::statements_for_tool(plan, tool).requirements;
    indices.into_iter().filter_map(|index| plan.requirements.get(index)).collect()
}

/// Returns whether a query matches every call of its tools: it tests nothing but the tool.
fn is_unconditional(query: &CompiledQuery) -> bool {
    query.items.iter().all(|item| matches!(item, QueryItem::Test(CompiledExpr::IsTool(_, _, None))))
}

/// Returns the greatest label at which the decision to call the tool is permitted whatever the arguments are: bottom in
/// each dimension that no unconditional `require` for the whole call bounds.
fn decision_bound(plan: &Plan, tool: &Tool) -> Label {
    let space: &Space = &plan.space;
    let mut bound = space.top();
    let mut bounded = DimensionSet::NONE;
    for requirement in requirements(plan, tool) {
        // A requirement with conditions, or on an argument, may apply to the call, so it lowers the bound as well. But
        // it permits nothing in calls to which it does not apply.
        bound = space.greatest_below(&bound, &greatest_required_label(space, requirement));
        if requirement.target.is_none() && is_unconditional(&requirement.query) {
            bounded = bounded.union(requirement.label.dims);
        }
    }
    space.restrict(&bound, bounded)
}

/// Returns the greatest label that satisfies a requirement whatever the arguments are.
fn greatest_required_label(space: &Space, requirement: &Requirement) -> Label {
    let fixed = requirement.label.fixed.unwrap_or(crate::label::PartialLabel::NONE);
    // A bound that is computed from the arguments may be as low as bottom, so its dimensions become bottom.
    let computed = requirement.label.dims.without(fixed.dims);
    let greatest = space.replace(&space.top(), &fixed);
    space.restrict(&greatest, space.all().without(computed))
}

/// Returns the greatest label at which some call of the tool may be permitted without a question: bottom in each
/// dimension that no requirement bounds. A requirement with conditions need not apply to that call, and a computed
/// bound can be any label, so they do not restrict the label further.
pub(super) fn greatest_permitted_label(plan: &Plan, tool: &Tool) -> Label {
    let space = &plan.space;
    let requirements = requirements(plan, tool);
    let bounded =
        requirements.iter().fold(DimensionSet::NONE, |dims, requirement| dims.union(requirement.label.dims));
    let fixed = requirements
        .iter()
        .filter(|requirement| is_unconditional(&requirement.query))
        .filter_map(|requirement| requirement.label.fixed);
    let greatest = fixed.fold(space.top(), |greatest, bound| {
        space.greatest_below(&greatest, &space.replace(&space.top(), &bound))
    });
    space.restrict(&greatest, bounded)
}

/// Returns whether every call of the tool is harmless, whatever its arguments are: the policy permits it at every
/// label. So each `require` for the tool permits every label and is about the whole call, not about one argument, and
/// at least one of them applies to every call: a call to which none applies is not permitted at every label.
pub(super) fn is_harmless(plan: &Plan, tool: &Tool) -> bool {
    let requirements = requirements(plan, tool);
    let is_top = |requirement: &&Requirement| requirement.label.is_top && requirement.target.is_none();
    requirements.iter().all(is_top)
        // A `require` with a condition does not apply to every call.
        && requirements.iter().any(|requirement| is_unconditional(&requirement.query))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::super::{Attribution, CallDependency, Verdict};
    use super::*;
    use crate::policy::Policy;
    use crate::trace::{Call, EventId, Message, Output, TraceEntry};

    /// Returns the label of the output of `read` after a call of `note` with a hidden text that a condition
    /// looks at.
    fn label_after(hidden: &str) -> Vec<String> {
        let policy = "lattice integrity: trusted < untrusted
label m as trusted if:
    (m: Message)
    m.role == \"user\"
label out.content as trusted if:
    (out: ToolOutput) is tool:read
require top if:
    (call: ToolCall) is tool:r\"read|note\"
require untrusted if:
    (call: ToolCall) is tool:note
    \"me\" in call.arguments.text
";
        let mut monitor = Monitor::new(Arc::new(Policy::parse(policy).unwrap()));
        let say = |role: &str, content| Message::new(role, content);
        monitor.push(TraceEntry::from(say("user", json!("x")))).unwrap();
        let (page, _) = monitor.push(TraceEntry::from(say("page", json!(hidden)))).unwrap();
        let mut run = |id: &str, tool: &str, arguments: serde_json::Value, slot: Option<EventId>| {
            let call = Call {
                id: id.to_owned(),
                tool: Tool::local(tool),
                arguments: Ok(arguments.as_object().cloned().unwrap()),
            };
            let mut attribution = Attribution::view("lowest-first", Label::BOTTOM, 1);
            attribution.arguments = slot
                .map(|page| {
                    let regions = vec![(page, 0), (page, 1), (page, 2)];
                    ("text".to_owned(), CallDependency::Slot { view: Label::BOTTOM, regions })
                })
                .into_iter()
                .collect();
            let Verdict::Permit(permit) = monitor.judge_entry(TraceEntry::from(call), attribution) else {
                panic!("it is permitted");
            };
            let ran = monitor.redeem(permit).unwrap();
            assert_eq!(ran.call().id, id);
            let (call_id, tool, structured) = (id.to_owned(), None, None);
            let output = Output { call_id, tool, content: json!("fine"), structured, is_error: Some(false) };
            let (output, _) = monitor.push(TraceEntry::from(output)).unwrap();
            let label = monitor.trace().event(output).unwrap().label;
            monitor.describe(&label)
        };
        run("c1", "note", json!({"text": hidden}), Some(page));
        run("c2", "read", json!({}), None)
    }

    #[test]
    fn hidden_text_does_not_decide_whether_a_store_is_written() {
        assert_eq!(label_after("me"), ["untrusted"]);
        assert_eq!(label_after("you"), ["untrusted"]);
    }
}
