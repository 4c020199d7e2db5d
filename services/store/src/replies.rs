//! Replies in progress.
//!
//! The order is: write words into the journal, send them, store them as a piece. So a killed process loses nothing that
//! a client heard, and the history claims at most the words that were about to be sent. The next start finds a reply
//! that a crash cut off and makes it a version like any other, marked interrupted, with all of these words.

use crate::error::Result;
use crate::item_form::{chars, extend, said};
use crate::journal::SaidReply;
use crate::versions::{current_version, insert_item, insert_next_version, version_of};
use crate::writer::StoreAnswer;
use crate::{Change, Error, ItemVersion, SessionRef, Store, VersionStatus};
use session::{Item, ItemBody, ItemPlace, ItemStatus, Role};
use sqlx::Row;
use sqlx::sqlite::SqliteConnection;
use std::sync::Arc;

/// Reply in progress, for the one task that writes it.
#[derive(Debug, Clone)]
pub struct OpenReply {
    session: SessionRef,
    version_key: i64,
    begun: Arc<ItemVersion>,
}

impl OpenReply {
    pub fn item_id(&self) -> &str {
        &self.begun.item_id
    }
}

impl Store {
    /// Begins a reply in the journal, before its first words are sent and as early as it is known. `after`: the item
    /// before it. `words`: the heard text of a reply that resumes.
    pub fn begin_words(&self, session: &SessionRef, item: &str, response: &str, after: Option<&str>, words: &str) {
        if let Some(journal) = self.journal() {
            let (item, response, after) = (item.to_owned(), response.to_owned(), after.map(str::to_owned));
            journal.begin(SaidReply { session: session.key, item, response, after, text: words.to_owned() });
        }
    }

    /// Writes words into the journal before they are sent. After an error a kill would lose them: the caller must not
    /// send them.
    pub fn write_words(&self, session: &SessionRef, item: &str, words: &str) -> Result<(), Error> {
        let written = self.journal().map_or(Ok(()), |journal| journal.say(session, item, words));
        written.map_err(|error| Error::from_io(self.path(), error))
    }

    fn end_words(&self, session: &SessionRef, item: &str, response: &str) {
        if let Some(journal) = self.journal() {
            journal.end(session, item, response);
        }
    }

    /// Reserves the reply's place in the conversation, with an empty item.
    pub async fn begin_reply(
        &self,
        session: &SessionRef,
        item: Item,
        place: ItemPlace,
        response: &str,
        now_ms: i64,
    ) -> Result<OpenReply, Error> {
        let (item_id, of) = (item.id.clone(), Some(response.to_owned()));
        let write = self.write_session(session, now_ms, async move |connection, session| {
            let how = (Change::Begun, VersionStatus::InProgress);
            let (version_key, begun) = insert_item(connection, session, item, place, of, how, now_ms).await?;
            Ok(OpenReply { session: session.clone(), version_key, begun: begun.into() })
        });
        let begun = write.await;
        if begun.is_err() {
            self.end_words(session, &item_id, response);
        }
        begun
    }

    /// Resumes a stopped reply for another response: its item is in progress again, with the heard text.
    pub async fn resume_reply(
        &self,
        session: &SessionRef,
        item: Item,
        response: &str,
        now_ms: i64,
    ) -> Result<OpenReply, Error> {
        let (item_id, response_id) = (item.id.clone(), response.to_owned());
        let write = self.write_session(session, now_ms, async move |connection, session| {
            let before = current_version(connection, session, &item.id).await?;
            let before = before.ok_or_else(|| Error::NoItem { item: item.id.clone() })?;
            let (version_key, begun) = begin_again(connection, session, before, item.body, response_id, now_ms).await?;
            Ok(OpenReply { session: session.clone(), version_key, begun: begun.into() })
        });
        let begun = write.await;
        if begun.is_err() {
            self.end_words(session, &item_id, response);
        }
        begun
    }

