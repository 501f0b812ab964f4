//! Runs `flowgate attack`: tries injections on a policy. A double, a program in place of the model, obeys each
//! injection. An attack escapes if the policy permits the call, or the address in the reply, that its injection asks
//! for.
//!
//! * `forms` lists the forms of injections, and `injections` writes their texts.
//! * `runs` builds the runs in which the attacks are tried.
//! * `report` counts the results and prints them.

mod forms;
mod injections;
mod report;
mod runs;

use std::path::Path;
use std::sync::Arc;

use flowgate::draft::{DescribedTool, read_tools};
use flowgate::monitor::Outcome;
use flowgate::policy::Policy;
use flowgate::trace::read::{self, RecordedRun};
use flowgate::trace::{Event, EventBody, EventId, NodeContent};
use flowgate_guard::influence::InfluenceMethod;
use flowgate_guard::influence::everything::EverythingMethod;
use flowgate_guard::method::{Method, MethodRegistry};
use flowgate_guard::replay::guarded::replay_guarded;
use flowgate_guard::replay::{ReplayInputs, ReplayedRun, replay_with};
use serde_json::{Value, json};

use crate::args::{AttackArgs, AttackFormat};
use crate::input::{self, InputError, bounded_text, describe_io_error};
use crate::output::{Console, plural, statement_line};
use crate::parameter_args::MissingParameters;
use crate::policy_file::load_policy;
use crate::progress::{INTERRUPTED, Progress};
use crate::tool_files;
use forms::FormKind;
use report::{AttackResults, Escape, trace_json};
use runs::Attack;

/// The largest list of tools, in bytes.
const MAX_TOOL_FILE: u64 = 16 << 20;
/// The maximum number of attacks of one command.
const MAX_ATTACKS: usize = 20_000;

/// Runs `flowgate attack`: tries injections in answers of the listed tools, in their descriptions (with
/// `--descriptions`) and in the fields of the recorded runs, and prints which of them escape. Returns 0 if no attack
/// escapes, 1 if one does, and [`INTERRUPTED`] after an interrupt.
pub(crate) fn run(options: &AttackArgs, output: &mut Console) -> Result<u8, InputError> {
    let policy = Arc::new(load_policy(&options.policy, output)?);
    let tools = read_tool_files(&options.tools)?;
    let targets = runs::targets(&tools);
    if targets.is_empty() {
        return Err(InputError("the lists contain only tools that read, so there is nothing to attack; add a list with a tool that writes or sends".to_owned()));
    }
    let forms = forms::selected(&options.forms).map_err(InputError)?;
    let name = options.policy.display().to_string();
    // The parser of `--influence` accepts only known names, so the fallback is never used.
    let method = MethodRegistry::builtin().find_influence(&options.influence).unwrap_or(&EverythingMethod);
    let inputs = ReplayInputs { parameters: options.parameters.values(), ..ReplayInputs::default() };
    let trial = Trial { policy: &policy, inputs: &inputs, method, name: &name };
    let mut results = AttackResults::default();
    let mut budget = AttackBudget { left: MAX_ATTACKS, is_exceeded: false };
    let mut missing = MissingParameters::default();
    // The runs that this command builds have no parameters of their own.
    missing.add(&name, &policy, &inputs.parameters, &RecordedRun::default());
    // `true`: show a progress line, since the results are printed only at the end.
    let progress = Progress::over_files(&options.traces, "run", true, output);
    // First the attacks by whole answers, then by descriptions, then by the fields of the recorded runs. Without
    // `--descriptions`, there are none by descriptions.
    let by_descriptions =
        runs::by_descriptions(&tools, &targets, &forms).take_while(|_| options.descriptions);
    for attack in runs::by_answers(&tools, &targets, &forms).chain(by_descriptions) {
        if progress.is_interrupted() || !budget.take() {
            break;
        }
        // This program has built the messages, so reading them does not fail.
        let entries = read::list(&attack.messages).unwrap_or_default();
        let source = attack.source.clone();
        trial.add(&source, attack, RecordedRun { entries, ..RecordedRun::default() }, &mut results);
    }
    let mut unreadable = None;
    // In fields, only the first form that asks for a call is tried.
    if let Some(form) = forms.iter().copied().find(|form| form.kind != FormKind::Reply) {
        for trace in &options.traces {
            input::for_each_run(trace, &progress, &mut |item| {
                match item {
                    Ok((line, run)) => {
                        missing.add(&name, &policy, &inputs.parameters, &run);
                        let position = format!("{}:{line}", trace.display());
                        for (attack, changed_run) in runs::by_fields(&run, &position, &targets, form) {
                            if budget.take() {
                                trial.add(
                                    &format!("fields of {position}"),
                                    attack,
                                    changed_run,
                                    &mut results,
                                );
                            }
                        }
                    }
                    // The run is reported at the end.
                    Err(error) => unreadable = Some(error),
                }
                progress.step();
                // Whether to continue with the next run.
                unreadable.is_none() && !budget.is_exceeded
            })?;
        }
    }
    let is_interrupted = progress.finish(output);
    if let Some(error) = unreadable {
        return Err(error);
    }
    missing.print(output);
    if budget.is_exceeded {
        output.warning(&format!(
            "the limit of {} is reached, so further attacks were not tried; give fewer tools or traces",
            plural(MAX_ATTACKS, "attack")
        ));
    }
    if let Some(folder) = &options.out {
        write_escapes(&results.escapes, folder)?;
    }
    match options.format {
        AttackFormat::Text => results.print(&name, output),
        AttackFormat::Json => {
            output.line(
                &serde_json::to_string_pretty(&results.to_json(&name, is_interrupted)).unwrap_or_default(),
            );
        }
    }
    Ok(if is_interrupted { INTERRUPTED } else { u8::from(!results.escapes.is_empty()) })
}

