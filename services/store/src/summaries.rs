//! Summaries and pins: views of the history that users can read, edit and undo; the history itself never changes.

use crate::error::Result;
use crate::ids::new_id;
use crate::past_owners::forget_past;
use crate::sessions::check_session;
use crate::versions::{changed_under, last_seq, order_key_of};
use crate::{Error, OrderKey, SessionRef, Store};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use session::PastStays;
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::types::Json;
use sqlx::{FromRow, Row};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, sqlx::Type)]
#[serde(rename_all = "snake_case")]
#[sqlx(rename_all = "snake_case")]
pub enum SummaryKind {
    #[default]
    Summary,
    /// Removal of the oldest turns from the prompt, without a summary yet.
    Drop,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, sqlx::Type, strum::Display)]
#[serde(rename_all = "snake_case")]
#[sqlx(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum MadeBy {
    #[default]
    Model,
    User,
    Fallback,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, FromRow)]
pub struct Summary {
    /// Version, which the store sets, like the order keys.
    pub version: u64,
    pub kind: SummaryKind,
    pub made_by: MadeBy,
    pub based_on: Option<u64>,
    pub from_item: String,
    pub to_item: String,
    #[serde(rename = "from_place")]
    #[sqlx(rename = "from_place")]
    pub from_order_key: OrderKey,
    #[serde(rename = "to_place")]
    #[sqlx(rename = "to_place")]
    pub to_order_key: OrderKey,
    /// `View::last_seq` when it was planned.
    pub through_seq: u64,
    pub text: String,
    pub pins: Value,
    pub checks: Value,
    pub tokens_before: u64,
    pub tokens_after: u64,
    pub arm: Option<String>,
    pub created_at_ms: i64,
    pub applied_at_ms: Option<i64>,
    pub undone_at_ms: Option<i64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, FromRow)]
pub struct Pin {
    pub id: String,
    pub text: String,
    pub source_item: Option<String>,
    pub made_by: MadeBy,
    pub created_at_ms: i64,
    pub removed_at_ms: Option<i64>,
}

/// Fingerprint of a session's summaries and pins at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromRow)]
pub struct ContextStamp(u64, i64, u64);

impl Summary {
    /// True if it was applied and not undone. The newest such version is the prompt's.
    pub fn is_in_use(&self) -> bool {
        self.applied_at_ms.is_some() && self.undone_at_ms.is_none()
    }
}

impl Store {
    /// Stores a summary without applying it; returns its version. Fails if a covered item changed since it was planned.
    pub async fn add_summary(&self, session: &SessionRef, new: Summary) -> Result<u64, Error> {
        self.write_session(session, new.created_at_ms, async move |connection, session| {
            add_summary(connection, session, new).await
        })
        .await
    }

    /// Swaps: from the next `load` on, the summary replaces the items that it covers. Also brings back an undone one.
    /// The `trimmed` tool results lose their words in the view.
    pub async fn apply_summary(
        &self,
        session: &SessionRef,
        version: u64,
        trimmed: Vec<String>,
        now_ms: i64,
    ) -> Result<(), Error> {
        self.write_session(session, now_ms, async move |connection, session| {
            let query = sqlx::query_as("SELECT to_place, through_seq FROM summaries WHERE session = ? AND version = ?");
            let row = query.bind(session.key).bind(version as i64).fetch_optional(&mut *connection).await?;
            let (to_order_key, through_seq) = row.ok_or(Error::NoSummary { version })?;
            if changed_under(connection, session, &to_order_key, through_seq).await? {
                return Err(Error::StaleSummary { version }.into());
            }
            trim(connection, session, &trimmed).await?;
            let query = sqlx::query(
                "UPDATE summaries SET applied_at_ms = ?, undone_at_ms = NULL WHERE session = ? AND version = ?",
            );
            query.bind(now_ms).bind(session.key).bind(version as i64).execute(connection).await?;
            Ok(())
        })
        .await
    }

    /// Stores a summary and applies it at once: one that a person wrote, or turns that leave without one. It covers the
    /// past as of now. Returns its version.
    pub async fn add_applied_summary(
        &self,
        session: &SessionRef,
        new: Summary,
        trimmed: Vec<String>,
    ) -> Result<u64, Error> {
        let quota = self.quota.clone();
        self.write_session(session, new.created_at_ms, async move |connection, session| {
            if new.made_by == MadeBy::User {
                quota.take(connection, session.user(), new.text.len(), new.created_at_ms).await?;
            }
            let (through_seq, applied_at_ms) = (last_seq(connection, session).await?, Some(new.created_at_ms));
            trim(connection, session, &trimmed).await?;
            add_summary(connection, session, Summary { through_seq, applied_at_ms, ..new }).await
        })
        .await
    }

