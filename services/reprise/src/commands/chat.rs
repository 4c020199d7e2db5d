//! `reprise chat`: a conversation in the terminal, over the same websocket that voice frontends use.

mod connection;
mod screen;

use anyhow::{Context, Result, bail};
use connection::{Connection, Door, Heard};
use screen::Screen;
use serde_json::{Value, json};
use settings::Settings;
use std::io::{BufRead, IsTerminal};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

/// Talks with a running service from this terminal
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Where the service is [default: the configuration's address]
    #[arg(long)]
    url: Option<String>,
    /// The key, where the service demands one
    #[arg(long, env = "REPRISE_KEY", hide_env_values = true)]
    key: Option<String>,
    /// Goes on with this session
    #[arg(long)]
    session: Option<String>,
    /// The preset of a new session
    #[arg(long)]
    preset: Option<String>,
}

pub fn run(args: Args, settings: &Settings) -> Result<()> {
    let door = Door::new(args.url.unwrap_or_else(|| own_url(settings)), args.key, &settings.limits)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("the async runtime")?;
    let done = runtime.block_on(Chat::talk(door, args.session, args.preset));
    // The thread that reads the keyboard waits for a line that nobody will type.
    runtime.shutdown_background();
    done
}

fn own_url(settings: &Settings) -> String {
    let server = &settings.server;
    let host = if server.host.is_unspecified() { IpAddr::V4(Ipv4Addr::LOCALHOST) } else { server.host };
    format!("http://{}", SocketAddr::new(host, server.port))
}

struct Chat {
    door: Door,
    connection: Connection,
    screen: Screen,
    session: String,
    /// The newest item that was heard: a connection that is made anew goes on behind it.
    last_item: Option<String>,
    /// The reply that is under way.
    replying: Option<String>,
    /// A reply was asked for.
    waiting: bool,
    /// The latest `context.updated`.
    context: Option<Value>,
    /// One for the whole talk: a key that is pressed while something else is done is not lost.
    interrupts: Signal,
    /// Somebody types: a new line interrupts the reply. From a pipe the next line waits for it.
    interactive: bool,
}

/// What the loop goes on with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    GoOn,
    Quit,
}

impl Chat {
    async fn talk(door: Door, session: Option<String>, preset: Option<String>) -> Result<()> {
        let mut connection = door.connect(session.as_deref(), None, preset.as_deref()).await?;
        let created = connection.first().await?;
        let interactive = std::io::stdin().is_terminal();
        let session = created["session"]["id"].as_str().context("the service names no session")?.to_owned();
        let mut screen = Screen::new(interactive);
        screen.hello(&created["session"]);
        let mut chat = Chat {
            door,
            connection,
            screen,
            session,
            last_item: None,
            replying: None,
            waiting: false,
            context: None,
            interrupts: signal(SignalKind::interrupt()).context("signals")?,
            interactive,
        };
        chat.converse(lines()).await
    }

    async fn converse(&mut self, mut lines: mpsc::Receiver<String>) -> Result<()> {
        let mut typed_all = false;
        self.screen.prompt();
        loop {
            let busy = self.waiting || self.replying.is_some();
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
                heard = self.connection.next() => match heard {
                    Heard::Event(event) => {
                        self.event(&event);
                        Then::GoOn
                    }
                    Heard::Lost(why) => self.again(&why).await?,
                },
            };
            if then == Then::Quit {
                break;
            }
        }
        self.screen.goodbye(&self.session);
        self.connection.close().await;
        Ok(())
    }

    async fn line(&mut self, line: &str) -> Result<Then> {
        match line {
            "" => {}
            "/quit" | "/exit" => return Ok(Then::Quit),
            "/help" => self.screen.help(),
            "/context" => self.screen.context(self.context.as_ref()),
            "/summary" => {
                let session = self.door.get(&format!("/v1/sessions/{}", self.session)).await;
                self.screen.summary(session);
            }
            "/sessions" => {
                let sessions = self.door.get("/v1/sessions?limit=20").await;
                self.screen.sessions(sessions, &self.session);
            }
            command if command.starts_with('/') => self.screen.note(&format!("no command {command}: see /help")),
            text => return self.ask(text).await,
        }
        if self.replying.is_none() && !self.waiting {
            self.screen.prompt();
        }
        Ok(Then::GoOn)
    }

    /// Who types while the assistant speaks interrupts it.
    async fn ask(&mut self, text: &str) -> Result<Then> {
        if self.replying.is_some() {
            self.connection.say(&json!({"type": "response.cancel"})).await;
        }
        let content = json!([{"type": "input_text", "text": text}]);
        let item = json!({"type": "message", "role": "user", "content": content});
        self.connection.say(&json!({"type": "conversation.item.create", "item": item})).await;
        self.connection.say(&json!({"type": "response.create"})).await;
        self.waiting = true;
        Ok(Then::GoOn)
    }

    async fn interrupt(&mut self) -> Result<Then> {
        if self.replying.is_none() && !self.waiting {
            return Ok(Then::Quit);
        }
        self.connection.say(&json!({"type": "response.cancel"})).await;
        Ok(Then::GoOn)
    }

    fn event(&mut self, event: &Value) {
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
                if self.replying.is_none() && !self.waiting {
                    self.screen.missed(&event["item"]);
                }
                self.last_item = event["item"]["id"].as_str().map(str::to_owned);
            }
            "context.updated" => self.context = Some(event.clone()),
            "compaction.completed" => self.screen.note("older turns are told by a summary from now on"),
            "error" => {
                self.waiting = false;
                // A cancel that crossed with the end of the reply is no trouble.
                if event["error"]["code"] != "response_cancel_not_active" {
                    self.screen.note(event["error"]["message"].as_str().unwrap_or("the service reports an error"));
                    self.screen.prompt();
                }
            }
            _ => {}
        }
    }

    /// The connection is gone: the session is not.
    async fn again(&mut self, why: &str) -> Result<Then> {
        self.screen.note(&format!("the connection is lost ({why}); connecting again"));
        (self.replying, self.waiting) = (None, false);
        for pause_s in PAUSES_S {
            tokio::select! {
                () = tokio::time::sleep(Duration::from_secs(pause_s)) => {}
                _ = self.interrupts.recv() => return Ok(Then::Quit),
            }
            let connected = self.door.connect(Some(&self.session), self.last_item.as_deref(), None).await;
            let Ok(mut connection) = connected else { continue };
            if connection.first().await.is_ok() {
                self.connection = connection;
                self.screen.note("connected again");
                self.screen.prompt();
                return Ok(Then::GoOn);
            }
        }
        bail!("the service does not come back; go on later with --session {}", self.session)
    }
}

const PAUSES_S: [u64; 6] = [0, 1, 2, 4, 8, 15];

/// What is typed, line by line. Reading the keyboard cannot be interrupted, so a thread does it.
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
