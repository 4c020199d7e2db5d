//! A stand-in for NVIDIA's driver and compiler: a program that finds their folder first on its library path calls them in the
//! place of NVIDIA's, and their kernels are the emulator's (`stand_in/driver.cpp`). A test starts its own program again with
//! that path.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU64, Ordering};

use sha2::{Digest, Sha256};

use gpu::GpuApi;

use crate::emulator::{self, EmulatorError};

const DRIVER: &str = include_str!("stand_in/driver.cpp");
/// Variable that is set in a program that was started with the stand-ins.
pub const STARTED: &str = "REPRISE_STAND_IN_DRIVER";

/// Runs the caller's own test program with the stand-ins. None, after a printed line: there is no C++ compiler.
pub fn run_again(program: &Path, folder: &Path, target: u32, arguments: &[&str]) -> Option<Output> {
    let libraries = match libraries(folder) {
        Ok(libraries) => libraries,
        Err(error @ EmulatorError::NoCompiler { .. }) => {
            println!("skipped: {error}");
            return None;
        }
        Err(error) => panic!("{error}"),
    };
    let mut again = Command::new(program);
    again.env("LD_LIBRARY_PATH", &libraries).env("STAND_IN_TARGET", target.to_string());
    again.env(STARTED, "1").env("REQUIRE_CUDA", "1").env_remove("GPU_CASES").args(arguments);
    Some(again.output().expect("it starts again"))
}

/// The stand-in driver of this program, with questions that no real one answers.
pub struct Driver(libloading::Library);

impl Driver {
    /// # Safety
    /// This program was started by `run_again`.
    pub unsafe fn of_this_program() -> Driver {
        // SAFETY: our own library is the first of that name.
        Driver(unsafe { libloading::Library::new("libcuda.so") }.expect("it is on the library path"))
    }

    /// Makes the driver fail after a number of further kernels, until the last user of the GPU closes it.
    pub fn break_after(&self, kernels: i64) {
        // SAFETY: `driver.cpp` has it with this type.
        unsafe {
            let wanted = self.0.get::<unsafe extern "C" fn(i64)>(b"stand_in_break_after\0");
            wanted.expect("the driver is our own")(kernels);
        }
    }

    pub fn left_behind(&self) -> usize {
        // SAFETY: as above.
        unsafe {
            let wanted = self.0.get::<unsafe extern "C" fn() -> usize>(b"stand_in_left_behind\0");
            wanted.expect("the driver is our own")()
        }
    }
}

/// Returns the folder of both libraries and of the programs that the compiler claims to have made.
pub fn libraries(folder: &Path) -> Result<PathBuf, EmulatorError> {
    let failed = |reason: String| EmulatorError::Failed { reason };
    let on_disk = |error: std::io::Error| failed(error.to_string());
    let programs = emulator::build_all(folder, gpu::programs(GpuApi::Cuda))?;
    let folder = &folder.canonicalize().map_err(on_disk)?;
    let with = |hash: Sha256, (_, built): &(_, PathBuf)| hash.chain_update(built.as_os_str().as_encoded_bytes());
    let hash = programs.iter().fold(Sha256::new().chain_update(DRIVER), with).finalize();
    let name: String = hash[..12].iter().map(|byte| format!("{byte:02x}")).collect();
    let libraries = folder.join(format!("driver-{name}"));
    if libraries.exists() {
        return Ok(libraries);
    }
    // Made in a folder of its own and renamed: another program may make the same.
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let part = folder.join(format!("driver-{name}.{}.{number}.part", std::process::id()));
    std::fs::create_dir_all(&part).map_err(on_disk)?;
    let (text, driver) = (part.join("driver.cpp"), part.join("libcuda.so"));
    std::fs::write(&text, DRIVER).map_err(on_disk)?;
    let flags = ["-std=c++17", "-O1", "-fPIC", "-fvisibility=hidden", "-Wall", "-shared", "-pthread", "-o"];
    let output = Command::new("g++").args(flags).args([&driver, &text]).arg("-ldl").output();
    let output = output.map_err(|error| EmulatorError::NoCompiler { reason: format!("g++: {error}") })?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    std::fs::copy(&driver, part.join("libnvrtc.so")).map_err(on_disk)?;
    for (program, built) in programs {
        let built = built.canonicalize().map_err(on_disk)?;
        std::os::unix::fs::symlink(built, part.join(format!("{program}.so"))).map_err(on_disk)?;
    }
    if let Err(error) = std::fs::rename(&part, &libraries) {
        let _ = std::fs::remove_dir_all(&part);
        if !libraries.exists() {
            return Err(on_disk(error));
        }
    }
    Ok(libraries)
}

/// Panics with the output if a test failed, or if fewer tests ran than `least`.
pub fn expect_passed(output: &Output, least: usize) {
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (said(&output.stdout), said(&output.stderr));
    let passed = stdout.split_once("test result: ok. ").and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
    assert!(output.status.success() && passed.unwrap_or(0) >= least, "{stdout}\n{stderr}");
}
