//! Buffers of a step, kept for the next one. They grow to the largest step.

use kernels::product::Activations;

#[derive(Default)]
pub struct Workspace {
    pub(super) hidden: Vec<f32>, // [rows, hidden]: the residual stream
    /// [rows, hidden]: the contribution of a mixer or a feed-forward part to the residual stream.
    pub(super) mixed: Vec<f32>,
    pub(super) normed: Activations, // input of products
    pub(super) inner: Activations,
    pub(super) turns: Vec<f32>, // [rows, rotated dims]: cosines and sines
    /// Attention: queries with gates, keys, values. Linear layers: q, k and v in `q`, z in `k`.
    pub(super) q: Vec<f32>,
    pub(super) k: Vec<f32>,
    pub(super) v: Vec<f32>,
    pub(super) decay: Vec<f32>, // [rows, value heads]
    pub(super) beta: Vec<f32>,
    pub(super) gate: Vec<f32>, // feed-forward: gate and up
    pub(super) up: Vec<f32>,
    pub(super) moe: ExpertRouting,
    pub(super) wanted: Vec<usize>, // rows with wanted logits
    pub(super) logits: Vec<f32>,   // [wanted rows, vocab]
    pub(super) outputs: Vec<f32>,  // [rows, hidden]: the head's input, for the block that predicts
    pub(super) guesses: Vec<f32>,  // [lanes, vocabulary to predict from]
}

#[derive(Default)]
pub struct ExpertRouting {
    pub(super) least_lead: Option<f32>,
    pub(super) scores: Vec<f32>,
    pub(super) top: Vec<(usize, f32)>,
    pub(super) rows: Vec<Vec<usize>>,
    pub(super) shares: Vec<Vec<f32>>,
    pub(super) gathered: Activations,
    pub(super) out: Vec<f32>,
}

impl Workspace {
    /// Takes the least lead of a chosen expert over one that was not, as a share of its weight, since the last call.
    pub fn take_least_lead(&mut self) -> Option<f32> {
        self.moe.least_lead.take()
    }
}
