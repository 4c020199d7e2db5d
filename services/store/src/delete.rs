//! Deleting for good: rows, the index over their words, copies in hidden notes, the write-ahead log. The store does not
//! hold what the service computed of the conversation, but lists it until the service has dropped it.
//!
//! First a small transaction marks the session, which hides it from all readers. Then its rows go a hundred at a time, or
//! fewer long ones, so that a user's turn does not wait for a year of another user's talk. What a client that hung up, a full
//! disk or a crash cut off, a regular call finishes (`finish_deletions`).

use crate::error::Result;
use crate::facts::{FactsOf, leave_session};
use crate::notes::{Copies, withdraw};
use crate::past_owners::{forget_owner_of_log, forget_past};
use crate::writer::WriteQueue;
use crate::{Error, SessionRef, Store};
use parking_lot::Mutex;
use session::PastStays;
use sqlx::query::Query;
use sqlx::sqlite::{Sqlite, SqliteArguments, SqliteConnection};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Rows deleted in one transaction. Taking words out of the index for good is slow, and other writes wait for it.
const ROWS_AT_ONCE: i64 = 100;
const DAY_MS: i64 = 24 * 3600 * 1000;

pub(crate) type Removal = fn() -> Query<'static, Sqlite, SqliteArguments>;

impl Store {
    /// Deletes a session. Its `past_owner` stays in `pasts_to_forget` until `pasts_forgotten` is called.
    pub async fn delete_session(&self, session: &SessionRef, now_ms: i64) -> Result<(), Error> {
        self.mark_and_remove(session, i64::MAX, 0, true, now_ms).await?;
        self.forget_the_log().await
    }

    /// Deletes the sessions of all users that were last used before `before_ms`. Returns their `past_owner`s.
    pub async fn delete_unused_since(&self, before_ms: i64, now_ms: i64) -> Result<Vec<u64>, Error> {
        let query = sqlx::query_as(
            "SELECT key, id, user FROM sessions WHERE deleted_at_ms IS NULL AND updated_at_ms < ? ORDER BY key",
        );
        let unused = self.read(async |reader| Ok(query.bind(before_ms).fetch_all(reader).await?)).await?;
        self.delete_all(unused, before_ms, 0, now_ms).await
    }

    /// Counts the unused time of each session, and deletes sessions unused for `retention_ms`, sessions still empty
    /// after a day, and expired secrets. A sweep adds a day at most: a clock that was a year behind and is set right
    /// makes no session a year old. Returns the sessions' `past_owner`s.
    pub async fn sweep(&self, retention_ms: Option<i64>, now_ms: i64) -> Result<Vec<u64>, Error> {
        let query = sqlx::query(
            "UPDATE sessions SET swept_at_ms = ?1,
                unused_ms = unused_ms + min(max(?1 - coalesce(swept_at_ms, ?1), 0), ?2)
             WHERE deleted_at_ms IS NULL",
        );
        self.execute(query.bind(now_ms).bind(DAY_MS)).await?;
        self.remove_expired_secrets(now_ms).await?;
        self.remove_half_filled(now_ms.saturating_sub(DAY_MS)).await?;
        let query = sqlx::query_as(
            "SELECT key, id, user FROM sessions s WHERE deleted_at_ms IS NULL AND unused_ms >= ?
                AND updated_at_ms = created_at_ms AND NOT EXISTS (SELECT 1 FROM item_versions v WHERE v.session = s.key)",
        );
        let empty = self.read(async |reader| Ok(query.bind(DAY_MS).fetch_all(reader).await?)).await?;
        let mut deleted = self.delete_all(empty, i64::MAX, DAY_MS, now_ms).await?;
        if let Some(retention_ms) = retention_ms {
            let query =
                sqlx::query_as("SELECT key, id, user FROM sessions WHERE deleted_at_ms IS NULL AND unused_ms >= ?");
            let unused = self.read(async |reader| Ok(query.bind(retention_ms).fetch_all(reader).await?)).await?;
            deleted.extend(self.delete_all(unused, i64::MAX, retention_ms, now_ms).await?);
            self.forget_past_owners_unused_since(now_ms.saturating_sub(retention_ms), now_ms).await?;
        }
        Ok(deleted)
    }

