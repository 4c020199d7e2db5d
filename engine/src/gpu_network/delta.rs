//! A linear layer: projections, convolution, gated delta rule, gated norm.

use gpu::Error;
use gpu::convolution::{ConvolveArguments, ReadLogArguments, convolve, read_log};
use gpu::delta::{DeltaArguments, advance};
use gpu::norm::{NormHeadsArguments, norm_heads_gated};
use gpu::rows::RowsArguments;

use super::inputs::RecurrenceSpan;
use super::upload::{GpuDelta, GpuMixer};
use super::workspace::Floats;
use super::{GpuNetwork, GpuStep, GpuWorkspace};
use crate::recurrence_log::RecurrenceLog;
use crate::state::SequenceState;

/// Inputs of a recurrence: as the projections gave them, to be logged at the addresses of `log_rows` unless that is 0, or as
/// they were logged, with gates that are made already.
#[derive(Clone, Copy)]
enum Inputs {
    Projected { log_rows: u64 },
    Logged,
}

struct LaneRows {
    lanes: usize,
    longest: usize,  // most rows of a lane
    at: u64,         // address of the lanes
    in_state: usize, // number of the layer in the lanes' states
}

/// Most tokens of a step that replays: no step is planned for fewer rows.
const MOST_REPLAYED: usize = 64;

impl GpuNetwork {
    pub(super) fn delta(
        &self,
        weights: &GpuDelta,
        layer: usize,
        normed: RowsArguments,
        step: &GpuStep,
        work: &GpuWorkspace,
    ) -> Result<(), Error> {
        let device = &self.device;
        let heads = self.state_shape.heads;
        let jobs = [(&weights.qkv, work.at(Floats::Q)), (&weights.z, work.at(Floats::K))];
        self.product((normed, step.rows), &jobs, false, work)?;
        // A decay is an exponential and acts on all earlier tokens: its few rows are worth exact activations.
        let exact = [(&weights.a, work.at(Floats::Decay)), (&weights.b, work.at(Floats::Beta))];
        self.exact_product((normed, step.rows), &exact, work)?;
        self.recur(weights, layer, step, Inputs::Projected { log_rows: step.at.log_rows }, work)?;
        let inner = work.inner.arguments_of(heads.values(), self.forms(step.rows));
        let of_norm = NormHeadsArguments {
            x: work.at(Floats::Out),
            weight: weights.norm.address(),
            gate: work.at(Floats::K),
            to: inner,
            dim: heads.value_dim as u32,
            eps: self.shape.rms_eps,
            heads_of_block: 0,
            in_fours: 0,
        };
        norm_heads_gated(device, step.rows, of_norm)?;
        self.product((inner, step.rows), &[(&weights.out, work.at(Floats::Hidden))], true, work)
    }

    /// Computes the part of a linear layer with a state: convolution and delta rule. Reads `work.q`, `decay` and
    /// `beta`.
    fn recur(
        &self,
        weights: &GpuDelta,
        layer: usize,
        step: &GpuStep,
        inputs: Inputs,
        work: &GpuWorkspace,
    ) -> Result<(), Error> {
        let rows = |span: &RecurrenceSpan, in_state| LaneRows {
            lanes: span.lanes(),
            longest: span.longest(),
            at: span.at,
            in_state,
        };
        let spans = work.inputs.spans();
        if spans.is_empty() {
            let all = LaneRows { lanes: step.lanes, longest: step.longest, at: step.at.lanes, in_state: layer };
            return self.recur_over(weights, layer, all, inputs, work);
        }
        for span in spans {
            self.recur_over(weights, layer, rows(span, layer), inputs, work)?;
            for copy in &span.copies {
                copy.run(&self.device, &self.state_shape, layer..layer + 1)?;
            }
        }
        let drafts = work.inputs.drafts();
        if drafts.span.lanes() == 0 {
            return Ok(());
        }
        // Drafts pass a copy of the layer's state, so that the state itself stays before them.
        for copies in drafts.copies() {
            for ([from, to], values) in copies.into_iter().zip([self.state_shape.recurrent(), self.state_shape.conv()])
            {
                let from = from + (layer * values * size_of::<f32>()) as u64;
                gpu::snapshot::copy(&self.device, values, from, to)?;
            }
        }
        self.recur_over(weights, layer, rows(&drafts.span, 0), inputs, work)
    }

