use std::path::Path;
use std::process::Output;

use sha2::{Digest, Sha256};

use gpu::buffer::{Buffer, HostBuffer};
use gpu::check::check;
use gpu::device::Device;
use gpu::error::Error;
use testing::stand_in::{Driver, STARTED, expect_passed, run_again};

const HOPPER: u32 = 90;
const AMPERE: u32 = 86;

fn again(target: u32, arguments: &[&str]) -> Option<Output> {
    let folder = std::env::temp_dir().join("reprise-gpu-tests");
    run_again(&std::env::current_exe().unwrap(), &folder, target, arguments)
}

fn driver() -> Option<Driver> {
    // SAFETY: only `run_again` sets it.
    let driver = std::env::var_os(STARTED).map(|_| unsafe { Driver::of_this_program() });
    if driver.is_none() {
        println!("skipped: this is not the program that was started with a stand-in driver");
    }
    driver
}

fn open() -> Device {
    gpu::open(0, None, &mut |_| ()).unwrap()
}

#[test]
fn kernels_are_started_as_a_driver_wants_it() {
    if std::env::var_os(STARTED).is_some() {
        return;
    }
    for target in [HOPPER, AMPERE] {
        let all = ["--skip", "stand_in", "--skip", "nvrtc", "--skip", "emulated"];
        let Some(output) = again(target, &all) else { return };
        expect_passed(&output, 19);
    }
}

/// Each of the tests below in a process of its own, because they break what all share.
#[test]
fn what_is_asked_of_a_driver() {
    if std::env::var_os(STARTED).is_some() {
        return;
    }
    for test in ["gives_back", "is_lost", "is_recorded", "has_no_room", "is_kept"] {
        let Some(output) = again(HOPPER, &["--exact", &format!("stand_in::{test}")]) else {
            return;
        };
        expect_passed(&output, 1);
    }
}

#[test]
fn gives_back() {
    let Some(driver) = driver() else { return };
    let free = |device: &Device| device.properties().unwrap().free_bytes;
    let device = open();
    let at_first = free(&device);
    device.hold(100 << 20).unwrap();
    assert_eq!(free(&device), at_first, "what we hold is free for us");
    let some = Buffer::<f32>::new(&device, 1 << 20).unwrap();
    assert_eq!((free(&device), device.used_bytes().unwrap()), (at_first - (4 << 20), 4 << 20));
    let mut beside = HostBuffer::<f32>::new(&device);
    beside.room(10).unwrap();
    let clone = device.clone();
    drop((some, beside, device));
    assert!(driver.left_behind() > 0, "somebody has it still");
    drop(clone);
    assert_eq!(driver.left_behind(), 0);
    // The next device finds as much as this one did.
    let device = open();
    assert_eq!(free(&device), at_first);
    drop(device);
    // Nor where it could not be opened whole.
    gpu::open(7, None, &mut |_| ()).expect_err("there is one only");
    assert_eq!(driver.left_behind(), 0);
}

#[test]
fn is_lost() {
    let Some(driver) = driver() else { return };
    let device = open();
    let some = Buffer::<f32>::new(&device, 100).unwrap();
    driver.break_after(0);
    let error = check(&device).expect_err("it breaks");
    assert!(matches!(error, Error::Lost { .. }), "{error}");
    assert!(matches!(some.to_vec().unwrap_err(), Error::Lost { .. }), "and stays so");
    drop((some, device));
    // The context went with its last user, and a new one works.
    let device = open();
    assert!(check(&device).unwrap().is_right);
}

#[test]
fn is_recorded() {
    let Some(driver) = driver() else { return };
    let device = open();
    let from = Buffer::of(&device, &[1.0f32, 2.0, 3.0]).unwrap();
    let to = Buffer::<f32>::new(&device, 3).unwrap();
    // What waits does not belong into a recording: it is told, and what comes after is as if nothing had been.
    let refused = device.record(|| device.synchronize());
    assert!(refused.is_err());
    to.copy_from(0, &from, 0, 3).unwrap();
    assert_eq!(to.to_vec().unwrap(), [1.0, 2.0, 3.0]);
    let milliseconds = device.time(|| to.copy_from(0, &from, 0, 3)).unwrap();
    assert!(milliseconds >= 0.0);
    assert!(gpu::buffer::copy_gb_per_s(&device, 1 << 20, 2).unwrap() > 0.0);
    drop((from, to, device));
    assert_eq!(driver.left_behind(), 0);
}

#[test]
fn has_no_room() {
    let Some(driver) = driver() else { return };
    let device = open();
    let free = device.properties().unwrap().free_bytes;
    let half = Buffer::<u8>::new(&device, free / 2).unwrap();
    let error = Buffer::<u8>::new(&device, free / 2 + 4096).expect_err("there is not as much").to_string();
    assert!(error.contains("MiB"), "{error}");
    drop(half);
    drop(Buffer::<u8>::new(&device, free / 2 + 4096).unwrap());
    drop(device);
    assert_eq!(driver.left_behind(), 0);
}

#[test]
fn is_kept() {
    if driver().is_none() {
        return;
    }
    let kept = tempfile::tempdir().unwrap();
    let open = || {
        let mut said = Vec::new();
        gpu::open(0, Some(kept.path()), &mut |line| said.push(line.to_owned())).unwrap();
        said
    };
    let files =
        |folder: &Path| std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    assert!(open()[0].starts_with("compiling 1"));
    assert_eq!(files(kept.path()).len(), kernels::cuda::PROGRAMS.len());
    assert!(open().is_empty());
    // Whole as it was kept, and of no use.
    let code = b"/nowhere.so\0";
    std::fs::write(&files(kept.path())[0], [&Sha256::digest(code)[..], code].concat()).unwrap();
    assert!(open()[0].starts_with("compiling 1 GPU program"));
    assert!(open().is_empty());
}
