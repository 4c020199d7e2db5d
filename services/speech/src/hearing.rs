//! Audio of one microphone: what is kept of it, and the turns in it.

use crate::meaning::TurnEnding;
use crate::turns::{Detection, FRAME, Step, TurnDetector, TurnEvent};
use crate::{HEARD_RATE, ms_of};
use earshot::Detector;
use std::collections::VecDeque;

/// A stretch of audio with its places, at the rate of all that is heard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeardAudio {
    pub samples: Vec<i16>,
    pub start: u64,
}

pub struct Hearing {
    turns: Option<Turns>,
    kept: VecDeque<i16>,
    // Place of the first kept sample.
    first: u64,
    most: usize,
}

struct Turns {
    detector: TurnDetector,
    voice: Box<Detector>,
    // Samples that are no whole frame yet.
    unframed: Vec<i16>,
    // Frames of nothing at all so far, up to the detector's memory.
    blank: u32,
}

// Loudest sample of a frame in which nothing can be heard, under a thousandth of the loudest there is: a spoken sentence as
// quiet gets a score of at most 0.49, and one with 64 is heard.
const BLANK: u16 = 24;
// Blank frames after which the detector of voice remembers no others.
const FORGETS: u32 = 8;

impl HeardAudio {
    pub fn start_ms(&self) -> u64 {
        ms_of(self.start, HEARD_RATE)
    }

    pub fn end(&self) -> u64 {
        self.start + self.samples.len() as u64
    }

    pub fn end_ms(&self) -> u64 {
        ms_of(self.end(), HEARD_RATE)
    }

    pub fn ms(&self) -> u64 {
        ms_of(self.samples.len() as u64, HEARD_RATE)
    }
}

impl Hearing {
    /// Hears with turns. `most`: samples of the longest turn.
    pub fn new(detection: Detection, most: u64) -> Hearing {
        let mut hearing = Hearing::by_hand(most);
        hearing.detect(Some(detection));
        hearing
    }

    /// Keeps the newest `most` samples until they are taken.
    pub fn by_hand(most: u64) -> Hearing {
        let most = usize::try_from(most).unwrap_or(usize::MAX).max(FRAME);
        Hearing { turns: None, kept: VecDeque::new(), first: 0, most }
    }

    /// Changes the detection of turns; `None`: turns are taken by hand.
    pub fn detect(&mut self, detection: Option<Detection>) {
        match (detection, &mut self.turns) {
            (None, _) => self.turns = None,
            (Some(detection), Some(turns)) => turns.detector.set(detection),
            (Some(detection), None) => {
                let detector = TurnDetector::new(detection, self.heard());
                self.turns = Some(Turns { detector, voice: Detector::default_boxed(), unframed: Vec::new(), blank: 0 });
                self.first = self.heard();
                self.kept.clear();
            }
        }
    }

    pub fn hear(&mut self, samples: &[i16]) -> Vec<TurnEvent<HeardAudio>> {
        let mut events = Vec::new();
        if self.turns.is_none() {
            let beyond = samples.len().saturating_sub(self.most);
            if beyond > 0 {
                self.first = self.heard() + beyond as u64;
                self.kept.clear();
            }
            self.kept.extend(&samples[beyond..]);
            self.keep(self.most);
            return events;
        }
        let (mut rest, mut paused) = (samples, None);
        while !rest.is_empty() {
            let unframed = self.turns.as_ref().map_or(0, |turns| turns.unframed.len());
            let (piece, more) = rest.split_at((FRAME - unframed).min(rest.len()));
            rest = more;
            let Some(turns) = &mut self.turns else { break };
            if turns.detector.start().is_none() {
                // No doubling: this is all that a silent microphone keeps.
                self.kept.reserve_exact(piece.len());
            }
            self.kept.extend(piece);
            turns.unframed.extend_from_slice(piece);
            let step = turns.step();
            self.follow(step, &mut paused, &mut events);
        }
        if let Some((start, end)) = paused {
            let so_far = self.copy(start, end);
            events.push(TurnEvent::Paused { so_far });
        }
        events
    }

    // `paused`: the pause in which the piece is now. Only one that its end leaves open is told: each has a copy of the turn, and a
    // piece may have hundreds.
    fn follow(&mut self, step: Step, paused: &mut Option<(u64, u64)>, events: &mut Vec<TurnEvent<HeardAudio>>) {
        let Some(turns) = &mut self.turns else { return };
        match step {
            Step::Began { start } => events.push(TurnEvent::Began { start }),
            Step::Resumed => {
                if paused.take().is_none() {
                    events.push(TurnEvent::Resumed);
                }
            }
            Step::Paused { start, end } => *paused = Some((start, end)),
            Step::Ended { start, end } => {
                *paused = None;
                let turn = self.copy(start, end);
                events.push(TurnEvent::Ended { turn });
            }
            // A turn without an end is cut where there is no more room for it.
            Step::None if self.kept.len() >= self.most && turns.detector.start().is_some() => {
                *paused = None;
                if let Some((start, end)) = turns.detector.cut() {
                    let turn = self.copy(start, end);
                    events.push(TurnEvent::Ended { turn });
                }
            }
            Step::None => {}
        }
        let Some(turns) = &self.turns else { return };
        if turns.detector.start().is_none() {
            let wanted = turns.detector.detection().prefix() as usize + 4 * FRAME;
            self.keep(wanted.min(self.most));
        }
    }

