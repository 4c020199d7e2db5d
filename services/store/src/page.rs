//! Rows that are read at once: so many, and no more bytes than one answer should have.

use crate::error::Result;
use sqlx::Sqlite;
use sqlx::query::QueryScalar;
use sqlx::sqlite::{SqliteArguments, SqliteConnection};

#[derive(Debug, Clone, PartialEq)]
pub struct Page<T> {
    pub rows: Vec<T>,
    /// There are more behind it.
    pub has_more: bool,
}

/// A page ends with the row that reaches so many. One row is always on it.
const PAGE_BYTES: i64 = 256 << 10; // not a window: bytes of rows

/// How many of at most `limit` rows a page has, and whether there are more. `lengths` are the bytes of the rows in their order,
/// one row more than the limit where there is one.
pub async fn fitting<'q>(
    connection: &mut SqliteConnection,
    lengths: QueryScalar<'q, Sqlite, i64, SqliteArguments>,
    limit: u32,
) -> Result<(i64, bool)> {
    let lengths = lengths.fetch_all(connection).await?;
    let mut bytes = 0;
    let fits = lengths.iter().take(limit as usize).take_while(|length| {
        let has_room = bytes < PAGE_BYTES;
        bytes += **length;
        has_room
    });
    let rows = fits.count();
    Ok((rows as i64, rows < lengths.len()))
}
