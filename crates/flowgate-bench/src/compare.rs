//! Writes the HTML page that compares recorded runs of the suites, for `flowgate bench compare`. For each game or part
//! of the tasks, scatter charts compare the defences of all runs: the share of closed channels against the attacker's
//! advantage, violations that took effect against benign utility, missed questions against completed tasks, and harm
//! against completed tasks. Further charts show detectors, ROC curves and costs. The submodule `tables` builds the tables
//! with the figures of each suite and with the attack searches.
//!
//! A run is a file in the format jsonl. Only its manifest and its lines with figures, curves and searches are read, so
//! the runs may have different seeds and models.

mod tables;

use serde_json::Value;

use crate::html::{self, Bar, BarChart, Chart, Curve, CurveChart, Drawing, Point, ValueWithInterval};

/// A run: its name, which the page shows, and the lines of its file.
pub type NamedRun = (String, Vec<Value>);

/// A scatter that the page draws if any run has its figures.
struct Panel<'p> {
    title: String,
    /// The game, or the part of the tasks, of the lines that the panel shows.
    part: &'p str,
    /// The name of the figure on the horizontal axis, and the title of the axis.
    x: (&'static str, &'static str),
    /// The name of the figure on the vertical axis, and the title of the axis.
    y: (&'static str, &'static str),
}

/// Returns the HTML page that compares the runs: the drawings, then the tables, then the manifests.
///
/// # Errors
/// If a run has no manifest or no figures; the message begins with the name of the run.
pub fn page(runs: &[NamedRun]) -> Result<String, String> {
    for (name, lines) in runs {
        if lines.first().is_none_or(|line| text(line, "type") != "manifest") {
            return Err(format!(
                "{name}: line 1 is not the manifest of a run; give a file that `flowgate bench` wrote with `--format jsonl`"
            ));
        }
        if !lines.iter().any(|line| text(line, "type") == "figures") {
            return Err(format!("{name}: the run has no figures; it was interrupted, so run it again"));
        }
    }
    // A panel is left out if no run has its figures.
    let parts = parts(runs);
    let panels = parts.iter().flat_map(|part| panels(part));
    let mut drawings = panels.filter_map(|panel| drawing(&panel, runs)).collect::<Vec<_>>();
    drawings.extend(detector_drawing(runs));
    drawings.extend(roc_drawings(runs));
    drawings.extend(cost_drawings(runs));
    let mut tables = tables::figure_tables(runs);
    tables.extend(tables::search_table(runs));
    let manifests = runs.iter().filter_map(|(name, lines)| Some((name.clone(), lines.first()?.clone())));
    let manifests = Value::Object(manifests.collect());
    Ok(html::page("Comparison of runs", &manifests, &drawings, &tables))
}

/// Returns the games and parts of the tasks that have figures in any run, each once, in the order of the lines. The first is `all`, which names the
/// figures over all tasks, even if no run has it.
fn parts(runs: &[NamedRun]) -> Vec<String> {
    let mut parts = vec!["all".to_owned()];
    for line in figure_lines(runs).map(|(_, line)| line) {
        let part = part(line).to_owned();
        if !parts.contains(&part) {
            parts.push(part);
        }
    }
    parts
}

/// Returns the lines of the type `figures` of all runs, in order, each with the name of its run.
fn figure_lines(runs: &[NamedRun]) -> impl Iterator<Item = (&str, &Value)> {
    runs.iter().flat_map(|(name, lines)| {
        lines.iter().filter(|line| text(line, "type") == "figures").map(move |line| (name.as_str(), line))
    })
}

/// Returns the game of a line of the games, or the part of the tasks of a line of the privacy suite; empty for a line with neither.
fn part(line: &Value) -> &str {
    match text(line, "game") {
        "" => text(line, "tasks"),
        game => game,
    }
}

