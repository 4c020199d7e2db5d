//! The block for multi-token prediction on a GPU: the twin of `network/prediction.rs`. The outputs that it reads are
//! small and lie on the host between steps.

use gpu::Error;
use gpu::norm::{NormRowsArguments, norm_rows};
use gpu::rows::RowsArguments;
use weights::Mixer;

use super::upload::GpuPrediction;
use super::workspace::{Floats, VALUES};
use super::{GpuNetwork, GpuStep, GpuWorkspace};
use crate::network::{PredictionLane, StepLane, WantedLogits, best};

impl GpuNetwork {
    /// Sends the output before the first row of each lane. It is unknown where a sequence continues from a snapshot.
    pub(super) fn send_before(&self, lanes: &[StepLane], work: &GpuWorkspace) -> Result<(), Error> {
        if self.prediction.is_none() {
            return Ok(());
        }
        let hidden = self.shape.hidden;
        let unknown = vec![0.0; hidden];
        let of = |lane: &StepLane| lane.state.outputs.get(..hidden).unwrap_or(&unknown).to_vec();
        let before: Vec<Vec<f32>> = lanes.iter().map(of).collect();
        if lanes.iter().all(|lane| lane.tokens.len() == 1) {
            return work.write(Floats::Before, 0, &before.concat());
        }
        let mut first = 0;
        for (lane, before) in lanes.iter().zip(before) {
            work.write(Floats::Before, first * hidden, &before)?;
            first += lane.tokens.len();
        }
        Ok(())
    }

    pub(super) fn follow(&self, step: &GpuStep, work: &GpuWorkspace) -> Result<(), Error> {
        let Some(block) = &self.prediction else { return Ok(()) };
        let outputs = work.outputs.arguments(VALUES);
        self.norm_into(outputs, step.rows, work.at(Floats::Hidden), &self.output_norm)?;
        // The first row of a lane has its output from the step before.
        let row = (self.shape.hidden * size_of::<f32>()) as u64;
        for (first, count) in work.inputs.rows_of_lanes().filter(|(_, count)| *count > 1) {
            let values = (count - 1) * self.shape.hidden;
            let (from, to) = (work.outputs.values.address(), work.at(Floats::Before));
            gpu::snapshot::copy(&self.device, values, from + first as u64 * row, to + (first + 1) as u64 * row)?;
        }
        self.embed(step, work)?;
        self.join(block, step, work)?;
        let Mixer::Attention(weights) = &block.layer.mixer else { return Ok(()) };
        let normed = self.norm((step.rows, 0), work, &block.layer.attn_norm, false)?;
        self.prepare(weights, block.layer.index, normed, step, work).map(drop)
    }

    pub(super) fn keep_outputs(&self, lanes: &mut [StepLane], work: &GpuWorkspace) -> Result<(), Error> {
        if self.prediction.is_none() {
            return Ok(());
        }
        let (hidden, mut first) = (self.shape.hidden, 0);
        for lane in lanes.iter_mut() {
            let end = first + lane.tokens.len();
            let kept = WantedLogits::Last.of(first..end, lane.drafts);
            lane.state.outputs.resize(kept.len() * hidden, 0.0);
            work.outputs.values.read(kept.start * hidden, &mut lane.state.outputs)?;
            first = end;
        }
        Ok(())
    }

    pub fn predict(&self, lanes: &mut [PredictionLane], vocab: usize, work: &mut GpuWorkspace) -> Result<(), Error> {
        let Some(block) = &self.prediction else { return Ok(()) };
        let hidden = self.shape.hidden;
        let output = self.output.first_rows(vocab);
        let mut outputs: Vec<Vec<f32>> = lanes.iter().map(|lane| lane.state.outputs[..hidden].to_vec()).collect();
        let mut tokens: Vec<u32> = lanes.iter().map(|lane| lane.token).collect();
        let mut logits = vec![0.0; output.blocks.rows];
        for round in 0..lanes.iter().map(|lane| lane.count).max().unwrap_or(0) {
            let taking: Vec<usize> = (0..lanes.len()).filter(|lane| lanes[*lane].count > round).collect();
            work.inputs.clear();
            for (row, lane) in taking.iter().enumerate() {
                work.inputs.add_lane(lanes[*lane].state, 1, None)?;
                work.inputs.add_tokens(&tokens[*lane..][..1]);
                work.inputs.want(row..row + 1);
            }
            let step = self.step(work)?;
            let before: Vec<f32> = taking.iter().flat_map(|lane| outputs[*lane].iter().copied()).collect();
            work.write(Floats::Before, 0, &before)?;
            self.enter(&step, work)?;
            self.join(block, &step, work)?;
            self.mix(&block.layer, &step, work)?;
            if let Some(ffn) = &block.layer.ffn {
                self.feed(&block.layer, ffn, &step, work)?;
            }
            // A further prediction reads the input of the output matrix: behind the last norm.
            self.norm_into(work.outputs.arguments(VALUES), step.rows, work.at(Floats::Hidden), &block.output_norm)?;
            let normed = self.norm((step.rows, 0), work, &block.output_norm, false)?;
            self.product((normed, step.rows), &[(&output, work.at(Floats::Logits))], false, work)?;
            for (row, lane) in taking.into_iter().enumerate() {
                work.read(Floats::Logits, row * output.blocks.rows, &mut logits)?;
                work.outputs.values.read(row * hidden, &mut outputs[lane])?;
                tokens[lane] = best(&logits);
                lanes[lane].drafts.push(tokens[lane]);
                lanes[lane].state.position += 1;
            }
        }
        lanes.iter_mut().for_each(|lane| lane.state.position -= lane.count);
        Ok(())
    }

    /// Builds the input of the block's layer in `work.hidden`: the tokens' embeddings, and the outputs before them.
    fn join(&self, block: &GpuPrediction, step: &GpuStep, work: &GpuWorkspace) -> Result<(), Error> {
        let hidden = work.at(Floats::Hidden);
        let embedded = if self.embed.is_some() { work.at(Floats::Embedded) } else { hidden };
        let normed = work.normed.arguments(self.forms(step.rows));
        self.norm_into(normed, step.rows, embedded, &block.embed_norm)?;
        self.product((normed, step.rows), &[(&block.of_token, hidden)], false, work)?;
        self.norm_into(normed, step.rows, work.at(Floats::Before), &block.state_norm)?;
        self.product((normed, step.rows), &[(&block.of_output, hidden)], true, work)
    }

    fn norm_into(&self, to: RowsArguments, rows: usize, x: u64, weight: &gpu::Buffer<f32>) -> Result<(), Error> {
        let (weight, eps) = (weight.address(), self.shape.rms_eps);
        norm_rows(&self.device, rows, &NormRowsArguments { x, weight, chosen: 0, to, eps, unused: 0 })
    }
}
