use kernels::attention::PageLayout;
use kernels::cpu::CpuLevel;
use kernels::format::Format;
use kernels::hadamard::{self, Signs};
use kernels::rotation::{Rotation, rotate};
use proptest::prelude::*;
use reference::{QueryRows, assert_close, random};

use gpu::attention::*;
use gpu::buffer::Buffer;
use gpu::device::Processors;
use gpu::lanes::LaneArguments;
use gpu::matrix::DeviceFormat;
use gpu::rotation::{TurnsArguments, turns};
use gpu::rows::{DeviceRows, Forms, Halves};
use testing::{cases, device_of_tests, is_emulated};

const FORMATS: [Format; 7] =
    [Format::F32, Format::F16, Format::BF16, Format::Q8_0, Format::Q4_0, Format::TQ4, Format::TQ3];
const SIGNS: Signs = Signs { seed: 0x5265_7072_6973_6531 };

#[derive(Debug, Clone)]
struct Problem {
    /// (positions before, tokens) of each lane.
    lanes: Vec<(usize, usize)>,
    kv_heads: usize,
    group: usize,
    dim: usize,
    key: Format,
    value: Format,
    splits: usize,
    shared_bytes: usize,
    seed: u64,
    // True if keys and values are rotated that need not be.
    rotated: bool,
}

impl Problem {
    fn layout(&self) -> PageLayout {
        let signs = |format: Format| {
            let is_rotated = format.is_of_rotated_rows() || self.rotated && format.is_quantised();
            is_rotated.then_some(SIGNS)
        };
        PageLayout {
            key_format: self.key,
            value_format: self.value,
            kv_heads: self.kv_heads,
            head_dim: self.dim,
            page: 256,
            key_signs: signs(self.key),
            value_signs: signs(self.value),
        }
    }
}

const SHARED_BYTES: [usize; 2] = [99 << 10, 227 << 10];

fn problem() -> impl Strategy<Value = Problem> {
    let lane = (prop_oneof![0usize..5, 60usize..70, 250usize..600], prop_oneof![Just(1usize), 2usize..40]);
    let format = || prop::sample::select(FORMATS.to_vec());
    (
        prop::collection::vec(lane, 1..3),
        (1usize..3, 1usize..7),
        prop::sample::select(vec![32usize, 64, 128, 256]),
        (format(), format()),
        (1usize..6, prop::sample::select(SHARED_BYTES.to_vec())),
        (any::<u64>(), any::<bool>()),
    )
        .prop_map(|(lanes, (kv_heads, group), dim, (key, value), (splits, shared_bytes), (seed, rotated))| {
            Problem { lanes, kv_heads, group, dim, key, value, splits, shared_bytes, seed, rotated }
        })
}

const LAYER: usize = 1;
const EPS: f32 = 1e-6;

