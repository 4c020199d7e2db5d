//! The compactor as far as it is pure: its phases, with steps that come to their end at any later moment.

use compaction::phases::{Activity, NextStep, Phases};

#[derive(Clone, Debug)]
pub struct ExploredCompactor {
    phases: Phases,
    pub step: Option<CompactorStep>,
    covers: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompactorStep {
    Look,
    Make,
    Warm,
    Swap,
}

impl ExploredCompactor {
    pub fn new() -> ExploredCompactor {
        ExploredCompactor { phases: Phases::new(false), step: None, covers: None }
    }

    pub fn is_quiet(&self) -> bool {
        self.phases.is_quiet() && self.step.is_none()
    }

    pub fn look_soon(&mut self) {
        self.phases.look_soon();
    }

    /// Begins what is due. An error: a step begins while another runs, or while a reply is made.
    pub fn go_on(&mut self, activity: Activity) -> Result<(), String> {
        let Some(next) = self.phases.next(activity) else { return Ok(()) };
        self.begin(next, activity)
    }

    fn begin(&mut self, next: NextStep, activity: Activity) -> Result<(), String> {
        if let Some(step) = self.step {
            return Err(format!("the compactor begins {next:?} while it does {step:?}"));
        }
        if activity.replying || !activity.settled {
            return Err(format!("the compactor begins {next:?} during {activity:?}"));
        }
        self.step = Some(match next {
            NextStep::Look => CompactorStep::Look,
            NextStep::Warm => CompactorStep::Warm,
            NextStep::Swap => CompactorStep::Swap,
        });
        Ok(())
    }

    /// The step that runs is done. `could_cover`: up to which item a summary could stand now. Returns up to which one it stands
    /// from now on, where that changes.
    pub fn done(&mut self, could_cover: Option<String>, activity: Activity) -> Result<Option<String>, String> {
        match self.step.take() {
            None => {}
            Some(CompactorStep::Look) if could_cover.is_none() => self.phases.over(),
            Some(CompactorStep::Look) => {
                self.covers = could_cover;
                self.phases.making();
                self.step = Some(CompactorStep::Make);
            }
            Some(CompactorStep::Make) => self.phases.made(),
            Some(CompactorStep::Warm) => {
                if let Some(next) = self.phases.warmed(activity) {
                    self.begin(next, activity)?;
                }
            }
            Some(CompactorStep::Swap) => {
                self.phases.over();
                return Ok(self.covers.take());
            }
        }
        Ok(None)
    }

    pub fn fails(&mut self) {
        self.step = None;
        self.covers = None;
        self.phases.over();
    }

    /// Handles a change of something that a summary would cover: the summary is useless. A swap is one transaction, and
    /// ends.
    pub fn changed(&mut self) {
        if self.phases.is_swapping() || self.covers.is_none() {
            return;
        }
        self.step = None;
        self.covers = None;
        self.phases.start_over();
    }
}
