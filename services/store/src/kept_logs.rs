//! Logs: conversations of clients that send all of it with each request, and the sessions that hold their beginning.
//!
//! The caller decides what a hash is made of. A search covers the logs of one person in one room.

use crate::error::Result;
use crate::handle::touch;
use crate::past_owners::LogOwner;
use crate::pieces::{add_items, pieces, queue_of};
use crate::request_parts::insert_last_part;
use crate::versions::order_key_of;
use crate::view::items_up_to;
use crate::{Error, ItemVersion, OrderKey, SessionRecord, SessionRef, Store};
use session::{Item, RequestDigest};
use sqlx::FromRow;
use sqlx::sqlite::SqliteConnection;
use sqlx::types::Json;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogMark {
    pub hash: String,
    pub of_last_few: bool,
    pub items: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct KeptLog {
    #[sqlx(flatten)]
    pub session: SessionRef,
    #[sqlx(try_from = "i64")]
    pub at: usize,
    pub last_item: String,
    #[sqlx(rename = "place")]
    pub order_key: OrderKey,
    pub is_last: bool,
    /// Last item of the older conversation that the log continues.
    pub begins_behind: Option<String>,
}

#[derive(Debug, Clone, Default)]
pub struct LogAddition {
    /// Expected last item of the session; `None` for an empty one. If it is another, the addition fails.
    pub behind: Option<String>,
    pub items: Vec<Item>,
    pub marks: Vec<LogMark>,
    pub begins_behind: Option<String>,
    pub of_request: Option<RequestDigest>,
}

const TOLD_BYTES: i64 = 1 << 20; // not a window: bytes of items

impl Store {
    /// Finds the session of the first hash that is known; sessions without a later item come first, then the newest. A
    /// hash of the last few messages must be newer than `since_ms`, and be the end of its session.
    pub async fn find_log(&self, owner: &LogOwner, hashes: &[String], since_ms: i64) -> Result<Option<KeptLog>, Error> {
        let query = sqlx::query_as(
            "SELECT * FROM (
                SELECT s.key, s.user, s.id, wanted.key AS at, k.last_item, l.place, k.begins_behind, k.of_last_few, k.at_ms,
                    NOT EXISTS (SELECT 1 FROM items i WHERE i.session = k.session AND i.place > l.place AND i.deleted = 0)
                        AS is_last
                FROM json_each(?1) wanted
                JOIN kept_logs k ON k.user = ?2 AND k.person = ?3 AND k.room = ?4 AND k.hash = wanted.value
                JOIN sessions s ON s.key = k.session AND s.deleted_at_ms IS NULL
                JOIN items l ON l.session = k.session AND l.item_id = k.last_item
             ) WHERE of_last_few = 0 OR (at_ms >= ?5 AND is_last) ORDER BY at, is_last DESC, at_ms DESC LIMIT 1",
        );
        let query = query.bind(Json(hashes)).bind(&owner.user).bind(&owner.person).bind(&owner.room).bind(since_ms);
        self.read(async |reader| Ok(query.fetch_optional(reader).await?)).await
    }

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
            items_up_to(reader, session, &through, most, TOLD_BYTES).await
        })
        .await
    }

    /// Adds items piece by piece, and with the last of them what the log is recognised by. False if the session has another last
    /// item by now. Nothing recognises an addition that was not finished.
    pub async fn keep_log(
        &self,
        owner: &LogOwner,
        session: &SessionRef,
        addition: LogAddition,
        now_ms: i64,
    ) -> Result<bool, Error> {
        let LogAddition { mut behind, items, marks, begins_behind, of_request } = addition;
        let (mut marks, pieces) = (Some(placed(marks, &items, &behind)), pieces(items));
        let (queue, mut pieces) = (queue_of(&pieces), pieces.into_iter().peekable());
        while let Some(piece) = pieces.next() {
            let last = piece.last().map(|item| item.id.clone()).or_else(|| behind.clone());
            let before = std::mem::replace(&mut behind, last);
            let is_last = pieces.peek().is_none();
            let marks = marks.take_if(|_| is_last).unwrap_or_default();
            let request = of_request.filter(|_| is_last);
            let ends_with = piece.last().map(|item| item.id.clone());
            let (owner, begins_behind, quota) = (owner.clone(), begins_behind.clone(), self.quota.clone());
            let session = session.clone();
            let added = self.write_in(queue, async move |connection| {
                touch(connection, &session, now_ms).await?;
                let session = &session;
                if last_item(connection, session).await? != before {
                    return Ok(false);
                }
                add_items(connection, &quota, session, piece, now_ms).await?;
                insert_last_part(connection, session, ends_with, request, now_ms).await?;
                insert_marks(connection, &owner, session, marks, begins_behind, now_ms).await?;
                Ok(true)
            });
            if !added.await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Creates a session with its first items: both or neither.
    pub async fn begin_log(
        &self,
        owner: &LogOwner,
        new: SessionRecord,
        addition: LogAddition,
        now_ms: i64,
    ) -> Result<(), Error> {
        let LogAddition { items, marks, begins_behind, of_request, .. } = addition;
        let (owner, marks) = (owner.clone(), placed(marks, &items, &None));
        self.create_and_fill(new, items, of_request, now_ms, async move |connection, session| {
            insert_marks(connection, &owner, session, marks, begins_behind, now_ms).await
        })
        .await
        .map(drop)
    }
}

fn placed(marks: Vec<LogMark>, items: &[Item], behind: &Option<String>) -> Vec<(LogMark, String)> {
    let last = |mark: &LogMark| match mark.items.checked_sub(1) {
        Some(at) => items.get(at).map(|item| item.id.clone()),
        None => behind.clone(),
    };
    marks.into_iter().filter_map(|mark| last(&mark).map(|last| (mark, last))).collect()
}

async fn insert_marks(
    connection: &mut SqliteConnection,
    owner: &LogOwner,
    session: &SessionRef,
    marks: Vec<(LogMark, String)>,
    begins_behind: Option<String>,
    now_ms: i64,
) -> Result<()> {
    for (mark, last) in marks {
        let query = sqlx::query(
            "INSERT OR REPLACE INTO kept_logs
                (user, person, room, hash, session, last_item, begins_behind, of_last_few, at_ms)
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        );
        let query = query.bind(&owner.user).bind(&owner.person).bind(&owner.room).bind(mark.hash);
        let query = query.bind(session.key).bind(last).bind(&begins_behind).bind(mark.of_last_few).bind(now_ms);
        query.execute(&mut *connection).await?;
    }
    Ok(())
}

async fn last_item(connection: &mut SqliteConnection, session: &SessionRef) -> Result<Option<String>> {
    let query =
        sqlx::query_scalar("SELECT item_id FROM items WHERE session = ? AND deleted = 0 ORDER BY place DESC LIMIT 1");
    Ok(query.bind(session.key).fetch_optional(connection).await?)
}
