//! NVIDIA's compiler at run time: from a kernel's source to what a GPU runs.

use std::ffi::CString;

use cudarc::nvrtc::{result, sys};

use crate::error::Error;

/// Processors that every kernel must compile for: A100, RTX 30, RTX 40, H100 and H200, RTX 50.
pub const TARGETS: [u32; 5] = [80, 86, 89, 90, 120];

pub fn is_present() -> bool {
    // SAFETY: it only looks whether a library of the compiler's name can be loaded.
    unsafe { sys::is_culib_present() }
}

pub fn compile(program: &'static str, source: &str, architecture: &str) -> Result<Vec<u8>, Error> {
    if !is_present() {
        return Err(Error::NoCompiler);
    }
    let failed = |log: String| Error::Compile { program, target: architecture.to_string(), log };
    let text = CString::new(source).map_err(|error| failed(error.to_string()))?;
    let name = CString::new(format!("{program}.cu")).map_err(|error| failed(error.to_string()))?;
    let handle = result::create_program(&text, Some(&name)).map_err(|error| failed(format!("{error:?}")))?;
    let options =
        [format!("--gpu-architecture={architecture}"), "--std=c++17".to_string(), "-default-device".to_string()];
    // SAFETY: the program was created above and is destroyed below, after its last use.
    unsafe {
        let compiled = result::compile_program(handle, &options);
        let log = result::get_program_log(handle).unwrap_or_default();
        let code = compiled.map_err(|_| {
            let log: Vec<u8> = log.iter().map(|c| *c as u8).take_while(|c| *c != 0).collect();
            failed(String::from_utf8_lossy(&log).into_owned())
        });
        let code = code.and_then(|()| {
            let mut size = 0;
            sys::nvrtcGetCUBINSize(handle, &mut size).result().map_err(|error| failed(format!("{error:?}")))?;
            let mut code = vec![0u8; size];
            sys::nvrtcGetCUBIN(handle, code.as_mut_ptr().cast())
                .result()
                .map_err(|error| failed(format!("{error:?}")))?;
            Ok(code)
        });
        let _ = result::destroy_program(handle);
        code
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::thread::available_parallelism;

    use super::*;

    fn compiler() -> bool {
        if is_present() {
            return true;
        }
        assert!(std::env::var_os("REQUIRE_NVRTC").is_none(), "{}", Error::NoCompiler);
        println!("skipped: no libnvrtc is on the library path");
        false
    }

    #[test]
    fn every_kernel_compiles_for_every_processor() {
        if !compiler() {
            return;
        }
        let all = kernels::cuda::PROGRAMS.iter().flat_map(|program| {
            let targets = TARGETS.into_iter().filter(move |target| program.is_for(*target));
            targets.map(move |target| (program, program.architecture(target)))
        });
        let waiting = Mutex::new(all);
        let compile_some = || {
            loop {
                let Some((program, architecture)) = waiting.lock().unwrap().next() else { return };
                let code = compile(program.name, &program.source(), &architecture);
                let code = code.unwrap_or_else(|error| panic!("{error}"));
                println!("{} for {architecture}: {} bytes", program.name, code.len());
                assert!(code.starts_with(b"\x7fELF"));
            }
        };
        // The compiler works in several threads at once.
        std::thread::scope(|scope| {
            (0..available_parallelism().map_or(1, usize::from)).for_each(|_| drop(scope.spawn(compile_some)));
        });
    }

    #[test]
    fn a_mistake_is_told_with_its_place() {
        if !compiler() {
            return;
        }
        let error = compile("wrong", "extern \"C\" __global__ void f() {\n  unknown();\n}", "sm_80").unwrap_err();
        assert!(error.to_string().contains("wrong.cu(2)"), "{error}");
    }
}
