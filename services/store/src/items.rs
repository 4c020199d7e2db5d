//! Items and their versions: said, put between, cut to what was heard, deleted, said again.

use crate::item_form::{self, chars, kind_word, role_word, said};
use crate::order_key::OrderKey;
use crate::rows::{column, count, optional_count, unreadable, word};
use crate::sessions::touch;
use crate::spacing::spaced;
use crate::writer::StoreFailure;
use crate::{Change, Error, ItemVersion, SessionRef, Store, StoredVersion, VersionStatus};
use session::{Item, ItemBody, ItemPlace};
use sqlx::Row;
use sqlx::sqlite::{SqliteConnection, SqliteRow};

impl Store {
    /// Returns when it is on disk: that is the moment to acknowledge it.
    pub async fn append(
        &self,
        session: &SessionRef,
        item: Item,
        place: ItemPlace,
        now_ms: i64,
    ) -> Result<StoredVersion, Error> {
        let session = session.clone();
        self.write(move |connection| {
            Box::pin(async move {
                let how = (Change::Created, VersionStatus::Completed);
                Ok(insert_item(connection, &session, item, place, None, how, now_ms).await?.1)
            })
        })
        .await
    }

    /// The user heard only the first `heard_chars` characters of one part: that is what was said. What was sent beyond it
    /// stays in the version before.
    pub async fn truncate(
        &self,
        session: &SessionRef,
        item_id: &str,
        content_index: usize,
        heard_chars: u64,
        now_ms: i64,
    ) -> Result<StoredVersion, Error> {
        let (session, item_id) = (session.clone(), item_id.to_owned());
        self.write(move |connection| {
            Box::pin(async move {
                touch(connection, &session, now_ms).await?;
                let old = settled_item(connection, &session, &item_id).await?;
                let not_truncatable = || Error::NotTruncatable { item: item_id.clone(), index: content_index };
                let (body, shorter) = heard(&old.body, content_index, heard_chars).ok_or_else(not_truncatable)?;
                let next = ItemVersion {
                    change: Change::Truncated,
                    status: if shorter { VersionStatus::Interrupted } else { old.status },
                    sent_chars: old.sent_chars.or_else(|| Some(chars(&old.body))),
                    heard_chars: Some(chars(&body)),
                    body,
                    created_at_ms: now_ms,
                    ..old
                };
                Ok(write_version(connection, &session, next).await?.1)
            })
        })
        .await
    }

    /// The item leaves the conversation; what it said stays in the history.
    pub async fn delete_item(&self, session: &SessionRef, item_id: &str, now_ms: i64) -> Result<StoredVersion, Error> {
        let (session, item_id) = (session.clone(), item_id.to_owned());
        self.write(move |connection| {
            Box::pin(async move {
                touch(connection, &session, now_ms).await?;
                let old = settled_item(connection, &session, &item_id).await?;
                let next =
                    ItemVersion { change: Change::Deleted, body: emptied(&old.body), created_at_ms: now_ms, ..old };
                Ok(write_version(connection, &session, next).await?.1)
            })
        })
        .await
    }
}

/// `chars` of part `index` and everything before it; and whether that is less than there was. None: no such part.
fn heard(body: &ItemBody, index: usize, chars: u64) -> Option<(ItemBody, bool)> {
    let ItemBody::Message { role, parts } = body else { return None };
    let mut kept = parts.get(..=index)?.to_vec();
    let last = kept.last_mut()?;
    let end = usize::try_from(chars).ok().and_then(|chars| last.char_indices().nth(chars)).map(|(end, _)| end);
    if let Some(end) = end {
        last.truncate(end);
    }
    let shorter = end.is_some() || kept.len() < parts.len();
    Some((ItemBody::Message { role: *role, parts: kept }, shorter))
}

fn emptied(body: &ItemBody) -> ItemBody {
    match body {
        ItemBody::Message { role, .. } => ItemBody::Message { role: *role, parts: Vec::new() },
        ItemBody::FunctionCall { call_id, .. } => {
            ItemBody::FunctionCall { call_id: call_id.clone(), name: String::new(), arguments: String::new() }
        }
        ItemBody::FunctionCallOutput { call_id, .. } => {
            ItemBody::FunctionCallOutput { call_id: call_id.clone(), output: String::new() }
        }
    }
}

/// Returns the key of the version with the acknowledgement.
pub async fn insert_item(
    connection: &mut SqliteConnection,
    session: &SessionRef,
    item: Item,
    place: ItemPlace,
    response: Option<String>,
    (change, status): (Change, VersionStatus),
    now_ms: i64,
) -> Result<(i64, StoredVersion), StoreFailure> {
    touch(connection, session, now_ms).await?;
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
    write_version(connection, session, version).await
}

