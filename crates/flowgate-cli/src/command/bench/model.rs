//! Provides the model of a measurement: a model on a server, or one in a folder that this process evaluates. A limit
//! bounds the rate of requests. A file stores the answers, so that an interrupted run can continue. Also prints what a
//! run with a model would cost. The other modules of `bench` that ask a model call this one.
//!
//! The suites run one execution after another. For `--jobs`, [`ask_ahead`] first runs the executions on several threads
//! and discards the results. The file then has all answers, so the measurement itself, which runs in order afterwards,
//! sends no request.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use flowgate_bench::cost::RequestCounter;
#[cfg(feature = "run")]
use flowgate_bench::cost::{CountedModel, SilentModel};
use flowgate_bench::games::adaptive::ATTACK_TOKENS;
use flowgate_bench::tokens::TOKENIZER;
use flowgate_lm::chat::{Completion, Request};
#[cfg(feature = "local")]
use flowgate_lm::local::Processor;
use flowgate_lm::recorded::{AnswerFileError, RecordingMode};
use flowgate_lm::{BlockingModel, BoxFuture, ChatModel, Error, Listener, RecordedModel};

use crate::args::{AttackerArgs, BenchModelArgs};
use crate::input::{InputError, describe_io_error};
use crate::output::{Console, plural};
use crate::progress::Progress;

/// The model of a measurement.
pub(super) struct MeasuredModel {
    chat: Box<dyn ChatModel>,
    /// The same model, if it can block attention. Its answers are not recorded.
    blocking: Option<Arc<dyn BlockingModel>>,
}

impl MeasuredModel {
    /// Returns the model as one that answers chats.
    pub(super) fn chat(&self) -> &dyn ChatModel {
        &*self.chat
    }

    /// Returns the model as one that can block attention, if it can.
    pub(super) fn blocking(&self) -> Option<&dyn BlockingModel> {
        self.blocking.as_deref()
    }
}

/// Returns the model that the options name; `None` if they name none, so that a double answers.
///
/// # Errors
/// If the model cannot be used, or if `--answers` or `--rate` is given without a model.
pub(super) fn model(options: &BenchModelArgs) -> Result<Option<MeasuredModel>, InputError> {
    let Some(MeasuredModel { chat, blocking }) = named_model(options)? else {
        if options.answers.is_some() || options.rate.is_some() {
            let advice = "name a model with `--model` and `--url`, or leave these options out";
            return Err(InputError(format!(
                "`--answers` and `--rate` apply only to a model, but no model is named, so a double answers; {advice}"
            )));
        }
        return Ok(None);
    };
    with_recorded_answers(PacedModel::new(chat, options.rate), blocking, options.answers.as_deref()).map(Some)
}

/// Returns `model` with a file of answers at `path`: an answer that the file has is returned without a request, and each
/// new answer is added to the file. If the folder of the file is missing, the error has the usual message about a missing
/// file.
fn recorded(model: PacedModel, path: &Path) -> Result<RecordedModel<PacedModel>, InputError> {
    let missing = std::io::ErrorKind::NotFound;
    RecordedModel::open(model, path, RecordingMode::Both).map_err(|error| {
        let problem = match error {
            // The error has only the text of the I/O error, by which this case is recognised.
            AnswerFileError::Io(why) if why == missing.to_string() => describe_io_error(&missing.into()),
            error => error.to_string(),
        };
        InputError(format!("{}: {problem}", path.display()))
    })
}

/// Returns the model that the options name, in a folder or on a server; `None` if they name none. The caller adds the
/// limit on the rate of requests, and the recording of answers.
fn named_model(options: &BenchModelArgs) -> Result<Option<MeasuredModel>, InputError> {
    #[cfg(feature = "local")]
    if let Some(folder) = &options.local {
        let model = load(folder, options.device.processor)
            .map_err(|InputError(problem)| InputError(format!("--local {problem}")))?;
        return Ok(Some(model));
    }
    // A model on a server cannot block attention.
    let remote = remote_model(options)?;
    Ok(remote.map(|chat| MeasuredModel { chat, blocking: None }))
}

/// Loads the model of a folder, which can also block attention. The name of the model contains the beginning of the
/// digest of its files, so that recorded answers and manifests belong to these weights. `processor` evaluates the model.
/// The message of an error begins with the folder.
#[cfg(feature = "local")]
fn load(folder: &Path, processor: Processor) -> Result<MeasuredModel, InputError> {
    let loaded = crate::local_model::from_files(folder, processor)
        .map_err(|error| InputError(format!("{}: {error}", folder.display())))?;
    let model = Arc::new(loaded.model);
    Ok(MeasuredModel { chat: Box::new(Arc::clone(&model)), blocking: Some(model) })
}

