//! A session as JSON Lines: everything that ever happened in it, for people to keep and for another store to import.
//!
//! One line `session`, then `item` (every version, in order of time), `piece`, `response`, `summary`, `pin`,
//! `measurement`, and last `end` with the number of lines, which reveals a file that was cut off. A file may have
//! several sessions one after the other.

use crate::error::Result;
use crate::page::fitting;
use crate::sessions::session_record;
use crate::summaries::{pins_of_session, summaries_of_session};
use crate::versions::versions_of;
use crate::{Error, ItemVersion, Measurement, Pin, SessionRecord, SessionRef, Store, Summary};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sqlx::sqlite::SqliteConnection;
use std::collections::VecDeque;

/// Version of the lines, raised when an older release could not read them.
pub const FORMAT: u32 = 1;
const ITEMS_AT_ONCE: u32 = 256;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum ExportLine {
    Session {
        format: u32,
        #[serde(flatten)]
        session: SessionRecord,
    },
    Item(ItemVersion),
    /// Words that a reply had sent when the export was made in the middle of it.
    Piece {
        seq: u64,
        n: u64,
        /// Empty list, which releases before the schema's step 4 require.
        #[serde(default, skip_deserializing)]
        tokens: [u32; 0],
        text: String,
        sent_at_ms: i64,
    },
    Response(Value),
    Summary(Summary),
    Pin(Pin),
    Measurement(Measurement),
    End {
        lines: u64,
    },
}

pub struct Export {
    store: Store,
    session: SessionRef,
    page: VecDeque<String>,
    after_seq: u64,
    lines: u64,
    is_over: bool,
}

impl Store {
    pub async fn export(&self, session: &SessionRef) -> Result<Export, Error> {
        let (store, session) = (self.clone(), session.clone());
        let mut export = Export { store, session, page: VecDeque::new(), after_seq: 0, lines: 0, is_over: false };
        // Reads here, so that a wrong session is an error of this call and not of the first line.
        export.read_page().await?;
        Ok(export)
    }
}

impl Export {
    /// Returns the next line without its end; `None` after the last one.
    pub async fn next(&mut self) -> Option<Result<String, Error>> {
        if self.page.is_empty()
            && !self.is_over
            && let Err(error) = self.read_page().await
        {
            self.is_over = true;
            return Some(Err(error));
        }
        self.page.pop_front().map(Ok)
    }

    async fn read_page(&mut self) -> Result<(), Error> {
        let (session, after_seq, is_first) = (&self.session, self.after_seq, self.lines == 0);
        let ask = async |reader: &mut SqliteConnection| page(reader, session, after_seq, is_first).await;
        let (mut lines, last_seq) = self.store.read_moment(ask).await?;
        self.lines += lines.len() as u64;
        match last_seq {
            Some(last_seq) => self.after_seq = last_seq,
            None => {
                self.is_over = true;
                lines.push(ExportLine::End { lines: self.lines });
            }
        }
        for line in &lines {
            let text = serde_json::to_string(line);
            let cause =
                |error: serde_json::Error| Error::Defect { path: self.store.path().into(), cause: error.to_string() };
            self.page.push_back(text.map_err(cause)?);
        }
        Ok(())
    }
}

/// Returns the lines of a page, and the last `seq` on it. `None` marks the last page. That page has everything but
/// items, so that it is of the same moment as the newest items.
async fn page(
    reader: &mut SqliteConnection,
    session: &SessionRef,
    after_seq: u64,
    is_first: bool,
) -> Result<(Vec<ExportLine>, Option<u64>)> {
    let record = session_record(reader, session).await?;
    let mut lines = Vec::new();
    if is_first {
        lines.push(ExportLine::Session { format: FORMAT, session: record });
    }
    let lengths = sqlx::query_scalar(
        "SELECT octet_length(content) FROM item_versions WHERE session = ? AND seq > ? ORDER BY seq LIMIT ?",
    );
    let lengths = lengths.bind(session.key).bind(after_seq as i64).bind(i64::from(ITEMS_AT_ONCE) + 1);
    let (fits, has_more) = fitting(reader, lengths, ITEMS_AT_ONCE).await?;
    let query = sqlx::query("SELECT * FROM item_versions WHERE session = ? AND seq > ? ORDER BY seq LIMIT ?");
    let query = query.bind(session.key).bind(after_seq as i64).bind(fits);
    let items = versions_of(&query.fetch_all(&mut *reader).await?, &session.id)?;
    let last_seq = items.last().map(|item| item.seq).filter(|_| has_more);
    lines.extend(items.into_iter().map(ExportLine::Item));
    if last_seq.is_some() {
        return Ok((lines, last_seq));
    }
    let pieces = sqlx::query_as(
        "SELECT v.seq, p.n, p.text, p.sent_at_ms FROM item_versions v JOIN reply_pieces p ON p.version = v.key
         WHERE v.session = ? ORDER BY v.seq, p.n",
    );
    let pieces: Vec<(u64, u64, String, i64)> = pieces.bind(session.key).fetch_all(&mut *reader).await?;
    let piece = |(seq, n, text, sent_at_ms)| ExportLine::Piece { seq, n, tokens: [], text, sent_at_ms };
    lines.extend(pieces.into_iter().map(piece));
    let responses = sqlx::query_scalar(
        "SELECT json_object('id', id, 'conversation', conversation, 'status', status,
            'status_details', json(status_details), 'metadata', json(metadata), 'usage', json(usage),
            'report', json(report), 'started_at_ms', started_at_ms, 'finished_at_ms', finished_at_ms)
         FROM responses WHERE session = ? ORDER BY key",
    );
    let responses: Vec<Value> = responses.bind(session.key).fetch_all(&mut *reader).await?;
    lines.extend(responses.into_iter().map(ExportLine::Response));
    lines.extend(summaries_of_session(reader, session).await?.into_iter().map(ExportLine::Summary));
    lines.extend(pins_of_session(reader, session, true).await?.into_iter().map(ExportLine::Pin));
    let measurements = sqlx::query_as("SELECT * FROM measurements WHERE session = ? ORDER BY key");
    let measurements: Vec<Measurement> = measurements.bind(session.key).fetch_all(reader).await?;
    lines.extend(measurements.into_iter().map(ExportLine::Measurement));
    Ok((lines, None))
}
