//! Pages of rows, limited in rows and in bytes of one answer.

use crate::error::Result;
use sqlx::Sqlite;
use sqlx::query::QueryScalar;
use sqlx::sqlite::{SqliteArguments, SqliteConnection};

#[derive(Debug, Clone, PartialEq)]
pub struct Page<T> {
    pub rows: Vec<T>,
    pub has_more: bool,
}

/// Size of a page: it ends with the row that reaches it, and has at least one row.
const PAGE_BYTES: i64 = 256 << 10; // not a window: bytes of rows

/// Returns the number of rows of a page, at most `limit`, and whether more follow. `lengths`: bytes of the rows in
/// order, one row beyond the limit if there is one.
pub async fn fitting<'q>(
    connection: &mut SqliteConnection,
    lengths: QueryScalar<'q, Sqlite, i64, SqliteArguments>,
    limit: u32,
) -> Result<(i64, bool)> {
    fitting_in(connection, lengths, limit, PAGE_BYTES).await
}

pub async fn fitting_in<'q>(
    connection: &mut SqliteConnection,
    lengths: QueryScalar<'q, Sqlite, i64, SqliteArguments>,
    limit: u32,
    most_bytes: i64,
) -> Result<(i64, bool)> {
    let lengths = lengths.fetch_all(connection).await?;
    let mut bytes = 0;
    let fits = lengths.iter().take(limit as usize).take_while(|length| {
        let has_room = bytes < most_bytes;
        bytes += **length;
        has_room
    });
    let rows = fits.count();
    Ok((rows as i64, rows < lengths.len()))
}
