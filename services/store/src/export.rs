//! A session as JSON Lines: everything that ever happened in it, for people to keep and for another store to take in.
//!
//! One line `session`, then `item` (every version, in the order in which they happened), `piece`, `response`, `summary`,
//! `pin`, `measurement`, and last `end` with the number of lines, so that a file that was cut off is known for one.
//! Several sessions may follow each other in a file.

use crate::measurements::measurement_of;
use crate::replies::ReplyPiece;
use crate::responses::{ResponseRecord, response_of};
use crate::rows::{column, count, unreadable};
use crate::sessions::{check_session, session_record};
use crate::summaries::{pins_of_session, summary_of};
use crate::writer::StoreFailure;
use crate::{Error, ItemVersion, Measurement, Pin, SessionRecord, SessionRef, Store, Summary, items};
use serde::{Deserialize, Serialize};
use sqlx::Transaction;
use sqlx::sqlite::{Sqlite, SqliteConnection};
use tokio::sync::mpsc;

/// Raised when an older release could not read the lines.
pub const FORMAT: u32 = 1;
const LINES_AHEAD: usize = 64;
const ITEMS_AT_ONCE: i64 = 256;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum ExportLine {
    Session {
        format: u32,
        #[serde(flatten)]
        session: SessionRecord,
    },
    Item(ItemVersion),
    /// What a reply had sent when the export was made in the middle of it.
    Piece {
        seq: u64,
        n: u64,
        /// Releases before the schema's step 4 want it there.
        #[serde(default, skip_deserializing)]
        tokens: [u32; 0],
        #[serde(flatten)]
        piece: ReplyPiece,
    },
    Response(ResponseRecord),
    Summary(Summary),
    Pin(Pin),
    Measurement(Measurement),
    End {
        lines: u64,
    },
}

/// The lines of an export, made as they are taken: memory stays small however long the conversation is.
pub struct Export {
    lines: mpsc::Receiver<Result<String, Error>>,
}

impl Export {
    /// The next line, without its end. None: that was all.
    pub async fn next(&mut self) -> Option<Result<String, Error>> {
        self.lines.recv().await
    }
}

impl Store {
    /// One moment of the session, also while it goes on.
    pub async fn export(&self, session: &SessionRef) -> Result<Export, Error> {
        let mut transaction = self.read().await?;
        // Asked here, so that a wrong session is an error of this call and not of the first line.
        check_session(&mut transaction, session).await.map_err(|failure| failure.at(self.path()))?;
        let (send, lines) = mpsc::channel(LINES_AHEAD);
        let (session, path) = (session.clone(), self.path().to_path_buf());
        tokio::spawn(async move {
            if let Err(failure) = send_all(transaction, &session, &send).await {
                let _ = send.send(Err(failure.at(&path))).await;
            }
        });
        Ok(Export { lines })
    }
}

struct Sender<'a> {
    lines: &'a mpsc::Sender<Result<String, Error>>,
    sent: u64,
}

impl Sender<'_> {
    /// False: the reader of the lines is gone.
    async fn send(&mut self, line: ExportLine) -> Result<bool, StoreFailure> {
        let line = serde_json::to_string(&line).map_err(|error| unreadable("line", error.to_string()))?;
        self.sent += 1;
        Ok(self.lines.send(Ok(line)).await.is_ok())
    }
}

async fn send_all(
    mut transaction: Transaction<'static, Sqlite>,
    session: &SessionRef,
    lines: &mpsc::Sender<Result<String, Error>>,
) -> Result<(), StoreFailure> {
    let mut sender = Sender { lines, sent: 0 };
    let connection = &mut *transaction;
    let record = session_record(connection, session).await?;
    if !sender.send(ExportLine::Session { format: FORMAT, session: record }).await?
        || !send_items(connection, session, &mut sender).await?
        || !send_rest(connection, session, &mut sender).await?
    {
        return Ok(());
    }
    let lines = sender.sent;
    sender.send(ExportLine::End { lines }).await?;
    transaction.rollback().await?;
    Ok(())
}

async fn send_items(
    connection: &mut SqliteConnection,
    session: &SessionRef,
    sender: &mut Sender<'_>,
) -> Result<bool, StoreFailure> {
    let mut after = 0i64;
    loop {
        let query = sqlx::query("SELECT * FROM item_versions WHERE session = ? AND seq > ? ORDER BY seq LIMIT ?");
        let rows = query.bind(session.key).bind(after).bind(ITEMS_AT_ONCE).fetch_all(&mut *connection).await?;
        let Some(last) = rows.last() else { return Ok(true) };
        after = column(last, "seq")?;
        for row in &rows {
            if !sender.send(ExportLine::Item(items::version_of(row, &session.id)?)).await? {
                return Ok(false);
            }
        }
    }
}

async fn send_rest(
    connection: &mut SqliteConnection,
    session: &SessionRef,
    sender: &mut Sender<'_>,
) -> Result<bool, StoreFailure> {
    let mut lines = Vec::new();
    let pieces = sqlx::query(
        "SELECT v.seq, p.* FROM item_versions v JOIN reply_pieces p ON p.version = v.key
         WHERE v.session = ? ORDER BY v.seq, p.n",
    );
    for row in pieces.bind(session.key).fetch_all(&mut *connection).await? {
        let piece = ReplyPiece { text: column(&row, "text")?, sent_at_ms: column(&row, "sent_at_ms")? };
        lines.push(ExportLine::Piece { seq: count(&row, "seq")?, n: count(&row, "n")?, tokens: [], piece });
    }
    let responses = sqlx::query("SELECT * FROM responses WHERE session = ? ORDER BY key");
    for row in responses.bind(session.key).fetch_all(&mut *connection).await? {
        lines.push(ExportLine::Response(response_of(&row)?));
    }
    let summaries = sqlx::query("SELECT * FROM summaries WHERE session = ? ORDER BY version");
    for row in summaries.bind(session.key).fetch_all(&mut *connection).await? {
        lines.push(ExportLine::Summary(summary_of(&row, &session.id)?));
    }
    lines.extend(pins_of_session(connection, session, true).await?.into_iter().map(ExportLine::Pin));
    let measurements = sqlx::query("SELECT * FROM measurements WHERE session = ? ORDER BY key");
    for row in measurements.bind(session.key).fetch_all(&mut *connection).await? {
        lines.push(ExportLine::Measurement(measurement_of(&row)?));
    }
    for line in lines {
        if !sender.send(line).await? {
            return Ok(false);
        }
    }
    Ok(true)
}
