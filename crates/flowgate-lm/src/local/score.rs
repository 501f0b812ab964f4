//! Scores continuations: in batches, from the caches of prefixes, and only as far as the bound.

use std::sync::Arc;

use candle_core::Tensor;

use super::LocalModel;
use super::decoder::{KeyValueCache, Probe};
use super::evaluation::{PIECE, common_length, failed};
use super::tokenizer::TokenizedPair;
use crate::{BoxFuture, Error, Prefix, Score, ScoreRequest, ScoredToken, ScoringModel};

/// The most tokens of a batch, those of the common prefix counted for each row: each row has its own copy of the cache.
const BATCH_TOKENS: usize = 1 << 13;
/// How many columns of a batch are evaluated between two looks at the bounds.
const BOUNDED_PIECE: usize = 16;

/// What the model keeps of a prefix.
struct PrefixState {
    model: Arc<()>,
    tokens: Vec<u32>,
    cache: KeyValueCache,
}

impl ScoringModel for LocalModel {
    fn score_batch<'a>(
        &'a self,
        requests: &'a [ScoreRequest<'a>],
    ) -> BoxFuture<'a, Result<Vec<Score>, Error>> {
        Box::pin(async move { self.score_all(requests) })
    }

    /// Evaluates the text. A prefix that ends with a whole token of the longer text is used up to its end, any other up to the last token in
    /// common.
    fn prefix<'a>(
        &'a self,
        parent: Option<&'a Prefix>,
        text: &'a str,
    ) -> BoxFuture<'a, Result<Prefix, Error>> {
        Box::pin(async move {
            let whole = format!("{}{text}", parent.map_or("", Prefix::text));
            let tokens = self.tokenizer.encode(&whole)?.ids;
            self.check_length(tokens.len())?;
            let (known, common) = self.known(parent, &tokens);
            let known = known.truncated(common).map_err(failed)?;
            let cache = self.extend(known, tokens.get(common..).unwrap_or_default())?;
            let state = PrefixState { model: Arc::clone(&self.identity), tokens, cache };
            Ok(Prefix::new(parent, text, Some(Arc::new(state))))
        })
    }
}

/// A request as tokens.
struct Question<'a> {
    request: &'a ScoreRequest<'a>,
    pair: TokenizedPair,
    /// How many tokens are in the cache of the prefix.
    known: usize,
    score: Score,
    sum: f64,
}

impl Question<'_> {
    fn is_open(&self) -> bool {
        !self.score.is_stopped && self.pair.boundary + self.score.tokens.len() < self.pair.text.ids.len()
    }

    /// Adds the log-probability of the next token, and stops below the bound.
    fn add(&mut self, logprob: f64) {
        let index = self.pair.boundary + self.score.tokens.len();
        let span = self.pair.text.spans.get(index).cloned().unwrap_or_default();
        let text = self.request.continuation.get(span).unwrap_or_default().to_owned();
        self.score.tokens.push(ScoredToken { text, logprob });
        self.sum += logprob;
        self.score.is_stopped = self.request.bound.is_some_and(|bound| self.sum < bound);
    }
}

impl LocalModel {
    /// Returns the cache of a prefix, and how many of its tokens a text begins with.
    pub(super) fn known(&self, prefix: Option<&Prefix>, tokens: &[u32]) -> (KeyValueCache, usize) {
        match prefix.and_then(Prefix::state::<PrefixState>) {
            Some(state) if Arc::ptr_eq(&state.model, &self.identity) => {
                (state.cache.clone(), common_length(&state.tokens, tokens))
            }
            _ => (KeyValueCache::default(), 0),
        }
    }

    fn score_all(&self, requests: &[ScoreRequest<'_>]) -> Result<Vec<Score>, Error> {
        let mut questions = Vec::with_capacity(requests.len());
        for request in requests {
            questions.push(self.question(request)?);
        }
        // Requests after the same tokens of the same prefix are evaluated together; short ones first, since shorter rows are filled up.
        let key = |question: &Question<'_>| {
            let prefix = question.request.prefix.and_then(Prefix::state::<PrefixState>);
            (prefix.map_or(0, |state| std::ptr::from_ref(state).addr()), question.known)
        };
        let mut order: Vec<usize> = (0..questions.len()).collect();
        order.sort_by_key(|&index| {
            questions.get(index).map(|question| (key(question), question.pair.text.ids.len()))
        });
        let mut batch: Vec<usize> = Vec::new();
        for index in order {
            let Some(question) = questions.get(index) else { continue };
            let is_same = batch
                .first()
                .and_then(|&first| questions.get(first))
                .is_none_or(|first| key(first) == key(question));
            let rows = batch.len() + 1;
            if !is_same || rows.saturating_mul(question.pair.text.ids.len()) > BATCH_TOKENS {
                self.score_rows(&mut questions, &std::mem::take(&mut batch))?;
            }
            batch.push(index);
        }
        self.score_rows(&mut questions, &batch)?;
        Ok(questions.into_iter().map(|question| question.score).collect())
    }

