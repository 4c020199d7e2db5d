//! Where the events of a completion come from: the model alone, or a durable session whose client the completion is.
//!
//! So what is said over HTTP to a session is kept, seen by the session's websockets, and never two replies at once.

use model::Answer;
use runtime::{Connected, End, ToWrite, Written};
use session::machine::OneShot;
use session::{Event, Failure, FailureCode, Input, JsonText, Refusal};
use std::collections::VecDeque;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

pub enum Source {
    Model { answer: Answer, one_shot: Box<OneShot>, ready: VecDeque<Event> },
    Session(Box<Listening>),
}

/// Reads what a session tells and passes on what belongs to one response.
pub struct Listening {
    /// None: left to `Drop`.
    session: Option<(Connected, Written)>,
    /// By which our inputs are known among those of other clients.
    mark: String,
    /// By which our response is.
    metadata: JsonText,
    response_id: Option<String>,
    /// An event that was waited for and not taken.
    ready: Option<Arc<Event>>,
    is_over: bool,
    /// The client wants no more of it.
    cancelled: CancellationToken,
    cancel_is_told: bool,
    /// An event was passed on and is on its way to the client, so the session may keep it.
    owes_done: bool,
}

impl Source {
    pub fn of_model(answer: Answer, one_shot: OneShot) -> Source {
        Source::Model { answer, one_shot: Box::new(one_shot), ready: VecDeque::new() }
    }

    pub async fn begun(&mut self) -> Result<(), Failure> {
        match self {
            Source::Model { .. } => Ok(()),
            Source::Session(listening) => listening.begun().await,
        }
    }

    /// Cancels the response; its events still come to their end.
    pub fn canceller(&self) -> CancellationToken {
        match self {
            Source::Model { answer, .. } => answer.canceller(),
            Source::Session(listening) => listening.cancelled.clone(),
        }
    }

    /// The next event of the response. None after the last.
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
            Source::Session(listening) => listening.next().await,
        }
    }
}

impl Listening {
    pub fn new(connected: Connected, written: Written, mark: String, metadata: JsonText) -> Listening {
        let session = Some((connected, written));
        let (cancelled, cancel_is_told) = (CancellationToken::new(), false);
        let (response_id, ready, is_over, owes_done) = (None, None, false, false);
        Listening { session, mark, metadata, response_id, ready, is_over, cancelled, cancel_is_told, owes_done }
    }

    pub async fn say(&self, input: Input) -> bool {
        match &self.session {
            Some((connected, _)) => connected.say(Some(self.mark.clone()), input).await,
            None => false,
        }
    }

    /// Waits until the session has taken what was said, or refused it.
    async fn begun(&mut self) -> Result<(), Failure> {
        self.ready = self.next().await.transpose()?;
        Ok(())
    }

    async fn next(&mut self) -> Option<Result<Arc<Event>, Failure>> {
        if let Some(event) = self.ready.take() {
            return Some(Ok(event));
        }
        while !self.is_over {
            let (connected, written) = self.session.as_mut()?;
            if std::mem::take(&mut self.owes_done) {
                written.done(1);
            }
            let next = tokio::select! {
                next = written.next() => next,
                () = self.cancelled.cancelled(), if !self.cancel_is_told && self.response_id.is_some() => {
                    let response_id = self.response_id.clone();
                    // Where it is over already the session refuses, and its end is on its way.
                    connected.say(None, Input::CancelResponse { response_id }).await;
                    self.cancel_is_told = true;
                    continue;
                }
            };
            let event = match next {
                ToWrite::Event(event) => event,
                ToWrite::End(end) => {
                    self.is_over = true;
                    let message = if end == End::Draining { "the service stops" } else { "the session ended" };
                    return Some(Err(Failure::new(FailureCode::Unavailable, message)));
                }
            };
            self.owes_done = true;
            match &*event {
                Event::Refused { input_id, refusal } if input_id.as_ref() == Some(&self.mark) => {
                    self.is_over = true;
                    return Some(Err(failure_of(refusal)));
                }
                Event::ResponseStarted { response } if response.metadata.as_ref() == Some(&self.metadata) => {
                    self.response_id = Some(response.id.clone());
                    return Some(Ok(event));
                }
                event_of if self.response_id.is_some() && event_of.response_id() == self.response_id.as_deref() => {
                    self.is_over = matches!(event_of, Event::Reported { .. });
                    return Some(Ok(event));
                }
                _ => {}
            }
        }
        None
    }
}

/// A client that hangs up cancels its response; the session keeps what was sent.
impl Drop for Listening {
    fn drop(&mut self) {
        let Some((connected, mut written)) = self.session.take().filter(|_| !self.is_over) else { return };
        let (mark, response_id) = (self.mark.clone(), self.response_id.clone());
        tokio::spawn(async move {
            connected.say(Some(mark.clone()), Input::CancelResponse { response_id }).await;
            // The session says when it is over.
            loop {
                match written.next().await {
                    ToWrite::Event(event) => match &*event {
                        Event::ResponseDone { .. } => return,
                        Event::Refused { input_id, .. } if input_id.as_ref() == Some(&mark) => return,
                        _ => {}
                    },
                    ToWrite::End(_) => return,
                }
            }
        });
    }
}

fn failure_of(refusal: &Refusal) -> Failure {
    let code = match refusal {
        Refusal::ResponseActive { .. } | Refusal::SaidSince => FailureCode::Conflict,
        Refusal::StoreFailed { .. } => FailureCode::StoreFailed,
        Refusal::Stopping => FailureCode::Unavailable,
        _ => FailureCode::InvalidRequest,
    };
    Failure::new(code, refusal.to_string())
}
