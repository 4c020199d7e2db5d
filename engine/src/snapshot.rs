//! The part of a state that cannot be cut back, at one position to come back to.
//!
//! Recurrent states are the largest thing that is kept of a short past, so they may be kept smaller than they are
//! computed. The convolution's memory is a twentieth of them and stays as it is. What is lost shows only where a past
//! is gone back to: a sequence that goes on is never rounded. `reprise bench drift` measures it.

use std::ops::Range;

use kernels::cpu::{Cpu, Parts};
use kernels::format::{Format, dequantize, quantize};

use crate::memory::{MemoryKind, MemoryMeter, MeteredBuffer};
use crate::state::{SequenceState, StateShape};

/// The formats that recurrent states may be kept in: exact, half, and a quarter with a scale for each 32 values.
pub const FORMATS: [Format; 3] = [Format::F32, Format::BF16, Format::Q8_0];

/// The format that a configuration calls by this name.
pub fn format(name: &str) -> Option<Format> {
    match name {
        "q8" => Some(Format::Q8_0),
        _ => Format::from_name(name).filter(|format| FORMATS.contains(format)),
    }
}

pub struct Snapshot {
    pub position: usize,
    pub format: Format,
    /// [linear layer][value head, key dim, value dim] in blocks of `format`, the last one of a layer filled up with zeros.
    pub recurrent: MeteredBuffer<u8>,
    /// [linear layer, kernel - 1, channel]
    pub conv: MeteredBuffer<f32>,
}

impl Snapshot {
    /// Room for the state at a position that is not there yet.
    pub fn to_come(position: usize, shape: &StateShape, format: Format, meter: &MemoryMeter) -> Snapshot {
        Snapshot {
            position,
            format,
            recurrent: meter
                .unwritten(MemoryKind::Snapshots, shape.delta_layers * packed_bytes(format, shape.recurrent())),
            conv: meter.unwritten(MemoryKind::Snapshots, shape.delta_layers * shape.conv()),
        }
    }

    pub fn of(state: &SequenceState, format: Format, meter: &MemoryMeter) -> Snapshot {
        let mut snapshot = Snapshot::to_come(state.position, &state.shape, format, meter);
        snapshot.take(state, meter);
        snapshot
    }

    /// All of a state that stands at this position.
    pub fn take(&mut self, state: &SequenceState, meter: &MemoryMeter) {
        let shape = &state.shape;
        let layer_bytes = packed_bytes(self.format, shape.recurrent());
        match meter.device() {
            None => {
                let layers = state.recurrent.chunks_exact(shape.recurrent().max(1));
                layers
                    .zip(self.recurrent.chunks_exact_mut(layer_bytes.max(1)))
                    .for_each(|(from, to)| pack(self.format, from, to));
                self.conv.copy_from_slice(&state.conv);
            }
            Some(device) => {
                let all = 0..shape.delta_layers;
                meter.kept(SnapshotCopy::of(state, self).and_then(|taken| taken.take(device, shape, all)));
            }
        }
    }

    /// One layer of a state that stands at this position, where the host computes.
    pub fn take_layer(&mut self, cpu: &Cpu, layer: usize, state: &mut SequenceState) {
        let (format, heads) = (self.format, state.shape.heads);
        let (recurrent, conv) = state.of_delta_layer(layer);
        self.conv[layer * conv.len()..][..conv.len()].copy_from_slice(conv);
        let layer_bytes = packed_bytes(format, recurrent.len());
        let to = &mut self.recurrent[layer * layer_bytes..][..layer_bytes];
        let head = heads.key_dim * heads.value_dim;
        if !head.is_multiple_of(format.block_len()) {
            return pack(format, recurrent, to);
        }
        let head_bytes = packed_bytes(format, head);
        let to = Parts::new(to);
        cpu.pool.run(heads.value_heads, |number| {
            // SAFETY: each task takes the bytes of its own head.
            let to = unsafe { to.part(number * head_bytes, head_bytes) };
            pack(format, &recurrent[number * head..][..head], to);
        });
    }

