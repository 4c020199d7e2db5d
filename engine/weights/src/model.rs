//! A model as the engine uses it: matrices as the file holds them, small vectors ready to use.

use kernels::rotation::Yarn;
use sha2::{Digest, Sha256};

use crate::bytes::ModelBytes;
use crate::error::Error;
use crate::matrix::Matrix;
use crate::shape::{Shape, yarn_magnitude};

#[derive(Debug, Clone)]
pub struct ModelWeights {
    pub shape: Shape,
    /// [vocab, hidden]
    pub embed: Matrix,
    /// [vocab, hidden]; None: the embedding is the output matrix.
    pub output: Option<Matrix>,
    pub output_norm: Vec<f32>,
    pub layers: Vec<Layer>,
    pub prediction: Option<PredictionBlock>,
    pub vocab: VocabSource,
    pub chat_template: Option<String>,
    /// Sorted, each once. The family's two end tokens are among them where the vocabulary has them as control tokens.
    pub stop_tokens: Vec<u32>,
    pub name: String,
    /// Hash of samples of all tensors: see `fingerprint.rs`.
    pub fingerprint: [u8; 32],
    /// Parts of the file that were left out or look odd, one line each, for the caller to print.
    pub notes: Vec<String>,
}

impl ModelWeights {
    /// Returns the bytes of weights that one token of one sequence makes an executor read. Of the embedding one row is
    /// read, of the output matrix all; where they are one matrix it is read as that.
    pub fn bytes_per_token(&self) -> usize {
        self.output_matrix().bytes() + self.sum_per_token(Matrix::bytes)
    }

    /// Sums `of` over the layers' matrices that one token reads: of a layer's experts it reads the chosen ones,
    /// which are equally large but for formats.
    pub fn sum_per_token(&self, of: impl Fn(&Matrix) -> usize) -> usize {
        let used = self.shape.moe.as_ref().map_or(1, |moe| moe.used);
        let sum = |matrices: Vec<&Matrix>| matrices.into_iter().map(&of).sum::<usize>();
        let unread = |ffn: &Ffn| match ffn {
            Ffn::Moe(moe) if !moe.experts.is_empty() => {
                let experts = sum(moe.experts.iter().flat_map(SwigluWeights::matrices).collect());
                experts - experts * used / moe.experts.len()
            }
            _ => 0,
        };
        let layers = self.layers.iter();
        layers.map(|layer| sum(layer.mixer.matrices()) + sum(layer.ffn.matrices()) - unread(&layer.ffn)).sum()
    }
}

impl ModelWeights {
    pub fn output_matrix(&self) -> &Matrix {
        self.output.as_ref().unwrap_or(&self.embed)
    }

    pub fn matrices(&self) -> impl Iterator<Item = &Matrix> {
        let of_layers = self.layers.iter().flat_map(Layer::matrices);
        let of_prediction = self.prediction.iter().flat_map(PredictionBlock::matrices);
        [&self.embed].into_iter().chain(&self.output).chain(of_layers).chain(of_prediction)
    }

    pub fn mapped_files(&self) -> Vec<ModelBytes> {
        let mut files: Vec<ModelBytes> = Vec::new();
        for matrix in self.matrices() {
            let path = matrix.data().mapped_file();
            if path.is_some() && !files.iter().any(|known| known.mapped_file() == path) {
                files.push(matrix.data().clone());
            }
        }
        files
    }
}

impl ModelWeights {
    /// Stretches the window by YaRN, as a configuration with `factor` does. An error if the file is stretched itself.
    pub fn stretch(&mut self, factor: f64) -> Result<(), Error> {
        if factor <= 1.0 {
            return Ok(());
        }
        if let Some(Yarn { factor, .. }) = self.shape.rope.scaling {
            return Err(Error::Stretched { factor });
        }
        let original_ctx = self.shape.native_ctx;
        let magnitude = yarn_magnitude(factor as f32, 1.0);
        self.shape.rope.scaling =
            Some(Yarn { factor, original_ctx, beta_fast: 32.0, beta_slow: 1.0, magnitude, truncate: true });
        self.shape.native_ctx = (original_ctx as f64 * factor) as usize;
        // What was computed with other positions is not this model's.
        self.fingerprint =
            Sha256::new().chain_update(self.fingerprint).chain_update(factor.to_le_bytes()).finalize().into();
        Ok(())
    }

    pub fn leave_out_prediction(&mut self) {
        (self.prediction, self.shape.mtp_blocks) = (None, 0);
    }
}

/// A layer. Its norm vectors are factors, whatever the file holds.
#[derive(Debug, Clone)]
pub struct Layer {
    pub attn_norm: Vec<f32>,
    pub mixer: Mixer,
    pub ffn_norm: Vec<f32>,
    pub ffn: Ffn,
}

impl Layer {
    pub fn matrices(&self) -> Vec<&Matrix> {
        [self.mixer.matrices(), self.ffn.matrices()].concat()
    }
}

