//! Runs the propagation suite with a model in place of the doubles: [`PropagationSuite::run_model`], which `flowgate
//! bench propagation` calls.
//!
//! The model must score texts; this suffices for Tables 1 to 3 of *Permissive Information-Flow Analysis*. The rows of
//! the kNN-LM in these tables also need hidden states. Table 4 and the degradation attack need a model that answers
//! questions. Introspection needs a model that answers chats; a model without a chat template does so by
//! [`ContinuedIntrospection`](flowgate_guard::propagation::introspection::ContinuedIntrospection). Labels are
//! searched for the answer of the data set, except in `agents/generated`, where the model writes the answer.

use flowgate_guard::propagation::AnswerModel;
use flowgate_lm::{BoxFuture, Error, block_on};

use super::double::UNKNOWN_WORD;
use super::measure::LabelFigures;
use super::method::{LabelMethod, Models, SearchParameters, apply};
use super::naive_tokens::NaiveTokens;
use super::news::Retriever;
use super::question::DocumentQuestion;
use super::regenerate::{ATTACKERS, Alignment, Degradation, DegradationAttack, align, endorse};
use super::suite::{DataSet, LabelRow, PropagationSuite, agent_labels};
use super::tune::{FIXED, GridPoint, setting_count, tune};
use crate::games::interval::Rate;

/// The results with one model.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelResults {
    /// The name of the model.
    pub name: String,
    /// The seed of the questions.
    pub seed: u64,
    /// The rows of Tables 1 to 3 of *Permissive Information-Flow Analysis*.
    pub labels: Vec<LabelRow>,
    /// The settings that were tried on the tuning questions, each with its data set.
    pub grids: Vec<(DataSet, GridPoint)>,
    /// The figures of Table 4; `None` if the model only scores texts.
    pub alignment: Option<Alignment>,
    /// The degradation attack: a row for each number of attacker documents, or none if the model only scores texts.
    pub degradation: Vec<Degradation>,
    /// The share of conversations whose label is improved, without and with a trusted quotation.
    pub endorsement: [Rate; 2],
}

/// The parameters that were chosen for one data set, with the settings that were tried.
#[derive(Debug, Clone, PartialEq)]
pub struct TunedSet {
    /// The data set. None of its reported questions is among the tuning questions.
    pub set: DataSet,
    /// The number of tuning questions.
    pub questions: usize,
    /// The best parameters.
    pub parameters: SearchParameters,
    /// The settings that were tried.
    pub grid: Vec<GridPoint>,
}

/// The methods that run on each data set, in the order of the tables.
const PLAN: [(DataSet, &[LabelMethod]); 8] = [
    (
        DataSet::KeyValue,
        &[
            LabelMethod::Naive,
            LabelMethod::HittingSet,
            LabelMethod::Shapley,
            LabelMethod::Knn,
            LabelMethod::Introspection,
        ],
    ),
    (DataSet::KeyValueSmall, &[LabelMethod::Literal, LabelMethod::HittingSet]),
    (DataSet::KeyValueUnseen, &EACH),
    (DataSet::News(Retriever::Perfect), &EACH),
    (DataSet::News(Retriever::TfIdf), &EACH),
    (DataSet::News(Retriever::Embeddings), &EACH),
    (DataSet::Agents { is_generated: false }, &EACH),
    (DataSet::Agents { is_generated: true }, &EACH),
];

/// The methods that run on most data sets.
const EACH: [LabelMethod; 4] =
    [LabelMethod::Naive, LabelMethod::HittingSet, LabelMethod::Knn, LabelMethod::Introspection];

