//! A reply while it is being said.
//!
//! The order is: send a piece, then store it. So the store may be a piece behind what a client saw, and never ahead: no
//! crash makes the history claim words that nobody was sent. A reply that a crash cut off is found at the next start and
//! becomes a version like any other, marked interrupted, with the pieces that were stored.

use crate::items::{insert_item, item_of, next_version, touch};
use crate::measurements::{Measurement, insert_measurement};
use crate::responses::{FinishedResponse, finish_response};
use crate::rows::column;
use crate::writer::Failure;
use crate::{Body, Change, Error, Item, NewItem, SessionRef, Status, Store, Stored};
use serde::{Deserialize, Serialize};
use sqlx::sqlite::SqliteConnection;
use tokio::sync::oneshot;

/// One item of a response in progress. Held by the one task that says it.
#[derive(Debug)]
pub struct Reply {
    begun: Begun,
    next_piece: i64,
}

#[derive(Debug, Clone)]
struct Begun {
    session: SessionRef,
    item_id: String,
    version_key: i64,
}

impl Reply {
    pub fn item_id(&self) -> &str {
        &self.begun.item_id
    }

    pub fn session(&self) -> &SessionRef {
        &self.begun.session
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
    pub status: Status,
    /// All of what was sent, and nothing beyond it.
    pub body: Body,
    pub finished_at_ms: i64,
}

impl Store {
    /// Takes the reply's place in the conversation. `new.body` is empty.
    pub async fn begin_reply(&self, session: &SessionRef, new: NewItem) -> Result<(Reply, Stored), Error> {
        let session = session.clone();
        self.write(move |connection| {
            Box::pin(async move {
                let (version_key, stored) =
                    insert_item(connection, &session, new, Change::Begun, Status::InProgress).await?;
                let begun = Begun { session, item_id: stored.item_id.clone(), version_key };
                Ok((Reply { begun, next_piece: 0 }, stored))
            })
        })
        .await
    }

    /// Call after sending. The receiver hears when the piece is on disk. `Error::Busy` means that the queue of writes is full
    /// and the piece was not taken; join it to the next one.
    pub fn extend_reply(
        &self,
        reply: &mut Reply,
        piece: ReplyPiece,
    ) -> Result<oneshot::Receiver<Result<(), Error>>, Error> {
        let (begun, n) = (reply.begun.clone(), reply.next_piece);
        let answer = self.write_later(move |connection| Box::pin(insert_piece(connection, begun, n, piece)))?;
        reply.next_piece += 1;
        Ok(answer)
    }

    /// The reply is only lent: what a full disk refused can be tried again.
    pub async fn finish_reply(&self, reply: &Reply, finished: FinishedReply) -> Result<Stored, Error> {
        let begun = reply.begun.clone();
        self.write(move |connection| Box::pin(async move { finish_one(connection, &begun, finished).await })).await
    }

    /// The end of a turn in one transaction: its items, its response, what was measured.
    pub async fn finish_turn(
        &self,
        session: &SessionRef,
        replies: Vec<(&Reply, FinishedReply)>,
        response: FinishedResponse,
        measurement: Option<Measurement>,
    ) -> Result<Vec<Stored>, Error> {
        let session = session.clone();
        let replies: Vec<_> = replies.into_iter().map(|(reply, finished)| (reply.begun.clone(), finished)).collect();
        self.write(move |connection| {
            Box::pin(async move {
                let mut stored = Vec::with_capacity(replies.len());
                for (begun, finished) in replies {
                    stored.push(finish_one(connection, &begun, finished).await?);
                }
                finish_response(connection, &session, response).await?;
                if let Some(measurement) = measurement {
                    insert_measurement(connection, &session, &measurement).await?;
                }
                Ok(stored)
            })
        })
        .await
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
) -> Result<(), Failure> {
    let query = sqlx::query(
        "INSERT INTO reply_pieces (version, n, text, sent_at_ms)
         SELECT v.key, ?, ?, ? FROM items i JOIN item_versions v ON v.key = i.current
         WHERE i.current = ? AND i.being_said = 1",
    );
    let inserted =
        query.bind(n).bind(&piece.text).bind(piece.sent_at_ms).bind(begun.version_key).execute(connection).await?;
    if inserted.rows_affected() == 1 { Ok(()) } else { Err(Error::NotInProgress { item: begun.item_id }.into()) }
}

async fn finish_one(
    connection: &mut SqliteConnection,
    reply: &Begun,
    finished: FinishedReply,
) -> Result<Stored, Failure> {
    touch(connection, &reply.session, finished.finished_at_ms).await?;
    let query = sqlx::query(
        "SELECT v.* FROM items i JOIN item_versions v ON v.key = i.current WHERE i.current = ? AND i.being_said = 1",
    );
    let row = query.bind(reply.version_key).fetch_optional(&mut *connection).await?;
    let row = row.ok_or_else(|| Error::NotInProgress { item: reply.item_id.clone() })?;
    let unfinished = item_of(&row, &reply.session.id)?;
    let sent_chars = Some(finished.body.chars());
    let item = Item {
        change: Change::Finished,
        status: finished.status,
        body: finished.body,
        sent_chars,
        created_at_ms: finished.finished_at_ms,
        ..unfinished
    };
    let stored = next_version(connection, &reply.session, &item).await?;
    sqlx::query("DELETE FROM reply_pieces WHERE version = ?").bind(reply.version_key).execute(connection).await?;
    Ok(stored)
}

/// The item with the pieces that were stored since it was begun.
pub async fn with_pieces(connection: &mut SqliteConnection, version_key: i64, mut item: Item) -> Result<Item, Failure> {
    let query = sqlx::query("SELECT text FROM reply_pieces WHERE version = ? ORDER BY n");
    for row in query.bind(version_key).fetch_all(connection).await? {
        item.body.extend(column(&row, "text")?);
    }
    item.sent_chars = Some(item.body.chars());
    Ok(item)
}

async fn close_all(connection: &mut SqliteConnection, now_ms: i64) -> Result<u64, Failure> {
    let query = sqlx::query(
        "SELECT v.*, s.user AS session_user, s.id AS session_id
         FROM items i JOIN item_versions v ON v.key = i.current JOIN sessions s ON s.key = i.session
         WHERE i.being_said = 1",
    );
    let rows = query.fetch_all(&mut *connection).await?;
    for row in &rows {
        let (user, id): (&str, &str) = (column(row, "session_user")?, column(row, "session_id")?);
        let session = SessionRef { key: column(row, "session")?, user: user.into(), id: id.into() };
        let version_key = column(row, "key")?;
        let begun = item_of(row, id)?;
        let said = with_pieces(connection, version_key, begun).await?;
        let item = Item { change: Change::Finished, status: Status::Interrupted, created_at_ms: now_ms, ..said };
        next_version(connection, &session, &item).await?;
        sqlx::query("DELETE FROM reply_pieces WHERE version = ?").bind(version_key).execute(&mut *connection).await?;
    }
    let responses = sqlx::query(
        "UPDATE responses SET status = 'incomplete', finished_at_ms = ?,
            status_details = json_object('type', 'incomplete', 'reason', 'interrupted') WHERE status = 'in_progress'",
    );
    responses.bind(now_ms).execute(connection).await?;
    Ok(rows.len() as u64)
}
