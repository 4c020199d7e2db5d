//! Products of small f32 blocks, inlined into the kernels that use them so that they take on those kernels' level.
//!
//! Rows lie `stride` apart, so blocks may be parts of wider rows.

use crate::cpu::level::madd;

/// Lanes that are summed side by side: one register of AVX-512, two of AVX2.
const LANES: usize = 16;

/// A row-major block: element (row, column) at `values[row * stride + column]`.
#[derive(Clone, Copy)]
pub struct Block<'a> {
    pub values: &'a [f32],
    pub stride: usize,
}

impl<'a> Block<'a> {
    #[inline(always)]
    pub fn row(&self, row: usize, width: usize) -> &'a [f32] {
        &self.values[row * self.stride..][..width]
    }
}

/// c[i, j] = a[i, ..depth] · b[j, ..depth]: both by rows. `c` has stride `c_stride`.
#[inline(always)]
pub fn rows_times_rows<const FMA: bool>(
    a: Block,
    m: usize,
    b: Block,
    n: usize,
    depth: usize,
    c: &mut [f32],
    c_stride: usize,
) {
    let mut j = 0;
    while j + 4 <= n {
        let rows = [b.row(j, depth), b.row(j + 1, depth), b.row(j + 2, depth), b.row(j + 3, depth)];
        let mut i = 0;
        while i + 2 <= m {
            let sums = dots::<FMA, 2, 4>([a.row(i, depth), a.row(i + 1, depth)], rows, depth);
            c[i * c_stride + j..][..4].copy_from_slice(&sums[0]);
            c[(i + 1) * c_stride + j..][..4].copy_from_slice(&sums[1]);
            i += 2;
        }
        if i < m {
            let sums = dots::<FMA, 1, 4>([a.row(i, depth)], rows, depth);
            c[i * c_stride + j..][..4].copy_from_slice(&sums[0]);
        }
        j += 4;
    }
    while j < n {
        for i in 0..m {
            c[i * c_stride + j] = dots::<FMA, 1, 1>([a.row(i, depth)], [b.row(j, depth)], depth)[0][0];
        }
        j += 1;
    }
}

/// c[i, ..n] += Σ over k of a(i, k) · b[k, ..n], where a(i, k) = a[i * a_row + k * a_column].
#[inline(always)]
pub fn add_product<const FMA: bool>(
    a: &[f32],
    a_row: usize,
    a_column: usize,
    m: usize,
    b: Block,
    n: usize,
    depth: usize,
    c: &mut [f32],
    c_stride: usize,
) {
    let mut i = 0;
    while i + 4 <= m {
        add_rows::<FMA, 4>(&a[i * a_row..], a_row, a_column, b, n, depth, &mut c[i * c_stride..], c_stride);
        i += 4;
    }
    while i < m {
        add_rows::<FMA, 1>(&a[i * a_row..], a_row, a_column, b, n, depth, &mut c[i * c_stride..], c_stride);
        i += 1;
    }
}

#[inline(always)]
fn add_rows<const FMA: bool, const M: usize>(
    a: &[f32],
    a_row: usize,
    a_column: usize,
    b: Block,
    n: usize,
    depth: usize,
    c: &mut [f32],
    c_stride: usize,
) {
    const WIDTH: usize = 2 * LANES;
    if depth == 0 || n == 0 {
        return;
    }
    // Once here instead of for every value: the loops below do little else than load and multiply.
    assert!((M - 1) * a_row + (depth - 1) * a_column < a.len() && (depth - 1) * b.stride + n <= b.values.len());
    let mut j = 0;
    while j + WIDTH <= n {
        let mut sums = [[0.0f32; WIDTH]; M];
        for k in 0..depth {
            // SAFETY: k < depth and j + WIDTH <= n, so the row ends where the assertion looked, or before.
            let b = unsafe { &*b.values.as_ptr().add(k * b.stride + j).cast::<[f32; WIDTH]>() };
            for i in 0..M {
                // SAFETY: i < M and k < depth: the assertion looked at the largest of these indices.
                let a = unsafe { *a.get_unchecked(i * a_row + k * a_column) };
                for lane in 0..WIDTH {
                    sums[i][lane] = madd::<FMA>(a, b[lane], sums[i][lane]);
                }
            }
        }
        for i in 0..M {
            for (c, sum) in c[i * c_stride + j..][..WIDTH].iter_mut().zip(sums[i]) {
                *c += sum;
            }
        }
        j += WIDTH;
    }
    for i in 0..M {
        for j in j..n {
            let mut sum = 0.0;
            for k in 0..depth {
                sum = madd::<FMA>(a[i * a_row + k * a_column], b.values[k * b.stride + j], sum);
            }
            c[i * c_stride + j] += sum;
        }
    }
}