    pub async fn trim_results(&self, session: &SessionRef, trimmed: Vec<String>, now_ms: i64) -> Result<(), Error> {
        self.write_session(session, now_ms, async move |connection, session| trim(connection, session, &trimmed).await)
            .await
    }

    /// Undoes a summary: the one applied before it returns, or the whole history, and tool results have their words
    /// again.
    pub async fn undo_summary(&self, session: &SessionRef, version: u64, now_ms: i64) -> Result<(), Error> {
        self.write_session(session, now_ms, async move |connection, session| {
            let query = sqlx::query("UPDATE items SET trimmed = 0 WHERE session = ? AND trimmed = 1");
            query.bind(session.key).execute(&mut *connection).await?;
            let query = sqlx::query("UPDATE summaries SET undone_at_ms = ? WHERE session = ? AND version = ?");
            let undone = query.bind(now_ms).bind(session.key).bind(version as i64).execute(connection).await?;
            if undone.rows_affected() == 1 { Ok(()) } else { Err(Error::NoSummary { version }.into()) }
        })
        .await
    }

    pub async fn summaries(&self, session: &SessionRef) -> Result<Vec<Summary>, Error> {
        self.read_moment(async |reader| {
            check_session(reader, session).await?;
            summaries_of_session(reader, session).await
        })
        .await
    }

    pub async fn add_pin(
        &self,
        session: &SessionRef,
        text: &str,
        source_item: Option<&str>,
        made_by: MadeBy,
        now_ms: i64,
    ) -> Result<Pin, Error> {
        let (id, text, source_item) = (new_id("pin")?, text.to_owned(), source_item.map(str::to_owned));
        let pin = Pin { id, text, source_item, made_by, created_at_ms: now_ms, removed_at_ms: None };
        let quota = self.quota.clone();
        self.write_session(session, now_ms, async move |connection, session| {
            if made_by == MadeBy::User {
                quota.take(connection, session.user(), pin.text.len(), now_ms).await?;
            }
            insert_pin(connection, session, &pin).await?;
            Ok(pin)
        })
        .await
    }

    pub async fn remove_pin(&self, session: &SessionRef, id: &str, now_ms: i64) -> Result<(), Error> {
        let pin = id.to_owned();
        let query = sqlx::query(
            "UPDATE pins SET removed_at_ms = ?, text = '' WHERE session = ? AND id = ? AND removed_at_ms IS NULL",
        );
        let query = query.bind(now_ms).bind(session.key).bind(pin.clone());
        let removed = self.write_session(session, now_ms, async move |connection, session| {
            if query.execute(&mut *connection).await?.rows_affected() == 0 {
                return Err(Error::NoPin { pin }.into());
            }
            // A session that is not in memory drops no files by itself.
            forget_past(connection, session.user(), session.past_owner(), PastStays::Memory, now_ms).await
        });
        removed.await?;
        self.owe_the_log();
        Ok(())
    }

    /// Returns a stamp that differs after each change of the session's summaries or pins.
    pub async fn context_stamp(&self, session: &SessionRef) -> Result<ContextStamp, Error> {
        let query = sqlx::query_as(
            "SELECT (SELECT count(*) FROM summaries WHERE session = ?1),
                (SELECT coalesce(sum(coalesce(applied_at_ms, 0) + 7 * coalesce(undone_at_ms, 0) + (kind = 'drop')), 0)
                    FROM summaries WHERE session = ?1),
                (SELECT count(*) + count(removed_at_ms) FROM pins WHERE session = ?1)",
        );
        self.read_moment(async |reader| {
            check_session(reader, session).await?;
            Ok(query.bind(session.key).fetch_one(reader).await?)
        })
        .await
    }

    pub async fn pins(&self, session: &SessionRef, removed_too: bool) -> Result<Vec<Pin>, Error> {
        self.read_moment(async |reader| {
            check_session(reader, session).await?;
            pins_of_session(reader, session, removed_too).await
        })
        .await
    }
}

