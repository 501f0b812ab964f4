//! Stores questions to people, the decisions on them, and the use of each approval. `ApprovalService` calls this
//! module.
//!
//! A question is decided once, for exactly what it asks, before it expires; an approval is used once, in the
//! transaction that persists the turn in which its call is sent. So no crash of a gateway loses an approval or lets it
//! be used twice.
//!
//! * `asking`: stores a new question, unless an equal one exists; `limits`: determines which limit on questions is
//!   reached; `origin`: defines where a question comes from.
//! * `approvers`: counts the approvals of a question that several people must approve.
//! * `conversation_grants`: lists and withdraws approvals for the rest of a conversation.

mod approvers;
mod asking;
mod conversation_grants;
mod limits;
mod origin;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use flowgate::monitor::PersonDecision;
use serde::Deserialize as _;
use serde_json::Value;

pub(crate) use self::approvers::APPROVERS;
use self::approvers::{count_approval, read_approved_by};
use self::asking::QuestionToAsk;
use self::conversation_grants::GRANTED;
pub(crate) use self::conversation_grants::WithdrawnGrant;
pub(super) use self::conversation_grants::note_removed;
pub(crate) use self::limits::{AskedLimits, QuestionLimit, QuestionLimits};
pub(crate) use self::origin::QuestionOrigin;
use super::Database;
use super::changes::{NO_CHANGES, next_change};
use super::encryption::{ContentCipher, ContentPlace};
use super::error::DatabaseError;
use super::lasting_grants::{self, NewGrant};
use super::log_heads::{NewerLogHead, update_log_head};
use super::tools::{self, ServerTool};
use super::transaction::{Access, DynTransaction, SqlRow};

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
    /// The conversation continued without the answer, the call did not run, or the external state that the question is
    /// about has changed.
    Void,
}

impl QuestionState {
    /// All states.
    pub(crate) const ALL: [Self; 6] =
        [Self::Open, Self::Allowed, Self::Denied, Self::Used, Self::Expired, Self::Void];

    /// Returns the name of the state in the database and in listings.
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
    /// The content in JSON: what people are shown, and [`HIDDEN_MEMBER`].
    pub(crate) content: String,
    pub(crate) state: QuestionState,
    /// The time at which it was asked, in milliseconds since 1970.
    pub(crate) asked: i64,
    /// The time at which it expires, in milliseconds since 1970.
    pub(crate) expires: i64,
    /// The people who have approved a question that several people must approve.
    pub(crate) approved_by: Vec<String>,
    /// The person who decided, the last one if several approved; empty if it is undecided.
    pub(crate) decided_by: String,
    /// The time of the decision, in milliseconds since 1970; 0 if it is undecided.
    pub(crate) decided: i64,
    /// The number of its last change.
    pub(crate) change: i64,
    /// Whether the approval holds for the rest of the conversation.
    pub(crate) is_granted: bool,
    /// The number of persisted turns of the conversation when it was asked; `None` for a question outside the chat.
    pub(crate) turn: Option<i64>,
    /// The lasting grant that answered it; empty if none did.
    pub(crate) lasting_grant: String,
    /// The digest of the policy and settings of the client under which it was asked.
    pub(crate) config_fingerprint: String,
}

/// A question to ask.
#[derive(Debug, Clone)]
pub(crate) struct NewQuestion<'a> {
    pub(crate) id: &'a str,
    pub(crate) client: &'a str,
    /// The conversation.
    pub(crate) name: &'a str,
    pub(crate) tenant: &'a str,
    /// The digest of the policy and settings of the client.
    pub(crate) config_fingerprint: &'a str,
    /// The digest of the call.
    pub(crate) digest: &'a str,
    /// The content in JSON: what people are shown, and [`HIDDEN_MEMBER`].
    pub(crate) content: &'a str,
    /// The time until it expires, in milliseconds.
    pub(crate) expires_after: i64,
    pub(crate) origin: QuestionOrigin,
    /// The ids of the questions whose answers this turn has used already.
    pub(crate) used: &'a [String],
    /// The limits on questions.
    pub(crate) limits: QuestionLimits,
}

