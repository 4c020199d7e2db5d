//! Weight matrices on the device. The bits are the file's; `formats.cuh` says in which order they lie.

use bytemuck::{Pod, Zeroable};
use kernels::format::{Format, dequantize};
use kernels::integers::{Ints, unpack};

use crate::buffer::Buffer;
use crate::device::Device;
use crate::error::Error;

/// `Kind` in `formats.cuh`, in its order.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    F32,
    F16,
    BF16,
    /// Any quantised format, as whole bytes with f32 scales: for those that no usual file holds many of.
    WIDE,
    Q8_0,
    Q4_0,
    IQ4_XS,
    Q4_K,
    Q5_K,
    Q6_K,
}

impl Kind {
    pub fn of(format: Format) -> Kind {
        match format {
            Format::F32 => Kind::F32,
            Format::F16 => Kind::F16,
            Format::BF16 => Kind::BF16,
            Format::Q8_0 => Kind::Q8_0,
            Format::Q4_0 => Kind::Q4_0,
            Format::IQ4_XS => Kind::IQ4_XS,
            Format::Q4_K => Kind::Q4_K,
            Format::Q5_K => Kind::Q5_K,
            Format::Q6_K => Kind::Q6_K,
            _ => Kind::WIDE,
        }
    }

    pub fn is_quantised(self) -> bool {
        !matches!(self, Kind::F32 | Kind::F16 | Kind::BF16)
    }

    /// As it stands in the names of kernels.
    pub fn name(self) -> &'static str {
        match self {
            Kind::F32 => "F32",
            Kind::F16 => "F16",
            Kind::BF16 => "BF16",
            Kind::WIDE => "WIDE",
            Kind::Q8_0 => "Q8_0",
            Kind::Q4_0 => "Q4_0",
            Kind::IQ4_XS => "IQ4_XS",
            Kind::Q4_K => "Q4_K",
            Kind::Q5_K => "Q5_K",
            Kind::Q6_K => "Q6_K",
        }
    }

    /// Bytes of a group in each plane: codes, high bits; and of a block of 256 in the planes of scales.
    fn plane_bytes(self) -> [usize; 4] {
        match self {
            Kind::F32 | Kind::F16 | Kind::BF16 => [0; 4],
            Kind::WIDE => [32, 0, 128, 0],
            Kind::Q8_0 => [32, 0, 16, 0],
            Kind::Q4_0 => [16, 0, 16, 0],
            Kind::IQ4_XS => [16, 0, 8, 0],
            Kind::Q4_K => [16, 0, 16, 0],
            Kind::Q5_K => [16, 4, 16, 0],
            Kind::Q6_K => [16, 8, 16, 2],
        }
    }
}

pub struct Matrix {
    pub kind: Kind,
    pub rows: usize,
    pub cols: usize,
    /// Values from row to row where they are numbers.
    stride: usize,
    /// Codes, high bits, scales, and what is left.
    planes: [Buffer<u8>; 4],
}

/// `Matrix` in `formats.cuh`.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
pub struct MatrixArguments {
    planes: [u64; 4],
    rows: u32,
    cols: u32,
    stride: u32,
    kind: u32,
}

/// The bytes of a matrix's planes for rows one after the other.
struct Planes {
    kind: Kind,
    bytes: [Vec<u8>; 4],
}

impl Matrix {
    /// `bytes`: rows as files hold them.
    pub fn of(device: &Device, format: Format, rows: usize, cols: usize, bytes: &[u8]) -> Result<Matrix, Error> {
        Matrix::of_parts(device, format, rows, cols, &[bytes])
    }

    /// One matrix of several with the same columns, whose rows follow each other: the experts of a layer.
    pub fn of_parts(
        device: &Device,
        format: Format,
        rows: usize,
        cols: usize,
        parts: &[&[u8]],
    ) -> Result<Matrix, Error> {
        let kind = Kind::of(format);
        let stride = cols.next_multiple_of(8);
        let planes = if kind.is_quantised() {
            let mut planes = Planes { kind, bytes: Default::default() };
            let row_bytes = format.row_bytes(cols).unwrap_or(bytes_of(parts));
            for part in parts {
                part.chunks_exact(row_bytes).for_each(|row| planes.add_row(format, row, cols));
            }
            planes.bytes
        } else {
            [numbers(format, cols, stride, parts), Vec::new(), Vec::new(), Vec::new()]
        };
        let [codes, high, scales, extra] = planes.map(|bytes| Buffer::of(device, &bytes));
        Ok(Matrix { kind, rows, cols, stride, planes: [codes?, high?, scales?, extra?] })
    }

    /// Bytes on the device.
    pub fn bytes(&self) -> usize {
        self.planes.iter().map(Buffer::len).sum()
    }

