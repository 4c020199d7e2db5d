//! The one writer: a thread that owns the only connection that writes.
//!
//! Group commit: the work in the queue goes into one transaction, and the writer acknowledges all of it when that is on
//! disk. A flush costs the same for one event as for a hundred, so an event gets cheaper as the service gets busier.
//! Each piece of work has a savepoint of its own: the others stay when one fails.

use crate::error::Result;
use crate::{Error, StoreOptions, lock::Lock};
use futures_util::future::{BoxFuture, LocalBoxFuture};
use parking_lot::Mutex;
use sqlx::{Connection, SqliteConnection};
use std::any::Any;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};

pub enum Order {
    Write(Work),
    Upkeep(Work),
    /// End of the writer: it commits the queue, closes the connection and releases the lock.
    Stop(oneshot::Sender<Result<(), Error>>),
}

/// Work in the queue. The writer answers it when the fate of its transaction is known, also if it never ran.
pub struct Work {
    run: Run,
    answer: oneshot::Sender<Result<Value, Error>>,
}

type Value = Box<dyn Any + Send>;
type Run = Box<dyn for<'c> FnOnce(&'c mut SqliteConnection) -> LocalBoxFuture<'c, Result<Value>> + Send>;

pub type StoreAnswer<T> = BoxFuture<'static, Result<T, Error>>;

impl Work {
    pub fn new<T: Send + 'static>(
        work: impl AsyncFnOnce(&mut SqliteConnection) -> Result<T> + Send + 'static,
    ) -> (Work, StoreAnswer<T>) {
        let (answer, answered) = oneshot::channel::<Result<Value, Error>>();
        let run: Run =
            Box::new(move |connection| Box::pin(async move { Ok(Box::new(work(connection).await?) as Value) }));
        let wait = Box::pin(async move {
            let value = answered.await.unwrap_or(Err(Error::Closed))?;
            value.downcast().map(|value| *value).map_err(|_| Error::Closed)
        });
        (Work { run, answer }, wait)
    }
}

pub type WriteTrouble = Arc<Mutex<Option<String>>>;

/// Starts the thread. It ends with `Order::Stop`, or when the last handle of the store is dropped.
pub fn start_writer(
    connection: SqliteConnection,
    lock: Option<Lock>,
    options: &StoreOptions,
    trouble: WriteTrouble,
) -> Result<mpsc::Sender<Order>, Error> {
    let (queue, orders) = mpsc::channel(options.write_queue.max(1));
    let (path, group_limit) = (options.path.clone(), options.commit_group.max(1));
    let failed = |error| Error::from_io(&options.path, error);
    let runtime = tokio::runtime::Builder::new_current_thread().build().map_err(failed)?;
    let run = move || runtime.block_on(run(connection, lock, path, orders, group_limit, trouble));
    std::thread::Builder::new().name("store-writer".into()).spawn(run).map_err(failed)?;
    Ok(queue)
}

async fn run(
    mut connection: SqliteConnection,
    lock: Option<Lock>,
    path: PathBuf,
    mut orders: mpsc::Receiver<Order>,
    group_limit: usize,
    trouble: WriteTrouble,
) {
    let mut group = Vec::new();
    let mut next = orders.recv().await;
    let mut stop = None;
    while let Some(order) = next.take() {
        match order {
            Order::Write(work) => {
                group.push(work);
                // The writer takes what is in the queue already, and does not wait for more.
                while group.len() < group_limit {
                    match orders.try_recv() {
                        Ok(Order::Write(work)) => group.push(work),
                        Ok(other) => {
                            next = Some(other);
                            break;
                        }
                        Err(_) => break,
                    }
                }
                commit_group(&mut connection, &path, std::mem::take(&mut group), &trouble).await;
            }
            Order::Upkeep(work) => {
                let result = (work.run)(&mut connection).await;
                let _ = work.answer.send(result.map_err(|failure| failure.at(&path)));
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

async fn commit_group(connection: &mut SqliteConnection, path: &Path, group: Vec<Work>, trouble: &WriteTrouble) {
    let (answers, runs): (Vec<_>, Vec<_>) = group.into_iter().map(|work| (work.answer, work.run)).unzip();
    let mut results = Vec::with_capacity(runs.len());
    let committed = run_in_transaction(connection, path, runs, &mut results).await;
    let committed = committed.map_err(|failure| failure.at(path));
    if let Err(error) = &committed {
        tracing::error!(%error, writes = answers.len(), "a group of writes was not stored");
        // Fails when SQLite rolled back by itself, as it does on a full disk.
        let _ = sqlx::query("ROLLBACK").execute(connection).await;
    }
    let fate = |own: Option<Result<Value, Error>>| match (own, &committed) {
        (Some(Err(own)), _) => Err(own),
        (_, Err(shared)) => Err(shared.clone()),
        (own, Ok(())) => own.unwrap_or(Err(Error::Closed)),
    };
    let mut results = results.into_iter();
    let fates: Vec<_> = answers.iter().map(|_| fate(results.next())).collect();
    // A caller that gets an error finds it here too.
    let of_disk = fates.iter().find_map(|fate| fate.as_ref().err().filter(|error| error.may_pass()));
    *trouble.lock() = of_disk.map(Error::to_string);
    for (answer, fate) in answers.into_iter().zip(fates) {
        let _ = answer.send(fate); // a caller that no longer waits is fine
    }
}

async fn run_in_transaction(
    connection: &mut SqliteConnection,
    path: &Path,
    runs: Vec<Run>,
    results: &mut Vec<Result<Value, Error>>,
) -> Result<()> {
    sqlx::query("BEGIN IMMEDIATE").execute(&mut *connection).await?;
    for run in runs {
        sqlx::query("SAVEPOINT work").execute(&mut *connection).await?;
        let result = run(connection).await.map_err(|failure| failure.at(path));
        if let Err(own) = &result
            && sqlx::query("ROLLBACK TO work").execute(&mut *connection).await.is_err()
        {
            // Without a savepoint to return to, SQLite has given up the whole transaction, for the reason in `own`.
            return Err(own.clone().into());
        }
        results.push(result);
        sqlx::query("RELEASE work").execute(&mut *connection).await?;
    }
    sqlx::query("COMMIT").execute(connection).await?;
    Ok(())
}
