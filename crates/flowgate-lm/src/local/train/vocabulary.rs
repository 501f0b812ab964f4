//! Makes the tokenizer of a small model from the texts that the model is trained on, when a training begins.

use serde_json::Value;
use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::processors::template::TemplateProcessing;
use tokenizers::{AddedToken, PreTokenizerWrapper, Tokenizer, models::TrainerWrapper};

use super::Corpus;
use crate::Error;

/// The number of examples from which the tokenizer is made.
const EXAMPLES: usize = 500;
/// The token that begins each text.
const FIRST: &str = "<s>";

/// Makes a byte-level tokenizer with at most `vocabulary` tokens from examples of the corpus. Returns it in the form of
/// `tokenizer.json`. Each digit is a separate token, so that numbers are copied digit by digit.
pub(super) fn train(corpus: &Corpus, vocabulary: usize) -> Result<Value, Error> {
    let failed =
        |error: tokenizers::Error| Error::Failed(format!("the tokenizer cannot be trained: {error}"));
    let mut tokenizer = Tokenizer::new(BPE::default());
    tokenizer.with_pre_tokenizer(Some(Sequence::new(vec![
        PreTokenizerWrapper::Digits(Digits::new(true)),
        PreTokenizerWrapper::ByteLevel(ByteLevel::new(false, false, true)),
    ])));
    tokenizer.with_decoder(Some(ByteLevel::new(false, false, true)));
    let trainer = BpeTrainer::builder()
        .vocab_size(vocabulary)
        .show_progress(false)
        .special_tokens(vec![AddedToken::from(FIRST, true)])
        .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
        .build();
    let texts = (0..EXAMPLES).map(|index| corpus.example(index).text());
    tokenizer.train(&mut TrainerWrapper::BpeTrainer(trainer), texts).map_err(failed)?;
    let id = tokenizer.token_to_id(FIRST).unwrap_or(0);
    let first = TemplateProcessing::builder()
        .try_single(format!("{FIRST} $A"))
        .map_err(Error::Failed)?
        .special_tokens(vec![(FIRST, id)])
        .build()
        .map_err(|error| Error::Failed(error.to_string()))?;
    tokenizer.with_post_processor(Some(first));
    serde_json::to_value(&tokenizer).map_err(|error| Error::Failed(error.to_string()))
}

/// Returns the number of tokens of a tokenizer in the form of `tokenizer.json`.
pub(super) fn size(tokenizer: &Value) -> usize {
    let vocabulary = tokenizer.get("model").and_then(|model| model.get("vocab")).and_then(Value::as_object);
    vocabulary.map_or(0, serde_json::Map::len)
}
