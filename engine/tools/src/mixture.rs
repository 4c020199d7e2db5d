//! Formats of the tensors of a quantised file: the ecosystem's recipes.

pub mod fitting;

use kernels::format::Format;

#[allow(non_camel_case_types)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mixture {
    F32,
    F16,
    BF16,
    Q4_0,
    IQ4_XS,
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
    (Mixture::IQ4_XS, "iq4_xs", 30, Format::IQ4_XS),
    (Mixture::Q8_0, "q8_0", 7, Format::Q8_0),
    (Mixture::Q4_K_M, "q4_k_m", 15, Format::Q4_K),
    (Mixture::Q5_K_M, "q5_k_m", 17, Format::Q5_K),
    (Mixture::Q6_K, "q6_k", 18, Format::Q6_K),
];

impl Mixture {
    pub const ALL: [Mixture; 9] = {
        use Mixture::*;
        [F32, F16, BF16, Q4_0, IQ4_XS, Q8_0, Q4_K_M, Q5_K_M, Q6_K]
    };

    pub fn name(self) -> &'static str {
        TABLE[self as usize].1
    }

    pub fn from_name(name: &str) -> Option<Mixture> {
        // As APR files' tools call the types of the two mixtures that these files take.
        let name = match name.to_ascii_lowercase().as_str() {
            "q4k" | "q4_k" => "q4_k_m",
            "q6k" => "q6_k",
            _ => name,
        };
        TABLE.iter().find(|row| row.1.eq_ignore_ascii_case(name)).map(|row| row.0)
    }

    /// Reads a name of a command line. The error lists the names.
    pub fn parse(name: &str) -> Result<Mixture, String> {
        let names = || Mixture::ALL.map(Mixture::name).join(", ");
        Mixture::from_name(name).ok_or_else(|| format!("give one of {}", names()))
    }

    pub fn file_type(self) -> u32 {
        TABLE[self as usize].2
    }

    pub fn base(self) -> Format {
        TABLE[self as usize].3
    }

    pub fn format_of(self, name: &str, dims: &[u64], model: &MixtureModel) -> Format {
        let base = self.base();
        if base == Format::F32 || !is_matrix(name, dims) {
            return Format::F32;
        }
        if !base.is_quantised() {
            return base;
        }
        let is_head = name == "output.weight" || model.tied && name == "token_embd.weight";
        let wanted = if is_head {
            if base == Format::Q8_0 { base } else { Format::Q6_K }
        } else {
            self.wanted(name, model).unwrap_or(base)
        };
        fitting(wanted, dims)
    }

    /// Returns the format of a matrix whose errors cost more than others': the values of attention, and the way out of the
    /// feed-forward, which every later token reads.
    fn wanted(self, name: &str, model: &MixtureModel) -> Option<Format> {
        let layer = layer_of(name)?;
        let (is_value, is_down) =
            (["attn_v.weight", "attn_qkv.weight"].iter().any(|part| name.contains(part)), name.contains("ffn_down"));
        let is_early = layer < model.layers / 8;
        match self {
            Mixture::Q4_K_M | Mixture::Q5_K_M if is_value || is_down => {
                has_more_bits(layer, model.layers).then_some(Format::Q6_K)
            }
            Mixture::IQ4_XS if is_value => (model.queries_per_key >= 4).then_some(Format::Q5_K),
            Mixture::IQ4_XS if is_down => (is_early && !model.has_importance).then_some(Format::Q5_K),
            Mixture::Q4_0 if is_down => (is_early && model.has_importance).then_some(Format::Q4_1),
            _ => None,
        }
    }
}

/// Facts of a model that decide about the formats of its tensors.
#[derive(Debug, Clone, Copy)]
pub struct MixtureModel {
    pub layers: usize,
    pub tied: bool,
    pub queries_per_key: usize,
    pub has_importance: bool,
}

/// Returns whether a mixture decides about a tensor: norms, convolutions, routers and everything with one dimension stay f32 in
/// every file.
pub fn is_matrix(name: &str, dims: &[u64]) -> bool {
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
        Format::IQ4_XS => Format::IQ4_NL,
        _ => Format::Q8_0,
    };
    [format, smaller].into_iter().find(|&format| fits(format)).unwrap_or(Format::F16)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODEL: MixtureModel = MixtureModel { layers: 24, tied: true, queries_per_key: 4, has_importance: false };

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
        let format = |mixture: Mixture, cols| mixture.format_of("blk.1.ffn_up.weight", &[cols, 8], &MODEL);
        assert_eq!(format(Mixture::Q4_K_M, 512), Format::Q4_K);
        assert_eq!(format(Mixture::Q4_K_M, 96), Format::Q5_0);
        assert_eq!(format(Mixture::Q4_K_M, 50), Format::F16);
        assert_eq!(format(Mixture::Q8_0, 96), Format::Q8_0);
        assert_eq!(format(Mixture::BF16, 50), Format::BF16);
        assert_eq!(format(Mixture::IQ4_XS, 96), Format::IQ4_NL);
    }

    #[test]
    fn an_importance_matrix_changes_what_is_sensitive() {
        let of = |mixture: Mixture, name: &str, has_importance| {
            mixture.format_of(name, &[512, 512], &MixtureModel { has_importance, ..MODEL })
        };
        let down = "blk.1.ffn_down.weight";
        assert_eq!([false, true].map(|has| of(Mixture::Q4_0, down, has)), [Format::Q4_0, Format::Q4_1]);
        assert_eq!([false, true].map(|has| of(Mixture::IQ4_XS, down, has)), [Format::Q5_K, Format::IQ4_XS]);
        assert_eq!(of(Mixture::IQ4_XS, "blk.9.attn_qkv.weight", false), Format::Q5_K);
        assert_eq!(of(Mixture::Q4_K_M, "token_embd.weight", false), Format::Q6_K);
    }
}
