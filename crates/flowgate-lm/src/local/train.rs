//! Defines [`Trainer`], which trains Flowgate's own small models. `flowgate lm train` runs a training.
//!
//! A training is determined by its [`TrainingSettings`], its examples and the kind of processor. It can be stopped
//! after any step and resumed from its folder. A resumed training gives the same weights, bit for bit, as one that was
//! not stopped, and the number of cores does not change them. A GPU, or a processor with other vector instructions,
//! gives different weights, because it adds numbers in another order and therefore rounds differently. The folder of a
//! training is also a model that `LocalModel::load` reads.
//!
//! | file | purpose |
//! |---|---|
//! | `settings.rs` | the shape of a model, the settings of its training, and its first weights |
//! | `optimizer.rs` | changes weights: the matrices of layers by Muon, all others by Adam |
//! | `checkpoint.rs` | writes and reads the folder of a training |
//! | `corpus.rs` | generates texts, and weights their parts in the loss |
//! | `accuracy.rs` | measures how well a model copies values of examples that it was not trained on |
//! | `vocabulary.rs` | trains a tokenizer on the generated texts |

mod accuracy;
mod checkpoint;
mod corpus;
mod optimizer;
mod settings;
mod vocabulary;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use candle_core::{Device, Tensor, Var};

use self::checkpoint::Progress;
use super::Processor;
use super::config::{DecoderConfig, hugging_face};
use super::decoder::{Decoder, Kernels, KeyValueCache, Probe};
use super::evaluation::failed;
use super::inside::token_losses;
use super::load_error::LoadError;
use super::tokenizer::TextTokenizer;
use super::weights::{WeightSource, Weights};
use crate::Error;

pub use accuracy::{CopyAccuracy, HELD_OUT, copy_accuracy};
pub use corpus::{Corpus, Example, ExampleKind};
pub(super) use optimizer::{Gradients, Optimizer};
pub use settings::{ModelShape, TrainingSettings};

/// A training of a small model.
#[derive(Debug)]
pub struct Trainer {
    settings: TrainingSettings,
    /// The content of the model's `config.json`.
    config: serde_json::Map<String, serde_json::Value>,
    /// The content of the model's `tokenizer.json`.
    tokenizer_json: serde_json::Value,
    tokenizer: TextTokenizer,
    /// The decoder, which reads the weights from `variables`.
    decoder: Decoder,
    /// The weights by name.
    variables: BTreeMap<String, Var>,
    optimizer: Optimizer,
    progress: Progress,
}

/// How many examples are evaluated together.
const GROUP: usize = 4;

/// The tokens of an example, each with its weight in the loss.
#[derive(Clone)]
struct ExampleRow {
    ids: Vec<u32>,
    weights: Vec<f32>,
}

/// Examples of similar length, which are evaluated together.
struct ExampleGroup {
    rows: Vec<ExampleRow>,
    /// The sum of the weights of all groups of the batch.
    total_weight: f32,
}

impl Trainer {
    /// Begins a training. The tokenizer is trained on examples of the corpus, and the first weights are drawn from the
    /// seed of the settings.
    ///
    /// # Errors
    /// If the sizes of the shape do not fit each other (the error names the size), or the tokenizer cannot be trained.
    pub fn new(settings: TrainingSettings, corpus: &Corpus) -> Result<Self, LoadError> {
        // There is no file yet, so errors name the settings instead.
        let source = Path::new("settings");
        let wrong = |error: Error| LoadError::new(source, error.to_string());
        let tokenizer_json = vocabulary::train(corpus, settings.shape.vocabulary).map_err(wrong)?;
        let rows = vocabulary::size(&tokenizer_json);
        let config = settings.shape.config(rows);
        let shape = hugging_face::read(source, &config, None)?;
        let variables = settings::initial_weights(&shape, settings.seed)
            .map_err(|error| LoadError::new(source, error.to_string()))?;
        Self::assemble(
            source,
            settings,
            config,
            tokenizer_json,
            variables,
            Optimizer::default(),
            Progress::default(),
        )
    }

