//! Steps of a compaction in time. Pure: the session reports events and its activity, and `Phases` gives the next step.
//!
//! ```text
//! Quiet -> Looking -> Making -> Made -> Warming -> Swapping -> Quiet
//! ```
//! A step begins only in the silence between two turns; a turn that comes in between delays the next step. A change of
//! the passages that the plan covers starts the compaction over.

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Phases {
    phase: Phase,
    look_is_due: bool, // true if the next silence begins with a look
    warmings: u32,     // times the compacted prompt was warmed for this swap
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Quiet,
    Looking,
    Making,
    Made,
    Warming {
        // the conversation's when warming began
        epoch: u64,
    },
    Swapping,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Activity {
    pub replying: bool, // a reply is under way
    pub settled: bool,  // the store has the whole conversation
    pub ending: bool,   // the service stops, or the session is gone
    pub epoch: u64,     // rises with each change of the conversation
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextStep {
    Look, // weigh the conversation and make a plan
    Warm, // compute the compacted prompt in its present form
    Swap, // put the compacted prompt to use
}

/// Most warmings for one swap, because turns may come meanwhile. Then it is swapped nevertheless: the cold rest is
/// short.
const MOST_WARMINGS: u32 = 4;

impl Phases {
    /// Starts. `made`: a summary was made before the last start and is not in use yet.
    pub fn new(made: bool) -> Phases {
        Phases { phase: if made { Phase::Made } else { Phase::Quiet }, look_is_due: false, warmings: 0 }
    }

    pub fn look_soon(&mut self) {
        self.look_is_due = true;
    }

    pub fn next(&mut self, activity: Activity) -> Option<NextStep> {
        if !activity.is_silence() {
            return None;
        }
        match self.phase {
            Phase::Quiet if self.look_is_due => {
                (self.phase, self.look_is_due) = (Phase::Looking, false);
                Some(NextStep::Look)
            }
            Phase::Made => {
                self.warmings += 1;
                self.phase = Phase::Warming { epoch: activity.epoch };
                Some(NextStep::Warm)
            }
            Phase::Quiet | Phase::Looking | Phase::Making | Phase::Warming { .. } | Phase::Swapping => None,
        }
    }

    pub fn making(&mut self) {
        self.phase = Phase::Making;
    }

    pub fn made(&mut self) {
        (self.phase, self.warmings) = (Phase::Made, 0);
    }

    pub fn warmed(&mut self, activity: Activity) -> Option<NextStep> {
        let Phase::Warming { epoch } = self.phase else { return None };
        self.phase = Phase::Made;
        let is_warm = epoch == activity.epoch || self.warmings >= MOST_WARMINGS;
        if !activity.is_silence() || !is_warm {
            return None;
        }
        self.phase = Phase::Swapping;
        Some(NextStep::Swap)
    }

    /// Swaps to a view that is ready as it is, because a reply has no room and its turn has not begun. False: none is
    /// ready.
    pub fn swap_now(&mut self) -> bool {
        let ready = matches!(self.phase, Phase::Made | Phase::Warming { .. });
        if ready {
            self.phase = Phase::Swapping;
        }
        ready
    }

    pub fn over(&mut self) {
        (self.phase, self.warmings) = (Phase::Quiet, 0);
    }

    /// Reports that the covered passages have changed: the next silence begins with a new look.
    pub fn start_over(&mut self) {
        self.over();
        self.look_is_due = true;
    }

    pub fn is_quiet(&self) -> bool {
        self.phase == Phase::Quiet
    }

    pub fn is_making(&self) -> bool {
        self.phase == Phase::Making
    }

    pub fn is_warming(&self) -> bool {
        matches!(self.phase, Phase::Warming { .. })
    }

    pub fn is_swapping(&self) -> bool {
        self.phase == Phase::Swapping
    }
}

impl Activity {
    fn is_silence(self) -> bool {
        !self.replying && self.settled && !self.ending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SILENCE: Activity = Activity { replying: false, settled: true, ending: false, epoch: 7 };

    #[test]
    fn from_a_full_window_to_a_swap() {
        let mut phases = Phases::new(false);
        assert_eq!(phases.next(SILENCE), None, "nothing is due");
        phases.look_soon();
        assert_eq!(phases.next(SILENCE), Some(NextStep::Look));
        assert_eq!(phases.next(SILENCE), None, "one at a time");
        phases.making();
        assert_eq!(phases.next(SILENCE), None);
        phases.made();
        assert_eq!(phases.next(SILENCE), Some(NextStep::Warm));
        assert_eq!(phases.warmed(SILENCE), Some(NextStep::Swap));
        assert!(phases.is_swapping() && phases.next(SILENCE).is_none());
        phases.over();
        assert!(phases.is_quiet() && phases.next(SILENCE).is_none());
    }

    #[test]
    fn a_step_begins_only_in_the_silence() {
        let busy = [
            Activity { replying: true, ..SILENCE },
            Activity { settled: false, ..SILENCE },
            Activity { ending: true, ..SILENCE },
        ];
        for activity in busy {
            let mut phases = Phases::new(false);
            phases.look_soon();
            assert_eq!(phases.next(activity), None, "{activity:?}");
            assert_eq!(phases.next(SILENCE), Some(NextStep::Look), "it waits");
            phases.made();
            assert_eq!(phases.next(activity), None, "{activity:?}");
            assert_eq!(phases.next(SILENCE), Some(NextStep::Warm));
            assert_eq!(phases.warmed(activity), None, "{activity:?}");
            assert_eq!(phases.next(SILENCE), Some(NextStep::Warm), "what came in between is warmed too");
            assert_eq!(phases.warmed(SILENCE), Some(NextStep::Swap));
        }
    }

    #[test]
    fn a_user_who_never_stops_talking_gets_the_swap_all_the_same() {
        let mut phases = Phases::new(true);
        let mut activity = SILENCE;
        for _ in 1..MOST_WARMINGS {
            assert_eq!(phases.next(activity), Some(NextStep::Warm));
            activity.epoch += 1;
            assert_eq!(phases.warmed(activity), None);
        }
        assert_eq!(phases.next(activity), Some(NextStep::Warm));
        activity.epoch += 1;
        assert_eq!(phases.warmed(activity), Some(NextStep::Swap));
    }

    #[test]
    fn a_change_of_what_is_covered_starts_over() {
        let steps: [fn(&mut Phases); 4] = [
            |_| {},
            Phases::making,
            Phases::made,
            |phases| {
                phases.made();
                phases.next(SILENCE);
            },
        ];
        for step in steps {
            let mut phases = Phases::new(false);
            phases.look_soon();
            phases.next(SILENCE);
            step(&mut phases);
            phases.start_over();
            assert_eq!(phases.warmed(SILENCE), None, "late answers mean nothing");
            assert_eq!(phases.next(SILENCE), Some(NextStep::Look));
        }
    }

    #[test]
    fn a_reply_without_room_uses_the_view_that_is_ready() {
        let mut phases = Phases::new(false);
        assert!(!phases.swap_now());
        phases.look_soon();
        phases.next(SILENCE);
        phases.making();
        assert!(!phases.swap_now(), "half a summary is none");
        phases.made();
        assert!(phases.swap_now() && phases.is_swapping());
    }
}