    async fn delete_all(
        &self,
        sessions: Vec<SessionRef>,
        before_ms: i64,
        unused_ms: i64,
        now_ms: i64,
    ) -> Result<Vec<u64>, Error> {
        let mut deleted = Vec::new();
        for session in sessions {
            match self.mark_and_remove(&session, before_ms, unused_ms, false, now_ms).await {
                Ok(()) => deleted.push(session.past_owner()),
                Err(Error::NoSession { .. }) => {} // used or deleted in the meantime
                Err(error) => return Err(error),
            }
        }
        if !deleted.is_empty() {
            self.forget_the_log().await?;
        }
        Ok(deleted)
    }

    /// Finishes deletions that a crash cut off, and removes unfinished imports (see `import.rs`). The log of a process
    /// that was killed may hold words that it deleted.
    pub(crate) async fn finish_removals(&self) -> Result<(), Error> {
        let query = sqlx::query_scalar("SELECT key FROM sessions WHERE deleted_at_ms IS NOT NULL");
        let marked: Vec<i64> = self.read(async |reader| Ok(query.fetch_all(reader).await?)).await?;
        for key in &marked {
            self.remove_rows(*key).await?;
        }
        self.forget_the_log().await
    }

    // Removes the rows of sessions whose deletion was cut off: its client hung up, or the disk was full. For a regular call.
    pub async fn finish_deletions(&self) -> Result<(), Error> {
        let query = sqlx::query_scalar("SELECT key FROM sessions WHERE deleted_at_ms > 0");
        let marked: Vec<i64> = self.read(async |reader| Ok(query.fetch_all(reader).await?)).await?;
        for key in marked {
            if let Some(_removing) = Removing::begin(&self.removing, key) {
                self.remove_rows(key).await?;
                self.owe_the_log();
            }
        }
        Ok(())
    }

    // Removes sessions whose client hung up before they were filled: the service acknowledged none of their words.
    async fn remove_half_filled(&self, before_ms: i64) -> Result<(), Error> {
        let query = sqlx::query_scalar("SELECT key FROM sessions WHERE deleted_at_ms < 0 AND -deleted_at_ms < ?");
        let left: Vec<i64> = self.read(async |reader| Ok(query.bind(before_ms).fetch_all(reader).await?)).await?;
        for key in left {
            self.remove_rows(key).await?;
            self.owe_the_log();
        }
        Ok(())
    }

    pub(crate) async fn remove_rows(&self, key: i64) -> Result<(), Error> {
        for removal in REMOVALS {
            self.remove_all(removal, key).await?;
        }
        Ok(())
    }

    pub(crate) async fn remove_expired_secrets(&self, now_ms: i64) -> Result<(), Error> {
        let removal = || {
            sqlx::query(
                "DELETE FROM client_secrets WHERE id IN (SELECT id FROM client_secrets WHERE expires_at_ms < ? LIMIT ?)",
            )
        };
        self.remove_all(removal, now_ms).await
    }

    /// Runs `removal` until it finds no more rows. It takes `number` and a limit of rows.
    pub(crate) async fn remove_all(&self, removal: Removal, number: i64) -> Result<(), Error> {
        let rows = async move |connection: &mut SqliteConnection| {
            Ok(removal().bind(number).bind(ROWS_AT_ONCE).execute(connection).await?.rows_affected())
        };
        while self.write_in(WriteQueue::Pieces, rows).await? > 0 {}
        Ok(())
    }

