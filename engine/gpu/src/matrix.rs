//! Weight matrices on the device. The bits are the file's; `formats.cuh` says in which order they lie.

use std::sync::Arc;

use bytemuck::{Pod, Zeroable};
use kernels::format::{Format, IQ4_CODES, Ints, unpack_padded};

use crate::buffer::Buffer;
use crate::device::Device;
use crate::error::Error;

/// `Kind` in `formats.cuh`, in its order; kernels have these names in theirs.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceFormat {
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
    // Formats of keys and values alone.
    TQ4,
    TQ3,
}

impl DeviceFormat {
    pub fn of(format: Format) -> DeviceFormat {
        match format {
            Format::F32 => DeviceFormat::F32,
            Format::F16 => DeviceFormat::F16,
            Format::BF16 => DeviceFormat::BF16,
            Format::Q8_0 => DeviceFormat::Q8_0,
            Format::Q4_0 => DeviceFormat::Q4_0,
            Format::IQ4_XS => DeviceFormat::IQ4_XS,
            Format::Q4_K => DeviceFormat::Q4_K,
            Format::Q5_K => DeviceFormat::Q5_K,
            Format::Q6_K => DeviceFormat::Q6_K,
            Format::TQ4 => DeviceFormat::TQ4,
            Format::TQ3 => DeviceFormat::TQ3,
            _ => DeviceFormat::WIDE,
        }
    }

    pub fn is_quantised(self) -> bool {
        use DeviceFormat::*;
        !matches!(self, F32 | F16 | BF16 | TQ4 | TQ3)
    }

    /// Bytes of a group in each plane: codes, high bits; and of a block of 256 in the planes of scales.
    fn plane_bytes(self) -> [usize; 4] {
        match self {
            DeviceFormat::F32 | DeviceFormat::F16 | DeviceFormat::BF16 | DeviceFormat::TQ4 | DeviceFormat::TQ3 => {
                [0; 4]
            }
            DeviceFormat::WIDE => [32, 0, 128, 0],
            DeviceFormat::Q8_0 => [32, 0, 16, 0],
            DeviceFormat::Q4_0 => [16, 0, 16, 0],
            DeviceFormat::IQ4_XS => [16, 0, 8, 0],
            DeviceFormat::Q4_K => [16, 0, 16, 0],
            DeviceFormat::Q5_K => [16, 4, 16, 0],
            DeviceFormat::Q6_K => [16, 8, 16, 2],
        }
    }
}

pub struct DeviceMatrix {
    pub kind: DeviceFormat,
    pub rows: usize,
    pub cols: usize,
    /// Values from row to row where they are numbers.
    stride: usize,
    /// Codes, high bits, scales, and what is left.
    planes: Arc<[Buffer<u8>; 4]>,
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
pub struct MatrixArguments {
    planes: [u64; 4],
    rows: u32,
    cols: u32,
    stride: u32,
    kind: u32,
}

struct Planes {
    kind: DeviceFormat,
    bytes: [Vec<u8>; 4],
}

impl DeviceMatrix {
    /// Copies a matrix, whose `bytes` are rows as files hold them.
    pub fn of(device: &Device, format: Format, rows: usize, cols: usize, bytes: &[u8]) -> Result<DeviceMatrix, Error> {
        DeviceMatrix::of_parts(device, format, rows, cols, &[bytes])
    }

    /// Copies several matrices with the same columns into one, row behind row: the experts of a layer.
    pub fn of_parts(
        device: &Device,
        format: Format,
        rows: usize,
        cols: usize,
        parts: &[&[u8]],
    ) -> Result<DeviceMatrix, Error> {
        let kind = DeviceFormat::of(format);
        let stride = cols.next_multiple_of(8);
        if !kind.is_quantised() {
            let numbers = Buffer::of(device, &numbers(format, cols, stride, parts))?;
            let none = || Buffer::new(device, 0);
            let planes = Arc::new([numbers, none()?, none()?, none()?]);
            return Ok(DeviceMatrix { kind, rows, cols, stride, planes });
        }
        let pieces = in_order(kind, format, cols, parts);
        let plane = |plane: usize| {
            let buffer = Buffer::new(device, pieces.iter().map(|piece| piece.bytes[plane].len()).sum())?;
            let mut start = 0;
            for piece in &pieces {
                buffer.write(start, &piece.bytes[plane])?;
                start += piece.bytes[plane].len();
            }
            Ok::<_, Error>(buffer)
        };
        let planes = Arc::new([plane(0)?, plane(1)?, plane(2)?, plane(3)?]);
        Ok(DeviceMatrix { kind, rows, cols, stride, planes })
    }