/// The outcome of asking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AskOutcome {
    /// The same question was asked before, with this id.
    Known(String),
    /// The question is new and has this id. Earlier questions about the same call are void if the external state has
    /// changed since.
    New(String),
    /// Not asked: this limit is reached.
    Full(QuestionLimit),
}

/// The reason why a question cannot be decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DecideError {
    /// It does not exist.
    Unknown,
    /// Its digest differs from the given one.
    OtherDigest,
    /// The decision does not count for the question as it is now: it is not open any more, or another request of the
    /// same person has approved it at the same time.
    NotCounted(Box<StoredQuestion>),
}

/// The most open questions about the tools of one server, for one client.
pub(crate) const MAX_OFFERED: i64 = 20;
/// The member of a question's content that people are not shown: the state that it is about, and the labels of its
/// parts.
pub(crate) const HIDDEN_MEMBER: &str = "flowgate";
/// The columns of a question, in the order in which [`read`] expects them. The state is `expired` as soon as the time
/// of a question has ended, even if [`Database::expire`] has not marked it yet.
const COLUMNS: &str = "id, client, name, tenant, digest, content, \
    CASE WHEN state IN ('open', 'allowed') AND {expired} THEN 'expired' ELSE state END, \
    asked, expires, decided_by, decided, change, granted, turn, lasting_grant, basis, approved_by";

impl Database {
    /// Stores a question, unless an equal question is open or its approval is still unused, or a limit is reached.
    /// Voids the earlier questions about the same call if the external state has changed since they were asked. Before
    /// the commit, calls `record` with the ids of the voided approvals, so that the caller writes them to its audit
    /// log; if `record` fails, nothing is stored. Returns whether the question was known, is new, or was not asked
    /// because of a limit.
    pub(crate) async fn ask(
        &self,
        new: &NewQuestion<'_>,
        record: impl FnOnce(&[String]) -> Result<(), DatabaseError>,
    ) -> Result<AskOutcome, DatabaseError> {
        let question = QuestionToAsk::new(new, &self.cipher);
        let outcome = self.run_with_step(
            move |tx, step| {
                Box::pin(async move {
                    let change = next_change(tx).await?;
                    if let Some(outcome) = question.find_same(tx).await? {
                        tx.discard();
                        return Ok((outcome, None));
                    }
                    // Before the limits are checked: a voided question makes room for the new one.
                    let void = question.void_changed(tx, change).await?;
                    // Without the new question, the voided ones stay as they were: the transaction is rolled back.
                    if let Some(full) = question.find_full(tx).await? {
                        tx.discard();
                        return Ok((full, None));
                    }
                    question.insert(tx, change).await?;
                    // Waits until the caller has run `record`, and stores the new head of its audit log.
                    let head: Option<NewerLogHead> = step.take(void).await?;
                    update_log_head(tx, head.as_ref()).await?;
                    Ok((AskOutcome::New(question.id), head))
                })
            },
            |void: Vec<String>| record(&void).map(|()| self.newer_head()),
        );
        let (outcome, head) = outcome.await?;
        // Notes that the database has this head of the audit log now.
        self.set_recorded(head.as_ref());
        Ok(outcome)
    }

    /// Returns the question with this id; `None` if there is none.
    pub(crate) async fn question(&self, id: &str) -> Result<Option<StoredQuestion>, DatabaseError> {
        let (id, cipher) = (id.to_owned(), Arc::clone(&self.cipher));
        self.run(Access::Query, move |tx| Box::pin(async move { read_question(tx, &id, &cipher).await }))
            .await
    }

