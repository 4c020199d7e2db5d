use kernels::cpu::Cpu;
use kernels::format::{Format, dequantize};
use kernels::product::{Activations, Rounding};
use proptest::prelude::*;
use reference::{assert_close, random};

use gpu::buffer::Buffer;
use gpu::device::MatrixUnits;
use gpu::matrix::DeviceMatrix;
use gpu::norm::{NormRowsArguments, norm_rows};
use gpu::product::*;
use gpu::rows::{DeviceRows, Forms, Halves, RowsArguments};
use gpu::{Device, GpuFeature};
use testing::{cases, device_of_tests, random_blocks};

#[derive(Debug, Clone)]
struct Problem {
    format: Format,
    rows: usize,      // of the activations
    outs: Vec<usize>, // rows of each matrix
    cols: usize,
    seed: u64,
    accumulate: bool,
}

fn problem(most_rows: usize) -> impl Strategy<Value = Problem> {
    let outs = prop::collection::vec(prop_oneof![1usize..180, 250usize..300], 1..4);
    (prop::sample::select(Format::ALL.to_vec()), 1..most_rows, outs, 1usize..12, any::<u64>(), any::<bool>()).prop_map(
        |(format, rows, outs, blocks, seed, accumulate)| {
            let cols = match format.block_len() {
                1 => 37 * blocks,
                32 => 32 * blocks,
                _ => 256 * blocks.div_ceil(4),
            };
            Problem { format, rows, outs, cols, seed, accumulate }
        },
    )
}

fn bytes_of(format: Format, rows: usize, cols: usize, seed: u64) -> Vec<u8> {
    random_blocks(format, rows * cols, seed)
}

fn row_values(format: Format, cols: usize, bytes: &[u8], row: usize) -> Vec<f32> {
    let size = format.row_bytes(cols).unwrap();
    let mut values = vec![0.0; cols];
    dequantize(format, &bytes[row * size..][..size], &mut values);
    values
}

fn rows_of(device: &Device, x: &[f32], count: usize, cols: usize) -> (DeviceRows, RowsArguments) {
    let all = Forms { values: true, integers: true, halves: Halves::Two };
    let rows = DeviceRows::new(device, count, cols, all).unwrap();
    let there = Buffer::of(device, x).unwrap();
    let to = rows.arguments(all);
    norm_rows(device, count, &NormRowsArguments { x: there.address(), weight: 0, chosen: 0, to, eps: 0.0, unused: 0 })
        .unwrap();
    (rows, to)
}

#[derive(Clone, Copy, PartialEq)]
enum Asked {
    Product(Exactness),
    Exact,
    Groups(usize),
}

fn check(p: &Problem, asked: Asked) {
    let Some(device) = device_of_tests() else { return };
    let x = random(p.rows * p.cols, p.seed);
    let (_rows, x_there) = rows_of(&device, &x, p.rows, p.cols);
    let bytes: Vec<Vec<u8>> =
        p.outs.iter().zip(1..).map(|(rows, i)| bytes_of(p.format, *rows, p.cols, p.seed ^ i)).collect();
    let matrices: Vec<DeviceMatrix> = p
        .outs
        .iter()
        .zip(&bytes)
        .map(|(rows, bytes)| DeviceMatrix::of(&device, p.format, *rows, p.cols, bytes).unwrap())
        .collect();
    let before: Vec<Vec<f32>> = p.outs.iter().map(|rows| random(p.rows * rows, p.seed + 7)).collect();
    let outs: Vec<Buffer<f32>> = before
        .iter()
        .map(|before| {
            if p.accumulate {
                Buffer::of(&device, before).unwrap()
            } else {
                Buffer::new(&device, before.len()).unwrap()
            }
        })
        .collect();
    if !p.accumulate {
        outs.iter().for_each(|out| out.fill_bytes(0xFF).unwrap());
    }
    let jobs: Vec<(&DeviceMatrix, u64)> = matrices.iter().zip(&outs).map(|(m, out)| (m, out.address())).collect();
    match asked {
        Asked::Product(exactness) => product(&device, exactness, x_there, p.rows, &jobs, p.accumulate).unwrap(),
        Asked::Exact => exact_product(&device, x_there, p.rows, &jobs).unwrap(),
        Asked::Groups(tile) => product_by_groups(&device, tile, x_there, p.rows, &jobs, p.accumulate).unwrap(),
    }
    for (i, rows) in p.outs.iter().enumerate() {
        assert_eq!(matrices[i].bytes(), gpu::matrix::device_bytes(p.format, *rows, p.cols));
        let is_groups = matches!(asked, Asked::Groups(_));
        let is_rounded = asked == Asked::Product(Exactness::Rounded) || is_groups;
        let integers = !is_groups && is_rounded && p.rows <= FEW_ROWS && p.format.is_quantised();
        let read = if integers { as_integers(p, &x) } else { x.clone() };
        let row = |n: usize, out: &mut [f32]| out.copy_from_slice(&row_values(p.format, p.cols, &bytes[i], n));
        let mut expected = reference::product(&read, *rows, p.cols, row);
        let exact = !is_rounded || integers || !is_groups && p.rows <= FEW_ROWS && !p.format.is_quantised();
        let size = size_of_sums(p, &x, &bytes[i]);
        if p.accumulate {
            expected.iter_mut().zip(&before[i]).for_each(|(e, b)| *e += b);
        }
        assert_close_to_size(&outs[i].to_vec().unwrap(), &expected, if exact { 1e-5 } else { 1e-3 }, size);
    }
}

