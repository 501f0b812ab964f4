//! Defines rotary positions ([`RotaryConfig`]) and the ways to stretch them over longer texts ([`RotaryScaling`]), and
//! reads both from a `config.json`. A model with rotary positions turns the vectors of each token by angles that grow
//! with the token's position, so that attention depends on the distance between two tokens. `hugging_face.rs` calls
//! this module to read the configuration, and `decoder/rotary.rs` turns the vectors.

use std::f64::consts::PI;

use super::super::load_error::LoadError;
use super::MAX_CONTEXT;
use super::fields::Fields;

/// The rotation of queries and keys by their position.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RotaryConfig {
    /// The base of the wavelengths.
    pub(crate) base: f64,
    /// How many of the first entries of a head's vector are rotated; even, since entries are rotated in pairs.
    pub(crate) width: usize,
    pub(crate) scaling: RotaryScaling,
    /// Whether the two entries of a pair are adjacent, as in the GGUF files of Llama, instead of half a width apart.
    pub(crate) is_interleaved: bool,
}

/// How wavelengths are changed for texts longer than those of the training.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum RotaryScaling {
    None,
    /// All wavelengths are multiplied by a factor.
    Linear(f64),
    /// Long wavelengths are multiplied by a factor, short ones are unchanged (Llama 3.1).
    Llama3 {
        factor: f64,
        /// A wavelength that fits at most this often into the original length of text is long.
        low: f64,
        /// A wavelength that fits at least this often into the original length of text is short.
        high: f64,
        /// The length of text of the training, in tokens.
        original: f64,
    },
    /// A factor for each wavelength, and one for the rotated vectors (Phi-3, and GGUF files).
    Factors {
        /// The factors of the wavelengths, which divide the frequencies.
        divisors: Vec<f32>,
        /// The factor of the rotated vectors.
        magnitude: f64,
    },
}

impl RotaryConfig {
    /// Returns for each pair of entries the angle, in radians, by which the pair turns from one token to the next:
    /// `width / 2` angles. Scaling makes the angles smaller, so that those of longer texts stay in the range that
    /// occurred in the training.
    #[expect(clippy::cast_precision_loss, reason = "widths are small")]
    pub(crate) fn frequencies(&self) -> Vec<f64> {
        let frequency = |pair: usize| self.base.powf(-((2 * pair) as f64) / self.width as f64);
        let plain = (0..self.width / 2).map(frequency);
        match &self.scaling {
            RotaryScaling::None => plain.collect(),
            RotaryScaling::Linear(factor) => plain.map(|frequency| frequency / factor).collect(),
            RotaryScaling::Llama3 { factor, low, high, original } => plain
                .map(|frequency| {
                    // The frequency of a pair that turns often within the original length of text stays unchanged, and
                    // that of a slow pair is divided by `factor`. Between the two, `unchanged` is the share of the
                    // unchanged frequency in a mean of both.
                    let turns = original * frequency / (2.0 * PI);
                    let unchanged = ((turns - low) / (high - low)).clamp(0.0, 1.0);
                    frequency * (unchanged + (1.0 - unchanged) / factor)
                })
                .collect(),
            RotaryScaling::Factors { divisors, .. } => {
                plain.zip(divisors).map(|(frequency, divisor)| frequency / f64::from(*divisor)).collect()
            }
        }
    }

    /// Returns the factor by which rotated vectors are multiplied; 1 if the scaling has none.
    pub(crate) fn magnitude(&self) -> f64 {
        match self.scaling {
            RotaryScaling::Factors { magnitude, .. } => magnitude,
            _ => 1.0,
        }
    }

