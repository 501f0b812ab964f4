//! Runs `flowgate bench news-questions`: a model writes questions about pairs of news articles, which are checked against
//! the articles and printed in the form that `flowgate bench propagation --news` reads.
//!
//! The request and the checks are in `flowgate_bench::corpora::news_questions`; this module asks the model.

use flowgate_bench::corpora::news_questions::{REPLY_TOKENS, checked_questions, question_request};
use flowgate_bench::corpora::{NewsPair, load_news_articles};
use flowgate_bench::cost::{CountedModel, RequestCounter, SilentModel};
use flowgate_lm::{ChatModel, block_on, ignore_deltas};

use super::corpus::Folder;
use super::model::{ask_ahead, model, print_cost};
use crate::args::NewsQuestionsArgs;
use crate::input::InputError;
use crate::output::{Console, plural};
use crate::progress::{INTERRUPTED, Progress};

/// Asks the model for questions about each pair of the folder, and prints the accepted ones. If the model fails,
/// returns the error; without `--jobs`, the questions so far are printed before. Otherwise returns 0, or
/// [`INTERRUPTED`] after an interrupt. With `--dry-run`, only prints what the run would cost.
pub(crate) fn run(options: &NewsQuestionsArgs, output: &mut Console) -> Result<u8, InputError> {
    let folder = Folder::open(&options.folder)?;
    // The model is opened before the articles are read, so that an unusable model is reported at once.
    let model = if options.model.dry_run { None } else { model(&options.model)? };
    let pairs = load_news_articles(&folder)
        .map_err(|error| InputError(format!("{}: {error}", options.folder.display())))?;
    let pairs: Vec<NewsPair> = pairs.into_iter().take(options.pairs.into()).collect();
    if options.model.dry_run {
        let counter = RequestCounter::default();
        let silent = CountedModel { model: &SilentModel, counter: &counter };
        for pair in &pairs {
            ask(&silent, pair)?;
        }
        print_cost(&counter, REPLY_TOKENS, output);
        return Ok(0);
    }
    let model = model.ok_or_else(|| {
        InputError("no model is named to write the questions; name one with `--model` and `--url`".to_owned())
    })?;
    let progress = Progress::over_steps(pairs.len(), "pair", output);
    ask_ahead(options.model.threads(), pairs.len(), &progress, &|unit| {
        pairs.get(unit).map_or(Ok(()), |pair| ask(model.chat(), pair).map(drop))
    })?;
    // The lines are printed after the progress has ended, since a terminal would show the progress between them.
    let (mut lines, mut refused, mut problem) = (Vec::new(), Vec::new(), None);
    for pair in &pairs {
        match ask(model.chat(), pair) {
            Ok(reply) => {
                let written = checked_questions(pair, &reply);
                lines.extend(written.lines);
                refused.extend(written.refused.into_iter().map(|reason| format!("{}: {reason}", pair.name)));
            }
            // The questions so far are not lost.
            Err(error) => {
                problem = Some(error);
                break;
            }
        }
        progress.step();
        if progress.is_interrupted() {
            break;
        }
    }
    let is_interrupted = progress.finish(output);
    lines.iter().for_each(|line| output.line(line));
    for reason in &refused {
        output.note(&format!("refused: {reason}"));
    }
    output.note(&format!(
        "{} about {}, {} refused",
        plural(lines.len(), "question"),
        plural(pairs.len(), "pair"),
        refused.len()
    ));
    match problem {
        Some(problem) => Err(problem),
        None => Ok(if is_interrupted { INTERRUPTED } else { 0 }),
    }
}

/// Returns the model's reply about a pair.
fn ask(model: &dyn ChatModel, pair: &NewsPair) -> Result<String, InputError> {
    let completion = block_on(model.complete(&question_request(pair), &mut ignore_deltas));
    let failed = |error| InputError(format!("{}, pair {}: {error}", model.name(), pair.name));
    Ok(completion.map_err(failed)?.text)
}
