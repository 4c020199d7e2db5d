//! Deleting really deletes: rows, the index over their words, the write-ahead log. What was computed of the conversation
//! is not the store's: the store keeps a note of it until the service has dropped it.
//!
//! First the session is marked, in one small transaction: from then on no reader finds it. Then its rows go a hundred at a
//! time, so that a user's turn does not wait for a year of another user's talk. The next start finishes what a crash cut off.

use crate::rows::column;
use crate::writer::StoreFailure;
use crate::{Error, SessionRef, Store};
use sqlx::query::Query;
use sqlx::sqlite::{Sqlite, SqliteArguments, SqliteConnection, SqliteRow};

/// Rows that go in one transaction. Taking words out of the index for good is slow, and other writes wait for it.
const ROWS_AT_ONCE: u64 = 100;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Deleted {
    pub sessions: u64,
    /// The owners of what is to be dropped (`SessionRef::past_owner`). They stay in `pasts_to_forget` until
    /// `pasts_forgotten` is called.
    pub past_owners: Vec<u64>,
}

impl Store {
    pub async fn delete_session(&self, session: &SessionRef, now_ms: i64) -> Result<Deleted, Error> {
        self.mark_and_remove(session, None, now_ms).await?;
        self.forget_the_log().await?;
        Ok(Deleted { sessions: 1, past_owners: vec![session.past_owner()] })
    }

    /// Sessions of all users that were not used since `before_ms`, and secrets that have expired.
    pub async fn delete_unused_since(&self, before_ms: i64, now_ms: i64) -> Result<Deleted, Error> {
        let query = sqlx::query(
            "SELECT key, id, user FROM sessions WHERE deleted_at_ms IS NULL AND updated_at_ms < ? ORDER BY key",
        );
        let sessions = self.each(&self.rows(query.bind(before_ms)).await?, session_ref)?;
        let mut deleted = Deleted::default();
        for session in sessions {
            match self.mark_and_remove(&session, Some(before_ms), now_ms).await {
                Ok(()) => {
                    deleted.sessions += 1;
                    deleted.past_owners.push(session.past_owner());
                }
                Err(Error::NoSession { .. }) => {} // used or deleted in the meantime
                Err(error) => return Err(error),
            }
        }
        self.write(move |connection| {
            Box::pin(async move {
                let query = sqlx::query("DELETE FROM client_secrets WHERE expires_at_ms < ?");
                query.bind(now_ms).execute(connection).await?;
                Ok(())
            })
        })
        .await?;
        if deleted.sessions > 0 {
            self.forget_the_log().await?;
        }
        Ok(deleted)
    }

    /// The owners of what was computed of deleted sessions and may still be there: at start, and after each deletion.
    pub async fn pasts_to_forget(&self) -> Result<Vec<u64>, Error> {
        let rows = self.rows(sqlx::query("SELECT owner FROM pasts_to_forget ORDER BY since_ms, owner")).await?;
        self.each(&rows, |row| Ok(column::<i64>(row, "owner")?.cast_unsigned()))
    }

    /// The service has dropped what it computed of these.
    pub async fn pasts_forgotten(&self, owners: Vec<u64>) -> Result<(), Error> {
        self.write(move |connection| {
            Box::pin(async move {
                for owner in owners {
                    let done = sqlx::query("DELETE FROM pasts_to_forget WHERE owner = ?").bind(owner.cast_signed());
                    done.execute(&mut *connection).await?;
                }
                Ok(())
            })
        })
        .await
    }

    /// Finishes deletions that a crash cut off, and takes away what it left of imports (see `import.rs`).
    pub(crate) async fn finish_removals(&self) -> Result<(), Error> {
        let rows = self.rows(sqlx::query("SELECT key FROM sessions WHERE deleted_at_ms IS NOT NULL")).await?;
        for key in self.each(&rows, |row| column(row, "key"))? {
            self.remove_rows(key).await?;
        }
        if rows.is_empty() { Ok(()) } else { self.forget_the_log().await }
    }

