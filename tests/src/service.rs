//! `reprise serve` as users start it: the real binary, in a folder of its own, with a tiny model.

use crate::client::{Client, PATIENCE, Refused};
pub use crate::http::{http, try_http};
use crate::kept_secret;
use serde_json::Value;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// A random model of the family: it replies nonsense, at a pace that tests can wait for.
pub fn tiny_model() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/data/reference/dense-wide"))
}

pub struct Service {
    child: Child,
    folder: Option<TempDir>,
    /// `127.0.0.1:PORT`.
    pub address: String,
    pub screen: String,
    log: Option<JoinHandle<String>>,
    /// Lines of the log that hold a key, or what a user said.
    leaks: Arc<Mutex<Vec<String>>>,
}

pub type NotStarted = (ExitStatus, String);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Log {
    Shown,
    Kept,
}

/// Starts a program in a namespace of its own, where it may mount what it likes.
const IN_ITS_OWN_NAMESPACE: [&str; 4] = ["unshare", "--user", "--map-root-user", "--mount"];

impl Service {
    pub async fn start(more: &[&str]) -> Service {
        Service::in_folder(tempfile::tempdir().expect("a folder"), more).await
    }

    pub async fn with_the_built_in_model() -> Service {
        Service::built_in_model_in_folder(tempfile::tempdir().expect("a folder"), &[]).await
    }

    pub async fn built_in_model_in_folder(folder: TempDir, more: &[&str]) -> Service {
        let first = ["serve", "--port", "0", "--preset", "builtin", "--set", "wyoming.port=0"];
        let command = command(folder.path(), &[&first, more].concat());
        started(Service::launch(command, folder, Log::Shown).await)
    }

    pub async fn with_model(folder: TempDir, model: &Path, more: &[&str]) -> Service {
        let model = model.to_string_lossy();
        let first = ["serve", "--port", "0", "--model", &*model, "--set", "wyoming.port=0"];
        let command = command(folder.path(), &[&first, more].concat());
        started(Service::launch(command, folder, Log::Shown).await)
    }

    pub async fn in_folder(folder: TempDir, more: &[&str]) -> Service {
        started(Service::try_start(folder, more).await)
    }

    pub async fn try_start(folder: TempDir, more: &[&str]) -> Result<Service, NotStarted> {
        let command = command(folder.path(), &serve(more));
        Service::launch(command, folder, Log::Shown).await
    }

    /// A shell script runs first, and may mount what it likes (see `may_mount`).
    pub async fn try_start_after(script: &str, folder: TempDir, more: &[&str]) -> Result<Service, NotStarted> {
        let [program, arguments @ ..] = IN_ITS_OWN_NAMESPACE;
        let mut command = Command::new(program);
        command.args(arguments).args(["bash", "-ec", &format!("{script}\nexec \"$@\""), "bash"]);
        command.arg(crate::reprise::binary()).args(serve(more));
        command.current_dir(folder.path()).env_clear().env("HOME", folder.path()).kill_on_drop(true);
        Service::launch(command, folder, Log::Shown).await
    }

    /// Starts with limits of the system to open files: the one that holds, and the one up to which the service may
    /// raise it.
    pub async fn with_open_files(folder: TempDir, soft: usize, hard: usize, more: &[&str]) -> Service {
        started(Service::try_with_open_files(folder, soft, hard, more).await)
    }

    pub async fn try_with_open_files(
        folder: TempDir,
        soft: usize,
        hard: usize,
        more: &[&str],
    ) -> Result<Service, NotStarted> {
        let mut command = Command::new("bash");
        command.args(["-ec", &format!("ulimit -Sn {soft}\nulimit -Hn {hard}\nexec \"$@\""), "bash"]);
        command.arg(crate::reprise::binary()).args(serve(more));
        command.current_dir(folder.path()).env_clear().env("HOME", folder.path()).kill_on_drop(true);
        Service::launch(command, folder, Log::Kept).await
    }

    /// Starts with environment variables that the system or its libraries read.
    pub async fn with_environment(folder: TempDir, variables: &[(&str, &Path)], more: &[&str]) -> Service {
        let mut command = command(folder.path(), &serve(more));
        command.envs(variables.iter().copied());
        started(Service::launch(command, folder, Log::Shown).await)
    }

