//! Runs `flowgate bench propagation`: evaluates permissive label propagation, which searches for labels of an answer
//! that are lower than the join of the labels of all documents. This module runs the evaluation with doubles;
//! `with_model` runs it with a model.
//!
//! The questions, the methods and the measures are in `flowgate_bench::propagation`; this module shows progress and
//! chooses the format.

#[cfg(any(feature = "local", feature = "run"))]
pub(super) mod with_model;

use flowgate_bench::corpora::load_news_pairs;
use flowgate_bench::document::by_kind;
use flowgate_bench::games::report::csv;
use flowgate_bench::propagation::report::{figure_rows, lines, page, tables};
use flowgate_bench::propagation::{
    CopyingErrors, DoubleResults, LiteralCost, PropagationSuite, Size, manifest,
};
#[cfg(feature = "run")]
use flowgate_lm::wire::embeddings::{Embedding, EmbeddingsRequest};
#[cfg(feature = "run")]
use flowgate_lm::{Error, TextEmbedder, block_on};
use serde_json::{Value, json};

use super::corpus::Folder;
use super::model::print_no_requests;
use crate::args::{PropagationArgs, ReportFormat};
use crate::input::InputError;
use crate::output::Console;
#[cfg(feature = "run")]
use crate::output::plural;
use crate::progress::{INTERRUPTED, Progress};

/// Runs `flowgate bench propagation`: with the model that the options name, a local one or one of a server, or else with
/// each double of the options. With `--dry-run`, only prints how many requests the run would send. Returns 0, or
/// [`INTERRUPTED`] after an interrupt.
pub(crate) fn run(options: &PropagationArgs, output: &mut Console) -> Result<u8, InputError> {
    let size = Size { questions: options.questions.into(), pairs: options.pairs.into() };
    #[cfg_attr(
        not(any(feature = "local", feature = "run")),
        expect(unused_mut, reason = "models with embeddings change it")
    )]
    let mut suites = suites(options, size)?;
    #[cfg(feature = "local")]
    if let Some(path) = &options.local {
        let settings = (options.format, options.batch_size(), options.dry_run);
        let model = (path.as_path(), options.device.processor);
        return with_model::run_local((&mut suites, size), model, settings, output);
    }
    #[cfg(feature = "run")]
    let (server, embedder) =
        (crate::command::scoring_server::open(&options.server)?, ServerEmbedder::new(options)?);
    if options.dry_run {
        // Embeddings of the texts may come from another server than the scores of the model.
        #[cfg(feature = "run")]
        if embedder.is_some() {
            let requests: usize = suites.iter().map(|suite| suite.embedding_requests(EMBEDDED_AT_ONCE)).sum();
            output.line(&format!("the run would send {} for embeddings", plural(requests, "request")));
            if server.is_none() {
                return Ok(0);
            }
        }
        #[cfg(feature = "run")]
        if server.is_some() {
            return with_model::count_requests(&suites, options.batch_size(), output);
        }
        print_no_requests(None, output);
        return Ok(0);
    }
    #[cfg(feature = "run")]
    if let Some(embedder) = &embedder {
        let failed = |error| InputError(format!("the embeddings: {error}"));
        suites.iter_mut().try_for_each(|suite| suite.add_embeddings(embedder)).map_err(failed)?;
    }
    #[cfg(feature = "run")]
    if let Some(model) = &server {
        return with_model::run_server((&suites, size), options, model, output);
    }
    if options.batch.is_some() {
        return Err(InputError(
            "--batch: doubles score one subcontext at a time; name a model with `--local` or `--model`, or leave the option out"
                .to_owned(),
        ));
    }
    run_doubles((&suites, size), options, output)
}

/// Returns suites of questions with successive seeds, as many as the options say. The questions are about generated
/// articles, or about those in the folder of `--news`. `size` is the number of questions and of pairs of articles in each.
fn suites(options: &PropagationArgs, size: Size) -> Result<Vec<PropagationSuite>, InputError> {
    let failed = |path: &std::path::Path, problem: &dyn std::fmt::Display| {
        InputError(format!("{}: {problem}", path.display()))
    };
    let news = match &options.news {
        Some(path) => {
            Some((path, load_news_pairs(&Folder::open(path)?).map_err(|error| failed(path, &error))?))
        }
        None => None,
    };
    let suite = |number: u32| {
        let seed = options.seed.wrapping_add(number.into());
        let suite = PropagationSuite::new(seed, size).map_err(InputError)?;
        match &news {
            Some((path, found)) => {
                suite.with_news_pairs(found, size.pairs).map_err(|error| failed(path, &error))
            }
            None => Ok(suite),
        }
    };
    (0..options.seeds).map(suite).collect()
}

