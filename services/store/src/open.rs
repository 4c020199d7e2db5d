//! Opening a store: the file, its schema, the rules of every connection.

use crate::error::Result;
use crate::{Error, clean_pages, lock};
use background::start_last;
use sqlx::ConnectOptions;
use sqlx::migrate::{MigrateError, Migrator};
use sqlx::sqlite::{
    SqliteAutoVacuum, SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqlitePool, SqlitePoolOptions,
    SqliteSynchronous,
};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

static MIGRATIONS: Migrator = sqlx::migrate!("../../migrations");
const APPLICATION_ID: i64 = 1_380_995_667; // as in the first migration
const CACHED_STATEMENTS: usize = 200; // more than there are in this crate
/// Pages of the log that a commit writes back: more would take longer than a turn may wait.
const CHECKPOINT_PAGES: &str = "256";
const LOCK_POLL: Duration = Duration::from_millis(20);

#[derive(Debug, Clone)]
pub struct StoreOptions {
    pub path: PathBuf,
    pub opened_by: OpenedBy,
    pub create: bool,
    pub busy_timeout_ms: u64,
    pub readers: u32,
    /// Time limit of a read. 0: no limit.
    pub read_limit_ms: u64,
    /// Limits on the bytes that the clients of a user store, in all and in a minute. 0: no limit.
    pub user_bytes: u64,
    pub user_bytes_per_minute: u64,
    pub write_queue: usize,
    pub commit_group: usize,
    /// Time between two flushes of the journal. A killed process loses nothing; a power cut loses at most this time.
    pub sync_ms: u64,
    pub wal_limit_bytes: u64,
    /// Limit of the file in pages; `None` is the disk's own limit.
    pub max_pages: Option<u32>,
    pub check_at_start: bool,
}

/// Program that opens the store. Any number of commands may read and write beside one service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenedBy {
    Service,
    Command,
}

pub struct Opened {
    pub connection: SqliteConnection,
    pub readers: SqlitePool,
    pub key_reader: SqlitePool,
    pub background: SqlitePool,
    pub lock: Option<lock::Lock>,
}

pub async fn open(options: &StoreOptions) -> Result<Opened, Error> {
    let path = options.path.as_path();
    if !path.exists() {
        if !options.create {
            return Err(Error::NoStore { path: path.to_path_buf() });
        }
        lock::create_private_file(path).map_err(|error| Error::from_io(path, error))?;
    }
    let lock = take_lock(options).await?;
    let mut connection = connect_writer(options).await.map_err(|error| Error::from_sqlx(path, error))?;
    refuse_foreign(path, &mut connection).await?;
    migrate(path, &mut connection, lock.is_some()).await?;
    require_writable(&mut connection).await.map_err(|error| Error::from_sqlx(path, error))?;
    if options.check_at_start {
        quick_check(path, &mut connection).await?;
    }
    let (readers, key_reader) = (pool(options, options.readers.max(1)), pool(options, 1));
    let background = pool(options, 1);
    if options.opened_by == OpenedBy::Service {
        for pool in [&readers, &key_reader] {
            open_all(pool).await.map_err(|error| Error::from_sqlx(path, error))?;
        }
        open_last(&background).await.map_err(|error| Error::from_sqlx(path, error))?;
    }
    Ok(Opened { connection, readers, key_reader, background, lock })
}

fn pool(options: &StoreOptions, connections: u32) -> SqlitePool {
    SqlitePoolOptions::new()
        .max_connections(connections)
        .acquire_timeout(Duration::from_millis(options.busy_timeout_ms))
        .test_before_acquire(false) // a file does not go away as a server does
        // A closed connection would have to be opened again, when the process may have no file left.
        .idle_timeout(None)
        .max_lifetime(None)
        .connect_lazy_with(shared_rules(options).read_only(true))
}

