//! Owners of computed data for conversations that clients hold.
//!
//! Such a request belongs to no session. Its owner is a person in a room, whose number is stored here before any of its
//! data can be on disk: so the data goes when the person is deleted, when one of their kept conversations is, or when
//! it was not used for long.

use crate::error::Result;
use crate::records::number_of;
use crate::{Error, SessionRef, Store};
use session::PastStays;
use sha2::{Digest, Sha256};
use sqlx::sqlite::SqliteConnection;
use sqlx::types::Json;

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct LogOwner {
    pub user: String,
    pub person: String,
    pub room: String,
}

impl LogOwner {
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
            let query = sqlx::query_as("DELETE FROM past_owners WHERE used_at_ms < ? RETURNING owner, user");
            let owners: Vec<(i64, String)> = query.bind(before_ms).fetch_all(&mut *connection).await?;
            for (owner, user) in owners {
                forget_past(connection, &user, owner.cast_unsigned(), PastStays::Nothing, now_ms).await?;
            }
            Ok(())
        })
        .await
    }

    /// Lists the owners whose computed data of deleted words may still exist: to be dropped at start, and after each
    /// deletion.
    pub async fn pasts_to_forget(&self) -> Result<Vec<PastToForget>, Error> {
        let query = sqlx::query_as("SELECT owner, user, stays FROM pasts_to_forget ORDER BY since_ms, owner");
        let owners: Vec<(i64, Option<String>, i64)> =
            self.read(async |reader| Ok(query.fetch_all(reader).await?)).await?;
        let past = |(owner, user, stays): (i64, _, _)| {
            let stays = match stays {
                1 => PastStays::Replies,
                2 => PastStays::Memory,
                _ => PastStays::Nothing,
            };
            PastToForget { owner: owner.cast_unsigned(), user, stays }
        };
        Ok(owners.into_iter().map(past).collect())
    }

    /// Lists a session whose prompt has lost words for the service to drop its files. The caller does not wait.
    pub fn forget_files_of(&self, session: &SessionRef, now_ms: i64) {
        let session = session.clone();
        let _ = self.write_later(session.queue(0), async move |connection| {
            forget_past(connection, session.user(), session.past_owner(), PastStays::Memory, now_ms).await
        });
    }

    pub async fn pasts_forgotten(&self, owners: Vec<u64>) -> Result<(), Error> {
        let owners: Vec<i64> = owners.into_iter().map(u64::cast_signed).collect();
        let query = sqlx::query("DELETE FROM pasts_to_forget WHERE owner IN (SELECT value FROM json_each(?))");
        self.execute(query.bind(Json(owners))).await.map(drop)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PastToForget {
    pub owner: u64,
    /// User of the words. `None`: an older release listed the owner.
    pub user: Option<String>,
    pub stays: PastStays,
}

pub(crate) async fn forget_past(
    connection: &mut SqliteConnection,
    user: &str,
    owner: u64,
    stays: PastStays,
    now_ms: i64,
) -> Result<()> {
    // The least that stays counts.
    let stays = match stays {
        PastStays::Nothing => 0,
        PastStays::Replies => 1,
        PastStays::Memory => 2,
    };
    let query = sqlx::query(
        "INSERT INTO pasts_to_forget (owner, user, stays, since_ms) VALUES (?, ?, ?, ?)
         ON CONFLICT (owner) DO UPDATE SET stays = min(stays, excluded.stays), since_ms = excluded.since_ms",
    );
    query.bind(owner.cast_signed()).bind(user).bind(stays).bind(now_ms).execute(connection).await?;
    Ok(())
}

/// Lists the owners of conversations that clients hold and in which facts of these persons may have been told. The home's
/// facts, whose person is empty, are told to all.
pub(crate) async fn forget_told(
    connection: &mut SqliteConnection,
    user: &str,
    persons: &[&str],
    now_ms: i64,
) -> Result<()> {
    let query = sqlx::query_scalar(
        "SELECT owner FROM past_owners
            WHERE user = ?1 AND (?3 OR person IN (SELECT value FROM json_each(?2)))",
    );
    let is_of_home = persons.contains(&"");
    let owners: Vec<i64> = query.bind(user).bind(Json(persons)).bind(is_of_home).fetch_all(&mut *connection).await?;
    for owner in owners {
        forget_past(connection, user, owner.cast_unsigned(), PastStays::Replies, now_ms).await?;
    }
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
        forget_past(connection, user, owner.cast_unsigned(), PastStays::Nothing, now_ms).await?;
    }
    Ok(())
}

pub(crate) async fn forget_owner_of_log(
    connection: &mut SqliteConnection,
    session: i64,
    stays: PastStays,
    now_ms: i64,
) -> Result<()> {
    let query = sqlx::query_as(
        "SELECT user, person, room FROM sessions s WHERE key = ?
            AND EXISTS (SELECT 1 FROM kept_logs l WHERE l.session = s.key)",
    );
    let found: Option<(String, String, String)> = query.bind(session).fetch_optional(&mut *connection).await?;
    let Some((user, person, room)) = found else { return Ok(()) };
    let owner = LogOwner { user, person, room };
    forget_past(connection, &owner.user, owner.past_owner(), stays, now_ms).await
}
