//! The page at `/` in a real browser: Debian's Chromium without a screen, told what to do over its debugging port.

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Stdio;
use tests::client::PATIENCE;
use tests::service::{Service, run_ok};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{WebSocketStream, client_async};

struct Page {
    _browser: Child,
    socket: WebSocketStream<TcpStream>,
    asked: u64,
    /// The page, among all that the browser shows.
    target: Value,
}

fn browser() -> Option<&'static str> {
    let places = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
    let found = places.into_iter().find(|place| Path::new(place).exists());
    if found.is_none() {
        println!("skipped: there is no browser (apt-get install chromium)");
        assert!(std::env::var_os("REQUIRE_BROWSER").is_none(), "a browser was to be there");
    }
    found
}

impl Page {
    async fn open(browser: &str, service: &Service) -> Page {
        let url = format!("http://{}/", service.address);
        let mut command = Command::new(browser);
        command.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]);
        command
            .arg("--remote-debugging-port=0")
            .arg(format!("--user-data-dir={}", service.folder().join("b").display()));
        command.arg(&url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().expect("the browser starts");
        let mut said = BufReader::new(child.stderr.take().expect("its words")).lines();
        let debugger = loop {
            let line = timeout(PATIENCE, said.next_line()).await.expect("it listens").unwrap().expect("it stays");
            if let Some(at) = line.find("ws://") {
                break line[at..].trim().to_owned();
            }
        };
        // The test has to read what it says further.
        tokio::spawn(async move { while let Ok(Some(_)) = said.next_line().await {} });
        let address = debugger["ws://".len()..].split('/').next().expect("an address");
        let stream = TcpStream::connect(address).await.expect("a connection");
        let (socket, _) = client_async(&debugger, stream).await.expect("a debugger");
        let mut page = Page { _browser: child, socket, asked: 0, target: Value::Null };
        let target = loop {
            let targets = page.ask("Target.getTargets", json!({})).await.unwrap();
            let is_ours = |target: &&Value| target["type"] == "page" && target["url"] == url;
            if let Some(found) = targets["targetInfos"].as_array().and_then(|all| all.iter().find(is_ours)) {
                break found["targetId"].clone();
            }
        };
        page.target =
            page.ask("Target.attachToTarget", json!({"targetId": target, "flatten": true})).await.unwrap()["sessionId"]
                .clone();
        page
    }

    async fn ask(&mut self, method: &str, params: Value) -> Result<Value, Value> {
        self.asked += 1;
        let mut message = json!({"id": self.asked, "method": method, "params": params});
        if !self.target.is_null() {
            message["sessionId"] = self.target.clone();
        }
        self.socket.send(Message::text(message.to_string())).await.expect("it listens");
        loop {
            let heard = timeout(PATIENCE, self.socket.next()).await;
            let heard = heard.unwrap_or_else(|_| panic!("nothing comes of {message}"));
            let Message::Text(text) = heard.expect("it answers").expect("it answers") else { continue };
            let answer: Value = serde_json::from_str(&text).expect("JSON");
            if answer["id"] == self.asked {
                return if answer["error"].is_null() { Ok(answer["result"].clone()) } else { Err(answer) };
            }
        }
    }

    async fn run(&mut self, script: &str) -> Value {
        let params = json!({"expression": script, "awaitPromise": true, "returnByValue": true});
        let answer = self.ask("Runtime.evaluate", params).await.unwrap();
        assert!(answer["exceptionDetails"].is_null(), "{script}: {answer:#}");
        answer["result"]["value"].clone()
    }

    /// Waits until an expression has a value, and looks whenever the page changes. A page that goes away takes the
    /// question with it, so the next one is asked again.
    async fn until(&mut self, what: &str) -> Value {
        let all = "{ subtree: true, childList: true, attributes: true, characterData: true }";
        let script = format!(
            "new Promise((done) => {{ \
               const look = () => {{ const found = {what}; if (found) {{ watch.disconnect(); done(found); }} }}; \
               const watch = new MutationObserver(look); watch.observe(document, {all}); look(); }})"
        );
        let params = json!({"expression": script, "awaitPromise": true, "returnByValue": true});
        loop {
            if let Ok(answer) = self.ask("Runtime.evaluate", params.clone()).await {
                assert!(answer["exceptionDetails"].is_null(), "{what}: {answer:#}");
                return answer["result"]["value"].clone();
            }
        }
    }

    async fn type_in(&mut self, words: &str) {
        self.run(&format!(
            "document.getElementById('words').value = {words:?}; document.getElementById('form').requestSubmit()"
        ))
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_talks_takes_a_thumb_and_says_when_old_turns_are_summarised() {
    let Some(browser) = browser() else { return };
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("reprise.toml"), "[model]\nctx_size = 1000\n").unwrap();
    let service = Service::built_in_model_in_folder(folder, &[]).await;
    let mut page = Page::open(browser, &service).await;
    let model = page.until("document.getElementById('model')?.textContent").await;
    assert_eq!(model, "reprise-builtin");
    page.type_in("Hello").await;
    let replied =
        page.until("document.querySelector('.cost button') && document.querySelector('.assistant').textContent").await;
    assert!(replied.as_str().is_some_and(|said| said.contains("Hello")), "{replied}");
    assert_eq!(page.run("document.querySelector('.user').textContent").await, "Hello");
    let fill = page.until("document.getElementById('fill').textContent").await;
    assert!(fill.as_str().is_some_and(|fill| fill.ends_with("of 1000 tokens")), "{fill}");

    page.run("document.querySelector('.cost button').click()").await;
    page.until("document.querySelector('.cost button').ariaPressed === 'true'").await;
    let session = page.run("location.hash.slice(1)").await;
    let session = session.as_str().unwrap().to_owned();
    let exported = run_ok(service.folder(), &["sessions", "export", &session]).await;
    let thumbs = exported
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|line| line.to_string().contains("\"feedback\":1"));
    assert_eq!(thumbs.count(), 1, "{exported}");

    let summarised =
        "[...document.querySelectorAll('.note')].some((note) => note.textContent.includes('told by a summary'))";
    // Full enough to be summarised in the next silence.
    let mut turns = 1;
    while page.run("document.getElementById('meter').value < 0.66").await == true {
        turns += 1;
        assert!(turns < 60, "the window never fills");
        let words =
            "I am telling you a long story about the kitchen, the garden and the children who were playing there.";
        page.type_in(words).await;
        page.until(&format!("document.querySelectorAll('.cost').length >= {turns} && reply === null")).await;
    }
    page.until(summarised).await;
    // A user that comes back sees what was said.
    let url = format!("http://{}/?again#{session}", service.address);
    page.ask("Page.navigate", json!({"url": url})).await.unwrap();
    let shown = page.until("location.search && document.querySelectorAll('.assistant').length").await;
    assert!(shown.as_u64() >= Some(1), "{shown}");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_asks_for_a_key_where_one_is_needed() {
    let Some(browser) = browser() else { return };
    let folder = tempfile::tempdir().unwrap();
    let made = run_ok(folder.path(), &["keys", "create", "--user", "ann", "--json"]).await;
    let made: Value = serde_json::from_str(&made).unwrap();
    let service = Service::built_in_model_in_folder(folder, &["--set", "auth.required=always"]).await;
    let mut page = Page::open(browser, &service).await;
    let asked = page.until("document.querySelector('.note')?.textContent").await;
    assert!(asked.as_str().is_some_and(|asked| asked.contains("wants a key")), "{asked}");
    page.type_in(made["key"].as_str().unwrap()).await;
    page.until("document.getElementById('model')?.textContent").await;
    page.type_in("Hello").await;
    page.until("document.querySelector('.cost button')").await;
    service.stop().await;
}
