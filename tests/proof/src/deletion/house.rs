//! A folder in which a service runs, is killed while it deletes, and starts again.

use super::canary::Needles;
use super::files::{search, tokenizer};
use super::plant::{DOORS, Door, Planted, Trouble, Ways};
use super::ways::{Way, way};
use anyhow::{Result, anyhow, bail};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use store::{OpenedBy, Store, StoreOptions};
use tempfile::TempDir;
use tests::random::Random;
use tests::service::{Service, check_store, run_ok};
use tests::wyoming::own_address;
use text::Tokenizer;
use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};

pub struct House {
    seed: u64,
    random: Random,
    tokenizer: Arc<Tokenizer>,
    folder: Option<TempDir>,
    alive: Vec<Planted>,
    asked: Vec<(Planted, Way)>,
    gone: Needles,
    pub figures: Figures,
    pub failures: Vec<String>,
}

#[derive(Debug, Default, Serialize)]
pub struct Figures {
    pub lives: u64,
    pub planted: u64,
    pub deletions: u64,
    pub cut_off: u64,
    pub retired: u64,
    pub files: u64,
    pub bytes: u64,
    pub said_otherwise: u64,
    pub by_door: BTreeMap<Door, u64>,
    pub by_way: BTreeMap<Way, u64>,
}

/// Words that come in a life, and words that go in it.
const PLANTED: u64 = 12;
const DELETED: u64 = 12;
/// Lives after which a new folder takes the place of this one.
const LIVES_OF_A_FOLDER: u64 = 25;
const LOOKED_AT: usize = 8;
const MICROSECONDS_UNTIL_KILL: u64 = 60_000;
const LONGEST: Duration = Duration::from_secs(120);
/// The service drops what was computed, and writes its log back, within seconds.
const FILE_LOOKS: usize = 60;
const LOOK_EVERY: Duration = Duration::from_millis(500);
const SERVICE: [&str; 13] = [
    "serve",
    "--port=0",
    "--preset=builtin-1k",
    "--set=logging.level=error",
    "--set=memory.disk_idle_s=0",
    "--set=memory.disk_min_tokens=1",
    "--set=remember.silence_s=1",
    "--set=remember.persons=100000",
    "--set=remember.who=[{ person = \"*\", header = \"x-name\" }]",
    "--set=limits.requests_per_minute_per_key=1000000",
    "--set=limits.requests_per_minute_per_address=1000000",
    "--set=memory.total=400MiB",
    // Other programs may have the processors: threads that wait for each other would lose their time.
    "--set=engine.threads=1",
];

impl House {
    pub fn new(seed: u64) -> Result<House> {
        Ok(House {
            seed,
            random: Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            tokenizer: Arc::new(tokenizer()?),
            folder: None,
            alive: Vec::new(),
            asked: Vec::new(),
            gone: Needles::default(),
            figures: Figures::default(),
            failures: Vec::new(),
        })
    }

    pub async fn live(&mut self) -> Result<()> {
        self.figures.lives += 1;
        if self.figures.lives.is_multiple_of(LIVES_OF_A_FOLDER) {
            self.close().await?;
        }
        let (service, ways) = self.start().await?;
        for (planted, how) in std::mem::take(&mut self.asked) {
            match ways.delete(&planted, how).await {
                Ok(()) => self.gone.add(&planted.word),
                Err(trouble) => self.fail(format!("{how:?} of {:?} again: {trouble:?}", planted.door)),
            }
        }
        let before_ms = runtime::wall_ms();
        for _ in 0..PLANTED {
            self.plant(&ways).await?;
        }
        self.look(&service, &ways).await?;
        let folder = self.delete_and_kill(service, ways).await?;
        check_store(folder.path()).await;
        if self.random.below(6) == 0 {
            self.retire(folder.path(), before_ms).await?;
        }
        self.folder = Some(folder);
        Ok(())
    }

