//! Tests of scores: batches, prefixes, bounds, and tokens that span the end of the prompt.

use proptest::prelude::*;

use super::tiny;
use crate::local::LocalModel;
use crate::{HiddenStateModel, Score, ScoreRequest, ScoringModel, block_on};

/// Computes a score with one evaluation of the whole text for each token, without batches, prefixes and bounds.
fn slow(model: &LocalModel, prompt: &str, continuation: &str) -> Vec<(String, f64)> {
    let pair = model.tokenizer.encode_pair(prompt, continuation).unwrap();
    let token = |at: usize| {
        let (hidden, _) =
            model.evaluate(&pair.text.ids[..at], &Default::default(), &mut Default::default()).unwrap();
        let logits = model.last_logits(&hidden).unwrap();
        let sum: f64 = logits.iter().map(|logit| f64::from(*logit).exp()).sum();
        let text = continuation[pair.text.spans[at].clone()].to_owned();
        (text, f64::from(logits[pair.text.ids[at] as usize]) - sum.ln())
    };
    (pair.boundary..pair.text.ids.len()).map(token).collect()
}

/// Fails if a score does not have the expected tokens, each with nearly the expected log-probability.
fn assert_same(score: &Score, expected: &[(String, f64)], what: &str) {
    assert_eq!(score.tokens.len(), expected.len(), "{what}");
    for (found, (text, logprob)) in score.tokens.iter().zip(expected) {
        assert_eq!(&found.text, text, "{what}");
        assert!((found.logprob - logprob).abs() < 1e-4, "{what}: {} and not {logprob}", found.logprob);
    }
}

/// A batch of requests with different prefixes, prompts and continuations gives each request the score that [`slow`]
/// computes for it alone.
#[test]
fn batches_and_prefixes_give_the_same_scores() {
    let long = "the other theory ".repeat(4);
    for name in ["llama", "phi3", "flowgate"] {
        let model = tiny::model(&tiny::configuration(name));
        let first = block_on(model.prefix(None, &long)).unwrap();
        // The next text changes the last token of the prefix.
        let second = block_on(model.prefix(Some(&first), "\nA document.")).unwrap();
        let prefixes = [None, Some(&first), Some(&second)];
        let texts = [
            ("Who?", " the cat"),
            ("\nWhat", " a much longer answer, é, with more tokens"),
            ("", "\n\n"),
            ("x", ""),
        ];
        let requests: Vec<ScoreRequest<'_>> = prefixes
            .iter()
            .flat_map(|prefix| {
                texts.map(|(prompt, continuation)| ScoreRequest {
                    prefix: *prefix,
                    prompt,
                    continuation,
                    bound: None,
                })
            })
            .collect();
        let scores = block_on(model.score_batch(&requests)).unwrap();
        for (request, score) in requests.iter().zip(&scores) {
            assert!(!score.is_stopped);
            let expected = slow(&model, &request.whole_prompt(), request.continuation);
            assert_same(score, &expected, &format!("{name}: {request:?}"));
        }
    }
}

/// Subcontexts with different documents of equal length are one batch: the caches of their prefixes are stacked. Each
/// row has the score that it has alone, also where rows end or stop before others.
#[test]
fn different_prefixes_of_equal_length_are_one_batch() {
    for name in ["llama", "phi3", "opt", "flowgate"] {
        let model = tiny::model(&tiny::configuration(name));
        let root = block_on(model.prefix(None, "the documents\n")).unwrap();
        let prefixes: Vec<_> = ["abc", "bca", "cab"]
            .map(|text| block_on(model.prefix(Some(&root), &format!("{text}\n"))).unwrap())
            .into_iter()
            .collect();
        let longer = block_on(model.prefix(Some(&root), "abcabc\n")).unwrap();
        let request = |prefix, continuation, bound| ScoreRequest {
            prefix: Some(prefix),
            prompt: "Q:",
            continuation,
            bound,
        };
        let answers = [" ab", " a longer answer of more tokens than sixteen", " c"];
        let mut requests: Vec<ScoreRequest<'_>> =
            prefixes.iter().zip(answers).map(|(prefix, answer)| request(prefix, answer, None)).collect();
        // The second text of a prefix is in the same batch.
        requests.push(request(&prefixes[1], " b", None));
        assert_eq!(model.batch_count(&requests).unwrap(), 1, "{name}");
        requests.push(request(&prefixes[2], answers[1], Some(-1.0)));
        assert_eq!(model.batch_count(&requests).unwrap(), 1, "{name}");
        let scores = block_on(model.score_batch(&requests)).unwrap();
        for (request, score) in requests.iter().zip(&scores) {
            let mut expected = slow(&model, &request.whole_prompt(), request.continuation);
            if request.bound.is_some() {
                assert!(score.is_stopped);
                expected.truncate(score.tokens.len());
            }
            assert_same(score, &expected, &format!("{name}: {request:?}"));
        }
        // A prefix of another length is in another batch.
        requests.push(request(&longer, " b", None));
        assert_eq!(model.batch_count(&requests).unwrap(), 2, "{name}");
    }
}