fn as_integers(p: &Problem, x: &[f32]) -> Vec<f32> {
    let mut activations = Activations::default();
    activations.set(p.rows, p.cols, x);
    activations.quantise(&Cpu::new(1), Rounding::Fine);
    activations.rounded()
}

/// Size of sums that do not cancel: a short product of random signs may be next to nothing by itself.
fn size_of_sums(p: &Problem, x: &[f32], bytes: &[u8]) -> f64 {
    let mean = |values: &[f32]| values.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>() / values.len() as f64;
    (mean(x) * mean(&row_values(p.format, p.cols, bytes, 0)) * p.cols as f64).sqrt()
}

#[track_caller]
fn assert_close_to_size(ours: &[f32], expected: &[f32], tolerance: f64, size: f64) {
    assert_eq!(ours.len(), expected.len());
    let squares: f64 = ours.iter().zip(expected).map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2)).sum();
    let distance = (squares / ours.len() as f64).sqrt() / size.max(1e-30);
    assert!(distance <= tolerance, "distance {distance:e} is over {tolerance:e}");
}

proptest! {
    #![proptest_config(cases(60))]
    #[test]
    fn few_rows_exactly(p in problem(FEW_ROWS + 1)) {
        check(&p, Asked::Product(Exactness::Exact));
    }

    #[test]
    fn one_row_as_integers(p in problem(2)) {
        check(&p, Asked::Product(Exactness::Rounded));
    }

    #[test]
    fn few_rows_as_integers(p in problem(FEW_ROWS + 1)) {
        check(&p, Asked::Product(Exactness::Rounded));
    }

    #[test]
    fn some_rows_as_halves(p in problem(65)) {
        check(&p, Asked::Product(Exactness::Rounded));
    }

    #[test]
    fn rows_of_a_matrix(p in problem(6)) {
        let Some(device) = device_of_tests() else { return Ok(()) };
        let bytes = bytes_of(p.format, p.outs[0], p.cols, p.seed);
        let matrix = DeviceMatrix::of(&device, p.format, p.outs[0], p.cols, &bytes).unwrap();
        let tokens: Vec<u32> = (0..p.rows as u32).map(|row| row.wrapping_mul(77) % p.outs[0] as u32).collect();
        let tokens_there = Buffer::of(&device, &tokens).unwrap();
        let out = Buffer::<f32>::new(&device, p.rows * p.cols).unwrap();
        embed(&device, &matrix, tokens_there.address(), p.rows, out.address()).unwrap();
        let expected: Vec<f32> =
            tokens.iter().flat_map(|row| row_values(p.format, p.cols, &bytes, *row as usize)).collect();
        assert_close(&out.to_vec().unwrap(), &expected, 1e-6);
    }
}