/// Returns the rows of a run with these models, each a data set and a method. The kNN-LM needs a model with hidden
/// states, introspection a model that answers chats, and the data set of generated answers a model that answers
/// questions.
fn plan(models: Models<'_>) -> impl Iterator<Item = (DataSet, LabelMethod)> {
    let rows = PLAN.into_iter().flat_map(|(set, methods)| methods.iter().map(move |method| (set, *method)));
    let (has_states, can_answer) = (models.states.is_some(), models.answers.is_some());
    let can_chat = models.chat.is_some();
    rows.filter(move |(set, method)| {
        (has_states || *method != LabelMethod::Knn)
            && (can_chat || *method != LabelMethod::Introspection)
            && (can_answer || *set != DataSet::Agents { is_generated: true })
    })
}

/// Answers with [`UNKNOWN_WORD`] where a model fails, for example because it has nothing to say, so that one question
/// does not end a measurement.
struct AnswerOrUnknown<'a>(&'a dyn AnswerModel);

impl AnswerModel for AnswerOrUnknown<'_> {
    /// Asks the model. After the error [`Error::Failed`], the answer is [`UNKNOWN_WORD`]; other errors are returned.
    fn answer<'a>(&'a self, prompt: &'a str) -> BoxFuture<'a, Result<String, Error>> {
        Box::pin(async move {
            match self.0.answer(prompt).await {
                Err(Error::Failed(_)) => Ok(UNKNOWN_WORD.to_owned()),
                answered => answered,
            }
        })
    }
}

impl PropagationSuite {
    /// Returns the number of steps of a run with a model, by which the command line shows progress: one for each
    /// question under each method, one for each setting that is tried, one for the quotations and, if the model
    /// answers, one for Table 4 and one for each number of attacker documents.
    pub fn model_steps(&self, models: Models<'_>) -> usize {
        let rows = plan(models).filter(|(set, _)| self.has(*set));
        let questions_of_row = |(set, method)| {
            let (_, questions) = self.example_and_questions(set, method);
            questions.len()
        };
        let rows: usize = rows.map(questions_of_row).sum();
        let of_answers = if models.answers.is_some() { 1 + ATTACKERS.len() } else { 0 };
        rows + self.tuning_steps(models.states.is_some()) + 1 + of_answers
    }

    /// Returns the number of steps of [`tune_model`](Self::tune_model). `has_states` says whether the model has hidden
    /// states, which the kNN-LM needs.
    pub fn tuning_steps(&self, has_states: bool) -> usize {
        // Four data sets have tuning questions.
        4 * setting_count(has_states)
    }