    fn recur_over(
        &self,
        weights: &GpuDelta,
        layer: usize,
        rows: LaneRows,
        inputs: Inputs,
        work: &GpuWorkspace,
    ) -> Result<(), Error> {
        let LaneRows { lanes, longest, at, in_state } = rows;
        let (shape, heads) = (&self.state_shape, self.state_shape.heads);
        let (log_rows, decay) = match inputs {
            Inputs::Projected { log_rows } => (log_rows, work.at(Floats::Decay)),
            Inputs::Logged => (0, 0),
        };
        let of_convolution = ConvolveArguments {
            x: work.at(Floats::Q),
            out: work.at(Floats::Convolved),
            taps: weights.conv.address(),
            lanes: at,
            log_rows,
            memory: (in_state * shape.conv()) as u64,
            layer: self.in_log(layer),
            decay,
            beta: work.at(Floats::Beta),
            a_log_neg: weights.a_log_neg.address(),
            dt_bias: weights.dt_bias.address(),
            channels: heads.channels() as u32,
            heads: heads.value_heads as u32,
            keys: heads.keys() as u32,
            key_dim: heads.key_dim as u32,
            rows_of_block: 0,
            unused: 0,
        };
        convolve(&self.device, lanes, longest, shape.conv_past, of_convolution)?;
        let of_rule = DeltaArguments {
            qkv: work.at(Floats::Convolved),
            decay: work.at(Floats::Decay),
            beta: work.at(Floats::Beta),
            out: work.at(Floats::Out),
            lanes: at,
            chunks: work.at(Floats::Chunks),
            state: (in_state * shape.recurrent()) as u64,
            key_heads: heads.key_heads as u32,
            value_heads: heads.value_heads as u32,
            key_dim: heads.key_dim as u32,
            value_dim: heads.value_dim as u32,
            tiled: heads.tiled.into(),
            most_chunks: 0,
        };
        advance(&self.device, lanes, longest, work.room(Floats::Chunks), of_rule)
    }

    fn in_log(&self, layer: usize) -> u64 {
        (layer * RecurrenceLog::layer_values(&self.state_shape)) as u64
    }

    /// Advances a state to `position` by running its recurrences on the logged inputs. The pages of the state must hold
    /// the keys and values already.
    pub fn replay(
        &self,
        state: &mut SequenceState,
        log: &RecurrenceLog,
        position: usize,
        work: &mut GpuWorkspace,
    ) -> Result<(), Error> {
        let covered = log.covered();
        assert!(covered.start <= state.position && position <= covered.end, "a replay beyond the recurrence log");
        while state.position < position {
            let rows = (position - state.position).min(MOST_REPLAYED);
            self.replay_rows(state, log, rows, work)?;
            state.position += rows;
            state.outputs.clear();
        }
        Ok(())
    }

    fn replay_rows(
        &self,
        state: &SequenceState,
        log: &RecurrenceLog,
        rows: usize,
        work: &mut GpuWorkspace,
    ) -> Result<(), Error> {
        work.inputs.clear();
        work.inputs.add_lane(state, rows, Some(log))?;
        let (step, heads) = (self.step(work)?, self.state_shape.heads);
        let linear = self.layers.iter().filter_map(|layer| match &layer.mixer {
            GpuMixer::Delta(weights) => Some(weights),
            GpuMixer::Attention(_) => None,
        });
        for (layer, weights) in linear.enumerate() {
            let of_log = ReadLogArguments {
                log_rows: step.at.log_rows,
                x: work.at(Floats::Q),
                decay: work.at(Floats::Decay),
                beta: work.at(Floats::Beta),
                layer: self.in_log(layer),
                channels: heads.channels() as u32,
                heads: heads.value_heads as u32,
            };
            read_log(&self.device, rows, &of_log)?;
            // Replayed tokens are in the log already.
            self.recur(weights, layer, &step, Inputs::Logged, work)?;
        }
        Ok(())
    }
}
