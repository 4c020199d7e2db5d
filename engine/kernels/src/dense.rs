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

impl<'a> Block<'a> {
    #[inline(always)]
    pub fn row(&self, row: usize, width: usize) -> &'a [f32] {
        &self.values[row * self.stride..][..width]
    }
}

/// c[i, j] = a[i, ..depth] · b[j, ..depth]: both by rows, for few rows of a. `c` has stride `c_stride`.
#[inline(always)]
pub(crate) fn rows_times_rows<L: Lanes>(
    a: Block,
    m: usize,
    b: Block,
    n: usize,
    depth: usize,
    c: &mut [f32],
    c_stride: usize,
) {
    let mut i = 0;
    while i < m {
        // As many rows together as there are, because each row of b that was read is good for all of them.
        i += match m - i {
            4.. => some_rows::<L, 4>(a, i, b, n, depth, c, c_stride),
            2.. => some_rows::<L, 2>(a, i, b, n, depth, c, c_stride),
            _ => some_rows::<L, 1>(a, i, b, n, depth, c, c_stride),
        };
    }
}

#[inline(always)]
fn some_rows<L: Lanes, const M: usize>(
    a: Block,
    i: usize,
    b: Block,
    n: usize,
    depth: usize,
    c: &mut [f32],
    c_stride: usize,
) -> usize {
    let mut rows = [a.row(i, depth); M];
    for (m, row) in rows.iter_mut().enumerate() {
        *row = a.row(i + m, depth);
    }
    let mut j = 0;
    while j + 4 <= n {
        let columns = [b.row(j, depth), b.row(j + 1, depth), b.row(j + 2, depth), b.row(j + 3, depth)];
        for (m, dots) in dots::<L, M, 4>(rows, columns, depth).into_iter().enumerate() {
            c[(i + m) * c_stride + j..][..4].copy_from_slice(&dots);
        }
        j += 4;
    }
    while j < n {
        for (m, [dot]) in dots::<L, M, 1>(rows, [b.row(j, depth)], depth).into_iter().enumerate() {
            c[(i + m) * c_stride + j] = dot;
        }
        j += 1;
    }
    M
}

/// M rows with each of N rows. Two sums for each pair, because one would wait for itself; where pairs are many, the second
/// is not used.
#[inline(always)]
fn dots<L: Lanes, const M: usize, const N: usize>(a: [&[f32]; M], b: [&[f32]; N], depth: usize) -> [[f32; N]; M] {
    let parts = if M * N >= 8 { 1 } else { 2 };
    let mut sums = [[[L::splat(0.0); 2]; N]; M];
    let whole = depth / (parts * L::COUNT) * (parts * L::COUNT);
    let mut k = 0;
    while k < whole {
        for part in 0..parts {
            // SAFETY: all slices have `depth` values, and `whole` is no more.
            unsafe {
                let at = k + part * L::COUNT;
                let mut columns = [L::splat(0.0); N];
                for j in 0..N {
                    columns[j] = L::load(b[j].as_ptr().add(at));
                }
                for i in 0..M {
                    let a = L::load(a[i].as_ptr().add(at));
                    for j in 0..N {
                        sums[i][j][part] = L::madd(a, columns[j], sums[i][j][part]);
                    }
                }
            }
        }
        k += parts * L::COUNT;
    }
    let mut out = [[0.0; N]; M];
    for i in 0..M {
        for j in 0..N {
            let rest: f32 = (whole..depth).map(|k| a[i][k] * b[j][k]).sum();
            out[i][j] = L::sum(L::add(sums[i][j][0], sums[i][j][1])) + rest;
        }
    }
    out
}

/// c[i, ..n] = scale · c[i, ..n] + Σ over k of a(i, k) · b[k, ..n], where a(i, k) = a[i * a_row + k * a_column]. With a
/// scale of zero it does not matter what c holds.
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
    // Once here instead of for every value: the loops below do little else than load and multiply.
    assert!((m - 1) * c_stride + n <= c.len());
    assert!(depth == 0 || (m - 1) * a_row + (depth - 1) * a_column < a.len());
    assert!(depth == 0 || (depth - 1) * b.stride + n <= b.values.len());
    let job = Product { a: a.as_ptr(), a_row, a_column, b: b.values.as_ptr(), b_stride: b.stride, depth, scale };
    let c = c.as_mut_ptr();
    let mut j = 0;
    // SAFETY: the assertions looked at the largest index of each slice.
    unsafe {
        // Columns outside: a block of b's columns stays near the core while all rows of a pass by.
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

/// All rows of as many columns from `j` on as are whole blocks of N registers; returns the first column left.
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

/// M rows of N registers.
///
/// # Safety
/// They lie in memory, as do `depth` values of each row of a and rows of b.
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

/// [rows, width], `stride` apart, to [width, rows], `to_stride` apart.
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
    // What is no whole square: the last columns of all rows, and the last rows.
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
    fn both<L: Lanes>(case: Case<'_>, by_rows: &mut [f32], added: &mut [f32]) {
        let Case { a, b, m, n, depth } = case;
        let block = |values, stride| Block { values, stride };
        rows_times_rows::<L>(block(a, depth), m, block(b, depth), n, depth, by_rows, n);
        // The same numbers by the other routine: b by columns is the transposed b.
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
                let (mut by_rows, mut added) = (vec![f32::NAN; m * n], vec![8.0; m * n]);
                let case = Case { a: &a, b: &b, m, n, depth };
                let (by_rows_out, added_out) = (&mut by_rows[..], &mut added[..]);
                at_level!(level, both(case: Case<'_>, by_rows_out: &mut [f32], added_out: &mut [f32]));
                assert_close(&by_rows, &expected, 1e-5);
                added.iter_mut().for_each(|x| *x -= 4.0);
                assert_close(&added, &expected, 1e-5);
            }
        }
    }
}
