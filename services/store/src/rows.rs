//! From rows to records. A value that cannot be what the schema says is damage, and is said so.

use crate::writer::StoreFailure;
use serde_json::Value;
use sqlx::sqlite::{Sqlite, SqliteRow};
use sqlx::{Row, ValueRef};

pub fn column<'r, T>(row: &'r SqliteRow, name: &str) -> Result<T, StoreFailure>
where
    T: sqlx::Decode<'r, Sqlite> + sqlx::Type<Sqlite>,
{
    Ok(row.try_get(name)?)
}

/// Counts are kept as SQLite's signed integers and are never negative.
pub fn count(row: &SqliteRow, name: &str) -> Result<u64, StoreFailure> {
    let value: i64 = column(row, name)?;
    u64::try_from(value).map_err(|_| unreadable(name, format!("{value} is negative")))
}

pub fn optional_count(row: &SqliteRow, name: &str) -> Result<Option<u64>, StoreFailure> {
    if row.try_get_raw(name)?.is_null() { Ok(None) } else { count(row, name).map(Some) }
}

pub fn json(row: &SqliteRow, name: &str) -> Result<Value, StoreFailure> {
    let text: &str = column(row, name)?;
    serde_json::from_str(text).map_err(|error| unreadable(name, error.to_string()))
}

/// Keys keep their order: what goes in comes out the same.
pub fn json_text(value: &Value) -> String {
    value.to_string()
}

/// One of a closed set of words.
pub fn word<T>(row: &SqliteRow, name: &str, from_word: fn(&str) -> Option<T>) -> Result<T, StoreFailure> {
    let text: &str = column(row, name)?;
    from_word(text).ok_or_else(|| unreadable(name, format!("{text:?} is not one of its words")))
}

pub fn unreadable(name: &str, cause: String) -> StoreFailure {
    StoreFailure::Sql(sqlx::Error::ColumnDecode { index: name.to_owned(), source: cause.into() })
}
