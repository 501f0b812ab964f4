//! Stores the virtual keys of clients (keys that an admin has made for a client), by their digests.
//! `virtual_keys::routes` makes, lists and revokes them, and `chat` authenticates requests with them.
//!
//! Nothing is cached: a key that one gateway revokes is refused by all gateways of the database from then on. All times
//! are those of the database's clock.

use super::Database;
use super::error::DatabaseError;
use super::transaction::{Access, SqlRow};

/// The columns of a stored key, in the order of [`read`].
const COLUMNS: &str = "id, digest, client, tenant, name, who, made, expires, last_day, requests_per_minute, \
                       tokens_per_day, cost_per_day, models, {now}";
/// The condition that a key has not expired.
const UNEXPIRED: &str = "(expires = 0 OR expires > {now})";
/// A day, in milliseconds.
const DAY_MILLIS: i64 = 86_400_000;

/// The limits of a key, which apply in addition to those of its client.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct KeyLimits {
    pub(crate) requests_per_minute: Option<u32>,
    pub(crate) tokens_per_day: Option<u64>,
    /// In millionths of the currency.
    pub(crate) cost_per_day: Option<u64>,
    /// The models that requests with the key may name; an empty list permits all models of the client.
    pub(crate) models: Vec<String>,
}

/// A key to be stored.
#[derive(Debug, Clone)]
pub(crate) struct NewVirtualKey {
    pub(crate) id: String,
    /// The digest of the key, in hexadecimal.
    pub(crate) digest: String,
    pub(crate) client: String,
    /// The tenant of the client.
    pub(crate) tenant: String,
    pub(crate) name: String,
    /// The person who makes the key.
    pub(crate) who: String,
    /// When the key expires, in milliseconds since 1970; `None` if never.
    pub(crate) expires: Option<i64>,
    pub(crate) limits: KeyLimits,
}

/// A stored key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredVirtualKey {
    pub(crate) id: String,
    /// The digest of the key, in hexadecimal.
    pub(crate) digest: String,
    pub(crate) client: String,
    /// The tenant of the client when the key was made.
    pub(crate) tenant: String,
    pub(crate) name: String,
    /// The person who made the key.
    pub(crate) who: String,
    /// When the key was made, in milliseconds since 1970.
    pub(crate) made: i64,
    pub(crate) expires: Option<i64>,
    pub(crate) is_expired: bool,
    /// The beginning of the day (UTC) of the last use, in milliseconds since 1970.
    pub(crate) last_used: Option<i64>,
    /// Whether the key was used today.
    pub(crate) is_used_today: bool,
    pub(crate) limits: KeyLimits,
}

/// The outcome of storing a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AddedKey {
    /// The key is valid from now on.
    Added,
    /// The client has a key of this name.
    NameTaken,
    /// The client has as many keys as it may have.
    Full,
}

impl Database {
    /// Stores a key, unless its client has a key of this name or `most` keys.
    pub(crate) async fn add_virtual_key(
        &self,
        key: NewVirtualKey,
        most: i64,
    ) -> Result<AddedKey, DatabaseError> {
        self.run(Access::Transaction, move |tx| {
            Box::pin(async move {
                let count = "SELECT COUNT(*) FROM virtual_keys WHERE client = ?1";
                let rows = tx.query(count, &[(&key.client).into()]).await?;
                // Several gateways that each add a key at the same time may exceed the limit by a few keys.
                if rows.first().map_or(Ok(0), |row| row.integer(0))? >= most {
                    return Ok(AddedKey::Full);
                }
                let NewVirtualKey { id, digest, client, tenant, name, who, expires, limits } = &key;
                // Stored without null: a limit of -1 means no limit, a `last_day` of -1 that the key was never used,
                // and an `expires` of 0 that the key does not expire.
                let number = |limit: Option<u64>| limit.map_or(-1, |limit| i64::try_from(limit).unwrap_or(i64::MAX));
                let models = serde_json::json!(limits.models).to_string();
                let sql = "INSERT INTO virtual_keys (id, digest, client, tenant, name, who, made, expires, last_day, \
                           requests_per_minute, tokens_per_day, cost_per_day, models) \
                           VALUES (?1, ?2, ?3, ?4, ?5, ?6, {now}, ?7, -1, ?8, ?9, ?10, ?11) ON CONFLICT DO NOTHING";
                let values = [
                    id.into(),
                    digest.into(),
                    client.into(),
                    tenant.into(),
                    name.into(),
                    who.into(),
                    expires.unwrap_or(0).into(),
                    number(limits.requests_per_minute.map(u64::from)).into(),
                    number(limits.tokens_per_day).into(),
                    number(limits.cost_per_day).into(),
                    (&models).into(),
                ];
                // A conflict can only be the name of another key: the id and the digest are random.
                Ok(if tx.execute(sql, &values).await? == 1 { AddedKey::Added } else { AddedKey::NameTaken })
            })
        })
        .await
    }

