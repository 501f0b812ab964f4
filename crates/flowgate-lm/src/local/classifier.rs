//! Defines [`DependencyClassifier`], a neural network that decides from features of attention which regions of a prompt
//! an output depends on (*RTBAS: Defending LLM Agents Against Prompt Injection and Privacy Leakage*, section 7.2). The
//! network is an LSTM of two layers, which reads the regions in their order and returns a probability for each.
//! `flowgate screen train` and the benchmarks train it, and the screeners that read attention use it.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use candle_core::{DType, Device, Result, Tensor, Var};
use candle_nn::rnn::{LSTM, LSTMConfig, RNN};
use candle_nn::{Linear, Module, VarBuilder};

use super::evaluation::failed;
use super::load_error::LoadError;
use super::sampler::SplitMix;
use super::train::{Gradients, Optimizer};
use crate::{Error, FeatureSet, RegionClassifier, RegionSummary};

/// The width of the two layers.
const WIDTH: usize = 16;
/// The passes over the examples.
const PASSES: usize = 60;
/// The highest learning rate of the matrices.
const RATE: f64 = 0.05;

/// A trained network that decides which regions of a prompt an output depends on.
pub struct DependencyClassifier {
    features: FeatureSet,
    variables: BTreeMap<String, Var>,
    first: LSTM,
    second: LSTM,
    output: Linear,
}

impl std::fmt::Debug for DependencyClassifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DependencyClassifier").finish_non_exhaustive()
    }
}

/// The regions of one prompt in their order, each with whether the output depends on it.
pub type ClassifiedRegions = Vec<(RegionSummary, bool)>;

impl DependencyClassifier {
    /// Trains a network on `examples`. `features` selects the features of a region that the network reads. `seed`
    /// determines the first weights: the same examples and seed give the same network. `step` is called after each pass
    /// over the examples, so that the caller can show progress or stop: if `step` returns true, the training ends
    /// early, and returns the network after this pass.
    ///
    /// # Errors
    /// If the outputs of the examples depend on all their regions, or on none, or if the loss becomes infinite or is
    /// not a number.
    pub fn train(
        examples: &[ClassifiedRegions],
        features: FeatureSet,
        seed: u64,
        step: &mut dyn FnMut() -> bool,
    ) -> std::result::Result<Self, Error> {
        let variables = initial_weights(features, seed).map_err(failed)?;
        let classifier = Self::assemble(features, variables).map_err(failed)?;
        let mut optimizer = Optimizer::default();
        // Regions that an output depends on (`positive`) are rare. Each gets a `weight` such that all of them together
        // weigh as much as all other regions, which have the weight 1.
        let all = || examples.iter().flatten();
        let positive = all().filter(|(_, depends)| *depends).count();
        if positive == 0 || positive == all().count() {
            let problem =
                "the examples need both regions that the outputs depend on and regions that they do not depend on; give more examples"
                    .to_owned();
            return Err(Error::Failed(problem));
        }
        #[expect(clippy::cast_precision_loss, reason = "examples are few")]
        let weight = (all().count() - positive) as f64 / positive as f64;
        let batches = examples.len().div_ceil(BATCH);
        for pass in 0..PASSES {
            for (number, batch) in examples.chunks(BATCH).enumerate() {
                let loss = classifier.loss(batch, weight).map_err(failed)?;
                let value = loss.to_scalar::<f32>().map_err(failed)?;
                if !value.is_finite() {
                    return Err(Error::Failed(format!(
                        "the loss in pass {pass} of the training is not a number; train with another seed"
                    )));
                }
                // Collects the gradient of each weight under its name.
                let mut found = loss.backward().map_err(failed)?;
                let named = classifier.variables.iter().filter_map(|(name, variable)| {
                    found.remove(variable).map(|gradient| (name.clone(), gradient.detach()))
                });
                let gradients: Gradients = named.collect();
                // The share of the whole training that is left. The learning rate falls with it, almost to 0.
                #[expect(clippy::cast_precision_loss, reason = "passes are few")]
                let remaining_share = 1.0 - (pass * batches + number) as f64 / (PASSES * batches) as f64;
                optimizer.step(&classifier.variables, &gradients, RATE * remaining_share).map_err(failed)?;
            }
            if step() {
                break;
            }
        }
        Ok(classifier)
    }

