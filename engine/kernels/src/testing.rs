use crate::attention::{PageLayout, Queries};
use crate::delta::{DeltaHeads, DeltaRows};
use crate::format::{Format, quantize};
use crate::product::Weights;
use reference::{DeltaShape, QueryRows, random_codes};

pub use reference::{assert_close, random};

pub fn random_blocks(format: Format, values: usize, seed: u64) -> Vec<u8> {
    let bytes = format.row_bytes(values).expect("whole blocks");
    random_codes(format.name(), bytes, format.block_bytes(), seed).unwrap_or_else(|| {
        let mut blocks = vec![0; bytes];
        quantize(format, &random(values, seed), &mut blocks);
        blocks
    })
}

pub fn product(x: &[f32], w: Weights) -> Vec<f32> {
    reference::product(x, w.rows, w.cols, |n, row| w.row(n, row))
}

pub fn delta(heads: DeltaHeads, rows: DeltaRows, state: &mut [f32]) -> Vec<f32> {
    let DeltaHeads { key_heads, value_heads, key_dim, value_dim, tiled } = heads;
    let shape = DeltaShape { key_heads, value_heads, key_dim, value_dim, tiled };
    reference::delta(shape, rows.qkv, rows.decay, rows.beta, state)
}

pub fn attention(layout: PageLayout, keys: &[f32], values: &[f32], queries: Queries) -> Vec<f32> {
    let Queries { values: q, stride, head_stride, q_heads, rows, first } = queries;
    let queries = QueryRows { values: q, stride, head_stride, q_heads, rows, first };
    reference::attention((layout.kv_heads, layout.head_dim), keys, values, queries)
}
