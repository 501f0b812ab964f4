//! Questions to people, and freezes.
//!
//! A question is decided once, for exactly what it asks, before it expires; an approval is used once, in the
//! transaction that persists the turn in which its call is sent. Whatever crashes in between, an approval is neither
//! lost nor used twice.

#[cfg(test)]
mod tests;

use serde::Deserialize as _;
use serde_json::Value;
use sqlx::Row as _;
use sqlx::any::AnyRow;

use super::tools::{self, ToolOffer};
use super::{Database, DatabaseError, Transaction, with_timeout};

/// The state of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QuestionState {
    /// Undecided.
    Open,
    /// A person allowed it.
    Allowed,
    /// A person denied it.
    Denied,
    /// It was allowed, and the call was sent.
    Used,
    /// It was not decided in time, or the approval was not used in time.
    Expired,
    /// The conversation continued without it.
    Void,
}

impl QuestionState {
    pub(crate) const ALL: [Self; 6] =
        [Self::Open, Self::Allowed, Self::Denied, Self::Used, Self::Expired, Self::Void];

    /// Returns its name in the database and in listings.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::Used => "used",
            Self::Expired => "expired",
            Self::Void => "void",
        }
    }
}

/// A persisted question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredQuestion {
    pub(crate) id: String,
    pub(crate) client: String,
    /// The conversation.
    pub(crate) name: String,
    pub(crate) tenant: String,
    pub(crate) digest: String,
    /// The content that people are shown, in JSON.
    pub(crate) content: String,
    pub(crate) state: QuestionState,
    pub(crate) asked: i64,
    pub(crate) expires: i64,
    /// The person who decided; empty if it is undecided.
    pub(crate) decided_by: String,
    pub(crate) decided: i64,
    pub(crate) change: i64,
}

/// A question to ask.
#[derive(Debug, Clone)]
pub(crate) struct NewQuestion<'a> {
    pub(crate) id: &'a str,
    pub(crate) client: &'a str,
    pub(crate) name: &'a str,
    pub(crate) tenant: &'a str,
    pub(crate) digest: &'a str,
    pub(crate) content: &'a str,
    /// The time until it expires, in milliseconds.
    pub(crate) expires_after: i64,
    /// The number of persisted turns of the conversation, or [`TURN_OUTSIDE_CHAT`] or [`TURN_OF_TOOL_OFFER`].
    pub(crate) turn: i64,
    /// The questions of this turn whose approvals are used already.
    pub(crate) used: &'a [String],
    /// The bounds on open questions.
    pub(crate) most: OpenQuestionLimits,
}

/// The bounds on questions of one conversation and of one client that are open at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OpenQuestionLimits {
    pub(crate) of_conversation: i64,
    pub(crate) of_client: i64,
}

/// The outcome of asking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AskOutcome {
    /// The same question was asked before.
    Known(String),
    /// The question is new. Its predecessors about a state that has changed since are void.
    New(String),
    /// Not asked: the conversation has too many open questions.
    FullConversation,
    /// Not asked: the client has too many open questions.
    FullClient,
}

/// The reason why a question cannot be decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DecideError {
    /// It does not exist, or is not visible to this person.
    Unknown,
    /// Its digest differs from the given one.
    OtherDigest,
    /// It is not open any more.
    NotOpen(QuestionState),
}

/// The bound on open questions about the tools of one server, for one client.
pub(crate) const MOST_OFFERED: i64 = 20;
/// The turn of a question beside the chat: it stands across the turns of its conversation, for the same call and the
/// same reasons.
pub(crate) const TURN_OUTSIDE_CHAT: i64 = -1;
/// The turn of a question about a tool that a server offers.
pub(crate) const TURN_OF_TOOL_OFFER: i64 = -2;
/// The member of a question's content that people are not shown: the state that it is about, and the labels of its
/// parts.
pub(crate) const HIDDEN_MEMBER: &str = "flowgate";
/// The columns of a question. One that has expired and is not marked yet is shown as expired.
const COLUMNS: &str = "id, client, name, tenant, digest, content, \
    CASE WHEN state IN ('open', 'allowed') AND {over} THEN 'expired' ELSE state END, \
    asked, expires, decided_by, decided, change";

