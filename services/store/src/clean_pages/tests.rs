use super::*;
use sqlx::sqlite::{SqliteAutoVacuum, SqliteConnectOptions, SqliteConnection, SqliteJournalMode};
use sqlx::{ConnectOptions, Connection};
use std::collections::HashSet;
use std::path::Path;

const PAGE: usize = 512;

/// A leaf of a table with cells at these places, and bytes that nothing points at.
fn leaf(cells: &[u16], content: u16) -> Vec<u8> {
    let mut page = vec![7; PAGE];
    page[0] = 13;
    page[3..5].copy_from_slice(&(cells.len() as u16).to_be_bytes());
    page[5..7].copy_from_slice(&content.to_be_bytes());
    for (at, cell) in cells.iter().enumerate() {
        page[8 + 2 * at..][..2].copy_from_slice(&cell.to_be_bytes());
    }
    page
}

#[test]
fn only_what_no_cell_holds_is_cleared() {
    let dirty = leaf(&[400, 300], 300);
    let cleaned = clean(&dirty, 2 * PAGE as i64).unwrap();
    assert!(cleaned[12..300].iter().all(|byte| *byte == 0));
    assert_eq!((&cleaned[..12], &cleaned[300..]), (&dirty[..12], &dirty[300..]));
    assert!(clean(&cleaned, 2 * PAGE as i64).is_none(), "it is clean");
}

#[test]
fn other_pages_stay_as_they_are() {
    let dirty = leaf(&[400, 300], 300);
    let at = 2 * PAGE as i64;
    assert!(clean(&dirty, at + 1).is_none() && clean(&dirty[..100], at).is_none());
    let mut overflow = dirty.clone();
    overflow[0] = 0;
    assert!(clean(&overflow, at).is_none());
    for unsound in [leaf(&[400, 200], 300), leaf(&[400, 600], 300), leaf(&[400, 300], 513), leaf(&[400, 300], 10)] {
        assert!(clean(&unsound, at).is_none());
    }
    // 512 bytes map 102 pages.
    for (number, map) in [(2, true), (3, false), (104, false), (105, true), (106, false), (208, true)] {
        assert_eq!(clean(&dirty, (number - 1) * PAGE as i64).is_none(), map, "page {number}");
    }
}

async fn connect(path: &Path) -> SqliteConnection {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .vfs(name().unwrap())
        .auto_vacuum(SqliteAutoVacuum::Incremental)
        .journal_mode(SqliteJournalMode::Wal)
        .pragma("secure_delete", "ON");
    options.connect().await.unwrap()
}

async fn run(connection: &mut SqliteConnection, statement: &'static str) {
    sqlx::query(statement).execute(connection).await.unwrap();
}

/// Rows of many lengths come and go, and move between pages. Without these files some 5 in 1,000 deleted words stay.
#[tokio::test]
async fn a_file_keeps_no_word_of_a_deleted_row() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.sqlite3");
    let mut connection = connect(&path).await;
    run(&mut connection, "CREATE TABLE rows (key INTEGER PRIMARY KEY, word TEXT, text TEXT)").await;
    run(&mut connection, "CREATE INDEX row_words ON rows (word, text)").await;
    let (mut state, mut rows, mut deleted) = (1_u64, Vec::new(), Vec::new());
    let mut below = |limit: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % limit
    };
    run(&mut connection, "BEGIN").await;
    for number in 0..2000_u64 {
        let (key, word) = (below(1 << 30) as i64, format!("word{:08}", number * 7919 % 100_000_000));
        let text = format!("{word}{}", "x".repeat(below(1500) as usize));
        let insert = sqlx::query("INSERT OR IGNORE INTO rows VALUES (?, ?, ?)").bind(key).bind(&word).bind(text);
        insert.execute(&mut connection).await.unwrap();
        rows.push((key, word));
        if below(10) < 6 {
            let (key, word) = rows.swap_remove(below(rows.len() as u64) as usize);
            let delete = sqlx::query("DELETE FROM rows WHERE key = ? AND word = ?").bind(key).bind(&word);
            delete.execute(&mut connection).await.unwrap();
            deleted.push(word);
        }
        if number % 100 == 99 {
            run(&mut connection, "COMMIT").await;
            run(&mut connection, "PRAGMA wal_checkpoint(TRUNCATE)").await;
            run(&mut connection, "BEGIN").await;
        }
    }
    run(&mut connection, "COMMIT").await;
    run(&mut connection, "PRAGMA wal_checkpoint(TRUNCATE)").await;
    let sound: String = sqlx::query_scalar("PRAGMA integrity_check").fetch_one(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    let file = std::fs::read(&path).unwrap();
    let words: HashSet<&[u8]> =
        file.windows("word00000000".len()).filter(|window| window.starts_with(b"word")).collect();
    let is_there = |word: &&String| words.contains(word.as_bytes());
    assert!(deleted.len() > 1000 && rows.iter().all(|(_, word)| is_there(&word)));
    let left: Vec<&String> = deleted.iter().filter(is_there).collect();
    assert_eq!((sound.as_str(), left), ("ok", vec![]));
}
