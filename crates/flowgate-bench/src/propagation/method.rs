//! Names the methods that find the labels of an answer ([`LabelMethod`]), and applies them: the suite calls [`apply`]
//! for each question and method. `flowgate_guard::propagation` implements the searches.

use std::fmt;

use flowgate::label::span::{SpanElement, minimal};
use flowgate_guard::propagation::introspection::{
    AnsweredQuestion, IntrospectionExample, introspection_request, parse_introspection,
};
use flowgate_guard::propagation::knn::{Datastore, KnnAnswer, KnnParameters, penultimate_layer};
use flowgate_guard::propagation::shapley::ShapleyValues;
use flowgate_guard::propagation::{
    AnswerModel, ContextScorer, Cost, HittingSet, NegativePerplexity, PropagationOptions, ScoringTask,
    SearchKind, ShapleyPruning, Utility, find_labels, is_similar, run_search,
};
use flowgate_lm::{ChatModel, Error, HiddenStateModel, ScoringModel, block_on, ignore_deltas};

use super::measure::LabelOutcome;
use super::question::DocumentQuestion;

/// Returns the error for a question whose documents have more labels than a label span can have.
fn too_many_labels() -> Error {
    Error::Failed(
        "the documents of a question together have more than 128 labels; use smaller contexts".to_owned(),
    )
}

/// A method that finds the labels of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LabelMethod {
    /// The join of all labels.
    Naive,
    /// The hitting-set search, with the utility that the answer has after a prompt with the documents of a label.
    HittingSet,
    /// Algorithm 1 of *Permissive Information-Flow Analysis*, with the same utility.
    Literal,
    /// The hitting-set search with the same utility, where labels with a low Shapley value are pruned.
    Shapley,
    /// The hitting-set search, with the utility that the answer has under the kNN-LM with the documents of a label.
    Knn,
    /// The labels of the documents that the model cites when it is asked which ones the answer needs.
    Introspection,
}

impl LabelMethod {
    /// Returns the name for reports. In a name, `prompt` means that the documents are put into a prompt, and a part
    /// after the slash names the search.
    pub fn name(self) -> &'static str {
        match self {
            Self::Naive => "naive",
            Self::HittingSet => "prompt",
            Self::Literal => "prompt/literal",
            Self::Shapley => "prompt/shapley",
            Self::Knn => "knn-lm",
            Self::Introspection => "introspection",
        }
    }
}

/// The models that methods use. A method whose model is `None` fails.
#[derive(Clone, Copy)]
pub struct Models<'m> {
    /// The model that scores completions.
    pub scores: &'m dyn ScoringModel,
    /// The model with hidden states, for the kNN-LM.
    pub states: Option<&'m dyn HiddenStateModel>,
    /// The model that answers chats, for introspection.
    pub chat: Option<&'m dyn ChatModel>,
    /// The model that answers questions, for answers that the data set does not give.
    pub answers: Option<&'m dyn AnswerModel>,
    /// Counts the tokens of a text.
    pub count: &'m (dyn Fn(&str) -> usize + Send + Sync),
    /// The maximum number of subcontexts that a search lets the model score at once. With a number above 1, a search
    /// can score subcontexts that it would skip if it scored them one by one.
    pub batch: usize,
}

impl<'m> Models<'m> {
    /// Returns models of which only `scores` is given, which scores one subcontext at a time. `count` counts the tokens
    /// of a text.
    pub fn scoring(scores: &'m dyn ScoringModel, count: &'m (dyn Fn(&str) -> usize + Send + Sync)) -> Self {
        Self { scores, states: None, chat: None, answers: None, count, batch: 1 }
    }
}

impl fmt::Debug for Models<'_> {
    /// The models have no useful text, so only the name of the struct is written.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Models").finish_non_exhaustive()
    }
}

/// The parameters of the methods, which are tuned on questions that are not reported. λ is the loss of utility that a
/// search tolerates.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SearchParameters {
    /// λ of the searches over the prompt.
    pub lambda: f64,
    /// λ of the search over the kNN-LM.
    pub knn_lambda: f64,
    /// λ of the search over the prompt with Shapley pruning.
    pub pruned_lambda: f64,
    /// The Shapley value below which a label is pruned.
    pub shapley: f64,
}

impl SearchParameters {
    /// Returns λ of a method; `None` for a method without a search.
    pub fn lambda_of(&self, method: LabelMethod) -> Option<f64> {
        match method {
            LabelMethod::Naive | LabelMethod::Introspection => None,
            LabelMethod::Knn => Some(self.knn_lambda),
            LabelMethod::Shapley => Some(self.pruned_lambda),
            LabelMethod::HittingSet | LabelMethod::Literal => Some(self.lambda),
        }
    }
}

