//! Items and their versions: said, put between, edited, cut to what was heard, deleted, said again.

use crate::place;
use crate::rows::{column, count, optional_count, unreadable, word};
use crate::spacing::spaced;
use crate::writer::Failure;
use crate::{Body, Change, Error, Item, NewItem, Position, SessionRef, Status, Store, Stored, ids};
use sqlx::sqlite::{SqliteConnection, SqliteRow};

impl Store {
    /// Returns when it is on disk: that is the moment to acknowledge it.
    pub async fn append(&self, session: &SessionRef, new: NewItem) -> Result<Stored, Error> {
        let session = session.clone();
        self.write(move |connection| {
            Box::pin(
                async move { Ok(insert_item(connection, &session, new, Change::Created, Status::Completed).await?.1) },
            )
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
    ) -> Result<Stored, Error> {
        let (session, item_id) = (session.clone(), item_id.to_owned());
        self.write(move |connection| {
            Box::pin(async move {
                touch(connection, &session, now_ms).await?;
                let old = settled_item(connection, &session, &item_id).await?;
                let not_truncatable = || Error::NotTruncatable { item: item_id.clone(), index: content_index };
                let (body, shorter) = heard(&old.body, content_index, heard_chars).ok_or_else(not_truncatable)?;
                let next = Item {
                    change: Change::Truncated,
                    status: if shorter { Status::Interrupted } else { old.status },
                    sent_chars: old.sent_chars.or_else(|| Some(old.body.chars())),
                    heard_chars: Some(body.chars()),
                    body,
                    created_at_ms: now_ms,
                    ..old
                };
                next_version(connection, &session, &next).await
            })
        })
        .await
    }

    /// The item leaves the conversation; what it said stays in the history.
    pub async fn delete_item(&self, session: &SessionRef, item_id: &str, now_ms: i64) -> Result<Stored, Error> {
        let (session, item_id) = (session.clone(), item_id.to_owned());
        self.write(move |connection| {
            Box::pin(async move {
                touch(connection, &session, now_ms).await?;
                let old = settled_item(connection, &session, &item_id).await?;
                let next = Item { change: Change::Deleted, body: emptied(&old.body), created_at_ms: now_ms, ..old };
                next_version(connection, &session, &next).await
            })
        })
        .await
    }
}

/// `chars` of part `index` and everything before it; and whether that is less than there was. None: no such part.
fn heard(body: &Body, index: usize, chars: u64) -> Option<(Body, bool)> {
    let Body::Message { role, parts } = body else { return None };
    let mut kept = parts.get(..=index)?.to_vec();
    let last = kept.last_mut()?;
    let end = usize::try_from(chars).ok().and_then(|chars| last.text.char_indices().nth(chars)).map(|(end, _)| end);
    if let Some(end) = end {
        last.text.truncate(end);
    }
    let shorter = end.is_some() || kept.len() < parts.len();
    Some((Body::Message { role: *role, parts: kept }, shorter))
}

fn emptied(body: &Body) -> Body {
    match body {
        Body::Message { role, .. } => Body::Message { role: *role, parts: Vec::new() },
        Body::FunctionCall { call_id, .. } => {
            Body::FunctionCall { call_id: call_id.clone(), name: String::new(), arguments: String::new() }
        }
        Body::FunctionCallOutput { call_id, .. } => {
            Body::FunctionCallOutput { call_id: call_id.clone(), output: String::new() }
        }
        Body::Reasoning { .. } => Body::Reasoning { text: String::new() },
    }
}

/// Every write to a session begins here: it is still there, it is theirs, and it was used now.
pub async fn touch(connection: &mut SqliteConnection, session: &SessionRef, now_ms: i64) -> Result<(), Failure> {
    let query = sqlx::query(
        "UPDATE sessions SET updated_at_ms = max(updated_at_ms, ?) WHERE key = ? AND user = ? AND deleted_at_ms IS NULL",
    );
    let touched = query.bind(now_ms).bind(session.key).bind(session.user.to_string()).execute(connection).await?;
    if touched.rows_affected() == 1 { Ok(()) } else { Err(session.missing().into()) }
}

/// Returns the key of the version with the acknowledgement.
pub async fn insert_item(
    connection: &mut SqliteConnection,
    session: &SessionRef,
    new: NewItem,
    change: Change,
    status: Status,
) -> Result<(i64, Stored), Failure> {
    touch(connection, session, new.created_at_ms).await?;
    let item_id = match new.item_id {
        Some(item_id) => item_id,
        None => ids::new_id("item")?,
    };
    let taken = sqlx::query("SELECT 1 FROM items WHERE session = ? AND item_id = ? AND deleted = 0");
    if taken.bind(session.key).bind(&item_id).fetch_optional(&mut *connection).await?.is_some() {
        return Err(Error::ItemExists { item: item_id }.into());
    }
    let place = find_place(connection, session, &new.position).await?;
    let item = Item {
        seq: 0,
        item_id,
        version: 0,
        change,
        place,
        body: new.body,
        status,
        sent_chars: None,
        heard_chars: None,
        response: new.response,
        created_at_ms: new.created_at_ms,
    };
    write_version(connection, session, &item).await
}

pub async fn next_version(
    connection: &mut SqliteConnection,
    session: &SessionRef,
    item: &Item,
) -> Result<Stored, Failure> {
    Ok(write_version(connection, session, item).await?.1)
}

/// The item as it stands, if it stands and is not being said at the moment.
async fn settled_item(connection: &mut SqliteConnection, session: &SessionRef, item_id: &str) -> Result<Item, Failure> {
    let query = sqlx::query(
        "SELECT v.* FROM items i JOIN item_versions v ON v.key = i.current
         WHERE i.session = ? AND i.item_id = ? AND i.deleted = 0",
    );
    let row = query.bind(session.key).bind(item_id).fetch_optional(connection).await?;
    let row = row.ok_or_else(|| Error::NoItem { item: item_id.to_owned() })?;
    let item = item_of(&row, &session.id)?;
    if item.status == Status::InProgress {
        return Err(Error::InProgress { item: item_id.to_owned() }.into());
    }
    Ok(item)
}

/// Writes the version (its `seq` and `version` are found here) and lets the item point to it.
async fn write_version(
    connection: &mut SqliteConnection,
    session: &SessionRef,
    item: &Item,
) -> Result<(i64, Stored), Failure> {
    let query = sqlx::query(
        "SELECT coalesce((SELECT max(seq) FROM item_versions WHERE session = ?1), 0) + 1 AS seq,
                coalesce((SELECT max(version) FROM item_versions WHERE session = ?1 AND item_id = ?2), 0) + 1 AS version",
    );
    let row = query.bind(session.key).bind(&item.item_id).fetch_one(&mut *connection).await?;
    let (seq, version) = (count(&row, "seq")?, count(&row, "version")?);
    let key = insert_version(connection, session, &Item { seq, version, ..item.clone() }).await?;
    point_to(connection, session, item, key).await?;
    let previous = sqlx::query(
        "SELECT item_id FROM items WHERE session = ? AND place < ? AND deleted = 0 ORDER BY place DESC LIMIT 1",
    );
    let previous = previous.bind(session.key).bind(&item.place).fetch_optional(connection).await?;
    let previous_item_id = previous.map(|row| column(&row, "item_id")).transpose()?;
    Ok((key, Stored { item_id: item.item_id.clone(), seq, version, previous_item_id }))
}

/// From now on the item is this version.
pub async fn point_to(
    connection: &mut SqliteConnection,
    session: &SessionRef,
    item: &Item,
    version_key: i64,
) -> Result<(), Failure> {
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
        .bind(&item.place)
        .bind(item.change == Change::Deleted)
        .bind(item.status == Status::InProgress)
        .execute(connection)
        .await?;
    Ok(())
}

/// The row as it is given, `seq` and `version` included: an import writes what an export read.
pub async fn insert_version(
    connection: &mut SqliteConnection,
    session: &SessionRef,
    item: &Item,
) -> Result<i64, Failure> {
    let content = serde_json::to_string(&item.body).map_err(|error| unreadable("content", error.to_string()))?;
    let text = item.body.said();
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
        .bind(&item.place)
        .bind(item.body.kind())
        .bind(item.body.role().map(|role| role.word()))
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
async fn find_place(
    connection: &mut SqliteConnection,
    session: &SessionRef,
    position: &Position,
) -> Result<Vec<u8>, Failure> {
    let (before, after): (Option<Vec<u8>>, Option<Vec<u8>>) = match position {
        Position::End => {
            let last = sqlx::query("SELECT max(place) AS place FROM items WHERE session = ?").bind(session.key);
            (column(&last.fetch_one(connection).await?, "place")?, None)
        }
        Position::Start => {
            let first = sqlx::query("SELECT min(place) AS place FROM items WHERE session = ?").bind(session.key);
            (None, column(&first.fetch_one(connection).await?, "place")?)
        }
        Position::After(item_id) => {
            let query = sqlx::query(
                "SELECT i.place, (SELECT min(place) FROM items n WHERE n.session = i.session AND n.place > i.place) AS next
                 FROM items i WHERE i.session = ? AND i.item_id = ? AND i.deleted = 0",
            );
            let row = query.bind(session.key).bind(item_id).fetch_optional(connection).await?;
            let row = row.ok_or_else(|| Error::NoItem { item: item_id.clone() })?;
            (Some(column(&row, "place")?), column(&row, "next")?)
        }
    };
    Ok(place::between(before.as_deref(), after.as_deref()))
}

/// From a row of `item_versions`.
pub fn item_of(row: &SqliteRow, session_id: &str) -> Result<Item, Failure> {
    let item_id: String = column(row, "item_id")?;
    let content: &str = column(row, "content")?;
    let status = word(row, "status", Status::from_word)?;
    let version = count(row, "version")?;
    let tokens: Option<&[u8]> = column(row, "tokens")?;
    let crc: i64 = column(row, "crc")?;
    if i64::from(checksum(&item_id, content, tokens.unwrap_or_default(), status)) != crc {
        return Err(Error::DamagedItem { session: session_id.to_owned(), item: item_id, version }.into());
    }
    Ok(Item {
        seq: count(row, "seq")?,
        version,
        change: word(row, "change", Change::from_word)?,
        place: column(row, "place")?,
        body: serde_json::from_str(content).map_err(|error| unreadable("content", error.to_string()))?,
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
fn checksum(item_id: &str, content: &str, tokens: &[u8], status: Status) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    for field in [item_id.as_bytes(), content.as_bytes(), tokens, status.word().as_bytes()] {
        crc.update(&(field.len() as u64).to_le_bytes());
        crc.update(field);
    }
    crc.finalize()
}
