//! Draws curves in one chart whose axes are from 0 to 1. [`page`](super::page) draws [`CurveChart`] drawings with it,
//! and [`curve_file`] returns a chart as a file of its own. The reports draw ROC curves and distributions.

use std::fmt::Write as _;

use super::escaped;

/// A curve of a chart: its name, and its points in order.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Curve {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
}

/// Curves between 0 and 1 in both directions.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CurveChart {
    pub(crate) title: String,
    /// The titles of the horizontal and of the vertical axis.
    pub(crate) axes: (&'static str, &'static str),
    pub(crate) curves: Vec<Curve>,
}

/// The side of the square of the curves, in pixels as all lengths here.
const SIDE: f64 = 300.0;
/// The space at the left, with the labels of the axis.
const LEFT: f64 = 52.0;
/// The space at the top, with the title.
const TOP: f64 = 30.0;
/// The space below, with the labels of the axis.
const BOTTOM: f64 = 44.0;
/// The height of a line of the legend.
const LINE: f64 = 16.0;
/// The width of the whole chart.
const WIDTH: f64 = 460.0;
/// The colours of curves, and their dashes: distinguishable in print without colour.
const STROKES: [(&str, &str); 13] = [
    ("#124", ""),
    ("#c33", "6 3"),
    ("#36c", "2 2"),
    ("#292", "9 3 2 3"),
    ("#a5a", "12 4"),
    ("#b60", "4 4"),
    ("#088", "1 3"),
    ("#555", "8 2 2 2 2 2"),
    ("#909", "3 6"),
    ("#660", "14 3 3 3"),
    ("#c6c", "5 2 1 2"),
    ("#07b", "10 2"),
    ("#a00", "2 4"),
];

/// Returns the chart as an SVG element that needs nothing else: title, axes with a line at each quarter, curves and
/// legend. Points that are not finite numbers are left out, and others are moved to the edge of the chart if they are
/// beyond it.
fn svg(chart: &CurveChart) -> String {
    let height = TOP + SIDE + BOTTOM + LINE * chart.curves.len() as f64;
    // The coordinates in the drawing of a value on each axis. SVG counts the vertical ones from the top.
    let x = |value: f64| LEFT + value.clamp(0.0, 1.0) * SIDE;
    let y = |value: f64| TOP + (1.0 - value.clamp(0.0, 1.0)) * SIDE;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" role=\"img\" font-family=\"sans-serif\">\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#fff\"/><text x=\"{LEFT}\" y=\"18\" font-size=\"12\" font-weight=\"bold\">{}</text>",
        escaped(&chart.title)
    );
    // Writing to a text does not fail, so the results of `write!` are ignored.
    // The grid lines at each quarter of both axes, with their values.
    for tick in 0..=4 {
        let share = f64::from(tick) / 4.0;
        let _ = write!(
            svg,
            "<path d=\"M{LEFT} {level:.1}H{right:.1}M{at:.1} {TOP}V{bottom:.1}\" stroke=\"#ddd\" fill=\"none\"/>\
             <text x=\"{label:.1}\" y=\"{text:.1}\" font-size=\"10\" text-anchor=\"end\">{share:.2}</text>\
             <text x=\"{at:.1}\" y=\"{below:.1}\" font-size=\"10\" text-anchor=\"middle\">{share:.2}</text>",
            level = y(share),
            right = x(1.0),
            at = x(share),
            bottom = y(0.0),
            label = LEFT - 5.0,
            text = y(share) + 3.0,
            below = y(0.0) + 14.0,
        );
    }
    // The titles of the axes, the vertical one turned.
    let (horizontal, vertical) = chart.axes;
    let _ = write!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\" font-size=\"11\" text-anchor=\"middle\">{}</text>\
         <text transform=\"translate(12 {:.1}) rotate(-90)\" font-size=\"11\" text-anchor=\"middle\">{}</text>",
        x(0.5),
        y(0.0) + 30.0,
        escaped(horizontal),
        y(0.5),
        escaped(vertical),
    );
    // The curves, and below the axes a line of the legend for each.
    for (number, (curve, (color, dashes))) in chart.curves.iter().zip(STROKES.iter().cycle()).enumerate() {
        let mut path = String::new();
        for (at, level) in curve.points.iter().filter(|(x, y)| x.is_finite() && y.is_finite()) {
            let command = if path.is_empty() { 'M' } else { 'L' };
            let _ = write!(path, "{command}{:.1} {:.1}", x(*at), y(*level));
        }
        let line = TOP + SIDE + BOTTOM + LINE * number as f64;
        let stroke =
            format!("fill=\"none\" stroke=\"{color}\" stroke-width=\"1.5\" stroke-dasharray=\"{dashes}\"");
        let _ = write!(
            svg,
            "<path d=\"{path}\" {stroke}/><path d=\"M{LEFT} {line:.1}h40\" {stroke}/>\
             <text x=\"{:.1}\" y=\"{:.1}\" font-size=\"11\">{}</text>",
            LEFT + 48.0,
            line + 4.0,
            escaped(&curve.name),
        );
    }
    svg + "</svg>"
}

/// Returns the chart as the content of an SVG file, which ends with a line break.
pub(crate) fn curve_file(chart: &CurveChart) -> String {
    svg(chart) + "\n"
}

/// Returns the chart as SVG in a `figure` element of HTML. The namespace, which only an SVG file needs, is removed.
pub(super) fn figure(chart: &CurveChart) -> String {
    format!("<figure>{}</figure>\n", svg(chart).replace(" xmlns=\"http://www.w3.org/2000/svg\"", ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_are_drawn_between_the_axes() {
        let curve =
            |name: &str, points: &[(f64, f64)]| Curve { name: name.to_owned(), points: points.to_vec() };
        let chart = CurveChart {
            title: "a & b".to_owned(),
            axes: ("x", "y"),
            curves: vec![
                curve("<one>", &[(0.0, 0.0), (f64::NAN, 1.0), (0.5, 1.0), (2.0, 1.0)]),
                curve("none", &[]),
            ],
        };
        let file = curve_file(&chart);
        assert!(file.starts_with("<svg xmlns=") && file.ends_with("</svg>\n"));
        assert!(file.contains("d=\"M52.0 330.0L202.0 30.0L352.0 30.0\""), "{file}");
        assert!(
            file.contains("&lt;one&gt;") && file.contains("a &amp; b") && file.contains("d=\"\""),
            "{file}"
        );
        let shown = figure(&chart);
        assert!(!shown.contains("http:") && shown.starts_with("<figure><svg viewBox="), "{shown}");
    }
}
