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

/// Lists the places of the `most` rows that are nearest to `query` with their cosines, nearest first. `rows`: vectors of bytes.
pub fn nearest(query: &[i8], rows: &[i8], most: usize) -> Vec<(usize, f32)> {
    let width = query.len().max(1);
    let mut dots = vec![0; rows.len() / width];
    let rows = &rows[..dots.len() * query.len()];
    dots_i8(CpuLevel::detect(), query, rows, &mut dots);
    let length = |row: &[i8]| (row.iter().map(|x| i32::from(*x).pow(2)).sum::<i32>() as f32).sqrt().max(1.0);
    let own = length(query);
    let cosine = |(at, dot): (usize, i32)| (at, dot as f32 / own / length(&rows[at * width..][..width]));
    let mut found: Vec<(usize, f32)> = dots.into_iter().enumerate().map(cosine).collect();
    let by_nearness = |a: &(usize, f32), b: &(usize, f32)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
    if most < found.len() {
        found.select_nth_unstable_by(most, by_nearness);
        found.truncate(most);
    }
    found.sort_unstable_by(by_nearness);
    found
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
        let rows: Vec<i8> = vectors.iter().flat_map(|vector| rounded(vector)).collect();
        for query in 0..50 {
            let found = nearest(&rounded(&vectors[query]), &rows, 5);
            assert_eq!((found.len(), found[0].0), (5, query));
            for (at, cosine) in found {
                assert!((cosine - likeness(&vectors[query], &vectors[at])).abs() < 0.01);
            }
        }
        assert_eq!(nearest(&rounded(&vectors[0]), &[], 5), []);
        assert_eq!(rounded(&[0.0; 3]), [0; 3]);
    }
}
