//! Opens a GPU without the features that it computes wrong.

use std::path::Path;
use std::sync::Arc;

use crate::check::check_rounded;
use crate::cuda::Cuda;
use crate::device::{Device, GpuFeature};
use crate::error::Error;

/// Opens the GPU with this number. Its kernels are compiled at the first use, into `cache`; `progress` gets a line for each.
pub fn open(ordinal: usize, cache: Option<&Path>, progress: &mut dyn FnMut(&str)) -> Result<Device, Error> {
    let device = open_whole(ordinal, cache, progress)?;
    if !device.uses(GpuFeature::GroupProducts) {
        return Ok(device);
    }
    // Features that only some GPUs have are tried before kernels rely on them: every one has an alternative.
    let why = match check_rounded(&device) {
        Ok(checked) if checked.is_right => return Ok(device),
        Ok(checked) => format!("it was wrong by {}", checked.distance),
        Err(error) => error.to_string(),
    };
    // After a failed kernel a device is of no use until it is opened again.
    drop(device);
    let device = open_whole(ordinal, cache, progress)?;
    device.set_feature(GpuFeature::GroupProducts, false);
    device.set_feature(GpuFeature::OverlappingLaunches, false);
    progress(&format!("this GPU goes without what is its own: {why}"));
    Ok(device)
}

/// Opens a GPU with all the features that it states.
fn open_whole(ordinal: usize, cache: Option<&Path>, progress: &mut dyn FnMut(&str)) -> Result<Device, Error> {
    Ok(Device::new(Arc::new(Cuda::open(ordinal, cache, progress)?)))
}