/// Loads the model of a folder, which `processor` evaluates, with recorded answers if there is a file for them.
#[cfg(feature = "local")]
pub(super) fn local_model(
    folder: &Path,
    processor: Processor,
    answers: Option<&Path>,
) -> Result<MeasuredModel, InputError> {
    let MeasuredModel { chat, blocking } = load(folder, processor)?;
    with_recorded_answers(PacedModel::new(chat, None), blocking, answers)
}

/// Returns a measured model that records its answers in the file `answers`, and does not ask for answers that the file
/// already has. Without a file, every answer is asked for and none is recorded. `blocking` is the same model, if it can
/// block attention; answers with blocked attention are never recorded.
fn with_recorded_answers(
    chat: PacedModel,
    blocking: Option<Arc<dyn BlockingModel>>,
    answers: Option<&Path>,
) -> Result<MeasuredModel, InputError> {
    let chat: Box<dyn ChatModel> = match answers {
        Some(path) => Box::new(recorded(chat, path)?),
        None => Box::new(chat),
    };
    Ok(MeasuredModel { chat, blocking })
}

/// Returns the model on a server, with the key from the environment variable of `--key-from`; `None` without
/// `--model` and `--url`.
#[cfg(feature = "run")]
fn remote_model(options: &BenchModelArgs) -> Result<Option<Box<dyn ChatModel>>, InputError> {
    let (Some(model), Some(url)) = (&options.model, &options.url) else { return Ok(None) };
    server_model(options.api.api(), model, ("--url", url), options.key_from.as_deref()).map(Some)
}

/// Returns the model that drives the attacker of a search; `None` if the options do not name both a model and its
/// address. The environment variable of `--attacker-key-from` has its key, `--attacker-rate` limits its requests in a
/// minute, and the file of `--attacker-answers` keeps its answers. With a `counter`, nothing is sent: a double that
/// says nothing takes the model's place, and the requests to the double are counted.
#[cfg(feature = "run")]
pub(super) fn attacker<'c>(
    options: &AttackerArgs,
    counter: Option<&'c RequestCounter>,
) -> Result<Option<Box<dyn ChatModel + 'c>>, InputError> {
    let (Some(model), Some(url)) = (&options.attacker_model, &options.attacker_url) else { return Ok(None) };
    if let Some(counter) = counter {
        return Ok(Some(Box::new(CountedModel { model: &SilentModel, counter })));
    }
    let key = options.attacker_key_from.as_deref();
    let chat = server_model(options.attacker_api.api(), model, ("--attacker-url", url), key)?;
    let chat = PacedModel::new(chat, options.attacker_rate);
    Ok(Some(match &options.attacker_answers {
        Some(path) => Box::new(recorded(chat, path)?),
        None => Box::new(chat),
    }))
}

/// Returns no model: a program without the feature `run` has no HTTP client.
#[cfg(not(feature = "run"))]
#[expect(clippy::unnecessary_wraps, reason = "the function with the feature `run` can fail")]
pub(super) fn attacker<'c>(
    _: &AttackerArgs,
    _: Option<&'c RequestCounter>,
) -> Result<Option<Box<dyn ChatModel + 'c>>, InputError> {
    Ok(None)
}

/// Returns the model `model` on a server that has the API `api`. `url` has the name of the option, for messages, and
/// its value; `key_from` is the environment variable with the key, `None` for a server without keys.
#[cfg(feature = "run")]
fn server_model(
    api: flowgate_lm::wire::Api,
    model: &str,
    url: (&str, &str),
    key_from: Option<&str>,
) -> Result<Box<dyn ChatModel>, InputError> {
    use flowgate_lm::RemoteModel;
    let (option, url) = url;
    let remote = RemoteModel::new(api, url, model);
    let remote = remote.map_err(|error| InputError(format!("{option} {url}: {error}")))?;
    let remote = match key_from {
        Some(variable) => {
            let key = crate::command::run::models::key(variable)?;
            remote.key(key.trim()).map_err(|error| InputError(error.to_string()))?
        }
        None => remote,
    };
    Ok(Box::new(remote))
}

/// Returns no model: a program without the feature `run` has no HTTP client.
#[cfg(not(feature = "run"))]
#[expect(clippy::unnecessary_wraps, reason = "the function with the feature `run` can fail")]
fn remote_model(_: &BenchModelArgs) -> Result<Option<Box<dyn ChatModel>>, InputError> {
    Ok(None)
}

/// A model with a limit on the number of requests per minute.
struct PacedModel {
    model: Box<dyn ChatModel>,
    /// The time between two requests, and when the next one may be sent; `None` without a limit.
    pace: Option<(Duration, Mutex<Instant>)>,
}

