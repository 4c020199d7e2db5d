//! Products of small f32 blocks, inlined into the kernels that use them so that they take on those kernels' level.
//!
//! Rows lie `stride` apart, so blocks may be parts of wider rows.

use crate::cpu::Lanes;

/// A row-major block: element (row, column) at `values[row * stride + column]`.
#[derive(Clone, Copy)]
pub(crate) struct Block<'a> {
    pub values: &'a [f32],
    pub stride: usize,
}

/// c[i, ..n] = scale · c[i, ..n] + Σ over k of a(i, k) · b[k, ..n], where a(i, k) = a[i * a_row + k * a_column]. A
/// scale of zero overwrites c.
#[inline(always)]
pub(crate) fn add_product<L: Lanes>(
    a: &[f32],
    a_row: usize,
    a_column: usize,
    m: usize,
    b: Block,
    n: usize,
    depth: usize,
    scale: f32,
    c: &mut [f32],
    c_stride: usize,
) {
    if m == 0 || n == 0 {
        return;
    }
    // Checked once here instead of for every value: the loops below do little else than load and multiply.
    assert!((m - 1) * c_stride + n <= c.len());
    assert!(depth == 0 || (m - 1) * a_row + (depth - 1) * a_column < a.len());
    assert!(depth == 0 || (depth - 1) * b.stride + n <= b.values.len());
    let job = Product { a: a.as_ptr(), a_row, a_column, b: b.values.as_ptr(), b_stride: b.stride, depth, scale };
    let c = c.as_mut_ptr();
    let mut j = 0;
    // SAFETY: the assertions looked at the largest index of each slice.
    unsafe {
        // Columns outside: a block of b's columns stays in the cache while all rows of a pass by.
        if L::WIDE == 4 {
            j = columns::<L, 4, 4>(&job, m, n, j, c, c_stride);
        }
        j = columns::<L, 4, 2>(&job, m, n, j, c, c_stride);
        j = columns::<L, 4, 1>(&job, m, n, j, c, c_stride);
    }
    for i in 0..m {
        for j in j..n {
            let products = (0..depth).map(|k| a[i * a_row + k * a_column] * b.values[k * b.stride + j]);
            // SAFETY: as above.
            unsafe {
                let c = &mut *c.add(i * c_stride + j);
                let before = if scale == 0.0 { 0.0 } else { *c * scale };
                *c = before + products.sum::<f32>();
            }
        }
    }
}

#[derive(Clone, Copy)]
struct Product {
    a: *const f32,
    a_row: usize,
    a_column: usize,
    b: *const f32,
    b_stride: usize,
    depth: usize,
    scale: f32,
}

/// Computes all rows of the columns from `j` on that fill whole blocks of N registers; returns the first column left.
///
/// # Safety
/// All m rows, depth and n columns lie in memory as `add_product` says.
#[inline(always)]
unsafe fn columns<L: Lanes, const M: usize, const N: usize>(
    job: &Product,
    m: usize,
    n: usize,
    mut j: usize,
    c: *mut f32,
    c_stride: usize,
) -> usize {
    while j + N * L::COUNT <= n {
        let mut i = 0;
        // SAFETY: i + M <= m, and the columns end at n or before.
        unsafe {
            let job = Product { b: job.b.add(j), ..*job };
            while i + M <= m {
                block::<L, M, N>(&Product { a: job.a.add(i * job.a_row), ..job }, c.add(i * c_stride + j), c_stride);
                i += M;
            }
            while i < m {
                block::<L, 1, N>(&Product { a: job.a.add(i * job.a_row), ..job }, c.add(i * c_stride + j), c_stride);
                i += 1;
            }
        }
        j += N * L::COUNT;
    }
    j
}

