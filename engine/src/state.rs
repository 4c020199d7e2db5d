//! The state of a sequence: the recurrent state of its linear layers at one position, and the keys and values of its
//! attention layers up to that position.

use std::sync::Arc;

use kernels::attention::PageLayout;
use kernels::cpu::CpuLevel;
use kernels::delta::DeltaHeads;
use kernels::format::Format;
use kernels::hadamard;
use weights::{LayerKind, Shape};

use crate::error::Error;
use crate::memory::{MemoryKind, MemoryMeter, MeteredBuffer};

pub const PAGE_TOKENS: usize = 256; // positions of a page of keys and values

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KvFormats {
    pub key: Format,
    pub value: Format,
    /// True where keys, or values, are rotated before they are rounded. TQ4 and TQ3 always are; of the others only those
    /// are that round, and only where a head's width is a power of two.
    pub rotated: [bool; 2],
}

/// Seed of the signs of all rotations. Files on disk name it: those of another seed are a miss.
pub const ROTATION_SEED: u64 = 0x5265_7072_6973_6531;

impl KvFormats {
    pub const ALLOWED: [Format; 7] =
        [Format::F32, Format::F16, Format::BF16, Format::Q8_0, Format::Q4_0, Format::TQ4, Format::TQ3];

    /// Returns the formats with the rotations that measure best.
    pub const fn new(key: Format, value: Format) -> KvFormats {
        KvFormats { key, value, rotated: [is_rotated_by_default(key), is_rotated_by_default(value)] }
    }

    /// Returns the formats with or without the rotations that may be left out.
    pub fn with_rotation(self, rotated: bool) -> KvFormats {
        let of = |format: Format| format.is_of_rotated_rows() || rotated && format.is_quantised();
        KvFormats { rotated: [of(self.key), of(self.value)], ..self }
    }

    pub fn of(layout: &PageLayout) -> KvFormats {
        let rotated = [layout.key_signs.is_some(), layout.value_signs.is_some()];
        KvFormats { key: layout.key_format, value: layout.value_format, rotated }
    }
}

// A rotation costs nothing that can be measured, and of the others only q4 gains by it (docs/window.md).
const fn is_rotated_by_default(format: Format) -> bool {
    matches!(format, Format::TQ4 | Format::TQ3 | Format::Q4_0)
}

#[derive(Clone, Copy, Debug)]
pub struct StateShape {
    pub attention_layers: usize, // counts the block that predicts, which is the last one
    pub delta_layers: usize,
    pub heads: DeltaHeads,
    pub conv_past: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
}

impl StateShape {
    pub fn new(shape: &Shape) -> StateShape {
        let count = |kind| shape.layers.iter().filter(|layer| **layer == kind).count();
        StateShape {
            attention_layers: count(LayerKind::Attention) + shape.mtp_blocks,
            delta_layers: count(LayerKind::Delta),
            heads: DeltaHeads {
                key_heads: shape.key_heads,
                value_heads: shape.value_heads,
                key_dim: shape.key_dim,
                value_dim: shape.value_dim,
                tiled: shape.value_head_order == weights::HeadOrder::Tiled,
            },
            conv_past: shape.conv_kernel.saturating_sub(1),
            kv_heads: shape.kv_heads,
            head_dim: shape.head_dim,
        }
    }

    pub fn layout(&self, formats: KvFormats) -> Result<PageLayout, Error> {
        for format in [formats.key, formats.value] {
            if format.row_bytes(self.head_dim).is_none() {
                if format.is_of_rotated_rows() {
                    return Err(Error::KvRotation { format: format.name(), head_dim: self.head_dim });
                }
                return Err(Error::KvFormat {
                    format: format.name(),
                    block: format.block_len(),
                    head_dim: self.head_dim,
                });
            }
        }
        let signs = |rotated: bool| {
            (rotated && hadamard::fits(self.head_dim)).then_some(hadamard::Signs { seed: ROTATION_SEED })
        };
        Ok(PageLayout {
            key_format: formats.key,
            value_format: formats.value,
            kv_heads: self.kv_heads,
            head_dim: self.head_dim,
            page: PAGE_TOKENS,
            key_signs: signs(formats.rotated[0]),
            value_signs: signs(formats.rotated[1]),
        })
    }

    pub fn recurrent(&self) -> usize {
        // values of one linear layer
        self.heads.state()
    }

    pub fn conv(&self) -> usize {
        // values of one linear layer
        self.conv_past * self.heads.channels()
    }

    pub fn page_bytes(&self, layout: &PageLayout) -> usize {
        self.attention_layers * layout.bytes()
    }

    pub fn fixed_bytes(&self) -> usize {
        self.delta_layers * (self.recurrent() + self.conv()) * size_of::<f32>()
    }

