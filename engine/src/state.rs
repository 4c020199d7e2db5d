//! What a sequence remembers: the recurrent state of its linear layers at one position, and the keys and values of its
//! attention layers up to there.

use std::sync::Arc;

use kernels::attention::Layout;
use kernels::cpu::Cpu;
use kernels::delta::Heads;
use kernels::format::Format;
use weights::{LayerKind, Shape};

use crate::error::Error;
use crate::memory::{MemoryKind, MemoryMeter, MeteredBuffer};
use crate::snapshot::{Snapshot, packed_bytes};

/// Positions of a page of keys and values.
pub const PAGE_TOKENS: usize = 256;

/// How keys and values are kept, each apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KvFormats {
    pub key: Format,
    pub value: Format,
}

impl KvFormats {
    pub const ALLOWED: [Format; 5] = [Format::F32, Format::F16, Format::BF16, Format::Q8_0, Format::Q4_0];

    /// The format that a configuration calls by this name.
    pub fn format(name: &str) -> Option<Format> {
        match name {
            "q8" => Some(Format::Q8_0),
            "q4" => Some(Format::Q4_0),
            _ => Format::from_name(name).filter(|format| KvFormats::ALLOWED.contains(format)),
        }
    }
}

/// The sizes of a model's state.
#[derive(Clone, Copy, Debug)]
pub struct StateShape {
    pub attention_layers: usize,
    pub delta_layers: usize,
    pub heads: Heads,
    pub conv_past: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
}

impl StateShape {
    pub fn new(shape: &Shape) -> StateShape {
        let count = |kind| shape.layers.iter().filter(|layer| **layer == kind).count();
        StateShape {
            attention_layers: count(LayerKind::Attention),
            delta_layers: count(LayerKind::Delta),
            heads: Heads {
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

    pub fn layout(&self, formats: KvFormats) -> Result<Layout, Error> {
        for format in [formats.key, formats.value] {
            if format.row_bytes(self.head_dim).is_none() {
                return Err(Error::KvFormat {
                    format: format.name(),
                    block: format.block_len(),
                    head_dim: self.head_dim,
                });
            }
        }
        Ok(Layout {
            key_format: formats.key,
            value_format: formats.value,
            kv_heads: self.kv_heads,
            head_dim: self.head_dim,
            page: PAGE_TOKENS,
        })
    }

    /// Values of one linear layer's recurrent state, and of its convolution's memory.
    pub fn recurrent(&self) -> usize {
        self.heads.state()
    }

    pub fn conv(&self) -> usize {
        self.conv_past * self.heads.channels()
    }

    /// Bytes of a page for all attention layers.
    pub fn page_bytes(&self, layout: &Layout) -> usize {
        self.attention_layers * layout.bytes()
    }

    /// Bytes of the recurrent and convolution state of one sequence.
    pub fn fixed_bytes(&self) -> usize {
        self.delta_layers * (self.recurrent() + self.conv()) * size_of::<f32>()
    }

    /// Bytes of a snapshot of it.
    pub fn snapshot_bytes(&self, format: Format) -> usize {
        self.delta_layers * packed_bytes(format, self.recurrent()) + self.delta_layers * self.conv() * size_of::<f32>()
    }
}

/// Where a sequence stands.
pub struct SequenceState {
    pub shape: StateShape,
    pub layout: Layout,
    /// Tokens that the state holds.
    pub position: usize,
    pub pages: KvPages,
    /// [linear layer, value head, key dim, value dim]
    pub recurrent: MeteredBuffer<f32>,
    /// [linear layer, kernel - 1, channel]: the last inputs, oldest first, before the activation.
    pub conv: MeteredBuffer<f32>,
    meter: MemoryMeter,
}

/// Keys and values of a sequence, `PAGE_TOKENS` positions a page, all attention layers in each. Pages are shared between the
/// branches of a conversation; who writes into a shared one gets a copy first.
pub type KvPages = Vec<Arc<MeteredBuffer<u8>>>;

impl SequenceState {
    pub fn new(shape: StateShape, formats: KvFormats, meter: &MemoryMeter) -> Result<SequenceState, Error> {
        Ok(SequenceState {
            layout: shape.layout(formats)?,
            position: 0,
            pages: KvPages::new(),
            recurrent: meter.zeroed(MemoryKind::Live, shape.delta_layers * shape.recurrent()),
            conv: meter.zeroed(MemoryKind::Live, shape.delta_layers * shape.conv()),
            meter: meter.clone(),
            shape,
        })
    }

    /// The state at a snapshot's position; `pages` hold at least the positions up to there.
    pub fn at(
        snapshot: &Snapshot,
        pages: &[Arc<MeteredBuffer<u8>>],
        shape: StateShape,
        layout: Layout,
        meter: &MemoryMeter,
        cpu: Option<&Cpu>,
    ) -> SequenceState {
        SequenceState {
            shape,
            layout,
            position: snapshot.position,
            pages: pages[..snapshot.position.div_ceil(PAGE_TOKENS)].to_vec(),
            recurrent: snapshot.unpack(&shape, meter, cpu),
            conv: snapshot.conv.copy_as(MemoryKind::Live),
            meter: meter.clone(),
        }
    }

    /// Another state at this position, which shares the pages.
    pub fn branch(&self) -> SequenceState {
        SequenceState {
            pages: self.pages.clone(),
            recurrent: self.recurrent.copy_as(MemoryKind::Live),
            conv: self.conv.copy_as(MemoryKind::Live),
            meter: self.meter.clone(),
            ..*self
        }
    }

    pub fn snapshot(&self, format: Format) -> Snapshot {
        Snapshot::of(self, format, &self.meter)
    }

    /// Pages for `more` positions behind the present one, owned by this state alone.
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

    /// Writes keys and values [kv heads, head dim] of one position, of which `reserve` made room.
    pub fn write(&mut self, layer: usize, position: usize, keys: &[f32], values: &[f32]) {
        let size = self.layout.bytes();
        let page = Arc::get_mut(&mut self.pages[position / PAGE_TOKENS]).expect("reserve made the page our own");
        self.layout.write(&mut page[layer * size..][..size], position % PAGE_TOKENS, keys, values);
    }

    /// The key and the value of one head at one position.
    pub fn read(&self, layer: usize, head: usize, position: usize, key: &mut [f32], value: &mut [f32]) {
        let size = self.layout.bytes();
        let page = &self.pages[position / PAGE_TOKENS][layer * size..][..size];
        self.layout.read(page, head, position % PAGE_TOKENS, key, value);
    }

    /// Bytes of what cannot be shared.
    pub fn own_bytes(&self) -> usize {
        self.recurrent.bytes() + self.conv.bytes()
    }

    /// One linear layer's recurrent state and its convolution's memory.
    pub fn of_delta_layer(&mut self, layer: usize) -> (&mut [f32], &mut [f32]) {
        let (recurrent, conv) = (self.shape.recurrent(), self.shape.conv());
        (&mut self.recurrent[layer * recurrent..][..recurrent], &mut self.conv[layer * conv..][..conv])
    }
}