    /// Returns which features the network reads.
    #[must_use]
    pub fn features(&self) -> FeatureSet {
        self.features
    }

    /// Writes the weights of the network to a safetensors file.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn save(&self, path: &Path) -> std::result::Result<(), LoadError> {
        let tensors: HashMap<String, Tensor> = self
            .variables
            .iter()
            .map(|(name, variable)| (name.clone(), variable.as_tensor().clone()))
            .collect();
        candle_core::safetensors::save(&tensors, path).map_err(|error| LoadError::of_saving(path, error))
    }

    /// Reads a network from a safetensors file. The number of columns of the first matrix says which features the
    /// network reads.
    ///
    /// # Errors
    /// If the file is missing or damaged, or its tensors are not those of such a network.
    pub fn load(path: &Path) -> std::result::Result<Self, LoadError> {
        let failed = |error: candle_core::Error| LoadError::new(path, error.to_string());
        let folder = super::weights::safetensors::SafetensorsFolder::of_file(path.to_owned())?;
        let variables =
            folder.all()?.into_iter().map(|(name, tensor)| Ok((name, Var::from_tensor(&tensor)?)));
        let variables = variables.collect::<Result<BTreeMap<_, _>>>().map_err(failed)?;
        let columns = variables.get(FIRST_MATRIX).and_then(|first| first.dim(1).ok());
        let features = FeatureSet::ALL.into_iter().find(|features| Some(features.size()) == columns);
        let features = features.ok_or_else(|| {
            LoadError::new(
                path,
                format!(
                    "the matrix `{FIRST_MATRIX}` is missing, or has a number of columns that no set of features has; train the screener again"
                ),
            )
        })?;
        Self::assemble(features, variables).map_err(failed)
    }

    /// Builds the layers of the network from its weights, which are named as in PyTorch. Fails if a weight is missing
    /// or has another shape.
    fn assemble(features: FeatureSet, variables: BTreeMap<String, Var>) -> Result<Self> {
        // The tensors share their storage with the variables, so a change of a variable by the training also changes
        // the layers.
        let tensors = variables.iter().map(|(name, variable)| (name.clone(), variable.as_tensor().clone()));
        let weights = VarBuilder::from_tensors(tensors.collect(), DType::F32, &Device::Cpu);
        // A layer that reads vectors with `inputs` entries.
        let layer =
            |inputs: usize, name: &str| LSTM::new(inputs, WIDTH, LSTMConfig::default(), weights.pp(name));
        Ok(Self {
            first: layer(features.size(), "first")?,
            second: layer(WIDTH, "second")?,
            // One number for each region: its logit.
            output: candle_nn::linear(WIDTH, 1, weights.pp("output"))?,
            features,
            variables,
        })
    }

    /// Returns the logit of each region: the logarithm of the odds that the output depends on it.
    fn logits(&self, regions: &[RegionSummary]) -> Result<Tensor> {
        // `scaled` returns logarithms: the features span several orders of magnitude.
        let values: Vec<f32> = regions.iter().flat_map(|region| scaled(&self.features.of(region))).collect();
        let inputs = Tensor::from_vec(values, (1, regions.len(), self.features.size()), &Device::Cpu)?;
        // Returns the output of a layer for each region. The layer reads the regions as the steps of a sequence.
        let read = |layer: &LSTM, inputs: &Tensor| {
            let states = layer.seq(inputs)?;
            let outputs: Vec<Tensor> = states.iter().map(|state| state.h().clone()).collect();
            Tensor::stack(&outputs, 1)
        };
        let hidden = read(&self.second, &read(&self.first, &inputs)?)?;
        self.output.forward(&hidden)?.flatten_all()
    }

    /// Returns the loss of a batch, which the training lowers: the mean cross-entropy between the probabilities of the
    /// network and the right answers, over all regions of the batch. A region that the output depends on counts
    /// `weight` times, and any other region once.
    fn loss(&self, batch: &[ClassifiedRegions], weight: f64) -> Result<Tensor> {
        let mut losses = Vec::with_capacity(batch.len());
        let mut total = 0.0;
        for regions in batch.iter().filter(|regions| !regions.is_empty()) {
            let summaries: Vec<RegionSummary> = regions.iter().map(|(summary, _)| *summary).collect();
            let logits = self.logits(&summaries)?;
            // The cross-entropy is ln(1 + exp(-logit)) for a dependency and ln(1 + exp(logit)) otherwise.
            let signs: Vec<f32> =
                regions.iter().map(|(_, depends)| if *depends { -1.0 } else { 1.0 }).collect();
            #[expect(clippy::cast_possible_truncation, reason = "weights are in single precision")]
            let weights: Vec<f32> =
                regions.iter().map(|(_, depends)| if *depends { weight as f32 } else { 1.0 }).collect();
            total += weights.iter().copied().map(f64::from).sum::<f64>();
            let signed = (logits * Tensor::new(signs, &Device::Cpu)?)?;
            // ln(1 + exp(x)) is max(x, 0) + ln(1 + exp(-|x|)), which does not overflow.
            let softplus = (signed.relu()? + (signed.abs()?.neg()?.exp()? + 1.0)?.log()?)?;
            losses.push((softplus * Tensor::new(weights, &Device::Cpu)?)?.sum_all()?);
        }
        // The divisor is at least 1, so that it is never 0.
        Tensor::stack(&losses, 0)?.sum_all()? / total.max(1.0)
    }
}

