//! The user that talks meanwhile: turn after turn over a websocket, each with the time to its first word.

use crate::load::TalkedSession;
use anyhow::{Context, Result, bail};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tests::random::Random;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

#[derive(Clone, Debug)]
pub struct TalkedTurn {
    pub asked: Instant,
    pub first_word: Duration,
    pub waited_for: String,
    /// Number of the turn in its conversation.
    pub turn: usize,
}

pub struct Talker {
    heard: watch::Receiver<Heard>,
    stop: Arc<AtomicBool>,
    task: JoinHandle<()>,
    told: usize,
}

#[derive(Debug, Default)]
struct Heard {
    turns: Vec<TalkedTurn>,
    failures: Vec<String>,
}

const PAUSE: Duration = Duration::from_millis(20);
const TURNS: usize = 40;

impl Talker {
    pub fn begin(address: &str, key: &str) -> Talker {
        let (told, heard) = watch::channel(Heard::default());
        let stop = Arc::<AtomicBool>::default();
        let (address, key, stopped) = (address.to_owned(), key.to_owned(), stop.clone());
        let task = tokio::spawn(async move {
            let mut random = Random(1);
            while !stopped.load(Ordering::Relaxed) {
                if let Err(error) = talk(&address, &key, &mut random, &stopped, &told).await {
                    told.send_modify(|heard| heard.failures.push(format!("{error:#}")));
                    sleep(PAUSE).await;
                }
            }
        });
        Talker { heard, stop, task, told: 0 }
    }

    /// Waits for `count` more turns that begin from now on. A turn that was not answered is an error, which is told once.
    pub async fn take_turns(&mut self, count: usize) -> Result<()> {
        let (from, told) = (Instant::now(), self.told);
        let has_taken = |heard: &Heard| {
            let turns = heard.turns.iter().rev().take_while(|turn| turn.asked >= from).count();
            turns >= count || heard.failures.len() > told
        };
        let heard = self.heard.wait_for(has_taken).await.context("the user that talks has stopped")?;
        self.told = heard.failures.len();
        match heard.failures.get(told..) {
            None | Some([]) => Ok(()),
            Some(failures) => bail!("the user that talks is not answered: {}", failures.join("; ")),
        }
    }

    pub fn turns_since(&self, from: Instant) -> Vec<TalkedTurn> {
        let heard = self.heard.borrow();
        heard.turns.iter().filter(|turn| turn.asked + turn.first_word >= from).cloned().collect()
    }

    pub async fn end(self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        Ok(self.task.await?)
    }
}

async fn talk(
    address: &str,
    key: &str,
    random: &mut Random,
    stopped: &AtomicBool,
    told: &watch::Sender<Heard>,
) -> Result<()> {
    let mut session = TalkedSession::open(address, key, "").await?;
    for n in 0..TURNS {
        if stopped.load(Ordering::Relaxed) {
            break;
        }
        let asked = Instant::now();
        let turn = session.turn(&format!("Good morning, this is day {n}."), random).await?;
        told.send_modify(|heard| {
            let waited_for = turn.waited_for;
            heard.turns.push(TalkedTurn { asked, first_word: turn.first_word, waited_for, turn: n });
        });
        sleep(PAUSE).await;
    }
    Ok(())
}
