//! Reading a session: its current state, and everything that ever happened in it.

use crate::error::Result;
use crate::page::{Page, fitting, fitting_in};
use crate::replies::add_pieces;
use crate::sessions::{check_session, session_record};
use crate::summaries::{newest_summary, pins_of_session};
use crate::versions::{changed_under, last_seq, order_key_of, versions_of};
use crate::{Error, ItemVersion, OrderKey, Pin, SessionRecord, SessionRef, Store, Summary, VersionStatus};
use session::{ItemBody, Role};
use sqlx::Row;
use sqlx::sqlite::{SqliteConnection, SqliteRow};

/// Session for a prompt: the newest applied summary and the items after it.
#[derive(Debug, Clone, PartialEq)]
pub struct View {
    pub session: SessionRecord,
    pub summary: Option<Summary>,
    /// True if a covered item was edited, deleted or inserted after the summary.
    pub summary_is_stale: bool,
    pub newest_summary: Option<Summary>,
    pub pins: Vec<Pin>,
    pub head: Vec<ItemVersion>,
    pub items: Vec<ItemVersion>,
    /// Tool results whose words left the view.
    pub trimmed: Vec<String>,
    /// Newest `seq` of the session; a summary planned now holds through here.
    pub last_seq: u64,
}

impl Store {
    pub async fn load(&self, session: &SessionRef) -> Result<View, Error> {
        self.read_moment(async |reader| load(reader, session, true).await).await
    }

    pub async fn outline(&self, session: &SessionRef) -> Result<View, Error> {
        self.read_moment(async |reader| load(reader, session, false).await).await
    }

    pub async fn is_stale(&self, session: &SessionRef, summary: &Summary) -> Result<bool, Error> {
        let (to, through_seq) = (&summary.to_order_key, summary.through_seq);
        self.read(async |reader| changed_under(reader, session, to, through_seq).await).await
    }

