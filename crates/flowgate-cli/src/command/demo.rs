//! Runs `flowgate demo`: shows step by step how a policy stops an injected payment, the example of Figure 1 of the
//! paper RTBAS. The policy and the recorded run are built into the program.

use std::sync::Arc;

use flowgate::label::Label;
use flowgate::monitor::Outcome;
use flowgate::policy::Policy;
use flowgate::trace::{Document, EventBody, EventId, NodeContent, read};
use flowgate_guard::influence::{
    InfluenceMethod, everything::EverythingMethod, provenance::ProvenanceMethod,
};
use flowgate_guard::replay::{ReplayedRun, replay};
use serde_json::Value;

use crate::input::InputError;
use crate::output::Console;
use crate::report;

/// The policy of the demonstration.
const POLICY: &str = include_str!("../../demo/payment.flow");
/// The recorded run of the demonstration.
const TRACE: &str = include_str!("../../demo/payment.json");

/// Runs `flowgate demo`: replays a built-in run under a built-in policy, and prints for each event its labels, the
/// model's view or the verdict. Returns 0.
pub(crate) fn run(output: &mut Console) -> Result<u8, InputError> {
    let broken = |what: &str| {
        InputError(format!(
            "the {what} of the demonstration cannot be read; this is a defect of Flowgate; please report it"
        ))
    };
    let policy = Arc::new(Policy::parse(POLICY).map_err(|_| broken("policy"))?);
    let run = read::file(TRACE).map_err(|_| broken("trace"))?.pop().ok_or_else(|| broken("trace"))?;

    print_heading(
        "An agent can read Bob's account and make payments from it. Mallory sends Bob one cent with a note.",
        output,
    );
    output.line("The policy declares what is trusted and what a payment may depend on:");
    output.line("");
    for line in POLICY.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let line = output.paint("2", &format!("    {line}"));
        output.line(&line);
    }

    let replayed = replay(&policy, &ProvenanceMethod, &run);
    let trace = replayed.monitor.trace();
    for (index, event) in trace.events().iter().enumerate() {
        let id = EventId(index);
        match &event.body {
            // The text of the model and the descriptions of the tools are left out.
            EventBody::Message(message) if message.role == "assistant" => {}
            EventBody::Tool(_) => {}
            EventBody::Message(message) => {
                print_heading(&format!("{id} {} message", message.role), output);
                print_fields(&event.document, &replayed, output);
            }
            EventBody::Output(_) => {
                print_heading(&format!("{id} the tool answers; each field has its own label"), output);
                print_fields(&event.document, &replayed, output);
                output.line("");
                output.line("    A step that may make a payment sees only trusted text; the notes, and the amounts of other people, are hidden from it:");
                print_view(&event.document, &replayed, output);
            }
            EventBody::Call(call) => {
                print_heading(&format!("{id} the model proposes {}", call.tool), output);
                let arguments = call
                    .arguments
                    .as_ref()
                    .map_or_else(ToString::to_string, |a| Value::Object(a.clone()).to_string());
                output.line(&format!("    {}({arguments})", call.tool));
                print_verdict(id, &replayed, output);
            }
        }
    }

    print_heading("What if the sources of the values are unknown?", output);
    output.line("    So far the arguments were traced to the regions that contain their values (the method `provenance`, an estimate).");
    output.line("    The method `everything` assumes that everything read before has influenced the call. It is sound for every");
    output.line("    model and asks more often:");
    for method in [&ProvenanceMethod as &dyn InfluenceMethod, &EverythingMethod] {
        let replayed = replay(&policy, method, &run);
        let verdicts: Vec<String> =
            replayed.calls.iter().map(|call| format!("{} {}", call.outcome.name(), call.tool)).collect();
        output.line(&format!("    {:<12} {}", method.name(), verdicts.join(", ")));
    }
    output.line("");
    output.line(
        "Next: `flowgate check POLICY TRACE` judges a run of your own; `flowgate explain` shows the reasons.",
    );
    Ok(0)
}

/// Prints the heading of a part of the demonstration, after an empty line.
fn print_heading(text: &str, output: &mut Console) {
    output.line("");
    let text = output.paint("1", text);
    output.line(&text);
}

/// Prints every scalar of an event's content with its label. A trusted label is green, any other yellow.
fn print_fields(document: &Document, run: &ReplayedRun, output: &mut Console) {
    for (id, node) in document.nodes().iter().enumerate() {
        let path = document.path(id).to_string();
        let (NodeContent::Scalar(value), true) = (&node.content, path.starts_with("content")) else {
            continue;
        };
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let label = run.monitor.describe(&node.label).join(", ");
        let color = if label.starts_with("trusted") { "32" } else { "33" };
        let label = output.paint(color, &format!("{label:<20}"));
        output.line(&format!("    {label} {path:<18} {text}"));
    }
}

/// Prints the text of an answer as a step that may make a payment sees it: `‹hidden›` replaces each untrusted field.
/// The fields are replaced from the last to the first, so that the spans of earlier fields stay valid.
fn print_view(document: &Document, run: &ReplayedRun, output: &mut Console) {
    let space = run.monitor.policy().space();
    let Some(trusted) = space.element("integrity", "trusted") else { return };
    // Whether the label is at most `trusted` in the dimension `integrity`.
    let flows = |label: &Label| space.exceeded_dimensions(label, &trusted.label, trusted.dims).is_empty();
    // The node 0 is the root.
    let Some(text) =
        document.key(0, "content").and_then(|id| document.node(id)).and_then(|node| node.text.clone())
    else {
        return;
    };
    let mut view = text.to_string();
    for node in document.nodes().iter().rev() {
        if let (NodeContent::Scalar(_), Some(span), false) = (&node.content, &node.span, flows(&node.label)) {
            view.replace_range(span.clone(), "‹hidden›");
        }
    }
    for line in view.lines() {
        let line = output.paint("2", &format!("      {line}"));
        output.line(&line);
    }
}

/// Prints the arguments of the call in `event` of the demonstration with their labels, and its verdict with the
/// reasons.
fn print_verdict(event: EventId, run: &ReplayedRun, output: &mut Console) {
    let Some(call) = run.calls.iter().find(|call| call.event == Some(event)) else { return };
    let Some(document) = run.monitor.trace().event(event).map(|event| &event.document) else { return };
    // The node 0 is the root.
    for child in document.key(0, "arguments").into_iter().flat_map(|arguments| document.children(arguments)) {
        let label = run.monitor.describe(&document.label_of(child)).join(", ");
        output.line(&format!("    {:<22} {label}", document.path(child).to_string()));
    }
    let mark = report::outcome_mark(call.outcome, output);
    output.line(&format!("    {mark}"));
    for reason in &report::group_reasons(&call.judgement.reasons) {
        // `true`: with the content of the regions, which is harmless in the demonstration.
        report::print_reason(reason, &run.monitor, "payment.flow", true, "      ", output);
    }
    if call.outcome == Outcome::Confirm {
        output.line("      Bob is asked and sees exactly this. The payment is made only if he confirms it.");
    }
}
