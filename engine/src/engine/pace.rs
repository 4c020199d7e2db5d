//! How many tokens of a prompt a step takes. A request that comes, or is cancelled, waits for the step's end, so where a token
//! takes long, a step has few of them.

use std::time::Duration;

/// Fewer tokens cost a step hardly less: it waits for the weights.
const LEAST_TOKENS: usize = 16;
/// What no other request waits beside may take so many times as long.
const ALONE: u32 = 4;
/// What no user waits for takes such a part of a step's time, and work in the background of a chunk's tokens.
const UNHURRIED_PART: u32 = 4;
/// While users talk without a pause, work in the background has one part of the time in so many.
const BACKGROUND_SHARE: u32 = 9;
/// How much one step changes what a token is known to take.
const LEARNING: f64 = 1.0 / 4.0;

/// For which request a step has tokens of a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hurry {
    /// No other request is as urgent.
    Alone,
    /// Another one waits, or writes its reply in the same steps.
    Shared,
    /// It may soon be waited for: a request that comes meanwhile should hardly notice it.
    Ahead,
    Background,
}

#[derive(Default)]
pub(super) struct Pace {
    /// Of a step that is shared. None: only the chunk limits a step.
    step: Option<Duration>,
    token_s: Option<f64>,
    /// Prompt tokens of the last step.
    last: usize,
    /// Of all steps.
    time: Duration,
    /// When work in the background has had no more than its share. None: how long it takes is not known.
    background_due: Option<Duration>,
}

impl Pace {
    pub fn new(step: Option<Duration>) -> Pace {
        Pace { step, ..Pace::default() }
    }

    /// The most prompt tokens of a step.
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

    /// A step begins with so many tokens of prompts.
    pub fn begin(&mut self, tokens: usize) {
        self.last = tokens;
    }

    /// A step begins with so many tokens of work in the background.
    pub fn begin_background(&mut self, tokens: usize) {
        if tokens > 0 {
            let takes = self.token_s.map(|token_s| Duration::from_secs_f64(token_s * tokens as f64));
            self.background_due = takes.map(|takes| self.time + takes * BACKGROUND_SHARE);
        }
    }

    pub fn background_is_due(&self) -> bool {
        self.background_due.is_some_and(|due| due <= self.time)
    }

    /// The last step took so long.
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
