//! A stand-in for NVIDIA's driver and compiler, for tests: the code that calls NVIDIA's calls these, and kernels are the
//! emulator's (`stand_in/driver.cpp`). A program loads them where their folder comes first on its library path, so a test
//! starts its own program again with that path.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU64, Ordering};

use sha2::{Digest, Sha256};

use gpu::{Error, emulated};

const DRIVER: &str = include_str!("stand_in/driver.cpp");
/// This variable is set where a program was started with them.
pub const STARTED: &str = "REPRISE_STAND_IN_DRIVER";

/// Runs a test program, the caller's own, with the stand-ins and these arguments. None, after a line that says so: there is no
/// C++ compiler.
pub fn run_again(program: &Path, folder: &Path, target: u32, arguments: &[&str]) -> Option<Output> {
    let libraries = match libraries(folder) {
        Ok(libraries) => libraries,
        Err(Error::Emulator { reason }) if reason.starts_with("g++: ") => {
            println!("skipped: {reason}");
            return None;
        }
        Err(error) => panic!("{error}"),
    };
    let mut again = Command::new(program);
    again.env("LD_LIBRARY_PATH", &libraries).env("STAND_IN_TARGET", target.to_string());
    again.env(STARTED, "1").env("REQUIRE_CUDA", "1").env_remove("GPU_CASES").args(arguments);
    Some(again.output().expect("it starts again"))
}

/// The stand-in driver of this program, for what no real one can be asked.
pub struct Driver(libloading::Library);

impl Driver {
    /// # Safety
    /// This program was started by `run_again`.
    pub unsafe fn of_this_program() -> Driver {
        // SAFETY: our own library is the first of that name.
        Driver(unsafe { libloading::Library::new("libcuda.so") }.expect("it is on the library path"))
    }

    /// After so many more kernels nothing works any more, until the last user of the GPU has let it go.
    pub fn break_after(&self, kernels: i64) {
        // SAFETY: `driver.cpp` has it with this type.
        unsafe {
            let wanted = self.0.get::<unsafe extern "C" fn(i64)>(b"stand_in_break_after\0");
            wanted.expect("the driver is our own")(kernels);
        }
    }

    /// Everything that was made and not given back.
    pub fn left_behind(&self) -> usize {
        // SAFETY: as above.
        unsafe {
            let wanted = self.0.get::<unsafe extern "C" fn() -> usize>(b"stand_in_left_behind\0");
            wanted.expect("the driver is our own")()
        }
    }
}

/// The folder with both, for a library path, and with the programs that the compiler says it has made.
pub fn libraries(folder: &Path) -> Result<PathBuf, Error> {
    let failed = |reason: String| Error::Emulator { reason };
    let on_disk = |error: std::io::Error| failed(error.to_string());
    let programs = emulated::build_all(folder, kernels::cuda::PROGRAMS)?;
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
    let output = output.map_err(|error| failed(format!("g++: {error}")))?;
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

/// Panics with what it said where something failed, or where fewer tests ran than there should be.
pub fn expect_passed(output: &Output, least: usize) {
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (said(&output.stdout), said(&output.stderr));
    let passed = stdout.split_once("test result: ok. ").and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
    assert!(output.status.success() && passed.unwrap_or(0) >= least, "{stdout}\n{stderr}");
}