    /// Begins a training with the tokenizer and the weights of the model in `folder`, which an earlier training has
    /// [exported](Self::export). The number of steps and the moving means of the optimizer begin at 0.
    ///
    /// # Errors
    /// If the folder has no such model, or the model does not have the shape of the settings.
    pub fn from_model(settings: TrainingSettings, folder: &Path) -> Result<Self, LoadError> {
        let model = checkpoint::read_model(folder)?;
        if model.config != settings.shape.config(vocabulary::size(&model.tokenizer)) {
            let problem = "the model does not have the shape of the settings, so its training cannot be continued: \
                begin with another model, or without one";
            return Err(LoadError::new(&folder.join("config.json"), problem));
        }
        let (optimizer, progress) = (Optimizer::default(), Progress::default());
        Self::assemble(folder, settings, model.config, model.tokenizer, model.variables, optimizer, progress)
    }

    /// Continues the training that [`save`](Self::save) wrote to a folder.
    ///
    /// # Errors
    /// If the folder has no training, or its files were not saved at the same step.
    pub fn resume(folder: &Path) -> Result<Self, LoadError> {
        let saved = checkpoint::read(folder)?;
        Self::assemble(
            folder,
            saved.settings,
            saved.config,
            saved.tokenizer,
            saved.variables,
            saved.optimizer,
            saved.progress,
        )
    }

    /// Combines the parts of a training, which are new or were read from a folder, and loads a decoder with the weights
    /// of `variables`. `config` and `tokenizer_json` are the contents of the model's `config.json` and
    /// `tokenizer.json`. Errors name `source`: the folder, or a word if there is none.
    fn assemble(
        source: &Path,
        settings: TrainingSettings,
        config: serde_json::Map<String, serde_json::Value>,
        tokenizer_json: serde_json::Value,
        variables: BTreeMap<String, Var>,
        optimizer: Optimizer,
        progress: Progress,
    ) -> Result<Self, LoadError> {
        let shape: DecoderConfig = hugging_face::read(source, &config, None)?;
        let tokenizer = TextTokenizer::from_json(source, tokenizer_json.clone())?;
        // These tensors share their storage with the variables, so that the decoder has the weights of each step.
        let tensors: HashMap<String, Tensor> =
            variables.iter().map(|(name, variable)| (name.clone(), variable.as_tensor().clone())).collect();
        let device = variables.values().next().map_or(Device::Cpu, |variable| variable.device().clone());
        let weights =
            Weights { source: WeightSource::Memory(tensors), architecture: shape.architecture, device };
        let decoder = Decoder::load(shape, &weights)?;
        Ok(Self { settings, config, tokenizer_json, tokenizer, decoder, variables, optimizer, progress })
    }

    /// Moves the training to a processor, which computes the further steps. A new or resumed training is on the CPU.
    ///
    /// The same training on another kind of processor gives other weights, since sums are rounded in another order.
    ///
    /// # Errors
    /// If the processor cannot be used.
    pub fn on(mut self, processor: Processor) -> Result<Self, LoadError> {
        // No folder is read, so errors name the training instead.
        let source = Path::new("training");
        let device = super::device(source, processor)?;
        if device.same_device(self.decoder.device()) {
            return Ok(self);
        }
        let failed = |error: candle_core::Error| LoadError::new(source, error.to_string());
        let moved = |(name, variable): (String, Var)| {
            let tensor = variable.as_tensor().detach().to_device(&device)?;
            Ok((name, Var::from_tensor(&tensor)?))
        };
        let variables = self.variables.into_iter().map(moved).collect::<candle_core::Result<_>>();
        for moment in self.optimizer.moments.values_mut() {
            *moment = moment.to_device(&device).map_err(failed)?;
        }
        Self::assemble(
            source,
            self.settings,
            self.config,
            self.tokenizer_json,
            variables.map_err(failed)?,
            self.optimizer,
            self.progress,
        )
    }

