//! `reprise chat`: a conversation in the terminal, over the same websocket that voice frontends use.

mod screen;

use anyhow::{Context, Result, bail};
use reqwest::{Client, Method};
use screen::ChatScreen;
use serde_json::{Value, json};
use settings::{LimitSettings, Settings};
use std::io::{BufRead, IsTerminal};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;
use terminal::client::{Patience, ServiceAddress, ServiceClient};
use terminal::output::chain;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

/// Talks with a running service from this terminal
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Address of the service [default: the configuration's]
    #[arg(long)]
    url: Option<String>,
    /// Key, if the service demands one
    #[arg(long, env = "REPRISE_KEY", hide_env_values = true)]
    key: Option<String>,
    /// Continues this session
    #[arg(long)]
    session: Option<String>,
    /// Preset of a new session
    #[arg(long)]
    preset: Option<String>,
}

pub fn run(args: Args, settings: &Settings) -> Result<()> {
    let address = ServiceAddress::parse(&args.url.unwrap_or_else(|| own_url(settings)), args.key)?;
    let target = ChatTarget { address, limits: settings.limits.clone() };
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start the async runtime")?;
    let done = runtime.block_on(TerminalChat::talk(target, args.session, args.preset));
    // The thread that reads the keyboard waits for a line that may never be typed.
    runtime.shutdown_background();
    done
}

fn own_url(settings: &Settings) -> String {
    let server = &settings.server;
    let host = if server.host.is_unspecified() { IpAddr::V4(Ipv4Addr::LOCALHOST) } else { server.host };
    format!("http://{}", SocketAddr::new(host, server.port))
}

/// Address of the service, and how long it may be silent.
struct ChatTarget {
    address: ServiceAddress,
    limits: LimitSettings,
}

/// Pings that may be missed before the connection counts as lost.
const PINGS: u32 = 3;

impl ChatTarget {
    async fn connect(&self, query: &[(&str, Option<&str>)]) -> Result<ServiceClient> {
        let answer = Duration::from_millis(self.limits.handshake_ms);
        let silence = Duration::from_secs(self.limits.ping_s) * PINGS;
        ServiceClient::connect(&self.address, query, &self.limits, Patience { answer, silence }).await
    }

    async fn get(&self, path: &str) -> Result<Value> {
        self.ask(Method::GET, path).await
    }

    async fn ask(&self, method: Method, path: &str) -> Result<Value> {
        let http = Client::builder().timeout(Duration::from_millis(self.limits.handshake_ms)).build()?;
        self.address.ask(&http, method, path).await
    }
}

struct TerminalChat {
    target: ChatTarget,
    client: ServiceClient,
    screen: ChatScreen,
    session: String,
    /// Newest item that was heard: a new connection begins behind it.
    last_item: Option<String>,
    replying: Option<String>,
    waiting: bool,
    context: Option<Value>,
    /// Memories that this conversation left, oldest first.
    learned: Vec<Value>,
    /// Memories that the screen lists with numbers, in its order.
    listed: Vec<Value>,
    /// Ctrl-C for the whole conversation, so that none is lost during other work.
    interrupts: Signal,
    /// True if the standard input is a terminal: a new line interrupts the reply. From a pipe the next line waits for
    /// it.
    interactive: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    GoOn,
    Quit,
}

impl TerminalChat {
    async fn talk(target: ChatTarget, session: Option<String>, preset: Option<String>) -> Result<()> {
        let client = target.connect(&[("session", session.as_deref()), ("model", preset.as_deref())]).await?;
        let interactive = std::io::stdin().is_terminal();
        let mut screen = ChatScreen::new(interactive);
        screen.hello(&client.session);
        let chat = TerminalChat {
            target,
            session: client.session_id().to_owned(),
            client,
            screen,
            last_item: None,
            replying: None,
            waiting: false,
            context: None,
            learned: Vec::new(),
            listed: Vec::new(),
            interrupts: signal(SignalKind::interrupt()).context("cannot listen for signals")?,
            interactive,
        };
        chat.converse(lines()).await
    }