/// All products of M rows with N rows.
#[inline(always)]
fn dots<const FMA: bool, const M: usize, const N: usize>(
    a: [&[f32]; M],
    b: [&[f32]; N],
    depth: usize,
) -> [[f32; N]; M] {
    let whole = depth / LANES;
    let a_chunks = a.map(|row| row[..depth].as_chunks::<LANES>().0);
    let b_chunks = b.map(|row| row[..depth].as_chunks::<LANES>().0);
    let mut sums = [[[0.0f32; LANES]; N]; M];
    for chunk in 0..whole {
        for i in 0..M {
            for j in 0..N {
                let (a, b) = (&a_chunks[i][chunk], &b_chunks[j][chunk]);
                for lane in 0..LANES {
                    sums[i][j][lane] = madd::<FMA>(a[lane], b[lane], sums[i][j][lane]);
                }
            }
        }
    }
    let mut out = [[0.0f32; N]; M];
    for i in 0..M {
        for j in 0..N {
            let mut sum = pairwise(&sums[i][j]);
            for k in whole * LANES..depth {
                sum = madd::<FMA>(a[i][k], b[j][k], sum);
            }
            out[i][j] = sum;
        }
    }
    out
}

#[inline(always)]
fn pairwise(lanes: &[f32; LANES]) -> f32 {
    let mut half = [0.0f32; LANES / 2];
    for i in 0..LANES / 2 {
        half[i] = lanes[i] + lanes[i + LANES / 2];
    }
    let quarter = [half[0] + half[4], half[1] + half[5], half[2] + half[6], half[3] + half[7]];
    (quarter[0] + quarter[2]) + (quarter[1] + quarter[3])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::{Level, level::levels};
    use crate::testing::{assert_close, random};

    #[derive(Clone, Copy)]
    struct Case<'a> {
        a: &'a [f32],
        b: &'a [f32],
        m: usize,
        n: usize,
        depth: usize,
    }

    #[inline(always)]
    fn both<const FMA: bool>(case: Case<'_>, by_rows: &mut [f32], added: &mut [f32]) {
        let Case { a, b, m, n, depth } = case;
        let block = |values, stride| Block { values, stride };
        rows_times_rows::<FMA>(block(a, depth), m, block(b, depth), n, depth, by_rows, n);
        // The same numbers by the other routine: b by columns is the transposed b.
        let transposed: Vec<f32> = (0..depth * n).map(|i| b[(i % n) * depth + i / n]).collect();
        add_product::<FMA>(a, depth, 1, m, block(&transposed, n), n, depth, added, n);
    }

    #[test]
    fn as_the_definition_for_every_odd_shape() {
        for level in Level::ALL.into_iter().filter(|level| *level <= Level::detect()) {
            for (m, n, depth) in [(1, 1, 1), (1, 4, 16), (2, 5, 17), (3, 33, 31), (5, 64, 48), (7, 70, 130), (4, 32, 0)]
            {
                let (a, b) = (random(m * depth, 1), random(n * depth, 2));
                let expected: Vec<f32> = (0..m * n)
                    .map(|i| {
                        (0..depth)
                            .map(|k| f64::from(a[i / n * depth + k]) * f64::from(b[i % n * depth + k]))
                            .sum::<f64>() as f32
                    })
                    .collect();
                let (mut by_rows, mut added) = (vec![f32::NAN; m * n], vec![0.0; m * n]);
                let case = Case { a: &a, b: &b, m, n, depth };
                let (by_rows_out, added_out) = (&mut by_rows[..], &mut added[..]);
                levels!(level, both(case: Case<'_>, by_rows_out: &mut [f32], added_out: &mut [f32]));
                assert_close(&by_rows, &expected, 1e-5);
                assert_close(&added, &expected, 1e-5);
            }
        }
    }
}
