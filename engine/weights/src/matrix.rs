//! Weight matrices: one variant a layout, so that a new layout is a variant here and an arm in each match.

use std::sync::Arc;

use kernels::format::Format;
use kernels::product::{MatrixOrder, PANEL, Weights};

use crate::bytes::ModelBytes;

#[derive(Debug, Clone)]
pub enum Matrix {
    Blocks(BlockMatrix),
    Tiles(TileMatrix),
}

/// Rows of blocks. `data` is aligned to the elements of f32, f16 and bf16.
#[derive(Debug, Clone)]
pub struct BlockMatrix {
    pub format: Format,
    pub rows: usize,
    pub cols: usize,
    /// `Rows`, each of `format.row_bytes(cols)` bytes, until `pack` changes it.
    pub order: MatrixOrder,
    pub data: ModelBytes,
    pub low_rank: Option<Arc<LowRank>>,
}

/// Tiles of a trellis code between two vectors of signs (EXL3): y = output_signs ⊙ H(T H(input_signs ⊙ x)), with H the
/// Walsh-Hadamard transform of blocks of 128. No reader makes one yet.
#[derive(Debug, Clone)]
pub struct TileMatrix {
    pub rows: usize,
    pub cols: usize,
    pub codebook: TileCodebook,
    /// [cols / 16, rows / 16, tile_words]: words of 16 bits, of which a tile of 16 × 16 values has 16 for each bit.
    pub tile_words: usize,
    pub trellis: ModelBytes,
    /// [cols], signs times scales.
    pub input_signs: Vec<f32>,
    /// [rows], signs times scales.
    pub output_signs: Vec<f32>,
    pub low_rank: Option<Arc<LowRank>>,
}

/// Function from a state of the trellis to a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TileCodebook {
    ThreeInst,
    Mcg,
    Mul1,
}

/// Addition of a low rank to a product (LoRA): y += scale · B (A x).
#[derive(Debug, Clone, PartialEq)]
pub struct LowRank {
    pub rank: usize,
    pub scale: f32,
    /// [rank, cols]
    pub a: Vec<f32>,
    /// [rows, rank]
    pub b: Vec<f32>,
}

impl Matrix {
    /// Makes a matrix of rows of blocks. None: the bytes are not exactly those of `rows` × `cols` values.
    pub fn of_blocks(format: Format, rows: usize, cols: usize, data: ModelBytes) -> Option<Matrix> {
        let size = format.row_bytes(cols)?.checked_mul(rows)?;
        let order = MatrixOrder::Rows;
        (size == data.len()).then_some(Matrix::Blocks(BlockMatrix { format, rows, cols, order, data, low_rank: None }))
    }

    pub fn rows(&self) -> usize {
        match self {
            Matrix::Blocks(blocks) => blocks.rows,
            Matrix::Tiles(tiles) => tiles.rows,
        }
    }

    pub fn cols(&self) -> usize {
        match self {
            Matrix::Blocks(blocks) => blocks.cols,
            Matrix::Tiles(tiles) => tiles.cols,
        }
    }

    pub fn data(&self) -> &ModelBytes {
        match self {
            Matrix::Blocks(blocks) => &blocks.data,
            Matrix::Tiles(tiles) => &tiles.trellis,
        }
    }

    pub fn bytes(&self) -> usize {
        let low_rank = self.low_rank().map_or(0, |low_rank| size_of::<f32>() * (low_rank.a.len() + low_rank.b.len()));
        low_rank
            + match self {
                Matrix::Blocks(blocks) => blocks.data.len(),
                Matrix::Tiles(tiles) => {
                    tiles.trellis.len() + size_of::<f32>() * (tiles.input_signs.len() + tiles.output_signs.len())
                }
            }
    }

    pub fn low_rank(&self) -> Option<&LowRank> {
        match self {
            Matrix::Blocks(blocks) => blocks.low_rank.as_deref(),
            Matrix::Tiles(tiles) => tiles.low_rank.as_deref(),
        }
    }

    /// Adds a low rank to the matrix. None: its sizes are not those of the matrix.
    pub fn with_low_rank(mut self, low_rank: LowRank) -> Option<Matrix> {
        let is_fitting =
            low_rank.a.len() == low_rank.rank * self.cols() && low_rank.b.len() == self.rows() * low_rank.rank;
        match &mut self {
            Matrix::Blocks(blocks) => blocks.low_rank = Some(Arc::new(low_rank)),
            Matrix::Tiles(tiles) => tiles.low_rank = Some(Arc::new(low_rank)),
        }
        is_fitting.then_some(self)
    }

    pub fn blocks(&self) -> Option<&BlockMatrix> {
        match self {
            Matrix::Blocks(blocks) => Some(blocks),
            Matrix::Tiles(_) => None,
        }
    }

    pub(crate) fn blocks_mut(&mut self) -> Option<&mut BlockMatrix> {
        match self {
            Matrix::Blocks(blocks) => Some(blocks),
            Matrix::Tiles(_) => None,
        }
    }

