//! Compares the decoder with a slow reference implementation, which was written from the papers as loops over numbers.

use std::collections::HashMap;

use candle_core::Tensor;

use super::tiny;
use crate::local::config::{Activation, Architecture, DecoderConfig, NormKind, Positions};
use crate::local::decoder::{Decoder, Kernels, KeyValueCache, Probe, token_row};

type Rows = Vec<Vec<f64>>;

/// A decoder that evaluates one text from its beginning.
struct Oracle {
    config: DecoderConfig,
    tensors: HashMap<String, Rows>,
}

/// What the oracle computes: the logits, the hidden states by layer, and the attention by layer, head, row and column.
struct Answer {
    logits: Rows,
    hidden: Vec<Rows>,
    attention: Vec<Vec<Rows>>,
}

impl Oracle {
    /// Creates an oracle with these weights, by their names in Hugging Face's form. A vector becomes a matrix of one
    /// row.
    fn new(config: &DecoderConfig, tensors: &HashMap<String, Tensor>) -> Self {
        let rows = |tensor: &Tensor| {
            let matrix = if tensor.rank() == 1 { tensor.unsqueeze(0).unwrap() } else { tensor.clone() };
            let rows: Vec<Vec<f32>> = matrix.to_vec2().unwrap();
            rows.into_iter().map(|row| row.into_iter().map(f64::from).collect()).collect()
        };
        Self {
            config: config.clone(),
            tensors: tensors.iter().map(|(name, tensor)| (name.clone(), rows(tensor))).collect(),
        }
    }

    /// Multiplies the matrix `name` with a vector, and adds its bias if there is one.
    fn linear(&self, name: &str, x: &[f64]) -> Vec<f64> {
        let matrix = &self.tensors[&format!("{name}.weight")];
        let bias = self.tensors.get(&format!("{name}.bias")).map(|bias| &bias[0]);
        let dot = |row: &Vec<f64>| row.iter().zip(x).map(|(a, b)| a * b).sum::<f64>();
        matrix
            .iter()
            .enumerate()
            .map(|(row, weights)| dot(weights) + bias.map_or(0.0, |bias| bias[row]))
            .collect()
    }

    /// Normalises a vector by its root mean square or, with a mean that is subtracted first, by its variance.
    fn norm(&self, name: &str, x: &[f64]) -> Vec<f64> {
        let weight = &self.tensors[&format!("{name}.weight")][0];
        let count = x.len() as f64;
        let mean = if self.config.norm == NormKind::Layer { x.iter().sum::<f64>() / count } else { 0.0 };
        let variance = x.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / count;
        let scale = 1.0 / (variance + self.config.epsilon).sqrt();
        let bias = self.tensors.get(&format!("{name}.bias")).map(|bias| &bias[0]);
        x.iter()
            .enumerate()
            .map(|(at, v)| (v - mean) * scale * weight[at] + bias.map_or(0.0, |bias| bias[at]))
            .collect()
    }

    /// Rotates the vector of a head by the position of its token, if the model has rotary positions.
    fn rotate(&self, x: &mut [f64], position: usize) {
        let Positions::Rotary(rotary) = &self.config.positions else { return };
        let half = rotary.width / 2;
        for (pair, frequency) in rotary.frequencies().into_iter().enumerate() {
            let (sine, cosine) = (position as f64 * frequency).sin_cos();
            let (a, b) = (x[pair], x[pair + half]);
            x[pair] = a * cosine - b * sine;
            x[pair + half] = a * sine + b * cosine;
        }
    }

