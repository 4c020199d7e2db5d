//! Errors between a model's file and a reply. Each message says what to do.

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Weights(#[from] weights::Error),
    #[error(transparent)]
    Text(#[from] text::Error),
    #[error(transparent)]
    Grammar(#[from] text::grammar::GrammarError),
    #[error(transparent)]
    Sampling(#[from] crate::sampling::SamplingError),
    #[error(
        "keys or values cannot be kept as {format}: its blocks hold {block} values and a head of this model has \
         {head_dim}; use f16 or bf16"
    )]
    KvFormat { format: &'static str, block: usize, head_dim: usize },
    #[error(
        "keys or values cannot be kept as {format}: it rotates heads of 32, 64, 128, 256 or 512 values and a head of this \
         model has {head_dim}; use q8 or f16"
    )]
    KvRotation { format: &'static str, head_dim: usize },
    #[error(transparent)]
    Gpu(#[from] gpu::Error),
    #[error(
        "the model does not fit on {name}: weights take {weights_mib} MiB and the buffers of a step {scratch_mib} MiB, and \
         {total_mib} MiB may be used of {free_mib} MiB that are free; choose a smaller model or fewer bits, lower \
         engine.gpu_prefill_chunk_tokens or engine.max_sequences, raise memory.gpu_total, or set engine.device to cpu"
    )]
    DeviceRoom { name: String, weights_mib: usize, scratch_mib: usize, total_mib: usize, free_mib: usize },
    #[error("the reply is lost: {reason}; ask again in a moment")]
    Lost { reason: String },
    #[error("the request holds no token; send at least one")]
    Empty,
    #[error("token {token} is not in this model's vocabulary of {vocab}; was the text encoded for another model?")]
    Token { token: u32, vocab: usize },
    #[error(
        "the prompt has {tokens} tokens and the window is {ctx_size}, of which {reply} are kept for the reply; shorten \
         the prompt or choose a preset with a larger window"
    )]
    Window { tokens: usize, ctx_size: usize, reply: usize },
    #[error("logit_bias names {tokens} tokens, and {most} may have one; send fewer, or ask for a grammar")]
    LogitBias { tokens: usize, most: usize },
    #[error("{waiting} requests wait already, the limit of the configuration; try again in a moment")]
    Busy { waiting: usize },
    #[error(
        "the memory that is planned for conversations ({budget_bytes} bytes) has no room for this one beside those that \
         are needed; raise memory.total, or choose a smaller window"
    )]
    NoRoom { budget_bytes: usize },
}
