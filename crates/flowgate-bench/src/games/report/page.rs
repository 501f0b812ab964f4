//! Writes the HTML page of a run of the games, which `flowgate bench games --format html` prints. Scatter charts show the share of closed channels
//! against the attacker's advantage, overall and for each game, and violations that took effect against benign utility. Bar charts show
//! AgentSecBench's Figures 2 and 3, the tokens, and the latency if it was measured. The tables follow.

use serde_json::Value;

use super::super::adaptive::AttackSearch;
use super::super::execution::Execution;
use super::super::figures::{DefenceFigures, Figures};
use super::super::task::Game;
use super::comparison::comparisons_with_ours;
use super::paper::{ModelFigures, paper_table_list};
use super::search::search_tables;
use super::table_list;
use crate::html::{self, Bar, BarChart, Chart, Drawing, Point, ValueWithInterval};

/// Returns the advantage with its interval (Proposition 4), limited to -1 and 1; `None` without complete pairs.
pub(super) fn advantage(figures: &Figures) -> Option<ValueWithInterval> {
    let (value, half) = (figures.advantage?, figures.advantage_half_width()?);
    Some(ValueWithInterval { value, low: (value - half).max(-1.0), high: (value + half).min(1.0) })
}

/// Returns a mean without an interval: both ends are the value.
fn without_interval(value: f64) -> ValueWithInterval {
    ValueWithInterval { value, low: value, high: value }
}

/// Returns a scatter of closure and advantage. `all` has figures, each with the name of its point; figures without one
/// of the two measures have no point.
fn closure_chart<'f>(title: String, all: impl Iterator<Item = (String, &'f Figures)>) -> Drawing {
    let points = all.filter_map(|(name, figures)| {
        Some(Point { name, x: ValueWithInterval::of(figures.closure)?, y: advantage(figures)? })
    });
    let (x, y) = ("closed channels", "adversarial advantage");
    Drawing::Scatter(Chart { title, x, y, points: points.collect() })
}

/// The results of a run, of which the page is made.
#[derive(Debug, Clone, Copy)]
pub struct PageContent<'p> {
    /// The figures of each defence.
    pub figures: &'p [DefenceFigures],
    /// All executions, for the comparisons.
    pub executions: &'p [Execution],
    /// The attack searches; none without `--queries`.
    pub searches: &'p [AttackSearch],
    /// The figures of the models that are printed next to those of the paper; empty for a double.
    pub compared: &'p [ModelFigures<'p>],
}

/// Returns the HTML page of a run. A defence without the measures of a chart is left out of the chart.
pub fn page(content: PageContent<'_>, manifest: &Value) -> String {
    let PageContent { figures: all, executions, searches, compared } = content;
    let seed = manifest.get("seed").and_then(Value::as_u64).unwrap_or_default();
    let model = manifest.get("model").and_then(Value::as_str).unwrap_or_default();
    // The page is about one model, so the titles of charts do not end with its name.
    let drawings = figure_drawings(all, "");
    let mut tables = table_list(all, model);
    tables.extend(comparisons_with_ours(executions, seed));
    tables.extend(search_tables(searches));
    tables.extend(paper_table_list(compared));
    html::page(&format!("Security games, model {model}"), manifest, &drawings, &tables)
}

/// Returns the charts of the figures of one model. `suffix` ends the title of each. A defence without the measures of a
/// chart is left out of the chart.
pub(super) fn figure_drawings(all: &[DefenceFigures], suffix: &str) -> Vec<Drawing> {
    let risk = all.iter().filter_map(|figures| {
        let y = benign_utility(&figures.overall)?;
        Some(Point { name: figures.defence.name(), x: ValueWithInterval::of(figures.overall.executed)?, y })
    });
    let overall = all.iter().map(|figures| (figures.defence.name(), &figures.overall));
    let mut drawings = vec![
        closure_chart(format!("Closure and advantage{suffix}"), overall),
        Drawing::Scatter(Chart {
            title: format!("Risk and utility{suffix}"),
            x: "violations that took effect",
            y: "benign utility",
            points: risk.collect(),
        }),
        leakage_bars(all, suffix),
        utility_bars(all, suffix),
    ];
    drawings.extend(cost_bars(
        all,
        &format!("tokens of an execution, read and written, mean{suffix}"),
        |figures| figures.tokens.map(|(read, written)| read + written),
    ));
    let title = format!("latency of an execution in milliseconds, mean (the paper's Figure 3){suffix}");
    drawings.extend(cost_bars(all, &title, |figures| figures.latency_ms));
    // One more chart of closure and advantage for each game.
    drawings.extend(Game::ALL.iter().enumerate().map(|(index, game)| {
        let of_game =
            all.iter().filter_map(|figures| Some((figures.defence.name(), figures.games.get(index)?)));
        closure_chart(format!("Closure and advantage: {}{suffix}", game.name()), of_game)
    }));
    drawings
}

/// Returns the bar chart of AgentSecBench's Figure 2: the rate of canaries disclosed in the retrieval game, with Wilson's
/// interval.
fn leakage_bars(all: &[DefenceFigures], suffix: &str) -> Drawing {
    let bars = all.iter().filter_map(|figures| {
        Some(Bar { name: figures.defence.name(), value: ValueWithInterval::of(figures.overall.leakage)? })
    });
    Drawing::Bars(BarChart {
        title: format!("RAG leak in the retrieval game (the paper's Figure 2){suffix}"),
        highest: 1.0,
        bars: bars.collect(),
    })
}

/// Returns the bar chart of the first part of AgentSecBench's Figure 3: the mean utility on controls, from 0 to 1.
fn utility_bars(all: &[DefenceFigures], suffix: &str) -> Drawing {
    let bars = all.iter().filter_map(|figures| {
        Some(Bar { name: figures.defence.name(), value: benign_utility(&figures.overall)? })
    });
    Drawing::Bars(BarChart {
        title: format!("benign utility (the paper's Figure 3){suffix}"),
        highest: 1.0,
        bars: bars.collect(),
    })
}

/// Returns the bar chart of a mean cost of each defence, such as the tokens or the latency (the second part of
/// AgentSecBench's Figure 3). `cost` returns this cost from the figures of a defence. The result is `None` if the
/// cost was not measured, or if it is 0 for all defences, since the axis would have no length then.
fn cost_bars(all: &[DefenceFigures], title: &str, cost: fn(&Figures) -> Option<f64>) -> Option<Drawing> {
    let bars = all.iter().filter_map(|figures| {
        Some(Bar { name: figures.defence.name(), value: without_interval(cost(&figures.overall)?) })
    });
    let bars: Vec<Bar> = bars.collect();
    let highest = bars.iter().map(|bar| bar.value.high).reduce(f64::max).filter(|highest| *highest > 0.0)?;
    Some(Drawing::Bars(BarChart { title: title.to_owned(), highest, bars }))
}

/// Returns the benign utility with its bootstrap interval; `None` without controls.
pub(super) fn benign_utility(figures: &Figures) -> Option<ValueWithInterval> {
    let (value, (low, high)) = (figures.benign_utility?, figures.benign_utility_interval?);
    Some(ValueWithInterval { value, low, high })
}