fn check_problem(p: &Problem) {
    let Some(device) = device_of_tests() else { return };
    let layout = p.layout();
    let (q_heads, width) = (p.kv_heads * p.group, p.kv_heads * p.dim);
    let rows: usize = p.lanes.iter().map(|lane| lane.1).sum();
    let q = random(rows * q_heads * 2 * p.dim, p.seed);
    let (k, v) = (random(rows * width, p.seed + 1), random(rows * width, p.seed + 2));
    let norms = [3, 4].map(|i| random(p.dim, p.seed + i).iter().map(|x| 1.5 + x).collect::<Vec<f32>>());
    let rotation = Rotation::new(p.dim / 2, 10_000.0, None);

    // The past, written by the CPU.
    let mut pages: Vec<Vec<Vec<u8>>> = Vec::new();
    for (i, (before, count)) in p.lanes.iter().enumerate() {
        let mut own = vec![vec![0xFFu8; 3 * layout.bytes()]; (before + count).div_ceil(256)];
        let past = random(before * width * 2, p.seed + 10 + i as u64);
        for (position, row) in past.chunks_exact(2 * width).enumerate() {
            let page = &mut own[position / 256][LAYER * layout.bytes()..][..layout.bytes()];
            layout.write(CpuLevel::detect(), page, position % 256, &row[..width], &row[width..]);
        }
        pages.push(own);
    }
    let there: Vec<Vec<Buffer<u8>>> =
        pages.iter().map(|own| own.iter().map(|page| Buffer::of(&device, page).unwrap()).collect()).collect();
    let tables: Vec<Buffer<u64>> = there
        .iter()
        .map(|own| Buffer::of(&device, &own.iter().map(Buffer::address).collect::<Vec<_>>()).unwrap())
        .collect();
    let (mut lanes, mut lane_of_row) = (Vec::new(), Vec::new());
    for (i, (before, count)) in p.lanes.iter().enumerate() {
        lanes.push(LaneArguments {
            pages: tables[i].address(),
            first: lane_of_row.len() as u32,
            count: *count as u32,
            position: *before as u32,
            key_kind: DeviceFormat::of(p.key) as u32,
            value_kind: DeviceFormat::of(p.value) as u32,
            turned: (u32::from(layout.key_signs.is_some()) * TURNED_KEYS)
                | (u32::from(layout.value_signs.is_some()) * TURNED_VALUES),
            ..LaneArguments::default()
        });
        lane_of_row.resize(lane_of_row.len() + count, i as u32);
    }
    let (lanes_there, rows_there) = (Buffer::of(&device, &lanes).unwrap(), Buffer::of(&device, &lane_of_row).unwrap());
    let [q_there, k_there, v_there] = [&q, &k, &v].map(|values| Buffer::of(&device, values).unwrap());
    let [q_norm, k_norm] = [0, 1].map(|i| Buffer::of(&device, &norms[i]).unwrap());
    let frequencies = Buffer::of(&device, &rotation.frequencies).unwrap();
    let turns_there = Buffer::<f32>::new(&device, rows * rotation.dims()).unwrap();
    let (lanes_at, lane_of_row_at) = (lanes_there.address(), rows_there.address());
    let pairs = rotation.frequencies.len() as u32;
    let of_turns = TurnsArguments {
        frequencies: frequencies.address(),
        lanes: lanes_at,
        lane_of_row: lane_of_row_at,
        out: turns_there.address(),
        pairs,
        magnitude: 1.25,
    };
    turns(&device, rows, &of_turns).unwrap();
    let heads = AttentionHeads {
        lanes: lanes_at,
        lane_of_row: lane_of_row_at,
        q: q_there.address(),
        q_heads: q_heads as u32,
        kv_heads: p.kv_heads as u32,
        dim: p.dim as u32,
        layer: LAYER as u32,
        seed: SIGNS.seed,
    };
    let of_prepare = PrepareArguments {
        heads,
        k: k_there.address(),
        v: v_there.address(),
        q_norm: q_norm.address(),
        k_norm: k_norm.address(),
        turns: turns_there.address(),
        pairs,
        eps: EPS,
    };
    prepare(&device, rows, &of_prepare).unwrap();
    let partial = Buffer::<f32>::new(&device, p.splits * rows * q_heads * p.dim).unwrap();
    let stats = Buffer::<f32>::new(&device, 2 * p.splits * rows * q_heads).unwrap();
    let parts = PastParts { partial: partial.address(), stats: stats.address() };
    let longest = p.lanes.iter().map(|lane| lane.1).max().unwrap();
    let own = if is_emulated(&device) { usize::MAX } else { device.processors().shared_bytes };
    let shared_bytes = p.shared_bytes.min(own);
    let processors = Processors { shared_bytes, ..device.processors() };
    let shape = (q_heads, p.kv_heads, p.dim);
    let mut spread = Spread::new(processors, lanes.len(), longest, shape);
    spread.splits = p.splits;
    attend(&device, heads, lanes.len(), rows, spread, parts).unwrap();
    // With halves a block does all heads of a row, without each of them alone.
    let halves = if p.seed.is_multiple_of(2) { Halves::One } else { Halves::No };
    let forms = Forms { values: true, halves, ..Forms::default() };
    let out = DeviceRows::new(&device, rows, q_heads * p.dim, forms).unwrap();
    combine(&device, heads, (rows, layout.value_signs.is_some()), p.splits, parts, out.arguments(forms)).unwrap();
    let ours = out.values.to_vec().unwrap();
    let ours: Vec<f32> = ours.chunks(out.padded).flat_map(|row| row[..out.cols].to_vec()).collect();

    // The definition: norms, turns, the pages as they are now, gates.
    let mut first = 0;
    for (i, (before, count)) in p.lanes.iter().enumerate() {
        let mut queries = q[first * q_heads * 2 * p.dim..][..count * q_heads * 2 * p.dim].to_vec();
        let mut keys = k[first * width..][..count * width].to_vec();
        let turn = |head: &mut [f32], position: usize, norm: &[f32]| {
            let normed = reference::rms_norm(head, norm, EPS);
            head.copy_from_slice(&normed);
            let mut turns = vec![0.0; rotation.dims()];
            rotation.at(position, &mut turns);
            turns.iter_mut().for_each(|turn| *turn *= 1.25);
            rotate(head, &turns);
        };
        for (j, row) in queries.chunks_exact_mut(q_heads * 2 * p.dim).enumerate() {
            row.chunks_exact_mut(2 * p.dim).for_each(|head| turn(&mut head[..p.dim], before + j, &norms[0]));
        }
        for (j, row) in keys.chunks_exact_mut(width).enumerate() {
            row.chunks_exact_mut(p.dim).for_each(|head| turn(head, before + j, &norms[1]));
        }
        let mut all = [Vec::new(), Vec::new()];
        let (mut key, mut value) = (vec![0.0; p.dim], vec![0.0; p.dim]);
        for position in 0..before + count {
            let page = there[i][position / 256].to_vec().unwrap();
            assert!(page[..layout.bytes()].iter().all(|byte| *byte == 0xFF), "another layer was written");
            for head in 0..p.kv_heads {
                layout.read(
                    &page[LAYER * layout.bytes()..][..layout.bytes()],
                    head,
                    position % 256,
                    &mut key,
                    &mut value,
                );
                all[0].extend_from_slice(&key);
                all[1].extend_from_slice(&value);
            }
        }
        let written = [&keys[..], &v[first * width..][..count * width]];
        let kept = [(p.key, layout.key_signs), (p.value, layout.value_signs)];
        for ((format, signs), (all, written)) in kept.into_iter().zip(all.iter().zip(written)) {
            let mut expected = written.to_vec();
            for row in expected.chunks_exact_mut(p.dim) {
                let mut bytes = vec![0; format.row_bytes(p.dim).unwrap()];
                signs.iter().for_each(|signs| hadamard::turn(CpuLevel::Portable, *signs, p.dim, row));
                kernels::format::quantize(format, row, &mut bytes);
                kernels::format::dequantize(format, &bytes, row);
                signs.iter().for_each(|signs| hadamard::turn_back(CpuLevel::Portable, *signs, p.dim, row));
            }
            // A scale of rotated rows is for more than a block.
            let block = if signs.is_some() { p.dim } else { 32 };
            assert_quantized_as_well(block, &all[before * width..], &expected, written);
        }
        let stride = q_heads * 2 * p.dim;
        let of_reference =
            QueryRows { values: &queries, stride, head_stride: 2 * p.dim, q_heads, rows: *count, first: *before };
        let mut expected = reference::attention((p.kv_heads, p.dim), &all[0], &all[1], of_reference);
        for (j, row) in expected.chunks_exact_mut(p.dim).enumerate() {
            let gate = &queries[j * 2 * p.dim + p.dim..][..p.dim];
            row.iter_mut().zip(gate).for_each(|(out, gate)| *out *= kernels::activation::sigmoid(*gate));
        }
        // Queries, weights and tiles are halves, and norms this loud make scores of 30 and more.
        assert_close(&ours[first * q_heads * p.dim..][..expected.len()], &expected, 3e-3);
        first += count;
    }
}

