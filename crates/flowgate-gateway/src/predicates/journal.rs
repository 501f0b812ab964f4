//! Records the answers of extern predicates in one conversation, so that the conversation can be replayed without
//! asking the sources. `chat::conversations` creates a [`PredicateJournal`] for each conversation.
//!
//! A *question* is a predicate with its arguments. One question can have several recorded answers: the guard may first
//! evaluate a call on trial, without effect, and the source may answer the second evaluation differently. A replay asks
//! in the same order, so a question receives its answers in the order in which they were recorded. A replay can ask a
//! question more often than the recorded turn did; the last answer is then repeated.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use flowgate::predicates::Predicates;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::runtime::{Handle, RuntimeFlavor};

use super::{ANSWER_TIME, PredicateSources};

/// The maximum time for all questions of one turn together.
const TURN_TIME: Duration = Duration::from_secs(10);

/// The only error that a conversation receives for a failed predicate. The cause is written to the operator's log only:
/// a source could choose it (a status, a delay) by the content of the question, and so leak this content.
const NO_ANSWER: &str = "the predicate gave no valid answer; the log of the gateway has the cause";
/// The error of a replay for a question to which the recorded turn has no answer.
const NOT_RECORDED: &str = "the recorded turn has no answer of the predicate to these arguments, and a replay does not ask its service or module: only a live turn shows the result";
/// The maximum number of failures that are reported for one turn.
const MAX_FAILURES: usize = 20;

/// A question and its outcome.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RecordedPredicateAnswer {
    name: String,
    arguments: Vec<Value>,
    /// The answer, or the error that the conversation received.
    answer: Result<Value, String>,
}

/// The questions of one conversation. Sources are asked only after a turn has [begun](Self::begin_turn).
#[derive(Debug, Clone, Default)]
pub(crate) struct PredicateJournal(Arc<Mutex<PredicateJournalState>>);

/// The state that all clones of a journal share.
#[derive(Debug, Default)]
struct PredicateJournalState {
    /// The time left for questions in this turn; `None` before the first turn and during a replay.
    left: Option<Duration>,
    /// The recorded answers of the replayed turn, by question.
    replayed: HashMap<String, VecDeque<Result<Value, String>>>,
    /// The answers since they were last taken out.
    new_answers: Vec<RecordedPredicateAnswer>,
    /// The predicates that failed since the failures were last taken out, with the causes.
    failures: Vec<(String, String)>,
}

impl PredicateJournal {
    /// Returns the predicates of the conversation. In a turn, they ask the sources and record the answers in this
    /// journal; in a replay, they return the recorded answers.
    pub(crate) fn predicates(&self, predicate_sources: &PredicateSources) -> Predicates {
        let mut predicates = Predicates::new();
        for (name, answerer) in &predicate_sources.answerers {
            let (journal, answerer) = (self.clone(), Arc::clone(answerer));
            let predicate = name.clone();
            predicates.define(name, move |arguments| {
                journal.ask(&predicate, arguments, &|time| answerer.answer(arguments, time))
            });
        }
        predicates
    }

    /// Begins a turn: from now on, questions go to the sources, which have [`TURN_TIME`] for all questions of the turn.
    pub(crate) fn begin_turn(&self) {
        self.state().left = Some(TURN_TIME);
    }

    /// Begins the replay of a turn: until the next turn begins, questions receive its recorded answers (`answered`),
    /// and no source is asked.
    pub(crate) fn begin_replay(&self, answered: Vec<RecordedPredicateAnswer>) {
        let mut state = self.state();
        // Without time left for questions, no source is asked.
        (state.left, state.replayed) = (None, HashMap::new());
        for RecordedPredicateAnswer { name, arguments, answer } in answered {
            state.replayed.entry(question_key(&name, &arguments)).or_default().push_back(answer);
        }
    }

    /// Returns and removes the answers since the last call.
    pub(crate) fn take_answers(&self) -> Vec<RecordedPredicateAnswer> {
        std::mem::take(&mut self.state().new_answers)
    }

    /// Returns and removes the names of the predicates that have failed since the last call, each with the cause,
    /// which contains no content.
    pub(crate) fn take_failures(&self) -> Vec<(String, String)> {
        std::mem::take(&mut self.state().failures)
    }

