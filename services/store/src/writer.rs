//! The one writer: a task that owns the only connection that writes.
//!
//! Group commit: whatever waits in the queue goes into one transaction, and is acknowledged together when that is on disk.
//! A flush costs the same for one event as for a hundred, so the busier the service the cheaper an event. Each piece of
//! work stands in a savepoint of its own: the others stay when one fails.

use crate::{Error, lock::Lock};
use futures_util::future::BoxFuture;
use sqlx::query::Query;
use sqlx::sqlite::{Sqlite, SqliteArguments};
use sqlx::{Connection, SqliteConnection};
use std::path::{Path, PathBuf};
use tokio::sync::{mpsc, oneshot};

/// Work waiting for its turn, and how its caller learns what became of it.
struct Work {
    run: Run,
    acknowledge: Acknowledge,
}
/// `Err` tells why this work failed; the caller gets the same from `Acknowledge`.
type Run = Box<dyn for<'c> FnOnce(&'c mut SqliteConnection) -> BoxFuture<'c, Result<(), Error>> + Send>;
/// Called once, when the fate of the transaction is known, also for work that never ran.
type Acknowledge = Box<dyn FnOnce(Result<(), Error>) + Send>;

enum Order {
    Work(Work),
    /// Runs by itself, outside of any transaction.
    Upkeep(Work),
    Stop(oneshot::Sender<Result<(), Error>>),
}

#[derive(Clone)]
pub struct StoreWriter {
    queue: mpsc::Sender<Order>,
    path: PathBuf,
}

impl StoreWriter {
    /// `queue_limit` orders may wait, `group_limit` of them share a transaction.
    pub fn start(
        connection: SqliteConnection,
        lock: Option<Lock>,
        path: &Path,
        queue_limit: usize,
        group_limit: usize,
    ) -> StoreWriter {
        let (queue, orders) = mpsc::channel(queue_limit.max(1));
        let writer = StoreWriter { queue, path: path.to_path_buf() };
        tokio::spawn(run(connection, lock, writer.path.clone(), orders, group_limit.max(1)));
        writer
    }