/// Returns the panels for one game or part of the tasks: two with measures of the games, one of the privacy suite,
/// one of the agents. Each axis is a pair: the name of its figure and its title. A run has the figures of one suite,
/// so a comparison usually leaves panels without figures; [`drawing`] returns `None` for these.
fn panels(part: &str) -> [Panel<'_>; 4] {
    let panel = |title: &str, x: (&'static str, &'static str), y: (&'static str, &'static str)| Panel {
        title: format!("{title}: {part}"),
        part,
        x,
        y,
    };
    [
        panel(
            "closure and advantage",
            ("closure", "closed channels"),
            ("advantage", "adversarial advantage"),
        ),
        panel(
            "risk and utility",
            ("executed_risk", "violations that took effect"),
            ("benign_utility", "benign utility"),
        ),
        panel(
            "missed questions and completed tasks",
            ("false_negatives", "false negatives"),
            ("utility_allowed", "completed tasks, the person allows"),
        ),
        panel(
            "harm and completed tasks",
            ("harmed", "attacks that did harm"),
            ("completed_unasked", "tasks without attack completed without a question"),
        ),
    ]
}

/// Returns the scatter of a panel, with a point for each defence of each run that has both figures; `None` if there is no point. Each axis of the
/// panel is a pair: the name of its figure and its title.
fn drawing(panel: &Panel<'_>, runs: &[NamedRun]) -> Option<Drawing> {
    let ((x_figure, x_title), (y_figure, y_title)) = (panel.x, panel.y);
    let points = figure_lines(runs).filter(|(_, line)| part(line) == panel.part).filter_map(|(run, line)| {
        let name = format!("{run}: {}", text(line, "defence"));
        Some(Point { name, x: measured(line, x_figure)?, y: measured(line, y_figure)? })
    });
    let points: Vec<Point> = points.collect();
    let chart = Chart { title: panel.title.clone(), x: x_title, y: y_title, points };
    (!chart.points.is_empty()).then_some(Drawing::Scatter(chart))
}

/// Returns the figure `name` of a line with its confidence interval; `None` if the line does not have the figure. The
/// ends of the interval are the fields `NAME_low` and `NAME_high`. If the line lacks these fields, the ends are the
/// value minus and plus `NAME_half_width`; if it lacks that field, too, both ends are the value. All numbers are
/// clamped to the axes, which end at -1 and 1.
fn measured(line: &Value, name: &str) -> Option<ValueWithInterval> {
    let number = |name: String| line.get(name).and_then(Value::as_f64).filter(|value| value.is_finite());
    let value = number(name.to_owned())?;
    let half = number(format!("{name}_half_width")).unwrap_or(0.0);
    let low = number(format!("{name}_low")).unwrap_or(value - half);
    let high = number(format!("{name}_high")).unwrap_or(value + half);
    let within = |value: f64| value.clamp(-1.0, 1.0);
    Some(ValueWithInterval { value: within(value), low: within(low), high: within(high) })
}

/// Returns the scatter of detectors: the share of honest rows that a detector flags, and that of attacks that it
/// catches. `None` if no run measures detectors.
fn detector_drawing(runs: &[NamedRun]) -> Option<Drawing> {
    let points = figure_lines(runs).flat_map(|(run, line)| {
        // A line of figures can have several detectors, each of which becomes a point.
        let detectors = tables::detector_figures(line).into_iter().map(Value::Object);
        detectors.filter_map(move |line| {
            let name = format!("{run}: {}", text(&line, "defence"));
            Some(Point {
                name,
                x: measured(&line, "honest_rows_flagged")?,
                y: measured(&line, "attacks_caught")?,
            })
        })
    });
    let points: Vec<Point> = points.collect();
    let title = "detectors: flagged honest rows and caught attacks".to_owned();
    let chart = Chart { title, x: "honest rows flagged", y: "attacks caught", points };
    (!chart.points.is_empty()).then_some(Drawing::Scatter(chart))
}

