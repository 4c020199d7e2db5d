//! One fetch at a time, in a thread of its own: its hashes and its disk hold up no reply, and it goes to its end after its
//! readers left.

use crate::Listed;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::watch;

#[derive(Clone, Default)]
pub struct SharedFetch {
    running: Arc<Mutex<Option<Running>>>,
}

#[derive(Clone)]
struct Running {
    model: String,
    stage: watch::Receiver<FetchStage>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum FetchStage {
    Begins,
    Fetches { digest: String, total: u64, completed: u64 },
    Done(Result<String, String>),
}

impl Running {
    fn runs(&self) -> bool {
        // A reader of the end may ask for the next model at once: the thread may live a moment longer.
        self.stage.has_changed().is_ok() && !matches!(*self.stage.borrow(), FetchStage::Done(_))
    }
}

impl SharedFetch {
    /// Joins the fetch of this model, or begins it. `Err`: the other model that is being fetched.
    pub fn begin<F>(
        &self,
        model: &str,
        fetch: impl FnOnce(watch::Sender<FetchStage>) -> F + Send + 'static,
    ) -> Result<watch::Receiver<FetchStage>, String>
    where
        F: Future<Output = Result<String, String>>,
    {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = running.as_ref().filter(|running| running.runs()) {
            return if running.model == model { Ok(running.stage.clone()) } else { Err(running.model.clone()) };
        }
        let (sender, stage) = watch::channel(FetchStage::Begins);
        *running = Some(Running { model: model.to_owned(), stage: stage.clone() });
        std::thread::spawn(move || {
            let done = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime.block_on(fetch(sender.clone())),
                Err(error) => Err(error.to_string()),
            };
            sender.send_replace(FetchStage::Done(done));
        });
        Ok(stage)
    }
}

impl FetchStage {
    pub fn of(file: &Listed, completed: u64) -> FetchStage {
        let digest = format!("sha256:{}", file.sha256.as_deref().unwrap_or_default());
        FetchStage::Fetches { digest, total: file.bytes, completed }
    }
}

pub async fn ended(mut stage: watch::Receiver<FetchStage>) -> Result<String, String> {
    let done = stage.wait_for(|stage| matches!(stage, FetchStage::Done(_))).await;
    match done.as_deref() {
        Ok(FetchStage::Done(done)) => done.clone(),
        _ => Err("it ended without a word".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_model_is_fetched_at_a_time_and_read_by_several() {
        let (fetches, (go, wait)) = (SharedFetch::default(), tokio::sync::oneshot::channel::<()>());
        let first = fetches.begin("a", |_| async { wait.await.map(|()| "/a".to_owned()).map_err(|e| e.to_string()) });
        let second = fetches.begin("a", |_| async { panic!("it is being fetched") });
        assert_eq!(fetches.begin("b", |_| async { Ok(String::new()) }).unwrap_err(), "a");
        go.send(()).unwrap();
        assert_eq!((ended(first.unwrap()).await, ended(second.unwrap()).await), (Ok("/a".into()), Ok("/a".into())));
        let third = fetches.begin("b", |_| async { Err("no such model".to_owned()) }).unwrap();
        assert_eq!(ended(third).await, Err("no such model".to_owned()));
    }
}
