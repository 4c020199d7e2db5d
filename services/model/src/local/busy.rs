//! Recent load of the engine by waiting users, whom speculative work would delay.

use std::time::{Duration, Instant};

/// Time constant: older steps hardly count.
const MEMORY: Duration = Duration::from_secs(5);

pub(super) struct Busy {
    /// Share of the time until `seen` in which users waited for a step.
    share: f64,
    seen: Instant,
}

impl Busy {
    pub fn new(now: Instant) -> Busy {
        Busy { share: 0.0, seen: now }
    }

    /// Counts a step that users waited for. The time since the last one was idle.
    pub fn waited(&mut self, began: Instant, ended: Instant) {
        let before = self.share(began);
        let lasts = lasting(ended.saturating_duration_since(began.max(self.seen)));
        (self.share, self.seen) = (before * lasts + 1.0 - lasts, ended.max(self.seen));
    }

    pub fn share(&self, now: Instant) -> f64 {
        self.share * lasting(now.saturating_duration_since(self.seen))
    }
}

fn lasting(time: Duration) -> f64 {
    (-time.as_secs_f64() / MEMORY.as_secs_f64()).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs steps of 15 ms for `seconds`, `waited` of a hundred for users.
    fn after(busy: &mut Busy, seconds: u64, waited: u64) -> f64 {
        let begin = busy.seen;
        let step = Duration::from_millis(15);
        let steps = seconds * 1000 / 15;
        for at in 0..steps {
            let began = begin + step * at as u32;
            if at * 37 % 100 < waited {
                busy.waited(began, began + step);
            }
        }
        busy.share(begin + step * steps as u32)
    }

    #[test]
    fn it_is_the_share_of_the_last_seconds() {
        let near = |found: f64, expected: f64| (found - expected).abs() < 0.05;
        let mut busy = Busy::new(Instant::now());
        assert_eq!(busy.share(busy.seen), 0.0);
        for waited in [100, 50, 0, 20, 100, 0] {
            let found = after(&mut busy, 30, waited);
            assert!(near(found, waited as f64 / 100.0), "{found} of {waited}");
            let later = busy.seen + Duration::from_secs(60);
            assert!(busy.share(later) < 0.01, "no user waited for a minute");
        }
        // A reply of a second after a silence is not much.
        let mut busy = Busy::new(Instant::now());
        let found = after(&mut busy, 1, 100);
        assert!((0.1..0.25).contains(&found), "{found}");
    }

    #[test]
    fn clocks_that_stand_still_or_go_back_change_nothing() {
        let now = Instant::now();
        let mut busy = Busy::new(now);
        busy.waited(now, now);
        busy.waited(now + MEMORY, now);
        assert_eq!((busy.share(now), busy.seen), (0.0, now));
    }
}
