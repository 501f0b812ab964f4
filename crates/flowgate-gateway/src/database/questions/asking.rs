//! Defines [`QuestionToAsk`], a question that [`Database::ask`](crate::database::Database::ask) is about to store. Its
//! methods find an equal question, void outdated ones, check the limits, and insert the new question.

use std::sync::Arc;

use serde_json::Value;

use super::limits::QuestionLimits;
use super::{AskOutcome, HIDDEN_MEMBER, NewQuestion, QuestionOrigin, QuestionState};
use crate::database::encryption::{Content, ContentCipher, ContentPlace};
use crate::database::error::DatabaseError;
use crate::database::transaction::{DynTransaction, SqlRow};

/// The member of a question's content that lists the evidence about the arguments of its call.
const EVIDENCE: &str = "evidence";

/// An owned copy of a [`NewQuestion`], since the operation on the database may run on another thread.
pub(super) struct QuestionToAsk {
    pub(super) id: String,
    client: String,
    name: String,
    tenant: String,
    config_fingerprint: String,
    digest: String,
    content: Content,
    expires_after: i64,
    origin: QuestionOrigin,
    used: Vec<String>,
    limits: QuestionLimits,
    cipher: Arc<ContentCipher>,
}

impl QuestionToAsk {
    /// Copies the question into a form that the operation on the database can own.
    pub(super) fn new(new: &NewQuestion<'_>, cipher: &Arc<ContentCipher>) -> Self {
        Self {
            id: new.id.to_owned(),
            client: new.client.to_owned(),
            name: new.name.to_owned(),
            tenant: new.tenant.to_owned(),
            config_fingerprint: new.config_fingerprint.to_owned(),
            digest: new.digest.to_owned(),
            content: new.content.into(),
            expires_after: new.expires_after,
            origin: new.origin,
            used: new.used.to_vec(),
            limits: new.limits,
            cipher: Arc::clone(cipher),
        }
    }

    /// Returns the row to which the content of a question about the same call is bound when it is encrypted. `id` is
    /// the id of that question.
    fn place(&self, id: &str) -> ContentPlace {
        ContentPlace::question(id, (&self.client, &self.name, &self.tenant), &self.digest)
    }

    /// Returns the id, the content and the state of each open or allowed question about the same call that has not
    /// expired (`{unexpired}`, which the backend replaces by a condition), the newest first. For a question of the
    /// chat, only questions about the same message of the model are searched. The callers compare the contents, since
    /// the database may have encrypted them.
    async fn find_about_call(
        &self,
        tx: &mut DynTransaction<'_>,
    ) -> Result<Vec<(String, String, String)>, DatabaseError> {
        self.find_in_states(tx, "state IN ('open', 'allowed') AND {unexpired}").await
    }

    /// Returns the id, the content and the state of each question about the same call whose state meets an SQL
    /// condition: the newest first, at most 100.
    async fn find_in_states(
        &self,
        tx: &mut DynTransaction<'_>,
        condition: &str,
    ) -> Result<Vec<(String, String, String)>, DatabaseError> {
        let Self { client, name, tenant, digest, origin, .. } = self;
        // The limit bounds the work; a question that is not found for this reason is asked again.
        let sql = format!(
            "SELECT id, content, state FROM questions WHERE client = ?1 AND name = ?2 AND tenant = ?3 AND digest = ?4 \
             AND turn BETWEEN ?5 AND ?6 AND {condition} ORDER BY asked DESC LIMIT 100"
        );
        // In the chat, only questions about the same message of the model can be the same question: those of the turns
        // from `first` to `last`.
        let (first, last) = (origin.first_column().into(), origin.to_column().into());
        let values = [client.into(), name.into(), tenant.into(), digest.into(), first, last];
        let opened = |row: &mut SqlRow| {
            let id = row.text(0)?;
            let content = self.cipher.open_column(row, 1, &self.place(&id))?;
            Ok((id, content, row.text(2)?))
        };
        tx.query(&sql, &values).await?.iter_mut().map(opened).collect()
    }

