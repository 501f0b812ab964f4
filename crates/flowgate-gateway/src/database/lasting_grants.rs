//! Stores lasting grants: approvals that a person gives for equal calls of all conversations of a client.
//! `approvals::lasting_grants` decides what a grant covers; this module finds the grant for a question, counts its
//! uses, and lists and deletes the grants.
//!
//! A grant can limit the calls in a day, and the sum of one argument in a day. A use is counted in the transaction that
//! allows the question, so that concurrent questions never exceed such a limit. A call that is allowed but does not run
//! counts as well.

use std::sync::Arc;

use super::Database;
use super::changes::next_change;
use super::encryption::{Content, ContentCipher, ContentPlace, DigestColumn};
use super::error::DatabaseError;
use super::log_heads::{NewerLogHead, update_log_head};
use super::transaction::{Access, DynTransaction, SqlRow};

/// The most grants in one list.
const MAX_LISTED: i64 = 1_000;

/// A lasting grant as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredGrant {
    pub(crate) id: String,
    pub(crate) client: String,
    pub(crate) tenant: String,
    /// The digest of the policy and settings of the client for which it was given.
    pub(crate) config_fingerprint: String,
    /// What the person was shown, in JSON.
    pub(crate) content: String,
    /// The person who gave it.
    pub(crate) who: String,
    /// The time at which it was given, in milliseconds since 1970.
    pub(crate) granted: i64,
    /// The time at which it expires, in milliseconds since 1970; 0 if it holds until it is withdrawn.
    pub(crate) expires: i64,
    pub(crate) limits: GrantLimits,
    /// The number of calls today, and the sum of the limited argument today, in millionths.
    pub(crate) used_today: (i64, i64),
}

/// How much a lasting grant permits in a day (UTC).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct GrantLimits {
    /// The most calls; `None`: any number.
    pub(crate) calls: Option<i64>,
    /// The argument whose sum is limited, and the largest sum, in millionths; `None`: no sum is limited.
    pub(crate) sum: Option<(String, i64)>,
}

/// A lasting grant to store with the decision that gives it.
#[derive(Debug, Clone)]
pub(crate) struct NewGrant {
    pub(crate) id: String,
    pub(crate) config_fingerprint: String,
    /// The digest that every covered question has (`approvals::lasting_grants` computes it).
    pub(crate) matching: String,
    /// The number of days after which it expires; `None`: it holds until it is withdrawn.
    pub(crate) days: Option<u32>,
    pub(crate) limits: GrantLimits,
    /// The calls that the question is about, and the sum that they use, in millionths.
    pub(crate) used: (i64, i64),
}

/// A kind of grant that would cover a question: a grant with the digest `matching` whose limits have room for the calls
/// of the question.
#[derive(Debug, Clone)]
pub(crate) struct GrantCandidate {
    /// The digest that every question covered by the grant has.
    pub(crate) matching: String,
    /// The number of calls that the question is about.
    pub(crate) calls: i64,
    /// The sum that these calls use of the grant's limit on an amount, in millionths; 0 if the grant limits none.
    pub(crate) amount: i64,
}

/// The grant that answered a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UsedGrant {
    pub(crate) id: String,
    pub(crate) who: String,
}

/// The columns of a grant, and today as a number of days since 1970. `basis` is the fingerprint of the configuration,
/// `amount` the name of the argument whose sum is limited, and `calls` and `sum` are what was used on the day `day`.
const COLUMNS: &str = "id, client, tenant, basis, content, who, granted, expires, calls_a_day, amount, sum_a_day, \
    day, calls, sum, {now} / 86400000";
/// The condition that a grant has not expired. A grant from more than a minute in the future counts as expired: the
/// clock was set back.
const VALID: &str = "granted <= {now} + 60000 AND (expires = 0 OR expires > {now})";
/// The stored number for a limit that a grant does not have.
const NO_LIMIT: i64 = -1;