/// A block for multi-token prediction (MTP). Of the model's state at a token and of the token behind it, it predicts the one
/// behind that. The model's embedding and output matrix are its own as well.
#[derive(Debug, Clone)]
pub struct PredictionBlock {
    /// [hidden, 2 * hidden]: of the token's embedding, then of the state.
    pub join: Matrix,
    pub embed_norm: Vec<f32>,
    pub state_norm: Vec<f32>,
    pub attn_norm: Vec<f32>,
    pub attention: AttentionWeights,
    pub ffn_norm: Vec<f32>,
    pub ffn: Ffn,
    pub output_norm: Vec<f32>,
}

impl PredictionBlock {
    pub fn matrices(&self) -> Vec<&Matrix> {
        let AttentionWeights { q, k, v, o, .. } = &self.attention;
        [vec![&self.join, q, k, v, o], self.ffn.matrices()].concat()
    }
}

#[derive(Debug, Clone)]
#[allow(clippy::large_enum_variant)] // One for each layer of a model: tens of them.
pub enum Mixer<M = Matrix, V = Vec<f32>> {
    Attention(AttentionWeights<M, V>),
    Delta(DeltaWeights<M, V>),
}

impl Mixer {
    pub fn matrices(&self) -> Vec<&Matrix> {
        match self {
            Mixer::Attention(w) => vec![&w.q, &w.k, &w.v, &w.o],
            Mixer::Delta(w) => vec![&w.qkv, &w.z, &w.a, &w.b, &w.out],
        }
    }
}

/// Matrices and vectors are those of a file, or of a device that has a copy of them. `k` and `v` are
/// [kv_heads * head_dim, hidden], `o` is [hidden, q_heads * head_dim].
#[derive(Debug, Clone)]
pub struct AttentionWeights<M = Matrix, V = Vec<f32>> {
    /// [q_heads * 2 * head_dim, hidden]: of each head first the query, then the gate.
    pub q: M,
    pub k: M,
    pub v: M,
    pub o: M,
    pub q_norm: V,
    pub k_norm: V,
}

#[derive(Debug, Clone)]
pub struct DeltaWeights<M = Matrix, V = Vec<f32>> {
    /// [2 * key_heads * key_dim + value_heads * value_dim, hidden]: queries, keys, values.
    pub qkv: M,
    /// [value_heads * value_dim, hidden]
    pub z: M,
    /// [value_heads, hidden]
    pub a: M,
    /// [value_heads, hidden]
    pub b: M,
    /// [hidden, value_heads * value_dim]
    pub out: M,
    /// [channels, kernel], oldest tap first; on a device [kernel, channels].
    pub conv: V,
    /// -exp(A_log), one for each value head.
    pub a_log_neg: V,
    pub dt_bias: V,
    /// One head's norm, shared by all: [value_dim]
    pub norm: V,
}

#[derive(Debug, Clone)]
#[allow(clippy::large_enum_variant)] // As above.
pub enum Ffn<M = Matrix, R = Vec<f32>> {
    Dense(SwigluWeights<M>),
    Moe(MoeWeights<M, R>),
}

impl Ffn {
    pub fn matrices(&self) -> Vec<&Matrix> {
        match self {
            Ffn::Dense(weights) => weights.matrices().to_vec(),
            Ffn::Moe(moe) => {
                let experts = moe.experts.iter().chain(moe.shared.iter().map(|shared| &shared.expert));
                std::iter::once(&moe.router).chain(experts.flat_map(SwigluWeights::matrices)).collect()
            }
        }
    }
}

/// A gated feed-forward, down · (silu(gate · x) ⊙ (up · x)): a dense layer's, or one expert's. `gate` and `up` are
/// [width, hidden], `down` is [hidden, width].
#[derive(Debug, Clone)]
pub struct SwigluWeights<M = Matrix> {
    pub gate: M,
    pub up: M,
    pub down: M,
}

impl SwigluWeights {
    pub fn matrices(&self) -> [&Matrix; 3] {
        [&self.gate, &self.up, &self.down]
    }

    pub(crate) fn matrices_mut(&mut self) -> [&mut Matrix; 3] {
        [&mut self.gate, &mut self.up, &mut self.down]
    }
}

#[derive(Debug, Clone)]
pub struct MoeWeights<M = Matrix, R = Vec<f32>> {
    /// [experts, hidden]
    pub router: M,
    /// One entry an expert. On a device one entry in all: the rows of all experts one after the other.
    pub experts: Vec<SwigluWeights<M>>,
    pub shared: Option<SharedExpert<M, R>>,
}

#[derive(Debug, Clone)]
pub struct SharedExpert<M = Matrix, R = Vec<f32>> {
    pub expert: SwigluWeights<M>,
    /// [hidden]
    pub router: R,
}

#[derive(Debug, Clone)]
pub enum VocabSource {
    Gguf {
        tokens: Vec<String>,
        /// One for each token: 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte.
        types: Vec<u32>,
        /// Two tokens and a space between them.
        merges: Vec<String>,
        /// Name of the splitting before the merges, such as `qwen35`.
        pre: String,
    },
    Json(Vec<u8>),
}
