//! Vectors of sentences: how near two are, and the bytes in which they are kept.

use kernels::cpu::CpuLevel;
use kernels::dot::dots_i8;

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
        let mut dots = vec![0; self.lengths.len()];
        dots_i8(CpuLevel::detect(), query, &self.bytes, &mut dots);
        let own = length(query);
        let cosine = |(at, (dot, length)): (usize, (i32, &f32))| (at, dot as f32 / own / length);
        let mut found: Vec<(usize, f32)> = dots.into_iter().zip(&self.lengths).enumerate().map(cosine).collect();
        let by_nearness = |a: &(usize, f32), b: &(usize, f32)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
        if most < found.len() {
            found.select_nth_unstable_by(most, by_nearness);
            found.truncate(most);
        }
        found.sort_unstable_by(by_nearness);
        found
    }
}

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
}
