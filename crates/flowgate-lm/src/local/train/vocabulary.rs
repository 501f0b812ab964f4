//! Trains the tokenizer of a small model on the same texts as the model. [`Trainer`](super::Trainer) calls this module
//! when a training begins.

use std::fmt;

use serde_json::Value;
use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::punctuation::Punctuation;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::processors::template::TemplateProcessing;
use tokenizers::{
    AddedToken, PreTokenizerWrapper, SplitDelimiterBehavior, Tokenizer, models::TrainerWrapper,
};

use super::Corpus;
use crate::Error;

/// How many examples the tokenizer is trained on.
const EXAMPLES: usize = 2000;
/// The token that begins each text.
const FIRST: &str = "<s>";

/// Trains a byte-level tokenizer with at most `vocabulary` tokens, and returns it in the form of `tokenizer.json`. Each
/// digit and each sign of punctuation is a token of its own. Spaces have no token, so that a value has the same tokens
/// after a space, a quote or a bracket, and the model can copy it from any text. Text that such a model generates
/// therefore has no spaces. The tokenizer adds the token [`FIRST`] before each text.
pub(super) fn train(corpus: &Corpus, vocabulary: usize) -> Result<Value, Error> {
    let untrainable = |error: &dyn fmt::Display| {
        Error::Failed(format!(
            "the tokenizer of the new model cannot be trained: {error}; this is a defect of Flowgate; please report it"
        ))
    };
    let failed = |error: tokenizers::Error| untrainable(&error);
    let spaces = SplitPattern::String(" ".to_owned());
    // `false`: the pattern matches the separators, and not the parts between them.
    let spaces = Split::new(spaces, SplitDelimiterBehavior::Removed, false).map_err(failed)?;
    let mut tokenizer = Tokenizer::new(BPE::default());
    tokenizer.with_pre_tokenizer(Some(Sequence::new(vec![
        PreTokenizerWrapper::Split(spaces),
        PreTokenizerWrapper::Digits(Digits::new(true)),
        PreTokenizerWrapper::Punctuation(Punctuation::new(SplitDelimiterBehavior::Isolated)),
        // Maps each byte to a character. Adds no space before the text, and divides it no further.
        PreTokenizerWrapper::ByteLevel(ByteLevel::new(false, false, false)),
    ])));
    // The decoder turns the characters back into bytes; it does not read the three flags.
    tokenizer.with_decoder(Some(ByteLevel::new(false, false, true)));
    // Learn the tokens from examples of the corpus.
    let trainer = BpeTrainer::builder()
        .vocab_size(vocabulary)
        .show_progress(false)
        .special_tokens(vec![AddedToken::from(FIRST, true)])
        .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
        .build();
    let texts = (0..EXAMPLES).map(|index| corpus.example(index).text());
    tokenizer.train(&mut TrainerWrapper::BpeTrainer(trainer), texts).map_err(failed)?;
    // The trainer has added `FIRST` as a special token, so it has an id.
    let id = tokenizer.token_to_id(FIRST).unwrap_or(0);
    let first = TemplateProcessing::builder()
        .try_single(format!("{FIRST} $A"))
        .map_err(|error| untrainable(&error))?
        .special_tokens(vec![(FIRST, id)])
        .build()
        .map_err(|error| untrainable(&error))?;
    tokenizer.with_post_processor(Some(first));
    serde_json::to_value(&tokenizer).map_err(|error| untrainable(&error))
}

/// Returns the number of tokens of a tokenizer in the form of `tokenizer.json`.
pub(super) fn size(tokenizer: &Value) -> usize {
    let vocabulary = tokenizer.get("model").and_then(|model| model.get("vocab")).and_then(Value::as_object);
    vocabulary.map_or(0, serde_json::Map::len)
}
