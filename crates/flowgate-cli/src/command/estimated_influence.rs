//! Creates the influence methods that ask a model on which regions a call depends (`lambda`, `knn-lm` and `introspection`),
//! and counts the calls for which the model failed. `flowgate replay` judges recorded runs with them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use flowgate::label::span::SpanElement;
use flowgate_guard::influence::InfluenceMethod;
use flowgate_guard::influence::estimated::{EstimatedCall, EstimatedMethod, LabelEstimator};
use flowgate_guard::influence::introspection::IntrospectionEstimator;
#[cfg(feature = "local")]
use flowgate_guard::influence::knn::KnnEstimator;
use flowgate_guard::influence::lambda::LambdaEstimator;
use flowgate_guard::propagation::PropagationOptions;
#[cfg(feature = "local")]
use flowgate_guard::propagation::introspection::ContinuedIntrospection;
#[cfg(feature = "local")]
use flowgate_guard::propagation::knn::KnnParameters;
use flowgate_lm::{ChatModel, Error, ScoringModel};

use crate::args::{ESTIMATED_METHODS, InfluenceModelArgs};
use crate::input::InputError;
use crate::output::{Console, plural};

/// The most tokens of an answer of a model that continues a question in place of a chat.
#[cfg(feature = "local")]
const ANSWER_TOKENS: usize = 64;

/// The methods that ask a model, and how often it failed.
pub(crate) struct EstimatedInfluence {
    /// The methods, in the order of [`ESTIMATED_METHODS`].
    pub(crate) methods: Vec<&'static dyn InfluenceMethod>,
    asked: Arc<AskedCalls>,
}

/// The calls for which a model was asked.
#[derive(Debug, Default)]
struct AskedCalls {
    asked: AtomicUsize,
    failed: AtomicUsize,
    /// The first error.
    error: Mutex<Option<String>>,
}

/// The roles in which a model is asked. A model on a server has no hidden states.
struct InfluenceModel {
    scores: Arc<dyn ScoringModel>,
    #[cfg(feature = "local")]
    states: Option<Arc<dyn flowgate_lm::HiddenStateModel>>,
    chat: Arc<dyn ChatModel>,
}

/// An estimator whose failures are counted: an [`EstimatedMethod`] lets a call depend on everything if its model fails, and
/// does not say so.
struct CountingEstimator {
    estimator: Arc<dyn LabelEstimator>,
    asked: Arc<AskedCalls>,
}

impl LabelEstimator for CountingEstimator {
    fn name(&self) -> &'static str {
        self.estimator.name()
    }

    fn doc(&self) -> &'static str {
        self.estimator.doc()
    }

    /// Returns the labels of the inner estimator, and counts the request. A failure is counted too, and the text of the
    /// first one is kept for the message at the end.
    fn labels(&self, asked: &EstimatedCall<'_>) -> Result<Vec<SpanElement>, Error> {
        self.asked.asked.fetch_add(1, Ordering::Relaxed);
        self.estimator.labels(asked).inspect_err(|error| {
            self.asked.failed.fetch_add(1, Ordering::Relaxed);
            let mut first = self.asked.error.lock().unwrap_or_else(PoisonError::into_inner);
            first.get_or_insert_with(|| error.to_string());
        })
    }
}

