//! `flowgate replay`: judges corpora of runs in parallel and prints a table.
//!
//! One thread reads and the others judge; a bounded queue between them keeps memory independent of the corpus.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};

use flowgate::label::Label;
use flowgate::monitor::{CallDependency, Outcome};
use flowgate::policy::Policy;
use flowgate::trace::read::RecordedRun;
use flowgate::trace::{PathStep, Trace};
use flowgate_guard::influence::InfluenceMethod;
use flowgate_guard::method::MethodRegistry;
use flowgate_guard::replay::{JudgedCall, ReplayedRun, replay};
use serde_json::{Map, Value, json};

use crate::args::TableFormat;
use crate::input::{self, InputError};
use crate::output::{Console, plural};
use crate::policy_file::load_policy;
use crate::progress::{INTERRUPTED, Progress};
use crate::warnings::TraceOccurrences;
use crate::{escaping, report};

/// The options of `flowgate replay`.
pub(crate) struct ReplayOptions<'a> {
    pub(crate) policies: &'a [String],
    pub(crate) influence: &'a [String],
    pub(crate) format: TableFormat,
    pub(crate) list_permitted: bool,
    pub(crate) list_questions: bool,
    pub(crate) jobs: Option<usize>,
    pub(crate) deny_warnings: bool,
    pub(crate) corpora: &'a [PathBuf],
}

/// The policies with the names of their suites, and the names of their files.
struct SuitePolicies(Vec<(String, Arc<Policy>)>, Vec<String>);

impl SuitePolicies {
    fn load(arguments: &[String], output: &mut Console) -> Result<Self, InputError> {
        let mut policies: Vec<(String, Arc<Policy>)> = Vec::new();
        let mut files = Vec::new();
        for argument in arguments {
            let (name, path) = match argument.split_once('=') {
                Some((name, path)) => (name.to_owned(), Path::new(path)),
                None => {
                    let path = Path::new(argument.as_str());
                    (path.file_stem().unwrap_or_default().to_string_lossy().into_owned(), path)
                }
            };
            if policies.iter().any(|(known, _)| *known == name) {
                return Err(InputError(format!(
                    "two policies have the name `{name}`; rename one with NAME=FILE"
                )));
            }
            policies.push((name, Arc::new(load_policy(path, output)?)));
            files.push(path.display().to_string());
        }
        Ok(Self(policies, files))
    }

    /// Returns the index of a policy.
    fn index_of(&self, policy: &Arc<Policy>) -> usize {
        self.0.iter().position(|(_, known)| Arc::ptr_eq(known, policy)).unwrap_or_default()
    }

    /// Returns the policy for a run, and the suite under which the run is counted.
    fn for_run(&self, run: &RecordedRun) -> Option<(String, &Arc<Policy>)> {
        let suite = run.meta.get("suite").and_then(Value::as_str);
        let named = |name: &str| self.0.iter().find(|(known, _)| known == name);
        match suite {
            Some(suite) => named(suite).or_else(|| named("*")).map(|(_, policy)| (suite.to_owned(), policy)),
            None => named("*")
                .or(match self.0.as_slice() {
                    [only] => Some(only),
                    _ => None,
                })
                .map(|(name, policy)| (name.clone(), policy)),
        }
    }
}

/// The figures of one suite under one method.
#[derive(Debug, Default, Clone)]
struct SuiteFigures {
    runs: usize,
    calls: usize,
    attack_runs: usize,
    has_origins: bool,
    injected_calls: usize,
    injected_permitted: usize,
    injected_asked: usize,
    attacks_succeeded: usize,
    attacks_without_call: usize,
    benign_tasks: usize,
    benign_without_question: usize,
    questions: usize,
    denied: usize,
    findings: usize,
    by_attack: BTreeMap<String, [usize; 4]>,
    permitted: BTreeMap<String, usize>,
    asked: BTreeMap<String, usize>,
}

