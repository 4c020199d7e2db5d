//! The user that talks meanwhile: turn after turn over a websocket, each with the time to its first word.

use crate::load::TalkedSession;
use anyhow::Result;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tests::random::Random;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

#[derive(Clone, Copy, Debug)]
pub struct TalkedTurn {
    pub asked: Instant,
    pub first_word: Duration,
}

pub struct Talker {
    turns: watch::Receiver<Vec<TalkedTurn>>,
    stop: Arc<AtomicBool>,
    task: JoinHandle<Result<()>>,
}

const PAUSE: Duration = Duration::from_millis(20);
const TURNS: usize = 40;

impl Talker {
    pub fn begin(address: &str, key: &str) -> Talker {
        let (told, turns) = watch::channel(Vec::new());
        let stop = Arc::<AtomicBool>::default();
        let (address, key, stopped) = (address.to_owned(), key.to_owned(), stop.clone());
        let task = tokio::spawn(async move {
            let mut random = Random(1);
            while !stopped.load(Ordering::Relaxed) {
                let mut session = TalkedSession::open(&address, &key, "").await?;
                for n in 0..TURNS {
                    if stopped.load(Ordering::Relaxed) {
                        break;
                    }
                    let asked = Instant::now();
                    let turn = session.turn(&format!("Good morning, this is day {n}."), &mut random).await?;
                    told.send_modify(|turns| turns.push(TalkedTurn { asked, first_word: turn.first_word }));
                    sleep(PAUSE).await;
                }
            }
            Ok(())
        });
        Talker { turns, stop, task }
    }

    /// Waits for `count` more turns that begin from now on.
    pub async fn take_turns(&mut self, count: usize) -> Result<()> {
        let from = Instant::now();
        let has_taken =
            |turns: &Vec<TalkedTurn>| turns.iter().rev().take_while(|turn| turn.asked >= from).count() >= count;
        match self.turns.wait_for(has_taken).await {
            Ok(_) => Ok(()),
            Err(_) => match (&mut self.task).await? {
                Ok(()) => anyhow::bail!("the user that talks has stopped"),
                Err(error) => Err(error.context("the user that talks is not answered")),
            },
        }
    }

    pub fn turns_since(&self, from: Instant) -> Vec<TalkedTurn> {
        let turns = self.turns.borrow();
        turns.iter().filter(|turn| turn.asked + turn.first_word >= from).copied().collect()
    }

    pub async fn end(self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await?
    }
}