impl EstimatedInfluence {
    /// Creates each method of [`ESTIMATED_METHODS`] that is in `names`, with the model of the options.
    ///
    /// # Errors
    /// If `names` has such a method, but the options name no model; if the options name a model, but `names` has no such
    /// method; or if the model cannot be opened, or lacks the hidden states that a method needs.
    pub(crate) fn new(names: &[String], options: &InfluenceModelArgs) -> Result<Self, InputError> {
        let wanted: Vec<&str> =
            ESTIMATED_METHODS.into_iter().filter(|name| names.iter().any(|other| other == name)).collect();
        let asked = Arc::new(AskedCalls::default());
        let model = match (open(options)?, wanted.first()) {
            (Some(model), Some(_)) => model,
            (None, None) => return Ok(Self { methods: Vec::new(), asked }),
            (None, Some(name)) => {
                return Err(InputError(format!(
                    "--influence {name}: this method asks a model; name one on a server with `--model` and `--url`, or one in a folder with `--local` in a program with the feature `local`"
                )));
            }
            (Some(_), None) => {
                return Err(InputError(format!(
                    "a model is named, but no method that asks a model; name such a method with `--influence`: {}",
                    ESTIMATED_METHODS.join(", ")
                )));
            }
        };
        let mut methods = Vec::new();
        for name in wanted {
            let estimator = CountingEstimator {
                estimator: estimator(name, &model, options.lambda)?,
                asked: Arc::clone(&asked),
            };
            // Without preferred labels, a call depends on the fewest regions that explain it.
            let method = EstimatedMethod::new(Arc::new(estimator), Vec::new());
            // The registry holds methods for the whole life of the process, which creates these once.
            let method: &'static EstimatedMethod = Box::leak(Box::new(method));
            methods.push(method as &'static dyn InfluenceMethod);
        }
        Ok(Self { methods, asked })
    }

    /// Prints a note if the model failed for some of the calls.
    ///
    /// # Errors
    /// If it failed for every call, so that the figures say nothing about it.
    pub(crate) fn report_failures(&self, output: &mut Console) -> Result<(), InputError> {
        let asked = self.asked.asked.load(Ordering::Relaxed);
        let failed = self.asked.failed.load(Ordering::Relaxed);
        let error = self.asked.error.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(error) = error else { return Ok(()) };
        let counted = "which count as depending on everything";
        if failed == asked {
            return Err(InputError(format!(
                "the model failed for {}, {counted}: {error}",
                plural(failed, "call")
            )));
        }
        output
            .note(&format!("the model failed for {failed} of {}, {counted}: {error}", plural(asked, "call")));
        Ok(())
    }
}

/// Opens the model of the options; `None` if they name none.
fn open(options: &InfluenceModelArgs) -> Result<Option<InfluenceModel>, InputError> {
    #[cfg(feature = "local")]
    if let Some(path) = &options.local {
        let (model, _) = crate::local_model::load(path, options.device.processor)?;
        let model = Arc::new(model);
        let chat: Arc<dyn ChatModel> = if model.has_chat_template() {
            Arc::clone(&model) as Arc<dyn ChatModel>
        } else {
            // A model without a chat template continues the question as a text. The model is needed as long as the
            // methods, to the end of the process.
            let model: &'static Arc<flowgate_lm::LocalModel> = Box::leak(Box::new(Arc::clone(&model)));
            Arc::new(ContinuedIntrospection { model: &**model, tokens: ANSWER_TOKENS })
        };
        return Ok(Some(InfluenceModel {
            scores: Arc::clone(&model) as Arc<dyn ScoringModel>,
            states: Some(model),
            chat,
        }));
    }
    #[cfg(feature = "run")]
    if let Some(model) = super::scoring_server::open(&options.server)? {
        let scores = Arc::new(model.scorer(options.server.scores.method()));
        return Ok(Some(InfluenceModel {
            scores,
            #[cfg(feature = "local")]
            states: None,
            chat: Arc::new(model),
        }));
    }
    Ok(None)
}

/// Creates the estimator of the influence method `name`, one of [`ESTIMATED_METHODS`]. `lambda` is the loss of utility
/// that the methods `lambda` and `knn-lm` tolerate.
///
/// # Errors
/// If the model lacks the hidden states that `knn-lm` compares.
fn estimator(name: &str, model: &InfluenceModel, lambda: f64) -> Result<Arc<dyn LabelEstimator>, InputError> {
    let options = PropagationOptions { lambda, ..PropagationOptions::default() };
    match name {
        "introspection" => Ok(Arc::new(IntrospectionEstimator { model: Arc::clone(&model.chat) })),
        "knn-lm" => knn_estimator(model, &options),
        // The caller passes only names of `ESTIMATED_METHODS`, so this is `lambda`.
        _ => Ok(Arc::new(LambdaEstimator { model: Arc::clone(&model.scores), options })),
    }
}

/// Creates the estimator `knn-lm`. Fails if the model has no hidden states, such as a model on a server.
fn knn_estimator(
    model: &InfluenceModel,
    options: &PropagationOptions,
) -> Result<Arc<dyn LabelEstimator>, InputError> {
    #[cfg(feature = "local")]
    if let Some(states) = &model.states {
        return Ok(Arc::new(KnnEstimator {
            states: Arc::clone(states),
            scores: Arc::clone(&model.scores),
            parameters: KnnParameters::default(),
            lambda: options.lambda,
            budget: options.budget,
        }));
    }
    #[cfg(not(feature = "local"))]
    let _ = (model, options);
    Err(InputError(
        "--influence knn-lm: no server returns the hidden states that this method compares; name a model in a folder with `--local`, in a program with the feature `local`"
            .to_owned(),
    ))
}
