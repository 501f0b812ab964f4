//! Runs `flowgate replay`: judges corpora of recorded runs in parallel, and prints a table of what attacks could do and
//! how many questions useful tasks need.
//!
//! One thread reads the runs, and the other threads judge them. The queue between the threads is bounded, so that the
//! memory does not grow with the corpus.
//!
//! * `figures` counts what happens in each run.
//! * `table` prints the sums.

mod figures;
mod table;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};

use flowgate::policy::Policy;
use flowgate::trace::read::RecordedRun;
use flowgate_guard::approve::Decision;
use flowgate_guard::influence::InfluenceMethod;
use flowgate_guard::method::MethodRegistry;
use flowgate_guard::replay::ReplayInputs;

use serde_json::{Map, Value};

use figures::{ReplayMethod, SuiteFigures};

#[cfg(any(feature = "local", feature = "run"))]
use super::estimated_influence::EstimatedInfluence;
use crate::args::{InfluenceModelArgs, TableFormat};
use crate::corpus::RunMarks;
use crate::input::{self, InputError};
use crate::output::{Console, plural};
use crate::parameter_args::MissingParameters;
use crate::policy_file::load_policy;
use crate::progress::{INTERRUPTED, Progress};
use crate::warnings::TraceOccurrences;

/// The options of `flowgate replay`.
pub(crate) struct ReplayOptions<'a> {
    pub(crate) policies: &'a [String],
    pub(crate) influence: &'a [String],
    /// The model that some influence methods ask.
    #[cfg_attr(
        not(any(feature = "local", feature = "run")),
        expect(dead_code, reason = "this program asks no models")
    )]
    pub(crate) model: &'a InfluenceModelArgs,
    /// Methods of guarded conversations.
    pub(crate) methods: &'a [String],
    /// Whether questions of guarded conversations are answered for the rest of the run, where the policy allows it.
    pub(crate) grants: bool,
    pub(crate) format: TableFormat,
    pub(crate) list_permitted: bool,
    pub(crate) list_questions: bool,
    /// The parameters of the policies.
    pub(crate) parameters: Map<String, Value>,
    pub(crate) jobs: Option<usize>,
    pub(crate) deny_warnings: bool,
    pub(crate) corpora: &'a [PathBuf],
}

/// The policies, each with the name of the suite whose runs it judges, and the paths of their files in the same order.
/// A suite is a group of tasks of a benchmark.
struct SuitePolicies {
    by_suite: Vec<(String, Arc<Policy>)>,
    files: Vec<String>,
}

impl SuitePolicies {
    /// Reads the files of `--policy`, each given as `FILE` or `SUITE=FILE`. A `FILE` alone is the policy of the suite
    /// that has the name of the file, without its ending. An argument with a `/` before the `=` is a path.
    fn load(arguments: &[String], output: &mut Console) -> Result<Self, InputError> {
        let mut policies: Vec<(String, Arc<Policy>)> = Vec::new();
        let mut files = Vec::new();
        for argument in arguments {
            let (suite, path) = input::split_name(argument);
            let path = Path::new(path);
            let name = match suite {
                Some(suite) => suite.to_owned(),
                None => path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
            };
            if policies.iter().any(|(known, _)| *known == name) {
                return Err(InputError(format!(
                    "two files of `--policy` have the name `{name}`; give one of them a different name with NAME=FILE"
                )));
            }
            policies.push((name, Arc::new(load_policy(path, output)?)));
            files.push(path.display().to_string());
        }
        Ok(Self { by_suite: policies, files })
    }

    /// Returns the index of a policy in `by_suite`, the key of [`OccurrencesByPolicy`].
    fn index_of(&self, policy: &Arc<Policy>) -> usize {
        // The policy is one of these, so the default is never used.
        self.by_suite.iter().position(|(_, known)| Arc::ptr_eq(known, policy)).unwrap_or_default()
    }

    /// Returns the path of the file of a policy.
    fn file_of(&self, policy: &Arc<Policy>) -> &str {
        self.files.get(self.index_of(policy)).map_or("", String::as_str)
    }

