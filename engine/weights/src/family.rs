//! Families of models as data: an architecture's names in each form of file, values that files leave out, and the contract
//! that a file is held to.
//!
//! A file in `config/families` describes a family. A dense relative of a known one is an `[[architectures]]` entry there, or a
//! file of its own in `FILES`. A new size is a table of `[[variants]]`.

mod contract;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

pub use contract::{
    Constraint, FusedTensor, NameEnds, NumberKeys, Quantisations, Severity, SizeVariant, TensorShapes, ValueRules,
};

const FILES: [&str; 1] = [include_str!("../../../config/families/qwen3_5.toml")];

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Family {
    pub name: String,
    pub end_tokens: Vec<String>,
    /// Pattern of a file that states none: every n-th layer is attention.
    pub attention_every: usize,
    /// Share of a head's dimensions that turn, if a configuration does not state it.
    pub partial_rotary_factor: f64,
    /// True if a norm's factor is 1 + w in a Hugging Face folder.
    pub folder_norms_are_offsets: bool,
    pub architectures: Vec<Architecture>,
    older_siblings: OlderSibling,
    layer: BTreeMap<String, String>,
    prediction: BTreeMap<String, String>,
    /// Metadata that state a number, by its name.
    pub numbers: BTreeMap<String, NumberKeys>,
    pub tensors: TensorShapes,
    pub fused: Vec<FusedTensor>,
    pub forbidden: NameEnds,
    pub optional: NameEnds,
    pub skipped: NameEnds,
    pub values: ValueRules,
    pub quantisations: Quantisations,
    pub constraints: Vec<Constraint>,
    pub variants: Vec<SizeVariant>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Architecture {
    pub name: String,
    /// Values of `model_type` in a folder's config.json.
    pub model_types: Vec<String>,
    pub has_experts: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OlderSibling {
    gguf: String,
    model_type: String,
}

#[derive(Debug)]
pub(crate) enum Known {
    Family(&'static Family, &'static Architecture),
    OlderSibling(&'static Family),
    Other,
}

static FAMILIES: LazyLock<Vec<Family>> = LazyLock::new(|| {
    let family = |text| toml::from_str(text).unwrap_or_else(|error| panic!("a family's own file: {error}"));
    FILES.into_iter().map(family).collect()
});

pub fn all() -> &'static [Family] {
    &FAMILIES
}

pub(crate) fn of_gguf(arch: &str) -> Known {
    find(|architecture| architecture.name == arch, |sibling| sibling.gguf == arch)
}

pub(crate) fn of_folder(model_type: &str) -> Known {
    let is_one = |architecture: &Architecture| architecture.model_types.iter().any(|known| known == model_type);
    find(is_one, |sibling| sibling.model_type == model_type)
}

fn find(is_one: impl Fn(&Architecture) -> bool, is_sibling: impl Fn(&OlderSibling) -> bool) -> Known {
    for family in FAMILIES.iter() {
        if let Some(architecture) = family.architectures.iter().find(|architecture| is_one(architecture)) {
            return Known::Family(family, architecture);
        }
        if is_sibling(&family.older_siblings) {
            return Known::OlderSibling(family);
        }
    }
    Known::Other
}

/// Returns all families and their architectures, for messages: "Qwen3.5 (qwen35, qwen35moe)".
pub(crate) fn all_names() -> String {
    let one = |family: &Family| format!("{} ({})", family.name, family.architecture_names());
    FAMILIES.iter().map(one).collect::<Vec<_>>().join(", ")
}

pub(crate) fn all_model_types() -> String {
    let types = FAMILIES.iter().flat_map(|family| &family.architectures).filter_map(|one| one.model_types.first());
    types.map(String::as_str).collect::<Vec<_>>().join(" or ")
}

pub(crate) fn all_architectures() -> String {
    let names = FAMILIES.iter().flat_map(|family| &family.architectures).map(|one| one.name.as_str());
    names.collect::<Vec<_>>().join(" or ")
}

impl Family {
    pub fn architecture_names(&self) -> String {
        self.architectures.iter().map(|one| one.name.as_str()).collect::<Vec<_>>().join(", ")
    }

    pub(crate) fn model_types(&self) -> String {
        let types = self.architectures.iter().filter_map(|one| one.model_types.first());
        types.map(String::as_str).collect::<Vec<_>>().join(", ")
    }

    /// Returns the name of the architecture with experts, or without. Empty: the family has none.
    pub(crate) fn architecture(&self, has_experts: bool) -> &str {
        let one = self.architectures.iter().find(|one| one.has_experts == has_experts);
        one.map_or("", |one| one.name.as_str())
    }

    /// Returns a folder's name of a layer's tensor with this name in GGUF; the same name if the family has no other.
    pub(crate) fn layer_tensor<'a>(&'a self, name: &'a str) -> &'a str {
        self.layer.get(name).map_or(name, String::as_str)
    }

    pub(crate) fn gguf_layer_tensor(&self, name: &str) -> Option<&str> {
        self.layer.iter().find(|(_, in_folder)| *in_folder == name).map(|(name, _)| name.as_str())
    }

    pub(crate) fn prediction_tensor<'a>(&'a self, name: &'a str) -> &'a str {
        self.prediction.get(name).map_or(name, String::as_str)
    }

    pub(crate) fn ends_with(&self, token: &str) -> bool {
        self.end_tokens.iter().any(|end| end == token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_family_is_read_and_no_name_belongs_to_two() {
        let mut seen = BTreeSet::new();
        for family in FAMILIES.iter() {
            assert!(!family.architectures.is_empty() && family.attention_every > 0, "{}", family.name);
            for one in &family.architectures {
                for name in std::iter::once(&one.name).chain(&one.model_types) {
                    assert!(seen.insert(name.clone()), "{name} is the name of two architectures");
                }
                assert!(matches!(of_gguf(&one.name), Known::Family(found, _) if found.name == family.name));
                for model_type in &one.model_types {
                    assert!(matches!(of_folder(model_type), Known::Family(_, found) if found.name == one.name));
                }
            }
            let names: BTreeSet<&String> = family.layer.values().collect();
            assert_eq!(names.len(), family.layer.len(), "two tensors of a layer have one name in a folder");
        }
    }

    #[test]
    fn siblings_and_strangers_are_told_apart() {
        assert!(matches!(of_gguf("qwen3next"), Known::OlderSibling(_)));
        assert!(matches!(of_folder("llama"), Known::Other));
        assert_eq!(all_names(), "Qwen3.5 (qwen35, qwen35moe)");
    }
}