impl Database {
    /// Returns whether the client has a grant that would answer a question, and that has room left today for the calls
    /// of the question. `candidates` are the kinds of grants that would answer the question.
    pub(crate) async fn has_lasting_grant(
        &self,
        client: &str,
        candidates: &[GrantCandidate],
    ) -> Result<bool, DatabaseError> {
        let (client, candidates, cipher) = (client.to_owned(), candidates.to_vec(), Arc::clone(&self.cipher));
        self.run(Access::Query, move |tx| {
            Box::pin(async move { Ok(find(tx, &client, &candidates, &cipher).await?.is_some()) })
        })
        .await
    }

    /// Allows an open question by a lasting grant, and counts the use, in one transaction. `candidates` are the kinds
    /// of grants that would answer the question, the preferred ones first. Calls `record` with the chosen grant before
    /// the commit; if `record` fails, nothing is changed. Returns `None` if the client has no such grant with room left
    /// today, or the question is not open.
    pub(crate) async fn use_lasting_grant(
        &self,
        client: &str,
        question: &str,
        candidates: &[GrantCandidate],
        record: impl FnOnce(&UsedGrant) -> Result<(), DatabaseError>,
    ) -> Result<Option<UsedGrant>, DatabaseError> {
        let (client, question, candidates) = (client.to_owned(), question.to_owned(), candidates.to_vec());
        let cipher = Arc::clone(&self.cipher);
        let found = self.run_with_step(
            move |tx, step| {
                Box::pin(async move {
                    // Takes the lock under which all questions change: concurrent uses of a grant are counted one after
                    // the other.
                    let change = next_change(tx).await?;
                    let Some((grant, candidate)) = find(tx, &client, &candidates, &cipher).await? else {
                        tx.discard();
                        return Ok(None);
                    };
                    let sql = "UPDATE questions SET state = 'allowed', decided_by = ?1, decided = {now}, change = ?2, \
                               lasting_grant = ?3 WHERE id = ?4 AND state = 'open' AND {unexpired}";
                    let values =
                        [(&grant.who).into(), change.into(), (&grant.id).into(), (&question).into()];
                    if tx.execute(sql, &values).await? != 1 {
                        tx.discard();
                        return Ok(None);
                    }
                    // Days are counted from 1970 in UTC; the counts of an earlier day are 0 here.
                    let (calls, sum) = grant.used_today;
                    let sql = "UPDATE lasting_grants SET day = {now} / 86400000, calls = ?1, sum = ?2 WHERE id = ?3";
                    let values =
                        [calls.saturating_add(candidate.calls).into(), sum.saturating_add(candidate.amount).into(), (&grant.id).into()];
                    tx.execute(sql, &values).await?;
                    let used = UsedGrant { id: grant.id, who: grant.who };
                    // Waits until the caller has run `record`, and stores the new head of its audit log.
                    let head: Option<NewerLogHead> = step.take(used.clone()).await?;
                    update_log_head(tx, head.as_ref()).await?;
                    Ok(Some((used, head)))
                })
            },
            |used: UsedGrant| record(&used).map(|()| self.newer_head()),
        );
        Ok(found.await?.map(|(used, head)| {
            // Notes that the database has this head of the audit log now.
            self.set_recorded(head.as_ref());
            used
        }))
    }

    /// Returns the grants of a tenant, or with `None` of all tenants, that have not expired: the newest first, at most
    /// [`MAX_LISTED`].
    pub(crate) async fn lasting_grants(
        &self,
        tenant: Option<&str>,
    ) -> Result<Vec<StoredGrant>, DatabaseError> {
        let (tenant, cipher) = (tenant.unwrap_or("").to_owned(), Arc::clone(&self.cipher));
        self.run(Access::Query, move |tx| {
            Box::pin(async move {
                // An empty name means all tenants.
                let sql = format!(
                    "SELECT {COLUMNS} FROM lasting_grants WHERE {VALID} AND (?1 = '' OR tenant = ?1) \
                     ORDER BY granted DESC, id LIMIT ?2"
                );
                let mut rows = tx.query(&sql, &[(&tenant).into(), MAX_LISTED.into()]).await?;
                rows.iter_mut().map(|row| read(row, &cipher)).collect()
            })
        })
        .await
    }