/// Reads the lists of tools of the arguments, each `FILE` or `SERVER=FILE`, and returns all tools.
///
/// # Errors
/// If a file cannot be read, or is not a list of tools; or if the name of a server is empty, or is reserved for
/// Flowgate's own tools.
fn read_tool_files(arguments: &[String]) -> Result<Vec<DescribedTool>, InputError> {
    let mut tools: Vec<DescribedTool> = Vec::new();
    for argument in arguments {
        let (server, path) = tool_files::named_file(argument)?;
        let text = bounded_text(Path::new(path), MAX_TOOL_FILE)?;
        let list = read_tools(server, &text).map_err(|error| InputError(format!("{path}: {error}")))?;
        tools.extend(list.tools);
    }
    Ok(tools)
}

/// How many attacks may still be tried.
struct AttackBudget {
    left: usize,
    /// Whether an attack was left out because the limit was reached.
    is_exceeded: bool,
}

impl AttackBudget {
    /// Counts one more attack, and returns whether it may be tried.
    fn take(&mut self) -> bool {
        match self.left.checked_sub(1) {
            Some(left) => self.left = left,
            None => self.is_exceeded = true,
        }
        !self.is_exceeded
    }
}

/// What the attacks are tried on.
struct Trial<'a> {
    policy: &'a Arc<Policy>,
    /// The parameters of the policy; no service answers its extern predicates here.
    inputs: &'a ReplayInputs,
    /// The influence method by which a call is judged outside a guarded conversation.
    method: &'a dyn InfluenceMethod,
    /// The name of the policy's file.
    name: &'a str,
}

