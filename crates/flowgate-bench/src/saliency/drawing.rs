//! Draws the ROC curves of screeners, and RTBAS's Figures 2 and 3: on an HTML page ([`page`]) and as files
//! ([`chart_files`]). `flowgate bench screeners` calls both.

use serde_json::Value;

use super::distribution::{BINS, ScoreDistribution};
use super::report::tables;
use super::{ScreenerResults, ScreenerRow};
use crate::html::{self, Curve, CurveChart, Drawing, curve_file};

/// Returns the page of a run: a chart for each set and each figure, and the tables. `model` names the model. The page
/// loads nothing.
pub fn page(model: &str, results: &ScreenerResults, manifest: &Value) -> String {
    let drawings: Vec<Drawing> =
        charts(results).into_iter().map(|(_, chart)| Drawing::Curves(chart)).collect();
    html::page(&format!("Screeners that read a model, {model}"), manifest, &drawings, &tables(model, results))
}

/// Returns the charts as SVG files, each with its name.
pub fn chart_files(results: &ScreenerResults) -> Vec<(String, String)> {
    charts(results).into_iter().map(|(name, chart)| (format!("{name}.svg"), curve_file(&chart))).collect()
}

/// Returns all charts, each with a name for its file: the ROC curves of each set, in the order of the rows, and then
/// RTBAS's figures.
fn charts(results: &ScreenerResults) -> Vec<(String, CurveChart)> {
    // The rows of a set follow each other, and so do the distributions of a figure.
    let mut sets: Vec<&str> = results.rows.iter().map(|row| row.set.as_str()).collect();
    sets.dedup();
    let mut figures: Vec<&str> =
        results.distributions.iter().map(|distribution| distribution.figure).collect();
    figures.dedup();
    let rocs = sets.into_iter().map(|set| {
        let rows = results.rows.iter().filter(|row| row.set == set);
        let name: String = set.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        (format!("roc-{name}"), roc_chart(set, rows))
    });
    let histograms = figures.into_iter().map(|figure| {
        let of_figure = results.distributions.iter().filter(|distribution| distribution.figure == figure);
        (format!("figure-{figure}"), histogram(figure, of_figure))
    });
    rocs.chain(histograms).collect()
}

/// Returns the chart of the ROC curves of one set. A screener names the regions whose score is at least a threshold.
/// For each threshold, a curve has the share of the dependencies that are named, and that of the other regions.
fn roc_chart<'r>(set: &str, rows: impl Iterator<Item = &'r ScreenerRow>) -> CurveChart {
    let curve = |row: &ScreenerRow| Curve {
        name: format!("{}: area {:.3}", row.screener.name(), row.figures.area),
        points: row.curve.clone(),
    };
    CurveChart {
        title: format!("ROC of screeners: {set}"),
        axes: ("other regions that are named", "dependencies that are named"),
        curves: rows.map(curve).collect(),
    }
}

/// Returns the chart of the distributions of one figure of RTBAS. A distribution is drawn as a step for each of the
/// [`BINS`] ranges of scores; the height of a step is the share of the regions in the range.
fn histogram<'d>(figure: &str, distributions: impl Iterator<Item = &'d ScoreDistribution>) -> CurveChart {
    // The corners of the steps: each range has a point at its lower and one at its upper end.
    let steps = |distribution: &ScoreDistribution| -> Vec<(f64, f64)> {
        let edges = |(bin, share): (usize, f64)| {
            [(bin as f64 / BINS as f64, share), ((bin + 1) as f64 / BINS as f64, share)]
        };
        distribution.shares().into_iter().enumerate().flat_map(edges).collect()
    };
    let curve = |distribution: &ScoreDistribution| Curve {
        name: format!(
            "{}: {} regions, {:.0} % below 0.2",
            distribution.which_regions,
            distribution.scores.len(),
            100.0 * distribution.below_a_fifth()
        ),
        points: steps(distribution),
    };
    let what = match figure {
        "2" => "dependencies and other regions",
        "3a" => "the output follows the user",
        _ => "the output follows an injected instruction",
    };
    CurveChart {
        title: format!("Figure {figure} of RTBAS: {what}"),
        axes: ("attention score of a region", "share of the regions"),
        curves: distributions.map(curve).collect(),
    }
}
