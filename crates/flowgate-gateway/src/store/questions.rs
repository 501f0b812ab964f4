//! Questions to people, and what they have stopped.
//!
//! A question is decided once, for exactly what it asks, before it expires; what was allowed is used once, in the transaction
//! that keeps the turn in which its call goes out. Whatever crashes in between, an approval is neither lost nor used twice.

use std::sync::Arc;

use serde::Deserialize as _;
use serde_json::Value;
use sqlx::Row as _;
use sqlx::any::AnyRow;

use super::cache::Cache;
use super::tools::{self, Offer};
use super::{Store, StoreError, Transaction, within};

/// What has become of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Nobody has decided.
    Open,
    /// Somebody said yes.
    Allowed,
    /// Somebody said no.
    Denied,
    /// It was allowed, and the call went out.
    Used,
    /// Nobody decided in time, or what was allowed was not used in time.
    Expired,
    /// The conversation went on without it.
    Void,
}

impl State {
    pub(crate) const ALL: [Self; 6] =
        [Self::Open, Self::Allowed, Self::Denied, Self::Used, Self::Expired, Self::Void];

    /// Its name where it is kept and listed.
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

/// A question as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Question {
    pub(crate) id: String,
    pub(crate) client: String,
    /// The conversation.
    pub(crate) name: String,
    pub(crate) tenant: String,
    pub(crate) digest: String,
    /// What the person is shown, in JSON.
    pub(crate) content: String,
    pub(crate) state: State,
    pub(crate) asked: i64,
    pub(crate) expires: i64,
    /// Who decided; empty if nobody has.
    pub(crate) decided_by: String,
    pub(crate) decided: i64,
    pub(crate) change: i64,
}

/// What is to be asked.
#[derive(Debug, Clone)]
pub(crate) struct NewQuestion<'a> {
    pub(crate) id: &'a str,
    pub(crate) client: &'a str,
    pub(crate) name: &'a str,
    pub(crate) tenant: &'a str,
    pub(crate) digest: &'a str,
    pub(crate) content: &'a str,
    /// For how many milliseconds it stands.
    pub(crate) stands: i64,
    /// How many turns of the conversation were kept before.
    pub(crate) turn: i64,
    /// Questions of this turn that were answered by a yes already.
    pub(crate) used: &'a [String],
    /// How many questions may be open.
    pub(crate) most: Most,
}

/// How many questions of one conversation and of one client may be open at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Most {
    pub(crate) of_conversation: i64,
    pub(crate) of_client: i64,
}

/// What came of asking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Posed {
    /// The same was asked before: the question.
    Known(String),
    /// It is asked now. Answers to the same question about a state that has changed since are void: these had been allowed.
    New { id: String, void: Vec<String> },
    /// It is not asked: the conversation has too many open questions.
    FullConversation,
    /// It is not asked: the client has too many open questions.
    FullClient,
}

/// Why a question cannot be decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Undecided {
    /// There is none, or not for this person.
    Unknown,
    /// It asks for something else.
    OtherDigest,
    /// It is not open any more.
    Not(State),
}

/// Something that was stopped: its kind, what, by whom and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Freeze {
    pub(crate) kind: String,
    pub(crate) what: String,
    pub(crate) who: String,
    pub(crate) since: i64,
}

/// Tools of a server that a client's people may be asked about at the same time.
pub(crate) const MOST_OFFERED: i64 = 20;
/// The turn of a question beside the chat: it stands across the turns of its conversation, for the same call and the same reasons.
pub(crate) const BESIDE: i64 = -1;
/// The turn of a question about a tool that a server offers.
pub(crate) const OFFERED: i64 = -2;
/// The part of a question's content that nobody is shown: what it is about, and what its parts carry.
pub(crate) const OWN: &str = "flowgate";
/// The columns of a question. One that is over and was not noticed is shown as it is.
const COLUMNS: &str = "id, client, name, tenant, digest, content, \
    CASE WHEN state IN ('open', 'allowed') AND {over} THEN 'expired' ELSE state END, \
    asked, expires, decided_by, decided, change";

