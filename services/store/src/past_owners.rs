//! Owners of computed data for conversations that clients hold.
//!
//! Such a request belongs to no session. Its owner is a person in a room, whose number is stored here before any of its
//! data can be on disk: so the data goes when the person is deleted, when one of their kept conversations is, or when
//! it was not used for long.

use crate::error::Result;
use crate::kept_logs::LogOwner;
use crate::records::number_of;
use crate::{Error, Store};
use sha2::{Digest, Sha256};
use sqlx::sqlite::SqliteConnection;

impl LogOwner {
    /// Returns the number that marks this owner's computed data, in memory and on disk.
    pub fn past_owner(&self) -> u64 {
        let LogOwner { user, person, room } = self;
        let parts = [user, person, room].map(|part| part.as_str());
        let hash = parts.iter().fold(Sha256::new().chain_update("a person in a room"), |hash, part| {
            hash.chain_update((part.len() as u64).to_le_bytes()).chain_update(part)
        });
        number_of(hash)
    }
}

impl Store {
    pub async fn note_past_owner(&self, owner: &LogOwner, now_ms: i64) -> Result<(), Error> {
        let query = sqlx::query(
            "INSERT INTO past_owners (owner, user, person, room, used_at_ms) VALUES (?, ?, ?, ?, ?)
             ON CONFLICT (owner) DO UPDATE SET used_at_ms = max(used_at_ms, excluded.used_at_ms)",
        );
        let LogOwner { user, person, room } = owner.clone();
        let query = query.bind(owner.past_owner().cast_signed()).bind(user).bind(person).bind(room).bind(now_ms);
        self.execute(query).await.map(drop)
    }

    /// Lists owners that were not used since `before_ms` for the service to drop their data.
    pub(crate) async fn forget_past_owners_unused_since(&self, before_ms: i64, now_ms: i64) -> Result<(), Error> {
        self.write(async move |connection| {
            let query = sqlx::query_scalar("DELETE FROM past_owners WHERE used_at_ms < ? RETURNING owner");
            let owners: Vec<i64> = query.bind(before_ms).fetch_all(&mut *connection).await?;
            for owner in owners {
                forget_past(connection, owner.cast_unsigned(), now_ms).await?;
            }
            Ok(())
        })
        .await
    }
}

/// Lists one owner for the service to drop its data.
pub(crate) async fn forget_past(connection: &mut SqliteConnection, owner: u64, now_ms: i64) -> Result<()> {
    let query = sqlx::query("INSERT OR REPLACE INTO pasts_to_forget (owner, since_ms) VALUES (?, ?)");
    query.bind(owner.cast_signed()).bind(now_ms).execute(connection).await?;
    Ok(())
}

/// Lists a person's owners for dropping, in every room; for a room, those of words that no known person said there.
pub(crate) async fn forget_person(
    connection: &mut SqliteConnection,
    user: &str,
    person: &str,
    now_ms: i64,
) -> Result<()> {
    let query = sqlx::query_scalar(
        "DELETE FROM past_owners
            WHERE user = ?1 AND (person = ?2 AND (?2 <> '' OR room = '') OR person = '' AND room = ?2) RETURNING owner",
    );
    let owners: Vec<i64> = query.bind(user).bind(person).fetch_all(&mut *connection).await?;
    for owner in owners {
        forget_past(connection, owner.cast_unsigned(), now_ms).await?;
    }
    Ok(())
}

/// Lists the owner of a kept conversation for dropping.
pub(crate) async fn forget_owner_of_log(connection: &mut SqliteConnection, session: i64, now_ms: i64) -> Result<()> {
    let query = sqlx::query_as(
        "SELECT user, person, room FROM sessions s WHERE key = ?
            AND EXISTS (SELECT 1 FROM kept_logs l WHERE l.session = s.key)",
    );
    let found: Option<(String, String, String)> = query.bind(session).fetch_optional(&mut *connection).await?;
    let Some((user, person, room)) = found else { return Ok(()) };
    forget_past(connection, LogOwner { user, person, room }.past_owner(), now_ms).await
}
