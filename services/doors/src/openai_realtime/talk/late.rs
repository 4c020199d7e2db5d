//! Turns whose client left before their words were there: what was said is kept, and not answered.

use super::Talk;
use super::turns::{SpokenTurns, has_words, keep_audio};
use crate::App;
use runtime::{Error, SessionAnswer};
use session::{Event, Input, Refusal};
use std::time::Duration;
use store::SessionRef;

// Pause before a session that just ends is asked again, and how often.
const AGAIN: Duration = Duration::from_millis(100);
const TIMES: usize = 50;

impl Talk {
    // Leaves the session. Turns that the client was told of become items when their words are there.
    pub fn leave(self: Box<Self>) {
        let Talk { app, session, speaker, mut turns, mut memory, .. } = *self;
        turns.forget_open();
        if turns.is_told() {
            return;
        }
        memory.set(turns.kept_bytes() as u64);
        app.late_turns.clone().spawn(async move {
            keep(&app, &session, &speaker.person, turns).await;
            drop(memory);
        });
    }
}

async fn keep(app: &App, session: &SessionRef, person: &str, mut turns: SpokenTurns) {
    loop {
        while let Some(turn) = turns.take_untold() {
            if add(app, session, person, &turn.item_id, &turn.words.text).await
                && let Some(samples) = turn.audio
            {
                keep_audio(app, session, &turn.item_id, &samples).await;
            }
        }
        if turns.is_empty() {
            return;
        }
        turns.next().await;
        while let Some((turn, heard)) = turns.take_first() {
            match heard {
                Ok(words) if has_words(&words) => turns.tell_later(turn.heard(words)),
                Ok(_) => {}
                Err(error) => tracing::warn!(%error, "a turn has no words"),
            }
        }
    }
}

// Returns true if the conversation has it.
async fn add(app: &App, session: &SessionRef, person: &str, item_id: &str, text: &str) -> bool {
    let (text, id) = (Some(text.to_owned()), Some(item_id.to_owned()));
    let input = Input::HeardAll { text, item_id: id, speaker: None, respond: false };
    let interest = |event: &Event| matches!(event, Event::ItemAdded { .. });
    for _ in 0..TIMES {
        let is_added = |event: &Event| matches!(event, Event::ItemAdded { item, .. } if item.id == item_id);
        let (runtime, inputs) = (&app.replies.runtime, vec![input.clone()]);
        match runtime.say_and_wait(session, Some(person.to_owned()), inputs, interest, is_added).await {
            Ok(SessionAnswer::Event(_) | SessionAnswer::Refused(Refusal::ItemExists { .. })) => return true,
            Ok(SessionAnswer::SessionEnded) | Err(Error::Stopping) => tokio::time::sleep(AGAIN).await,
            Ok(SessionAnswer::Refused(refusal)) => {
                tracing::warn!(%refusal, "what a user said is not kept");
                return false;
            }
            Err(error) => {
                tracing::warn!(%error, "what a user said is not kept");
                return false;
            }
        }
    }
    false
}
