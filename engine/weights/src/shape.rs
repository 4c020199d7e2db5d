//! Shape of a model in numbers: the same for every kind of file.

use std::path::Path;

use kernels::rotation::Yarn;

use crate::error::Error;

/// Sizes by which the engine lays out its buffers. Two files of one model have equal shapes, but for
/// `value_head_order`, which says how that file sorts its value heads.
#[derive(Debug, Clone, PartialEq)]
pub struct Shape {
    /// `qwen35` or `qwen35moe`.
    pub arch: String,
    /// Blocks of the trunk, without those for multi-token prediction.
    pub layers: Vec<LayerKind>,
    pub hidden: usize,
    /// Width of the dense feed-forward; 0 where the layers route to experts.
    pub ffn: usize,
    pub q_heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub key_heads: usize,
    pub value_heads: usize,
    pub key_dim: usize,
    pub value_dim: usize,
    pub conv_kernel: usize,
    pub value_head_order: HeadOrder,
    pub vocab: usize,
    pub rms_eps: f32,
    pub rope: Rope,
    pub native_ctx: usize,
    pub moe: Option<Moe>,
    /// True if the head is the embedding.
    pub tied: bool,
    pub mtp_blocks: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LayerKind {
    Attention,
    Delta,
}

/// Rule by which a value head of a linear layer finds its key head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadOrder {
    /// Value head h reads key head h / (value_heads / key_heads): safetensors.
    Grouped,
    /// Value head h reads key head h % key_heads: GGUF.
    Tiled,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Rope {
    pub theta: f64,
    pub dims: usize,
    pub scaling: Option<Yarn>,
}

/// No dimension of a model comes near this, and below it a product of two cannot overflow.
const LARGEST: usize = 1 << 24;

/// Returns the magnitude that goes with a factor.
pub(crate) fn yarn_magnitude(factor: f32, weight: f32) -> f32 {
    if factor <= 1.0 { 1.0 } else { 0.1 * weight * factor.ln() + 1.0 }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moe {
    pub experts: usize,
    pub used: usize,
    pub expert_ffn: usize,
    /// Width of the expert that every token visits; 0: there is none.
    pub shared_ffn: usize,
    /// True if the chosen experts' shares are scaled to sum to one.
    pub renormalise: bool,
}

impl Shape {
    pub fn delta_channels(&self) -> usize {
        2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim
    }

    pub fn delta_values(&self) -> usize {
        self.value_heads * self.value_dim
    }
}

impl Shape {
    pub(crate) fn check(&self, path: &Path) -> Result<(), Error> {
        self.check_sizes(path)?;
        let parts_of = |what: &str, number: usize, of_what: &str, of: usize| {
            if of == 0 || !number.is_multiple_of(of) {
                return Err(Error::file(path, format!("states {number} {what}: not a multiple of {of} {of_what}")));
            }
            Ok(())
        };
        parts_of("attention heads", self.q_heads, "key/value heads", self.kv_heads)?;
        parts_of("value heads of linear layers", self.value_heads, "key heads", self.key_heads)?;
        if self.rope.dims == 0 || self.rope.dims > self.head_dim || !self.rope.dims.is_multiple_of(2) {
            let what =
                format!("rotates {} dimensions: expected an even number, {} at most", self.rope.dims, self.head_dim);
            return Err(Error::file(path, what));
        }
        let positive = |what: &str, number: f64| {
            if number.is_finite() && number > 0.0 {
                return Ok(());
            }
            Err(Error::file(path, format!("states {what} {number}: expected a positive number")))
        };
        positive("the norms' epsilon", self.rms_eps.into())?;
        positive("the rotation's base", self.rope.theta)?;
        if let Some(yarn) = &self.rope.scaling {
            positive("YaRN's factor", yarn.factor)?;
            positive("YaRN's beta_fast", yarn.beta_fast)?;
            positive("YaRN's beta_slow", yarn.beta_slow)?;
            positive("YaRN's attention factor", yarn.magnitude.into())?;
            positive("YaRN's original window", yarn.original_ctx as f64)?;
        }
        if let Some(moe) = self.moe.as_ref().filter(|moe| moe.used == 0 || moe.used > moe.experts) {
            let what = format!("uses {} of {1} experts: expected 1 to {1}", moe.used, moe.experts);
            return Err(Error::file(path, what));
        }
        Ok(())
    }

    fn check_sizes(&self, path: &Path) -> Result<(), Error> {
        let none = Moe { experts: 0, used: 0, expert_ffn: 0, shared_ffn: 0, renormalise: true };
        let moe = self.moe.as_ref().unwrap_or(&none);
        let sizes = [
            ("hidden", self.hidden),
            ("feed-forward", self.ffn),
            ("attention head", self.q_heads),
            ("key/value head", self.kv_heads),
            ("head dimension", self.head_dim),
            ("key head", self.key_heads),
            ("value head", self.value_heads),
            ("key dimension", self.key_dim),
            ("value dimension", self.value_dim),
            ("convolution", self.conv_kernel),
            ("vocabulary", self.vocab),
            ("expert", moe.experts),
            ("expert feed-forward", moe.expert_ffn),
            ("shared expert", moe.shared_ffn),
            ("window", self.native_ctx),
        ];
        match sizes.iter().find(|(_, size)| *size > LARGEST) {
            None => Ok(()),
            Some((what, size)) => {
                Err(Error::file(path, format!("states a {what} size of {size}: more than {LARGEST} is no model's")))
            }
        }
    }
}
