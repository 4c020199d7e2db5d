//! Summaries and pins: views of the history that can be read, edited, undone; the history itself they never touch.

use crate::items::{changed_under, order_key_of};
use crate::order_key::OrderKey;
use crate::records::words;
use crate::rows::{column, count, json, json_text, optional_count, word};
use crate::sessions::{check_session, touch};
use crate::writer::StoreFailure;
use crate::{Error, SessionRef, Store, ids};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sqlx::sqlite::{SqliteConnection, SqliteRow};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SummaryKind {
    Summary,
    /// Oldest turns left the prompt and nothing stands for them yet.
    Drop,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MadeBy {
    Model,
    User,
    Fallback,
}

words! {
    SummaryKind { Summary = "summary", Drop = "drop" }
    MadeBy { Model = "model", User = "user", Fallback = "fallback" }
}

#[derive(Debug, Clone, PartialEq)]
pub struct NewSummary {
    pub kind: SummaryKind,
    pub made_by: MadeBy,
    pub based_on: Option<u64>,
    pub from_item: String,
    pub to_item: String,
    /// `View::last_seq` when it was planned.
    pub through_seq: u64,
    pub text: String,
    pub pins: Value,
    pub checks: Value,
    pub tokens_before: u64,
    pub tokens_after: u64,
    pub arm: Option<String>,
    pub created_at_ms: i64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    pub version: u64,
    pub kind: SummaryKind,
    pub made_by: MadeBy,
    pub based_on: Option<u64>,
    pub from_item: String,
    pub to_item: String,
    #[serde(rename = "from_place")]
    pub from_order_key: OrderKey,
    #[serde(rename = "to_place")]
    pub to_order_key: OrderKey,
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

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pin {
    pub id: String,
    pub text: String,
    pub source_item: Option<String>,
    pub made_by: MadeBy,
    pub created_at_ms: i64,
    pub removed_at_ms: Option<i64>,
}

/// What the summaries and pins of a session were like at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContextStamp((u64, i64, u64));

impl Summary {
    /// It was put to use and not undone. Of several such versions the newest stands.
    pub fn is_in_use(&self) -> bool {
        self.applied_at_ms.is_some() && self.undone_at_ms.is_none()
    }
}

impl Store {
    /// Keeps a summary that is not in use yet; returns its version. Refused when what it covers changed since it was
    /// planned.
    pub async fn add_summary(&self, session: &SessionRef, new: NewSummary) -> Result<u64, Error> {
        let session = session.clone();
        self.write(move |connection| Box::pin(async move { add_summary(connection, &session, new).await })).await
    }

    /// The swap: from the next `load` on, the summary stands for what it covers. Also brings back one that was undone.
    /// The words of the `trimmed` results of tools leave the view with it.
    pub async fn apply_summary(
        &self,
        session: &SessionRef,
        version: u64,
        trimmed: Vec<String>,
        now_ms: i64,
    ) -> Result<(), Error> {
        let session = session.clone();
        self.write(move |connection| {
            Box::pin(async move {
                touch(connection, &session, now_ms).await?;
                let summary = find_summary(connection, &session, version).await?;
                if changed_under(connection, &session, &summary.to_order_key, summary.through_seq).await? {
                    return Err(Error::StaleSummary { version }.into());
                }
                trim(connection, &session, &trimmed).await?;
                set_use(connection, &session, version, Some(now_ms), None).await
            })
        })
        .await
    }

    /// Keeps a summary and puts it to use at once: one that a person wrote, or turns that leave without one. It holds for
    /// the past as it stands now. Returns its version.
    pub async fn add_applied_summary(
        &self,
        session: &SessionRef,
        new: NewSummary,
        trimmed: Vec<String>,
    ) -> Result<u64, Error> {
        let session = session.clone();
        self.write(move |connection| {
            Box::pin(async move {
                let query = sqlx::query("SELECT coalesce(max(seq), 0) AS seq FROM item_versions WHERE session = ?");
                let through_seq = count(&query.bind(session.key).fetch_one(&mut *connection).await?, "seq")?;
                let now_ms = new.created_at_ms;
                let version = add_summary(connection, &session, NewSummary { through_seq, ..new }).await?;
                trim(connection, &session, &trimmed).await?;
                set_use(connection, &session, version, Some(now_ms), None).await?;
                Ok(version)
            })
        })
        .await
    }

    /// The words of these results of tools leave the view.
    pub async fn trim_results(&self, session: &SessionRef, trimmed: Vec<String>, now_ms: i64) -> Result<(), Error> {
        let session = session.clone();
        self.write(move |connection| {
            Box::pin(async move {
                touch(connection, &session, now_ms).await?;
                trim(connection, &session, &trimmed).await
            })
        })
        .await
    }

    /// The one applied before it stands again, or the whole history; results of tools have their words again.
    pub async fn undo_summary(&self, session: &SessionRef, version: u64, now_ms: i64) -> Result<(), Error> {
        let session = session.clone();
        self.write(move |connection| {
            Box::pin(async move {
                touch(connection, &session, now_ms).await?;
                let summary = find_summary(connection, &session, version).await?;
                let query = sqlx::query("UPDATE items SET trimmed = 0 WHERE session = ? AND trimmed = 1");
                query.bind(session.key).execute(&mut *connection).await?;
                set_use(connection, &session, version, summary.applied_at_ms, Some(now_ms)).await
            })
        })
        .await
    }

    pub async fn summaries(&self, session: &SessionRef) -> Result<Vec<Summary>, Error> {
        let query = sqlx::query(
            "SELECT m.* FROM summaries m JOIN sessions s ON s.key = m.session
             WHERE s.key = ? AND s.deleted_at_ms IS NULL ORDER BY m.version",
        );
        let rows = self.rows(query.bind(session.key)).await?;
        self.each(&rows, |row| summary_of(row, &session.id))
    }

    pub async fn add_pin(
        &self,
        session: &SessionRef,
        text: &str,
        source_item: Option<&str>,
        made_by: MadeBy,
        now_ms: i64,
    ) -> Result<Pin, Error> {
        let session = session.clone();
        let (text, source_item) = (text.to_owned(), source_item.map(str::to_owned));
        self.write(move |connection| {
            Box::pin(async move {
                touch(connection, &session, now_ms).await?;
                let id = ids::new_id("pin")?;
                let pin = Pin { id, text, source_item, made_by, created_at_ms: now_ms, removed_at_ms: None };
                insert_pin(connection, &session, &pin).await?;
                Ok(pin)
            })
        })
        .await
    }

    pub async fn remove_pin(&self, session: &SessionRef, id: &str, now_ms: i64) -> Result<(), Error> {
        let (session, id) = (session.clone(), id.to_owned());
        self.write(move |connection| {
            Box::pin(async move {
                touch(connection, &session, now_ms).await?;
                let query = sqlx::query(
                    "UPDATE pins SET removed_at_ms = ? WHERE session = ? AND id = ? AND removed_at_ms IS NULL",
                );
                let removed = query.bind(now_ms).bind(session.key).bind(&id).execute(connection).await?;
                if removed.rows_affected() == 1 { Ok(()) } else { Err(Error::NoPin { pin: id }.into()) }
            })
        })
        .await
    }

    /// Another one than before: the session's summaries or pins were changed.
    pub async fn context_stamp(&self, session: &SessionRef) -> Result<ContextStamp, Error> {
        let query = sqlx::query(
            "SELECT (SELECT count(*) FROM summaries WHERE session = ?1) AS summaries,
                (SELECT coalesce(sum(coalesce(applied_at_ms, 0) + 7 * coalesce(undone_at_ms, 0)), 0)
                    FROM summaries WHERE session = ?1) AS uses,
                (SELECT count(*) + count(removed_at_ms) FROM pins WHERE session = ?1) AS pins",
        );
        let row = self.optional_row(query.bind(session.key)).await?.ok_or_else(|| session.missing())?;
        let stamp = (|| Ok((count(&row, "summaries")?, column(&row, "uses")?, count(&row, "pins")?)))();
        stamp.map(ContextStamp).map_err(|failure: StoreFailure| failure.at(self.path()))
    }

    /// Removed ones too, if asked.
    pub async fn pins(&self, session: &SessionRef, removed_too: bool) -> Result<Vec<Pin>, Error> {
        let mut transaction = self.read().await?;
        let pins = async {
            check_session(&mut transaction, session).await?;
            pins_of_session(&mut transaction, session, removed_too).await
        }
        .await;
        self.end(transaction, pins).await
    }
}

async fn add_summary(
    connection: &mut SqliteConnection,
    session: &SessionRef,
    new: NewSummary,
) -> Result<u64, StoreFailure> {
    touch(connection, session, new.created_at_ms).await?;
    let from_order_key = order_key_of(connection, session, &new.from_item).await?;
    let to_order_key = order_key_of(connection, session, &new.to_item).await?;
    let query = sqlx::query("SELECT coalesce(max(version), 0) + 1 AS version FROM summaries WHERE session = ?");
    let version = count(&query.bind(session.key).fetch_one(&mut *connection).await?, "version")?;
    if changed_under(connection, session, &to_order_key, new.through_seq).await? {
        return Err(Error::StaleSummary { version }.into());
    }
    let summary = Summary {
        version,
        kind: new.kind,
        made_by: new.made_by,
        based_on: new.based_on,
        from_item: new.from_item,
        to_item: new.to_item,
        from_order_key,
        to_order_key,
        through_seq: new.through_seq,
        text: new.text,
        pins: new.pins,
        checks: new.checks,
        tokens_before: new.tokens_before,
        tokens_after: new.tokens_after,
        arm: new.arm,
        created_at_ms: new.created_at_ms,
        applied_at_ms: None,
        undone_at_ms: None,
    };
    insert_summary(connection, session, &summary).await?;
    Ok(version)
}

async fn trim(connection: &mut SqliteConnection, session: &SessionRef, items: &[String]) -> Result<(), StoreFailure> {
    for item_id in items {
        let query = sqlx::query("UPDATE items SET trimmed = 1 WHERE session = ? AND item_id = ?");
        query.bind(session.key).bind(item_id).execute(&mut *connection).await?;
    }
    Ok(())
}

async fn find_summary(
    connection: &mut SqliteConnection,
    session: &SessionRef,
    version: u64,
) -> Result<Summary, StoreFailure> {
    let query = sqlx::query("SELECT * FROM summaries WHERE session = ? AND version = ?");
    let row = query.bind(session.key).bind(version as i64).fetch_optional(connection).await?;
    summary_of(&row.ok_or(Error::NoSummary { version })?, &session.id)
}

async fn set_use(
    connection: &mut SqliteConnection,
    session: &SessionRef,
    version: u64,
    applied_at_ms: Option<i64>,
    undone_at_ms: Option<i64>,
) -> Result<(), StoreFailure> {
    let query =
        sqlx::query("UPDATE summaries SET applied_at_ms = ?, undone_at_ms = ? WHERE session = ? AND version = ?");
    query.bind(applied_at_ms).bind(undone_at_ms).bind(session.key).bind(version as i64).execute(connection).await?;
    Ok(())
}

pub async fn insert_summary(
    connection: &mut SqliteConnection,
    session: &SessionRef,
    summary: &Summary,
) -> Result<(), StoreFailure> {
    let query = sqlx::query(
        "INSERT INTO summaries (session, version, kind, made_by, based_on, from_item, to_item, from_place, to_place,
            through_seq, text, pins, checks, tokens_before, tokens_after, arm, created_at_ms, applied_at_ms,
            undone_at_ms, crc)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    );
    query
        .bind(session.key)
        .bind(summary.version as i64)
        .bind(summary.kind.word())
        .bind(summary.made_by.word())
        .bind(summary.based_on.map(|version| version as i64))
        .bind(&summary.from_item)
        .bind(&summary.to_item)
        .bind(&summary.from_order_key)
        .bind(&summary.to_order_key)
        .bind(summary.through_seq as i64)
        .bind(&summary.text)
        .bind(json_text(&summary.pins))
        .bind(json_text(&summary.checks))
        .bind(summary.tokens_before as i64)
        .bind(summary.tokens_after as i64)
        .bind(&summary.arm)
        .bind(summary.created_at_ms)
        .bind(summary.applied_at_ms)
        .bind(summary.undone_at_ms)
        .bind(i64::from(crc32fast::hash(summary.text.as_bytes())))
        .execute(connection)
        .await?;
    Ok(())
}

pub async fn insert_pin(
    connection: &mut SqliteConnection,
    session: &SessionRef,
    pin: &Pin,
) -> Result<(), StoreFailure> {
    let query = sqlx::query(
        "INSERT INTO pins (session, id, text, source_item, made_by, created_at_ms, removed_at_ms)
         VALUES (?, ?, ?, ?, ?, ?, ?)",
    );
    query
        .bind(session.key)
        .bind(&pin.id)
        .bind(&pin.text)
        .bind(&pin.source_item)
        .bind(pin.made_by.word())
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
) -> Result<Vec<Pin>, StoreFailure> {
    let query = sqlx::query("SELECT * FROM pins WHERE session = ? AND (? OR removed_at_ms IS NULL) ORDER BY key");
    let rows = query.bind(session.key).bind(removed_too).fetch_all(connection).await?;
    rows.iter().map(pin_of).collect()
}

fn pin_of(row: &SqliteRow) -> Result<Pin, StoreFailure> {
    Ok(Pin {
        id: column(row, "id")?,
        text: column(row, "text")?,
        source_item: column(row, "source_item")?,
        made_by: word(row, "made_by", MadeBy::from_word)?,
        created_at_ms: column(row, "created_at_ms")?,
        removed_at_ms: column(row, "removed_at_ms")?,
    })
}

pub fn summary_of(row: &SqliteRow, session_id: &str) -> Result<Summary, StoreFailure> {
    let version = count(row, "version")?;
    let text: String = column(row, "text")?;
    let crc: i64 = column(row, "crc")?;
    if i64::from(crc32fast::hash(text.as_bytes())) != crc {
        return Err(Error::DamagedSummary { session: session_id.to_owned(), version }.into());
    }
    Ok(Summary {
        version,
        kind: word(row, "kind", SummaryKind::from_word)?,
        made_by: word(row, "made_by", MadeBy::from_word)?,
        based_on: optional_count(row, "based_on")?,
        from_item: column(row, "from_item")?,
        to_item: column(row, "to_item")?,
        from_order_key: column(row, "from_place")?,
        to_order_key: column(row, "to_place")?,
        through_seq: count(row, "through_seq")?,
        text,
        pins: json(row, "pins")?,
        checks: json(row, "checks")?,
        tokens_before: count(row, "tokens_before")?,
        tokens_after: count(row, "tokens_after")?,
        arm: column(row, "arm")?,
        created_at_ms: column(row, "created_at_ms")?,
        applied_at_ms: column(row, "applied_at_ms")?,
        undone_at_ms: column(row, "undone_at_ms")?,
    })
}