    /// Returns the question that a conversation asked last about the call with this digest, in one of its first
    /// `turns` turns; `None` if there is none.
    pub(crate) async fn find_question(
        &self,
        (client, name): (&str, &str),
        digest: &str,
        turns: i64,
    ) -> Result<Option<StoredQuestion>, DatabaseError> {
        let (client, name, digest) = (client.to_owned(), name.to_owned(), digest.to_owned());
        let cipher = Arc::clone(&self.cipher);
        self.run(Access::Query, move |tx| {
            Box::pin(async move {
                let sql = format!(
                    "SELECT {COLUMNS} FROM questions WHERE client = ?1 AND name = ?2 AND digest = ?3 AND turn BETWEEN 0 AND ?4 - 1 \
                     ORDER BY asked DESC, change DESC LIMIT 1"
                );
                let values = [(&client).into(), (&name).into(), (&digest).into(), turns.into()];
                tx.query(&sql, &values).await?.first_mut().map(|row| read(row, &cipher)).transpose()
            })
        })
        .await
    }

    /// Returns the questions that changed after change number `after`, in the order of changes: about `target` of them.
    /// Never returns only some questions of a change, since the next call would skip the others; reads more rows if
    /// necessary.
    pub(crate) async fn questions_after(
        &self,
        after: i64,
        target: usize,
    ) -> Result<Vec<StoredQuestion>, DatabaseError> {
        let mut limit = target;
        loop {
            let (rows, cipher) = (i64::try_from(limit).unwrap_or(i64::MAX), Arc::clone(&self.cipher));
            let questions = self.run(Access::Query, move |tx| {
                Box::pin(async move {
                    let sql =
                        format!("SELECT {COLUMNS} FROM questions WHERE change > ?1 ORDER BY change LIMIT ?2");
                    read_all(&mut tx.query(&sql, &[after.into(), rows.into()]).await?, &cipher)
                })
            });
            let mut questions = questions.await?;
            let last = questions.last().map(|question| question.change);
            // Nothing was cut off.
            if questions.len() < limit {
                return Ok(questions);
            }
            // The limit may have cut off questions of the last change, so this change is left to the next call.
            questions.retain(|question| Some(question.change) != last);
            if !questions.is_empty() {
                return Ok(questions);
            }
            // All rows were of one change: more are read, until the change is complete.
            limit = limit.saturating_mul(4);
        }
    }

    /// Returns the number of the last change of a question: each change has the next number.
    pub(crate) async fn last_change(&self) -> Result<i64, DatabaseError> {
        self.run(Access::Query, |tx| {
            Box::pin(async move {
                // The table has a single row.
                let rows = tx.query("SELECT last FROM changes WHERE one = 1", &[]).await?;
                rows.first().ok_or(NO_CHANGES)?.integer(0)
            })
        })
        .await
    }

    /// Returns at most `limit` questions in a state, the newest first, and the number of questions left out. `tenant`
    /// restricts them to one tenant. If there are more than `limit`, the newest question of each client is taken first,
    /// then the second newest of each, and so on: a client with many questions cannot hide the questions of others.
    pub(crate) async fn questions(
        &self,
        state: QuestionState,
        tenant: Option<&str>,
        limit: i64,
    ) -> Result<(Vec<StoredQuestion>, i64), DatabaseError> {
        let (tenant, cipher) = (tenant.unwrap_or("").to_owned(), Arc::clone(&self.cipher));
        self.run(Access::Query, move |tx| {
            Box::pin(async move {
                let sql = format!(
                    "SELECT {COLUMNS}, total FROM (SELECT *, COUNT(*) OVER () AS total, \
                     ROW_NUMBER() OVER (PARTITION BY client ORDER BY asked DESC, change DESC) AS place FROM questions \
                     WHERE state = ?1 AND (state NOT IN ('open', 'allowed') OR {{unexpired}}) AND (?2 = '' OR tenant = ?2)) AS found \
                     ORDER BY place, asked DESC LIMIT ?3"
                );
                let mut rows = tx.query(&sql, &[state.name().into(), (&tenant).into(), limit.into()]).await?;
                // The column after `COLUMNS`: the number of questions in this state, with those beyond the limit.
                let total = rows.first().map_or(Ok(0), |row| row.integer(17))?;
                let mut listed = read_all(&mut rows, &cipher)?;
                listed.sort_by_key(|question| std::cmp::Reverse(question.asked));
                Ok((listed, total.saturating_sub(i64::try_from(rows.len()).unwrap_or(i64::MAX))))
            })
        })
        .await
    }