    async fn mark_and_remove(
        &self,
        session: &SessionRef,
        before_ms: i64,
        unused_ms: i64,
        by_user: bool,
        now_ms: i64,
    ) -> Result<(), Error> {
        if by_user {
            self.delete_facts(session.user(), FactsOf::Session(session.key), now_ms).await?;
        }
        let marked = session.clone();
        self.write_forgetting(session.user(), async move |connection| {
            let query = sqlx::query_scalar(
                "SELECT 1 FROM sessions WHERE key = ? AND deleted_at_ms IS NULL AND updated_at_ms < ? AND unused_ms >= ?",
            );
            let query = query.bind(marked.key).bind(before_ms).bind(unused_ms);
            let found: Option<i64> = query.fetch_optional(&mut *connection).await?;
            found.ok_or_else(|| marked.missing())?;
            mark(connection, &marked, by_user, now_ms).await?;
            Ok(((), true))
        })
        .await?;
        self.remove_marked(session).await
    }

    pub(crate) async fn remove_marked(&self, session: &SessionRef) -> Result<(), Error> {
        let _removing = Removing::begin(&self.removing, session.key);
        self.owe_the_log();
        if let Some(journal) = self.journal() {
            journal.forget(session);
        }
        self.remove_rows(session.key).await
    }

    /// Writes the write-ahead log back: until then it still contains deleted words.
    pub(crate) async fn forget_the_log(&self) -> Result<(), Error> {
        let mut free = i64::MAX;
        while free > 0 {
            let left: i64 = self
                .maintenance(async move |connection| {
                    sqlx::query("PRAGMA incremental_vacuum(256)").execute(&mut *connection).await?;
                    Ok(sqlx::query_scalar("PRAGMA freelist_count").fetch_one(connection).await?)
                })
                .await?;
            // Another deletion may free pages meanwhile, and gives them back itself.
            free = if left < free { left } else { 0 };
        }
        let (until, patience) = (Instant::now() + self.busy_timeout, self.busy_timeout);
        // This waits for readers here: in the writer, everybody's writes would wait with it.
        while self.maintenance(async move |connection| truncate_log(connection, patience).await).await? {
            if Instant::now() >= until {
                self.owe_the_log();
                tracing::warn!("a long read keeps deleted words in the write-ahead log until the next checkpoint");
                break;
            }
            sleep(LOOK_AGAIN).await;
        }
        Ok(())
    }

    pub(crate) fn owe_the_log(&self) {
        self.log_is_owed.store(true, Ordering::Relaxed);
    }

    /// Writes the log back if it still holds deleted words: for a regular call, so that many small deletions share one.
    pub async fn settle_the_log(&self) -> Result<(), Error> {
        if !self.log_is_owed.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        self.forget_the_log().await.inspect_err(|_| self.owe_the_log())
    }
}

// Mark on a session whose rows a task removes, so that no other one does the same.
struct Removing {
    all: Arc<Mutex<HashSet<i64>>>,
    key: i64,
}

impl Removing {
    fn begin(all: &Arc<Mutex<HashSet<i64>>>, key: i64) -> Option<Removing> {
        all.lock().insert(key).then(|| Removing { all: all.clone(), key })
    }
}

impl Drop for Removing {
    fn drop(&mut self) {
        self.all.lock().remove(&self.key);
    }
}

const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Writes the log back, unless a reader needs it. Returns true if one does.
async fn truncate_log(connection: &mut SqliteConnection, patience: Duration) -> Result<bool> {
    wait_for_others(connection, Duration::ZERO).await?;
    let is_busy = sqlx::query_scalar("PRAGMA wal_checkpoint(TRUNCATE)").fetch_one(&mut *connection).await;
    wait_for_others(connection, patience).await?;
    Ok(is_busy?)
}

