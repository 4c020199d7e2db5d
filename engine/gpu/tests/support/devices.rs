//! What tests of kernels run on. Tests of several crates take this file in.

use std::path::Path;
use std::sync::OnceLock;

use gpu::{Device, Error};

/// The GPU where there is one, else the emulator; none, with a line that says why, where neither can be had.
/// `REQUIRE_CUDA` makes a missing GPU a failure. Each of a program's tests gets the same device.
pub fn device_of_tests() -> Option<Device> {
    static DEVICE: OnceLock<Result<Option<Device>, String>> = OnceLock::new();
    let folder = std::env::temp_dir().join("reprise-gpu-tests");
    let opened = DEVICE.get_or_init(|| open(std::env::var_os("REQUIRE_CUDA").is_some(), &folder));
    opened.clone().unwrap_or_else(|error| panic!("{error}"))
}

fn open(require_cuda: bool, folder: &Path) -> Result<Option<Device>, String> {
    let no_gpu = match gpu::open(0, Some(&folder.join("cubin")), &mut |line| println!("{line}")) {
        Ok(device) => {
            println!("on {}", device.properties().map_or_else(|error| error.to_string(), |properties| properties.name));
            return Ok(Some(device));
        }
        Err(error) => error,
    };
    if require_cuda {
        return Err(no_gpu.to_string());
    }
    match Device::emulated(folder) {
        Ok(device) => {
            println!("no GPU is used ({no_gpu}): the kernels are emulated");
            Ok(Some(device))
        }
        Err(error @ Error::Emulator { .. }) if is_missing_compiler(&error) => {
            println!("skipped: {no_gpu}; {error}");
            Ok(None)
        }
        Err(error) => Err(error.to_string()),
    }
}

/// A compiler that refuses a kernel is a failure; one that is not there is none.
fn is_missing_compiler(error: &Error) -> bool {
    matches!(error, Error::Emulator { reason } if reason.starts_with("g++: "))
}

/// So many random problems; `GPU_CASES` multiplies them where a real GPU does the work.
pub fn cases(count: u32) -> proptest::test_runner::Config {
    let times = std::env::var("GPU_CASES").ok().and_then(|times| times.parse::<u32>().ok()).unwrap_or(1);
    proptest::test_runner::Config {
        cases: count * times,
        failure_persistence: None,
        max_shrink_iters: 60,
        ..proptest::test_runner::Config::default()
    }
}
