//! Defines [`Optimizer`], which changes weights by their gradients. The trainer of small models, and the training of
//! the classifier of regions (`classifier.rs`), call it in each step.
//!
//! Muon changes the projection matrices of layers: it takes the gradient with momentum, and makes it nearly orthogonal
//! by five steps of a Newton-Schulz iteration, so that all directions of a matrix learn equally fast. Adam changes all
//! other weights.

use std::collections::BTreeMap;

use candle_core::{Result, Tensor, Var};

/// The momentum of Muon.
const MOMENTUM: f64 = 0.95;
/// The decay of Adam's means of gradients, and of its means of their squares.
const DECAYS: (f64, f64) = (0.9, 0.95);
/// Adam's learning rate as a share of Muon's.
const ADAM_SHARE: f64 = 0.15;
/// The greatest length (Euclidean norm) of all gradients together. Longer gradients are scaled down to this length.
const MAX_NORM: f64 = 1.0;

/// The gradients of weights, by the names of the weights.
pub(in crate::local) type Gradients = BTreeMap<String, Tensor>;

/// The state of an optimiser.
#[derive(Debug, Default)]
pub(in crate::local) struct Optimizer {
    /// The number of steps so far.
    pub(super) steps: usize,
    /// The moving means. A mean of gradients is stored under the name of the weights, and a mean of squared gradients
    /// under this name followed by [`SQUARES`].
    pub(super) moments: BTreeMap<String, Tensor>,
}

/// The end of the names of the means of squared gradients.
const SQUARES: &str = "/squares";

impl Optimizer {
    /// Changes the weights `variables` once, by their gradients. If all gradients together are longer than
    /// [`MAX_NORM`], they are first scaled down to this length, so that a single unusual batch changes little. Muon
    /// then changes the projection matrices of the layers (names with `_proj.`) at the learning rate `rate`, and Adam
    /// all other weights at `rate` times [`ADAM_SHARE`]. A weight without a gradient stays unchanged.
    pub(in crate::local) fn step(
        &mut self,
        variables: &BTreeMap<String, Var>,
        gradients: &Gradients,
        rate: f64,
    ) -> Result<()> {
        self.steps += 1;
        let mut squared_norm = 0.0;
        for gradient in gradients.values() {
            squared_norm += f64::from(gradient.sqr()?.sum_all()?.to_scalar::<f32>()?);
        }
        // The small constant avoids a division by 0.
        let clip_factor = (MAX_NORM / squared_norm.sqrt().max(1e-12)).min(1.0);
        for (name, variable) in variables {
            let Some(gradient) = gradients.get(name) else { continue };
            let gradient = (gradient * clip_factor)?;
            let is_projection_matrix = variable.rank() == 2 && name.contains("_proj.");
            let change =
                if is_projection_matrix { self.muon(name, &gradient)? } else { self.adam(name, &gradient)? };
            let rate = if is_projection_matrix { rate } else { rate * ADAM_SHARE };
            variable.set(&(variable.as_tensor().detach() - (change * rate)?)?)?;
        }
        Ok(())
    }

    /// Updates the moving mean that is stored under `name`, and returns the new mean: `decay` times the old mean, which
    /// is 0 at first, plus `share` times `value`.
    fn mean(&mut self, name: String, value: &Tensor, decay: f64, share: f64) -> Result<Tensor> {
        let mean = match self.moments.get(&name) {
            Some(mean) => ((mean * decay)? + (value * share)?)?,
            None => (value * share)?,
        };
        self.moments.insert(name, mean.clone());
        Ok(mean)
    }

    /// Returns the change of a matrix by Muon: the gradient with Nesterov momentum, made nearly orthogonal, and scaled
    /// by the shape of the matrix. The momentum, a decaying sum of the matrix's gradients, is stored under `name`.
    fn muon(&mut self, name: &str, gradient: &Tensor) -> Result<Tensor> {
        // With the share 1, the whole gradient is added, so `mean` returns a decaying sum.
        let momentum = self.mean(name.to_owned(), gradient, MOMENTUM, 1.0)?;
        let nesterov = (gradient + (momentum * MOMENTUM)?)?;
        let (rows, columns) = nesterov.dims2()?;
        // Only a matrix with more rows than columns is scaled up.
        #[expect(clippy::cast_precision_loss, reason = "widths are small")]
        let scale = (rows as f64 / columns as f64).max(1.0).sqrt();
        orthogonal(&nesterov)? * scale
    }