    /// Returns whether a question with this content asks the same as this one. The evidence about the arguments of the
    /// call may differ between questions outside the chat: such a question stays open while answers of tools arrive,
    /// and these answers change the evidence.
    fn is_same(&self, content: &str) -> bool {
        let own = self.content.as_str();
        content == own || self.origin.turns().is_none() && without_evidence(content) == without_evidence(own)
    }

    /// Finds an open or allowed question that asks the same and whose answer this turn has not used, so that a repeated
    /// request does not ask people twice. In the chat, also finds a question about this call that a person has already
    /// denied: the questions about the later calls of a message are asked in advance, and may be denied before their
    /// calls are judged. Such a denial holds although the external state has changed since, for example because an
    /// earlier call was denied as well. Returns the question as [`AskOutcome::Known`]; `None` if there is none.
    pub(super) async fn find_same(
        &self,
        tx: &mut DynTransaction<'_>,
    ) -> Result<Option<AskOutcome>, DatabaseError> {
        for (id, content, _) in self.find_about_call(tx).await? {
            if self.is_same(&content) && !self.used.contains(&id) {
                return Ok(Some(AskOutcome::Known(id)));
            }
        }
        // Outside the chat, earlier denials are not searched, since one would hold for ever. `false`: the questions are
        // of the chat, so their evidence is compared.
        if self.origin.turns().is_some() {
            let own = without_state(self.content.as_str(), false);
            for (id, content, _) in self.find_in_states(tx, "state = 'denied'").await? {
                if without_state(&content, false) == own && !self.used.contains(&id) {
                    return Ok(Some(AskOutcome::Known(id)));
                }
            }
        }
        Ok(None)
    }

    /// Returns the limit on questions that is reached, as [`AskOutcome::Full`]; `None` if there is room for this one.
    pub(super) async fn find_full(
        &self,
        tx: &mut DynTransaction<'_>,
    ) -> Result<Option<AskOutcome>, DatabaseError> {
        let is_offer = self.origin == QuestionOrigin::ToolOffer;
        let reached = self.limits.find_reached(tx, (&self.client, &self.name), is_offer).await?;
        Ok(reached.map(AskOutcome::Full))
    }

    /// Voids the open and allowed questions that differ from this one only in the external state that they are about,
    /// since this state has changed. Returns the ids of the voided questions that had been allowed. `change` is the
    /// number under which event streams report them.
    pub(super) async fn void_changed(
        &self,
        tx: &mut DynTransaction<'_>,
        change: i64,
    ) -> Result<Vec<String>, DatabaseError> {
        let mut void = Vec::new();
        let content = self.content.as_str();
        // Outside the chat, `without_state` also leaves the evidence out.
        let is_outside_chat = self.origin.turns().is_none();
        for (id, other_content, state) in self.find_about_call(tx).await? {
            // Skips an equal question, a question whose answer this turn has used, and one that differs in more than
            // the state.
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
        let Self { id, client, name, tenant, config_fingerprint, digest, expires_after, origin, .. } = self;
        let content = self.cipher.seal(&self.content, &self.place(id))?;
        // Nobody has decided yet, which the table stores as an empty name and the time 0.
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
            origin.to_column().into(),
            config_fingerprint.into(),
        ];
        tx.execute(sql, &values).await.map(drop)
    }
}

/// Parses the content of a question, and removes the evidence; `None` if the content is not a JSON object.
fn without_evidence(content: &str) -> Option<Value> {
    let mut content: Value = serde_json::from_str(content).ok()?;
    content.as_object_mut()?.remove(EVIDENCE);
    Some(content)
}

/// Parses the content of a question, and removes the external state that the question is about; also the evidence, if
/// the question is outside the chat. `None` if the content is not valid JSON.
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
