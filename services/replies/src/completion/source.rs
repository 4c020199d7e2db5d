//! Source of a completion's events: the model alone, or a durable session whose client the completion is.

use super::retries::ReplyReader;
use model::Answer;
use session::machine::OneShot;
use session::{Event, Failure};
use std::collections::VecDeque;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

pub enum Source {
    Model {
        answer: Answer,
        one_shot: Box<OneShot>,
        ready: VecDeque<Event>,
    },
    /// Events of a session, for all attempts at one request.
    Shared(ReplyReader),
}

impl Source {
    pub fn of_model(answer: Answer, one_shot: OneShot) -> Source {
        Source::Model { answer, one_shot: Box::new(one_shot), ready: VecDeque::new() }
    }

    pub fn canceller(&self) -> CancellationToken {
        match self {
            Source::Model { answer, .. } => answer.canceller(),
            Source::Shared(reader) => reader.canceller(),
        }
    }

    pub async fn next(&mut self) -> Option<Result<Arc<Event>, Failure>> {
        match self {
            Source::Model { answer, one_shot, ready } => {
                while ready.is_empty() {
                    let mut events = Vec::new();
                    one_shot.delta(answer.next().await?, &mut events);
                    ready.extend(events);
                }
                ready.pop_front().map(|event| Ok(Arc::new(event)))
            }
            Source::Shared(reader) => reader.next().await,
        }
    }
}