impl PacedModel {
    /// Limits the requests to a model to `per_minute` in a minute, at least one; `None` means no limit.
    fn new(model: Box<dyn ChatModel>, per_minute: Option<u32>) -> Self {
        let pace = per_minute.map(|rate| (Duration::from_secs(60) / rate.max(1), Mutex::new(Instant::now())));
        Self { model, pace }
    }

    /// Blocks until the rate permits this request, and reserves the time of the next one. Returns at once if there is
    /// no limit.
    fn wait(&self) {
        let Some((interval, next)) = &self.pace else { return };
        let now = Instant::now();
        let due = {
            let mut next = next.lock().unwrap_or_else(PoisonError::into_inner);
            let due = (*next).max(now);
            *next = due + *interval;
            due
        };
        std::thread::sleep(due.saturating_duration_since(now));
    }
}

impl ChatModel for PacedModel {
    fn name(&self) -> &str {
        self.model.name()
    }

    /// Waits until the rate permits a request, then asks the model.
    fn complete<'a>(
        &'a self,
        request: &'a Request,
        listener: &'a mut dyn Listener,
    ) -> BoxFuture<'a, Result<Completion, Error>> {
        self.wait();
        self.model.complete(request, listener)
    }
}

/// Runs `run(0)` to `run(units - 1)`, the parts of a measurement, on `jobs` threads. The only purpose is that the answers
/// of the model are in the file of answers before the measurement itself runs in order; the results are dropped. Does
/// nothing with fewer than two threads, which would save no time. Stops on an interrupt and at the first error, which
/// it returns.
pub(super) fn ask_ahead(
    jobs: u32,
    units: usize,
    progress: &Progress,
    run: &(dyn Fn(usize) -> Result<(), InputError> + Sync),
) -> Result<(), InputError> {
    if jobs < 2 {
        return Ok(());
    }
    // The next part to run, which each thread takes and increments; and the first error of any thread.
    let (next, problem) = (AtomicUsize::new(0), Mutex::new(None));
    let has_failed = || problem.lock().unwrap_or_else(PoisonError::into_inner).is_some();
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                while !progress.is_interrupted() && !has_failed() {
                    let unit = next.fetch_add(1, Ordering::Relaxed);
                    if unit >= units {
                        break;
                    }
                    if let Err(error) = run(unit) {
                        problem.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                    }
                }
            });
        }
    });
    problem.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}

/// Prints the cost of a run with a model. `counter` has counted the requests of the same run with a double.
/// `answer_tokens` is the limit on the tokens of an answer to a request that states no limit.
pub(in crate::command) fn print_cost(counter: &RequestCounter, answer_tokens: u32, output: &mut Console) {
    print_counts(counter, answer_tokens, output);
    print_course(output);
}

/// Prints the cost of a run with a search for attacks: that of the measured model, and then that of the model which
/// drives the attacker, if the options name one (`attacker`). The other parameters are those of [`print_cost`].
pub(super) fn print_cost_of_search(
    counter: &RequestCounter,
    answer_tokens: u32,
    attacker: Option<&RequestCounter>,
    output: &mut Console,
) {
    print_counts(counter, answer_tokens, output);
    if let Some(attacker) = attacker {
        output.line("The attacker's model:");
        print_counts(attacker, ATTACK_TOKENS, output);
        output.line(
            "The search tries its own attacks in place of the model's. A search that succeeds costs less.",
        );
    }
    print_course(output);
}

/// Prints the number of requests to one model, and of the tokens that the model reads and writes. The parameters are
/// those of [`print_cost`].
fn print_counts(counter: &RequestCounter, answer_tokens: u32, output: &mut Console) {
    let requests = counter.requests();
    output.line(&format!("{}, sent to nobody", plural(requests, "request")));
    output.line(&format!(
        "about {} read, as counted by {TOKENIZER}; a model with a larger vocabulary reads fewer",
        plural(counter.input_tokens(), "token")
    ));
    output.line(&written_tokens(requests, &counter.answer_limits(), answer_tokens));
}

