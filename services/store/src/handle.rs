//! The handle of a store: how everything is read and written.

use crate::Error;
use crate::error::Result;
use crate::open::{OpenedBy, StoreOptions, open};
use crate::records::SessionRef;
use crate::writer::{Answer, Order, Work, start_writer};
use sqlx::Connection;
use sqlx::sqlite::{SqliteConnection, SqlitePool};
use std::path::Path;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};

/// Cheap to clone, for any task.
#[derive(Clone)]
pub struct Store {
    path: Arc<Path>,
    orders: mpsc::Sender<Order>,
    readers: SqlitePool,
}

impl Store {
    /// Opens the file, brings its schema up to date, and closes what a crash left open. `now_ms` is the time of those
    /// closings.
    pub async fn open(options: &StoreOptions, now_ms: i64) -> Result<Store, Error> {
        let mut opened = open(options).await?;
        let alone = opened.lock.is_some();
        // A service keeps the lock until its writer has stopped, a command only as long as it repairs.
        let (kept, repairing) = match options.opened_by {
            OpenedBy::Service => (opened.lock.take(), None),
            OpenedBy::Command => (None, opened.lock.take()),
        };
        let orders = start_writer(opened.connection, kept, options)?;
        let store = Store { path: options.path.as_path().into(), orders, readers: opened.readers };
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
        &self.path
    }

    /// Waits for the writes in the queue, then closes the file. Later calls get `Error::Closed`.
    pub async fn close(&self) -> Result<(), Error> {
        self.readers.close().await;
        let (answer, stopped) = oneshot::channel();
        self.orders.send(Order::Stop(answer)).await.map_err(|_| Error::Closed)?;
        stopped.await.unwrap_or(Err(Error::Closed))
    }

    /// Returns when the work is committed and flushed, or not at all in the store. The caller may stop waiting: the work
    /// is done all the same.
    pub(crate) async fn write<T: Send + 'static>(
        &self,
        work: impl AsyncFnOnce(&mut SqliteConnection) -> Result<T> + Send + 'static,
    ) -> Result<T, Error> {
        let (work, answer) = Work::new(work);
        self.orders.send(Order::Write(work)).await.map_err(|_| Error::Closed)?;
        answer.await
    }

    /// A write to a session that is still there. It was used now.
    pub(crate) async fn write_session<T: Send + 'static>(
        &self,
        session: &SessionRef,
        now_ms: i64,
        work: impl AsyncFnOnce(&mut SqliteConnection, &SessionRef) -> Result<T> + Send + 'static,
    ) -> Result<T, Error> {
        let session = session.clone();
        self.write(async move |connection| {
            touch(connection, &session, now_ms).await?;
            work(connection, &session).await
        })
        .await
    }

    /// As `write`, but waits for no room in the queue (`Error::Busy`). The answer need not be waited for.
    pub(crate) fn write_later<T: Send + 'static>(
        &self,
        work: impl AsyncFnOnce(&mut SqliteConnection) -> Result<T> + Send + 'static,
    ) -> Result<Answer<T>, Error> {
        let (work, answer) = Work::new(work);
        self.orders.try_send(Order::Write(work)).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => Error::Busy { path: self.path.to_path_buf() },
            mpsc::error::TrySendError::Closed(_) => Error::Closed,
        })?;
        Ok(answer)
    }

    /// For what SQLite refuses inside a transaction: checkpoints, vacuum.
    pub(crate) async fn upkeep<T: Send + 'static>(
        &self,
        work: impl AsyncFnOnce(&mut SqliteConnection) -> Result<T> + Send + 'static,
    ) -> Result<T, Error> {
        let (work, answer) = Work::new(work);
        self.orders.send(Order::Upkeep(work)).await.map_err(|_| Error::Closed)?;
        answer.await
    }

    pub(crate) async fn read<T>(&self, ask: impl AsyncFnOnce(&mut SqliteConnection) -> Result<T>) -> Result<T, Error> {
        let answer = async {
            let mut reader = self.readers.acquire().await?;
            ask(&mut reader).await
        };
        answer.await.map_err(|failure| failure.at(&self.path))
    }

    /// Several questions about one moment of the database.
    pub(crate) async fn read_moment<T>(
        &self,
        ask: impl AsyncFnOnce(&mut SqliteConnection) -> Result<T>,
    ) -> Result<T, Error> {
        self.read(async |reader| {
            let mut transaction = reader.begin().await?;
            ask(&mut transaction).await
        })
        .await
    }
}

/// Every write to a session begins here: it is still there, and it was used now.
async fn touch(connection: &mut SqliteConnection, session: &SessionRef, now_ms: i64) -> Result<()> {
    let query = sqlx::query(
        "UPDATE sessions SET updated_at_ms = max(updated_at_ms, ?) WHERE key = ? AND deleted_at_ms IS NULL",
    );
    let touched = query.bind(now_ms).bind(session.key).execute(connection).await?;
    if touched.rows_affected() == 1 { Ok(()) } else { Err(session.missing().into()) }
}
