//! Access: keys for programs, short-lived secrets for browsers.
//!
//! A key is `rk_<id>_<secret>`. The id finds the row, the secret proves it. The store keeps only SHA-256 over a salt
//! and the secret: a slow password hash protects short secrets that people choose, against guessing; 260 random bits
//! cannot be guessed at any speed, and every connection checks a key. The salt hides equal secrets. One key may have
//! another form: the operator chose it.

use crate::ids::{random_bytes, random_letters};
use crate::sessions::check_user;
use crate::writer::WriteQueue;
use crate::{Error, Store};
use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};
use sqlx::FromRow;
use subtle::ConstantTimeEq;

const SECRET_LETTERS: usize = 52; // five bits a letter
const KEY_ID_LETTERS: usize = 12;
const SALT_BYTES: usize = 16;
/// Id of the key that an operator chose. Ids of other keys are longer.
const GIVEN_KEY: &str = "given";
/// Least time between two updates of `last_used_at_ms`, which may be inexact: a write for each connection is a flush
/// for each connection.
const USE_NOTED_EVERY_MS: i64 = 60_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, strum::Display, strum::EnumString)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum KeyScope {
    Talk,
    /// List, read, export, search and delete the user's sessions.
    Sessions,
    /// Metrics, comparisons, everything that looks across users.
    Admin,
}

#[derive(sqlx::Type)]
#[sqlx(transparent)]
struct ScopeWords(String);

impl From<ScopeWords> for Vec<KeyScope> {
    fn from(words: ScopeWords) -> Vec<KeyScope> {
        // A scope of a newer release is one this release cannot grant.
        words.0.split_whitespace().filter_map(|word| word.parse().ok()).collect()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, FromRow)]
pub struct ApiKey {
    pub id: String,
    pub user: String,
    pub name: String,
    #[sqlx(try_from = "ScopeWords")]
    pub scopes: Vec<KeyScope>,
    pub created_at_ms: i64,
    pub revoked_at_ms: Option<i64>,
    pub last_used_at_ms: Option<i64>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ClientSecret {
    pub value: String,
    pub expires_at_ms: i64,
}

#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct Identity {
    pub user: String,
    /// Key, or the key that made the secret. `None` for a secret made without one.
    pub key: Option<String>,
    pub key_name: Option<String>,
    #[sqlx(try_from = "ScopeWords")]
    pub scopes: Vec<KeyScope>,
    pub session: Option<Value>,
}

impl Identity {
    pub fn may(&self, scope: KeyScope) -> bool {
        self.scopes.contains(&scope)
    }
}

struct Secret {
    id: String,
    shown: String,
    salt: Vec<u8>,
    hash: Vec<u8>,
}

impl Secret {
    fn new(kind: &str) -> Result<Secret, Error> {
        let (id, secret, salt) =
            (random_letters(KEY_ID_LETTERS)?, random_letters(SECRET_LETTERS)?, random_bytes(SALT_BYTES)?);
        Ok(Secret { shown: format!("{kind}_{id}_{secret}"), hash: hash(&salt, &secret).to_vec(), id, salt })
    }
}

#[derive(FromRow)]
struct Candidate {
    salt: Vec<u8>,
    hash: Vec<u8>,
    use_is_to_be_noted: bool,
    #[sqlx(flatten)]
    identity: Identity,
}

impl Store {
    /// Creates a key for an existing user. The key itself is in the answer only; the store does not keep it.
    pub async fn create_key(
        &self,
        user: &str,
        name: &str,
        scopes: &[KeyScope],
        now_ms: i64,
    ) -> Result<(ApiKey, String), Error> {
        let Secret { id, shown, salt, hash } = Secret::new("rk")?;
        let key = ApiKey {
            id,
            user: user.to_owned(),
            name: name.to_owned(),
            scopes: scopes.to_vec(),
            created_at_ms: now_ms,
            revoked_at_ms: None,
            last_used_at_ms: None,
        };
        self.write(async move |connection| {
            check_user(connection, &key.user).await?;
            let query = sqlx::query(
                "INSERT INTO api_keys (id, user, name, salt, hash, scopes, created_at_ms) VALUES (?, ?, ?, ?, ?, ?, ?)",
            );
            let scopes: Vec<String> = key.scopes.iter().map(KeyScope::to_string).collect();
            let query = query.bind(&key.id).bind(&key.user).bind(&key.name).bind(salt).bind(hash);
            query.bind(scopes.join(" ")).bind(now_ms).execute(connection).await?;
            Ok((key, shown))
        })
        .await
    }

    /// Lets in clients with a key that the operator chose, in the place of the last one. `None`: that one is revoked.
    pub async fn put_given_key(
        &self,
        user: &str,
        key: Option<&str>,
        scopes: &[KeyScope],
        now_ms: i64,
    ) -> Result<(), Error> {
        let Some(key) = key else {
            let query = sqlx::query("UPDATE api_keys SET revoked_at_ms = coalesce(revoked_at_ms, ?) WHERE id = ?");
            return self.execute(query.bind(now_ms).bind(GIVEN_KEY)).await.map(drop);
        };
        let salt = random_bytes(SALT_BYTES)?;
        let scopes: Vec<String> = scopes.iter().map(KeyScope::to_string).collect();
        let query = sqlx::query(
            "INSERT INTO api_keys (id, user, name, salt, hash, scopes, created_at_ms)
             VALUES (?, ?, 'of the command line', ?, ?, ?, ?)
             ON CONFLICT (id) DO UPDATE SET user = excluded.user, salt = excluded.salt, hash = excluded.hash,
                scopes = excluded.scopes, created_at_ms = excluded.created_at_ms, revoked_at_ms = NULL",
        );
        let hash = hash(&salt, key).to_vec();
        let query = query.bind(GIVEN_KEY).bind(user.to_owned()).bind(salt).bind(hash).bind(scopes.join(" "));
        self.execute(query.bind(now_ms)).await.map(drop)
    }

