//! Draws one curve as an SVG file: [`line_chart`]. The command line draws the loss of a training with it.

use std::fmt::Write as _;

/// The width and height of a chart, in pixels as all lengths here.
const SIZE: (f64, f64) = (640.0, 320.0);
/// The space around the curve, for the labels of the axes.
const MARGIN: f64 = 48.0;

/// Returns an SVG file with one curve. `points` are in the order of their first coordinate. Both axes begin at 0 and
/// end at the greatest coordinate. Points that are not finite numbers are left out, and a second coordinate below 0
/// is drawn at 0.
pub fn line_chart(title: &str, points: &[(f64, f64)]) -> String {
    let points: Vec<_> = points.iter().filter(|(x, y)| x.is_finite() && y.is_finite()).copied().collect();
    // The ends of the axes are above 0, because the coordinates are divided by them.
    let most = |values: &mut dyn Iterator<Item = f64>| values.fold(f64::MIN_POSITIVE, f64::max);
    let most_x = most(&mut points.iter().map(|(x, _)| *x));
    let most_y = most(&mut points.iter().map(|(_, y)| *y));
    let (width, height) = SIZE;
    let x = |value: f64| MARGIN + value / most_x * (width - 2.0 * MARGIN);
    let y = |value: f64| height - MARGIN - value.max(0.0) / most_y * (height - 2.0 * MARGIN);
    // The commands of the path: a move to the first point, then a line to each further one.
    let mut path = String::new();
    for (index, (at, level)) in points.iter().copied().enumerate() {
        // Writing to a text does not fail.
        let _ = write!(path, "{}{:.1} {:.1}", if index == 0 { 'M' } else { 'L' }, x(at), y(level));
    }
    let title = title.replace('&', "&amp;").replace('<', "&lt;");
    let (bottom, right) = (height - MARGIN, width - MARGIN);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n<text x=\"{MARGIN}\" y=\"24\" font-size=\"14\">{title}</text>\n\
         <path d=\"M{MARGIN} {MARGIN}V{bottom}H{right}\" fill=\"none\" stroke=\"#444\"/>\n\
         <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{most_y:.2}</text><text x=\"{:.1}\" y=\"{bottom}\" text-anchor=\"end\">0</text>\n\
         <text x=\"{right}\" y=\"{:.1}\" text-anchor=\"end\">{most_x}</text>\n\
         <path d=\"{path}\" fill=\"none\" stroke=\"#136\" stroke-width=\"1.5\"/>\n</svg>\n",
        MARGIN - 6.0,
        MARGIN + 4.0,
        MARGIN - 6.0,
        bottom + 18.0,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_spans_the_chart() {
        let chart = line_chart("a < b", &[(1.0, 4.0), (f64::NAN, 1.0), (2.0, 0.0)]);
        assert!(chart.contains("a &lt; b") && chart.contains("d=\"M320.0 48.0L592.0 272.0\""), "{chart}");
        assert!(line_chart("empty", &[]).contains("d=\"\""));
    }
}
