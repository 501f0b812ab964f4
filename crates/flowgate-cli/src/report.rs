//! Formats verdicts, their reasons and the regions that caused them, as text and as JSON. The commands that print
//! verdicts or reasons (`check`, `explain`, `replay`, `analyze`, `labels`, `demo` and `run`) share these functions, so
//! that all of them print in the same form.

use flowgate::monitor::{Monitor, Outcome, Reason};
use flowgate::policy::{Policy, Span};
use flowgate::trace::{EventBody, Region};
use flowgate_guard::replay::{JudgedCall, ReplayedRun};
use serde_json::{Value, json};

use crate::escaping;
use crate::output::{Console, statement_line};

/// Returns the name of an outcome with a mark, in its colour and padded to the same width for all outcomes.
pub(crate) fn outcome_mark(outcome: Outcome, output: &Console) -> String {
    match outcome {
        Outcome::Permit => output.paint("32", "✓ permit "),
        Outcome::Confirm => output.paint("33", "? confirm"),
        Outcome::Deny => output.paint("31", "✗ deny   "),
    }
}

/// Returns the statement of the policy that caused a reason, as `FILE:LINE  TEXT`; `None` if no statement did. `name`
/// is the policy's own file.
pub(crate) fn statement(reason: &Reason, policy: &Policy, name: &str) -> Option<String> {
    let span = reason.statement.as_ref()?;
    let (file, line) = statement_line(name, policy, span);
    Some(format!("{file}:{line}  {}", policy.excerpt(span)))
}

/// Returns a phrase for the event that contains a region: the role of a message, such as `user`, or `call of TOOL`,
/// `description of TOOL` or `answer of TOOL`. The phrase is empty if the trace has no such event.
pub(crate) fn region_source(region: &Region, monitor: &Monitor) -> String {
    let Some(event) = monitor.trace().event(region.event) else { return String::new() };
    match &event.body {
        EventBody::Message(message) => escaping::line(&message.role),
        EventBody::Call(call) => format!("call of {}", escaping::line(&call.tool.to_string())),
        EventBody::Tool(tool) => format!("description of {}", escaping::line(&tool.tool.to_string())),
        EventBody::Output(_) => {
            let call = event.call.and_then(|call| monitor.trace().event(call)).and_then(|call| call.tool());
            let answer =
                |tool: &flowgate::trace::Tool| format!("answer of {}", escaping::line(&tool.to_string()));
            call.map_or_else(|| "an answer without a call".to_owned(), answer)
        }
    }
}

/// Returns the text of the JSON value that a region belongs to, on one line, cut after 100 characters; `None` if the
/// trace has no such value.
pub(crate) fn region_text(region: &Region, monitor: &Monitor) -> Option<String> {
    let document = &monitor.trace().event(region.event)?.document;
    let node = (0..document.nodes().len()).find(|node| document.path(*node) == region.path)?;
    let text = match document.to_value(node) {
        Value::String(text) => text,
        value => value.to_string(),
    };
    Some(escaping::excerpt(&text, 100))
}

/// Prints one reason: its message, its statement, and its regions with their labels, or its events if it has no
/// regions. With `show`, prints the text of the regions as well. `name` is the policy's own file; every line begins
/// with `indent`.
pub(crate) fn print_reason(
    reason: &Reason,
    monitor: &Monitor,
    name: &str,
    show: bool,
    indent: &str,
    output: &mut Console,
) {
    output.line(&format!("{indent}{}", escaping::line(&reason.message)));
    if let Some(statement) = statement(reason, monitor.policy(), name) {
        let line = output.paint("2", &format!("{indent}  │ {statement}"));
        output.line(&line);
    }
    for (region, label) in &reason.regions {
        output.line(&format!(
            "{indent}  ← {} in the {}: {}",
            region,
            region_source(region, monitor),
            label.join(", ")
        ));
        if let Some(text) = region_text(region, monitor).filter(|_| show) {
            let text = output.paint("2", &format!("{indent}      “{text}”"));
            output.line(&text);
        }
    }
    if !reason.events.is_empty() && reason.regions.is_empty() {
        let events: Vec<String> = reason.events.iter().map(ToString::to_string).collect();
        output.line(&format!("{indent}  ← events {}", events.join(", ")));
    }
}

