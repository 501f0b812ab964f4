//! Counts approvals for the people who gave them: a question whose label names several people is allowed when all of
//! them have approved it (separation of duty). `Database::decide` calls this module.

use serde_json::Value;

use super::super::error::DatabaseError;
use super::super::transaction::DynTransaction;
use super::StoredQuestion;

/// The member of a question's content with the names of the people who must all approve it; absent if any person may.
pub(crate) const APPROVERS: &str = "approvers";

impl StoredQuestion {
    /// Returns the people who must all approve the question; empty if the approval of any person suffices.
    pub(crate) fn approvers(&self) -> Vec<String> {
        let content: Value = serde_json::from_str(&self.content).unwrap_or_default();
        content.get(APPROVERS).map(names).unwrap_or_default()
    }

    /// Returns the people who must approve the question and have not done so.
    pub(crate) fn missing_approvers(&self) -> Vec<String> {
        self.approvers().into_iter().filter(|name| !self.approved_by.contains(name)).collect()
    }
}

/// Parses the column `approved_by`.
///
/// # Errors
/// If it is not a JSON list of texts.
pub(super) fn read_approved_by(column: &str) -> Result<Vec<String>, DatabaseError> {
    serde_json::from_str(column)
        .map_err(|_| DatabaseError::Damaged("a row of the table `questions` has no valid list of approvals"))
}

/// Counts the approval of the person `who` for a question, in the transaction of the decision. Returns whether
/// everybody whose approval the question needs has now approved it; the caller then decides the question. Returns
/// `None` if the approval does not count, because `who` need not approve the question or has approved it before.
///
/// The caller has taken the number `change`, which locks out other decisions until the transaction ends.
pub(super) async fn count_approval(
    tx: &mut DynTransaction<'_>,
    question: &StoredQuestion,
    who: &str,
    change: i64,
) -> Result<Option<bool>, DatabaseError> {
    let content: Value = serde_json::from_str(&question.content)
        .map_err(|_| DatabaseError::Damaged("a row of the table `questions` has no valid content"))?;
    // Any person may decide a question whose content lists no approvers.
    if content.get(APPROVERS).is_none() {
        return Ok(Some(true));
    }
    let missing = question.missing_approvers();
    if !missing.iter().any(|name| name == who) {
        return Ok(None);
    }
    let mut approved_by = question.approved_by.clone();
    approved_by.push(who.to_owned());
    let column = Value::from(approved_by).to_string();
    let sql = "UPDATE questions SET approved_by = ?1, change = ?2 WHERE id = ?3 AND state = 'open'";
    tx.execute(sql, &[(&column).into(), change.into(), (&question.id).into()]).await?;
    Ok(Some(missing.len() == 1))
}

/// Returns the texts in a JSON list.
fn names(list: &Value) -> Vec<String> {
    let list = list.as_array().map(Vec::as_slice).unwrap_or_default();
    list.iter().filter_map(|name| name.as_str().map(str::to_owned)).collect()
}