async fn wait_for_others(connection: &mut SqliteConnection, time: Duration) -> Result<()> {
    let mut handle = connection.lock_handle().await?;
    let ms = i32::try_from(time.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: the connection is open, and no other thread uses it while it is locked.
    unsafe { libsqlite3_sys::sqlite3_busy_timeout(handle.as_raw_handle().as_ptr(), ms) };
    Ok(())
}

/// Marks a session as deleted, which hides it from all readers, and takes its words out of other sessions' copies.
async fn mark(connection: &mut SqliteConnection, session: &SessionRef, by_user: bool, now_ms: i64) -> Result<()> {
    hide(connection, session, by_user, now_ms).await?;
    // A user that deletes a session deletes its facts, too.
    let copies = if by_user { Copies::All } else { Copies::From(session.key) };
    withdraw(connection, session.user(), copies, now_ms).await?;
    Ok(())
}

pub(crate) async fn hide(
    connection: &mut SqliteConnection,
    session: &SessionRef,
    by_user: bool,
    now_ms: i64,
) -> Result<()> {
    let query = sqlx::query("UPDATE sessions SET deleted_at_ms = max(?, 1) WHERE key = ?");
    query.bind(now_ms).bind(session.key).execute(&mut *connection).await?;
    forget_past(connection, session.user(), session.past_owner(), PastStays::Nothing, now_ms).await?;
    forget_owner_of_log(connection, session.key, PastStays::Nothing, now_ms).await?;
    leave_session(connection, session, by_user, now_ms).await
}

/// Removals, referring rows before the rows they refer to. Each takes the session's key and a limit of rows.
const REMOVALS: [Removal; 14] = [
    // Audio is long: the audio of four items at once.
    || {
        sqlx::query(
            "DELETE FROM item_audio WHERE key IN (SELECT key FROM item_audio WHERE session = ?1 ORDER BY key LIMIT ?2 / 25)",
        )
    },
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
    || {
        // The words of a version leave the index with it, which may take 60 ms a version: 2,000 bytes of them at once, or one version.
        sqlx::query(
            "DELETE FROM item_versions WHERE key IN (SELECT key FROM (
                SELECT key, sum(octet_length(content)) OVER (ORDER BY key) - octet_length(content) AS before
                FROM (SELECT key, content FROM item_versions WHERE session = ? ORDER BY key LIMIT ?)
             ) WHERE before < 2000)",
        )
    },
    || sqlx::query("DELETE FROM summaries WHERE key IN (SELECT key FROM summaries WHERE session = ? LIMIT ?)"),
    || sqlx::query("DELETE FROM pins WHERE key IN (SELECT key FROM pins WHERE session = ? LIMIT ?)"),
    || sqlx::query("DELETE FROM responses WHERE key IN (SELECT key FROM responses WHERE session = ? LIMIT ?)"),
    || sqlx::query("DELETE FROM measurements WHERE key IN (SELECT key FROM measurements WHERE session = ? LIMIT ?)"),
    || {
        sqlx::query(
            "DELETE FROM note_sources WHERE (session, item_id, source_session, source_id) IN
                (SELECT session, item_id, source_session, source_id FROM note_sources WHERE session = ? LIMIT ?)",
        )
    },
    || {
        sqlx::query(
            "DELETE FROM unsaid_items WHERE (session, item_id) IN
                (SELECT session, item_id FROM unsaid_items WHERE session = ? LIMIT ?)",
        )
    },
    || {
        sqlx::query(
            "DELETE FROM session_names WHERE (user, door, name) IN
                (SELECT user, door, name FROM session_names WHERE session = ? LIMIT ?)",
        )
    },
    || {
        sqlx::query(
            "DELETE FROM kept_logs WHERE (user, person, room, hash, session) IN
                (SELECT user, person, room, hash, session FROM kept_logs WHERE session = ? LIMIT ?)",
        )
    },
    || {
        sqlx::query(
            "DELETE FROM request_items WHERE (user, digest, session, item_id) IN
                (SELECT user, digest, session, item_id FROM request_items WHERE session = ? LIMIT ?)",
        )
    },
    || sqlx::query("DELETE FROM sessions WHERE key = ?1 AND deleted_at_ms IS NOT NULL AND ?2 > 0"),
];
