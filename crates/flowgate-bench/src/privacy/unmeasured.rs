//! Names the defences that a run leaves out although it would measure them by default, with the reason. The
//! [report](super::report) has an empty row for each.

use serde_json::{Value, json};

use crate::games::text_table::{Table, table};

/// A defence that was not measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unmeasured {
    /// The name of the defence.
    pub defence: &'static str,
    /// Why it was not measured, and what to do.
    pub reason: &'static str,
}

impl Unmeasured {
    /// Returns the line of the format jsonl.
    pub fn to_json(self) -> Value {
        json!({"type": "unmeasured", "defence": self.defence, "reason": self.reason})
    }

    /// Returns the row of a table with this number of columns: the name, and dashes.
    pub(super) fn empty_row(self, columns: usize) -> Vec<String> {
        let dashes = std::iter::repeat_n("-".to_owned(), columns.saturating_sub(1));
        [self.defence.to_owned()].into_iter().chain(dashes).collect()
    }
}

/// Returns the table of the reasons; `None` if everything was measured.
pub(super) fn reason_table(unmeasured: &[Unmeasured]) -> Option<Table> {
    let rows: Vec<Vec<String>> =
        unmeasured.iter().map(|one| vec![one.defence.to_owned(), one.reason.to_owned()]).collect();
    (!rows.is_empty()).then(|| table("not measured", &["defence", "why"], &rows))
}
