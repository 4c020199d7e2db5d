//! Import: an exported session becomes a session again, version by version, and exports the same.
//!
//! Lines come in groups, as the importer reads them. Until the last one the session is marked like a deleted one: no
//! reader sees half a conversation, and the next start removes what a crash or a bad line leaves.

use crate::config_form::stored_bytes;
use crate::error::Result;
use crate::export::ExportLine;
use crate::ids::new_id;
use crate::import_lines::{ImportLines, ImportStep};
use crate::measurements::insert_measurement;
use crate::notes::insert_unknown_source;
use crate::pieces::filled_since;
use crate::quota::ROW_BYTES;
use crate::sessions::{find_session, insert_session};
use crate::summaries::{insert_pin, insert_summary};
use crate::versions::insert_version;
use crate::writer::WriteQueue;
use crate::{Change, Error, Placement, SessionRecord, SessionRef, Store};
use session::is_hidden_id;
use sqlx::sqlite::SqliteConnection;

const LINES_AT_ONCE: usize = 256;

// Ids that imported sessions get.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ImportedIds {
    // Those of the file; one that is there already is an error.
    #[default]
    AsWritten,
    // Those of the file; a session that is there already is left out.
    NewToStore,
    // New ones.
    Fresh,
}

/// Importer of lines; `finish` ends it. After an error it takes no more.
pub struct Importer {
    store: Store,
    user: Option<String>,
    /// Placement of every session, whatever its line says: a client's file decides no window and no arm.
    placement: Option<Placement>,
    ids: ImportedIds,
    now_ms: i64,
    lines: ImportLines,
    open: Option<Open>,
    done: Vec<SessionRef>,
}

struct Open {
    session: SessionRef,
    updated_at_ms: i64,
    waiting: Vec<ExportLine>,
    // Bytes of its lines beside those that their rows count as.
    imported_bytes: usize,
}

impl Store {
    /// Starts an import into `user`'s sessions, or each into those of the user it names, whom it creates if needed.
    pub fn importer(&self, user: Option<&str>, now_ms: i64) -> Importer {
        let (store, user, lines) = (self.clone(), user.map(str::to_owned), ImportLines::default());
        Importer {
            store,
            user,
            placement: None,
            ids: ImportedIds::default(),
            now_ms,
            lines,
            open: None,
            done: Vec::new(),
        }
    }

    pub fn importer_of_client(&self, user: &str, placement: Placement, now_ms: i64) -> Importer {
        Importer { placement: Some(placement), ..self.importer(Some(user), now_ms) }
    }
}

impl Importer {
    pub fn with_ids(self, ids: ImportedIds) -> Importer {
        Importer { ids, ..self }
    }

    /// Takes a line; empty ones are ignored. An error gives up its own session and keeps the ones before it.
    pub async fn line(&mut self, text: &str) -> Result<(), Error> {
        let result = match self.lines.line(text) {
            Ok(step) => self.take(step, text.len()).await,
            Err(error) => Err(error),
        };
        if result.is_err() {
            self.give_up().await;
        }
        result
    }

    /// Returns the imported sessions, in the order of the file.
    pub async fn finish(mut self) -> Result<Vec<SessionRef>, Error> {
        let ended = self.lines.finish();
        if ended.is_err() {
            self.give_up().await;
        }
        ended.map(|()| self.done)
    }

    async fn take(&mut self, step: ImportStep, bytes: usize) -> Result<(), Error> {
        match (step, &mut self.open) {
            (ImportStep::Session(session), _) => self.begin(*session, bytes).await,
            (ImportStep::Line(mut line), Some(open)) => {
                if let (ExportLine::Measurement(turn), Some(_)) = (&mut *line, &self.placement) {
                    (turn.experiment, turn.arm) = (None, None);
                }
                open.imported_bytes += bytes.saturating_sub(counted_bytes(&line));
                open.waiting.push(*line);
                if open.waiting.len() >= LINES_AT_ONCE { self.write_waiting().await } else { Ok(()) }
            }
            (ImportStep::End, _) => self.end().await,
            (ImportStep::Line(_), None) | (ImportStep::Nothing, _) => Ok(()),
        }
    }

    async fn begin(&mut self, mut session: SessionRecord, bytes: usize) -> Result<(), Error> {
        let imported_bytes = bytes.saturating_sub(stored_bytes(&session.config) + ROW_BYTES);
        if let Some(user) = &self.user {
            session.user.clone_from(user);
        }
        if let Some(placement) = &self.placement {
            session.placement.clone_from(placement);
            session.updated_at_ms = session.updated_at_ms.min(self.now_ms);
        }
        if self.ids == ImportedIds::Fresh {
            session.id = new_id("sess")?;
        }
        let (updated_at_ms, now_ms) = (session.updated_at_ms, self.now_ms);
        let may_be_there = self.ids == ImportedIds::NewToStore;
        let written = self.store.write(async move |connection| {
            if may_be_there && find_session(connection, &session.user, &session.id).await?.is_some() {
                return Ok(None);
            }
            insert_hidden_session(connection, &session, now_ms).await.map(Some)
        });
        let session = written.await.map_err(|error| self.explained(error))?;
        self.open = session.map(|session| Open { session, updated_at_ms, waiting: Vec::new(), imported_bytes });
        Ok(())
    }

