//! Experts: which tokens visit which, sorted by expert, and the answers put together.

use bytemuck::{Pod, Zeroable};

use crate::device::{Device, Launch};
use crate::error::Error;

/// `Route` in `routing.cu`.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
pub struct RouteArguments {
    pub scores: u64,
    pub experts: u64,
    pub shares: u64,
    /// As for `Arrange`, where pairs stay as they come and are not arranged; 0: not wanted.
    pub source: u64,
    pub place: u64,
    pub count: u32,
    pub used: u32,
    pub renormalise: u32,
    pub unused: u32,
}

/// `Arrange` in `routing.cu`.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
pub struct ArrangeArguments {
    pub experts: u64,
    pub source: u64,
    pub of_row: u64,
    pub place: u64,
    pub tiles: u64,
    pub pairs: u32,
    pub used: u32,
    pub count: u32,
    pub tile_rows: u32,
}

/// `Gather` in `routing.cu`.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
pub struct GatherArguments {
    pub answers: u64,
    pub place: u64,
    pub shares: u64,
    /// 0: no expert is visited by all.
    pub shared_answers: u64,
    pub shared_score: u64,
    pub out: u64,
    pub rows: u32,
    pub cols: u32,
    pub used: u32,
    pub unused: u32,
}

pub fn route(device: &Device, rows: usize, arguments: &RouteArguments) -> Result<(), Error> {
    let shared_bytes = arguments.count as usize * size_of::<f32>();
    device.launch("routing", "route", Launch { grid: (rows as u32, 1, 1), threads: 32, shared_bytes }, arguments)
}

/// The most tiles that so many pairs may make: each expert's last one may be cut.
pub fn most_tiles(pairs: usize, experts: usize, tile_rows: usize) -> usize {
    pairs / tile_rows + experts.min(pairs)
}

/// As in `routing.cu`.
const ARRANGE_THREADS: usize = 256;

pub fn arrange(device: &Device, arguments: &ArrangeArguments) -> Result<(), Error> {
    // A number for each expert, and three for each warp.
    let shared_bytes = (arguments.count as usize + 3 * ARRANGE_THREADS / 32) * size_of::<u32>();
    let threads = ARRANGE_THREADS as u32;
    device.launch("routing", "arrange", Launch { grid: (arguments.count, 1, 1), threads, shared_bytes }, arguments)
}

pub fn gather(device: &Device, arguments: &GatherArguments) -> Result<(), Error> {
    let grid = (arguments.rows, arguments.cols.div_ceil(256), 1);
    device.launch("routing", "gather", Launch { grid, threads: 256, shared_bytes: 0 }, arguments)
}

#[cfg(test)]
mod tests {
    use crate::values::{assert_close, random};
    use kernels::activation::{sigmoid, top_of_softmax};
    use kernels::format::Format;
    use proptest::prelude::*;

    use super::*;
    use crate::buffer::Buffer;
    use crate::matrix::DeviceMatrix;
    use crate::norm::{NormRowsArguments, norm_rows};
    use crate::product::{Exactness, Experts, product_of_experts, tile_rows};
    use crate::rows::{DeviceRows, Forms, Halves};
    use crate::testing::{cases, device_of_tests};

    /// Pairs of the experts in `chosen`, into source, expert and place.
    fn arranged(
        chosen: &Buffer<u32>,
        [source, of_row, place]: [&Buffer<u32>; 3],
        tiles: &Buffer<u32>,
        used: usize,
        count: usize,
        tile: usize,
    ) -> ArrangeArguments {
        ArrangeArguments {
            experts: chosen.address(),
            source: source.address(),
            of_row: of_row.address(),
            place: place.address(),
            tiles: tiles.address(),
            pairs: chosen.len() as u32,
            used: used as u32,
            count: count as u32,
            tile_rows: tile as u32,
        }
    }