    /// Reads the rotation of the vectors of a head, which have `head_width` entries. `context` is how many tokens the
    /// caller wants to read; [`RotaryScaling::read`] can lower this number. Fails if the number of rotated entries is
    /// odd or out of range, a field has another type, or the scaling is not supported.
    pub(super) fn read(
        fields: Fields<'_>,
        head_width: usize,
        context: &mut usize,
    ) -> Result<Self, LoadError> {
        // Newer versions of transformers write the base of the wavelengths, the share of rotated entries and the
        // scaling in one object, `rope_parameters`. Older ones write the scaling in the object `rope_scaling`, and the base
        // and the share at the top level of the file.
        let parameters = fields.object("rope_parameters")?;
        let scaling = fields.object("rope_scaling")?.or(parameters);
        // A number in `rope_parameters` takes precedence over one at the top level, which replaces the default.
        let base =
            parameters.unwrap_or(fields).number("rope_theta", fields.number("rope_theta", 10_000.0)?)?;
        // The share of the entries of a vector that are rotated; the others are unchanged.
        let share = parameters
            .unwrap_or(fields)
            .number("partial_rotary_factor", fields.number("partial_rotary_factor", 1.0)?)?;
        #[expect(clippy::cast_precision_loss, reason = "widths are small")]
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the product is positive, the cast saturates, and a share above 1 is rejected below"
        )]
        let width = (head_width as f64 * share) as usize;
        if share > 1.0 || width < 2 || !width.is_multiple_of(2) {
            return Err(fields.error(format_args!(
                "rotary positions cover {width} of the {head_width} dimensions of a head, but must cover an even number, at least 2 and at most all; check `partial_rotary_factor` and `head_dim`"
            )));
        }
        let scaling = match scaling {
            None => RotaryScaling::None,
            Some(scaling) => RotaryScaling::read(scaling, fields, width, context)?,
        };
        // In the files of Hugging Face, the entries of a pair are half a width apart.
        Ok(Self { base, width, scaling, is_interleaved: false })
    }
}

impl RotaryScaling {
    /// Reads the object `scaling` of the configuration `fields`, for a rotation of `width` entries. `context` is how
    /// many tokens the caller wants to read. If the factors depend on the length of the text, `context` is lowered to
    /// the model's limit. Fails if a field is missing or out of range, or the type of the scaling is not supported.
    fn read(
        scaling: Fields<'_>,
        fields: Fields<'_>,
        width: usize,
        context: &mut usize,
    ) -> Result<Self, LoadError> {
        let kind = match scaling.text("rope_type")? {
            Some(kind) => kind,
            None => scaling.text("type")?.unwrap_or("default"),
        };
        match kind {
            "default" => Ok(Self::None),
            "linear" => Ok(Self::Linear(scaling.number("factor", 1.0)?)),
            "llama3" => {
                let (low, high) = (scaling.number("low_freq_factor", 1.0)?, scaling.number("high_freq_factor", 4.0)?);
                if high <= low {
                    return Err(fields.error("`high_freq_factor` must be greater than `low_freq_factor`; use the unchanged file of a supported model"));
                }
                let original = scaling.number("original_max_position_embeddings", 8192.0)?;
                Ok(Self::Llama3 { factor: scaling.number("factor", 1.0)?, low, high, original })
            }
            // `su` is the older name of `longrope`.
            "longrope" | "su" => Self::read_long(scaling, fields, width, context),
            _ => Err(fields.error(format_args!(
                "`rope_scaling` of type `{kind}` is not supported; use a model with default, linear, llama3 or longrope"
            ))),
        }
    }

    /// Reads a `scaling` whose factors depend on the length of the text, with the parameters of [`read`](Self::read).
    fn read_long(
        scaling: Fields<'_>,
        fields: Fields<'_>,
        width: usize,
        context: &mut usize,
    ) -> Result<Self, LoadError> {
        // The length of text of the training, in tokens.
        let key = "original_max_position_embeddings";
        let original = match scaling.optional_size(key, MAX_CONTEXT)? {
            Some(size) => size,
            None => fields.size(key, MAX_CONTEXT)?,
        };
        let longest = fields.size("max_position_embeddings", MAX_CONTEXT)?;
        // Such a model has different factors for long and for short texts. This decoder chooses the factors once, by
        // the context and not by the length of each text, so that texts can share caches.
        let is_long = *context > original;
        *context = (*context).min(longest);
        let list = if is_long { "long_factor" } else { "short_factor" };
        #[expect(clippy::cast_precision_loss, reason = "contexts are small")]
        let (longest, original) = (longest as f64, original as f64);
        // The formula by which transformers computes a missing factor of the rotated vectors.
        let magnitude = match scaling.get("attention_factor") {
            Some(_) => scaling.number("attention_factor", 1.0)?,
            None if longest <= original => 1.0,
            None => (1.0 + (longest / original).ln() / original.ln()).sqrt(),
        };
        Ok(Self::Factors { divisors: scaling.numbers(list, width / 2)?, magnitude })
    }
}