    /// The recurrent state, as it is computed with; where the host computes, layer by layer on its threads.
    pub fn unpack(&self, shape: &StateShape, meter: &MemoryMeter, cpu: Option<&Cpu>) -> MeteredBuffer<f32> {
        let (values, layer) = (shape.delta_layers * shape.recurrent(), shape.recurrent());
        let mut recurrent = meter.unwritten(MemoryKind::Live, values);
        match (meter.device(), cpu) {
            (Some(device), _) => {
                let both = self.recurrent.address().and_then(|from| Ok((from, recurrent.address()?)));
                meter.kept(both.and_then(|(from, to)| gpu::snapshot::unpack(device, self.format, values, from, to)));
            }
            (None, cpu) => {
                let layer_bytes = packed_bytes(self.format, layer);
                let to = Parts::new(&mut recurrent);
                let one = |number: usize| {
                    // SAFETY: each task takes the values of its own layer.
                    let to = unsafe { to.part(number * layer, layer) };
                    unpack(self.format, &self.recurrent[number * layer_bytes..][..layer_bytes], to);
                };
                match cpu {
                    Some(cpu) => cpu.pool.run(shape.delta_layers, one),
                    None => (0..shape.delta_layers).for_each(one),
                }
            }
        }
        recurrent
    }

    pub fn bytes(&self) -> usize {
        self.recurrent.bytes() + self.conv.bytes()
    }
}

/// A state on a device, and where a snapshot of it goes: for whoever takes it layer by layer while others still move on.
#[derive(Clone, Copy, Debug)]
pub struct SnapshotCopy {
    format: Format,
    /// Addresses: from the state, to the snapshot.
    recurrent: [u64; 2],
    conv: [u64; 2],
}

impl SnapshotCopy {
    pub fn of(state: &SequenceState, snapshot: &Snapshot) -> Result<SnapshotCopy, gpu::Error> {
        Ok(SnapshotCopy {
            format: snapshot.format,
            recurrent: [state.recurrent.address()?, snapshot.recurrent.address()?],
            conv: [state.conv.address()?, snapshot.conv.address()?],
        })
    }

    /// These linear layers, behind everything that was asked of the device before.
    pub fn take(&self, device: &gpu::Device, shape: &StateShape, layers: Range<usize>) -> Result<(), gpu::Error> {
        let (recurrent, conv) = (shape.recurrent(), shape.conv());
        let at = |[from, to]: [u64; 2], values: usize, bytes: usize| {
            (from + (layers.start * values * size_of::<f32>()) as u64, to + (layers.start * bytes) as u64)
        };
        let (from, to) = at(self.recurrent, recurrent, packed_bytes(self.format, recurrent));
        gpu::snapshot::pack(device, self.format, layers.len() * recurrent, from, to)?;
        let (from, to) = at(self.conv, conv, conv * size_of::<f32>());
        gpu::snapshot::copy(device, layers.len() * conv, from, to)
    }
}

pub fn packed_bytes(format: Format, values: usize) -> usize {
    values.div_ceil(format.block_len()) * format.block_bytes()
}

fn pack(format: Format, values: &[f32], bytes: &mut [u8]) {
    let whole = values.len() / format.block_len();
    let (values, rest) = values.split_at(whole * format.block_len());
    let (bytes, last) = bytes.split_at_mut(whole * format.block_bytes());
    quantize(format, values, bytes);
    if !rest.is_empty() {
        let mut padded = vec![0.0; format.block_len()];
        padded[..rest.len()].copy_from_slice(rest);
        quantize(format, &padded, last);
    }
}

fn unpack(format: Format, bytes: &[u8], values: &mut [f32]) {
    let whole = values.len() / format.block_len();
    let (values, rest) = values.split_at_mut(whole * format.block_len());
    let (bytes, last) = bytes.split_at(whole * format.block_bytes());
    dequantize(format, bytes, values);
    if !rest.is_empty() {
        let mut padded = vec![0.0; format.block_len()];
        dequantize(format, last, &mut padded);
        rest.copy_from_slice(&padded[..rest.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_comes_back_within_its_format() {
        for (format, relative) in [(Format::F32, 0.0), (Format::BF16, 1.0 / 256.0), (Format::Q8_0, 1.0 / 200.0)] {
            for len in [1, 31, 32, 33, 1000] {
                let values: Vec<f32> = (0..len).map(|i| ((i * 37 % 101) as f32 - 50.0) * 0.03).collect();
                let mut bytes = vec![0; packed_bytes(format, len)];
                pack(format, &values, &mut bytes);
                let mut back = vec![f32::NAN; len];
                unpack(format, &bytes, &mut back);
                for (before, after) in values.iter().zip(&back) {
                    // A block's values share a scale: what is lost is a share of the largest.
                    assert!((before - after).abs() <= relative * 1.5, "{} {len}: {before} {after}", format.name());
                }
            }
        }
    }

    #[test]
    fn formats_have_the_names_of_the_configuration() {
        assert_eq!(["f32", "bf16", "q8"].map(format), FORMATS.map(Some));
        assert_eq!((format("q4"), format("f16")), (None, None));
    }
}
