//! Work that all other threads of the process come before: learning in the silence, and whatever is as large as a client wants.
//!
//! A thread of such work gets what the others leave of the processors, and a tenth of one at least.
//!
//! ```
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! let body = vec![b'x'; 1 << 20];
//! let letters = background::heavy::run(body.len(), || body.iter().filter(|byte| **byte == b'x').count()).await;
//! assert_eq!(letters, 1 << 20);
//! # });
//! ```

pub mod heavy;
mod last;

pub use last::{run_last, start_last};
