//! A reply while it is being said.
//!
//! The order is: send a piece, then store it. So the store may be a piece behind what a client saw, and never ahead: no
//! crash makes the history claim words that no client was sent. The next start finds a reply that a crash cut off and
//! makes it a version like any other, marked interrupted, with the pieces that were stored.

use crate::item_form::{chars, extend};
use crate::items::{insert_item, version_of, write_version};
use crate::rows::column;
use crate::sessions::touch;
use crate::writer::StoreFailure;
use crate::{Change, Error, ItemVersion, SessionRef, Store, StoredVersion, VersionStatus};
use serde::{Deserialize, Serialize};
use session::{Item, ItemBody, ItemPlace};
use sqlx::sqlite::SqliteConnection;
use tokio::sync::oneshot;

/// A reply in progress. Held by the one task that says it.
#[derive(Debug)]
pub struct OpenReply {
    begun: Begun,
    next_piece: i64,
}

#[derive(Debug, Clone)]
struct Begun {
    session: SessionRef,
    item_id: String,
    version_key: i64,
}

impl OpenReply {
    pub fn item_id(&self) -> &str {
        &self.begun.item_id
    }
}

/// What was sent since the last piece: a sentence, or a few words after some time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplyPiece {
    pub text: String,
    pub sent_at_ms: i64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct FinishedReply {
    /// Completed, Interrupted or Cancelled.
    pub status: VersionStatus,
    /// All of what was sent, and nothing beyond it.
    pub body: ItemBody,
    pub finished_at_ms: i64,
}

impl Store {
    /// Takes the reply's place in the conversation. The item is empty.
    pub async fn begin_reply(
        &self,
        session: &SessionRef,
        item: Item,
        place: ItemPlace,
        response: &str,
        now_ms: i64,
    ) -> Result<(OpenReply, StoredVersion), Error> {
        let (session, response) = (session.clone(), Some(response.to_owned()));
        self.write(move |connection| {
            Box::pin(async move {
                let how = (Change::Begun, VersionStatus::InProgress);
                let (version_key, stored) =
                    insert_item(connection, &session, item, place, response, how, now_ms).await?;
                let begun = Begun { session, item_id: stored.item_id.clone(), version_key };
                Ok((OpenReply { begun, next_piece: 0 }, stored))
            })
        })
        .await
    }

    /// Call after sending. The receiver hears when the piece is on disk. `Error::Busy` means that the queue of writes is full
    /// and the piece was not taken; join it to the next one.
    pub fn extend_reply(
        &self,
        reply: &mut OpenReply,
        piece: ReplyPiece,
    ) -> Result<oneshot::Receiver<Result<(), Error>>, Error> {
        let (begun, n) = (reply.begun.clone(), reply.next_piece);
        let answer = self.write_later(move |connection| Box::pin(insert_piece(connection, begun, n, piece)))?;
        reply.next_piece += 1;
        Ok(answer)
    }

    /// The reply is only lent: what a full disk refused can be tried again.
    pub async fn finish_reply(&self, reply: &OpenReply, finished: FinishedReply) -> Result<StoredVersion, Error> {
        let begun = reply.begun.clone();
        self.write(move |connection| Box::pin(async move { finish(connection, &begun, finished).await })).await
    }

    /// What a crash cut off is closed, as far as it was stored. Called once at start, by the service that holds the lock.
    pub(crate) async fn close_what_a_crash_left(&self, now_ms: i64) -> Result<u64, Error> {
        self.write(move |connection| Box::pin(async move { close_all(connection, now_ms).await })).await
    }
}

async fn insert_piece(
    connection: &mut SqliteConnection,
    begun: Begun,
    n: i64,
    piece: ReplyPiece,
) -> Result<(), StoreFailure> {
    let query = sqlx::query(
        "INSERT INTO reply_pieces (version, n, text, sent_at_ms)
         SELECT current, ?, ?, ? FROM items WHERE current = ? AND being_said = 1",
    );
    let query = query.bind(n).bind(&piece.text).bind(piece.sent_at_ms).bind(begun.version_key);
    let inserted = query.execute(connection).await?;
    if inserted.rows_affected() == 1 { Ok(()) } else { Err(Error::NotInProgress { item: begun.item_id }.into()) }
}

async fn finish(
    connection: &mut SqliteConnection,
    reply: &Begun,
    finished: FinishedReply,
) -> Result<StoredVersion, StoreFailure> {
    touch(connection, &reply.session, finished.finished_at_ms).await?;
    let query = sqlx::query(
        "SELECT v.* FROM items i JOIN item_versions v ON v.key = i.current WHERE i.current = ? AND i.being_said = 1",
    );
    let row = query.bind(reply.version_key).fetch_optional(&mut *connection).await?;
    let row = row.ok_or_else(|| Error::NotInProgress { item: reply.item_id.clone() })?;
    let said = ItemVersion {
        status: finished.status,
        sent_chars: Some(chars(&finished.body)),
        body: finished.body,
        ..version_of(&row, &reply.session.id)?
    };
    close(connection, &reply.session, reply.version_key, said, finished.finished_at_ms).await
}

/// The begun version gets its last one, and its pieces go.
async fn close(
    connection: &mut SqliteConnection,
    session: &SessionRef,
    begun_key: i64,
    said: ItemVersion,
    now_ms: i64,
) -> Result<StoredVersion, StoreFailure> {
    let finished = ItemVersion { change: Change::Finished, created_at_ms: now_ms, ..said };
    let (_, stored) = write_version(connection, session, finished).await?;
    sqlx::query("DELETE FROM reply_pieces WHERE version = ?").bind(begun_key).execute(connection).await?;
    Ok(stored)
}

/// The item with the pieces that were stored since it was begun.
pub async fn with_pieces(
    connection: &mut SqliteConnection,
    version_key: i64,
    mut item: ItemVersion,
) -> Result<ItemVersion, StoreFailure> {
    let query = sqlx::query("SELECT text FROM reply_pieces WHERE version = ? ORDER BY n");
    for row in query.bind(version_key).fetch_all(connection).await? {
        extend(&mut item.body, column(&row, "text")?);
    }
    item.sent_chars = Some(chars(&item.body));
    Ok(item)
}

async fn close_all(connection: &mut SqliteConnection, now_ms: i64) -> Result<u64, StoreFailure> {
    let query = sqlx::query(
        "SELECT v.*, s.user AS session_user, s.id AS session_id
         FROM items i JOIN item_versions v ON v.key = i.current JOIN sessions s ON s.key = i.session
         WHERE i.being_said = 1",
    );
    let rows = query.fetch_all(&mut *connection).await?;
    for row in &rows {
        let (user, id): (&str, &str) = (column(row, "session_user")?, column(row, "session_id")?);
        let session = SessionRef { key: column(row, "session")?, user: user.into(), id: id.into() };
        let begun_key = column(row, "key")?;
        let said = with_pieces(connection, begun_key, version_of(row, id)?).await?;
        let said = ItemVersion { status: VersionStatus::Interrupted, ..said };
        close(connection, &session, begun_key, said, now_ms).await?;
    }
    let responses = sqlx::query(
        "UPDATE responses SET status = 'incomplete', finished_at_ms = ?,
            status_details = json_object('type', 'incomplete', 'reason', 'interrupted') WHERE status = 'in_progress'",
    );
    responses.bind(now_ms).execute(connection).await?;
    Ok(rows.len() as u64)
}
