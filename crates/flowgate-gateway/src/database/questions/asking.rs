//! Contains the statements with which [`Database::ask`](crate::database::Database::ask) stores a question, unless the
//! same question exists or a limit on questions is reached.

use serde_json::Value;

use super::{
    AskOutcome, HIDDEN_MEMBER, MAX_OFFERED, NewQuestion, QuestionLimits, QuestionState, TURN_OF_TOOL_OFFER,
};
use crate::database::error::DatabaseError;
use crate::database::transaction::DynTransaction;

/// An owned copy of a [`NewQuestion`], which the operation on the database takes with it.
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
    /// Copies the question, because the statements may run on another thread.
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

    /// Finds a question with the same content that was asked since the same message of the model, has not expired,
    /// and whose approval this turn does not use. So a repeated request does not ask people twice. Returns it as
    /// [`AskOutcome::Known`]; `None` if there is none.
    pub(super) async fn find_same(
        &self,
        tx: &mut DynTransaction<'_>,
    ) -> Result<Option<AskOutcome>, DatabaseError> {
        let Self { client, name, digest, content, turn, since, .. } = self;
        // The limit bounds the work; a question that is not found for this reason is asked again.
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

    /// Returns which limit on questions is reached: of the conversation, of the client, or of an hour; `None` if there
    /// is room for this one.
    pub(super) async fn find_full(
        &self,
        tx: &mut DynTransaction<'_>,
    ) -> Result<Option<AskOutcome>, DatabaseError> {
        // Questions about offered tools are counted separately, so that they take no room from questions about calls.
        // Their name is that of a server instead of a conversation. The limit on one conversation leaves room for the
        // client's other conversations.
        let is_offer = self.turn == TURN_OF_TOOL_OFFER;
        let (turn_condition, conversation_limit) =
            if is_offer { ("= ?3", MAX_OFFERED) } else { ("> ?3", self.most.of_conversation) };
        let sql = format!(
            "SELECT COUNT(*), COALESCE(SUM(CASE WHEN name = ?2 THEN 1 ELSE 0 END), 0) FROM questions \
             WHERE client = ?1 AND turn {turn_condition} AND state = 'open' AND {{unexpired}}"
        );
        let values = [(&self.client).into(), (&self.name).into(), TURN_OF_TOOL_OFFER.into()];
        let rows = tx.query(&sql, &values).await?;
        let counts = rows
            .first()
            .ok_or(DatabaseError::Damaged("the count of open questions in `questions` returned no row"))?;
        let (open_of_client, open_here) = (counts.integer(0)?, counts.integer(1)?);
        Ok(match open_here >= conversation_limit {
            true => Some(AskOutcome::FullConversation),
            false if !is_offer && open_of_client >= self.most.of_client => Some(AskOutcome::FullClient),
            false if !is_offer && self.asked_in_an_hour(tx).await? >= self.most.an_hour => {
                Some(AskOutcome::TooManyAnHour)
            }
            false => None,
        })
    }

    /// Returns how many questions about calls the conversation has asked people within the last hour. Leaves out
    /// questions that a lasting grant answered, and questions with a time more than a minute in the future, which were
    /// stored before the clock was set back.
    async fn asked_in_an_hour(&self, tx: &mut DynTransaction<'_>) -> Result<i64, DatabaseError> {
        let sql = "SELECT COUNT(*) FROM questions WHERE client = ?1 AND name = ?2 AND turn > ?3 AND lasting_grant = '' \
                   AND asked > {now} - 3600000 AND asked <= {now} + 60000";
        let values = [(&self.client).into(), (&self.name).into(), TURN_OF_TOOL_OFFER.into()];
        let rows = tx.query(sql, &values).await?;
        let row = rows.first();
        row.ok_or(DatabaseError::Damaged("the count of questions in `questions` returned no row"))?.integer(0)
    }

    /// Voids the open and allowed questions that differ from this one only in the external state that they are about:
    /// it has changed since they were asked. Returns the ids of those that had been allowed. `change` is the number
    /// under which event streams report the questions.
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
            let (id, other_content, state) = (row.text(0)?, row.text(1)?, row.text(2)?);
            if self.used.contains(&id) || without_state(&other_content) != without_state(content) {
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

    /// Inserts the question as open. `change` is the number under which event streams report it.
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

/// Parses the content of a question, and removes the external state that the question is about; `None` if the content
/// is not valid JSON.
fn without_state(content: &str) -> Option<Value> {
    let mut content: Value = serde_json::from_str(content).ok()?;
    if let Some(Value::Object(hidden)) = content.get_mut(HIDDEN_MEMBER) {
        hidden.remove("state");
    }
    Some(content)
}