    /// Returns when the work is committed and flushed, or not at all in the store. The caller may stop waiting: the work
    /// is done all the same.
    pub async fn write<T, F>(&self, work: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(&'c mut SqliteConnection) -> BoxFuture<'c, Result<T, StoreFailure>> + Send + 'static,
    {
        let (work, answer) = self.prepare(work);
        self.queue.send(Order::Work(work)).await.map_err(|_| Error::Closed)?;
        answer.await.unwrap_or(Err(Error::Closed))
    }

    /// For what SQLite refuses inside a transaction: checkpoints, vacuum.
    pub async fn upkeep<T, F>(&self, work: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(&'c mut SqliteConnection) -> BoxFuture<'c, Result<T, StoreFailure>> + Send + 'static,
    {
        let (work, answer) = self.prepare(work);
        self.queue.send(Order::Upkeep(work)).await.map_err(|_| Error::Closed)?;
        answer.await.unwrap_or(Err(Error::Closed))
    }

    /// As `write`, but neither waits for room in the queue (`Error::Busy`) nor for the commit.
    pub fn write_later<T, F>(&self, work: F) -> Result<oneshot::Receiver<Result<T, Error>>, Error>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(&'c mut SqliteConnection) -> BoxFuture<'c, Result<T, StoreFailure>> + Send + 'static,
    {
        let (work, answer) = self.prepare(work);
        self.queue.try_send(Order::Work(work)).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => Error::Busy { path: self.path.clone() },
            mpsc::error::TrySendError::Closed(_) => Error::Closed,
        })?;
        Ok(answer)
    }

    /// Everything queued so far is committed, the connection closed, the lock given back.
    pub async fn stop(&self) -> Result<(), Error> {
        let (answer, stopped) = oneshot::channel();
        self.queue.send(Order::Stop(answer)).await.map_err(|_| Error::Closed)?;
        stopped.await.unwrap_or(Err(Error::Closed))
    }

    fn prepare<T, F>(&self, work: F) -> (Work, oneshot::Receiver<Result<T, Error>>)
    where
        T: Send + 'static,
        F: for<'c> FnOnce(&'c mut SqliteConnection) -> BoxFuture<'c, Result<T, StoreFailure>> + Send + 'static,
    {
        let (send, answer) = oneshot::channel::<Result<T, Error>>();
        let (ran, mut outcome) = oneshot::channel::<Result<T, Error>>();
        let path = self.path.clone();
        let run: Run = Box::new(move |connection| {
            let future = work(connection);
            Box::pin(async move {
                let result = future.await.map_err(|failure| failure.at(&path));
                let failed = result.as_ref().err().cloned();
                let _ = ran.send(result); // its receiver lives as long as `acknowledge`
                failed.map_or(Ok(()), Err)
            })
        });
        let acknowledge: Acknowledge = Box::new(move |committed| {
            let result = match (outcome.try_recv(), committed) {
                (Ok(Err(own)), _) => Err(own),
                (_, Err(shared)) => Err(shared),
                (Ok(Ok(value)), Ok(())) => Ok(value),
                (Err(_), Ok(())) => Err(Error::Closed),
            };
            let _ = send.send(result); // a caller that no longer waits is fine
        });
        (Work { run, acknowledge }, answer)
    }
}

/// What work may fail with: an answer of our own, or SQLite's.
#[derive(Debug)]
pub enum StoreFailure {
    Ours(Error),
    Sql(sqlx::Error),
}

impl StoreFailure {
    pub fn at(self, path: &Path) -> Error {
        match self {
            StoreFailure::Ours(error) => error,
            StoreFailure::Sql(error) => Error::from_sqlx(path, error),
        }
    }
}

impl From<Error> for StoreFailure {
    fn from(error: Error) -> StoreFailure {
        StoreFailure::Ours(error)
    }
}

impl From<sqlx::Error> for StoreFailure {
    fn from(error: sqlx::Error) -> StoreFailure {
        StoreFailure::Sql(error)
    }
}

async fn run(
    mut connection: SqliteConnection,
    lock: Option<Lock>,
    path: PathBuf,
    mut orders: mpsc::Receiver<Order>,
    group_limit: usize,
) {
    let mut group = Vec::new();
    let mut next = orders.recv().await;
    let mut stop = None;
    while let Some(order) = next.take() {
        match order {
            Order::Work(work) => {
                group.push(work);
                // What is in the queue already joins; the writer does not wait for more.
                while group.len() < group_limit {
                    match orders.try_recv() {
                        Ok(Order::Work(work)) => group.push(work),
                        Ok(other) => {
                            next = Some(other);
                            break;
                        }
                        Err(_) => break,
                    }
                }
                commit_group(&mut connection, &path, &mut group).await;
            }
            Order::Upkeep(work) => {
                let result = (work.run)(&mut connection).await;
                (work.acknowledge)(result);
            }
            Order::Stop(answer) => {
                stop = Some(answer);
                break;
            }
        }
        if next.is_none() {
            next = orders.recv().await;
        }
    }
    let closed = connection.close().await.map_err(|error| Error::from_sqlx(&path, error));
    drop(lock); // only now may another service open the store
    if let Some(answer) = stop {
        let _ = answer.send(closed);
    }
}

async fn commit_group(connection: &mut SqliteConnection, path: &Path, group: &mut Vec<Work>) {
    let mut acknowledgements = Vec::with_capacity(group.len());
    let mut runs = Vec::with_capacity(group.len());
    for work in group.drain(..) {
        acknowledgements.push(work.acknowledge);
        runs.push(work.run);
    }
    let result = run_in_transaction(connection, path, runs).await;
    if let Err(error) = &result {
        tracing::error!(%error, writes = acknowledgements.len(), "a group of writes was not stored");
        // Fails when SQLite rolled back by itself, as it does on a full disk.
        let _ = sqlx::query("ROLLBACK").execute(&mut *connection).await;
    }
    for acknowledge in acknowledgements {
        acknowledge(result.clone());
    }
}

async fn run_in_transaction(connection: &mut SqliteConnection, path: &Path, runs: Vec<Run>) -> Result<(), Error> {
    execute(connection, path, sqlx::query("BEGIN IMMEDIATE")).await?;
    for run in runs {
        execute(connection, path, sqlx::query("SAVEPOINT work")).await?;
        if let Err(own) = run(&mut *connection).await {
            // Without a savepoint to go back to, SQLite has given up the whole transaction, for the reason `own` names.
            execute(connection, path, sqlx::query("ROLLBACK TO work")).await.map_err(|_| own)?;
        }
        execute(connection, path, sqlx::query("RELEASE work")).await?;
    }
    execute(connection, path, sqlx::query("COMMIT")).await
}

async fn execute(
    connection: &mut SqliteConnection,
    path: &Path,
    statement: Query<'static, Sqlite, SqliteArguments>,
) -> Result<(), Error> {
    statement.execute(connection).await.map_err(|error| Error::from_sqlx(path, error))?;
    Ok(())
}
