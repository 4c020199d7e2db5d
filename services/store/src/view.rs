//! Reading a session: as it stands now, and everything that ever happened in it.

use crate::items::item_of;
use crate::replies::with_pieces;
use crate::rows::{column, count};
use crate::sessions::session_of;
use crate::summaries::{Pin, Summary, pins_of_session, summary_of};
use crate::writer::Failure;
use crate::{Error, Item, Role, Session, SessionRef, Status, Store};
use sqlx::sqlite::SqliteConnection;

/// A session as it goes into a prompt: the newest applied summary and what was said after it.
#[derive(Debug, Clone, PartialEq)]
pub struct View {
    pub session: Session,
    pub summary: Option<Summary>,
    /// Something the summary covers was edited, deleted or put in after it was made.
    pub summary_is_stale: bool,
    /// The last version there is, in use or not, undone or not.
    pub newest_summary: Option<Summary>,
    pub pins: Vec<Pin>,
    /// Instructions at the head of the conversation that the summary covers: they stand whatever is summarised.
    pub head: Vec<Item>,
    pub items: Vec<Item>,
    /// Items whose words left the view: results of tools.
    pub trimmed: Vec<String>,
    /// The last thing that happened in the session; a summary planned now holds through here.
    pub last_seq: u64,
}

impl Store {
    pub async fn load(&self, session: &SessionRef) -> Result<View, Error> {
        let mut transaction = self.read().await?;
        let view = load(&mut transaction, session).await.map_err(|failure| failure.at(self.path()));
        transaction.rollback().await.map_err(|error| self.failed(error))?;
        view
    }

    /// Whether something that the summary covers was edited, deleted or put in after it was made.
    pub async fn is_stale(&self, session: &SessionRef, summary: &Summary) -> Result<bool, Error> {
        let mut transaction = self.read().await?;
        let changed = changed_under(&mut transaction, session, &summary.to_place, summary.through_seq).await;
        transaction.rollback().await.map_err(|error| self.failed(error))?;
        changed.map_err(|failure| failure.at(self.path()))
    }

    /// Items as they stand today, in the order of reading, whatever a summary covers. `after` continues a page.
    pub async fn items(&self, session: &SessionRef, after: Option<&str>, limit: u32) -> Result<Vec<Item>, Error> {
        let mut transaction = self.read().await?;
        let items = async {
            check_session(&mut transaction, session).await?;
            let from = match after {
                Some(item_id) => place_of(&mut transaction, session, item_id).await?,
                None => Vec::new(),
            };
            items_after(&mut transaction, session, &from, i64::from(limit)).await
        }
        .await;
        transaction.rollback().await.map_err(|error| self.failed(error))?;
        items.map_err(|failure| failure.at(self.path()))
    }

    /// Every version of everything, in the order in which it happened. `after_seq` continues a page.
    pub async fn history(&self, session: &SessionRef, after_seq: u64, limit: u32) -> Result<Vec<Item>, Error> {
        let query = sqlx::query(
            "SELECT v.* FROM sessions s JOIN item_versions v ON v.session = s.key
             WHERE s.key = ? AND s.user = ? AND s.deleted_at_ms IS NULL AND v.seq > ? ORDER BY v.seq LIMIT ?",
        );
        let query = query.bind(session.key).bind(session.user.to_string()).bind(after_seq as i64).bind(limit);
        let rows = self.rows(query).await?;
        self.each(&rows, |row| item_of(row, &session.id))
    }
}

/// System messages at the head of a conversation that are looked for. More of them are no instructions.
const MOST_AT_HEAD: i64 = 32;

