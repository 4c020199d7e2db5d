//! Buffers of a step, kept for the next one. They grow to the largest step.

use bytemuck::Pod;
use gpu::attention::Spread;
use gpu::device::{Graph, Processors};
use gpu::product::{FEW_ROWS, tile_rows};
use gpu::routing::most_tiles;
use gpu::rows::{DeviceRows, Forms, Halves, PADDED_TO};
use gpu::{Buffer, Device, Error, HostBuffer};
use weights::Shape;

use super::{InputAddresses, StepInputs};
use crate::state::StateShape;

pub struct GpuWorkspace {
    pub(super) inputs: StepInputs,
    pub(super) normed: DeviceRows, // input of products
    pub(super) inner: DeviceRows,
    pub(super) low_rank: DeviceRows, // input of the second product of what an adapter adds
    pub(super) outputs: DeviceRows, // [rows, hidden]: the input of the output matrix, for the block for multi-token prediction
    pub(super) floats: [Buffer<f32>; 25],
    numbers: [Buffer<u32>; 5],
    pub(super) logits_on_host: HostBuffer<f32>, // [wanted rows, vocab]
    /// [rows, hidden]: the residual stream, for feed-forward parts that the CPU computes.
    pub(super) rows_on_host: Vec<f32>,
    /// Recorded steps with one token a lane. They hold addresses of the buffers above.
    pub(super) graphs: Vec<(GraphKey, Graph)>,
}

#[derive(Clone, Copy)]
pub(super) enum Floats {
    Hidden, // [rows, hidden]: the residual stream
    Turns,
    /// Attention: queries with gates, keys, values. Linear layers: q, k and v in `Q`, z in `K`.
    Q,
    K,
    V,
    Convolved, // linear layers: the outputs of the convolution and of the delta rule
    Out,
    Decay,
    Beta,
    Chunks,
    Partial,
    Stats,
    Gate, // feed-forward: gate and up
    Up,
    Logits,
    Scores, // experts
    Shares,
    Answers,
    Shared,
    SharedScore,
    DraftRecurrent, // a layer's state of each lane, for drafts to pass
    DraftConv,
    /// [rows, hidden]: the model's output before each row, which its block for multi-token prediction reads.
    Before,
    // [rows, hidden]: rows of an embedding on the host, which a block for multi-token prediction reads again.
    Embedded,
    LowRank, // [rows, rank]: the first product of what an adapter adds
}

#[derive(Clone, Copy)]
pub(super) enum Numbers {
    Experts,
    Source,
    OfRow,
    PlaceOfPair,
    Tiles,
}

#[derive(Clone, Copy, PartialEq)]
pub(super) struct GraphKey {
    pub sizes: (usize, usize, usize), // rows, lanes, and rows with wanted logits
    pub turns: bool,
    pub at: InputAddresses,
    pub overlaps: bool,
}

pub(super) const VALUES: Forms = Forms { values: true, integers: false, halves: Halves::No };
const ALL: Forms = Forms { values: true, integers: true, halves: Halves::Two };

impl GpuWorkspace {
    pub fn new(device: &Device) -> Result<GpuWorkspace, Error> {
        Ok(GpuWorkspace {
            inputs: StepInputs::new(device)?,
            normed: DeviceRows::new(device, 0, 0, ALL)?,
            inner: DeviceRows::new(device, 0, 0, ALL)?,
            low_rank: DeviceRows::new(device, 0, 0, ALL)?,
            outputs: DeviceRows::new(device, 0, 0, VALUES)?,
            floats: empty(device)?,
            numbers: empty(device)?,
            logits_on_host: HostBuffer::new(device),
            rows_on_host: Vec::new(),
            graphs: Vec::new(),
        })
    }

    pub(super) fn buffer(&self, which: Floats) -> &Buffer<f32> {
        &self.floats[which as usize]
    }

    pub(super) fn at(&self, which: Floats) -> u64 {
        self.buffer(which).address()
    }

    pub(super) fn numbers_at(&self, which: Numbers) -> u64 {
        self.numbers[which as usize].address()
    }

    pub(super) fn keep_graph(&mut self, key: GraphKey, graph: Graph) {
        if self.graphs.len() == MOST_GRAPHS {
            self.graphs.remove(0);
        }
        self.graphs.push((key, graph));
    }

    pub(super) fn reserve(&mut self, device: &Device, needed: &BufferSizes) -> Result<(), Error> {
        let mut grown = false;
        for (buffer, len) in self.floats.iter_mut().zip(needed.floats) {
            grown |= grow(buffer, len)?;
        }
        for (buffer, len) in self.numbers.iter_mut().zip(needed.numbers) {
            grown |= grow(buffer, len)?;
        }
        let (normed, inner) = ((&mut self.normed, needed.normed, ALL), (&mut self.inner, needed.inner, ALL));
        let low_rank = (&mut self.low_rank, needed.low_rank, ALL);
        for (rows, (count, cols), forms) in [normed, inner, low_rank, (&mut self.outputs, needed.outputs, VALUES)] {
            if rows.values.len() < count * cols.next_multiple_of(PADDED_TO) {
                // The old buffers are freed first: both may not fit at the same time.
                *rows = DeviceRows::new(device, 0, 0, forms)?;
                *rows = DeviceRows::new(device, count, cols, forms)?;
                grown = true;
            }
        }
        if grown {
            // They hold addresses of the old buffers.
            self.graphs.clear();
        }
        Ok(())
    }
}

/// Most recorded steps: one for each number of replies that are written together, and for each address of the inputs.
const MOST_GRAPHS: usize = 64;