    pub async fn with_arguments(
        folder: TempDir,
        variables: &[(&str, PathBuf)],
        arguments: &[&str],
    ) -> Result<Service, NotStarted> {
        let mut command = command(folder.path(), arguments);
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        Service::launch(command, folder, Log::Kept).await
    }

    async fn launch(mut command: Command, folder: TempDir, log_goes: Log) -> Result<Service, NotStarted> {
        let may_tell = command.as_std().get_args().any(|argument| argument == "logging.user_text=true");
        for (name, value) in command.as_std().get_envs() {
            let value = value.map(OsStr::to_string_lossy).unwrap_or_default();
            kept_secret::note_header(&name.to_string_lossy(), &value);
        }
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let mut lines = BufReader::new(child.stdout.take().expect("an output")).lines();
        let mut log = child.stderr.take().expect("a log");
        let (mut screen, mut address) = (String::new(), None);
        while let Some(line) = timeout(PATIENCE, lines.next_line()).await.expect("a line").expect("text") {
            if let Some((_, url)) = line.split_once("address   http://") {
                address = Some(url.to_owned());
            }
            screen.push_str(&line);
            screen.push('\n');
            // The last line of the screen.
            if line.contains("reprise chat") {
                break;
            }
        }
        let Some(address) = address else {
            let mut error = String::new();
            log.read_to_string(&mut error).await.expect("text");
            let status = timeout(PATIENCE, child.wait()).await.expect("an end").expect("a status");
            return Err((status, error));
        };
        let leaks = Arc::<Mutex<Vec<String>>>::default();
        let leaked = leaks.clone();
        // A service whose log is not read waits once the pipe is full. A test that fails shows the log.
        let log = tokio::spawn(async move {
            let (mut lines, mut all) = (BufReader::new(log).lines(), String::new());
            while let Ok(Some(line)) = lines.next_line().await {
                if let Some(what) = kept_secret::leaks(&line, may_tell) {
                    leaked.lock().expect("no test panics here").push(format!("{what:?} in: {line}"));
                }
                if log_goes == Log::Shown {
                    eprintln!("service: {line}");
                }
                all += &line;
                all.push('\n');
            }
            all
        });
        Ok(Service { child, folder: Some(folder), address, screen, log: Some(log), leaks })
    }

    pub fn folder(&self) -> &Path {
        self.folder.as_ref().expect("the folder is here until the end").path()
    }

    pub fn folder_inside(&self) -> PathBuf {
        let pid = self.child.id().expect("it runs");
        let folder = self.folder().strip_prefix("/").expect("a whole path");
        Path::new("/proc").join(pid.to_string()).join("root").join(folder)
    }

    pub async fn connect(&self, query: &str) -> Client {
        self.try_connect(query, &[]).await.unwrap_or_else(|refused| panic!("{refused:?}"))
    }

    pub async fn try_connect(&self, query: &str, headers: &[(&str, &str)]) -> Result<Client, Refused> {
        Client::connect(&self.address, query, headers).await
    }

    pub async fn http(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> (u16, String) {
        http(&self.address, method, path, headers, body).await
    }

    pub async fn get(&self, path: &str) -> Value {
        let (status, body) = self.http("GET", path, &[], "").await;
        assert_eq!(status, 200, "{path}: {body}");
        serde_json::from_str(&body).unwrap_or_else(|error| panic!("{path}: {error}: {body}"))
    }

    pub fn open_files(&self) -> usize {
        let pid = self.child.id().expect("it runs");
        std::fs::read_dir(format!("/proc/{pid}/fd")).expect("Linux tells").count()
    }

    /// Files that the process may open, and up to which it may raise that.
    pub fn open_files_limit(&self) -> (usize, usize) {
        let pid = self.child.id().expect("it runs");
        let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).expect("Linux tells");
        let line = limits.lines().find_map(|line| line.strip_prefix("Max open files")).expect("a line");
        let mut numbers = line.split_whitespace().filter_map(|number| number.parse().ok());
        (numbers.next().expect("a number"), numbers.next().expect("a number"))
    }

    /// Memory of the process in bytes, as the system tells it: `VmHWM` is the most that it ever had, `VmRSS` what it has.
    pub fn memory_bytes(&self, line: &str) -> u64 {
        let pid = self.child.id().expect("it runs");
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("Linux tells");
        let kib = status.lines().find_map(|found| found.strip_prefix(line)?.strip_prefix(':')?.strip_suffix("kB"));
        kib.and_then(|kib| kib.trim().parse::<u64>().ok()).expect("a number of KiB") << 10
    }