    async fn converse(mut self, mut lines: mpsc::Receiver<String>) -> Result<()> {
        let mut typed_all = false;
        self.screen.prompt();
        loop {
            let busy = self.is_busy();
            if typed_all && !busy {
                break;
            }
            let then = tokio::select! {
                line = lines.recv(), if !typed_all && (self.interactive || !busy) => match line {
                    Some(line) => self.line(line.trim()).await?,
                    None => {
                        typed_all = true;
                        Then::GoOn
                    }
                },
                _ = self.interrupts.recv() => self.interrupt().await?,
                arrival = self.client.arrival() => match arrival {
                    Ok(arrival) => {
                        self.event(&arrival.event).await;
                        Then::GoOn
                    }
                    Err(why) => self.again(&why).await?,
                },
            };
            self.screen.check()?;
            if then == Then::Quit {
                break;
            }
        }
        self.screen.goodbye(&self.session);
        self.client.close().await;
        Ok(())
    }

    fn is_busy(&self) -> bool {
        self.waiting || self.replying.is_some()
    }

    async fn line(&mut self, line: &str) -> Result<Then> {
        match line {
            "" => {}
            "/quit" | "/exit" => return Ok(Then::Quit),
            "/help" => self.screen.help(),
            "/context" => self.screen.context(self.context.as_ref()),
            "/summary" => match self.target.get(&format!("/v1/sessions/{}", self.session)).await {
                Ok(session) => self.screen.summary(&session),
                Err(error) => self.screen.note(&chain(&error)),
            },
            "/sessions" => match self.target.get("/v1/sessions?limit=20").await {
                Ok(sessions) => self.screen.sessions(&sessions, &self.session),
                Err(error) => self.screen.note(&chain(&error)),
            },
            "/memories" => match self.target.get("/v1/memories?limit=20").await {
                Ok(mut memories) => {
                    self.listed = memories["data"].as_array_mut().map(std::mem::take).unwrap_or_default();
                    self.screen.memories(&self.listed);
                }
                Err(error) => self.screen.note(&chain(&error)),
            },
            command if command == "/forget" || command.starts_with("/forget ") => {
                self.forget(command["/forget".len()..].trim()).await;
            }
            command if command.starts_with('/') => self.screen.note(&format!("no command {command}: see /help")),
            text => return self.ask(text).await,
        }
        if !self.is_busy() {
            self.screen.prompt();
        }
        Ok(Then::GoOn)
    }

    /// Forgets a memory by its number in the list, or the last one that was learned here.
    async fn forget(&mut self, number: &str) {
        let listed = || self.listed.get(number.parse::<usize>().ok()?.checked_sub(1)?);
        let memory = if number.is_empty() { self.learned.last() } else { listed() };
        let Some(memory) = memory.cloned() else {
            return self.screen.note(match number {
                "" => "nothing was learned in this conversation yet: /memories lists all, /forget NUMBER forgets one",
                _ => "no memory has this number: /memories lists them",
            });
        };
        let path = format!("/v1/memories/{}", memory["id"].as_str().unwrap_or_default());
        match self.target.ask(Method::DELETE, &path).await {
            Ok(_) => self.screen.forgotten(&memory),
            Err(error) => self.screen.note(&chain(&error)),
        }
        // One that cannot be forgotten is gone already, or belongs to what this key may not change.
        self.learned.retain(|learned| learned["id"] != memory["id"]);
    }

    /// Lists the memories that a correction or a wish may mean, so that `/forget NUMBER` chooses one.
    async fn unsure(&mut self, event: &Value) {
        let mut near = Vec::new();
        for id in event["near"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            // One that is gone meanwhile needs no choice.
            near.extend(self.target.get(&format!("/v1/memories/{id}")).await);
        }
        self.listed = near;
        self.screen.unsure(&self.listed, event["memory_id"].is_null());
    }

