//! The service with all its clients.

use super::listening::SilentClient;
use super::talker::{Compactions, TalkedSession, TimedTurn, TooMany};
use anyhow::{Context, Result, anyhow};
use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt};
use serde::Serialize;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tests::random::Random;
use tests::service::{Service, run_ok};
use tokio::sync::Semaphore;
use tokio::time::sleep;

#[derive(clap::Args, Clone, Debug)]
pub struct HouseSizes {
    /// Sessions that are connected and silent
    #[arg(long, default_value_t = 2000)]
    pub idle: usize,
    /// Sessions that talk in turn
    #[arg(long, default_value_t = 40)]
    pub talking: usize,
    /// Number of them that talk at the same moment
    #[arg(long, default_value_t = 4)]
    pub at_once: usize,
    /// Clients of one user that talk at once, beside one client of another user
    #[arg(long, default_value_t = 12)]
    pub crowd: usize,
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

#[derive(Debug, Default, Serialize)]
pub struct Figures {
    pub idle: usize,
    pub talking: usize,
    pub turns: u64,
    pub barge_ins: u64,
    pub compactions: Compactions,
    pub storms: u64,
    pub back_again: u64,
    pub slowest_storm_ms: f64,
    pub refused: u64,
    pub first_word: FirstWords,
    pub crowd: FirstWords,
    pub beside_the_crowd: FirstWords,
    pub kib_per_idle: f64,
    pub rss_mib: f64,
    pub growth: f64,
}

#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct FirstWords {
    pub count: usize,
    pub p50_ms: f64,
    pub p95_ms: f64,
    pub p99_ms: f64,
}

pub struct FullHouse {
    service: Service,
    address: Arc<str>,
    keys: [Arc<str>; 2],
    listening: Vec<SilentClient>,
    lost: Arc<AtomicU64>,
    talkers: Vec<TurnTaker>,
    random: Random,
    sizes: HouseSizes,
    figures: Figures,
    failures: Vec<String>,
}

struct TurnTaker {
    conversation: TalkedSession,
    random: Random,
    name: usize,
    turns: Vec<TimedTurn>,
    failure: Option<String>,
}

const OPENING: usize = 32;
/// A share of those that listen lose their connection, so often.
const STORM_SHARE: usize = 5;
const STORM_EVERY: Duration = Duration::from_secs(12);
/// Connections beyond those that the house needs, besides those that come back before their old ones are known to be broken; and
/// connections beyond those that it takes.
const SPARE: usize = 30;
const BEYOND: usize = 60;
const SAMPLE_EVERY: Duration = Duration::from_millis(500);
const MOST_FAILURES: usize = 8;
const SAYINGS: [&str; 4] = [
    "Remember that the code of the door is {}.",
    "My sister Lena comes on Friday at {} with the dog. What should we do about it?",
    "Good morning, this is day {}.",
    "Tell me about the kitchen, part {}.",
];

impl HouseSizes {
    fn spare(&self) -> usize {
        SPARE + self.idle / STORM_SHARE
    }
}