    /// Stores the decision of the person `who` on a question, if it is open and has the digest that the person was
    /// shown. If several people must approve it, an approval counts for the person who gave it, and the question stays
    /// open until all of them have approved. Calls `record` before the decision is committed and can take effect; if
    /// `record` fails, nothing is stored. `grant` is the lasting grant to store, if the decision [gives
    /// one](PersonDecision::AllowLasting). Returns the question as it is then; the inner error says why the decision
    /// was not stored.
    pub(crate) async fn decide(
        &self,
        (id, digest): (&str, &str),
        decision: PersonDecision,
        who: &str,
        grant: Option<NewGrant>,
        record: impl FnOnce() -> Result<(), DatabaseError>,
    ) -> Result<Result<StoredQuestion, DecideError>, DatabaseError> {
        let (question, shown_digest, who) = (id.to_owned(), digest.to_owned(), who.to_owned());
        let cipher = Arc::clone(&self.cipher);
        let decided = self.run_with_step(
            move |tx, step| {
                Box::pin(async move {
                    let allow = decision.allows();
                    let state = if allow { QuestionState::Allowed } else { QuestionState::Denied };
                    let change = next_change(tx).await?;
                    // If several people must approve, only the last approval decides the question.
                    if allow && let Some(asked) = read_question(tx, &question, &cipher).await? {
                        let is_open = asked.state == QuestionState::Open && asked.digest == shown_digest;
                        let counted = match is_open {
                            true => count_approval(tx, &asked, &who, change).await?,
                            false => None,
                        };
                        match counted {
                            // The question is not open, or the approval of this person does not count.
                            None => {
                                tx.discard();
                                return Ok(None);
                            }
                            // This was the last approval: the question is decided below.
                            Some(true) => {}
                            // Other people still have to approve: only this approval is stored.
                            Some(false) => {
                                let head: Option<NewerLogHead> = step.take(()).await?;
                                update_log_head(tx, head.as_ref()).await?;
                                return Ok(Some(head));
                            }
                        }
                    }
                    let sql = "UPDATE questions SET state = ?1, decided_by = ?2, decided = {now}, change = ?3, granted = ?6 \
                               WHERE id = ?4 AND digest = ?5 AND state = 'open' AND {unexpired}";
                    let values = [
                        state.name().into(),
                        (&who).into(),
                        change.into(),
                        (&question).into(),
                        (&shown_digest).into(),
                        i64::from(decision == PersonDecision::AllowForConversation).into(),
                    ];
                    // The question is not open, or has changed since the person was shown it.
                    if tx.execute(sql, &values).await? != 1 {
                        tx.discard();
                        return Ok(None);
                    }
                    // Waits until the caller has run `record`, and stores the new head of its audit log.
                    let head: Option<NewerLogHead> = step.take(()).await?;
                    update_log_head(tx, head.as_ref()).await?;
                    // What the decision brings into effect: an approved tool, a lasting grant.
                    if allow {
                        approve_offered(tx, &question, &who, &cipher).await?;
                    }
                    if let Some(grant) = &grant {
                        lasting_grants::insert(tx, &question, &who, grant, &cipher).await?;
                    }
                    Ok(Some(head))
                })
            },
            |()| record().map(|()| self.newer_head()),
        );
        let decided = decided.await?;
        if let Some(head) = &decided {
            self.set_recorded(head.as_ref());
        }
        // Reads the question again, to return it as decided or to find out why it was not.
        Ok(match self.question(id).await? {
            None => Err(DecideError::Unknown),
            Some(question) if decided.is_some() => Ok(question),
            Some(question) if question.digest != digest => Err(DecideError::OtherDigest),
            Some(question) => Err(DecideError::NotCounted(Box::new(question))),
        })
    }