    /// Returns the policy for a run, and the name of the suite under which the run is counted. A run with a suite is
    /// judged by the policy of this suite, or else by the policy named `*`. A run without a suite is judged by the
    /// policy named `*`, or else by the only policy, and counted under the name of this policy. Returns `None` if
    /// there is no such policy.
    fn for_run(&self, run: &RecordedRun) -> Option<(String, &Arc<Policy>)> {
        let suite = RunMarks::of(run).suite;
        let policy_named = |name: &str| self.by_suite.iter().find(|(known, _)| known == name);
        match suite {
            Some(suite) => policy_named(suite)
                .or_else(|| policy_named("*"))
                .map(|(_, policy)| (suite.to_owned(), policy)),
            None => policy_named("*")
                .or(match self.by_suite.as_slice() {
                    [only] => Some(only),
                    _ => None,
                })
                .map(|(name, policy)| (name.clone(), policy)),
        }
    }
}

/// A run, and the line at which it begins.
type ReplayJob = (usize, RecordedRun);
/// The number of runs that are not judged, by the suite for which there is no policy. The key `None` counts the runs
/// whose user task is itself an injection task.
type SkippedRuns = BTreeMap<Option<String>, usize>;
/// The figures by suite and by the index of the method.
type FiguresBySuite = BTreeMap<(String, usize), SuiteFigures>;

