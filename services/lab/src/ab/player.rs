//! One conversation with the service, as a client in the same process has it: the same sessions, store and engine as behind
//! a socket.

use super::recall::Zone;
use anyhow::{Context, Result, bail};
use conversation::live::{Attach, Connected, Live, ToWrite, Written};
use conversation::realtime::{
    ClientEvent, ItemBody, MaxTokens, NewItem, Received, ResponseParams, Role, SessionUpdate, TruncateAt,
};
use conversation::turn::Replay;
use serde_json::Value;
use std::time::Duration;
use store::{Measurement, SessionRef, Store, SummaryKind};
use tokio::time::timeout;

pub struct Player {
    pub session: SessionRef,
    connected: Connected,
    written: Written,
    /// The last item of the conversation: a reply, where it has words.
    pub last_item: Option<String>,
    pub last_reply: String,
    patience: Duration,
}

/// What became of one turn.
#[derive(Debug, Default)]
pub struct Reply {
    pub response: Option<String>,
    pub text: String,
    pub input_tokens: u64,
    /// The reply before was talked over.
    pub cut_last_reply: bool,
    /// Why there is no reply.
    pub failed: Option<String>,
}

impl Player {
    pub async fn begin(
        live: &Live,
        user: &str,
        preset: &str,
        instructions: Option<&str>,
        patience: Duration,
    ) -> Result<Player> {
        let update = SessionUpdate { instructions: instructions.map(str::to_owned), ..SessionUpdate::default() };
        let session = live.create(user, preset, Some(&update)).await?;
        Player::connect(live, session, patience).await
    }

    /// Goes on with a session from an item that is known to be whole: what came after it is taken back.
    pub async fn go_on(
        live: &Live,
        store: &Store,
        session: SessionRef,
        last_item: Option<String>,
        patience: Duration,
    ) -> Result<Player> {
        let view = store.load(&session).await?;
        let known = view.items.iter().position(|item| Some(&item.item_id) == last_item.as_ref());
        // Where a summary tells all of it there is nothing to take back.
        let after = known.map_or(view.items.len(), |at| at + 1);
        let mut player = Player::connect(live, session, patience).await?;
        for item in view.items.get(after..).unwrap_or_default() {
            player.say(ClientEvent::ItemDelete { item_id: item.item_id.clone() }).await?;
            player.until("conversation.item.deleted").await?;
        }
        if let Some(last) = known.and_then(|at| view.items.get(at)) {
            player.last_reply = last.body.said();
        }
        player.last_item = last_item;
        Ok(player)
    }

    async fn connect(live: &Live, session: SessionRef, patience: Duration) -> Result<Player> {
        let (connected, written) = live.attach(&session, Attach { extensions: true, replay: Replay::Nothing }).await?;
        Ok(Player { session, connected, written, last_item: None, last_reply: String::new(), patience })
    }

    pub async fn turn(&mut self, item_id: &str, says: &str, cuts_last_reply: bool, most: Option<u32>) -> Result<Reply> {
        let mut reply = Reply::default();
        let chars = self.last_reply.chars().count();
        if cuts_last_reply
            && chars > 1
            && let Some(item_id) = self.last_item.clone()
        {
            let at = TruncateAt::TextEnd(chars.div_ceil(3));
            self.say(ClientEvent::ItemTruncate { item_id, content_index: 0, at }).await?;
            self.until("conversation.item.truncated").await?;
            reply.cut_last_reply = true;
        }
        let item = NewItem { id: Some(item_id.to_owned()), body: ItemBody::message(Role::User, says) };
        self.say(ClientEvent::ItemCreate { item, previous_item_id: None }).await?;
        let max_output_tokens = most.map(MaxTokens::Tokens);
        let params = ResponseParams { max_output_tokens, ..ResponseParams::default() };
        self.say(ClientEvent::ResponseCreate(Box::new(params))).await?;
        (self.last_item, self.last_reply) = (None, String::new());
        loop {
            let event = self.event().await?;
            match event["type"].as_str().unwrap_or_default() {
                "response.created" => reply.response = event["response"]["id"].as_str().map(str::to_owned),
                "response.output_text.delta" => {
                    reply.text.push_str(event["delta"].as_str().unwrap_or_default());
                    self.last_item = event["item_id"].as_str().map(str::to_owned);
                }
                "response.done" => {
                    let response = &event["response"];
                    reply.input_tokens = response["usage"]["input_tokens"].as_u64().unwrap_or(0);
                    if !matches!(response["status"].as_str(), Some("completed" | "incomplete")) {
                        let message = response["status_details"]["error"]["message"].as_str();
                        reply.failed = Some(message.unwrap_or("the reply was cancelled").to_owned());
                    }
                    self.last_reply.clone_from(&reply.text);
                    return Ok(reply);
                }
                _ => {}
            }
        }
    }

    /// What the store measured of a reply: it comes behind the reply. None where a reply that failed has none.
    pub async fn measured(&mut self, store: &Store, reply: &Reply) -> Result<Option<Measurement>> {
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
        let row: Result<Measurement> = timeout(self.patience, wait).await.context("a turn was not measured")?;
        row.map(Some)
    }

    /// Where an item stands for the model now.
    pub async fn zone_of(&self, store: &Store, item_id: &str) -> Result<Zone> {
        let view = store.load(&self.session).await?;
        if view.items.iter().any(|item| item.item_id == item_id) {
            return Ok(Zone::Tail);
        }
        Ok(match view.summary.map(|summary| (summary.kind, summary.text.trim().is_empty())) {
            Some((SummaryKind::Summary, _)) | Some((SummaryKind::Drop, false)) => Zone::Summarised,
            Some((SummaryKind::Drop, true)) | None => Zone::History,
        })
    }

    async fn say(&self, event: ClientEvent) -> Result<()> {
        if self.connected.say(Received { event_id: None, event }).await { Ok(()) } else { bail!("the session is gone") }
    }

    async fn until(&mut self, kind: &str) -> Result<Value> {
        loop {
            let event = self.event().await?;
            if event["type"] == kind {
                return Ok(event);
            }
        }
    }

    /// An `error` is one here: nothing that a script says should cause one.
    async fn event(&mut self) -> Result<Value> {
        let next = timeout(self.patience, self.written.next()).await.context("the service says nothing any more")?;
        let ToWrite::Frame(frame) = next else { bail!("the session ended") };
        let event: Value = serde_json::from_str(&frame).context("the service says what is no JSON")?;
        self.written.done(1);
        if event["type"] == "error" {
            bail!("the service says: {}", event["error"]["message"].as_str().unwrap_or("an error"));
        }
        Ok(event)
    }
}

const LOOK_AGAIN: Duration = Duration::from_millis(5);
