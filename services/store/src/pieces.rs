//! Large writes in pieces, so that writes of other sessions come between. A session that begins with many items is marked like
//! a deleted one until it is complete: a crash leaves nothing of it.

use crate::error::Result;
use crate::quota::Quota;
use crate::request_parts::insert_last_part;
use crate::sessions::begin_session;
use crate::versions::insert_item;
use crate::writer::{LARGE_BYTES, WriteQueue};
use crate::{Change, Error, SessionRecord, SessionRef, Store, VersionStatus};
use session::{Item, ItemPlace, RequestDigest};
use sqlx::sqlite::SqliteConnection;

const PIECE_ITEMS: usize = 8;

/// Splits items into those of one write each. There is at least one piece, which may be empty.
pub fn pieces(items: Vec<Item>) -> Vec<Vec<Item>> {
    let (mut pieces, mut piece, mut bytes) = (Vec::new(), Vec::new(), 0);
    for item in items {
        let more = item.body.text_bytes();
        if piece.len() >= PIECE_ITEMS || bytes > 0 && bytes + more > LARGE_BYTES {
            pieces.push(std::mem::take(&mut piece));
            bytes = 0;
        }
        bytes += more;
        piece.push(item);
    }
    pieces.push(piece);
    pieces
}

pub fn queue_of(pieces: &[Vec<Item>]) -> WriteQueue {
    let bytes: usize = pieces.iter().flatten().map(|item| item.body.text_bytes()).sum();
    if pieces.len() > 1 || bytes > LARGE_BYTES { WriteQueue::Pieces } else { WriteQueue::Turns }
}

impl Store {
    /// Creates a session with its first items: all of it or nothing.
    pub async fn create_session_with(
        &self,
        new: SessionRecord,
        items: Vec<Item>,
        of_request: Option<RequestDigest>,
        now_ms: i64,
    ) -> Result<SessionRef, Error> {
        self.create_and_fill(new, items, of_request, now_ms, async |_, _| Ok(())).await
    }

    /// The same, with `last` in the write that shows the session.
    pub(crate) async fn create_and_fill(
        &self,
        new: SessionRecord,
        items: Vec<Item>,
        of_request: Option<RequestDigest>,
        now_ms: i64,
        last: impl AsyncFnOnce(&mut SqliteConnection, &SessionRef) -> Result<()> + Send + 'static,
    ) -> Result<SessionRef, Error> {
        let session = self.begin_hidden(new, now_ms).await?;
        let ends_with = items.last().map(|item| item.id.clone());
        let filled = async {
            let pieces = pieces(items);
            let queue = queue_of(&pieces);
            for piece in pieces {
                let (session, quota) = (session.clone(), self.quota.clone());
                let add = async move |connection: &mut _| add_items(connection, &quota, &session, piece, now_ms).await;
                self.write_in(queue, add).await?;
            }
            let session = session.clone();
            self.write(async move |connection| {
                insert_last_part(connection, &session, ends_with, of_request, now_ms).await?;
                last(connection, &session).await?;
                show(connection, &session).await
            })
            .await
        };
        let filled = filled.await;
        self.or_removed(&session, filled).await.map(|()| session)
    }

    pub(crate) async fn begin_hidden(&self, new: SessionRecord, now_ms: i64) -> Result<SessionRef, Error> {
        let quota = self.quota.clone();
        self.write(async move |connection| {
            let session = begin_session(connection, &quota, &new).await?;
            let hide = sqlx::query("UPDATE sessions SET deleted_at_ms = ? WHERE key = ?");
            hide.bind(filled_since(now_ms)).bind(session.key).execute(connection).await?;
            Ok(session)
        })
        .await
    }

    pub(crate) async fn or_removed<T>(&self, session: &SessionRef, filled: Result<T, Error>) -> Result<T, Error> {
        if filled.is_err()
            && let Err(error) = self.remove_rows(session.key).await
        {
            tracing::warn!(%error, "the rest of a session that could not be filled stays hidden until the next start");
        }
        filled
    }
}

pub async fn show(connection: &mut SqliteConnection, session: &SessionRef) -> Result<()> {
    let show = sqlx::query("UPDATE sessions SET deleted_at_ms = NULL WHERE key = ?");
    let shown = show.bind(session.key).execute(connection).await?;
    if shown.rows_affected() == 1 { Ok(()) } else { Err(session.missing().into()) }
}

pub async fn add_items(
    connection: &mut SqliteConnection,
    quota: &Quota,
    session: &SessionRef,
    items: Vec<Item>,
    now_ms: i64,
) -> Result<()> {
    for item in items {
        quota.take(connection, session.user(), item.body.text_bytes(), now_ms).await?;
        let how = (Change::Created, VersionStatus::Completed);
        insert_item(connection, session, item, ItemPlace::End, None, how, now_ms).await?;
    }
    Ok(())
}

// Mark of a session that is being filled, in `deleted_at_ms`: below 0, so that it is not taken for a deleted one.
pub(crate) fn filled_since(now_ms: i64) -> i64 {
    -now_ms.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use session::Role;

    fn sizes(bytes: &[usize]) -> Vec<usize> {
        let item = |bytes: &usize| Item::message("item", Role::User, "x".repeat(*bytes));
        pieces(bytes.iter().map(item).collect()).iter().map(Vec::len).collect()
    }

    #[test]
    fn a_piece_has_few_items_and_few_bytes() {
        assert_eq!(sizes(&[]), [0]);
        assert_eq!(sizes(&[1; 2 * PIECE_ITEMS + 1]), [PIECE_ITEMS, PIECE_ITEMS, 1]);
        assert_eq!(sizes(&[LARGE_BYTES, 1, 1, LARGE_BYTES - 1, 2 * LARGE_BYTES]), [1, 2, 1, 1]);
    }
}
