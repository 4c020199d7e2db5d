//! Erasing one item: its words leave every version, the search, the summaries and pins that tell it, the facts that were
//! made of it, the copies in hidden notes and in forks, and the files of what was computed. Numbers and places stay.

use crate::error::Result;
use crate::facts::forget_tellers;
use crate::notes::{Copies, empty_item, withdraw};
use crate::past_owners::{forget_owner_of_log, forget_past};
use crate::versions::{insert_next_version, version_of};
use crate::{Change, ItemVersion, SessionRef};
use session::{ItemBody, PastStays};
use sqlx::Row;
use sqlx::sqlite::SqliteConnection;

/// Erases an item of a session, and its copies in other conversations of the family. Returns the deleted version, and
/// whether other conversations change, too.
pub(crate) async fn erase(
    connection: &mut SqliteConnection,
    session: &SessionRef,
    item: ItemVersion,
    now_ms: i64,
) -> Result<(ItemVersion, bool)> {
    let mut copies = vec![(session.clone(), item.clone())];
    let query = sqlx::query(
        "WITH RECURSIVE family (session) AS (
            SELECT s.key FROM (SELECT coalesce(family, key) AS first FROM sessions WHERE key = ?1)
            JOIN sessions s ON s.family = first OR s.key = first WHERE s.deleted_at_ms IS NULL
         ), same (session) AS (
            SELECT ?1 UNION
            SELECT copy.session FROM same
            JOIN item_versions said ON said.session = same.session AND said.item_id = ?2 AND said.text <> ''
            CROSS JOIN family
            JOIN item_versions copy ON copy.session = family.session AND copy.item_id = ?2
                AND copy.created_at_ms = said.created_at_ms AND copy.crc = said.crc
         )
         SELECT v.*, s.id AS session_id FROM same JOIN sessions s ON s.key = same.session AND s.key <> ?1
         JOIN items i ON i.session = s.key AND i.item_id = ?2 AND i.deleted = 0 AND i.being_said = 0
         JOIN item_versions v ON v.key = i.current",
    );
    let query = query.bind(session.key).bind(&item.item_id);
    for row in query.fetch_all(&mut *connection).await? {
        let (key, id): (i64, &str) = (row.try_get("session")?, row.try_get("session_id")?);
        copies.push((SessionRef { key, user: session.user.clone(), id: id.into() }, version_of(&row, id)?));
    }
    let (mut facts, mut holders, has_copies) = (Vec::new(), Vec::new(), copies.len() > 1);
    for (session, item) in copies {
        facts.extend(erase_copy(connection, &session, item, now_ms).await?);
        holders.push(Copies::From(session.key));
    }
    forget_tellers(connection, session.user(), &facts, now_ms).await?;
    if !facts.is_empty() {
        holders = vec![Copies::All];
    }
    let mut is_copied = false;
    for copies in holders {
        is_copied |= withdraw(connection, session.user(), copies, now_ms).await?;
    }
    let query = sqlx::query(
        "SELECT v.* FROM items i JOIN item_versions v ON v.key = i.current WHERE i.session = ? AND i.item_id = ?",
    );
    let row = query.bind(session.key).bind(&item.item_id).fetch_one(connection).await?;
    Ok((version_of(&row, &session.id)?, has_copies || is_copied || !facts.is_empty()))
}

async fn erase_copy(
    connection: &mut SqliteConnection,
    session: &SessionRef,
    item: ItemVersion,
    now_ms: i64,
) -> Result<Vec<(String, String)>> {
    let (item_id, place) = (item.item_id.clone(), item.order_key.clone());
    let has_words = has_words(connection, session, &item).await?;
    insert_next_version(connection, session, ItemVersion { change: Change::Deleted, created_at_ms: now_ms, ..item })
        .await?;
    empty_item(connection, session, &item_id).await?;
    // A summary that a person wrote has that person's words, and stays.
    let query = sqlx::query(
        "UPDATE summaries SET kind = 'drop', text = '', checks = '{}', crc = 0
         WHERE session = ?1 AND made_by <> 'user' AND to_place >= ?2 AND through_seq >= (
            SELECT min(seq) FROM item_versions WHERE session = ?1 AND item_id = ?3)",
    );
    query.bind(session.key).bind(&place).bind(&item_id).execute(&mut *connection).await?;
    let query = sqlx::query(
        "UPDATE pins SET text = '', removed_at_ms = coalesce(removed_at_ms, ?) WHERE session = ? AND source_item = ?",
    );
    query.bind(now_ms).bind(session.key).bind(&item_id).execute(&mut *connection).await?;
    let query = sqlx::query("DELETE FROM request_items WHERE session = ? AND item_id = ?");
    query.bind(session.key).bind(&item_id).execute(&mut *connection).await?;
    let query = sqlx::query_as("DELETE FROM facts WHERE session = ? AND item_id = ? RETURNING id, person");
    let facts = query.bind(session.key).bind(&item_id).fetch_all(&mut *connection).await?;
    if has_words {
        forget_past(connection, session.user(), session.past_owner(), PastStays::Memory, now_ms).await?;
        forget_owner_of_log(connection, session.key, PastStays::Memory, now_ms).await?;
    }
    Ok(facts)
}

/// Returns true if a version of the item has words. A reply that ended before its first word has none.
async fn has_words(connection: &mut SqliteConnection, session: &SessionRef, item: &ItemVersion) -> Result<bool> {
    if !matches!(item.body, ItemBody::Message { .. }) {
        return Ok(true);
    }
    let query = sqlx::query("SELECT 1 FROM item_versions WHERE session = ? AND item_id = ? AND text <> '' LIMIT 1");
    let row = query.bind(session.key).bind(&item.item_id).fetch_optional(connection).await?;
    Ok(row.is_some())
}
