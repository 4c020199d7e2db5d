use std::path::Path;
use std::sync::Arc;

use crate::check::check_rounded;
use crate::cuda::Cuda;
use crate::device::{Device, GpuApi, GpuFeature};
use crate::error::Error;

/// Opens a GPU behind an interface. An interface without kernels is an error.
pub fn open_behind(
    api: GpuApi,
    ordinal: usize,
    cache: Option<&Path>,
    progress: &mut dyn FnMut(&str),
) -> Result<Device, Error> {
    match api {
        GpuApi::Cuda => open(ordinal, cache, progress),
        GpuApi::Vulkan => Err(Error::NoInterface { api }),
    }
}

/// Opens the NVIDIA GPU with this number. Its kernels are compiled at the first use, into `cache`; `progress` gets a line
/// for each.
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

fn open_whole(ordinal: usize, cache: Option<&Path>, progress: &mut dyn FnMut(&str)) -> Result<Device, Error> {
    Ok(Device::new(Arc::new(Cuda::open(ordinal, cache, progress)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_without_kernels_is_refused() {
        let error = open_behind(GpuApi::Vulkan, 0, None, &mut |_| ()).unwrap_err().to_string();
        assert!(error.contains("Vulkan") && error.contains("engine.device"), "{error}");
        assert!(crate::programs(GpuApi::Vulkan).is_empty() && !crate::programs(GpuApi::Cuda).is_empty());
    }
}
