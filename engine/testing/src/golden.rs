//! Golden values of the reference implementation.

use std::path::{Path, PathBuf};

use reference::distance;

/// Returns the folder of reference models: in the source tree, or in `REPRISE_REFERENCE` on a machine without sources.
pub fn reference_models() -> PathBuf {
    let in_tree = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/reference");
    std::env::var_os("REPRISE_REFERENCE").map_or_else(in_tree, PathBuf::from)
}

pub struct GoldenFile {
    file: Vec<u8>,
}

impl GoldenFile {
    pub fn open(path: PathBuf) -> GoldenFile {
        GoldenFile { file: std::fs::read(path).unwrap() }
    }

    pub fn of_folder(name: &str) -> GoldenFile {
        GoldenFile::open(reference_models().join(name).join("golden.safetensors"))
    }

    fn bytes(&self, name: &str) -> Vec<u8> {
        safetensors::SafeTensors::deserialize(&self.file).unwrap().tensor(name).unwrap().data().to_vec()
    }

    pub fn floats(&self, name: &str) -> Vec<f32> {
        self.bytes(name).chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
    }

    pub fn tokens(&self, name: &str) -> Vec<u32> {
        self.bytes(name).chunks_exact(8).map(|b| i64::from_le_bytes(b.try_into().unwrap()) as u32).collect()
    }
}

#[track_caller]
pub fn assert_near_golden(what: &str, ours: &[f32], golden: &[f32], tolerance: f64) {
    let distance = distance(ours, golden);
    println!("{what}: {distance:.1e}");
    assert!(distance <= tolerance, "{what}: {distance:e} is over {tolerance:e}");
}