impl Database {
    /// Asks a question, or returns the same question if it stands and its approval is not used. A new question is
    /// recorded before any person can see it; `record` is given its predecessors that are void.
    pub(crate) async fn ask(
        &self,
        new: &NewQuestion<'_>,
        record: impl FnOnce(&[String]) -> Result<(), DatabaseError>,
    ) -> Result<AskOutcome, DatabaseError> {
        with_timeout(async {
            let mut tx = self.begin().await?;
            let change = next_change(&mut tx).await?;
            let sql = "SELECT id FROM questions WHERE client = $1 AND name = $2 AND digest = $3 AND content = $4 \
                       AND turn = $5 AND state IN ('open', 'allowed') AND {stands} ORDER BY asked DESC LIMIT 100";
            let known = sqlx::query(self.expand_statement(sql)).bind(new.client).bind(new.name).bind(new.digest);
            for row in known.bind(new.content).bind(new.turn).fetch_all(&mut *tx).await? {
                let id: String = row.try_get(0)?;
                if !new.used.contains(&id) {
                    return Ok(AskOutcome::Known(id));
                }
            }
            let void = self.void_changed(&mut tx, new, change).await?;
            // Servers that offer tools use up no room for questions about calls, and no conversation uses up that of
            // the others.
            let (of, most_here) = match new.turn {
                TURN_OF_TOOL_OFFER => ("= $3", MOST_OFFERED),
                _ => ("> $3", new.most.of_conversation),
            };
            let sql = format!(
                "SELECT COUNT(*), COALESCE(SUM(CASE WHEN name = $2 THEN 1 ELSE 0 END), 0) FROM questions \
                 WHERE client = $1 AND turn {of} AND state = 'open' AND {{stands}}"
            );
            let open = sqlx::query(self.expand_statement(&sql)).bind(new.client).bind(new.name).bind(TURN_OF_TOOL_OFFER);
            let open = open.fetch_one(&mut *tx).await?;
            let (all, here) = (open.try_get::<i64, _>(0)?, open.try_get::<i64, _>(1)?);
            let is_full = match here >= most_here {
                true => Some(AskOutcome::FullConversation),
                false if new.turn != TURN_OF_TOOL_OFFER && all >= new.most.of_client => Some(AskOutcome::FullClient),
                false => None,
            };
            if let Some(full) = is_full {
                return Ok(full);
            }
            let sql = "INSERT INTO questions (id, client, name, tenant, digest, content, state, asked, expires, \
                       decided_by, decided, change, turn) \
                       VALUES ($1, $2, $3, $4, $5, $6, 'open', {now}, {now} + $7, '', 0, $8, $9)";
            let insert = sqlx::query(self.expand_statement(sql)).bind(new.id).bind(new.client).bind(new.name);
            let insert = insert.bind(new.tenant).bind(new.digest).bind(new.content).bind(new.expires_after);
            insert.bind(change).bind(new.turn).execute(&mut *tx).await?;
            record(&void)?;
            super::persist_log_head_in(self, &mut tx).await?;
            tx.commit().await?;
            Ok(AskOutcome::New(new.id.to_owned()))
        })
        .await
    }

