//! Files of deploy/, as far as they run on any machine: the linters of the registries are in deploy/lint.sh.

use regex::Regex;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tests::client::{Client, PATIENCE};
use tests::house::files::root;
use tests::service::{Service, http, run_ok, try_http};
use tokio::time::timeout;

fn text(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Tells whether a program is there. Prints that the test skips if not.
fn is_there(program: &str) -> bool {
    let found = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    if !found {
        println!("skipped: there is no {program}");
    }
    found
}

/// Metrics that a text names, without the endings of histograms, and that no line of the service's table has.
fn unknown_metrics(text: &str, table: &str) -> BTreeSet<String> {
    let name = Regex::new(r"\breprise_[a-z_]+").unwrap();
    let known: BTreeSet<&str> = name.find_iter(table).map(|found| found.as_str()).collect();
    let named = name.find_iter(text).map(|found| found.as_str());
    let is_known = |name: &str| {
        let of_histogram = ["_bucket", "_sum", "_count"].iter().filter_map(|end| name.strip_suffix(end));
        known.contains(name) || of_histogram.into_iter().any(|name| known.contains(name))
    };
    named.filter(|name| !is_known(name)).map(str::to_owned).collect()
}

#[test]
fn the_dashboard_and_the_alerts_name_metrics_that_are_there() {
    let table = text("services/doors/src/admin/metrics.rs");
    let dashboard: Value = serde_json::from_str(&text("deploy/grafana/dashboard.json")).unwrap();
    let expressions: Vec<&str> = dashboard["panels"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|panel| panel["targets"].as_array().unwrap())
        .map(|target| target["expr"].as_str().unwrap())
        .collect();
    assert!(expressions.len() > 12 && expressions.iter().all(|one| one.contains("reprise_")), "{expressions:#?}");
    let alerts = text("deploy/grafana/alerts.yaml");
    for page in [expressions.join("\n"), alerts.clone(), text("docs/operations.md")] {
        assert_eq!(unknown_metrics(&page, &table), BTreeSet::new());
    }
    // Each alert has its line in the operator's page.
    let operations = text("docs/operations.md");
    let names: Vec<&str> = alerts.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(names.len() >= 5, "{names:?}");
    for name in names {
        assert!(operations.contains(&format!("| `{name}` |")), "docs/operations.md says nothing about {name}");
    }

    let wrong = unknown_metrics("rate(reprise_queue_seconds_bucket[1m]) reprise_ghosts_total", &table);
    assert_eq!(wrong, BTreeSet::from(["reprise_ghosts_total".to_owned()]));
}

#[test]
fn the_unit_is_valid_and_keeps_what_it_does_not_need_from_the_service() {
    if !is_there("systemd-analyze") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let unit = folder.path().join("reprise.service");
    // The program is not installed on this machine.
    let written = text("deploy/systemd/reprise.service").replace("/usr/local/bin/reprise serve", "/bin/true");
    let analyse = |arguments: &[&str], unit_text: &str| {
        std::fs::write(&unit, unit_text).unwrap();
        let output = Command::new("systemd-analyze").args(arguments).arg(&unit).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&said).into_owned())
    };
    let (holds, said) = analyse(&["verify"], &written);
    assert!(holds && !said.contains("reprise.service:"), "{said}");
    let (_, said) = analyse(&["verify"], &written.replace("PrivateTmp=yes", "PrivateTemp=yes"));
    assert!(said.contains("PrivateTemp"), "a wrong key is found: {said}");

    // 20 is an exposure of 2.0 of 10.
    let limits = ["security", "--offline=true", "--threshold=20"];
    let (holds, said) = analyse(&limits, &written);
    assert!(holds, "{said}");
    let open: Vec<&str> =
        written.lines().filter(|line| !line.starts_with("Protect") && !line.starts_with("Cap")).collect();
    assert!(!analyse(&limits, &open.join("\n")).0, "a unit that may more is found");
}

#[test]
fn a_release_is_checked_and_has_notes_of_its_version() {
    let script = |arguments: &[&str]| {
        let output = Command::new(root().join("deploy/release.sh")).args(arguments).output().unwrap();
        let [said, error] = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        (output.status.success(), said + &error)
    };
    let (holds, notes) = script(&["--notes", "Unreleased"]);
    assert!(holds && notes.starts_with("### ") && !notes.contains("\n## "), "{notes:.300}");
    let (holds, said) = script(&["--notes", "77.0.0"]);
    assert!(!holds && said.contains("CHANGELOG.md says nothing about 77.0.0"), "{said}");

    if !is_there("objdump") || !is_there("cc") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(path("a.c"), "int main(void) { return 0; }").unwrap();
    for (out, flags) in [("stripped", &["-s"][..]), ("whole", &[]), ("large", &["-s", "-Wl,--section-start=.data=0x1"])]
    {
        let mut command = Command::new("cc");
        command.args(["-o", &path(out), &path("a.c")]);
        // Only its length counts.
        assert!(command.args(if out == "large" { &["-s"] } else { flags }).status().unwrap().success());
    }
    let file = std::fs::OpenOptions::new().write(true).open(path("large")).unwrap();
    file.set_len(46_000_001).unwrap();
    let (holds, said) = script(&["--check", &path("stripped")]);
    assert!(holds && said.contains("GLIBC_2."), "{said}");
    for (binary, glibc, why) in
        [("whole", "", "strip it"), ("large", "", "46000000 are the most"), ("stripped", "2.1", "newer than 2.1")]
    {
        let (holds, said) = script(&["--check", &path(binary), glibc]);
        assert!(!holds && said.contains(why), "{binary}: {said}");
    }
}