impl FullHouse {
    pub async fn open(sizes: &HouseSizes) -> Result<FullHouse> {
        let folder = tempfile::tempdir()?;
        let keys = [key(folder.path(), "ann").await, key(folder.path(), "ben").await];
        let connections = sizes.idle + sizes.talking + sizes.crowd + 1 + sizes.spare();
        let all = 4 * connections;
        let mut arguments: Vec<String> =
            ["serve", "--port=0", "--preset=builtin-1k", "--set=wyoming.port=0", "--set=logging.level=error"]
                .map(str::to_owned)
                .to_vec();
        arguments.push(format!("--set=limits.connections={connections}"));
        for key in ["connections_per_key", "connections_per_address"] {
            arguments.push(format!("--set=limits.{key}={connections}"));
        }
        // The service tells each connection too many why.
        arguments.push(format!("--set=limits.goodbyes={}", all.min(4096))); // not a window: connections
        for key in ["live_sessions", "live_sessions_per_user"] {
            arguments.push(format!("--set=limits.{key}={all}"));
        }
        for key in ["requests_per_minute_per_key", "requests_per_minute_per_address"] {
            arguments.push(format!("--set=limits.{key}=1000000"));
        }
        arguments.extend(["--set=memory.total=1GiB", "--set=limits.first_message_ms=86400000"].map(str::to_owned));
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let started = Service::with_arguments(folder, &[], &arguments).await;
        let service = started.map_err(|(status, log)| anyhow!("the service does not start ({status}): {log}"))?;
        let mut house = FullHouse {
            address: service.address.as_str().into(),
            keys,
            listening: Vec::new(),
            lost: Arc::default(),
            talkers: Vec::new(),
            random: Random(sizes.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            sizes: sizes.clone(),
            figures: Figures { idle: sizes.idle, talking: sizes.talking, ..Figures::default() },
            failures: Vec::new(),
            service,
        };
        house.fill().await?;
        Ok(house)
    }

    async fn fill(&mut self) -> Result<()> {
        for number in 0..self.sizes.talking {
            let talker = self.talker(number, number % 2).await?;
            self.talkers.push(talker);
        }
        let before = self.service.memory_bytes("VmRSS");
        let open = |number: usize| {
            let (address, key, lost) = (self.address.clone(), self.keys[number % 2].clone(), self.lost.clone());
            async move { SilentClient::open(address, key, lost).await }
        };
        let opened: Vec<Result<SilentClient>> =
            stream::iter(0..self.sizes.idle).map(open).buffer_unordered(OPENING).collect().await;
        self.listening = opened.into_iter().collect::<Result<_>>().context("a satellite connects")?;
        let more = self.service.memory_bytes("VmRSS").saturating_sub(before);
        self.figures.kib_per_idle = more as f64 / 1024.0 / self.sizes.idle.max(1) as f64;
        Ok(())
    }

    async fn talker(&mut self, name: usize, user: usize) -> Result<TurnTaker> {
        let conversation =
            TalkedSession::open(&self.address, &self.keys[user], "").await.context("a client connects")?;
        let random = Random(self.random.below(u64::MAX - 1) + 1);
        Ok(TurnTaker { conversation, random, name, turns: Vec::new(), failure: None })
    }

    /// All talk in turn, and again and again some of those that listen come back at once.
    pub async fn talk(&mut self, time: Duration) {
        let (begin, turn) = (Instant::now(), Arc::new(Semaphore::new(self.sizes.at_once)));
        let talking = self.talkers.drain(..).map(|mut talker| {
            let turn = turn.clone();
            tokio::spawn(async move {
                while begin.elapsed() < time && talker.failure.is_none() {
                    let _turn = turn.acquire().await;
                    talker.take_turn().await;
                }
                talker
            })
        });
        let talking: Vec<_> = talking.collect();
        let (mut samples, mut storm_at) = (Vec::new(), STORM_EVERY.min(time / 3));
        while begin.elapsed() < time {
            sleep(SAMPLE_EVERY).await;
            samples.push((begin.elapsed(), self.service.memory_bytes("VmRSS") as f64));
            if begin.elapsed() >= storm_at && begin.elapsed() < time {
                self.storm().await;
                storm_at = begin.elapsed() + STORM_EVERY;
            }
        }
        for talker in join_all(talking).await {
            self.talkers.push(talker.expect("a talker does not panic"));
        }
        let mean = |from: f64, to: f64| {
            let share = |at: &Duration| at.as_secs_f64() / time.as_secs_f64();
            let of: Vec<f64> =
                samples.iter().filter(|(at, _)| (from..to).contains(&share(at))).map(|(_, bytes)| *bytes).collect();
            of.iter().sum::<f64>() / of.len().max(1) as f64
        };
        self.figures.rss_mib = mean(0.75, 2.0) / f64::from(1 << 20);
        self.figures.growth = mean(0.75, 2.0) / mean(0.5, 0.75).max(1.0) - 1.0;
        let mut waits = Vec::new();
        for talker in &mut self.talkers {
            self.failures.extend(talker.failure.take());
            self.figures.compactions.add(std::mem::take(&mut talker.conversation.compactions));
            self.figures.turns += talker.turns.len() as u64;
            self.figures.barge_ins += talker.turns.iter().filter(|turn| turn.was_interrupted).count() as u64;
            waits.extend(talker.turns.drain(..).map(|turn| turn.first_word));
        }
        self.figures.first_word = FirstWords::of(waits);
    }

    async fn storm(&mut self) {
        let number = self.listening.len() / STORM_SHARE;
        let from = self.random.below((self.listening.len() - number).max(1) as u64) as usize;
        let broken = &mut self.listening[from..from + number];
        broken.iter().for_each(SilentClient::break_off);
        let begin = Instant::now();
        let back = join_all(broken.iter_mut().map(SilentClient::come_back)).await;
        self.figures.slowest_storm_ms = self.figures.slowest_storm_ms.max(begin.elapsed().as_secs_f64() * 1e3);
        self.figures.storms += 1;
        self.figures.back_again = number as u64;
        let failed = back.into_iter().filter_map(Result::err);
        self.failures
            .extend(failed.map(|error| format!("a satellite does not come back: {error:#}")).take(MOST_FAILURES));
    }

    /// All clients of one user talk at once, and one of another.
    pub async fn crowd(&mut self, time: Duration) {
        let mut talkers = Vec::new();
        for number in 0..=self.sizes.crowd {
            match self.talker(1000 + number, usize::from(number == 0)).await {
                Ok(talker) => talkers.push(talker),
                Err(error) => return self.failures.push(format!("a client of the crowd: {error:#}")),
            }
        }
        let begin = Instant::now();
        let listening = join_all(self.talkers.iter_mut().map(|talker| talker.conversation.listen(begin + time)));
        let talking = talkers.into_iter().map(|mut talker| {
            tokio::spawn(async move {
                while begin.elapsed() < time && talker.failure.is_none() {
                    talker.take_turn().await;
                }
                talker
            })
        });
        let mut waits = [Vec::new(), Vec::new()];
        let (crowd, listened) = tokio::join!(join_all(talking.collect::<Vec<_>>()), listening);
        let broken = listened.into_iter().filter_map(Result::err);
        self.failures.extend(broken.map(|error| format!("a silent client's connection ends: {error:#}")));
        for talker in crowd {
            let talker = talker.expect("a talker does not panic");
            self.failures.extend(talker.failure);
            let of = usize::from(talker.name == 1000);
            waits[of].extend(talker.turns.into_iter().map(|turn| turn.first_word));
        }
        let [crowd, other] = waits;
        (self.figures.crowd, self.figures.beside_the_crowd) = (FirstWords::of(crowd), FirstWords::of(other));
    }

    /// More come than there is room for: they are told so, and those that are there go on.
    pub async fn too_many(&mut self) {
        let connect = (0..self.sizes.spare() + BEYOND).map(|_| TalkedSession::open(&self.address, &self.keys[0], ""));
        let came: Vec<Result<TalkedSession>> = join_all(connect).await;
        for refused in came.iter().filter_map(|came| came.as_ref().err()) {
            match refused.downcast_ref::<TooMany>() {
                Some(TooMany { status: 429 | 503, body }) if body.contains("limits.connections") => {
                    self.figures.refused += 1
                }
                _ => self.failures.push(format!("a connection too many is {refused:#}")),
            }
        }
        if self.figures.refused == 0 {
            self.failures.push("no connection is too many".to_owned());
        }
        for talker in &mut self.talkers {
            talker.take_turn().await;
            self.failures.extend(talker.failure.take());
        }
    }

    pub async fn close(mut self) -> (Figures, Vec<String>) {
        let lost = self.lost.load(Ordering::Relaxed);
        if lost > 0 {
            self.failures.push(format!("{lost} connections that listened were ended by the service"));
        }
        self.listening.clear();
        self.talkers.clear();
        self.service.stop().await;
        self.failures.truncate(MOST_FAILURES);
        (self.figures, self.failures)
    }
}

impl TurnTaker {
    async fn take_turn(&mut self) {
        let saying = SAYINGS[self.random.below(SAYINGS.len() as u64) as usize];
        let said = saying.replace("{}", &format!("{}t{}", self.name, self.random.below(1000)));
        match self.conversation.turn(&said, &mut self.random).await {
            Ok(turn) => self.turns.push(turn),
            Err(error) => self.failure = Some(format!("client {}: {error:#}", self.name)),
        }
    }
}

impl FirstWords {
    fn of(waits: Vec<Duration>) -> FirstWords {
        let mut ms: Vec<f64> = waits.iter().map(|wait| wait.as_secs_f64() * 1e3).collect();
        ms.sort_by(f64::total_cmp);
        let at = |share: f64| ms.get((ms.len() as f64 * share) as usize).copied().unwrap_or(0.0);
        FirstWords { count: ms.len(), p50_ms: at(0.5), p95_ms: at(0.95), p99_ms: at(0.99) }
    }
}

impl fmt::Display for FirstWords {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FirstWords { p50_ms, p95_ms, p99_ms, .. } = self;
        write!(out, "{p50_ms:.0} ms (p95 {p95_ms:.0}, p99 {p99_ms:.0})")
    }
}

async fn key(folder: &Path, user: &str) -> Arc<str> {
    run_ok(folder, &["keys", "create", "--user", user]).await.trim().into()
}
