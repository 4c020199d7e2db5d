#![doc = include_str!("../README.md")]

mod config;
mod encoder;
mod error;
mod network;
mod tensors;
mod unigram;
mod vector;
mod words;

pub use encoder::{EncodedText, Encoder};
pub use error::Error;
pub use vector::{VectorRows, likeness, rounded};
