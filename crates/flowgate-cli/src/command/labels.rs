//! Runs `flowgate labels`: prints each field of a recorded run with its label and the statements of the policy that
//! gave it. Below each event is what a guarded agent is shown of the event in a step at the base label. A turn begins
//! with such a step; it is shown only what flows to the strictest requirement of the tools on offer.

use std::sync::Arc;

use flowgate::label::Label;
use flowgate::trace::{Document, EventBody, EventId, NodeContent, NodeId, Tool};
use flowgate_guard::influence::everything::EverythingMethod;
use flowgate_guard::redact::{HiddenRegions, Redactor};
use flowgate_guard::replay::{ReplayInputs, ReplayedRun, replay_with};
use serde_json::{Value, json};

use crate::args::{LabelsArgs, LabelsFormat};
use crate::input::{self, InputError};
use crate::output::{Console, plural, statement_line};
use crate::parameter_args::MissingParameters;
use crate::policy_file::load_policy;
use crate::progress::{INTERRUPTED, Progress};
use crate::{escaping, report};

/// The maximum number of characters of a field that the text format shows.
const MAX_SHOWN: usize = 100;
/// The maximum number of fields of one event that the text format lists.
const MAX_FIELDS: usize = 500;

/// A labelled field of an event.
struct LabelledField {
    path: String,
    /// The label in words, one per dimension.
    label: Vec<String>,
    /// Whether the label of the field flows to the base label. If so, a step at the base label is shown the field,
    /// unless a list or map around the field is hidden from the step.
    is_low: bool,
    /// The statements that gave the label: file and line.
    lines: Vec<(String, usize)>,
    /// The value; of a list or a map, a text with the number of its parts.
    value: Value,
}

/// Runs `flowgate labels`: replays each run of the trace, and prints the labels of its events. Returns 0, 2 if a run
/// could not be read, or [`INTERRUPTED`] after an interrupt.
pub(crate) fn run(options: &LabelsArgs, output: &mut Console) -> Result<u8, InputError> {
    let policy = Arc::new(load_policy(&options.policy, output)?);
    let name = options.policy.display().to_string();
    let inputs = ReplayInputs {
        predicates: options.answering.predicates(&policy, &name)?,
        parameters: options.parameters.values(),
    };
    let mut missing = MissingParameters::default();
    let (mut runs, mut shown, mut errors) = (Vec::new(), 0, Vec::new());
    // `false`: no line of progress is drawn on a terminal, where the printed runs show the progress already.
    let progress = Progress::over_files(&[options.trace.to_owned()], "run", false, output);
    input::for_each_run(&options.trace, &progress, &mut |item| {
        match item {
            Ok((line, run)) => {
                // The influence method affects only the labels of calls: with this one, they are the join of the labels
                // of everything that the agent had read.
                let replayed = replay_with(&policy, &inputs, &EverythingMethod, &run);
                missing.add(&name, &policy, &inputs.parameters, &run);
                let labelled = LabelledRun { base: base_label(&replayed), run: &replayed, policy: &name };
                let events = (0..replayed.monitor.trace().len())
                    .filter(|index| options.event.is_none_or(|only| only == *index));
                let events: Vec<EventId> = events.map(EventId).collect();
                shown += events.len();
                match options.format {
                    LabelsFormat::Text => {
                        let place = format!("{}:{line}", options.trace.display());
                        labelled.print_run(&place, &events, output);
                    }
                    LabelsFormat::Json => {
                        let events: Vec<Value> =
                            events.iter().map(|event| labelled.to_json(*event)).collect();
                        let base = replayed.monitor.describe(&labelled.base);
                        runs.push(json!({"line": line, "lowest_step": base, "events": events}));
                    }
                }
                progress.step();
            }
            Err(error) => errors.push(error),
        }
        // Continues with the next run, unless Ctrl-C was pressed.
        !progress.is_interrupted()
    })?;
    let is_interrupted = progress.finish(output);
    if options.format == LabelsFormat::Json {
        let document = json!({"policy": name, "trace": options.trace.display().to_string(), "runs": runs});
        output.line(&serde_json::to_string_pretty(&document).unwrap_or_default());
    }
    missing.print(output);
    errors.iter().for_each(|error| output.error(&error.0));
    if is_interrupted {
        return Ok(INTERRUPTED);
    }
    if !errors.is_empty() {
        return Ok(2);
    }
    match options.event {
        // Every run was read, and none has an event with this number.
        Some(event) if shown == 0 => Err(InputError(format!(
            "{}: there is no event {event}; leave out --event to list all",
            options.trace.display()
        ))),
        _ => Ok(0),
    }
}

