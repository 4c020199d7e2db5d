//! Rounded activations as the products with panels read them: a few rows side by side, block after block.

use super::Activations;
use crate::cpu::{Cpu, DisjointParts};
use crate::product::{BLOCK, panel::STEPS, panel::UNIT};

/// Rows of a tile: as many as registers hold sums for.
pub(in crate::product) const ROWS: usize = 6;

/// 256 columns of a few rows; a row that is not there is undefined and not read.
#[repr(C, align(64))]
#[derive(Clone)]
pub(in crate::product) struct Tile {
    /// [step][row]: four values each.
    pub q: [[i32; ROWS]; STEPS],
    /// [half of a unit][row]
    pub scale: [[f32; ROWS]; 16],
    /// [unit][row]: the sum of the unit's values times their scale.
    pub sum: [[f32; ROWS]; 8],
    /// [unit][row]: -128 times the sum of the unit's rounded values, what weights that were moved up by 128 give too much.
    pub unit_offset: [[i32; ROWS]; 8],
    /// The same for each half of a unit.
    pub half_offset: [[i32; ROWS]; 16],
}

#[derive(Default)]
pub(in crate::product) struct Tiles {
    count: usize,
    /// [block][tile]
    tiles: Vec<Tile>,
}

impl Tiles {
    /// All rows of one block of columns.
    pub fn block(&self, block: usize) -> &[Tile] {
        &self.tiles[block * self.count..][..self.count]
    }

    pub fn fill(&mut self, cpu: &Cpu, x: &Activations) {
        let blocks = x.padded() / BLOCK;
        self.count = x.rows().div_ceil(ROWS);
        let empty = Tile {
            q: [[0; ROWS]; STEPS],
            scale: [[0.0; ROWS]; 16],
            sum: [[0.0; ROWS]; 8],
            unit_offset: [[0; ROWS]; 8],
            half_offset: [[0; ROWS]; 16],
        };
        if self.tiles.len() < blocks * self.count {
            self.tiles.resize(blocks * self.count, empty);
        }
        let count = self.count;
        let tiles = DisjointParts::new(&mut self.tiles);
        cpu.pool.run(count, |tile| {
            for row in tile * ROWS..x.rows().min((tile + 1) * ROWS) {
                let (q, scales, sums) = x.rounded_row(row);
                for block in 0..blocks {
                    // SAFETY: a task touches the tiles of its own rows only, one at a time.
                    let tile = unsafe { &mut tiles.part(block * count + tile, 1)[0] };
                    let (q, scales, sums) = (&q[block * BLOCK..], &scales[block * 16..], &sums[block * 16..]);
                    fill_row(tile, row % ROWS, q, scales, sums);
                }
            }
        });
    }
}

fn fill_row(tile: &mut Tile, row: usize, q: &[i8], scales: &[f32], sums: &[f32]) {
    let four = |q: &[i8; 4]| i32::from_le_bytes(q.map(|q| q as u8));
    for (to, q) in tile.q.iter_mut().zip(q.as_chunks::<4>().0) {
        to[row] = four(q);
    }
    for unit in 0..8 {
        tile.scale[2 * unit][row] = scales[2 * unit];
        tile.scale[2 * unit + 1][row] = scales[2 * unit + 1];
        tile.sum[unit][row] = sums[2 * unit] + sums[2 * unit + 1];
        let halves = q[unit * UNIT..][..UNIT].as_chunks::<16>().0;
        let offset = |half: usize| -128 * halves[half].iter().map(|q| i32::from(*q)).sum::<i32>();
        tile.half_offset[2 * unit][row] = offset(0);
        tile.half_offset[2 * unit + 1][row] = offset(1);
        tile.unit_offset[unit][row] = tile.half_offset[2 * unit][row] + tile.half_offset[2 * unit + 1][row];
    }
}
