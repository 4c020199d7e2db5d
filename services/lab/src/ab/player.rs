//! One conversation with the service, through a client in the same process: the same sessions, store and engine as
//! behind a socket.

use super::recall::FactZone;
use anyhow::{Context, Result, bail};
use runtime::{Attach, Connected, NewSession, Runtime, ToWrite, Written};
use session::machine::Replay;
use session::{
    ConfigUpdate, Event, Heard, Input, ItemBody, ItemPlace, MaxTokens, NewItem, ResponseRequest, ResponseStatus, Role,
    StatusDetails,
};
use std::sync::Arc;
use std::time::Duration;
use store::{Measurement, SessionRef, Store, SummaryKind};
use tokio::time::timeout;

pub struct ReplayPlayer {
    pub session: SessionRef,
    connected: Connected,
    written: Written,
    pub last_item: Option<String>, // last item of the conversation: a reply, if it has words
    pub last_reply: String,
    patience: Duration,
}

#[derive(Debug, Default)]
pub struct ReplayedReply {
    pub response: Option<String>,
    pub text: String,
    pub input_tokens: u64,
    pub cut_last_reply: bool,   // the user talked over the reply before
    pub failed: Option<String>, // why there is no reply
}

impl ReplayPlayer {
    pub async fn begin(
        runtime: &Runtime,
        user: &str,
        preset: &str,
        instructions: Option<&str>,
        patience: Duration,
    ) -> Result<ReplayPlayer> {
        let update = ConfigUpdate { instructions: instructions.map(str::to_owned), ..ConfigUpdate::default() };
        let new = NewSession { user, model: preset, update: Some(&update), ..NewSession::default() };
        ReplayPlayer::begin_session(runtime, new, patience).await
    }

    pub async fn begin_session(runtime: &Runtime, new: NewSession<'_>, patience: Duration) -> Result<ReplayPlayer> {
        ReplayPlayer::connect(runtime, runtime.create(new).await?, patience).await
    }

    /// Resumes a session from an item that is known to be whole, and deletes the later ones.
    pub async fn go_on(
        runtime: &Runtime,
        store: &Store,
        session: SessionRef,
        last_item: Option<String>,
        patience: Duration,
    ) -> Result<ReplayPlayer> {
        let view = store.load(&session).await?;
        let known = view.items.iter().position(|item| Some(&item.item_id) == last_item.as_ref());
        // If a summary tells all of it there is nothing to delete.
        let after = known.map_or(view.items.len(), |at| at + 1);
        let mut player = ReplayPlayer::connect(runtime, session, patience).await?;
        for item in view.items.get(after..).unwrap_or_default() {
            player.say(Input::DeleteItem { item_id: item.item_id.clone() }).await?;
            player.until(|event| matches!(event, Event::ItemDeleted { .. })).await?;
        }
        if let Some(last) = known.and_then(|at| view.items.get(at)) {
            player.last_reply = last.said();
        }
        player.last_item = last_item;
        Ok(player)
    }

    async fn connect(runtime: &Runtime, session: SessionRef, patience: Duration) -> Result<ReplayPlayer> {
        let (connected, written) = runtime
            .attach(
                &session,
                Attach { replay: Replay::Nothing, interest: Arc::new(|_| true), person: None, trace_parent: None },
            )
            .await?;
        Ok(ReplayPlayer { session, connected, written, last_item: None, last_reply: String::new(), patience })
    }

    pub async fn turn(
        &mut self,
        item_id: &str,
        says: &str,
        cuts_last_reply: bool,
        most: Option<u32>,
    ) -> Result<ReplayedReply> {
        let mut reply = ReplayedReply::default();
        let chars = self.last_reply.chars().count();
        if cuts_last_reply
            && chars > 1
            && let Some(item_id) = self.last_item.clone()
        {
            let heard = Heard::Chars(chars.div_ceil(3));
            self.say(Input::TruncateItem { item_id, part: 0, heard }).await?;
            self.until(|event| matches!(event, Event::ItemTruncated { .. })).await?;
            reply.cut_last_reply = true;
        }
        let item = NewItem { id: Some(item_id.to_owned()), body: ItemBody::message(Role::User, says) };
        self.say(Input::AddItem { item, place: ItemPlace::End }).await?;
        let config = ConfigUpdate { max_output_tokens: most.map(MaxTokens::Tokens), ..ConfigUpdate::default() };
        self.say(Input::Respond(Box::new(ResponseRequest { config, ..ResponseRequest::default() }))).await?;
        (self.last_item, self.last_reply) = (None, String::new());
        loop {
            match &*self.event().await? {
                Event::ResponseStarted { response } => reply.response = Some(response.id.clone()),
                Event::TextDelta { item_id, text, .. } => {
                    reply.text.push_str(text);
                    self.last_item = Some(item_id.clone());
                }
                Event::ResponseDone { response } => {
                    reply.input_tokens = response.usage.unwrap_or_default().input_tokens;
                    if !matches!(response.status, ResponseStatus::Completed | ResponseStatus::Incomplete) {
                        reply.failed = Some(match &response.details {
                            Some(StatusDetails::Failed(failure)) => failure.message.clone(),
                            _ => "the reply was cancelled".to_owned(),
                        });
                    }
                    self.last_reply.clone_from(&reply.text);
                    return Ok(reply);
                }
                _ => {}
            }
        }
    }

    /// Returns the store's measurement of a reply, which comes behind the reply. `None` for a failed reply without one.
    pub async fn measured(&mut self, store: &Store, reply: &ReplayedReply) -> Result<Option<Measurement>> {
        if reply.failed.is_some() {
            return Ok(None);
        }
        let wait = async {
            loop {
                let rows = store.measurements(&self.session).await?;
                if let Some(row) = rows.into_iter().rev().find(|row| row.response == reply.response) {
                    return Ok(row);
                }
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        };
        let row: Result<Measurement> =
            timeout(self.patience, wait).await.context("the store has no measurement of a turn")?;
        row.map(Some)
    }

    pub async fn zone_of(&self, store: &Store, item_id: &str) -> Result<FactZone> {
        let view = store.load(&self.session).await?;
        if view.items.iter().any(|item| item.item_id == item_id) {
            return Ok(FactZone::Tail);
        }
        Ok(match view.summary.map(|summary| (summary.kind, summary.text.trim().is_empty())) {
            Some((SummaryKind::Summary, _)) | Some((SummaryKind::Drop, false)) => FactZone::Summarised,
            Some((SummaryKind::Drop, true)) | None => FactZone::History,
        })
    }

    async fn say(&self, input: Input) -> Result<()> {
        if self.connected.say(None, input).await { Ok(()) } else { bail!("the session has ended") }
    }

    async fn until(&mut self, is_it: impl Fn(&Event) -> bool) -> Result<()> {
        while !is_it(&*self.event().await?) {}
        Ok(())
    }

    /// Waits for an event. A refusal is an error: the service should refuse nothing of a script.
    async fn event(&mut self) -> Result<Arc<Event>> {
        let next =
            timeout(self.patience, self.written.next()).await.context("no event came from the service in time")?;
        let ToWrite::Event(event) = next else { bail!("the session ended") };
        self.written.done(1);
        if let Event::Refused { refusal, .. } = &*event {
            bail!("the service refused an event: {refusal}");
        }
        Ok(event)
    }
}

const LOOK_AGAIN: Duration = Duration::from_millis(5);
