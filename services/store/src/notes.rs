//! Notes: copies of words in other conversations, such as the answer to a search of the past. A copy knows its source
//! items and facts, and loses its words with the first of them that goes. Its place in the conversation stays.

use crate::error::Result;
use crate::item_form::emptied;
use crate::past_owners::forget_past;
use crate::versions::{insert_item, insert_row, make_current, versions_of};
use crate::writer::WriteQueue;
use crate::{Change, Error, ItemVersion, SessionRef, Store, VersionStatus};
use session::{Item, ItemPlace, NoteSource, PastStays};
use sqlx::sqlite::SqliteConnection;
use tokio::sync::watch;

/// Stored source of a copy whose sources are not known.
const UNKNOWN_SOURCE: i64 = -1;

#[derive(Clone, Copy)]
pub enum Copies {
    All,
    From(i64),
    In(i64),
}

impl Store {
    /// Adds an item that copies words of these sources. If one of them no longer exists, the item is stored without
    /// words.
    pub async fn append_note(
        &self,
        session: &SessionRef,
        item: Item,
        place: ItemPlace,
        sources: Vec<NoteSource>,
        now_ms: i64,
    ) -> Result<(), Error> {
        let (quota, owner, bytes) = (self.quota.clone(), session.user().to_owned(), item.body.text_bytes());
        let changed = self.write_session_bytes(session, bytes, now_ms, async move |connection, session| {
            quota.take(connection, session.user(), bytes, now_ms).await?;
            let item_id = item.id.clone();
            let how = (Change::Created, VersionStatus::Completed);
            insert_item(connection, session, item, place, None, how, now_ms).await?;
            for source in sources {
                insert_source(connection, session, &item_id, source).await?;
            }
            match withdraw(connection, session.user(), Copies::In(session.key), now_ms).await? {
                false => Ok(None),
                true => count_change(connection, session.user()).await.map(Some),
            }
        });
        if let Some(count) = changed.await? {
            self.memory_changes.reached(&owner, count);
        }
        Ok(())
    }

    /// Lists the items of a session that other changes than its own have deleted: hidden ones that have lost their
    /// sources, and in a family of forks those that were deleted in another conversation.
    pub async fn withdrawn_items(&self, session: &SessionRef) -> Result<Vec<String>, Error> {
        let query = sqlx::query_scalar(
            "SELECT item_id FROM items WHERE session = ?1 AND deleted = 1 AND (item_id GLOB ?2 || '_*'
                OR EXISTS (SELECT 1 FROM sessions WHERE key = ?1 AND family IS NOT NULL)
                OR EXISTS (SELECT 1 FROM sessions WHERE family = ?1))",
        );
        let query = query.bind(session.key).bind(session::HIDDEN);
        self.read(async |reader| Ok(query.fetch_all(reader).await?)).await
    }

    /// Returns the count of changes that may have removed copied words.
    pub fn memory_changes(&self, user: &str) -> u64 {
        self.memory_changes.sender(user, |sender| *sender.borrow())
    }

    pub fn watch_memories(&self, user: &str) -> watch::Receiver<u64> {
        self.memory_changes.sender(user, watch::Sender::subscribe)
    }

    /// Reads the counts again, to notice what a command beside the service has forgotten or deleted.
    pub async fn look_for_forgotten(&self) -> Result<(), Error> {
        let query = sqlx::query_as("SELECT id, memory_changes FROM users WHERE memory_changes > 0");
        let counts: Vec<(String, u64)> = self.read(async |reader| Ok(query.fetch_all(reader).await?)).await?;
        counts.into_iter().for_each(|(user, count)| self.memory_changes.reached(&user, count));
        Ok(())
    }

    /// Runs a write that may remove copied words of this user: `work` returns whether it did. Sessions in memory are
    /// notified before this returns.
    pub(crate) async fn write_forgetting<T: Send + 'static>(
        &self,
        user: &str,
        work: impl AsyncFnOnce(&mut SqliteConnection) -> Result<(T, bool)> + Send + 'static,
    ) -> Result<T, Error> {
        self.write_forgetting_in(WriteQueue::Pieces, user, work).await
    }

    pub(crate) async fn write_forgetting_in<T: Send + 'static>(
        &self,
        queue: WriteQueue,
        user: &str,
        work: impl AsyncFnOnce(&mut SqliteConnection) -> Result<(T, bool)> + Send + 'static,
    ) -> Result<T, Error> {
        let owner = user.to_owned();
        let written = self.write_in(queue, async move |connection| {
            let (value, is_change) = work(connection).await?;
            let count = if is_change { Some(count_change(connection, &owner).await?) } else { None };
            Ok((value, count))
        });
        let (value, count) = written.await?;
        if let Some(count) = count {
            self.memory_changes.reached(user, count);
        }
        Ok(value)
    }
}

async fn count_change(connection: &mut SqliteConnection, user: &str) -> Result<u64> {
    let query = sqlx::query_scalar(
        "UPDATE users SET memory_changes = memory_changes + 1 WHERE id = ? RETURNING memory_changes",
    );
    Ok(query.bind(user).fetch_optional(connection).await?.unwrap_or(0))
}

async fn insert_source(
    connection: &mut SqliteConnection,
    session: &SessionRef,
    item_id: &str,
    source: NoteSource,
) -> Result<()> {
    let (of, id) = match source {
        NoteSource::Fact(id) => (None, id),
        NoteSource::Item { session_id, item_id } => (Some(session_id), item_id),
    };
    // A session that no longer exists has no key. Its source is missing, like a deleted one.
    let query = sqlx::query(
        "INSERT OR IGNORE INTO note_sources (session, item_id, source_session, source_id)
         VALUES (?1, ?2, iif(?4 IS NULL, 0, coalesce((SELECT key FROM sessions
            WHERE user = ?3 AND id = ?4 AND deleted_at_ms IS NULL), 0)), ?5)",
    );
    query.bind(session.key).bind(item_id).bind(session.user()).bind(of).bind(id).execute(connection).await?;
    Ok(())
}