    pub async fn close(&mut self) -> Result<()> {
        if self.folder.is_none() {
            return Ok(());
        }
        let (service, ways) = self.start().await?;
        for (planted, how) in std::mem::take(&mut self.asked) {
            match ways.delete(&planted, how).await {
                Ok(()) => self.gone.add(&planted.word),
                Err(trouble) => self.fail(format!("{how:?} of {:?} at last: {trouble:?}", planted.door)),
            }
        }
        self.look(&service, &ways).await?;
        for planted in std::mem::take(&mut self.alive) {
            self.must_have(&ways, &planted).await;
        }
        let folder = service.stop().await;
        check_store(folder.path()).await;
        self.search_files(folder.path(), 1).await?;
        Ok(())
    }

    async fn start(&mut self) -> Result<(Service, Ways)> {
        let folder = self.folder.take().map_or_else(tempfile::tempdir, Ok)?;
        let wyoming = own_address();
        let more = [format!("--set=wyoming.host={}", wyoming.ip()), format!("--set=wyoming.port={}", wyoming.port())];
        let arguments: Vec<&str> = SERVICE.into_iter().chain(more.iter().map(String::as_str)).collect();
        let started = Service::with_arguments(folder, &[], &arguments).await;
        let service = started.map_err(|(status, log)| anyhow!("the service does not start ({status}): {log}"))?;
        let ways = Ways { address: service.address.clone(), wyoming };
        Ok((service, ways))
    }

    async fn plant(&mut self, ways: &Ways) -> Result<()> {
        // A summary takes seconds.
        let doors = if self.random.below(6) == 0 { &DOORS[..] } else { &DOORS[..12] };
        let door = match self.random.below(8) {
            0 => Door::Private,
            _ => doors[self.random.below(doors.len() as u64) as usize],
        };
        self.figures.planted += 1;
        let number = self.figures.planted;
        let planted = match ways.plant(door, number, &mut self.random).await {
            Ok(planted) => planted,
            Err(trouble) => bail!("a word cannot be said over {door:?}: {trouble:?}"),
        };
        *self.figures.by_door.entry(door).or_default() += 1;
        if door == Door::Private {
            self.count(Way::Nothing);
            self.gone.add(&planted.word);
            return Ok(());
        }
        for _ in 0..FILE_LOOKS {
            if ways.has(&planted).await.is_ok_and(|has| has) {
                self.alive.push(planted);
                return Ok(());
            }
            sleep(LOOK_EVERY).await;
        }
        self.fail(format!("a word that was said over {door:?} is not there"));
        Ok(())
    }

    async fn delete_and_kill(&mut self, service: Service, ways: Ways) -> Result<TempDir> {
        let mut wanted = Vec::new();
        for _ in 0..DELETED.min(self.alive.len() as u64) {
            let at = self.random.below(self.alive.len() as u64) as usize;
            let planted = self.alive.swap_remove(at);
            let how = way(planted.door, &mut self.random);
            wanted.push((planted, how));
        }
        let done = Arc::new(Mutex::new(Vec::new()));
        let (deleting, acknowledged, of_deleting) = (wanted.clone(), done.clone(), ways.clone());
        let deletions = tokio::spawn(async move {
            for (planted, how) in deleting {
                let deleted = of_deleting.delete(&planted, how).await;
                let is_cut = matches!(deleted, Err(Trouble::CutOff));
                acknowledged.lock().await.push(deleted);
                if is_cut {
                    return;
                }
            }
        });
        let talking = tokio::spawn(async move {
            let mut session = "new".to_owned();
            while let Ok(id) = ways.chat(&session, "Tell me about the kitchen.", &[]).await {
                session = id;
            }
        });
        // Some lives end when all is deleted, and most in the middle.
        let until = self.random.below(DELETED + DELETED / 4) as usize;
        while !deletions.is_finished() && done.lock().await.len() < until {
            sleep(Duration::from_millis(1)).await;
        }
        sleep(Duration::from_micros(self.random.below(MICROSECONDS_UNTIL_KILL))).await;
        let folder = service.kill().await;
        timeout(LONGEST, deletions).await??;
        timeout(LONGEST, talking).await??;
        let done = std::mem::take(&mut *done.lock().await);
        let mut ends = done.into_iter();
        for (planted, how) in wanted {
            match ends.next() {
                Some(Ok(())) => {
                    self.count(how);
                    self.gone.add(&planted.word);
                }
                Some(Err(Trouble::Wrong(why))) => self.fail(format!("{how:?} of {:?}: {why}", planted.door)),
                Some(Err(Trouble::CutOff)) => {
                    self.count(how);
                    self.figures.cut_off += 1;
                    self.asked.push((planted, how));
                }
                None => self.alive.push(planted),
            }
        }
        Ok(folder)
    }

