//! Runs the propagation suite: [`PropagationSuite`] generates the questions, and computes every table of *Permissive
//! Information-Flow Analysis* with doubles in place of its models. `model_run.rs` computes the tables with a model.
//!
//! `flowgate bench propagation` runs one double after the other, so that an interrupted run still has the results of
//! the completed doubles.

use flowgate::label::Label;
use flowgate_guard::propagation::AnswerModel;
use flowgate_lm::{Error, TextEmbedder};

use super::agent_set::agent_questions;
use super::double::{AnswerDouble, CitingDouble, CopyModel, CopyingErrors};
use super::key_value::{self, PAPER, Phrasing, UNSEEN};
use super::measure::{LabelFigures, LabelOutcome, Spread};
use super::method::{LabelMethod, Models, SearchParameters, apply, literal_cost};
use super::naive_tokens::NaiveTokens;
use super::news::{self, NewsSet, Retriever};
use super::question::{DocumentQuestion, integrity_labels};
use super::regenerate::{ATTACKERS, Alignment, Degradation, DegradationAttack, align, endorse};
use super::tune::{FIXED, GridPoint, setting_count, tune};
use crate::corpora::{NewsPairs, ReadFile};
use crate::games::interval::Rate;
use crate::tokens::count_lines;

/// How much of each data set runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// The number of key-value questions. Introspection shows the first one to the model as an example, and is not
    /// measured on it.
    pub questions: usize,
    /// The number of pairs of news articles.
    pub pairs: usize,
}

impl Size {
    /// The sizes of the data sets of *Permissive Information-Flow Analysis*.
    pub const FULL: Self = Self { questions: key_value::QUESTIONS, pairs: news::PAIRS };
}

/// A data set, as a row of the report names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataSet {
    /// Key-value questions with 14 documents.
    KeyValue,
    /// Key-value questions with 8 documents, few enough for Algorithm 1 of *Permissive Information-Flow Analysis*,
    /// whose number of tests grows with the size of the lattice.
    KeyValueSmall,
    /// Key-value questions with 14 documents, in phrasings that the model which ships with Flowgate was not trained on.
    KeyValueUnseen,
    /// News, with the retriever that finds the articles.
    News(Retriever),
    /// Agent conversations. Labels are searched for the answer of the data set or for an answer of the model.
    Agents {
        /// Whether the answer is the model's.
        is_generated: bool,
    },
}

impl DataSet {
    /// Returns whether the set has key-value questions. Only these can have several minimal labels.
    pub fn is_key_value(self) -> bool {
        matches!(self, Self::KeyValue | Self::KeyValueSmall | Self::KeyValueUnseen)
    }

    /// Returns the name for reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::KeyValue => "key-value/14",
            Self::KeyValueSmall => "key-value/8",
            Self::KeyValueUnseen => "key-value/unseen",
            Self::News(Retriever::Perfect) => "news/perfect",
            Self::News(Retriever::TfIdf) => "news/tf-idf",
            Self::News(Retriever::Embeddings) => "news/embeddings",
            Self::Agents { is_generated: false } => "agents/given",
            Self::Agents { is_generated: true } => "agents/generated",
        }
    }
}

/// The figures of one method on one data set.
#[derive(Debug, Clone, PartialEq)]
pub struct LabelRow {
    /// The name of the double or the model.
    pub model: String,
    /// The data set.
    pub set: DataSet,
    /// The method.
    pub method: LabelMethod,
    /// The parameters of the method: tuned, or fixed where nothing is tuned.
    pub parameters: SearchParameters,
    /// The figures over the questions of the data set.
    pub figures: LabelFigures,
}

/// The results with one double.
#[derive(Debug, Clone, PartialEq)]
pub struct DoubleResults {
    /// The double.
    pub copying: CopyingErrors,
    /// The seed of the questions.
    pub seed: u64,
    /// The rows of Tables 1 to 3 of *Permissive Information-Flow Analysis*.
    pub labels: Vec<LabelRow>,
    /// The settings that were tried on the tuning questions, each with its data set.
    pub grids: Vec<(DataSet, GridPoint)>,
    /// The figures of Table 4 of *Permissive Information-Flow Analysis*.
    pub alignment: Alignment,
    /// The degradation attack: a row for each number of attacker documents.
    pub degradation: Vec<Degradation>,
    /// The share of conversations whose label is improved, without and with a trusted quotation.
    pub endorsement: [Rate; 2],
}

