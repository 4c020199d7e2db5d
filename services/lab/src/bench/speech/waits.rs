use super::microphone::{PacedMicrophone, RATE};
use super::stand_ins::StandInKind;
use super::{SpeechBench, SpeechRow};
use anyhow::{Context, Result};
use speech::{samples_of, vowel};
use std::ops::Range;
use std::time::{Duration, Instant};

const REPLY: &str = "It is quite warm today. It stays so until the evening.";
// Words of a reply that is still being spoken when the user speaks over it.
const LONG_WORDS: usize = 300;
const UTTERANCE_MS: u64 = 900;
// Prefix of the default turn detection, and the three frames of voice that begin a turn.
const CERTAIN_MS: u64 = 300 + 48;

#[derive(Default)]
struct SpokenTurnTimes {
    stopped: Vec<f64>,
    committed: Vec<f64>,
    words: Vec<f64>,
    audio: Vec<f64>,
    ears: Vec<f64>,
    model: Vec<f64>,
    voice: Vec<f64>,
    own: Vec<f64>,
}

impl SpeechBench<'_> {
    pub async fn turns(&self) -> Result<Vec<SpeechRow>> {
        self.stand_ins.reply(REPLY, true);
        let mut microphone = PacedMicrophone::connect(self).await?;
        let mut turns = SpokenTurnTimes::default();
        // The first turn opens what later ones find open.
        for turn in 0..=self.args.turns {
            self.turn(&mut microphone, (turn > 0).then_some(&mut turns)).await?;
        }
        microphone.client.close().await;
        let row = |what: &str, values: Vec<f64>| SpeechRow::of(what, "ms", values);
        Ok(vec![
            row("end of speech to the end of the silence that ends a turn", turns.stopped),
            row("from there to committed", turns.committed),
            row("from there to the transcript", turns.words),
            row("from there to the first audio", turns.audio),
            row("of it the ears", turns.ears),
            row("of it the model", turns.model),
            row("of it the voice", turns.voice),
            row("of it ours", turns.own).at_most(60.0),
        ])
    }

    async fn turn(&self, microphone: &mut PacedMicrophone, turns: Option<&mut SpokenTurnTimes>) -> Result<()> {
        microphone.hear(&vec![0; samples_of(700, RATE) as usize]).await?;
        microphone.arrivals.clear();
        drop(self.stand_ins.taken());
        microphone.hear(&vowel(RATE, UTTERANCE_MS)).await?;
        let spoken = Instant::now();
        microphone.silent_until("response.output_audio.delta").await?;
        microphone.silent_until("response.done").await?;
        let stopped = microphone.arrival("input_audio_buffer.speech_stopped")?;
        let window = microphone.sent_at(stopped.event["audio_end_ms"].as_u64().context("a place")?)?;
        let at = |kind: &str| microphone.arrival(kind).map(|arrival| arrival.at);
        let audio = at("response.output_audio.delta")?;
        let taken = self.stand_ins.taken();
        let of = |stand_in: StandInKind| {
            let spans = taken.iter().filter(|(which, _)| *which == stand_in).map(|(_, span)| span.clone());
            covered(spans.collect(), &(window..audio))
        };
        let all = covered(taken.iter().map(|(_, span)| span.clone()).collect(), &(window..audio));
        if let Some(turns) = turns {
            let since = |at: Instant| ms(at.saturating_duration_since(window));
            turns.stopped.push(ms(window.saturating_duration_since(spoken)));
            turns.committed.push(since(at("input_audio_buffer.committed")?));
            turns.words.push(since(at("conversation.item.input_audio_transcription.completed")?));
            turns.audio.push(since(audio));
            turns.ears.push(ms(of(StandInKind::Ears)));
            turns.model.push(ms(of(StandInKind::Model)));
            turns.voice.push(ms(of(StandInKind::Voice)));
            turns.own.push(since(audio) - ms(all));
        }
        Ok(())
    }

    pub async fn barge_ins(&self) -> Result<Vec<SpeechRow>> {
        let (mut started, mut silent) = (Vec::new(), Vec::new());
        for _ in 0..self.args.turns {
            self.stand_ins.reply(&"It is warm. ".repeat(LONG_WORDS / 3), true);
            let mut microphone = PacedMicrophone::connect(self).await?;
            microphone.hear(&vowel(RATE, UTTERANCE_MS)).await?;
            microphone.silent_until("response.output_audio.delta").await?;
            microphone.hear(&vec![0; samples_of(700, RATE) as usize]).await?;
            microphone.arrivals.clear();
            microphone.hear(&vowel(RATE, 400)).await?;
            microphone.silent_until("response.done").await?;
            let begun = microphone.arrival("input_audio_buffer.speech_started")?;
            let start = begun.event["audio_start_ms"].as_u64().context("a place")?;
            let certain = microphone.sent_at(start + CERTAIN_MS)?;
            let since = |at: Instant| ms(at.saturating_duration_since(certain));
            let kind = "response.output_audio.delta";
            let last = microphone.arrivals.iter().rfind(|arrival| arrival.event["type"] == kind);
            started.push(since(begun.at));
            silent.push(last.map_or(0.0, |last| since(last.at)));
            microphone.client.close().await;
        }
        Ok(vec![
            SpeechRow::of("barge-in: certain speech to speech_started", "ms", started).at_most(60.0),
            SpeechRow::of("barge-in: certain speech to the last audio", "ms", silent).at_most(60.0),
        ])
    }
}

/// Returns the part of `of` in which at least one of the spans ran.
fn covered(mut spans: Vec<Range<Instant>>, of: &Range<Instant>) -> Duration {
    spans.sort_by_key(|span| span.start);
    let (mut sum, mut until) = (Duration::ZERO, of.start);
    for span in spans {
        let (from, end) = (span.start.max(until), span.end.min(of.end));
        sum += end.saturating_duration_since(from);
        until = until.max(end);
    }
    sum
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_that_two_take_counts_once() {
        let begin = Instant::now();
        let at = |ms: u64| begin + Duration::from_millis(ms);
        let spans = vec![at(30)..at(50), at(0)..at(20), at(40)..at(70), at(90)..at(95)];
        assert_eq!(covered(spans.clone(), &(at(10)..at(60))), Duration::from_millis(10 + 30));
        assert_eq!(covered(spans, &(at(0)..at(200))), Duration::from_millis(20 + 40 + 5));
        assert_eq!(covered(Vec::new(), &(at(0)..at(9))), Duration::ZERO);
    }
}