    async fn write_waiting(&mut self) -> Result<(), Error> {
        let Some(open) = &mut self.open else { return Ok(()) };
        let (session, waiting) = (open.session.clone(), std::mem::take(&mut open.waiting));
        let written = self.store.write_in(WriteQueue::Pieces, async move |connection| {
            for line in waiting {
                write_line(connection, &session, line).await?;
            }
            Ok(())
        });
        written.await.map_err(|error| self.explained(error))
    }

    async fn end(&mut self) -> Result<(), Error> {
        self.write_waiting().await?;
        let Some(open) = &self.open else { return Ok(()) };
        let Open { session, updated_at_ms, imported_bytes, .. } = open;
        let (session, updated_at_ms) = (session.clone(), *updated_at_ms);
        let imported_bytes = i64::try_from(*imported_bytes).unwrap_or(i64::MAX);
        // An old session stays as old: retention counts on from there.
        let unused_ms = self.now_ms.saturating_sub(updated_at_ms).max(0);
        let shown = self.store.write(async move |connection| {
            if find_session(connection, &session.user, &session.id).await?.is_some() {
                return Err(Error::SessionExists { session: session.id.to_string() }.into());
            }
            let show = sqlx::query(
                "UPDATE sessions SET deleted_at_ms = NULL, updated_at_ms = ?, unused_ms = ?, imported_bytes = ? WHERE key = ?",
            );
            let show = show.bind(updated_at_ms).bind(unused_ms).bind(imported_bytes);
            let shown = show.bind(session.key).execute(connection).await?;
            if shown.rows_affected() == 1 { Ok(()) } else { Err(session.missing().into()) }
        });
        shown.await.map_err(|error| self.explained(error))?;
        self.done.extend(self.open.take().map(|open| open.session));
        Ok(())
    }

    async fn give_up(&mut self) {
        let Some(open) = self.open.take() else { return };
        if let Err(error) = self.store.remove_rows(open.session.key).await {
            tracing::warn!(%error, "the rest of a refused import stays hidden until the next start");
        }
    }

    /// Turns a constraint that a line broke into an error with its line: the mistake is the file's.
    fn explained(&self, error: Error) -> Error {
        match error {
            Error::Defect { cause, .. } => self.lines.refused(cause),
            other => other,
        }
    }
}

// Returns the bytes that the row of a line counts among those of its user, at least.
fn counted_bytes(line: &ExportLine) -> usize {
    match line {
        ExportLine::Item(item) => item.body.text_bytes() + ROW_BYTES,
        ExportLine::Summary(summary) => summary.text.len() + ROW_BYTES,
        ExportLine::Pin(pin) => pin.text.len() + ROW_BYTES,
        ExportLine::Response(response) => response["metadata"].to_string().len() + ROW_BYTES,
        _ => 0,
    }
}

async fn insert_hidden_session(
    connection: &mut SqliteConnection,
    session: &SessionRecord,
    now_ms: i64,
) -> Result<SessionRef> {
    let make = sqlx::query("INSERT INTO users (id, name, created_at_ms) VALUES (?1, ?1, ?2) ON CONFLICT DO NOTHING");
    make.bind(&session.user).bind(now_ms).execute(&mut *connection).await?;
    let session = insert_session(connection, session).await?;
    let hide = sqlx::query("UPDATE sessions SET deleted_at_ms = ? WHERE key = ?");
    hide.bind(filled_since(now_ms)).bind(session.key).execute(connection).await?;
    Ok(session)
}

async fn write_line(connection: &mut SqliteConnection, session: &SessionRef, line: ExportLine) -> Result<()> {
    match line {
        ExportLine::Item(item) => {
            insert_version(connection, session, &item).await?;
            let is_copy = is_hidden_id(&item.item_id) && item.change != Change::Deleted;
            if is_copy { insert_unknown_source(connection, session, &item.item_id).await } else { Ok(()) }
        }
        ExportLine::Piece { seq, n, text, sent_at_ms, .. } => {
            let query = sqlx::query(
                "INSERT INTO reply_pieces (version, n, text, sent_at_ms)
                 SELECT key, ?, ?, ? FROM item_versions WHERE session = ? AND seq = ?",
            );
            let query = query.bind(n as i64).bind(text).bind(sent_at_ms).bind(session.key).bind(seq as i64);
            let is_written = query.execute(connection).await?.rows_affected() == 1;
            if is_written { Ok(()) } else { Err(Error::NoItem { item: format!("with seq {seq}") }.into()) }
        }
        ExportLine::Response(response) => {
            let query = sqlx::query(
                "INSERT INTO responses (session, id, conversation, status, status_details, metadata, usage, report,
                    started_at_ms, finished_at_ms)
                 VALUES (?1, ?2 ->> 'id', ?2 ->> 'conversation', ?2 ->> 'status', ?2 -> 'status_details',
                    ?2 -> 'metadata', ?2 -> 'usage', ?2 -> 'report', ?2 ->> 'started_at_ms', ?2 ->> 'finished_at_ms')",
            );
            query.bind(session.key).bind(response).execute(connection).await?;
            Ok(())
        }
        ExportLine::Summary(summary) => insert_summary(connection, session, &summary).await,
        ExportLine::Pin(pin) => insert_pin(connection, session, &pin).await,
        ExportLine::Measurement(measurement) => insert_measurement(connection, session, &measurement).await,
        ExportLine::Session { .. } | ExportLine::End { .. } => Ok(()), // taken before they get here
    }
}
