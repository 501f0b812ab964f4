//! Draws a bar chart: a horizontal bar for each defence, with its interval. [`page`](super::page) calls this module for [`BarChart`] drawings.

use std::fmt::Write as _;

use super::{ValueWithInterval, escaped};

/// The bar of one defence, which its name labels.
#[derive(Debug, Clone)]
pub(crate) struct Bar {
    pub(crate) name: String,
    pub(crate) value: ValueWithInterval,
}

/// Bars of one measure, which is at least 0.
#[derive(Debug, Clone)]
pub(crate) struct BarChart {
    pub(crate) title: String,
    /// The value at the end of the axis; above 0.
    pub(crate) highest: f64,
    pub(crate) bars: Vec<Bar>,
}

/// The width of the chart, in pixels as all lengths here.
const WIDTH: f64 = 460.0;
/// The space at the left for the names.
const LEFT: f64 = 170.0;
/// The space at the right for the values.
const RIGHT: f64 = 50.0;
/// The height of a bar with its margin.
const ROW: f64 = 20.0;

/// Returns the chart as SVG in a `figure` element of HTML: for each bar its name, a line for its interval, and its value. A value beyond the end of the
/// axis is drawn at the end.
pub(super) fn figure(chart: &BarChart) -> String {
    let height = ROW * (chart.bars.len() as f64 + 1.0);
    // The horizontal coordinate of a value.
    let x = |value: f64| LEFT + (value / chart.highest).clamp(0.0, 1.0) * (WIDTH - LEFT - RIGHT);
    let mut svg =
        format!("<svg viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" role=\"img\">");
    // Writing to a text does not fail, so the results of `write!` are ignored.
    for (number, Bar { name, value }) in chart.bars.iter().enumerate() {
        let top = ROW * number as f64;
        let middle = top + ROW / 2.0;
        // In this order: the name, the bar, the line of the interval, and the value as text.
        let _ = write!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" font-size=\"11\" text-anchor=\"end\">{}</text>\
             <rect x=\"{LEFT}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"#9bd\"/>\
             <path d=\"M{:.1} {middle:.1}H{:.1}\" stroke=\"#124\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" font-size=\"10\">{}</text>",
            LEFT - 6.0,
            middle + 4.0,
            escaped(name),
            top + 3.0,
            x(value.value) - LEFT,
            ROW - 6.0,
            x(value.low),
            x(value.high),
            x(value.high) + 4.0,
            middle + 3.5,
            label(value.value),
        );
    }
    // The axis at which the bars begin.
    let _ = write!(svg, "<path d=\"M{LEFT} 0V{:.1}\" stroke=\"#444\"/></svg>", height - ROW);
    format!("<figure><figcaption><b>{}</b></figcaption>{svg}</figure>\n", escaped(&chart.title))
}

/// Returns a value as text, with three decimal places up to 10 and with none above: shares are small, counts and times
/// can be large.
fn label(value: f64) -> String {
    if value > 10.0 { format!("{value:.0}") } else { format!("{value:.3}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_long_as_their_values() {
        let bar = |name: &str, value, low, high| Bar {
            name: name.to_owned(),
            value: ValueWithInterval { value, low, high },
        };
        let bars = vec![bar("<a>", 0.5, 0.25, 0.75), bar("none", 0.0, 0.0, 0.0), bar("over", 3.0, 3.0, 3.0)];
        let drawn = figure(&BarChart { title: "t & u".to_owned(), highest: 1.0, bars });
        let widths: Vec<&str> =
            drawn.split("width=\"").skip(2).filter_map(|rest| rest.split('"').next()).collect();
        assert_eq!(widths, ["120.0", "0.0", "240.0"], "{drawn}");
        assert!(drawn.contains("&lt;a&gt;") && drawn.contains("t &amp; u") && !drawn.contains("<a>"));
        assert_eq!((label(0.5), label(1234.4)), ("0.500".to_owned(), "1234".to_owned()));
    }
}