    /// Returns the answer of the predicate `name` to `arguments`. In a turn, calls `answer` with the time that is left
    /// for it, and records the result. In a replay, returns the recorded answer.
    ///
    /// # Errors
    /// [`NO_ANSWER`], if the source gives no valid answer in time; the cause is stored for the operator's log. In a
    /// replay, the recorded error, or a message that no answer is recorded.
    fn ask(
        &self,
        name: &str,
        arguments: &[Value],
        answer: &dyn Fn(Duration) -> Result<Value, String>,
    ) -> Result<Value, String> {
        let mut state = self.state();
        // `None` means that this is a replay, or that no turn has begun.
        let Some(time_left) = state.left else {
            let recorded = state.replayed.get_mut(&question_key(name, arguments));
            // The last answer is not removed, since the replay may ask the question more often.
            let next = recorded.and_then(|answers| {
                if answers.len() > 1 { answers.pop_front() } else { answers.front().cloned() }
            });
            return next.unwrap_or_else(|| Err(NOT_RECORDED.to_owned()));
        };
        // Not locked while the source is asked, which can take seconds.
        drop(state);
        let begun = Instant::now();
        let outcome = match time_left.min(ANSWER_TIME) {
            Duration::ZERO => Err(format!(
                "the extern predicates of this turn have used up their {} seconds together: make their services answer faster, or ask them in fewer rules",
                TURN_TIME.as_secs()
            )),
            time => run_blocking(|| answer(time)),
        };
        let mut state = self.state();
        state.left = Some(time_left.saturating_sub(begun.elapsed()));
        let (name, arguments) = (name.to_owned(), arguments.to_vec());
        // The cause of a failure is only for the operator's log: the policy and the record receive `NO_ANSWER`.
        let recorded = outcome.map_err(|why| {
            if state.failures.len() < MAX_FAILURES {
                state.failures.push((name.clone(), why));
            }
            NO_ANSWER.to_owned()
        });
        state.new_answers.push(RecordedPredicateAnswer { name, arguments, answer: recorded.clone() });
        recorded
    }

    /// Locks the state of the journal, also after a panic.
    fn state(&self) -> MutexGuard<'_, PredicateJournalState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs work that blocks. In a multi-threaded runtime, moves the other tasks of this thread to another thread first.
fn run_blocking<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}

/// Returns a text that identifies a question: its predicate and its arguments.
fn question_key(name: &str, arguments: &[Value]) -> String {
    format!("{name} {}", Value::Array(arguments.to_vec()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    type PredicateResult = Result<Value, String>;

    fn asked(journal: &PredicateJournal, of: i64, answer: &PredicateResult) -> PredicateResult {
        journal.ask("p", &[json!(of)], &|time| {
            assert!(time <= ANSWER_TIME);
            answer.clone()
        })
    }

    #[test]
    fn each_question_is_answered_again_as_it_was() {
        let journal = PredicateJournal::default();
        let (yes, nobody) = (Ok(json!(true)), || Err(NOT_RECORDED.to_owned()));
        assert_eq!(asked(&journal, 1, &yes), nobody());
        assert_eq!(journal.take_answers(), []);
        journal.begin_turn();
        // A source that fails does not choose the error message.
        assert_eq!(asked(&journal, 3, &Err("status 500".to_owned())), Err(NO_ANSWER.to_owned()));
        assert_eq!(journal.take_failures(), [("p".to_owned(), "status 500".to_owned())]);
        assert_eq!((journal.take_answers().len(), journal.take_failures()), (1, Vec::new()));
        let said = [(1, yes.clone()), (2, Err(NO_ANSWER.to_owned())), (1, Ok(json!(false)))];
        for (of, answer) in &said {
            assert_eq!(asked(&journal, *of, answer), *answer);
        }
        let answered = journal.take_answers();
        assert_eq!((answered.len(), journal.take_answers().len()), (3, 0));
        let serialized = serde_json::to_string(&answered).unwrap();
        let other = PredicateJournal::default();
        other.begin_replay(serde_json::from_str(&serialized).unwrap());
        // The replay ignores what sources would answer now.
        for (of, answer) in [(2, &said[1].1), (1, &said[0].1), (1, &said[2].1), (1, &said[2].1)] {
            assert_eq!(asked(&other, of, &Ok(json!("other"))), *answer);
        }
        assert_eq!(asked(&other, 3, &yes), nobody());
        assert_eq!(other.take_answers(), []);
        other.begin_replay(Vec::new());
        assert_eq!(asked(&other, 2, &yes), nobody());
    }

    /// A source that does not answer holds up no other turn, even if they share one thread.
    #[test]
    fn a_slow_source_blocks_no_other_task() {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (sender, receiver) = std::sync::mpsc::channel();
        let slow_turn = runtime.spawn(async move {
            let journal = PredicateJournal::default();
            journal.begin_turn();
            tokio::spawn(async move { sender.send(()) });
            journal
                .ask("p", &[], &|_| receiver.recv().map(|()| json!(true)).map_err(|error| error.to_string()))
        });
        assert_eq!(runtime.block_on(slow_turn).unwrap(), Ok(json!(true)));
    }

    #[test]
    fn the_questions_of_a_turn_share_a_time() {
        let (journal, yes) = (PredicateJournal::default(), Ok(json!(true)));
        journal.begin_turn();
        journal.state().left = Some(Duration::ZERO);
        assert_eq!(asked(&journal, 1, &yes), Err(NO_ANSWER.to_owned()));
        let why = "the extern predicates of this turn have used up their 10 seconds together: make their services answer faster, or ask them in fewer rules";
        assert_eq!(journal.take_failures(), [("p".to_owned(), why.to_owned())]);
        journal.state().left = Some(Duration::from_millis(1));
        let slow = journal.ask("p", &[], &|_| {
            std::thread::sleep(Duration::from_millis(5));
            Ok(json!(true))
        });
        assert_eq!((slow, journal.state().left), (yes.clone(), Some(Duration::ZERO)));
        journal.begin_turn();
        assert_eq!(asked(&journal, 2, &yes), yes);
    }
}
