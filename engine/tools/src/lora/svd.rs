//! Largest singular values of a matrix with their vectors, by random projection (Halko, Martinsson, Tropp 2011).

use kernels::cpu::Cpu;
use kernels::format::Format;
use kernels::product::{Activations, MatrixOrder, Precision, Weights, product};

/// Matrix with its transpose, for products from both sides.
pub struct BothWays {
    rows: usize,
    cols: usize,
    matrix: Vec<u8>, // f32 as bytes: [rows, cols] and [cols, rows]
    transposed: Vec<u8>,
}

/// Largest singular values, and their vectors one after the other.
pub struct Svd {
    pub values: Vec<f64>,
    pub left: Vec<f32>,  // [values, rows]
    pub right: Vec<f32>, // [values, cols]
}

impl BothWays {
    pub fn new(values: &[f32], rows: usize, cols: usize) -> BothWays {
        let matrix = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let mut transposed = vec![0; size_of_val(values)];
        const TILE: usize = 32;
        for (row, col) in (0..rows).step_by(TILE).flat_map(|row| (0..cols).step_by(TILE).map(move |col| (row, col))) {
            for row in row..rows.min(row + TILE) {
                for col in col..cols.min(col + TILE) {
                    transposed[(col * rows + row) * 4..][..4].copy_from_slice(&values[row * cols + col].to_le_bytes());
                }
            }
        }
        BothWays { rows, cols, matrix, transposed }
    }

    /// Finds the `count` largest singular values. Two passes over the matrix make up for a spectrum that falls slowly.
    pub fn largest(&self, cpu: &Cpu, count: usize, seed: u64) -> Svd {
        const MORE: usize = 8;
        const PASSES: usize = 2;
        let count = count.min(self.rows).min(self.cols);
        let tried = (count + MORE).min(self.rows).min(self.cols);
        let mut left = self.times(cpu, &normal(tried * self.cols, seed), tried);
        for _ in 0..PASSES {
            orthonormalise(&mut left, self.rows);
            let mut right = self.transposed_times(cpu, &left, tried);
            orthonormalise(&mut right, self.cols);
            left = self.times(cpu, &right, tried);
        }
        orthonormalise(&mut left, self.rows);
        let small = self.transposed_times(cpu, &left, tried);
        // The singular values of `small` are the roots of the eigenvalues of its products with itself.
        let row = |at: usize| &small[at * self.cols..][..self.cols];
        let mut square = vec![0.0; tried * tried];
        for (i, j) in (0..tried).flat_map(|i| (0..=i).map(move |j| (i, j))) {
            square[i * tried + j] = dot(row(i), row(j));
            square[j * tried + i] = square[i * tried + j];
        }
        let mut vectors = eigenvectors(&mut square, tried);
        let mut order: Vec<usize> = (0..tried).collect();
        order.sort_by(|a, b| square[b * tried + b].total_cmp(&square[a * tried + a]));
        order.truncate(count);
        let values: Vec<f64> = order.iter().map(|at| square[at * tried + at].max(0.0).sqrt()).collect();
        let mixed = |from: &[f32], width: usize, vector: &[f64], factor: f64| -> Vec<f32> {
            let mut sum = vec![0.0f64; width];
            for (row, weight) in from.chunks(width).zip(vector) {
                sum.iter_mut().zip(row).for_each(|(sum, value)| *sum += weight * f64::from(*value));
            }
            sum.into_iter().map(|value| (value * factor) as f32).collect()
        };
        let (mut lefts, mut rights) = (Vec::new(), Vec::new());
        transpose_square(&mut vectors, tried);
        for (at, value) in order.iter().zip(&values) {
            let vector = &vectors[at * tried..][..tried];
            lefts.extend(mixed(&left, self.rows, vector, 1.0));
            rights.extend(mixed(&small, self.cols, vector, if *value > 0.0 { 1.0 / value } else { 0.0 }));
        }
        Svd { values, left: lefts, right: rights }
    }

    // [count, rows] = x [count, cols] · W transposed
    fn times(&self, cpu: &Cpu, x: &[f32], count: usize) -> Vec<f32> {
        multiply(cpu, x, count, &self.matrix, self.rows, self.cols)
    }

    // [count, cols] = x [count, rows] · W
    fn transposed_times(&self, cpu: &Cpu, x: &[f32], count: usize) -> Vec<f32> {
        multiply(cpu, x, count, &self.transposed, self.cols, self.rows)
    }
}

pub fn multiply(cpu: &Cpu, x: &[f32], count: usize, bytes: &[u8], rows: usize, cols: usize) -> Vec<f32> {
    let mut activations = Activations::default();
    activations.set(count, cols, x);
    let mut out = vec![0.0; count * rows];
    let weights = Weights { format: Format::F32, rows, cols, order: MatrixOrder::Rows, bytes };
    product(cpu, Precision::F32, &activations, weights, &mut out);
    out
}