/// The maximum number of subcontexts that one search scores, with those for Shapley values.
pub const BUDGET: usize = 400;
/// The number of random permutations from which the Shapley values of more than ten labels are estimated.
pub const PERMUTATIONS: usize = 12;

/// Finds the labels of `completion`, an answer to a question, and compares them with the truth. `example` is a question
/// that shows the model of introspection how to cite; the other methods ignore it.
///
/// # Errors
/// If a model fails, the method needs a model that is `None`, or the question has more than 128 labels.
pub fn apply(
    method: LabelMethod,
    models: Models<'_>,
    parameters: SearchParameters,
    question: &DocumentQuestion,
    completion: &str,
    example: Option<&DocumentQuestion>,
) -> Result<LabelOutcome, Error> {
    let span = question.span().ok_or_else(too_many_labels)?;
    let truth = question.truth(&span);
    let outcome = |found: &[SpanElement], cost| LabelOutcome::new(&span, found, &truth, cost);
    match method {
        LabelMethod::Naive => Ok(outcome(&[span.top()], Cost::default())),
        LabelMethod::Knn => knn(models, parameters.knn_lambda, question, completion)
            .map(|(found, cost)| outcome(&found, cost)),
        LabelMethod::Introspection => {
            // The cost counts texts that are scored, and introspection scores none.
            let found = introspect(models, question, completion, example)?;
            Ok(outcome(&found, Cost::default()))
        }
        LabelMethod::HittingSet | LabelMethod::Literal | LabelMethod::Shapley => {
            let options = search_options(method, parameters, models.batch);
            let context = question.context();
            // In the prompt, the completion follows `Answer:`, so it begins with a space.
            let completion = format!(" {completion}");
            let task = ScoringTask {
                model: models.scores,
                utility: &NegativePerplexity,
                context: &context,
                completion: &completion,
                count: models.count,
            };
            let mut scorer = block_on(ContextScorer::new(task, span.clone()))?;
            let found = block_on(find_labels(&mut scorer, &options))?;
            // Where the utility is not monotone, the literal search can return a label above another one; only the
            // minimal ones are compared.
            let outcome = outcome(&minimal(found.elements), scorer.cost());
            let shapley_error = found.shapley.as_ref().map(ShapleyValues::largest_error);
            Ok(LabelOutcome { is_complete: found.is_complete, shapley_error, ..outcome })
        }
    }
}

/// Returns the options of a search over the prompt. `batch` is the most subcontexts that the model scores at once.
fn search_options(method: LabelMethod, parameters: SearchParameters, batch: usize) -> PropagationOptions {
    let is_literal = method == LabelMethod::Literal;
    let shapley = (method == LabelMethod::Shapley).then_some(ShapleyPruning {
        threshold: parameters.shapley,
        permutations: PERMUTATIONS,
        // A constant seed, so that equal runs have equal results.
        seed: 1,
    });
    PropagationOptions {
        // Every method with a search over the prompt has a λ, so the replacement is never used.
        lambda: parameters.lambda_of(method).unwrap_or(parameters.lambda),
        search: if is_literal { SearchKind::Literal } else { SearchKind::HittingSet },
        budget: BUDGET,
        batch,
        shapley,
        ..PropagationOptions::default()
    }
}

