//! Shortest edit from one list of lines to another, by Myers' algorithm, with a limit on its steps.

use std::collections::HashMap;
use std::ops::Range;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hunk {
    pub old: Range<usize>,
    pub new: Range<usize>,
}

/// Returns hunks in order, with at least one equal line between two of them. `None`: the edit has more than `most`
/// steps, each of which removes or adds a line. Takes time in proportion to the lines and to `most`.
pub fn hunks(old: &[usize], new: &[usize], most: usize) -> Option<Vec<Hunk>> {
    let begin = old.iter().zip(new).take_while(|(one, other)| one == other).count();
    let (a, b) = (&old[begin..], &new[begin..]);
    let end = a.iter().rev().zip(b.iter().rev()).take_while(|(one, other)| one == other).count();
    let (a, b) = (&a[..a.len() - end], &b[..b.len() - end]);
    if least_steps(a, b) > most {
        return None;
    }
    let (removed, added) = way(a, b, most)?;
    let (mut hunks, mut i, mut j) = (Vec::new(), 0, 0);
    while i < a.len() || j < b.len() {
        let (from_i, from_j) = (i, j);
        while i < a.len() && removed[i] || j < b.len() && added[j] {
            i += usize::from(i < a.len() && removed[i]);
            j += usize::from(j < b.len() && added[j]);
        }
        if i > from_i || j > from_j {
            hunks.push(Hunk { old: begin + from_i..begin + i, new: begin + from_j..begin + j });
        }
        (i, j) = (i + 1, j + 1);
    }
    Some(hunks)
}

fn least_steps(a: &[usize], b: &[usize]) -> usize {
    let mut counts: HashMap<usize, i64> = HashMap::new();
    a.iter().for_each(|line| *counts.entry(*line).or_default() += 1);
    b.iter().for_each(|line| *counts.entry(*line).or_default() -= 1);
    counts.values().map(|count| count.unsigned_abs() as usize).sum()
}

fn way(a: &[usize], b: &[usize], most: usize) -> Option<(Vec<bool>, Vec<bool>)> {
    let (n, m) = (a.len() as isize, b.len() as isize);
    // For each number of steps, the furthest point of each diagonal before it.
    let mut reached: Vec<Vec<isize>> = Vec::new();
    let mut furthest = vec![0_isize; 2 * most + 3];
    let middle = most as isize + 1;
    for steps in 0..=most as isize {
        reached.push(furthest[(middle - steps) as usize..=(middle + steps) as usize].to_vec());
        for diagonal in (-steps..=steps).step_by(2) {
            let at = (middle + diagonal) as usize;
            let comes_down = diagonal == -steps || (diagonal != steps && furthest[at - 1] < furthest[at + 1]);
            let mut x = if steps == 0 {
                0
            } else if comes_down {
                furthest[at + 1]
            } else {
                furthest[at - 1] + 1
            };
            while x < n && x - diagonal < m && a[x as usize] == b[(x - diagonal) as usize] {
                x += 1;
            }
            furthest[at] = x;
            if x >= n && x - diagonal >= m {
                return Some(back(&reached, n, m));
            }
        }
    }
    None
}

fn back(reached: &[Vec<isize>], n: isize, m: isize) -> (Vec<bool>, Vec<bool>) {
    let (mut removed, mut added) = (vec![false; n as usize], vec![false; m as usize]);
    let (mut x, mut y) = (n, m);
    for steps in (1..reached.len() as isize).rev() {
        let furthest = |diagonal: isize| reached[steps as usize][(diagonal + steps) as usize];
        let diagonal = x - y;
        let comes_down = diagonal == -steps || (diagonal != steps && furthest(diagonal - 1) < furthest(diagonal + 1));
        let before = if comes_down { diagonal + 1 } else { diagonal - 1 };
        x = furthest(before);
        y = x - before;
        if comes_down {
            added[y as usize] = true;
        } else {
            removed[x as usize] = true;
        }
    }
    (removed, added)
}
