//! Reading a session: as it stands now, and everything that ever happened in it.

use crate::items::{changed_under, order_key_of, version_of};
use crate::order_key::OrderKey;
use crate::replies::with_pieces;
use crate::rows::{column, count};
use crate::sessions::{check_session, session_record};
use crate::summaries::{Pin, Summary, pins_of_session, summary_of};
use crate::writer::StoreFailure;
use crate::{Error, ItemVersion, SessionRecord, SessionRef, Store, VersionStatus};
use session::{ItemBody, Role};
use sqlx::sqlite::SqliteConnection;

/// A session as it goes into a prompt: the newest applied summary and what was said after it.
#[derive(Debug, Clone, PartialEq)]
pub struct View {
    pub session: SessionRecord,
    pub summary: Option<Summary>,
    /// Something the summary covers was edited, deleted or put in after it was made.
    pub summary_is_stale: bool,
    /// The last version there is, in use or not, undone or not.
    pub newest_summary: Option<Summary>,
    pub pins: Vec<Pin>,
    /// Instructions at the head of the conversation that the summary covers: they stand whatever is summarised.
    pub head: Vec<ItemVersion>,
    pub items: Vec<ItemVersion>,
    /// Items whose words left the view: results of tools.
    pub trimmed: Vec<String>,
    /// The last thing that happened in the session; a summary planned now holds through here.
    pub last_seq: u64,
}

impl Store {
    pub async fn load(&self, session: &SessionRef) -> Result<View, Error> {
        let mut transaction = self.read().await?;
        let view = load(&mut transaction, session).await;
        self.end(transaction, view).await
    }

    /// Whether something that the summary covers was edited, deleted or put in after it was made.
    pub async fn is_stale(&self, session: &SessionRef, summary: &Summary) -> Result<bool, Error> {
        let mut transaction = self.read().await?;
        let changed = changed_under(&mut transaction, session, &summary.to_order_key, summary.through_seq).await;
        self.end(transaction, changed).await
    }

    /// Items as they stand today, in the order of reading, whatever a summary covers. `after` continues a page.
    pub async fn items(
        &self,
        session: &SessionRef,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<ItemVersion>, Error> {
        let mut transaction = self.read().await?;
        let items = async {
            check_session(&mut transaction, session).await?;
            let from = match after {
                Some(item_id) => order_key_of(&mut transaction, session, item_id).await?,
                None => OrderKey::default(),
            };
            items_after(&mut transaction, session, &from, i64::from(limit)).await
        }
        .await;
        self.end(transaction, items).await
    }

    /// Every version of everything, in the order in which it happened. `after_seq` continues a page.
    pub async fn history(&self, session: &SessionRef, after_seq: u64, limit: u32) -> Result<Vec<ItemVersion>, Error> {
        let query = sqlx::query(
            "SELECT v.* FROM sessions s JOIN item_versions v ON v.session = s.key
             WHERE s.key = ? AND s.deleted_at_ms IS NULL AND v.seq > ? ORDER BY v.seq LIMIT ?",
        );
        let query = query.bind(session.key).bind(after_seq as i64).bind(limit);
        let rows = self.rows(query).await?;
        self.each(&rows, |row| version_of(row, &session.id))
    }
}

/// System messages at the head of a conversation that are looked for. More of them are no instructions.
const MOST_AT_HEAD: i64 = 32;

async fn load(connection: &mut SqliteConnection, session: &SessionRef) -> Result<View, StoreFailure> {
    let record = session_record(connection, session).await?;
    let query = sqlx::query(
        "SELECT * FROM summaries WHERE session = ? AND applied_at_ms IS NOT NULL AND undone_at_ms IS NULL
         ORDER BY version DESC LIMIT 1",
    );
    let row = query.bind(session.key).fetch_optional(&mut *connection).await?;
    let summary = row.map(|row| summary_of(&row, &session.id)).transpose()?;
    let summary_is_stale = match &summary {
        Some(summary) => changed_under(connection, session, &summary.to_order_key, summary.through_seq).await?,
        None => false,
    };
    let query = sqlx::query("SELECT * FROM summaries WHERE session = ? ORDER BY version DESC LIMIT 1");
    let row = query.bind(session.key).fetch_optional(&mut *connection).await?;
    let newest_summary = row.map(|row| summary_of(&row, &session.id)).transpose()?;
    let from = summary.as_ref().map(|summary| summary.to_order_key.clone()).unwrap_or_default();
    let items = items_after(connection, session, &from, -1).await?;
    let mut head = Vec::new();
    if let Some(summary) = &summary {
        let first = items_after(connection, session, &OrderKey::default(), MOST_AT_HEAD).await?;
        let is_instruction = |item: &ItemVersion| {
            matches!(item.body, ItemBody::Message { role: Role::System, .. }) && item.order_key <= summary.to_order_key
        };
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

async fn items_after(
    connection: &mut SqliteConnection,
    session: &SessionRef,
    after: &OrderKey,
    limit: i64,
) -> Result<Vec<ItemVersion>, StoreFailure> {
    let query = sqlx::query(
        "SELECT v.* FROM items i JOIN item_versions v ON v.key = i.current
         WHERE i.session = ? AND i.place > ? AND i.deleted = 0 ORDER BY i.place LIMIT ?",
    );
    let rows = query.bind(session.key).bind(after).bind(limit).fetch_all(&mut *connection).await?;
    let mut items = Vec::with_capacity(rows.len());
    for row in &rows {
        let item = version_of(row, &session.id)?;
        let being_said = item.status == VersionStatus::InProgress;
        items.push(if being_said { with_pieces(connection, column(row, "key")?, item).await? } else { item });
    }
    Ok(items)
}