    /// Stores a piece that was sent: a sentence, or a few words after some time. The answer comes when the piece is on
    /// disk. After `Error::Busy` the queue of writes is full and has not taken the piece; join it to the next one.
    pub fn extend_reply(&self, reply: &OpenReply, text: String, sent_at_ms: i64) -> Result<StoreAnswer<()>, Error> {
        let (item, version_key) = (reply.begun.item_id.clone(), reply.version_key);
        self.write_later(reply.session.queue(text.len()), async move |connection| {
            let query = sqlx::query(
                "INSERT INTO reply_pieces (version, n, text, sent_at_ms)
                 SELECT current, (SELECT coalesce(max(n), -1) + 1 FROM reply_pieces WHERE version = current), ?, ?
                 FROM items WHERE current = ? AND being_said = 1",
            );
            let inserted = query.bind(text).bind(sent_at_ms).bind(version_key).execute(connection).await?;
            if inserted.rows_affected() == 1 { Ok(()) } else { Err(Error::NotInProgress { item }.into()) }
        })
    }

    /// Ends a reply. `status` is Completed, Interrupted or Cancelled; `body` is all that was sent, and nothing beyond
    /// it. It borrows the reply, so that the caller can try again after a full disk.
    pub async fn finish_reply(
        &self,
        reply: &OpenReply,
        status: VersionStatus,
        body: ItemBody,
        now_ms: i64,
    ) -> Result<ItemVersion, Error> {
        let OpenReply { session, version_key, begun } = reply.clone();
        let response = begun.response.clone().unwrap_or_default();
        let bytes = body.text_bytes();
        let write = self.write_session_bytes(&session, bytes, now_ms, async move |connection, session| {
            let query = sqlx::query("SELECT 1 FROM items WHERE current = ? AND being_said = 1").bind(version_key);
            if query.fetch_optional(&mut *connection).await?.is_none() {
                return Err(Error::NotInProgress { item: begun.item_id.clone() }.into());
            }
            let sent_chars = Some(chars(&body));
            let said = ItemVersion { status, sent_chars, body, created_at_ms: now_ms, ..ItemVersion::clone(&begun) };
            finish(connection, session, version_key, said).await
        });
        let finished = write.await;
        if !finished.as_ref().is_err_and(Error::may_pass) {
            self.end_words(&session, reply.item_id(), &response);
        }
        finished
    }

    /// Closes replies that a crash cut off. Called once at start, by the service that holds the lock.
    pub(crate) async fn close_what_a_crash_left(&self, said: Vec<SaidReply>, now_ms: i64) -> Result<usize, Error> {
        self.write(async move |connection| close_all(connection, said, now_ms).await).await
    }
}

async fn begin_again(
    connection: &mut SqliteConnection,
    session: &SessionRef,
    before: ItemVersion,
    body: ItemBody,
    response: String,
    now_ms: i64,
) -> Result<(i64, ItemVersion)> {
    let begun = ItemVersion {
        change: Change::Begun,
        status: VersionStatus::InProgress,
        body,
        sent_chars: None,
        heard_chars: None,
        response: Some(response),
        created_at_ms: now_ms,
        ..before
    };
    insert_next_version(connection, session, begun).await
}

async fn finish(
    connection: &mut SqliteConnection,
    session: &SessionRef,
    begun_key: i64,
    said: ItemVersion,
) -> Result<ItemVersion> {
    let finished = ItemVersion { change: Change::Finished, ..said };
    let (_, stored) = insert_next_version(connection, session, finished).await?;
    sqlx::query("DELETE FROM reply_pieces WHERE version = ?").bind(begun_key).execute(connection).await?;
    Ok(stored)
}

pub async fn add_pieces(connection: &mut SqliteConnection, version_key: i64, item: &mut ItemVersion) -> Result<()> {
    let query = sqlx::query_scalar("SELECT text FROM reply_pieces WHERE version = ? ORDER BY n");
    let pieces: Vec<String> = query.bind(version_key).fetch_all(connection).await?;
    extend(&mut item.body, &pieces.concat());
    item.sent_chars = Some(chars(&item.body));
    Ok(())
}