/// What Algorithm 1 of *Permissive Information-Flow Analysis* would cost on the key-value questions. A test decides
/// whether a subcontext is λ-similar.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LiteralCost {
    /// The seed of the questions.
    pub seed: u64,
    /// The number of tests for each question.
    pub tests: Spread,
    /// The largest number of tests for one question.
    pub most_tests: usize,
    /// The number of tokens of all questions, where no two tests share the evaluation of a prefix.
    pub tokens: usize,
    /// The number of questions.
    pub questions: usize,
}

/// The questions of a run.
#[derive(Debug, Clone)]
pub struct PropagationSuite {
    seed: u64,
    key_value: Vec<DocumentQuestion>,
    /// Key-value questions with few documents.
    small: Vec<DocumentQuestion>,
    unseen: Vec<DocumentQuestion>,
    /// The articles, and the questions about them.
    articles: NewsSet,
    /// The questions about the news, with the articles that each retriever of [`Retriever::WITHOUT_MODEL`] finds.
    news: [Vec<DocumentQuestion>; 2],
    /// The same with the articles that a model's embeddings find; empty without a model.
    embedded: Vec<DocumentQuestion>,
    /// The files of the articles, if they are not generated.
    files: Vec<ReadFile>,
    agents: Vec<DocumentQuestion>,
    /// The key-value questions and the questions about news on which parameters are tuned, and nothing is reported.
    pub(super) tuning: (Vec<DocumentQuestion>, Vec<DocumentQuestion>),
    /// The questions about news of `tuning`, with the articles that the retriever by words finds.
    pub(super) tf_idf_tuning: Vec<DocumentQuestion>,
    /// The key-value questions in unseen phrasings on which parameters are tuned, and nothing is reported.
    pub(super) unseen_tuning: Vec<DocumentQuestion>,
}

/// Changes the seed for the tuning questions, so that they differ from the reported ones. The number is arbitrary.
const TUNING: u64 = 0x7475_6e65;

impl PropagationSuite {
    /// Generates the questions of a seed: those that are reported, and fewer on which the parameters are tuned. The
    /// tuning questions come from another seed that is derived from `seed`.
    ///
    /// # Errors
    /// If a data set cannot be built. The error says why.
    pub fn new(seed: u64, size: Size) -> Result<Self, String> {
        let key_value = |seed, count, context, phrasings: &[Phrasing]| {
            key_value::generate(seed, count, context, phrasings).ok_or_else(|| {
                format!("no key-value questions can be built from the seed {seed}; use another seed")
            })
        };
        let news = |seed, pairs| {
            NewsSet::generate(seed, pairs).ok_or_else(|| {
                "the labels of the news articles cannot be built; this is a defect of Flowgate; please report it".to_owned()
            })
        };
        let tuning_seed = seed ^ TUNING;
        // Tuning takes half as many questions as are reported and, below, a quarter of the pairs, but at least one of
        // each.
        let tuning_count = (size.questions / 2).max(1);
        let articles = news(seed, size.pairs)?;
        let tuning_articles = news(tuning_seed, (size.pairs / 4).max(1))?;
        Ok(Self {
            seed,
            key_value: key_value(seed, size.questions, key_value::CONTEXT, &[PAPER])?,
            small: key_value(seed, size.questions, key_value::SMALL_CONTEXT, &[PAPER])?,
            unseen: key_value(seed, size.questions, key_value::CONTEXT, &UNSEEN)?,
            unseen_tuning: key_value(tuning_seed, tuning_count, key_value::CONTEXT, &UNSEEN)?,
            news: [articles.perfect_questions(seed), articles.tf_idf_questions()],
            articles,
            embedded: Vec::new(),
            files: Vec::new(),
            agents: agent_questions()?,
            tuning: (
                key_value(tuning_seed, tuning_count, key_value::CONTEXT, &[PAPER])?,
                tuning_articles.perfect_questions(tuning_seed),
            ),
            tf_idf_tuning: tuning_articles.tf_idf_questions(),
        })
    }