    fn question<'a>(&self, request: &'a ScoreRequest<'a>) -> Result<Question<'a>, Error> {
        let prompt = request.whole_prompt();
        let pair = self.tokenizer.encode_pair(&prompt, request.continuation)?;
        self.check_length(pair.text.ids.len())?;
        if pair.boundary == 0 && !request.continuation.is_empty() {
            return Err(Error::Unsupported(
                "a log-probability of the first token, with which the scored continuation begins; put text before it",
            ));
        }
        let (_, common) = self.known(request.prefix, &pair.text.ids);
        // The last token of the prompt is evaluated anyhow: what follows it is scored.
        let known = common.min(pair.boundary.saturating_sub(1));
        Ok(Question { request, pair, known, score: Score::default(), sum: 0.0 })
    }

    /// Scores questions that share the cache of a prefix.
    fn score_rows(&self, questions: &mut [Question<'_>], batch: &[usize]) -> Result<(), Error> {
        let of = |questions: &[Question<'_>], row: usize| {
            questions.get(row).is_some_and(Question::is_open).then_some(row)
        };
        let mut rows: Vec<usize> = batch.iter().filter_map(|&row| of(questions, row)).collect();
        let Some(first) = rows.first().and_then(|&row| questions.get(row)) else { return Ok(()) };
        let mut column = first.known;
        let (known, _) = self.known(first.request.prefix, &first.pair.text.ids);
        let mut cache = known.truncated(column).map_err(failed)?;
        while !rows.is_empty() {
            let open = || rows.iter().filter_map(|&row| questions.get(row));
            let end = open().map(|question| question.pair.text.ids.len() - 1).max().unwrap_or(column);
            let scores_here = open()
                .any(|question| question.request.bound.is_some() && column + 1 >= question.pair.boundary);
            let most = if scores_here { BOUNDED_PIECE } else { PIECE };
            let time = (end - column).min(most);
            let tokens: Vec<u32> = open()
                .flat_map(|question| {
                    (column..column + time).map(|at| question.pair.text.ids.get(at).copied().unwrap_or(0))
                })
                .collect();
            let (hidden, extended) = self.evaluate_rows(&tokens, (rows.len(), time), &cache)?;
            cache = extended;
            self.add_scores(questions, &rows, (column, time), &hidden)?;
            column += time;
            let still_open: Vec<(u32, usize)> =
                (0..).zip(&rows).filter_map(|(index, &row)| Some((index, of(questions, row)?))).collect();
            if still_open.len() < rows.len() && !still_open.is_empty() {
                let indices: Vec<u32> = still_open.iter().map(|(index, _)| *index).collect();
                let select = || cache.rows(&Tensor::new(indices.as_slice(), self.decoder.device())?);
                cache = select().map_err(failed)?;
            }
            rows = still_open.into_iter().map(|(_, row)| row).collect();
        }
        Ok(())
    }

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

    /// Adds the log-probabilities of the tokens after `time` columns from `column`; `hidden` has the shape (rows, time, width).
    fn add_scores(
        &self,
        questions: &mut [Question<'_>],
        rows: &[usize],
        (column, time): (usize, usize),
        hidden: &Tensor,
    ) -> Result<(), Error> {
        let (mut places, mut targets, mut owners) = (Vec::new(), Vec::new(), Vec::new());
        for (index, &row) in rows.iter().enumerate() {
            let Some(question) = questions.get(row) else { continue };
            for at in column.max(question.pair.boundary - 1)..column + time {
                if let Some(&target) = question.pair.text.ids.get(at + 1) {
                    places.push(u32::try_from(index * time + at - column).unwrap_or(u32::MAX));
                    targets.push(target);
                    owners.push(row);
                }
            }
        }
        if places.is_empty() {
            return Ok(());
        }
        let select = || {
            let places = Tensor::new(places.as_slice(), self.decoder.device())?;
            hidden.flatten(0, 1)?.index_select(&places, 0)
        };
        let logprobs = self.logprobs(&select().map_err(failed)?, &targets)?;
        for (row, logprob) in owners.into_iter().zip(logprobs) {
            if let Some(question) = questions.get_mut(row).filter(|question| question.is_open()) {
                question.add(logprob);
            }
        }
        Ok(())
    }
}
