//! Model files: GGUF and safetensors to one shape and one set of matrices.
//!
//! Knows no arithmetic but that of the block formats, and trusts nothing that it reads: a damaged or hostile file is an
//! error that names the file, the key or the tensor, what was found and what was expected.

mod adapter;
mod bytes;
mod contents;
mod error;
pub mod family;
mod fingerprint;
pub mod gguf;
pub mod hf;
mod layers;
mod mapped;
mod matrix;
mod model;
mod open;
mod pack;
mod packed;
mod shape;
mod stop;
mod tensors;

pub use adapter::{Adapter, gguf_name, module_of, name_in_folder, reorder};
pub use bytes::{ModelBytes, zeroed_pages};
pub use contents::{FileContents, FileForm, FileTensor};
pub use error::Error;
pub use matrix::{BlockMatrix, LowRank, Matrix, NO_TILES, TileCodebook, TileMatrix};
pub use model::{
    AttentionWeights, DeltaWeights, Ffn, Layer, Mixer, ModelWeights, MoeWeights, PredictionBlock, SharedExpert,
    SwigluWeights, VocabSource,
};
pub use open::{contents, open, tensors_of};
pub use pack::{MatrixUse, PackedPart, pack, packed_bytes};
pub use packed::{Keeping, PackedFolder, free_bytes};
pub use shape::{HeadOrder, LayerKind, Moe, Rope, Shape};