    /// Removes all rows of a session that is marked.
    pub(crate) async fn remove_rows(&self, key: i64) -> Result<(), Error> {
        for removal in REMOVALS {
            let mut removed = ROWS_AT_ONCE;
            while removed == ROWS_AT_ONCE {
                let some = self.write(move |connection| {
                    Box::pin(
                        async move { Ok(removal().bind(key).bind(ROWS_AT_ONCE as i64).execute(connection).await?) },
                    )
                });
                removed = some.await?.rows_affected();
            }
        }
        self.write(move |connection| {
            Box::pin(async move {
                let last = sqlx::query("DELETE FROM sessions WHERE key = ? AND deleted_at_ms IS NOT NULL");
                last.bind(key).execute(connection).await?;
                Ok(())
            })
        })
        .await
    }

    async fn mark_and_remove(
        &self,
        session: &SessionRef,
        unused_since_ms: Option<i64>,
        now_ms: i64,
    ) -> Result<(), Error> {
        let marked = session.clone();
        self.write(move |connection| {
            Box::pin(async move { mark(connection, &marked, unused_since_ms.unwrap_or(i64::MAX), now_ms).await })
        })
        .await?;
        self.remove_rows(session.key).await
    }

    /// Until the log is written back, deleted words can still be read in it.
    async fn forget_the_log(&self) -> Result<(), Error> {
        let busy: i64 = self
            .upkeep(|connection| {
                Box::pin(async move {
                    sqlx::query("PRAGMA incremental_vacuum").execute(&mut *connection).await?;
                    let row = sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)").fetch_one(connection).await?;
                    column(&row, "busy")
                })
            })
            .await?;
        if busy != 0 {
            tracing::warn!("a long read keeps deleted words in the write-ahead log until the next checkpoint");
        }
        Ok(())
    }
}

fn session_ref(row: &SqliteRow) -> Result<SessionRef, StoreFailure> {
    let (user, id): (&str, &str) = (column(row, "user")?, column(row, "id")?);
    Ok(SessionRef { key: column(row, "key")?, user: user.into(), id: id.into() })
}

async fn mark(
    connection: &mut SqliteConnection,
    session: &SessionRef,
    unused_since_ms: i64,
    now_ms: i64,
) -> Result<(), StoreFailure> {
    let query = sqlx::query(
        "UPDATE sessions SET deleted_at_ms = ?
         WHERE key = ? AND deleted_at_ms IS NULL AND updated_at_ms < ?",
    );
    let query = query.bind(now_ms).bind(session.key).bind(unused_since_ms);
    if query.execute(&mut *connection).await?.rows_affected() != 1 {
        return Err(session.missing().into());
    }
    let query = sqlx::query("INSERT OR REPLACE INTO pasts_to_forget (owner, since_ms) VALUES (?, ?)");
    query.bind(session.past_owner().cast_signed()).bind(now_ms).execute(connection).await?;
    Ok(())
}

/// What points to something goes before what it points to. Each takes the session's key and how many rows may go.
const REMOVALS: [fn() -> Query<'static, Sqlite, SqliteArguments>; 7] = [
    || {
        sqlx::query(
            "DELETE FROM items WHERE (session, item_id) IN (SELECT session, item_id FROM items WHERE session = ? LIMIT ?)",
        )
    },
    || {
        sqlx::query(
            "DELETE FROM reply_pieces WHERE (version, n) IN (SELECT p.version, p.n FROM item_versions v
                JOIN reply_pieces p ON p.version = v.key WHERE v.session = ? LIMIT ?)",
        )
    },
    || sqlx::query("DELETE FROM item_versions WHERE key IN (SELECT key FROM item_versions WHERE session = ? LIMIT ?)"),
    || sqlx::query("DELETE FROM summaries WHERE key IN (SELECT key FROM summaries WHERE session = ? LIMIT ?)"),
    || sqlx::query("DELETE FROM pins WHERE key IN (SELECT key FROM pins WHERE session = ? LIMIT ?)"),
    || sqlx::query("DELETE FROM responses WHERE key IN (SELECT key FROM responses WHERE session = ? LIMIT ?)"),
    || sqlx::query("DELETE FROM measurements WHERE key IN (SELECT key FROM measurements WHERE session = ? LIMIT ?)"),
];