impl SuiteFigures {
    fn add(&mut self, other: Self) {
        self.runs += other.runs;
        self.calls += other.calls;
        self.attack_runs += other.attack_runs;
        self.has_origins |= other.has_origins;
        self.injected_calls += other.injected_calls;
        self.injected_permitted += other.injected_permitted;
        self.injected_asked += other.injected_asked;
        self.attacks_succeeded += other.attacks_succeeded;
        self.attacks_without_call += other.attacks_without_call;
        self.benign_tasks += other.benign_tasks;
        self.benign_without_question += other.benign_without_question;
        self.questions += other.questions;
        self.denied += other.denied;
        self.findings += other.findings;
        for (attack, counts) in other.by_attack {
            let sums = self.by_attack.entry(attack).or_default();
            sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
        for (line, count) in other.permitted {
            *self.permitted.entry(line).or_default() += count;
        }
        for (line, count) in other.asked {
            *self.asked.entry(line).or_default() += count;
        }
    }

    /// Judges one run and passes its trace to `occurs`.
    fn of(
        policy: &Arc<Policy>,
        method: &dyn InfluenceMethod,
        run: &RecordedRun,
        occurs: impl FnOnce(&Trace),
    ) -> Self {
        let replayed = replay(policy, method, run);
        occurs(replayed.monitor.trace());
        let text = |key: &str| run.meta.get(key).and_then(Value::as_str);
        let attack = text("attack").filter(|attack| *attack != "none");
        let task = [text("user_task_id"), text("injection_task_id")]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join(" × ");
        let mut figures = Self { runs: 1, calls: replayed.calls.len(), ..Self::default() };
        figures.findings = replayed.findings.len() + replayed.refused.len();
        let mut is_clean = true;
        for call in &replayed.calls {
            figures.has_origins |= call.origin.is_some();
            // A call into which everything may flow has no effect that the policy protects.
            let acts = !call.judgement.is_harmless;
            let why =
                || call.judgement.reasons.first().map_or(String::new(), |reason| reason.message.clone());
            if call.origin.as_deref() == Some("injection") {
                if acts {
                    figures.injected_calls += 1;
                    figures.injected_asked += usize::from(call.outcome == Outcome::Confirm);
                    if call.outcome == Outcome::Permit {
                        figures.injected_permitted += 1;
                        let task = text("injection_task_id").unwrap_or("an attack");
                        let line = format!("{task}: {}: {}", call.tool, why_permitted(call, &replayed));
                        *figures.permitted.entry(line).or_default() += 1;
                    }
                }
                continue;
            }
            if call.outcome != Outcome::Permit {
                is_clean = false;
                figures.denied += usize::from(call.outcome == Outcome::Deny);
                if attack.is_none() {
                    figures.questions += usize::from(call.outcome == Outcome::Confirm);
                    *figures.asked.entry(format!("{task}: {}: {}", call.tool, why())).or_default() += 1;
                }
            }
        }
        match attack {
            None => {
                figures.benign_tasks = 1;
                figures.benign_without_question = usize::from(is_clean);
            }
            Some(attack) => {
                figures.attack_runs = 1;
                // The attack succeeded in the log, and every call that it needed would have been permitted without a
                // question.
                let succeeded = run.meta.get("attack_succeeded").and_then(Value::as_bool) == Some(true)
                    && figures.injected_permitted == figures.injected_calls;
                figures.attacks_succeeded = usize::from(succeeded);
                figures.attacks_without_call = usize::from(succeeded && figures.injected_calls == 0);
                let counts =
                    [1, figures.injected_calls, figures.injected_permitted, figures.attacks_succeeded];
                figures.by_attack.insert(attack.to_owned(), counts);
            }
        }
        figures
    }

    fn json(&self, suite: &str, method: &str) -> Value {
        let mut object = Map::new();
        let mut put = |key: &str, value: Value| object.insert(key.to_owned(), value);
        put("suite", suite.into());
        put("influence", method.into());
        put("runs", self.runs.into());
        put("calls", self.calls.into());
        if self.has_origins {
            put("attack_runs", self.attack_runs.into());
            put("injected_calls", self.injected_calls.into());
            put("injected_permitted", self.injected_permitted.into());
            put("injected_asked", self.injected_asked.into());
            put("attacks_succeeded", self.attacks_succeeded.into());
            put("attacks_succeeded_without_call", self.attacks_without_call.into());
            let by_attack = self.by_attack.iter().map(|(attack, [runs, calls, permitted, succeeded])| {
                let counts = json!({"runs": runs, "injected_calls": calls, "injected_permitted": permitted, "attacks_succeeded": succeeded});
                (attack.clone(), counts)
            });
            put("by_attack", Value::Object(by_attack.collect()));
        }
        put("benign_tasks", self.benign_tasks.into());
        put("benign_without_question", self.benign_without_question.into());
        put("questions", self.questions.into());
        put("denied", self.denied.into());
        put("findings", self.findings.into());
        Value::Object(object)
    }
}

/// Returns the regions that each argument comes from by the influence method, or why they do not matter.
fn why_permitted(call: &JudgedCall, run: &ReplayedRun) -> String {
    let trace = run.monitor.trace();
    let Some(document) = call.event.and_then(|event| trace.event(event)).map(|event| &event.document) else {
        return String::new();
    };
    let space = run.monitor.policy().space();
    let arguments =
        document.key(0, "arguments").into_iter().flat_map(|arguments| document.children(arguments));
    let why = arguments.filter_map(|argument| {
        let PathStep::Key(name) = &document.node(argument)?.step else { return None };
        let is_trusted = space.restrict(&document.label_of(argument), space.integrity()) == Label::BOTTOM;
        let source = match call.attribution.argument(name) {
            CallDependency::Regions(regions) if regions.is_empty() => "says nothing".to_owned(),
            CallDependency::Regions(regions) => {
                let mut sources: Vec<String> = regions
                    .iter()
                    .map(|(event, node)| report::region_source(&trace.region(*event, *node), &run.monitor))
                    .collect();
                sources.dedup();
                format!("from the {}", sources.join(" and the "))
            }
            _ if is_trusted => "endorsed".to_owned(),
            _ => "payload".to_owned(),
        };
        Some(format!("{name} {source}"))
    });
    why.collect::<Vec<_>>().join("; ")
}

type ReplayJob = (usize, RecordedRun);
type FiguresBySuite = BTreeMap<(String, usize), SuiteFigures>;

/// Runs the command; returns the exit code.
pub(crate) fn run(options: &ReplayOptions<'_>, output: &mut Console) -> Result<u8, InputError> {
    let policies = SuitePolicies::load(options.policies, output)?;
    let known = MethodRegistry::builtin();
    let methods: Vec<&'static dyn InfluenceMethod> = if options.influence.iter().any(|name| name == "all") {
        known.influence_methods().to_vec()
    } else {
        options.influence.iter().filter_map(|name| known.find_influence(name)).collect()
    };
    let jobs = options
        .jobs
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
        .clamp(1, 256);
    let progress = Progress::over_files(options.corpora, "run", true, output);
    let stop = AtomicBool::new(false);
    let (sums, skipped, seen, errors) = std::thread::scope(|scope| {
        let (sender, receiver): (SyncSender<ReplayJob>, Receiver<ReplayJob>) = sync_channel(4 * jobs);
        let receiver = Arc::new(Mutex::new(receiver));
        let workers: Vec<_> = (0..jobs)
            .map(|_| {
                let (receiver, policies, methods, progress) =
                    (Arc::clone(&receiver), &policies, &methods, &progress);
                scope.spawn(move || judge_runs(&receiver, policies, methods, progress))
            })
            .collect();
        let (mut errors, mut empty) = (Vec::new(), Vec::new());
        for corpus in options.corpora {
            if progress.is_interrupted() {
                break;
            }
            let mut is_empty = true;
            let result = input::for_each_run(corpus, &progress, &mut |item| {
                is_empty = false;
                match item {
                    Ok(job) => {
                        if sender.send(job).is_err() {
                            stop.store(true, Ordering::Relaxed);
                        }
                    }
                    Err(error) => errors.push(error),
                }
                !stop.load(Ordering::Relaxed)
            });
            if is_empty && result.is_ok() && !progress.is_interrupted() {
                empty.push(corpus.display().to_string());
            }
            errors.extend(result.err());
        }
        drop(sender);
        let mut sums = FiguresBySuite::new();
        let mut seen = OccurrencesByPolicy::new();
        for place in &empty {
            seen.entry(0).or_default().add_empty(place);
        }
        let mut skipped: BTreeMap<String, usize> = BTreeMap::new();
        for worker in workers {
            match worker.join() {
                Ok((more, left_out, occurs)) => {
                    occurs
                        .into_iter()
                        .for_each(|(policy, traces)| seen.entry(policy).or_default().merge(traces));
                    more.into_iter().for_each(|(key, figures)| sums.entry(key).or_default().add(figures));
                    left_out
                        .into_iter()
                        .for_each(|(suite, count)| *skipped.entry(suite).or_default() += count);
                }
                Err(_) => errors.push(InputError(
                    "a worker thread ended unexpectedly; the figures are incomplete".to_owned(),
                )),
            }
        }
        (sums, skipped, seen, errors)
    });
    let is_interrupted = progress.finish(output);
    for error in &errors {
        output.error(&error.0);
    }
    for (suite, count) in &skipped {
        let were = if *count == 1 { "was" } else { "were" };
        output.note(&format!(
            "{} of the suite `{suite}` {were} skipped: no policy has that name",
            plural(*count, "run")
        ));
    }
    if sums.is_empty() && errors.is_empty() && !is_interrupted {
        return Err(InputError(
            "no run was judged: give a policy the name of the runs' suite, or use `*=FILE`".to_owned(),
        ));
    }
    let mut warnings = 0;
    for (index, ((_, policy), file)) in policies.0.iter().zip(&policies.1).enumerate() {
        warnings += policy.warnings().len();
        // The occurrences in the remaining runs are unknown.
        if let Some(seen) = seen.get(&index).filter(|_| !is_interrupted) {
            let found = seen.warnings(policy);
            warnings += found.len();
            found.print(file, policy, output);
            if options.format == TableFormat::Json {
                found.json(file, policy).iter().for_each(|warning| output.line(&warning.to_string()));
            }
        }
    }
    match options.format {
        TableFormat::Json => {
            for ((suite, method), figures) in &sums {
                output.line(&figures.json(suite, methods.get(*method).map_or("", |m| m.name())).to_string());
            }
            if is_interrupted {
                output.line(&json!({"type": "interrupted"}).to_string());
            }
        }
        TableFormat::Text => print_table(&sums, &methods, output),
    }
    if options.list_permitted {
        print_list(
            "injected calls permitted without a question",
            &sums,
            &methods,
            |figures| &figures.permitted,
            output,
        );
    }
    if options.list_questions {
        print_list("questions without attack", &sums, &methods, |figures| &figures.asked, output);
    }
    Ok(match errors.is_empty() {
        _ if is_interrupted => INTERRUPTED,
        false => 2,
        true => u8::from(options.deny_warnings && warnings > 0),
    })
}

