//! A conversation over our websocket: the service keeps the history, the client sends changes.

use super::service::MeasuredService;
use super::speaking::Speech;
use super::steps::{KEPT, NOTED, Opening, TurnCost, UserStep, heard_chars};
use anyhow::{Result, bail};
use serde_json::{Value, json};
use settings::Settings;
use std::time::{Duration, Instant};
use terminal::client::{Arrival, ServiceClient};

pub struct RealtimePlayer {
    pub client: ServiceClient,
    speech: Option<Speech>, // partial transcripts, word by word; `None`: only the final words
    pub items: Vec<String>, // the service's items, in order
    named: usize,
    pub last_reply: String,
}

impl RealtimePlayer {
    pub async fn new(
        service: &MeasuredService,
        settings: &Settings,
        speech: Option<Speech>,
        opening: Opening,
    ) -> Result<RealtimePlayer> {
        let Opening { system, history, reply_tokens, patience } = opening;
        let mut client = service.connect(settings, patience, &[]).await?;
        // The most probable words. Without thinking, where the preset lets a client say so.
        let mut session = json!({
            "type": "realtime", "max_output_tokens": reply_tokens, "temperature": 0, "reasoning": { "effort": "none" },
        });
        if !system.is_empty() {
            session["instructions"] = system.into();
        }
        client.update(session).await?;
        let mut player = RealtimePlayer { client, speech, items: Vec::new(), named: 0, last_reply: String::new() };
        let all: Vec<(&str, String)> =
            history.into_iter().flat_map(|(said, answered)| [("user", said), ("assistant", answered)]).collect();
        for some in all.chunks(ITEMS_AT_ONCE) {
            for (role, text) in some {
                player.create(role, text, None).await?;
            }
            for _ in some {
                player.client.until("conversation.item.done").await?;
            }
        }
        Ok(player)
    }

    /// Plays a turn. With partial transcripts the wait begins when the last word is spoken, without them when the turn
    /// is sent. `notice` receives every event that comes until the turn is over.
    pub async fn turn(&mut self, number: usize, step: UserStep, notice: &mut dyn FnMut(&Arrival)) -> Result<TurnCost> {
        let mut turn = TurnCost::new(number, step.kind);
        let mut begin = Instant::now();
        self.change_the_past(&step).await?;
        if let Some(note) = &step.note {
            self.create("system", note, None).await?;
        }
        let id = self.name();
        if let Some(speech) = self.speech {
            speech.speak(&mut self.client, &step.says).await?;
            begin = Instant::now();
            let commit = json!({ "type": "input_text_buffer.commit", "text": step.says, "item_id": id });
            self.client.say(commit).await?;
            self.items.push(id);
        } else {
            self.create("user", &step.says, None).await?;
            self.client.respond().await?;
        }
        self.listen(&mut turn, begin, notice).await?;
        Ok(turn)
    }

    /// Resumes the same session from its last item, after the service was started again.
    pub async fn go_on(&mut self, service: &MeasuredService, settings: &Settings, patience: Duration) -> Result<()> {
        let query = [("session", Some(self.client.session_id())), ("after", self.items.last().map(String::as_str))];
        self.client = service.connect(settings, patience, &query).await?;
        Ok(())
    }

    pub async fn close(self) {
        self.client.close().await;
    }

    /// Lets the user begin to speak over the last reply: the service learns now how much of it was heard, and later the
    /// words.
    pub async fn interrupt(&mut self, step: &UserStep) -> Result<()> {
        let heard = heard_chars(&self.last_reply);
        if step.cuts_last_reply
            && heard > 0
            && let Some(item_id) = self.items.last()
        {
            let truncate = json!({
                "type": "conversation.item.truncate", "item_id": item_id, "content_index": 0, "text_end": heard,
            });
            self.client.say(truncate).await?;
        }
        Ok(())
    }

    async fn change_the_past(&mut self, step: &UserStep) -> Result<()> {
        if let Some(system) = &step.system {
            let session = json!({ "type": "realtime", "instructions": system });
            self.client.say(json!({ "type": "session.update", "session": session })).await?;
        }
        if let Some(summary) = &step.summary {
            let kept = self.items.len().saturating_sub(KEPT);
            for item_id in self.items.drain(..kept).collect::<Vec<_>>() {
                self.client.say(json!({ "type": "conversation.item.delete", "item_id": item_id })).await?;
            }
            let kept: Vec<String> = std::mem::take(&mut self.items);
            self.create("user", summary, Some("root")).await?;
            let summary_id = self.items.last().cloned();
            self.create("assistant", NOTED, summary_id.as_deref()).await?;
            self.items.extend(kept);
        }
        Ok(())
    }

    async fn create(&mut self, role: &str, text: &str, after: Option<&str>) -> Result<()> {
        let id = self.name();
        self.client.create(Some(&id), role, text, after).await?;
        self.items.push(id);
        Ok(())
    }

    async fn listen(&mut self, turn: &mut TurnCost, begin: Instant, notice: &mut dyn FnMut(&Arrival)) -> Result<()> {
        let since = |at: Instant| at.duration_since(begin).as_secs_f64() * 1e3;
        self.last_reply.clear();
        let mut item = None;
        let done = loop {
            let arrival = self.client.next().await?;
            notice(&arrival);
            match arrival.event["type"].as_str().unwrap_or_default() {
                "response.output_item.added" if item.is_none() => {
                    item = arrival.event["item"]["id"].as_str().map(str::to_owned);
                }
                "response.output_text.delta" => {
                    turn.first_token_ms.get_or_insert_with(|| since(arrival.at));
                    self.last_reply.push_str(arrival.event["delta"].as_str().unwrap_or_default());
                }
                "turn.report" => report(turn, &arrival.event),
                "response.done" => {
                    turn.total_ms = since(arrival.at);
                    break arrival.event;
                }
                _ => {}
            }
        };
        self.items.extend(item);
        let response = &done["response"];
        if !matches!(response["status"].as_str(), Some("completed" | "incomplete")) {
            bail!("the reply is {}: {}", response["status"], response["status_details"]);
        }
        let usage = &response["usage"];
        turn.prompt_tokens = usage["input_tokens"].as_u64();
        turn.reply_tokens = usage["output_tokens"].as_u64();
        turn.cached_tokens = usage["input_token_details"]["cached_tokens"].as_u64();
        // The usage may come behind the reply.
        while turn.computed_tokens.is_none() {
            let Some(arrival) = self.client.next_within(REPORT_WAIT).await? else { break };
            notice(&arrival);
            if arrival.event["type"] == "turn.report" {
                report(turn, &arrival.event);
            }
        }
        Ok(())
    }

    fn name(&mut self) -> String {
        self.named += 1;
        format!("bench_{}", self.named)
    }
}

fn report(turn: &mut TurnCost, event: &Value) {
    turn.computed_tokens = event["computed_tokens"].as_u64();
    turn.queue_ms = event["ms"]["queue"].as_f64();
    turn.reason = event["reason"].as_str().map(str::to_owned);
    turn.begun_early = event["begun_early"].as_u64();
}

const ITEMS_AT_ONCE: usize = 16; // of a history that precedes the first turn
const REPORT_WAIT: Duration = Duration::from_secs(2);