    /// Returns the grant with this id; `None` if there is none or it has expired.
    pub(crate) async fn lasting_grant(&self, id: &str) -> Result<Option<StoredGrant>, DatabaseError> {
        let (id, cipher) = (id.to_owned(), Arc::clone(&self.cipher));
        self.run(Access::Query, move |tx| {
            Box::pin(async move {
                let sql = format!("SELECT {COLUMNS} FROM lasting_grants WHERE id = ?1 AND {VALID}");
                let mut rows = tx.query(&sql, &[(&id).into()]).await?;
                rows.first_mut().map(|row| read(row, &cipher)).transpose()
            })
        })
        .await
    }

    /// Returns whether one of the questions with these ids was answered by a lasting grant that no longer exists: it
    /// was withdrawn since, or deleted after its end. The state of the question does not show this: an approval that is
    /// used already stays used, even if it covers further calls that have not run yet.
    pub(crate) async fn is_answering_grant_withdrawn(
        &self,
        questions: &[String],
    ) -> Result<bool, DatabaseError> {
        let questions = questions.to_vec();
        self.run(Access::Query, move |tx| {
            Box::pin(async move {
                let sql = "SELECT 1 FROM questions WHERE id = ?1 AND lasting_grant <> '' AND NOT EXISTS \
                           (SELECT 1 FROM lasting_grants WHERE lasting_grants.id = questions.lasting_grant)";
                for id in &questions {
                    if !tx.query(sql, &[id.into()]).await?.is_empty() {
                        return Ok(true);
                    }
                }
                Ok(false)
            })
        })
        .await
    }

    /// Withdraws the grant with this id. Returns false if there is none. An approval that the grant has given already
    /// and that is not used yet becomes void.
    pub(crate) async fn withdraw_lasting_grant(&self, id: &str) -> Result<bool, DatabaseError> {
        let id = id.to_owned();
        self.run(Access::Transaction, move |tx| {
            Box::pin(async move {
                // The number under which event streams report the voided questions.
                let change = next_change(tx).await?;
                let sql = "UPDATE questions SET state = 'void', change = ?1 WHERE lasting_grant = ?2 AND state = 'allowed'";
                tx.execute(sql, &[change.into(), (&id).into()]).await?;
                let sql = "DELETE FROM lasting_grants WHERE id = ?1";
                Ok(tx.execute(sql, &[(&id).into()]).await? == 1)
            })
        })
        .await
    }
}

/// Stores the grant that the person `who` gives by the decision on a question. The grant has the client, the tenant and
/// the content of the question.
pub(super) async fn insert(
    tx: &mut DynTransaction<'_>,
    question: &str,
    who: &str,
    new: &NewGrant,
    cipher: &ContentCipher,
) -> Result<(), DatabaseError> {
    // Stored without null: 0 days mean no end, and an empty name and [`NO_LIMIT`] mean no limit. The calls of the
    // answered question (`new.used`: their number, and the sum of their amounts) count against the limits of the first
    // day.
    let days = new.days.map_or(0, i64::from);
    let (summed_argument, sum_limit) = match &new.limits.sum {
        Some((name, most)) => (name.as_str(), *most),
        None => ("", NO_LIMIT),
    };
    let sql = "SELECT client, name, tenant, digest, content FROM questions WHERE id = ?1";
    let mut rows = tx.query(sql, &[question.into()]).await?;
    // The decision has changed this row before, in the same transaction, so it is never missing.
    let Some(row) = rows.first_mut() else { return Ok(()) };
    let (client, name, tenant, digest) = (row.text(0)?, row.text(1)?, row.text(2)?, row.text(3)?);
    let asked_place = ContentPlace::question(question, (&client, &name, &tenant), &digest);
    let content = Content::from(cipher.open_column(row, 4, &asked_place)?);
    // The content is sealed again for the row of the grant, since a sealed content is bound to its row.
    let content = cipher.seal(&content, &ContentPlace::grant(&new.id, &client, &tenant))?;
    let matching = cipher.lookup(DigestColumn::GrantMatching, &client, &new.matching);
    // `basis` is the fingerprint of the configuration, `amount` the name of the summed argument.
    let sql = "INSERT INTO lasting_grants (id, client, tenant, basis, matching, content, who, granted, expires, \
               calls_a_day, amount, sum_a_day, day, calls, sum) \
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, {now}, \
               CASE WHEN ?8 = 0 THEN 0 ELSE {now} + ?8 * 86400000 END, ?9, ?10, ?11, {now} / 86400000, ?12, ?13)";
    let values = [
        (&new.id).into(),
        (&client).into(),
        (&tenant).into(),
        (&new.config_fingerprint).into(),
        (&matching).into(),
        (&content).into(),
        who.into(),
        days.into(),
        new.limits.calls.unwrap_or(NO_LIMIT).into(),
        summed_argument.into(),
        sum_limit.into(),
        new.used.0.into(),
        new.used.1.into(),
    ];
    tx.execute(sql, &values).await.map(drop)
}

