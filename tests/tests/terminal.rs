//! `reprise chat` as a user before a terminal sees it, with the real binary.

use std::path::Path;
use std::process::Stdio;
use tests::client::PATIENCE;
use tests::service::Service;
use tests::upstream::StandIn;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;
use tokio::time::timeout;

const CTRL_C: &str = "\u{3}";

/// A terminal that `script` makes: what is shown so far, and the keys.
struct Terminal {
    child: tokio::process::Child,
    shown: String,
}

impl Terminal {
    fn open(service: &Service) -> Option<Terminal> {
        if !Path::new("/usr/bin/script").exists() {
            println!("skipped: there is no `script` to make a terminal with");
            return None;
        }
        let binary = tests::reprise::binary().display();
        let chat = format!("exec {binary} chat --url http://{}", service.address);
        let mut command = Command::new("/usr/bin/script");
        command.args(["-qfec", &chat, "/dev/null"]).env_clear().env("HOME", service.folder()).env("TERM", "dumb");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).kill_on_drop(true);
        Some(Terminal { child: command.spawn().unwrap(), shown: String::new() })
    }

    async fn press(&mut self, keys: &str) {
        self.shown.clear();
        let keyboard = self.child.stdin.as_mut().unwrap();
        keyboard.write_all(keys.as_bytes()).await.unwrap();
        keyboard.flush().await.unwrap();
    }

    /// Waits until the screen shows one of these words, and returns which.
    async fn until(&mut self, words: &[&str]) -> usize {
        loop {
            if let Some(at) = words.iter().position(|word| self.shown.contains(word)) {
                return at;
            }
            let mut bytes = [0; 1024];
            let read = timeout(PATIENCE, self.child.stdout.as_mut().unwrap().read(&mut bytes)).await;
            let count = read.unwrap_or_else(|_| panic!("no {words:?} in {:?}", self.shown)).unwrap();
            assert!(count > 0, "it ended without {words:?}: {:?}", self.shown);
            self.shown += &String::from_utf8_lossy(&bytes[..count]);
        }
    }

    async fn ends_well(&mut self) {
        let status = timeout(PATIENCE, self.child.wait()).await.expect("it ends").unwrap();
        assert!(status.success(), "{status}");
    }
}

#[tokio::test]
async fn ctrl_c_stops_the_reply_before_and_after_its_first_word_and_then_the_client() {
    let mut stand_in = StandIn::start().await;
    let service = Service::start(&["--set", &format!("upstream.url={}", stand_in.url)]).await;
    let Some(mut terminal) = Terminal::open(&service) else { return };
    terminal.until(&["> "]).await;

    terminal.press("Are you there?\n").await;
    let silent = stand_in.next().await;
    terminal.press(CTRL_C).await;
    terminal.until(&["[stopped]"]).await;
    silent.hung_up().await;

    terminal.press("Tell me everything.\n").await;
    let mut talking = stand_in.next().await;
    talking.say("It began long ago").await;
    terminal.until(&["It began long ago"]).await;
    terminal.press(CTRL_C).await;
    terminal.until(&["[stopped]"]).await;
    talking.hung_up().await;

    // The talk goes on, and the model knows that it was interrupted where it was.
    terminal.press("Never mind.\n").await;
    let mut last = stand_in.next().await;
    let said = last.request["messages"].to_string();
    assert!(said.contains("It began long ago") && said.contains("Are you there?"), "{said}");
    last.say("All right.").await;
    last.done().await;
    terminal.until(&["All right.\r\n> "]).await;
    terminal.press("/sessions\n").await;
    terminal.until(&["(this)"]).await;

    // Where nothing is said, it is the end, and says how to go on.
    terminal.press(CTRL_C).await;
    terminal.until(&["continue later with: reprise chat --session sess_"]).await;
    terminal.ends_well().await;
    service.stop().await;
}

