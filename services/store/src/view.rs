//! Reading a session: as it stands now, and everything that ever happened in it.

use crate::error::Result;
use crate::page::{Page, fitting};
use crate::replies::add_pieces;
use crate::sessions::{check_session, session_record};
use crate::summaries::{newest_summary, pins_of_session};
use crate::versions::{changed_under, last_seq, order_key_of, versions_of};
use crate::{Error, ItemVersion, OrderKey, Pin, SessionRecord, SessionRef, Store, Summary, VersionStatus};
use session::{ItemBody, Role};
use sqlx::Row;
use sqlx::sqlite::{SqliteConnection, SqliteRow};

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
        self.read_moment(async |reader| load(reader, session).await).await
    }

    /// Whether something that the summary covers was edited, deleted or put in after it was made.
    pub async fn is_stale(&self, session: &SessionRef, summary: &Summary) -> Result<bool, Error> {
        let (to, through_seq) = (&summary.to_order_key, summary.through_seq);
        self.read(async |reader| changed_under(reader, session, to, through_seq).await).await
    }

    /// Bytes of text that `load` would read.
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

    /// A page of items as they stand today, in the order of reading, whatever a summary covers. `after` continues it.
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

    /// The same items without a limit of bytes.
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

    /// A page of them, the last item first.
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

    /// One item as it stands today.
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

    /// Every version of everything, in the order in which it happened. `after_seq` continues a page.
    pub async fn history(&self, session: &SessionRef, after_seq: u64, limit: u32) -> Result<Vec<ItemVersion>, Error> {
        let query = sqlx::query(
            "SELECT v.* FROM sessions s JOIN item_versions v ON v.session = s.key
             WHERE s.key = ? AND s.deleted_at_ms IS NULL AND v.seq > ? ORDER BY v.seq LIMIT ?",
        );
        let query = query.bind(session.key).bind(after_seq as i64).bind(limit);
        self.read(async |reader| versions_of(&query.fetch_all(reader).await?, &session.id)).await
    }
}

/// System messages at the head of a conversation that are looked for. More of them are no instructions.
const MOST_AT_HEAD: i64 = 32;

async fn load(reader: &mut SqliteConnection, session: &SessionRef) -> Result<View> {
    let record = session_record(reader, session).await?;
    let summary = newest_summary(reader, session, true).await?;
    let summary_is_stale = match &summary {
        Some(summary) => changed_under(reader, session, &summary.to_order_key, summary.through_seq).await?,
        None => false,
    };
    let from = summary.as_ref().map(|summary| summary.to_order_key.clone()).unwrap_or_default();
    let items = items_after(reader, session, &from, -1).await?;
    let mut head = Vec::new();
    if let Some(summary) = &summary {
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

/// Where a page begins that continues behind this item.
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

/// The last ones up to a place, but for what was replaced or forgotten since.
pub(crate) async fn items_up_to(
    reader: &mut SqliteConnection,
    session: &SessionRef,
    through: &OrderKey,
    most: u32,
) -> Result<Vec<ItemVersion>> {
    let query = sqlx::query(
        "SELECT v.* FROM items i JOIN item_versions v ON v.key = i.current
         WHERE i.session = ?1 AND i.place <= ?2 AND i.deleted = 0
            AND NOT EXISTS (SELECT 1 FROM unsaid_items u WHERE u.session = i.session AND u.item_id = i.item_id)
         ORDER BY i.place DESC LIMIT ?3",
    );
    let mut rows = query.bind(session.key).bind(through).bind(most).fetch_all(&mut *reader).await?;
    rows.reverse();
    with_pieces(reader, session, rows).await
}

/// A reply that is being said has what was stored of it.
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
