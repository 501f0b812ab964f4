//! Writes the HTML page that compares recorded runs of the suites, for `flowgate bench compare`. For each game or part of the tasks, scatter charts
//! compare the defences of all runs: the share of closed channels against the attacker's advantage, violations that took effect against benign
//! utility, and missed questions against completed tasks. One table has the figures of all runs.
//!
//! A run is a file in the format jsonl. Only its manifest and its lines with figures are read, so the runs may have different seeds and models.

use serde_json::Value;

use crate::games::text_table::{Table, cell, table};
use crate::html::{self, Chart, Drawing, Point, ValueWithInterval};

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

/// Returns the HTML page that compares the runs: the scatters of each game or part of the tasks, then the table of all figures, then the manifests.
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
    // The panels of a part that have figures in no run have no drawing.
    let parts = parts(runs);
    let panels = parts.iter().flat_map(|part| panels(part));
    let drawings = panels.filter_map(|panel| drawing(&panel, runs)).collect::<Vec<_>>();
    let manifests = runs.iter().filter_map(|(name, lines)| Some((name.clone(), lines.first()?.clone())));
    let manifests = Value::Object(manifests.collect());
    Ok(html::page("Comparison of runs", &manifests, &drawings, &[figure_table(runs)]))
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

/// Returns the panels for one game or part of the tasks. The first two panels show measures of the games, the third
/// those of the privacy suite. So some of the panels have no figures in any run; [`drawing`] returns `None` for these.
fn panels(part: &str) -> [Panel<'_>; 3] {
    [
        Panel {
            title: format!("closure and advantage: {part}"),
            part,
            x: ("closure", "closed channels"),
            y: ("advantage", "adversarial advantage"),
        },
        Panel {
            title: format!("risk and utility: {part}"),
            part,
            x: ("executed_risk", "violations that took effect"),
            y: ("benign_utility", "benign utility"),
        },
        Panel {
            title: format!("missed questions and completed tasks: {part}"),
            part,
            x: ("false_negatives", "false negatives"),
            y: ("utility_allowed", "completed tasks, the person allows"),
        },
    ]
}

/// Returns the scatter of a panel, with a point for each defence of each run that has both figures; `None` if there is no point. Each axis of the
/// panel is a pair: the name of its figure and its title.
fn drawing(panel: &Panel<'_>, runs: &[NamedRun]) -> Option<Drawing> {
    let points = figure_lines(runs).filter(|(_, line)| part(line) == panel.part).filter_map(|(run, line)| {
        let name = format!("{run}: {}", text(line, "defence"));
        Some(Point { name, x: measured(line, panel.x.0)?, y: measured(line, panel.y.0)? })
    });
    let points: Vec<Point> = points.collect();
    let chart = Chart { title: panel.title.clone(), x: panel.x.1, y: panel.y.1, points };
    (!chart.points.is_empty()).then_some(Drawing::Scatter(chart))
}

/// Returns the figure `name` of a line with its confidence interval; `None` if the line does not have the figure. The
/// ends of the interval are the fields `NAME_low` and `NAME_high`. Without these, they are the value less and plus
/// `NAME_half_width`, and without that field, the value itself. All numbers are clamped to the axes, which end at -1
/// and 1.
fn measured(line: &Value, name: &str) -> Option<ValueWithInterval> {
    let number = |name: String| line.get(name).and_then(Value::as_f64).filter(|value| value.is_finite());
    let value = number(name.to_owned())?;
    let half = number(format!("{name}_half_width")).unwrap_or(0.0);
    let low = number(format!("{name}_low")).unwrap_or(value - half);
    let high = number(format!("{name}_high")).unwrap_or(value + half);
    let within = |value: f64| value.clamp(-1.0, 1.0);
    Some(ValueWithInterval { value: within(value), low: within(low), high: within(high) })
}

/// Returns one table with a row for each line of figures of all runs. A cell is a dash if the suite of the run does not measure the figure.
fn figure_table(runs: &[NamedRun]) -> Table {
    /// The names of the figures in the lines; the first four are those of the games, the others those of the privacy
    /// suite.
    const COLUMNS: [&str; 9] = [
        "closure",
        "advantage",
        "executed_risk",
        "benign_utility",
        "false_negatives",
        "false_positives",
        "exact_categories",
        "utility_allowed",
        "utility_refused",
    ];
    let rows: Vec<Vec<String>> = figure_lines(runs)
        .map(|(run, line)| {
            let numbers = COLUMNS.iter().map(|name| cell(line.get(*name).and_then(Value::as_f64)));
            let names = [run, text(line, "defence"), part(line)].map(str::to_owned);
            names.into_iter().chain(numbers).collect()
        })
        .collect();
    let header: Vec<&str> = ["run", "defence", "game or tasks"].into_iter().chain(COLUMNS).collect();
    table("figures of all runs", &header, &rows)
}

/// Returns a field of a line as text; empty if it is absent or no text.
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
            "<td>0.500</td>",
            "&quot;seed&quot;",
        ] {
            assert!(page.contains(expected), "{expected}");
        }
        assert!(!page.contains("<none>"));
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