#[tokio::test]
async fn the_built_in_model_talks_in_a_terminal_and_is_interrupted() {
    let service = Service::with_the_built_in_model().await;
    let Some(mut terminal) = Terminal::open(&service) else { return };
    terminal.until(&["> "]).await;
    terminal.press("Hello\n").await;
    // What was typed, what was answered, and the prompt again.
    terminal.until(&["\r\n> "]).await;
    let answer = terminal.shown.split_once("Hello\r\n").map_or("", |(_, answer)| answer);
    assert!(answer.chars().filter(|c| c.is_alphabetic()).count() > 1, "no answer: {:?}", terminal.shown);
    terminal.press("/context\n").await;
    terminal.until(&[" tokens ("]).await;
    terminal.press("Remember that I like tea.\n").await;
    terminal.until(&["tea.\r\n"]).await;
    terminal.until(&["\r\n> "]).await;
    // A pin is kept beside the reply, and is there soon after it.
    for attempt in 0.. {
        assert!(attempt < 100, "nothing is kept");
        terminal.press("/summary\n").await;
        if terminal.until(&["[kept word for word: Remember that I like tea.]", "[no summary yet"]).await == 0 {
            break;
        }
    }
    // The reply may be done before the test can press a key: then the key changes nothing, or is the end, perhaps after
    // the prompt is shown. So the next attempt has a terminal of its own.
    for attempt in 0.. {
        assert!(attempt < 20, "the model never has much to say");
        terminal.press("Tell me a story.\n").await;
        terminal.until(&["story.\r\n"]).await;
        terminal.press(CTRL_C).await;
        let shown = terminal.until(&["[stopped]", "continue later", "\r\n> "]).await;
        if shown == 0 {
            break;
        }
        if shown == 1 {
            terminal.ends_well().await;
        }
        terminal = Terminal::open(&service).unwrap();
        terminal.until(&["> "]).await;
    }
    terminal.press("/quit\n").await;
    terminal.until(&["continue later with: reprise chat --session sess_"]).await;
    terminal.ends_well().await;
    service.stop().await;
}

#[tokio::test]
async fn what_was_learned_is_told_listed_and_taken_back() {
    let mut stand_in = StandIn::start().await;
    let upstream = format!("upstream.url={}", stand_in.url);
    let service = Service::start(&["--set", &upstream, "--set", "remember.silence_s=1"]).await;
    let Some(mut terminal) = Terminal::open(&service) else { return };
    terminal.until(&["> "]).await;
    terminal.press("/memories\n").await;
    terminal.until(&["[nothing is remembered yet]"]).await;
    terminal.press("My sister lives in Lisbon.\n").await;
    let mut reply = stand_in.next().await;
    reply.say("A fine city.").await;
    reply.done().await;
    terminal.until(&["[remembered: My sister lives in Lisbon. · /forget takes it back]"]).await;
    terminal.press("/memories\n").await;
    terminal.until(&["[1 My sister lives in Lisbon.]"]).await;
    terminal.press("/forget 2\n").await;
    terminal.until(&["[no memory has this number"]).await;
    terminal.press("/forget\n").await;
    terminal.until(&["[forgotten: My sister lives in Lisbon.]"]).await;
    terminal.press("/memories\n").await;
    terminal.until(&["[nothing is remembered yet]"]).await;
    terminal.press("/forget\n").await;
    terminal.until(&["[nothing was learned in this conversation yet"]).await;
    terminal.press("/quit\n").await;
    terminal.until(&["continue later"]).await;
    terminal.ends_well().await;
    service.stop().await;
}

#[tokio::test]
async fn a_wish_that_may_mean_two_memories_lists_both_and_forgets_the_chosen_one() {
    let Some(encoder) = std::env::var_os("REPRISE_ENCODER").and_then(|folder| folder.into_string().ok()) else {
        assert!(std::env::var_os("REQUIRE_ENCODER").is_none(), "REPRISE_ENCODER names no folder of an encoder");
        return println!("skipped: REPRISE_ENCODER names no folder of an encoder");
    };
    let mut stand_in = StandIn::start().await;
    let settings = [
        format!("upstream.url={}", stand_in.url),
        format!("remember.encoder={encoder}"),
        "remember.silence_s=1".to_owned(),
        "preset.remember.learn=words".to_owned(),
    ];
    let service = Service::start(&settings.each_ref().map(|setting| ["--set", setting]).concat()).await;
    let Some(mut terminal) = Terminal::open(&service) else { return };
    terminal.until(&["> "]).await;
    for sister in ["Maya", "Lena"] {
        terminal.press(&format!("My sister {sister} has migraines.\n")).await;
        let mut reply = stand_in.next().await;
        reply.say("I am sorry to hear that.").await;
        reply.done().await;
        terminal.until(&[&format!("[remembered: My sister {sister} has migraines.")]).await;
    }
    terminal.press("I'd rather you lost what I told you about my sister's migraines.\n").await;
    let mut reply = stand_in.next().await;
    reply.say("All right.").await;
    reply.done().await;
    terminal.until(&["[that may forget either of these memories, so both stay · /forget NUMBER forgets one]"]).await;
    let first = terminal.until(&["[1 My sister Maya", "[1 My sister Lena"]).await;
    let [chosen, other] = if first == 0 { ["Maya", "Lena"] } else { ["Lena", "Maya"] };
    terminal.until(&[&format!("[2 My sister {other} has migraines.]")]).await;
    terminal.press("/forget 1\n").await;
    terminal.until(&[&format!("[forgotten: My sister {chosen} has migraines.]")]).await;
    terminal.press("/memories\n").await;
    terminal.until(&[&format!("[1 My sister {other} has migraines.]\r\n> ")]).await;
    terminal.press("/quit\n").await;
    terminal.until(&["continue later"]).await;
    terminal.ends_well().await;
    service.stop().await;
}
