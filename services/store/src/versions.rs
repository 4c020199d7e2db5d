//! Versions of items: writing, reading and order.

use crate::error::Result;
use crate::item_form::{BodyText, said};
use crate::spacing::spaced;
use crate::{Change, Error, ItemVersion, OrderKey, SessionRef, VersionStatus};
use session::{Item, ItemBody, ItemPlace, NamedSpeaker};
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{FromRow, Row};

/// Inserts a new item. Returns the key of its version, too.
pub async fn insert_item(
    connection: &mut SqliteConnection,
    session: &SessionRef,
    item: Item,
    place: ItemPlace,
    response: Option<String>,
    (change, status): (Change, VersionStatus),
    now_ms: i64,
) -> Result<(i64, ItemVersion)> {
    let taken = sqlx::query("SELECT 1 FROM items WHERE session = ? AND item_id = ? AND deleted = 0");
    if taken.bind(session.key).bind(&item.id).fetch_optional(&mut *connection).await?.is_some() {
        return Err(Error::ItemExists { item: item.id }.into());
    }
    let version = ItemVersion {
        seq: 0,
        version: 0,
        change,
        order_key: find_order_key(connection, session, &place).await?,
        item_id: item.id,
        body: item.body,
        status,
        sent_chars: None,
        heard_chars: None,
        response,
        created_at_ms: now_ms,
    };
    insert_next_version(connection, session, version).await
}

/// Inserts a version with the next `seq` and `version`. Returns its key, too.
pub async fn insert_next_version(
    connection: &mut SqliteConnection,
    session: &SessionRef,
    mut item: ItemVersion,
) -> Result<(i64, ItemVersion)> {
    let query = sqlx::query_as(
        "SELECT coalesce((SELECT max(seq) FROM item_versions WHERE session = ?1), 0) + 1,
                coalesce((SELECT max(version) FROM item_versions WHERE session = ?1 AND item_id = ?2), 0) + 1",
    );
    (item.seq, item.version) = query.bind(session.key).bind(&item.item_id).fetch_one(&mut *connection).await?;
    let key = insert_version(connection, session, &item).await?;
    Ok((key, item))
}

/// Inserts a version as given, `seq` and `version` included: an import writes what an export read. It becomes the
/// item's current version. Returns its key.
pub async fn insert_version(
    connection: &mut SqliteConnection,
    session: &SessionRef,
    item: &ItemVersion,
) -> Result<i64> {
    let key = insert_row(connection, session, item).await?;
    make_current(connection, session, item, key).await?;
    Ok(key)
}

/// Inserts a version that is not the item's current one: that needs `make_current`. Returns its key.
pub async fn insert_row(connection: &mut SqliteConnection, session: &SessionRef, item: &ItemVersion) -> Result<i64> {
    let content = BodyText::of(&item.body).map_err(|error| sqlx::Error::Encode(error.into()))?;
    let text = said(&item.body);
    let crc = checksum(&item.item_id, &content.0, &[], item.status);
    let query = sqlx::query_scalar(
        "INSERT INTO item_versions (session, seq, item_id, version, change, place, kind, role, content, text, spaced,
            status, sent_chars, heard_chars, response, created_at_ms, crc)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7 ->> 'kind', ?7 ->> 'role', ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)
         RETURNING key",
    );
    let key: i64 = query
        .bind(session.key)
        .bind(item.seq as i64)
        .bind(&item.item_id)
        .bind(item.version as i64)
        .bind(item.change)
        .bind(&item.order_key)
        .bind(content)
        .bind(&text)
        .bind(spaced(&text))
        .bind(item.status)
        .bind(item.sent_chars.map(|chars| chars as i64))
        .bind(item.heard_chars.map(|chars| chars as i64))
        .bind(&item.response)
        .bind(item.created_at_ms)
        .bind(crc)
        .fetch_one(&mut *connection)
        .await?;
    if let ItemBody::Message { speaker: Some(NamedSpeaker { person, .. }), .. } = &item.body {
        let query = match person {
            Some(_) => sqlx::query("UPDATE sessions SET speakers = 1 WHERE key = ? AND speakers = 0"),
            // No rule knows the speaker: what is said here must reach no other of the household.
            None => {
                sqlx::query("UPDATE sessions SET remembered = 0 WHERE key = ? AND remembered = 1 AND household = 1")
            }
        };
        query.bind(session.key).execute(&mut *connection).await?;
    }
    Ok(key)
}

pub async fn make_current(
    connection: &mut SqliteConnection,
    session: &SessionRef,
    item: &ItemVersion,
    key: i64,
) -> Result<()> {
    let query = sqlx::query(
        "INSERT INTO items (session, item_id, current, place, deleted, being_said) VALUES (?, ?, ?, ?, ?, ?)
         ON CONFLICT (session, item_id) DO UPDATE SET
            current = excluded.current, place = excluded.place, deleted = excluded.deleted,
            being_said = excluded.being_said",
    );
    query
        .bind(session.key)
        .bind(&item.item_id)
        .bind(key)
        .bind(&item.order_key)
        .bind(item.change == Change::Deleted)
        .bind(item.status == VersionStatus::InProgress)
        .execute(connection)
        .await?;
    Ok(())
}