    /// Voids the same question about a state that has changed since. Returns the questions that had been allowed.
    async fn void_changed(
        &self,
        tx: &mut Transaction,
        new: &NewQuestion<'_>,
        change: i64,
    ) -> Result<Vec<String>, DatabaseError> {
        let sql = "SELECT id, content, state FROM questions WHERE client = $1 AND name = $2 AND digest = $3 \
                   AND content <> $4 AND turn = $5 AND state IN ('open', 'allowed') AND {stands} LIMIT 100";
        let others = sqlx::query(self.expand_statement(sql)).bind(new.client).bind(new.name).bind(new.digest);
        let others = others.bind(new.content).bind(new.turn).fetch_all(&mut **tx).await?;
        let mut void = Vec::new();
        for row in others {
            let (id, content, state): (String, String, String) =
                (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
            if new.used.contains(&id) || without_state(&content) != without_state(new.content) {
                continue;
            }
            let sql = "UPDATE questions SET state = 'void', change = $1 WHERE id = $2";
            sqlx::query(sql).bind(change).bind(&id).execute(&mut **tx).await?;
            if state == QuestionState::Allowed.name() {
                void.push(id);
            }
        }
        Ok(void)
    }

    /// Returns a question.
    pub(crate) async fn question(&self, id: &str) -> Result<Option<StoredQuestion>, DatabaseError> {
        let sql = self.expand_statement(&format!("SELECT {COLUMNS} FROM questions WHERE id = $1"));
        let row =
            with_timeout(async { Ok(sqlx::query(sql).bind(id).fetch_optional(&self.pool).await?) }).await?;
        row.as_ref().map(read).transpose()
    }

    /// Returns the question that a conversation asked last about the call with this digest, in one of its first
    /// `turns` turns.
    pub(crate) async fn find_question(
        &self,
        (client, name): (&str, &str),
        digest: &str,
        turns: i64,
    ) -> Result<Option<StoredQuestion>, DatabaseError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM questions WHERE client = $1 AND name = $2 AND digest = $3 AND turn BETWEEN 0 AND $4 - 1 \
             ORDER BY asked DESC, change DESC LIMIT 1"
        );
        let query = sqlx::query(self.expand_statement(&sql)).bind(client).bind(name).bind(digest).bind(turns);
        let row = with_timeout(async { Ok(query.fetch_optional(&self.pool).await?) }).await?;
        row.as_ref().map(read).transpose()
    }

    /// Returns the questions that changed after change number `after`, in the order of changes: about `most` of them,
    /// with all questions of each change.
    pub(crate) async fn questions_after(
        &self,
        after: i64,
        most: usize,
    ) -> Result<Vec<StoredQuestion>, DatabaseError> {
        let sql = format!("SELECT {COLUMNS} FROM questions WHERE change > $1 ORDER BY change LIMIT $2");
        let mut limit = most;
        loop {
            let query = sqlx::query(self.expand_statement(&sql))
                .bind(after)
                .bind(i64::try_from(limit).unwrap_or(i64::MAX));
            let rows = with_timeout(async { Ok(query.fetch_all(&self.pool).await?) }).await?;
            let mut found = rows.iter().map(read).collect::<Result<Vec<_>, _>>()?;
            let last = found.last().map(|question| question.change);
            if found.len() < limit {
                return Ok(found);
            }
            // The last change may be incomplete.
            found.retain(|question| Some(question.change) != last);
            if !found.is_empty() {
                return Ok(found);
            }
            limit = limit.saturating_mul(4);
        }
    }

    /// Returns the number of the last change.
    pub(crate) async fn last_change(&self) -> Result<i64, DatabaseError> {
        let query = sqlx::query("SELECT last FROM changes WHERE one = 1");
        Ok(with_timeout(async { Ok(query.fetch_one(&self.pool).await?) }).await?.try_get(0)?)
    }

    /// Returns the questions of a state, of a tenant or of all, the newest first, and how many were left out. Of more
    /// than `most`, each client has its newest in turn, so that a client with many questions hides no other's.
    pub(crate) async fn questions(
        &self,
        state: QuestionState,
        tenant: Option<&str>,
        most: i64,
    ) -> Result<(Vec<StoredQuestion>, i64), DatabaseError> {
        let sql = format!(
            "SELECT {COLUMNS}, total FROM (SELECT *, COUNT(*) OVER () AS total, \
             ROW_NUMBER() OVER (PARTITION BY client ORDER BY asked DESC, change DESC) AS place FROM questions \
             WHERE state = $1 AND (state NOT IN ('open', 'allowed') OR {{stands}}) AND ($2 = '' OR tenant = $2)) AS found \
             ORDER BY place, asked DESC LIMIT $3"
        );
        let query =
            sqlx::query(self.expand_statement(&sql)).bind(state.name()).bind(tenant.unwrap_or("")).bind(most);
        let rows = with_timeout(async { Ok(query.fetch_all(&self.pool).await?) }).await?;
        let total = rows.first().map_or(Ok(0), |row| row.try_get::<i64, _>(12))?;
        let mut found = rows.iter().map(read).collect::<Result<Vec<_>, _>>()?;
        found.sort_by_key(|question| std::cmp::Reverse(question.asked));
        Ok((found, total.saturating_sub(i64::try_from(rows.len()).unwrap_or(i64::MAX))))
    }

    /// Decides a question, once, by a person who was shown what this digest represents. The decision is recorded
    /// before anything can follow from it.
    pub(crate) async fn decide(
        &self,
        (id, digest): (&str, &str),
        allow: bool,
        who: &str,
        record: impl FnOnce() -> Result<(), DatabaseError>,
    ) -> Result<Result<StoredQuestion, DecideError>, DatabaseError> {
        let state = if allow { QuestionState::Allowed } else { QuestionState::Denied };
        let decided = with_timeout(async {
            let mut tx = self.begin().await?;
            let change = next_change(&mut tx).await?;
            let sql = "UPDATE questions SET state = $1, decided_by = $2, decided = {now}, change = $3 \
                       WHERE id = $4 AND digest = $5 AND state = 'open' AND {stands}";
            let update = sqlx::query(self.expand_statement(sql))
                .bind(state.name())
                .bind(who)
                .bind(change)
                .bind(id)
                .bind(digest);
            let is_decided = update.execute(&mut *tx).await?.rows_affected() == 1;
            if is_decided {
                record()?;
                super::persist_log_head_in(self, &mut tx).await?;
                if allow {
                    approve_offered(self, &mut tx, id, who).await?;
                }
                tx.commit().await?;
            }
            Ok(is_decided)
        })
        .await?;
        Ok(match self.question(id).await? {
            None => Err(DecideError::Unknown),
            Some(question) if decided => Ok(question),
            Some(question) if question.digest != digest => Err(DecideError::OtherDigest),
            Some(question) => Err(DecideError::NotOpen(question.state)),
        })
    }

    /// Voids the questions of a conversation that continued without the answers. Returns those that had been allowed.
    pub(crate) async fn void_questions(
        &self,
        client: &str,
        name: &str,
    ) -> Result<Vec<StoredQuestion>, DatabaseError> {
        with_timeout(async {
            let mut tx = self.begin().await?;
            let change = next_change(&mut tx).await?;
            let sql = format!(
                "SELECT {COLUMNS} FROM questions WHERE client = $1 AND name = $2 AND turn >= 0 AND state = 'allowed'"
            );
            let allowed = sqlx::query(self.expand_statement(&sql)).bind(client).bind(name).fetch_all(&mut *tx).await?;
            let allowed = allowed.iter().map(read).collect::<Result<_, _>>()?;
            let sql = "UPDATE questions SET state = 'void', change = $1 \
                       WHERE client = $2 AND name = $3 AND turn >= 0 AND state IN ('open', 'allowed')";
            sqlx::query(sql).bind(change).bind(client).bind(name).execute(&mut *tx).await?;
            tx.commit().await?;
            Ok(allowed)
        })
        .await
    }

    /// Marks expired questions, and deletes those that expired more than `age` milliseconds ago. Returns the
    /// approvals that were not used in time.
    pub(crate) async fn expire(&self, age: i64) -> Result<Vec<StoredQuestion>, DatabaseError> {
        with_timeout(async {
            let mut tx = self.begin().await?;
            let change = next_change(&mut tx).await?;
            let sql = format!("SELECT {COLUMNS} FROM questions WHERE state = 'allowed' AND {{over}}");
            let allowed = sqlx::query(self.expand_statement(&sql)).fetch_all(&mut *tx).await?;
            let allowed = allowed.iter().map(read).collect::<Result<_, _>>()?;
            let sql = "UPDATE questions SET state = 'expired', change = $1 \
                       WHERE state IN ('open', 'allowed') AND {over}";
            sqlx::query(self.expand_statement(sql)).bind(change).execute(&mut *tx).await?;
            let sql = "DELETE FROM questions WHERE state NOT IN ('open', 'allowed') AND expires < {now} - $1";
            sqlx::query(self.expand_statement(sql)).bind(age).execute(&mut *tx).await?;
            tx.commit().await?;
            Ok(allowed)
        })
        .await
    }
}

