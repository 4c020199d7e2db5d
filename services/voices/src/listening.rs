//! Turns that the ears hear while they are said, with the words so far: the streaming of transcripts over Wyoming.

use crate::Error;
use crate::ears::{Ears, HeardWords, PIECE, begin, transcript};
use crate::wyoming::WyomingCall;
use serde_json::{Value, json};
use settings::SpeechServer;
use speech::HEARD_RATE;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot, watch};

/// An utterance on its way to the ears. Dropping it cancels the request.
pub struct LiveHearing {
    ears: Arc<Ears>,
    pieces: mpsc::Sender<Option<Vec<i16>>>,
    words: watch::Receiver<String>,
    answer: oneshot::Receiver<Result<HeardWords, Error>>,
}

#[derive(Clone)]
pub struct PartialWords(watch::Receiver<String>);

// Pieces of audio that wait for ears that are slow. A client sends fifty a second, or fewer.
const WAITING: usize = 256;

impl PartialWords {
    /// Waits for more words, and returns all so far. It never returns once the ears tell no more. The caller may drop the future.
    pub async fn next(&mut self) -> String {
        match self.0.changed().await {
            Ok(()) => self.0.borrow_and_update().clone(),
            Err(_) => std::future::pending().await,
        }
    }
}

impl LiveHearing {
    /// Hears more of the utterance. False: the ears take no more, and the utterance must be heard as a whole.
    pub fn hear(&self, samples: Vec<i16>) -> bool {
        samples.is_empty() || self.pieces.try_send(Some(samples)).is_ok()
    }

    pub fn is_behind(&self) -> bool {
        self.pieces.capacity() < WAITING
    }

    pub fn words(&self) -> PartialWords {
        PartialWords(self.words.clone())
    }

    pub async fn finish(self) -> Result<HeardWords, Error> {
        // Ears that are gone have answered.
        let _ = self.pieces.send(None).await;
        self.answer.await.unwrap_or_else(|_| Err(self.ears.server.broke_off()))
    }
}

impl Ears {
    /// Begins to hear an utterance, if the server tells words meanwhile and hears fewer than `speech.live_turns`.
    pub fn listen(self: &Arc<Ears>, language: Option<&str>, most_bytes: usize) -> Option<LiveHearing> {
        let SpeechServer::Wyoming(place) = &self.server.address else { return None };
        if !self.server.is_streaming() {
            return None;
        }
        let turn = self.live.clone().try_acquire_owned().ok()?;
        let (pieces, mut heard) = mpsc::channel(WAITING);
        let (words_sender, words) = watch::channel(String::new());
        let (answer_sender, answer) = oneshot::channel();
        let (ears, place, language) = (self.clone(), place.clone(), self.language(language).map(str::to_owned));
        tokio::spawn(async move {
            let heard = ears.hear_live(&place, language.as_deref(), most_bytes, &mut heard, &words_sender).await;
            drop(turn);
            if let Some(heard) = heard.transpose() {
                if let Err(error) = &heard {
                    tracing::info!(%error, "the ears hear no longer while a user speaks");
                    ears.server.failed(error);
                }
                let _ = answer_sender.send(heard);
            }
        });
        Some(LiveHearing { ears: self.clone(), pieces, words, answer })
    }

    // `None`: the utterance was dropped.
    async fn hear_live(
        &self,
        place: &str,
        language: Option<&str>,
        most_bytes: usize,
        heard: &mut mpsc::Receiver<Option<Vec<i16>>>,
        words: &watch::Sender<String>,
    ) -> Result<Option<HeardWords>, Error> {
        let mut request = WyomingCall::connect(&self.server, place).await?;
        begin(&mut request, language).await?;
        loop {
            tokio::select! {
                piece = heard.recv() => match piece {
                    Some(Some(samples)) => {
                        for piece in samples.chunks(PIECE) {
                            request.send_audio(HEARD_RATE, piece).await?;
                        }
                    }
                    Some(None) => break,
                    None => return Ok(None),
                },
                event = request.event() => {
                    let (event, _) = event?;
                    match event.kind.as_str() {
                        "transcript-chunk" => {
                            let text = event.data.get("text").and_then(Value::as_str).unwrap_or_default();
                            if words.borrow().len() + text.len() > most_bytes {
                                return Err(self.server.nonsense("more words than an item may have (limits.item_bytes)"));
                            }
                            words.send_modify(|words| words.push_str(text));
                        }
                        "transcript" => return Err(self.server.nonsense("a transcript before the end of the audio")),
                        _ => {}
                    }
                }
            }
        }
        request.send("audio-stop", json!({})).await?;
        let answer = async {
            loop {
                let (event, _) = request.event().await?;
                if event.kind == "transcript" {
                    return transcript(&self.server, &event).map(Some);
                }
            }
        };
        tokio::select! {
            answer = self.server.in_time(answer) => answer?,
            () = words.closed() => Ok(None),
        }
    }
}

#[cfg(test)]
impl Ears {
    pub fn claim_streaming(&self) {
        self.server.set_streaming(true);
    }
}
