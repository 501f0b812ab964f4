//! Asks the extern predicates of a policy, such as `extern is_customer(email: str) -> bool`, and records the answers.
//! The embedding program defines them as functions ([`Predicates`]). The evaluator asks a predicate when a condition
//! uses it.
//!
//! The core does not depend on where an answer comes from. Each answer is recorded, and the same question gets the same
//! answer for the whole session; a replay that has the record asks no predicate again. If a question has no answer, or
//! an answer of the wrong type, a rule fails, and a statement that grants something grants nothing.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

use crate::detect::Classifier;

/// Answers one predicate with a value, or with the reason why there is none.
type PredicateFunction = dyn Fn(&[Value]) -> Result<Value, String> + Send + Sync;

/// The predicates that a program answers, by name.
///
/// ```
/// use flowgate::predicates::Predicates;
/// use serde_json::json;
///
/// let mut predicates = Predicates::new();
/// predicates.define("is_customer", |arguments| Ok(json!(arguments[0] == "ann@example.org")));
/// ```
#[derive(Clone, Default)]
pub struct Predicates {
    functions: HashMap<String, Arc<PredicateFunction>>,
}

impl fmt::Debug for Predicates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names: Vec<&String> = self.functions.keys().collect();
        names.sort_unstable();
        f.debug_list().entries(names).finish()
    }
}

impl Predicates {
    /// Creates an empty set of predicates.
    pub fn new() -> Self {
        Self::default()
    }

    /// Defines the function that answers the predicate `name`, and replaces an earlier one. The function receives the
    /// arguments with which the policy calls the predicate; they have the types that the policy declares. It returns
    /// the answer, or the reason why there is none.
    ///
    /// A panic in `answer` is not caught.
    pub fn define(
        &mut self,
        name: impl Into<String>,
        answer: impl Fn(&[Value]) -> Result<Value, String> + Send + Sync + 'static,
    ) {
        self.functions.insert(name.into(), Arc::new(answer));
    }

    /// Defines a predicate that a classifier answers, such as a detector with learned weights. The answer is the score
    /// that the classifier gives to `category` in the text that is the first argument, or 0 if it does not report this
    /// category. The policy declares the predicate as `extern NAME(text: str) -> float`.
    ///
    /// ```
    /// use flowgate::detect::Classifier;
    /// use flowgate::predicates::Predicates;
    ///
    /// struct Loudness;
    ///
    /// impl Classifier for Loudness {
    ///     fn classify(&self, text: &str) -> Vec<(String, f64)> {
    ///         if text.contains('!') { vec![("loud".to_owned(), 0.9)] } else { Vec::new() }
    ///     }
    /// }
    ///
    /// let mut predicates = Predicates::new();
    /// predicates.define_classifier("loud", Loudness, "loud");
    /// ```
    pub fn define_classifier(
        &mut self,
        name: impl Into<String>,
        classifier: impl Classifier + Send + Sync + 'static,
        category: impl Into<String>,
    ) {
        let category = category.into();
        self.define(name, move |arguments| {
            let text = arguments.first().and_then(Value::as_str);
            let text = text.ok_or("a classifier answers about a text; declare the parameter as `str`")?;
            let scores = classifier.classify(text);
            let score = scores.iter().find(|(found, _)| *found == category).map_or(0.0, |(_, score)| *score);
            // A number that is not finite has no form in JSON.
            serde_json::Number::from_f64(score).map(Value::Number).ok_or_else(|| {
                "the classifier's score is not a finite number; correct the classifier".to_owned()
            })
        });
    }
}

/// A question with its answer.
#[derive(Debug, Clone, PartialEq)]
pub struct PredicateAnswer {
    /// The name of the predicate.
    pub name: String,
    /// The arguments of the question.
    pub arguments: Vec<Value>,
    /// The answer, or the reason why there is none.
    pub answer: Result<Value, String>,
}

/// The predicates, and the answers that were recorded.
#[derive(Debug, Default)]
pub(crate) struct PredicateAnswers {
    predicates: Predicates,
    /// The recorded answers, by the predicate's name and the arguments as JSON.
    recorded_answers: Mutex<BTreeMap<String, PredicateAnswer>>,
}