impl Store {
    /// Asks, or finds the question that was asked before for the same, in a turn that was not kept.
    pub(crate) async fn ask(&self, new: &NewQuestion<'_>) -> Result<Posed, StoreError> {
        within(async {
            let mut tx = self.begin().await?;
            let change = next_change(&mut tx).await?;
            let sql = "SELECT id FROM questions WHERE client = $1 AND name = $2 AND digest = $3 AND content = $4 \
                       AND turn = $5 AND state IN ('open', 'allowed') AND {stands} ORDER BY asked DESC LIMIT 100";
            let known = sqlx::query(self.timed(sql)).bind(new.client).bind(new.name).bind(new.digest);
            for row in known.bind(new.content).bind(new.turn).fetch_all(&mut *tx).await? {
                let id: String = row.try_get(0)?;
                if !new.used.contains(&id) {
                    return Ok(Posed::Known(id));
                }
            }
            let void = self.void_changed(&mut tx, new, change).await?;
            // Whoever offers tools takes no room from who calls them, and no conversation takes it from the others.
            let (of, most_here) = match new.turn {
                OFFERED => ("= $3", MOST_OFFERED),
                _ => ("> $3", new.most.of_conversation),
            };
            let sql = format!(
                "SELECT COUNT(*), COALESCE(SUM(CASE WHEN name = $2 THEN 1 ELSE 0 END), 0) FROM questions \
                 WHERE client = $1 AND turn {of} AND state = 'open' AND {{stands}}"
            );
            let open = sqlx::query(self.timed(&sql)).bind(new.client).bind(new.name).bind(OFFERED);
            let open = open.fetch_one(&mut *tx).await?;
            let (all, here) = (open.try_get::<i64, _>(0)?, open.try_get::<i64, _>(1)?);
            let is_full = match here >= most_here {
                true => Some(Posed::FullConversation),
                false if new.turn != OFFERED && all >= new.most.of_client => Some(Posed::FullClient),
                false => None,
            };
            if let Some(full) = is_full {
                return Ok(full);
            }
            let sql = "INSERT INTO questions (id, client, name, tenant, digest, content, state, asked, expires, \
                       decided_by, decided, change, turn) \
                       VALUES ($1, $2, $3, $4, $5, $6, 'open', {now}, {now} + $7, '', 0, $8, $9)";
            let insert = sqlx::query(self.timed(sql)).bind(new.id).bind(new.client).bind(new.name);
            let insert = insert.bind(new.tenant).bind(new.digest).bind(new.content).bind(new.stands);
            insert.bind(change).bind(new.turn).execute(&mut *tx).await?;
            tx.commit().await?;
            Ok(Posed::New { id: new.id.to_owned(), void })
        })
        .await
    }

