//! Finds the `label` statements that gave a region its label. `flowgate labels`, `doctor` and `attack` print them, so
//! that the author of a policy can see why a region carries a label; `statement_hits` counts them.

use super::Monitor;
use crate::policy::Span;
use crate::trace::{EventId, NodeId};

/// # Sources of labels
///
/// Which statement labelled what.
impl Monitor {
    /// Returns the `label` statements that gave a region of an event its label, in the order of the policy. In each
    /// dimension, these are the statements that name the region or, if there is none, the nearest region around it that
    /// a statement names. The statements that raised one of these regions are included, at most three for each region.
    /// The result is empty if no statement labelled the region: it then has the label of its origin, such as the call
    /// or what the model had seen, or it is top.
    pub fn labelling_statements(&self, event: EventId, node: NodeId) -> Vec<Span> {
        let Some(event) = self.trace.event(event) else { return Vec::new() };
        let statements = event.document.labelled_by(node).into_iter();
        statements.filter_map(|index| self.policy.plan.labels.get(index)).map(|s| s.span.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::monitor::{Attribution, Monitor};
    use crate::policy::Policy;
    use crate::trace::{Tool, TraceEntry};

    const POLICY: &str = r#"lattice integrity: trusted < untrusted
lattice secrecy: public < private
label message as trusted, public if:
    (message: Message)
    message.role == "user"
label out.content as public if:
    (out: ToolOutput) is tool:rows
label row.note as trusted if:
    (out: ToolOutput) is tool:rows
    (row: dict) in out.content
    row.sender == "me"
label out.content[*].sender as trusted if:
    (out: ToolOutput) is tool:rows
require top if:
    (call: ToolCall) is tool:rows
"#;

    #[test]
    fn each_region_names_its_statements() {
        let policy = Arc::new(Policy::parse(POLICY).unwrap());
        let mut monitor = Monitor::new(Arc::clone(&policy));
        monitor.push(TraceEntry::user("hi")).unwrap();
        monitor.record(TraceEntry::tool_call("c", Tool::local("rows"), "{}"), &Attribution::everything());
        let rows = r#"[{"sender": "me", "note": "n"}, {"sender": "eve", "note": "m"}]"#;
        monitor.push(TraceEntry::tool_output("c", rows)).unwrap();
        let lines = |event: usize, path: &str| -> Vec<usize> {
            let document = &monitor.trace().events()[event].document;
            let of_path = |node: &usize| document.path(*node).to_string() == path;
            let node = (0..document.nodes().len()).find(of_path).unwrap();
            let spans = monitor.labelling_statements(crate::trace::EventId(event), node);
            spans.iter().map(|span| policy.line(span)).collect()
        };
        assert_eq!(lines(0, "content"), [3]);
        assert_eq!(lines(2, "content[0].note"), [6, 8]);
        assert_eq!(lines(2, "content[1].note"), [6]);
        assert_eq!(lines(2, "content[1].sender"), [6, 12]);
        assert_eq!(lines(1, "arguments"), Vec::<usize>::new());
    }
}
