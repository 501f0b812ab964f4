//! Matrices with an optional bias, and matrices that several parts share.

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

    /// Maps the last dimension.
    pub(super) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mapped = match &self.matrix {
            Matrix::Dense(matrix) => {
                // One product of two matrices; a batch of products would copy the weights.
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

/// Several results of one input: one matrix for each, or one for all, whose rows are divided among them.
#[derive(Debug)]
pub(super) enum Projections {
    Separate(Vec<Linear>),
    Fused(Linear, Vec<usize>),
}

impl Projections {
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
