//! Words that a listener has heard, beside the words that the conversation keeps.

use super::stand_ins::word_times;
use super::{SpeechBench, SpeechRow};
use crate::dice::Dice;
use anyhow::{Context, Result};
use serde_json::json;
use std::ops::Range;

// Cuts of one reply, each shorter than the one before.
const CUTS: usize = 20;
const WORDS: [&str; 16] = [
    "the",
    "umbrella",
    "is",
    "in",
    "a",
    "cupboard",
    "beside",
    "my",
    "extraordinarily",
    "old",
    "piano",
    "and",
    "two",
    "lamps",
    "are",
    "on",
];

impl SpeechBench<'_> {
    pub async fn cuts(&self, tells_words: bool) -> Result<Vec<SpeechRow>> {
        let mut dice = Dice(7);
        let (mut exact, mut near, mut done) = (0, 0, 0);
        while done < self.args.cuts {
            let sentences = sentences(&mut dice);
            self.stand_ins.reply(&sentences.join(" "), tells_words);
            let mut client = self.service.connect(self.settings, super::PATIENCE, &[]).await?;
            client.create(None, "user", "Go on.", None).await?;
            client.respond().await?;
            let response = client.until("response.done").await?.event;
            let item_id = response["response"]["output"][0]["id"].as_str().context("a reply")?.to_owned();
            let words = spans(&sentences);
            let length = words.last().map_or(1, |span| span.end);
            let mut cuts: Vec<u64> = (0..CUTS).map(|_| dice.below(length as usize) as u64).collect();
            cuts.sort_unstable_by(|one, other| other.cmp(one));
            for ms in cuts {
                client
                    .say(json!({ "type": "conversation.item.truncate", "item_id": item_id, "content_index": 0, "audio_end_ms": ms }))
                    .await?;
                client.until("conversation.item.truncated").await?;
                client.say(json!({ "type": "conversation.item.retrieve", "item_id": item_id })).await?;
                let item = client.until("conversation.item.retrieved").await?.event;
                let kept = item["item"]["content"][0]["transcript"].as_str().unwrap_or_default();
                let stored = kept.split_whitespace().count();
                let complete = words.iter().filter(|span| span.end <= ms).count();
                let begun = words.iter().filter(|span| span.start <= ms).count();
                // A word that has begun may stay or go.
                exact += usize::from((complete..=begun).contains(&stored));
                near += usize::from(stored <= complete + 1 && complete <= stored + 1);
                done += 1;
            }
            client.close().await;
        }
        let told = if tells_words { "times of words told" } else { "no times told" };
        let row = |what: &str, count: usize| {
            SpeechRow::of(&format!("{done} cuts, {told}: {what}"), "%", [100.0 * count as f64 / done as f64])
        };
        let exact = row("exact", exact);
        let exact = if tells_words { exact.at_least(99.0) } else { exact };
        Ok(vec![exact, row("within one word", near)])
    }
}

fn sentences(dice: &mut Dice) -> Vec<String> {
    let sentence = |_| {
        let count = 6 + dice.below(9);
        let words: Vec<&str> = (0..count).map(|_| WORDS[dice.below(WORDS.len())]).collect();
        format!("So {}.", words.join(" "))
    };
    (0..3).map(sentence).collect()
}

/// Returns the milliseconds of all words: the voice says a sentence at a time.
fn spans(sentences: &[String]) -> Vec<Range<u64>> {
    let mut from = 0;
    let mut spans = Vec::new();
    for sentence in sentences {
        spans.extend(word_times(sentence).into_iter().map(|(_, span)| from + span.start..from + span.end));
        from = spans.last().map_or(from, |span| span.end);
    }
    spans
}
