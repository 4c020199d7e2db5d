//! Formats of the tensors of a quantised file: the ecosystem's recipes.

use kernels::format::Format;

#[allow(non_camel_case_types)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mixture {
    F32,
    F16,
    BF16,
    Q4_0,
    Q8_0,
    Q4_K_M,
    Q5_K_M,
    Q6_K,
}

/// One line per mixture: (mixture, name, number in `general.file_type`, format of most matrices).
const TABLE: &[(Mixture, &str, u32, Format)] = &[
    (Mixture::F32, "f32", 0, Format::F32),
    (Mixture::F16, "f16", 1, Format::F16),
    (Mixture::BF16, "bf16", 32, Format::BF16),
    (Mixture::Q4_0, "q4_0", 2, Format::Q4_0),
    (Mixture::Q8_0, "q8_0", 7, Format::Q8_0),
    (Mixture::Q4_K_M, "q4_k_m", 15, Format::Q4_K),
    (Mixture::Q5_K_M, "q5_k_m", 17, Format::Q5_K),
    (Mixture::Q6_K, "q6_k", 18, Format::Q6_K),
];

impl Mixture {
    pub const ALL: [Mixture; 8] = {
        use Mixture::*;
        [F32, F16, BF16, Q4_0, Q8_0, Q4_K_M, Q5_K_M, Q6_K]
    };

    pub fn name(self) -> &'static str {
        TABLE[self as usize].1
    }

    pub fn from_name(name: &str) -> Option<Mixture> {
        TABLE.iter().find(|row| row.1.eq_ignore_ascii_case(name)).map(|row| row.0)
    }

    pub fn file_type(self) -> u32 {
        TABLE[self as usize].2
    }

    fn base(self) -> Format {
        TABLE[self as usize].3
    }

    /// The format that the tensor has in such a file. `layers` and `tied` are the model's.
    pub fn format_of(self, name: &str, dims: &[u64], layers: usize, tied: bool) -> Format {
        let base = self.base();
        if base == Format::F32 || !is_matrix(name, dims) {
            return Format::F32;
        }
        if !base.is_quantised() {
            return base;
        }
        let is_head = name == "output.weight" || tied && name == "token_embd.weight";
        // A wrong value here costs more than elsewhere: the words themselves, and what every later token reads.
        let is_sensitive = ["attn_v.weight", "attn_qkv.weight", "ffn_down"].iter().any(|part| name.contains(part));
        let mixes = matches!(self, Mixture::Q4_K_M | Mixture::Q5_K_M);
        let more = mixes && is_sensitive && layer_of(name).is_some_and(|layer| has_more_bits(layer, layers));
        let wanted = if is_head && base != Format::Q8_0 || more { Format::Q6_K } else { base };
        fitting(wanted, dims)
    }
}

/// Norms, convolutions, routers and everything with one dimension stay f32 in every file.
fn is_matrix(name: &str, dims: &[u64]) -> bool {
    let keeps = ["norm.weight", "ssm_conv1d.weight", "ffn_gate_inp.weight"];
    name.ends_with(".weight") && dims.iter().skip(1).any(|&dim| dim > 1) && !keeps.iter().any(|end| name.ends_with(end))
}

fn layer_of(name: &str) -> Option<usize> {
    name.strip_prefix("blk.")?.split('.').next()?.parse().ok()
}

/// The first and last eighth of the layers, and every third one between.
fn has_more_bits(layer: usize, layers: usize) -> bool {
    let eighth = layers / 8;
    layer < eighth || layer >= 7 * layers / 8 || (layer - eighth) % 3 == 2
}

/// Rows that are not whole blocks take the nearest format that fits.
fn fitting(format: Format, dims: &[u64]) -> Format {
    let fits = |format: Format| dims[0].is_multiple_of(format.block_len() as u64);
    let smaller = match format {
        Format::Q4_K => Format::Q5_0,
        Format::Q5_K => Format::Q5_1,
        _ => Format::Q8_0,
    };
    [format, smaller].into_iter().find(|&format| fits(format)).unwrap_or(Format::F16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_the_enum() {
        assert!(TABLE.iter().enumerate().all(|(i, row)| row.0 as usize == i));
    }

    #[test]
    fn layers_with_more_bits() {
        let of = |layers| (0..layers).filter(|&layer| has_more_bits(layer, layers)).collect::<Vec<_>>();
        assert_eq!(of(4), [2, 3]);
        assert_eq!(of(24), [0, 1, 2, 5, 8, 11, 14, 17, 20, 21, 22, 23]);
    }

    #[test]
    fn rows_that_do_not_fit_fall_back() {
        let format = |mixture: Mixture, cols| mixture.format_of("blk.1.ffn_up.weight", &[cols, 8], 24, true);
        assert_eq!(format(Mixture::Q4_K_M, 512), Format::Q4_K);
        assert_eq!(format(Mixture::Q4_K_M, 96), Format::Q5_0);
        assert_eq!(format(Mixture::Q4_K_M, 50), Format::F16);
        assert_eq!(format(Mixture::Q8_0, 96), Format::Q8_0);
        assert_eq!(format(Mixture::BF16, 50), Format::BF16);
    }
}