impl Trial<'_> {
    /// Tries an attack, and adds its result to `results` under `source`, the name of a row of the printed table. The
    /// last entry of `run` is the call that the attacker wants. A call that could not be judged counts as stopped,
    /// because such a call does not run.
    ///
    /// The call is judged twice. The first judgement is that of `flowgate mcp` and `flowgate hook`, by what the call
    /// can depend on. The second one takes place in a guarded conversation, whose double makes the call as soon as the
    /// injection is shown to it. An address in a reply is judged only in the first way.
    fn add(&self, source: &str, attack: Attack, mut run: RecordedRun, results: &mut AttackResults) {
        // In a guarded conversation, the double makes an injected call only after it was shown a text that is listed
        // under `injections`.
        run.meta.insert("injections".to_owned(), json!({"attack": attack.injection}));
        let is_permitted = |replayed: &ReplayedRun| {
            // The last entry of the run is the call that the attacker wants. `calls` lacks it if it could not be
            // judged.
            let last = replayed.calls.last().filter(|call| call.entry + 1 == run.entries.len());
            last.is_some_and(|call| call.outcome == Outcome::Permit)
        };
        let judged = replay_with(self.policy, self.inputs, self.method, &run);
        // Where the policy permits what the attacker wants, in words; `None` if the attack is stopped everywhere.
        let setting = if attack.form.kind == FormKind::Reply {
            // An address in a reply is judged by the label of what its step was shown, which includes the injection.
            is_permitted(&judged).then_some("in a reply")
        } else {
            let guarded = replay_guarded(self.policy, self.inputs, Method::LowestFirst, &run).run;
            match (is_permitted(&judged), is_permitted(&guarded)) {
                (false, false) => None,
                (true, false) => Some("by its dependencies"),
                (false, true) => Some("in a guarded conversation"),
                (true, true) => Some("everywhere"),
            }
        };
        results.add(source, &attack, setting);
        if let Some(setting) = setting {
            let (lines, label) = self.injected_label(&judged, &attack.injection);
            results.escapes.push(Escape { attack, run, setting, lines, label });
        }
    }

    /// Returns the lines of the policy's statements that label the injected region, and the label of this region in
    /// words, one per dimension. The injected region is the one whose text is `injection`, in the last answer of the
    /// run or, without an answer, in the last description of a tool. If no region there has exactly this text, returns
    /// the lines and the joined label of all its regions. Without an answer or a description, both lists are empty.
    fn injected_label(&self, replayed: &ReplayedRun, injection: &str) -> (Vec<usize>, Vec<String>) {
        let events = replayed.monitor.trace().events();
        // The injection is in the last answer, which only the judged call follows. A run without an answer has it in
        // the description of a tool.
        let is_answer = |event: &Event| matches!(event.body, EventBody::Output(_));
        let is_description = |event: &Event| matches!(event.body, EventBody::Tool(_));
        let position = events.iter().rposition(is_answer).or_else(|| events.iter().rposition(is_description));
        let Some((index, event)) = position.and_then(|index| Some((index, events.get(index)?))) else {
            return (Vec::new(), Vec::new());
        };
        let document = &event.document;
        let is_injected = |node: &usize| {
            document.node(*node).is_some_and(
                |node| matches!(&node.content, NodeContent::Scalar(Value::String(text)) if text == injection),
            )
        };
        let injected: Vec<usize> = (0..document.nodes().len()).filter(is_injected).collect();
        let nodes = if injected.is_empty() { (0..document.nodes().len()).collect() } else { injected };
        let spans =
            nodes.iter().flat_map(|node| replayed.monitor.labelling_statements(EventId(index), *node));
        let mut lines: Vec<usize> =
            spans.map(|span| statement_line(self.name, self.policy, &span).1).collect();
        lines.sort_unstable();
        lines.dedup();
        let labels = nodes.iter().filter_map(|node| document.node(*node)).map(|node| node.label);
        let label = labels.reduce(|one, other| one.join(&other)).unwrap_or(event.label);
        (lines, replayed.monitor.describe(&label))
    }
}

/// Writes the trace of each escape to a folder: `escape-1.json`, `escape-2.json`, ...
fn write_escapes(escapes: &[Escape], folder: &Path) -> Result<(), InputError> {
    let error = |path: &Path, error: &std::io::Error| {
        InputError(format!("{}: {}", path.display(), describe_io_error(error)))
    };
    std::fs::create_dir_all(folder).map_err(|why| error(folder, &why))?;
    for (index, escape) in escapes.iter().enumerate() {
        let path = folder.join(format!("escape-{}.json", index + 1));
        let text = serde_json::to_string_pretty(&trace_json(escape)).unwrap_or_default();
        std::fs::write(&path, text).map_err(|why| error(&path, &why))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_exceeded_only_by_an_attack_that_is_not_tried() {
        let mut budget = AttackBudget { left: 2, is_exceeded: false };
        assert_eq!((budget.take(), budget.take(), budget.is_exceeded), (true, true, false));
        assert_eq!((budget.take(), budget.is_exceeded), (false, true));
    }
}
