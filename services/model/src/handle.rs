//! A handle of a model: cheap to clone, for any task.

use crate::answer::Answer;
use crate::measure::Measured;
use crate::preparation::PreparationMemory;
use crate::request::ModelRequest;
use crate::resume::{ResumedReply, not_kept};
use crate::status::ModelStatus;
use futures_util::future::{BoxFuture, FutureExt, pending, ready};
use session::{Failure, Prompt};
use settings::Preset;
use std::ops::Deref;
use std::sync::Arc;

/// What answers behind a [`Model`]: the engine in this process, an upstream, or what a test puts there.
pub trait Answerer: Send + Sync {
    /// Never waits. What is wrong with a request comes as the answer's only delta.
    fn ask(&self, request: ModelRequest) -> Answer;

    /// A reply goes on that was stopped. What keeps none fails, but for a reply that was done.
    fn resume(&self, resumed: ResumedReply) -> Answer {
        let (going_on, answer) = resumed.begin();
        if let Some((writer, _)) = going_on {
            writer.fail(not_kept());
        }
        answer
    }

    /// Several replies to one prompt, which is computed once where the model can, each with a seed of its own.
    fn ask_arms(&self, request: ModelRequest, arms: usize) -> Vec<Answer> {
        (0..arms).map(|arm| self.ask(request.arm(arm))).collect()
    }

    /// How many tokens the prompt of a reply has (template, tools and the opening of the reply included), and how much of it
    /// each message takes.
    fn measure<'a>(&'a self, prompt: &'a Prompt, preset: &'a Preset) -> BoxFuture<'a, Result<Measured, Failure>>;

    fn status(&self) -> ModelStatus;

    /// A user comes, and will speak: a model that sleeps gets ready meanwhile. Never waits.
    fn wake(&self) {}

    /// Returns when this process cannot use its GPU any more, though a new process may.
    fn device_lost(&self) -> BoxFuture<'_, ()> {
        pending().boxed()
    }

    /// Ends every open answer and takes no more requests. Returns when the engine's thread has ended.
    fn shutdown(&self) -> BoxFuture<'_, ()>;

    /// A conversation was deleted: what was computed of it, in memory and on disk, is gone when this returns. An upstream
    /// is not told.
    fn forget(&self, _past_owner: u64) -> BoxFuture<'_, Result<(), Failure>> {
        ready(Ok(())).boxed()
    }

    /// The engine's thread meets a bug.
    #[cfg(test)]
    fn panic(&self) {}
}

#[derive(Clone)]
pub struct Model {
    answerer: Arc<dyn Answerer>,
    preparation: PreparationMemory,
}

impl Model {
    pub fn new(answerer: impl Answerer + 'static, preparation: PreparationMemory) -> Model {
        Model { answerer: Arc::new(answerer), preparation }
    }

    /// What requests may take while they are prepared.
    pub fn preparation(&self) -> &PreparationMemory {
        &self.preparation
    }
}

impl Deref for Model {
    type Target = dyn Answerer;

    fn deref(&self) -> &Self::Target {
        &*self.answerer
    }
}
