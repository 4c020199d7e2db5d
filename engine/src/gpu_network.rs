//! The model's arithmetic on a GPU: the twin of `network`, with states on the device.
//!
//! Only the copy of the wanted logits waits for the device.

mod attention;
mod delta;
mod ffn;
mod inputs;
mod prediction;
mod product;
mod upload;
mod workspace;

use gpu::device::Processors;
use gpu::matrix::DeviceFormat;
use gpu::norm::{NormRowsArguments, norm_rows};
use gpu::product::{Exactness, FEW_ROWS, embed, forms};
use gpu::rotation::{TurnsArguments, turns};
use gpu::rows::{Forms, RowsArguments};
use gpu::{Buffer, Device, Error, GpuFeature};
use kernels::product::Precision;
use weights::{Matrix, ModelWeights, Shape};

use crate::limits::MOST_SCORED_TOKENS;
use crate::network::{StepLane, rotation_of};
use crate::snapshot::Snapshot;
use crate::state::StateShape;
use inputs::{InputAddresses, StepInputs};
use product::GpuMatrix;
use upload::{GpuFfn, GpuLayer, GpuMixer, GpuPrediction};
use workspace::{BufferSizes, Floats, GraphKey, StepWidths};

pub use upload::device_bytes;
pub use workspace::GpuWorkspace;

pub struct GpuNetwork {
    pub device: Device,
    pub shape: Shape,
    pub state_shape: StateShape,
    exactness: Exactness,
    output: GpuMatrix,
    // The embedding, if it is not the output matrix as well or an adapter changes it: a step reads a few of its rows, so that it stays
    // on the host. `None`: the output matrix is the embedding.
    embed: Option<Matrix>,
    output_norm: Buffer<f32>,
    layers: Vec<GpuLayer>,
    prediction: Option<GpuPrediction>,
    largest_rank: usize, // of what adapters add to a matrix; 0: they add nothing
    frequencies: Buffer<f64>,
    magnitude: f32,
}

/// The CPU's part: adds the feed-forward part of the layer of this number to rows of the residual stream, [rows,
/// hidden].
pub type HostFfn<'a> = &'a mut dyn FnMut(usize, &mut [f32]);

pub fn scratch_bytes(
    model: &ModelWeights,
    processors: Processors,
    precision: Precision,
    rows: usize,
    lanes: usize,
) -> usize {
    let (largest_rank, exactness) = (upload::largest_rank(model), exactness_of(precision));
    let widths = StepWidths { shape: &model.shape, largest_rank, processors, exactness };
    BufferSizes::most(widths, rows, lanes, most_wanted(lanes)).bytes()
}

fn exactness_of(precision: Precision) -> Exactness {
    if precision == Precision::F32 { Exactness::Exact } else { Exactness::Rounded }
}

/// Most rows with wanted logits: one of each lane, and reported tokens of prompts, or drafts, which are fewer.
fn most_wanted(lanes: usize) -> usize {
    lanes + MOST_SCORED_TOKENS.max(FEW_ROWS)
}

struct GpuStep {
    rows: usize,
    lanes: usize,
    longest: usize, // most rows of a lane
    few: bool,      // true if the step's products are those for few rows
    turns: bool,    // true if values of some lanes are rotated
    at: InputAddresses,
}

impl GpuNetwork {
    /// Copies a model to the device, with the feed-forward parts of only the first `ffn_layers` layers. The matrices
    /// must not be packed.
    pub fn new(
        device: &Device,
        model: &ModelWeights,
        precision: Precision,
        ffn_layers: usize,
    ) -> Result<GpuNetwork, Error> {
        let shape = model.shape.clone();
        gpu::attention::check(shape.q_heads, shape.kv_heads, shape.head_dim)?;
        gpu::delta::check(shape.key_dim, shape.value_dim)?;
        gpu::convolution::check(StateShape::new(&shape).conv_past, shape.delta_channels())?;
        let rotation = rotation_of(&shape);
        let output = upload::matrix(device, model.output_matrix())?;
        let layers = (0..model.layers.len()).map(|number| upload::layer(device, model, number, number < ffn_layers));
        Ok(GpuNetwork {
            layers: layers.collect::<Result<_, Error>>()?,
            prediction: model.prediction.as_ref().map(|from| upload::prediction(device, &shape, from)).transpose()?,
            embed: (model.output.is_some() || output.low_rank.is_some()).then(|| model.embed.clone()),
            output,
            largest_rank: upload::largest_rank(model),
            output_norm: Buffer::of(device, &model.output_norm)?,
            frequencies: Buffer::of(device, &rotation.frequencies)?,
            magnitude: rotation.magnitude,
            exactness: exactness_of(precision),
            state_shape: StateShape::new(&shape),
            device: device.clone(),
            shape,
        })
    }