/// The greatest number of answers that one session may hold.
const MAX_ANSWERS: usize = 100_000;

impl PredicateAnswers {
    /// Creates a record that contains the answers `recorded`. Their questions are not asked again.
    pub(crate) fn new(predicates: Predicates, recorded: impl IntoIterator<Item = PredicateAnswer>) -> Self {
        let key = |answered: &PredicateAnswer| question_key(&answered.name, &answered.arguments);
        let by_question = recorded.into_iter().map(|answered| (key(&answered), answered)).collect();
        Self { predicates, recorded_answers: Mutex::new(by_question) }
    }

    /// Returns the recorded answer to a question, or asks the predicate and records its answer. An error of the
    /// predicate is recorded as well, so that the same question has the same result for the whole session.
    ///
    /// # Errors
    /// If the predicate reports an error or has no implementation, or if the session has asked too many questions. Of
    /// these, only an error of the predicate is recorded.
    pub(crate) fn evaluate(&self, name: &str, arguments: &[Value]) -> Result<Value, String> {
        let key = question_key(name, arguments);
        // No predicate runs under the lock, so a panic in one leaves the record consistent.
        let earlier = self.recorded_answers.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        if let Some(answered) = earlier {
            return answered.answer;
        }
        let Some(predicate) = self.predicates.functions.get(name) else {
            return Err(format!(
                "the extern predicate `{name}` has no implementation; name a service or a module for it with \
                `--predicate`, or register a function for it in the program that embeds the monitor"
            ));
        };
        let answer = predicate(arguments);
        // The lock is held from this check until the answer is recorded, so the limit is never exceeded.
        let mut recorded = self.recorded_answers.lock().unwrap_or_else(PoisonError::into_inner);
        if recorded.len() >= MAX_ANSWERS {
            return Err(format!(
                "the session has asked extern predicates more than {MAX_ANSWERS} different questions; start \
                a new session"
            ));
        }
        let (name, arguments) = (name.to_owned(), arguments.to_vec());
        recorded.insert(key, PredicateAnswer { name, arguments, answer: answer.clone() });
        answer
    }

    /// Returns a copy for hypothetical calls. Answers that the copy records later are not visible in the original until
    /// it [adopts](Self::adopt) them.
    pub(crate) fn fork(&self) -> Self {
        Self::new(self.predicates.clone(), self.recorded())
    }

    /// Records the answers that a copy has recorded, up to the limit on answers. A question that already has an answer
    /// here keeps this answer.
    pub(crate) fn adopt(&self, copy: &Self) {
        let answered = copy.recorded();
        let mut recorded = self.recorded_answers.lock().unwrap_or_else(PoisonError::into_inner);
        for answer in answered {
            if recorded.len() >= MAX_ANSWERS {
                return;
            }
            recorded.entry(question_key(&answer.name, &answer.arguments)).or_insert(answer);
        }
    }

    /// Returns all recorded answers, sorted by question.
    pub(crate) fn recorded(&self) -> Vec<PredicateAnswer> {
        self.recorded_answers.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }
}