async fn add_summary(connection: &mut SqliteConnection, session: &SessionRef, mut new: Summary) -> Result<u64> {
    new.from_order_key = order_key_of(connection, session, &new.from_item).await?;
    new.to_order_key = order_key_of(connection, session, &new.to_item).await?;
    let next = sqlx::query_scalar("SELECT coalesce(max(version), 0) + 1 FROM summaries WHERE session = ?");
    new.version = next.bind(session.key).fetch_one(&mut *connection).await?;
    if changed_under(connection, session, &new.to_order_key, new.through_seq).await? {
        return Err(Error::StaleSummary { version: new.version }.into());
    }
    insert_summary(connection, session, &new).await?;
    Ok(new.version)
}

async fn trim(connection: &mut SqliteConnection, session: &SessionRef, items: &[String]) -> Result<()> {
    for item_id in items {
        let query = sqlx::query("UPDATE items SET trimmed = 1 WHERE session = ? AND item_id = ?");
        query.bind(session.key).bind(item_id).execute(&mut *connection).await?;
    }
    Ok(())
}

pub async fn insert_summary(connection: &mut SqliteConnection, session: &SessionRef, summary: &Summary) -> Result<()> {
    let query = sqlx::query(
        "INSERT INTO summaries (session, version, kind, made_by, based_on, from_item, to_item, from_place, to_place,
            through_seq, text, pins, checks, tokens_before, tokens_after, arm, created_at_ms, applied_at_ms,
            undone_at_ms, crc)
         VALUES (?1, ?2 ->> 'version', ?2 ->> 'kind', ?2 ->> 'made_by', ?2 ->> 'based_on', ?3, ?4,
            unhex(?2 ->> 'from_place'), unhex(?2 ->> 'to_place'), ?2 ->> 'through_seq', ?5,
            ?2 -> 'pins', ?2 -> 'checks', ?2 ->> 'tokens_before', ?2 ->> 'tokens_after', ?2 ->> 'arm',
            ?2 ->> 'created_at_ms', ?2 ->> 'applied_at_ms', ?2 ->> 'undone_at_ms', ?6)",
    );
    // Words from JSON would end at a NUL.
    let query = query.bind(session.key).bind(Json(summary)).bind(&summary.from_item).bind(&summary.to_item);
    query.bind(&summary.text).bind(crc32fast::hash(summary.text.as_bytes())).execute(connection).await?;
    Ok(())
}

pub async fn insert_pin(connection: &mut SqliteConnection, session: &SessionRef, pin: &Pin) -> Result<()> {
    let query = sqlx::query(
        "INSERT INTO pins (session, id, text, source_item, made_by, created_at_ms, removed_at_ms)
         VALUES (?, ?, ?, ?, ?, ?, ?)",
    );
    query
        .bind(session.key)
        .bind(&pin.id)
        .bind(&pin.text)
        .bind(&pin.source_item)
        .bind(pin.made_by)
        .bind(pin.created_at_ms)
        .bind(pin.removed_at_ms)
        .execute(connection)
        .await?;
    Ok(())
}

pub async fn pins_of_session(
    connection: &mut SqliteConnection,
    session: &SessionRef,
    removed_too: bool,
) -> Result<Vec<Pin>> {
    let query = sqlx::query_as("SELECT * FROM pins WHERE session = ? AND (? OR removed_at_ms IS NULL) ORDER BY key");
    Ok(query.bind(session.key).bind(removed_too).fetch_all(connection).await?)
}

pub async fn summaries_of_session(connection: &mut SqliteConnection, session: &SessionRef) -> Result<Vec<Summary>> {
    let query = sqlx::query("SELECT * FROM summaries WHERE session = ? ORDER BY version").bind(session.key);
    let rows = query.fetch_all(connection).await?;
    rows.iter().map(|row| summary_of(row, &session.id)).collect()
}

pub async fn newest_summary(
    connection: &mut SqliteConnection,
    session: &SessionRef,
    in_use: bool,
) -> Result<Option<Summary>> {
    let query = sqlx::query(
        "SELECT * FROM summaries WHERE session = ? AND (NOT ? OR (applied_at_ms IS NOT NULL AND undone_at_ms IS NULL))
         ORDER BY version DESC LIMIT 1",
    );
    let row = query.bind(session.key).bind(in_use).fetch_optional(connection).await?;
    row.map(|row| summary_of(&row, &session.id)).transpose()
}

/// Reads a row of `summaries`. A wrong checksum means damage.
pub fn summary_of(row: &SqliteRow, session_id: &str) -> Result<Summary> {
    let summary = Summary::from_row(row)?;
    if crc32fast::hash(summary.text.as_bytes()) != row.try_get::<u32, _>("crc")? {
        return Err(Error::DamagedSummary { session: session_id.to_owned(), version: summary.version }.into());
    }
    Ok(summary)
}