/// Deletes the grants that expired more than `age` milliseconds ago. A grant whose `expires` is 0 never expires.
pub(super) async fn delete_expired(tx: &mut DynTransaction<'_>, age: i64) -> Result<(), DatabaseError> {
    let sql = "DELETE FROM lasting_grants WHERE expires > 0 AND expires < {now} - ?1";
    tx.execute(sql, &[age.into()]).await.map(drop)
}

/// Finds a grant of the client that matches one of the candidates and has room today for the calls of this candidate.
/// Returns the grant and the candidate; `None` if there is none. Prefers an earlier candidate to a later one, and a
/// newer grant to an older one.
async fn find(
    tx: &mut DynTransaction<'_>,
    client: &str,
    candidates: &[GrantCandidate],
    cipher: &ContentCipher,
) -> Result<Option<(StoredGrant, GrantCandidate)>, DatabaseError> {
    // The limit bounds the work: if only an older grant covers the question, a person is asked.
    let sql = format!(
        "SELECT {COLUMNS} FROM lasting_grants WHERE client = ?1 AND matching = ?2 AND {VALID} ORDER BY granted DESC LIMIT 100"
    );
    for candidate in candidates {
        // A digest may be stored in two forms while a database is being encrypted.
        for matching in cipher.lookups(DigestColumn::GrantMatching, client, &candidate.matching) {
            for row in &mut tx.query(&sql, &[client.into(), (&matching).into()]).await? {
                let grant = read(row, cipher)?;
                if grant.has_room_for(candidate.calls, candidate.amount) {
                    return Ok(Some((grant, candidate.clone())));
                }
            }
        }
    }
    Ok(None)
}

impl StoredGrant {
    /// Returns whether today's limits have room for `more` further calls, which together use `amount` of the limited
    /// sum.
    fn has_room_for(&self, more: i64, amount: i64) -> bool {
        let (calls, sum) = self.used_today;
        let fits =
            |used: i64, added: i64, most: i64| used.checked_add(added).is_some_and(|total| total <= most);
        self.limits.calls.is_none_or(|most| fits(calls, more, most))
            && self.limits.sum.as_ref().is_none_or(|(_, most)| fits(sum, amount, *most))
    }
}