/// The item as it stands, if it stands and is not being said at the moment.
async fn settled_item(
    connection: &mut SqliteConnection,
    session: &SessionRef,
    item_id: &str,
) -> Result<ItemVersion, StoreFailure> {
    let query = sqlx::query(
        "SELECT v.* FROM items i JOIN item_versions v ON v.key = i.current
         WHERE i.session = ? AND i.item_id = ? AND i.deleted = 0",
    );
    let row = query.bind(session.key).bind(item_id).fetch_optional(connection).await?;
    let row = row.ok_or_else(|| Error::NoItem { item: item_id.to_owned() })?;
    let item = version_of(&row, &session.id)?;
    if item.status == VersionStatus::InProgress {
        return Err(Error::InProgress { item: item_id.to_owned() }.into());
    }
    Ok(item)
}

/// Writes the version (its `seq` and `version` are found here) and lets the item point to it. Returns its key, and the
/// acknowledgement.
pub async fn write_version(
    connection: &mut SqliteConnection,
    session: &SessionRef,
    item: ItemVersion,
) -> Result<(i64, StoredVersion), StoreFailure> {
    let query = sqlx::query(
        "SELECT coalesce((SELECT max(seq) FROM item_versions WHERE session = ?1), 0) + 1 AS seq,
                coalesce((SELECT max(version) FROM item_versions WHERE session = ?1 AND item_id = ?2), 0) + 1 AS version",
    );
    let row = query.bind(session.key).bind(&item.item_id).fetch_one(&mut *connection).await?;
    let (seq, version) = (count(&row, "seq")?, count(&row, "version")?);
    let item = ItemVersion { seq, version, ..item };
    let key = insert_version(connection, session, &item).await?;
    point_to(connection, session, &item, key).await?;
    let previous = sqlx::query(
        "SELECT item_id FROM items WHERE session = ? AND place < ? AND deleted = 0 ORDER BY place DESC LIMIT 1",
    );
    let previous = previous.bind(session.key).bind(&item.order_key).fetch_optional(connection).await?;
    let previous_item_id = previous.map(|row| column(&row, "item_id")).transpose()?;
    Ok((key, StoredVersion { item_id: item.item_id, seq, version, previous_item_id }))
}

/// From now on the item is this version.
pub async fn point_to(
    connection: &mut SqliteConnection,
    session: &SessionRef,
    item: &ItemVersion,
    version_key: i64,
) -> Result<(), StoreFailure> {
    let query = sqlx::query(
        "INSERT INTO items (session, item_id, current, place, deleted, being_said) VALUES (?, ?, ?, ?, ?, ?)
         ON CONFLICT (session, item_id) DO UPDATE SET
            current = excluded.current, place = excluded.place, deleted = excluded.deleted,
            being_said = excluded.being_said",
    );
    query
        .bind(session.key)
        .bind(&item.item_id)
        .bind(version_key)
        .bind(&item.order_key)
        .bind(item.change == Change::Deleted)
        .bind(item.status == VersionStatus::InProgress)
        .execute(connection)
        .await?;
    Ok(())
}

/// The row as it is given, `seq` and `version` included: an import writes what an export read.
pub async fn insert_version(
    connection: &mut SqliteConnection,
    session: &SessionRef,
    item: &ItemVersion,
) -> Result<i64, StoreFailure> {
    let content = item_form::serialize(&item.body, serde_json::value::Serializer);
    let content = content.map_err(|error| unreadable("content", error.to_string()))?.to_string();
    let text = said(&item.body);
    let crc = checksum(&item.item_id, &content, &[], item.status);
    let query = sqlx::query(
        "INSERT INTO item_versions (session, seq, item_id, version, change, place, kind, role, content, text, spaced,
            status, sent_chars, heard_chars, response, created_at_ms, crc)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING key",
    );
    let row = query
        .bind(session.key)
        .bind(item.seq as i64)
        .bind(&item.item_id)
        .bind(item.version as i64)
        .bind(item.change.word())
        .bind(&item.order_key)
        .bind(kind_word(&item.body))
        .bind(match &item.body {
            ItemBody::Message { role, .. } => Some(role_word(*role)),
            ItemBody::FunctionCall { .. } | ItemBody::FunctionCallOutput { .. } => None,
        })
        .bind(&content)
        .bind(&text)
        .bind(spaced(&text))
        .bind(item.status.word())
        .bind(item.sent_chars.map(|chars| chars as i64))
        .bind(item.heard_chars.map(|chars| chars as i64))
        .bind(&item.response)
        .bind(item.created_at_ms)
        .bind(i64::from(crc))
        .fetch_one(connection)
        .await?;
    column(&row, "key")
}

