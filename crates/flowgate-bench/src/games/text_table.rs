//! Prints tables of text. [`report`](super::report) uses it.

use std::fmt::Write as _;

/// Prints a share with three digits; a dash if there is none.
pub(super) fn cell(value: Option<f64>) -> String {
    // Adding 0 turns a negative zero into a positive one.
    value.map_or_else(|| "-".to_owned(), |value| format!("{:.3}", (value * 1000.0).round() / 1000.0 + 0.0))
}

/// Prints a table: the first column to the left, the others to the right.
pub(super) fn table(title: &str, header: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain(header.get(column).map(|title| title.chars().count())).max().unwrap_or(0)
    };
    let line = |cells: &[String]| {
        let mut line = String::new();
        for (column, cell) in cells.iter().enumerate() {
            let width = width(column);
            let _ =
                if column == 0 { write!(line, "{cell:<width$}") } else { write!(line, "  {cell:>width$}") };
        }
        format!("{}\n", line.trim_end())
    };
    let header: Vec<String> = header.iter().map(|cell| (*cell).to_owned()).collect();
    let mut text = format!("{title}\n{}", line(&header));
    rows.iter().for_each(|row| text.push_str(&line(row)));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_has_no_negative_zero() {
        let check = |value: Option<f64>, expected: &str| assert_eq!(cell(value), expected);
        check(Some(-0.0), "0.000");
        check(Some(-0.0001), "0.000");
        check(Some(2.0 / 3.0), "0.667");
        check(None, "-");
    }

    #[test]
    fn columns_are_aligned() {
        let rows = [vec!["a".to_owned(), "1".to_owned()], vec!["longer".to_owned(), "22".to_owned()]];
        assert_eq!(table("title", &["name", "x"], &rows), "title\nname     x\na        1\nlonger  22\n");
    }
}
