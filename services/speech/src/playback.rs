//! Clock of a client's loudspeaker: a client plays what it gets at once, and stands still where it has nothing.

/// Audio of one item as it was sent. Times are the caller's milliseconds.
#[derive(Clone, Debug, Default)]
pub struct Playback {
    // Pieces without a gap: the position of each in the audio, and the time at which its sound begins.
    stretches: Vec<(u64, u64)>,
    sent_ms: u64,
    ends_at: u64,
}

impl Playback {
    /// Counts audio that was sent at `now`, up to `sent_ms` in all. The first begins at `not_before`, when the client
    /// has played what came before it.
    pub fn sent(&mut self, now: u64, not_before: u64, sent_ms: u64) {
        let begins_at = self.ends_at.max(now).max(if self.stretches.is_empty() { not_before } else { 0 });
        if self.stretches.is_empty() || begins_at > self.ends_at {
            self.stretches.push((self.sent_ms, begins_at));
        }
        let more = sent_ms.saturating_sub(self.sent_ms);
        (self.sent_ms, self.ends_at) = (self.sent_ms + more, begins_at + more);
    }

    // Stops it: what the client has not played by now, it never plays.
    pub fn stop(&mut self, now: u64) {
        self.ends_at = self.ends_at.min(now);
    }

    pub fn sent_ms(&self) -> u64 {
        self.sent_ms
    }

    /// Time at which the client has played all. 0: nothing was sent.
    pub fn ends_at(&self) -> u64 {
        self.ends_at
    }

    /// Milliseconds that the client has played at most. It hears later than the audio was sent, and never sooner.
    pub fn played_ms(&self, now: u64) -> u64 {
        let now = now.min(self.ends_at);
        let current = self.stretches.iter().rfind(|(_, begins_at)| *begins_at <= now);
        let Some((position, begins_at)) = current else { return 0 };
        let next = self.stretches.iter().find(|(_, begins_at)| *begins_at > now);
        let end = next.map_or(self.sent_ms, |(position, _)| *position);
        (position + (now - begins_at)).min(end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_loudspeaker_waits_where_it_has_nothing() {
        let mut playback = Playback::default();
        assert_eq!((playback.played_ms(5), playback.ends_at()), (0, 0));
        playback.sent(1000, 0, 500);
        playback.sent(1100, 0, 800);
        assert_eq!([900, 1000, 1400, 1800, 2500].map(|now| playback.played_ms(now)), [0, 0, 400, 800, 800]);
        playback.sent(2000, 0, 1000);
        assert_eq!([1900, 2000, 2100, 9000].map(|now| playback.played_ms(now)), [800, 800, 900, 1000]);
        let mut behind = Playback::default();
        behind.sent(100, 700, 300);
        assert_eq!(([600, 800].map(|now| behind.played_ms(now)), behind.ends_at()), ([0, 100], 1000));
        behind.stop(850);
        assert_eq!(([800, 850, 9000].map(|now| behind.played_ms(now)), behind.ends_at()), ([100, 150, 150], 850));
    }

    proptest! {
        #[test]
        fn it_never_runs_back_or_ahead(pieces in prop::collection::vec((0_u64..400, 0_u64..400), 0..20), step in 1_u64..90) {
            let (mut playback, mut now, mut sent) = (Playback::default(), 0, 0);
            for (wait, more) in pieces {
                (now, sent) = (now + wait, sent + more);
                playback.sent(now, 0, sent);
                prop_assert!(playback.played_ms(now) <= sent);
            }
            let mut last = 0;
            for at in (0..=playback.ends_at()).step_by(step as usize) {
                let played = playback.played_ms(at);
                prop_assert!(played >= last && played <= at.min(sent));
                last = played;
            }
            prop_assert_eq!(playback.played_ms(playback.ends_at()), sent);
        }
    }
}
