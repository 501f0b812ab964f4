//! What predicates were answered in one conversation, so that it can be made again with nobody to ask.
//!
//! A conversation asks in the same order when it is made again, so each question is given the answers that it was given, one after the
//! other: whoever only tries what would become of something asks for themselves, and may hear something else than who does it. The
//! last one stands, since what was streamed then is not streamed again.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use flowgate::predicates::Predicates;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{ANSWER_TIME, Asker};

/// How long all questions of one turn may take together.
const TURN_TIME: Duration = Duration::from_secs(10);

/// A question that was asked, and what came of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Answered {
    name: String,
    arguments: Vec<Value>,
    answer: Result<Value, String>,
}

/// The questions of one conversation. As long as no turn has [begun](Self::begin), nobody is asked.
#[derive(Debug, Clone, Default)]
pub(crate) struct Journal(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// How long may still be asked in this turn, unless it is made again.
    left: Option<Duration>,
    /// What was answered in the turn that is made again, by question.
    again: HashMap<String, VecDeque<Result<Value, String>>>,
    /// What was answered since it was last taken out.
    fresh: Vec<Answered>,
}

impl Journal {
    /// The predicates of the conversation.
    pub(crate) fn predicates(&self, asker: &Asker) -> Predicates {
        let mut predicates = Predicates::new();
        for (name, answerer) in &asker.answerers {
            let (journal, answerer) = (self.clone(), Arc::clone(answerer));
            let own = name.clone();
            predicates.define(name, move |arguments| {
                journal.ask(&own, arguments, &|time| answerer.answer(arguments, time))
            });
        }
        predicates
    }

    /// A turn begins: others are asked from now on.
    pub(crate) fn begin(&self) {
        self.state().left = Some(TURN_TIME);
    }

    /// A turn is made again in which this was answered: nobody is asked.
    pub(crate) fn again(&self, answered: Vec<Answered>) {
        let mut state = self.state();
        (state.left, state.again) = (None, HashMap::new());
        for Answered { name, arguments, answer } in answered {
            state.again.entry(question(&name, &arguments)).or_default().push_back(answer);
        }
    }

    /// Takes out what was answered since the last time.
    pub(crate) fn answered(&self) -> Vec<Answered> {
        std::mem::take(&mut self.state().fresh)
    }

    fn ask(
        &self,
        name: &str,
        arguments: &[Value],
        answer: &dyn Fn(Duration) -> Result<Value, String>,
    ) -> Result<Value, String> {
        let mut state = self.state();
        let Some(left) = state.left else {
            let known = state.again.get_mut(&question(name, arguments));
            let known = known
                .and_then(|known| if known.len() > 1 { known.pop_front() } else { known.front().cloned() });
            return known.unwrap_or_else(|| Err("nobody was asked then".to_owned()));
        };
        // Nobody else waits for the conversation meanwhile; but whoever breaks off must not leave it locked.
        drop(state);
        let begun = Instant::now();
        let answer = match left.min(ANSWER_TIME) {
            Duration::ZERO => Err("no time is left for it".to_owned()),
            time => answer(time),
        };
        let mut state = self.state();
        state.left = Some(left.saturating_sub(begun.elapsed()));
        let (name, arguments) = (name.to_owned(), arguments.to_vec());
        state.fresh.push(Answered { name, arguments, answer: answer.clone() });
        answer
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn question(name: &str, arguments: &[Value]) -> String {
    format!("{name} {}", Value::Array(arguments.to_vec()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    type Answer = Result<Value, String>;

    fn asked(journal: &Journal, of: i64, answer: &Answer) -> Answer {
        journal.ask("p", &[json!(of)], &|time| {
            assert!(time <= ANSWER_TIME);
            answer.clone()
        })
    }

    #[test]
    fn each_question_is_answered_again_as_it_was() {
        let journal = Journal::default();
        let (yes, nobody) = (Ok(json!(true)), || Err("nobody was asked then".to_owned()));
        assert_eq!(asked(&journal, 1, &yes), nobody());
        assert_eq!(journal.answered(), []);
        journal.begin();
        let said = [(1, yes.clone()), (2, Err("down".to_owned())), (1, Ok(json!(false)))];
        for (of, answer) in &said {
            assert_eq!(asked(&journal, *of, answer), *answer);
        }
        let answered = journal.answered();
        assert_eq!((answered.len(), journal.answered().len()), (3, 0));
        let kept = serde_json::to_string(&answered).unwrap();
        let other = Journal::default();
        other.again(serde_json::from_str(&kept).unwrap());
        // Whatever others would say now.
        for (of, answer) in [(2, &said[1].1), (1, &said[0].1), (1, &said[2].1), (1, &said[2].1)] {
            assert_eq!(asked(&other, of, &Ok(json!("other"))), *answer);
        }
        assert_eq!(asked(&other, 3, &yes), nobody());
        assert_eq!(other.answered(), []);
        other.again(Vec::new());
        assert_eq!(asked(&other, 2, &yes), nobody());
    }

    #[test]
    fn the_questions_of_a_turn_share_a_time() {
        let (journal, yes) = (Journal::default(), Ok(json!(true)));
        journal.begin();
        journal.state().left = Some(Duration::ZERO);
        assert_eq!(asked(&journal, 1, &yes), Err("no time is left for it".to_owned()));
        journal.state().left = Some(Duration::from_millis(1));
        let slow = journal.ask("p", &[], &|_| {
            std::thread::sleep(Duration::from_millis(5));
            Ok(json!(true))
        });
        assert_eq!((slow, journal.state().left), (yes.clone(), Some(Duration::ZERO)));
        journal.begin();
        assert_eq!(asked(&journal, 2, &yes), yes);
    }
}
