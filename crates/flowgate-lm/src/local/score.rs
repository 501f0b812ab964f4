//! Implements [`ScoringModel`] for local models: computes the log-probability of each token of a given continuation.
//! Continuations are evaluated in batches, from the caches of their prefixes. The evaluation of a continuation stops
//! when the sum of its log-probabilities falls below the bound of the request, since the caller then needs no exact
//! score.

use std::sync::Arc;

use candle_core::Tensor;

use super::LocalModel;
use super::decoder::{KeyValueCache, Probe};
use super::evaluation::{PIECE, common_length, failed};
use super::tokenizer::TokenizedPair;
use crate::{BoxFuture, Error, Prefix, Score, ScoreRequest, ScoredToken, ScoringModel};

/// The most tokens of a batch. The tokens of a common prefix count for each row, since each row gets its own copy of
/// the cache.
const BATCH_TOKENS: usize = 1 << 13;
/// How many columns of a batch are evaluated before the sums are compared with the bounds again.
const BOUNDED_PIECE: usize = 16;

/// The evaluation of a prefix. The model stores it in the [`Prefix`] that it returns.
struct PrefixState {
    /// The identity of the model: another model cannot use the cache.
    model: Arc<()>,
    /// The tokens of the whole text of the prefix.
    tokens: Vec<u32>,
    /// The cache of these tokens.
    cache: KeyValueCache,
}

impl ScoringModel for LocalModel {
    /// Scores the requests in the calling thread, when the future is polled.
    fn score_batch<'a>(
        &'a self,
        requests: &'a [ScoreRequest<'a>],
    ) -> BoxFuture<'a, Result<Vec<Score>, Error>> {
        Box::pin(async move { self.score_all(requests) })
    }

    /// Evaluates the text of `parent` followed by `text`, and stores the cache in the new prefix. A longer text that
    /// begins with the prefix reuses this cache for the tokens that the two texts share: usually all tokens of the
    /// prefix, but fewer if a token of the longer text spans the end of the prefix.
    fn prefix<'a>(
        &'a self,
        parent: Option<&'a Prefix>,
        text: &'a str,
    ) -> BoxFuture<'a, Result<Prefix, Error>> {
        Box::pin(async move {
            let whole = format!("{}{text}", parent.map_or("", Prefix::text));
            let tokens = self.tokenizer.encode(&whole)?.ids;
            self.check_length(tokens.len())?;
            // The cache of the parent holds for the tokens that the parent and the whole text share.
            let (cached, common) = self.cached_prefix(parent, &tokens);
            let cached = cached.truncated(common).map_err(failed)?;
            let cache = self.extend(cached, tokens.get(common..).unwrap_or_default())?;
            let state = PrefixState { model: Arc::clone(&self.identity), tokens, cache };
            Ok(Prefix::new(parent, text, Some(Arc::new(state))))
        })
    }
}

/// A request as tokens, with its score so far.
struct ScoreTask<'a> {
    request: &'a ScoreRequest<'a>,
    pair: TokenizedPair,
    /// How many tokens are taken from the cache of the prefix.
    cached: usize,
    score: Score,
    /// The sum of the log-probabilities so far.
    sum: f64,
}

impl ScoreTask<'_> {
    /// Returns whether the task needs more evaluation: tokens are left to score, and the sum is not below the bound.
    fn is_open(&self) -> bool {
        !self.score.is_stopped && self.pair.boundary + self.score.tokens.len() < self.pair.text.ids.len()
    }

    /// Adds the log-probability of the next token of the continuation to the score. Marks the score as stopped if the
    /// sum is now below the bound of the request, since the caller then needs no exact score.
    fn add(&mut self, logprob: f64) {
        // The index of the token in the whole text, whose first `boundary` tokens are the prompt.
        let index = self.pair.boundary + self.score.tokens.len();
        let span = self.pair.text.spans.get(index).cloned().unwrap_or_default();
        let text = self.request.continuation.get(span).unwrap_or_default().to_owned();
        self.score.tokens.push(ScoredToken { text, logprob });
        self.sum += logprob;
        self.score.is_stopped = self.request.bound.is_some_and(|bound| self.sum < bound);
    }
}

