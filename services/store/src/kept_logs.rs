//! Logs: conversations of clients that send all of it with each request, and the sessions that hold their beginning.
//!
//! The caller decides what a hash is made of. A search covers the logs of one person in one room.

use crate::error::Result;
use crate::quota::Quota;
use crate::requests::insert_part;
use crate::sessions::begin_session;
use crate::versions::{insert_item, order_key_of};
use crate::view::items_up_to;
use crate::{Change, Error, ItemVersion, OrderKey, SessionRecord, SessionRef, Store, VersionStatus};
use session::{Item, ItemPlace, RequestDigest, RequestPart};
use sqlx::FromRow;
use sqlx::sqlite::SqliteConnection;
use sqlx::types::Json;

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct LogOwner {
    pub user: String,
    pub person: String,
    pub room: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogMark {
    pub hash: String,
    /// True if the hash is of the last few messages only.
    pub of_last_few: bool,
    /// Number of new items before it.
    pub items: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptLog {
    pub session: SessionRef,
    pub at: usize,
    pub last_item: String,
    pub order_key: OrderKey,
    /// True if no item follows it.
    pub is_last: bool,
    /// Last item of the older conversation that the log continues.
    pub begins_behind: Option<String>,
}

/// Items to add to the end of a session.
#[derive(Debug, Clone, Default)]
pub struct LogAddition {
    /// Expected last item of the session; `None` for an empty one. If it is another, the addition fails.
    pub behind: Option<String>,
    pub items: Vec<Item>,
    pub marks: Vec<LogMark>,
    pub begins_behind: Option<String>,
    /// Digest of the client's request.
    pub of_request: Option<RequestDigest>,
}

#[derive(FromRow)]
struct KeptLogRow {
    key: i64,
    id: String,
    at: i64,
    last_item: String,
    place: OrderKey,
    is_last: bool,
    begins_behind: Option<String>,
}

impl Store {
    /// Finds the session of the first hash that is known; sessions without a later item come first, then the newest. A
    /// hash of the last few messages must be newer than `since_ms`, and be the end of its session.
    pub async fn find_log(&self, owner: &LogOwner, hashes: &[String], since_ms: i64) -> Result<Option<KeptLog>, Error> {
        let query = sqlx::query_as(
            "SELECT * FROM (
                SELECT s.key, s.id, wanted.key AS at, k.last_item, l.place, k.begins_behind, k.of_last_few, k.at_ms,
                    NOT EXISTS (SELECT 1 FROM items i WHERE i.session = k.session AND i.place > l.place AND i.deleted = 0)
                        AS is_last
                FROM json_each(?1) wanted
                JOIN kept_logs k ON k.user = ?2 AND k.person = ?3 AND k.room = ?4 AND k.hash = wanted.value
                JOIN sessions s ON s.key = k.session AND s.deleted_at_ms IS NULL
                JOIN items l ON l.session = k.session AND l.item_id = k.last_item
             ) WHERE of_last_few = 0 OR (at_ms >= ?5 AND is_last) ORDER BY at, is_last DESC, at_ms DESC LIMIT 1",
        );
        let query = query.bind(Json(hashes)).bind(&owner.user).bind(&owner.person).bind(&owner.room).bind(since_ms);
        let row: Option<KeptLogRow> = self.read(async |reader| Ok(query.fetch_optional(reader).await?)).await?;
        Ok(row.map(|row| KeptLog {
            session: SessionRef { key: row.key, user: owner.user.as_str().into(), id: row.id.into() },
            at: usize::try_from(row.at).unwrap_or(0),
            last_item: row.last_item,
            order_key: row.place,
            is_last: row.is_last,
            begins_behind: row.begins_behind,
        }))
    }

    /// Returns the newest conversation of this owner since `since_ms`, and its last item.
    pub async fn newest_log(&self, owner: &LogOwner, since_ms: i64) -> Result<Option<(SessionRef, String)>, Error> {
        let query = sqlx::query_as(
            "SELECT s.key, s.id, (SELECT i.item_id FROM items i WHERE i.session = s.key AND i.deleted = 0
                ORDER BY i.place DESC LIMIT 1)
             FROM sessions s WHERE s.user = ? AND s.person = ? AND s.room = ? AND s.deleted_at_ms IS NULL
                AND s.updated_at_ms >= ? AND EXISTS (SELECT 1 FROM kept_logs k WHERE k.session = s.key)
             ORDER BY s.updated_at_ms DESC LIMIT 1",
        );
        let query = query.bind(&owner.user).bind(&owner.person).bind(&owner.room).bind(since_ms);
        let found: Option<(i64, String, Option<String>)> =
            self.read(async |reader| Ok(query.fetch_optional(reader).await?)).await?;
        Ok(found.and_then(|(key, id, last)| {
            let session = SessionRef { key, user: owner.user.as_str().into(), id: id.into() };
            Some((session, last?))
        }))
    }

    /// Lists the last items up to this one in their current versions, without those that were replaced or forgotten.
    pub async fn told_through(&self, session: &SessionRef, item: &str, most: u32) -> Result<Vec<ItemVersion>, Error> {
        self.read_moment(async |reader| {
            let through = order_key_of(reader, session, item).await?;
            items_up_to(reader, session, &through, most).await
        })
        .await
    }

    /// Adds all of it or nothing. False if the session has another last item by now.
    pub async fn keep_log(
        &self,
        owner: &LogOwner,
        session: &SessionRef,
        addition: LogAddition,
        now_ms: i64,
    ) -> Result<bool, Error> {
        let (owner, quota) = (owner.clone(), self.quota.clone());
        self.write_session(session, now_ms, async move |connection, session| {
            add(connection, &quota, &owner, session, addition, now_ms).await
        })
        .await
    }

    /// Creates a session with its first items: both or neither.
    pub async fn begin_log(
        &self,
        owner: &LogOwner,
        new: SessionRecord,
        addition: LogAddition,
        now_ms: i64,
    ) -> Result<(), Error> {
        let (owner, quota) = (owner.clone(), self.quota.clone());
        self.write(async move |connection| {
            let session = begin_session(connection, &quota, &new).await?;
            add(connection, &quota, &owner, &session, addition, now_ms).await?;
            Ok(())
        })
        .await
    }
}

