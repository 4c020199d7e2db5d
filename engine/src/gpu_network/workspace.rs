//! Buffers of a step, kept for the next one. They grow to the largest step.

use bytemuck::Pod;
use gpu::attention::Spread;
use gpu::device::{Graph, Processors};
use gpu::product::{self, Exactness, FEW_ROWS, tile_rows};
use gpu::routing::most_tiles;
use gpu::rows::{DeviceRows, FormRows, Forms, Halves, PADDED_TO};
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
    floats: Buffer<f32>,            // what is never needed at the same time lies in the same place
    layout: Layout,
    numbers: [Buffer<u32>; 5],
    logits_on_host: HostBuffer<f32>, // [wanted rows, vocab]
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

/// Places of values in the buffer of all. A layer mixes tokens and then feeds each of them forward, and only the last one is followed by
/// logits.
#[derive(Clone, PartialEq)]
struct Layout {
    sizes: [usize; 25],
    places: [usize; 25],
    len: usize,
}

const OF_THE_STEP: [Floats; 7] = [
    Floats::Hidden,
    Floats::Turns,
    Floats::DraftRecurrent,
    Floats::DraftConv,
    Floats::Before,
    Floats::Embedded,
    Floats::LowRank,
];
const OF_BOTH_MIXERS: [Floats; 2] = [Floats::Q, Floats::K];
const OF_ATTENTION: [Floats; 3] = [Floats::V, Floats::Partial, Floats::Stats];
const OF_LINEAR_LAYERS: [Floats; 5] = [Floats::Convolved, Floats::Out, Floats::Decay, Floats::Beta, Floats::Chunks];
const OF_FEED_FORWARD: [Floats; 7] =
    [Floats::Gate, Floats::Up, Floats::Scores, Floats::Shares, Floats::Answers, Floats::Shared, Floats::SharedScore];
const ALIGNED_TO: usize = 64;

impl Layout {
    fn of(sizes: [usize; 25]) -> Layout {
        let mut places = [0; 25];
        let mut put = |first: usize, group: &[Floats]| {
            group.iter().fold(first, |at, which| {
                places[*which as usize] = at;
                at + sizes[*which as usize].next_multiple_of(ALIGNED_TO)
            })
        };
        let kept = put(0, &OF_THE_STEP);
        // The block for multi-token prediction runs before the logits are read.
        let (predicts, logits) = (sizes[Floats::Before as usize] > 0, put(kept, &[Floats::Logits]));
        let first = if predicts { logits } else { kept };
        let mixed = put(first, &OF_BOTH_MIXERS);
        let ends = [logits, put(mixed, &OF_ATTENTION), put(mixed, &OF_LINEAR_LAYERS), put(first, &OF_FEED_FORWARD)];
        Layout { sizes, places, len: ends.into_iter().fold(0, usize::max) }
    }
}

impl GpuWorkspace {
    pub fn new(device: &Device) -> Result<GpuWorkspace, Error> {
        Ok(GpuWorkspace {
            inputs: StepInputs::new(device)?,
            normed: DeviceRows::with_room(device, FormRows::default(), 0)?,
            inner: DeviceRows::with_room(device, FormRows::default(), 0)?,
            low_rank: DeviceRows::with_room(device, FormRows::default(), 0)?,
            outputs: DeviceRows::with_room(device, FormRows::default(), 0)?,
            floats: Buffer::new(device, 0)?,
            layout: Layout::of([0; 25]),
            numbers: empty(device)?,
            logits_on_host: HostBuffer::new(device),
            rows_on_host: Vec::new(),
            graphs: Vec::new(),
        })
    }

    pub(super) fn read(&self, which: Floats, first: usize, out: &mut [f32]) -> Result<(), Error> {
        self.floats.read(self.place(which, first, out.len()), out)
    }

    pub(super) fn write(&self, which: Floats, first: usize, values: &[f32]) -> Result<(), Error> {
        self.floats.write(self.place(which, first, values.len()), values)
    }

    pub(super) fn logits(&mut self, count: usize) -> Result<&mut [f32], Error> {
        let place = self.place(Floats::Logits, 0, count);
        let logits = self.logits_on_host.room(count)?;
        self.floats.read(place, logits)?;
        Ok(logits)
    }

    fn place(&self, which: Floats, first: usize, count: usize) -> usize {
        assert!(first + count <= self.room(which), "the values lie beside their place");
        self.layout.places[which as usize] + first
    }

    pub(super) fn at(&self, which: Floats) -> u64 {
        self.floats.address() + (self.layout.places[which as usize] * size_of::<f32>()) as u64
    }

