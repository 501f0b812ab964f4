//! Contains the statements with which [`Database::ask`](crate::database::Database::ask) stores a question, unless the
//! same question exists or a limit on questions is reached.

use std::sync::Arc;

use serde_json::Value;

use super::limits::QuestionLimits;
use super::{AskOutcome, HIDDEN_MEMBER, NewQuestion, QuestionState, TURN_OF_TOOL_OFFER};
use crate::database::encryption::{Content, ContentCipher, ContentPlace};
use crate::database::error::DatabaseError;
use crate::database::transaction::{DynTransaction, SqlRow};

/// The member of a question's content with the evidence about the values of its call.
const EVIDENCE: &str = "evidence";

/// An owned copy of a [`NewQuestion`], which the operation on the database takes with it.
pub(super) struct QuestionToAsk {
    pub(super) id: String,
    client: String,
    name: String,
    tenant: String,
    basis: String,
    digest: String,
    content: Content,
    expires_after: i64,
    turn: i64,
    since: i64,
    used: Vec<String>,
    most: QuestionLimits,
    cipher: Arc<ContentCipher>,
}

impl QuestionToAsk {
    /// Copies the question, because the statements may run on another thread.
    pub(super) fn new(new: &NewQuestion<'_>, cipher: &Arc<ContentCipher>) -> Self {
        Self {
            id: new.id.to_owned(),
            client: new.client.to_owned(),
            name: new.name.to_owned(),
            tenant: new.tenant.to_owned(),
            basis: new.basis.to_owned(),
            digest: new.digest.to_owned(),
            content: new.content.into(),
            expires_after: new.expires_after,
            turn: new.turn,
            since: new.since,
            used: new.used.to_vec(),
            most: new.most,
            cipher: Arc::clone(cipher),
        }
    }

    /// Returns the place of the content of the question with this id about the same call.
    fn place(&self, id: &str) -> ContentPlace {
        ContentPlace::question(id, (&self.client, &self.name, &self.tenant), &self.digest)
    }

    /// Returns the id, content and state of the questions about the same call that were asked since the same message of
    /// the model, are open or allowed and have not expired, the newest first. Contents are compared here, since the
    /// database has them encrypted.
    async fn find_about_call(
        &self,
        tx: &mut DynTransaction<'_>,
    ) -> Result<Vec<(String, String, String)>, DatabaseError> {
        let Self { client, name, tenant, digest, turn, since, .. } = self;
        // The limit bounds the work; a question that is not found for this reason is asked again.
        let sql = "SELECT id, content, state FROM questions WHERE client = ?1 AND name = ?2 AND tenant = ?3 AND digest = ?4 \
                   AND turn BETWEEN ?5 AND ?6 AND state IN ('open', 'allowed') AND {unexpired} ORDER BY asked DESC LIMIT 100";
        let values =
            [client.into(), name.into(), tenant.into(), digest.into(), (*since).into(), (*turn).into()];
        let opened = |row: &mut SqlRow| {
            let id = row.text(0)?;
            let content = self.cipher.open_column(row, 1, &self.place(&id))?;
            Ok((id, content, row.text(2)?))
        };
        tx.query(sql, &values).await?.iter_mut().map(opened).collect()
    }

    /// Returns whether a question with this content asks the same. A question outside the chat stays open while other
    /// answers arrive, which change the evidence about its values, so there the evidence may differ.
    fn is_same(&self, content: &str) -> bool {
        let own = self.content.as_str();
        content == own || self.turn < 0 && without_evidence(content) == without_evidence(own)
    }

    /// Finds a question with the same content that was asked since the same message of the model, has not expired,
    /// and whose approval this turn does not use. So a repeated request does not ask people twice. Returns it as
    /// [`AskOutcome::Known`]; `None` if there is none.
    pub(super) async fn find_same(
        &self,
        tx: &mut DynTransaction<'_>,
    ) -> Result<Option<AskOutcome>, DatabaseError> {
        for (id, content, _) in self.find_about_call(tx).await? {
            if self.is_same(&content) && !self.used.contains(&id) {
                return Ok(Some(AskOutcome::Known(id)));
            }
        }
        Ok(None)
    }

    /// Returns the limit on questions that is reached; `None` if there is room for this one.
    pub(super) async fn find_full(
        &self,
        tx: &mut DynTransaction<'_>,
    ) -> Result<Option<AskOutcome>, DatabaseError> {
        let is_offer = self.turn == TURN_OF_TOOL_OFFER;
        let reached = self.most.find_reached(tx, (&self.client, &self.name), is_offer).await?;
        Ok(reached.map(AskOutcome::Full))
    }

    /// Voids the open and allowed questions that differ from this one only in the external state that they are about:
    /// it has changed since they were asked. Returns the ids of those that had been allowed. `change` is the number
    /// under which event streams report the questions.
    pub(super) async fn void_changed(
        &self,
        tx: &mut DynTransaction<'_>,
        change: i64,
    ) -> Result<Vec<String>, DatabaseError> {
        let mut void = Vec::new();
        let content = self.content.as_str();
        let is_outside_chat = self.turn < 0;
        for (id, other_content, state) in self.find_about_call(tx).await? {
            if self.is_same(&other_content)
                || self.used.contains(&id)
                || without_state(&other_content, is_outside_chat) != without_state(content, is_outside_chat)
            {
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
        let Self { id, client, name, tenant, basis, digest, expires_after, turn, .. } = self;
        let content = self.cipher.seal(&self.content, &self.place(id))?;
        let sql = "INSERT INTO questions (id, client, name, tenant, digest, content, state, asked, expires, \
                   decided_by, decided, change, turn, basis) \
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, 'open', {now}, {now} + ?7, '', 0, ?8, ?9, ?10)";
        let values = [
            id.into(),
            client.into(),
            name.into(),
            tenant.into(),
            digest.into(),
            (&content).into(),
            (*expires_after).into(),
            change.into(),
            (*turn).into(),
            basis.into(),
        ];
        tx.execute(sql, &values).await.map(drop)
    }
}

/// Parses the content of a question, and removes the evidence about its values; `None` if the content is not valid JSON.
fn without_evidence(content: &str) -> Option<Value> {
    let mut content: Value = serde_json::from_str(content).ok()?;
    content.as_object_mut()?.remove(EVIDENCE);
    Some(content)
}

/// Parses the content of a question, and removes the external state that the question is about, and the evidence about
/// its values if the question is outside the chat. `None` if the content is not valid JSON.
fn without_state(content: &str, is_outside_chat: bool) -> Option<Value> {
    let mut content = match is_outside_chat {
        true => without_evidence(content)?,
        false => serde_json::from_str(content).ok()?,
    };
    if let Some(Value::Object(hidden)) = content.get_mut(HIDDEN_MEMBER) {
        hidden.remove("state");
    }
    Some(content)
}
