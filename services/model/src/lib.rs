//! Models: the engine in this process, an OpenAI-compatible server (the upstream), or a script in tests. All of them
//! take a [`ModelRequest`] and give an [`Answer`], a stream of [`session::Delta`]s.
//!
//! A request carries its whole prompt. The cache of a model decides how fast an answer comes, never what it says. An
//! answer ends in exactly one `Done` or `Failed`; dropping it, or cancelling it, stops the decoding within one step.

mod answer;
mod builtin;
mod counting;
mod device;
mod engine_options;
mod error;
mod fetch;
mod gpu;
mod handle;
mod local;
mod machine;
mod measure;
pub mod metrics;
mod opened;
mod own_heads;
mod plan;
mod preparation;
mod prepare;
mod request;
mod resume;
mod start;
mod status;
mod upstream;

pub use answer::{Answer, Writer, channel, channel_for};
pub use device::Finder;
pub use engine_options::{
    drafts, gpu_api, kv_format, kv_formats, limits, longest, open_options, precision, sampling, thinking,
};
pub use error::Error;
pub use fetch::{hub_client, hub_files, hub_name};
pub use gpu::Gpu;
pub use handle::{Answerer, Model};
pub use machine::machine_bytes;
pub use measure::{Counted, Measured};
pub use opened::{OpenedPreset, open_on, resolve};
pub use plan::{Bytes, Cell, Plan, Window, plan, text_bytes, windows};
pub use preparation::{PreparationMemory, PreparationShare, give_memory_back, json_bytes, share_pools};
pub use request::{ModelRequest, RawPrompt, ReplyKey};
pub use resume::{ResumedReply, not_kept};
pub use start::{Started, running_presets};
pub use status::{ModelLoad, ModelStatus};
pub use upstream::hostile_answer;
