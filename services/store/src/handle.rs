//! The handle of a store: open, read, write, close.

use crate::Error;
use crate::error::Result;
use crate::journal::Journal;
use crate::memory_changes::MemoryChanges;
use crate::open::{OpenedBy, StoreOptions, open};
use crate::quota::Quota;
use crate::read_turns::ReadTurns;
use crate::records::SessionRef;
use crate::writer::{Order, Orders, StoreAnswer, Work, WriteQueue, WriteTrouble, start_writer};
use parking_lot::Mutex;
use sqlx::Connection;
use sqlx::query::Query;
use sqlx::sqlite::{Sqlite, SqliteArguments, SqliteConnection, SqlitePool};
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};

#[derive(Clone)]
pub struct Store {
    path: Arc<Path>,
    orders: Orders,
    /// Queue of writes whose size does not choose one.
    queue: WriteQueue,
    readers: SqlitePool,
    /// Reader for keys, so that a check waits for no other read.
    key_reader: SqlitePool,
    /// Reader whose thread comes after all others.
    background: SqlitePool,
    turns: Arc<ReadTurns>,
    read_limit: Option<Duration>,
    is_closing: Arc<AtomicBool>,
    pub(crate) quota: Arc<Quota>,
    pub(crate) memory_changes: Arc<MemoryChanges>,
    /// Journal of replies; `None` for a command, which has none.
    journal: Option<Arc<Journal>>,
    pub(crate) busy_timeout: Duration,
    /// True while the write-ahead log may hold deleted words.
    pub(crate) log_is_owed: Arc<AtomicBool>,
    // Deleted sessions whose rows a task removes.
    pub(crate) removing: Arc<Mutex<HashSet<i64>>>,
    trouble: WriteTrouble,
}

/// Steps of SQLite's machine between two checks for the end of a statement: about a tenth of a millisecond.
const STEPS_BETWEEN_LOOKS: i32 = 10_000;