/// Approves the tool that a question is about, if it is about a tool that a server offers.
async fn approve_offered(
    store: &Database,
    tx: &mut Transaction,
    id: &str,
    who: &str,
) -> Result<(), DatabaseError> {
    let sql = "SELECT tenant, content FROM questions WHERE id = $1";
    let row = sqlx::query(sql).bind(id).fetch_one(&mut **tx).await?;
    let (tenant, content) = (row.try_get::<String, _>(0)?, row.try_get::<String, _>(1)?);
    let content: Value =
        serde_json::from_str(&content).map_err(|_| DatabaseError::Damaged("what a question asks"))?;
    let Some(offer) = content.get("offer") else { return Ok(()) };
    let offer = ToolOffer::deserialize(offer).map_err(|_| DatabaseError::Damaged("what a question asks"))?;
    tools::approve(store, tx, (&tenant, who), &offer).await
}

/// Uses an approval, in the transaction that persists the turn that it is for.
///
/// # Errors
/// [`DatabaseError::Withdrawn`] if it was used, voided or has expired.
pub(crate) async fn use_approval(
    store: &Database,
    tx: &mut Transaction,
    id: &str,
) -> Result<(), DatabaseError> {
    let change = next_change(tx).await?;
    let sql =
        "UPDATE questions SET state = 'used', change = $1 WHERE id = $2 AND state = 'allowed' AND {stands}";
    match sqlx::query(store.expand_statement(sql))
        .bind(change)
        .bind(id)
        .execute(&mut **tx)
        .await?
        .rows_affected()
    {
        1 => Ok(()),
        _ => Err(DatabaseError::Withdrawn),
    }
}

