//! Rounded activations for products with panels: a few rows side by side, block after block.

use super::Activations;
use crate::cpu::{Cpu, DisjointParts, Lanes, at_level};
use crate::product::{BLOCK, panel::STEPS, panel::UNIT};

/// Rows of a tile for many rows: as many as registers hold sums for, of two panels.
pub(in crate::product) const ROWS: usize = 6;

/// 256 columns of `R` rows; a missing row is undefined, and its sums are ignored. A tile is no wider than the product
/// needs: all tiles of a product are read once for each panel, and have to stay in the nearest cache.
#[repr(C, align(64))]
#[derive(Clone)]
pub(in crate::product) struct Tile<const R: usize> {
    pub q: [[i32; R]; STEPS],  // [step][row]: four values each
    pub scale: [[f32; R]; 16], // [half of a unit][row]
    pub sum: [[f32; R]; 8],    // [unit][row]: the sum of the unit's values times their scale
    /// [unit][row]: -128 times the sum of the unit's rounded values, the excess of weights that were moved up by 128.
    pub unit_offset: [[i32; R]; 8],
    pub half_offset: [[i32; R]; 16], // the same for each half of a unit
}

pub(in crate::product) fn width(rows: usize) -> usize {
    match rows {
        0..=2 => rows.max(1),
        3..=4 => 4,
        7..=8 => 8,
        _ => ROWS,
    }
}

#[repr(C, align(64))]
#[derive(Clone, Copy)]
struct CacheLine([u32; 16]);

#[derive(Default)]
pub(in crate::product) struct Tiles {
    count: usize,
    width: usize,
    lines: Vec<CacheLine>, // [block][tile]
}

impl Tiles {
    pub fn block<const R: usize>(&self, block: usize) -> &[Tile<R>] {
        assert_eq!(self.width, R);
        let lines = size_of::<Tile<R>>() / size_of::<CacheLine>();
        let part = &self.lines[block * self.count * lines..][..self.count * lines];
        // SAFETY: as many bytes, aligned alike, and any bits are a tile.
        unsafe { std::slice::from_raw_parts(part.as_ptr().cast(), self.count) }
    }

    pub fn fill(&mut self, cpu: &Cpu, x: &Activations) {
        self.width = width(x.rows());
        match self.width {
            1 => self.fill_of::<1>(cpu, x),
            2 => self.fill_of::<2>(cpu, x),
            4 => self.fill_of::<4>(cpu, x),
            8 => self.fill_of::<8>(cpu, x),
            _ => self.fill_of::<ROWS>(cpu, x),
        }
    }

    fn fill_of<const R: usize>(&mut self, cpu: &Cpu, x: &Activations) {
        let blocks = x.padded() / BLOCK;
        let count = x.rows().div_ceil(R);
        let lines = size_of::<Tile<R>>() / size_of::<CacheLine>();
        self.count = count;
        if self.lines.len() < blocks * count * lines {
            self.lines.resize(blocks * count * lines, CacheLine([0; 16]));
        }
        let parts = DisjointParts::new(&mut self.lines);
        cpu.pool.run(count, |at| {
            for row in at * R..x.rows().min((at + 1) * R) {
                let (q, scales, sums) = x.rounded_row(row);
                for block in 0..blocks {
                    // SAFETY: a task touches the tiles of its own rows only, one at a time; and as in `block`.
                    let tile: &mut Tile<R> =
                        unsafe { &mut *parts.part((block * count + at) * lines, lines).as_mut_ptr().cast() };
                    let of = RoundedBlock {
                        q: q[block * BLOCK..][..BLOCK].as_array().expect("a block"),
                        scales: scales[block * 16..][..16].as_array().expect("two groups a unit"),
                        sums: sums[block * 16..][..16].as_array().expect("two groups a unit"),
                    };
                    fill_row(cpu, tile, row % R, of);
                }
            }
        });
    }
}

#[derive(Clone, Copy)]
struct RoundedBlock<'a> {
    q: &'a [i8; BLOCK],
    scales: &'a [f32; 16],
    sums: &'a [f32; 16],
}

fn fill_row<const R: usize>(cpu: &Cpu, tile: &mut Tile<R>, row: usize, of: RoundedBlock) {
    let mut halves = [0; 16];
    let to = &mut halves;
    let q = of.q;
    at_level!(cpu.level, sums_of_halves(q: &[i8; BLOCK], to: &mut [i32; 16]));
    for (to, q) in tile.q.iter_mut().zip(q.as_chunks::<4>().0) {
        to[row] = i32::from_le_bytes(q.map(|q| q as u8));
    }
    for unit in 0..8 {
        let [first, second] = [2 * unit, 2 * unit + 1];
        tile.scale[first][row] = of.scales[first];
        tile.scale[second][row] = of.scales[second];
        tile.sum[unit][row] = of.sums[first] + of.sums[second];
        tile.half_offset[first][row] = -128 * halves[first];
        tile.half_offset[second][row] = -128 * halves[second];
        tile.unit_offset[unit][row] = -128 * (halves[first] + halves[second]);
    }
}

#[inline(always)]
fn sums_of_halves<L: Lanes>(q: &[i8; BLOCK], to: &mut [i32; 16]) {
    for (to, q) in to.iter_mut().zip(q.as_chunks::<{ UNIT / 2 }>().0) {
        *to = q.iter().map(|q| i32::from(*q)).sum();
    }
}
