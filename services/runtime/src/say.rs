//! Inputs of a program that is no connected client: a button, an automation, a request over HTTP. A session takes them as
//! those of any client, so that its clients hear of them.

use crate::outgoing::ToWrite;
use crate::{Attach, Error, Runtime};
use session::machine::Replay;
use session::{Event, Input, Refusal};
use std::sync::Arc;
use store::{SessionRef, new_id};

#[derive(Clone, Debug)]
pub enum SessionAnswer {
    Event(Arc<Event>),
    Refused(Refusal),
    SessionEnded,
}

impl Runtime {
    /// Says inputs to a session and waits for the event that `answers` accepts, or for a refusal. Only events of `interest`
    /// reach `answers`. `person`: the person whose words they are, if it is not the session's.
    pub async fn say_and_wait(
        &self,
        session: &SessionRef,
        person: Option<String>,
        inputs: Vec<Input>,
        interest: fn(&Event) -> bool,
        mut answers: impl FnMut(&Event) -> bool,
    ) -> Result<SessionAnswer, Error> {
        let interest = move |event: &Event| interest(event) || matches!(event, Event::Refused { .. });
        let attach = Attach { replay: Replay::Nothing, interest: Arc::new(interest), person, trace_parent: None };
        let (connected, mut written) = self.attach(session, attach).await?;
        let mark = new_id("say")?;
        for input in inputs {
            connected.say(Some(mark.clone()), input).await;
        }
        while let ToWrite::Event(event) = written.next().await {
            written.done(1);
            match &*event {
                Event::Refused { input_id, refusal } if input_id.as_ref() == Some(&mark) => {
                    return Ok(SessionAnswer::Refused(refusal.clone()));
                }
                told if answers(told) => return Ok(SessionAnswer::Event(event)),
                _ => {}
            }
        }
        Ok(SessionAnswer::SessionEnded)
    }
}