/// Computes M rows of N registers.
///
/// # Safety
/// The rows lie in memory, as do `depth` values of each row of a and rows of b.
#[inline(always)]
unsafe fn block<L: Lanes, const M: usize, const N: usize>(job: &Product, c: *mut f32, c_stride: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut sums = [[L::splat(0.0); N]; M];
        if job.scale != 0.0 {
            let scale = L::splat(job.scale);
            for i in 0..M {
                for j in 0..N {
                    sums[i][j] = L::mul(L::load(c.add(i * c_stride + j * L::COUNT)), scale);
                }
            }
        }
        let (mut a, mut b) = (job.a, job.b);
        for _ in 0..job.depth {
            let mut row = [L::splat(0.0); N];
            for j in 0..N {
                row[j] = L::load(b.add(j * L::COUNT));
            }
            for i in 0..M {
                let a = L::splat(*a.add(i * job.a_row));
                for j in 0..N {
                    sums[i][j] = L::madd(a, row[j], sums[i][j]);
                }
            }
            a = a.wrapping_add(job.a_column);
            b = b.wrapping_add(job.b_stride);
        }
        for i in 0..M {
            for j in 0..N {
                L::store(c.add(i * c_stride + j * L::COUNT), sums[i][j]);
            }
        }
    }
}

/// Transposes [rows, width], `stride` apart, to [width, rows], `to_stride` apart.
#[inline(always)]
pub(crate) fn transpose<L: Lanes>(from: Block, rows: usize, width: usize, to: &mut [f32], to_stride: usize) {
    if rows == 0 || width == 0 {
        return;
    }
    assert!((rows - 1) * from.stride + width <= from.values.len());
    assert!((width - 1) * to_stride + rows <= to.len());
    let (whole_rows, whole_width) = (rows / L::COUNT * L::COUNT, width / L::COUNT * L::COUNT);
    for first in (0..whole_width).step_by(L::COUNT) {
        for row in (0..whole_rows).step_by(L::COUNT) {
            // SAFETY: the assertions looked at the largest index of both.
            unsafe {
                let square = from.values.as_ptr().add(row * from.stride + first);
                L::turn(square, from.stride, to.as_mut_ptr().add(first * to_stride + row), to_stride);
            }
        }
    }
    // The rest beside whole squares: the last columns of all rows, and the last rows.
    for row in 0..rows {
        let done = if row < whole_rows { whole_width } else { 0 };
        for column in done..width {
            to[column * to_stride + row] = from.values[row * from.stride + column];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::{CpuLevel, at_level};
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
    fn added_to<L: Lanes>(case: Case<'_>, added: &mut [f32]) {
        let Case { a, b, m, n, depth } = case;
        let block = |values, stride| Block { values, stride };
        let mut transposed = vec![0.0; depth * n];
        transpose::<L>(block(b, depth), n, depth, &mut transposed, n);
        add_product::<L>(a, depth, 1, m, block(&transposed, n), n, depth, 0.5, added, n);
    }

    #[test]
    fn as_the_definition_for_every_odd_shape() {
        for level in CpuLevel::available() {
            let shapes =
                [(1, 1, 1), (1, 4, 16), (2, 5, 17), (3, 33, 31), (5, 64, 48), (7, 70, 130), (6, 150, 9), (4, 32, 0)];
            for (m, n, depth) in shapes {
                let (a, b) = (random(m * depth, 1), random(n * depth, 2));
                let expected: Vec<f32> = (0..m * n)
                    .map(|i| {
                        (0..depth)
                            .map(|k| f64::from(a[i / n * depth + k]) * f64::from(b[i % n * depth + k]))
                            .sum::<f64>() as f32
                    })
                    .collect();
                let mut added = vec![8.0; m * n];
                let (case, out) = (Case { a: &a, b: &b, m, n, depth }, &mut added[..]);
                at_level!(level, added_to(case: Case<'_>, out: &mut [f32]));
                added.iter_mut().for_each(|x| *x -= 4.0);
                assert_close(&added, &expected, 1e-5);
            }
        }
    }
}