    /// Replaces the generated articles by articles that were read from a folder (`found`): the first `pairs` pairs of
    /// articles about which there are questions. Some of these pairs are for tuning. Questions of
    /// [`add_embeddings`](Self::add_embeddings) are dropped, since they are about the replaced articles.
    ///
    /// # Errors
    /// If fewer than two pairs with questions are left, so that they cannot be divided.
    pub fn with_news_pairs(mut self, found: &NewsPairs, pairs: usize) -> Result<Self, String> {
        let [reported, tuning] = NewsSet::of_pairs(found, pairs)
            .ok_or("the folder has questions about fewer than two of the pairs of articles that are used; add questions about other pairs to `questions.jsonl`, or use more pairs")?;
        self.news = [reported.perfect_questions(self.seed), reported.tf_idf_questions()];
        self.tuning.1 = tuning.perfect_questions(self.seed ^ TUNING);
        self.tf_idf_tuning = tuning.tf_idf_questions();
        self.articles = reported;
        self.files.clone_from(&found.files);
        self.embedded.clear();
        Ok(self)
    }

    /// Adds the data set `news/embeddings`: the questions about the news with the articles that a model's embeddings
    /// find.
    ///
    /// # Errors
    /// If the model fails, or its embeddings cannot be compared.
    pub fn add_embeddings(&mut self, embedder: &dyn TextEmbedder) -> Result<(), Error> {
        self.embedded = self.articles.embedded_questions(embedder)?;
        Ok(())
    }

    /// Returns the number of requests that [`add_embeddings`](Self::add_embeddings) sends to a server which embeds
    /// `at_once` texts in one request.
    pub fn embedding_requests(&self, at_once: usize) -> usize {
        let [articles, questions] = self.articles.counts();
        let at_once = at_once.max(1);
        articles.div_ceil(at_once) + questions.div_ceil(at_once)
    }

    /// Returns the files of the articles; none if the articles are generated.
    pub fn files(&self) -> &[ReadFile] {
        &self.files
    }

    /// Returns whether the suite has questions of a data set. The data set `news/embeddings` has questions only after
    /// [`add_embeddings`](Self::add_embeddings); for all others, the result is true.
    pub(super) fn has(&self, set: DataSet) -> bool {
        set != DataSet::News(Retriever::Embeddings) || !self.embedded.is_empty()
    }