async fn add(
    connection: &mut SqliteConnection,
    quota: &Quota,
    owner: &LogOwner,
    session: &SessionRef,
    addition: LogAddition,
    now_ms: i64,
) -> Result<bool> {
    let LogAddition { behind, items, marks, begins_behind, of_request } = addition;
    if last_item(connection, session).await? != behind {
        return Ok(false);
    }
    let ids: Vec<String> = items.iter().map(|item| item.id.clone()).collect();
    for item in items {
        quota.take(connection, session.user(), item.body.text_bytes(), now_ms).await?;
        let how = (Change::Created, VersionStatus::Completed);
        insert_item(connection, session, item, ItemPlace::End, None, how, now_ms).await?;
    }
    if let (Some(digest), Some(last)) = (of_request, ids.last()) {
        insert_part(connection, session, last, RequestPart { digest, is_last: true }, now_ms).await?;
    }
    for mark in marks {
        let last = mark.items.checked_sub(1).map_or(behind.as_ref(), |at| ids.get(at));
        let Some(last) = last else { continue };
        let query = sqlx::query(
            "INSERT OR REPLACE INTO kept_logs
                (user, person, room, hash, session, last_item, begins_behind, of_last_few, at_ms)
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        );
        let query = query.bind(&owner.user).bind(&owner.person).bind(&owner.room).bind(mark.hash);
        let query = query.bind(session.key).bind(last).bind(&begins_behind).bind(mark.of_last_few).bind(now_ms);
        query.execute(&mut *connection).await?;
    }
    Ok(true)
}

async fn last_item(connection: &mut SqliteConnection, session: &SessionRef) -> Result<Option<String>> {
    let query =
        sqlx::query_scalar("SELECT item_id FROM items WHERE session = ? AND deleted = 0 ORDER BY place DESC LIMIT 1");
    Ok(query.bind(session.key).fetch_optional(connection).await?)
}
