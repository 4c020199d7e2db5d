//! Levels of `TQ4` and `TQ3`, and where a row has its signs: for the formats and for the registers of each level.

// Lloyd-Max levels of the normal distribution, without their mirror images.
pub(crate) const LEVELS_4: [f32; 8] =
    [0.128_395, 0.388_048, 0.656_759, 0.942_34, 1.256_231, 1.618_046, 2.069_017, 2.732_59];
pub(crate) const LEVELS_3: [f32; 4] = [0.245_094, 0.756_005, 1.343_909, 2.151_946];

// Places of a TQ3 row of `cols` values: its signs begin behind two bits of each value.
pub(crate) fn signs_at(cols: usize) -> usize {
    2 + cols / 4
}