#[test]
fn a_prefix_of_another_model_is_a_text() {
    let (one, other) = (tiny::model(&tiny::configuration("llama")), tiny::model(&tiny::configuration("opt")));
    let prefix = block_on(one.prefix(None, "some text")).unwrap();
    let request = ScoreRequest { prefix: Some(&prefix), prompt: " and", continuation: " more", bound: None };
    let score = block_on(other.score_batch(&[request])).unwrap();
    assert_same(&score[0], &slow(&other, "some text and", " more"), "opt");
}

#[test]
fn scoring_stops_below_the_bound() {
    let model = tiny::model(&tiny::configuration("qwen3"));
    let continuation = "a continuation of many tokens, which is not scored to its end";
    let all = slow(&model, "Q", continuation);
    // The sum of the log-probabilities up to each token.
    let sums: Vec<f64> = all
        .iter()
        .scan(0.0, |sum, (_, logprob)| {
            *sum += logprob;
            Some(*sum)
        })
        .collect();
    for at in [0, 1, 15, 16, 17, all.len() - 1] {
        let bound = Some(sums[at] + 1e-3);
        let bounded = ScoreRequest { prompt: "Q", continuation, bound, ..ScoreRequest::default() };
        let free = ScoreRequest { bound: None, ..bounded };
        let scores = block_on(model.score_batch(&[free, bounded, free])).unwrap();
        // Each further token lowers the sum, so the sum at this token is the first one below the bound.
        assert_same(&scores[1], &all[..=at], &format!("{at}"));
        assert!(scores[1].is_stopped && !scores[0].is_stopped);
        assert_same(&scores[0], &all, "without a bound");
        assert_same(&scores[2], &all, "without a bound");
    }
}

#[test]
fn a_continuation_begins_with_a_token() {
    let model = tiny::model(&tiny::configuration("llama"));
    // The number of tokens of the prompt, and the texts of the tokens of the continuation.
    let pair = |prompt: &str, continuation: &str| {
        let pair = model.tokenizer.encode_pair(prompt, continuation).unwrap();
        let texts: Vec<&str> =
            pair.text.spans[pair.boundary..].iter().map(|span| &continuation[span.clone()]).collect();
        (pair.boundary, texts.join("|"))
    };
    assert_eq!(pair("the", " the"), (2, " |the".to_owned()));
    // ` t` is one token in the whole text, but the prompt and the continuation are tokenized separately.
    assert_eq!(pair("the ", "ten"), (3, "t|e|n".to_owned()));
    assert_eq!(pair("a\n", "\nb"), (3, "\n|b".to_owned()));
    assert_eq!(pair("", "the"), (1, "the".to_owned()));
    // Both tokens of the character have its bytes.
    assert_eq!(pair("x", "é"), (2, "é|é".to_owned()));
}

#[test]
fn hidden_states_have_a_layer() {
    let model = tiny::model(&tiny::configuration("llama"));
    let text = "a text of more than one piece ".repeat(9);
    for layer in 0..=2 {
        let states = model.hidden_states(&text, layer).unwrap();
        assert_eq!(
            (states.tokens.len(), states.vectors.len()),
            (model.count_tokens(&text).unwrap(), states.tokens.len())
        );
        assert!(states.tokens.len() > 200 && states.vectors.iter().all(|vector| vector.len() == 32));
    }
    let last = model.hidden_states("ab", 2).unwrap();
    assert_ne!(last.vectors, model.hidden_states("ab", 1).unwrap().vectors);
    let error = model.hidden_states("ab", 3).unwrap_err().to_string();
    assert_eq!(
        error,
        "the model cannot answer this request: it has fewer layers than the number of the requested layer; name a lower layer"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn tokens_spell_the_texts(prompt in "[a-eht \n<>|é€]{0,12}", continuation in "[a-eht \n<>|é€]{1,12}") {
        let model = tiny_tokenizer();
        let pair = model.encode_pair(&prompt, &continuation).unwrap();
        let text = model.decode(&pair.text.ids).unwrap();
        prop_assert_eq!(text, format!("<s>{prompt}{continuation}"));
        let (before, after) = pair.text.spans.split_at(pair.boundary);
        prop_assert!(before.iter().all(|span| span.end <= prompt.len()));
        prop_assert_eq!(after.first().map(|span| span.start), Some(0));
        prop_assert_eq!(after.last().map(|span| span.end), Some(continuation.len()));
    }
}

fn tiny_tokenizer() -> crate::local::tokenizer::TextTokenizer {
    let folder = tiny::TempFolder::new();
    folder.write("tokenizer.json", tiny::tokenizer().to_string());
    crate::local::tokenizer::TextTokenizer::read(&folder.path().join("tokenizer.json")).unwrap()
}
