//! Contains the statements with which [`Database::ask`](crate::database::Database::ask) stores a question.

use serde_json::Value;

use super::{
    AskOutcome, HIDDEN_MEMBER, MAX_OFFERED, NewQuestion, QuestionLimits, QuestionState, TURN_OF_TOOL_OFFER,
};
use crate::database::error::DatabaseError;
use crate::database::transaction::DynTransaction;

/// A question to ask, as its operation owns it.
pub(super) struct QuestionToAsk {
    pub(super) id: String,
    client: String,
    name: String,
    tenant: String,
    digest: String,
    content: String,
    expires_after: i64,
    turn: i64,
    since: i64,
    used: Vec<String>,
    most: QuestionLimits,
}

impl QuestionToAsk {
    pub(super) fn new(new: &NewQuestion<'_>) -> Self {
        Self {
            id: new.id.to_owned(),
            client: new.client.to_owned(),
            name: new.name.to_owned(),
            tenant: new.tenant.to_owned(),
            digest: new.digest.to_owned(),
            content: new.content.to_owned(),
            expires_after: new.expires_after,
            turn: new.turn,
            since: new.since,
            used: new.used.to_vec(),
            most: new.most,
        }
    }

    /// Returns the same question, if it has not expired and its approval is not used.
    pub(super) async fn find_same(
        &self,
        tx: &mut DynTransaction<'_>,
    ) -> Result<Option<AskOutcome>, DatabaseError> {
        let Self { client, name, digest, content, turn, since, .. } = self;
        let sql = "SELECT id FROM questions WHERE client = ?1 AND name = ?2 AND digest = ?3 AND content = ?4 \
                   AND turn BETWEEN ?5 AND ?6 AND state IN ('open', 'allowed') AND {unexpired} ORDER BY asked DESC LIMIT 100";
        let values =
            [client.into(), name.into(), digest.into(), content.into(), (*since).into(), (*turn).into()];
        for row in &mut tx.query(sql, &values).await? {
            let id = row.text(0)?;
            if !self.used.contains(&id) {
                return Ok(Some(AskOutcome::Known(id)));
            }
        }
        Ok(None)
    }

    /// Returns the bound that does not allow another question.
    pub(super) async fn find_full(
        &self,
        tx: &mut DynTransaction<'_>,
    ) -> Result<Option<AskOutcome>, DatabaseError> {
        // Servers that offer tools use up no room for questions about calls, and no conversation uses up that of
        // the others.
        let is_offer = self.turn == TURN_OF_TOOL_OFFER;
        let (of, most_here) =
            if is_offer { ("= ?3", MAX_OFFERED) } else { ("> ?3", self.most.of_conversation) };
        let sql = format!(
            "SELECT COUNT(*), COALESCE(SUM(CASE WHEN name = ?2 THEN 1 ELSE 0 END), 0) FROM questions \
             WHERE client = ?1 AND turn {of} AND state = 'open' AND {{unexpired}}"
        );
        let values = [(&self.client).into(), (&self.name).into(), TURN_OF_TOOL_OFFER.into()];
        let rows = tx.query(&sql, &values).await?;
        let open = rows
            .first()
            .ok_or(DatabaseError::Damaged("the count of open questions in `questions` returned no row"))?;
        let (all, here) = (open.integer(0)?, open.integer(1)?);
        Ok(match here >= most_here {
            true => Some(AskOutcome::FullConversation),
            false if !is_offer && all >= self.most.of_client => Some(AskOutcome::FullClient),
            false if !is_offer && self.asked_in_an_hour(tx).await? >= self.most.an_hour => {
                Some(AskOutcome::TooManyAnHour)
            }
            false => None,
        })
    }

    /// Returns how many questions the conversation has asked within the last hour. Leaves out those of a future that a
    /// clock showed before it was corrected.
    async fn asked_in_an_hour(&self, tx: &mut DynTransaction<'_>) -> Result<i64, DatabaseError> {
        let sql = "SELECT COUNT(*) FROM questions WHERE client = ?1 AND name = ?2 AND turn > ?3 \
                   AND asked > {now} - 3600000 AND asked <= {now} + 60000";
        let values = [(&self.client).into(), (&self.name).into(), TURN_OF_TOOL_OFFER.into()];
        let rows = tx.query(sql, &values).await?;
        let row = rows.first();
        row.ok_or(DatabaseError::Damaged("the count of questions in `questions` returned no row"))?.integer(0)
    }

    /// Voids the same question about a state that has changed since. Returns the questions that had been allowed.
    pub(super) async fn void_changed(
        &self,
        tx: &mut DynTransaction<'_>,
        change: i64,
    ) -> Result<Vec<String>, DatabaseError> {
        let Self { client, name, digest, content, turn, since, .. } = self;
        let sql = "SELECT id, content, state FROM questions WHERE client = ?1 AND name = ?2 AND digest = ?3 \
                   AND content <> ?4 AND turn BETWEEN ?5 AND ?6 AND state IN ('open', 'allowed') AND {unexpired} LIMIT 100";
        let values =
            [client.into(), name.into(), digest.into(), content.into(), (*since).into(), (*turn).into()];
        let mut void = Vec::new();
        for row in &mut tx.query(sql, &values).await? {
            let (id, other, state) = (row.text(0)?, row.text(1)?, row.text(2)?);
            if self.used.contains(&id) || without_state(&other) != without_state(content) {
                continue;
            }
            let sql = "UPDATE questions SET state = 'void', change = ?1 WHERE id = ?2";
            tx.execute(sql, &[change.into(), (&id).into()]).await?;
            if state == QuestionState::Allowed.name() {
                void.push(id);
            }
        }
        Ok(void)
    }

    pub(super) async fn insert(&self, tx: &mut DynTransaction<'_>, change: i64) -> Result<(), DatabaseError> {
        let Self { id, client, name, tenant, digest, content, expires_after, turn, .. } = self;
        let sql = "INSERT INTO questions (id, client, name, tenant, digest, content, state, asked, expires, \
                   decided_by, decided, change, turn) \
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, 'open', {now}, {now} + ?7, '', 0, ?8, ?9)";
        let values = [
            id.into(),
            client.into(),
            name.into(),
            tenant.into(),
            digest.into(),
            content.into(),
            (*expires_after).into(),
            change.into(),
            (*turn).into(),
        ];
        tx.execute(sql, &values).await.map(drop)
    }
}

/// Returns the content of a question, without the state that it is about.
fn without_state(content: &str) -> Option<Value> {
    let mut content: Value = serde_json::from_str(content).ok()?;
    if let Some(Value::Object(own)) = content.get_mut(HIDDEN_MEMBER) {
        own.remove("state");
    }
    Some(content)
}
