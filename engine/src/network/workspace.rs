//! Buffers of a step, kept for the next one. They grow to the largest step.

use kernels::product::Activations;

#[derive(Default)]
pub struct Workspace {
    /// [rows, hidden]: the residual stream.
    pub(super) hidden: Vec<f32>,
    /// [rows, hidden]: what a mixer or a feed-forward part adds to the residual stream.
    pub(super) mixed: Vec<f32>,
    /// What products read.
    pub(super) normed: Activations,
    pub(super) inner: Activations,
    /// [rows, rotated dims]: cosines and sines.
    pub(super) turns: Vec<f32>,
    /// Attention: queries with gates, keys, values. Linear layers: q, k and v in `q`, z in `k`.
    pub(super) q: Vec<f32>,
    pub(super) k: Vec<f32>,
    pub(super) v: Vec<f32>,
    /// [rows, value heads]
    pub(super) decay: Vec<f32>,
    pub(super) beta: Vec<f32>,
    /// Feed-forward: gate and up.
    pub(super) gate: Vec<f32>,
    pub(super) up: Vec<f32>,
    pub(super) moe: ExpertRouting,
    /// Rows for which logits are wanted.
    pub(super) wanted: Vec<usize>,
    /// [wanted rows, vocab]
    pub(super) logits: Vec<f32>,
    /// [rows, hidden]: what the head reads, for the block that predicts.
    pub(super) outputs: Vec<f32>,
    /// [lanes, tokens that may be guessed]
    pub(super) guesses: Vec<f32>,
}

/// Which rows each expert computes.
#[derive(Default)]
pub struct ExpertRouting {
    /// The least lead of an expert that was chosen over one that was not.
    pub(super) least_lead: Option<f32>,
    pub(super) scores: Vec<f32>,
    pub(super) top: Vec<(usize, f32)>,
    /// For each expert its rows, and their weights.
    pub(super) rows: Vec<Vec<usize>>,
    pub(super) shares: Vec<Vec<f32>>,
    pub(super) gathered: Activations,
    pub(super) out: Vec<f32>,
}

impl Workspace {
    /// The least lead of an expert over one that was not chosen, as a share of its weight, since this was called last.
    pub fn take_least_lead(&mut self) -> Option<f32> {
        self.moe.least_lead.take()
    }
}
