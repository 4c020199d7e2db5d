//! Handle of a model: cheap to clone, for any task.

use crate::answer::Answer;
use crate::measure::Measured;
use crate::preparation::PreparationMemory;
use crate::request::ModelRequest;
use crate::resume::{ResumedReply, not_kept};
use crate::status::ModelStatus;
use futures_util::future::{BoxFuture, FutureExt, pending, ready};
use session::{Failure, PastStays, Prompt};
use settings::Preset;
use std::ops::Deref;
use std::sync::Arc;

/// Implementation of a [`Model`]: the engine in this process, an upstream, or a test's.
pub trait Answerer: Send + Sync {
    /// Starts an answer and never waits. A mistake of the request is the answer's only delta.
    fn ask(&self, request: ModelRequest) -> Answer;

    /// Resumes a stopped reply. An answerer that keeps none fails, unless the reply was complete.
    fn resume(&self, resumed: ResumedReply) -> Answer {
        let (going_on, answer) = resumed.begin();
        if let Some((writer, _)) = going_on {
            writer.fail(not_kept());
        }
        answer
    }

    /// Starts several replies to one prompt, each with a seed of its own. A local engine computes the prompt once.
    fn ask_choices(&self, request: ModelRequest, choices: usize) -> Vec<Answer> {
        (0..choices).map(|choice| self.ask(request.choice(choice))).collect()
    }

    /// Counts the tokens of a reply's prompt (template, tools and the opening of the reply included), and those of each
    /// message.
    fn measure<'a>(&'a self, prompt: &'a Prompt, preset: &'a Preset) -> BoxFuture<'a, Result<Measured, Failure>>;

    /// Returns the failure of a prompt that is certainly longer than the window, as its length in bytes tells. Never waits.
    fn too_long(&self, _prompt: &Prompt, _preset: &Preset) -> Option<Failure> {
        None
    }

    fn status(&self) -> ModelStatus;

    /// Wakes a sleeping model before a user speaks. Never waits.
    fn wake(&self) {}

    /// Returns when this process cannot use its GPU any more, though a new process may.
    fn device_lost(&self) -> BoxFuture<'_, ()> {
        pending().boxed()
    }

    /// Ends every open answer and takes no more requests. Returns when the engine's thread has ended.
    fn shutdown(&self) -> BoxFuture<'_, ()>;

    /// Drops the computed data of deleted words, in memory and on disk, before it returns. What stays in memory never
    /// goes to disk. An upstream gets no such request.
    fn forget(&self, _past_owner: u64, _stays: PastStays) -> BoxFuture<'_, Result<(), Failure>> {
        ready(Ok(())).boxed()
    }

    /// Makes the engine's thread panic, for tests.
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
