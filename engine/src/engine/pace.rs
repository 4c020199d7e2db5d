//! Prompt tokens of a step. A request that comes, or is cancelled, waits for the step's end, so where a token takes
//! long, a step has few of them.

use std::time::Duration;

/// Least prompt tokens of a step: fewer cost hardly less, because it waits for the weights.
const LEAST_TOKENS: usize = 16;
const ALONE: u32 = 4; // factor by which a step may be longer when no other request waits
/// Divisor of a step's time for work that no user waits for, and of a chunk's tokens for background work.
const UNHURRIED_PART: u32 = 4;
/// Divisor of the time that background work has while users talk without a pause.
const BACKGROUND_SHARE: u32 = 9;
const LEARNING: f64 = 1.0 / 4.0; // weight of one step in the measured time of a token

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hurry {
    Alone,  // no other request is as urgent
    Shared, // another one waits, or writes its reply in the same steps
    /// A user may soon wait for it: a request that comes meanwhile should hardly notice it.
    Ahead,
    Background,
}

#[derive(Default)]
pub(super) struct Pace {
    step: Option<Duration>, // time of a shared step; `None`: only the chunk limits a step
    token_s: Option<f64>,
    last: usize,    // prompt tokens of the last step
    time: Duration, // of all steps
    /// Time at which background work has had no more than its share. `None`: its duration is unknown.
    background_due: Option<Duration>,
}

impl Pace {
    pub fn new(step: Option<Duration>) -> Pace {
        Pace { step, ..Pace::default() }
    }

    pub fn tokens(&self, chunk: usize, hurry: Hurry) -> usize {
        let most = if hurry == Hurry::Background { (chunk / UNHURRIED_PART as usize).max(1) } else { chunk };
        let (Some(step), Some(token_s)) = (self.step, self.token_s) else { return most };
        let step = match hurry {
            Hurry::Alone => step * ALONE,
            Hurry::Shared => step,
            Hurry::Ahead | Hurry::Background => step / UNHURRIED_PART,
        };
        ((step.as_secs_f64() / token_s) as usize).max(LEAST_TOKENS).min(most)
    }

    pub fn begin(&mut self, tokens: usize) {
        self.last = tokens;
    }

    pub fn begin_background(&mut self, tokens: usize) {
        if tokens > 0 {
            let takes = self.token_s.map(|token_s| Duration::from_secs_f64(token_s * tokens as f64));
            self.background_due = takes.map(|takes| self.time + takes * BACKGROUND_SHARE);
        }
    }

    pub fn background_is_due(&self) -> bool {
        self.background_due.is_some_and(|due| due <= self.time)
    }

    pub fn took(&mut self, time: Duration) {
        self.time += time;
        if self.last >= LEAST_TOKENS {
            let now = time.as_secs_f64() / self.last as f64;
            let known = self.token_s.get_or_insert(now);
            *known += LEARNING * (now - *known);
        }
        self.last = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_millis(200);

    fn measured(step: Option<Duration>, tokens: usize, ms: u64) -> Pace {
        let mut pace = Pace::new(step);
        pace.begin(tokens);
        pace.took(Duration::from_millis(ms));
        pace
    }

    fn all(pace: &Pace) -> [usize; 4] {
        [Hurry::Alone, Hurry::Shared, Hurry::Ahead, Hurry::Background].map(|hurry| pace.tokens(256, hurry))
    }

    #[test]
    fn a_step_takes_as_long_as_it_may() {
        assert_eq!(all(&Pace::new(Some(STEP))), [256, 256, 256, 64], "nothing is measured");
        assert_eq!(all(&measured(None, 256, 4000)), [256, 256, 256, 64], "there is no limit");
        assert_eq!(all(&measured(Some(STEP), 256, 25)), [256, 256, 256, 64], "a GPU");
        assert_eq!(all(&measured(Some(STEP), 256, 384)), [256, 133, 33, 33], "a small model");
        assert_eq!(all(&measured(Some(STEP), 256, 4096)), [50, 16, 16, 16], "a large one");
        assert_eq!(Pace::new(Some(STEP)).tokens(2, Hurry::Background), 1);
    }

    #[test]
    fn work_in_the_background_has_its_share_of_the_time() {
        let mut pace = Pace::new(Some(STEP));
        pace.begin_background(10);
        pace.took(STEP);
        assert!(!pace.background_is_due(), "how long it takes is not known");
        // A token takes 2 ms.
        let mut pace = measured(Some(STEP), 100, 200);
        let (mut all, mut had) = (Duration::ZERO, Duration::ZERO);
        for step in 0..1000 {
            let tokens = if step % 3 == 0 { 1 } else { 40 };
            let mut time = Duration::from_millis(30);
            if step == 0 || pace.background_is_due() {
                let takes = Duration::from_millis(2 * tokens);
                pace.begin_background(tokens as usize);
                (time, had) = (time + takes, had + takes);
            }
            pace.took(time);
            all += time;
        }
        let share = had.as_secs_f64() / all.as_secs_f64();
        assert!((0.08..0.112).contains(&share), "{share}");
    }

    #[test]
    fn a_step_with_few_tokens_says_nothing_and_one_slow_step_little() {
        let mut pace = measured(Some(STEP), 100, 100);
        pace.begin(3);
        pace.took(Duration::from_secs(1));
        pace.took(Duration::from_secs(1));
        assert_eq!(pace.tokens(256, Hurry::Shared), 200);
        pace.begin(100);
        pace.took(Duration::from_millis(500));
        assert_eq!(pace.tokens(256, Hurry::Shared), 100);
    }
}
