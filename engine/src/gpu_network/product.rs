//! Products of a network's rows with its matrices, and with what adapters add to these.

use gpu::matrix::DeviceMatrix;
use gpu::norm::{NormRowsArguments, norm_rows};
use gpu::product::{Experts, exact_product, product, product_of_experts};
use gpu::rows::RowsArguments;
use gpu::{Device, Error};
use kernels::format::Format;
use weights::LowRank;

use super::workspace::Floats;
use super::{GpuNetwork, GpuWorkspace};

pub struct GpuMatrix {
    pub blocks: DeviceMatrix,
    pub low_rank: Option<GpuLowRank>,
}

/// An addition of a low rank to a product: y += B (A x). The scale is in B.
pub struct GpuLowRank {
    a: DeviceMatrix, // [rank, cols]
    b: DeviceMatrix, // [rows, rank]
}

impl GpuMatrix {
    pub fn first_rows(&self, rows: usize) -> GpuMatrix {
        GpuMatrix {
            blocks: self.blocks.first_rows(rows),
            low_rank: self.low_rank.as_ref().map(|it| it.first_rows(rows)),
        }
    }
}

impl GpuLowRank {
    // The matrices lie row behind row: one, or a layer's experts. Those of a smaller rank, or without an addition, are
    // filled up with zeros.
    pub fn of(
        device: &Device,
        parts: &[Option<&LowRank>],
        (rows, cols): (usize, usize),
    ) -> Result<Option<GpuLowRank>, Error> {
        let Some(rank) = parts.iter().flatten().map(|part| part.rank).max() else { return Ok(None) };
        let (mut a, mut b) = (vec![0.0; parts.len() * rank * cols], vec![0.0; parts.len() * rows * rank]);
        let filled = parts.iter().zip(a.chunks_exact_mut(rank * cols)).zip(b.chunks_exact_mut(rows * rank));
        for ((part, a), b) in filled {
            let Some(part) = part else { continue };
            a[..part.a.len()].copy_from_slice(&part.a);
            for (to, from) in b.chunks_exact_mut(rank).zip(part.b.chunks_exact(part.rank)) {
                to.iter_mut().zip(from).for_each(|(to, from)| *to = part.scale * from);
            }
        }
        let copied = |rows, cols, values: &[f32]| {
            DeviceMatrix::of(device, Format::F32, parts.len() * rows, cols, bytemuck::cast_slice(values))
        };
        Ok(Some(GpuLowRank { a: copied(rank, cols, &a)?, b: copied(rows, rank, &b)? }))
    }

    fn first_rows(&self, rows: usize) -> GpuLowRank {
        GpuLowRank { a: self.a.first_rows(self.a.rows), b: self.b.first_rows(rows) }
    }
}

impl GpuNetwork {
    /// Multiplies rows by each matrix, into the address beside it ([rows, matrix rows]).
    pub(super) fn product(
        &self,
        (x, rows): (RowsArguments, usize),
        jobs: &[(&GpuMatrix, u64)],
        accumulate: bool,
        work: &GpuWorkspace,
    ) -> Result<(), Error> {
        product(&self.device, self.exactness, x, rows, &blocks_of(jobs), accumulate)?;
        self.add_low_ranks((x, rows), None, jobs, work)
    }

    // What adapters add is rounded.
    pub(super) fn exact_product(
        &self,
        (x, rows): (RowsArguments, usize),
        jobs: &[(&GpuMatrix, u64)],
        work: &GpuWorkspace,
    ) -> Result<(), Error> {
        exact_product(&self.device, x, rows, &blocks_of(jobs))?;
        self.add_low_ranks((x, rows), None, jobs, work)
    }

    pub(super) fn product_of_experts(
        &self,
        (x, rows): (RowsArguments, usize),
        experts: Experts,
        jobs: &[(&GpuMatrix, u64)],
        work: &GpuWorkspace,
    ) -> Result<(), Error> {
        product_of_experts(&self.device, self.exactness, x, rows, experts, &blocks_of(jobs), false)?;
        self.add_low_ranks((x, rows), Some(experts), jobs, work)
    }

    fn add_low_ranks(
        &self,
        (x, rows): (RowsArguments, usize),
        experts: Option<Experts>,
        jobs: &[(&GpuMatrix, u64)],
        work: &GpuWorkspace,
    ) -> Result<(), Error> {
        let changed = jobs.iter().filter_map(|(matrix, out)| Some((matrix.low_rank.as_ref()?, *out)));
        for (GpuLowRank { a, b }, out) in changed {
            let (rank, values) = (b.cols, work.at(Floats::LowRank));
            let narrow = work.low_rank.arguments_of(rank, x.forms());
            match experts {
                None => product(&self.device, self.exactness, x, rows, &[(a, values)], false)?,
                Some(experts) => {
                    let of_a = Experts { rows_of_one: rank as u32, ..experts };
                    product_of_experts(&self.device, self.exactness, x, rows, of_a, &[(a, values)], false)?
                }
            }
            let as_it_is = NormRowsArguments { x: values, weight: 0, chosen: 0, to: narrow, eps: 0.0, unused: 0 };
            norm_rows(&self.device, rows, &as_it_is)?;
            match experts {
                None => product(&self.device, self.exactness, narrow, rows, &[(b, out)], true)?,
                Some(experts) => {
                    // Rows lie in the order of their products already.
                    let of_b = Experts { source: 0, ..experts };
                    product_of_experts(&self.device, self.exactness, narrow, rows, of_b, &[(b, out)], true)?
                }
            }
        }
        Ok(())
    }
}

fn blocks_of<'m>(jobs: &[(&'m GpuMatrix, u64)]) -> Vec<(&'m DeviceMatrix, u64)> {
    jobs.iter().map(|(matrix, out)| (&matrix.blocks, *out)).collect()
}
