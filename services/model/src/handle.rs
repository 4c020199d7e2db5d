//! A handle of a model: cheap to clone, for any task.

use crate::answer::Answer;
use crate::counting::Counting;
use crate::local::Local;
use crate::measure::Measured;
use crate::preparation::PreparationMemory;
use crate::request::ModelRequest;
use crate::scripted::{Script, Scripted};
use crate::status::ModelStatus;
use crate::upstream::Upstream;
use session::{Failure, Prompt};
use settings::Preset;
use std::sync::Arc;
use std::time::Duration;

#[derive(Clone)]
pub struct Model {
    pub(crate) kind: Arc<Kind>,
    pub(crate) preparation: PreparationMemory,
}

pub(crate) enum Kind {
    Engine(Local),
    Upstream(Upstream),
    Scripted(Scripted),
    Counting(Counting),
}

impl Model {
    /// A test answers: see [`crate::scripted`].
    pub fn scripted() -> (Model, Script) {
        let (scripted, script) = Scripted::new();
        let preparation = PreparationMemory::new(1 << 30, Duration::from_secs(5));
        (Model { kind: Arc::new(Kind::Scripted(scripted)), preparation }, script)
    }

    /// What requests may take while they are prepared.
    pub fn preparation(&self) -> &PreparationMemory {
        &self.preparation
    }

    /// Never waits. What is wrong with a request comes as the answer's only delta.
    pub fn ask(&self, request: ModelRequest) -> Answer {
        match &*self.kind {
            Kind::Engine(local) => local.ask(request),
            Kind::Upstream(upstream) => upstream.ask(request),
            Kind::Scripted(scripted) => scripted.ask(request),
            Kind::Counting(_) => Counting::refuse(),
        }
    }

    /// How many tokens the prompt of a reply has (template, tools and the opening of the reply included), and how much of it
    /// each message takes.
    pub async fn measure(&self, prompt: &Prompt, preset: &Arc<Preset>) -> Result<Measured, Failure> {
        match &*self.kind {
            Kind::Engine(local) => local.measure(prompt, preset).await,
            Kind::Upstream(upstream) => upstream.measure(prompt, preset).await,
            Kind::Scripted(_) => Ok(Scripted::measure(prompt)),
            Kind::Counting(counting) => counting.measure(prompt, preset).await,
        }
    }

    pub fn status(&self) -> ModelStatus {
        match &*self.kind {
            Kind::Engine(local) => local.status(),
            Kind::Upstream(upstream) => upstream.status(),
            Kind::Scripted(scripted) => scripted.status(),
            Kind::Counting(_) => ModelStatus::default(),
        }
    }

    /// Returns when this process cannot use its GPU any more, though a new process may.
    pub async fn device_lost(&self) {
        match &*self.kind {
            Kind::Engine(local) => local.device_lost().await,
            Kind::Upstream(_) | Kind::Scripted(_) | Kind::Counting(_) => std::future::pending().await,
        }
    }

    /// Ends every open answer and takes no more requests. Returns when the engine's thread has ended.
    pub async fn shutdown(&self) {
        match &*self.kind {
            Kind::Engine(local) => local.shutdown().await,
            Kind::Upstream(upstream) => upstream.shutdown(),
            Kind::Scripted(scripted) => scripted.shutdown(),
            Kind::Counting(_) => {}
        }
    }

    /// A conversation was deleted: what was computed of it, in memory and on disk, is gone when this returns. An upstream
    /// is not told.
    pub async fn forget(&self, past_owner: u64) -> Result<(), Failure> {
        match &*self.kind {
            Kind::Engine(local) => local.forget(past_owner).await,
            Kind::Upstream(_) | Kind::Counting(_) => Ok(()),
            Kind::Scripted(scripted) => {
                scripted.forget(past_owner);
                Ok(())
            }
        }
    }

    /// The engine's thread meets a bug.
    #[cfg(test)]
    pub(crate) fn panic(&self) {
        if let Kind::Engine(local) = &*self.kind {
            local.panic();
        }
    }
}
