//! Computes the least label that a view of an event must carry. The guard joins these labels over all events of a
//! step's view.
//!
//! A view at a bound shows the regions whose labels flow to the bound. A step that was shown the view may carry less
//! than the bound: the join of what it was shown. That join must not reveal *why* a region is hidden. An observer who
//! may not read the region could otherwise learn from the label of the step whether the label of the region flows to
//! the bound. So a hidden region contributes what decided its label:
//!
//! * what statements have read in order to label it, and what was joined into it: the labels of the call and of stores;
//! * the bound, if the label of what was read or joined does not flow to the bound;
//! * if the label of the region depends on the form of a hidden text, such as whether it can be read as a list: the
//!   greatest label that a view could show in its place instead, or the bound if conditions decide as well;
//! * for a whole answer, the greatest label that another answer could have had in its place, since whether the tool
//!   returned an error is hidden with the answer; or the bound, if a rule can stop answers of the tool, or if a
//!   statement reads text to decide how it labels them.
//!
//! A label that the policy states without a condition contributes nothing. `docs/guard.md` ("Labels that float") has
//! the proof.

use super::Monitor;
use super::applicable_statements::{statements_for_kind, statements_for_tool};
use super::computed_label::greatest_label;
use super::frame_bounds::greatest_frame_label;
use super::part_bounds::greatest_part_label;
use super::regions::{is_unconditional, labels_around, labels_parts_of, statement_path};
use crate::label::Label;
use crate::policy::plan::{LabelStatement, Type};
use crate::trace::{Document, Event, EventBody, EventId, NodeId, Path, PathStep};

/// # Views
///
/// The label of a step that is shown a part of the trace.
impl Monitor {
    /// Returns the least label of a step that is shown a view of this event at `bound`: the join over the regions of
    /// its content, shown and hidden. The result flows to `bound`.
    pub fn view_label(&self, id: EventId, bound: &Label) -> Label {
        let Some(event) = self.trace.event(id) else { return Label::BOTTOM };
        let document = &event.document;
        if !document.frame_label().flows_to(bound) {
            // The whole event (node 0) is hidden. Its placeholder may show captured parts, which `hidden_label` covers.
            return self.hidden_label(event, 0, bound);
        }
        let mut label = document.frame_label();
        for child in document.children(0) {
            // A view shows the text of an answer, not its structured form.
            let is_twin = matches!(event.body, EventBody::Output(_))
                && document.node(child).is_some_and(|node| node.step == PathStep::Key("structured".into()));
            if is_twin {
                continue;
            }
            let end = document.node(child).map_or(child, |node| node.end);
            let mut node_id = child;
            while node_id < end
                && let Some(node) = document.node(node_id)
            {
                if node.label.flows_to(bound) {
                    label = label.join(&node.label);
                    node_id += 1;
                    continue;
                }
                // A hidden text still shows those of its captured parts that flow to the bound.
                label = label
                    .join(&self.hidden_label(event, node_id, bound))
                    .join(&captured_label(document, node_id, bound));
                node_id = node.end;
            }
        }
        label
    }