/// Opens all connections of a pool and their files, so that a service still answers when it can open no more files.
async fn open_all(pool: &SqlitePool) -> Result<(), sqlx::Error> {
    let mut open = Vec::new();
    for _ in 0..pool.options().get_max_connections() {
        let mut connection = pool.acquire().await?;
        // The first read opens the write-ahead log.
        sqlx::query("SELECT count(*) FROM sqlite_schema").execute(&mut *connection).await?;
        open.push(connection);
    }
    Ok(())
}

/// Opens a pool whose connections come after all others: each has a thread, which is like the one that started it.
async fn open_last(pool: &SqlitePool) -> Result<(), sqlx::Error> {
    let (tell, told) = oneshot::channel();
    let (pool, handle) = (pool.clone(), Handle::current());
    start_last("background-reader", move || drop(tell.send(handle.block_on(open_all(&pool)))))?;
    told.await.unwrap_or(Err(sqlx::Error::WorkerCrashed))
}

/// Takes the lock. A service needs it and waits a moment, because a command holds it while it opens; a command
/// continues without it.
async fn take_lock(options: &StoreOptions) -> Result<Option<lock::Lock>, Error> {
    let path = options.path.as_path();
    let deadline = Instant::now() + Duration::from_millis(options.busy_timeout_ms);
    loop {
        let lock = lock::try_lock(path)?;
        if lock.is_some() || options.opened_by == OpenedBy::Command {
            return Ok(lock);
        }
        if Instant::now() >= deadline {
            return Err(Error::InUse { path: path.to_path_buf(), by: lock::holder(path) });
        }
        tokio::time::sleep(LOCK_POLL).await;
    }
}

fn shared_rules(options: &StoreOptions) -> SqliteConnectOptions {
    let rules = SqliteConnectOptions::new();
    let rules = match clean_pages::name() {
        Some(name) => rules.vfs(name),
        None => rules,
    };
    rules
        .filename(&options.path)
        .busy_timeout(Duration::from_millis(options.busy_timeout_ms))
        .synchronous(SqliteSynchronous::Full)
        .foreign_keys(true)
        .statement_cache_capacity(CACHED_STATEMENTS)
        .pragma("trusted_schema", "OFF") // a store from elsewhere runs no functions of its own choice
        .pragma("cell_size_check", "ON") // damage is found when a page is read, not when it has done harm
        .disable_statement_logging() // statements carry what people said
}

async fn connect_writer(options: &StoreOptions) -> Result<SqliteConnection, sqlx::Error> {
    let mut connect = shared_rules(options)
        .auto_vacuum(SqliteAutoVacuum::Incremental)
        .journal_mode(SqliteJournalMode::Wal)
        .pragma("secure_delete", "ON") // what is deleted is overwritten
        .pragma("wal_autocheckpoint", CHECKPOINT_PAGES)
        .pragma("journal_size_limit", options.wal_limit_bytes.to_string());
    if let Some(pages) = options.max_pages {
        connect = connect.pragma("max_page_count", pages.to_string());
    }
    connect.connect().await
}

async fn refuse_foreign(path: &Path, connection: &mut SqliteConnection) -> Result<(), Error> {
    // The bookkeeping table has an index, which SQLite lists beside it.
    let query = sqlx::query_as(
        "SELECT application_id, (SELECT count(*) FROM sqlite_schema WHERE tbl_name <> '_sqlx_migrations')
         FROM pragma_application_id",
    );
    let found: Result<(i64, i64), sqlx::Error> = query.fetch_one(connection).await;
    let (id, tables) = found.map_err(|error| Error::from_sqlx(path, error))?;
    // The first migration may have been cut off after its bookkeeping table: that is still ours.
    let only_bookkeeping = id == 0 && tables == 0;
    if id == APPLICATION_ID || only_bookkeeping { Ok(()) } else { Err(Error::Foreign { path: path.to_path_buf() }) }
}