/// Returns bar charts of what defences cost, for each figure of cost that a run has: tokens, calls of the model, and latency
/// where it was measured.
fn cost_drawings(runs: &[NamedRun]) -> Vec<Drawing> {
    let costs = [
        ("relative_model_calls", "calls of the model, relative to the agent without a guard"),
        ("relative_tokens", "tokens, relative to the agent without a guard"),
        ("input_tokens", "tokens that the model reads, in each execution"),
        ("latency_ms", "latency of an execution in milliseconds, mean"),
    ];
    let mut charts = Vec::new();
    for (field, title) in costs {
        let mut bars: Vec<Bar> = Vec::new();
        for (run, line) in figure_lines(runs).filter(|(_, line)| part(line) == "all") {
            // The agents, which have relative tokens, report the tokens of all tasks together, and not those of one
            // execution.
            if field == "input_tokens" && line.get("relative_tokens").is_some() {
                continue;
            }
            let cost = line.get(field).and_then(Value::as_f64).filter(|cost| cost.is_finite());
            let Some(cost) = cost else { continue };
            let value = ValueWithInterval { value: cost, low: cost, high: cost };
            bars.push(Bar { name: format!("{run}: {}", text(line, "defence")), value });
        }
        let highest = bars.iter().map(|bar| bar.value.value).fold(0.0, f64::max);
        // Without a cost above 0, the axis would have no length.
        if highest > 0.0 {
            charts.push(Drawing::Bars(BarChart { title: title.to_owned(), highest, bars }));
        }
    }
    charts
}

/// Returns a chart of the ROC curves of each set of texts or prompts, with the curves of all runs.
fn roc_drawings(runs: &[NamedRun]) -> Vec<Drawing> {
    let mut charts: Vec<CurveChart> = Vec::new();
    for (run, lines) in runs {
        for line in lines.iter().filter(|line| text(line, "type") == "roc") {
            // The suite of saliency names a set of prompts and a screener, that of detection a part of the texts and a detector.
            let (set, named) = match text(line, "set") {
                "" => (text(line, "split"), text(line, "detector")),
                set => (set, text(line, "screener")),
            };
            let points = line["points"].as_array().into_iter().flatten();
            let points = points.filter_map(|point| Some((point.get(0)?.as_f64()?, point.get(1)?.as_f64()?)));
            let curve = Curve { name: format!("{run}: {named}"), points: points.collect() };
            let title = format!("ROC: {set}");
            match charts.iter_mut().find(|chart| chart.title == title) {
                Some(chart) => chart.curves.push(curve),
                None => charts.push(CurveChart {
                    title,
                    axes: ("false positives", "true positives"),
                    curves: vec![curve],
                }),
            }
        }
    }
    charts.into_iter().map(Drawing::Curves).collect()
}