    /// Tells what the words of a pause look like, which may end the turn.
    pub fn judge(&mut self, ending: TurnEnding) -> Vec<TurnEvent<HeardAudio>> {
        let mut events = Vec::new();
        if let Some(turns) = &mut self.turns {
            let step = turns.detector.judge(ending);
            self.follow(step, &mut None, &mut events);
        }
        events
    }

    pub fn is_speaking(&self) -> bool {
        self.began().is_some()
    }

    /// Place at which the turn begins that is being said.
    pub fn began(&self) -> Option<u64> {
        self.turns.as_ref().and_then(|turns| turns.detector.start())
    }

    /// Returns a copy of what is kept from this place on.
    pub fn since(&self, place: u64) -> HeardAudio {
        self.copy(place.min(self.heard()), self.heard())
    }

    /// Takes all that is kept: a turn by hand.
    pub fn take(&mut self) -> HeardAudio {
        if let Some(turns) = &mut self.turns {
            turns.detector.cut();
        }
        let start = self.first;
        self.first = self.heard();
        HeardAudio { samples: std::mem::take(&mut self.kept).into(), start }
    }

    pub fn clear(&mut self) {
        drop(self.take());
    }

    /// Samples since the begin, also those that were let go.
    pub fn heard(&self) -> u64 {
        self.first + self.kept.len() as u64
    }

    pub fn heard_ms(&self) -> u64 {
        ms_of(self.heard(), HEARD_RATE)
    }

    pub fn kept_ms(&self) -> u64 {
        ms_of(self.kept.len() as u64, HEARD_RATE)
    }

    pub fn kept_bytes(&self) -> usize {
        self.kept.capacity() * size_of::<i16>()
    }

    fn copy(&self, start: u64, end: u64) -> HeardAudio {
        let start = start.max(self.first);
        let from = (start - self.first) as usize;
        let until = ((end.max(start) - self.first) as usize).min(self.kept.len());
        HeardAudio { samples: self.kept.range(from.min(until)..until).copied().collect(), start }
    }

    fn keep(&mut self, most: usize) {
        let beyond = self.kept.len().saturating_sub(most);
        self.kept.drain(..beyond);
        self.first += beyond as u64;
        if self.kept.capacity() > 4 * most.max(FRAME) {
            self.kept.shrink_to(2 * most);
        }
    }
}