    /// Computes the attention of a layer for the vectors of all tokens. Returns the output for each token, and the
    /// attention of each head.
    fn attend(&self, layer: &str, x: &Rows) -> (Rows, Vec<Rows>) {
        let config = &self.config;
        let width = config.head_width;
        // The convolution: a weighted sum of the vectors of the tokens before.
        let x: Rows = (0..x.len())
            .map(|t| {
                let mut sum = x[t].clone();
                for tap in 0..config.convolution.min(t) {
                    let weights = &self.tensors[&format!("{layer}.convolution.weight")][tap];
                    sum.iter_mut().zip(weights).zip(&x[t - tap - 1]).for_each(|((s, w), v)| *s += w * v);
                }
                sum
            })
            .collect();
        let (mut queries, mut keys, mut values) = (Vec::new(), Vec::new(), Vec::new());
        for (position, x) in x.iter().enumerate() {
            let [mut q, mut k, v] = if config.is_fused {
                let all = self.linear(&format!("{layer}.qkv_proj"), x);
                let (q, rest) = all.split_at(config.heads * width);
                let (k, v) = rest.split_at(config.key_heads * width);
                [q.to_vec(), k.to_vec(), v.to_vec()]
            } else {
                ["q", "k", "v"].map(|part| self.linear(&format!("{layer}.{part}_proj"), x))
            };
            for (part, name) in [(&mut q, "q_norm"), (&mut k, "k_norm")] {
                for head in part.chunks_mut(width) {
                    if config.query_key_norm {
                        head.copy_from_slice(&self.norm(&format!("{layer}.{name}"), head));
                    }
                    self.rotate(head, position);
                }
            }
            queries.push(q);
            keys.push(k);
            values.push(v);
        }
        let mut attention = vec![Vec::new(); config.heads];
        let mut out = Vec::new();
        for t in 0..x.len() {
            let mut joined = Vec::new();
            for head in 0..config.heads {
                let own = head * width..(head + 1) * width;
                let shared = head * config.key_heads / config.heads * width;
                let shared = shared..shared + width;
                let score = |s: usize| {
                    let is_visible = s <= t && config.window.is_none_or(|window| t - s < window);
                    let dot: f64 = queries[t][own.clone()]
                        .iter()
                        .zip(&keys[s][shared.clone()])
                        .map(|(a, b)| a * b)
                        .sum();
                    if is_visible { dot / (width as f64).sqrt() } else { f64::NEG_INFINITY }
                };
                let scores: Vec<f64> = (0..x.len()).map(score).collect();
                let total: f64 = scores.iter().map(|s| s.exp()).sum();
                let weights: Vec<f64> = scores.iter().map(|s| s.exp() / total).collect();
                joined.extend(
                    shared.map(|at| weights.iter().zip(&values).map(|(w, v)| w * v[at]).sum::<f64>()),
                );
                attention[head].push(weights);
            }
            let name = if config.architecture == Architecture::Opt { "out_proj" } else { "o_proj" };
            out.push(self.linear(&format!("{layer}.{name}"), &joined));
        }
        (out, attention)
    }

    fn activate(&self, x: f64) -> f64 {
        match self.config.activation {
            Activation::Silu => x / (1.0 + (-x).exp()),
            Activation::Relu => x.max(0.0),
            Activation::Gelu | Activation::GeluTanh => unreachable!("no tiny model has it"),
        }
    }

    /// Computes the feed-forward part of a layer for the vector of one token.
    fn feed_forward(&self, layer: &str, x: &[f64]) -> Vec<f64> {
        if self.config.architecture == Architecture::Opt {
            let inner: Vec<f64> =
                self.linear(&format!("{layer}.fc1"), x).into_iter().map(|v| self.activate(v)).collect();
            return self.linear(&format!("{layer}.fc2"), &inner);
        }
        let (gate, up) = if self.config.is_fused {
            let mut gate = self.linear(&format!("{layer}.mlp.gate_up_proj"), x);
            let up = gate.split_off(self.config.inner_width);
            (gate, up)
        } else {
            (
                self.linear(&format!("{layer}.mlp.gate_proj"), x),
                self.linear(&format!("{layer}.mlp.up_proj"), x),
            )
        };
        let inner: Vec<f64> = gate.iter().zip(up).map(|(gate, up)| self.activate(*gate) * up).collect();
        self.linear(&format!("{layer}.mlp.down_proj"), &inner)
    }

    /// Evaluates a text: the embeddings, each layer, and the logits.
    fn run(&self, tokens: &[u32]) -> Answer {
        let config = &self.config;
        let is_opt = config.architecture == Architecture::Opt;
        let root = if is_opt { "model.decoder" } else { "model" };
        let embed = |(position, token): (usize, &u32)| {
            let embedding = &self.tensors[&format!("{root}.embed_tokens.weight")][*token as usize];
            let mut x: Vec<f64> = embedding.iter().map(|v| v * config.embedding_scale).collect();
            if config.embedding_width != config.width {
                x = self.linear(&format!("{root}.project_in"), &x);
            }
            if let Positions::Learned { offset, .. } = config.positions {
                let learned = &self.tensors[&format!("{root}.embed_positions.weight")][position + offset];
                x.iter_mut().zip(learned).for_each(|(x, learned)| *x += learned);
            }
            x
        };
        let add = |a: &[f64], b: &[f64]| -> Vec<f64> { a.iter().zip(b).map(|(a, b)| a + b).collect() };
        let mut x: Rows = tokens.iter().enumerate().map(embed).collect();
        let (mut hidden, mut attention) = (vec![x.clone()], Vec::new());
        for layer in 0..config.layers {
            let layer = format!("{root}.layers.{layer}");
            let [first, second] = if is_opt {
                [format!("{layer}.self_attn_layer_norm"), format!("{layer}.final_layer_norm")]
            } else {
                [format!("{layer}.input_layernorm"), format!("{layer}.post_attention_layernorm")]
            };
            let before =
                |name: &str, x: &[f64]| if config.norm_first { self.norm(name, x) } else { x.to_vec() };
            let after = |name: &str, x: Vec<f64>| if config.norm_first { x } else { self.norm(name, &x) };
            let inputs: Rows = x.iter().map(|x| before(&first, x)).collect();
            let (attended, weights) = self.attend(&format!("{layer}.self_attn"), &inputs);
            attention.push(weights);
            x = x.iter().zip(&attended).map(|(x, attended)| after(&first, add(x, attended))).collect();
            x = x
                .iter()
                .map(|x| after(&second, add(x, &self.feed_forward(&layer, &before(&second, x)))))
                .collect();
            hidden.push(x.clone());
        }
        if config.final_norm {
            let name = if is_opt { "model.decoder.final_layer_norm" } else { "model.norm" };
            x = x.iter().map(|x| self.norm(name, x)).collect();
        }
        if config.embedding_width != config.width {
            x = x.iter().map(|x| self.linear(&format!("{root}.project_out"), x)).collect();
        }
        *hidden.last_mut().unwrap() = x.clone();
        let output = if config.is_tied { format!("{root}.embed_tokens") } else { "lm_head".to_owned() };
        Answer { logits: x.iter().map(|x| self.linear(&output, x)).collect(), hidden, attention }
    }
}

