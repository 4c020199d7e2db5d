//! When what is done about a conversation that fills its window. Pure: it is told what happened and what is so, and says
//! what to do next.
//!
//! ```text
//! Quiet -> Looking -> Making -> Made -> Warming -> Swapping -> Quiet
//! ```
//! Each step begins in the silence. What a person changes under it takes it back to the begin; a turn that comes in between
//! only makes the next step wait.

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flow {
    phase: Phase,
    /// The next silence is worth a look.
    due: bool,
    /// Times the compacted prompt was warmed for this swap.
    warmings: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Quiet,
    Looking,
    Making,
    Made,
    /// With the state of the conversation that is being warmed.
    Warming {
        epoch: u64,
    },
    Swapping,
}

/// What is so at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// A reply is under way.
    pub replying: bool,
    /// The store has all that was said.
    pub settled: bool,
    /// The service stops, or the session is gone.
    pub ending: bool,
    /// Rises with each change of the conversation.
    pub epoch: u64,
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Weigh the conversation and make a plan.
    Look,
    /// Compute the compacted prompt as it would be now.
    Warm,
    /// Put it to use.
    Swap,
}

/// Turns may come while the prompt is warmed. After so many of them it is swapped all the same: what is not warm is short.
const MOST_WARMINGS: u32 = 4;

impl Flow {
    /// `made`: a summary was made before the last start, and is not in use.
    pub fn new(made: bool) -> Flow {
        Flow { phase: if made { Phase::Made } else { Phase::Quiet }, due: false, warmings: 0 }
    }

    /// The conversation may have outgrown its window.
    pub fn look_soon(&mut self) {
        self.due = true;
    }

    /// What to do now, if anything; it counts as begun.
    pub fn next(&mut self, now: Now) -> Option<Act> {
        if now.replying || !now.settled || now.ending {
            return None;
        }
        match self.phase {
            Phase::Quiet if self.due => {
                (self.phase, self.due) = (Phase::Looking, false);
                Some(Act::Look)
            }
            Phase::Made => {
                self.warmings += 1;
                self.phase = Phase::Warming { epoch: now.epoch };
                Some(Act::Warm)
            }
            Phase::Quiet | Phase::Looking | Phase::Making | Phase::Warming { .. } | Phase::Swapping => None,
        }
    }

    /// A summary is worth making, and is being made.
    pub fn making(&mut self) {
        self.phase = Phase::Making;
    }

    /// A view is ready that is smaller.
    pub fn made(&mut self) {
        (self.phase, self.warmings) = (Phase::Made, 0);
    }

    /// It is computed, or cannot be.
    pub fn warmed(&mut self, now: Now) -> Option<Act> {
        let Phase::Warming { epoch } = self.phase else { return None };
        self.phase = Phase::Made;
        let is_warm = epoch == now.epoch || self.warmings >= MOST_WARMINGS;
        if now.replying || !now.settled || now.ending || !is_warm {
            return None;
        }
        self.phase = Phase::Swapping;
        Some(Act::Swap)
    }

    /// There is no room, and nobody waits for anything: the view that is ready is put to use as it is.
    pub fn swap_now(&mut self) -> bool {
        let ready = matches!(self.phase, Phase::Made | Phase::Warming { .. });
        if ready {
            self.phase = Phase::Swapping;
        }
        ready
    }

    /// Over, for better or worse.
    pub fn over(&mut self) {
        (self.phase, self.warmings) = (Phase::Quiet, 0);
    }

    /// What it was about has changed: planned anew in the next silence.
    pub fn start_over(&mut self) {
        self.over();
        self.due = true;
    }

    pub fn is_quiet(&self) -> bool {
        self.phase == Phase::Quiet
    }

    pub fn is_swapping(&self) -> bool {
        self.phase == Phase::Swapping
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SILENCE: Now = Now { replying: false, settled: true, ending: false, epoch: 7 };

    #[test]
    fn from_a_full_window_to_a_swap() {
        let mut flow = Flow::new(false);
        assert_eq!(flow.next(SILENCE), None, "nothing is due");
        flow.look_soon();
        assert_eq!(flow.next(SILENCE), Some(Act::Look));
        assert_eq!(flow.next(SILENCE), None, "one at a time");
        flow.making();
        assert_eq!(flow.next(SILENCE), None);
        flow.made();
        assert_eq!(flow.next(SILENCE), Some(Act::Warm));
        assert_eq!(flow.warmed(SILENCE), Some(Act::Swap));
        assert!(flow.is_swapping() && flow.next(SILENCE).is_none());
        flow.over();
        assert!(flow.is_quiet() && flow.next(SILENCE).is_none());
    }

    #[test]
    fn nothing_begins_but_in_the_silence() {
        let busy =
            [Now { replying: true, ..SILENCE }, Now { settled: false, ..SILENCE }, Now { ending: true, ..SILENCE }];
        for now in busy {
            let mut flow = Flow::new(false);
            flow.look_soon();
            assert_eq!(flow.next(now), None, "{now:?}");
            assert_eq!(flow.next(SILENCE), Some(Act::Look), "it waits");
            flow.made();
            assert_eq!(flow.next(now), None, "{now:?}");
            assert_eq!(flow.next(SILENCE), Some(Act::Warm));
            assert_eq!(flow.warmed(now), None, "{now:?}");
            assert_eq!(flow.next(SILENCE), Some(Act::Warm), "what came in between is warmed too");
            assert_eq!(flow.warmed(SILENCE), Some(Act::Swap));
        }
    }

    #[test]
    fn who_talks_all_the_time_gets_the_swap_all_the_same() {
        let mut flow = Flow::new(true);
        let mut now = SILENCE;
        for _ in 1..MOST_WARMINGS {
            assert_eq!(flow.next(now), Some(Act::Warm));
            now.epoch += 1;
            assert_eq!(flow.warmed(now), None);
        }
        assert_eq!(flow.next(now), Some(Act::Warm));
        now.epoch += 1;
        assert_eq!(flow.warmed(now), Some(Act::Swap));
    }

    #[test]
    fn what_is_changed_under_it_takes_it_back() {
        let steps: [fn(&mut Flow); 4] = [
            |_| {},
            Flow::making,
            Flow::made,
            |flow| {
                flow.made();
                flow.next(SILENCE);
            },
        ];
        for step in steps {
            let mut flow = Flow::new(false);
            flow.look_soon();
            flow.next(SILENCE);
            step(&mut flow);
            flow.start_over();
            assert_eq!(flow.warmed(SILENCE), None, "late answers mean nothing");
            assert_eq!(flow.next(SILENCE), Some(Act::Look));
        }
    }

    #[test]
    fn where_there_is_no_room_what_is_ready_is_used() {
        let mut flow = Flow::new(false);
        assert!(!flow.swap_now());
        flow.look_soon();
        flow.next(SILENCE);
        flow.making();
        assert!(!flow.swap_now(), "half a summary is none");
        flow.made();
        assert!(flow.swap_now() && flow.is_swapping());
    }
}
