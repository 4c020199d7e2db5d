use kernels::activation::{sigmoid, top_of_softmax};
use kernels::format::{Format, dequantize};
use proptest::prelude::*;
use reference::{assert_close, random};

use gpu::buffer::Buffer;
use gpu::matrix::DeviceMatrix;
use gpu::norm::{NormRowsArguments, norm_rows};
use gpu::product::{Exactness, Experts, product_of_experts, tile_rows};
use gpu::routing::*;
use gpu::rows::{DeviceRows, Forms, Halves};
use testing::{cases, device_of_tests, random_blocks};

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
        rounded: bool,
        seed: u64,
    ) {
        let Some(device) = device_of_tests() else { return Ok(()) };
        let (cols, used) = (32 * cols, used.min(count));
        let scores = random(rows * count, seed);
        let x = random(rows * cols, seed + 1);
        let (format, exactness) = match rounded && sorted && by_tiles {
            true => (Format::Q8_0, Exactness::Rounded),
            false => (Format::F32, Exactness::Exact),
        };
        let blocks: Vec<Vec<u8>> = (0..count).map(|e| random_blocks(format, outs * cols, seed + 2 + e as u64)).collect();
        let weights: Vec<Vec<f32>> = blocks
            .iter()
            .map(|bytes| {
                let mut values = vec![0.0; outs * cols];
                dequantize(format, bytes, &mut values);
                values
            })
            .collect();
        let parts: Vec<&[u8]> = blocks.iter().map(|bytes| &bytes[..]).collect();
        let matrix = DeviceMatrix::of_parts(&device, format, count * outs, cols, &parts).unwrap();
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
        product_of_experts(&device, exactness, to, pairs, experts, &[(&matrix, answers.address())], false).unwrap();
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
        assert_close(&out.to_vec().unwrap(), &expected, if exactness == Exactness::Exact { 1e-5 } else { 1e-3 });
    }
}
