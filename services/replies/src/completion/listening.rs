//! Completion as a client of its session: the session keeps what a request says, shows it to its websockets, and never
//! gives two replies at once.

use runtime::{Connected, End, ToWrite, Written};
use session::{Event, Failure, FailureCode, Input, JsonText, Refusal};
use std::sync::Arc;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

pub struct Listening {
    session: Option<(Connected, Written)>,
    mark: String,
    metadata: JsonText,
    response_id: Option<String>,
    pub is_over: bool,
    cancelled: CancellationToken,
    cancel_is_told: bool,
    /// True while the session does not know that the last event was passed on.
    owes_done: bool,
}

impl Listening {
    pub fn new(connected: Connected, written: Written, mark: String, metadata: JsonText) -> Listening {
        let session = Some((connected, written));
        let (cancelled, cancel_is_told) = (CancellationToken::new(), false);
        let (response_id, is_over, owes_done) = (None, false, false);
        Listening { session, mark, metadata, response_id, is_over, cancelled, cancel_is_told, owes_done }
    }

    pub async fn say(&self, input: Input) -> bool {
        match &self.session {
            Some((connected, _)) => connected.say(Some(self.mark.clone()), input).await,
            None => false,
        }
    }

    pub async fn unsay(&self, item_id: String) {
        if let Some((connected, _)) = &self.session {
            connected.say(None, Input::DeleteItem { item_id }).await;
        }
    }

    pub fn canceller(&self) -> CancellationToken {
        self.cancelled.clone()
    }

    pub async fn next(&mut self) -> Option<Result<Arc<Event>, Failure>> {
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
                    return Some(Err(failure_at(end)));
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

#[derive(Debug, Default)]
pub struct Stopped {
    pub is_taken: bool,
    pub begun: Vec<String>,
}

impl Listening {
    /// Cancels the response; the session keeps what was sent. The session reports to `stopped` when the response is
    /// over.
    pub fn stop(mut self, stopped: oneshot::Sender<Stopped>) {
        self.cancel(Some(stopped));
    }

    fn cancel(&mut self, stopped: Option<oneshot::Sender<Stopped>>) {
        let Some((connected, mut written)) = self.session.take().filter(|_| !self.is_over) else { return };
        let (mark, metadata, response_id) = (self.mark.clone(), self.metadata.clone(), self.response_id.clone());
        let mut became = Stopped { is_taken: response_id.is_some(), begun: Vec::new() };
        // The session waits to hear what became of each event before it keeps how the response ended.
        written.done(u64::from(self.owes_done));
        tokio::spawn(async move {
            let cancel = async |response_id: Option<String>| {
                // No id but ours: meanwhile another client may have asked for the next response.
                let response_id = Some(response_id.unwrap_or_default());
                connected.say(Some(mark.clone()), Input::CancelResponse { response_id }).await
            };
            let (mut ours, was_known) = (response_id.clone(), response_id.is_some());
            cancel(response_id).await;
            loop {
                let next = written.next().await;
                written.done(1);
                let ToWrite::Event(event) = next else { break };
                match &*event {
                    Event::ResponseStarted { response } if response.metadata.as_ref() == Some(&metadata) => {
                        became.is_taken = true;
                        ours = Some(response.id.clone());
                        cancel(ours.clone()).await;
                    }
                    Event::ReplyStarted { response_id, item, .. } if ours.as_ref() == Some(response_id) => {
                        became.begun.push(item.id.clone());
                    }
                    Event::ResponseDone { response } if ours.as_ref() == Some(&response.id) => break,
                    // It is over already, or what was said was refused.
                    Event::Refused { input_id, .. }
                        if input_id.as_ref() == Some(&mark) && (was_known || ours.is_none()) =>
                    {
                        break;
                    }
                    _ => {}
                }
            }
            if let Some(stopped) = stopped {
                let _ = stopped.send(became);
            }
        });
    }
}

/// A client that hangs up cancels its response.
impl Drop for Listening {
    fn drop(&mut self) {
        self.cancel(None);
    }
}

fn failure_at(end: End) -> Failure {
    let (code, message) = match end {
        End::Draining => (FailureCode::Unavailable, "the service stops"),
        End::SessionGone => (FailureCode::SessionDeleted, "a client deleted the session while the reply was made"),
        End::StoreStalled | End::TooSlow | End::Left => (FailureCode::Unavailable, "the session ended"),
    };
    Failure::new(code, message)
}

pub fn failure_of(refusal: &Refusal) -> Failure {
    let code = match refusal {
        Refusal::ResponseActive { .. } | Refusal::SaidSince => FailureCode::Conflict,
        Refusal::StoreFailed { .. } => FailureCode::StoreFailed,
        Refusal::NoRoom => FailureCode::Busy,
        Refusal::Stopping => FailureCode::Unavailable,
        _ => FailureCode::InvalidRequest,
    };
    Failure::new(code, refusal.to_string())
}