    /// The same question about a state that has changed since is answered no more. Returns those that had been allowed.
    async fn void_changed(
        &self,
        tx: &mut Transaction,
        new: &NewQuestion<'_>,
        change: i64,
    ) -> Result<Vec<String>, StoreError> {
        let sql = "SELECT id, content, state FROM questions WHERE client = $1 AND name = $2 AND digest = $3 \
                   AND content <> $4 AND turn = $5 AND state IN ('open', 'allowed') AND {stands} LIMIT 100";
        let others = sqlx::query(self.timed(sql)).bind(new.client).bind(new.name).bind(new.digest);
        let others = others.bind(new.content).bind(new.turn).fetch_all(&mut **tx).await?;
        let mut void = Vec::new();
        for row in others {
            let (id, content, state): (String, String, String) =
                (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
            if new.used.contains(&id) || stateless(&content) != stateless(new.content) {
                continue;
            }
            let sql = "UPDATE questions SET state = 'void', change = $1 WHERE id = $2";
            sqlx::query(sql).bind(change).bind(&id).execute(&mut **tx).await?;
            if state == State::Allowed.name() {
                void.push(id);
            }
        }
        Ok(void)
    }

    /// A question.
    pub(crate) async fn question(&self, id: &str) -> Result<Option<Question>, StoreError> {
        let sql = self.timed(&format!("SELECT {COLUMNS} FROM questions WHERE id = $1"));
        let row = within(async { Ok(sqlx::query(sql).bind(id).fetch_optional(&self.pool).await?) }).await?;
        row.as_ref().map(read).transpose()
    }

    /// The question that a conversation asked last about the call with this digest, in one of its first `turns` turns.
    pub(crate) async fn question_of(
        &self,
        (client, name): (&str, &str),
        digest: &str,
        turns: i64,
    ) -> Result<Option<Question>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM questions WHERE client = $1 AND name = $2 AND digest = $3 AND turn BETWEEN 0 AND $4 - 1 \
             ORDER BY asked DESC, change DESC LIMIT 1"
        );
        let query = sqlx::query(self.timed(&sql)).bind(client).bind(name).bind(digest).bind(turns);
        let row = within(async { Ok(query.fetch_optional(&self.pool).await?) }).await?;
        row.as_ref().map(read).transpose()
    }

    /// Questions to which something happened after change number `after`, in that order: `most` of them, or more, so that all
    /// that one change did is there.
    pub(crate) async fn questions_after(&self, after: i64, most: usize) -> Result<Vec<Question>, StoreError> {
        let sql = format!("SELECT {COLUMNS} FROM questions WHERE change > $1 ORDER BY change LIMIT $2");
        let mut limit = most;
        loop {
            let query =
                sqlx::query(self.timed(&sql)).bind(after).bind(i64::try_from(limit).unwrap_or(i64::MAX));
            let rows = within(async { Ok(query.fetch_all(&self.pool).await?) }).await?;
            let mut found = rows.iter().map(read).collect::<Result<Vec<_>, _>>()?;
            let last = found.last().map(|question| question.change);
            if found.len() < limit {
                return Ok(found);
            }
            // The rest of the last change may not be here.
            found.retain(|question| Some(question.change) != last);
            if !found.is_empty() {
                return Ok(found);
            }
            limit = limit.saturating_mul(4);
        }
    }

    /// The number of the last change.
    pub(crate) async fn last_change(&self) -> Result<i64, StoreError> {
        let query = sqlx::query("SELECT last FROM changes WHERE one = 1");
        Ok(within(async { Ok(query.fetch_one(&self.pool).await?) }).await?.try_get(0)?)
    }

    /// The questions of a state, of a tenant or of all, the newest first, and at most `most` of them.
    pub(crate) async fn questions(
        &self,
        state: State,
        tenant: Option<&str>,
        most: i64,
    ) -> Result<Vec<Question>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM questions WHERE state = $1 AND (state NOT IN ('open', 'allowed') OR {{stands}}) \
             AND ($2 = '' OR tenant = $2) ORDER BY asked DESC LIMIT $3"
        );
        let query = sqlx::query(self.timed(&sql)).bind(state.name()).bind(tenant.unwrap_or("")).bind(most);
        let rows = within(async { Ok(query.fetch_all(&self.pool).await?) }).await?;
        rows.iter().map(read).collect()
    }

    /// Decides a question, once, by a person who was shown what this digest stands for. Before anything can follow from it, it is
    /// recorded.
    pub(crate) async fn decide(
        &self,
        (id, digest): (&str, &str),
        allow: bool,
        who: &str,
        record: impl FnOnce() -> Result<(), StoreError>,
    ) -> Result<Result<Question, Undecided>, StoreError> {
        let state = if allow { State::Allowed } else { State::Denied };
        let decided = within(async {
            let mut tx = self.begin().await?;
            let change = next_change(&mut tx).await?;
            let sql = "UPDATE questions SET state = $1, decided_by = $2, decided = {now}, change = $3 \
                       WHERE id = $4 AND digest = $5 AND state = 'open' AND {stands}";
            let update =
                sqlx::query(self.timed(sql)).bind(state.name()).bind(who).bind(change).bind(id).bind(digest);
            let is_decided = update.execute(&mut *tx).await?.rows_affected() == 1;
            if is_decided {
                record()?;
                super::keep_log(self, &mut tx).await?;
                if allow {
                    approve_offered(self, &mut tx, id, who).await?;
                }
                tx.commit().await?;
            }
            Ok(is_decided)
        })
        .await?;
        Ok(match self.question(id).await? {
            None => Err(Undecided::Unknown),
            Some(question) if decided => Ok(question),
            Some(question) if question.digest != digest => Err(Undecided::OtherDigest),
            Some(question) => Err(Undecided::Not(question.state)),
        })
    }

    /// Gives up what a conversation asked, since it went on without the answer. Returns what had been allowed.
    pub(crate) async fn give_up(&self, client: &str, name: &str) -> Result<Vec<Question>, StoreError> {
        within(async {
            let mut tx = self.begin().await?;
            let change = next_change(&mut tx).await?;
            let sql = format!(
                "SELECT {COLUMNS} FROM questions WHERE client = $1 AND name = $2 AND turn >= 0 AND state = 'allowed'"
            );
            let allowed = sqlx::query(self.timed(&sql)).bind(client).bind(name).fetch_all(&mut *tx).await?;
            let allowed = allowed.iter().map(read).collect::<Result<_, _>>()?;
            let sql = "UPDATE questions SET state = 'void', change = $1 \
                       WHERE client = $2 AND name = $3 AND turn >= 0 AND state IN ('open', 'allowed')";
            sqlx::query(sql).bind(change).bind(client).bind(name).execute(&mut *tx).await?;
            tx.commit().await?;
            Ok(allowed)
        })
        .await
    }

    /// Marks what is over, and deletes what was over for so many milliseconds. Returns what had been allowed and was not used in time.
    pub(crate) async fn expire(&self, age: i64) -> Result<Vec<Question>, StoreError> {
        within(async {
            let mut tx = self.begin().await?;
            let change = next_change(&mut tx).await?;
            let sql = format!("SELECT {COLUMNS} FROM questions WHERE state = 'allowed' AND {{over}}");
            let allowed = sqlx::query(self.timed(&sql)).fetch_all(&mut *tx).await?;
            let allowed = allowed.iter().map(read).collect::<Result<_, _>>()?;
            let sql = "UPDATE questions SET state = 'expired', change = $1 \
                       WHERE state IN ('open', 'allowed') AND {over}";
            sqlx::query(self.timed(sql)).bind(change).execute(&mut *tx).await?;
            let sql = "DELETE FROM questions WHERE state NOT IN ('open', 'allowed') AND expires < {now} - $1";
            sqlx::query(self.timed(sql)).bind(age).execute(&mut *tx).await?;
            tx.commit().await?;
            Ok(allowed)
        })
        .await
    }

    /// Everything that is stopped.
    pub(crate) async fn freezes(&self) -> Result<Arc<[Freeze]>, StoreError> {
        let changes = match self.cache.freezes() {
            Ok(known) if !self.is_shared => return Ok(known),
            Ok(_) => 0,
            Err(changes) => changes,
        };
        let query = sqlx::query("SELECT kind, what, who, since FROM freezes ORDER BY since");
        let rows = within(async { Ok(query.fetch_all(&self.pool).await?) }).await?;
        let freeze = |row: &AnyRow| {
            let (kind, what, who, since) =
                (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?, row.try_get(3)?);
            Ok(Freeze { kind, what, who, since })
        };
        let freezes: Arc<[Freeze]> = rows.iter().map(freeze).collect::<Result<_, StoreError>>()?;
        if !self.is_shared {
            self.cache.set_freezes(changes, &freezes);
        }
        Ok(freezes)
    }

    /// Stops something.
    pub(crate) async fn freeze(&self, kind: &str, what: &str, who: &str) -> Result<(), StoreError> {
        let sql =
            "INSERT INTO freezes (kind, what, who, since) VALUES ($1, $2, $3, {now}) ON CONFLICT DO NOTHING";
        let query = sqlx::query(self.timed(sql)).bind(kind).bind(what).bind(who);
        let _changes = Changes(&self.cache);
        within(async { Ok(query.execute(&self.pool).await?) }).await.map(drop)
    }

    /// Lets something go on; whether it was stopped.
    pub(crate) async fn thaw(&self, kind: &str, what: &str) -> Result<bool, StoreError> {
        let query = sqlx::query("DELETE FROM freezes WHERE kind = $1 AND what = $2").bind(kind).bind(what);
        let _changes = Changes(&self.cache);
        Ok(within(async { Ok(query.execute(&self.pool).await?) }).await?.rows_affected() > 0)
    }
}