/// Runs `flowgate replay`: this thread reads the runs, worker threads judge them, and the sums of all workers are
/// printed. Returns 0 whatever the verdicts are; 1 if there is a warning that `--deny-warnings` forbids; 2 if a run
/// could not be read; and [`INTERRUPTED`] after an interrupt.
pub(crate) fn run(options: &ReplayOptions<'_>, output: &mut Console) -> Result<u8, InputError> {
    let corpora = input::files_of(options.corpora)?;
    let policies = SuitePolicies::load(options.policies, output)?;
    #[cfg(any(feature = "local", feature = "run"))]
    let estimated = EstimatedInfluence::new(options.influence, options.model)?;
    #[cfg(any(feature = "local", feature = "run"))]
    let estimated_methods = estimated.methods.as_slice();
    #[cfg(not(any(feature = "local", feature = "run")))]
    let estimated_methods = &[];
    let methods = replay_methods(&MethodRegistry::builtin(), estimated_methods, options);
    let inputs = ReplayInputs { parameters: options.parameters.clone(), ..ReplayInputs::default() };
    let mut missing = MissingParameters::default();
    let jobs = options
        .jobs
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
        .clamp(1, 256);
    // `true`: show a progress line, since the results are printed only at the end.
    let progress = Progress::over_files(&corpora, "run", true, output);
    // Whether to stop reading, because all workers have ended.
    let stop = AtomicBool::new(false);
    #[cfg_attr(
        not(any(feature = "local", feature = "run")),
        expect(unused_mut, reason = "only a program that asks models adds their failures later")
    )]
    let (sums, skipped, occurrences, mut errors) = std::thread::scope(|scope| {
        // The queue is short: the reader waits for the workers, so that few runs are in memory at a time. The reader is
        // this thread.
        let (sender, receiver): (SyncSender<ReplayJob>, Receiver<ReplayJob>) = sync_channel(4 * jobs);
        let receiver = Arc::new(Mutex::new(receiver));
        let workers: Vec<_> = (0..jobs)
            .map(|_| {
                let (receiver, policies, methods, inputs, progress) =
                    (Arc::clone(&receiver), &policies, &methods, &inputs, &progress);
                scope.spawn(move || judge_runs(&receiver, policies, methods, inputs, progress))
            })
            .collect();
        let (mut errors, mut empty) = (Vec::new(), Vec::new());
        for corpus in &corpora {
            if progress.is_interrupted() {
                break;
            }
            let mut is_empty = true;
            let result = input::for_each_run(corpus, &progress, &mut |item| {
                is_empty = false;
                match item {
                    Ok(job) => {
                        // An injection task alone is not judged, so no parameter is missing for it.
                        let judged_by =
                            policies.for_run(&job.1).filter(|_| !RunMarks::of(&job.1).is_injection_alone());
                        if let Some((_, policy)) = judged_by {
                            missing.add(policies.file_of(policy), policy, &inputs.parameters, &job.1);
                        }
                        // Sending fails if all workers have ended, which happens if one of them panicked.
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
        // Closes the queue: the workers end when it is empty.
        drop(sender);
        let mut sums = FiguresBySuite::new();
        let mut occurrences = OccurrencesByPolicy::new();
        // A file without runs belongs to no policy; it is reported with the first one.
        for file in &empty {
            occurrences.entry(0).or_default().add_empty(file);
        }
        let mut skipped = SkippedRuns::new();
        // Joins the results of the workers.
        for worker in workers {
            match worker.join() {
                Ok((worker_sums, worker_skipped, worker_occurrences)) => {
                    worker_occurrences
                        .into_iter()
                        .for_each(|(policy, traces)| occurrences.entry(policy).or_default().merge(traces));
                    worker_sums
                        .into_iter()
                        .for_each(|(key, figures)| sums.entry(key).or_default().add(figures));
                    worker_skipped
                        .into_iter()
                        .for_each(|(suite, count)| *skipped.entry(suite).or_default() += count);
                }
                Err(_) => errors.push(InputError(
                    "a worker thread panicked, so the figures are incomplete; this is a defect of Flowgate; please report it"
                        .to_owned(),
                )),
            }
        }
        (sums, skipped, occurrences, errors)
    });
    let is_interrupted = progress.finish(output);
    #[cfg(any(feature = "local", feature = "run"))]
    errors.extend(estimated.report_failures(output).err());
    for error in &errors {
        output.error(&error.0);
    }
    print_skipped(&skipped, output);
    if sums.is_empty() && errors.is_empty() && !is_interrupted {
        return Err(InputError(
            "no run was judged: the files have no runs, or only runs of an injection task alone, or no policy is for \
            the suite of a run; for a suite, write `--policy SUITE=FILE` or `--policy '*=FILE'`"
                .to_owned(),
        ));
    }
    missing.print(output);
    // After an interrupt, there are no warnings about names that do not occur: they may occur in the remaining runs.
    let occurrences = if is_interrupted { OccurrencesByPolicy::new() } else { occurrences };
    let warnings = missing.len() + print_warnings(&policies, &occurrences, options.format, output);
    match options.format {
        TableFormat::Json => table::print_json(&sums, &methods, options, is_interrupted, output),
        TableFormat::Text => table::print_text(&sums, &methods, options, output),
    }
    if is_interrupted {
        return Ok(INTERRUPTED);
    }
    if !errors.is_empty() {
        return Ok(2);
    }
    Ok(u8::from(options.deny_warnings && warnings > 0))
}

/// Prints the warnings about names of each policy that do not occur in its runs; as JSON as well, if that is the format.
/// Returns the number of these warnings and of those that the compiler has printed.
fn print_warnings(
    policies: &SuitePolicies,
    occurrences: &OccurrencesByPolicy,
    format: TableFormat,
    output: &mut Console,
) -> usize {
    let mut count = 0;
    for (index, ((_, policy), file)) in policies.by_suite.iter().zip(&policies.files).enumerate() {
        count += policy.warnings().len();
        let Some(occurrences) = occurrences.get(&index) else { continue };
        let trace_warnings = occurrences.warnings(policy);
        count += trace_warnings.len();
        trace_warnings.print(file, policy, output);
        if format == TableFormat::Json {
            for warning in &trace_warnings.json(file, policy) {
                output.line(&warning.to_string());
            }
        }
    }
    count
}

/// Prints a note about each group of runs that are not judged.
fn print_skipped(skipped: &SkippedRuns, output: &mut Console) {
    for (suite, count) in skipped {
        let were = if *count == 1 { "was" } else { "were" };
        let count = plural(*count, "run");
        output.note(&match suite {
            Some(suite) => format!("{count} of the suite `{suite}` {were} skipped, since no policy has that name: give one with `--policy {suite}=FILE`"),
            None => format!(
                "{count} {were} skipped: an injection task alone is neither a useful task nor an attack"
            ),
        });
    }
}

/// Returns the methods that the options name: influence methods, and methods of guarded conversations. The name `all`
/// means all methods of a kind that ask no model. `estimated` has the named influence methods that ask a model. If the
/// options name nothing, returns the influence method `everything`.
fn replay_methods(
    known: &MethodRegistry,
    estimated: &[&'static dyn InfluenceMethod],
    options: &ReplayOptions<'_>,
) -> Vec<ReplayMethod> {
    let contain_all = |names: &[String]| names.iter().any(|name| name == "all");
    let default = ["everything".to_owned()];
    let influence_names = match options.influence {
        [] if options.methods.is_empty() => &default,
        named => named,
    };
    let influence: Vec<ReplayMethod> = if contain_all(influence_names) {
        known.influence_methods().iter().copied().map(ReplayMethod::Influence).collect()
    } else {
        // The registry does not find the methods that ask a model; `estimated` has these.
        influence_names
            .iter()
            .filter_map(|name| known.find_influence(name).map(ReplayMethod::Influence))
            .collect()
    };
    let answer = if options.grants { Decision::AllowForConversation } else { Decision::AllowOnce };
    let guarded_with = |method| ReplayMethod::Guarded(method, answer);
    let guarded: Vec<ReplayMethod> = if contain_all(options.methods) {
        known.methods().iter().copied().map(guarded_with).collect()
    } else {
        options.methods.iter().filter_map(|name| known.find(name).map(guarded_with)).collect()
    };
    let estimated = estimated.iter().copied().map(ReplayMethod::Influence);
    influence.into_iter().chain(estimated).chain(guarded).collect()
}

/// The names that occur in the runs of each policy, such as those of tools, by the policy's index. They show whether a
/// statement names something that never occurs.
type OccurrencesByPolicy = BTreeMap<usize, TraceOccurrences>;

/// Does the work of one thread: judges the runs that arrive at `receiver`, until the queue is closed. Each run is
/// judged by the policy of its suite, under each of `methods`, with the parameters in `inputs`. Returns the figures by
/// suite and method, the numbers of skipped runs, and the names that occurred.
fn judge_runs(
    receiver: &Mutex<Receiver<ReplayJob>>,
    policies: &SuitePolicies,
    methods: &[ReplayMethod],
    inputs: &ReplayInputs,
    progress: &Progress,
) -> (FiguresBySuite, SkippedRuns, OccurrencesByPolicy) {
    let mut sums = FiguresBySuite::new();
    let mut occurrences = OccurrencesByPolicy::new();
    let mut skipped = SkippedRuns::new();
    loop {
        let job = match receiver.lock() {
            Ok(receiver) => receiver.recv(),
            // Another thread panicked.
            Err(_) => return (sums, skipped, occurrences),
        };
        let Ok((line, run)) = job else { return (sums, skipped, occurrences) };
        if progress.is_interrupted() {
            // Takes the rest of the queue without judging it: the reader must not wait for room in it.
            continue;
        }
        if RunMarks::of(&run).is_injection_alone() {
            // The user's task is itself an injection task: the run is not judged, and is counted without a suite.
            *skipped.entry(None).or_default() += 1;
            progress.step();
            continue;
        }
        match policies.for_run(&run) {
            Some((suite, policy)) => {
                for (index, method) in methods.iter().enumerate() {
                    let figures = SuiteFigures::of(policy, inputs, *method, &run, |trace| {
                        // All methods replay the same events, so the names are collected only once.
                        if index == 0 {
                            let occurrences = occurrences.entry(policies.index_of(policy)).or_default();
                            occurrences.add(&format!("the run in line {line}"), trace);
                        }
                    });
                    sums.entry((suite.clone(), index)).or_default().add(figures);
                }
            }
            None => {
                let suite = RunMarks::of(&run).suite.unwrap_or("(no suite)");
                *skipped.entry(Some(suite.to_owned())).or_default() += 1;
            }
        }
        progress.step();
    }
}