    /// Voids the open and allowed questions of a conversation that continued without the answers, except the questions
    /// with the ids in `except`. A question whose time is over is marked as expired instead, since an unanswered
    /// question counts as a refusal for the [limits](limits). Returns the questions that had been allowed: the caller
    /// records that these approvals are void.
    pub(crate) async fn void_questions(
        &self,
        client: &str,
        name: &str,
        except: &[String],
    ) -> Result<Vec<StoredQuestion>, DatabaseError> {
        let (client, name, except) = (client.to_owned(), name.to_owned(), except.to_vec());
        let cipher = Arc::clone(&self.cipher);
        self.run(Access::Transaction, move |tx| {
            Box::pin(async move {
                let change = next_change(tx).await?;
                // Questions outside the chat have a negative turn, and stay open across the turns of the conversation.
                let sql = format!(
                    "SELECT {COLUMNS} FROM questions WHERE client = ?1 AND name = ?2 AND turn >= 0 AND state IN ('open', 'allowed')"
                );
                let mut rows = tx.query(&sql, &[(&client).into(), (&name).into()]).await?;
                let mut questions = read_all(&mut rows, &cipher)?;
                questions.retain(|question| !except.contains(&question.id));
                let mut allowed = Vec::new();
                for question in questions {
                    // A question whose time is over was read as `expired`, even if its row still says `open` or
                    // `allowed`.
                    let state = match question.state {
                        QuestionState::Expired => QuestionState::Expired,
                        _ => QuestionState::Void,
                    };
                    if close(tx, &question.id, state, change).await? {
                        allowed.push(question);
                    }
                }
                Ok(allowed)
            })
        })
        .await
    }

    /// Marks questions that were not answered or used in time as expired, and deletes closed questions and lasting
    /// grants whose time ended more than `age` milliseconds ago. Returns the approvals that were not used in time.
    pub(crate) async fn expire(&self, age: i64) -> Result<Vec<StoredQuestion>, DatabaseError> {
        let cipher = Arc::clone(&self.cipher);
        self.run(Access::Transaction, move |tx| {
            Box::pin(async move {
                let change = next_change(tx).await?;
                // First reads the questions whose time is over, and then marks exactly these. One statement that marks
                // them would use a later time, and could mark a question that is not returned.
                let sql = format!(
                    "SELECT {COLUMNS} FROM questions WHERE state IN ('open', 'allowed') AND {{expired}}"
                );
                let mut allowed = Vec::new();
                for question in read_all(&mut tx.query(&sql, &[]).await?, &cipher)? {
                    if close(tx, &question.id, QuestionState::Expired, change).await? {
                        allowed.push(question);
                    }
                }
                // The row of a grant stays as long as its conversation exists: the grant (`granted` is 1) is still
                // listed, or its withdrawal (2) still has to be applied.
                let sql = "DELETE FROM questions WHERE state NOT IN ('open', 'allowed') AND expires < {now} - ?1 \
                           AND (granted NOT IN (1, 2) OR NOT EXISTS (SELECT 1 FROM conversations \
                           WHERE conversations.client = questions.client AND conversations.name = questions.name))";
                tx.execute(sql, &[age.into()]).await?;
                lasting_grants::delete_expired(tx, age).await?;
                Ok(allowed)
            })
        })
        .await
    }
}

/// Sets the final state of the question with this id, if it is open or allowed; otherwise changes nothing. Returns
/// whether the question was allowed. The caller cannot see this in its [`StoredQuestion`], whose state is `expired` as
/// soon as the time of the question has ended. `change` is the number under which event streams report the question.
async fn close(
    tx: &mut DynTransaction<'_>,
    id: &str,
    state: QuestionState,
    change: i64,
) -> Result<bool, DatabaseError> {
    for (from, was_allowed) in [("allowed", true), ("open", false)] {
        let sql = "UPDATE questions SET state = ?1, change = ?2 WHERE id = ?3 AND state = ?4";
        if tx.execute(sql, &[state.name().into(), change.into(), id.into(), from.into()]).await? > 0 {
            return Ok(was_allowed);
        }
    }
    Ok(false)
}

