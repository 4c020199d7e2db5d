//! Commands and code of the README and of docs/talking.md, run as people type them.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use tests::client::PATIENCE;
use tests::service::Service;
use tokio::process::Command;
use tokio::time::timeout;

fn snippets(page: &str, heading: &str, language: &str) -> Vec<String> {
    let page = std::fs::read_to_string(tests::house::files::root().join(page)).unwrap();
    let section = page.split(&format!("\n## {heading}\n")).nth(1).expect("the section is there");
    let section = section.split("\n## ").next().unwrap_or_default();
    let fence = format!("```{language}\n");
    let fences = section.split(&fence).skip(1);
    fences.map(|rest| rest.split("```").next().unwrap_or_default().to_owned()).collect()
}

async fn typed(service: &Service, program: &Path, arguments: &[&str], code: &str) -> Output {
    let code = code.replace("127.0.0.1:8080", &service.address);
    let tools = service.folder().join("tools");
    std::fs::create_dir_all(&tools).unwrap();
    let _ = std::os::unix::fs::symlink(tests::reprise::binary(), tools.join("reprise"));
    let mut command = Command::new(program);
    command.args(arguments).arg(&code).env_clear().env("HOME", service.folder()).stdin(Stdio::null());
    command.env("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin", tools.display())).kill_on_drop(true);
    timeout(PATIENCE, command.current_dir(service.folder()).output()).await.expect("it ends").expect("it starts")
}

#[tokio::test]
async fn what_one_types_into_a_shell() {
    let service = Service::start(&[]).await;
    let all = snippets("README.md", "Talk to it", "sh");
    assert!(all.len() >= 2, "{all:?}");
    let has_curl = Path::new("/usr/bin/curl").exists();
    for code in all {
        if code.starts_with("curl") && !has_curl {
            println!("skipped: there is no curl");
            continue;
        }
        let output = typed(&service, Path::new("/bin/bash"), &["-ec"], &code).await;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{code}: {}", String::from_utf8_lossy(&output.stderr));
        if code.starts_with("curl") {
            let answer: serde_json::Value = serde_json::from_str(&said).unwrap_or_else(|_| panic!("{code}: {said}"));
            let id = answer["reprise"]["session_id"].as_str().unwrap_or_else(|| panic!("{answer:#}"));
            service.get(&format!("/v1/sessions/{id}")).await;
        }
    }
    service.stop().await;
}

#[tokio::test]
async fn what_one_writes_in_python() {
    let venv = std::env::var_os("REPRISE_CLIENTS_VENV").map(|venv| PathBuf::from(venv).join("bin/python"));
    let Some(python) = venv.filter(|python| python.exists()) else {
        println!("skipped: REPRISE_CLIENTS_VENV names no virtual environment (see tests/clients.rs)");
        return;
    };
    let service = Service::start(&["--set", "preset.reply_reserve_tokens=40"]).await;
    for code in snippets("docs/talking.md", "From Python", "python") {
        let output = typed(&service, &python, &["-c"], &code).await;
        assert!(output.status.success(), "{code}: {}", String::from_utf8_lossy(&output.stderr));
    }
    service.stop().await;
}
