//! Defines the cells of the tables that `tables.rs` builds ([`Cell`]), and merges the cells of several seeds into one
//! text ([`merged`]): a figure becomes its mean over the seeds, with the least and the greatest value.

use super::measure::Spread;
use crate::games::interval::Rate;
use crate::games::report::interval_cell;

/// A cell of one seed.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Cell {
    /// A name, which is the same with every seed.
    Name(String),
    /// A parameter that was chosen for the seed; `None` becomes a dash.
    Setting(Option<f64>),
    /// A figure, and the number of its decimal places. A figure `None` becomes a dash.
    Figure(Option<f64>, usize),
    /// The mean of a figure over questions, with its standard deviation.
    Mean(Option<Spread>),
    /// Two counts, such as `3/8`.
    Count(Rate),
    /// The interval of a rate at 95 % (Wilson).
    Interval(Rate),
}

impl Cell {
    /// Creates the cell of a name.
    pub(super) fn name(name: impl Into<String>) -> Self {
        Self::Name(name.into())
    }

    /// Creates the cell of a figure with three decimal places.
    pub(super) fn figure(value: Option<f64>) -> Self {
        Self::Figure(value, 3)
    }

    /// Creates the cell of a whole number.
    pub(super) fn whole(number: usize) -> Self {
        Self::Figure(Some(number as f64), 0)
    }

    /// Returns the text that the cell has in a run with a single seed.
    fn text(&self) -> String {
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        match self {
            Self::Name(name) => name.clone(),
            Self::Setting(value) => or_dash(value.map(|value| value.to_string())),
            Self::Figure(value, digits) => or_dash(value.map(|value| decimal(value, *digits))),
            Self::Mean(spread) => or_dash(
                spread
                    .map(|spread| format!("{} ± {}", decimal(spread.mean, 3), decimal(spread.deviation, 3))),
            ),
            Self::Count(rate) => format!("{}/{}", rate.hits, rate.of),
            Self::Interval(rate) => interval_cell(*rate),
        }
    }

    /// Returns the number that is averaged over several seeds, and the number of its decimal places; `None` for a name,
    /// a parameter or an interval, and for a figure without a value.
    fn number(&self) -> Option<(f64, usize)> {
        match self {
            Self::Figure(value, digits) => value.map(|value| (value, *digits)),
            Self::Mean(spread) => spread.map(|spread| (spread.mean, 3)),
            Self::Count(rate) => Some((rate.hits as f64, 0)),
            Self::Name(_) | Self::Setting(_) | Self::Interval(_) => None,
        }
    }
}

/// Returns a number with this many decimal places, as [`cell`](crate::games::text_table::cell) rounds.
fn decimal(value: f64, digits: usize) -> String {
    let scale = 10_f64.powi(i32::try_from(digits).unwrap_or(0));
    // Adding 0 turns a negative zero into a positive one.
    format!("{:.digits$}", (value * scale).round() / scale + 0.0)
}

/// Merges the rows of a table over several seeds, cell by cell, and returns the texts. Each item of `seeds` has the
/// rows of one seed; all have the same rows with the same columns.
pub(super) fn merged(seeds: &[Vec<Vec<Cell>>]) -> Vec<Vec<String>> {
    let Some(first) = seeds.first() else { return Vec::new() };
    let mut merged = Vec::new();
    for (index, cells) in first.iter().enumerate() {
        // The row at this position in the table of each seed.
        let rows: Vec<&Vec<Cell>> = seeds.iter().filter_map(|rows| rows.get(index)).collect();
        let mut texts = Vec::new();
        for column in 0..cells.len() {
            let of_column: Vec<&Cell> = rows.iter().filter_map(|row| row.get(column)).collect();
            texts.push(over_seeds(&of_column));
        }
        merged.push(texts);
    }
    merged
}

