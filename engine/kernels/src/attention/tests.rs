use super::*;
use crate::hadamard;
use crate::testing;
use crate::testing::{assert_close, random};

#[test]
fn as_the_reference_for_every_format_split_and_shape() {
    use Format::*;
    // Each with the next but one, so that all lie in front of and behind rotated ones.
    let (signs, none) = (Some(Signs { seed: 3 }), None);
    let formats = [
        (F32, none),
        (TQ4, signs),
        (F16, none),
        (Q8_0, signs),
        (TQ3, signs),
        (Q4_0, none),
        (Q8_0, none),
        (BF16, none),
        (Q4_0, signs),
    ];
    for level in CpuLevel::available() {
        for (threads, kv_heads, group, dim, first, rows) in [
            (1, 2, 2, 32, 0, 1),
            (3, 1, 4, 64, 130, 1),
            (8, 1, 1, 32, 500, 3),
            (2, 2, 3, 32, 63, 70),
            (2, 1, 8, 256, 64, 5),
            (2, 2, 7, 48, 200, 1),
            (1, 1, 1, 12, 70, 2),
            (1, 1, 2, 24, 0, 3),
            (2, 1, 4, 64, 129, 31),
            (3, 2, 2, 128, 60, 81),
            (2, 1, 8, 256, 0, 33),
        ] {
            for (i, (key_format, key_signs)) in formats.into_iter().enumerate() {
                let (value_format, value_signs) = formats[(i + 2) % formats.len()];
                if [key_format, value_format].iter().any(|format| format.row_bytes(dim).is_none()) {
                    continue; // no whole blocks
                }
                let layout = PageLayout {
                    key_format,
                    value_format,
                    kv_heads,
                    head_dim: dim,
                    page: 128,
                    key_signs: key_signs.filter(|_| hadamard::fits(dim)),
                    value_signs: value_signs.filter(|_| hadamard::fits(dim)),
                };
                let (q_heads, positions) = (kv_heads * group, first + rows);
                let mut keys = random(positions * kv_heads * dim, 1);
                let mut values = random(keys.len(), 2);
                // Query rows carry a gate behind each head, as the model's do.
                let q = random(rows * q_heads * 2 * dim, 3).iter().map(|x| x * 3.0).collect::<Vec<_>>();
                let queries =
                    Queries { values: &q, stride: q_heads * 2 * dim, head_stride: 2 * dim, q_heads, rows, first };

                let mut pages = vec![vec![0u8; layout.bytes()]; positions.div_ceil(layout.page)];
                let width = kv_heads * dim;
                for position in 0..positions {
                    let page = &mut pages[position / layout.page];
                    let range = position * width..(position + 1) * width;
                    layout.write(level, page, position % layout.page, &keys[range.clone()], &values[range.clone()]);
                    for head in 0..kv_heads {
                        let at = range.start + head * dim;
                        let (key, value) = (&mut keys[at..at + dim], &mut values[at..at + dim]);
                        layout.read(page, head, position % layout.page, key, value);
                    }
                }
                let expected = testing::attention(layout, &keys, &values, queries);
                let mut out = vec![f32::NAN; expected.len()];
                attend(&Cpu::with_level(threads, level), layout, &pages, 0, queries, &mut out);
                let block = rows.min(ROWS / group) * group;
                let few = |format| block < MANY && few_pairs::fits(level, format, dim);
                let is_rounded = pairs::fits(level, layout, block) || few(key_format) || few(value_format);
                assert_close(&out, &expected, if is_rounded { 5e-4 } else { 1e-5 });
            }
        }
    }
}