proptest! {
    #![proptest_config(cases(40))]
    #[test]
    fn many_rows_by_tiles_and_by_groups(p in problem(150), more in prop_oneof![9usize..12, 100usize..300], groups: bool) {
        let Some(device) = device_of_tests() else { return Ok(()) };
        let could = device.uses(GpuFeature::GroupProducts);
        // What has no such kernel goes by tiles all the same.
        device.set_feature(GpuFeature::GroupProducts, groups);
        check(&Problem { rows: p.rows.max(more), ..p }, Asked::Product(Exactness::Rounded));
        device.set_feature(GpuFeature::GroupProducts, could);
    }

    #[test]
    fn many_rows_exactly(p in problem(80), extra in 9usize..12) {
        check(&Problem { rows: p.rows.max(extra), ..p }, Asked::Product(Exactness::Exact));
    }

    #[test]
    fn many_rows_without_rounding(
        p in problem(80),
        more in prop_oneof![9usize..40, 65usize..100],
        outs in prop::collection::vec(prop_oneof![Just(1usize), 1usize..40, 1usize..100], 1..7),
    ) {
        check(&Problem { rows: p.rows.max(more), outs, accumulate: false, ..p }, Asked::Exact);
    }
}

#[test]
fn many_rows_of_every_kind_without_rounding() {
    let Some(device) = device_of_tests() else { return };
    let many = 8 * device.processors().count as usize + 5;
    for format in Format::ALL.to_vec() {
        for (rows, outs) in [(64, vec![1, 31, 20]), (65, vec![1, 31, 20]), (many, vec![40, 1, 25])] {
            let cols = if format.block_len() == 1 { 37 * 7 } else { 512.min(9 * format.block_len()) };
            check(&Problem { format, rows, outs, cols, seed: 5, accumulate: false }, Asked::Exact);
        }
    }
}

#[test]
fn some_rows_of_every_kind() {
    let Some(device) = device_of_tests() else { return };
    let many = 64 * 2 * device.processors().count as usize;
    for format in Format::ALL.to_vec().into_iter().filter(|format| format.is_quantised()) {
        let short: &[usize] = if format.block_len() == 32 { &[32, 96, 4096 + 32] } else { &[256, 4096 + 256] };
        for (cols, rows) in short.iter().flat_map(|cols| [2, 7, 8, 9, 16, 17, 32, 33, 64].map(|rows| (*cols, rows))) {
            check(
                &Problem { format, rows, outs: vec![17, 40, 1], cols, seed: 5, accumulate: rows % 2 == 0 },
                Asked::Product(Exactness::Rounded),
            );
        }
        for (rows, out) in [(3, many), (5, many / 2), (31, many), (61, many)] {
            let problem = Problem { format, rows, outs: vec![out, 33], cols: 256, seed: 6, accumulate: true };
            check(&problem, Asked::Product(Exactness::Rounded));
        }
    }
}

/// Every kernel for that: of each kind, with both tiles; whole tiles and ragged ones, blocks with several of them, and depths
/// of fewer steps than stages and of any number.
#[test]
fn many_rows_of_every_kind_by_groups() {
    let Some(device) = device_of_tests() else { return };
    if device.capabilities().matrix_units != MatrixUnits::OfGroups {
        return;
    }
    let processors = device.processors().count as usize;
    let formats: Vec<Format> = Format::ALL.to_vec().into_iter().filter(|format| *format != Format::F32).collect();
    for (i, format) in formats.into_iter().enumerate() {
        let len = if format.block_len() == 1 { 37 } else { format.block_len() };
        for (j, tile) in GROUP_ROWS.into_iter().enumerate() {
            let shapes: [(usize, Vec<usize>, usize); 4] = [
                (tile + 1, vec![130, 7], 1),
                (5, vec![128 * processors + 1], 2),
                (2 * tile, vec![128, 256, 1], 3),
                (tile, vec![128], 21),
            ];
            let one_of = (i + j) % 2;
            for (n, (rows, outs, blocks)) in shapes.into_iter().enumerate().filter(|(n, _)| n % 2 == one_of) {
                let cols = len * if len > 64 { blocks.min(3) } else { blocks };
                let p = Problem { format, rows, outs, cols, seed: 9, accumulate: n < 2 };
                check(&p, Asked::Groups(tile));
            }
        }
    }
}
