//! Shapes as data: the family's sizes are TOML files in `config/shapes`, and anyone can write another.

use std::path::Path;

use serde::Deserialize;

use crate::Error;

/// Shape of a file in `config/shapes`; the names are those of `Shape` where both have the thing.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SynthShape {
    pub name: String,
    pub layers: usize,
    /// Layer i is attention where i + 1 is a multiple of this.
    pub attention_every: usize,
    pub hidden: usize,
    /// Absent where there are experts.
    #[serde(default)]
    pub ffn: usize,
    pub q_heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub rope_dims: usize,
    pub rope_sections: Vec<i32>,
    pub rope_theta: f32,
    pub key_heads: usize,
    pub value_heads: usize,
    pub key_dim: usize,
    pub value_dim: usize,
    pub conv_kernel: usize,
    pub rms_eps: f32,
    pub vocab: usize,
    pub native_ctx: usize,
    pub tied: bool,
    pub moe: Option<MoeShape>,
    #[serde(default)]
    pub mtp: bool,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MoeShape {
    pub experts: usize,
    pub used: usize,
    pub expert_ffn: usize,
    pub shared_ffn: usize, // 0: no expert that every token visits
}

pub const NAMES: &[&str] = &["0.8B", "2B", "4B", "9B", "27B", "35B-A3B"];

const BUILT_IN: [&str; 6] = [
    include_str!("../../../../config/shapes/0.8b.toml"),
    include_str!("../../../../config/shapes/2b.toml"),
    include_str!("../../../../config/shapes/4b.toml"),
    include_str!("../../../../config/shapes/9b.toml"),
    include_str!("../../../../config/shapes/27b.toml"),
    include_str!("../../../../config/shapes/35b-a3b.toml"),
];

impl SynthShape {
    /// One of `NAMES`, in any case, or else a TOML file.
    pub fn find(name_or_file: &str) -> Result<SynthShape, Error> {
        let path = Path::new(name_or_file);
        let built_in = NAMES.iter().position(|name| name.eq_ignore_ascii_case(name_or_file));
        match built_in {
            Some(i) => SynthShape::parse(BUILT_IN[i], path),
            None if path.extension().is_some_and(|extension| extension == "toml") => {
                let text =
                    std::fs::read_to_string(path).map_err(|source| Error::Io { path: path.to_path_buf(), source })?;
                SynthShape::parse(&text, path)
            }
            None => {
                let names = NAMES.join(", ");
                Err(Error::file(path, format!("no such shape; give one of {names}, or a .toml file")))
            }
        }
    }

    /// `path` is only named in errors.
    pub fn parse(text: &str, path: &Path) -> Result<SynthShape, Error> {
        let shape: SynthShape =
            toml::from_str(text).map_err(|error| Error::file(path, error.to_string().trim_end().to_string()))?;
        shape.check().map_err(|what| Error::file(path, what))?;
        Ok(shape)
    }

    /// The block behind the layers is.
    pub fn is_attention(&self, layer: usize) -> bool {
        (layer + 1).is_multiple_of(self.attention_every) || layer == self.layers
    }

    pub fn arch(&self) -> &'static str {
        if self.moe.is_some() { "qwen35moe" } else { "qwen35" }
    }

    /// The layers, and the block for multi-token prediction behind them.
    pub fn blocks(&self) -> usize {
        self.layers + usize::from(self.mtp)
    }

    /// Width of the fused q, k, v of a linear layer.
    pub fn delta_channels(&self) -> usize {
        2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim
    }

    pub fn delta_values(&self) -> usize {
        self.value_heads * self.value_dim
    }

    /// Checks what every engine assumes about the family.
    pub(super) fn check(&self) -> Result<(), String> {
        // Far above any model, and far below where products of two of them overflow.
        const LARGEST: usize = 1 << 24;
        let numbers = [
            ("layers", self.layers),
            ("attention_every", self.attention_every),
            ("hidden", self.hidden),
            ("q_heads", self.q_heads),
            ("kv_heads", self.kv_heads),
            ("head_dim", self.head_dim),
            ("rope_dims", self.rope_dims),
            ("key_heads", self.key_heads),
            ("value_heads", self.value_heads),
            ("key_dim", self.key_dim),
            ("value_dim", self.value_dim),
            ("conv_kernel", self.conv_kernel),
            ("native_ctx", self.native_ctx),
        ];
        if let Some((name, number)) = numbers.into_iter().find(|(_, number)| !(1..=LARGEST).contains(number)) {
            return Err(format!("{name} is {number}, which is not in 1..={LARGEST}"));
        }
        let rules = [
            (self.q_heads.is_multiple_of(self.kv_heads), "q_heads must be a multiple of kv_heads"),
            (self.value_heads.is_multiple_of(self.key_heads), "value_heads must be a multiple of key_heads"),
            (self.key_dim == self.value_dim, "key_dim and value_dim must be equal"),
            (self.rope_dims <= self.head_dim, "rope_dims must not be more than head_dim"),
            (self.rope_dims.is_multiple_of(2), "rope_dims must be even"),
            (self.rope_sections.len() == 4, "rope_sections must be four numbers"),
            ((512..=LARGEST).contains(&self.vocab), "vocab must be 512 or more: 256 bytes, some words, control tokens"),
            (self.ffn <= LARGEST, "ffn is too large"),
            (self.moe.is_some() || self.ffn > 0, "ffn or a [moe] table must be given"),
            (self.rms_eps > 0.0 && self.rope_theta > 1.0, "rms_eps and rope_theta must be positive"),
        ];
        if let Some((_, what)) = rules.into_iter().find(|(holds, _)| !holds) {
            return Err(what.to_string());
        }
        if let Some(moe) = &self.moe {
            let sane = |number: usize| (1..=LARGEST).contains(&number);
            if !sane(moe.experts) || !sane(moe.expert_ffn) || moe.shared_ffn > LARGEST {
                return Err("[moe] wants experts and expert_ffn of 1 or more".to_string());
            }
            if !(1..=moe.experts).contains(&moe.used) {
                return Err(format!("moe.used is {}, which is not in 1..={}", moe.used, moe.experts));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_shapes_are_those_of_the_family() {
        for name in NAMES {
            let shape = SynthShape::find(name).unwrap();
            assert_eq!(shape.name, format!("Qwen3.5-{name}"));
            assert_eq!(shape, SynthShape::find(&name.to_lowercase()).unwrap());
        }
        let largest = SynthShape::find("27B").unwrap();
        assert_eq!((largest.layers, largest.hidden, largest.delta_channels()), (64, 5120, 10240));
    }

    #[test]
    fn mistakes_are_told() {
        let error = |name: &str| SynthShape::find(name).unwrap_err().to_string();
        assert_eq!(error("10B"), "10B: no such shape; give one of 0.8B, 2B, 4B, 9B, 27B, 35B-A3B, or a .toml file");
        let text = BUILT_IN[0].replace("kv_heads = 2", "kv_heads = 3");
        let error = SynthShape::parse(&text, Path::new("x.toml")).unwrap_err().to_string();
        assert_eq!(error, "x.toml: q_heads must be a multiple of kv_heads");
        let text = BUILT_IN[0].replace("kv_heads", "kw_heads");
        let error = SynthShape::parse(&text, Path::new("x.toml")).unwrap_err().to_string();
        assert!(error.contains("unknown field `kw_heads`"), "{error}");
    }
}
