//! Compiles the kernels of NVIDIA's GPUs into a folder, for a machine that should not spend its time on that: give the folder
//! as `engine.kernels_path` there. It takes the folder, the processor (`90` is a H100), and the driver's CUDA version
//! (`13000` is 13.0). NVRTC has to be on the library path.

use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, target, driver] = arguments.as_slice() else {
        return Err("expected FOLDER PROCESSOR DRIVER, as in: kernels 90 13000".into());
    };
    gpu::compile_ahead(Path::new(folder), target.parse()?, driver.parse()?, &mut |line| println!("{line}"))?;
    Ok(())
}