/// Voids an approval, in the transaction that persists the turn in which its call did not run.
pub(crate) async fn void_approval(tx: &mut Transaction, id: &str) -> Result<(), DatabaseError> {
    let change = next_change(tx).await?;
    let sql =
        "UPDATE questions SET state = 'void', change = $1 WHERE id = $2 AND state IN ('open', 'allowed')";
    sqlx::query(sql).bind(change).bind(id).execute(&mut **tx).await?;
    Ok(())
}

/// Returns the content of a question, without the state that it is about.
fn without_state(content: &str) -> Option<Value> {
    let mut content: Value = serde_json::from_str(content).ok()?;
    if let Some(Value::Object(own)) = content.get_mut(HIDDEN_MEMBER) {
        own.remove("state");
    }
    Some(content)
}

/// Returns the number of the next change. Changes are committed in the order of their numbers.
async fn next_change(tx: &mut Transaction) -> Result<i64, DatabaseError> {
    let sql = "UPDATE changes SET last = last + 1 WHERE one = 1 RETURNING last";
    Ok(sqlx::query(sql).fetch_one(&mut **tx).await?.try_get(0)?)
}

fn read(row: &AnyRow) -> Result<StoredQuestion, DatabaseError> {
    let state: String = row.try_get(6)?;
    let state = QuestionState::ALL.into_iter().find(|known| known.name() == state);
    Ok(StoredQuestion {
        id: row.try_get(0)?,
        client: row.try_get(1)?,
        name: row.try_get(2)?,
        tenant: row.try_get(3)?,
        digest: row.try_get(4)?,
        content: row.try_get(5)?,
        state: state.ok_or(DatabaseError::Damaged("a question's state"))?,
        asked: row.try_get(7)?,
        expires: row.try_get(8)?,
        decided_by: row.try_get(9)?,
        decided: row.try_get(10)?,
        change: row.try_get(11)?,
    })
}