/// Deleted items still take part: nothing new may land before one that a summary ends with.
async fn find_order_key(
    connection: &mut SqliteConnection,
    session: &SessionRef,
    place: &ItemPlace,
) -> Result<OrderKey, StoreFailure> {
    let (before, after): (Option<OrderKey>, Option<OrderKey>) = match place {
        ItemPlace::End => {
            let last = sqlx::query("SELECT max(place) FROM items WHERE session = ?").bind(session.key);
            (last.fetch_one(connection).await?.try_get(0)?, None)
        }
        ItemPlace::Head => {
            let first = sqlx::query("SELECT min(place) FROM items WHERE session = ?").bind(session.key);
            (None, first.fetch_one(connection).await?.try_get(0)?)
        }
        ItemPlace::After(item_id) => {
            let query = sqlx::query(
                "SELECT i.place, (SELECT min(place) FROM items n WHERE n.session = i.session AND n.place > i.place) AS next
                 FROM items i WHERE i.session = ? AND i.item_id = ? AND i.deleted = 0",
            );
            let row = query.bind(session.key).bind(item_id).fetch_optional(connection).await?;
            let row = row.ok_or_else(|| Error::NoItem { item: item_id.clone() })?;
            (Some(column(&row, "place")?), column(&row, "next")?)
        }
    };
    Ok(OrderKey::between(before.as_ref(), after.as_ref()))
}

/// The place of an item, also of a deleted one.
pub async fn order_key_of(
    connection: &mut SqliteConnection,
    session: &SessionRef,
    item_id: &str,
) -> Result<OrderKey, StoreFailure> {
    let query = sqlx::query("SELECT place FROM items WHERE session = ? AND item_id = ?");
    let row = query.bind(session.key).bind(item_id).fetch_optional(connection).await?;
    column(&row.ok_or_else(|| Error::NoItem { item: item_id.to_owned() })?, "place")
}

/// Whether something up to this key was edited, deleted or put in after `through_seq`.
pub async fn changed_under(
    connection: &mut SqliteConnection,
    session: &SessionRef,
    to: &OrderKey,
    through_seq: u64,
) -> Result<bool, StoreFailure> {
    let query = sqlx::query("SELECT 1 FROM item_versions WHERE session = ? AND seq > ? AND place <= ? LIMIT 1");
    let changed = query.bind(session.key).bind(through_seq as i64).bind(to).fetch_optional(connection).await?;
    Ok(changed.is_some())
}

/// From a row of `item_versions`. A checksum that does not fit is damage.
pub fn version_of(row: &SqliteRow, session_id: &str) -> Result<ItemVersion, StoreFailure> {
    let item_id: String = column(row, "item_id")?;
    let content: &str = column(row, "content")?;
    let status = word(row, "status", VersionStatus::from_word)?;
    let version = count(row, "version")?;
    let tokens: Option<&[u8]> = column(row, "tokens")?;
    let crc: i64 = column(row, "crc")?;
    if i64::from(checksum(&item_id, content, tokens.unwrap_or_default(), status)) != crc {
        return Err(Error::DamagedItem { session: session_id.to_owned(), item: item_id, version }.into());
    }
    Ok(ItemVersion {
        seq: count(row, "seq")?,
        version,
        change: word(row, "change", Change::from_word)?,
        order_key: column(row, "place")?,
        body: item_form::deserialize(&mut serde_json::Deserializer::from_str(content))
            .map_err(|error| unreadable("content", error.to_string()))?,
        status,
        sent_chars: optional_count(row, "sent_chars")?,
        heard_chars: optional_count(row, "heard_chars")?,
        response: column(row, "response")?,
        created_at_ms: column(row, "created_at_ms")?,
        item_id,
    })
}

/// SQLite keeps no checksum of its pages. With this one, a disk that changes a word is found when the word is read.
/// `tokens` is empty in all rows but those of releases before the schema's step 4.
fn checksum(item_id: &str, content: &str, tokens: &[u8], status: VersionStatus) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    for field in [item_id.as_bytes(), content.as_bytes(), tokens, status.word().as_bytes()] {
        crc.update(&(field.len() as u64).to_le_bytes());
        crc.update(field);
    }
    crc.finalize()
}