    /// Returns the number of steps that are done.
    #[must_use]
    pub fn steps_done(&self) -> usize {
        self.progress.losses.len()
    }

    /// Returns whether all steps of the settings are done.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.steps_done() >= self.settings.steps
    }

    /// Returns the loss of each step so far: the mean negative log-probability of a token, weighted as the examples
    /// state.
    #[must_use]
    pub fn losses(&self) -> &[f32] {
        &self.progress.losses
    }

    /// Returns the number of weights.
    #[must_use]
    pub fn weight_count(&self) -> usize {
        self.variables.values().map(|variable| variable.elem_count()).sum()
    }

    /// Does one step of the training: computes the loss of the next batch of examples of the corpus, and changes the
    /// weights by the gradients of this loss. Returns the loss as it was before the change, and adds it to
    /// [`losses`](Self::losses).
    ///
    /// # Errors
    /// If an example is longer than the model reads, no part of the examples has a weight, or the loss is not a number
    /// because the learning rate is too high.
    pub fn step(&mut self, corpus: &Corpus) -> Result<f32, Error> {
        let step = self.steps_done();
        let first = self.settings.first_example + step * self.settings.batch;
        let examples: Vec<Example> =
            (first..first + self.settings.batch).map(|index| corpus.example(index)).collect();
        // Examples of similar length are evaluated together, as a group.
        let (value, gradients) = self.loss_and_gradients(&self.groups(&examples)?)?;
        if !value.is_finite() {
            return Err(Error::Failed(format!(
                "the loss at step {step} is not a number; lower the learning rate"
            )));
        }
        let rate = self.settings.rate(step);
        self.optimizer.step(&self.variables, &gradients, rate).map_err(failed)?;
        self.progress.losses.push(value);
        Ok(value)
    }

    /// Returns the loss of examples without learning from them: the mean negative log-probability of a token, weighted
    /// as the examples state.
    ///
    /// # Errors
    /// If an example is longer than the model reads, or no part of the examples has a weight.
    pub fn evaluate(&self, examples: &[Example]) -> Result<f32, Error> {
        // The loss of a group is already divided by the weights of all groups, so the losses are added.
        let groups = self.groups(examples)?;
        let losses = groups.iter().map(|group| self.loss(group)?.to_scalar::<f32>().map_err(failed));
        losses.sum()
    }

    /// Writes the model, and the state that is needed to continue the training, to a folder.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn save(&self, folder: &Path) -> Result<(), LoadError> {
        checkpoint::write(folder, self)
    }

    /// Writes the model alone, with its weights in half precision, to a folder that `LocalModel::load` reads.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn export(&self, folder: &Path) -> Result<(), LoadError> {
        checkpoint::export(folder, self)
    }

    /// Returns the settings.
    #[must_use]
    pub fn settings(&self) -> &TrainingSettings {
        &self.settings
    }

    /// Converts examples to tokens, each with its weight in the loss. Groups examples of similar length, since the rows
    /// of a group are padded to the longest.
    ///
    /// # Errors
    /// If an example is longer than the model reads, or no part of the examples has a weight above 0.
    fn groups(&self, examples: &[Example]) -> Result<Vec<ExampleGroup>, Error> {
        let mut rows: Vec<ExampleRow> = Vec::with_capacity(examples.len());
        for example in examples {
            let (mut ids, mut weights): (Vec<u32>, Vec<f32>) = (Vec::new(), Vec::new());
            for (index, (text, weight)) in example.parts().iter().enumerate() {
                // The text begins with the tokens that the tokenizer adds, as it does when it is scored.
                let tokens = match index {
                    0 => self.tokenizer.encode(text)?,
                    _ => self.tokenizer.encode_written_out(text)?,
                };
                ids.extend(tokens.ids);
                // Each token of the part gets the weight of the part.
                weights.resize(ids.len(), *weight);
            }
            let limit = self.decoder.config().context;
            if ids.len() > limit {
                return Err(Error::TooManyTokens { tokens: ids.len(), limit });
            }
            rows.push(ExampleRow { ids, weights });
        }
        // The first token of a row is not predicted.
        let total_weight: f32 = rows.iter().flat_map(|row| row.weights.iter().skip(1)).sum();
        if total_weight <= 0.0 {
            return Err(Error::Failed(
                "no part of the examples has a weight above 0, so there is nothing to learn; give a part a weight above 0".to_owned(),
            ));
        }
        rows.sort_by_key(|row| row.ids.len());
        Ok(rows.chunks(GROUP).map(|rows| ExampleGroup { rows: rows.to_vec(), total_weight }).collect())
    }

    /// Returns the loss of all groups together, and its gradients. Several threads compute groups at the same time, one
    /// for each core. The results are added in the order of the groups, so that the number of cores does not change the
    /// sum.
    fn loss_and_gradients(&self, groups: &[ExampleGroup]) -> Result<(f32, Gradients), Error> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from).min(groups.len().max(1));
        // With n cores, each core takes every n-th group. The groups are sorted by length, so all cores get a similar
        // amount of work.
        let results: Vec<Result<(f32, Gradients), Error>> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..cores)
                .map(|core| {
                    scope.spawn(move || {
                        let own = groups.iter().skip(core).step_by(cores);
                        own.map(|group| self.loss_and_gradients_of(group)).collect::<Vec<_>>()
                    })
                })
                .collect();
            // For each core, an iterator over its results.
            let mut of_cores: Vec<_> = workers
                .into_iter()
                .map(|worker| worker.join().map(Vec::into_iter).unwrap_or_default())
                .collect();
            // A thread that panicked has no results. The groups that it should have computed are errors.
            let stopped = || {
                Err(Error::Failed(
                    "a thread of the training panicked; this is a defect of Flowgate; please report it"
                        .to_owned(),
                ))
            };
            // The results in the order of the groups: the result of a group is the next one of its core.
            (0..groups.len())
                .map(|group| of_cores.get_mut(group % cores).and_then(Iterator::next).unwrap_or_else(stopped))
                .collect()
        });
        // Add the losses and the gradients of all groups.
        let (mut sum, mut gradients) = (0.0, Gradients::new());
        for result in results {
            let (loss, found) = result?;
            sum += loss;
            for (name, gradient) in found {
                let added = match gradients.remove(&name) {
                    Some(so_far) => (so_far + gradient).map_err(failed)?,
                    None => gradient,
                };
                gradients.insert(name, added);
            }
        }
        Ok((sum, gradients))
    }

    /// Returns the loss of one group, and its gradients by the names of the weights.
    fn loss_and_gradients_of(&self, group: &ExampleGroup) -> Result<(f32, Gradients), Error> {
        let loss = self.loss(group)?;
        let mut found = loss.backward().map_err(failed)?;
        let named = self.variables.iter().filter_map(|(name, variable)| {
            found.remove(variable).map(|gradient| (name.clone(), gradient.detach()))
        });
        let gradients = named.collect();
        Ok((loss.to_scalar().map_err(failed)?, gradients))
    }

    /// Returns what a group contributes to the loss of all groups, as a tensor that has a gradient: the sum of the
    /// negative log-probabilities of the group's tokens, each times its weight, divided by the sum of the weights in
    /// all groups.
    fn loss(&self, group: &ExampleGroup) -> Result<Tensor, Error> {
        let rows = &group.rows;
        // The number of inputs of a row: each token but the last one predicts the token after it.
        let time = rows.iter().map(|row| row.ids.len()).max().unwrap_or(0).saturating_sub(1);
        // For all rows, one after the other: the input tokens, the target token after each input, and the target's
        // weight.
        let (mut inputs, mut targets, mut weights) = (Vec::new(), Vec::new(), Vec::new());
        for row in rows {
            // Padding has the token 0 and the weight 0.
            let padded = |skip: usize| (skip..skip + time).map(|at| row.ids.get(at).copied().unwrap_or(0));
            inputs.extend(padded(0));
            targets.extend(padded(1));
            weights.extend((1..=time).map(|at| row.weights.get(at).copied().unwrap_or(0.0)));
        }
        let device = self.decoder.device();
        let loss = || {
            let inputs = Tensor::from_vec(inputs, (rows.len(), time), device)?;
            let mut probe = Probe { kernels: Kernels::Differentiable, ..Probe::default() };
            let (hidden, _) = self.decoder.forward(&inputs, &KeyValueCache::default(), &mut probe)?;
            // Logits are computed only for targets with a weight: a row of logits is as long as the vocabulary.
            let weighted: Vec<usize> =
                (0..weights.len()).filter(|&at| weights.get(at) != Some(&0.0)).collect();
            let indices: Vec<u32> = weighted.iter().filter_map(|&at| u32::try_from(at).ok()).collect();
            let weighted_targets: Vec<u32> =
                weighted.iter().filter_map(|&at| targets.get(at).copied()).collect();
            let their_weights: Vec<f32> =
                weighted.iter().filter_map(|&at| weights.get(at).copied()).collect();
            let indices = Tensor::new(indices, device)?;
            let logits = self.decoder.logits(&hidden.flatten(0, 1)?.index_select(&indices, 0)?)?;
            let losses = token_losses(&logits, &Tensor::new(weighted_targets, device)?)?;
            // The weighted mean: `total_weight` is the sum of the weights of all groups.
            (losses * Tensor::new(their_weights, device)?)?.sum_all()? / f64::from(group.total_weight)
        };
        loss().map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::tests::TempFolder;
    use crate::{ScoringModel, block_on};

    /// Returns the settings of a training that takes a moment: a tiny model, six steps and one example for each step.
    fn settings() -> TrainingSettings {
        let shape = ModelShape {
            vocabulary: 300,
            width: 32,
            layers: 2,
            heads: 4,
            key_heads: 2,
            ..ModelShape::default()
        };
        TrainingSettings { shape, steps: 6, batch: 1, warm_up: 2, ..TrainingSettings::default() }
    }

    /// Returns the bits of all weights, in the order of their names.
    fn weights(trainer: &Trainer) -> Vec<u32> {
        let values =
            trainer.variables.values().map(|variable| variable.flatten_all().unwrap().to_vec1::<f32>());
        values.flat_map(Result::unwrap).map(f32::to_bits).collect()
    }

    #[test]
    fn a_resumed_training_gives_the_same_bits() {
        let corpus = Corpus::new(7);
        let mut whole = Trainer::new(settings(), &corpus).unwrap();
        while !whole.is_done() {
            whole.step(&corpus).unwrap();
        }
        let folder = TempFolder::new();
        let mut stopped = Trainer::new(settings(), &corpus).unwrap();
        for _ in 0..3 {
            stopped.step(&corpus).unwrap();
        }
        stopped.save(folder.path()).unwrap();
        let mut resumed = Trainer::resume(folder.path()).unwrap();
        assert_eq!(resumed.steps_done(), 3);
        while !resumed.is_done() {
            resumed.step(&corpus).unwrap();
        }
        assert_eq!(resumed.losses(), whole.losses());
        assert_eq!(weights(&resumed), weights(&whole));
        // On the same examples, since single steps differ.
        let examples: Vec<Example> = (0..4).map(|index| corpus.example(index)).collect();
        let first = Trainer::new(settings(), &corpus).unwrap().evaluate(&examples).unwrap();
        let last = whole.evaluate(&examples).unwrap();
        assert!(last < first - 0.1, "it learns: {last} after {first}");
        // The folder is a model: its score is the loss of the same text.
        let model = crate::LocalModel::load(folder.path(), &crate::local::LocalSettings::default()).unwrap();
        let scored = block_on(model.score("The agent", " pays.")).unwrap();
        assert!(scored.len() > 1 && scored.iter().all(|token| token.logprob < 0.0));
    }

    /// A training that begins with an exported model has its weights, in half precision; one of another shape is
    /// refused.
    #[test]
    fn a_training_begins_with_a_trained_model() {
        let corpus = Corpus::new(7);
        let folder = TempFolder::new();
        let mut first = Trainer::new(settings(), &corpus).unwrap();
        for _ in 0..3 {
            first.step(&corpus).unwrap();
        }
        first.export(folder.path()).unwrap();
        let example = [corpus.example(0)];
        let next = Trainer::from_model(settings(), folder.path()).unwrap();
        assert_eq!(next.steps_done(), 0);
        let (one, other) = (first.evaluate(&example).unwrap(), next.evaluate(&example).unwrap());
        assert!((one - other).abs() < 1e-2, "{one} {other}");
        let fresh = Trainer::new(settings(), &corpus).unwrap().evaluate(&example).unwrap();
        assert!((fresh - other).abs() > 1e-2, "{fresh} {other}");
        let shape = ModelShape { layers: settings().shape.layers + 1, ..settings().shape };
        let refused =
            Trainer::from_model(TrainingSettings { shape, ..settings() }, folder.path()).unwrap_err();
        assert!(
            refused.to_string().contains("the model does not have the shape of the settings"),
            "{refused}"
        );
    }

    /// A model is trained on the tokens that it scores later, which begin with one that the tokenizer adds.
    #[test]
    fn a_row_has_the_tokens_of_its_text() {
        let corpus = Corpus::new(7);
        let trainer = Trainer::new(settings(), &corpus).unwrap();
        let example = corpus.example(0);
        let [group] = &trainer.groups(std::slice::from_ref(&example)).unwrap()[..] else {
            panic!("one group")
        };
        let expected = trainer.tokenizer.encode(&example.text()).unwrap();
        assert!(expected.spans[0].is_empty(), "the added token");
        assert_eq!(group.rows[0].ids, expected.ids);
    }

    #[test]
    fn other_seeds_are_other_trainings() {
        let corpus = Corpus::new(7);
        let other = TrainingSettings { seed: 2, ..settings() };
        let (a, b) = (Trainer::new(settings(), &corpus).unwrap(), Trainer::new(other, &corpus).unwrap());
        assert_ne!(weights(&a), weights(&b));
        assert_eq!(weights(&a), weights(&Trainer::new(settings(), &corpus).unwrap()));
    }

    #[test]
    fn damaged_folders_are_errors() {
        let corpus = Corpus::new(7);
        let folder = TempFolder::new();
        Trainer::new(settings(), &corpus).unwrap().save(folder.path()).unwrap();
        let check = |file: &str, content: &[u8], expected: &str| {
            let path = folder.path().join(file);
            let whole = std::fs::read(&path).unwrap();
            std::fs::write(&path, content).unwrap();
            let error = Trainer::resume(folder.path()).unwrap_err().to_string();
            let error = error.replace(folder.path().to_str().unwrap(), "M");
            assert_eq!(error, format!("cannot load the model from {expected}"));
            std::fs::write(&path, whole).unwrap();
        };
        check(
            "training.json",
            b"{}",
            "`M/training.json`: the file is damaged or has another format: missing field `settings` at line 1 column 2; replace it with an undamaged copy",
        );
        check(
            "training.safetensors",
            b"12",
            "`M/training.safetensors`: the file is shorter than its header says, so it is incomplete; download it again",
        );
        Trainer::resume(folder.path()).unwrap();
    }
}