/// Returns the line about the tokens that a model writes at most in its answers to `requests` requests. `limits` has the
/// limits that requests state, each with the number of requests that state it; `otherwise` is the limit of the other
/// requests.
fn written_tokens(requests: u64, limits: &[(u32, u64)], otherwise: u32) -> String {
    // The number of requests with each limit.
    let mut by_limit: BTreeMap<u32, u64> = limits.iter().copied().collect();
    let stated = by_limit.values().fold(0_u64, |sum, requests| sum.saturating_add(*requests));
    *by_limit.entry(otherwise).or_default() += requests.saturating_sub(stated);
    let tokens = by_limit.iter().map(|(limit, requests)| requests.saturating_mul(u64::from(*limit)));
    let written = tokens.fold(0_u64, u64::saturating_add);
    let by_limit: Vec<(u32, u64)> = by_limit.into_iter().filter(|(_, requests)| *requests > 0).collect();
    let each = match by_limit.as_slice() {
        [] => format!("{otherwise} for each answer"),
        [(limit, _)] => format!("{limit} for each answer"),
        several => {
            let of_limit =
                |(limit, count): &(u32, u64)| format!("{limit} for each of {}", plural(*count, "answer"));
            several.iter().map(of_limit).collect::<Vec<_>>().join(", ")
        }
    };
    format!("at most {} written, {each}", plural(written, "token"))
}

/// Prints what an estimate of the cost depends on.
fn print_course(output: &mut Console) {
    output.line(
        "A double determined the course of the run. A model that looks or calls more often costs more.",
    );
}

/// Prints the cost of a run that asks no model of a server. `evaluations` is the number of steps with a model in this
/// process; `None` if only doubles or detectors take part.
pub(in crate::command) fn print_no_requests(evaluations: Option<usize>, output: &mut Console) {
    output.line("0 requests, sent to nobody");
    match evaluations {
        Some(steps) => output.line(&format!("{} with a model in this process", plural(steps, "step"))),
        None => output.line("No model takes part: a double answers, or detectors read texts."),
    }
}

#[cfg(test)]
mod tests {
    use flowgate_lm::{block_on, ignore_deltas};

    use super::*;

    /// A model that counts its requests.
    struct CountingModel(Arc<AtomicUsize>);

    impl ChatModel for CountingModel {
        fn name(&self) -> &str {
            "counting"
        }

        /// Counts the request, and returns an empty answer.
        fn complete<'a>(
            &'a self,
            _: &'a Request,
            _: &'a mut dyn Listener,
        ) -> BoxFuture<'a, Result<Completion, Error>> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Box::pin(std::future::ready(Ok(Completion::default())))
        }
    }

    /// The turns of requests are reserved one after another. The test compares reserved times only, so it does not
    /// depend on the speed of the machine.
    #[test]
    fn a_pace_reserves_turns() {
        let asked = Arc::new(AtomicUsize::new(0));
        let model = PacedModel::new(Box::new(CountingModel(Arc::clone(&asked))), Some(60_000));
        let begun = *model.pace.as_ref().unwrap().1.lock().unwrap();
        for _ in 0..5 {
            block_on(model.complete(&Request::default(), &mut ignore_deltas)).unwrap();
        }
        let next = *model.pace.as_ref().unwrap().1.lock().unwrap();
        assert!(next.duration_since(begun) >= Duration::from_millis(5));
        assert_eq!((asked.load(Ordering::Relaxed), model.name()), (5, "counting"));
    }

    #[test]
    fn every_limit_of_answers_is_named() {
        let check = |requests, limits: &[(u32, u64)], expected: &str| {
            assert_eq!(written_tokens(requests, limits, 64), expected);
        };
        check(0, &[], "at most 0 tokens written, 64 for each answer");
        check(2, &[], "at most 128 tokens written, 64 for each answer");
        check(2, &[(512, 2)], "at most 1024 tokens written, 512 for each answer");
        let several = "at most 1152 tokens written, 64 for each of 2 answers, 512 for each of 2 answers";
        check(4, &[(64, 2), (512, 2)], several);
        // A request that states no limit counts with the given one.
        check(4, &[(64, 1), (512, 2)], several);
        check(
            u64::MAX,
            &[(512, u64::MAX)],
            &format!("at most {} tokens written, 512 for each answer", u64::MAX),
        );
    }

    #[test]
    fn every_part_runs_once_and_an_error_ends_it() {
        let counts: Vec<AtomicUsize> = (0..40).map(|_| AtomicUsize::new(0)).collect();
        let count = |unit: usize| {
            counts[unit].fetch_add(1, Ordering::Relaxed);
            Ok(())
        };
        ask_ahead(4, 40, &Progress::hidden(), &count).unwrap();
        assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == 1));
        // One job asks nothing ahead.
        ask_ahead(1, 40, &Progress::hidden(), &|_| Err(InputError("asked".to_owned()))).unwrap();
        let failing = |unit: usize| if unit == 7 { Err(InputError("seven".to_owned())) } else { Ok(()) };
        assert_eq!(ask_ahead(3, 40, &Progress::hidden(), &failing).unwrap_err().0, "seven");
    }
}
