//! Multiplies vectors with the matrices of the model: with one matrix and an optional bias ([`Linear`]), or with
//! several matrices that read the same input ([`Projections`]), which some models store as one matrix. Attention, the
//! feed-forward part and the output of the decoder use this module.

use candle_core::{Module, Result, Tensor};

use super::super::load_error::LoadError;
use super::super::weights::{Matrix, TensorRole, Weights};

/// A matrix with an optional bias.
#[derive(Debug)]
pub(super) struct Linear {
    matrix: Matrix,
    bias: Option<Tensor>,
}

impl Linear {
    /// Reads the matrix `role` of `rows` by `columns`, and its bias if `bias` names one. Fails if a tensor is missing
    /// or has another shape.
    pub(super) fn load(
        weights: &Weights,
        role: TensorRole,
        bias: Option<TensorRole>,
        rows: usize,
        columns: usize,
    ) -> std::result::Result<Self, LoadError> {
        let matrix = weights.matrix(role, rows, columns)?;
        Ok(Self { matrix, bias: bias.map(|role| weights.tensor(role, &[rows])).transpose()? })
    }

    /// Multiplies the matrix with each vector in the last dimension of `x`, and adds the bias.
    pub(super) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mapped = match &self.matrix {
            Matrix::Dense(matrix) => {
                // All vectors become the rows of one matrix, for a single product: a batch of products would copy the
                // weights.
                let mut shape = x.dims().to_vec();
                let columns = shape.pop().unwrap_or(1);
                shape.push(matrix.dim(0)?);
                x.reshape(((), columns))?.matmul(&matrix.t()?)?.reshape(shape)?
            }
            Matrix::Quantized(matrix) => matrix.forward(&x.contiguous()?)?,
        };
        match &self.bias {
            Some(bias) => mapped.broadcast_add(bias),
            None => Ok(mapped),
        }
    }
}

/// Several projections of one input.
#[derive(Debug)]
pub(super) enum Projections {
    /// One matrix for each projection.
    Separate(Vec<Linear>),
    /// One matrix, whose rows are divided among the projections by these widths.
    Fused(Linear, Vec<usize>),
}

impl Projections {
    /// Returns the projections of the vectors in the last dimension of `x`, in order. If they are stored as one matrix
    /// (fused), computes one product, and divides its columns among the projections by their widths.
    pub(super) fn forward(&self, x: &Tensor) -> Result<Vec<Tensor>> {
        match self {
            Self::Separate(parts) => parts.iter().map(|part| part.forward(x)).collect(),
            Self::Fused(all, widths) => {
                let all = all.forward(x)?;
                let mut start = 0;
                let mut parts = Vec::with_capacity(widths.len());
                for &width in widths {
                    parts.push(all.narrow(candle_core::D::Minus1, start, width)?.contiguous()?);
                    start += width;
                }
                Ok(parts)
            }
        }
    }
}