/// What is stopped may have changed, also if nobody waits to hear of it any more.
struct Changes<'s>(&'s Cache);

impl Drop for Changes<'_> {
    fn drop(&mut self) {
        self.0.forget_freezes();
    }
}

/// If a question was about a tool that a server offers, a yes approves of it.
async fn approve_offered(store: &Store, tx: &mut Transaction, id: &str, who: &str) -> Result<(), StoreError> {
    let sql = "SELECT tenant, content FROM questions WHERE id = $1";
    let row = sqlx::query(sql).bind(id).fetch_one(&mut **tx).await?;
    let (tenant, content) = (row.try_get::<String, _>(0)?, row.try_get::<String, _>(1)?);
    let content: Value =
        serde_json::from_str(&content).map_err(|_| StoreError::Damaged("what a question asks"))?;
    let Some(offer) = content.get("offer") else { return Ok(()) };
    let offer = Offer::deserialize(offer).map_err(|_| StoreError::Damaged("what a question asks"))?;
    tools::approve(store, tx, (&tenant, who), &offer).await
}

/// Uses up what was allowed, in the transaction that keeps what it was allowed for.
pub(crate) async fn use_question(store: &Store, tx: &mut Transaction, id: &str) -> Result<(), StoreError> {
    let change = next_change(tx).await?;
    let sql =
        "UPDATE questions SET state = 'used', change = $1 WHERE id = $2 AND state = 'allowed' AND {stands}";
    match sqlx::query(store.timed(sql)).bind(change).bind(id).execute(&mut **tx).await?.rows_affected() {
        1 => Ok(()),
        _ => Err(StoreError::Withdrawn),
    }
}