/// Makes rows of `width` values orthogonal to each other and of length 1; a row without a part of its own becomes zeros.
fn orthonormalise(rows: &mut [f32], width: usize) {
    for at in 0..rows.len() / width {
        let (before, row) = rows.split_at_mut(at * width);
        let row = &mut row[..width];
        let whole = dot(row, row).sqrt();
        // Twice is enough: what rounding leaves after the first time is gone after the second.
        for _ in 0..2 {
            for other in before.chunks(width) {
                let part = dot(row, other) as f32;
                row.iter_mut().zip(other).for_each(|(value, other)| *value -= part * other);
            }
        }
        let length = dot(row, row).sqrt();
        let factor = if length > whole * 1e-6 && length > 0.0 { (1.0 / length) as f32 } else { 0.0 };
        row.iter_mut().for_each(|value| *value *= factor);
    }
}

fn dot(a: &[f32], b: &[f32]) -> f64 {
    const LANES: usize = 8;
    let mut sums = [0.0f64; LANES];
    let (a, b) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    for (a, b) in a.0.iter().zip(b.0) {
        for lane in 0..LANES {
            sums[lane] += f64::from(a[lane]) * f64::from(b[lane]);
        }
    }
    let rest = a.1.iter().zip(b.1).map(|(a, b)| f64::from(*a) * f64::from(*b));
    sums.iter().sum::<f64>() + rest.sum::<f64>()
}

/// Turns a symmetric matrix until it is diagonal (Jacobi), and returns the eigenvectors as columns.
fn eigenvectors(matrix: &mut [f64], n: usize) -> Vec<f64> {
    const SWEEPS: usize = 30;
    let mut vectors = vec![0.0; n * n];
    (0..n).for_each(|i| vectors[i * n + i] = 1.0);
    for _ in 0..SWEEPS {
        let mut turned = false;
        for (p, q) in (0..n).flat_map(|p| (p + 1..n).map(move |q| (p, q))) {
            let (pp, qq, pq) = (matrix[p * n + p], matrix[q * n + q], matrix[p * n + q]);
            if pq.abs() <= 1e-15 * (pp * qq).abs().sqrt() || pq == 0.0 {
                continue;
            }
            turned = true;
            let ratio = (qq - pp) / (2.0 * pq);
            let tangent = ratio.signum() / (ratio.abs() + (ratio * ratio + 1.0).sqrt());
            let cosine = 1.0 / (tangent * tangent + 1.0).sqrt();
            let sine = tangent * cosine;
            let turn = |values: &mut [f64], a: usize, b: usize| {
                let (x, y) = (values[a], values[b]);
                (values[a], values[b]) = (cosine * x - sine * y, sine * x + cosine * y);
            };
            for k in 0..n {
                turn(matrix, k * n + p, k * n + q);
            }
            for k in 0..n {
                turn(matrix, p * n + k, q * n + k);
                turn(&mut vectors, k * n + p, k * n + q);
            }
        }
        if !turned {
            break;
        }
    }
    vectors
}

fn transpose_square(values: &mut [f64], n: usize) {
    for (i, j) in (0..n).flat_map(|i| (0..i).map(move |j| (i, j))) {
        values.swap(i * n + j, j * n + i);
    }
}

/// Makes values of about a normal distribution: sums of four uniform ones are near enough for a projection.
fn normal(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed;
    let mut uniform = || {
        // SplitMix64
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ z >> 31) >> 40) as f32 / (1u64 << 24) as f32 - 0.5
    };
    (0..count).map(|_| (0..4).map(|_| uniform()).sum()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a matrix of known singular values with Fourier vectors, which are orthogonal.
    fn known(rows: usize, cols: usize, values: &[f32]) -> Vec<f32> {
        let wave = |length: usize, k: usize, at: usize| {
            let turn = std::f32::consts::TAU * (k + 1) as f32 * at as f32 / length as f32;
            turn.cos() * (2.0 / length as f32).sqrt()
        };
        let at = |row, col| {
            values.iter().enumerate().map(|(k, value)| value * wave(rows, k, row) * wave(cols, k, col)).sum::<f32>()
        };
        (0..rows).flat_map(|row| (0..cols).map(move |col| (row, col))).map(|(row, col)| at(row, col)).collect()
    }

    #[test]
    fn known_singular_values_and_vectors_are_found() {
        let cpu = Cpu::new(1);
        for (rows, cols) in [(60, 90), (90, 60), (33, 65), (64, 16)] {
            let values = [9.0, 5.0, 2.0, 0.5];
            let matrix = known(rows, cols, &values);
            let svd = BothWays::new(&matrix, rows, cols).largest(&cpu, 4, 1);
            for (found, expected) in svd.values.iter().zip(values) {
                assert!((found - f64::from(expected)).abs() < 1e-4, "{rows} × {cols}: {:?}", svd.values);
            }
            let again = |row: usize, col: usize| -> f64 {
                let of = |k: usize| f64::from(svd.left[k * rows + row]) * f64::from(svd.right[k * cols + col]);
                svd.values.iter().enumerate().map(|(k, value)| value * of(k)).sum()
            };
            for (row, col) in (0..rows).flat_map(|row| (0..cols).map(move |col| (row, col))) {
                assert!((again(row, col) - f64::from(matrix[row * cols + col])).abs() < 1e-4);
            }
        }
    }

    #[test]
    fn a_matrix_of_zeros_has_none() {
        let svd = BothWays::new(&[0.0; 12], 3, 4).largest(&Cpu::new(1), 2, 1);
        assert_eq!(svd.values, [0.0, 0.0]);
        assert!(svd.left.iter().chain(&svd.right).all(|value| value.is_finite()));
    }
}