    pub fn arguments(&self) -> MatrixArguments {
        MatrixArguments {
            planes: std::array::from_fn(|plane| self.planes[plane].address()),
            rows: self.rows as u32,
            cols: self.cols as u32,
            stride: self.stride as u32,
            kind: self.kind as u32,
        }
    }
}

/// Bytes that a matrix takes on the device, for plans.
pub fn device_bytes(format: Format, rows: usize, cols: usize) -> usize {
    let kind = Kind::of(format);
    if !kind.is_quantised() {
        return rows * cols.next_multiple_of(8) * format.block_bytes();
    }
    let [codes, high, scales, extra] = kind.plane_bytes();
    let groups = rows * cols / 32;
    groups * (codes + high) + groups * (scales + extra) / 8
}

fn bytes_of(parts: &[&[u8]]) -> usize {
    parts.iter().map(|part| part.len()).sum::<usize>().max(1)
}

/// Rows of numbers, filled up with zeros to the stride.
fn numbers(format: Format, cols: usize, stride: usize, parts: &[&[u8]]) -> Vec<u8> {
    let size = format.block_bytes();
    let mut out = Vec::with_capacity(bytes_of(parts) / cols.max(1) * stride);
    for row in parts.iter().flat_map(|part| part.chunks_exact(cols * size)) {
        out.extend_from_slice(row);
        out.resize(out.len() + (stride - cols) * size, 0);
    }
    out
}

impl Planes {
    fn add_row(&mut self, format: Format, row: &[u8], cols: usize) {
        let block_bytes = format.block_bytes() * (256 / format.block_len());
        let mut padded = [0; 1024];
        let mut ints = Ints::default();
        for (block, bytes) in row.chunks(block_bytes).enumerate() {
            padded[..bytes.len()].copy_from_slice(bytes);
            padded[bytes.len()..block_bytes].fill(0);
            unpack(format, &padded[..block_bytes], &mut ints);
            let groups = (cols - 256 * block).min(256) / 32;
            for group in 0..groups {
                self.add_codes(&ints.q[32 * group..][..32]);
            }
            self.add_scales(bytes, &ints, groups);
        }
    }

    fn add_codes(&mut self, q: &[i8]) {
        let [codes, high, ..] = &mut self.bytes;
        let unsigned = |v: usize| -> u8 {
            match self.kind {
                Kind::Q4_0 => (q[v] + 8) as u8,
                Kind::Q6_K => (q[v] + 32) as u8,
                Kind::IQ4_XS => IQ4.iter().position(|step| *step == q[v]).unwrap_or(0) as u8,
                _ => q[v] as u8,
            }
        };
        match self.kind {
            Kind::WIDE | Kind::Q8_0 => codes.extend((0..32).map(unsigned)),
            _ => codes.extend((0..16).map(|j| unsigned(j) & 15 | unsigned(j + 16) << 4)),
        }
        if self.kind == Kind::Q5_K {
            let bits = (0..32).fold(0u32, |bits, v| bits | u32::from(unsigned(v) >> 4) << (8 * (v % 4) + v / 4));
            high.extend(bits.to_le_bytes());
        }
        if self.kind == Kind::Q6_K {
            for half in 0..2 {
                let pair = |v: usize| u32::from(unsigned(16 * half + v) >> 4) << (8 * (v % 4) + 2 * (v / 4));
                high.extend((0..16).fold(0u32, |bits, v| bits | pair(v)).to_le_bytes());
            }
        }
    }

    /// Scales as the file's block has them, but for `WIDE`.
    fn add_scales(&mut self, block: &[u8], ints: &Ints, groups: usize) {
        let [_, _, scales, extra] = &mut self.bytes;
        match self.kind {
            Kind::Q8_0 => (0..groups).for_each(|group| scales.extend(&block[34 * group..][..2])),
            Kind::Q4_0 => (0..groups).for_each(|group| scales.extend(&block[18 * group..][..2])),
            Kind::Q4_K | Kind::Q5_K => scales.extend(&block[..16]),
            Kind::IQ4_XS => scales.extend(&block[..8]),
            Kind::Q6_K => {
                scales.extend(&block[192..208]);
                extra.extend(&block[208..210]);
            }
            _ => (0..2 * groups).for_each(|half| {
                scales.extend(ints.scale[half].to_le_bytes());
                scales.extend(ints.min[half].to_le_bytes());
            }),
        }
    }
}

/// The steps of IQ4, to find codes again.
const IQ4: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// The values of one row, for tests.
pub fn row_values(format: Format, cols: usize, bytes: &[u8], row: usize) -> Vec<f32> {
    let size = format.row_bytes(cols).unwrap_or(0);
    let mut values = vec![0.0; cols];
    dequantize(format, &bytes[row * size..][..size], &mut values);
    values
}