    /// Returns the change of weights by Adam: the moving mean of their gradients, divided by the root of the moving
    /// mean of the squared gradients. Both means are stored under `name`, the second with [`SQUARES`]. The small
    /// constant avoids a division by 0.
    fn adam(&mut self, name: &str, gradient: &Tensor) -> Result<Tensor> {
        let mean = self.mean(name.to_owned(), gradient, DECAYS.0, 1.0 - DECAYS.0)?;
        let squares = self.mean(format!("{name}{SQUARES}"), &gradient.sqr()?, DECAYS.1, 1.0 - DECAYS.1)?;
        // The means begin at 0, so they are too small in the first steps. These divisions correct them.
        let steps = i32::try_from(self.steps).unwrap_or(i32::MAX);
        let mean = (mean / (1.0 - DECAYS.0.powi(steps)))?;
        let squares = (squares / (1.0 - DECAYS.1.powi(steps)))?;
        mean / (squares.sqrt()? + 1e-10)?
    }
}

/// Returns a matrix with the same directions and nearly equal singular values (between about 0.7 and 1.2), by five
/// steps of the Newton-Schulz iteration of Muon, which needs only products of matrices.
fn orthogonal(matrix: &Tensor) -> Result<Tensor> {
    let (rows, columns) = matrix.dims2()?;
    let is_tall = rows > columns;
    let norm = f64::from(matrix.sqr()?.sum_all()?.to_scalar::<f32>()?).sqrt();
    // The iteration needs singular values of at most 1. The small constant avoids a division by 0.
    let mut x = (matrix / (norm + 1e-7))?;
    // The iteration multiplies the matrix with its transpose. For a tall matrix, this product is smaller if the matrix
    // is transposed first.
    if is_tall {
        x = x.t()?.contiguous()?;
    }
    // The coefficients of Muon: they move small singular values towards 1 fastest.
    for _ in 0..5 {
        let square = x.matmul(&x.t()?)?;
        let polynomial = ((&square * -4.775)? + (square.matmul(&square)? * 2.0315)?)?;
        x = ((&x * 3.4445)? + polynomial.matmul(&x)?)?;
    }
    if is_tall { x.t()?.contiguous() } else { Ok(x) }
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;

    #[test]
    fn matrices_become_nearly_orthogonal() {
        for (rows, columns) in [(3, 5), (5, 3), (4, 4)] {
            let values: Vec<f32> =
                (0..rows * columns).map(|index| ((index * 7 + 3) % 11) as f32 - 5.0).collect();
            let matrix = Tensor::from_vec(values, (rows, columns), &Device::Cpu).unwrap();
            let x = orthogonal(&matrix).unwrap();
            let x = if rows > columns { x.t().unwrap() } else { x };
            let product: Vec<Vec<f32>> = x.matmul(&x.t().unwrap()).unwrap().to_vec2().unwrap();
            for (row, values) in product.iter().enumerate() {
                for (column, value) in values.iter().enumerate() {
                    let expected = if row == column { 0.5..1.5 } else { -0.4..0.4 };
                    assert!(expected.contains(value), "{rows} x {columns}: {product:?}");
                }
            }
        }
    }

    #[test]
    fn adam_finds_the_minimum() {
        let variable = Var::from_tensor(&Tensor::new(&[3.0_f32, -2.0], &Device::Cpu).unwrap()).unwrap();
        let variables = BTreeMap::from([("x".to_owned(), variable.clone())]);
        let mut optimizer = Optimizer::default();
        for step in 0..400 {
            let loss = variable.sqr().unwrap().sum_all().unwrap();
            let rate = 0.5 * (1.0 - f64::from(step) / 400.0);
            let gradient = loss.backward().unwrap().remove(&variable).unwrap();
            optimizer.step(&variables, &BTreeMap::from([("x".to_owned(), gradient)]), rate).unwrap();
        }
        let found: Vec<f32> = variable.to_vec1().unwrap();
        assert!(found.iter().all(|value| value.abs() < 0.05), "{found:?}");
    }
}