pub(super) struct BufferSizes {
    floats: [usize; 25], // in the order of `Floats` and of `Numbers`
    numbers: [usize; 5],
    normed: (usize, usize),
    inner: (usize, usize),
    low_rank: (usize, usize),
    outputs: (usize, usize),
}

#[derive(Clone, Copy)]
pub(super) struct StepWidths<'m> {
    pub shape: &'m Shape,
    pub largest_rank: usize,
    pub processors: Processors,
}

impl BufferSizes {
    pub fn most(widths: StepWidths, rows: usize, lanes: usize, wanted: usize) -> BufferSizes {
        let (normed, inner, low_rank, outputs) = ((0, 0), (0, 0), (0, 0), (0, 0));
        let none = BufferSizes { floats: [0; 25], numbers: [0; 5], normed, inner, low_rank, outputs };
        let steps = (1..=lanes).flat_map(|lanes| (1..=rows).map(move |longest| (lanes, longest)));
        steps.fold(none, |most, (lanes, longest)| {
            let rows = (lanes * longest).min(rows);
            let one = BufferSizes::new(widths, (rows, lanes, longest), wanted);
            BufferSizes {
                floats: std::array::from_fn(|i| most.floats[i].max(one.floats[i])),
                numbers: std::array::from_fn(|i| most.numbers[i].max(one.numbers[i])),
                normed: most.normed.max(one.normed),
                inner: most.inner.max(one.inner),
                low_rank: most.low_rank.max(one.low_rank),
                outputs: most.outputs.max(one.outputs),
            }
        })
    }

    pub fn new(widths: StepWidths, (rows, lanes, longest): (usize, usize, usize), wanted: usize) -> BufferSizes {
        let StepWidths { shape, largest_rank, processors } = widths;
        // A lane with drafts has at least two rows, and a step with drafts has few.
        let (state, drafting) = (StateShape::new(shape), lanes.min(FEW_ROWS / 2));
        let predicting = if shape.mtp_blocks > 0 { rows } else { 0 };
        let (queries, values) = (shape.q_heads * shape.head_dim, shape.delta_values());
        let heads = (shape.q_heads, shape.kv_heads, shape.head_dim);
        let parts = Spread::new(processors, lanes, longest, heads).splits * rows * shape.q_heads;
        let (used, experts, expert_ffn, shared_ffn) =
            shape.moe.as_ref().map_or((0, 0, 0, 0), |moe| (moe.used, moe.experts, moe.expert_ffn, moe.shared_ffn));
        let (pairs, ffn) = (rows * used, if used == 0 { shape.ffn } else { (used * expert_ffn).max(shared_ffn) });
        let routed = |values: usize| if used == 0 { 0 } else { values };
        // Rows of several widths share a buffer: those of experts are narrow and many.
        let widest = queries.max(values).max(if used == 0 { shape.ffn } else { shared_ffn });
        let inner = match used {
            0 => (rows, widest),
            _ => (pairs, expert_ffn.next_multiple_of(PADDED_TO).max(widest.next_multiple_of(PADDED_TO).div_ceil(used))),
        };
        BufferSizes {
            floats: [
                rows * shape.hidden,
                rows * shape.rope.dims,
                rows * (2 * queries).max(shape.delta_channels()),
                rows * (shape.kv_heads * shape.head_dim).max(values),
                rows * shape.kv_heads * shape.head_dim,
                rows * shape.delta_channels(),
                rows * values,
                rows * shape.value_heads,
                rows * shape.value_heads,
                gpu::delta::scratch(lanes, longest, shape.value_heads),
                parts * shape.head_dim,
                2 * parts,
                rows * ffn,
                rows * ffn,
                wanted * shape.vocab,
                rows * experts,
                pairs,
                pairs * shape.hidden,
                routed(rows * shape.hidden),
                routed(rows),
                drafting * state.recurrent(),
                drafting * state.conv(),
                predicting * shape.hidden,
                predicting * shape.hidden,
                rows.max(pairs) * largest_rank,
            ],
            numbers: [pairs, pairs, pairs, pairs, routed(1 + 3 * most_tiles(pairs, experts, tile_rows(1)))],
            normed: (rows, shape.hidden),
            inner,
            low_rank: (if largest_rank == 0 { 0 } else { rows.max(pairs) }, largest_rank),
            outputs: (predicting, shape.hidden),
        }
    }

    pub fn bytes(&self) -> usize {
        let rows = [self.normed, self.inner, self.low_rank].map(|(rows, cols)| DeviceRows::bytes(rows, cols, ALL));
        let outputs = DeviceRows::bytes(self.outputs.0, self.outputs.1, VALUES);
        let numbers = self.floats.iter().chain(&self.numbers).sum::<usize>() * size_of::<f32>();
        rows.iter().sum::<usize>() + outputs + numbers
    }
}

fn empty<T: Pod, const N: usize>(device: &Device) -> Result<[Buffer<T>; N], Error> {
    let buffers = (0..N).map(|_| Buffer::new(device, 0)).collect::<Result<Vec<_>, Error>>()?;
    Ok(buffers.try_into().unwrap_or_else(|_| unreachable!("N of them were made")))
}

fn grow<T: Pod>(buffer: &mut Buffer<T>, len: usize) -> Result<bool, Error> {
    let grows = buffer.len() < len;
    if grows {
        let device = buffer.device().clone();
        *buffer = Buffer::new(&device, 0)?;
        *buffer = Buffer::new(&device, len)?;
    }
    Ok(grows)
}
