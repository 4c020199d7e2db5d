//! Memory and processor time of sockets with audio.

use super::microphone::{PIECE_MS, PacedMicrophone, RATE, append, piece_samples};
use super::{SpeechBench, SpeechRow};
use crate::dice::Dice;
use anyhow::Result;
use serde_json::Value;
use speech::{samples_of, vowel};
use std::time::{Duration, Instant};

// Loudest sample of a quiet room.
const ROOM: i16 = 14;
const SETTLE: Duration = Duration::from_secs(1);

struct SocketCost {
    // Share of a core.
    cpu: Option<f64>,
    memory_bytes: Option<f64>,
}

impl SpeechBench<'_> {
    pub async fn sockets(&self) -> Result<Vec<SpeechRow>> {
        self.stand_ins.reply("It is warm.", true);
        let before = self.settled().await;
        let mut microphones = Vec::new();
        for _ in 0..self.args.sockets {
            microphones.push(PacedMicrophone::connect(self).await?);
        }
        let off = self.look(&mut microphones, before, &[]).await?;
        let quiet = self.look(&mut microphones, before, &pieces(&vec![0; samples_of(1000, RATE) as usize])).await?;
        let room = self.look(&mut microphones, before, &pieces(&room_noise())).await?;
        let talk = [vowel(RATE, 1200), room_noise(), room_noise()].concat();
        let talk = self.look(&mut microphones, before, &pieces(&talk)).await?;
        for microphone in microphones {
            microphone.client.close().await;
        }
        let mut rows = Vec::new();
        for (what, cost, is_silent) in [
            ("a socket that sends nothing", off, true),
            ("a socket whose microphone is muted", quiet, true),
            ("a socket in a quiet room", room, true),
            ("a socket whose user talks", talk, false),
        ] {
            let kib = SpeechRow::of(what, "KiB", cost.memory_bytes.map(|bytes| bytes / 1024.0));
            let cpu = SpeechRow::of(what, "% of a core", cost.cpu.map(|share| share * 100.0));
            rows.extend(if is_silent { [kib.at_most(100.0), cpu.at_most(0.2)] } else { [kib, cpu] });
        }
        Ok(rows)
    }

    /// Lets every microphone send these pieces again and again.
    async fn look(
        &self,
        microphones: &mut [PacedMicrophone],
        before: Option<u64>,
        pieces: &[Value],
    ) -> Result<SocketCost> {
        let (sockets, time) = (microphones.len() as f64, Duration::from_secs_f64(self.args.seconds));
        tokio::time::sleep(SETTLE).await;
        let (begin, cpu) = (Instant::now(), self.service.cpu());
        let mut memory: Option<u64> = None;
        for number in 0_u32.. {
            if begin.elapsed() >= time {
                break;
            }
            for microphone in microphones.iter_mut() {
                if let Some(piece) = pieces.get(number as usize % pieces.len().max(1)) {
                    microphone.client.say(piece.clone()).await?;
                }
                while microphone.client.next_within(Duration::ZERO).await?.is_some() {}
            }
            if number % 10 == 0 {
                memory = memory.max(self.service.memory().map(|memory| memory.anonymous_bytes));
            }
            tokio::time::sleep_until((begin + Duration::from_millis(PIECE_MS) * (number + 1)).into()).await;
        }
        let (took, cpu) = (begin.elapsed().as_secs_f64(), self.service.cpu().zip(cpu));
        let share = |(after, before): (Duration, Duration)| after.saturating_sub(before).as_secs_f64() / took / sockets;
        let bytes = |(after, before): (u64, u64)| (after as f64 - before as f64) / sockets;
        Ok(SocketCost { cpu: cpu.map(share), memory_bytes: memory.zip(before).map(bytes) })
    }

    async fn settled(&self) -> Option<u64> {
        tokio::time::sleep(SETTLE).await;
        self.service.memory().map(|memory| memory.anonymous_bytes)
    }
}

fn pieces(samples: &[i16]) -> Vec<Value> {
    samples.chunks(piece_samples()).map(append).collect()
}

fn room_noise() -> Vec<i16> {
    let mut dice = Dice(1);
    (0..samples_of(1000, RATE)).map(|_| dice.below(2 * ROOM as usize + 1) as i16 - ROOM).collect()
}