    /// Chooses λ and the Shapley threshold for a model, once for each data set that has tuning questions. These
    /// questions are not reported. `step` is called after each setting that was tried; if it returns true (the user has
    /// interrupted the command), the result is `None`.
    ///
    /// # Errors
    /// If the model fails.
    pub fn tune_model(
        &self,
        models: Models<'_>,
        step: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Vec<TunedSet>>, Error> {
        let (key_value, news) = &self.tuning;
        // Each data set with its tuning questions, and whether the reported parameters keep the Shapley threshold that
        // was chosen. On the news, no method prunes, so the fixed threshold replaces it: the thresholds that were tried
        // there only appear in a chart.
        let sets = [
            (DataSet::KeyValue, key_value, true),
            (DataSet::KeyValueUnseen, &self.unseen_tuning, true),
            (DataSet::News(Retriever::Perfect), news, false),
            (DataSet::News(Retriever::TfIdf), &self.tf_idf_tuning, false),
        ];
        let mut tuned = Vec::new();
        for (set, questions, keeps_threshold) in sets {
            let Some((mut parameters, grid)) = tune(models, questions, step)? else {
                return Ok(None);
            };
            if !keeps_threshold {
                parameters.shapley = FIXED.shapley;
            }
            tuned.push(TunedSet { set, questions: questions.len(), parameters, grid });
        }
        Ok(Some(tuned))
    }

    /// Computes Tables 1 to 4 of *Permissive Information-Flow Analysis* with a model, and measures attacks on its
    /// answers and endorsement by quoting. `name` is the name of the model in the rows.
    /// [`tune_model`](Self::tune_model) chooses the parameters first. `step` is called after each question and each
    /// setting that was tried; if it returns true (the user has interrupted the command), the result is `None`.
    ///
    /// # Errors
    /// If the model fails.
    pub fn run_model(
        &self,
        models: Models<'_>,
        name: &str,
        step: &mut dyn FnMut() -> bool,
    ) -> Result<Option<ModelResults>, Error> {
        let Some(tuned) = self.tune_model(models, step)? else { return Ok(None) };
        let parameters: Vec<_> = tuned.iter().map(|tuned| (tuned.set, tuned.parameters)).collect();
        let mut grids: Vec<(DataSet, GridPoint)> = Vec::new();
        for TunedSet { set, grid, .. } in tuned {
            grids.extend(grid.into_iter().map(|point| (set, point)));
        }
        // The parameters of the agent conversations, which are not tuned, are fixed.
        let parameters_of = |set: DataSet| {
            let tuned_set = tuned_for(set);
            parameters.iter().find(|(tuned, _)| *tuned == tuned_set).map_or(FIXED, |(_, best)| *best)
        };
        let mut labels = Vec::new();
        let mut naive = NaiveTokens::new(models.count);
        for (set, method) in plan(models).filter(|(set, _)| self.has(*set)) {
            let mut outcomes = Vec::new();
            let (example, questions) = self.example_and_questions(set, method);
            for question in questions {
                let completion = completion_of(models, set, question)?;
                outcomes.push(apply(method, models, parameters_of(set), question, &completion, example)?);
                if step() {
                    return Ok(None);
                }
            }
            let (model, mut figures) = (name.to_owned(), LabelFigures::of(&outcomes));
            naive.compare(set.name(), self.questions_of(set), &mut figures);
            labels.push(LabelRow { model, set, method, parameters: parameters_of(set), figures });
        }
        let agents = self.questions_of(DataSet::Agents { is_generated: true });
        let [trusted, untrusted] = agent_labels()?;
        let endorsement = endorse(models, FIXED, agents, trusted)?;
        if step() {
            return Ok(None);
        }
        let (mut alignment, mut degradation) = (None, Vec::new());
        if let Some(answers) = models.answers {
            // `align` and the attack ask for a model for each question; here, one model answers all of them.
            let answer =
                |_: &DocumentQuestion| -> Box<dyn AnswerModel + '_> { Box::new(AnswerOrUnknown(answers)) };
            alignment = Some(align(models, FIXED.lambda, agents, &answer)?);
            if step() {
                return Ok(None);
            }
            let attack = DegradationAttack::new(models, FIXED.lambda, agents, untrusted, &answer)?;
            for attackers in ATTACKERS {
                degradation.push(attack.run(attackers)?);
                if step() {
                    return Ok(None);
                }
            }
        }
        let name = name.to_owned();
        Ok(Some(ModelResults { name, seed: self.seed(), labels, grids, alignment, degradation, endorsement }))
    }
}

/// Returns the data set whose tuning questions choose the parameters of `set`. The small contexts have the parameters of
/// the large ones, whose phrasing is the same. The retriever by embeddings has those of the retriever by words, since
/// both miss articles.
fn tuned_for(set: DataSet) -> DataSet {
    match set {
        DataSet::KeyValueSmall => DataSet::KeyValue,
        DataSet::News(Retriever::Embeddings) => DataSet::News(Retriever::TfIdf),
        set => set,
    }
}

/// Returns the answer to `question` whose labels are measured: for the generated conversations with an agent that of
/// the model, if there is one that answers, else that of the data set.
fn completion_of(models: Models<'_>, set: DataSet, question: &DocumentQuestion) -> Result<String, Error> {
    match (set, models.answers) {
        (DataSet::Agents { is_generated: true }, Some(answers)) => {
            let all: Vec<usize> = (0..question.documents.len()).collect();
            let prompt = question.context().prompt(&all);
            let answer = block_on(AnswerOrUnknown(answers).answer(&prompt))?;
            Ok(answer)
        }
        _ => Ok(question.answer.clone()),
    }
}

#[cfg(test)]
mod tests {
    use flowgate_guard::propagation::introspection::ContinuedIntrospection;
    use flowgate_lm::chat::{Message, Part, Request};
    use flowgate_lm::{
        ChatModel as _, ContinuationEnd, ContinuationModel, Score, ScoreRequest, ScoringModel, ignore_deltas,
    };

