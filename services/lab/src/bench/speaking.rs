//! The speech of a user: partial transcripts while the words are spoken, then the final words.

use anyhow::{Result, bail};
use serde::Serialize;
use serde_json::json;
use settings::Settings;
use std::time::Duration;
use terminal::client::ServiceClient;

#[derive(Clone, Debug, clap::Args)]
pub struct SpeechArgs {
    /// Words that the user speaks a minute [default: the configuration's speech.words_per_minute]
    #[arg(long)]
    pub words_per_minute: Option<f64>,
    /// Relation of the last partial transcript to the final words
    #[arg(long, value_enum, default_value_t = LastPartial::ButOneWord)]
    pub last_partial: LastPartial,
    /// Seconds from a last partial transcript with as many words as the final ones until these come
    #[arg(long, default_value_t = 0.6)]
    pub still: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LastPartial {
    /// The last word is missing, and comes at once
    ButOneWord,
    /// All words are there
    Equal,
    /// All are there, and the last two differ
    TwoWordsDiffer,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub struct Speech {
    words_per_minute: f64,
    last_partial: LastPartial,
    still_s: f64,
}

impl SpeechArgs {
    pub fn speech(&self, settings: &Settings) -> Result<Speech> {
        let words_per_minute = self.words_per_minute.unwrap_or(f64::from(settings.speech.words_per_minute));
        let is_speed = words_per_minute.is_finite() && words_per_minute >= 1.0;
        if !is_speed || !(0.0..=3600.0).contains(&self.still) {
            bail!("--words-per-minute is a number from 1 upwards, and --still is seconds");
        }
        Ok(Speech { words_per_minute, last_partial: self.last_partial, still_s: self.still })
    }
}

impl Speech {
    pub async fn speak(&self, client: &mut ServiceClient, text: &str) -> Result<()> {
        let word_time = Duration::from_secs_f64(60.0 / self.words_per_minute);
        let begin = tokio::time::Instant::now();
        let (mut update, mut words) = (async |text: &str| client.say(heard(text)).await, 0);
        for (end, _) in text.match_indices(' ') {
            words += 1;
            tokio::time::sleep_until(begin + word_time * words).await;
            update(&text[..end]).await?;
        }
        tokio::time::sleep_until(begin + word_time * (words + 1)).await;
        match self.last_partial {
            LastPartial::ButOneWord => return Ok(()),
            LastPartial::Equal => update(text).await?,
            LastPartial::TwoWordsDiffer => update(&with_other_end(text)).await?,
        }
        tokio::time::sleep(Duration::from_secs_f64(self.still_s)).await;
        Ok(())
    }
}

fn heard(text: &str) -> serde_json::Value {
    json!({ "type": "input_text_buffer.update", "text": text })
}

/// Writes the text as a recogniser takes it that has not heard all of it.
fn with_other_end(text: &str) -> String {
    let kept = text.rmatch_indices(' ').nth(1).map_or("", |(end, _)| &text[..end]);
    format!("{kept} {OTHER_WORDS}").trim_start().to_owned()
}

const OTHER_WORDS: &str = "silver engine."; // no sentence of the bench has them

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_two_words_are_others() {
        assert_eq!(with_other_end("The lamp in the kitchen."), "The lamp in silver engine.");
        assert_eq!(with_other_end("A lamp."), "silver engine.");
        assert_eq!(with_other_end("Lamp."), "silver engine.");
    }
}