impl Store {
    /// Opens the file, brings its schema up to date, and closes what a crash left open. `now_ms` is the time of those
    /// closings.
    pub async fn open(options: &StoreOptions, now_ms: i64) -> Result<Store, Error> {
        let mut opened = open(options).await?;
        let alone = opened.lock.is_some();
        // A service keeps the lock until its writer has stopped, a command only while it repairs.
        let (kept, repairing) = match options.opened_by {
            OpenedBy::Service => (opened.lock.take(), None),
            OpenedBy::Command => (None, opened.lock.take()),
        };
        let trouble = WriteTrouble::default();
        let orders = start_writer(opened.connection, kept, options, trouble.clone())?;
        let read_limit = Some(Duration::from_millis(options.read_limit_ms)).filter(|limit| !limit.is_zero());
        // A command that is alone with the store also closes what a crash left.
        let (journal, said) = match alone {
            true => Journal::open(&options.path).map(|(journal, said)| (Some(Arc::new(journal)), said))?,
            false => (None, Vec::new()),
        };
        let store = Store {
            path: options.path.as_path().into(),
            orders,
            queue: WriteQueue::Turns,
            readers: opened.readers,
            key_reader: opened.key_reader,
            background: opened.background,
            turns: ReadTurns::new(options.readers as usize),
            read_limit,
            busy_timeout: Duration::from_millis(options.busy_timeout_ms),
            is_closing: Arc::default(),
            quota: Arc::new(Quota::new(options)),
            memory_changes: Arc::default(),
            journal: journal.clone().filter(|_| options.opened_by == OpenedBy::Service),
            log_is_owed: Arc::default(),
            removing: Arc::default(),
            trouble,
        };
        if alone {
            let closed = store.close_what_a_crash_left(said, now_ms).await?;
            if closed > 0 {
                tracing::warn!(replies = closed, "replies that a crash cut off are marked interrupted");
            }
            store.undo_half_requests(now_ms).await?;
            store.finish_removals().await?;
        }
        if let Some(journal) = &journal {
            journal.clear();
            let pause = Duration::from_millis(options.sync_ms.max(1));
            tokio::spawn(Journal::sync_every(Arc::downgrade(journal), pause));
        }
        drop(repairing);
        Ok(store)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the store for work that no client waits for: it reads after all others, takes no reader from them, and writes between
    /// groups of turns.
    pub fn in_background(&self) -> Store {
        let (readers, turns) = (self.background.clone(), ReadTurns::new(1));
        Store { readers, turns, queue: WriteQueue::Pieces, ..self.clone() }
    }

    /// Returns the reason why the disk refused the last write; `None` if it succeeded.
    pub fn trouble(&self) -> Option<String> {
        self.trouble.lock().clone()
    }

    /// Ends reads in progress, waits for the writes in the queue, then closes the file. Later calls get
    /// `Error::Closed`.
    pub async fn close(&self) -> Result<(), Error> {
        self.is_closing.store(true, Ordering::Relaxed);
        if let Some(journal) = self.journal() {
            journal.close();
        }
        self.readers.close().await;
        self.key_reader.close().await;
        self.background.close().await;
        // A service beside a command knows nothing of what the command owes.
        if let Err(error) = self.settle_the_log().await {
            tracing::warn!(%error, "deleted words may still be in the write-ahead log");
        }
        let (answer, stopped) = oneshot::channel();
        self.orders.to(WriteQueue::Turns).send(Order::Stop(answer)).await.map_err(|_| Error::Closed)?;
        stopped.await.unwrap_or(Err(Error::Closed))
    }

    /// Runs work and returns when it is committed and flushed; after an error the store has none of it. A caller that
    /// stops waiting does not stop the work.
    pub(crate) async fn write<T: Send + 'static>(
        &self,
        work: impl AsyncFnOnce(&mut SqliteConnection) -> Result<T> + Send + 'static,
    ) -> Result<T, Error> {
        self.write_in(self.queue, work).await
    }