    pub fn snapshot_bytes(&self, format: Format) -> usize {
        self.delta_layers * (packed_bytes(format, self.recurrent()) + self.conv() * size_of::<f32>())
    }
}

/// Bytes of `values` values in `format`. The last block is padded.
pub fn packed_bytes(format: Format, values: usize) -> usize {
    values.div_ceil(format.block_len()) * format.block_bytes()
}

pub struct SequenceState {
    pub shape: StateShape,
    pub layout: PageLayout,
    pub position: usize,
    pub pages: KvPages,
    pub recurrent: MeteredBuffer<f32>, // [linear layer, value head, key dim, value dim]
    /// [linear layer, kernel - 1, channel]: the last inputs of the convolution, oldest first.
    pub conv: MeteredBuffer<f32>,
    /// [1 + drafts of the last step, hidden]: the head's input at the last token, and at the drafts behind it. Empty if
    /// it is unknown, because no step has led here or the model does not predict.
    pub outputs: Vec<f32>,
    pub meter: MemoryMeter,
}

/// Keys and values of a sequence: `PAGE_TOKENS` positions a page, all attention layers in each page. Sequences that
/// begin alike share pages; `reserve` copies a shared page before its sequence writes to it.
pub type KvPages = Vec<Arc<MeteredBuffer<u8>>>;

impl SequenceState {
    pub fn new(shape: StateShape, formats: KvFormats, meter: &MemoryMeter) -> Result<SequenceState, Error> {
        Ok(SequenceState {
            layout: shape.layout(formats)?,
            position: 0,
            pages: KvPages::new(),
            recurrent: meter.zeroed(MemoryKind::Live, shape.delta_layers * shape.recurrent()),
            conv: meter.zeroed(MemoryKind::Live, shape.delta_layers * shape.conv()),
            outputs: Vec::new(),
            meter: meter.clone(),
            shape,
        })
    }

    pub fn branch(&self) -> SequenceState {
        SequenceState {
            pages: self.pages.clone(),
            recurrent: self.recurrent.copy_as(MemoryKind::Live),
            conv: self.conv.copy_as(MemoryKind::Live),
            outputs: self.outputs.clone(),
            meter: self.meter.clone(),
            ..*self
        }
    }

    /// Makes room for `more` positions, in pages that no other sequence shares.
    pub fn reserve(&mut self, more: usize) {
        let bytes = self.shape.page_bytes(&self.layout);
        let needed = (self.position + more).div_ceil(PAGE_TOKENS);
        while self.pages.len() < needed {
            self.pages.push(Arc::new(self.meter.zeroed(MemoryKind::Pages, bytes)));
        }
        for page in &mut self.pages[self.position / PAGE_TOKENS..needed] {
            if Arc::get_mut(page).is_none() {
                *page = Arc::new(page.copy_as(MemoryKind::Pages));
            }
        }
    }

    pub fn keep_output(&mut self, accepted: usize, hidden: usize) {
        self.outputs.drain(..(accepted * hidden).min(self.outputs.len()));
        self.outputs.truncate(hidden);
    }

    pub fn has_room(&self, more: usize) -> bool {
        let needed = (self.position + more).div_ceil(PAGE_TOKENS);
        let written = self.pages.get(self.position / PAGE_TOKENS..needed);
        written.is_some_and(|pages| pages.iter().all(|page| Arc::strong_count(page) == 1))
    }

    /// Writes keys and values [kv heads, head dim] of one position, for which `reserve` made room.
    pub fn write(&mut self, level: CpuLevel, layer: usize, position: usize, keys: &[f32], values: &[f32]) {
        let size = self.layout.bytes();
        let page = Arc::get_mut(&mut self.pages[position / PAGE_TOKENS]).expect("reserve copied shared pages");
        self.layout.write(level, &mut page.host_mut()[layer * size..][..size], position % PAGE_TOKENS, keys, values);
    }

    pub fn read(&self, layer: usize, head: usize, position: usize, key: &mut [f32], value: &mut [f32]) {
        let size = self.layout.bytes();
        let page = &self.pages[position / PAGE_TOKENS].host()[layer * size..][..size];
        self.layout.read(page, head, position % PAGE_TOKENS, key, value);
    }

    pub fn own_bytes(&self) -> usize {
        self.recurrent.bytes() + self.conv.bytes()
    }

    pub fn delta_layer(&mut self, layer: usize) -> (&mut [f32], &mut [f32]) {
        let (recurrent, conv) = (self.shape.recurrent(), self.shape.conv());
        (
            &mut self.recurrent.host_mut()[layer * recurrent..][..recurrent],
            &mut self.conv.host_mut()[layer * conv..][..conv],
        )
    }
}
