//! A copy of a sequence's recurrent and convolution states at one position, from which a later request continues.
//!
//! Keys and values can be cut back to any position; recurrent states cannot. They are the largest part of a short
//! cached sequence, so a snapshot may hold them in fewer bits than they are computed with. The convolution states are a
//! twentieth of them and stay f32. Only a request that continues from a snapshot is affected: a running sequence is
//! never rounded. `reprise bench drift` measures the loss.

use std::ops::Range;

use kernels::attention::PageLayout;
use kernels::cpu::{Cpu, DisjointParts};
use kernels::format::{Format, dequantize, quantize};

use crate::memory::{MemoryKind, MemoryMeter, MeteredBuffer};
use crate::state::{KvPages, PAGE_TOKENS, SequenceState, StateShape, packed_bytes};

/// Formats of recurrent states: exact, half the bytes, and a quarter of them with a scale for each 32 values.
pub const FORMATS: [Format; 3] = [Format::F32, Format::BF16, Format::Q8_0];

pub struct Snapshot {
    pub position: usize,
    pub format: Format,
    /// [linear layer][value head, key dim, value dim] in blocks of `format`; the last block of a layer is padded with
    /// zeros.
    pub recurrent: MeteredBuffer<u8>,
    pub conv: MeteredBuffer<f32>, // [linear layer, kernel - 1, channel]
}

impl Snapshot {
    pub fn unwritten(position: usize, shape: &StateShape, format: Format, meter: &MemoryMeter) -> Snapshot {
        Snapshot {
            position,
            format,
            recurrent: meter
                .unwritten(MemoryKind::Snapshots, shape.delta_layers * packed_bytes(format, shape.recurrent())),
            conv: meter.unwritten(MemoryKind::Snapshots, shape.delta_layers * shape.conv()),
        }
    }

    pub fn of(state: &SequenceState, format: Format, cpu: Option<&Cpu>) -> Snapshot {
        let mut snapshot = Snapshot::unwritten(state.position, &state.shape, format, &state.meter);
        snapshot.take(state, cpu);
        snapshot
    }

    /// Copies a snapshot on a GPU to the host.
    pub fn moved(&self) -> Option<Snapshot> {
        let recurrent = self.recurrent.moved(MemoryKind::MovedSnapshots)?;
        let conv = self.conv.moved(MemoryKind::MovedSnapshots)?;
        Some(Snapshot { position: self.position, format: self.format, recurrent, conv })
    }

    pub fn kind(&self) -> MemoryKind {
        self.recurrent.kind()
    }

    pub fn take(&mut self, state: &SequenceState, cpu: Option<&Cpu>) {
        let (shape, meter) = (&state.shape, &state.meter);
        let (layer, layer_bytes) = (shape.recurrent(), packed_bytes(self.format, shape.recurrent()));
        match meter.device() {
            None => {
                let to = DisjointParts::new(self.recurrent.host_mut());
                let one = |number: usize| {
                    // SAFETY: each task takes the bytes of its own layer.
                    let to = unsafe { to.part(number * layer_bytes, layer_bytes) };
                    pack(self.format, &state.recurrent.host()[number * layer..][..layer], to);
                };
                match cpu {
                    Some(cpu) => cpu.pool.run(shape.delta_layers, one),
                    None => (0..shape.delta_layers).for_each(one),
                }
                self.conv.host_mut().copy_from_slice(state.conv.host());
            }
            Some(device) => {
                let all = 0..shape.delta_layers;
                meter.keep_failure(SnapshotCopy::of(state, self).and_then(|copy| copy.run(device, shape, all)));
            }
        }
    }

    /// Copies one layer of a state that is at this position. For states on the host.
    pub fn take_layer(&mut self, cpu: &Cpu, layer: usize, state: &mut SequenceState) {
        let (format, heads) = (self.format, state.shape.heads);
        let (recurrent, conv) = state.delta_layer(layer);
        self.conv.host_mut()[layer * conv.len()..][..conv.len()].copy_from_slice(conv);
        let layer_bytes = packed_bytes(format, recurrent.len());
        let to = &mut self.recurrent.host_mut()[layer * layer_bytes..][..layer_bytes];
        let head = heads.key_dim * heads.value_dim;
        if !head.is_multiple_of(format.block_len()) {
            return pack(format, recurrent, to);
        }
        let head_bytes = packed_bytes(format, head);
        let to = DisjointParts::new(to);
        cpu.pool.run(heads.value_heads, |number| {
            // SAFETY: each task takes the bytes of its own head.
            let to = unsafe { to.part(number * head_bytes, head_bytes) };
            pack(format, &recurrent[number * head..][..head], to);
        });
    }

    /// Restores the state at this position. `pages` hold at least the positions before it; `cpu` has the threads to
    /// use, if the states are on the host.
    pub fn restore(
        &self,
        pages: &KvPages,
        shape: StateShape,
        layout: PageLayout,
        meter: &MemoryMeter,
        cpu: Option<&Cpu>,
    ) -> SequenceState {
        SequenceState {
            shape,
            layout,
            position: self.position,
            pages: pages[..self.position.div_ceil(PAGE_TOKENS)].to_vec(),
            recurrent: self.unpack(&shape, meter, cpu),
            conv: self.conv.copy_as(MemoryKind::Live),
            outputs: Vec::new(),
            meter: meter.clone(),
        }
    }

    fn unpack(&self, shape: &StateShape, meter: &MemoryMeter, cpu: Option<&Cpu>) -> MeteredBuffer<f32> {
        let (values, layer) = (shape.delta_layers * shape.recurrent(), shape.recurrent());
        let mut recurrent = meter.unwritten(MemoryKind::Live, values);
        match (meter.device(), cpu) {
            (Some(device), _) if self.kind() == MemoryKind::MovedSnapshots => {
                // One layer after the other, so that the GPU needs room for one.
                for (number, bytes) in self.recurrent.host().chunks_exact(packed_bytes(self.format, layer)).enumerate()
                {
                    let from = meter.copied(MemoryKind::Live, bytes);
                    meter.keep_failure(from.address().and_then(|from| {
                        let to = recurrent.address()? + (number * layer * size_of::<f32>()) as u64;
                        gpu::snapshot::unpack(device, self.format, layer, from, to)
                    }));
                }
            }
            (Some(device), _) => {
                let both = self.recurrent.address().and_then(|from| Ok((from, recurrent.address()?)));
                meter.keep_failure(
                    both.and_then(|(from, to)| gpu::snapshot::unpack(device, self.format, values, from, to)),
                );
            }
            (None, cpu) => {
                let layer_bytes = packed_bytes(self.format, layer);
                let to = DisjointParts::new(recurrent.host_mut());
                let one = |number: usize| {
                    // SAFETY: each task takes the values of its own layer.
                    let to = unsafe { to.part(number * layer, layer) };
                    unpack(self.format, &self.recurrent.host()[number * layer_bytes..][..layer_bytes], to);
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

#[derive(Clone, Copy, Debug)]
pub struct SnapshotCopy {
    format: Format,
    recurrent: [u64; 2], // the state's address and the snapshot's
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

    /// Copies these linear layers, after all earlier work of the device.
    pub fn run(&self, device: &gpu::Device, shape: &StateShape, layers: Range<usize>) -> Result<(), gpu::Error> {
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
                    // A block's values share a scale: the loss is a share of the largest.
                    assert!((before - after).abs() <= relative * 1.5, "{} {len}: {before} {after}", format.name());
                }
            }
        }
    }
}