impl RegionClassifier for DependencyClassifier {
    /// Computes the probability of each region from its logit.
    fn probabilities(&self, regions: &[RegionSummary]) -> std::result::Result<Vec<f64>, Error> {
        if regions.is_empty() {
            return Ok(Vec::new());
        }
        let logits = self.logits(regions).and_then(|logits| logits.to_vec1::<f32>()).map_err(failed)?;
        if logits.iter().any(|logit| !logit.is_finite()) {
            return Err(Error::Failed(
                "a probability of the screener's classifier is not a number, so its weights are damaged; train the screener again"
                    .to_owned(),
            ));
        }
        Ok(logits.into_iter().map(|logit| 1.0 / (1.0 + (-f64::from(logit)).exp())).collect())
    }
}

/// How many examples one step of the training learns from.
const BATCH: usize = 16;

/// Returns the logarithms of a region's features. The features span several orders of magnitude, and the network learns
/// better from numbers of similar size. The small constant keeps the logarithm of 0 finite.
#[expect(clippy::cast_possible_truncation, reason = "features are in single precision")]
fn scaled(features: &[f64]) -> Vec<f32> {
    features.iter().map(|value| (value + 1e-3).ln() as f32).collect()
}

/// The name of the first matrix, which has a column for each feature.
const FIRST_MATRIX: &str = "first.weight_ih_l0";