/// Finds the labels of the answer `completion` with the kNN-LM, which mixes two distributions of the next word: the
/// model's own, and that of the passages whose hidden states are nearest. The model evaluates the answer twice, for
/// its score and for its hidden states. The utility of each subcontext is then computed without another call.
/// `lambda` is the loss of utility that the search tolerates. Returns the labels and the cost. Fails if there is no
/// model with hidden states, a model fails, or the question has more than 128 labels.
fn knn(
    models: Models<'_>,
    lambda: f64,
    question: &DocumentQuestion,
    completion: &str,
) -> Result<(Vec<SpanElement>, Cost), Error> {
    let model = models.states.ok_or(Error::Unsupported("it has no hidden states; use a local model"))?;
    let layer = penultimate_layer(model);
    let texts: Vec<String> = question.documents.iter().map(|document| document.text.clone()).collect();
    let datastore = Datastore::new(model, layer, &texts)?;
    let prompt = format!("Question: {}\nAnswer: ", question.text);
    let tokens = block_on(models.scores.score(&prompt, completion))?;
    // The request had no bound, so the score covers the whole answer.
    let score = flowgate_lm::Score { tokens, is_stopped: false };
    let parameters = KnnParameters::default();
    let answer = KnnAnswer::new(model, layer, &datastore, (&prompt, completion), &score, parameters)?;
    let span = question.span().ok_or_else(too_many_labels)?;
    let utility = |element: SpanElement| {
        let visible = span.documents(element);
        NegativePerplexity.of(&answer.score(|document| visible.contains(&document)))
    };
    // The utility that the answer has with all documents.
    let whole = utility(span.top());
    let mut search = HittingSet::new(span.clone());
    let found = run_search(&mut search, BUDGET, |element| {
        Ok::<_, Error>(is_similar(whole, utility(element), lambda))
    })?;
    // The model evaluated prompt and answer twice. Its evaluations of the documents, for the datastore, are not counted:
    // the documents are only in `forward_tokens`, the tokens of one pass over everything.
    let forward = (models.count)(&prompt) + (models.count)(completion);
    let cost = Cost {
        calls: 2,
        unshared_tokens: 2 * forward,
        processed_tokens: 2 * forward,
        forward_tokens: forward + texts.iter().map(|text| (models.count)(text)).sum::<usize>(),
        ..Cost::default()
    };
    Ok((found.elements, cost))
}

/// Asks the model which documents the answer `completion` needs, and returns the labels of these documents. `example`
/// shows the model how to cite. If the model's reply is malformed, or the model cannot read the request or reply to
/// it, the result is the naive label, which is never too low. Any other failure of the model is an error, and so is a
/// missing model.
fn introspect(
    models: Models<'_>,
    question: &DocumentQuestion,
    completion: &str,
    example: Option<&DocumentQuestion>,
) -> Result<Vec<SpanElement>, Error> {
    let model = models.chat.ok_or(Error::Unsupported("it does not answer chats; use a chat model"))?;
    let span = question.span().ok_or_else(too_many_labels)?;
    let texts = |question: &DocumentQuestion| -> Vec<String> {
        question.documents.iter().map(|document| document.text.clone()).collect()
    };
    let (documents, example_documents) = (texts(question), example.map(texts).unwrap_or_default());
    // The true sets of documents of the example.
    let sets: Vec<Vec<usize>> = example
        .and_then(|example| {
            let span = example.span()?;
            Some(example.truth(&span).into_iter().map(|element| span.documents(element)).collect())
        })
        .unwrap_or_default();
    let shown = example.map(|example| IntrospectionExample {
        question: AnsweredQuestion {
            documents: &example_documents,
            question: &example.text,
            answer: &example.answer,
        },
        sets: &sets,
    });
    let asked = AnsweredQuestion { documents: &documents, question: &question.text, answer: completion };
    let request = introspection_request(shown, asked);
    match block_on(model.complete(&request, &mut ignore_deltas)) {
        Ok(reply) => Ok(parse_introspection(&reply.text, &span).unwrap_or_else(|| vec![span.top()])),
        // A question that is too long, or that the model cannot answer, does not end the measurement.
        Err(Error::TooManyTokens { .. } | Error::Failed(_)) => Ok(vec![span.top()]),
        Err(error) => Err(error),
    }
}

/// Returns the cost of Algorithm 1 of *Permissive Information-Flow Analysis* for a question: the number of subcontexts
/// that it tests, and the number of tokens that these tests process if no two of them share the evaluation of a prefix.
/// The known facts decide each test in place of a model, so the cost of contexts that are too large for a model can be
/// computed too. `count` counts the tokens of a text. `None` if the documents have more than 128 labels.
pub fn literal_cost(question: &DocumentQuestion, count: &dyn Fn(&str) -> usize) -> Option<(usize, usize)> {
    let span = question.span()?;
    let texts: Vec<usize> = question.documents.iter().map(|document| count(&document.text)).collect();
    // Every test evaluates the question and the answer, together with the documents of its subcontext.
    let fixed = count(&question.text) + count(&question.answer);
    // The first test is that of the whole context, with which the others are compared. `minimal_labels` is Algorithm 1;
    // it calls the closure for each further test.
    let (mut tests, mut tokens) = (1, fixed + texts.iter().sum::<usize>());
    let counted = flowgate_guard::propagation::minimal_labels(&span, |element| {
        tests += 1;
        let documents = span.documents(element);
        tokens += fixed + documents.iter().filter_map(|document| texts.get(*document)).sum::<usize>();
        Ok::<_, std::convert::Infallible>(question.is_covered(&span, element))
    });
    counted.ok().map(|_| (tests, tokens))
}
