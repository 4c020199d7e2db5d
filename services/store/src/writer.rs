//! The one writer: a thread that owns the only connection that writes.
//!
//! Group commit: the work in the queue goes into one transaction, and the writer acknowledges all of it when that is on
//! disk. A flush costs the same for one event as for a hundred, so an event gets cheaper as the service gets busier.
//! Each piece of work has a savepoint of its own: the others stay when one fails.
//!
//! Large writes come late: in pieces through a queue of their own, or set aside with all that their session writes next.
//! Between two late writes the writer takes all that turns wait for.

use crate::error::Result;
use crate::{Error, StoreOptions, lock::Lock};
use futures_util::future::{BoxFuture, LocalBoxFuture};
use parking_lot::Mutex;
use sqlx::{Connection, SqliteConnection};
use std::any::{Any, type_name_of_val};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};

pub enum Order {
    Write(Work),
    /// Work outside of a transaction.
    Maintenance(Work),
    /// End of the writer: it commits the queue, closes the connection and releases the lock.
    Stop(oneshot::Sender<Result<(), Error>>),
}

/// Work in the queue. The writer answers it when the fate of its transaction is known, also if it never ran.
pub struct Work {
    name: &'static str,
    queue: WriteQueue,
    run: Run,
    answer: oneshot::Sender<Result<Value, Error>>,
}

type Value = Box<dyn Any + Send>;
type Run = Box<dyn for<'c> FnOnce(&'c mut SqliteConnection) -> LocalBoxFuture<'c, Result<Value>> + Send>;

pub type StoreAnswer<T> = BoxFuture<'static, Result<T, Error>>;

impl Work {
    pub fn new<T: Send + 'static>(
        queue: WriteQueue,
        work: impl AsyncFnOnce(&mut SqliteConnection) -> Result<T> + Send + 'static,
    ) -> (Work, StoreAnswer<T>) {
        let name = type_name_of_val(&work);
        let (answer, answered) = oneshot::channel::<Result<Value, Error>>();
        let run: Run =
            Box::new(move |connection| Box::pin(async move { Ok(Box::new(work(connection).await?) as Value) }));
        let wait = Box::pin(async move {
            let value = answered.await.unwrap_or(Err(Error::Closed))?;
            value.downcast().map(|value| *value).map_err(|_| Error::Closed)
        });
        (Work { name, queue, run, answer }, wait)
    }
}

pub type WriteTrouble = Arc<Mutex<Option<String>>>;

/// Queue of the writer: of what turns wait for, or of pieces of larger work. Only the writes of one session keep their order, and
/// pieces among themselves: a piece is awaited before what builds on it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteQueue {
    Turns,
    /// Queue of turns, for a write of one session: `key` is the session's, `bytes` estimates the size of the write.
    Session {
        key: i64,
        bytes: usize,
    },
    Pieces,
}

impl WriteQueue {
    fn session(self) -> Option<i64> {
        match self {
            WriteQueue::Session { key, .. } => Some(key),
            WriteQueue::Turns | WriteQueue::Pieces => None,
        }
    }
}

pub const ANY_BYTES: usize = usize::MAX; // as many as an item may have
// A larger write comes late.
pub const LARGE_BYTES: usize = 16 << 10; // not a window: bytes of items

#[derive(Clone)]
pub struct Orders {
    turns: mpsc::Sender<Order>,
    pieces: mpsc::Sender<Order>,
}

impl Orders {
    pub fn to(&self, queue: WriteQueue) -> &mpsc::Sender<Order> {
        match queue {
            WriteQueue::Turns | WriteQueue::Session { .. } => &self.turns,
            WriteQueue::Pieces => &self.pieces,
        }
    }
}

/// Time of a write from which the log of a developer names it.
const SLOW: Duration = Duration::from_millis(50);

/// Starts the thread. It ends with `Order::Stop`, or when the last handle of the store is dropped.
pub fn start_writer(
    connection: SqliteConnection,
    lock: Option<Lock>,
    options: &StoreOptions,
    trouble: WriteTrouble,
) -> Result<Orders, Error> {
    let (turns, of_turns) = mpsc::channel(options.write_queue.max(1));
    let (pieces, of_pieces) = mpsc::channel(options.write_queue.max(1));
    let path = options.path.clone();
    let incoming = Incoming {
        turns: of_turns,
        pieces: of_pieces,
        late: VecDeque::new(),
        was_late: true,
        group_limit: options.commit_group.max(1),
    };
    let failed = |error| Error::from_io(&options.path, error);
    let runtime = tokio::runtime::Builder::new_current_thread().build().map_err(failed)?;
    let run = move || runtime.block_on(run(connection, lock, path, incoming, trouble));
    std::thread::Builder::new().name("store-writer".into()).spawn(run).map_err(failed)?;
    Ok(Orders { turns, pieces })
}