    pub(super) fn room(&self, which: Floats) -> usize {
        self.layout.sizes[which as usize]
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
        let layout = Layout::of(std::array::from_fn(|i| self.layout.sizes[i].max(needed.floats[i])));
        let mut grown = layout != self.layout;
        if grown {
            // Where there is no memory, nothing has a place until the next step, and no recorded step starts.
            self.layout = Layout::of([0; 25]);
            self.graphs.clear();
            grow(&mut self.floats, layout.len)?;
            self.layout = layout;
        }
        for (buffer, len) in self.numbers.iter_mut().zip(needed.numbers) {
            grown |= grow(buffer, len)?;
        }
        let all = [&mut self.normed, &mut self.inner, &mut self.low_rank, &mut self.outputs];
        for (rows, (count, cols)) in all.into_iter().zip(needed.rows) {
            let room = rows.room();
            if room.max(count) != room || rows.cols != cols {
                // The old buffers are freed first: both may not fit at the same time.
                *rows = DeviceRows::with_room(device, FormRows::default(), 0)?;
                *rows = DeviceRows::with_room(device, room.max(count), cols)?;
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
    rows: [(FormRows, usize); 4], // rows and columns of `normed`, `inner`, `low_rank` and `outputs`
}

#[derive(Clone, Copy)]
pub(super) struct StepWidths<'m> {
    pub shape: &'m Shape,
    pub largest_rank: usize,
    pub processors: Processors,
    pub exactness: Exactness,
}

impl BufferSizes {
    pub fn most(widths: StepWidths, rows: usize, lanes: usize, wanted: usize) -> BufferSizes {
        let none = BufferSizes { floats: [0; 25], numbers: [0; 5], rows: [(FormRows::default(), 0); 4] };
        let steps = (1..=lanes).flat_map(|lanes| (1..=rows).map(move |longest| (lanes, longest)));
        steps.fold(none, |most, (lanes, longest)| {
            let rows = (lanes * longest).min(rows);
            let one = BufferSizes::new(widths, (rows, lanes, longest), wanted);
            BufferSizes {
                floats: std::array::from_fn(|i| most.floats[i].max(one.floats[i])),
                numbers: std::array::from_fn(|i| most.numbers[i].max(one.numbers[i])),
                rows: std::array::from_fn(|i| {
                    let ((most, _), (one, cols)) = (most.rows[i], one.rows[i]);
                    (most.max(one), cols)
                }),
            }
        })
    }

    pub fn new(widths: StepWidths, (rows, lanes, longest): (usize, usize, usize), wanted: usize) -> BufferSizes {
        let StepWidths { shape, largest_rank, processors, exactness } = widths;
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
        let inner_cols = match used {
            0 => widest,
            _ => expert_ffn.next_multiple_of(PADDED_TO).max(widest.next_multiple_of(PADDED_TO).div_ceil(used)),
        };
        let a_row = used.max(1); // rows of `inner` that a row of the step takes
        // Few rows are read in other forms than many.
        let forms = |of_one: usize| {
            let few = FormRows::of(rows.min(FEW_ROWS) * of_one, product::forms(1, exactness));
            let many = if rows > FEW_ROWS { rows * of_one } else { 0 };
            few.max(FormRows::of(many, product::forms(FEW_ROWS + 1, exactness)))
        };
        // Exact products read values of any number of rows.
        let normed = forms(1).max(FormRows::of(rows, VALUES));
        let low_rank =
            if largest_rank == 0 { FormRows::default() } else { forms(a_row).max(FormRows::of(rows * a_row, VALUES)) };
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
                gpu::delta::scratch(rows, lanes, longest, shape.value_heads),
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
            rows: [
                (normed, shape.hidden),
                (forms(a_row), inner_cols),
                (low_rank, largest_rank),
                (FormRows::of(predicting, VALUES), shape.hidden),
            ],
        }
    }

    pub fn bytes(&self) -> usize {
        let numbers = Layout::of(self.floats).len + self.numbers.iter().sum::<usize>();
        self.rows.iter().map(|(rows, cols)| rows.bytes(*cols)).sum::<usize>() + numbers * size_of::<f32>()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_are_needed_together_lie_apart() {
        let mut sizes: [usize; 25] = std::array::from_fn(|at| 100 * (at % 7) + 1);
        for before in [0, 9] {
            sizes[Floats::Before as usize] = before;
            let layout = Layout::of(sizes);
            let logits = if before == 0 { &[][..] } else { &[Floats::Logits] };
            let beside = |group: &[Floats]| [&OF_THE_STEP[..], logits, group].concat();
            let attention = [&OF_BOTH_MIXERS[..], &OF_ATTENTION].concat();
            let linear = [&OF_BOTH_MIXERS[..], &OF_LINEAR_LAYERS].concat();
            for group in [&attention[..], &linear, &OF_FEED_FORWARD, &[Floats::Logits][logits.len()..]].map(beside) {
                let place = |which: &Floats| layout.places[*which as usize];
                let mut parts: Vec<_> = group.iter().map(|which| (place(which), sizes[*which as usize])).collect();
                parts.sort_unstable();
                assert!(parts.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0), "{parts:?}");
                assert!(parts.last().is_some_and(|(place, len)| place + len <= layout.len));
            }
            let is_shared = layout.places[Floats::Logits as usize] == layout.places[Floats::Q as usize];
            assert_eq!(is_shared, before == 0);
        }
    }
}
