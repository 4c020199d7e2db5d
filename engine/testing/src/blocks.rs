use kernels::format::{Format, quantize};
use reference::{random, random_codes};

pub fn random_blocks(format: Format, values: usize, seed: u64) -> Vec<u8> {
    let bytes = format.row_bytes(values).expect("whole blocks");
    random_codes(format.name(), bytes, format.block_bytes(), seed).unwrap_or_else(|| {
        let mut blocks = vec![0; bytes];
        quantize(format, &random(values, seed), &mut blocks);
        blocks
    })
}