    /// Returns the keys of a tenant, or of all tenants (`None`), the newest first.
    pub(crate) async fn virtual_keys(
        &self,
        tenant: Option<&str>,
    ) -> Result<Vec<StoredVirtualKey>, DatabaseError> {
        let tenant = tenant.unwrap_or("").to_owned();
        self.run(Access::Query, move |tx| {
            Box::pin(async move {
                // An empty name means all tenants.
                let sql = format!(
                    "SELECT {COLUMNS} FROM virtual_keys WHERE (?1 = '' OR tenant = ?1) ORDER BY made DESC, id"
                );
                tx.query(&sql, &[(&tenant).into()]).await?.iter_mut().map(read).collect()
            })
        })
        .await
    }

    /// Returns the key with this id, also if it has expired.
    pub(crate) async fn virtual_key(&self, id: &str) -> Result<Option<StoredVirtualKey>, DatabaseError> {
        self.find_virtual_key_by("id", id).await
    }

    /// Returns the key with this digest, in hexadecimal, also if it has expired.
    pub(crate) async fn virtual_key_of(
        &self,
        digest: &str,
    ) -> Result<Option<StoredVirtualKey>, DatabaseError> {
        self.find_virtual_key_by("digest", digest).await
    }

    /// Returns the key that has `value` in the column `column`, also if it has expired.
    async fn find_virtual_key_by(
        &self,
        column: &'static str,
        value: &str,
    ) -> Result<Option<StoredVirtualKey>, DatabaseError> {
        let value = value.to_owned();
        self.run(Access::Query, move |tx| {
            Box::pin(async move {
                let sql = format!("SELECT {COLUMNS} FROM virtual_keys WHERE {column} = ?1");
                tx.query(&sql, &[(&value).into()]).await?.first_mut().map(read).transpose()
            })
        })
        .await
    }

    /// Returns whether the key with this id is neither revoked nor expired.
    pub(crate) async fn is_virtual_key_valid(&self, id: &str) -> Result<bool, DatabaseError> {
        let id = id.to_owned();
        self.run(Access::Query, move |tx| {
            Box::pin(async move {
                let sql = format!("SELECT 1 FROM virtual_keys WHERE id = ?1 AND {UNEXPIRED}");
                Ok(!tx.query(&sql, &[(&id).into()]).await?.is_empty())
            })
        })
        .await
    }

    /// Records that the key with this id is used today.
    pub(crate) async fn note_virtual_key_use(&self, id: &str) -> Result<(), DatabaseError> {
        let id = id.to_owned();
        self.run(Access::Statement, move |tx| {
            Box::pin(async move {
                // The number of the day since 1970: a day has 86,400,000 ms, and the backend replaces `{now}` by the
                // time in milliseconds.
                let sql = "UPDATE virtual_keys SET last_day = {now} / 86400000 WHERE id = ?1";
                tx.execute(sql, &[(&id).into()]).await.map(drop)
            })
        })
        .await
    }

    /// Revokes the key with this id, and deletes its counts of requests and of spending: the rows of `request_quotas`
    /// and `spending` whose column `client` has the value `account`. Returns whether there was such a key.
    pub(crate) async fn revoke_virtual_key(&self, id: &str, account: &str) -> Result<bool, DatabaseError> {
        let (id, account) = (id.to_owned(), account.to_owned());
        self.run(Access::Transaction, move |tx| {
            Box::pin(async move {
                tx.execute("DELETE FROM request_quotas WHERE client = ?1", &[(&account).into()]).await?;
                tx.execute("DELETE FROM spending WHERE client = ?1", &[(&account).into()]).await?;
                Ok(tx.execute("DELETE FROM virtual_keys WHERE id = ?1", &[(&id).into()]).await? > 0)
            })
        })
        .await
    }
}

