//! Opens a GPU, and leaves out what it computes wrong.

use std::path::Path;

use crate::check::check_rounded;
use crate::device::Device;
use crate::error::Error;

/// The GPU with this number. Its kernels are compiled the first time, into `cache`; `progress` gets a line for each.
pub fn open(ordinal: usize, cache: Option<&Path>, progress: &mut dyn FnMut(&str)) -> Result<Device, Error> {
    let device = Device::cuda(ordinal, cache, progress)?;
    if !device.has_groups() {
        return Ok(device);
    }
    // What only some GPUs have is tried before it is relied on: there is another way for all of it.
    let why = match check_rounded(&device) {
        Ok(checked) if checked.is_right => return Ok(device),
        Ok(checked) => format!("it was wrong by {}", checked.distance),
        Err(error) => error.to_string(),
    };
    // A kernel that failed leaves a device that nothing can use until it is opened again.
    drop(device);
    let device = Device::cuda(ordinal, cache, progress)?;
    device.use_groups(false);
    device.overlap_kernels(false);
    progress(&format!("this GPU goes without what is its own: {why}"));
    Ok(device)
}