async fn migrate(path: &Path, connection: &mut SqliteConnection, alone: bool) -> Result<(), Error> {
    let pending = pending_migrations(connection).await.map_err(|failure| failure.at(path))?;
    if pending && !alone {
        return Err(Error::OldSchemaInUse { path: path.to_path_buf() });
    }
    let known = MIGRATIONS.iter().map(|migration| migration.version).max().unwrap_or(0);
    MIGRATIONS.run_direct(None, connection, false).await.map_err(|error| match error {
        MigrateError::VersionMissing(found) => Error::Newer { path: path.to_path_buf(), found, known },
        MigrateError::VersionMismatch(step) | MigrateError::Dirty(step) => {
            Error::SchemaChanged { path: path.to_path_buf(), step }
        }
        MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => Error::from_sqlx(path, error),
        other => Error::Defect { path: path.to_path_buf(), cause: other.to_string() },
    })
}

async fn pending_migrations(connection: &mut SqliteConnection) -> Result<bool> {
    let table = sqlx::query("SELECT 1 FROM sqlite_schema WHERE name = '_sqlx_migrations'");
    if table.fetch_optional(&mut *connection).await?.is_none() {
        return Ok(true);
    }
    let newest = sqlx::query_scalar("SELECT coalesce(max(version), 0) FROM _sqlx_migrations");
    let newest: i64 = newest.fetch_one(connection).await?;
    Ok(MIGRATIONS.iter().any(|migration| migration.version > newest))
}

/// Checks at start that the store can be written, so that a user does not talk for an hour to a service that cannot
/// remember.
async fn require_writable(connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    sqlx::query("BEGIN IMMEDIATE").execute(&mut *connection).await?;
    let written = sqlx::query("UPDATE users SET name = name WHERE id = ''").execute(&mut *connection).await;
    sqlx::query("ROLLBACK").execute(&mut *connection).await?;
    written.map(|_| ())
}

async fn quick_check(path: &Path, connection: &mut SqliteConnection) -> Result<(), Error> {
    let lines = sqlx::query_scalar("PRAGMA quick_check(3)").fetch_all(connection).await;
    let lines: Vec<String> = lines.map_err(|error| Error::from_sqlx(path, error))?;
    if lines == ["ok"] {
        return Ok(());
    }
    Err(Error::Corrupt { path: path.to_path_buf(), cause: lines.join("; ") })
}

#[cfg(test)]
mod tests {
    use super::*;
    use sqlx::Row;

    #[tokio::test]
    async fn every_connection_follows_the_rules() {
        let folder = tempfile::tempdir().unwrap();
        let options = StoreOptions {
            path: folder.path().join("store.sqlite3"),
            opened_by: OpenedBy::Service,
            create: true,
            busy_timeout_ms: 1234,
            readers: 2,
            read_limit_ms: 0,
            sync_ms: 1000,
            user_bytes: 0,
            user_bytes_per_minute: 0,
            write_queue: 1,
            commit_group: 1,
            wal_limit_bytes: 4096,
            max_pages: None,
            check_at_start: true,
        };
        let mut opened = open(&options).await.unwrap();
        let mut reader = opened.readers.acquire().await.unwrap();
        for connection in [&mut opened.connection, &mut *reader] {
            let rules = [
                ("SELECT journal_mode FROM pragma_journal_mode", "wal"),
                ("SELECT CAST(synchronous AS TEXT) FROM pragma_synchronous", "2"), // full
                ("SELECT CAST(foreign_keys AS TEXT) FROM pragma_foreign_keys", "1"),
                ("SELECT CAST(timeout AS TEXT) FROM pragma_busy_timeout", "1234"),
            ];
            for (rule, expected) in rules {
                let row = sqlx::query(rule).fetch_one(&mut *connection).await.unwrap();
                assert_eq!(row.get::<String, _>(0), expected, "{rule}");
            }
        }
        let refused =
            sqlx::query("INSERT INTO users (id, name, created_at_ms) VALUES ('x', 'x', 1)").execute(&mut *reader).await;
        assert!(matches!(Error::from_sqlx(&options.path, refused.unwrap_err()), Error::ReadOnly { .. }));
        let secure: i64 = sqlx::query("PRAGMA secure_delete").fetch_one(&mut opened.connection).await.unwrap().get(0);
        assert_eq!(secure, 1);
    }
}
