//! Buffers of one step, kept for the next: they grow to the largest batch and stay.

use bytemuck::Pod;
use gpu::product::tile_rows;
use gpu::routing::most_tiles;
use gpu::rows::{Forms, Halves, Rows};
use gpu::{Buffer, Device, Error};
use weights::Shape;

use super::Inputs;

pub struct GpuWorkspace {
    pub(super) inputs: Inputs,
    /// [rows, hidden]: the residual stream.
    pub(super) hidden: Buffer<f32>,
    pub(super) turns: Buffer<f32>,
    /// What products read.
    pub(super) normed: Rows,
    pub(super) inner: Rows,
    /// Attention: queries with gates, keys, values. Linear layers: q, k and v in `q`, z in `k`.
    pub(super) q: Buffer<f32>,
    pub(super) k: Buffer<f32>,
    pub(super) v: Buffer<f32>,
    /// Linear layers: behind the convolution, and what the rule gives.
    pub(super) convolved: Buffer<f32>,
    pub(super) out: Buffer<f32>,
    pub(super) decay: Buffer<f32>,
    pub(super) beta: Buffer<f32>,
    pub(super) chunks: Buffer<f32>,
    pub(super) partial: Buffer<f32>,
    pub(super) stats: Buffer<f32>,
    /// Feed-forward: gate and up.
    pub(super) gate: Buffer<f32>,
    pub(super) up: Buffer<f32>,
    pub(super) moe: Routing,
    pub(super) logits: Buffer<f32>,
    /// [wanted rows, vocab]: what was brought back.
    pub(super) on_host: Vec<f32>,
    rows: usize,
}

pub(super) struct Routing {
    pub scores: Buffer<f32>,
    pub experts: Buffer<u32>,
    pub shares: Buffer<f32>,
    pub source: Buffer<u32>,
    pub of_row: Buffer<u32>,
    pub place: Buffer<u32>,
    pub tiles: Buffer<u32>,
    pub answers: Buffer<f32>,
    pub shared: Buffer<f32>,
    pub shared_score: Buffer<f32>,
}

const ALL: Forms = Forms { values: true, integers: true, halves: Halves::Two };

impl GpuWorkspace {
    pub fn new(device: &Device) -> Result<GpuWorkspace, Error> {
        let floats = || Buffer::<f32>::new(device, 0);
        let numbers = || Buffer::<u32>::new(device, 0);
        Ok(GpuWorkspace {
            inputs: Inputs::new(device)?,
            hidden: floats()?,
            turns: floats()?,
            normed: Rows::new(device, 0, 0, ALL)?,
            inner: Rows::new(device, 0, 0, ALL)?,
            q: floats()?,
            k: floats()?,
            v: floats()?,
            convolved: floats()?,
            out: floats()?,
            decay: floats()?,
            beta: floats()?,
            chunks: floats()?,
            partial: floats()?,
            stats: floats()?,
            gate: floats()?,
            up: floats()?,
            moe: Routing {
                scores: floats()?,
                experts: numbers()?,
                shares: floats()?,
                source: numbers()?,
                of_row: numbers()?,
                place: numbers()?,
                tiles: numbers()?,
                answers: floats()?,
                shared: floats()?,
                shared_score: floats()?,
            },
            logits: floats()?,
            on_host: Vec::new(),
            rows: 0,
        })
    }

    /// Room for a step of so many rows.
    pub(super) fn reserve(
        &mut self,
        shape: &Shape,
        device: &Device,
        rows: usize,
        lanes: usize,
        wanted: usize,
    ) -> Result<(), Error> {
        let (queries, values) = (shape.q_heads * shape.head_dim, shape.delta_values());
        grow(&mut self.logits, wanted * shape.vocab)?;
        // The shortest step of a batch may need more parts than a longer one: room for the most of either.
        let splits = (1..=rows.min(64)).chain([rows]).map(|longest| {
            gpu::attention::splits(device, lanes, longest, shape.q_heads, shape.kv_heads) * (longest * lanes).min(rows)
        });
        let parts = splits.max().unwrap_or(0) * shape.q_heads;
        grow(&mut self.partial, parts * shape.head_dim)?;
        grow(&mut self.stats, 2 * parts)?;
        grow(&mut self.chunks, gpu::delta::scratch(lanes, rows, shape.value_heads))?;
        if rows <= self.rows {
            return Ok(());
        }
        let (pairs, ffn) = match &shape.moe {
            Some(moe) => (rows * moe.used, (moe.used * moe.expert_ffn).max(moe.shared_ffn)),
            None => (0, shape.ffn),
        };
        grow(&mut self.hidden, rows * shape.hidden)?;
        grow(&mut self.turns, rows * shape.rope.dims)?;
        self.normed = Rows::new(device, rows, shape.hidden, ALL)?;
        // Rows of other widths share this room: experts have more rows, each filled up by itself.
        let widest = queries.max(values).max(ffn) + 64 * shape.moe.as_ref().map_or(1, |moe| moe.used);
        self.inner = Rows::new(device, rows * shape.moe.as_ref().map_or(1, |moe| moe.used), widest, ALL)?;
        grow(&mut self.q, rows * (2 * queries).max(shape.delta_channels()))?;
        grow(&mut self.k, rows * (shape.kv_heads * shape.head_dim).max(values))?;
        grow(&mut self.v, rows * shape.kv_heads * shape.head_dim)?;
        grow(&mut self.convolved, rows * shape.delta_channels())?;
        grow(&mut self.out, rows * values)?;
        grow(&mut self.decay, rows * shape.value_heads)?;
        grow(&mut self.beta, rows * shape.value_heads)?;
        grow(&mut self.gate, rows * ffn)?;
        grow(&mut self.up, rows * ffn)?;
        if let Some(moe) = &shape.moe {
            let tiles = most_tiles(pairs, moe.experts, tile_rows(1));
            let routing = &mut self.moe;
            grow(&mut routing.scores, rows * moe.experts)?;
            grow(&mut routing.experts, pairs)?;
            grow(&mut routing.shares, pairs)?;
            grow(&mut routing.source, pairs)?;
            grow(&mut routing.of_row, pairs)?;
            grow(&mut routing.place, pairs)?;
            grow(&mut routing.tiles, 1 + 3 * tiles)?;
            grow(&mut routing.answers, pairs * shape.hidden)?;
            grow(&mut routing.shared, rows * shape.hidden)?;
            grow(&mut routing.shared_score, rows)?;
        }
        self.rows = rows;
        Ok(())
    }
}

fn grow<T: Pod>(buffer: &mut Buffer<T>, len: usize) -> Result<(), Error> {
    if buffer.len() < len {
        *buffer = Buffer::new(&buffer.device().clone(), len)?;
    }
    Ok(())
}