    pub fn format(&self) -> Option<Format> {
        self.blocks().map(|blocks| blocks.format)
    }

    /// Writes the values of one row.
    ///
    /// # Panics
    /// With tiles, which no reader makes yet.
    pub fn row(&self, row: usize, out: &mut [f32]) {
        match self {
            Matrix::Blocks(blocks) => blocks.weights().row(row, out),
            Matrix::Tiles(_) => panic!("{NO_TILES}"),
        }
        if let Some(low_rank) = self.low_rank() {
            low_rank.add_to_row(row, out);
        }
    }

    /// Returns the first rows as a matrix that shares the bytes; whole panels where the matrix lies in panels. None: the matrix
    /// has no more rows, or no rows of its own.
    pub fn first_rows(&self, count: usize) -> Option<Matrix> {
        let blocks = self.blocks()?;
        match blocks.order {
            MatrixOrder::Rows => self.part(0, count),
            MatrixOrder::Panels => {
                let panels = blocks.rows.div_ceil(PANEL);
                let count = count.div_ceil(PANEL);
                let data = blocks.data.slice(0..count * (blocks.data.len() / panels.max(1)))?;
                let low_rank = blocks.low_rank_of(0, count * PANEL);
                (count < panels).then_some(Matrix::Blocks(BlockMatrix {
                    rows: count * PANEL,
                    data,
                    low_rank,
                    ..*blocks
                }))
            }
        }
    }

    /// Returns some of the rows as a matrix that shares the bytes. None: they are not there, or do not lie row by row.
    pub fn part(&self, first: usize, count: usize) -> Option<Matrix> {
        let blocks = self.blocks().filter(|blocks| blocks.order == MatrixOrder::Rows)?;
        let size = blocks.row_bytes();
        let last = first.checked_add(count).filter(|&last| last <= blocks.rows)?;
        let data = blocks.data.slice(first * size..last * size)?;
        let low_rank = blocks.low_rank_of(first, count);
        Some(Matrix::Blocks(BlockMatrix { rows: count, data, low_rank, ..*blocks }))
    }
}

/// Message of a product with tiles: readers refuse files that have them.
pub const NO_TILES: &str = "products with trellis tiles are not there yet, and no reader makes such a matrix";

impl BlockMatrix {
    pub fn row_bytes(&self) -> usize {
        self.data.len().checked_div(self.rows).unwrap_or(0)
    }

    pub fn weights(&self) -> Weights<'_> {
        let BlockMatrix { format, rows, cols, order, .. } = *self;
        Weights { format, rows, cols, order, bytes: &self.data }
    }

    fn low_rank_of(&self, first: usize, count: usize) -> Option<Arc<LowRank>> {
        let LowRank { rank, scale, a, b } = &**self.low_rank.as_ref()?;
        let rows = first * rank..(first + count).min(self.rows) * rank;
        Some(Arc::new(LowRank { rank: *rank, scale: *scale, a: a.clone(), b: b[rows].to_vec() }))
    }
}

impl LowRank {
    fn add_to_row(&self, row: usize, out: &mut [f32]) {
        for (b, a) in self.b[row * self.rank..][..self.rank].iter().zip(self.a.chunks_exact(out.len())) {
            out.iter_mut().zip(a).for_each(|(out, a)| *out += self.scale * b * a);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix() -> Matrix {
        let values: Vec<u8> = (0..6).flat_map(|value| (value as f32).to_le_bytes()).collect();
        Matrix::of_blocks(Format::F32, 3, 2, ModelBytes::copy_of(&values)).unwrap()
    }

    fn values(matrix: &Matrix) -> Vec<f32> {
        let mut out = vec![0.0; matrix.rows() * matrix.cols()];
        out.chunks_exact_mut(matrix.cols()).enumerate().for_each(|(row, out)| matrix.row(row, out));
        out
    }

    #[test]
    fn a_low_rank_is_a_part_of_every_row_and_of_every_part() {
        let low_rank = LowRank { rank: 1, scale: 2.0, a: vec![1.0, 10.0], b: vec![1.0, 0.0, -1.0] };
        let whole = matrix().with_low_rank(low_rank.clone()).unwrap();
        assert_eq!(values(&whole), [2.0, 21.0, 2.0, 3.0, 2.0, -15.0]);
        assert_eq!(values(&whole.part(1, 2).unwrap()), values(&whole)[2..]);
        assert_eq!(values(&whole.first_rows(2).unwrap()), values(&whole)[..4]);
        assert_eq!(whole.bytes(), 6 * 4 + 5 * 4);
        let narrow = LowRank { a: vec![1.0], ..low_rank };
        assert!(matrix().with_low_rank(narrow).is_none());
    }

    #[test]
    fn bytes_that_are_not_the_matrix_are_none() {
        assert!(Matrix::of_blocks(Format::F32, 3, 3, matrix().data().clone()).is_none());
        assert!(matrix().part(2, 2).is_none());
    }
}