    pub async fn text_bytes(&self, session: &SessionRef) -> Result<u64, Error> {
        let query = sqlx::query_scalar(
            "SELECT octet_length(instructions) + octet_length(tools) + (
                SELECT coalesce(sum(octet_length(v.content)), 0) FROM items i JOIN item_versions v ON v.key = i.current
                WHERE i.session = s.key AND i.deleted = 0 AND i.place > coalesce((
                    SELECT to_place FROM summaries
                    WHERE session = s.key AND applied_at_ms IS NOT NULL AND undone_at_ms IS NULL
                    ORDER BY version DESC LIMIT 1
                ), x''))
             FROM sessions s WHERE key = ? AND deleted_at_ms IS NULL",
        );
        let query = query.bind(session.key);
        let bytes: Option<i64> = self.read(async |reader| Ok(query.fetch_optional(reader).await?)).await?;
        Ok(bytes.ok_or_else(|| session.missing())?.unsigned_abs())
    }

    /// Lists a page of current items in order, also covered ones. `after` continues it.
    pub async fn items_page(
        &self,
        session: &SessionRef,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Page<ItemVersion>, Error> {
        self.read_moment(async |reader| {
            let from = begin_of_page(reader, session, after).await?;
            let lengths = sqlx::query_scalar(
                "SELECT octet_length(v.content) FROM items i JOIN item_versions v ON v.key = i.current
                 WHERE i.session = ? AND i.place > ? AND i.deleted = 0 ORDER BY i.place LIMIT ?",
            );
            let lengths = lengths.bind(session.key).bind(&from).bind(i64::from(limit) + 1);
            let (fits, has_more) = fitting(reader, lengths, limit).await?;
            Ok(Page { rows: items_after(reader, session, &from, fits).await?, has_more })
        })
        .await
    }

    pub async fn items(
        &self,
        session: &SessionRef,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<ItemVersion>, Error> {
        self.read_moment(async |reader| {
            let from = begin_of_page(reader, session, after).await?;
            items_after(reader, session, &from, i64::from(limit)).await
        })
        .await
    }

    pub async fn items_backwards(
        &self,
        session: &SessionRef,
        before: Option<&str>,
        limit: u32,
    ) -> Result<Page<ItemVersion>, Error> {
        self.read_moment(async |reader| {
            check_session(reader, session).await?;
            let before = match before {
                Some(item_id) => Some(order_key_of(reader, session, item_id).await?),
                None => None,
            };
            let lengths = sqlx::query_scalar(
                "SELECT octet_length(v.content) FROM items i JOIN item_versions v ON v.key = i.current
                 WHERE i.session = ?1 AND (?2 IS NULL OR i.place < ?2) AND i.deleted = 0 ORDER BY i.place DESC LIMIT ?3",
            );
            let lengths = lengths.bind(session.key).bind(&before).bind(i64::from(limit) + 1);
            let (fits, has_more) = fitting(reader, lengths, limit).await?;
            let query = sqlx::query(
                "SELECT v.* FROM items i JOIN item_versions v ON v.key = i.current
                 WHERE i.session = ?1 AND (?2 IS NULL OR i.place < ?2) AND i.deleted = 0 ORDER BY i.place DESC LIMIT ?3",
            );
            let rows = query.bind(session.key).bind(before).bind(fits).fetch_all(&mut *reader).await?;
            Ok(Page { rows: with_pieces(reader, session, rows).await?, has_more })
        })
        .await
    }

    pub async fn item(&self, session: &SessionRef, item_id: &str) -> Result<ItemVersion, Error> {
        self.read_moment(async |reader| {
            check_session(reader, session).await?;
            let query = sqlx::query(
                "SELECT v.* FROM items i JOIN item_versions v ON v.key = i.current
                 WHERE i.session = ? AND i.item_id = ? AND i.deleted = 0",
            );
            let rows = query.bind(session.key).bind(item_id).fetch_all(&mut *reader).await?;
            let found = with_pieces(reader, session, rows).await?.pop();
            Ok(found.ok_or_else(|| Error::NoItem { item: item_id.to_owned() })?)
        })
        .await
    }

    /// Lists every version of every item in order of time. `after_seq` continues a page.
    pub async fn history(&self, session: &SessionRef, after_seq: u64, limit: u32) -> Result<Vec<ItemVersion>, Error> {
        let query = sqlx::query(
            "SELECT v.* FROM sessions s JOIN item_versions v ON v.session = s.key
             WHERE s.key = ? AND s.deleted_at_ms IS NULL AND v.seq > ? ORDER BY v.seq LIMIT ?",
        );
        let query = query.bind(session.key).bind(after_seq as i64).bind(limit);
        self.read(async |reader| versions_of(&query.fetch_all(reader).await?, &session.id)).await
    }
}

/// Limit on system messages at the head that count as instructions.
const MOST_AT_HEAD: i64 = 32;

async fn load(reader: &mut SqliteConnection, session: &SessionRef, has_items: bool) -> Result<View> {
    let record = session_record(reader, session).await?;
    let summary = newest_summary(reader, session, true).await?;
    let summary_is_stale = match &summary {
        Some(summary) => changed_under(reader, session, &summary.to_order_key, summary.through_seq).await?,
        None => false,
    };
    let from = summary.as_ref().map(|summary| summary.to_order_key.clone()).unwrap_or_default();
    let items = if has_items { items_after(reader, session, &from, -1).await? } else { Vec::new() };
    let mut head = Vec::new();
    if let Some(summary) = summary.as_ref().filter(|_| has_items) {
        let first = items_after(reader, session, &OrderKey::default(), MOST_AT_HEAD).await?;
        let is_instruction = |item: &ItemVersion| {
            matches!(item.body, ItemBody::Message { role: Role::System, .. }) && item.order_key <= summary.to_order_key
        };
        head.extend(first.into_iter().take_while(is_instruction));
    }
    let trimmed =
        sqlx::query_scalar("SELECT item_id FROM items WHERE session = ? AND place > ? AND trimmed = 1 AND deleted = 0");
    Ok(View {
        session: record,
        summary,
        summary_is_stale,
        newest_summary: newest_summary(reader, session, false).await?,
        pins: pins_of_session(reader, session, false).await?,
        head,
        items,
        trimmed: trimmed.bind(session.key).bind(&from).fetch_all(&mut *reader).await?,
        last_seq: last_seq(reader, session).await?,
    })
}

async fn begin_of_page(reader: &mut SqliteConnection, session: &SessionRef, after: Option<&str>) -> Result<OrderKey> {
    check_session(reader, session).await?;
    match after {
        Some(item_id) => order_key_of(reader, session, item_id).await,
        None => Ok(OrderKey::default()),
    }
}

async fn items_after(
    reader: &mut SqliteConnection,
    session: &SessionRef,
    after: &OrderKey,
    limit: i64,
) -> Result<Vec<ItemVersion>> {
    let query = sqlx::query(
        "SELECT v.* FROM items i JOIN item_versions v ON v.key = i.current
         WHERE i.session = ? AND i.place > ? AND i.deleted = 0 ORDER BY i.place LIMIT ?",
    );
    let rows = query.bind(session.key).bind(after).bind(limit).fetch_all(&mut *reader).await?;
    with_pieces(reader, session, rows).await
}

/// Lists the last items up to a place, without those that were replaced or forgotten since.
pub(crate) async fn items_up_to(
    reader: &mut SqliteConnection,
    session: &SessionRef,
    through: &OrderKey,
    most: u32,
    most_bytes: i64,
) -> Result<Vec<ItemVersion>> {
    let lengths = sqlx::query_scalar(
        "SELECT octet_length(v.content) FROM items i JOIN item_versions v ON v.key = i.current
         WHERE i.session = ?1 AND i.place <= ?2 AND i.deleted = 0
            AND NOT EXISTS (SELECT 1 FROM unsaid_items u WHERE u.session = i.session AND u.item_id = i.item_id)
         ORDER BY i.place DESC LIMIT ?3",
    );
    let lengths = lengths.bind(session.key).bind(through).bind(most);
    let (fits, _) = fitting_in(reader, lengths, most, most_bytes).await?;
    let query = sqlx::query(
        "SELECT v.* FROM items i JOIN item_versions v ON v.key = i.current
         WHERE i.session = ?1 AND i.place <= ?2 AND i.deleted = 0
            AND NOT EXISTS (SELECT 1 FROM unsaid_items u WHERE u.session = i.session AND u.item_id = i.item_id)
         ORDER BY i.place DESC LIMIT ?3",
    );
    let mut rows = query.bind(session.key).bind(through).bind(fits).fetch_all(&mut *reader).await?;
    rows.reverse();
    with_pieces(reader, session, rows).await
}

async fn with_pieces(
    reader: &mut SqliteConnection,
    session: &SessionRef,
    rows: Vec<SqliteRow>,
) -> Result<Vec<ItemVersion>> {
    let mut items = versions_of(&rows, &session.id)?;
    for (row, item) in rows.iter().zip(&mut items).filter(|(_, item)| item.status == VersionStatus::InProgress) {
        add_pieces(reader, row.try_get("key")?, item).await?;
    }
    Ok(items)
}