    pub fn first_rows(&self, rows: usize) -> DeviceMatrix {
        let DeviceMatrix { kind, cols, stride, ref planes, .. } = *self;
        DeviceMatrix { kind, rows: rows.min(self.rows), cols, stride, planes: planes.clone() }
    }

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

pub fn device_bytes(format: Format, rows: usize, cols: usize) -> usize {
    let kind = DeviceFormat::of(format);
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

/// Makes the planes of all rows, in pieces that follow each other. Their order is not the file's, and changing it is
/// most of what opening a model takes, so that all cores do it.
fn in_order(kind: DeviceFormat, format: Format, cols: usize, parts: &[&[u8]]) -> Vec<Planes> {
    let row_bytes = format.row_bytes(cols).unwrap_or(bytes_of(parts));
    let rows: Vec<&[u8]> = parts.iter().flat_map(|part| part.chunks_exact(row_bytes)).collect();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let pieces = cores.min(rows.len() * row_bytes / WORTH_A_THREAD + 1);
    let of = |rows: &[&[u8]]| {
        let mut planes = Planes { kind, bytes: Default::default() };
        rows.iter().for_each(|row| planes.add_row(format, row, cols));
        planes
    };
    let pieces = rows.chunks(rows.len().div_ceil(pieces).max(1));
    if pieces.len() < 2 {
        return pieces.map(of).collect();
    }
    std::thread::scope(|scope| {
        let threads: Vec<_> = pieces.map(|rows| scope.spawn(move || of(rows))).collect();
        let join = |thread: std::thread::ScopedJoinHandle<_>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(join).collect()
    })
}

const WORTH_A_THREAD: usize = 256 << 10; // not a window: bytes

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
        let mut ints = Ints::default();
        for (block, bytes) in row.chunks(format.bytes_of_256()).enumerate() {
            unpack_padded(format, bytes, &mut ints);
            let groups = (cols - 256 * block).min(256) / 32;
            for group in 0..groups {
                self.add_codes(&ints.q[32 * group..][..32]);
            }
            self.add_scales(bytes, &ints, groups);
        }
    }

    fn add_codes(&mut self, q: &[i8]) {
        let [codes, high, ..] = &mut self.bytes;
        let numbers: [u8; 32] = std::array::from_fn(|v| q[v] as u8);
        let codes_of: [u8; 32] = match self.kind {
            DeviceFormat::Q4_0 => numbers.map(|number| number.wrapping_add(8)),
            DeviceFormat::Q6_K => numbers.map(|number| number.wrapping_add(32)),
            DeviceFormat::IQ4_XS => numbers.map(|number| IQ4_CODES[usize::from(number)]),
            _ => numbers,
        };
        match self.kind {
            DeviceFormat::WIDE | DeviceFormat::Q8_0 => codes.extend_from_slice(&codes_of),
            _ => {
                codes.extend_from_slice(&std::array::from_fn::<u8, 16, _>(|j| codes_of[j] & 15 | codes_of[j + 16] << 4))
            }
        }
        if self.kind == DeviceFormat::Q5_K {
            let bits = (0..32).fold(0u32, |bits, v| bits | u32::from(codes_of[v] >> 4) << (8 * (v % 4) + v / 4));
            high.extend(bits.to_le_bytes());
        }
        if self.kind == DeviceFormat::Q6_K {
            for half in 0..2 {
                let pair = |v: usize| u32::from(codes_of[16 * half + v] >> 4) << (8 * (v % 4) + 2 * (v / 4));
                high.extend((0..16).fold(0u32, |bits, v| bits | pair(v)).to_le_bytes());
            }
        }
    }

    /// Scales as the file's block has them, but for `WIDE`.
    fn add_scales(&mut self, block: &[u8], ints: &Ints, groups: usize) {
        let [_, _, scales, extra] = &mut self.bytes;
        match self.kind {
            DeviceFormat::Q8_0 => (0..groups).for_each(|group| scales.extend(&block[34 * group..][..2])),
            DeviceFormat::Q4_0 => (0..groups).for_each(|group| scales.extend(&block[18 * group..][..2])),
            DeviceFormat::Q4_K | DeviceFormat::Q5_K => scales.extend(&block[..16]),
            DeviceFormat::IQ4_XS => scales.extend(&block[..8]),
            DeviceFormat::Q6_K => {
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

#[cfg(test)]
mod tests {
    use kernels::format::quantize;
    use reference::random;

    use super::*;

    #[test]
    fn rows_keep_their_order_however_many_cores_there_are() {
        let (rows, cols, format) = (3000, 256, Format::Q6_K);
        let size = format.row_bytes(cols).unwrap();
        let mut bytes = vec![0; rows * size];
        quantize(format, &random(rows * cols, 1), &mut bytes);
        assert!(bytes.len() > 2 * WORTH_A_THREAD);
        let mut whole = Planes { kind: DeviceFormat::Q6_K, bytes: Default::default() };
        bytes.chunks_exact(size).for_each(|row| whole.add_row(format, row, cols));
        let (first, second) = bytes.split_at(1234 * size);
        let pieces = in_order(DeviceFormat::Q6_K, format, cols, &[first, second]);
        for plane in 0..4 {
            let ours: Vec<u8> = pieces.iter().flat_map(|piece| piece.bytes[plane].clone()).collect();
            assert!(ours == whole.bytes[plane], "plane {plane}");
        }
    }
}
