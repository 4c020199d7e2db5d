//! The engine of Reprise: from bytes on disk to tokens out.
//!
//! One thread owns an [`Engine`], submits requests and calls [`Engine::step`] until no request is left. A step computes
//! one batch: the next token of each reply, and a chunk of the most urgent prompt. So a cancel or a more urgent request
//! waits for one step at most. The engine is synchronous and knows no tokio, socket, clock, SQL, environment or user.
//!
//! Every request carries its whole prompt. The engine continues from the cached sequence that shares the longest prefix
//! with it; the cache decides how fast a reply comes, never what it says. A barge-in, a retry and a restart are
//! therefore plain requests.
//!
//! ```
//! use engine::open::{ModelOptions, open};
//! use engine::state::KvFormats;
//! use engine::{Cpu, Engine, EngineEvent, EngineLimits, EngineRequest, Executor, Precision};
//! use kernels::format::Format;
//!
//! // A tiny model with random weights: it babbles, but its file is like a real one.
//! let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/reference/gguf/dense-tied.bf16.gguf");
//! let model = open(file.as_ref(), &ModelOptions::new(Precision::Integer), &mut |_packed, _total| ())?;
//! let limits = EngineLimits {
//!     prefill_chunk_tokens: 64, max_sequences: 4, max_waiting: 16, max_logit_bias: 8, memory_bytes: 64 << 20,
//!     moved_snapshot_bytes: 0, snapshots: Format::F32, snapshot_spacing_tokens: 40, recurrence_log_tokens: 32, heads: 4,
//! };
//! let tokenizer = model.tokenizer.clone();
//! let mut engine = Engine::new(Executor::on_cpu(Cpu::new(1)), model.network, tokenizer.clone(), limits);
//!
//! let mut ask = |tokens: Vec<u32>| -> Result<_, engine::Error> {
//!     let kv = KvFormats::new(Format::F16, Format::F16);
//!     engine.submit(EngineRequest { max_new_tokens: 8, ignore_eos: true, ..EngineRequest::new(tokens, 512, kv) })?;
//!     let (mut events, mut reply) = (Vec::new(), Vec::new());
//!     while engine.step(&mut events) {}
//!     for event in events {
//!         match event {
//!             EngineEvent::Token(token) => reply.push(token.token),
//!             EngineEvent::Done { report, .. } => return Ok((reply, report)),
//!             EngineEvent::Failed { error, .. } => return Err(error),
//!             EngineEvent::Started { .. } | EngineEvent::PromptTokens { .. } => {}
//!         }
//!     }
//!     unreachable!("every request ends with `Done` or `Failed`")
//! };
//! let question = tokenizer.encode("Good evening. Turn on the light in the kitchen.");
//! let (reply, first) = ask(question.clone())?;
//! assert_eq!((reply.len(), first.computed_tokens), (8, question.len()));
//!
//! // The next turn carries the whole conversation, and the engine computes only its end.
//! let turn = [question, reply, tokenizer.encode("Thank you.")].concat();
//! let (_, next) = ask(turn.clone())?;
//! assert_eq!(next.reused_tokens + next.computed_tokens, turn.len());
//! assert!(next.reused_tokens >= first.computed_tokens);
//! # Ok::<(), engine::Error>(())
//! ```
//!
//! `examples/generate.rs` prints a reply of a real model as it comes. `README.md` explains the cache, held requests and
//! drafts.

mod active_request;
mod cache;
mod cached_sequence;
mod device_memory;
mod disk;
mod draft;
mod engine;
pub mod error;
mod executor;
pub mod gpu_network;
pub mod importance;
mod limits;
pub mod memory;
pub mod model_bytes;
pub mod network;
pub mod open;
pub mod recurrence_log;
pub mod request;
pub mod sampling;
mod self_check;
pub mod snapshot;
pub mod state;
pub mod vocabulary;

pub use device_memory::{DeviceFacts, DeviceLimits, DeviceMemoryPlan, LongestConversation};
#[cfg(feature = "hostile")]
pub use disk::hostile as hostile_disk;
pub use disk::{DiskLimits, copy_files, forget_files, forget_unowned_files};
pub use draft::DraftLimits;
pub use engine::Engine;
pub use error::Error;
pub use executor::Executor;
pub use gpu::check::check as check_device;
pub use gpu::device::GpuMemory;
pub use gpu::{Device, GpuApi};
pub use kernels::cpu::Cpu;
pub use kernels::format::Format;
pub use kernels::peak;
pub use kernels::product::Precision;
pub use limits::{EngineLimits, MOST_SCORED_TOKENS};
pub use request::{
    EngineEvent, EngineRequest, OwnerId, PrefillReason, Priority, ReplyToken, RequestId, RequestReport, ReuseScope,
    ScoredToken, StopReason, ThinkingOptions,
};
