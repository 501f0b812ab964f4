//! Builds tables of figures and formats them as text. The reports of all suites call it, and [`html`](crate::html)
//! draws the same tables on a page.

use std::fmt::Write as _;

/// Returns a figure with three decimal places as the text of a cell; a dash if there is none.
pub(crate) fn cell(value: Option<f64>) -> String {
    // Adding 0 turns a negative zero into a positive one.
    value.map_or_else(|| "-".to_owned(), |value| format!("{:.3}", (value * 1000.0).round() / 1000.0 + 0.0))
}

/// A table: the first column is a name, the others are figures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Table {
    /// What the table shows.
    pub(crate) title: String,
    /// The names of the columns.
    pub(crate) header: Vec<String>,
    /// The cells of each row.
    pub(crate) rows: Vec<Vec<String>>,
}

/// Creates a table from a title, the names of the columns, and rows of as many cells.
pub(crate) fn table(title: &str, header: &[&str], rows: &[Vec<String>]) -> Table {
    let header = header.iter().map(|cell| (*cell).to_owned()).collect();
    Table { title: title.to_owned(), header, rows: rows.to_vec() }
}

/// Returns tables as one text, with an empty line between them.
pub(crate) fn texts(tables: &[Table]) -> String {
    tables.iter().map(Table::to_text).collect::<Vec<_>>().join("\n")
}

impl Table {
    /// Returns the table as text, with its title and header. The first column, which has names, is aligned to the left,
    /// the others to the right. Each column is as wide as its widest cell.
    pub(crate) fn to_text(&self) -> String {
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
            cells.chain(self.header.get(column).map(|title| title.chars().count())).max().unwrap_or(0)
        };
        let line = |cells: &[String]| {
            let mut line = String::new();
            for (column, cell) in cells.iter().enumerate() {
                let width = width(column);
                // Writing to a text does not fail.
                let _ = if column == 0 {
                    write!(line, "{cell:<width$}")
                } else {
                    write!(line, "  {cell:>width$}")
                };
            }
            format!("{}\n", line.trim_end())
        };
        let mut text = format!("{}\n{}", self.title, line(&self.header));
        self.rows.iter().for_each(|row| text.push_str(&line(row)));
        text
    }
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
        assert_eq!(
            table("title", &["name", "x"], &rows).to_text(),
            "title\nname     x\na        1\nlonger  22\n"
        );
    }
}