pub async fn insert_unknown_source(
    connection: &mut SqliteConnection,
    session: &SessionRef,
    item_id: &str,
) -> Result<()> {
    let query = sqlx::query(
        "INSERT OR IGNORE INTO note_sources (session, item_id, source_session, source_id) VALUES (?, ?, ?, '')",
    );
    query.bind(session.key).bind(item_id).bind(UNKNOWN_SOURCE).execute(connection).await?;
    Ok(())
}

pub async fn copy_sources(connection: &mut SqliteConnection, from: &SessionRef, to: &SessionRef) -> Result<()> {
    let query = sqlx::query(
        "INSERT OR IGNORE INTO note_sources (session, item_id, source_session, source_id)
         SELECT i.session, i.item_id, n.source_session, n.source_id FROM note_sources n
         JOIN items i ON i.session = ?1 AND i.item_id = n.item_id WHERE n.session = ?2",
    );
    query.bind(to.key).bind(from.key).execute(connection).await?;
    Ok(())
}

/// Removes the words of copies whose sources are gone: from the history, the index, and the computed data. True if
/// there were any.
pub async fn withdraw(connection: &mut SqliteConnection, user: &str, copies: Copies, now_ms: i64) -> Result<bool> {
    let (from, holder) = match copies {
        Copies::All => (None, None),
        Copies::From(session) => (Some(session), None),
        Copies::In(session) => (None, Some(session)),
    };
    // The call that a search answers goes with its answer: templates want both or none.
    let query = sqlx::query_as(
        "WITH gone AS (
            SELECT DISTINCT n.session, n.item_id FROM note_sources n JOIN sessions s ON s.key = n.session
            WHERE s.user = ?1 AND (?3 IS NULL OR n.session = ?3)
                AND (?2 IS NULL OR n.source_session = ?2 OR n.source_session = -1)
                AND CASE n.source_session
                    WHEN -1 THEN ?3 IS NULL
                    WHEN 0 THEN NOT EXISTS (
                        SELECT 1 FROM facts f WHERE f.id = n.source_id AND f.user = ?1
                            AND f.replaced_by IS NULL AND f.forgotten_at_ms IS NULL)
                    ELSE NOT EXISTS (
                            SELECT 1 FROM sessions o JOIN items i ON i.session = o.key AND i.item_id = n.source_id
                            WHERE o.key = n.source_session AND o.deleted_at_ms IS NULL AND i.deleted = 0)
                        OR EXISTS (
                            SELECT 1 FROM unsaid_items u WHERE u.session = n.source_session AND u.item_id = n.source_id
                                AND (u.secret = 0 OR n.session != n.source_session))
                    END
         ), called AS (
            SELECT c.session, c.item_id FROM gone g
            JOIN items i ON i.session = g.session AND i.item_id = g.item_id
            JOIN item_versions v ON v.key = i.current AND v.kind = 'function_call_output'
            JOIN item_versions c ON c.session = g.session AND c.kind = 'function_call'
                AND c.item_id GLOB ?4 || '_*' AND c.content ->> '$.call_id' = v.content ->> '$.call_id'
         )
         SELECT s.key, s.id, gone.item_id FROM (SELECT * FROM gone UNION SELECT * FROM called) gone
         JOIN sessions s ON s.key = gone.session",
    );
    let query = query.bind(user).bind(from).bind(holder).bind(session::HIDDEN);
    let gone: Vec<(i64, String, String)> = query.fetch_all(&mut *connection).await?;
    for (key, id, item_id) in &gone {
        let session = SessionRef { key: *key, user: user.into(), id: id.as_str().into() };
        empty_item(connection, &session, item_id).await?;
        let query = sqlx::query("DELETE FROM note_sources WHERE session = ? AND item_id = ?");
        query.bind(key).bind(item_id).execute(&mut *connection).await?;
        forget_past(connection, user, session.past_owner(), PastStays::Replies, now_ms).await?;
    }
    Ok(!gone.is_empty())
}

/// Rewrites every version of the item without words, and marks the item as deleted. Numbers and places stay.
pub(crate) async fn empty_item(connection: &mut SqliteConnection, session: &SessionRef, item_id: &str) -> Result<()> {
    let query = sqlx::query("SELECT * FROM item_versions WHERE session = ? AND item_id = ? ORDER BY version");
    let rows = query.bind(session.key).bind(item_id).fetch_all(&mut *connection).await?;
    let versions = versions_of(&rows, &session.id)?;
    let query = sqlx::query("DELETE FROM items WHERE session = ? AND item_id = ?");
    query.bind(session.key).bind(item_id).execute(&mut *connection).await?;
    let query = sqlx::query("DELETE FROM item_versions WHERE session = ? AND item_id = ?");
    query.bind(session.key).bind(item_id).execute(&mut *connection).await?;
    let newest = versions.len();
    for (at, version) in versions.into_iter().enumerate() {
        let is_newest = at + 1 == newest;
        let change = if is_newest { Change::Deleted } else { version.change };
        let version = ItemVersion { change, body: emptied(version.body), ..version };
        let key = insert_row(connection, session, &version).await?;
        // An earlier version may have stood where another item is now.
        if is_newest {
            make_current(connection, session, &version, key).await?;
        }
    }
    Ok(())
}
