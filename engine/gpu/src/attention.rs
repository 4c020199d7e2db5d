//! Attention over pages: heads made ready, parts of the past, parts put together.

use bytemuck::{Pod, Zeroable};

use crate::device::{Device, Launch, Processors};
use crate::error::Error;
use crate::rows::{PADDED_TO, RowsArguments};

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
pub struct AttentionHeads {
    pub lanes: u64,
    pub lane_of_row: u64,
    pub q: u64,
    pub q_heads: u32,
    pub kv_heads: u32,
    pub dim: u32,
    pub layer: u32,
    pub seed: u64, // of the signs of rotations
}

// Bits of a lane whose keys, or values, are rotated.
pub const TURNED_KEYS: u32 = 1;
pub const TURNED_VALUES: u32 = 2;

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
pub struct PrepareArguments {
    pub heads: AttentionHeads,
    pub k: u64,
    pub v: u64,
    pub q_norm: u64,
    pub k_norm: u64,
    pub turns: u64,
    pub pairs: u32,
    pub eps: f32,
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Attend {
    heads: AttentionHeads,
    partial: u64,
    stats: u64,
    rows: u32,
    splits: u32,
    row_tiles: u32,
    unused: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Combine {
    heads: AttentionHeads,
    partial: u64,
    stats: u64,
    to: RowsArguments,
    rows: u32,
    splits: u32,
    columns: u32,
    turns: u32,
}

/// Buffers of parts of the past until `combine` joins them: [splits, rows, q heads, dim], and two numbers for each.
#[derive(Clone, Copy)]
pub struct PastParts {
    pub partial: u64,
    pub stats: u64,
}

pub fn check(q_heads: usize, kv_heads: usize, dim: usize) -> Result<(), Error> {
    if ![32, 64, 128, 256].contains(&dim) {
        return Err(Error::Shape { what: format!("attention heads have {dim} values"), wanted: "32, 64, 128 or 256" });
    }
    if q_heads / kv_heads.max(1) > 16 {
        let what = format!("{q_heads} query heads share {kv_heads} key heads");
        return Err(Error::Shape { what, wanted: "16 or fewer for each" });
    }
    Ok(())
}

/// Spread of a step's rows over blocks, and the number of parts of the past, so that a few rows keep all
/// processors at work. It depends on nothing that changes from token to token: a recorded step can be repeated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    blocks: Blocks,
    dim: usize,
    row_tiles: usize,
    pub splits: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Blocks {
    Few,
    /// Blocks of 128 rows, which go through `tile` positions at a time.
    Many {
        tile: usize,
    },
}

/// `MOST_SPLITS` in `attention.cu`.
const MOST_SPLITS: usize = 128;
const MOST_SPLITS_OF_MANY: usize = 32;
const KEPT_OF_SHARED: usize = 1024;

impl Spread {
    pub fn new(processors: Processors, lanes: usize, longest: usize, (q_heads, kv_heads, dim): HeadCounts) -> Spread {
        let group = q_heads / kv_heads;
        let large = Blocks::Many { tile: 64 };
        let blocks = match longest * group {
            ..=16 => Blocks::Few,
            _ if large.shared_bytes(dim) <= processors.shared_bytes => large,
            _ => Blocks::Many { tile: 16 },
        };
        let row_tiles = longest.div_ceil(blocks.rows() / group);
        // As many as are at work at the same time: of more the last ones would work alone.
        let each = (processors.shared_bytes + KEPT_OF_SHARED) / (blocks.shared_bytes(dim) + KEPT_OF_SHARED);
        let at_once = processors.count as usize * each.clamp(1, 4);
        let most = if blocks == Blocks::Few { MOST_SPLITS } else { MOST_SPLITS_OF_MANY };
        Spread { blocks, dim, row_tiles, splits: (at_once / (lanes * kv_heads * row_tiles)).clamp(1, most) }
    }
}

impl Blocks {
    fn rows(self) -> usize {
        match self {
            Blocks::Few => 16,
            Blocks::Many { .. } => 128,
        }
    }

    fn threads(self) -> u32 {
        match self {
            Blocks::Few => 128,
            Blocks::Many { .. } => 256,
        }
    }

    fn kernel(self, dim: usize) -> String {
        match self {
            Blocks::Few => format!("attend_few_{dim}"),
            Blocks::Many { tile } => format!("attend_many_{dim}_{tile}"),
        }
    }

    /// Queries and a tile as halves, a second place (`second_bytes` in `tile.cuh`); of a few rows weights as halves, scores
    /// and three numbers a row as well.
    fn shared_bytes(self, dim: usize) -> usize {
        let row_bytes = (dim + 8) * size_of::<u16>();
        let (tile, more) = match self {
            Blocks::Few => (64, 16 * (72 * size_of::<u16>() + (68 + 3) * size_of::<f32>())),
            Blocks::Many { tile } => (tile, 0),
        };
        self.rows() * row_bytes + tile * row_bytes + (tile * row_bytes).max(tile * (dim / 32) * 68) + more
    }
}

pub type HeadCounts = (usize, usize, usize);

pub fn prepare(device: &Device, rows: usize, arguments: &PrepareArguments) -> Result<(), Error> {
    let heads = arguments.heads;
    let grid = (rows as u32, (heads.q_heads + 2 * heads.kv_heads).div_ceil(4), 1);
    let launch = Launch { grid, threads: 128, shared_bytes: 4 * heads.dim as usize * size_of::<f32>() };
    device.launch("attention", "prepare_heads", launch, arguments)
}

pub fn attend(
    device: &Device,
    heads: AttentionHeads,
    lanes: usize,
    rows: usize,
    spread: Spread,
    parts: PastParts,
) -> Result<(), Error> {
    let Spread { blocks, dim, row_tiles, splits } = spread;
    let arguments = Attend {
        heads,
        partial: parts.partial,
        stats: parts.stats,
        rows: rows as u32,
        splits: splits as u32,
        row_tiles: row_tiles as u32,
        unused: 0,
    };
    let grid = (heads.kv_heads * row_tiles as u32, splits as u32, lanes as u32);
    let launch = Launch { grid, threads: blocks.threads(), shared_bytes: blocks.shared_bytes(dim) };
    device.launch("attention", &blocks.kernel(dim), launch, &arguments)
}

// Puts parts of the past together. `turns`: whether a lane's values are rotated.
pub fn combine(
    device: &Device,
    heads: AttentionHeads,
    (rows, turns): (usize, bool),
    splits: usize,
    parts: PastParts,
    to: RowsArguments,
) -> Result<(), Error> {
    let PastParts { partial, stats } = parts;
    // Halves share a scale over a whole row. Where there are none a row's columns are done side by side.
    let few = if turns { PADDED_TO.max(heads.dim as usize) } else { PADDED_TO };
    let columns = if to.has_halves() { to.padded() } else { few };
    let heads_of_block = columns.div_ceil(heads.dim as usize).min(heads.q_heads as usize);
    let row = if to.has_halves() || turns { columns } else { 0 };
    let shared_bytes = (row + heads_of_block * splits) * size_of::<f32>();
    let arguments = Combine {
        heads,
        partial,
        stats,
        to,
        rows: rows as u32,
        splits: splits as u32,
        columns: columns as u32,
        turns: u32::from(turns),
    };
    let grid = (rows as u32, (to.padded() / columns) as u32, 1);
    device.launch("attention", "combine", Launch { grid, threads: 256, shared_bytes }, &arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_that_no_kernel_knows_are_refused() {
        assert!(check(8, 2, 96).is_err() && check(64, 2, 64).is_err() && check(24, 4, 256).is_ok());
    }

    #[test]
    fn blocks_have_no_more_shared_memory_than_there_is_and_all_work_at_once() {
        for shared_bytes in [99 << 10, 163 << 10, 227 << 10] {
            let processors = Processors { count: 100, shared_bytes };
            for (dim, longest) in
                [32, 64, 128, 256].into_iter().flat_map(|dim| [1, 2, 30, 1000].map(|rows| (dim, rows)))
            {
                let spread = Spread::new(processors, 1, longest, (16, 4, dim));
                assert!(spread.blocks.shared_bytes(dim) <= shared_bytes, "{spread:?}");
                assert!(spread.blocks.rows() / 4 * spread.row_tiles >= longest, "{spread:?}");
                assert!(spread.splits == 1 || 4 * spread.row_tiles * spread.splits <= 400, "{spread:?}");
            }
            let one = Spread::new(processors, 1, 1, (16, 4, 256));
            assert_eq!((one.blocks, one.splits > 12), (Blocks::Few, true));
        }
    }
}
