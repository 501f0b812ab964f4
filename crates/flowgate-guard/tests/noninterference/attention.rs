//! Answers for a screener that reads attention: an arbitrary one, whose choice depends on everything that it reads, and
//! with the feature `local` one that reads the small model that ships with Flowgate.

use std::sync::Arc;

use flowgate_guard::screener::attention::{AttentionReader, AttentionScreener};
use flowgate_lm::chat::{Completion, Request};
use flowgate_lm::{
    Attention, AttentionModel, AttentionRequest, ChatModel as _, Error, RegionClassifier, RegionSummary,
    ScriptedModel, block_on, ignore_deltas,
};

use crate::model::worst;
use crate::random::Random;

/// A model whose attention depends on all that it reads and on nothing else. It fails at long chats.
struct ArbitraryAttention;

impl AttentionModel for ArbitraryAttention {
    fn attention(&self, request: &AttentionRequest<'_>) -> Result<Attention, Error> {
        let (length, limit) = (request.prompt.len(), 6000);
        if length > limit {
            return Err(Error::TooManyTokens { tokens: length, limit });
        }
        let mut random = Random::of(&format!("{}\n{}", request.prompt, request.continuation));
        let tokens: Vec<_> = (0..length).map(|at| at..at + 1).collect();
        let share = random.below(100);
        let weights: Vec<f32> = (0..length).map(|_| if random.chance(share) { 1.0 } else { 0.01 }).collect();
        let gradients = vec![1.0; length];
        let output = std::iter::once(0..request.continuation.len()).collect();
        Attention::new(tokens, output, (1, 1), weights, gradients).ok_or(Error::Unsupported("this shape"))
    }
}

/// A classifier whose decisions vary with the features.
struct ArbitraryClassifier;

impl RegionClassifier for ArbitraryClassifier {
    fn probabilities(&self, regions: &[RegionSummary]) -> Result<Vec<f64>, Error> {
        let decide =
            |region: &RegionSummary| f64::from(u8::from(Random::of(&format!("{region:?}")).chance(50)));
        Ok(regions.iter().map(decide).collect())
    }
}

#[cfg(not(feature = "local"))]
fn reader() -> Arc<dyn AttentionModel> {
    Arc::new(ArbitraryAttention)
}

/// Returns the small model, or in every second request the arbitrary one.
#[cfg(feature = "local")]
fn reader() -> Arc<dyn AttentionModel> {
    use std::sync::OnceLock;

    static SMALL: OnceLock<Arc<flowgate_lm::LocalModel>> = OnceLock::new();
    struct MixedAttention;
    impl AttentionModel for MixedAttention {
        fn attention(&self, request: &AttentionRequest<'_>) -> Result<Attention, Error> {
            if Random::of(request.prompt).chance(50) {
                return ArbitraryAttention.attention(request);
            }
            let small = SMALL
                .get_or_init(|| Arc::new(flowgate_lm::LocalModel::embedded().expect("the model that ships")));
            small.attention(request)
        }
    }
    Arc::new(MixedAttention)
}

/// Returns the answer to a question of the judge by attention; `None` if the request is no such question.
pub(crate) fn chosen_by_attention(request: &Request) -> Option<Completion> {
    let writer = ScriptedModel::from_function(|request| Ok(worst(request, &format!("{request:?}"))));
    let screener = AttentionScreener {
        writer: Arc::new(writer),
        reader: AttentionReader {
            model: reader(),
            classifier: Arc::new(ArbitraryClassifier),
            threshold: 0.5,
        },
    };
    block_on(screener.complete(request, &mut ignore_deltas)).ok()
}
