//! Work of a session on a task of its own: the session's words and barge-ins go on, whatever the work computes.

use tokio::task::JoinHandle;
use tracing::Instrument;

struct EndsOnDrop<T>(JoinHandle<T>);

impl<T> Drop for EndsOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

// Begins the work. It ends early if the future is dropped. `None`: it failed.
pub fn beside<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> impl Future<Output = Option<T>> {
    let mut task = EndsOnDrop(tokio::spawn(work.in_current_span()));
    async move { (&mut task.0).await.ok() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};
    use tokio::time::timeout;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn who_waits_for_work_that_computes_can_go_on() {
        let begin = Instant::now();
        let computes = beside(async { std::thread::sleep(Duration::from_secs(2)) });
        assert!(timeout(Duration::from_millis(20), computes).await.is_err());
        assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
    }

    #[tokio::test]
    async fn work_that_no_one_waits_for_ends() {
        let (alive, ended) = tokio::sync::oneshot::channel::<()>();
        drop(beside(async move {
            std::future::pending::<()>().await;
            drop(alive);
        }));
        assert!(ended.await.is_err());
        assert_eq!(beside(async { 7 }).await, Some(7));
    }
}
