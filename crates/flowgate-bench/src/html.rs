//! Writes a report as one HTML file with charts and tables. The file loads no other file, and can be printed. The
//! submodule `curves` also writes the file of a single chart. The reports of the suites call [`page`] for the format
//! `html`, and so does [`compare`](crate::compare).
//!
//! A chart is one of three: a scatter of defences with the intervals of both measures, a bar for each defence, or
//! curves. Defences of a scatter with equal values share a mark; the legend below the scatter names them.

mod bars;
mod curves;

use std::fmt::Write as _;

use serde_json::Value;

use crate::games::interval::Rate;
use crate::games::text_table::Table;

pub(crate) use bars::{Bar, BarChart};
pub(crate) use curves::{Curve, CurveChart, curve_file};

/// A drawing of a page.
#[derive(Debug, Clone)]
pub(crate) enum Drawing {
    /// A scatter of defences.
    Scatter(Chart),
    /// A bar for each defence.
    Bars(BarChart),
    /// Curves between 0 and 1.
    Curves(CurveChart),
}

/// A value with its interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ValueWithInterval {
    pub(crate) value: f64,
    /// The lower end of the interval.
    pub(crate) low: f64,
    /// The upper end of the interval.
    pub(crate) high: f64,
}

impl ValueWithInterval {
    /// Returns a rate with its Wilson interval at 95 %; `None` if nothing was counted.
    pub(crate) fn of(rate: Rate) -> Option<Self> {
        let (value, (low, high)) = (rate.value()?, rate.wilson_95()?);
        Some(Self { value, low, high })
    }
}

/// A defence in a chart.
#[derive(Debug, Clone)]
pub(crate) struct Point {
    pub(crate) name: String,
    pub(crate) x: ValueWithInterval,
    pub(crate) y: ValueWithInterval,
}

/// A scatter of defences. The horizontal measure is from 0 to 1, the vertical one from -1 to 1.
#[derive(Debug, Clone)]
pub(crate) struct Chart {
    pub(crate) title: String,
    /// The title of the horizontal axis.
    pub(crate) x: &'static str,
    /// The title of the vertical axis.
    pub(crate) y: &'static str,
    pub(crate) points: Vec<Point>,
}

/// The width of a chart, in pixels as all lengths here.
const WIDTH: f64 = 460.0;
/// The height of a chart.
const HEIGHT: f64 = 320.0;
/// The space at the left of the axes, with labels.
const LEFT: f64 = 52.0;
/// The space below the axes, with labels.
const BOTTOM: f64 = 44.0;
/// The empty space at the right and at the top.
const MARGIN: f64 = 14.0;

/// The style sheet of the page, for the screen and for print.
const STYLE: &str = "body{font:14px/1.4 sans-serif;margin:2em auto;max-width:70em;color:#111}\
table{border-collapse:collapse;margin:.5em 0 1.5em;font-size:12px}th,td{padding:.15em .6em;text-align:right;border-bottom:1px solid #ccc}\
th:first-child,td:first-child{text-align:left}figure{display:inline-block;vertical-align:top;margin:0 1em 1.5em 0;width:460px;break-inside:avoid}\
figcaption{font-size:12px}pre{font-size:11px;white-space:pre-wrap;overflow-wrap:anywhere}section{overflow-x:auto;break-inside:avoid}\
@media print{body{margin:0;max-width:none}section{overflow:visible}table{font-size:9px}}";

/// Returns the page as HTML: the title, the drawings, the tables, and the manifest of the run as formatted JSON. All text is escaped.
pub(crate) fn page(title: &str, manifest: &Value, drawings: &[Drawing], tables: &[Table]) -> String {
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title><style>{STYLE}</style></head><body>\n<h1>{title}</h1>\n",
        title = escaped(title)
    );
    // Writing to a string cannot fail, so the results of `write!` are ignored.
    for drawing in drawings {
        page.push_str(&match drawing {
            Drawing::Scatter(chart) => figure(chart),
            Drawing::Bars(chart) => bars::figure(chart),
            Drawing::Curves(chart) => curves::figure(chart),
        });
    }
    for table in tables {
        let row = |cells: &[String], tag: &str| {
            let cells: String =
                cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", escaped(cell))).collect();
            format!("<tr>{cells}</tr>\n")
        };
        let rows: String = table.rows.iter().map(|cells| row(cells, "td")).collect();
        let header = row(&table.header, "th");
        let _ = write!(
            page,
            "<section><h2>{}</h2>\n<table>\n{header}{rows}</table></section>\n",
            escaped(&table.title)
        );
    }
    let manifest = serde_json::to_string_pretty(manifest).unwrap_or_default();
    let _ = write!(
        page,
        "<section><h2>manifest</h2>\n<pre>{}</pre></section>\n</body></html>\n",
        escaped(&manifest)
    );
    page
}

