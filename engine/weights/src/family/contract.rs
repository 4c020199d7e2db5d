//! Parts of a family's page that checks and converters read.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NumberKeys {
    pub gguf: String, // behind the architecture's name and a dot
    pub folder: String,
}

/// Shapes of a model's tensors, by GGUF's name: each dimension is a sum of products of numbers, outermost first.
pub type Shapes = BTreeMap<String, Vec<String>>;

/// Tensors by the part of a model that has them. Names of a layer's tensors stand behind `blk.N.`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TensorShapes {
    pub model: Shapes,
    pub head: Shapes,
    pub layer: Shapes,
    pub attention: Shapes,
    pub linear: Shapes,
    pub dense: Shapes,
    pub experts: Shapes,
    pub shared_expert: Shapes,
    pub prediction: Shapes,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FusedTensor {
    pub part: String,
    pub name: String,
    pub of: Vec<String>,
    pub shape: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NameEnds {
    #[serde(default)]
    pub begins: Vec<String>,
    #[serde(default)]
    pub ends: Vec<String>,
}

impl NameEnds {
    pub fn has(&self, name: &str) -> bool {
        self.begins.iter().any(|begin| name.starts_with(begin)) || self.ends.iter().any(|end| name.ends_with(end))
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ValueRules {
    pub below_zero: Vec<String>, // tensors of a GGUF file
    pub exact: Vec<String>,      // ends of names
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quantisations {
    pub read: Vec<String>,
    pub made: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Constraint {
    pub number: String,
    pub is: f64,
    pub breaks: Severity,
    pub why: String,
}

/// Weight of a finding: a file with a problem must not be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    Problem,
    Warning,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SizeVariant {
    pub names: Vec<String>,
    pub tied: bool,
    pub numbers: BTreeMap<String, f64>,
}