    /// Sessions that were not used since this life began go by their age.
    async fn retire(&mut self, folder: &Path, before_ms: i64) -> Result<()> {
        let options = StoreOptions {
            path: folder.join("data/reprise.sqlite3"),
            opened_by: OpenedBy::Service,
            create: false,
            busy_timeout_ms: 10_000,
            readers: 2,
            read_limit_ms: 0,
            user_bytes: 0,
            user_bytes_per_minute: 0,
            write_queue: 64,
            commit_group: 64,
            sync_ms: 1000,
            wal_limit_bytes: 1 << 20,
            max_pages: None,
            check_at_start: false,
        };
        let store = Store::open(&options, runtime::wall_ms()).await?;
        store.delete_unused_since(before_ms, runtime::wall_ms()).await?;
        store.close().await?;
        // Memories outlive a session that grew old.
        let (kept, retired): (Vec<_>, Vec<_>) = std::mem::take(&mut self.alive)
            .into_iter()
            .partition(|planted| planted.at_ms >= before_ms || matches!(planted.door, Door::Memory | Door::Wish));
        self.alive = kept;
        // Of what was said only the memory is left: deleting where it was said deletes nothing more.
        let is_old_wish = |planted: &Planted| planted.door == Door::Wish && planted.at_ms < before_ms;
        for planted in self.alive.iter_mut().filter(|planted| is_old_wish(planted)) {
            planted.door = Door::Memory;
        }
        for (planted, how) in self.asked.iter_mut().filter(|(planted, _)| is_old_wish(planted)) {
            (planted.door, *how) = (Door::Memory, Way::Memory);
        }
        // The way that a kill cut off finds no session any more, and so does not reach what was learned there.
        for (planted, _) in self.asked.iter_mut().filter(|(planted, _)| planted.at_ms < before_ms) {
            planted.outlived = true;
        }
        for planted in retired {
            self.count(Way::Age);
            self.figures.retired += 1;
            self.asked.push((planted, Way::Age));
        }
        Ok(())
    }

    async fn look(&mut self, service: &Service, ways: &Ways) -> Result<()> {
        self.search_files(service.folder(), FILE_LOOKS).await?;
        for _ in 0..LOOKED_AT.min(self.alive.len()) {
            let at = self.random.below(self.alive.len() as u64) as usize;
            let planted = self.alive[at].clone();
            self.must_have(ways, &planted).await;
        }
        Ok(())
    }

    async fn search_files(&mut self, folder: &Path, looks: usize) -> Result<()> {
        let mut searched = search(folder, &self.gone, &self.tokenizer)?;
        for _ in 1..looks {
            if searched.found.is_empty() {
                break;
            }
            sleep(LOOK_EVERY).await;
            searched = search(folder, &self.gone, &self.tokenizer)?;
        }
        if !searched.found.is_empty() {
            let said = run_ok(folder, &["sessions", "export", "--all"]).await;
            self.figures.said_otherwise += self.gone.leave_out_said_otherwise(&said) as u64;
            searched = search(folder, &self.gone, &self.tokenizer)?;
        }
        self.figures.files += searched.files;
        self.figures.bytes += searched.bytes;
        for (word, path) in searched.found {
            self.fail(format!("{word}, which was deleted, is in {}", path.display()));
        }
        Ok(())
    }

    async fn must_have(&mut self, ways: &Ways, planted: &Planted) {
        match ways.has(planted).await {
            Ok(true) => {}
            has => self.fail(format!("a word of {:?} that was not deleted: {has:?}", planted.door)),
        }
    }

    fn count(&mut self, how: Way) {
        self.figures.deletions += 1;
        *self.figures.by_way.entry(how).or_default() += 1;
    }

    fn fail(&mut self, why: String) {
        self.failures.push(format!("seed {}, life {}: {why}", self.seed, self.figures.lives));
    }
}