    /// Ends the process as a power failure does: it flushes nothing and closes no connection.
    pub async fn kill(mut self) -> TempDir {
        self.child.kill().await.expect("it can be killed");
        self.read_log().await;
        self.folder.take().expect("the folder is here until the end")
    }

    pub fn ask_to_stop(&self) {
        let pid = self.child.id().expect("it runs").to_string();
        let sent = std::process::Command::new("kill").args(["-TERM", &pid]).status().expect("kill runs");
        assert!(sent.success());
    }

    pub async fn stopped(mut self) -> (ExitStatus, TempDir) {
        let status = timeout(PATIENCE, self.child.wait()).await.expect("it stops").expect("a status");
        self.read_log().await;
        (status, self.folder.take().expect("the folder is here until the end"))
    }

    pub async fn stop(self) -> TempDir {
        self.ask_to_stop();
        let (status, folder) = self.stopped().await;
        assert!(status.success(), "{status}");
        folder
    }

    pub async fn stop_and_read_log(mut self) -> String {
        self.ask_to_stop();
        let status = timeout(PATIENCE, self.child.wait()).await.expect("it stops").expect("a status");
        assert!(status.success(), "{status}");
        self.read_log().await
    }

    async fn read_log(&mut self) -> String {
        match self.log.take() {
            Some(log) => timeout(PATIENCE, log).await.expect("the log ends").expect("the log is text"),
            None => String::new(),
        }
    }
}

/// Check of every test: no service writes a key or what a user said into its log.
impl Drop for Service {
    fn drop(&mut self) {
        let leaks = std::mem::take(&mut *self.leaks.lock().unwrap_or_else(|poisoned| poisoned.into_inner()));
        if !std::thread::panicking() {
            assert!(leaks.is_empty(), "the log holds what it must not: {leaks:#?}");
        }
    }
}

/// Tells whether this machine lets a user mount something in a namespace. Prints that the test skips if not.
pub async fn may_mount() -> bool {
    let [program, arguments @ ..] = IN_ITS_OWN_NAMESPACE;
    let tried = Command::new(program).args(arguments).args(["mount", "-t", "tmpfs", "none", "/tmp"]).output().await;
    let may = tried.is_ok_and(|output| output.status.success());
    if !may {
        println!("skipped: this machine does not let a test mount a disk of its own");
    }
    may
}

fn started(started: Result<Service, NotStarted>) -> Service {
    started.unwrap_or_else(|(status, error)| panic!("the service does not start ({status}): {error}"))
}

fn serve(more: &[&str]) -> Vec<String> {
    let model = tiny_model().to_string_lossy().into_owned();
    let port: &[&str] = if more.contains(&"--port") { &[] } else { &["--port", "0"] };
    // Services beside each other cannot all have the usual port.
    let is_wyoming = |argument: &&str| argument.starts_with("wyoming.");
    let wyoming: &[&str] = if more.iter().any(is_wyoming) { &[] } else { &["--set", "wyoming.port=0"] };
    let first = [&["serve", "--model", &model], port, wyoming].concat();
    first.iter().chain(more).map(|argument| argument.to_string()).collect()
}

pub fn command<S: AsRef<OsStr>>(folder: &Path, arguments: &[S]) -> Command {
    let mut command = Command::from(crate::reprise::command(folder));
    command.args(arguments).kill_on_drop(true);
    command
}

pub async fn run(folder: &Path, arguments: &[&str]) -> Output {
    let output = command(folder, arguments).stdin(Stdio::null()).output();
    let output = timeout(PATIENCE, output).await.expect("it ends").expect("the binary starts");
    for line in String::from_utf8_lossy(&output.stderr).lines() {
        assert_eq!(kept_secret::leaks(line, true), None, "a secret is told: {line}");
    }
    output
}

pub async fn run_ok(folder: &Path, arguments: &[&str]) -> String {
    let output = run(folder, arguments).await;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

pub async fn check_store(folder: &Path) {
    let report = run_ok(folder, &["sessions", "check", "--json"]).await;
    let report: Value = serde_json::from_str(&report).expect("JSON");
    assert_eq!(report["problems"], serde_json::json!([]), "{report:#}");
}