/// Divides tasks into batches of bounded size, and returns the indices of the tasks of each batch. A batch has tasks
/// that take the same number of tokens from a cache, possibly from the caches of different prefixes, which are then
/// stacked. Tasks of similar length come into the same batch, since its rows are padded to the longest.
fn batches(tasks: &[ScoreTask<'_>]) -> Vec<Vec<usize>> {
    let length = |task: &ScoreTask<'_>| task.pair.text.ids.len();
    let mut order: Vec<(usize, &ScoreTask<'_>)> = tasks.iter().enumerate().collect();
    order.sort_by_key(|(_, task)| (task.cached, length(task)));
    let mut batches: Vec<Vec<usize>> = Vec::new();
    // The number of cached tokens of the last batch.
    let mut last_cached = None;
    for (index, task) in order {
        match batches.last_mut() {
            // The task is the longest so far, so each row would be padded to its length.
            Some(batch)
                if last_cached == Some(task.cached)
                    && (batch.len() + 1).saturating_mul(length(task)) <= BATCH_TOKENS =>
            {
                batch.push(index);
            }
            _ => batches.push(vec![index]),
        }
        last_cached = Some(task.cached);
    }
    batches
}

impl LocalModel {
    /// Returns the cache of a prefix, and the number of first tokens that the prefix shares with `tokens`: only this
    /// part of the cache applies to the text with these tokens. Returns an empty cache and 0 if there is no prefix, or
    /// if another model evaluated the prefix.
    pub(super) fn cached_prefix(&self, prefix: Option<&Prefix>, tokens: &[u32]) -> (KeyValueCache, usize) {
        match prefix.and_then(Prefix::state::<PrefixState>) {
            Some(state) if Arc::ptr_eq(&state.model, &self.identity) => {
                (state.cache.clone(), common_length(&state.tokens, tokens))
            }
            _ => (KeyValueCache::default(), 0),
        }
    }

    /// Scores requests in batches of bounded size, and returns the scores in the order of the requests.
    fn score_all(&self, requests: &[ScoreRequest<'_>]) -> Result<Vec<Score>, Error> {
        let mut tasks = Vec::with_capacity(requests.len());
        for request in requests {
            tasks.push(self.prepare_task(request)?);
        }
        for batch in batches(&tasks) {
            self.score_rows(&mut tasks, &batch)?;
        }
        Ok(tasks.into_iter().map(|task| task.score).collect())
    }

    /// Returns how many batches these requests are evaluated in.
    #[cfg(test)]
    pub(super) fn batch_count(&self, requests: &[ScoreRequest<'_>]) -> Result<usize, Error> {
        let tasks: Vec<_> =
            requests.iter().map(|request| self.prepare_task(request)).collect::<Result<_, _>>()?;
        Ok(batches(&tasks).len())
    }

    /// Returns the cache with which the rows of a batch begin: the first `length` tokens of each task. If all tasks
    /// have the same prefix, the cache has one row, which they share; otherwise, it has a row for each task.
    fn batch_cache(&self, tasks: &[&ScoreTask<'_>], length: usize) -> Result<KeyValueCache, Error> {
        // The address identifies the stored cache of a prefix; it is 0 without one.
        let address = |task: &ScoreTask<'_>| {
            let state = task.request.prefix.and_then(Prefix::state::<PrefixState>);
            state.map_or(0, |state| std::ptr::from_ref(state).addr())
        };
        let is_shared = tasks.windows(2).all(|pair| matches!(pair, [a, b] if address(a) == address(b)));
        // The tasks whose caches become the rows.
        let kept = if is_shared { tasks.get(..1).unwrap_or_default() } else { tasks };
        let cache = |task: &&ScoreTask<'_>| {
            self.cached_prefix(task.request.prefix, &task.pair.text.ids).0.truncated(length)
        };
        let caches: Vec<KeyValueCache> = kept.iter().map(cache).collect::<Result<_, _>>().map_err(failed)?;
        KeyValueCache::stacked(&caches).map_err(failed)
    }

    /// Converts a request to tokens, with an empty score. Fails if the text is too long, or if no token precedes the
    /// continuation: the model computes probabilities only of tokens that follow another token.
    fn prepare_task<'a>(&self, request: &'a ScoreRequest<'a>) -> Result<ScoreTask<'a>, Error> {
        // The text of the prefix, if there is one, and the prompt.
        let prompt = request.whole_prompt();
        let pair = self.tokenizer.encode_pair(&prompt, request.continuation)?;
        self.check_length(pair.text.ids.len())?;
        if pair.boundary == 0 && !request.continuation.is_empty() {
            return Err(Error::Unsupported(
                "no token precedes the continuation, so its first token has no log-probability; put text before the continuation",
            ));
        }
        let (_, common) = self.cached_prefix(request.prefix, &pair.text.ids);
        // The last token of the prompt is evaluated in any case: its output scores the first token of the continuation.
        let cached = common.min(pair.boundary.saturating_sub(1));
        Ok(ScoreTask { request, pair, cached, score: Score::default(), sum: 0.0 })
    }

    /// Scores the tasks with the indices `batch`, and writes the scores into the tasks. All of them take the same
    /// number of tokens from the caches of their prefixes. Each task is one row of a batch, and a column is the
    /// position of a token in its text. Evaluates the rows piece by piece, and removes a row as soon as its task is
    /// scored or below its bound. Rows that are shorter than others are padded with token 0, on which no earlier token
    /// depends.
    fn score_rows(&self, tasks: &mut [ScoreTask<'_>], batch: &[usize]) -> Result<(), Error> {
        // Returns the index of a task if the task needs more evaluation.
        let if_open = |tasks: &[ScoreTask<'_>], row: usize| {
            tasks.get(row).is_some_and(ScoreTask::is_open).then_some(row)
        };
        let mut rows: Vec<usize> = batch.iter().filter_map(|&row| if_open(tasks, row)).collect();
        let open: Vec<&ScoreTask<'_>> = rows.iter().filter_map(|&row| tasks.get(row)).collect();
        let Some(first) = open.first() else { return Ok(()) };
        // The next column to evaluate. The columns before it are in the caches of the prefixes.
        let mut column = first.cached;
        let mut cache = self.batch_cache(&open, column)?;
        while !rows.is_empty() {
            // The tasks of the remaining rows.
            let open = || rows.iter().filter_map(|&row| tasks.get(row));
            // The last token of a text is not evaluated, since no token that is scored follows it.
            let end = open().map(|task| task.pair.text.ids.len() - 1).max().unwrap_or(column);
            // Where a bound may stop a row, a short piece wastes less work; elsewhere, long pieces are faster.
            let has_bound_here =
                open().any(|task| task.request.bound.is_some() && column + 1 >= task.pair.boundary);
            let max_time = if has_bound_here { BOUNDED_PIECE } else { PIECE };
            let time = (end - column).min(max_time);
            let tokens: Vec<u32> = open()
                .flat_map(|task| {
                    (column..column + time).map(|at| task.pair.text.ids.get(at).copied().unwrap_or(0))
                })
                .collect();
            let (hidden, extended) = self.evaluate_rows(&tokens, (rows.len(), time), &cache)?;
            cache = extended;
            self.add_scores(tasks, &rows, (column, time), &hidden)?;
            column += time;
            // The rows that continue, each as its index in the batch and the index of its task.
            let still_open: Vec<(u32, usize)> =
                (0..).zip(&rows).filter_map(|(index, &row)| Some((index, if_open(tasks, row)?))).collect();
            if still_open.len() < rows.len() && !still_open.is_empty() {
                let indices: Vec<u32> = still_open.iter().map(|(index, _)| *index).collect();
                let select = || cache.rows(&Tensor::new(indices.as_slice(), self.decoder.device())?);
                cache = select().map_err(failed)?;
            }
            rows = still_open.into_iter().map(|(_, row)| row).collect();
        }
        Ok(())
    }

    /// Evaluates a batch of rows, each of which continues the tokens of its row in `cache`. `tokens` has the new tokens
    /// of the first row, then those of the second one, and so on. `shape` is the number of rows, and of new tokens in
    /// each. Returns the hidden states and the extended cache.
    fn evaluate_rows(
        &self,
        tokens: &[u32],
        shape: (usize, usize),
        cache: &KeyValueCache,
    ) -> Result<(Tensor, KeyValueCache), Error> {
        Tensor::from_slice(tokens, shape, self.decoder.device())
            .and_then(|tokens| self.decoder.forward(&tokens, cache, &mut Probe::default()))
            .map_err(failed)
    }

    /// Adds log-probabilities to the scores of the tasks whose indices are `rows`. The `time` columns from `column` on
    /// were evaluated, and `hidden` are their hidden states, of shape (rows, time, width). Each column predicts the
    /// token after it; the tokens that belong to the continuation are scored.
    fn add_scores(
        &self,
        tasks: &mut [ScoreTask<'_>],
        rows: &[usize],
        (column, time): (usize, usize),
        hidden: &Tensor,
    ) -> Result<(), Error> {
        // For each token to score: the index of the hidden state before it (of all rows, one after the other), the
        // token, and the index of its task.
        let (mut states, mut targets, mut owners) = (Vec::new(), Vec::new(), Vec::new());
        for (index, &row) in rows.iter().enumerate() {
            let Some(task) = tasks.get(row) else { continue };
            // The last token of the prompt predicts the first one to score. The prompt of an open task has a token.
            for at in column.max(task.pair.boundary - 1)..column + time {
                if let Some(&target) = task.pair.text.ids.get(at + 1) {
                    states.push(u32::try_from(index * time + at - column).unwrap_or(u32::MAX));
                    targets.push(target);
                    owners.push(row);
                }
            }
        }
        if states.is_empty() {
            return Ok(());
        }
        let select = || {
            let states = Tensor::new(states.as_slice(), self.decoder.device())?;
            hidden.flatten(0, 1)?.index_select(&states, 0)
        };
        let logprobs = self.logprobs(&select().map_err(failed)?, &targets)?;
        // A task whose sum falls below its bound within this piece is closed: its further tokens are not scored.
        for (row, logprob) in owners.into_iter().zip(logprobs) {
            if let Some(task) = tasks.get_mut(row).filter(|task| task.is_open()) {
                task.add(logprob);
            }
        }
        Ok(())
    }
}