/// Voids what was allowed, in the transaction that keeps the turn in which its call did not run.
pub(crate) async fn void_question(tx: &mut Transaction, id: &str) -> Result<(), StoreError> {
    let change = next_change(tx).await?;
    let sql =
        "UPDATE questions SET state = 'void', change = $1 WHERE id = $2 AND state IN ('open', 'allowed')";
    sqlx::query(sql).bind(change).bind(id).execute(&mut **tx).await?;
    Ok(())
}

/// What a question asks, without the state that it asks about.
fn stateless(content: &str) -> Option<Value> {
    let mut content: Value = serde_json::from_str(content).ok()?;
    if let Some(Value::Object(own)) = content.get_mut(OWN) {
        own.remove("state");
    }
    Some(content)
}

/// The number of the next change. Changes are kept in the order of their numbers.
async fn next_change(tx: &mut Transaction) -> Result<i64, StoreError> {
    let sql = "UPDATE changes SET last = last + 1 WHERE one = 1 RETURNING last";
    Ok(sqlx::query(sql).fetch_one(&mut **tx).await?.try_get(0)?)
}

fn read(row: &AnyRow) -> Result<Question, StoreError> {
    let state: String = row.try_get(6)?;
    let state = State::ALL.into_iter().find(|known| known.name() == state);
    Ok(Question {
        id: row.try_get(0)?,
        client: row.try_get(1)?,
        name: row.try_get(2)?,
        tenant: row.try_get(3)?,
        digest: row.try_get(4)?,
        content: row.try_get(5)?,
        state: state.ok_or(StoreError::Damaged("a question's state"))?,
        asked: row.try_get(7)?,
        expires: row.try_get(8)?,
        decided_by: row.try_get(9)?,
        decided: row.try_get(10)?,
        change: row.try_get(11)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Place;
    use proptest::prelude::*;

    /// Something that can happen to the questions of two conversations.
    #[derive(Debug, Clone)]
    enum Step {
        /// A conversation asks one of three things, which stands for an hour or is over at once.
        Ask { name: usize, what: usize, stands: bool },
        /// Somebody decides the question that was asked as this one, with the right digest or another.
        Decide { question: usize, is_right: bool, allow: bool },
        /// A turn uses it.
        Use(usize),
        /// A turn uses it and is not kept.
        Fail(usize),
        /// A conversation goes on without it.
        GiveUp(usize),
        /// What is over is marked.
        Sweep,
        /// The gateway is killed and started anew.
        Restart,
    }

    fn step() -> impl Strategy<Value = Step> {
        let question = 0..6_usize;
        prop_oneof![
            4 => (0..2_usize, 0..3_usize, prop::bool::weighted(0.8))
                .prop_map(|(name, what, stands)| Step::Ask { name, what, stands }),
            4 => (question.clone(), prop::bool::weighted(0.8), any::<bool>())
                .prop_map(|(question, is_right, allow)| Step::Decide { question, is_right, allow }),
            3 => question.clone().prop_map(Step::Use),
            1 => question.prop_map(Step::Fail),
            1 => (0..2_usize).prop_map(Step::GiveUp),
            1 => Just(Step::Sweep),
            1 => Just(Step::Restart),
        ]
    }

    /// A question as it should be.
    #[derive(Debug, Clone)]
    struct Model {
        id: String,
        name: usize,
        what: usize,
        stands: bool,
        state: State,
    }

    impl Model {
        fn is(&self, states: &[State]) -> bool {
            self.stands && states.contains(&self.state)
        }

        fn shown(&self) -> State {
            let is_over = !self.stands && matches!(self.state, State::Open | State::Allowed);
            if is_over { State::Expired } else { self.state }
        }
    }

    async fn follow(steps: &[Step], place: &Place) {
        let mut store = Store::open(place).await.unwrap();
        let mut model: Vec<Model> = Vec::new();
        let digest = |what: usize| format!("digest {what}");
        let mut used = 0;
        for (number, step) in steps.iter().enumerate() {
            match *step {
                Step::Ask { name, what, stands } => {
                    let new = NewQuestion {
                        id: &number.to_string(),
                        client: "c",
                        name: &name.to_string(),
                        tenant: "t",
                        digest: &digest(what),
                        content: "{}",
                        stands: if stands { 3_600_000 } else { -1 },
                        turn: 0,
                        used: &[],
                        most: Most { of_conversation: i64::MAX, of_client: i64::MAX },
                    };
                    let (id, is_new) = match store.ask(&new).await.unwrap() {
                        Posed::Known(id) => (id, false),
                        Posed::New { id, .. } => (id, true),
                        full => panic!("{full:?}"),
                    };
                    let open = [State::Open, State::Allowed];
                    let known =
                        model.iter().any(|q| q.id == id && q.name == name && q.what == what && q.is(&open));
                    let any = model.iter().any(|q| q.name == name && q.what == what && q.is(&open));
                    assert_eq!((is_new, known), (!any, any), "{number}");
                    if is_new {
                        model.push(Model { id, name, what, stands, state: State::Open });
                    }
                }
                Step::Decide { question, is_right, allow } => {
                    let Some(q) = model.get_mut(question) else { continue };
                    let digest = if is_right { digest(q.what) } else { "another".to_owned() };
                    let mut recorded = false;
                    let record = || {
                        recorded = true;
                        Ok(())
                    };
                    let decided = store.decide((&q.id, &digest), allow, "ann", record).await.unwrap();
                    let may = is_right && q.is(&[State::Open]);
                    assert_eq!((decided.is_ok(), recorded), (may, may), "{number}");
                    if may {
                        q.state = if allow { State::Allowed } else { State::Denied };
                    }
                }
                Step::Use(question) | Step::Fail(question) => {
                    let Some(q) = model.get_mut(question) else { continue };
                    let mut tx = store.begin().await.unwrap();
                    let done = use_question(&store, &mut tx, &q.id).await;
                    assert_eq!(done.is_ok(), q.is(&[State::Allowed]), "{number}");
                    if done.is_ok() && matches!(step, Step::Use(_)) {
                        tx.commit().await.unwrap();
                        q.state = State::Used;
                        used += 1;
                    }
                }
                Step::GiveUp(name) => {
                    let given_up = store.give_up("c", &name.to_string()).await.unwrap();
                    let allowed = model.iter().filter(|q| q.name == name && q.is(&[State::Allowed]));
                    let mut allowed: Vec<&str> = allowed.map(|q| q.id.as_str()).collect();
                    allowed.sort_unstable();
                    let mut found: Vec<&str> = given_up
                        .iter()
                        .filter(|q| q.state == State::Allowed)
                        .map(|q| q.id.as_str())
                        .collect();
                    found.sort_unstable();
                    assert_eq!(found, allowed, "{number}");
                    let open =
                        |q: &&mut Model| q.name == name && matches!(q.state, State::Open | State::Allowed);
                    model.iter_mut().filter(open).for_each(|q| q.state = State::Void);
                }
                Step::Sweep => drop(store.expire(i64::MAX / 4).await.unwrap()),
                Step::Restart => {
                    drop(store);
                    store = Store::open(place).await.unwrap();
                }
            }
            for q in &model {
                let kept = store.question(&q.id).await.unwrap().unwrap();
                // A question that was over when it was given up may have been marked before.
                let is_same = kept.state == q.shown() || !q.stands && kept.state == State::Expired;
                assert!(is_same, "{number}: {kept:?} {q:?}");
            }
        }
        assert_eq!(model.iter().filter(|q| q.state == State::Used).count(), used);
    }

    /// A yes is for one question: for its reasons, for the state that it is about, and for one of two equal calls.
    #[tokio::test]
    async fn a_yes_is_for_one_question() {
        let store = Store::open(&Place::Memory).await.unwrap();
        let ask = async |id: &str, content: &str, used: &[String]| {
            let most = Most { of_conversation: 100, of_client: 100 };
            let (client, name, tenant, digest) = ("c", "n", "t", "d");
            let (stands, turn) = (3_600_000, BESIDE);
            store
                .ask(&NewQuestion { id, client, name, tenant, digest, content, stands, turn, used, most })
                .await
                .unwrap()
        };
        let new = |id: &str, void: &[&str]| Posed::New {
            id: id.to_owned(),
            void: void.iter().map(|id| (*id).to_owned()).collect(),
        };
        let (one, other) = (
            r#"{"reasons":["a"],"flowgate":{"state":"1"}}"#,
            r#"{"reasons":["b"],"flowgate":{"state":"1"}}"#,
        );
        assert_eq!(ask("1", one, &[]).await, new("1", &[]));
        assert!(store.decide(("1", "d"), true, "ann", || Ok(())).await.unwrap().is_ok());
        assert_eq!(ask("2", one, &[]).await, Posed::Known("1".to_owned()));
        // For other reasons, and for the second of two equal calls of one turn, it is another question.
        assert_eq!(ask("3", other, &[]).await, new("3", &[]));
        assert_eq!(ask("4", one, &["1".to_owned()]).await, new("4", &[]));
        // The state has changed: what was allowed is void, and what was asked for other reasons stands.
        let changed = r#"{"reasons":["a"],"flowgate":{"state":"2"}}"#;
        assert_eq!(ask("5", changed, &[]).await, new("5", &["1"]));
        assert_eq!(store.question("1").await.unwrap().unwrap().state, State::Void);
        assert_eq!(store.question("3").await.unwrap().unwrap().state, State::Open);
        let mut tx = store.begin().await.unwrap();
        assert!(use_question(&store, &mut tx, "1").await.is_err());
    }

    /// Where it cannot be known what is stopped, nobody says that nothing is.
    #[tokio::test]
    async fn a_store_that_fails_does_not_say_that_nothing_is_stopped() {
        let store = Store::open(&Place::Memory).await.unwrap();
        assert!(store.freezes().await.unwrap().is_empty());
        sqlx::query("ALTER TABLE freezes RENAME TO gone").execute(&store.pool).await.unwrap();
        assert!(store.freeze("tool", "send", "ann").await.is_err());
        assert!(store.freezes().await.is_err());
        sqlx::query("ALTER TABLE gone RENAME TO freezes").execute(&store.pool).await.unwrap();
        assert!(store.freezes().await.unwrap().is_empty());
    }

    /// What is stopped is seen at once, though it is not asked every time, and so if whoever changed it has stopped waiting.
    #[test]
    fn what_is_stopped_is_seen_at_once() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let store = Store::open(&Place::Memory).await.unwrap();
            let count = async || store.freezes().await.unwrap().len();
            assert_eq!(count().await, 0);
            assert!(store.cache.freezes().is_ok(), "it need not be asked again");
            store.freeze("tool", "send", "ann").await.unwrap();
            assert_eq!(count().await, 1);
            assert!(store.thaw("tool", "send").await.unwrap());
            assert_eq!(count().await, 0);
            for is_frozen in [true, false] {
                count().await;
                let begun = std::future::poll_fn(|context| {
                    let polled = match is_frozen {
                        true => std::pin::pin!(store.freeze("tool", "pay", "ann")).poll(context).is_ready(),
                        false => std::pin::pin!(store.thaw("tool", "pay")).poll(context).is_ready(),
                    };
                    std::task::Poll::Ready(polled)
                });
                assert!(!begun.await, "it is given up before it has ended");
                assert!(store.cache.freezes().is_err(), "nobody knows what became of it");
            }
        });
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

        /// Whatever happens in whatever order, a question is decided once, by its digest, in time, and used once, if it was
        /// allowed.
        #[test]
        fn questions_are_decided_once_and_used_once(steps in prop::collection::vec(step(), 1..30)) {
            let folder = std::env::temp_dir().join(format!("flowgate-questions-{}", std::process::id()));
            let _ = std::fs::remove_dir_all(&folder);
            std::fs::create_dir_all(&folder).unwrap();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(follow(&steps, &Place::File(folder.join("store.db"))));
            let _ = std::fs::remove_dir_all(&folder);
        }
    }
}