async fn run(
    mut connection: SqliteConnection,
    lock: Option<Lock>,
    path: PathBuf,
    mut incoming: Incoming,
    trouble: WriteTrouble,
) {
    let mut stop = None;
    while stop.is_none() {
        let Some((group, other)) = incoming.next().await else { break };
        if !group.is_empty() {
            commit_group(&mut connection, &path, group, &trouble).await;
        }
        match other {
            Some(Order::Maintenance(work)) => maintain(&mut connection, &path, work).await,
            Some(Order::Stop(answer)) => stop = Some(answer),
            Some(Order::Write(_)) | None => {}
        }
    }
    while let Some(order) = incoming.late.pop_front().or_else(|| incoming.pieces.try_recv().ok()) {
        match order {
            Order::Write(work) => commit_group(&mut connection, &path, vec![work], &trouble).await,
            Order::Maintenance(work) => maintain(&mut connection, &path, work).await,
            Order::Stop(_) => {}
        }
    }
    let closed = connection.close().await.map_err(|error| Error::from_sqlx(&path, error));
    drop(lock); // only now may another service open the store
    if let Some(answer) = stop {
        let _ = answer.send(closed);
    }
}

/// Orders of both queues as the writer takes them: a late one behind each group of turns, so that both come to an end.
struct Incoming {
    turns: mpsc::Receiver<Order>,
    pieces: mpsc::Receiver<Order>,
    // Pieces and large writes, with what their sessions wrote behind them.
    late: VecDeque<Order>,
    was_late: bool,
    group_limit: usize,
}

impl Incoming {
    /// Waits for a group of writes, and for an order that is no write. `None` at the end of both queues.
    async fn next(&mut self) -> Option<(Vec<Work>, Option<Order>)> {
        loop {
            if self.late.len() < self.group_limit {
                self.late.extend(self.pieces.try_recv().ok());
            }
            let late = if self.was_late { None } else { self.late.pop_front() };
            self.was_late = late.is_some();
            match late {
                Some(Order::Write(work)) => return Some((vec![work], None)),
                Some(order) => return Some((Vec::new(), Some(order))),
                None => {}
            }
            let (mut group, mut other) = self.group(None);
            if group.is_empty() && other.is_none() && self.late.is_empty() {
                tokio::select! {
                    biased;
                    Some(order) = self.turns.recv() => (group, other) = self.group(Some(order)),
                    Some(order) = self.pieces.recv() => self.late.push_back(order),
                    else => return None,
                }
            }
            if !group.is_empty() || other.is_some() {
                return Some((group, other));
            }
        }
    }

    fn group(&mut self, first: Option<Order>) -> (Vec<Work>, Option<Order>) {
        let (mut group, mut next) = (Vec::new(), first);
        loop {
            let is_full = group.len() >= self.group_limit || self.late.len() >= self.group_limit;
            if next.is_none() && !is_full {
                next = self.turns.try_recv().ok();
            }
            match next.take() {
                Some(Order::Write(work)) if self.is_late(&work) => self.late.push_back(Order::Write(work)),
                Some(Order::Write(work)) => group.push(work),
                other => return (group, other),
            }
        }
    }

    fn is_late(&self, work: &Work) -> bool {
        let WriteQueue::Session { key, bytes } = work.queue else { return false };
        let is_of_it = |order: &Order| matches!(order, Order::Write(late) if late.queue.session() == Some(key));
        bytes > LARGE_BYTES || self.late.iter().any(is_of_it)
    }
}

async fn maintain(connection: &mut SqliteConnection, path: &Path, work: Work) {
    let begun = Instant::now();
    let result = (work.run)(connection).await;
    tell_slow(work.name, begun);
    let _ = work.answer.send(result.map_err(|failure| failure.at(path)));
}

fn tell_slow(what: &str, begun: Instant) {
    let ms = begun.elapsed().as_millis();
    if begun.elapsed() >= SLOW {
        tracing::debug!(what, ms, "other writes waited for a slow one");
    }
}

async fn commit_group(connection: &mut SqliteConnection, path: &Path, group: Vec<Work>, trouble: &WriteTrouble) {
    let (answers, runs): (Vec<_>, Vec<_>) = group.into_iter().map(|work| (work.answer, (work.name, work.run))).unzip();
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
    runs: Vec<(&'static str, Run)>,
    results: &mut Vec<Result<Value, Error>>,
) -> Result<()> {
    sqlx::query("BEGIN IMMEDIATE").execute(&mut *connection).await?;
    for (name, run) in runs {
        let begun = Instant::now();
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
        tell_slow(name, begun);
    }
    let begun = Instant::now();
    sqlx::query("COMMIT").execute(connection).await?;
    tell_slow("commit", begun);
    Ok(())
}