/// Returns a field of a line as text; empty if the field is absent or is not a text.
fn text<'v>(line: &'v Value, name: &str) -> &'v str {
    line.get(name).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn run(name: &str, figures: Value) -> NamedRun {
        (name.to_owned(), vec![json!({"type": "manifest", "seed": 1}), json!({"type": "execution"}), figures])
    }

    #[test]
    fn runs_of_different_suites_stand_on_one_page() {
        let game = json!({"type": "figures", "defence": "<none>", "game": "all", "closure": 0.5, "closure_low": 0.2,
            "closure_high": 0.8, "advantage": 0.25, "advantage_half_width": 9.0, "executed_risk": 1, "benign_utility": null});
        let privacy = json!({"type": "figures", "defence": "judge", "tasks": "all", "false_negatives": 0.1,
            "utility_allowed": 0.9});
        let page = page(&[run("a", game), run("b", privacy)]).unwrap();
        assert_eq!(page.matches("<svg").count(), 2, "no panel without figures");
        for expected in [
            "a: &lt;none&gt;",
            "b: judge",
            "closure and advantage: all",
            "<td>0.500 [0.200, 0.800]</td>",
            "&quot;seed&quot;",
        ] {
            assert!(page.contains(expected), "{expected}");
        }
        assert!(!page.contains("<none>"));
    }

    /// Each suite has its own drawings and a table of its own fields.
    #[test]
    fn every_suite_has_drawings_and_a_table() {
        let check = |lines: Vec<Value>, drawings: usize, expected: &[&str]| {
            let manifest = json!({"type": "manifest", "suite": "s"});
            let lines = [vec![manifest], lines].concat();
            let page = page(&[("r".to_owned(), lines)]).unwrap();
            assert_eq!(page.matches("<svg").count(), drawings, "{page}");
            for text in expected {
                assert!(page.contains(text), "{text}: {page}");
            }
        };
        check(
            vec![
                json!({"type": "figures", "defence": "provenance", "tasks": "all", "harmed": 0.0, "harmed_low": 0.0,
                "harmed_high": 0.25, "harmed_count": 0, "completed_unasked": 1.0, "questions": 3,
                "relative_model_calls": 1.5, "relative_tokens": 2.0, "input_tokens": 9000}),
            ],
            3,
            &[
                "figures of s",
                "0.000 [0.000, 0.250]",
                "<td>3</td>",
                "harm and completed tasks: all",
                "r: provenance",
            ],
        );
        let rate = |found: u32| json!({"found": found, "of": 4, "low": 0.125, "high": 0.875});
        check(
            vec![
                json!({"type": "figures", "defence": "flow rule", "tasks": "all", "injected_messages_denied": rate(4),
                "detectors": {"pii": {"attacks_caught": rate(2), "honest_rows_flagged": rate(1)}}}),
            ],
            1,
            &["r: pii", "0.500 [0.125, 0.875]", "<td>flow rule</td>", "1.000 [0.125, 0.875]"],
        );
        let figures = json!({"type": "figures", "set": "calls", "screener": "network", "area": 0.9});
        let roc =
            json!({"type": "roc", "set": "calls", "screener": "network", "points": [[0.0, 0.5], [1.0, 1.0]]});
        check(vec![figures, roc], 1, &["ROC: calls", "r: network", "<td>0.900</td>"]);
        let figures = json!({"type": "figures", "defence": "none", "game": "all", "input_tokens": 10.5});
        let search = |game: &str, at: Option<u32>, questions: Option<u32>| json!({"type": "search", "defence": "none", "game": game, "opened_at": 1, "executed_at": at, "questions": questions});
        // The latency of a run with a model; a double has none.
        let timed = |game: &str, latency: Value| json!({"type": "figures", "defence": "none", "game": game, "latency_ms": latency});
        let title = "latency of an execution in milliseconds, mean";
        check(vec![timed("all", json!(12.5)), timed("retrieval", json!(99.5))], 1, &[title, "r: none"]);
        check(vec![timed("all", Value::Null)], 0, &[]);
        // A row for each game, with the questions of all of its searches; an earlier version recorded none.
        check(
            vec![
                figures,
                search("memory", Some(3), Some(4)),
                search("memory", None, Some(1)),
                search("file", None, None),
            ],
            1,
            &[
                "attack searches",
                "<td>memory</td><td>2</td><td>2</td><td>0</td><td>1</td><td>3.000</td><td>5</td>",
                "<td>file</td><td>1</td><td>1</td><td>0</td><td>0</td><td>-</td><td>-</td>",
            ],
        );
    }

    /// Each recorded run has a drawing.
    #[test]
    fn recorded_runs_have_drawings() {
        for name in ["agents", "detectors", "extended", "games-gullible", "games-search", "privacy"] {
            let path = format!("{}/../../results/{name}.jsonl", env!("CARGO_MANIFEST_DIR"));
            let text = std::fs::read_to_string(path).unwrap();
            let lines = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            assert!(page(&[(name.to_owned(), lines)]).unwrap().contains("<svg"), "{name}");
        }
    }

    #[test]
    fn an_interval_stays_within_the_axes() {
        let line = json!({"advantage": 0.25, "advantage_half_width": 9.0});
        assert_eq!(
            measured(&line, "advantage"),
            Some(ValueWithInterval { value: 0.25, low: -1.0, high: 1.0 })
        );
        assert_eq!(measured(&line, "closure"), None);
    }

    #[test]
    fn a_file_that_is_no_run_is_refused() {
        let check = |lines: Vec<Value>, expected: &str| {
            let error = page(&[("x.jsonl".to_owned(), lines)]).unwrap_err();
            assert!(error.starts_with("x.jsonl: ") && error.contains(expected), "{error}");
        };
        check(Vec::new(), "line 1 is not the manifest");
        check(vec![json!({"type": "figures"})], "line 1 is not the manifest");
        check(vec![json!({"type": "manifest"})], "the run has no figures");
    }
}