impl Turns {
    fn step(&mut self) -> Step {
        let Ok(frame) = <&[i16; FRAME]>::try_from(self.unframed.as_slice()) else { return Step::None };
        let is_blank = frame.iter().all(|sample| sample.unsigned_abs() <= BLANK);
        self.blank = if is_blank { self.blank.saturating_add(1) } else { 0 };
        // A microphone that is off or in a quiet room costs nothing.
        let score = if self.blank > FORGETS { 0.0 } else { self.voice.predict_i16(frame) };
        self.unframed.clear();
        self.detector.frame(score)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn vowel(ms: u64) -> Vec<i16> {
        crate::vowel(HEARD_RATE, ms)
    }

    fn silence(ms: u64) -> Vec<i16> {
        vec![0; ms as usize * HEARD_RATE as usize / 1000]
    }

    #[test]
    fn a_voice_is_a_turn_with_all_of_its_audio() {
        let mut hearing = Hearing::new(Detection::silence(0.5, 300, 500), 16_000 * 60);
        let audio = [silence(1000), vowel(900), silence(1500)].concat();
        let events: Vec<_> = audio.chunks(480).flat_map(|piece| hearing.hear(piece)).collect();
        let [TurnEvent::Began { start }, TurnEvent::Ended { turn }] = &events[..] else { panic!("{}", events.len()) };
        assert_eq!(turn.start, *start);
        assert!((600..=760).contains(&turn.start_ms()), "{}", turn.start_ms());
        assert!((2350..=2650).contains(&turn.end_ms()), "{}", turn.end_ms());
        assert_eq!(turn.samples, audio[turn.start as usize..turn.end() as usize]);
        assert_eq!((hearing.heard_ms(), hearing.is_speaking()), (3400, false));
        assert!(hearing.kept_ms() < 400 && hearing.kept_bytes() < 100_000);
        // The whole at once is the same.
        let mut at_once = Hearing::new(Detection::silence(0.5, 300, 500), 16_000 * 60);
        assert_eq!(at_once.hear(&audio), events);
    }

    #[test]
    fn what_is_blank_would_not_be_heard() {
        let mut voice = Detector::default_boxed();
        let sound = vowel(3000);
        let loudest = sound.iter().map(|sample| sample.unsigned_abs()).max().unwrap();
        let quiet = |sample: &i16| (f32::from(*sample) * f32::from(BLANK) / f32::from(loudest)) as i16;
        for frame in sound.as_chunks::<FRAME>().0 {
            assert!(voice.predict_i16(&frame.each_ref().map(quiet)) < 0.5);
        }
    }

    #[test]
    fn a_turn_can_be_followed_while_it_is_said() {
        let mut hearing = Hearing::new(Detection::silence(0.5, 300, 500), 16_000 * 60);
        let audio = [silence(1000), vowel(900), silence(300)].concat();
        let (mut followed, mut until) = (Vec::new(), None);
        for piece in audio.chunks(333) {
            hearing.hear(piece);
            let Some(start) = hearing.began() else { continue };
            let more = hearing.since(until.unwrap_or(start));
            until = Some(more.end());
            followed.extend(more.samples);
        }
        let start = hearing.began().unwrap();
        assert_eq!((until, followed.as_slice()), (Some(hearing.heard()), &audio[start as usize..]));
        assert_eq!(hearing.since(u64::MAX), HeardAudio { samples: vec![], start: hearing.heard() });
    }

    #[test]
    fn many_pauses_in_one_piece_are_one_copy() {
        let detection = Detection { pause_ms: Some(200), ..Detection::silence(0.5, 0, 1000) };
        let mut hearing = Hearing::new(detection, 16_000 * 120);
        let stammer = [vowel(150), silence(400)].concat().repeat(100);
        let events = hearing.hear(&stammer);
        let copied = |event: &TurnEvent<HeardAudio>| match event {
            TurnEvent::Paused { so_far: audio } | TurnEvent::Ended { turn: audio } => audio.samples.len(),
            TurnEvent::Began { .. } | TurnEvent::Resumed => 0,
        };
        assert!(events.iter().any(|event| matches!(event, TurnEvent::Paused { .. })));
        let all: usize = events.iter().map(copied).sum();
        assert!(all <= stammer.len(), "{all} samples of {}", stammer.len());
        // Its own piece makes a pause that is told.
        assert!(matches!(hearing.hear(&vowel(150))[..], [TurnEvent::Resumed]));
    }

    #[test]
    fn a_turn_without_an_end_is_cut() {
        let mut hearing = Hearing::new(Detection::silence(0.5, 0, 500), 16_000);
        let events = hearing.hear(&vowel(2500));
        let turns: Vec<u64> = events
            .iter()
            .filter_map(|event| match event {
                TurnEvent::Ended { turn } => Some(turn.ms()),
                _ => None,
            })
            .collect();
        assert_eq!(turns.len(), 2, "{turns:?}");
        assert!(hearing.kept_bytes() <= 200_000);
    }

    #[test]
    fn by_hand_the_newest_is_kept() {
        let mut hearing = Hearing::by_hand(1000);
        let audio: Vec<i16> = (0..2500).collect();
        audio.chunks(70).for_each(|piece| assert_eq!(hearing.hear(piece), []));
        let turn = hearing.take();
        assert_eq!((turn.start, turn.samples.as_slice()), (1500, &audio[1500..]));
        hearing.hear(&audio);
        hearing.clear();
        assert_eq!((hearing.kept_ms(), hearing.heard()), (0, 5000));
        assert_eq!(hearing.take(), HeardAudio { samples: vec![], start: 5000 });
    }

    proptest! {
        // Holds for any sound: places never run back, and no more is kept than may be.
        #[test]
        fn any_sound_keeps_its_places(pieces in prop::collection::vec((0_usize..3, 0_u64..700), 0..12), cut in 1_usize..2000, by_hand in any::<bool>()) {
            let most = 12_000;
            let mut hearing = if by_hand { Hearing::by_hand(most) } else { Hearing::new(Detection::silence(0.5, 100, 200), most) };
            let mut heard = 0;
            let mut last = 0;
            for (kind, ms) in pieces {
                let audio = match kind { 0 => silence(ms), 1 => vowel(ms), _ => vec![20_000; ms as usize] };
                for piece in audio.chunks(cut) {
                    heard += piece.len() as u64;
                    for event in hearing.hear(piece) {
                        if let TurnEvent::Ended { turn } = event {
                            prop_assert!(turn.start >= last && turn.end() <= heard);
                            last = turn.end();
                        }
                    }
                    prop_assert_eq!(hearing.heard(), heard);
                    prop_assert!(hearing.kept_ms() <= ms_of(most + FRAME as u64, HEARD_RATE));
                }
            }
        }
    }
}