/// Approves the tool that the question with this id is about, in the name of the person `who`. Does nothing for a
/// question that is not about an offered tool.
///
/// # Errors
/// If the question does not exist, its content is damaged, or the database fails.
async fn approve_offered(
    tx: &mut DynTransaction<'_>,
    id: &str,
    who: &str,
    cipher: &ContentCipher,
) -> Result<(), DatabaseError> {
    let damaged = DatabaseError::Damaged("a row of the table `questions` has no valid content");
    let Some(StoredQuestion { tenant, content, .. }) = read_question(tx, id, cipher).await? else {
        return Err(damaged);
    };
    let Ok(content) = serde_json::from_str::<Value>(&content) else { return Err(damaged) };
    let Some(offer) = content.get("offer") else { return Ok(()) };
    let Ok(offer) = ServerTool::deserialize(offer) else { return Err(damaged) };
    tools::approve(tx, (&tenant, who), &offer).await
}

/// Marks an approval as used, in the transaction that persists the turn of its call. The backend replaces `{unexpired}`
/// by the condition that the question has not expired.
///
/// # Errors
/// [`DatabaseError::Withdrawn`] if it was used, voided or has expired.
pub(super) async fn use_approval(tx: &mut DynTransaction<'_>, id: &str) -> Result<(), DatabaseError> {
    let change = next_change(tx).await?;
    let sql = "UPDATE questions SET state = 'used', change = ?1 WHERE id = ?2 AND state = 'allowed' AND {unexpired}";
    match tx.execute(sql, &[change.into(), id.into()]).await? {
        1 => Ok(()),
        _ => Err(DatabaseError::Withdrawn),
    }
}

/// Voids an open or allowed question, in the transaction that persists the turn in which its call did not run; marks it
/// as expired if nobody answered it in time. Has no effect on a question in another state.
pub(super) async fn void_question(tx: &mut DynTransaction<'_>, id: &str) -> Result<(), DatabaseError> {
    let change = next_change(tx).await?;
    let sql = "UPDATE questions SET state = CASE WHEN state = 'open' AND {expired} THEN 'expired' ELSE 'void' END, change = ?1 \
               WHERE id = ?2 AND state IN ('open', 'allowed')";
    tx.execute(sql, &[change.into(), id.into()]).await.map(drop)
}

/// Returns the question with this id; `None` if there is none.
async fn read_question(
    tx: &mut DynTransaction<'_>,
    id: &str,
    cipher: &ContentCipher,
) -> Result<Option<StoredQuestion>, DatabaseError> {
    let sql = format!("SELECT {COLUMNS} FROM questions WHERE id = ?1");
    tx.query(&sql, &[id.into()]).await?.first_mut().map(|row| read(row, cipher)).transpose()
}

/// Reads rows with the columns [`COLUMNS`].
fn read_all(rows: &mut [SqlRow], cipher: &ContentCipher) -> Result<Vec<StoredQuestion>, DatabaseError> {
    rows.iter_mut().map(|row| read(row, cipher)).collect()
}

/// Reads a row with the columns [`COLUMNS`].
fn read(row: &mut SqlRow, cipher: &ContentCipher) -> Result<StoredQuestion, DatabaseError> {
    let state = row.text(6)?;
    let state = QuestionState::ALL.into_iter().find(|candidate| candidate.name() == state);
    let (id, client, name) = (row.text(0)?, row.text(1)?, row.text(2)?);
    let (tenant, digest) = (row.text(3)?, row.text(4)?);
    let place = ContentPlace::question(&id, (&client, &name, &tenant), &digest);
    let content = cipher.open_column(row, 5, &place)?;
    Ok(StoredQuestion {
        id,
        client,
        name,
        tenant,
        digest,
        content,
        state: state.ok_or(DatabaseError::Damaged(
            "a row of the table `questions` has a state that this version of Flowgate does not know",
        ))?,
        asked: row.integer(7)?,
        expires: row.integer(8)?,
        decided_by: row.text(9)?,
        decided: row.integer(10)?,
        change: row.integer(11)?,
        is_granted: row.integer(12)? == GRANTED,
        turn: QuestionOrigin::turns_of_column(row.integer(13)?),
        lasting_grant: row.text(14)?,
        config_fingerprint: row.text(15)?,
        approved_by: read_approved_by(&row.text(16)?)?,
    })
}