    /// Runs work like `write`, in the queue that fits its size.
    pub(crate) async fn write_in<T: Send + 'static>(
        &self,
        queue: WriteQueue,
        work: impl AsyncFnOnce(&mut SqliteConnection) -> Result<T> + Send + 'static,
    ) -> Result<T, Error> {
        let (work, answer) = Work::new(queue, work);
        self.orders.to(queue).send(Order::Write(work)).await.map_err(|_| Error::Closed)?;
        answer.await
    }

    pub(crate) async fn execute(&self, query: Query<'static, Sqlite, SqliteArguments>) -> Result<u64, Error> {
        self.write(async move |connection| Ok(query.execute(connection).await?.rows_affected())).await
    }

    pub(crate) async fn execute_in(
        &self,
        session: &SessionRef,
        now_ms: i64,
        query: Query<'static, Sqlite, SqliteArguments>,
    ) -> Result<u64, Error> {
        let work = async move |connection: &mut SqliteConnection, _: &SessionRef| {
            Ok(query.execute(connection).await?.rows_affected())
        };
        self.write_session(session, now_ms, work).await
    }

    /// Runs work in an existing session, and sets its time of use.
    pub(crate) async fn write_session<T: Send + 'static>(
        &self,
        session: &SessionRef,
        now_ms: i64,
        work: impl AsyncFnOnce(&mut SqliteConnection, &SessionRef) -> Result<T> + Send + 'static,
    ) -> Result<T, Error> {
        self.write_session_bytes(session, 0, now_ms, work).await
    }

    /// Runs work like `write_session`; a large one lets the turns of other sessions pass.
    pub(crate) async fn write_session_bytes<T: Send + 'static>(
        &self,
        session: &SessionRef,
        bytes: usize,
        now_ms: i64,
        work: impl AsyncFnOnce(&mut SqliteConnection, &SessionRef) -> Result<T> + Send + 'static,
    ) -> Result<T, Error> {
        let session = session.clone();
        let queue = match self.queue {
            WriteQueue::Pieces => WriteQueue::Pieces,
            _ => session.queue(bytes),
        };
        self.write_in(queue, async move |connection| {
            touch(connection, &session, now_ms).await?;
            work(connection, &session).await
        })
        .await
    }

    /// Queues work like `write`, but fails with `Error::Busy` if the queue is full. The caller may ignore the answer.
    pub(crate) fn write_later<T: Send + 'static>(
        &self,
        queue: WriteQueue,
        work: impl AsyncFnOnce(&mut SqliteConnection) -> Result<T> + Send + 'static,
    ) -> Result<StoreAnswer<T>, Error> {
        let (work, answer) = Work::new(queue, work);
        self.orders.to(queue).try_send(Order::Write(work)).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => Error::Busy { path: self.path.to_path_buf() },
            mpsc::error::TrySendError::Closed(_) => Error::Closed,
        })?;
        Ok(answer)
    }

    /// Runs work that SQLite refuses inside a transaction, such as checkpoints and vacuum, behind what turns wait for.
    pub(crate) async fn maintenance<T: Send + 'static>(
        &self,
        work: impl AsyncFnOnce(&mut SqliteConnection) -> Result<T> + Send + 'static,
    ) -> Result<T, Error> {
        let (work, answer) = Work::new(WriteQueue::Pieces, work);
        self.orders.to(WriteQueue::Pieces).send(Order::Maintenance(work)).await.map_err(|_| Error::Closed)?;
        answer.await
    }

    pub(crate) fn journal(&self) -> Option<&Journal> {
        self.journal.as_deref()
    }

    pub(crate) async fn read<T>(&self, ask: impl AsyncFnOnce(&mut SqliteConnection) -> Result<T>) -> Result<T, Error> {
        self.read_with(&self.readers, self.read_limit, ask).await
    }

    /// Reads without a time limit, for an operator's questions about the whole store.
    pub(crate) async fn read_at_length<T>(
        &self,
        ask: impl AsyncFnOnce(&mut SqliteConnection) -> Result<T>,
    ) -> Result<T, Error> {
        self.read_with(&self.readers, None, ask).await
    }

    pub(crate) async fn read_keys<T>(
        &self,
        ask: impl AsyncFnOnce(&mut SqliteConnection) -> Result<T>,
    ) -> Result<T, Error> {
        self.read_with(&self.key_reader, self.read_limit, ask).await
    }

    // Reads for a search of a user, behind the searches of this user that came before.
    pub(crate) async fn read_search<T>(
        &self,
        user: &str,
        ask: impl AsyncFnOnce(&mut SqliteConnection) -> Result<T>,
    ) -> Result<T, Error> {
        let _turn = self.turns.search(user).await?;
        self.read(ask).await
    }

    // Reads what an index finds of a user's facts and messages. It waits for no search.
    pub(crate) async fn look_up<T>(
        &self,
        user: &str,
        ask: impl AsyncFnOnce(&mut SqliteConnection) -> Result<T>,
    ) -> Result<T, Error> {
        let _turn = self.turns.look_up(user).await?;
        self.read(ask).await
    }

    /// Reads with a time limit. The statement also ends when its caller stops waiting, and when the store closes.
    async fn read_with<T>(
        &self,
        readers: &SqlitePool,
        limit: Option<Duration>,
        ask: impl AsyncFnOnce(&mut SqliteConnection) -> Result<T>,
    ) -> Result<T, Error> {
        let answer = async {
            let mut reader = readers.acquire().await?;
            let caller = Arc::new(());
            let (waiting, is_closing) = (Arc::downgrade(&caller), self.is_closing.clone());
            let until = limit.map(|limit| Instant::now() + limit);
            reader.lock_handle().await?.set_progress_handler(STEPS_BETWEEN_LOOKS, move || {
                let is_in_time = until.is_none_or(|until| Instant::now() < until);
                is_in_time && waiting.strong_count() > 0 && !is_closing.load(Ordering::Relaxed)
            });
            let answer = ask(&mut reader).await;
            drop(caller);
            answer
        };
        answer.await.map_err(|failure| failure.at(&self.path))
    }

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

