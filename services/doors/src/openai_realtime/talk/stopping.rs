//! Barge-ins: replies that stop, and the words that were heard of them.

use super::super::render::SpokenEnd;
use super::speaking::{HeardPart, SpokenReply, SpokenStop};
use super::{ClientInput, SaidInput, Talk};
use crate::openai_realtime::Renderer;
use session::{Heard, Input};

impl Talk {
    // Cuts an item to the words that were heard. `told_ms`: `None` if the client did not ask for it.
    pub(super) async fn cut(&mut self, event_id: Option<String>, item_id: String, chars: usize, told_ms: Option<u64>) {
        self.cuts.push_back((item_id.clone(), told_ms));
        let (cuts, is_own) = (Some(item_id.clone()), told_ms.is_none());
        let said = SaidInput { event_id, cuts, is_own, ..SaidInput::default() };
        self.say(said, Input::TruncateItem { item_id, part: 0, heard: Heard::Chars(chars) }, None).await;
    }

    pub(super) async fn truncate(
        &mut self,
        item_id: String,
        ms: u64,
        said: ClientInput,
        renderer: &mut Renderer,
        frames: &mut Vec<String>,
    ) {
        let now = self.now();
        let known = self.replies.iter_mut().chain(&mut self.last).find_map(|reply| reply.heard(&item_id, ms, now));
        // An item of long ago is cut by the usual pace of a voice.
        let Some((chars, ms)) = known else { return self.pass_on(said, renderer, frames).await };
        if let Some(response_id) = self.replies.iter().find(|reply| reply.says(&item_id)).map(SpokenReply::response_id)
        {
            let response_id = response_id.to_owned();
            self.stop(&response_id, SpokenStop::TurnDetected, renderer, frames).await;
        }
        self.cut(said.event_id, item_id, chars, Some(ms)).await;
    }

    pub(super) async fn cancel(
        &mut self,
        response_id: Option<String>,
        said: ClientInput,
        renderer: &mut Renderer,
        frames: &mut Vec<String>,
    ) {
        let is_meant = |reply: &&SpokenReply| match &response_id {
            None => reply.in_conversation(),
            Some(id) => reply.response_id() == id,
        };
        match self.replies.iter().find(is_meant).map(|reply| reply.response_id().to_owned()) {
            Some(id) => self.stop(&id, SpokenStop::ClientCancelled, renderer, frames).await,
            // The client's responses that wait for words.
            None if response_id.is_none() && self.active.is_none() && !self.held.is_empty() => {
                let held = std::mem::take(&mut self.held);
                self.end_held(held, SpokenEnd::Cancelled { reason: "client_cancelled" }, renderer, frames);
            }
            None => self.pass_on(said, renderer, frames).await,
        }
    }

    // Stops a reply that is said: at once for the client, and in the session if it is still being made.
    async fn stop(&mut self, response_id: &str, why: SpokenStop, renderer: &mut Renderer, frames: &mut Vec<String>) {
        for (item_id, chars) in self.stop_saying(response_id, why).await {
            self.cut(None, item_id, chars, None).await;
        }
        self.speak_on(renderer, frames).await;
    }

    // Stops a reply that says an item which the client cuts or deletes itself.
    pub(super) async fn stop_item(&mut self, item_id: &str, renderer: &mut Renderer, frames: &mut Vec<String>) {
        let Some(reply) = self.replies.iter().find(|reply| reply.says(item_id)) else { return };
        let response_id = reply.response_id().to_owned();
        let mut cuts = self.stop_saying(&response_id, SpokenStop::ClientCancelled).await;
        cuts.retain(|(cut, _)| cut != item_id);
        for (item_id, chars) in cuts {
            self.cut(None, item_id, chars, None).await;
        }
        self.speak_on(renderer, frames).await;
    }

    async fn stop_saying(&mut self, response_id: &str, why: SpokenStop) -> Vec<HeardPart> {
        let now = self.now();
        let reply = self.replies.iter_mut().find(|reply| reply.response_id() == response_id);
        let Some((is_made, cuts)) = reply.map(|reply| (reply.is_made(), reply.stop(why, now))) else {
            return Vec::new();
        };
        if !is_made {
            self.say_own(Input::CancelResponse { response_id: Some(response_id.to_owned()) }).await;
        }
        cuts
    }

    // A user begins to speak over what is said.
    pub(super) async fn interrupt(&mut self, renderer: &mut Renderer, frames: &mut Vec<String>) {
        let said: Vec<String> = self
            .replies
            .iter()
            .filter(|reply| reply.in_conversation())
            .map(|reply| reply.response_id().to_owned())
            .collect();
        for response_id in &said {
            self.stop(response_id, SpokenStop::TurnDetected, renderer, frames).await;
        }
        if let Some(active) = self.active.clone().filter(|active| !said.contains(active)) {
            self.say_own(Input::CancelResponse { response_id: Some(active) }).await;
        } else if self.is_asked() {
            // Of a response that has not started the id is not known.
            self.say_own(Input::CancelResponse { response_id: None }).await;
        }
        let now = self.now();
        for (item_id, chars) in self.last.as_mut().map(|last| last.cut_by_clock(now)).unwrap_or_default() {
            self.cut(None, item_id, chars, None).await;
        }
    }
}
