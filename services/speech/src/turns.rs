//! Begin and end of what a user says, from scores of a detector of voice.

use crate::meaning::TurnEnding;
use crate::{HEARD_RATE, samples_of};

/// Samples of one score.
pub const FRAME: usize = 256; // not a window: samples at 16,000 a second

// Frames in a row that begin a turn: a click or a door is shorter.
const BEGINS: u32 = 3;
// A frame with this much less than the threshold is silence.
const RELEASE: f32 = 0.15;

/// Silence that ends a turn, by what the words so far look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TurnWaits {
    pub finished_ms: u64,
    pub unknown_ms: u64,
    pub open_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Detection {
    /// Score from which a frame is voice, 0 to 1.
    pub threshold: f32,
    /// Audio before the first voice that belongs to the turn: without it the first sound is lost.
    pub prefix_ms: u64,
    pub waits: TurnWaits,
    /// Silence after which the words so far are worth a look. `None`: never.
    pub pause_ms: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TurnEvent<Audio> {
    // A user speaks. The turn begins at this sample, its prefix included.
    Began { start: u64 },
    // Silence, which may be the turn's end.
    Paused { so_far: Audio },
    // The silence was none.
    Resumed,
    // The turn's audio with its silence.
    Ended { turn: Audio },
}

#[derive(Clone, Debug)]
pub struct TurnDetector {
    detection: Detection,
    // Place behind the last frame.
    at: u64,
    // Place before which nothing belongs to a next turn.
    free_from: u64,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Silent { voiced: u32 },
    Speaking { start: u64, voiced_until: u64, ending: Option<TurnEnding>, is_paused: bool },
}

/// Step of a turn, in places of samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    None,
    Began { start: u64 },
    Paused { start: u64, end: u64 },
    Resumed,
    Ended { start: u64, end: u64 },
}

impl Detection {
    /// Turns that end after the same silence whatever was said.
    pub fn silence(threshold: f32, prefix_ms: u64, silence_ms: u64) -> Detection {
        let waits = TurnWaits { finished_ms: silence_ms, unknown_ms: silence_ms, open_ms: silence_ms };
        Detection { threshold, prefix_ms, waits, pause_ms: None }
    }

    pub fn prefix(&self) -> u64 {
        samples_of(self.prefix_ms, HEARD_RATE)
    }
}

impl TurnDetector {
    pub fn new(detection: Detection, at: u64) -> TurnDetector {
        TurnDetector { detection, at, free_from: at, state: State::Silent { voiced: 0 } }
    }

    pub fn detection(&self) -> &Detection {
        &self.detection
    }

    /// Changes the detection; a turn that has begun goes on.
    pub fn set(&mut self, detection: Detection) {
        self.detection = detection;
    }

    pub fn start(&self) -> Option<u64> {
        match self.state {
            State::Silent { .. } => None,
            State::Speaking { start, .. } => Some(start),
        }
    }

    pub fn frame(&mut self, score: f32) -> Step {
        self.at += FRAME as u64;
        let at = self.at;
        let is_voice = score >= self.detection.threshold;
        match &mut self.state {
            State::Silent { voiced } => {
                *voiced = if is_voice { *voiced + 1 } else { 0 };
                if *voiced < BEGINS {
                    return Step::None;
                }
                let first = at - u64::from(*voiced) * FRAME as u64;
                let start = first.saturating_sub(self.detection.prefix()).max(self.free_from);
                self.state = State::Speaking { start, voiced_until: at, ending: None, is_paused: false };
                Step::Began { start }
            }
            State::Speaking { start, voiced_until, ending, is_paused } => {
                if score >= self.detection.threshold - RELEASE {
                    (*voiced_until, *ending) = (at, None);
                    return if std::mem::take(is_paused) { Step::Resumed } else { Step::None };
                }
                let (start, silence) = (*start, at - *voiced_until);
                let ended = self.end_of_silence();
                if ended != Step::None {
                    return ended;
                }
                let pause = self.detection.pause_ms.map(|ms| samples_of(ms, HEARD_RATE));
                if let State::Speaking { is_paused, .. } = &mut self.state
                    && !*is_paused
                    && pause.is_some_and(|pause| silence >= pause)
                {
                    *is_paused = true;
                    return Step::Paused { start, end: at };
                }
                Step::None
            }
        }
    }

    /// Tells what the words of the pause look like. Voice since then makes it void. Where the silence is long enough for
    /// such words, the turn ends at once.
    pub fn judge(&mut self, found: TurnEnding) -> Step {
        match &mut self.state {
            State::Speaking { ending, is_paused: true, .. } => *ending = Some(found),
            _ => return Step::None,
        }
        self.end_of_silence()
    }

    // Ends the turn if its silence is long enough.
    fn end_of_silence(&mut self) -> Step {
        let State::Speaking { start, voiced_until, ending, .. } = self.state else { return Step::None };
        let waits = self.detection.waits;
        let wait_ms = match ending {
            Some(TurnEnding::Finished) => waits.finished_ms,
            Some(TurnEnding::Open) => waits.open_ms,
            Some(TurnEnding::Unknown) => waits.unknown_ms,
            // The words may still be looked at.
            None if self.detection.pause_ms.is_some() => waits.open_ms,
            None => waits.unknown_ms,
        };
        let wait = samples_of(wait_ms, HEARD_RATE);
        if self.at - voiced_until < wait {
            return Step::None;
        }
        let end = voiced_until + wait;
        (self.state, self.free_from) = (State::Silent { voiced: 0 }, end);
        Step::Ended { start, end }
    }