/// A value on the border between two codes may fall to either side of it, in any number of places, and of two scales that
/// serve a block equally well either may be chosen. So a block may differ from the reference's, but may be no further from what
/// was written than the reference's is.
fn assert_quantized_as_well(block: usize, ours: &[f32], reference: &[f32], written: &[f32]) {
    let distance = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f32>().sqrt();
    for ((ours, reference), written) in ours.chunks(block).zip(reference.chunks(block)).zip(written.chunks(block)) {
        let (off, reference_off) = (distance(ours, written), distance(reference, written));
        let size = distance(written, &vec![0.0; written.len()]);
        assert!(
            off <= 1.02 * reference_off + 1e-3 * size,
            "{ours:?} is {off} from {written:?}, and the reference {reference_off}: {reference:?}"
        );
    }
}

proptest! {
    #![proptest_config(cases(24))]
    #[test]
    fn parts_of_the_past_are_the_reference(p in problem()) {
        check_problem(&p);
    }
}

/// Every kernel for them, and every way in which positions come into it: of each size of heads, and where a block may have
/// more shared memory or less.
#[test]
fn many_rows_with_heads_of_every_size_are_the_reference() {
    let sizes = [(32, 0), (64, 0), (128, 0), (256, 0), (256, 1)].map(|(dim, i)| (dim, SHARED_BYTES[i]));
    let formats = [
        (Format::F16, Format::F16),
        (Format::Q8_0, Format::Q4_0),
        (Format::Q4_0, Format::Q8_0),
        (Format::F32, Format::Q8_0),
        (Format::Q4_0, Format::BF16),
        (Format::TQ4, Format::TQ3),
        (Format::TQ3, Format::TQ4),
        (Format::F16, Format::TQ4),
    ];
    for ((dim, shared_bytes), (key, value)) in sizes.into_iter().flat_map(|size| formats.map(|format| (size, format))) {
        let lanes = vec![(75, 23), (3, 5)];
        let rotated = shared_bytes == SHARED_BYTES[1];
        let (kv_heads, group, splits, seed) = (1, 6, 2, 3);
        check_problem(&Problem { lanes, kv_heads, group, dim, key, value, splits, shared_bytes, seed, rotated });
    }
}
