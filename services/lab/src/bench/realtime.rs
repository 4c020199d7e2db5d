//! A conversation over our websocket: the service keeps the history, the client says what changes.

use super::line::{Line, Resume};
use super::script::{KEPT, NOTED, Step, heard_chars};
use super::service::Service;
use super::turns::Turn;
use anyhow::{Result, bail};
use serde_json::{Value, json};
use settings::Settings;
use std::time::{Duration, Instant};

pub struct Player {
    line: Line,
    /// The user's speech is told word by word, at so many words a minute.
    partials: Option<f64>,
    /// What is said, in order, as the service has it.
    items: Vec<String>,
    named: usize,
    last_reply: String,
}

impl Player {
    pub async fn new(
        service: &Service,
        settings: &Settings,
        partials: Option<f64>,
        reply_tokens: usize,
        system: String,
        history: Vec<(String, String)>,
        patience: Duration,
    ) -> Result<Player> {
        let mut line = Line::connect(service, settings, patience, None).await?;
        // Thinking is what the preset says of it; where that is "off" this changes nothing.
        let session = json!({
            "type": "realtime", "instructions": system, "max_output_tokens": reply_tokens, "temperature": 0,
            "reasoning": { "effort": "none" },
        });
        line.say(&json!({ "type": "session.update", "session": session })).await?;
        line.until("session.updated").await?;
        let mut player = Player { line, partials, items: Vec::new(), named: 0, last_reply: String::new() };
        let all: Vec<(&str, String)> =
            history.into_iter().flat_map(|(said, answered)| [("user", said), ("assistant", answered)]).collect();
        for some in all.chunks(ITEMS_AT_ONCE) {
            for (role, text) in some {
                player.create(role, text, None).await?;
            }
            for _ in some {
                player.line.until("conversation.item.done").await?;
            }
        }
        Ok(player)
    }

    /// With partial transcripts the wait begins when the last word is spoken. Without them nothing is known before, and
    /// the wait is for all of it.
    pub async fn turn(&mut self, number: usize, step: Step) -> Result<Turn> {
        let mut turn = Turn::new(number, step.kind);
        let mut begin = Instant::now();
        self.change_the_past(&step).await?;
        if let Some(note) = &step.note {
            self.create("system", note, None).await?;
        }
        let id = self.name();
        if let Some(words_per_minute) = self.partials {
            self.speak(&step.says, words_per_minute).await?;
            begin = Instant::now();
            let commit = json!({ "type": "input_text_buffer.commit", "text": step.says, "item_id": id });
            self.line.say(&commit).await?;
            self.items.push(id);
        } else {
            self.create("user", &step.says, None).await?;
            self.line.say(&json!({ "type": "response.create" })).await?;
        }
        self.listen(&mut turn, begin).await?;
        Ok(turn)
    }

    /// After the service was gone: the same session, from the last item on.
    pub async fn go_on(&mut self, service: &Service, settings: &Settings, patience: Duration) -> Result<()> {
        let after = self.items.last().map(String::as_str).unwrap_or_default();
        let resume = Resume { session: &self.line.session, after };
        self.line = Line::connect(service, settings, patience, Some(resume)).await?;
        Ok(())
    }

    pub async fn close(self) {
        self.line.close().await;
    }

    /// The user begins to speak over the last reply: what was heard of it is known now, what is said later.
    pub async fn interrupt(&mut self, step: &Step) -> Result<()> {
        let heard = heard_chars(&self.last_reply);
        if step.cuts_last_reply
            && heard > 0
            && let Some(item_id) = self.items.last()
        {
            let truncate = json!({
                "type": "conversation.item.truncate", "item_id": item_id, "content_index": 0, "text_end": heard,
            });
            self.line.say(&truncate).await?;
        }
        Ok(())
    }

    async fn change_the_past(&mut self, step: &Step) -> Result<()> {
        if let Some(system) = &step.system {
            let session = json!({ "type": "realtime", "instructions": system });
            self.line.say(&json!({ "type": "session.update", "session": session })).await?;
        }
        if let Some(summary) = &step.summary {
            let kept = self.items.len().saturating_sub(KEPT);
            for item_id in self.items.drain(..kept).collect::<Vec<_>>() {
                self.line.say(&json!({ "type": "conversation.item.delete", "item_id": item_id })).await?;
            }
            let kept: Vec<String> = std::mem::take(&mut self.items);
            self.create("user", summary, Some("root".to_owned())).await?;
            let summary_id = self.items.last().cloned();
            self.create("assistant", NOTED, summary_id).await?;
            self.items.extend(kept);
        }
        Ok(())
    }

    async fn create(&mut self, role: &str, text: &str, after: Option<String>) -> Result<()> {
        let id = self.name();
        let kind = if role == "assistant" { "output_text" } else { "input_text" };
        let content = json!([{ "type": kind, "text": text }]);
        let item = json!({ "id": id, "type": "message", "role": role, "content": content });
        let mut event = json!({ "type": "conversation.item.create", "item": item });
        if let Some(after) = after {
            event["previous_item_id"] = after.into();
        }
        self.items.push(id);
        self.line.say(&event).await
    }

    /// Words are known when they are spoken. The last one comes with the commit.
    async fn speak(&mut self, text: &str, words_per_minute: f64) -> Result<()> {
        let word_time = Duration::from_secs_f64(60.0 / words_per_minute);
        let begin = tokio::time::Instant::now();
        let ends = text.match_indices(' ').map(|(at, _)| at);
        let mut words = 0;
        for end in ends {
            words += 1;
            tokio::time::sleep_until(begin + word_time * words).await;
            self.line.say(&json!({ "type": "input_text_buffer.update", "text": &text[..end] })).await?;
        }
        tokio::time::sleep_until(begin + word_time * (words + 1)).await;
        Ok(())
    }

    async fn listen(&mut self, turn: &mut Turn, begin: Instant) -> Result<()> {
        let since = |at: Instant| at.duration_since(begin).as_secs_f64() * 1e3;
        self.last_reply.clear();
        let mut item = None;
        let done = loop {
            let heard = self.line.next().await?;
            match heard.event["type"].as_str().unwrap_or_default() {
                "response.output_item.added" if item.is_none() => {
                    item = heard.event["item"]["id"].as_str().map(str::to_owned);
                }
                "response.output_text.delta" => {
                    turn.first_token_ms.get_or_insert_with(|| since(heard.at));
                    self.last_reply.push_str(heard.event["delta"].as_str().unwrap_or_default());
                }
                "turn.report" => report(turn, &heard.event),
                "response.done" => {
                    turn.total_ms = since(heard.at);
                    break heard.event;
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
        // What it cost may come behind it.
        while turn.computed_tokens.is_none() {
            let Some(heard) = self.line.next_within(REPORT_WAIT).await? else { break };
            if heard.event["type"] == "turn.report" {
                report(turn, &heard.event);
            }
        }
        Ok(())
    }

    fn name(&mut self) -> String {
        self.named += 1;
        format!("bench_{}", self.named)
    }
}

fn report(turn: &mut Turn, event: &Value) {
    turn.computed_tokens = event["computed_tokens"].as_u64();
    turn.reason = event["reason"].as_str().map(str::to_owned);
}

/// Of a history that is told before the first turn.
const ITEMS_AT_ONCE: usize = 16;
const REPORT_WAIT: Duration = Duration::from_secs(2);
