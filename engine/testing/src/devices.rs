//! The device of a program's tests.

use std::path::Path;
use std::sync::OnceLock;

use gpu::{Device, GpuFeature};

use crate::emulator::{EmulatorError, open_emulator};

/// Returns a real GPU, else the emulator, else None and prints why. `REQUIRE_CUDA` makes a missing GPU a failure. All tests of
/// a program get the same device.
pub fn device_of_tests() -> Option<Device> {
    static DEVICE: OnceLock<Result<Option<Device>, String>> = OnceLock::new();
    let folder = std::env::temp_dir().join("reprise-gpu-tests");
    let opened = DEVICE.get_or_init(|| open(std::env::var_os("REQUIRE_CUDA").is_some(), &folder));
    opened.clone().unwrap_or_else(|error| panic!("{error}"))
}

fn open(require_cuda: bool, folder: &Path) -> Result<Option<Device>, String> {
    let no_gpu = match gpu::open(0, Some(&folder.join("cubin")), &mut |line| println!("{line}")) {
        Ok(device) => {
            // NVIDIA's checker of races loses track of kernels that begin before the last one ends.
            if std::env::var_os("GPU_NO_OVERLAP").is_some() {
                device.set_feature(GpuFeature::OverlappingLaunches, false);
            }
            println!("on {}", device.properties().map_or_else(|error| error.to_string(), |properties| properties.name));
            return Ok(Some(device));
        }
        Err(error) => error,
    };
    if require_cuda {
        return Err(no_gpu.to_string());
    }
    match open_emulator(folder) {
        Ok(emulator) => {
            println!("no GPU is used ({no_gpu}): the kernels are emulated");
            Ok(Some(emulator.device()))
        }
        Err(error @ EmulatorError::NoCompiler { .. }) => {
            println!("skipped: {no_gpu}; {error}");
            Ok(None)
        }
        Err(error) => Err(error.to_string()),
    }
}

/// Returns a configuration for a number of random problems, times `GPU_CASES` for a real GPU.
pub fn cases(count: u32) -> proptest::test_runner::Config {
    let times = std::env::var("GPU_CASES").ok().and_then(|times| times.parse::<u32>().ok()).unwrap_or(1);
    proptest::test_runner::Config {
        cases: count * times,
        failure_persistence: None,
        max_shrink_iters: 60,
        ..proptest::test_runner::Config::default()
    }
}