/// Closes all replies in progress. `words`: their words from the journal, at least as many as the pieces.
async fn close_all(connection: &mut SqliteConnection, words: Vec<SaidReply>, now_ms: i64) -> Result<usize> {
    for reply in &words {
        begin_lost(connection, reply, now_ms).await?;
    }
    let query = sqlx::query(
        "SELECT v.*, s.user AS session_user, s.id AS session_id
         FROM items i JOIN item_versions v ON v.key = i.current JOIN sessions s ON s.key = i.session
         WHERE i.being_said = 1",
    );
    let rows = query.fetch_all(&mut *connection).await?;
    for row in &rows {
        let (user, id): (&str, &str) = (row.try_get("session_user")?, row.try_get("session_id")?);
        let session = SessionRef { key: row.try_get("session")?, user: user.into(), id: id.into() };
        let (begun_key, mut reply) = (row.try_get("key")?, version_of(row, id)?);
        add_pieces(connection, begun_key, &mut reply).await?;
        let written = words.iter().find(|words| words.session == session.key && words.item == reply.item_id);
        if let Some(rest) = written.and_then(|words| words.text.strip_prefix(&said(&reply.body))) {
            extend(&mut reply.body, rest);
            reply.sent_chars = Some(chars(&reply.body));
        }
        (reply.status, reply.created_at_ms) = (VersionStatus::Interrupted, now_ms);
        finish(connection, &session, begun_key, reply).await?;
    }
    let responses = sqlx::query(
        "UPDATE responses SET status = 'incomplete', finished_at_ms = ?,
            status_details = json_object('type', 'incomplete', 'reason', 'interrupted') WHERE status = 'in_progress'",
    );
    responses.bind(now_ms).execute(connection).await?;
    Ok(rows.len())
}

/// Creates the item of a reply that a client heard, or that resumed, before the database had its begin.
async fn begin_lost(connection: &mut SqliteConnection, reply: &SaidReply, now_ms: i64) -> Result<()> {
    let query = sqlx::query_as("SELECT user, id FROM sessions WHERE key = ? AND deleted_at_ms IS NULL");
    let session: Option<(String, String)> = query.bind(reply.session).fetch_optional(&mut *connection).await?;
    let Some((user, id)) = session.filter(|_| !reply.text.is_empty()) else { return Ok(()) };
    let session = SessionRef { key: reply.session, user: user.into(), id: id.into() };
    let query = sqlx::query("SELECT 1 FROM items WHERE session = ? AND item_id = ?");
    if query.bind(session.key).bind(&reply.item).fetch_optional(&mut *connection).await?.is_some() {
        let stands = current_version(connection, &session, &reply.item).await?;
        let is_older = |stands: &ItemVersion| {
            stands.status != VersionStatus::InProgress
                && stands.response.as_ref() != Some(&reply.response)
                && said(&stands.body).len() < reply.text.len()
        };
        if let Some(stands) = stands.filter(is_older) {
            let body = ItemBody::message(Role::Assistant, "");
            begin_again(connection, &session, stands, body, reply.response.clone(), now_ms).await?;
        }
        return Ok(());
    }
    let query = sqlx::query("SELECT 1 FROM items WHERE session = ? AND item_id = ? AND deleted = 0");
    let place = match &reply.after {
        None => ItemPlace::Head,
        Some(after) => match query.bind(session.key).bind(after).fetch_optional(&mut *connection).await? {
            Some(_) => ItemPlace::After(after.clone()),
            None => ItemPlace::End,
        },
    };
    let item = Item::new(&reply.item, ItemBody::message(Role::Assistant, ""), ItemStatus::InProgress);
    let how = (Change::Begun, VersionStatus::InProgress);
    insert_item(connection, &session, item, place, Some(reply.response.clone()), how, now_ms).await?;
    Ok(())
}