/// Fails if an entry of `found` differs from the expected one by `tolerance` or more.
fn assert_near(found: &Tensor, expected: &Rows, tolerance: f64, what: &str) {
    let found: Vec<Vec<f32>> = found.to_vec2().unwrap();
    assert_eq!((found.len(), found[0].len()), (expected.len(), expected[0].len()), "{what}");
    for (found, expected) in found.iter().flatten().zip(expected.iter().flatten()) {
        assert!((f64::from(*found) - expected).abs() < tolerance, "{what}: {found} and not {expected}");
    }
}

#[test]
fn every_architecture_is_as_the_oracle_computes_it() {
    let tokens: Vec<u32> = vec![3, 250, 17, 17, 99, 280, 0, 64, 3];
    for (name, config) in tiny::configurations() {
        let shape = tiny::read_config(&config);
        let tensors = tiny::tensors(&shape);
        let expected = Oracle::new(&shape, &tensors).run(&tokens);
        let decoder = Decoder::load(shape.clone(), &tiny::memory_weights(&shape, tensors)).unwrap();
        let row = token_row(&tokens, decoder.device()).unwrap();
        for kernels in [Kernels::Fused, Kernels::Differentiable] {
            for layer in 0..=shape.layers {
                let mut probe = Probe {
                    kernels,
                    attention: Some(Vec::new()),
                    hidden_layer: Some(layer),
                    ..Probe::default()
                };
                let (hidden, _) = decoder.forward(&row, &KeyValueCache::default(), &mut probe).unwrap();
                let seen = probe.hidden.unwrap().squeeze(0).unwrap();
                assert_near(&seen, &expected.hidden[layer], 1e-4, &format!("{name}, layer {layer}"));
                let logits = decoder.logits(&hidden).unwrap().squeeze(0).unwrap();
                assert_near(&logits, &expected.logits, 2e-4, &format!("{name}, logits"));
                for (layer, found) in probe.attention.unwrap().iter().enumerate() {
                    for head in 0..shape.heads {
                        let found = found.squeeze(0).unwrap().get(head).unwrap();
                        let what = format!("{name}, attention of layer {layer}, head {head}");
                        assert_near(&found, &expected.attention[layer][head], 1e-5, &what);
                    }
                }
            }
        }
    }
}

#[test]
fn a_cache_changes_nothing() {
    let tokens: Vec<u32> = (0..40).map(|index| (index * 37 + 5) % 288).collect();
    for (name, config) in tiny::configurations() {
        let decoder = tiny::decoder(&config);
        let whole = token_row(&tokens, decoder.device()).unwrap();
        let (whole, all) = decoder.forward(&whole, &KeyValueCache::default(), &mut Probe::default()).unwrap();
        let whole: Vec<Vec<f32>> = whole.squeeze(0).unwrap().to_vec2().unwrap();
        // The text is evaluated in pieces, after a beginning whose cache was cut from that of the whole text.
        for (kept, sizes) in [(0, vec![1; 40]), (0, vec![7, 1, 32]), (11, vec![1, 28]), (39, vec![1])] {
            let mut cache = all.truncated(kept).unwrap();
            let mut start = kept;
            for size in sizes {
                let piece = token_row(&tokens[start..start + size], decoder.device()).unwrap();
                let (hidden, extended) = decoder.forward(&piece, &cache, &mut Probe::default()).unwrap();
                let hidden: Vec<Vec<f32>> = hidden.squeeze(0).unwrap().to_vec2().unwrap();
                for (offset, hidden) in hidden.iter().enumerate() {
                    for (a, b) in hidden.iter().zip(&whole[start + offset]) {
                        assert!((a - b).abs() < 1e-4, "{name} at {}: {a} and not {b}", start + offset);
                    }
                }
                cache = extended;
                start += size;
            }
            assert_eq!((cache.len(), start), (40, 40));
        }
    }
}
