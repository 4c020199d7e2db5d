//! One random conversation, each turn of which is asked in several ways.

use super::engines::{Compared, Early, MODELS, answers, cold, compare, open, open_shaken, request};
use anyhow::{Context, Result};
use engine::Engine;
use kernels::cpu::CpuLevel;
use serde::Serialize;
use tempfile::TempDir;
use tests::random::Random;

#[derive(Debug, Default, Serialize)]
pub struct Figures {
    pub conversations: u64,
    pub turns: u64,
    pub tokens: u64,
    /// Turns that took up what was computed before.
    pub reused: u64,
    /// Turns beside others in a batch.
    pub in_batch: u64,
    pub resumed: u64,
    /// Turns whose reply was begun before it was asked for; and those where it was begun to other words.
    pub begun_early: u64,
    pub begun_wrong: u64,
    pub drafted_tokens: u64,
    pub accepted_tokens: u64,
    /// Turns after a restart that read from disk.
    pub from_disk: u64,
    /// Turns on each level of this processor besides the highest.
    pub other_levels: u64,
    pub largest_difference: f32,
    /// Answers that differ because rounding chose between two experts that were as good as each other.
    pub expert_ties: u64,
    /// Answers that go on otherwise because two tokens were as good as each other; most of them on another level.
    pub token_ties: u64,
    /// Answers that differ where the model is so steep that rounding moves them as far.
    pub steep: u64,
}

/// Engines of one model: one that remembers, and one for each level that does not, the highest first.
pub struct Stage {
    model: &'static str,
    folder: TempDir,
    warm: Engine,
    cold: Vec<Engine>,
    shaken: Engine,
}

impl Stage {
    pub fn all() -> Result<Vec<Stage>> {
        let stage = |model| {
            let folder = tempfile::tempdir()?;
            let warm = open(model, CpuLevel::detect(), Some(folder.path()))?;
            let mut levels: Vec<CpuLevel> = CpuLevel::available().collect();
            levels.reverse();
            let cold = levels.into_iter().map(|level| open(model, level, None)).collect::<Result<_>>()?;
            anyhow::Ok(Stage { model, folder, warm, cold, shaken: open_shaken(model)? })
        };
        MODELS.into_iter().map(stage).collect()
    }

    pub fn play(&mut self, random: &mut Random, figures: &mut Figures) -> Result<()> {
        figures.conversations += 1;
        let mut history = words(random, 40);
        for turn in 0..1 + random.below(5) {
            self.turn(&mut history, random, figures).with_context(|| format!("{}, turn {turn}", self.model))?;
        }
        Ok(())
    }

    fn turn(&mut self, history: &mut Vec<u32>, random: &mut Random, figures: &mut Figures) -> Result<()> {
        // The user talks over the reply: its end was never heard.
        if random.below(3) == 0 {
            let heard = history.len() - random.below(5.min(history.len() as u64)) as usize;
            history.truncate(heard);
        }
        history.extend(words(random, 60));
        let mut asked = request(history, 2 + random.below(8) as usize);
        // A reply that says one word again and again is one that drafts foresee.
        if random.below(4) == 0 {
            asked.sampling.logit_bias = vec![(random.below(500) as u32, 100.0)];
            asked.max_new_tokens += 20;
        }
        let oracle = cold(&mut self.cold[0], &asked)?;

        let restarts = random.below(4) == 0;
        if restarts {
            self.warm.save_all();
            self.warm = open(self.model, CpuLevel::detect(), Some(self.folder.path()))?;
        }
        let beside: Vec<_> = (0..random.below(3)).map(|_| request(&words(random, 50), 6)).collect();
        let stopped_after = (random.below(3) == 0).then(|| 1 + random.below(6) as usize);
        let others = beside.clone();
        let early = (random.below(3) == 0).then(|| {
            let mut heard = asked.clone();
            if random.below(2) == 0 {
                heard.tokens.truncate(1 + random.below(heard.tokens.len() as u64) as usize);
                heard.tokens.extend(words(random, 5));
                heard.marks.retain(|mark| *mark < heard.tokens.len());
            }
            Early { request: heard, steps: random.below(14) as usize }
        });
        let was_begun = early.is_some();
        let requests = [vec![asked.clone()], beside].concat();
        let said = answers(&mut self.warm, requests, early, stopped_after)?;
        let mut note = |compared: Compared| {
            figures.largest_difference = figures.largest_difference.max(compared.largest_difference);
            figures.tokens += compared.tokens;
            figures.token_ties += u64::from(compared.token_tie);
            figures.expert_ties += u64::from(compared.expert_tie);
            figures.steep += u64::from(compared.steep);
        };
        note(compare(&said[0], &oracle, false, || cold(&mut self.shaken, &asked))?);
        for (other, said) in others.iter().zip(&said[1..]) {
            let oracle = cold(&mut self.cold[0], other)?;
            note(compare(said, &oracle, false, || cold(&mut self.shaken, other)).context("beside it")?);
        }
        for level in &mut self.cold[1..] {
            let said = cold(level, &asked)?;
            note(compare(&said, &oracle, true, || cold(&mut self.shaken, &asked)).context("on another level")?);
            figures.other_levels += 1;
        }
        figures.turns += 1;
        figures.reused += u64::from(said[0].reused_tokens > 0);
        figures.from_disk += u64::from(restarts && said[0].reused_tokens > 0);
        figures.in_batch += u64::from(!others.is_empty());
        figures.resumed += u64::from(stopped_after.is_some());
        figures.begun_early += u64::from(said[0].was_early);
        figures.begun_wrong += u64::from(was_begun && !said[0].was_early);
        figures.drafted_tokens += said.iter().map(|said| said.drafted_tokens as u64).sum::<u64>();
        figures.accepted_tokens += said.iter().map(|said| said.accepted_tokens as u64).sum::<u64>();
        history.extend(&oracle.tokens);
        Ok(())
    }
}

fn words(random: &mut Random, most: u64) -> Vec<u32> {
    (0..1 + random.below(most)).map(|_| random.below(500) as u32).collect()
}