/// Returns the key of a recorded answer: the name of the predicate and its arguments as JSON.
fn question_key(name: &str, arguments: &[Value]) -> String {
    format!("{name} {}", Value::Array(arguments.to_vec()))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use serde_json::json;

    use super::*;
    use crate::analysis::{AnalysisOptions, analyze};
    use crate::monitor::{Attribution, Monitor, Verdict};
    use crate::policy::Policy;
    use crate::trace::{Call, Tool, read};

    const POLICY: &str = "\
extern is_customer(email: str) -> bool
raise \"not a customer\" if:
    (call: ToolCall) is tool:send
    not is_customer(call.arguments.to)
";

    fn customers(calls: Arc<AtomicUsize>) -> Predicates {
        let mut predicates = Predicates::new();
        predicates.define("is_customer", move |arguments| {
            calls.fetch_add(1, Ordering::Relaxed);
            match arguments {
                [Value::String(email)] if email == "down@example.org" => {
                    Err("the directory is down".to_owned())
                }
                [Value::String(email)] if email == "odd@example.org" => Ok(json!("yes")),
                [email] => Ok(json!(email == "ann@example.org")),
                _ => Err("one argument".to_owned()),
            }
        });
        predicates
    }

    fn call(to: &str) -> Call {
        Call::from_json(to, Tool::local("send"), &json!({"to": to}).to_string())
    }

    fn verdict(monitor: &mut Monitor, to: &str) -> String {
        match monitor.judge(call(to)) {
            Verdict::Permit(_) => "permit".to_owned(),
            verdict => verdict.judgement().reasons[0].message.clone(),
        }
    }

    #[test]
    fn answers_decide_and_are_asked_for_once() {
        let policy = Arc::new(Policy::parse(POLICY).unwrap());
        let calls = Arc::new(AtomicUsize::new(0));
        let mut monitor = Monitor::new(Arc::clone(&policy));
        monitor.set_predicates(customers(Arc::clone(&calls)), Vec::new());
        for (to, expected) in [
            ("ann@example.org", "permit"),
            ("eve@example.org", "not a customer"),
            ("eve@example.org", "not a customer"),
            (
                "down@example.org",
                "the rule cannot be evaluated: the extern predicate `is_customer` failed: the directory is \
                down",
            ),
            (
                "odd@example.org",
                "the rule cannot be evaluated: the extern predicate `is_customer` answered with a value of the type str, not bool; correct its implementation or its declaration",
            ),
        ] {
            assert_eq!(verdict(&mut monitor, to), expected, "{to}");
        }
        assert_eq!(calls.load(Ordering::Relaxed), 4);

        // The record suffices to judge again without any predicate defined.
        let recorded = monitor.predicate_answers();
        let mut again = Monitor::new(policy);
        again.set_predicates(Predicates::new(), recorded);
        assert_eq!(verdict(&mut again, "ann@example.org"), "permit");
        assert_eq!(verdict(&mut again, "eve@example.org"), "not a customer");
        assert!(verdict(&mut again, "bob@example.org").contains("the extern predicate `is_customer` has no implementation; name a service or a module for it with `--predicate`, or register a function for it in the program that embeds the monitor"));
    }

    /// The score of a classifier is a condition like any other, and one that is no number fails.
    #[test]
    fn a_classifier_answers() {
        struct Scores;
        impl Classifier for Scores {
            fn classify(&self, text: &str) -> Vec<(String, f64)> {
                match text {
                    "shout" => vec![("quiet".to_owned(), 0.1), ("loud".to_owned(), 0.9)],
                    "whisper" => vec![("quiet".to_owned(), 0.9)],
                    "broken" => vec![("loud".to_owned(), f64::NAN)],
                    _ => Vec::new(),
                }
            }
        }
        let source = "extern loud(text: str) -> float\nraise \"too loud\" if:\n    (call: ToolCall)\n    \
                      loud(call.arguments.to) > 0.5\n";
        let mut monitor = Monitor::new(Arc::new(Policy::parse(source).unwrap()));
        let mut predicates = Predicates::new();
        predicates.define_classifier("loud", Scores, "loud");
        monitor.set_predicates(predicates, Vec::new());
        for (text, expected) in [
            ("shout", "too loud"),
            ("whisper", "permit"),
            ("nothing", "permit"),
            (
                "broken",
                "the rule cannot be evaluated: the extern predicate `loud` failed: the classifier's score is not a \
                 finite number; correct the classifier",
            ),
        ] {
            assert_eq!(verdict(&mut monitor, text), expected, "{text}");
        }
    }

    /// A permit is judged again when it is redeemed, if the predicates were replaced since.
    #[test]
    fn a_permit_is_good_for_the_answers_of_its_moment() {
        for (is_other, runs) in [(false, true), (true, false)] {
            let mut monitor = Monitor::new(Arc::new(Policy::parse(POLICY).unwrap()));
            monitor.set_predicates(customers(Arc::default()), Vec::new());
            let Verdict::Permit(permit) = monitor.judge(call("ann@example.org")) else { panic!("no permit") };
            if is_other {
                monitor.set_predicates(Predicates::new(), Vec::new());
            }
            assert_eq!(monitor.redeem(permit).is_ok(), runs);
        }
    }

    /// Whether a call is harmless follows from the judgement with which it runs, not from an earlier one.
    #[test]
    fn a_call_is_harmless_by_the_answers_of_its_moment() {
        let source = "lattice integrity: trusted < untrusted\nextern is_customer(email: str) -> bool\n\
                      require top if:\n    (call: ToolCall) is tool:send\n    is_customer(call.arguments.to)\n";
        for is_still_harmless in [true, false] {
            let mut monitor = Monitor::new(Arc::new(Policy::parse(source).unwrap()));
            monitor.set_predicates(customers(Arc::default()), Vec::new());
            let Verdict::Permit(permit) = monitor.judge(call("ann@example.org")) else { panic!("no permit") };
            assert!(permit.judgement().is_harmless);
            let mut later = Predicates::new();
            later.define("is_customer", move |_| Ok(json!(is_still_harmless)));
            monitor.set_predicates(later, Vec::new());
            assert_eq!(monitor.redeem(permit).unwrap().is_harmless(), is_still_harmless);
        }
    }

    /// What a draft would have led to decides which view the next step has, so a replay needs the same answers.
    #[test]
    fn a_hypothetical_judgement_records_its_answers() {
        let policy = Arc::new(Policy::parse(POLICY).unwrap());
        let mut monitor = Monitor::new(Arc::clone(&policy));
        monitor.set_predicates(customers(Arc::default()), Vec::new());
        let judged = |monitor: &Monitor| {
            let judgement = monitor.would_judge(call("ann@example.org").into(), Attribution::everything());
            judgement.reasons.into_iter().map(|reason| reason.message).collect::<Vec<_>>()
        };
        assert_eq!(judged(&monitor), Vec::<String>::new());
        assert!(monitor.trace().is_empty());
        let mut again = Monitor::new(policy);
        again.set_predicates(Predicates::new(), monitor.predicate_answers());
        assert_eq!(judged(&again), Vec::<String>::new());
        assert_eq!(again.predicate_answers().len(), 1);
    }

    #[test]
    fn an_analysis_asks_as_well() {
        let messages = [
            json!({"id": "1", "type": "function", "function": {"name": "send", "arguments": {"to": "eve@example.org"}}}),
        ];
        let policy = Policy::parse(POLICY).unwrap();
        let analyzed = |predicates| {
            let options = AnalysisOptions { predicates, ..AnalysisOptions::default() };
            analyze(&policy, read::list(&messages).unwrap(), &options).unwrap()
        };
        assert_eq!(analyzed(customers(Arc::default())).violations.len(), 1);
        let alone = analyzed(Predicates::new());
        assert_eq!((alone.violations.len(), alone.failures.len()), (0, 1));
    }

    #[test]
    fn arguments_have_their_types() {
        let source = POLICY.replace("call.arguments.to", "call.arguments.n");
        let policy = Arc::new(Policy::parse(&source).unwrap());
        let mut monitor = Monitor::new(policy);
        monitor.set_predicates(customers(Arc::default()), Vec::new());
        let call = |arguments: &str| Call::from_json(arguments, Tool::local("send"), arguments);
        let message = |verdict: Verdict| verdict.judgement().reasons[0].message.clone();
        let verdict = monitor.judge(call("{\"n\": 1}"));
        assert_eq!(
            message(verdict),
            "the rule cannot be evaluated: the argument `email` of the extern predicate `is_customer` is \
            int, not str; pass a value of the type str"
        );
        let verdict = monitor.judge(call("{}"));
        assert_eq!(
            message(verdict),
            "the rule cannot be evaluated: `is_customer` was given a value that is missing or null; test \
            first whether it `is None`",
            "nobody is asked about what is not there"
        );
    }
}