    /// Returns the label that a hidden region contributes to a view at `bound`: the labels of what decided that the
    /// region is hidden, or the greatest label of what could be shown in its place. `node` is the outermost hidden node.
    /// The result flows to `bound`. It is `bound` itself if what decided is unknown or has a label above `bound`.
    fn hidden_label(&self, event: &Event, node: NodeId, bound: &Label) -> Label {
        let plan = &self.policy.plan;
        let document = &event.document;
        // The label of an irregular event, such as an answer to no call, does not follow from the statements.
        if document.origin.is_irregular {
            return *bound;
        }
        let up_to_bound = |label: Label| if label.flows_to(bound) { label } else { *bound };
        let Some(indices) = self.label_statements_for(event) else { return *bound };
        let statements = || indices.iter().filter_map(|index| plan.labels.get(*index));
        let path = document.path(node);
        let content = Path(vec![PathStep::Key("content".into())]);
        // The labels that are joined into every part of the event, whatever its content.
        let space = &plan.space;
        let ambiguous = space.restrict(&space.top(), document.origin.ambiguous);
        let raised = up_to_bound(document.origin.raised).join(&space.greatest_below(&ambiguous, bound));
        // Whether all of an answer is hidden, and not only a part of it.
        let is_answer = matches!(event.body, EventBody::Output(_)) && (node == 0 || path == content);
        // Whether a rule can stop answers of the tool. A stopped answer is hidden from every view below the top, and
        // whether a rule stops an error depends on the text of the error.
        let can_be_stopped = || {
            let tool = event.call.and_then(|call| self.trace.event(call)).and_then(|call| call.tool());
            tool.is_some_and(|tool| self.rules_about_outputs(tool).next().is_some())
        };
        // Another answer could have had any label up to the bound, if a rule or a statement reads the text of answers.
        if is_answer && (can_be_stopped() || statements().any(|statement| statement.reads)) {
            return *bound;
        }
        let region = if is_answer { &content } else { &path };
        // If a statement labels parts of the region, the label depends on the form of the hidden content. `parts` is then
        // the greatest label of what could be shown in the place of the region; `None` if no statement does so.
        let parts = if statements().any(|statement| labels_parts_of(statement, region)) {
            // The policy alone gives no bound in three cases: statements about descriptions may be about other tools,
            // the caller set floors for single blocks, or a condition can read the region and label other regions.
            let is_description = matches!(event.body, EventBody::Tool(_));
            if is_description || document.origin.has_block_floors || !statements().all(is_unconditional) {
                return *bound;
            }
            Some(greatest_part_label(plan, &indices, region, bound).join(&raised))
        } else {
            None
        };
        // The greatest label that another answer could have had in the place of this one.
        if is_answer {
            let frame = greatest_frame_label(plan, &indices, bound);
            let elsewhere = self.label_outside_content(event, &statements().collect::<Vec<_>>(), bound);
            return frame.join(&elsewhere).join(&raised).join(&parts.unwrap_or(Label::BOTTOM));
        }
        match parts {
            Some(parts) => parts,
            // What statements have read in order to label the region, and what was joined into the whole event.
            None => up_to_bound(document.floor_of(node).join(&document.origin.raised)),
        }
    }

    /// Returns the indices of the `label` statements that may apply to an event; `None` for an output whose tool is
    /// unknown, and for a call.
    fn label_statements_for(&self, event: &Event) -> Option<Vec<usize>> {
        let plan = &self.policy.plan;
        let statements = match &event.body {
            EventBody::Message(_) => statements_for_kind(plan, Type::Message),
            EventBody::Tool(_) => statements_for_kind(plan, Type::Tool),
            EventBody::Output(_) | EventBody::Call(_) => {
                let call = event.call.and_then(|call| self.trace.event(call))?;
                statements_for_tool(plan, call.tool()?)
            }
        };
        Some(statements.labels)
    }

    /// Returns an upper bound on the labels of two kinds of answers. A view at `bound` could show them in place of
    /// `event`, but their labels do not follow from statements about their content. The first is the report of a failed
    /// call. The second is an answer whose text and structured form differ; it carries the labels of those `statements`
    /// that are about the structured form. The result flows to `bound`.
    fn label_outside_content(&self, event: &Event, statements: &[&LabelStatement], bound: &Label) -> Label {
        let space = &self.policy.plan.space;
        let tool = event.call.and_then(|call| self.trace.event(call)).and_then(|call| call.tool());
        let failure = tool.map_or(*bound, |tool| self.greatest_output_label(tool, space.top()));
        // A report above the bound is not shown in place of the event, so it adds nothing.
        let failure = if failure.flows_to(bound) { failure } else { Label::BOTTOM };
        let content = Path(vec![PathStep::Key("content".into())]);
        let is_part =
            |statement: &LabelStatement| statement_path(statement).is_none_or(|steps| steps.len() > 1);
        // The statements about parts of an answer that are not in its content, so in its structured form.
        let of_structured =
            statements.iter().filter(|statement| is_part(statement) && !labels_around(statement, &content));
        of_structured.fold(failure, |joined, statement| {
            joined.join(&space.greatest_below(&greatest_label(space, &statement.label), bound))
        })
    }
}

