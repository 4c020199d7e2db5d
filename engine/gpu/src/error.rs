use crate::hardware::GpuApi;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("a GPU behind {api:?} is not supported yet; set engine.device to auto, cuda or cpu")]
    NoInterface { api: GpuApi },
    #[error("no NVIDIA driver is installed here ({library} was not found)")]
    NoDriver { library: &'static str },
    #[error("the NVIDIA driver finds no GPU: {reason}")]
    NoGpu { reason: String },
    #[error(
        "kernels are compiled by NVRTC when they are used first, and libnvrtc was not found; install the CUDA toolkit, or \
         the Python package nvidia-cuda-nvrtc and put its folder on LD_LIBRARY_PATH"
    )]
    NoCompiler,
    #[error("{program}.cu does not compile for {target}:\n{log}")]
    Compile { program: &'static str, target: String, log: String },
    #[error(
        "{name} has compute capability {major}.{minor}; kernels need 8.0 or later (RTX 30, A100 and everything after them)"
    )]
    TooOld { name: String, major: i32, minor: i32 },
    #[error(
        "the GPU has no room for {wanted_mib} MiB more, {free_mib} MiB are free; choose a preset with a smaller window, \
         keys and values in q8, or fewer layers on the GPU"
    )]
    Memory { wanted_mib: usize, free_mib: usize },
    #[error("the GPU stopped working ({reason}); what it held is lost, and it has to be opened again")]
    Lost { reason: String },
    #[error("{action}: the driver answered {reason}")]
    Driver { action: &'static str, reason: String },
    #[error("{action} was asked for while kernels are recorded: each start of their graph would leave it out")]
    Recording { action: &'static str },
    #[error("{kernel}: {reason}")]
    Launch { kernel: String, reason: String },
    #[error("{file}: {reason}")]
    Cache { file: String, reason: String },
    #[error("{what}: the kernels want {wanted}")]
    Shape { what: String, wanted: &'static str },
}