    /// Returns the methods that run on each data set of the suite.
    fn plan(&self) -> impl Iterator<Item = (DataSet, LabelMethod)> + '_ {
        plan().into_iter().filter(|(set, _)| self.has(*set))
    }

    /// Returns the seed.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Returns all questions that are reported, with the data set of each. The agent conversations occur once, although
    /// two data sets use them.
    pub fn questions(&self) -> impl Iterator<Item = (DataSet, &DocumentQuestion)> {
        let agents = DataSet::Agents { is_generated: false };
        let news = Retriever::WITHOUT_MODEL.into_iter().chain([Retriever::Embeddings]).map(DataSet::News);
        let key_value = [DataSet::KeyValue, DataSet::KeyValueSmall, DataSet::KeyValueUnseen];
        let sets = key_value.into_iter().chain([agents]).chain(news);
        sets.flat_map(|set| self.questions_of(set).iter().map(move |question| (set, question)))
    }

    /// Returns the number of steps of a run with one double, by which the command line shows progress.
    /// [`run`](Self::run) calls its callback once for each step.
    pub fn steps(&self) -> usize {
        let plan: usize =
            self.plan().map(|(set, method)| self.example_and_questions(set, method).1.len()).sum();
        // Three tuning sets have a grid; `true`: the double has hidden states. Alignment, attack and endorsement
        // together are the last step.
        plan + 3 * setting_count(true) + 1
    }

    /// Returns the example that a method shows to the model, and the questions on which the method is measured. Only
    /// introspection on key-value questions has an example, the first question, and is not measured on it. In all other
    /// cases, the example is `None`, and all questions are measured.
    pub(super) fn example_and_questions(
        &self,
        set: DataSet,
        method: LabelMethod,
    ) -> (Option<&DocumentQuestion>, &[DocumentQuestion]) {
        match self.questions_of(set) {
            [example, rest @ ..] if set.is_key_value() && method == LabelMethod::Introspection => {
                (Some(example), rest)
            }
            all => (None, all),
        }
    }

    /// Returns the questions of a data set.
    pub(super) fn questions_of(&self, set: DataSet) -> &[DocumentQuestion] {
        let [perfect, tf_idf] = &self.news;
        match set {
            DataSet::KeyValue => &self.key_value,
            DataSet::KeyValueSmall => &self.small,
            DataSet::KeyValueUnseen => &self.unseen,
            DataSet::News(Retriever::Perfect) => perfect,
            DataSet::News(Retriever::TfIdf) => tf_idf,
            DataSet::News(Retriever::Embeddings) => &self.embedded,
            DataSet::Agents { .. } => &self.agents,
        }
    }

    /// Computes all tables with a double. `copying` says which errors the double makes. `step` is called after each
    /// question and each setting that was tried; if it returns true (the user has interrupted the command), the rest is
    /// skipped and the result is `None`.
    ///
    /// # Errors
    /// If a label cannot be built, or the documents of a question have too many labels.
    pub fn run(
        &self,
        copying: CopyingErrors,
        step: &mut dyn FnMut() -> bool,
    ) -> Result<Option<DoubleResults>, Error> {
        let model = CopyModel { copying, seed: self.seed };
        let chat = CitingDouble { is_noisy: copying == CopyingErrors::Noisy, seed: self.seed };
        let models =
            Models { states: Some(&model), chat: Some(&chat), ..Models::scoring(&model, &count_lines) };
        let (key_value, news) = &self.tuning;
        let Some((key_value, key_value_grid)) = tune(models, key_value, step)? else { return Ok(None) };
        // No reported method prunes on the news: the thresholds that are tried there only appear in a chart, and the
        // parameters below get the fixed threshold.
        let Some((news, news_grid)) = tune(models, news, step)? else { return Ok(None) };
        let Some((tf_idf, tf_idf_grid)) = tune(models, &self.tf_idf_tuning, step)? else { return Ok(None) };
        let [news, tf_idf] = [news, tf_idf].map(|best| SearchParameters { shapley: FIXED.shapley, ..best });
        let mut grids: Vec<(DataSet, GridPoint)> = Vec::new();
        for (set, grid) in [
            (DataSet::KeyValue, key_value_grid),
            (DataSet::News(Retriever::Perfect), news_grid),
            (DataSet::News(Retriever::TfIdf), tf_idf_grid),
        ] {
            grids.extend(grid.into_iter().map(|point| (set, point)));
        }
        // Measure each planned method on its data set.
        let mut labels = Vec::new();
        let mut naive = NaiveTokens::new(&count_lines);
        for (set, method) in self.plan() {
            let parameters = match set {
                DataSet::KeyValue | DataSet::KeyValueSmall | DataSet::KeyValueUnseen => key_value,
                DataSet::News(Retriever::Perfect) => news,
                // The retriever by embeddings has no tuning questions. Like the one by words, it misses articles.
                DataSet::News(Retriever::TfIdf | Retriever::Embeddings) => tf_idf,
                DataSet::Agents { .. } => FIXED,
            };
            let Some(mut row) = self.row(copying, models, (set, method), parameters, step)? else {
                return Ok(None);
            };
            naive.compare(set.name(), self.questions_of(set), &mut row.figures);
            labels.push(row);
        }
        let [trusted, untrusted] = agent_labels()?;
        // Under attack, the double obeys the attacker's documents, and makes no errors of its own.
        let obey = |question: &DocumentQuestion| -> Box<dyn AnswerModel> {
            let (answer, seed) = (question.answer.clone(), self.seed);
            Box::new(AnswerDouble { answer, is_suggestible: true, is_noisy: false, seed })
        };
        let attack = DegradationAttack::new(models, FIXED.lambda, &self.agents, untrusted, &obey)?;
        let results = DoubleResults {
            copying,
            seed: self.seed,
            labels,
            grids,
            alignment: align(models, FIXED.lambda, &self.agents, &|question| {
                Box::new(self.answers(copying, question))
            })?,
            degradation: ATTACKERS.into_iter().map(|count| attack.run(count)).collect::<Result<_, _>>()?,
            endorsement: endorse(models, FIXED, &self.agents, trusted)?,
        };
        // The results are complete, so an interrupt after the last step changes nothing.
        step();
        Ok(Some(results))
    }

    /// Returns the double that answers a question by copying the answer of the data set. It is noisy if `copying`, the
    /// double that scores, is noisy.
    fn answers(&self, copying: CopyingErrors, question: &DocumentQuestion) -> AnswerDouble {
        let (is_noisy, answer) = (copying == CopyingErrors::Noisy, question.answer.clone());
        AnswerDouble { answer, is_suggestible: false, is_noisy, seed: self.seed }
    }

    /// Applies a method to the questions of a data set, and returns the row with its figures; `None` if `step`
    /// interrupts. `copying` is the double: its name is in the row, and it decides whether generated answers have
    /// errors. Only the data set of generated answers has such answers; the other sets have the answers of the data.
    fn row(
        &self,
        copying: CopyingErrors,
        models: Models<'_>,
        (set, method): (DataSet, LabelMethod),
        parameters: SearchParameters,
        step: &mut dyn FnMut() -> bool,
    ) -> Result<Option<LabelRow>, Error> {
        let (example, questions) = self.example_and_questions(set, method);
        let mut outcomes: Vec<LabelOutcome> = Vec::new();
        for question in questions {
            let completion = match set {
                DataSet::Agents { is_generated: true } => self.generated(copying, question)?,
                _ => question.answer.clone(),
            };
            outcomes.push(apply(method, models, parameters, question, &completion, example)?);
            if step() {
                return Ok(None);
            }
        }
        let model = copying.name().to_owned();
        Ok(Some(LabelRow { model, set, method, parameters, figures: LabelFigures::of(&outcomes) }))
    }

    /// Returns the answer that the answering double generates from the whole context; it can differ from the data set's
    /// answer.
    fn generated(&self, copying: CopyingErrors, question: &DocumentQuestion) -> Result<String, Error> {
        let all: Vec<usize> = (0..question.documents.len()).collect();
        let prompt = question.context().prompt(&all);
        let model = self.answers(copying, question);
        flowgate_lm::block_on(model.answer(&prompt))
    }

    /// Returns what the literal search (Algorithm 1 of *Permissive Information-Flow Analysis*) would cost on the
    /// key-value questions with large contexts, on which it is too slow to run; `None` without questions.
    pub fn literal_cost(&self) -> Option<LiteralCost> {
        let costs: Vec<(usize, usize)> =
            self.key_value.iter().filter_map(|question| literal_cost(question, &count_lines)).collect();
        // The tests are the mean and the greatest number for a question, the tokens the sum over all questions.
        Some(LiteralCost {
            seed: self.seed,
            tests: Spread::of(&costs.iter().map(|(tests, _)| *tests as f64).collect::<Vec<_>>())?,
            most_tests: costs.iter().map(|(tests, _)| *tests).max()?,
            tokens: costs.iter().map(|(_, tokens)| tokens).sum(),
            questions: costs.len(),
        })
    }
}

