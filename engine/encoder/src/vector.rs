//! Vectors of sentences: how near two are, and the bytes in which they are kept.

use kernels::cpu::CpuLevel;
use kernels::dot::dots_i8;
use std::cmp::Ordering;
use std::ops::Range;
use std::thread;

/// Computes the cosine of two vectors of length one.
pub fn likeness(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Rounds a vector of length one to bytes: a hundredth of the angle between two sentences at most.
pub fn rounded(vector: &[f32]) -> Vec<i8> {
    let largest = vector.iter().fold(0.0f32, |largest, x| largest.max(x.abs()));
    let scale = if largest > 0.0 { LARGEST / largest } else { 0.0 };
    vector.iter().map(|x| (x * scale).round() as i8).collect()
}

/// Vectors of bytes, all of one width, with their lengths: a search looks at each byte once.
#[derive(Clone, Debug, Default)]
pub struct VectorRows {
    bytes: Vec<i8>,
    lengths: Vec<f32>,
}

impl VectorRows {
    // Adds a vector, which has the width of those before.
    pub fn push(&mut self, vector: &[i8]) {
        self.bytes.extend_from_slice(vector);
        self.lengths.push(length(vector));
    }

    // Takes the first `count` vectors out.
    pub fn take_first(&mut self, count: usize) {
        self.bytes.drain(..self.bytes.len() / self.lengths.len().max(1) * count);
        self.lengths.drain(..count);
    }

    // Returns the number of bytes that a search reads.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Lists the places of the `most` rows that are nearest to `query` with their cosines, nearest first.
    pub fn nearest(&self, query: &[i8], most: usize) -> Vec<(usize, f32)> {
        let (rows, own) = (self.lengths.len(), length(query));
        let of = |rows: Range<usize>| self.nearest_of(rows, query, own, most);
        let mut found = match self.bytes.len() {
            ..WORTH_TWO => of(0..rows),
            _ => thread::scope(|scope| {
                let other = thread::Builder::new().spawn_scoped(scope, || of(rows / 2..rows));
                let mut found = of(0..rows / 2);
                // Where no thread is to be had, this one does both.
                found.extend(other.ok().and_then(|other| other.join().ok()).unwrap_or_else(|| of(rows / 2..rows)));
                found
            }),
        };
        found.sort_unstable_by(by_nearness);
        found.truncate(most);
        found
    }

    fn nearest_of(&self, rows: Range<usize>, query: &[i8], own: f32, most: usize) -> Vec<(usize, f32)> {
        let (mut found, mut dots) = (Vec::with_capacity(2 * most + BLOCK), [0; BLOCK]);
        let (mut least, level) = (f32::NEG_INFINITY, CpuLevel::detect());
        for first in rows.clone().step_by(BLOCK) {
            let block = first..rows.end.min(first + BLOCK);
            let dots = &mut dots[..block.len()];
            let bytes = &self.bytes[block.start * query.len()..block.end * query.len()];
            dots_i8(level, query, bytes, dots);
            let cosines = dots.iter().zip(&self.lengths[block]).map(|(dot, length)| *dot as f32 / own / length);
            found.extend((first..).zip(cosines).filter(|(_, cosine)| *cosine > least));
            if found.len() > 2 * most {
                found.select_nth_unstable_by(most, by_nearness);
                found.truncate(most);
                least = found.iter().map(|(_, cosine)| *cosine).fold(f32::INFINITY, f32::min);
            }
        }
        found
    }
}

fn by_nearness(a: &(usize, f32), b: &(usize, f32)) -> Ordering {
    b.1.total_cmp(&a.1).then(a.0.cmp(&b.0))
}

const BLOCK: usize = 512; // rows that are compared at once
// Bytes from which on a second thread takes less time than it costs.
const WORTH_TWO: usize = 4 << 20; // not a window: bytes

impl<T: AsRef<[i8]>> FromIterator<T> for VectorRows {
    fn from_iter<I: IntoIterator<Item = T>>(vectors: I) -> VectorRows {
        let mut rows = VectorRows::default();
        vectors.into_iter().for_each(|vector| rows.push(vector.as_ref()));
        rows
    }
}

fn length(row: &[i8]) -> f32 {
    (row.iter().map(|x| i32::from(*x).pow(2)).sum::<i32>() as f32).sqrt().max(1.0)
}

pub fn to_length_one(vector: &mut [f32]) {
    let length = vector.iter().map(|x| x * x).sum::<f32>().sqrt();
    if length > 0.0 {
        vector.iter_mut().for_each(|x| *x /= length);
    }
}

const LARGEST: f32 = 127.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn vector(seed: usize) -> Vec<f32> {
        let mut vector: Vec<f32> = (0..384).map(|at| ((at * 7 + seed * 13 + seed * at) as f32 * 0.37).sin()).collect();
        to_length_one(&mut vector);
        vector
    }

    #[test]
    fn bytes_keep_who_is_near() {
        let vectors: Vec<Vec<f32>> = (0..50).map(vector).collect();
        let mut rows: VectorRows = vectors.iter().map(|vector| rounded(vector)).collect();
        for query in 0..50 {
            let found = rows.nearest(&rounded(&vectors[query]), 5);
            assert_eq!((found.len(), found[0].0), (5, query));
            for (at, cosine) in found {
                assert!((cosine - likeness(&vectors[query], &vectors[at])).abs() < 0.01);
            }
        }
        rows.take_first(10);
        assert_eq!((rows.nearest(&rounded(&vectors[12]), 1)[0].0, rows.bytes()), (2, 40 * 384));
        assert_eq!(VectorRows::default().nearest(&rounded(&vectors[0]), 5), []);
        assert_eq!(rounded(&[0.0; 3]), [0; 3]);
    }

    #[test]
    fn many_rows_are_searched_by_two_threads_and_in_blocks() {
        let byte = |at: usize| ((at * 7919 + at / 13) % 23) as i8 - 11;
        let width = 64;
        let rows: Vec<Vec<i8>> =
            (0..WORTH_TWO / width + 700).map(|row| (0..width).map(|at| byte(row * width + at)).collect()).collect();
        let query: Vec<i8> = (0..width).map(|at| byte(at * 3)).collect();
        let cosine = |row: &Vec<i8>| {
            let dot: i32 = query.iter().zip(row).map(|(a, b)| i32::from(*a) * i32::from(*b)).sum();
            dot as f32 / length(&query) / length(row)
        };
        let mut expected: Vec<(usize, f32)> = rows.iter().map(cosine).enumerate().collect();
        expected.sort_unstable_by(by_nearness);
        let rows: VectorRows = rows.into_iter().collect();
        for most in [0, 1, 48, 600] {
            assert_eq!(rows.nearest(&query, most), expected[..most]);
        }
    }
}
