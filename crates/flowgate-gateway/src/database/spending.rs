//! Stores the tokens and the cost that models have used on each day, for the budgets of clients, of virtual keys and of
//! callers with tokens. A day begins at midnight UTC by the clock of the database. `chat::budgets` adds what each turn
//! has used, and reads the sums to compare them with the budgets.

use super::Database;
use super::error::DatabaseError;
use super::transaction::Access;

/// The days for which spending is kept.
const KEPT_DAYS: i64 = 400;
/// The most that one record adds, so that no sum overflows.
const MAX_ADDED: u64 = 1 << 50;
/// A day, in milliseconds.
const DAY_MILLIS: i64 = 86_400_000;

/// What a client, a virtual key or a caller with tokens has used since midnight.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct DaySpending {
    /// The tokens, of requests and of answers.
    pub(crate) tokens: u64,
    /// The cost, in millionths of the currency.
    pub(crate) cost: u64,
    /// The number of seconds until the next day begins.
    pub(crate) seconds_left: u64,
}

impl Database {
    /// Returns what was used since midnight, as all gateways of the database have recorded it, and the time that is
    /// left of the day. `client` is the name of a client, or the account (the name under which spending is counted) of
    /// a virtual key or of a caller with tokens.
    pub(crate) async fn spent_today(&self, client: &str) -> Result<DaySpending, DatabaseError> {
        let client = client.to_owned();
        self.run(Access::Query, move |tx| {
            Box::pin(async move {
                // With `MAX`, the query returns a row even if the client has none for today. The values stay the same,
                // since the client has at most one row for a day.
                let sql = "SELECT COALESCE(MAX(tokens), 0), COALESCE(MAX(cost), 0), {now} FROM spending \
                           WHERE client = ?1 AND day = {now} / 86400000";
                let rows = tx.query(sql, &[(&client).into()]).await?;
                let Some(row) = rows.first() else { return Ok(DaySpending::default()) };
                let number = |index| Ok::<_, DatabaseError>(u64::try_from(row.integer(index)?).unwrap_or(0));
                let left = DAY_MILLIS - row.integer(2)?.rem_euclid(DAY_MILLIS);
                Ok(DaySpending {
                    tokens: number(0)?,
                    cost: number(1)?,
                    seconds_left: u64::try_from(left).unwrap_or(0).div_ceil(1000),
                })
            })
        })
        .await
    }

    /// Adds tokens, and their cost in millionths of the currency, to what `client` has used today. `client` is the name
    /// of a client, or the account (the name under which spending is counted) of a virtual key or of a caller with
    /// tokens. Each number counts as at most [`MAX_ADDED`]. Also deletes the days of this name that are more than
    /// [`KEPT_DAYS`] old.
    pub(crate) async fn add_spending(
        &self,
        client: &str,
        tokens: u64,
        cost: u64,
    ) -> Result<(), DatabaseError> {
        let client = client.to_owned();
        let [tokens, cost] = [tokens, cost].map(|added| i64::try_from(added.min(MAX_ADDED)).unwrap_or(0));
        self.run(Access::Transaction, move |tx| {
            Box::pin(async move {
                // A day has 86,400,000 ms.
                let sql = "INSERT INTO spending (client, day, tokens, cost) VALUES (?1, {now} / 86400000, ?2, ?3) \
                           ON CONFLICT (client, day) DO UPDATE SET \
                           tokens = spending.tokens + excluded.tokens, cost = spending.cost + excluded.cost";
                tx.execute(sql, &[(&client).into(), tokens.into(), cost.into()]).await?;
                let sql = "DELETE FROM spending WHERE client = ?1 AND day < {now} / 86400000 - ?2";
                tx.execute(sql, &[(&client).into(), KEPT_DAYS.into()]).await.map(drop)
            })
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::DatabaseAddress;
    use crate::database::postgres::tests as postgres;

    async fn check(place: DatabaseAddress) {
        let database = Database::open(&place).await.unwrap();
        let spent = async |client: &str| {
            let DaySpending { tokens, cost, seconds_left } = database.spent_today(client).await.unwrap();
            assert!((1..=86_400).contains(&seconds_left), "{seconds_left}");
            (tokens, cost)
        };
        assert_eq!(spent("a").await, (0, 0));
        database.add_spending("a", 10, 3).await.unwrap();
        database.add_spending("a", 5, 0).await.unwrap();
        database.add_spending("b", u64::MAX, u64::MAX).await.unwrap();
        // The test may run at midnight, but not for a day.
        let later = async |days: i64| {
            let sql = format!("UPDATE spending SET day = day - ({days})");
            assert!(database.execute_for_test(&sql).await.unwrap() > 0);
        };
        if spent("a").await == (15, 3) {
            assert_eq!(spent("b").await, (MAX_ADDED, MAX_ADDED));
        }
        later(2).await;
        assert_eq!(spent("a").await, (0, 0));
        later(KEPT_DAYS).await;
        // Old days are deleted with the next record of the same client.
        database.add_spending("a", 1, 1).await.unwrap();
        let count = async |client: &str| {
            database
                .execute_for_test(&format!("DELETE FROM spending WHERE client = '{client}'"))
                .await
                .unwrap()
        };
        assert_eq!((count("a").await, count("b").await), (1, 1));
        database.close().await;
    }

    #[tokio::test]
    async fn spending_is_added_up_by_day() {
        check(DatabaseAddress::Memory).await;
        let Some(url) = postgres::create_database("spending").await else { return };
        check(DatabaseAddress::Postgres(url)).await;
    }
}