/// Groups reasons for printing: reasons about several parts of a call that have the same statement, labels and regions
/// become one reason, whose message names all these parts.
pub(crate) fn group_reasons(reasons: &[Reason]) -> Vec<Reason> {
    let mut groups: Vec<(Reason, Vec<String>)> = Vec::new();
    for reason in reasons {
        let has_same_cause = |known: &Reason| {
            (known.kind, &known.statement, &known.label, &known.required, &known.regions)
                == (reason.kind, &reason.statement, &reason.label, &reason.required, &reason.regions)
        };
        // A reason about a part joins the group with the same cause; every other reason is a group of its own.
        match (
            &reason.part,
            groups.iter_mut().find(|(known, _)| known.part.is_some() && has_same_cause(known)),
        ) {
            (Some(part), Some((_, parts))) => parts.push(part.clone()),
            (part, _) => groups.push((reason.clone(), part.iter().cloned().collect())),
        }
    }
    let merged = groups.into_iter().map(|(mut reason, parts)| {
        // A message of the form `PART carries ...` becomes `PART, PART carry ...`.
        if let (Some(first), true) = (parts.first(), parts.len() > 1) {
            let subject = format!("{} carry ", parts.join(", "));
            reason.message = reason.message.replacen(&format!("{first} carries "), &subject, 1);
        }
        reason
    });
    merged.collect()
}

/// Adds the field `file` to `value`, the JSON description of a statement, if the statement is in a file that the policy
/// imports.
pub(crate) fn with_file(policy: &Policy, statement: &Span, mut value: Value) -> Value {
    if let (Some(file), Some(fields)) = (policy.locate(statement).file, value.as_object_mut()) {
        fields.insert("file".to_owned(), file.into());
    }
    value
}

/// Returns a reason as JSON, with its statement, labels and regions but without the text of the regions.
pub(crate) fn reason_json(reason: &Reason, policy: &Policy) -> Value {
    let regions = reason.regions.iter().map(|(region, label)| {
        json!({
            "event": region.event.0,
            "path": region.path.to_string(),
            "span": region.span.as_ref().map(|span| [span.start, span.end]),
            "label": label,
        })
    });
    json!({
        "kind": reason.kind.name(),
        // The name of the variant, such as `deny`.
        "action": format!("{:?}", reason.action).to_lowercase(),
        "message": reason.message,
        "statement": reason.statement.as_ref().map(|span| {
            with_file(policy, span, json!({"line": policy.locate(span).line, "text": policy.excerpt(span)}))
        }),
        "part": reason.part,
        "label": reason.label,
        "required": reason.required,
        "categories": reason.categories,
        "regions": regions.collect::<Vec<_>>(),
        "events": reason.events.iter().map(|event| event.0).collect::<Vec<_>>(),
    })
}

/// Returns a judged call of the run at `line` of the file `trace` as JSON, with its verdict and reasons.
pub(crate) fn call_json(call: &JudgedCall, policy: &Policy, trace: &str, line: usize) -> Value {
    let list =
        |reasons: &[Reason]| reasons.iter().map(|reason| reason_json(reason, policy)).collect::<Vec<_>>();
    json!({
        "type": "call",
        "trace": trace,
        "line": line,
        "event": call.event.map(|event| event.0),
        "id": call.id,
        "tool": call.tool.to_string(),
        "verdict": call.outcome.name(),
        "influence": call.judgement.method,
        "label": call.judgement.label,
        "hidden": call.judgement.hidden,
        "reasons": list(&call.judgement.reasons),
        "notes": list(&call.judgement.notes),
    })
}

/// Returns the findings of a run as JSON, and after them the events that the monitor rejected: objects of the type
/// `refused`, whose field `message` is the position of the event in the run. The run begins at `line` of the file
/// `trace`.
pub(crate) fn findings_json(run: &ReplayedRun, policy: &Policy, trace: &str, line: usize) -> Vec<Value> {
    let finding = run.findings.iter().map(|finding| {
        json!({
            "type": "finding",
            "trace": trace,
            "line": line,
            "event": finding.event.0,
            "reason": reason_json(&finding.reason, policy),
        })
    });
    let rejected = run.refused.iter().map(|(entry, error)| {
        json!({"type": "refused", "trace": trace, "line": line, "message": entry, "error": error.to_string()})
    });
    finding.chain(rejected).collect()
}