#[test]
fn the_app_of_home_assistant_hands_its_options_on() {
    if !is_there("jq") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (options, program) = (folder.path().join("options.json"), folder.path().join("reprise"));
    std::fs::write(&program, "#!/bin/sh\necho \"$@\"\nenv | grep REPRISE__ | sort\n").unwrap();
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let started = |json: &str| {
        std::fs::write(&options, json).unwrap();
        let mut command = Command::new("bash");
        command.arg(root().join("deploy/homeassistant/reprise/run.sh")).env_clear().env("PATH", "/usr/bin:/bin");
        command.env("OPTIONS", &options).env("REPRISE", &program).env("HOSTNAME", "app");
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let said = started(
        r#"{"api_key": "a word", "preset": "qwen3.5-4b", "allowed_hosts": ["home.local"], "settings": ["memory.total=8GiB"]}"#,
    );
    assert!(said.starts_with("serve --api-key a word --set memory.total=8GiB\n"), "{said}");
    assert!(said.contains("PRESET=qwen3.5-4b\n") && said.contains(r#"ALLOWED_HOSTS=["home.local","app"]"#), "{said}");
    let said = started(r#"{"api_key": null}"#);
    assert!(said.starts_with("serve\n") && said.contains("PRESET=auto\n"), "{said}");
    // What the script sets is what the configuration knows.
    let keys: Vec<(&str, &str)> = said.lines().filter_map(|line| line.split_once('=')).collect();
    let output = tests::reprise::command(folder.path()).args(["serve", "--print-config"]).envs(keys).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && printed.contains("without_key = true"), "{printed}");
}

/// nginx with a file of deploy/proxy, on a port of its own and in a folder of its own.
struct Nginx {
    child: tokio::process::Child,
    address: String,
    _folder: tempfile::TempDir,
}

impl Nginx {
    async fn start(site: &str) -> Nginx {
        let folder = tempfile::tempdir().unwrap();
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let address = format!("127.0.0.1:{port}");
        let configuration = Nginx::write(folder.path(), &site.replace("127.0.0.1:8080", &address));
        let mut command = tokio::process::Command::new("nginx");
        command.args(["-e", "stderr", "-c"]).arg(configuration).kill_on_drop(true);
        let child = command.spawn().unwrap();
        let up = async {
            while try_http(&address, "GET", "/healthz", &[], "").await.is_err() {
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, up).await.expect("nginx answers");
        Nginx { child, address, _folder: folder }
    }

    fn write(folder: &Path, site: &str) -> PathBuf {
        let here = folder.display();
        let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
        let temporary: String = temporary.iter().map(|kind| format!("{kind}_temp_path {here}/{kind};\n")).collect();
        let file = folder.join("nginx.conf");
        // One process: no worker outlives it.
        let head = format!("daemon off; master_process off; pid {here}/pid; events {{}}\n");
        let site = format!("http {{ access_log off;\n{temporary}{site}\n}}\n");
        std::fs::write(&file, head + &site).unwrap();
        file
    }
}

#[tokio::test]
async fn nginx_keeps_a_user_on_one_instance() {
    if !is_there("nginx") {
        return;
    }
    let named = async |name: &str| {
        let settings = [format!("preset.model={name}"), "limits.requests_per_minute_per_address=100000".to_owned()];
        Service::start(&["--set", &settings[0], "--set", &settings[1]]).await
    };
    let (one, two) = (named("one").await, named("two").await);
    let site = text("deploy/proxy/nginx-by-user.conf");
    assert!(site.contains("127.0.0.1:8081") && site.contains("127.0.0.1:8082"));
    let site = site.replace("127.0.0.1:8081", &one.address).replace("127.0.0.1:8082", &two.address);
    let named = "# \"~^rk_ID_\" 127.0.0.1:8081;".replace("127.0.0.1:8081", &one.address);
    assert!(site.contains(&named), "{site}");
    // Two keys that are named go where they are known.
    let map = format!("\"~^rk_one_\" {};\n    \"~^rk_two_\" {};", one.address, two.address);
    let site = site.replace(&named, &map);
    let mut nginx = Nginx::start(&site).await;
    let asked_as = async |scheme: &str, key: &str| {
        let headers = [("authorization", format!("{scheme} {key}"))];
        let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
        let (status, body) = http(&nginx.address, "GET", "/v1/models", &headers, "").await;
        assert_eq!(status, 200, "{body}");
        let models: Value = serde_json::from_str(&body).unwrap();
        models["data"][0]["id"].as_str().unwrap().to_owned()
    };
    let asked = async |key: &str| asked_as("Bearer", key).await;
    for number in 0..4 {
        let [first, second] = [asked(&format!("rk_one_{number}")).await, asked(&format!("rk_two_{number}")).await];
        assert_ne!(first, second, "{number}");
        assert_eq!(first, asked("rk_one_x").await);
    }
    let mut used = BTreeSet::new();
    for user in 0..12 {
        let key = format!("key-of-{user}");
        let instance = asked(&key).await;
        for _ in 0..3 {
            assert_eq!(asked(&key).await, instance, "{key}");
        }
        assert_eq!(asked_as("bearer", &key).await, instance, "{key}: the scheme in small letters");
        // A browser's websocket names the same user, and goes through.
        let protocols = format!("realtime, openai-insecure-api-key.{key}");
        let headers = [("sec-websocket-protocol", protocols.as_str())];
        let mut client = Client::connect(&nginx.address, "", &headers).await.unwrap();
        let created = client.event().await;
        assert_eq!(created["session"]["model"], instance.as_str(), "{key}: {created:#}");
        used.insert(instance);
    }
    assert_eq!(used.len(), 2, "both instances have users");
    nginx.child.kill().await.unwrap();
    one.stop().await;
    two.stop().await;
}

#[tokio::test]
async fn litestream_follows_the_store_and_gives_it_back() {
    if !is_there("litestream") {
        return;
    }
    let service = Service::start(&[]).await;
    let say = async |text: &str| {
        let messages = json!([{"role": "user", "content": text}]);
        let body = json!({"messages": messages, "metadata": {"session_id": "new"}, "max_tokens": 2});
        let (status, said) = service.http("POST", "/v1/chat/completions", &[], &body.to_string()).await;
        assert_eq!(status, 200, "{said}");
    };
    let store = service.folder().join("data/reprise.sqlite3");
    let replica = format!("file://{}", service.folder().join("replica").display());
    say("My word is pomegranate.").await;
    let mut command = tokio::process::Command::new("litestream");
    command.arg("replicate").arg(&store).arg(&replica).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    let mut follows = command.spawn().unwrap();
    say("And my other word is kumquat.").await;
    let given_back = async {
        for copy in 0.. {
            let path = service.folder().join(format!("copy-{copy}.sqlite3"));
            let mut restore = tokio::process::Command::new("litestream");
            restore.args(["restore", "-if-replica-exists", "-o"]).arg(&path).arg(&replica);
            restore.stdout(Stdio::null()).stderr(Stdio::null());
            if !restore.status().await.unwrap().success() || !path.exists() {
                continue;
            }
            let path = format!("store.path={}", path.display());
            let everything = run_ok(service.folder(), &["sessions", "export", "--all", "--set", &path]).await;
            if everything.contains("pomegranate") && everything.contains("kumquat") {
                return path;
            }
        }
        unreachable!("it tries for ever")
    };
    let path = timeout(PATIENCE, given_back).await.expect("both words come back");
    run_ok(service.folder(), &["sessions", "check", "--set", &path]).await;
    follows.kill().await.unwrap();
    service.stop().await;
}

#[test]
fn nginx_reads_the_file_with_tls() {
    if !is_there("nginx") || !is_there("openssl") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path().display().to_string();
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=talk", "-days", "2"])
        .args(["-keyout", &format!("{here}/talk.example.org.key"), "-out", &format!("{here}/talk.example.org.pem")])
        .stderr(Stdio::null())
        .status()
        .unwrap();
    assert!(made.success());
    let site = text("deploy/proxy/nginx.conf").replace("/etc/ssl", &here);
    let reads = |site: &str| {
        let file = Nginx::write(folder.path(), site);
        Command::new("nginx").args(["-t", "-q", "-e", "stderr", "-c"]).arg(file).status().unwrap().success()
    };
    assert!(reads(&site));
    assert!(!reads(&site.replace("proxy_buffering off", "proxy_bufering off")), "a wrong key is found");
}

#[test]
fn caddy_reads_its_file() {
    // Its flag of the version is a command.
    if Command::new("caddy").arg("version").stdout(Stdio::null()).status().is_err() {
        println!("skipped: there is no caddy");
        return;
    }
    let reads = |file: &str| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("Caddyfile");
        std::fs::write(&path, file).unwrap();
        let mut command = Command::new("caddy");
        command.args(["adapt", "--adapter", "caddyfile", "--config"]).arg(path).env("HOME", folder.path());
        command.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success()
    };
    let file = text("deploy/proxy/Caddyfile");
    let by_user = fences_of_scaling();
    assert!(reads(&file) && reads(&format!(":9999 {{\n{by_user}\n}}\n")), "{by_user}");
    assert!(!reads(&file.replace("flush_interval", "flash_interval")), "a wrong key is found");
}

/// Caddy's lines of docs/upstream-and-scaling.md.
fn fences_of_scaling() -> String {
    let page = text("docs/upstream-and-scaling.md");
    let fences = tests::snippets::fences(&page, "caddy");
    fences.into_iter().next().expect("a fence for Caddy")
}
