//! What opens the service: keys for programs, short-lived secrets for browsers.
//!
//! A key is `rk_<id>_<secret>`. The id finds the row, the secret proves it. Of the secret only SHA-256 over a salt and it
//! is kept: a slow password hash protects short secrets that people choose, against guessing; 260 random bits cannot be
//! guessed at any speed, and a key is checked on every connection. The salt keeps equal hashes from telling anything.

use crate::ids::{random_bytes, random_letters};
use crate::records::words;
use crate::rows::{column, json, json_text};
use crate::writer::StoreFailure;
use crate::{Error, Store};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use sqlx::sqlite::SqliteRow;
use subtle::ConstantTimeEq;

const SECRET_LETTERS: usize = 52; // five bits a letter
const KEY_ID_LETTERS: usize = 12;
const SALT_BYTES: usize = 16;
/// `last_used_at_ms` need not be exact, and a write for each connection is a flush for each connection.
const USE_NOTED_EVERY_MS: i64 = 60_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Hold conversations.
    Talk,
    /// List, read, export, search and delete the user's sessions.
    Sessions,
    /// Metrics, comparisons, everything that looks across users.
    Admin,
}

words! { Scope { Talk = "talk", Sessions = "sessions", Admin = "admin" } }

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewApiKey {
    pub user: String,
    pub name: String,
    pub scopes: Vec<Scope>,
    pub created_at_ms: i64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ApiKey {
    pub id: String,
    pub user: String,
    pub name: String,
    pub scopes: Vec<Scope>,
    pub created_at_ms: i64,
    pub revoked_at_ms: Option<i64>,
    pub last_used_at_ms: Option<i64>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ClientSecret {
    /// Shown once.
    pub value: String,
    pub expires_at_ms: i64,
}

/// The user for whom a key or a secret speaks.
#[derive(Debug, Clone, PartialEq)]
pub struct Identity {
    pub user: String,
    /// The key itself, or the one the secret was made with. None: a secret made without one.
    pub key: Option<String>,
    pub scopes: Vec<Scope>,
    /// Settings a client secret was made with.
    pub session: Option<Value>,
}

impl Identity {
    pub fn may(&self, scope: Scope) -> bool {
        self.scopes.contains(&scope)
    }
}

impl Store {
    /// The key itself is in the answer and nowhere else. The user must be there.
    pub async fn create_key(&self, new: NewApiKey) -> Result<(ApiKey, String), Error> {
        let id = random_letters(KEY_ID_LETTERS)?;
        let secret = random_letters(SECRET_LETTERS)?;
        let salt = random_bytes(SALT_BYTES)?;
        let hash = hash(&salt, &secret);
        let shown = format!("rk_{id}_{secret}");
        let key = self
            .write(move |connection| {
                Box::pin(async move {
                    let user = sqlx::query("SELECT 1 FROM users WHERE id = ?").bind(&new.user);
                    if user.fetch_optional(&mut *connection).await?.is_none() {
                        return Err(Error::NoUser { user: new.user }.into());
                    }
                    let query = sqlx::query(
                        "INSERT INTO api_keys (id, user, name, salt, hash, scopes, created_at_ms)
                         VALUES (?, ?, ?, ?, ?, ?, ?) RETURNING *",
                    );
                    let row = query
                        .bind(id)
                        .bind(new.user)
                        .bind(new.name)
                        .bind(salt)
                        .bind(hash.as_slice())
                        .bind(scopes_text(&new.scopes))
                        .bind(new.created_at_ms)
                        .fetch_one(connection)
                        .await?;
                    key_of(&row)
                })
            })
            .await?;
        Ok((key, shown))
    }

    /// Of one user, or of all.
    pub async fn keys(&self, user: Option<&str>) -> Result<Vec<ApiKey>, Error> {
        let query = sqlx::query("SELECT * FROM api_keys WHERE ?1 IS NULL OR user = ?1 ORDER BY created_at_ms, id");
        let rows = self.rows(query.bind(user)).await?;
        self.each(&rows, key_of)
    }

    /// By its id. From the next check on it is refused, and so is every secret made with it.
    pub async fn revoke_key(&self, id: &str, now_ms: i64) -> Result<(), Error> {
        let id = id.to_owned();
        self.write(move |connection| {
            Box::pin(async move {
                let query = sqlx::query("UPDATE api_keys SET revoked_at_ms = coalesce(revoked_at_ms, ?) WHERE id = ?");
                let revoked = query.bind(now_ms).bind(&id).execute(connection).await?;
                if revoked.rows_affected() == 1 { Ok(()) } else { Err(Error::NoKey { key: id }.into()) }
            })
        })
        .await
    }

    pub async fn create_client_secret(
        &self,
        identity: &Identity,
        session: Value,
        lifetime_ms: i64,
        now_ms: i64,
    ) -> Result<ClientSecret, Error> {
        let (id, secret) = (random_letters(KEY_ID_LETTERS)?, random_letters(SECRET_LETTERS)?);
        let salt = random_bytes(SALT_BYTES)?;
        let hash = hash(&salt, &secret);
        let value = format!("ek_{id}_{secret}");
        let (user, api_key) = (identity.user.clone(), identity.key.clone());
        let expires_at_ms = now_ms.saturating_add(lifetime_ms);
        self.write(move |connection| {
            Box::pin(async move {
                let query = sqlx::query(
                    "INSERT INTO client_secrets (id, user, api_key, salt, hash, session, created_at_ms, expires_at_ms)
                     VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                );
                query
                    .bind(id)
                    .bind(user)
                    .bind(api_key)
                    .bind(salt)
                    .bind(hash.as_slice())
                    .bind(json_text(&session))
                    .bind(now_ms)
                    .bind(expires_at_ms)
                    .execute(connection)
                    .await?;
                Ok(())
            })
        })
        .await?;
        Ok(ClientSecret { value, expires_at_ms })
    }

    /// None: refused, without a reason that would help to guess.
    pub async fn identify(&self, presented: &str, now_ms: i64) -> Result<Option<Identity>, Error> {
        let mut pieces = presented.splitn(3, '_');
        let (Some(kind), Some(id), Some(secret)) = (pieces.next(), pieces.next(), pieces.next()) else {
            return Ok(None);
        };
        match kind {
            "rk" => self.identify_key(id, secret, now_ms).await,
            "ek" => self.identify_client_secret(id, secret, now_ms).await,
            _ => Ok(None),
        }
    }

    async fn identify_key(&self, id: &str, secret: &str, now_ms: i64) -> Result<Option<Identity>, Error> {
        let query = sqlx::query("SELECT * FROM api_keys WHERE id = ? AND revoked_at_ms IS NULL").bind(id);
        let row = self.optional_row(query).await?;
        if !proves(row.as_ref(), secret).map_err(|failure| failure.at(self.path()))? {
            return Ok(None);
        }
        let key = row.map(|row| key_of(&row)).transpose().map_err(|failure| failure.at(self.path()))?;
        let Some(key) = key else { return Ok(None) };
        if key.last_used_at_ms.is_none_or(|last| now_ms.saturating_sub(last) >= USE_NOTED_EVERY_MS) {
            let id = key.id.clone();
            // The request does not wait for this, and a full queue or a full disk does not refuse it.
            let _ = self.write_later(move |connection| {
                Box::pin(async move {
                    let query = sqlx::query("UPDATE api_keys SET last_used_at_ms = ? WHERE id = ?");
                    query.bind(now_ms).bind(id).execute(connection).await?;
                    Ok(())
                })
            });
        }
        Ok(Some(Identity { user: key.user, key: Some(key.id), scopes: key.scopes, session: None }))
    }

    async fn identify_client_secret(&self, id: &str, secret: &str, now_ms: i64) -> Result<Option<Identity>, Error> {
        let query = sqlx::query(
            "SELECT c.* FROM client_secrets c LEFT JOIN api_keys k ON k.id = c.api_key
             WHERE c.id = ? AND c.expires_at_ms > ? AND (c.api_key IS NULL OR k.revoked_at_ms IS NULL)",
        );
        let row = self.optional_row(query.bind(id).bind(now_ms)).await?;
        let identity = || {
            if !proves(row.as_ref(), secret)? {
                return Ok(None);
            }
            let Some(row) = &row else { return Ok(None) };
            // It goes to a browser: it may talk, whatever else its maker may do.
            let (scopes, session) = (vec![Scope::Talk], Some(json(row, "session")?));
            Ok(Some(Identity { user: column(row, "user")?, key: column(row, "api_key")?, scopes, session }))
        };
        identity().map_err(|failure: StoreFailure| failure.at(self.path()))
    }
}

/// Takes as long for an id that is not there, and for any wrong secret.
fn proves(row: Option<&SqliteRow>, secret: &str) -> Result<bool, StoreFailure> {
    let no_key = ([0; SALT_BYTES].as_slice(), [0; 32].as_slice());
    let (salt, kept) = match row {
        Some(row) => (column(row, "salt")?, column(row, "hash")?),
        None => no_key,
    };
    let same: bool = hash(salt, secret).as_slice().ct_eq(kept).into();
    Ok(same && row.is_some())
}

fn hash(salt: &[u8], secret: &str) -> [u8; 32] {
    Sha256::new().chain_update(salt).chain_update(secret.as_bytes()).finalize().into()
}

fn scopes_text(scopes: &[Scope]) -> String {
    scopes.iter().map(|scope| scope.word()).collect::<Vec<_>>().join(" ")
}

fn key_of(row: &SqliteRow) -> Result<ApiKey, StoreFailure> {
    let scopes: &str = column(row, "scopes")?;
    Ok(ApiKey {
        id: column(row, "id")?,
        user: column(row, "user")?,
        name: column(row, "name")?,
        // A scope of a newer release is one this release cannot grant.
        scopes: scopes.split_whitespace().filter_map(Scope::from_word).collect(),
        created_at_ms: column(row, "created_at_ms")?,
        revoked_at_ms: column(row, "revoked_at_ms")?,
        last_used_at_ms: column(row, "last_used_at_ms")?,
    })
}
