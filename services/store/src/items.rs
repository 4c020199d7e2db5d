//! Items: added, inserted, cut to the heard text, deleted, added again.

use crate::erase::erase;
use crate::error::Result;
use crate::handle::touch;
use crate::item_form::chars;
use crate::request_parts::insert_part;
use crate::versions::{current_version, insert_item, insert_next_version};
use crate::writer::ANY_BYTES;
use crate::{Change, Error, ItemVersion, SessionRef, Store, VersionStatus};
use session::{Item, ItemBody, ItemPlace, RequestPart};
use sqlx::sqlite::SqliteConnection;

impl Store {
    /// Adds an item and returns when it is on disk: that is the moment to acknowledge it.
    pub async fn append(
        &self,
        session: &SessionRef,
        item: Item,
        place: ItemPlace,
        now_ms: i64,
    ) -> Result<ItemVersion, Error> {
        self.append_of_request(session, item, place, None, now_ms).await
    }

    /// Adds an item and stores in the same transaction which request it is part of.
    pub async fn append_of_request(
        &self,
        session: &SessionRef,
        item: Item,
        place: ItemPlace,
        part: Option<RequestPart>,
        now_ms: i64,
    ) -> Result<ItemVersion, Error> {
        let (quota, bytes) = (self.quota.clone(), item.body.text_bytes());
        self.write_session_bytes(session, bytes, now_ms, async move |connection, session| {
            quota.take(connection, session.user(), bytes, now_ms).await?;
            let how = (Change::Created, VersionStatus::Completed);
            let added = insert_item(connection, session, item, place, None, how, now_ms).await?.1;
            if let Some(part) = part {
                insert_part(connection, session, &added.item_id, part, now_ms).await?;
            }
            Ok(added)
        })
        .await
    }

    /// Cuts an item to the first `heard_chars` characters of one part, which the user heard. The version before keeps
    /// the rest.
    pub async fn truncate(
        &self,
        session: &SessionRef,
        item_id: &str,
        content_index: usize,
        heard_chars: u64,
        now_ms: i64,
    ) -> Result<ItemVersion, Error> {
        let (item_id, quota) = (item_id.to_owned(), self.quota.clone());
        self.write_session(session, now_ms, async move |connection, session| {
            let old = settled_item(connection, session, &item_id).await?;
            quota.take(connection, session.user(), old.body.text_bytes(), now_ms).await?;
            let not_truncatable = || Error::NotTruncatable { item: item_id, index: content_index };
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
            Ok(insert_next_version(connection, session, next).await?.1)
        })
        .await
    }

    /// Deletes an item from the conversation, with its words wherever they are (see `erase.rs`). It needs no quota: each
    /// item goes once.
    pub async fn delete_item(&self, session: &SessionRef, item_id: &str, now_ms: i64) -> Result<ItemVersion, Error> {
        let (item_id, session) = (item_id.to_owned(), session.clone());
        let user = session.user.clone();
        // A session does not wait for the answer before it writes again: its writes keep their order in one queue.
        let deleted = self.write_forgetting_in(session.queue(ANY_BYTES), &user, async move |connection| {
            touch(connection, &session, now_ms).await?;
            let old = settled_item(connection, &session, &item_id).await?;
            erase(connection, &session, old, now_ms).await
        });
        let deleted = deleted.await?;
        self.owe_the_log();
        Ok(deleted)
    }
}

/// Returns `chars` of part `index` and everything before it, and whether the body got shorter. `None` if there is no
/// such part.
fn heard(body: &ItemBody, index: usize, chars: u64) -> Option<(ItemBody, bool)> {
    let ItemBody::Message { role, parts, speaker } = body else { return None };
    let mut kept = parts.get(..=index)?.to_vec();
    let last = kept.last_mut()?;
    let end = usize::try_from(chars).ok().and_then(|chars| last.char_indices().nth(chars)).map(|(end, _)| end);
    if let Some(end) = end {
        last.truncate(end);
    }
    let shorter = end.is_some() || kept.len() < parts.len();
    Some((ItemBody::Message { role: *role, parts: kept, speaker: speaker.clone() }, shorter))
}

pub(crate) async fn settled_item(
    connection: &mut SqliteConnection,
    session: &SessionRef,
    item_id: &str,
) -> Result<ItemVersion> {
    let item = current_version(connection, session, item_id).await?;
    let item = item.ok_or_else(|| Error::NoItem { item: item_id.to_owned() })?;
    let is_settled = item.status != VersionStatus::InProgress;
    if is_settled { Ok(item) } else { Err(Error::InProgress { item: item.item_id }.into()) }
}
