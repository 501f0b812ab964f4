//! Lists and withdraws conversation grants: approvals that a person gave for the rest of a conversation. A grant has no
//! row of its own: it is the row of the question that it answered, with the column `granted`. `approvals` calls it.
//!
//! The journal of the conversation also contains the grant. A withdrawal therefore sets the column at once, and the
//! next turn removes the grant from the conversation. Until such a turn is persisted, every turn removes the grant
//! again, so a crash does not lose the withdrawal.

use std::sync::Arc;

use super::{COLUMNS, QuestionState, StoredQuestion, read_all};
use crate::database::Database;
use crate::database::changes::next_change;
use crate::database::error::DatabaseError;
use crate::database::transaction::{Access, DynTransaction, SqlValue};

/// The most grants in one list.
const MAX_LISTED: i64 = 1_000;
/// The value of the column `granted` for an approval for the rest of the conversation.
pub(super) const GRANTED: i64 = 1;
/// The value for a withdrawn grant that its conversation may still contain.
const WITHDRAWN: i64 = 2;
/// The value for a withdrawn grant that its conversation does not contain, or no longer contains.
const REMOVED: i64 = 3;
/// The SQL condition that a grant is in effect: its call was sent or its approval can still be used, and its
/// conversation exists.
const IN_EFFECT: &str = "granted = 1 AND (state = 'used' OR (state = 'allowed' AND {unexpired})) AND EXISTS \
    (SELECT 1 FROM conversations WHERE conversations.client = questions.client AND conversations.name = questions.name)";

/// A grant that is withdrawn, and that its conversation may still contain.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WithdrawnGrant {
    /// The id of the question.
    pub(crate) id: String,
    /// The digest of the call.
    pub(crate) digest: String,
}

impl Database {
    /// Returns the conversation grants of a tenant, or with `None` of all tenants, that are in effect: those that were
    /// decided last come first, and there are at most [`MAX_LISTED`].
    pub(crate) async fn conversation_grants(
        &self,
        tenant: Option<&str>,
    ) -> Result<Vec<StoredQuestion>, DatabaseError> {
        // An empty name means all tenants.
        self.grants_where("(?1 = '' OR tenant = ?1)", tenant.unwrap_or("")).await
    }

    /// Returns the conversation grant that the question with this id gave; `None` if there is none, or it is not in
    /// effect.
    pub(crate) async fn conversation_grant(&self, id: &str) -> Result<Option<StoredQuestion>, DatabaseError> {
        Ok(self.grants_where("id = ?1", id).await?.pop())
    }

    /// Returns the conversation grants in effect ([`IN_EFFECT`]) that meet an SQL condition, in which `?1` means
    /// `value`: those that were decided last come first, and there are at most [`MAX_LISTED`].
    async fn grants_where(
        &self,
        condition: &'static str,
        value: &str,
    ) -> Result<Vec<StoredQuestion>, DatabaseError> {
        let (value, cipher) = (value.to_owned(), Arc::clone(&self.cipher));
        self.run(Access::Query, move |tx| {
            Box::pin(async move {
                let sql = format!(
                    "SELECT {COLUMNS} FROM questions WHERE {IN_EFFECT} AND {condition} ORDER BY decided DESC, id LIMIT ?2"
                );
                read_all(&mut tx.query(&sql, &[(&value).into(), MAX_LISTED.into()]).await?, &cipher)
            })
        })
        .await
    }

    /// Withdraws the conversation grant that the question with this id gave. An approval that is not used yet becomes
    /// void. Returns false if there is no such grant.
    pub(crate) async fn withdraw_conversation_grant(&self, id: &str) -> Result<bool, DatabaseError> {
        // The values have the numbers from 4 on: `withdraw_where` has values of its own with the numbers 1 to 3.
        self.withdraw_where("id = ?4", vec![id.to_owned()]).await
    }

    /// Withdraws all conversation grants of a conversation. Returns whether there was one.
    pub(crate) async fn withdraw_conversation_grants(
        &self,
        client: &str,
        name: &str,
    ) -> Result<bool, DatabaseError> {
        // The values have the numbers from 4 on: `withdraw_where` has values of its own with the numbers 1 to 3.
        self.withdraw_where("client = ?4 AND name = ?5", vec![client.to_owned(), name.to_owned()]).await
    }

    /// Withdraws the conversation grants that meet an SQL condition, in which the parameters from `?4` on mean
    /// `values`. Returns whether there was one.
    async fn withdraw_where(
        &self,
        condition: &'static str,
        values: Vec<String>,
    ) -> Result<bool, DatabaseError> {
        self.run(Access::Transaction, move |tx| {
            Box::pin(async move {
                let change = next_change(tx).await?;
                let mut withdrawn = 0;
                // The grant of an approval that is not used yet is not in the conversation: the approval becomes
                // `void`, and the grant counts as removed at once. The grant of a used approval is in the conversation
                // until the next turn removes it.
                let (used, void) = (QuestionState::Used.name(), QuestionState::Void.name());
                for (state, to, granted) in
                    [(QuestionState::Allowed.name(), void, REMOVED), (used, used, WITHDRAWN)]
                {
                    let sql = format!(
                        "UPDATE questions SET state = ?1, granted = ?2, change = ?3 WHERE {condition} AND granted = {GRANTED} \
                         AND state = '{state}'"
                    );
                    let mut parameters = vec![to.into(), granted.into(), change.into()];
                    parameters.extend(values.iter().map(SqlValue::from));
                    withdrawn += tx.execute(&sql, &parameters).await?;
                }
                Ok(withdrawn > 0)
            })
        })
        .await
    }

    /// Returns the withdrawn grants that a conversation may still contain, in a fixed order.
    pub(crate) async fn withdrawn_grants(
        &self,
        client: &str,
        name: &str,
    ) -> Result<Vec<WithdrawnGrant>, DatabaseError> {
        let (client, name) = (client.to_owned(), name.to_owned());
        self.run(Access::Query, move |tx| {
            Box::pin(async move {
                let sql = "SELECT id, digest FROM questions WHERE client = ?1 AND name = ?2 AND granted = ?3 ORDER BY id";
                let mut rows = tx.query(sql, &[(&client).into(), (&name).into(), WITHDRAWN.into()]).await?;
                let grants =
                    rows.iter_mut().map(|row| Ok(WithdrawnGrant { id: row.text(0)?, digest: row.text(1)? }));
                grants.collect()
            })
        })
        .await
    }

    /// Returns whether one of the questions with these ids gave a conversation grant that was withdrawn since.
    pub(crate) async fn is_conversation_grant_withdrawn(
        &self,
        questions: &[String],
    ) -> Result<bool, DatabaseError> {
        let questions = questions.to_vec();
        self.run(Access::Query, move |tx| {
            Box::pin(async move {
                let sql = "SELECT 1 FROM questions WHERE id = ?1 AND granted IN (?2, ?3)";
                for id in &questions {
                    if !tx.query(sql, &[id.into(), WITHDRAWN.into(), REMOVED.into()]).await?.is_empty() {
                        return Ok(true);
                    }
                }
                Ok(false)
            })
        })
        .await
    }
}

/// Marks a withdrawn grant as removed from its conversation, in the transaction that persists the turn without it. `id`
/// is the id of its question.
pub(in crate::database) async fn note_removed(
    tx: &mut DynTransaction<'_>,
    id: &str,
) -> Result<(), DatabaseError> {
    let sql = "UPDATE questions SET granted = ?1 WHERE id = ?2 AND granted = ?3";
    tx.execute(sql, &[REMOVED.into(), id.into(), WITHDRAWN.into()]).await.map(drop)
}
