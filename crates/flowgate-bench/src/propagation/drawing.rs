//! Draws the settings that were tried in tuning, in the form of Figures 7 to 10 of *Permissive Information-Flow
//! Analysis*: the share of exact labels over λ, and over the Shapley threshold. The pages of `report` contain the
//! charts.

use super::method::LabelMethod;
use super::suite::DataSet;
use super::tune::{GridPoint, LAMBDAS, THRESHOLDS};
use crate::html::{Curve, CurveChart, Drawing};

/// Returns the charts: for each set of tuning questions one over λ, and one over the Shapley threshold where it was
/// tried. Each item of `grids` is the name of a double or a model, and its settings.
pub(super) fn grid_drawings(grids: &[(&str, &[(DataSet, GridPoint)])]) -> Vec<Drawing> {
    let mut sets: Vec<DataSet> = Vec::new();
    for (set, _) in grids.iter().flat_map(|(_, grid)| grid.iter()) {
        if !sets.contains(set) {
            sets.push(*set);
        }
    }
    let charts = sets.into_iter().flat_map(|set| [over_lambda(set, grids), over_thresholds(set, grids)]);
    charts.flatten().map(Drawing::Curves).collect()
}

/// Returns the chart of exact labels over λ for one set of tuning questions, with one curve for each model and
/// method; `None` if nothing was tried. `grids` has the name and the settings of each model. Settings with a Shapley
/// threshold are left out: [`over_thresholds`] shows them.
fn over_lambda(set: DataSet, grids: &[(&str, &[(DataSet, GridPoint)])]) -> Option<CurveChart> {
    let mut curves = Vec::new();
    for method in [LabelMethod::HittingSet, LabelMethod::Knn] {
        for (name, grid) in grids {
            // On the axis, neighbouring values of λ have equal distances.
            let tried = grid.iter().filter(|(other, point)| {
                *other == set && point.method == method && point.threshold.is_none()
            });
            let points: Vec<_> =
                tried.map(|(_, point)| (place(&LAMBDAS, point.lambda), point.exact)).collect();
            curves.push(Curve { name: format!("{name}: {}", method.name()), points });
        }
    }
    let axes = ("λ: 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2", "questions with exact labels");
    chart(&format!("{}: exact labels over λ (Figures 7, 8)", set.name()), axes, curves)
}

/// Returns the chart of exact labels over the Shapley threshold for one set of tuning questions, with one curve for
/// each model and each λ; `None` if no threshold was tried. `grids` has the name and the settings of each model.
fn over_thresholds(set: DataSet, grids: &[(&str, &[(DataSet, GridPoint)])]) -> Option<CurveChart> {
    let mut curves = Vec::new();
    for (name, grid) in grids {
        for lambda in LAMBDAS {
            // On the axis, neighbouring thresholds have equal distances. `chart` leaves out a curve without points.
            let points: Vec<_> = grid
                .iter()
                .filter(|(other, point)| *other == set && point.lambda == lambda)
                .filter_map(|(_, point)| Some((place(&THRESHOLDS, point.threshold?), point.exact)))
                .collect();
            curves.push(Curve { name: format!("{name}: λ = {lambda}"), points });
        }
    }
    let axes = ("Shapley threshold: 0, 0.002, 0.01, 0.05", "questions with exact labels");
    chart(&format!("{}: exact labels with pruning (Figures 9, 10)", set.name()), axes, curves)
}

/// Returns a chart of the curves that have points; `None` if no curve has one.
fn chart(title: &str, axes: (&'static str, &'static str), curves: Vec<Curve>) -> Option<CurveChart> {
    let curves: Vec<Curve> = curves.into_iter().filter(|curve| !curve.points.is_empty()).collect();
    (!curves.is_empty()).then(|| CurveChart { title: title.to_owned(), axes, curves })
}

/// Returns the place of a value on an axis from 0 to 1 where the tried values have equal distances; 0 if it was not
/// tried.
fn place(tried: &[f64], value: f64) -> f64 {
    let index = tried.iter().position(|other| *other == value).unwrap_or(0);
    index as f64 / (tried.len().max(2) - 1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_that_was_tried_is_drawn() {
        let point = |method, lambda, threshold| {
            let point = GridPoint { method, lambda, threshold, exact: 0.5 };
            (DataSet::KeyValue, point)
        };
        let mut grid: Vec<_> =
            LAMBDAS.iter().map(|lambda| point(LabelMethod::HittingSet, *lambda, None)).collect();
        for lambda in LAMBDAS {
            grid.extend(
                THRESHOLDS.iter().map(|threshold| point(LabelMethod::Shapley, lambda, Some(*threshold))),
            );
        }
        let drawings = grid_drawings(&[("one", &grid), ("two", &grid)]);
        let charts: Vec<(String, Vec<usize>)> = drawings
            .iter()
            .map(|drawing| match drawing {
                Drawing::Curves(chart) => {
                    (chart.title.clone(), chart.curves.iter().map(|curve| curve.points.len()).collect())
                }
                _ => (String::new(), Vec::new()),
            })
            .collect();
        assert_eq!(
            charts,
            [
                ("key-value/14: exact labels over λ (Figures 7, 8)".to_owned(), vec![8, 8]),
                ("key-value/14: exact labels with pruning (Figures 9, 10)".to_owned(), vec![4; 16]),
            ]
        );
        assert_eq!((place(&LAMBDAS, 0.01), place(&LAMBDAS, 2.0)), (0.0, 1.0));
        assert!(grid_drawings(&[("one", &[])]).is_empty());
    }
}
