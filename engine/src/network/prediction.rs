//! The block for multi-token prediction: an attention layer behind the model's own that reads a token and the model's
//! output before it, and predicts the token that follows.
//!
//! Its keys and values are one more attention layer in a sequence's pages, at the position of their token. So they are
//! cut back and shared like the others. A step writes them for all of its tokens with the model's true outputs, also
//! for those that `predict` had written with its own.

use kernels::cpu::{Cpu, DisjointParts};
use kernels::norm::{rms_norm, rms_norm_in_place};
use kernels::rotation::rotate;
use weights::{Matrix, PredictionBlock};

use super::{Network, StepLane, WantedLogits, Workspace, add};
use crate::state::SequenceState;

pub struct PredictionLane<'a> {
    /// State before `token`, with its output there, and with room for `count` positions.
    pub state: &'a mut SequenceState,
    pub token: u32,
    pub count: usize, // tokens to predict
    pub drafts: &'a mut Vec<u32>,
}

impl Network {
    /// Cost of one prediction: its weights as a share of a token's. `vocab`: size of the vocabulary to predict from.
    /// `None`: the model has no block for it.
    pub fn prediction_cost(&self, vocab: usize) -> Option<f64> {
        let block = self.model.prediction.as_ref()?;
        let bytes: usize = block.matrices().iter().map(|matrix| matrix.bytes()).sum();
        let output = self.guessed(vocab).bytes();
        Some((bytes + output) as f64 / self.model.bytes_per_token().max(1) as f64)
    }