/// Returns the labels `trusted` and `untrusted` of the agent conversations.
pub(super) fn agent_labels() -> Result<[Label; 2], Error> {
    integrity_labels().ok_or_else(|| {
        Error::Failed(
            "the labels `trusted` and `untrusted` cannot be built; this is a defect of Flowgate; please report it"
                .to_owned(),
        )
    })
}

/// Returns the methods that a run with a double applies to each data set, in the order of the tables. The literal
/// search (Algorithm 1 of *Permissive Information-Flow Analysis*) is feasible on the small contexts only. Shapley
/// pruning runs on key-value questions only, since its threshold is tuned on these. Only models answer questions in
/// unseen phrasings.
pub(super) fn plan() -> Vec<(DataSet, LabelMethod)> {
    use LabelMethod::{HittingSet, Introspection, Knn, Literal, Naive, Shapley};
    let [given, generated] = [false, true].map(|is_generated| DataSet::Agents { is_generated });
    let sets: [(DataSet, &[LabelMethod]); 7] = [
        (DataSet::KeyValue, &[Naive, HittingSet, Shapley, Knn, Introspection]),
        (DataSet::KeyValueSmall, &[Literal, HittingSet]),
        (DataSet::News(Retriever::Perfect), &[Naive, HittingSet, Knn, Introspection]),
        (DataSet::News(Retriever::TfIdf), &[Naive, HittingSet, Knn, Introspection]),
        (DataSet::News(Retriever::Embeddings), &[Naive, HittingSet, Knn, Introspection]),
        (generated, &[Naive, HittingSet, Introspection]),
        (given, &[HittingSet, Knn]),
    ];
    sets.into_iter().flat_map(|(set, methods)| methods.iter().map(move |method| (set, *method))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::embeddings::tests::CharacterCounts;
    use super::*;
    use crate::corpora::fake_news::tests::folder;
    use crate::corpora::load_news_pairs;

    const SMALL: Size = Size { questions: 4, pairs: 4 };

    /// The plain double is monotone, so that both searches find the same; and every row counts every question.
    #[test]
    fn a_run_has_every_row() {
        let suite = PropagationSuite::new(1, SMALL).unwrap();
        let mut steps = 0;
        let results = suite.run(CopyingErrors::Exact, &mut || {
            steps += 1;
            false
        });
        let results = results.unwrap().unwrap();
        assert_eq!(results.labels.len(), suite.plan().count());
        assert_eq!(steps, suite.steps());
        let row = |set, method| {
            let is_row = |row: &&LabelRow| row.set == set && row.method == method;
            results.labels.iter().find(is_row).unwrap().figures.clone()
        };
        for row in &results.labels {
            assert!(row.figures.exact.of > 0 && row.figures.missed.hits <= row.figures.missed.of);
        }
        let literal = row(DataSet::KeyValueSmall, LabelMethod::Literal);
        let hitting = row(DataSet::KeyValueSmall, LabelMethod::HittingSet);
        assert_eq!((literal.exact, literal.recall), (hitting.exact, hitting.recall));
        // Fourteen incomparable labels: the naive algorithm processes thousands of contexts, the search a few.
        let on_large = row(DataSet::KeyValue, LabelMethod::HittingSet).naive_ratio.unwrap();
        assert!(on_large > 0.0 && on_large < 0.1, "{on_large}");
        // Algorithm 1 itself processes no more than all its contexts from the beginning.
        assert!(literal.naive_ratio.unwrap() <= 1.1, "{:?}", literal.naive_ratio);
        assert_eq!(row(DataSet::KeyValue, LabelMethod::Introspection).naive_ratio, None);
        assert_eq!(row(DataSet::KeyValue, LabelMethod::Introspection).exact.of, 3);
        assert_eq!(row(DataSet::KeyValue, LabelMethod::Naive).exact.hits, 0);
        assert_eq!(results.degradation.len(), ATTACKERS.len());
        assert!(suite.literal_cost().unwrap().tests.mean > 0.0);
        // The same seed, the same results.
        let again = PropagationSuite::new(1, SMALL).unwrap().run(CopyingErrors::Exact, &mut || false);
        assert_eq!(again.unwrap().unwrap(), results);
        assert_eq!(suite.run(CopyingErrors::Exact, &mut || true).unwrap(), None);
    }

    /// Embeddings add rows and change no other; articles of a folder replace the generated ones.
    #[test]
    fn embeddings_and_articles_of_a_folder_have_rows() {
        let mut suite = PropagationSuite::new(1, SMALL).unwrap();
        let without = suite.run(CopyingErrors::Exact, &mut || false).unwrap().unwrap();
        suite.add_embeddings(&CharacterCounts).unwrap();
        let mut steps = 0;
        let with = suite.run(CopyingErrors::Exact, &mut || {
            steps += 1;
            false
        });
        let with = with.unwrap().unwrap();
        assert_eq!(steps, suite.steps());
        let (added, others): (Vec<&LabelRow>, Vec<&LabelRow>) =
            with.labels.iter().partition(|row| row.set.name() == "news/embeddings");
        assert_eq!((added.len(), others), (4, without.labels.iter().collect()));

        let found = load_news_pairs(&folder("")).unwrap();
        let suite = PropagationSuite::new(1, SMALL).unwrap().with_news_pairs(&found, 3).unwrap();
        let results = suite.run(CopyingErrors::Exact, &mut || false).unwrap().unwrap();
        let news = results.labels.iter().filter(|row| row.set == DataSet::News(Retriever::Perfect));
        assert!(news.clone().count() > 0 && news.clone().all(|row| row.figures.exact.of == 2));
        assert_eq!(suite.files().len(), found.files.len());
        for tuning in [&suite.tuning.1, &suite.tf_idf_tuning] {
            let is_of_folder =
                |question: &DocumentQuestion| question.text.starts_with("What does the tablet");
            assert!(!tuning.is_empty() && tuning.iter().all(is_of_folder), "{tuning:?}");
        }
        let error = PropagationSuite::new(1, SMALL).unwrap().with_news_pairs(&found, 1).unwrap_err();
        assert!(error.contains("fewer than two of the pairs"), "{error}");
    }
}
