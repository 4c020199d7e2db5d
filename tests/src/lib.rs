//! Helpers shared by the black-box tests.

pub mod house;
pub mod reprise;
