//! Checks of the file and its size.

use crate::error::Result;
use crate::summaries::summary_of;
use crate::versions::version_of;
use crate::{Error, Store};
use serde::Serialize;
use sqlx::sqlite::SqliteConnection;
use sqlx::{FromRow, Row};
use std::path::Path;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, FromRow)]
pub struct Statistics {
    pub file_bytes: u64,
    pub free_bytes: u64,
    #[sqlx(skip)]
    pub wal_bytes: u64,
    pub users: u64,
    pub sessions: u64,
    pub items: u64,
    pub versions: u64,
    pub summaries: u64,
    pub measurements: u64,
    pub text_bytes: u64,
}

impl Store {
    /// Checks everything: pages, keys, the index against the words, the checksum of every version, and that each item
    /// points to its newest version. Empty if the store is sound. Writes wait in the meantime.
    pub async fn check(&self) -> Result<Vec<String>, Error> {
        let path = self.path().to_path_buf();
        self.maintenance(async move |connection| {
            let mut problems: Vec<String> =
                sqlx::query_scalar("PRAGMA integrity_check").fetch_all(&mut *connection).await?;
            problems.retain(|line| line != "ok");
            for row in sqlx::query("PRAGMA foreign_key_check").fetch_all(&mut *connection).await? {
                let (table, parent): (&str, &str) = (row.try_get(0)?, row.try_get(2)?);
                problems.push(format!("a row of {table} points to nothing in {parent}"));
            }
            let index = sqlx::query("INSERT INTO words (words, rank) VALUES ('integrity-check', 1)");
            if let Err(error) = index.execute(&mut *connection).await {
                problems.push(format!("the search index does not match the words: {error}"));
            }
            check_items(connection, &mut problems).await?;
            check_checksums(connection, &path, &mut problems).await?;
            Ok(problems)
        })
        .await
    }

    pub async fn statistics(&self) -> Result<Statistics, Error> {
        let query = sqlx::query_as(
            "SELECT (SELECT page_count FROM pragma_page_count) * (SELECT page_size FROM pragma_page_size) AS file_bytes,
                (SELECT freelist_count FROM pragma_freelist_count) * (SELECT page_size FROM pragma_page_size) AS free_bytes,
                (SELECT count(*) FROM users) AS users,
                (SELECT count(*) FROM sessions WHERE deleted_at_ms IS NULL) AS sessions,
                (SELECT count(*) FROM items WHERE deleted = 0) AS items,
                (SELECT count(*) FROM item_versions) AS versions,
                (SELECT count(*) FROM summaries) AS summaries,
                (SELECT count(*) FROM measurements) AS measurements,
                (SELECT coalesce(sum(octet_length(text)), 0) FROM item_versions) AS text_bytes",
        );
        let statistics: Statistics = self.read_at_length(async |reader| Ok(query.fetch_one(reader).await?)).await?;
        let wal = std::fs::metadata(format!("{}-wal", self.path().display())).map_or(0, |wal| wal.len());
        Ok(Statistics { wal_bytes: wal, ..statistics })
    }
}

async fn check_items(connection: &mut SqliteConnection, problems: &mut Vec<String>) -> Result<()> {
    let query = sqlx::query_as(
        "SELECT i.item_id, s.id FROM items i JOIN sessions s ON s.key = i.session
         JOIN item_versions v ON v.key = i.current
         WHERE v.session <> i.session OR v.item_id <> i.item_id OR v.place <> i.place
            OR (v.change = 'deleted') <> i.deleted OR (v.status = 'in_progress') <> i.being_said
            OR v.version <> (SELECT max(n.version) FROM item_versions n WHERE n.session = i.session AND n.item_id = i.item_id)",
    );
    let misled: Vec<(String, String)> = query.fetch_all(connection).await?;
    for (item, session) in misled {
        problems.push(format!("item {item} of session {session} does not point to its newest version"));
    }
    Ok(())
}

async fn check_checksums(connection: &mut SqliteConnection, path: &Path, problems: &mut Vec<String>) -> Result<()> {
    let mut after = 0i64;
    loop {
        let query = sqlx::query(
            "SELECT v.*, s.id AS session_id FROM item_versions v JOIN sessions s ON s.key = v.session
             WHERE v.key > ? ORDER BY v.key LIMIT 500",
        );
        let rows = query.bind(after).fetch_all(&mut *connection).await?;
        let Some(last) = rows.last() else { break };
        after = last.try_get("key")?;
        for row in &rows {
            if let Err(failure) = version_of(row, row.try_get("session_id")?) {
                problems.push(failure.at(path).to_string());
            }
        }
    }
    let query = sqlx::query(
        "SELECT m.*, s.id AS session_id FROM summaries m JOIN sessions s ON s.key = m.session ORDER BY m.key",
    );
    for row in query.fetch_all(connection).await? {
        if let Err(failure) = summary_of(&row, row.try_get("session_id")?) {
            problems.push(failure.at(path).to_string());
        }
    }
    Ok(())
}