#[test]
fn a_value_that_is_no_number_shows_in_the_answer() {
    let (dim, positions) = (64, 70);
    for format in [Format::Q8_0, Format::Q4_0, Format::TQ4] {
        let signs = format.is_of_rotated_rows().then_some(Signs { seed: 1 });
        let layout = PageLayout {
            key_format: format,
            value_format: format,
            kv_heads: 1,
            head_dim: dim,
            page: 128,
            key_signs: signs,
            value_signs: signs,
        };
        for level in CpuLevel::available() {
            for wrong in [3, 66] {
                let mut page = vec![0u8; layout.bytes()];
                let (keys, values) = (random(dim, 1), random(dim, 2));
                (0..positions).for_each(|slot| layout.write(level, &mut page, slot, &keys, &values));
                // The first scale of a row.
                let at = layout.value_at(0, wrong).start;
                page[at..at + 2].copy_from_slice(&half::f16::NAN.to_le_bytes());
                let (values, first) = (&random(dim, 3), positions - 1);
                let queries = Queries { values, stride: dim, head_stride: dim, q_heads: 1, rows: 1, first };
                let mut out = vec![0.0; dim];
                attend(&Cpu::with_level(1, level), layout, &[page], 0, queries, &mut out);
                assert!(out.iter().any(|x| x.is_nan()), "{}, {}", format.name(), level.name());
            }
        }
    }
}