    proptest! {
        #![proptest_config(cases(24))]
        #[test]
        fn pairs_are_sorted_by_expert(
            (rows, used, count) in (1usize..900, 1usize..9, 1usize..300),
            large_tiles: bool,
            seed: u64,
        ) {
            let Some(device) = device_of_tests() else { return Ok(()) };
            let (pairs, tile) = (rows * used, tile_rows(if large_tiles { 100 } else { 1 }));
            let of = |value: &f32| (value.abs() * 1e4) as u32 % count as u32;
            let chosen: Vec<u32> = random(pairs, seed).iter().map(of).collect();
            let experts = Buffer::of(&device, &chosen).unwrap();
            let [source, of_row, place] = [(); 3].map(|()| Buffer::of(&device, &vec![u32::MAX; pairs]).unwrap());
            let tiles = Buffer::of(&device, &vec![u32::MAX; 1 + 3 * most_tiles(pairs, count, tile)]).unwrap();
            arrange(&device, &arranged(&experts, [&source, &of_row, &place], &tiles, used, count, tile)).unwrap();

            let mut sorted: Vec<usize> = (0..pairs).collect();
            sorted.sort_by_key(|pair| chosen[*pair]);
            let tokens: Vec<u32> = sorted.iter().map(|pair| (pair / used) as u32).collect();
            let experts: Vec<u32> = sorted.iter().map(|pair| chosen[*pair]).collect();
            let mut places = vec![0; pairs];
            sorted.iter().enumerate().for_each(|(at, pair)| places[*pair] = at as u32);
            let mut expected = vec![0];
            for of_expert in experts.chunk_by(|a, b| a == b) {
                let start = experts.partition_point(|expert| *expert < of_expert[0]);
                for (i, rows) in of_expert.chunks(tile).enumerate() {
                    expected.extend([(start + i * tile) as u32, rows.len() as u32, of_expert[0]]);
                    expected[0] += 1;
                }
            }
            assert_eq!(source.to_vec().unwrap(), tokens);
            assert_eq!(of_row.to_vec().unwrap(), experts);
            assert_eq!(place.to_vec().unwrap(), places);
            assert_eq!(tiles.to_vec().unwrap()[..expected.len()], expected);
        }

        #[test]
        fn experts_answer_for_their_tokens(
            (rows, cols, outs) in (1usize..60, 1usize..5, 1usize..150),
            (count, used) in (1usize..20, 1usize..6),
            (sorted, by_tiles, large_tiles, renormalise, shared) in any::<(bool, bool, bool, bool, bool)>(),
            seed: u64,
        ) {
            let Some(device) = device_of_tests() else { return Ok(()) };
            let (cols, used) = (32 * cols, used.min(count));
            let scores = random(rows * count, seed);
            let x = random(rows * cols, seed + 1);
            let weights: Vec<Vec<f32>> = (0..count).map(|e| random(outs * cols, seed + 2 + e as u64)).collect();
            let parts: Vec<&[u8]> = weights.iter().map(|w| bytemuck::cast_slice(w)).collect();
            let matrix = DeviceMatrix::of_parts(&device, Format::F32, count * outs, cols, &parts).unwrap();
            let (shared_answers, shared_score) = (random(rows * outs, seed + 90), random(rows, seed + 91));
            let before = random(rows * outs, seed + 92);

            let pairs = rows * used;
            let tile = tile_rows(if large_tiles { 100 } else { 1 });
            let [chosen, source, of_row, place] = [(); 4].map(|()| Buffer::<u32>::new(&device, pairs).unwrap());
            let tiles = Buffer::<u32>::new(&device, 1 + 3 * most_tiles(pairs, count, tile)).unwrap();
            let shares = Buffer::<f32>::new(&device, pairs).unwrap();
            let answers = Buffer::<f32>::new(&device, pairs * outs).unwrap();
            let out = Buffer::of(&device, &before).unwrap();
            let [scores_there, x_there, shared_there, score_there] =
                [&scores, &x, &shared_answers, &shared_score].map(|v| Buffer::of(&device, v).unwrap());
            let forms = Forms { values: true, integers: false, halves: Halves::Two };
            let in_rows = DeviceRows::new(&device, rows, cols, forms).unwrap();
            let to = in_rows.arguments(forms);
            let as_rows = NormRowsArguments { x: x_there.address(), weight: 0, chosen: 0, to, eps: 0.0, unused: 0 };
            norm_rows(&device, rows, &as_rows).unwrap();
            route(&device, rows, &RouteArguments {
                scores: scores_there.address(),
                experts: chosen.address(),
                shares: shares.address(),
                source: if sorted { 0 } else { source.address() },
                place: if sorted { 0 } else { place.address() },
                count: count as u32,
                used: used as u32,
                renormalise: renormalise.into(),
                unused: 0,
            }).unwrap();
            if sorted {
                arrange(&device, &arranged(&chosen, [&source, &of_row, &place], &tiles, used, count, tile)).unwrap();
            }
            let experts = Experts {
                source: source.address(),
                of_row: if sorted { of_row.address() } else { chosen.address() },
                tiles: if sorted && by_tiles { tiles.address() } else { 0 },
                rows_of_one: outs as u32,
                most_tiles: most_tiles(pairs, count, tile) as u32,
                tile_rows: tile as u32,
                unused: 0,
            };
            product_of_experts(&device, Exactness::Exact, to, pairs, experts, &[(&matrix, answers.address())]).unwrap();
            gather(&device, &GatherArguments {
                answers: answers.address(),
                place: place.address(),
                shares: shares.address(),
                shared_answers: if shared { shared_there.address() } else { 0 },
                shared_score: score_there.address(),
                out: out.address(),
                rows: rows as u32,
                cols: outs as u32,
                used: used as u32,
                unused: 0,
            }).unwrap();

            let mut expected = before.clone();
            let mut top = Vec::new();
            for row in 0..rows {
                top_of_softmax(&scores[row * count..][..count], used, renormalise, &mut top);
                for o in 0..outs {
                    let mut sum = 0.0;
                    for (expert, share) in &top {
                        let w = &weights[*expert][o * cols..][..cols];
                        sum += share * w.iter().zip(&x[row * cols..]).map(|(w, x)| w * x).sum::<f32>();
                    }
                    if shared {
                        sum += sigmoid(shared_score[row]) * shared_answers[row * outs + o];
                    }
                    expected[row * outs + o] += sum;
                }
            }
            assert_close(&out.to_vec().unwrap(), &expected, 1e-5);
        }
    }
}