/// Returns a scatter as SVG with its legend in HTML. The horizontal axis is from 0 to 1. The vertical axis is from 0 to
/// 1, or from -1 to 1 if an interval ends below 0. Each mark has a line for each of its two intervals, and a number,
/// which the legend explains.
fn figure(chart: &Chart) -> String {
    // The value at the lower end of the vertical axis.
    let lowest = chart.points.iter().map(|point| point.y.low).fold(0.0_f64, f64::min);
    let base = if lowest < 0.0 { -1.0 } else { 0.0 };
    // The coordinates in the drawing of a value on each axis. SVG counts the vertical ones from the top.
    let x = |value: f64| LEFT + value * (WIDTH - LEFT - MARGIN);
    let y = |value: f64| MARGIN + (1.0 - value) / (1.0 - base) * (HEIGHT - BOTTOM - MARGIN);
    let mut svg =
        format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" role=\"img\">");
    // The grid lines at each quarter of both axes, with their values. Writing to a text does not fail, so the results
    // of `write!` are ignored.
    for tick in 0..=4 {
        let share = f64::from(tick) / 4.0;
        let level = base + share * (1.0 - base);
        let (right, bottom) = (x(1.0), y(base));
        let _ = write!(
            svg,
            "<path d=\"M{LEFT} {line:.1}H{right:.1}M{at:.1} {MARGIN}V{bottom:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{label:.1}\" y=\"{text:.1}\" font-size=\"10\" text-anchor=\"end\">{level:.2}</text>\
             <text x=\"{at:.1}\" y=\"{below:.1}\" font-size=\"10\" text-anchor=\"middle\">{share:.2}</text>",
            line = y(level),
            at = x(share),
            label = LEFT - 5.0,
            text = y(level) + 3.0,
            below = bottom + 14.0,
        );
    }
    // The titles of the axes, the vertical one turned.
    let _ = write!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\" font-size=\"11\" text-anchor=\"middle\">{}</text>\
         <text transform=\"translate(12 {:.1}) rotate(-90)\" font-size=\"11\" text-anchor=\"middle\">{}</text>",
        x(0.5),
        HEIGHT - 8.0,
        escaped(chart.x),
        y(f64::midpoint(base, 1.0)),
        escaped(chart.y),
    );
    // A mark for each group of defences: the lines of its two intervals, a dot, and the number that the legend
    // explains.
    let groups = groups(&chart.points);
    for (number, (point, _)) in groups.iter().enumerate() {
        let (at, level) = (x(point.x.value), y(point.y.value));
        let _ = write!(
            svg,
            "<path d=\"M{:.1} {level:.1}H{:.1}M{at:.1} {:.1}V{:.1}\" stroke=\"#36c\" stroke-opacity=\".45\"/>\
             <circle cx=\"{at:.1}\" cy=\"{level:.1}\" r=\"3.5\" fill=\"#124\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" font-size=\"11\" font-weight=\"bold\">{}</text>",
            x(point.x.low),
            x(point.x.high),
            y(point.y.low),
            y(point.y.high),
            at + 5.0,
            level - 5.0,
            number + 1,
        );
    }
    svg.push_str("</svg>");
    let legend: Vec<String> = groups
        .iter()
        .enumerate()
        .map(|(number, (_, names))| format!("<b>{}</b> {}", number + 1, escaped(&names.join(", "))))
        .collect();
    format!(
        "<figure><figcaption><b>{}</b></figcaption>{svg}<figcaption>{}; intervals at 95 %</figcaption></figure>\n",
        escaped(&chart.title),
        legend.join("; ")
    )
}

/// Groups the defences with equal values and intervals, whose marks would cover each other. Returns one point for each group, with the names of all
/// its defences.
fn groups(points: &[Point]) -> Vec<(&Point, Vec<String>)> {
    let mut groups: Vec<(&Point, Vec<String>)> = Vec::new();
    for point in points {
        match groups.iter_mut().find(|(known, _)| (known.x, known.y) == (point.x, point.y)) {
            Some((_, names)) => names.push(point.name.clone()),
            None => groups.push((point, vec![point.name.clone()])),
        }
    }
    groups
}

/// Escapes text for HTML, in elements and in quoted attributes.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::games::text_table::table;
    use super::*;

    #[test]
    fn a_page_loads_nothing_and_escapes_what_it_shows() {
        let rate = |hits| ValueWithInterval::of(Rate { hits, of: 10 }).unwrap();
        let point = |name: &str, x, y| Point { name: name.to_owned(), x: rate(x), y: rate(y) };
        let points = vec![point("<a>", 0, 10), point("b", 0, 10), point("c", 5, 5)];
        let chart = Chart { title: "t".to_owned(), x: "risk", y: "utility", points };
        let tables = [table("title", &["name", "x"], &[vec!["<script>".to_owned(), "1".to_owned()]])];
        let page = page("run & more", &json!({"seed": 1}), &[Drawing::Scatter(chart)], &tables);
        for expected in
            ["run &amp; more", "&lt;a&gt;, b", "&lt;script&gt;", "@media print", "&quot;seed&quot;"]
        {
            assert!(page.contains(expected), "{expected}: {page}");
        }
        assert_eq!(page.matches("<circle").count(), 2, "two defences share a mark");
        for foreign in ["http:", "https:", "<script", "src=", "url(", "@import", "<link"] {
            assert!(!page.contains(foreign), "{foreign}");
        }
        for tag in ["figure", "svg", "table", "section", "text"] {
            let (open, close) = (format!("<{tag}"), format!("</{tag}>"));
            assert_eq!(page.matches(&close).count(), page.matches(&open).count(), "{tag}");
        }
        assert_eq!(ValueWithInterval::of(Rate { hits: 0, of: 0 }), None);
    }

    /// Marks and intervals lie within the drawing, also for an advantage below 0.
    #[test]
    fn points_lie_within_the_chart() {
        let y = ValueWithInterval { value: -0.4, low: -1.0, high: 0.2 };
        let x = ValueWithInterval { value: 1.0, low: 0.7, high: 1.0 };
        let drawn = figure(&Chart {
            title: "t".to_owned(),
            x: "x",
            y: "y",
            points: vec![Point { name: "d".to_owned(), x, y }],
        });
        let center = drawn.split("cy=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
        let center: f64 = center.parse().unwrap();
        assert!(center > MARGIN && center < HEIGHT - BOTTOM, "{center}");
        assert!(drawn.contains(">-1.00<"), "{drawn}");
    }
}