    /// Ends the turn here, if there is one; what came before belongs to no other.
    pub fn cut(&mut self) -> Option<(u64, u64)> {
        let start = self.start();
        (self.state, self.free_from) = (State::Silent { voiced: 0 }, self.at);
        start.map(|start| (start, self.at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = HEARD_RATE as u64 / 1000;

    fn steps(detector: &mut TurnDetector, scores: impl IntoIterator<Item = f32>) -> Vec<Step> {
        scores.into_iter().map(|score| detector.frame(score)).filter(|step| *step != Step::None).collect()
    }

    fn frames(ms: u64) -> usize {
        (ms * MS / FRAME as u64) as usize
    }

    #[test]
    fn a_turn_has_its_prefix_and_its_silence() {
        let mut detector = TurnDetector::new(Detection::silence(0.5, 300, 480), 0);
        let scores = [vec![0.1; frames(960)], vec![0.9; frames(800)], vec![0.0; frames(960)]].concat();
        let (start, end) = (660 * MS, (960 + 800 + 480) * MS);
        assert_eq!(steps(&mut detector, scores), [Step::Began { start }, Step::Ended { start, end }]);
        // The next turn takes nothing of this one.
        let next = steps(&mut detector, vec![0.9; 3]);
        assert_eq!(next, [Step::Began { start: (960 + 800 + 960 - 300) * MS }]);
    }

    #[test]
    fn a_click_is_no_turn_and_a_breath_no_end() {
        let mut detector = TurnDetector::new(Detection::silence(0.5, 0, 500), 0);
        assert_eq!(steps(&mut detector, [0.9, 0.9, 0.1, 0.9, 0.9, 0.0]), []);
        assert!(matches!(steps(&mut detector, [0.9; 3])[..], [Step::Began { .. }]));
        let murmur = [vec![0.0; frames(400)], vec![0.4], vec![0.0; frames(400)]].concat();
        assert_eq!(steps(&mut detector, murmur), []);
        assert!(matches!(steps(&mut detector, vec![0.0; frames(200)])[..], [Step::Ended { .. }]));
    }

    #[test]
    fn words_decide_how_long_a_silence_is_waited_for() {
        let waits = TurnWaits { finished_ms: 320, unknown_ms: 960, open_ms: 3200 };
        let detection = Detection { threshold: 0.5, prefix_ms: 0, waits, pause_ms: Some(160) };
        for (ending, wait_ms) in [
            (Some(TurnEnding::Finished), 320),
            (Some(TurnEnding::Unknown), 960),
            (Some(TurnEnding::Open), 3200),
            (None, 3200),
        ] {
            let mut detector = TurnDetector::new(detection, 0);
            steps(&mut detector, [0.9; 10]);
            assert!(matches!(steps(&mut detector, vec![0.0; frames(160)])[..], [Step::Paused { start: 0, .. }]));
            ending.into_iter().for_each(|ending| assert_eq!(detector.judge(ending), Step::None));
            let silent = (0..).position(|_| matches!(detector.frame(0.0), Step::Ended { .. })).unwrap() + 1;
            assert_eq!(silent + frames(160), frames(wait_ms), "{ending:?}");
        }
    }

    #[test]
    fn a_late_judgement_ends_the_turn_at_once() {
        let waits = TurnWaits { finished_ms: 320, unknown_ms: 960, open_ms: 3200 };
        let mut detector = TurnDetector::new(Detection { threshold: 0.5, prefix_ms: 0, waits, pause_ms: Some(160) }, 0);
        steps(&mut detector, [vec![0.9; 10], vec![0.0; frames(640)]].concat());
        assert_eq!(detector.judge(TurnEnding::Open), Step::None);
        let (start, end) = (0, 10 * FRAME as u64 + 320 * MS);
        assert_eq!(detector.judge(TurnEnding::Finished), Step::Ended { start, end });
        assert_eq!((detector.start(), detector.judge(TurnEnding::Finished)), (None, Step::None));
    }

    #[test]
    fn voice_makes_a_judgement_void() {
        let waits = TurnWaits { finished_ms: 320, unknown_ms: 960, open_ms: 3200 };
        let mut detector = TurnDetector::new(Detection { threshold: 0.5, prefix_ms: 0, waits, pause_ms: Some(160) }, 0);
        steps(&mut detector, [vec![0.9; 10], vec![0.0; frames(160)]].concat());
        assert_eq!(detector.judge(TurnEnding::Finished), Step::None);
        assert_eq!(steps(&mut detector, [0.9]), [Step::Resumed]);
        assert_eq!(detector.judge(TurnEnding::Finished), Step::None); // too late
        let quiet = steps(&mut detector, vec![0.0; frames(800)]);
        assert!(matches!(quiet[..], [Step::Paused { .. }]), "{quiet:?}");
    }

    proptest! {
        // Turns lie one behind the other, and each has begun before it ends.
        #[test]
        fn turns_never_overlap(scores in prop::collection::vec((0.0_f32..1.0, 1_usize..60), 0..60), prefix in 0_u64..800, silence in 0_u64..900, cuts in any::<bool>()) {
            let mut detector = TurnDetector::new(Detection::silence(0.5, prefix, silence), 0);
            let (mut last, mut open) = (0, None);
            for (score, count) in scores {
                for _ in 0..count {
                    match detector.frame(score) {
                        Step::Began { start } => {
                            prop_assert!(open.is_none() && start >= last && start < detector.at);
                            open = Some(start);
                        }
                        Step::Ended { start, end } => {
                            prop_assert_eq!(open.take(), Some(start));
                            prop_assert!(end > start && end <= detector.at);
                            last = end;
                        }
                        Step::None | Step::Paused { .. } | Step::Resumed => {}
                    }
                }
                if cuts && count == 7 && let Some((start, end)) = detector.cut() {
                    prop_assert_eq!(open.take(), Some(start));
                    last = end;
                }
            }
        }
    }
}