/// Finds a key right before the next item that is not deleted: a summary or a response may end with a deleted one, and
/// later items are no part of it.
async fn find_order_key(
    connection: &mut SqliteConnection,
    session: &SessionRef,
    place: &ItemPlace,
) -> Result<OrderKey> {
    let after: Option<OrderKey> = match place {
        ItemPlace::End => None,
        ItemPlace::Head => {
            let first = sqlx::query_scalar("SELECT min(place) FROM items WHERE session = ? AND deleted = 0");
            first.bind(session.key).fetch_one(&mut *connection).await?
        }
        ItemPlace::After(item_id) => {
            let query = sqlx::query_scalar(
                "SELECT (SELECT min(n.place) FROM items n
                    WHERE n.session = i.session AND n.place > i.place AND n.deleted = 0)
                 FROM items i WHERE i.session = ? AND i.item_id = ? AND (i.deleted = 0 OR i.item_id GLOB ? || '_*')",
            );
            // A session in memory may not know yet that a note lost its words: its place stays.
            let query = query.bind(session.key).bind(item_id).bind(session::HIDDEN);
            let next = query.fetch_optional(&mut *connection).await?;
            next.ok_or_else(|| Error::NoItem { item: item_id.clone() })?
        }
    };
    let before = match &after {
        None => sqlx::query_scalar("SELECT max(place) FROM items WHERE session = ?").bind(session.key),
        Some(after) => sqlx::query_scalar("SELECT max(place) FROM items WHERE session = ? AND place < ?")
            .bind(session.key)
            .bind(after),
    };
    let before: Option<OrderKey> = before.fetch_one(connection).await?;
    Ok(OrderKey::between(before.as_ref(), after.as_ref()))
}

pub async fn order_key_of(connection: &mut SqliteConnection, session: &SessionRef, item_id: &str) -> Result<OrderKey> {
    let query = sqlx::query_scalar("SELECT place FROM items WHERE session = ? AND item_id = ?");
    let key = query.bind(session.key).bind(item_id).fetch_optional(connection).await?;
    Ok(key.ok_or_else(|| Error::NoItem { item: item_id.to_owned() })?)
}

pub async fn last_seq(connection: &mut SqliteConnection, session: &SessionRef) -> Result<u64> {
    let query = sqlx::query_scalar("SELECT coalesce(max(seq), 0) FROM item_versions WHERE session = ?");
    Ok(query.bind(session.key).fetch_one(connection).await?)
}

/// Returns the current version of an item that is not deleted.
pub async fn current_version(
    connection: &mut SqliteConnection,
    session: &SessionRef,
    item_id: &str,
) -> Result<Option<ItemVersion>> {
    let query = sqlx::query(
        "SELECT v.* FROM items i JOIN item_versions v ON v.key = i.current
         WHERE i.session = ? AND i.item_id = ? AND i.deleted = 0",
    );
    let row = query.bind(session.key).bind(item_id).fetch_optional(connection).await?;
    row.map(|row| version_of(&row, &session.id)).transpose()
}

/// True if an item up to this key was edited, deleted or inserted after `through_seq`.
pub async fn changed_under(
    connection: &mut SqliteConnection,
    session: &SessionRef,
    to: &OrderKey,
    through_seq: u64,
) -> Result<bool> {
    let query = sqlx::query("SELECT 1 FROM item_versions WHERE session = ? AND seq > ? AND place <= ? LIMIT 1");
    let changed = query.bind(session.key).bind(through_seq as i64).bind(to).fetch_optional(connection).await?;
    Ok(changed.is_some())
}

pub fn versions_of(rows: &[SqliteRow], session_id: &str) -> Result<Vec<ItemVersion>> {
    rows.iter().map(|row| version_of(row, session_id)).collect()
}

/// Reads a row of `item_versions`. A wrong checksum means damage.
pub fn version_of(row: &SqliteRow, session_id: &str) -> Result<ItemVersion> {
    let (content, tokens): (&str, Option<&[u8]>) = (row.try_get("content")?, row.try_get("tokens")?);
    let (item, status): (&str, VersionStatus) = (row.try_get("item_id")?, row.try_get("status")?);
    if checksum(item, content, tokens.unwrap_or_default(), status) != row.try_get::<u32, _>("crc")? {
        let (session, item) = (session_id.to_owned(), item.to_owned());
        return Err(Error::DamagedItem { session, item, version: row.try_get("version")? }.into());
    }
    Ok(ItemVersion::from_row(row)?)
}

/// Computes the checksum that SQLite's pages lack: a read finds a word that the disk changed. `tokens` is empty in all
/// rows but those of releases before the schema's step 4.
fn checksum(item_id: &str, content: &str, tokens: &[u8], status: VersionStatus) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    for field in [item_id.as_bytes(), content.as_bytes(), tokens, status.to_string().as_bytes()] {
        crc.update(&(field.len() as u64).to_le_bytes());
        crc.update(field);
    }
    crc.finalize()
}