/// Returns the base label of a guarded agent: the strictest requirement of the tools that the run describes or calls. A
/// step at this label can call each of these tools without a question. Without tools, returns bottom: for no tools,
/// `strictest_requirement` returns top, at which nothing would be hidden.
fn base_label(run: &ReplayedRun) -> Label {
    let tools: Vec<&Tool> = run
        .monitor
        .trace()
        .events()
        .iter()
        .filter_map(|event| match &event.body {
            EventBody::Tool(described) => Some(&described.tool),
            EventBody::Call(call) => Some(&call.tool),
            _ => None,
        })
        .collect();
    if tools.is_empty() { Label::BOTTOM } else { run.monitor.strictest_requirement(tools) }
}

/// A replayed run whose labels are printed.
struct LabelledRun<'a> {
    run: &'a ReplayedRun,
    /// The name of the policy's file.
    policy: &'a str,
    /// The base label of the guarded agent, from [`base_label`].
    base: Label,
}

impl LabelledRun<'_> {
    /// Prints the run: the place where it begins, its base label, and the `events`.
    fn print_run(&self, place: &str, events: &[EventId], output: &mut Console) {
        let title = output.paint("1", place);
        output.line(&title);
        let base = self.run.monitor.describe(&self.base).join(", ");
        output.line(&format!(
            "labels by {}; a step at the base label is shown what is at most {base}",
            self.policy
        ));
        events.iter().for_each(|event| self.print(*event, output));
    }

    /// Prints an event: a title, its fields, the findings of rules about the event, and what a step at the base label
    /// is shown of it.
    fn print(&self, id: EventId, output: &mut Console) {
        let monitor = &self.run.monitor;
        let Some(event) = monitor.trace().event(id) else { return };
        // The node 0 is the whole event.
        let source = report::region_source(&monitor.trace().region(id, 0), monitor);
        let kind = if matches!(event.body, EventBody::Message(_)) { " message" } else { "" };
        output.line("");
        let title = output.paint("1", &format!("{id} {source}{kind}"));
        output.line(&title);
        let fields = self.fields(id);
        for field in fields.iter().take(MAX_FIELDS) {
            let label = field.label.join(", ");
            // Green: the label flows to the base label.
            let label = output.paint(if field.is_low { "32" } else { "33" }, &format!("{label:<20}"));
            let path = escaping::excerpt(&field.path, 30);
            let lines = output.paint("2", &format!("{:<14}", self.line_numbers(&field.lines)));
            let text = field.value.as_str().map_or_else(|| field.value.to_string(), str::to_owned);
            output.line(&format!("    {label} {path:<20} {lines} {}", escaping::excerpt(&text, MAX_SHOWN)));
        }
        if fields.len() > MAX_FIELDS {
            output.line(&format!("    and {} more, which --format json lists", fields.len() - MAX_FIELDS));
        }
        for finding in self.run.findings.iter().filter(|finding| finding.event == id) {
            // `false`: without the text of the regions, which the fields above show.
            report::print_reason(&finding.reason, monitor, self.policy, false, "    ", output);
        }
        let view = match self.base_view(id) {
            None => "  a step at the base label is not shown that this event exists".to_owned(),
            Some(view) => {
                let text = view.as_str().map_or_else(|| view.to_string(), str::to_owned);
                let lines = text.lines().take(MAX_FIELDS);
                let lines = lines.map(|line| format!("      {}", escaping::excerpt(line, 2 * MAX_SHOWN)));
                format!("  a step at the base label is shown:\n{}", lines.collect::<Vec<_>>().join("\n"))
            }
        };
        for line in view.lines() {
            let line = output.paint("2", line);
            output.line(&line);
        }
    }

    /// Returns the lines of statements for a person: `line 12, 16`, or `-` if there is none. A line of an imported file
    /// has the name of the file before it.
    fn line_numbers(&self, lines: &[(String, usize)]) -> String {
        let numbers =
            lines.iter().map(
                |(file, line)| {
                    if file == self.policy { line.to_string() } else { format!("{file}:{line}") }
                },
            );
        match numbers.collect::<Vec<_>>().join(", ") {
            none if none.is_empty() => "-".to_owned(),
            numbers => format!("line {numbers}"),
        }
    }

    /// Returns an event with its labelled fields as JSON.
    fn to_json(&self, id: EventId) -> Value {
        let monitor = &self.run.monitor;
        // The node 0 is the root of the event.
        let source = report::region_source(&monitor.trace().region(id, 0), monitor);
        let fields = self.fields(id).into_iter().map(|field| {
            let lines = field.lines.iter().map(|(file, line)| json!({"file": file, "line": line}));
            json!({"path": field.path, "label": field.label, "statements": lines.collect::<Vec<_>>(), "value": field.value})
        });
        json!({
            "event": id.0,
            "source": source,
            "fields": fields.collect::<Vec<_>>(),
            "lowest_view": self.base_view(id),
        })
    }

    /// Returns the fields of the event's content that the command lists (see `is_listed`): the values that are neither
    /// null nor a list nor a map, and the captured parts of texts. Also returns the lists and maps of the content whose
    /// structure a step at the base label is not shown.
    fn fields(&self, id: EventId) -> Vec<LabelledField> {
        let monitor = &self.run.monitor;
        let Some(event) = monitor.trace().event(id) else { return Vec::new() };
        let document = &event.document;
        let nodes = (0..document.nodes().len()).filter(|node| is_listed(document, *node, &event.body));
        let policy = monitor.policy();
        let mut fields = Vec::new();
        for node in nodes {
            let Some(found) = document.node(node) else { continue };
            let (label, is_field) = (found.label, matches!(found.content, NodeContent::Scalar(_)));
            // A list or map needs a field of its own only if its structure is hidden.
            if !is_field && label.flows_to(&self.base) {
                continue;
            }
            let statements = monitor.labelling_statements(id, node);
            fields.push(LabelledField {
                path: document.path(node).to_string(),
                label: monitor.describe(&label),
                is_low: label.flows_to(&self.base),
                lines: statements.iter().map(|span| statement_line(self.policy, policy, span)).collect(),
                value: if is_field {
                    document.to_value(node)
                } else {
                    Value::String(structure(document, node))
                },
            });
        }
        fields
    }

    /// Returns what a step at the base label is shown of the content of an event; `None` if the step must not learn that
    /// the event exists.
    fn base_view(&self, id: EventId) -> Option<Value> {
        let trace = self.run.monitor.trace();
        let event = trace.event(id)?;
        let label = &self.base;
        if !trace.existence_label(id).flows_to(label) {
            return None;
        }
        // `schema: None`: placeholders show no types of the tool's schema. Their numbers start over in each event,
        // since the views of events are printed separately.
        let view =
            Redactor { id, event, label, schema: None }.redacted_content(&mut HiddenRegions::default());
        Some(view)
    }
}

/// Returns how many parts a list or a map has, in words. The region of a list or a map has a label of its own, for
/// its structure: the number of its items and their keys.
fn structure(document: &Document, node: NodeId) -> String {
    format!("(the structure: {})", plural(document.children(node).count(), "part"))
}

/// Returns whether the command lists the part `node` of an event with this `document` and `body`: the part is not null,
/// and it belongs to the content of a message or an answer, to the arguments of a call, or to the name or the
/// description of a tool.
fn is_listed(document: &Document, node: NodeId, body: &EventBody) -> bool {
    // A message that only calls tools has no content.
    let is_missing = |node: &flowgate::trace::DocumentNode| matches!(&node.content, NodeContent::Scalar(value) if value.is_null());
    let path = document.path(node).to_string();
    let roots: &[&str] = match body {
        EventBody::Message(_) | EventBody::Output(_) => &["content", "structured"],
        EventBody::Call(_) => &["arguments"],
        EventBody::Tool(_) => &["description", "name"],
    };
    document.node(node).is_some_and(|node| !is_missing(node))
        && roots.iter().any(|root| path.starts_with(root))
}