/// The occurrences in the runs of each policy, by the policy's index.
type OccurrencesByPolicy = BTreeMap<usize, TraceOccurrences>;

fn judge_runs(
    receiver: &Mutex<Receiver<ReplayJob>>,
    policies: &SuitePolicies,
    methods: &[&'static dyn InfluenceMethod],
    progress: &Progress,
) -> (FiguresBySuite, BTreeMap<String, usize>, OccurrencesByPolicy) {
    let mut sums = FiguresBySuite::new();
    let mut seen = OccurrencesByPolicy::new();
    let mut skipped = BTreeMap::new();
    loop {
        let job = match receiver.lock() {
            Ok(receiver) => receiver.recv(),
            Err(_) => return (sums, skipped, seen),
        };
        let Ok((line, run)) = job else { return (sums, skipped, seen) };
        if progress.is_interrupted() {
            // The reader must not wait for room in the queue.
            continue;
        }
        match policies.for_run(&run) {
            Some((suite, policy)) => {
                for (index, method) in methods.iter().enumerate() {
                    let figures = SuiteFigures::of(policy, *method, &run, |trace| {
                        if index == 0 {
                            let seen = seen.entry(policies.index_of(policy)).or_default();
                            seen.add(&format!("the run in line {line}"), trace);
                        }
                    });
                    sums.entry((suite.clone(), index)).or_default().add(figures);
                }
            }
            None => {
                let suite = run.meta.get("suite").and_then(Value::as_str).unwrap_or("(no suite)");
                *skipped.entry(suite.to_owned()).or_default() += 1;
            }
        }
        progress.step();
    }
}

fn print_table(sums: &FiguresBySuite, methods: &[&'static dyn InfluenceMethod], output: &mut Console) {
    let has_origins = sums.values().any(|figures| figures.has_origins);
    let mut totals: Vec<SuiteFigures> = vec![SuiteFigures::default(); methods.len()];
    let mut rows: Vec<Vec<String>> = Vec::new();
    let row = |suite: &str, method: &str, f: &SuiteFigures| {
        let mut row = vec![suite.to_owned(), method.to_owned(), f.runs.to_string()];
        if has_origins {
            row.push(format!("{} of {}", f.injected_permitted, f.injected_calls));
            row.push(format!("{} of {}", f.attacks_succeeded, f.attack_runs));
        }
        row.push(format!("{} of {}", f.benign_without_question, f.benign_tasks));
        row.push(if f.benign_tasks == 0 {
            "-".to_owned()
        } else {
            format!("{:.2}", f.questions as f64 / f.benign_tasks as f64)
        });
        row
    };
    for ((suite, method), figures) in sums {
        rows.push(row(suite, methods.get(*method).map_or("", |m| m.name()), figures));
        if let Some(total) = totals.get_mut(*method) {
            total.add(figures.clone());
        }
    }
    if sums.len() > methods.len() {
        for (method, total) in methods.iter().zip(&totals) {
            rows.push(row("all", method.name(), total));
        }
    }
    let mut header = vec!["suite", "influence", "runs"];
    if has_origins {
        header.extend(["injected calls permitted", "attacks that succeed"]);
    }
    header.extend(["tasks without question", "questions a task"]);
    output.table(&header, &rows);
    for (method, total) in methods.iter().zip(&totals).filter(|(_, total)| total.attacks_without_call > 0) {
        let count = total.attacks_without_call;
        output.line(&format!(
            "{}: {} without a call of an acting tool: the agent only writes something.",
            method.name(),
            plural(count, "successful attack"),
        ));
    }
}

fn print_list(
    title: &str,
    sums: &FiguresBySuite,
    methods: &[&'static dyn InfluenceMethod],
    lines: fn(&SuiteFigures) -> &BTreeMap<String, usize>,
    output: &mut Console,
) {
    for ((suite, method), figures) in sums {
        let lines = lines(figures);
        let name = methods.get(*method).map_or("", |m| m.name());
        output.line("");
        output.line(&format!("{suite}, {name}: {title}: {}", lines.values().sum::<usize>()));
        for (line, count) in lines {
            output.line(&format!("{count:>5}  {}", escaping::line(line)));
        }
    }
}