/// Reads a row with the columns [`COLUMNS`].
fn read(row: &mut SqlRow, cipher: &ContentCipher) -> Result<StoredGrant, DatabaseError> {
    // The name of the argument whose sum is limited (empty without such a limit), and the limit.
    let (summed_argument, sum_limit) = (row.text(9)?, row.integer(10)?);
    // Column 11 is the day of the stored counts, column 14 today. The counts of an earlier day do not count today.
    let is_today = row.integer(11)? == row.integer(14)?;
    let calls_a_day = row.integer(8)?;
    let (id, client, tenant) = (row.text(0)?, row.text(1)?, row.text(2)?);
    let content = cipher.open_column(row, 4, &ContentPlace::grant(&id, &client, &tenant))?;
    Ok(StoredGrant {
        id,
        client,
        tenant,
        config_fingerprint: row.text(3)?,
        content,
        who: row.text(5)?,
        granted: row.integer(6)?,
        expires: row.integer(7)?,
        limits: GrantLimits {
            calls: (calls_a_day != NO_LIMIT).then_some(calls_a_day),
            sum: (!summed_argument.is_empty()).then_some((summed_argument, sum_limit)),
        },
        // Columns 12 and 13: the number of the counted calls, and the sum of their amounts.
        used_today: if is_today { (row.integer(12)?, row.integer(13)?) } else { (0, 0) },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::{
        AskOutcome, DatabaseAddress, NewQuestion, QuestionLimits, QuestionOrigin, QuestionState,
    };
    use flowgate::monitor::PersonDecision;

    /// Asks a question of a client, and gives its id.
    async fn ask(store: &Database, client: &str, id: &str) {
        let new = NewQuestion {
            id,
            client,
            name: "n",
            tenant: "t",
            config_fingerprint: "b",
            digest: id,
            content: "{}",
            expires_after: 3_600_000,
            origin: QuestionOrigin::Chat { turns: 0, since: 0 },
            used: &[],
            limits: QuestionLimits::UNLIMITED,
        };
        assert_eq!(store.ask(&new, |_| Ok(())).await.unwrap(), AskOutcome::New(id.to_owned()));
    }

    /// Asks a question of the client `c`, and answers it by a grant with these limits.
    async fn give(store: &Database, id: &str, days: Option<u32>, limits: GrantLimits) {
        ask(store, "c", id).await;
        let grant = NewGrant {
            id: format!("grant {id}"),
            config_fingerprint: "b".to_owned(),
            matching: "m".to_owned(),
            days,
            limits,
            used: (1, 20),
        };
        let decision = PersonDecision::AllowLasting;
        store.decide((id, id), decision, "bob", Some(grant), || Ok(())).await.unwrap().unwrap();
    }

    /// Answers a question by a grant for this digest and amount, and returns the grant.
    async fn answer(
        store: &Database,
        client: &str,
        question: &str,
        matching: &str,
        amount: i64,
    ) -> Option<String> {
        let candidate = GrantCandidate { matching: matching.to_owned(), calls: 1, amount };
        let has_room = store.has_lasting_grant(client, std::slice::from_ref(&candidate)).await.unwrap();
        let used = store.use_lasting_grant(client, question, &[candidate], |_| Ok(())).await.unwrap();
        assert!(used.is_none() || has_room, "a grant that was used had no room");
        used.map(|used| used.id)
    }

    /// A grant answers an open question of its own client that has its digest, while it is valid.
    #[tokio::test]
    async fn a_grant_answers_what_it_covers_while_it_is_valid() {
        let store = Database::open(&DatabaseAddress::Memory).await.unwrap();
        give(&store, "1", Some(7), GrantLimits::default()).await;
        for (client, id) in [("c", "2"), ("other", "3"), ("c", "4"), ("c", "5"), ("c", "6")] {
            ask(&store, client, id).await;
        }
        assert_eq!(answer(&store, "other", "3", "m", 0).await, None, "it is of another client");
        assert_eq!(answer(&store, "c", "2", "n", 0).await, None, "it has another digest");
        assert_eq!(answer(&store, "c", "2", "m", 0).await.as_deref(), Some("grant 1"));
        assert_eq!(store.question("2").await.unwrap().unwrap().state, QuestionState::Allowed);
        assert_eq!(answer(&store, "c", "2", "m", 0).await, None, "it is allowed already");
        store.decide(("4", "4"), PersonDecision::Deny, "bob", None, || Ok(())).await.unwrap().unwrap();
        assert_eq!(answer(&store, "c", "4", "m", 0).await, None, "a person has denied it");
        let set = async |statement: &str| store.execute_for_test(statement).await.unwrap();
        for (change, back) in [
            ("expires = 1", "expires = granted + 86400000"),
            ("granted = granted + 120000", "granted = granted - 120000"),
        ] {
            set(&format!("UPDATE lasting_grants SET {change}")).await;
            assert_eq!(answer(&store, "c", "5", "m", 0).await, None, "{change}");
            assert!(store.lasting_grant("grant 1").await.unwrap().is_none(), "{change}");
            assert!(store.lasting_grants(None).await.unwrap().is_empty(), "{change}");
            set(&format!("UPDATE lasting_grants SET {back}")).await;
        }
        assert!(store.lasting_grants(Some("other")).await.unwrap().is_empty());
        assert_eq!(answer(&store, "c", "5", "m", 0).await.as_deref(), Some("grant 1"));
        // An approval that cannot be recorded is not given.
        let candidates = [GrantCandidate { matching: "m".to_owned(), calls: 1, amount: 0 }];
        let fails = |_: &UsedGrant| Err(DatabaseError::NoRandomBytes);
        assert!(store.use_lasting_grant("c", "6", &candidates, fails).await.is_err());
        assert_eq!(store.question("6").await.unwrap().unwrap().state, QuestionState::Open);
    }

    /// Uses are counted for the day on which they are made, the granted question with them.
    #[tokio::test]
    async fn uses_are_counted_each_day() {
        let store = Database::open(&DatabaseAddress::Memory).await.unwrap();
        let limits = GrantLimits { calls: Some(3), sum: Some(("amount".to_owned(), 50)) };
        give(&store, "1", None, limits).await;
        let mut number = 1;
        let mut check = async |amount: i64, is_covered: bool, used_today: (i64, i64)| {
            number += 1;
            ask(&store, "c", &number.to_string()).await;
            let used = answer(&store, "c", &number.to_string(), "m", amount).await;
            assert_eq!(used.is_some(), is_covered, "{amount}");
            let grant = store.lasting_grant("grant 1").await.unwrap().unwrap();
            assert_eq!(grant.used_today, used_today, "{amount}");
        };
        check(31, false, (1, 20)).await;
        check(30, true, (2, 50)).await;
        check(1, false, (2, 50)).await;
        check(0, true, (3, 50)).await;
        check(0, false, (3, 50)).await;
        store.execute_for_test("UPDATE lasting_grants SET day = day - 1").await.unwrap();
        check(50, true, (1, 50)).await;
        check(1, false, (1, 50)).await;
    }

    /// With a grant, the approvals that it has given and that no turn has used yet end.
    #[tokio::test]
    async fn a_withdrawn_grant_takes_its_approvals_with_it() {
        let store = Database::open(&DatabaseAddress::Memory).await.unwrap();
        give(&store, "1", None, GrantLimits::default()).await;
        for id in ["2", "3"] {
            ask(&store, "c", id).await;
        }
        assert!(answer(&store, "c", "2", "m", 0).await.is_some());
        assert!(store.withdraw_lasting_grant("grant 1").await.unwrap());
        let state = async |id: &str| store.question(id).await.unwrap().unwrap().state;
        assert_eq!((state("2").await, state("3").await), (QuestionState::Void, QuestionState::Open));
        // Used approvals, such as one for several calls, are found by the grant that is gone.
        let is_withdrawn = async |ids: &[&str]| {
            let ids: Vec<String> = ids.iter().map(|id| (*id).to_owned()).collect();
            store.is_answering_grant_withdrawn(&ids).await.unwrap()
        };
        assert!(is_withdrawn(&["3", "2"]).await);
        assert!(!is_withdrawn(&["1", "3", "none"]).await && !is_withdrawn(&[]).await);
        // What the person decided about the granted question itself stays.
        assert_eq!(state("1").await, QuestionState::Allowed);
        assert_eq!(answer(&store, "c", "3", "m", 0).await, None);
        assert!(!store.withdraw_lasting_grant("grant 1").await.unwrap());
    }

    #[test]
    fn the_limits_of_a_day_are_never_exceeded() {
        let check = |calls: Option<i64>,
                     sum: Option<i64>,
                     used_today: (i64, i64),
                     amount: i64,
                     expected: bool| {
            let limits = GrantLimits { calls, sum: sum.map(|most| ("amount".to_owned(), most)) };
            let grant = StoredGrant {
                id: String::new(),
                client: String::new(),
                tenant: String::new(),
                config_fingerprint: String::new(),
                content: String::new(),
                who: String::new(),
                granted: 0,
                expires: 0,
                limits,
                used_today,
            };
            assert_eq!(grant.has_room_for(1, amount), expected, "{calls:?} {sum:?} {used_today:?} {amount}");
        };
        check(None, None, (i64::MAX, i64::MAX), i64::MAX, true);
        check(Some(3), None, (2, 0), 0, true);
        check(Some(3), None, (3, 0), 0, false);
        check(None, Some(50), (9, 40), 10, true);
        check(None, Some(50), (9, 40), 11, false);
        check(None, Some(i64::MAX), (0, 1), i64::MAX, false);
        check(Some(9), Some(50), (9, 0), 1, false);
    }
}