/// Merges the cells that several seeds have at one place of a table into one text. A name stays as it is. A figure
/// becomes its mean, with the least and the greatest value if they differ. Counts are summed, with the least and the
/// greatest count. The different values of a parameter are listed. An interval becomes a dash: the seeds share
/// questions or have different parameters, so their questions are not a sample of one population.
fn over_seeds(cells: &[&Cell]) -> String {
    let Some(first) = cells.first() else { return String::new() };
    // With one seed, there is nothing to merge, and the text is that of its cell.
    if cells.len() == 1 {
        return first.text();
    }
    // The least and the greatest number in parentheses; no text if they are equal after rounding to `digits` decimals.
    let range = |digits: usize| {
        let numbers = || cells.iter().filter_map(|cell| cell.number()).map(|(number, _)| number);
        let least = decimal(numbers().fold(f64::INFINITY, f64::min), digits);
        let greatest = decimal(numbers().fold(f64::NEG_INFINITY, f64::max), digits);
        if least == greatest { String::new() } else { format!(" ({least}–{greatest})") }
    };
    match first {
        Cell::Name(name) => name.clone(),
        Cell::Interval(_) => "-".to_owned(),
        Cell::Setting(_) => {
            let mut texts: Vec<String> = Vec::new();
            for text in cells.iter().map(|cell| cell.text()) {
                if !texts.contains(&text) {
                    texts.push(text);
                }
            }
            texts.join(", ")
        }
        Cell::Count(_) => {
            let sum = |part: fn(&Rate) -> usize| -> usize {
                let rates =
                    cells.iter().map(|cell| if let Cell::Count(rate) = cell { part(rate) } else { 0 });
                rates.sum()
            };
            format!("{}/{}{}", sum(|rate| rate.hits), sum(|rate| rate.of), range(0))
        }
        Cell::Figure(..) | Cell::Mean(_) => {
            let numbers: Vec<(f64, usize)> = cells.iter().filter_map(|cell| cell.number()).collect();
            let Some((_, digits)) = numbers.first().copied() else { return "-".to_owned() };
            let mean = numbers.iter().map(|(number, _)| number).sum::<f64>() / numbers.len() as f64;
            format!("{}{}", decimal(mean, digits), range(digits))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_have_a_mean_and_a_range() {
        let check = |cells: &[Cell], expected: &str| {
            let seeds: Vec<Vec<Vec<Cell>>> = cells.iter().map(|cell| vec![vec![cell.clone()]]).collect();
            assert_eq!(merged(&seeds), [[expected.to_owned()]], "{cells:?}");
        };
        let (rate, spread) = (Rate { hits: 1, of: 4 }, Spread { mean: 0.5, deviation: 0.25 });
        // One seed.
        check(&[Cell::name("a")], "a");
        check(&[Cell::Setting(Some(0.05))], "0.05");
        check(&[Cell::figure(Some(2.0 / 3.0))], "0.667");
        check(&[Cell::figure(Some(-0.0001))], "0.000");
        check(&[Cell::figure(None)], "-");
        check(&[Cell::Mean(Some(spread))], "0.500 ± 0.250");
        check(&[Cell::Count(rate)], "1/4");
        check(&[Cell::Interval(rate)], &interval_cell(rate));
        // Several.
        check(&[Cell::name("a"), Cell::name("a")], "a");
        check(&[Cell::Setting(Some(0.5)), Cell::Setting(Some(1.0)), Cell::Setting(Some(0.5))], "0.5, 1");
        check(&[1.0, 0.5, 0.0].map(|value| Cell::figure(Some(value))), "0.500 (0.000–1.000)");
        check(&[0.5, 0.5].map(|value| Cell::figure(Some(value))), "0.500");
        check(&[Cell::figure(None), Cell::figure(Some(0.25))], "0.250");
        check(&[Cell::figure(None), Cell::figure(None)], "-");
        check(&[Cell::whole(7), Cell::whole(10)], "9 (7–10)");
        check(
            &[Cell::Mean(Some(spread)), Cell::Mean(Some(Spread { mean: 1.0, deviation: 0.0 }))],
            "0.750 (0.500–1.000)",
        );
        check(&[Cell::Count(rate), Cell::Count(Rate { hits: 3, of: 5 })], "4/9 (1–3)");
        check(&[Cell::Interval(rate), Cell::Interval(rate)], "-");
        assert!(merged(&[]).is_empty());
    }
}