/// Runs the suites with each double of the options, and prints the results. `size` is the size of the suites, for the
/// manifest. Returns 0, or [`INTERRUPTED`] after an interrupt.
fn run_doubles(
    (suites, size): (&[PropagationSuite], Size),
    options: &PropagationArgs,
    output: &mut Console,
) -> Result<u8, InputError> {
    let doubles =
        if options.doubles.is_empty() { CopyingErrors::ALL.to_vec() } else { options.doubles.clone() };
    let steps: usize = suites.iter().map(PropagationSuite::steps).sum();
    let progress = Progress::over_steps(steps * doubles.len(), "step", output);
    let mut results: Vec<Vec<DoubleResults>> = Vec::new();
    for double in &doubles {
        // Returns whether to stop.
        let step = &mut || {
            progress.step();
            progress.is_interrupted()
        };
        // After an interrupt, a suite has no result.
        let runs = suites.iter().map_while(|suite| suite.run(*double, step).transpose());
        let seeds: Vec<DoubleResults> =
            runs.collect::<Result<_, _>>().map_err(|error| InputError(error.to_string()))?;
        if seeds.len() < suites.len() {
            // A double whose run is incomplete has no row.
            break;
        }
        results.push(seeds);
    }
    let is_interrupted = progress.finish(output);
    // What Algorithm 1 of Permissive Information-Flow Analysis would cost; it is computed and not run.
    let literal: Vec<LiteralCost> = match is_interrupted {
        true => Vec::new(),
        false => suites.iter().filter_map(PropagationSuite::literal_cost).collect(),
    };
    let manifest = manifest(suites, size, &doubles);
    print_doubles(options.format, &manifest, (&results, &literal), is_interrupted, output);
    Ok(if is_interrupted { INTERRUPTED } else { 0 })
}

/// Prints the results of the doubles, and what Algorithm 1 would cost (`literal`), in a format. `manifest` says how the
/// results were measured. `is_interrupted` says whether doubles are missing because of an interrupt.
fn print_doubles(
    format: ReportFormat,
    manifest: &Value,
    (results, literal): (&[Vec<DoubleResults>], &[LiteralCost]),
    is_interrupted: bool,
    output: &mut Console,
) {
    match format {
        ReportFormat::Text => {
            tables(results, literal).lines().for_each(|line| output.line(line));
        }
        ReportFormat::Csv => csv(&figure_rows(results)).lines().for_each(|line| output.line(line)),
        ReportFormat::Html => output.write_bytes(page(results, literal, manifest).as_bytes()),
        ReportFormat::Json => {
            let lines = lines(results, literal);
            output.line(&by_kind(manifest, lines, is_interrupted).to_string());
        }
        ReportFormat::Jsonl => {
            output.line(&manifest.to_string());
            lines(results, literal).iter().for_each(|line| output.line(&line.to_string()));
            if is_interrupted {
                output.line(&json!({"type": "interrupted", "doubles": results.len()}).to_string());
            }
        }
    }
}

/// The most texts in one request for embeddings.
#[cfg(feature = "run")]
const EMBEDDED_AT_ONCE: usize = 64;

/// A model on a server that gives embeddings.
#[cfg(feature = "run")]
struct ServerEmbedder {
    remote: flowgate_lm::RemoteModel,
    model: String,
}

#[cfg(feature = "run")]
impl ServerEmbedder {
    /// Returns the model for embeddings that the options name; `None` if they name none.
    ///
    /// # Errors
    /// If the address or the key cannot be used.
    fn new(options: &PropagationArgs) -> Result<Option<Self>, InputError> {
        let (Some(model), Some(url)) = (&options.embeddings_model, &options.embeddings_url) else {
            return Ok(None);
        };
        let remote = flowgate_lm::RemoteModel::new(flowgate_lm::wire::Api::ChatCompletions, url, model);
        let mut remote = remote.map_err(|error| InputError(format!("--embeddings-url {url}: {error}")))?;
        if let Some(variable) = &options.embeddings_key_from {
            let key = crate::command::run::models::key(variable)?;
            remote = remote.key(key.trim()).map_err(|error| InputError(error.to_string()))?;
        }
        Ok(Some(Self { remote, model: model.clone() }))
    }
}

#[cfg(feature = "run")]
impl TextEmbedder for ServerEmbedder {
    /// Requests the embeddings, a bounded number of texts at once.
    fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f64>>, Error> {
        let mut vectors = Vec::with_capacity(texts.len());
        for texts in texts.chunks(EMBEDDED_AT_ONCE) {
            let texts = texts.iter().map(|text| (*text).to_owned()).collect();
            let request =
                EmbeddingsRequest { model: self.model.clone(), texts, ..EmbeddingsRequest::default() };
            for embedding in block_on(self.remote.embed(&request))?.embeddings {
                let Embedding::Numbers(numbers) = embedding else {
                    return Err(Error::Failed(
                        "the server returned an embedding that is not a list of numbers; name another model with \
                        `--embeddings-model`"
                            .to_owned(),
                    ));
                };
                // A number without a value as a float becomes NaN: the caller reports vectors with a number that is not
                // finite.
                vectors.push(numbers.iter().map(|number| number.as_f64().unwrap_or(f64::NAN)).collect());
            }
        }
        Ok(vectors)
    }
}
