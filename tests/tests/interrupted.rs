//! Commands that write model files, interrupted by ^C on the way: nothing is under a final name, and the next run succeeds.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use tests::house::files::root;
use tests::reprise::command;

/// Rows and columns of a matrix whose file takes a moment to write.
const SIZE: usize = 6144;

fn reference(name: &str) -> String {
    root().join("tests/data/reference").join(name).display().to_string()
}

/// Writes a folder with one matrix of zeros but for its first value. Its file takes no room on the disk.
fn large_model(folder: &Path, first: f32) {
    std::fs::create_dir(folder).unwrap();
    let bytes = SIZE * SIZE * size_of::<f32>();
    let header = format!(
        r#"{{"model.layers.0.mlp.up_proj.weight":{{"dtype":"F32","shape":[{SIZE},{SIZE}],"data_offsets":[0,{bytes}]}}}}"#
    );
    let mut file = File::create(folder.join("model.safetensors")).unwrap();
    file.write_all(&(header.len() as u64).to_le_bytes()).unwrap();
    file.write_all(header.as_bytes()).unwrap();
    file.write_all(&first.to_le_bytes()).unwrap();
    file.set_len((8 + header.len() + bytes) as u64).unwrap();
    std::fs::write(folder.join("config.json"), "{}").unwrap();
}

fn started(folder: &Path, args: &[&str]) -> Child {
    command(folder).args(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Interrupts a command as soon as it writes. Returns whether it was still at work.
fn interrupt(folder: &Path, args: &[&str], part: &str) -> bool {
    let mut child = started(folder, args);
    let deadline = Instant::now() + Duration::from_secs(120);
    while !folder.join(part).exists() && child.try_wait().unwrap().is_none() {
        assert!(Instant::now() < deadline, "{args:?} writes nothing");
        std::thread::yield_now();
    }
    // It may have ended just now. A program that sends signals would take longer to start than some commands work.
    let _ = rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::INT);
    !child.wait().unwrap().success()
}

#[test]
fn an_interrupted_command_leaves_nothing_under_a_final_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    large_model(&path.join("base"), 0.0);
    large_model(&path.join("fine"), 1.0);
    let recipe = "merge_method: linear\nmodels:\n  - model: base\n    parameters: {weight: 1}\n  - model: fine\n    \
                  parameters: {weight: 1}\n";
    std::fs::write(path.join("recipe.yaml"), recipe).unwrap();
    std::fs::copy(root().join("models/builtin/builtin.gguf"), path.join("builtin.gguf")).unwrap();
    let wide = reference("dense-wide");
    let commands: [(&[&str], &str, &str); 5] = [
        (&["quantize", "builtin.gguf", "out.gguf", "q4_k_m", "--threads", "1"], "out.gguf", "out.gguf.part"),
        (&["import", &wide, "--out", "in.gguf", "--quantize", "q4_k_m", "--threads", "1"], "in.gguf", "in.gguf.part"),
        (&["lora", "extract", "base", "fine", "--rank", "4", "--out", "adapter"], "adapter", "adapter.part"),
        (&["lora", "extract", "base", "fine", "--rank", "4", "--out", "a.gguf"], "a.gguf", "a.factors.part"),
        (&["merge", "recipe.yaml", "--out", "merged"], "merged", "merged.part"),
    ];
    for (args, out, part) in commands {
        // A command that was faster than the signal is done again.
        let mut tries = (0..200).map(|_| {
            for left in [out, part] {
                let left = path.join(left);
                let _ = std::fs::remove_dir_all(&left).or_else(|_| std::fs::remove_file(&left));
            }
            interrupt(path, args, part)
        });
        assert!(tries.any(|was_at_work| was_at_work), "{args:?} was never at work");
        assert!(!path.join(out).exists(), "{args:?} left {out}");
    }
    // What an interrupted run left is in no one's way.
    let again = command(path).args(commands[0].0).output().unwrap();
    assert!(again.status.success(), "{}", String::from_utf8_lossy(&again.stderr));
    assert!(path.join("out.gguf").is_file() && !path.join("out.gguf.part").exists());
}