async fn load(connection: &mut SqliteConnection, session: &SessionRef) -> Result<View, Failure> {
    let query = sqlx::query("SELECT * FROM sessions WHERE key = ? AND user = ? AND deleted_at_ms IS NULL");
    let row = query.bind(session.key).bind(session.user.to_string()).fetch_optional(&mut *connection).await?;
    let record = session_of(&row.ok_or_else(|| session.missing())?)?;
    let query = sqlx::query(
        "SELECT * FROM summaries WHERE session = ? AND applied_at_ms IS NOT NULL AND undone_at_ms IS NULL
         ORDER BY version DESC LIMIT 1",
    );
    let row = query.bind(session.key).fetch_optional(&mut *connection).await?;
    let summary = row.map(|row| summary_of(&row, &session.id)).transpose()?;
    let summary_is_stale = match &summary {
        Some(summary) => changed_under(connection, session, &summary.to_place, summary.through_seq).await?,
        None => false,
    };
    let query = sqlx::query("SELECT * FROM summaries WHERE session = ? ORDER BY version DESC LIMIT 1");
    let row = query.bind(session.key).fetch_optional(&mut *connection).await?;
    let newest_summary = row.map(|row| summary_of(&row, &session.id)).transpose()?;
    let from = summary.as_ref().map(|summary| summary.to_place.clone()).unwrap_or_default();
    let items = items_after(connection, session, &from, -1).await?;
    let mut head = Vec::new();
    if let Some(summary) = &summary {
        let first = items_after(connection, session, &[], MOST_AT_HEAD).await?;
        let is_instruction = |item: &Item| item.body.role() == Some(Role::System) && item.place <= summary.to_place;
        head.extend(first.into_iter().take_while(is_instruction));
    }
    let query =
        sqlx::query("SELECT item_id FROM items WHERE session = ? AND place > ? AND trimmed = 1 AND deleted = 0");
    let rows = query.bind(session.key).bind(&from).fetch_all(&mut *connection).await?;
    let trimmed = rows.iter().map(|row| column(row, "item_id")).collect::<Result<_, _>>()?;
    let query = sqlx::query("SELECT coalesce(max(seq), 0) AS seq FROM item_versions WHERE session = ?");
    let last_seq = count(&query.bind(session.key).fetch_one(&mut *connection).await?, "seq")?;
    let pins = pins_of_session(connection, session, false).await?;
    Ok(View { session: record, summary, summary_is_stale, newest_summary, pins, head, items, trimmed, last_seq })
}

pub async fn changed_under(
    connection: &mut SqliteConnection,
    session: &SessionRef,
    to_place: &[u8],
    through_seq: u64,
) -> Result<bool, Failure> {
    let query = sqlx::query("SELECT 1 FROM item_versions WHERE session = ? AND seq > ? AND place <= ? LIMIT 1");
    let changed = query.bind(session.key).bind(through_seq as i64).bind(to_place).fetch_optional(connection).await?;
    Ok(changed.is_some())
}

async fn items_after(
    connection: &mut SqliteConnection,
    session: &SessionRef,
    place: &[u8],
    limit: i64,
) -> Result<Vec<Item>, Failure> {
    let query = sqlx::query(
        "SELECT v.* FROM items i JOIN item_versions v ON v.key = i.current
         WHERE i.session = ? AND i.place > ? AND i.deleted = 0 ORDER BY i.place LIMIT ?",
    );
    let rows = query.bind(session.key).bind(place).bind(limit).fetch_all(&mut *connection).await?;
    let mut items = Vec::with_capacity(rows.len());
    for row in &rows {
        let item = item_of(row, &session.id)?;
        let being_said = item.status == Status::InProgress;
        items.push(if being_said { with_pieces(connection, column(row, "key")?, item).await? } else { item });
    }
    Ok(items)
}

pub async fn check_session(connection: &mut SqliteConnection, session: &SessionRef) -> Result<(), Failure> {
    let query = sqlx::query("SELECT 1 FROM sessions WHERE key = ? AND user = ? AND deleted_at_ms IS NULL");
    let found = query.bind(session.key).bind(session.user.to_string()).fetch_optional(connection).await?;
    if found.is_some() { Ok(()) } else { Err(session.missing().into()) }
}

pub async fn place_of(
    connection: &mut SqliteConnection,
    session: &SessionRef,
    item_id: &str,
) -> Result<Vec<u8>, Failure> {
    let query = sqlx::query("SELECT place FROM items WHERE session = ? AND item_id = ?");
    let row = query.bind(session.key).bind(item_id).fetch_optional(connection).await?;
    column(&row.ok_or_else(|| Error::NoItem { item: item_id.to_owned() })?, "place")
}