    /// Advances each lane's state over its tokens but drafts. Returns the logits [wanted positions, vocab], lane after
    /// lane. Takes the snapshots that lie before the end of their lane.
    pub fn forward<'w>(
        &self,
        lanes: &mut [StepLane],
        work: &'w mut GpuWorkspace,
        on_host: HostFfn,
    ) -> Result<&'w mut [f32], Error> {
        let step = self.begin(lanes, work)?;
        self.send_before(lanes, work)?;
        if self.layers.iter().all(|layer| layer.ffn.is_some()) {
            self.run(&step, work)?;
        } else {
            self.run_with_host(&step, work, on_host)?;
        }
        self.keep_outputs(lanes, work)?;
        let logits = work.logits(work.inputs.wanted() * self.shape.vocab)?;
        for lane in lanes.iter_mut() {
            lane.state.position += lane.tokens.len() - lane.drafts;
        }
        Ok(logits)
    }

    fn begin(&self, lanes: &mut [StepLane], work: &mut GpuWorkspace) -> Result<GpuStep, Error> {
        work.inputs.clear();
        let mut first = 0;
        let is_cut = lanes.iter().any(|lane| lane.drafts > 0 || stops(lane).next().is_some());
        for lane in lanes.iter_mut() {
            let count = lane.tokens.len();
            lane.state.reserve(count);
            if let Some(log) = &mut lane.recurrence_log {
                log.begin(lane.state.position, count);
            }
            work.inputs.add_lane(lane.state, count, lane.recurrence_log.as_deref())?;
            if is_cut {
                work.inputs.add_stops(lane.state, &stops(lane).collect::<Vec<_>>(), lane.drafts)?;
            }
            work.inputs.add_tokens(lane.tokens);
            let end = first + count;
            work.inputs.want(lane.wanted.of(first..end, lane.drafts));
            first = end;
        }
        self.step(work)
    }

    pub fn reserve(&self, work: &mut GpuWorkspace, rows: usize, lanes: usize) -> Result<(), Error> {
        work.reserve(&self.device, &BufferSizes::most(self.widths(), rows, lanes, most_wanted(lanes)))
    }

    fn widths(&self) -> StepWidths<'_> {
        StepWidths {
            shape: &self.shape,
            largest_rank: self.largest_rank,
            processors: self.device.processors(),
            exactness: self.exactness,
        }
    }

    fn step(&self, work: &mut GpuWorkspace) -> Result<GpuStep, Error> {
        let (rows, lanes, longest) = work.inputs.sizes();
        let sizes = (rows, lanes, longest);
        let needed = BufferSizes::new(self.widths(), sizes, work.inputs.wanted());
        work.reserve(&self.device, &needed)?;
        let [recurrent, conv] = [Floats::DraftRecurrent, Floats::DraftConv].map(|buffer| work.at(buffer));
        work.inputs.place_drafts([recurrent, conv], [self.state_shape.recurrent(), self.state_shape.conv()]);
        let at = work.inputs.send()?;
        self.send_embedded(work)?;
        Ok(GpuStep { rows, lanes, longest, few: rows <= FEW_ROWS, turns: work.inputs.turns(), at })
    }

    // Sends the rows of an embedding that is on the host, a second time to where a block for multi-token prediction finds them, if the
    // model has one. That is done here, since no graph of the step's kernels has a copy.
    fn send_embedded(&self, work: &mut GpuWorkspace) -> Result<(), Error> {
        let Some(embed) = self.embed.as_ref().filter(|_| !work.inputs.tokens().is_empty()) else { return Ok(()) };
        let mut rows = std::mem::take(&mut work.rows_on_host);
        rows.resize(work.inputs.tokens().len() * self.shape.hidden, 0.0);
        for (token, row) in work.inputs.tokens().iter().zip(rows.chunks_exact_mut(self.shape.hidden)) {
            embed.row(*token as usize, row);
        }
        let to = if self.prediction.is_some() { Floats::Embedded } else { Floats::Hidden };
        let (sent, count) = (work.write(to, 0, &rows), rows.len());
        work.rows_on_host = rows;
        sent?;
        if self.prediction.is_none() {
            return Ok(());
        }
        gpu::snapshot::copy(&self.device, count, work.at(Floats::Embedded), work.at(Floats::Hidden))
    }

    fn embed(&self, step: &GpuStep, work: &GpuWorkspace) -> Result<(), Error> {
        // An embedding that is on the host was sent.
        if self.embed.is_some() {
            return Ok(());
        }
        embed(&self.device, &self.output.blocks, step.at.tokens, step.rows, work.at(Floats::Hidden))
    }

    /// Computes a step. Steps with one token a lane come by the thousand and differ only in their inputs, so their
    /// kernels are recorded once and started together.
    fn run(&self, step: &GpuStep, work: &mut GpuWorkspace) -> Result<(), Error> {
        let sizes = (step.rows, step.lanes, work.inputs.wanted());
        let key = GraphKey {
            sizes,
            turns: step.turns,
            at: step.at,
            overlaps: self.device.uses(GpuFeature::OverlappingLaunches),
        };
        let is_profiled = self.device.is_profiled();
        if !is_profiled && let Some((_, graph)) = work.graphs.iter().find(|(recorded, _)| *recorded == key) {
            return graph.launch();
        }
        let compute = || {
            self.compute(step, work, |_| Ok(()))?;
            self.logits(step, work)?;
            self.follow(step, work)
        };
        compute()?;
        if step.longest == 1 && !is_profiled {
            // The first run has loaded the kernels, so that they can be recorded now.
            let graph = match self.device.record(compute) {
                // This driver cannot record kernels that overlap.
                Err(error) if key.overlaps && !matches!(error, Error::Lost { .. } | Error::Recording { .. }) => {
                    self.device.set_feature(GpuFeature::OverlappingLaunches, false);
                    return Ok(());
                }
                recorded => recorded?,
            };
            work.keep_graph(key, graph);
        }
        Ok(())
    }

    /// Computes a step in which the CPU has feed-forward parts. For each of them the rows go to the host and back.
    fn run_with_host(&self, step: &GpuStep, work: &mut GpuWorkspace, on_host: HostFfn) -> Result<(), Error> {
        let mut rows = std::mem::take(&mut work.rows_on_host);
        rows.resize(step.rows * self.shape.hidden, 0.0);
        self.compute(step, work, |number| {
            work.read(Floats::Hidden, 0, &mut rows)?;
            on_host(number, &mut rows);
            work.write(Floats::Hidden, 0, &rows)
        })?;
        work.rows_on_host = rows;
        self.logits(step, work)?;
        self.follow(step, work)
    }

    /// Starts the kernels of all layers, and calls `host_ffn` for each feed-forward part that the CPU computes. The
    /// kernels' addresses and sizes depend only on the numbers of rows and lanes.
    fn compute(
        &self,
        step: &GpuStep,
        work: &GpuWorkspace,
        mut host_ffn: impl FnMut(usize) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.enter(step, work)?;
        for (number, layer) in self.layers.iter().enumerate() {
            self.mix(layer, step, work)?;
            match &layer.ffn {
                Some(ffn) => self.feed(layer, ffn, step, work)?,
                None => host_ffn(number)?,
            }
        }
        Ok(())
    }

    fn enter(&self, step: &GpuStep, work: &GpuWorkspace) -> Result<(), Error> {
        let device = &self.device;
        self.embed(step, work)?;
        let pairs = self.frequencies.len() as u32;
        let of_turns = TurnsArguments {
            frequencies: self.frequencies.address(),
            lanes: step.at.lanes,
            lane_of_row: step.at.lane_of_row,
            out: work.at(Floats::Turns),
            pairs,
            magnitude: self.magnitude,
        };
        turns(device, step.rows, &of_turns)
    }

    fn mix(&self, layer: &GpuLayer, step: &GpuStep, work: &GpuWorkspace) -> Result<(), Error> {
        let exact = matches!(layer.mixer, GpuMixer::Delta(_));
        let normed = self.norm((step.rows, 0), work, &layer.attn_norm, exact)?;
        match &layer.mixer {
            GpuMixer::Attention(weights) => self.attention(weights, layer.index, normed, step, work),
            GpuMixer::Delta(weights) => self.delta(weights, layer.index, normed, step, work),
        }
    }

    fn feed(&self, layer: &GpuLayer, ffn: &GpuFfn, step: &GpuStep, work: &GpuWorkspace) -> Result<(), Error> {
        let normed = self.norm((step.rows, 0), work, &layer.ffn_norm, matches!(ffn, GpuFfn::Moe(_)))?;
        self.ffn(ffn, normed, step, work)
    }

    fn logits(&self, step: &GpuStep, work: &GpuWorkspace) -> Result<(), Error> {
        let wanted = work.inputs.wanted();
        if wanted == 0 {
            return Ok(());
        }
        let to = self.norm((wanted, step.at.wanted), work, &self.output_norm, false)?;
        self.product((to, wanted), &[(&self.output, work.at(Floats::Logits))], false, work)
    }

    /// Norms `rows` rows: those whose numbers lie at the address `chosen`, or the first ones if that is 0. `exact`: whether
    /// an exact product reads them.
    fn norm(
        &self,
        (rows, chosen): (usize, u64),
        work: &GpuWorkspace,
        weight: &Buffer<f32>,
        exact: bool,
    ) -> Result<RowsArguments, Error> {
        let forms = self.forms(rows);
        let to = work.normed.arguments(Forms { values: forms.values || exact, ..forms });
        let (x, weight, eps) = (work.at(Floats::Hidden), weight.address(), self.shape.rms_eps);
        norm_rows(&self.device, rows, &NormRowsArguments { x, weight, chosen, to, eps, unused: 0 })?;
        Ok(to)
    }

    fn forms(&self, rows: usize) -> Forms {
        forms(rows, self.exactness)
    }
}

/// Snapshots within a step. Those before drafts are taken at its end, because the state does not pass drafts.
fn stops<'l>(lane: &'l StepLane) -> impl Iterator<Item = &'l Snapshot> {
    let end = lane.state.position + lane.tokens.len() - lane.drafts;
    lane.stops().filter(move |snapshot| snapshot.position < end)
}

fn kind_of(format: kernels::format::Format) -> u32 {
    DeviceFormat::of(format) as u32
}
