//! Counts requests in the database against the quotas of clients, of virtual keys and of callers with tokens, for all
//! gateways that share the database. `chat::client_limits` calls it before a request is served.
//!
//! A quota is a token bucket that refills over a minute. Its only state is the time at which it is full again
//! (`full_at`). Each request moves this time into the future by one minute divided by the quota. A request is refused
//! if the time would then be more than a minute ahead. One statement checks and moves the time, so concurrent requests
//! of all gateways never exceed the quota. All times are those of the database's clock.

use super::Database;
use super::error::DatabaseError;
use super::transaction::Access;

/// The time in which an empty quota becomes full, in microseconds.
const MINUTE: i64 = 60_000_000;

/// Whether a quota has room for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestAdmission {
    /// The request was counted.
    Admitted,
    /// The request was not counted; there is room for one after this number of seconds.
    Exhausted { seconds: u64 },
}

impl Database {
    /// Takes one request out of a quota, which is `per_minute` for all gateways of the database. `client` is the name
    /// of a client, or the account (the name under which requests are counted) of a virtual key or of a caller with
    /// tokens. If the quota is exhausted, the result says after how many seconds it admits a request again.
    pub(crate) async fn take_request(
        &self,
        client: &str,
        per_minute: u32,
    ) -> Result<RequestAdmission, DatabaseError> {
        let client = client.to_owned();
        // The time by which one request moves `full_at`, in microseconds.
        let per_request = MINUTE / i64::from(per_minute.max(1));
        let microseconds_to_wait = self.run(Access::Transaction, move |tx| {
            Box::pin(async move {
                // `full_at` is the time at which the quota is full again. Times are in microseconds: ?2 is the share of
                // one request, ?3 a minute. `full_at` grows by ?2 from itself or, if it is past, from now, unless it
                // would then be more than a minute ahead. A time beyond a minute was written before the clock was set
                // back, and counts as past.
                let sql = "INSERT INTO request_quotas (client, full_at) VALUES (?1, {now} * 1000 + ?2) \
                           ON CONFLICT (client) DO UPDATE SET full_at = ?2 + CASE \
                           WHEN request_quotas.full_at BETWEEN {now} * 1000 AND {now} * 1000 + ?3 \
                           THEN request_quotas.full_at ELSE {now} * 1000 END \
                           WHERE request_quotas.full_at NOT BETWEEN {now} * 1000 + ?3 - ?2 + 1 AND {now} * 1000 + ?3";
                if tx.execute(sql, &[(&client).into(), per_request.into(), MINUTE.into()]).await? > 0 {
                    return Ok(0);
                }
                let sql = "SELECT full_at - {now} * 1000 FROM request_quotas WHERE client = ?1";
                let rows = tx.query(sql, &[(&client).into()]).await?;
                let ahead = rows.first().map_or(Ok(0), |row| row.integer(0))?;
                // The time until one more request moves `full_at` to at most a minute ahead. At least 1, since 0 means
                // that the request was counted.
                Ok((ahead + per_request - MINUTE).max(1))
            })
        });
        Ok(match microseconds_to_wait.await? {
            0 => RequestAdmission::Admitted,
            microseconds_to_wait => RequestAdmission::Exhausted {
                seconds: u64::try_from(microseconds_to_wait).unwrap_or(0).div_ceil(1_000_000),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::DatabaseAddress;
    use crate::database::postgres::tests as postgres;

    /// Takes requests until one is refused; returns the number of admitted ones and the seconds to wait.
    async fn take_all(database: &Database, client: &str, per_minute: u32) -> (u32, u64) {
        for admitted in 0..1000 {
            match database.take_request(client, per_minute).await.unwrap() {
                RequestAdmission::Admitted => {}
                RequestAdmission::Exhausted { seconds } => return (admitted, seconds),
            }
        }
        panic!("the quota is never exhausted");
    }

    async fn check(place: DatabaseAddress) {
        let database = Database::open(&place).await.unwrap();
        let pass = async |seconds: i64| {
            let micros = seconds * 1_000_000;
            let sql = format!("UPDATE request_quotas SET full_at = full_at - ({micros})");
            assert!(database.execute_for_test(&sql).await.unwrap() > 0);
        };
        // One in a minute: while the test runs for less than that, nothing refills.
        let (admitted, seconds) = take_all(&database, "a", 1).await;
        assert!(admitted == 1 && (1..=60).contains(&seconds), "{admitted} {seconds}");
        // Quotas of clients are separate.
        assert_eq!(take_all(&database, "b", 1).await.0, 1);
        pass(60).await;
        assert_eq!(take_all(&database, "a", 1).await.0, 1);
        // A pause of any length gives no more than one quota.
        pass(3600).await;
        assert_eq!(take_all(&database, "a", 1).await.0, 1);
        // The clock was set back by an hour.
        pass(-3600).await;
        assert_eq!(take_all(&database, "a", 1).await.0, 1);
        // Concurrent requests do not exceed the quota, of which the time of the test may refill a part.
        let database = std::sync::Arc::new(database);
        let mut requests = tokio::task::JoinSet::new();
        for _ in 0..40 {
            let database = std::sync::Arc::clone(&database);
            requests.spawn(async move { database.take_request("c", 4).await.unwrap() });
        }
        let outcomes = requests.join_all().await;
        let admitted = outcomes.iter().filter(|one| **one == RequestAdmission::Admitted).count();
        assert!((4..=5).contains(&admitted), "{admitted}");
        database.close().await;
    }

    #[tokio::test]
    async fn a_quota_is_never_exceeded_and_refills() {
        check(DatabaseAddress::Memory).await;
        let Some(url) = postgres::create_database("request_quotas").await else { return };
        check(DatabaseAddress::Postgres(url)).await;
    }
}