/// Draws the weights with which the training starts, and returns them by their names in PyTorch's form. All are drawn
/// uniformly from the same range, which is narrower for wider layers. The same seed gives the same weights.
fn initial_weights(features: FeatureSet, seed: u64) -> Result<BTreeMap<String, Var>> {
    let mut random = SplitMix::new(seed);
    // An LSTM has four gates, whose matrices are stored as one.
    let gates = 4 * WIDTH;
    let shapes: [(&str, &[usize]); 10] = [
        (FIRST_MATRIX, &[gates, features.size()]),
        ("first.weight_hh_l0", &[gates, WIDTH]),
        ("first.bias_ih_l0", &[gates]),
        ("first.bias_hh_l0", &[gates]),
        ("second.weight_ih_l0", &[gates, WIDTH]),
        ("second.weight_hh_l0", &[gates, WIDTH]),
        ("second.bias_ih_l0", &[gates]),
        ("second.bias_hh_l0", &[gates]),
        ("output.weight", &[1, WIDTH]),
        ("output.bias", &[1]),
    ];
    #[expect(clippy::cast_precision_loss, reason = "the width is small")]
    let bound = 1.0 / (WIDTH as f64).sqrt();
    let mut weights = BTreeMap::new();
    for (name, shape) in shapes {
        let count: usize = shape.iter().product();
        #[expect(clippy::cast_possible_truncation, reason = "weights are in single precision")]
        let values: Vec<f32> = (0..count).map(|_| ((random.uniform() * 2.0 - 1.0) * bound) as f32).collect();
        weights.insert(name.to_owned(), Var::from_tensor(&Tensor::from_vec(values, shape, &Device::Cpu)?)?);
    }
    Ok(weights)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RegionFeatures;
    use crate::local::tests::TempFolder;

    /// Prompts of regions of which exactly one has most of the attention, more or less clearly.
    fn examples(seed: u64, count: usize) -> Vec<ClassifiedRegions> {
        let mut random = SplitMix::new(seed);
        let mut prompt = || {
            let needed = usize::try_from(random.next() % 5).unwrap();
            let region = |index: usize| {
                let noise = random.uniform();
                let sum = if index == needed { 0.3 + 0.4 * noise } else { 0.2 * noise };
                let plain = RegionFeatures { sum, mean: 5.0 * sum, quantiles: [sum; 4], peak: sum };
                (RegionSummary { plain, ..RegionSummary::default() }, index == needed)
            };
            (0..5).map(region).collect()
        };
        (0..count).map(|_| prompt()).collect()
    }

    #[test]
    fn a_network_learns_repeats_and_is_saved() {
        FeatureSet::ALL.into_iter().for_each(check_network);
    }

    /// Trains a network that reads `features`, and checks that it learns, repeats, and is the same after it was saved.
    fn check_network(features: FeatureSet) {
        let train = || DependencyClassifier::train(&examples(1, 40), features, 7, &mut || false).unwrap();
        let classifier = train();
        let probabilities = |classifier: &DependencyClassifier| -> Vec<f64> {
            let prompts = examples(2, 20);
            let of = |prompt: &ClassifiedRegions| {
                let regions: Vec<RegionSummary> = prompt.iter().map(|(summary, _)| *summary).collect();
                classifier.probabilities(&regions).unwrap()
            };
            prompts.iter().flat_map(of).collect()
        };
        let found = probabilities(&classifier);
        let expected: Vec<bool> = examples(2, 20).into_iter().flatten().map(|(_, depends)| depends).collect();
        let right =
            found.iter().zip(&expected).filter(|(probability, depends)| (**probability > 0.5) == **depends);
        assert!(right.count() >= 95, "{found:?}");
        assert_eq!(probabilities(&train()), found);
        let folder = TempFolder::new();
        let file = folder.path().join("classifier.safetensors");
        classifier.save(&file).unwrap();
        let loaded = DependencyClassifier::load(&file).unwrap();
        assert_eq!((probabilities(&loaded), loaded.features()), (found, features));
        assert_eq!(classifier.probabilities(&[]).unwrap(), Vec::<f64>::new());
    }

    #[test]
    fn what_cannot_be_learned_is_an_error() {
        let one_sided = vec![vec![(RegionSummary::default(), false)]];
        let error = DependencyClassifier::train(&one_sided, FeatureSet::Paper, 1, &mut || false).unwrap_err();
        assert!(error.to_string().contains("both regions"), "{error}");
        assert!(DependencyClassifier::load(Path::new("no-such-file")).is_err());
    }
}