    use super::super::double::{CitingDouble, CopyModel, CopyingErrors};
    use super::super::report::{model_lines, model_page, model_tables};
    use super::super::suite::Size;
    use super::*;
    use crate::tokens::count_lines;

    /// Answers with the first document; fails where there is none.
    struct FirstDocument;

    impl AnswerModel for FirstDocument {
        fn answer<'a>(&'a self, prompt: &'a str) -> BoxFuture<'a, Result<String, Error>> {
            let documents = prompt.split_once("Documents:\n").map_or("", |(_, rest)| rest);
            let first = documents.lines().next().filter(|line| *line != "Answer:").map(str::to_owned);
            let failed = Error::Failed("the double has no document".to_owned());
            Box::pin(std::future::ready(first.ok_or(failed)))
        }
    }

    /// Continues with the numbers of the documents that state a fact of the answer, as the citing double does.
    struct CitingContinuation {
        prompts: std::sync::Mutex<Vec<String>>,
    }

    impl ContinuationModel for CitingContinuation {
        /// Keeps the prompt, and answers as the citing double would answer the last question in it.
        fn continue_text<'a>(
            &'a self,
            prompt: &'a str,
            end: ContinuationEnd<'a>,
        ) -> BoxFuture<'a, Result<String, Error>> {
            self.prompts.lock().unwrap().push(prompt.to_owned());
            // Without room for an answer, every prompt is too long.
            if end.tokens == 0 {
                let error = Error::TooManyTokens { tokens: prompt.len(), limit: 0 };
                return Box::pin(std::future::ready(Err(error)));
            }
            // The last first document is that of the question.
            let asked = prompt.rsplit_once("\n[1] ").map_or(prompt, |(_, rest)| rest);
            let asked = format!("[1] {}", asked.trim_end_matches("\nNEEDED:"));
            let mut request = Request::default();
            request.messages.push(Message::User(vec![Part::Text(asked)]));
            let double = CitingDouble { is_noisy: false, seed: 1 };
            let reply = block_on(double.complete(&request, &mut ignore_deltas)).map(|reply| reply.text);
            let sets = reply.map(|text| text.trim_start_matches("NEEDED:").to_owned());
            Box::pin(std::future::ready(sets))
        }
    }

    /// A model without a chat template has a row of introspection: it continues the question.
    #[test]
    fn a_model_that_continues_texts_is_asked_which_documents_it_needs() {
        let suite = PropagationSuite::new(1, Size { questions: 3, pairs: 3 }).unwrap();
        let model = CopyModel { copying: CopyingErrors::Exact, seed: 1 };
        let continuation = CitingContinuation { prompts: Default::default() };
        let run = |tokens| {
            let chat = ContinuedIntrospection { model: &continuation, tokens };
            let models = Models { chat: Some(&chat), ..Models::scoring(&model, &count_lines) };
            let results = suite.run_model(models, "a model", &mut || false).unwrap().unwrap();
            let rows = results.labels.into_iter().filter(|row| row.method == LabelMethod::Introspection);
            rows.map(|row| (row.set.name(), row.figures)).collect::<Vec<_>>()
        };
        let rows = run(16);
        let names: Vec<(&str, usize)> = rows.iter().map(|(set, figures)| (*set, figures.exact.of)).collect();
        // The first key-value question is the example.
        let expected = [
            ("key-value/14", 2),
            ("key-value/unseen", 2),
            ("news/perfect", 15),
            ("news/tf-idf", 15),
            ("agents/given", 40),
        ];
        assert_eq!(names, expected);
        // On the agents, the double that cites is almost always right.
        assert!(rows.last().unwrap().1.exact.hits >= 36, "{rows:?}");
        let prompts = continuation.prompts.lock().unwrap().clone();
        assert!(prompts.iter().all(|prompt| prompt.ends_with("\nNEEDED:")), "{prompts:?}");
        // Two questions of each key-value set come after an example.
        let with_example = prompts.iter().filter(|prompt| prompt.matches("\nQuestion: ").count() == 2);
        assert_eq!(with_example.count(), 4);
        // A model that cannot read its question has the naive label, and does not end the run.
        let unread = run(0);
        assert!(unread.iter().all(|(_, figures)| figures.improvement.hits == 0), "{unread:?}");
    }

    /// A double in the place of the model: every table has its rows, and the copying double finds the labels.
    #[test]
    fn a_run_with_a_model_has_every_row() {
        let suite = PropagationSuite::new(1, Size { questions: 4, pairs: 3 }).unwrap();
        let model = CopyModel { copying: CopyingErrors::Exact, seed: 1 };
        let answers = FirstDocument;
        let models =
            Models { states: Some(&model), answers: Some(&answers), ..Models::scoring(&model, &count_lines) };
        let mut steps = 0;
        let results = suite.run_model(models, "a model", &mut || {
            steps += 1;
            false
        });
        let results = results.unwrap().unwrap();
        assert_eq!(steps, suite.model_steps(models));
        assert_eq!(results.labels.len(), plan(models).filter(|(set, _)| suite.has(*set)).count());
        let all = std::slice::from_ref(&results);
        let text = model_tables(all);
        for expected in [
            "a model",
            "key-value/unseen",
            "news/perfect",
            "news/tf-idf",
            "agents/given",
            "agents/generated",
            "(Table 1)",
            "(Table 4)",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        assert!(model_page(all, &serde_json::json!({})).contains("key-value/unseen"));
        let lines = model_lines(all);
        let count = |kind: &str| lines.iter().filter(|line| line["type"] == kind).count();
        assert_eq!(["alignment", "attack", "endorsement"].map(count), [1, ATTACKERS.len(), 1]);
        assert_eq!(lines.len(), results.labels.len() + results.grids.len() + 2 + ATTACKERS.len());
        // The trusted text comes first and is the answer, which an attacker changes by no document behind it; the
        // retriever returns fewer of the trusted texts, the more attackers there are.
        assert!(text.contains("with attacker documents"), "{text}");
        let improved = |of: fn(&Degradation) -> Rate| results.degradation.iter().map(of).collect::<Vec<_>>();
        assert_eq!(improved(|row| row.in_context), [Rate { hits: 20, of: 20 }; ATTACKERS.len()]);
        let in_retrieval: Vec<usize> =
            improved(|row| row.in_retrieval).iter().map(|rate| rate.hits).collect();
        assert!(in_retrieval.is_sorted_by(|more, fewer| more >= fewer), "{in_retrieval:?}");
        assert_eq!(results.endorsement, [Rate { hits: 0, of: 20 }, Rate { hits: 20, of: 20 }]);
        // Every second answer needs the trusted text alone, and all of them are the text that comes first.
        let of_generated = |method| {
            let is = |row: &&LabelRow| row.set.name() == "agents/generated" && row.method == method;
            results.labels.iter().find(is).unwrap().figures.exact
        };
        assert_eq!(of_generated(LabelMethod::HittingSet), Rate { hits: 20, of: 40 });
        let silent = Models { states: None, answers: None, ..models };
        let results = suite.run_model(silent, "a model", &mut || false).unwrap().unwrap();
        let text = model_tables(std::slice::from_ref(&results));
        assert!(results.alignment.is_none() && !text.contains("(Table 4)"));
        assert!(results.degradation.is_empty() && text.contains("quoted: before"), "{text}");
        assert!(plan(silent).all(|(_, method)| method != LabelMethod::Knn));
        assert_eq!(suite.run_model(models, "a model", &mut || true).unwrap(), None);
    }

    /// The copying double, which keeps the number of texts of each batch.
    struct BatchedScores(CopyModel, std::sync::Mutex<Vec<usize>>);

    impl ScoringModel for BatchedScores {
        fn score_batch<'a>(
            &'a self,
            requests: &'a [ScoreRequest<'a>],
        ) -> BoxFuture<'a, Result<Vec<Score>, Error>> {
            self.1.lock().unwrap().push(requests.len());
            self.0.score_batch(requests)
        }
    }

    /// The batch of the models reaches the search, which finds the same labels with it: the double is monotone.
    #[test]
    fn a_search_scores_in_batches() {
        let suite = PropagationSuite::new(1, Size { questions: 2, pairs: 3 }).unwrap();
        let question = &suite.questions_of(DataSet::KeyValue)[0];
        let run = |batch| {
            let double = CopyModel { copying: CopyingErrors::Exact, seed: 1 };
            let model = BatchedScores(double, std::sync::Mutex::default());
            let models = Models { batch, ..Models::scoring(&model, &count_lines) };
            let outcome = apply(LabelMethod::HittingSet, models, FIXED, question, &question.answer, None);
            let sizes = model.1.into_inner().unwrap();
            (outcome.unwrap(), sizes.into_iter().max())
        };
        let ((alone, largest_alone), (batched, largest)) = (run(1), run(4));
        assert_eq!(largest_alone, Some(1));
        // The search asks for as many as it needs next, up to the batch.
        assert!(largest.is_some_and(|size| (2..=4).contains(&size)), "{largest:?}");
        assert_eq!((alone.is_exact, batched.is_exact), (true, true));
        assert!(batched.cost.calls >= alone.cost.calls, "{batched:?} {alone:?}");
    }

    #[test]
    fn a_model_is_tuned_on_questions_that_are_not_reported() {
        let suite = PropagationSuite::new(1, Size { questions: 4, pairs: 3 }).unwrap();
        let model = CopyModel { copying: CopyingErrors::Exact, seed: 1 };
        for states in [None, Some(&model as _)] {
            let models = Models { states, ..Models::scoring(&model, &count_lines) };
            let mut steps = 0;
            let mut step = || {
                steps += 1;
                false
            };
            let tuned = suite.tune_model(models, &mut step).unwrap().unwrap();
            assert_eq!(steps, suite.tuning_steps(states.is_some()));
            let sets: Vec<_> = tuned.iter().map(|tuned| (tuned.set.name(), tuned.questions)).collect();
            let expected =
                [("key-value/14", 2), ("key-value/unseen", 2), ("news/perfect", 5), ("news/tf-idf", 5)];
            assert_eq!(sets, expected);
            for tuned in &tuned {
                let of_prompt = tuned.grid.iter().filter(|point| point.method == LabelMethod::HittingSet);
                let best = of_prompt.clone().map(|point| point.exact).fold(0.0, f64::max);
                let chosen = of_prompt.clone().find(|point| point.lambda == tuned.parameters.lambda).unwrap();
                assert_eq!(chosen.exact, best, "{tuned:?}");
            }
            assert_eq!(suite.tune_model(models, &mut || true).unwrap(), None);
        }
        let reported: Vec<&str> = suite.questions().map(|(_, question)| question.text.as_str()).collect();
        let (key_value, news) = &suite.tuning;
        let tuning = key_value.iter().chain(news).chain(&suite.unseen_tuning).chain(&suite.tf_idf_tuning);
        for question in tuning {
            let is_reported = suite.questions().any(|(_, other)| other == question);
            assert!(!is_reported, "{}: {reported:?}", question.text);
        }
    }
}
