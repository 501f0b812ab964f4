//! Reads from a manifest how a run searched for attacks, so that the search can be repeated: the maximum number of
//! attempts, and the model that drove the attacker, whose recorded answers replace it. `games` opens a
//! [`RecordedSearch`] for each run of games that it verifies.

use flowgate_lm::ChatModel;
use serde_json::Value;

use super::VerifySettings;
use super::lines::{SkippedLines, number, text};
use crate::games::adaptive::SearchSettings;
use crate::games::with_search;

/// The maximum number of attempts that a manifest can name, which is also that of the option `--queries`. It bounds the
/// time that a manipulated file can cost.
pub const MAX_QUERIES: u32 = 1_000_000;

/// The lines of searches, if they are not repeated.
const SEARCHES: [SkippedLines; 1] =
    [("searches, which `--searches` repeats", |line| text(line, "type") == "search")];

/// The search for attacks of a recorded run.
pub(super) struct RecordedSearch {
    /// The maximum number of attempts for each task; 0 if the run records no search.
    queries: usize,
    /// The name of the model that drove the attacker; `None` without one.
    attacker: Option<String>,
    /// The recorded answers of this model, if the search is repeated.
    answers: Option<Box<dyn ChatModel>>,
    /// Whether the search is repeated; otherwise, its lines are left out of the comparison.
    is_repeated: bool,
}

impl RecordedSearch {
    /// Reads the search from the manifest of a run. Opens the answers of the model that drove the attacker only if the
    /// search is to be repeated.
    ///
    /// # Errors
    /// If the number of attempts is out of range, or the answers of that model are needed and cannot be opened.
    pub(super) fn open(manifest: &Value, settings: VerifySettings<'_>) -> Result<Self, String> {
        let Some(search) = manifest.get("search") else {
            return Ok(Self { queries: 0, attacker: None, answers: None, is_repeated: false });
        };
        let queries = number(search, "queries")?;
        let in_range = u32::try_from(queries).ok().filter(|queries| (1..=MAX_QUERIES).contains(queries));
        let queries = in_range.and_then(|queries| usize::try_from(queries).ok()).ok_or_else(|| {
            format!(
                "line 1: `queries` is not from 1 to {MAX_QUERIES}; give a file that `flowgate bench` wrote"
            )
        })?;
        let attacker = search.get("attacker").and_then(Value::as_str).map(str::to_owned);
        // The answers are needed only if a model drove the attacker and the search is repeated.
        let answers = match (&attacker, settings.attacker_answers) {
            (Some(name), Some(open)) if settings.repeats_searches => Some(open(name)?),
            (Some(name), None) if settings.repeats_searches => {
                return Err(format!(
                    "line 1: the model `{}` drove the attacker, so the searches can be repeated only with its recorded answers; \
                     add `--attacker-answers FILE` with the file that the run wrote, or leave `--searches` out",
                    name.escape_debug()
                ));
            }
            _ => None,
        };
        Ok(Self { queries, attacker, answers, is_repeated: settings.repeats_searches })
    }

    /// Returns the manifest of the repeated run with the search in it, as the recorded run has it.
    pub(super) fn add_to(&self, manifest: Value) -> Value {
        with_search(manifest, self.queries, self.attacker.as_deref())
    }

    /// Returns how the search is repeated; `None` if it is not.
    pub(super) fn settings(&self) -> Option<SearchSettings<'_>> {
        self.is_repeated.then_some(SearchSettings { queries: self.queries, author: self.answers.as_deref() })
    }

    /// Returns the lines that are not compared: those of searches, unless the search is repeated.
    pub(super) fn left_out(&self) -> &'static [SkippedLines] {
        if self.is_repeated { &[] } else { &SEARCHES }
    }
}