// 16-bit integers add no more error than the halves in the pages, whether a row looks at one position or at all of
// them.
#[test]
fn pairs_lose_as_little_as_halves() {
    let (kv_heads, group, dim, rows, first) = (1, 4, 256, 24, 1000);
    let [kept, whole] = [Format::F16, Format::F32].map(|format| PageLayout {
        key_format: format,
        value_format: format,
        kv_heads,
        head_dim: dim,
        page: 128,
        key_signs: None,
        value_signs: None,
    });
    let positions = first + rows;
    let (keys, values) = (random(positions * dim, 1), random(positions * dim, 2));
    for sharpness in [0.1, 1.0, 4.0, 12.0] {
        let q: Vec<f32> = random(rows * group * dim, 3).iter().map(|x| x * sharpness).collect();
        let queries = Queries { values: &q, stride: group * dim, head_stride: dim, q_heads: group, rows, first };
        let exact = testing::attention(whole, &keys, &values, queries);
        let attended = |layout: PageLayout, level| {
            let mut pages = vec![vec![0u8; layout.bytes()]; positions.div_ceil(layout.page)];
            for (position, (key, value)) in keys.chunks(dim).zip(values.chunks(dim)).enumerate() {
                layout.write(level, &mut pages[position / layout.page], position % layout.page, key, value);
            }
            let mut out = vec![f32::NAN; exact.len()];
            attend(&Cpu::with_level(2, level), layout, &pages, 0, queries, &mut out);
            out
        };
        let lost = |out: &[f32]| -> f32 { out.iter().zip(&exact).map(|(a, b)| (a - b) * (a - b)).sum::<f32>().sqrt() };
        let by_halves = lost(&attended(kept, CpuLevel::Portable));
        for level in CpuLevel::available() {
            let by_both = lost(&attended(kept, level));
            assert!(by_both <= 1.5 * by_halves, "{sharpness}, {}: {by_both} of {by_halves}", level.name());
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Normal,
    HeavyTails,
    Outliers,
}

fn normal(len: usize, seed: u64) -> Vec<f32> {
    let uniform = random(12 * len, seed);
    uniform.chunks_exact(12).map(|twelve| twelve.iter().sum::<f32>() / 2.0).collect()
}

// Rows of width 256: normal values, Student's t with three degrees, or eight channels twelve times as large, two of which
// keys and queries share.
fn rows_of(kind: Kind, rows: usize, seed: u64) -> Vec<f32> {
    let mut all = normal(256 * rows, seed);
    match kind {
        Kind::Normal => (),
        Kind::HeavyTails => {
            let squares = normal(3 * all.len(), seed + 1000);
            for (value, of) in all.iter_mut().zip(squares.chunks_exact(3)) {
                *value /= (of.iter().map(|x| x * x).sum::<f32>() / 3.0).sqrt().max(1e-3);
            }
        }
        Kind::Outliers => {
            for row in all.chunks_exact_mut(256) {
                (0..8).for_each(|i| row[i * 29 + if i < 2 { 0 } else { seed as usize % 5 }] *= 12.0);
            }
        }
    }
    all
}

const DIM: usize = 256;

// Keys, values and queries of one draw, whose scores have a standard deviation of two.
struct Draw {
    keys: Vec<f32>,
    values: Vec<f32>,
    q: Vec<f32>, // as the kernel takes them: it divides scores by the root of the width
    scores: Vec<f32>,
}

impl Draw {
    fn new(kind: Kind, positions: usize, seed: u64) -> Draw {
        let [keys, values, mut q] =
            [(positions, 1), (positions, 2), (64, 3)].map(|(rows, part)| rows_of(kind, rows, 10 * seed + part));
        let scores = scores(&q, &keys);
        let deviation = (scores.iter().map(|x| x * x).sum::<f32>() / scores.len() as f32).sqrt();
        q.iter_mut().for_each(|x| *x *= 2.0 / deviation * (DIM as f32).sqrt());
        Draw { scores: self::scores(&q, &keys), keys, values, q }
    }

    // Returns the errors of scores and of answers.
    fn errors(&self, format: Format, signs: Option<Signs>) -> [f64; 2] {
        let (level, positions, heads) = (CpuLevel::detect(), self.keys.len() / DIM, self.q.len() / DIM);
        let (key_format, value_format, key_signs, value_signs) = (format, format, signs, signs);
        let (kv_heads, head_dim, page) = (1, DIM, positions);
        let layout = PageLayout { key_format, value_format, kv_heads, head_dim, page, key_signs, value_signs };
        let mut bytes = vec![0u8; layout.bytes()];
        let (mut kept, mut unused) = (vec![0.0; self.keys.len()], vec![0.0; DIM]);
        for (slot, (key, value)) in self.keys.chunks(DIM).zip(self.values.chunks(DIM)).enumerate() {
            layout.write(level, &mut bytes, slot, key, value);
            layout.read(&bytes, 0, slot, &mut kept[slot * DIM..][..DIM], &mut unused);
        }
        let (values, stride, head_stride) = (&self.q[..], heads * DIM, DIM);
        let queries = Queries { values, stride, head_stride, q_heads: heads, rows: 1, first: positions - 1 };
        let expected = testing::attention(layout, &self.keys, &self.values, queries);
        let mut out = vec![f32::NAN; expected.len()];
        attend(&Cpu::with_level(2, level), layout, &[bytes], 0, queries, &mut out);
        [reference::distance(&scores(&self.q, &kept), &self.scores), reference::distance(&out, &expected)]
    }
}

fn scores(q: &[f32], keys: &[f32]) -> Vec<f32> {
    let of = |q: &[f32], key: &[f32]| q.iter().zip(key).map(|(a, b)| a * b).sum::<f32>();
    q.chunks(DIM).flat_map(|q| keys.chunks(DIM).map(move |key| of(q, key))).collect()
}

// The errors that NumPy has in one draw of the same kinds of rows with the method as published, and a tenth more. Few
// keys carry a softmax, so that answers differ by a fifth from draw to draw: ours are means of eight.
#[test]
fn errors_are_those_of_the_method() {
    use Format::*;
    const DRAWS: u64 = 8;
    let kinds = [Kind::Normal, Kind::HeavyTails, Kind::Outliers];
    let targets = [
        (Q8_0, [0.0053, 0.0051, 0.0022], [0.012, 0.008, 0.007]),
        (Q4_0, [0.0856, 0.0827, 0.0363], [0.187, 0.126, 0.118]),
        (TQ4, [0.0965, 0.095, 0.0411], [0.196, 0.171, 0.123]),
        (TQ3, [0.1848, 0.1842, 0.0789], [0.357, 0.349, 0.246]),
    ];
    for (at, kind) in kinds.into_iter().enumerate() {
        let draws: Vec<Draw> = (0..DRAWS).map(|seed| Draw::new(kind, 2048, seed)).collect();
        for (format, of_scores, of_answers) in targets {
            let errors: Vec<[f64; 2]> = draws.iter().map(|draw| draw.errors(format, Some(Signs { seed: 7 }))).collect();
            let [scores, answers] = [0, 1].map(|i| errors.iter().map(|errors| errors[i]).sum::<f64>() / DRAWS as f64);
            println!("{kind:?} {}: scores {scores:.4}, answers {answers:.3}", format.name());
            assert!(scores <= 1.1 * of_scores[at], "{kind:?}, {}: scores {scores}", format.name());
            assert!(answers <= 1.1 * of_answers[at], "{kind:?}, {}: answers {answers}", format.name());
        }
    }
}