    pub async fn keys(&self, user: Option<&str>) -> Result<Vec<ApiKey>, Error> {
        let query = sqlx::query_as("SELECT * FROM api_keys WHERE ?1 IS NULL OR user = ?1 ORDER BY created_at_ms, id");
        self.read(async |reader| Ok(query.bind(user).fetch_all(reader).await?)).await
    }

    /// Revokes a key by its id: the next check refuses it, and every secret made with it.
    pub async fn revoke_key(&self, id: &str, now_ms: i64) -> Result<(), Error> {
        let key = id.to_owned();
        let query = sqlx::query("UPDATE api_keys SET revoked_at_ms = coalesce(revoked_at_ms, ?) WHERE id = ?");
        let revoked = self.execute(query.bind(now_ms).bind(key.clone())).await?;
        if revoked == 1 { Ok(()) } else { Err(Error::NoKey { key }) }
    }

    pub async fn create_client_secret(
        &self,
        identity: &Identity,
        session: Value,
        lifetime_ms: i64,
        now_ms: i64,
    ) -> Result<ClientSecret, Error> {
        let Secret { id, shown, salt, hash } = Secret::new("ek")?;
        let expires_at_ms = now_ms.saturating_add(lifetime_ms);
        let (user, key, quota) = (identity.user.clone(), identity.key.clone(), self.quota.clone());
        // Removes them in its own transaction, so that they go even if this secret is refused.
        self.remove_expired_secrets(now_ms).await?;
        self.write(async move |connection| {
            quota.take(connection, &user, session.to_string().len(), now_ms).await?;
            let query = sqlx::query(
                "INSERT INTO client_secrets (id, user, api_key, salt, hash, session, created_at_ms, expires_at_ms)
                 VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            );
            let query = query.bind(id).bind(user).bind(key).bind(salt).bind(hash);
            query.bind(session).bind(now_ms).bind(expires_at_ms).execute(connection).await?;
            Ok(())
        })
        .await?;
        Ok(ClientSecret { value: shown, expires_at_ms })
    }

    /// Checks a key or secret. `None` refuses it, without a reason that would help to guess.
    pub async fn identify(&self, presented: &str, now_ms: i64) -> Result<Option<Identity>, Error> {
        let mut pieces = presented.splitn(3, '_');
        let (kind, id, secret) = match (pieces.next(), pieces.next(), pieces.next()) {
            (Some(kind @ ("rk" | "ek")), Some(id), Some(secret)) => (kind, id, secret),
            _ => ("rk", GIVEN_KEY, presented),
        };
        // A secret goes to a browser: it may only talk, whatever its maker may do.
        let query = sqlx::query_as(
            "SELECT salt, hash, last_used_at_ms IS NULL OR last_used_at_ms <= ?4 AS use_is_to_be_noted,
                    user, id AS key, name AS key_name, scopes, NULL AS session
                FROM api_keys WHERE ?1 = 'rk' AND id = ?2 AND revoked_at_ms IS NULL
             UNION ALL
             SELECT c.salt, c.hash, FALSE, c.user, c.api_key, k.name, 'talk', c.session
                FROM client_secrets c LEFT JOIN api_keys k ON k.id = c.api_key
                WHERE ?1 = 'ek' AND c.id = ?2 AND c.expires_at_ms > ?3
                    AND (c.api_key IS NULL OR k.revoked_at_ms IS NULL)",
        );
        let query = query.bind(kind).bind(id).bind(now_ms).bind(now_ms.saturating_sub(USE_NOTED_EVERY_MS));
        let found: Option<Candidate> = self.read_keys(async |reader| Ok(query.fetch_optional(reader).await?)).await?;
        // The check takes the same time for an unknown id and for a wrong secret.
        let (salt, kept) = found.as_ref().map_or((&[0; SALT_BYTES][..], &[0; 32][..]), |row| (&row.salt, &row.hash));
        let is_proved: bool = hash(salt, secret).as_slice().ct_eq(kept).into();
        let Some(found) = found.filter(|_| is_proved) else { return Ok(None) };
        if found.use_is_to_be_noted {
            let id = id.to_owned();
            // The request does not wait for this, and a full queue or a full disk does not refuse it.
            let _ = self.write_later(WriteQueue::Turns, async move |connection| {
                let query = sqlx::query("UPDATE api_keys SET last_used_at_ms = ? WHERE id = ?");
                query.bind(now_ms).bind(id).execute(connection).await?;
                Ok(())
            });
        }
        Ok(Some(found.identity))
    }
}

fn hash(salt: &[u8], secret: &str) -> [u8; 32] {
    Sha256::new().chain_update(salt).chain_update(secret.as_bytes()).finalize().into()
}