/// Reads a row of [`COLUMNS`]. The table has no nulls: 0 means that the key does not expire, and -1 that a limit is
/// absent or that the key was never used.
fn read(row: &mut SqlRow) -> Result<StoredVirtualKey, DatabaseError> {
    let id = row.text(0)?;
    let damaged = || DatabaseError::DamagedKey { id: id.clone() };
    // An invalid number is an error, since it must not count as no limit.
    let limit = |value: i64| match value {
        -1 => Ok(None),
        value => u64::try_from(value).map(Some).map_err(|_| damaged()),
    };
    let requests = limit(row.integer(9)?)?.map(u32::try_from).transpose().map_err(|_| damaged())?;
    // Columns 9 to 12 are the limits, 13 is the present time.
    let limits = KeyLimits {
        requests_per_minute: requests,
        tokens_per_day: limit(row.integer(10)?)?,
        cost_per_day: limit(row.integer(11)?)?,
        models: serde_json::from_str(&row.text(12)?).map_err(|_| damaged())?,
    };
    let (expires, last_day, now) = (row.integer(7)?, row.integer(8)?, row.integer(13)?);
    Ok(StoredVirtualKey {
        id,
        digest: row.text(1)?,
        client: row.text(2)?,
        tenant: row.text(3)?,
        name: row.text(4)?,
        who: row.text(5)?,
        made: row.integer(6)?,
        expires: (expires != 0).then_some(expires),
        is_expired: expires != 0 && expires <= now,
        last_used: (last_day >= 0).then(|| last_day.saturating_mul(DAY_MILLIS)),
        is_used_today: last_day == now.div_euclid(DAY_MILLIS),
        limits,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::DatabaseAddress;
    use crate::database::postgres::tests as postgres;

    fn new_key(id: &str, client: &str, name: &str, expires: Option<i64>) -> NewVirtualKey {
        let own = str::to_owned;
        let digest = format!("digest of {id}");
        let limits = KeyLimits {
            requests_per_minute: Some(7),
            tokens_per_day: None,
            cost_per_day: Some(1_500_000),
            models: vec![own("double"), own("a \"b\"")],
        };
        let (id, client, name) = (own(id), own(client), own(name));
        NewVirtualKey { id, digest, client, tenant: own("mail"), name, who: own("bob"), expires, limits }
    }

    async fn check(place: DatabaseAddress) {
        let database = Database::open(&place).await.unwrap();
        let add = async |key: NewVirtualKey, most: i64| database.add_virtual_key(key, most).await.unwrap();
        assert_eq!(add(new_key("k1", "a", "one", None), 2).await, AddedKey::Added);
        assert_eq!(add(new_key("k2", "a", "one", None), 2).await, AddedKey::NameTaken);
        assert_eq!(add(new_key("k2", "a", "two", Some(1)), 2).await, AddedKey::Added);
        assert_eq!(add(new_key("k3", "a", "three", None), 2).await, AddedKey::Full);
        assert_eq!(add(new_key("k3", "b", "one", Some(i64::MAX)), 2).await, AddedKey::Added);
        let found = database.virtual_key_of("digest of k1").await.unwrap().unwrap();
        assert_eq!(found.limits, new_key("k1", "a", "one", None).limits);
        assert_eq!(
            (found.id.as_str(), found.client.as_str(), found.tenant.as_str(), found.who.as_str()),
            ("k1", "a", "mail", "bob")
        );
        assert_eq!((found.expires, found.is_expired, found.last_used), (None, false, None));
        assert!(!found.is_used_today && found.made > 0);
        assert_eq!(database.virtual_key_of("digest of k").await.unwrap(), None);
        for (id, is_expired, is_valid) in [
            ("k1", Some(false), true),
            ("k2", Some(true), false),
            ("k3", Some(false), true),
            ("k4", None, false),
        ] {
            let stored = database.virtual_key(id).await.unwrap();
            assert_eq!(stored.map(|key| key.is_expired), is_expired, "{id}");
            assert_eq!(database.is_virtual_key_valid(id).await.unwrap(), is_valid, "{id}");
        }
        database.note_virtual_key_use("k1").await.unwrap();
        let used = database.virtual_key("k1").await.unwrap().unwrap();
        assert!(used.last_used.is_some_and(|day| day % DAY_MILLIS == 0 && day > found.made - 2 * DAY_MILLIS));
        let of = async |tenant: Option<&str>| {
            let keys = database.virtual_keys(tenant).await.unwrap();
            let mut ids: Vec<String> = keys.into_iter().map(|key| key.id).collect();
            ids.sort();
            ids
        };
        assert_eq!(of(None).await, ["k1", "k2", "k3"]);
        assert_eq!(of(Some("mail")).await, ["k1", "k2", "k3"]);
        assert_eq!(of(Some("bank")).await, [""; 0]);
        for account in ["account of k1", "account of k2"] {
            database.take_request(account, 1).await.unwrap();
            database.add_spending(account, 10, 3).await.unwrap();
        }
        assert!(database.revoke_virtual_key("k1", "account of k1").await.unwrap());
        assert!(!database.revoke_virtual_key("k1", "account of k1").await.unwrap());
        // Nothing that was counted for the key remains, and all that was counted for another one.
        for (account, rows) in [("account of k1", 0), ("account of k2", 1)] {
            for table in ["request_quotas", "spending"] {
                let sql = format!("SELECT COUNT(*) FROM {table} WHERE client = '{account}'");
                let found = database.query_for_test(&sql).await.unwrap();
                assert_eq!(found.first().unwrap().integer(0).unwrap(), rows, "{table} {account}");
            }
        }
        assert!(!database.is_virtual_key_valid("k1").await.unwrap());
        // The name is free again.
        assert_eq!(add(new_key("k5", "a", "one", None), 2).await, AddedKey::Added);
        // A limit that was changed to nonsense is an error, not the absence of a limit.
        database.execute_for_test("UPDATE virtual_keys SET tokens_per_day = -2").await.unwrap();
        let damaged = database.virtual_key("k5").await;
        assert!(matches!(&damaged, Err(DatabaseError::DamagedKey { id }) if id == "k5"), "{damaged:?}");
        database.close().await;
    }

    #[tokio::test]
    async fn keys_are_stored_listed_and_revoked() {
        check(DatabaseAddress::Memory).await;
        let Some(url) = postgres::create_database("virtual_keys").await else { return };
        check(DatabaseAddress::Postgres(url)).await;
    }
}