    /// Predicts the tokens behind each lane's token, from the first `vocab` tokens: those are the frequent ones.
    /// Returns the logits of the last predictions [lanes with the largest count, at most `vocab`].
    pub fn predict<'w>(
        &self,
        cpu: &Cpu,
        lanes: &mut [PredictionLane],
        vocab: usize,
        work: &'w mut Workspace,
    ) -> &'w [f32] {
        let Some(block) = &self.model.prediction else { return &[] };
        let hidden = self.shape().hidden;
        let output = self.guessed(vocab);
        let most = lanes.iter().map(|lane| lane.count).max().unwrap_or(0);
        // A lane's own output takes the place of the model's from the second guess on.
        let mut outputs: Vec<Vec<f32>> = lanes.iter().map(|lane| lane.state.outputs[..hidden].to_vec()).collect();
        let mut tokens: Vec<u32> = lanes.iter().map(|lane| lane.token).collect();
        for round in 0..most {
            let taking: Vec<usize> = (0..lanes.len()).filter(|lane| lanes[*lane].count > round).collect();
            let inputs = taking.iter().map(|lane| (tokens[*lane], &outputs[*lane][..]));
            self.join(cpu, block, inputs, work);
            let turns = self.rotation.dims();
            work.turns.resize(taking.len() * turns, 0.0);
            for (lane, turns) in taking.iter().zip(work.turns.chunks_exact_mut(turns)) {
                self.rotation.at(lanes[*lane].state.position, turns);
            }
            self.norm(cpu, &work.hidden, &block.attn_norm, &mut work.normed);
            work.mixed.resize(taking.len() * hidden, 0.0);
            let taking_part = lanes.iter_mut().zip(&tokens).filter(|(lane, _)| lane.count > round);
            let mut steps: Vec<StepLane> = taking_part.map(|(lane, token)| one_token(lane.state, token)).collect();
            self.attention(cpu, &block.attention, self.state_shape.attention_layers - 1, &mut steps, work);
            drop(steps);
            add(&mut work.hidden, &work.mixed);
            let mut own = std::mem::take(&mut work.hidden);
            self.add_ffn(cpu, &block.ffn_norm, &block.ffn, &mut own, work);
            work.hidden = own;
            // A further prediction reads the input of the output matrix: behind the last norm.
            self.norm(cpu, &work.hidden, &block.output_norm, &mut work.normed);
            work.guesses.resize(taking.len() * output.rows(), 0.0);
            self.product(cpu, &work.normed, &output, &mut work.guesses);
            let guesses = work.guesses.chunks_exact(output.rows()).zip(work.normed.values().chunks_exact(hidden));
            for (lane, (logits, output)) in taking.into_iter().zip(guesses) {
                tokens[lane] = best(logits);
                outputs[lane].copy_from_slice(output);
                lanes[lane].drafts.push(tokens[lane]);
                lanes[lane].state.position += 1;
            }
        }
        lanes.iter_mut().for_each(|lane| lane.state.position -= lane.count);
        &work.guesses
    }

    /// Writes the block's keys and values of a step's tokens, and keeps the outputs from which predictions begin.
    /// `work.hidden` is that of the last layer, and no state has advanced yet.
    pub(super) fn follow(&self, cpu: &Cpu, lanes: &mut [StepLane], work: &mut Workspace) {
        let Some(block) = &self.model.prediction else { return };
        let shape = self.shape();
        let hidden = shape.hidden;
        let mut outputs = std::mem::take(&mut work.outputs);
        outputs.resize(work.hidden.len(), 0.0);
        {
            let parts = DisjointParts::new(&mut outputs);
            let from = &work.hidden;
            cpu.pool.run(from.len() / hidden, |row| {
                // SAFETY: each task takes its own row.
                let out = unsafe { parts.part(row * hidden, hidden) };
                rms_norm(cpu.level, &from[row * hidden..][..hidden], &self.model.output_norm, shape.rms_eps, out);
            });
        }
        let before_first = vec![0.0; hidden];
        let mut first = 0;
        let inputs = lanes.iter().flat_map(|lane| {
            let own = &outputs[first * hidden..][..lane.tokens.len() * hidden];
            first += lane.tokens.len();
            // The output before a sequence's first token is unknown if it continues from a snapshot.
            let before = lane.state.outputs.get(..hidden).unwrap_or(&before_first);
            lane.tokens.iter().copied().zip(std::iter::once(before).chain(own.chunks_exact(hidden)))
        });
        let mut last = std::mem::take(&mut work.hidden);
        self.join(cpu, block, inputs, work);
        self.norm(cpu, &work.hidden, &block.attn_norm, &mut work.normed);
        std::mem::swap(&mut work.hidden, &mut last);
        let weights = &block.attention;
        let kv_width = shape.kv_heads * shape.head_dim;
        self.products_into(cpu, &work.normed, [(&weights.k, &mut work.k), (&weights.v, &mut work.v)]);
        let turns = self.rotation.dims();
        {
            let (keys, all_turns) = (DisjointParts::new(&mut work.k), &work.turns);
            cpu.pool.run(work.normed.rows(), |row| {
                // SAFETY: each task takes its own row.
                let keys = unsafe { keys.part(row * kv_width, kv_width) };
                for head in keys.chunks_exact_mut(shape.head_dim) {
                    rms_norm_in_place(cpu.level, head, &weights.k_norm, shape.rms_eps);
                    rotate(head, &all_turns[row * turns..][..turns]);
                }
            });
        }
        let mut rows = work.k.chunks_exact(kv_width).zip(work.v.chunks_exact(kv_width));
        let mut first = 0;
        for lane in lanes.iter_mut() {
            let position = lane.state.position;
            for (i, (keys, values)) in rows.by_ref().take(lane.tokens.len()).enumerate() {
                lane.state.write(cpu.level, self.state_shape.attention_layers - 1, position + i, keys, values);
            }
            let end = first + lane.tokens.len();
            let kept = WantedLogits::Last.of(first..end, lane.drafts);
            lane.state.outputs.clear();
            lane.state.outputs.extend_from_slice(&outputs[kept.start * hidden..kept.end * hidden]);
            first = end;
        }
        work.outputs = outputs;
    }

    fn join<'a>(
        &self,
        cpu: &Cpu,
        block: &PredictionBlock,
        inputs: impl Iterator<Item = (u32, &'a [f32])>,
        work: &mut Workspace,
    ) {
        let (hidden, eps) = (self.shape().hidden, self.shape().rms_eps);
        let inputs: Vec<(u32, &[f32])> = inputs.collect();
        let joined = DisjointParts::new(work.inner.resize(inputs.len(), 2 * hidden));
        cpu.pool.run(inputs.len(), |row| {
            let (token, before) = inputs[row];
            // SAFETY: each task takes its own row.
            let (of_token, of_output) = unsafe { joined.part(row * 2 * hidden, 2 * hidden) }.split_at_mut(hidden);
            self.model.embed.row(token as usize, of_token);
            rms_norm_in_place(cpu.level, of_token, &block.embed_norm, eps);
            rms_norm(cpu.level, before, &block.state_norm, eps, of_output);
        });
        self.round(cpu, &mut work.inner);
        work.hidden.resize(inputs.len() * hidden, 0.0);
        self.product(cpu, &work.inner, &block.join, &mut work.hidden);
    }

    fn guessed(&self, vocab: usize) -> Matrix {
        let output = self.model.output_matrix();
        output.first_rows(vocab).unwrap_or_else(|| output.clone())
    }
}

fn one_token<'a>(state: &'a mut SequenceState, token: &'a u32) -> StepLane<'a> {
    StepLane {
        state,
        tokens: std::slice::from_ref(token),
        wanted: WantedLogits::Nothing,
        recurrence_log: None,
        snapshots: &mut [],
        drafts: 0,
    }
}

pub(crate) fn best(logits: &[f32]) -> u32 {
    // returns the first of the largest logits
    let mut best = 0;
    for (token, logit) in logits.iter().enumerate() {
        if *logit > logits[best] {
            best = token;
        }
    }
    best as u32
}
