//! A microphone that is on: audio goes out in its own time, 20 ms a piece, and what arrives is noted with its time.

use super::SpeechBench;
use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use speech::samples_of;
use std::time::{Duration, Instant};
use terminal::client::{Arrival, ServiceClient};

pub struct PacedMicrophone {
    pub client: ServiceClient,
    pub arrivals: Vec<Arrival>,
    // Time at which each piece was sent.
    sent: Vec<Instant>,
    due: Instant,
}

pub const RATE: u32 = 24_000;
pub const PIECE_MS: u64 = 20;

impl PacedMicrophone {
    pub async fn connect(bench: &SpeechBench<'_>) -> Result<PacedMicrophone> {
        let client = bench.service.connect(bench.settings, super::PATIENCE, &[]).await?;
        Ok(PacedMicrophone { client, arrivals: Vec::new(), sent: Vec::new(), due: Instant::now() })
    }

    /// Sends audio of whole pieces.
    pub async fn hear(&mut self, samples: &[i16]) -> Result<()> {
        for piece in samples.chunks(piece_samples()) {
            self.client.say(append(piece)).await?;
            self.sent.push(Instant::now());
            // A pause in which nothing was sent is none of the microphone's.
            self.due = self.due.max(Instant::now() - Duration::from_millis(PIECE_MS)) + Duration::from_millis(PIECE_MS);
            self.listen(self.due).await?;
        }
        Ok(())
    }

    async fn listen(&mut self, until: Instant) -> Result<()> {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.client.next_within(left).await? {
                Some(arrival) => self.arrivals.push(arrival),
                None => return Ok(()),
            }
        }
    }

    /// Sends silence until this event arrives.
    pub async fn silent_until(&mut self, kind: &str) -> Result<()> {
        let begin = Instant::now();
        while self.found(kind).is_none() {
            self.hear(&vec![0; piece_samples()]).await?;
            anyhow::ensure!(begin.elapsed() < super::PATIENCE, "no {kind} came in time");
        }
        Ok(())
    }

    pub fn found(&self, kind: &str) -> Option<&Arrival> {
        self.arrivals.iter().find(|arrival| arrival.event["type"] == kind)
    }

    /// Returns the first event of a kind and its time.
    pub fn arrival(&self, kind: &str) -> Result<&Arrival> {
        self.found(kind).with_context(|| format!("no {kind} came"))
    }

    /// Returns the time at which the audio up to this millisecond had been sent.
    pub fn sent_at(&self, ms: u64) -> Result<Instant> {
        let piece = ms.saturating_sub(1) / PIECE_MS;
        self.sent.get(piece as usize).copied().context("an event about audio that was never sent")
    }
}

pub fn piece_samples() -> usize {
    samples_of(PIECE_MS, RATE) as usize
}

pub fn append(samples: &[i16]) -> Value {
    json!({ "type": "input_audio_buffer.append", "audio": STANDARD.encode(speech::pcm::to_bytes(samples)) })
}