    async fn ask(&mut self, text: &str) -> Result<Then> {
        if self.replying.is_some() {
            self.cancel().await;
        }
        // What cannot be sent is lost with the connection, which the next arrival tells.
        let _ = self.client.create(None, "user", text, None).await;
        let _ = self.client.respond().await;
        self.waiting = true;
        Ok(Then::GoOn)
    }

    async fn interrupt(&mut self) -> Result<Then> {
        if !self.is_busy() {
            return Ok(Then::Quit);
        }
        self.cancel().await;
        Ok(Then::GoOn)
    }

    async fn cancel(&mut self) {
        let _ = self.client.say(json!({"type": "response.cancel"})).await;
    }

    async fn event(&mut self, event: &Value) {
        match event["type"].as_str().unwrap_or_default() {
            "response.created" if event["response"]["conversation_id"].is_string() => {
                self.replying = event["response"]["id"].as_str().map(str::to_owned);
                self.waiting = false;
            }
            "response.output_text.delta" => self.screen.delta(event["delta"].as_str().unwrap_or_default()),
            "response.function_call_arguments.done" => {
                let [name, arguments] = ["name", "arguments"].map(|key| event[key].as_str().unwrap_or_default());
                self.screen.note(&format!("calls {name} {arguments}"));
            }
            "response.done" if event["response"]["id"].as_str() == self.replying.as_deref() => {
                self.replying = None;
                self.screen.reply_done(&event["response"]);
                if !self.waiting {
                    self.screen.prompt();
                }
            }
            "conversation.item.added" => {
                if !self.is_busy() {
                    self.screen.missed(&event["item"]);
                }
                self.last_item = event["item"]["id"].as_str().map(str::to_owned);
            }
            "memory.learned" => {
                self.screen.learned(&event["memory"]);
                if self.learned.len() == MOST_LEARNED {
                    self.learned.remove(0);
                }
                self.learned.push(event["memory"].clone());
                if !self.is_busy() {
                    self.screen.prompt();
                }
            }
            "memory.unsure" => {
                self.unsure(event).await;
                if !self.is_busy() {
                    self.screen.prompt();
                }
            }
            "context.updated" => self.context = Some(event.clone()),
            "compaction.completed" => self.screen.note("a summary now stands for the older turns"),
            "error" => {
                self.waiting = false;
                // A cancel that crossed with the end of the reply is no trouble.
                if event["error"]["code"] != "response_cancel_not_active" {
                    self.screen.note(event["error"]["message"].as_str().unwrap_or("the service reported an error"));
                    self.screen.prompt();
                }
            }
            _ => {}
        }
    }

    async fn again(&mut self, why: &str) -> Result<Then> {
        self.screen.note(&format!("the connection was lost ({why}); connecting again"));
        (self.replying, self.waiting) = (None, false);
        for pause_s in PAUSES_S {
            tokio::select! {
                () = tokio::time::sleep(Duration::from_secs(pause_s)) => {}
                _ = self.interrupts.recv() => return Ok(Then::Quit),
            }
            let query = [("session", Some(self.session.as_str())), ("after", self.last_item.as_deref())];
            let Ok(client) = self.target.connect(&query).await else { continue };
            self.client = client;
            self.screen.note("connected again");
            self.screen.prompt();
            return Ok(Then::GoOn);
        }
        bail!("the service does not answer; continue later with --session {}", self.session)
    }
}

const MOST_LEARNED: usize = 64; // memories of this conversation that `/forget` can take back, one by one
const PAUSES_S: [u64; 6] = [0, 1, 2, 4, 8, 15];

/// Returns the typed lines. Reading the keyboard cannot be interrupted, so a thread does it.
fn lines() -> mpsc::Receiver<String> {
    let (send, lines) = mpsc::channel(1);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { break };
            if send.blocking_send(line).is_err() {
                break;
            }
        }
    });
    lines
}