/// Begins every write to a session: checks that it exists and sets its time of use.
pub async fn touch(connection: &mut SqliteConnection, session: &SessionRef, now_ms: i64) -> Result<()> {
    let query = sqlx::query(
        "UPDATE sessions SET updated_at_ms = max(updated_at_ms, ?), unused_ms = 0 WHERE key = ? AND deleted_at_ms IS NULL",
    );
    let touched = query.bind(now_ms).bind(session.key).execute(connection).await?;
    if touched.rows_affected() == 1 { Ok(()) } else { Err(session.missing().into()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::{sleep, timeout};

    const SOON: Duration = Duration::from_secs(5);

    async fn endless(reader: &mut SqliteConnection) -> Result<i64> {
        let query = "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n) SELECT count(*) FROM n";
        Ok(sqlx::query_scalar(query).fetch_one(reader).await?)
    }

    async fn store(read_limit_ms: u64) -> (tempfile::TempDir, Store) {
        let folder = tempfile::tempdir().unwrap();
        let options = StoreOptions {
            path: folder.path().join("store.sqlite3"),
            opened_by: OpenedBy::Service,
            create: true,
            busy_timeout_ms: 60_000,
            readers: 1,
            read_limit_ms,
            user_bytes: 0,
            user_bytes_per_minute: 0,
            sync_ms: 1000,
            write_queue: 16,
            commit_group: 16,
            wal_limit_bytes: 1 << 20,
            max_pages: None,
            check_at_start: false,
        };
        let store = Store::open(&options, 0).await.unwrap();
        (folder, store)
    }

    #[tokio::test]
    async fn a_statement_ends_when_its_time_is_over() {
        let (_folder, store) = store(50).await;
        assert_eq!(timeout(SOON, store.read(endless)).await.unwrap(), Err(Error::TookTooLong));
        assert_eq!(timeout(SOON, store.users()).await.unwrap(), Ok(vec![]));
    }

    #[tokio::test]
    async fn a_statement_ends_when_its_caller_no_longer_waits() {
        let (_folder, store) = store(0).await;
        assert!(timeout(Duration::from_millis(50), store.read(endless)).await.is_err());
        assert_eq!(timeout(SOON, store.users()).await.unwrap(), Ok(vec![]));
    }

    #[tokio::test]
    async fn writes_go_on_while_deleted_words_wait_for_a_long_read() {
        let (_folder, store) = store(0).await;
        store.put_user("ada", "Ada", 1).await.unwrap();
        let reading = tokio::spawn({
            let store = store.clone();
            let moment = async |reader: &mut SqliteConnection| {
                let _: i64 = sqlx::query_scalar("SELECT count(*) FROM users").fetch_one(&mut *reader).await?;
                endless(reader).await
            };
            async move { store.read_moment(moment).await }
        });
        while store.readers.num_idle() > 0 || store.readers.size() == 0 {
            sleep(Duration::from_millis(1)).await;
        }
        sleep(Duration::from_millis(50)).await;
        store.put_user("ben", "Ben", 1).await.unwrap();
        let mut forgetting = Box::pin(store.forget_the_log());
        assert!(timeout(Duration::from_millis(100), &mut forgetting).await.is_err(), "it waits for the reader");
        timeout(SOON, store.put_user("cleo", "Cleo", 1)).await.unwrap().unwrap();
        reading.abort();
        timeout(SOON, forgetting).await.unwrap().unwrap();
        assert_eq!(std::fs::metadata(store.path().with_extension("sqlite3-wal")).unwrap().len(), 0);
    }

    /// Queues writes while the writer is busy with another, and returns the order in which it then takes them.
    async fn order_of(writes: &[(WriteQueue, char)]) -> String {
        let (_folder, store) = store(0).await;
        let ((open, gate), (begin, begun)) = (oneshot::channel(), oneshot::channel());
        let first = tokio::spawn({
            let store = store.clone();
            let wait = async move |_: &mut SqliteConnection| {
                let _ = (begin.send(()), gate.await);
                Ok(())
            };
            async move { store.write_in(WriteQueue::Pieces, wait).await }
        });
        timeout(SOON, begun).await.unwrap().unwrap();
        let order = Arc::new(parking_lot::Mutex::new(String::new()));
        let mut waiting = Vec::new();
        for &(queue, sign) in writes {
            let (store, order) = (store.clone(), order.clone());
            let note = async move |_: &mut SqliteConnection| {
                order.lock().push(sign);
                Ok(())
            };
            waiting.push(tokio::spawn(async move { store.write_in(queue, note).await }));
        }
        let room = store.orders.to(WriteQueue::Turns).max_capacity();
        let pieces = writes.iter().filter(|(queue, _)| *queue == WriteQueue::Pieces).count();
        let turns = (writes.len() - pieces).min(room);
        let has_room = |queue, taken| store.orders.to(queue).capacity() > room - taken;
        while has_room(WriteQueue::Turns, turns) || has_room(WriteQueue::Pieces, pieces) {
            sleep(Duration::from_millis(1)).await;
        }
        open.send(()).unwrap();
        timeout(SOON, first).await.unwrap().unwrap().unwrap();
        for write in waiting {
            timeout(SOON, write).await.unwrap().unwrap().unwrap();
        }
        order.lock().clone()
    }

    #[tokio::test]
    async fn turns_wait_for_one_piece_of_a_larger_write_and_pieces_for_one_group_of_turns() {
        let order = order_of(&[vec![(WriteQueue::Pieces, 'p'); 4], vec![(WriteQueue::Turns, 't'); 20]].concat()).await;
        assert_eq!(order.chars().take(17).collect::<String>(), format!("{}p", "t".repeat(16)));
        assert_eq!((order.matches('t').count(), order.matches('p').count()), (20, 4));
    }

    #[tokio::test]
    async fn a_large_write_lets_other_sessions_pass_and_its_own_session_keeps_its_order() {
        let of = |key, bytes| WriteQueue::Session { key, bytes };
        let (large, small) = (of(1, 1 << 20), of(1, 10)); // not a window: bytes of an item
        let writes = [(of(2, 10), 'a'), (large, 'L'), (small, 's'), (WriteQueue::Turns, 'b'), (large, 'M')];
        let more = [(WriteQueue::Pieces, 'p'), (small, 't'), (of(2, 10), 'c'), (of(3, 1 << 20), 'N')];
        assert_eq!(order_of(&[&writes[..], &more[..]].concat()).await, "abcpLsMtN");
    }

    #[tokio::test]
    async fn keys_are_checked_and_the_store_is_closed_whatever_the_readers_do() {
        let (_folder, store) = store(0).await;
        store.put_user("ada", "Ada", 1).await.unwrap();
        let (_, key) = store.create_key("ada", "", &[], 1).await.unwrap();
        let busy = tokio::spawn({
            let store = store.clone();
            async move { store.read(endless).await }
        });
        while store.readers.num_idle() > 0 || store.readers.size() == 0 {
            sleep(Duration::from_millis(1)).await;
        }
        let identity = timeout(SOON, store.identify(&key, 2)).await.unwrap().unwrap();
        assert_eq!(identity.map(|identity| identity.user), Some("ada".into()));
        timeout(SOON, store.close()).await.unwrap().unwrap();
        assert!(busy.await.unwrap().is_err());
    }
}