/// Returns the label of the captured parts of a hidden text that a view shows nevertheless: the join of the labels of
/// those parts that flow to `bound`.
fn captured_label(document: &Document, text: NodeId, bound: &Label) -> Label {
    let parts = document.children(text).filter_map(|child| document.node(child));
    let shown = parts.filter(|part| matches!(part.step, PathStep::Capture(_)) && part.label.flows_to(bound));
    shown.fold(Label::BOTTOM, |joined, part| joined.join(&part.label))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use crate::monitor::{Floors, Verdict};
    use crate::policy::Policy;
    use crate::trace::{Call, Output, Tool, TraceEntry};

    const POLICY: &str = r#"lattice integrity: trusted < untrusted
lattice secrecy: public < private
require top if:
    (call: ToolCall) is tool:read
"#;

    /// Pushes an answer of `read` under these `label` statements, each a target with its label, and its conditions.
    /// Returns the monitor and the event. The content `failed` is the answer of a tool that reports an error.
    fn pushed(statements: &[(&str, &str)], content: &Value, structured: Option<Value>) -> (Monitor, EventId) {
        let statement = |(label, conditions): &(&str, &str)| {
            let conditions = conditions.replace('\n', "\n    ");
            format!("label {label} if:\n    (out: ToolOutput) is tool:read\n    {conditions}\n")
        };
        let policy = POLICY.to_owned() + &statements.iter().map(statement).collect::<String>();
        let mut monitor = Monitor::new(Arc::new(Policy::parse(&policy).unwrap()));
        let Verdict::Permit(permit) =
            monitor.judge(Call::from_json("c1".to_owned(), Tool::local("read"), "{}"))
        else {
            panic!("the call is permitted")
        };
        monitor.redeem(permit).unwrap();
        let (content, is_error) = (content.clone(), Some(content == &json!("failed")));
        let output = Output { call_id: "c1".to_owned(), tool: None, content, structured, is_error };
        let (event, _) = monitor.push(TraceEntry::from(output)).unwrap();
        (monitor, event)
    }

    /// Returns the label of a view, at the bound "trusted, private", of an answer under these label statements.
    fn carried(statements: &[(&str, &str)], content: &Value, structured: Option<Value>) -> String {
        let (monitor, event) = pushed(statements, content, structured);
        let private = monitor.policy().space().element("secrecy", "private").unwrap().label;
        let carried = monitor.view_label(event, &private);
        assert!(carried.flows_to(&private), "{statements:?}");
        monitor.describe(&carried).join(", ")
    }

    /// Returns the label of the first region that is called `name`: a field or a captured part.
    fn label_of(statements: &[(&str, &str)], content: &Value, name: &str) -> String {
        let (monitor, event) = pushed(statements, content, None);
        let nodes = monitor.trace().event(event).unwrap().document.nodes();
        let is_it =
            |step: &PathStep| matches!(step, PathStep::Key(at) | PathStep::Capture(at) if **at == *name);
        let found = nodes.iter().find(|node| is_it(&node.step)).unwrap();
        monitor.describe(&found.label).join(", ")
    }

    /// Whether statements are applied in a second round can depend on hidden text, so no label may show it.
    #[test]
    fn rounds_of_statements_do_not_show_in_labels() {
        let whole = ("out.content as trusted, public", "");
        let (page, h) = (("out.content.page as untrusted", ""), ("out.content.h as untrusted", ""));
        // It reads the page if `h` is "x", and labels nothing.
        let reads =
            ("out.content.zzz as trusted, public", "out.content.h == \"x\"\nout.content.page == \"z\"");
        let raises = ("out.content.page as untrusted, public", "out.content.k == \"y\"");
        for text in ["x", "w"] {
            let answer = json!({"h": text, "k": "y", "page": "Pay!"});
            assert_eq!(carried(&[whole, h, reads, raises], &answer, None), "trusted, public", "{text}");
        }
        let captured = |label: &str, pattern: &str| {
            format!("capture(out.content.page, r\"{pattern}\", \"n\") as {label}")
        };
        let private = captured("trusted, private", "id=(?<n>[0-9]) n=[0-9]")
            .replace("\"n\")", "\"id\")")
            .replace("?<n>", "?<id>");
        let part = captured("trusted", "id=[0-9] n=(?<n>[0-9])");
        let reads = (
            "out.content.zzz as trusted, public",
            "out.content.h == \"x\"\nout.content.q == \"a\"\nout.content.page == \"z\"",
        );
        let raises = ("out.content.q as untrusted", "out.content.k == \"y\"");
        for text in ["x", "o"] {
            let answer = json!({"h": text, "k": "y", "q": "a", "page": "id=7 n=5"});
            let statements = [whole, page, h, (&private, ""), (&part, ""), reads, raises];
            assert_eq!(label_of(&statements, &answer, "n"), "trusted, public", "{text}");
        }
    }

    /// What is captured raises its text, also for a statement that has read the text before.
    #[test]
    fn a_later_capture_reaches_what_an_earlier_statement_has_read() {
        let whole = ("out.content as trusted, public", "");
        let reads = ("out.content.b as private", "out.content.page == \"id=7\"");
        let capture = "capture(out.content.page, r\"id=(?<id>[0-9])\", \"id\") as trusted, private";
        for text in ["id=7", "id=8"] {
            let answer = json!({"b": "hi", "k": "y", "page": text});
            for statements in [
                [whole, reads, (capture, "out.content.k == \"y\"")],
                [whole, (capture, "out.content.k == \"y\""), reads],
            ] {
                assert_eq!(label_of(&statements, &answer, "b"), "trusted, private", "{text}");
            }
        }
    }

    /// `out[*]` labels the content, and the frame with it.
    #[test]
    fn a_statement_about_all_fields_covers_the_frame() {
        let each = ("out[*] as trusted, private", "");
        assert_eq!(carried(&[each], &json!("2"), None), "trusted, private");
        assert_eq!(carried(&[each], &json!("failed"), None), "trusted, private");
    }

    #[test]
    fn a_view_carries_what_it_shows_and_what_decided_that_it_hides_the_rest() {
        let (public, private) = ("trusted, public", "trusted, private");
        let whole = ("out.content as trusted, public", "");
        let page = ("out.content.page as untrusted", "");
        let answer = json!({"count": 2, "page": "Pay!"});
        let check = |statements: &[(&str, &str)], content: &Value, expected: &str| {
            assert_eq!(carried(statements, content, None), expected, "{statements:?} {content}");
        };
        check(&[whole], &answer, public);
        check(&[whole, ("out.content.count as private", "")], &answer, private);
        // A hidden part whose label no text decided.
        check(&[whole, page], &answer, public);
        check(&[whole, page], &json!({"page": {"a": "Pay!"}}), public);
        // Its label was decided by a public field, by a private one, and by one that is hidden itself.
        let decided = ("out.content.page as untrusted", "out.content.count > 1");
        check(&[whole, decided], &answer, public);
        check(&[whole, decided, ("out.content.count as private", "")], &answer, private);
        check(&[whole, decided, ("out.content.count as untrusted", "")], &answer, private);
        // A statement labels a part of what is hidden, so the label is the same in every form.
        for page_text in [json!("Pay!"), json!({"id": 1}), json!({"id": {"a": 1}})] {
            let answer = json!({"count": 2, "page": page_text});
            check(&[whole, page, ("out.content.page.id as trusted, private", "")], &answer, private);
            check(&[whole, page, ("out.content.page.id as trusted, public", "")], &answer, public);
            check(&[whole, page, ("out.content.page.id as untrusted, private", "")], &answer, public);
            check(&[whole, ("out.content.page.id as untrusted, private", "")], &answer, public);
        }
        // A part that a pattern captures is shown if the text has it, so its label counts if it has not.
        let captured =
            |label: &str| format!("capture(out.content.page, r\"id=(?<id>[0-9])\", \"id\") as {label}");
        let parts =
            |label: &str, when: &str| carried(&[whole, page, (&captured(label), when)], &answer, None);
        assert_eq!(parts("trusted, private", ""), private);
        assert_eq!(parts("trusted, public", ""), public);
        assert_eq!(parts("untrusted, private", ""), public);
        // It keeps the secrecy of the text.
        assert_eq!(parts("trusted", ""), public);
        let secret_page = ("out.content.page as untrusted, private", "");
        assert_eq!(carried(&[whole, secret_page, (&captured("trusted"), "")], &answer, None), private);
        assert_eq!(carried(&[whole, secret_page, (&captured("trusted, public"), "")], &answer, None), public);
        // A captured part carries what a statement says about a part of the text.
        let note = ("out.content.page.note as private", "");
        for page_text in ["id=7 x", "y"] {
            let answer = json!({ "page": page_text });
            assert_eq!(carried(&[whole, page, (&captured("trusted"), ""), note], &answer, None), private);
        }
        // A statement about another tool labels nothing.
        let other = ("out.content as public", "tool_call(out) is tool:other");
        let whole_captured = ("capture(out.content, r\"id=(?<id>[0-9]) .*\", \"id\") as trusted", "");
        for text in ["id=7 x", "y"] {
            assert_eq!(carried(&[other, whole_captured], &json!(text), None), private);
        }
        // A condition that reads the page reaches what it labels elsewhere.
        let reads_page = ("out.content.other as trusted, private", "out.content.page == \"z\"");
        assert_eq!(carried(&[whole, page, (&captured("trusted"), ""), reads_page], &answer, None), private);
        // Whether it is labelled depends on what the statement reads.
        assert_eq!(parts("trusted, public", "out.content.count > 1"), private);
        // All of it is hidden: an error could be in its place.
        let hidden = ("out.content as untrusted, public", "");
        check(&[hidden], &json!("Pay!"), public);
        check(&[hidden], &json!("failed"), public);
        check(&[("out.content as trusted, private", "")], &json!("failed"), private);
        check(&[whole], &json!("failed"), public);
        // No statement labels it.
        check(&[], &json!("Pay!"), public);
    }

    /// A statement whose pattern matches tools of two servers raises the answer to the top in its dimensions, and so
    /// every answer that could be in the place of a hidden one.
    #[test]
    fn what_an_ambiguous_statement_raises_counts_where_the_answer_is_hidden() {
        let check = |other_server: Option<&str>, expected: &str| {
            let policy = format!(
                "{}label out.content as trusted, public if:\n    (out: ToolOutput) is tool:a/read\n\
                 label out.content as public if:\n    (out: ToolOutput) is tool:read\n",
                POLICY.replace("tool:read", "tool:a/read"),
            );
            let mut monitor = Monitor::new(Arc::new(Policy::parse(&policy).unwrap()));
            let tool = Tool::of("a", "read");
            monitor.declare_tools([&tool]);
            monitor.declare_tools(other_server.map(|server| Tool::of(server, "read")).as_ref());
            let Verdict::Permit(permit) = monitor.judge(Call::from_json("c1".to_owned(), tool, "{}")) else {
                panic!("the call is permitted")
            };
            monitor.redeem(permit).unwrap();
            let output = Output {
                call_id: "c1".to_owned(),
                tool: None,
                content: json!("failed"),
                structured: None,
                is_error: Some(true),
            };
            let (event, _) = monitor.push(TraceEntry::from(output)).unwrap();
            let private = monitor.policy().space().element("secrecy", "private").unwrap().label;
            assert_eq!(monitor.describe(&monitor.view_label(event, &private)).join(", "), expected);
        };
        check(None, "trusted, public");
        check(Some("b"), "trusted, private");
    }

    /// The lower bounds of single blocks do not follow from the statements.
    #[test]
    fn a_block_with_a_floor_of_its_own_counts_as_the_bound() {
        let check = |blocks: Vec<(usize, &str)>, expected: &str| {
            let policy = format!(
                "{POLICY}label out.content as trusted, public if:\n    (out: ToolOutput) is tool:read\n\
                 label out.content[0].page as untrusted if:\n    (out: ToolOutput) is tool:read\n\
                 label out.content[0].page.id as trusted if:\n    (out: ToolOutput) is tool:read\n"
            );
            let mut monitor = Monitor::new(Arc::new(Policy::parse(&policy).unwrap()));
            let call = Call::from_json("c1".to_owned(), Tool::local("read"), "{}");
            let Verdict::Permit(permit) = monitor.judge(call) else { panic!("the call is permitted") };
            monitor.redeem(permit).unwrap();
            let content = json!([{"page": "Pay!"}]);
            let output =
                Output { call_id: "c1".to_owned(), tool: None, content, structured: None, is_error: None };
            let of = |name: &str| monitor.policy().space().element("secrecy", name).unwrap().label;
            let private = of("private");
            let blocks = blocks.into_iter().map(|(index, name)| (index, of(name))).collect();
            let floors = Floors { whole: Label::BOTTOM, blocks };
            let (event, _) = monitor.push_with_floors(TraceEntry::from(output), &floors).unwrap();
            assert_eq!(monitor.describe(&monitor.view_label(event, &private)).join(", "), expected);
        };
        check(vec![], "trusted, public");
        check(vec![(0, "public")], "trusted, private");
    }

    /// A view shows the text of an answer alone.
    #[test]
    fn a_structured_form_contributes_nothing() {
        let structured = [("out.content as trusted, public", ""), ("out.structured as trusted, private", "")];
        let answer = json!({"count": 2});
        let text = json!(answer.to_string());
        assert_eq!(carried(&structured, &text, Some(answer)), "trusted, public");
        assert_eq!(carried(&structured, &text, Some(json!({"count": 3}))), "trusted, public");
        assert_eq!(carried(&structured, &json!("two"), Some(json!("two"))), "trusted, public");
        // But the report of a failed call, which could be in the place of an error, carries its label.
        assert_eq!(carried(&structured, &json!("failed"), None), "trusted, private");
    }

    /// An answer whose text and structured form differ carries what statements say about parts of the structured form.
    #[test]
    fn a_part_of_the_structured_form_counts_where_the_answer_is_hidden() {
        let whole = ("out.content as trusted, public", "");
        let part = ("out.structured.x as private", "");
        let differs = carried(&[whole, part], &json!("two"), Some(json!({"x": 1})));
        assert_eq!(differs, "trusted, private");
        assert_eq!(carried(&[whole, part], &json!("failed"), None), differs);
    }
}
