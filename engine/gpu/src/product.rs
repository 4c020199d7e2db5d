//! Rows of activations times matrices: one or a few rows by warps, many by tiles on tensor cores, or exactly without them.

use bytemuck::{Pod, Zeroable};

use crate::device::{Device, GpuFeature, Launch};
use crate::error::Error;
use crate::matrix::{DeviceFormat, DeviceMatrix, MatrixArguments};
use crate::rows::{Forms, Halves, RowsArguments};

/// Most rows that go by warps, which read the weights once for all of them.
pub const FEW_ROWS: usize = 8;
/// Most rows for which quantised weights become halves on their way, if activations are rounded.
const BATCH_ROWS: usize = 64;

/// Most rows that go by warps where their matrix has few rows itself: by blocks most processors would have none.
const EXACT_BY_WARPS: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exactness {
    /// Values as f32; by tiles as two halves.
    Exact,
    /// Few rows as 8-bit integers where weights are quantised, more as halves.
    Rounded,
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Job {
    w: MatrixArguments,
    out: u64,
    first_block: u32,
    unused: u32,
}

/// `Experts` in `product.cuh`; all 0 where there are none.
#[repr(C)]
#[derive(Clone, Copy, Default, Pod, Zeroable)]
pub struct Experts {
    pub source: u64,
    pub of_row: u64,
    pub tiles: u64,
    pub rows_of_one: u32,
    pub most_tiles: u32,
    pub tile_rows: u32,
    pub unused: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Product {
    jobs: [Job; 4],
    x: RowsArguments,
    experts: Experts,
    count: u32,
    rows: u32,
    accumulate: u32,
    passes: u32,
    warps_of_row: u32,
    blocks_at_once: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Embed {
    w: MatrixArguments,
    tokens: u64,
    out: u64,
}

pub fn forms(rows: usize, exactness: Exactness) -> Forms {
    let few = rows <= FEW_ROWS;
    let halves = match exactness {
        _ if few => Halves::No,
        Exactness::Exact => Halves::Two,
        Exactness::Rounded => Halves::One,
    };
    Forms { values: few, integers: few && exactness == Exactness::Rounded, halves }
}

pub fn tile_rows(rows: usize) -> usize {
    if rows <= 64 { 32 } else { 128 }
}

/// Multiplies x by each matrix, into the address beside it ([rows, matrix rows], f32). Matrices of one kind go together.
pub fn product(
    device: &Device,
    exactness: Exactness,
    x: RowsArguments,
    rows: usize,
    jobs: &[(&DeviceMatrix, u64)],
    accumulate: bool,
) -> Result<(), Error> {
    let call = ProductCall { device, exactness, x, rows, experts: Experts::default(), accumulate };
    kind_by_kind(jobs, |kind, jobs| match () {
        () if rows == 1 && call.has_codes(kind) => call.by_one(kind, jobs),
        () if rows <= FEW_ROWS && call.has_codes(kind) => call.by_few(kind, jobs),
        () if rows <= BATCH_ROWS && call.has_codes(kind) => call.by_batch(kind, jobs),
        () if rows <= FEW_ROWS => call.by_warps(kind, jobs),
        () if device.uses(GpuFeature::GroupProducts) && worth_groups(rows, exactness, kind) => {
            call.by_groups(kind, jobs, None)
        }
        () => call.by_tiles(kind, jobs),
    })
}

/// Multiplies by groups of warps in tiles of `tile` rows (`GROUP_ROWS`), whatever would be faster: for checks.
pub fn product_by_groups(
    device: &Device,
    tile: usize,
    x: RowsArguments,
    rows: usize,
    jobs: &[(&DeviceMatrix, u64)],
    accumulate: bool,
) -> Result<(), Error> {
    let exactness = Exactness::Rounded;
    let call = ProductCall { device, exactness, x, rows, experts: Experts::default(), accumulate };
    kind_by_kind(jobs, |kind, jobs| call.by_groups(kind, jobs, Some(tile)))
}

fn kind_by_kind(
    jobs: &[(&DeviceMatrix, u64)],
    mut start: impl FnMut(DeviceFormat, &[&(&DeviceMatrix, u64)]) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut rest: Vec<&(&DeviceMatrix, u64)> = jobs.iter().collect();
    while let Some((first, _)) = rest.first() {
        let kind = first.kind;
        let (same, others): (Vec<_>, Vec<_>) = rest.iter().partition(|(matrix, _)| matrix.kind == kind);
        same.chunks(4).try_for_each(|jobs| start(kind, jobs))?;
        rest = others;
    }
    Ok(())
}

/// Multiplies without rounding for any number of rows: for matrices that have few rows themselves.
pub fn exact_product(
    device: &Device,
    x: RowsArguments,
    rows: usize,
    jobs: &[(&DeviceMatrix, u64)],
) -> Result<(), Error> {
    let call =
        ProductCall { device, exactness: Exactness::Exact, x, rows, experts: Experts::default(), accumulate: false };
    kind_by_kind(
        jobs,
        |kind, jobs| if rows <= EXACT_BY_WARPS { call.by_warps(kind, jobs) } else { call.exactly(kind, jobs) },
    )
}

/// Multiplies each row by the rows of its own expert; all experts have equally many.
pub fn product_of_experts(
    device: &Device,
    exactness: Exactness,
    x: RowsArguments,
    rows: usize,
    experts: Experts,
    jobs: &[(&DeviceMatrix, u64)],
    accumulate: bool,
) -> Result<(), Error> {
    let call = ProductCall { device, exactness, x, rows, experts, accumulate };
    kind_by_kind(jobs, |kind, jobs| match () {
        () if experts.tiles == 0 && call.has_codes(kind) => call.by_one(kind, jobs),
        () if experts.tiles == 0 => call.by_warps(kind, jobs),
        () if experts.tile_rows == 32 && call.has_codes(kind) => call.by_batch(kind, jobs),
        () => call.by_tiles(kind, jobs),
    })
}

pub fn embed(device: &Device, matrix: &DeviceMatrix, tokens: u64, rows: usize, out: u64) -> Result<(), Error> {
    let launch = Launch { grid: (rows as u32, 1, 1), threads: 128, shared_bytes: 0 };
    let kernel = format!("embed_{:?}", matrix.kind);
    device.launch("vec", &kernel, launch, &Embed { w: matrix.arguments(), tokens, out })
}

struct ProductCall<'a> {
    device: &'a Device,
    exactness: Exactness,
    x: RowsArguments,
    rows: usize,
    experts: Experts,
    accumulate: bool,
}

const WARPS: usize = 4;
/// Rows and columns of the output that a tile has (`groups.cu`), and threads of a block.
pub const GROUP_ROWS: [usize; 2] = [256, 128];
const GROUP_COLS: usize = 128;
const GROUP_THREADS: u32 = 512;
/// Rows and columns of the output that a block makes (`exact.cu`), and its steps along the depth.
const EXACT_ROWS: [(usize, usize); 2] = [(32, 64), (8, 128)];
const EXACT_COLS: usize = 64;

/// Returns whether groups of warps pay: fewer rows would leave most of a block idle, and two halves or f32 weights have no
/// such kernel.
fn worth_groups(rows: usize, exactness: Exactness, kind: DeviceFormat) -> bool {
    tile_rows(rows) == 128 && exactness == Exactness::Rounded && kind != DeviceFormat::F32
}

/// Returns the rows of a tile of the products by groups: as many as need the least time where `processors` make tiles of
/// `across` columns at once. Tiles of fewer rows turn weights into halves more often, which costs about a quarter more.
fn group_rows(rows: usize, across: usize, processors: usize) -> usize {
    let [large, small] = GROUP_ROWS;
    let turns = |tile: usize| (across * rows.div_ceil(tile)).div_ceil(processors) * tile;
    if 4 * turns(large) <= 5 * turns(small) { large } else { small }
}

/// Weight rows of a warp, values of each that a warp asks for at once, and blocks that a processor has room for (`one.cu`).
const ONE_ROWS: usize = 2;
const ONE_DEPTH: usize = 4 * 32 * 32;
const ONE_BLOCKS: usize = 4;
/// Weight rows of a block, and warps of a processor that are enough (`few.cu`).
const FEW_COLUMNS: usize = 32;
const FEW_WARPS: usize = 32;

impl ProductCall<'_> {
    fn by_one(&self, kind: DeviceFormat, jobs: &[&(&DeviceMatrix, u64)]) -> Result<(), Error> {
        let ProductCall { device, rows, experts, .. } = *self;
        let weight_rows: usize = match experts.rows_of_one {
            0 => jobs.iter().map(|(matrix, _)| matrix.rows).sum(),
            rows_of_one => jobs.len() * rows_of_one as usize,
        };
        // Short matrices keep the device at work only if several warps share each row, and deep ones are more than a warp
        // can ask for at once.
        let at_once = device.processors().count as usize * ONE_BLOCKS;
        let warps = weight_rows.div_ceil(ONE_ROWS) * rows;
        let depth = jobs.iter().map(|(matrix, _)| matrix.cols).max().unwrap_or(0);
        let is_enough = |sharing: &usize| 2 * warps * sharing > at_once * WARPS && depth <= sharing * ONE_DEPTH;
        let warps_of_row = [1, 2].into_iter().find(is_enough).unwrap_or(WARPS);
        let (placed, blocks) = self.placed(jobs, WARPS * ONE_ROWS / warps_of_row);
        let arguments = Product { warps_of_row: warps_of_row as u32, blocks_at_once: at_once as u32, ..placed };
        let launch = Launch { grid: (blocks, rows as u32, 1), threads: 32 * WARPS as u32, shared_bytes: 0 };
        device.launch("one", &format!("one_{kind:?}"), launch, &arguments)
    }

    fn by_warps(&self, kind: DeviceFormat, jobs: &[&(&DeviceMatrix, u64)]) -> Result<(), Error> {
        let ProductCall { device, rows, experts, .. } = *self;
        let at_once = if rows == 1 || experts.of_row != 0 { 1 } else { 4 };
        // `VEC_ROWS` in `vec.cu`.
        let rows_of_block = WARPS * 2;
        // Matrices of a few rows keep the device at work only if several warps share each of them.
        let weight_rows: usize = jobs.iter().map(|(matrix, _)| matrix.rows).sum();
        let blocks = weight_rows.div_ceil(rows_of_block) * rows.div_ceil(at_once);
        let is_short = experts.of_row == 0 && blocks < 2 * device.processors().count as usize;
        let warps_of_row = if is_short { WARPS } else { 1 };
        let (placed, blocks) = self.placed(jobs, rows_of_block / warps_of_row);
        let arguments = Product { warps_of_row: warps_of_row as u32, ..placed };
        let kernel = format!("vec_values_{kind:?}_{at_once}");
        let grid = (blocks, rows.div_ceil(at_once) as u32, 1);
        device.launch("vec", &kernel, Launch { grid, threads: 32 * WARPS as u32, shared_bytes: 0 }, &arguments)
    }

    fn has_codes(&self, kind: DeviceFormat) -> bool {
        self.exactness == Exactness::Rounded && kind.is_quantised()
    }

    fn by_few(&self, kind: DeviceFormat, jobs: &[&(&DeviceMatrix, u64)]) -> Result<(), Error> {
        let (arguments, blocks) = self.placed(jobs, FEW_COLUMNS);
        // Of each warp: two stages of weight rows, their high bits, activations and scales of these; scales of the weights.
        let (groups, high) = match kind {
            DeviceFormat::WIDE | DeviceFormat::Q8_0 => (2, 0),
            DeviceFormat::Q5_K => (4, 16),
            DeviceFormat::Q6_K => (4, 32),
            _ => (4, 0),
        };
        let stage = FEW_COLUMNS * (64 + high) + FEW_ROWS * (32 * groups + 64);
        let bytes_of_warp = 2 * stage + FEW_COLUMNS * 4 * 2 * size_of::<f32>();
        // Warps of a block share the depth: as many as keep the processors at work.
        let processors = self.device.processors();
        let is_enough = blocks as usize * 8 >= processors.count as usize * FEW_WARPS;
        let warps = if is_enough || 16 * bytes_of_warp > processors.shared_bytes { 8 } else { 16 };
        let launch = Launch { grid: (blocks, 1, 1), threads: 32 * warps as u32, shared_bytes: warps * bytes_of_warp };
        self.device.launch("few", &format!("few_{kind:?}_{warps}"), launch, &arguments)
    }

    fn by_batch(&self, kind: DeviceFormat, jobs: &[&(&DeviceMatrix, u64)]) -> Result<(), Error> {
        let ProductCall { device, rows, experts, .. } = *self;
        let (tokens, down) = match rows {
            _ if experts.tiles != 0 => (experts.tile_rows, experts.most_tiles),
            ..=16 => (16, 1),
            17..=32 => (32, 1),
            _ => (64, 1),
        };
        // More weight rows a block read the activations less often, where that leaves blocks for all processors.
        let (placed, blocks) = self.placed(jobs, 64);
        let is_wide = tokens > 16 && blocks * down >= 2 * device.processors().count;
        let (arguments, blocks) = if is_wide { (placed, blocks) } else { self.placed(jobs, 32) };
        let (weight_rows, threads) = if is_wide { (64, 128) } else { (32, 256) };
        // Of each warp's rows, 256 in all: three units in the ring (`unit_pitch` in `batch.cu`), and the scales of two.
        let pitch = if kind == DeviceFormat::Q6_K { 112 } else { 80 };
        let launch = Launch { grid: (blocks, down, 1), threads, shared_bytes: 256 * (3 * pitch + 2 * 16) };
        device.launch("batch", &format!("batch_{kind:?}_{weight_rows}_{tokens}"), launch, &arguments)
    }

    fn by_tiles(&self, kind: DeviceFormat, jobs: &[&(&DeviceMatrix, u64)]) -> Result<(), Error> {
        let ProductCall { rows, experts, .. } = *self;
        let (placed, blocks) = self.placed(jobs, 128);
        let arguments = Product { passes: if self.exactness == Exactness::Exact { 3 } else { 1 }, ..placed };
        let has_experts = experts.tiles != 0;
        let tile = if has_experts { experts.tile_rows as usize } else { tile_rows(rows) };
        let down = if has_experts { experts.most_tiles } else { rows.div_ceil(tile) as u32 };
        // Stages of activations (`stages` in `tiles.cu`) and two of weights, 72 halves a row.
        let stages = if tile == 32 { 5 } else { 2 };
        let shared_bytes = (stages * tile + 2 * 128) * 72 * size_of::<u16>();
        let kernel = format!("tiles_{kind:?}_{tile}");
        self.device.launch("tiles", &kernel, Launch { grid: (blocks, down, 1), threads: 256, shared_bytes }, &arguments)
    }

    /// `tile`: rows of a tile, unless the fastest are wanted.
    fn by_groups(&self, kind: DeviceFormat, jobs: &[&(&DeviceMatrix, u64)], tile: Option<usize>) -> Result<(), Error> {
        let (arguments, across) = self.placed(jobs, GROUP_COLS);
        let processors = self.device.processors().count as usize;
        let tile = tile.unwrap_or_else(|| group_rows(self.rows, across as usize, processors));
        // A block makes one tile after the other.
        let tiles = across as usize * self.rows.div_ceil(tile);
        let grid = (tiles.min(processors) as u32, 1, 1);
        // Four stages, 64 halves a row, where a square of eight rows begins; and the scales of the rows.
        let shared_bytes = (4 * (tile + GROUP_COLS) + 8) * 64 * size_of::<u16>() + tile * size_of::<f32>();
        let launch = Launch { grid, threads: GROUP_THREADS, shared_bytes };
        self.device.launch("groups", &format!("groups_{kind:?}_{tile}"), launch, &arguments)
    }

    fn exactly(&self, kind: DeviceFormat, jobs: &[&(&DeviceMatrix, u64)]) -> Result<(), Error> {
        let ProductCall { device, rows, .. } = *self;
        // By single rows of the weights: the matrices lie side by side.
        let (arguments, cols) = self.placed(jobs, 1);
        let across = (cols as usize).div_ceil(EXACT_COLS);
        // Each block reads its weights again: there are more blocks only where half of the processors had none.
        let [large, small] = EXACT_ROWS;
        let is_short = 2 * across * rows.div_ceil(large.0) < device.processors().count as usize;
        let (tile, step) = if is_short { small } else { large };
        // Two steps of weights and three of activations, four values more a row.
        let shared_bytes = (2 * EXACT_COLS * step + 3 * tile * (step + 4)) * size_of::<f32>();
        let launch = Launch { grid: (across as u32, rows.div_ceil(tile) as u32, 1), threads: 256, shared_bytes };
        device.launch("exact", &format!("exact_{kind:?}_{tile}"), launch, &arguments)
    }

    fn placed(&self, jobs: &[&(&DeviceMatrix, u64)], rows_of_block: usize) -> (Product, u32) {
        let ProductCall { x, rows, experts, accumulate, .. } = *self;
        let (rows, count, accumulate) = (rows as u32, jobs.len() as u32, accumulate.into());
        let mut product = Product { x, experts, count, rows, accumulate, ..Product::zeroed() };
        let mut blocks = 0;
        for (place, (matrix, out)) in product.jobs.iter_mut().zip(jobs) {
            *place = Job { w: matrix.arguments(), out: *out, first_block: blocks, unused: 0 };
            let rows = if experts.rows_of_one > 0 { experts.rows_of_one as usize } else { matrix.rows };
            blocks += rows.div_ceil(rows_of_block) as u32;
        }
        (product, blocks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_of_groups_leave_no_processors_idle_where_smaller_ones_would_not() {
        // As many as processors, or nearly; half as many; few rows; and many more than processors.
        assert_eq!(group_rows(1024, 32, 132), 256);
        assert_eq!(group_rows(512, 32, 132), 128);
        assert_eq!(group_rows(100, 192, 132), 128);
        assert_eq!(group_rows(2048, 192, 132), 256);
    }
}
