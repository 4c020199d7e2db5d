//! The store: users, sessions, everything that was said, in one SQLite file.
//!
//! What a method has acknowledged is on disk, and survives `kill -9` and a power cut. One writer takes all writes, in
//! groups; readers read beside it. Words are only ever added (the schema refuses anything else); deleting a session is the
//! one thing that removes them, and then they are gone. Time is an argument: the store has no clock.

mod config_form;
mod delete;
mod error;
mod export;
mod health;
mod ids;
mod import;
mod item_form;
mod items;
mod keys;
mod lock;
mod measurements;
mod open;
mod order_key;
mod records;
mod replies;
mod responses;
mod rows;
mod search;
mod sessions;
mod spacing;
mod summaries;
mod view;
mod writer;

pub use delete::Deleted;
pub use error::Error;
pub use export::Export;
pub use health::Statistics;
pub use ids::new_id;
pub use import::Importer;
pub use keys::{ApiKey, ClientSecret, Identity, NewApiKey, Scope};
pub use measurements::{ExperimentTurn, Measurement};
pub use order_key::OrderKey;
pub use records::{
    Change, ItemVersion, NewSession, Placement, SessionLine, SessionRecord, SessionRef, StoredVersion, User,
    VersionStatus,
};
pub use replies::{FinishedReply, OpenReply, ReplyPiece};
pub use responses::FinishedResponse;
pub use search::{HistorySearch, Hit};
pub use summaries::{ContextStamp, MadeBy, NewSummary, Pin, Summary, SummaryKind};
pub use view::View;

use futures_util::future::BoxFuture;
use sqlx::query::Query;
use sqlx::sqlite::{Sqlite, SqliteArguments, SqliteConnection, SqlitePool, SqliteRow};
use sqlx::{Executor, Transaction};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::oneshot;
use writer::{StoreFailure, StoreWriter};

#[derive(Debug, Clone)]
pub struct StoreOptions {
    pub path: PathBuf,
    pub opened_by: OpenedBy,
    /// Makes the file, and the folder it is in, if they are not there.
    pub create: bool,
    pub busy_timeout_ms: u64,
    pub readers: u32,
    /// Writes that may wait; the next caller waits for room.
    pub write_queue: usize,
    /// Writes that share a transaction.
    pub commit_group: usize,
    /// Beyond this the write-ahead log is cut back when it can be.
    pub wal_limit_bytes: u64,
    /// The file may not grow beyond this many pages; None is the disk's own limit.
    pub max_pages: Option<u32>,
    /// Reads the whole file once before anything is answered.
    pub check_at_start: bool,
}

/// What opens the store. Any number of commands may look and write beside one service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenedBy {
    Service,
    Command,
}

/// A handle: cheap to clone, for any task.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

struct Inner {
    path: PathBuf,
    writer: StoreWriter,
    readers: SqlitePool,
}

impl Store {
    /// Opens the file, brings its schema up to date, and closes what a crash left open. `now_ms` is the time of those
    /// closings.
    pub async fn open(options: &StoreOptions, now_ms: i64) -> Result<Store, Error> {
        let mut opened = open::open(options).await?;
        let alone = opened.lock.is_some();
        // A service keeps the lock until its writer has stopped, a command only as long as it repairs.
        let (kept, repairing) = match options.opened_by {
            OpenedBy::Service => (opened.lock.take(), None),
            OpenedBy::Command => (None, opened.lock.take()),
        };
        let writer =
            StoreWriter::start(opened.connection, kept, &options.path, options.write_queue, options.commit_group);
        let store = Store { inner: Arc::new(Inner { path: options.path.clone(), writer, readers: opened.readers }) };
        if alone {
            let closed = store.close_what_a_crash_left(now_ms).await?;
            if closed > 0 {
                tracing::warn!(replies = closed, "replies that a crash cut off are marked interrupted");
            }
            store.finish_removals().await?;
        }
        drop(repairing);
        Ok(store)
    }

    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    /// Waits for the writes in the queue, then closes the file. Later calls get `Error::Closed`.
    pub async fn close(&self) -> Result<(), Error> {
        self.inner.readers.close().await;
        self.inner.writer.stop().await
    }

    async fn write<T, F>(&self, work: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(&'c mut SqliteConnection) -> BoxFuture<'c, Result<T, StoreFailure>> + Send + 'static,
    {
        self.inner.writer.write(work).await
    }

    fn write_later<T, F>(&self, work: F) -> Result<oneshot::Receiver<Result<T, Error>>, Error>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(&'c mut SqliteConnection) -> BoxFuture<'c, Result<T, StoreFailure>> + Send + 'static,
    {
        self.inner.writer.write_later(work)
    }

    async fn upkeep<T, F>(&self, work: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(&'c mut SqliteConnection) -> BoxFuture<'c, Result<T, StoreFailure>> + Send + 'static,
    {
        self.inner.writer.upkeep(work).await
    }

    /// One moment of the database, for several questions.
    async fn read(&self) -> Result<Transaction<'static, Sqlite>, Error> {
        self.inner.readers.begin().await.map_err(|error| self.failed(error))
    }

    /// The answer of questions that `read` let ask.
    async fn end<T>(
        &self,
        transaction: Transaction<'static, Sqlite>,
        answer: Result<T, StoreFailure>,
    ) -> Result<T, Error> {
        transaction.rollback().await.map_err(|error| self.failed(error))?;
        answer.map_err(|failure| failure.at(self.path()))
    }

    async fn rows(&self, query: Query<'_, Sqlite, SqliteArguments>) -> Result<Vec<SqliteRow>, Error> {
        (&self.inner.readers).fetch_all(query).await.map_err(|error| self.failed(error))
    }

    async fn optional_row(&self, query: Query<'_, Sqlite, SqliteArguments>) -> Result<Option<SqliteRow>, Error> {
        (&self.inner.readers).fetch_optional(query).await.map_err(|error| self.failed(error))
    }

    fn each<T>(
        &self,
        rows: &[SqliteRow],
        of: impl FnMut(&SqliteRow) -> Result<T, StoreFailure>,
    ) -> Result<Vec<T>, Error> {
        rows.iter().map(of).collect::<Result<_, _>>().map_err(|failure| failure.at(self.path()))
    }

    fn failed(&self, error: sqlx::Error) -> Error {
        Error::from_sqlx(self.path(), error)
    }
}
