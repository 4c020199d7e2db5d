use super::attack::{Answer, send};
use super::house::{MEMORY, Sizes, StallHouse};
use super::routes::{Attack, Target, targets};
use super::talk::Talker;
use crate::summary::{Budget, Progress, Summary};
use anyhow::{Context, Result};
use background::run_last;
use serde::Serialize;
use serde_json::json;
use std::time::{Duration, Instant};
use tokio::runtime::Builder;
use tokio::task::block_in_place;

/// Sends the heaviest inputs to every route and event while another user talks
#[derive(clap::Args, Clone)]
pub struct Args {
    /// Part of the names of the routes and events to attack
    #[arg(long)]
    pub only: Option<String>,
    /// Inputs that are sent at once
    #[arg(long, default_value_t = 4)]
    pub at_once: usize,
    /// Milliseconds by which a first word may be later than without an attack; without it delays are only told
    #[arg(long)]
    pub most_ms: Option<f64>,
    #[arg(long)]
    pub json: bool,
    #[arg(skip)]
    pub sizes: Option<Sizes>,
}

#[derive(Clone, Debug, Serialize)]
struct Delay {
    target: String,
    attack: String,
    late_ms: f64,
    waited_for: String,
    turns: usize,
    taken: usize,
    refused: Vec<String>,
    peak_mib: u64,
}

#[derive(Default, Serialize)]
struct Figures {
    routes: usize,
    events: usize,
    attacks: usize,
    taken: usize,
    refused: usize,
    calm_ms: f64,
    worst_ms: f64,
    peak_mib: u64,
    latest: Vec<Delay>,
}

pub const MOST_MS: f64 = 150.0;
const CALM_TURNS: usize = 100;
const TURNS_BEHIND: usize = 1;
const LATEST: usize = 12;
const MOST_FAILURES: usize = 40;

pub async fn prove(args: &Args) -> Result<Summary> {
    let budget = Budget::minutes(0.0);
    let sizes = args.sizes.map_or_else(Sizes::of_a_service, Ok)?;
    let house = StallHouse::open(sizes).await?;
    let document = house.get("/openapi.json").await?;
    let events = house.get("/v1/realtime/schema.json").await?;
    let all = targets(&house, &document, &events)?;
    let chosen = |target: &&Target| args.only.as_ref().is_none_or(|only| target.name.contains(only.as_str()));
    let mut talker = Talker::begin(&house.address, &house.talker);
    let begin = Instant::now();
    talker.take_turns(CALM_TURNS).await?;
    let mut calm: Vec<f64> = talker.turns_since(begin).iter().map(|turn| ms(turn.first_word)).collect();
    calm.sort_by(f64::total_cmp);
    let mut figures = Figures { calm_ms: calm[calm.len() / 2], ..Figures::default() };
    let (mut delays, mut failures) = (Vec::new(), Vec::new());
    let (chosen, mut progress) = (all.iter().filter(chosen).collect::<Vec<_>>(), Progress::new("stall"));
    for (done, target) in chosen.iter().enumerate() {
        *if target.is_route() { &mut figures.routes } else { &mut figures.events } += 1;
        let light = &target.attacks[0];
        let heavy = target.attacks.iter().skip(1).take(sizes.attacks_of_a_route);
        for attack in std::iter::once(light).chain(heavy) {
            progress.show(|| {
                let worst = delays.iter().map(|delay: &Delay| delay.late_ms).fold(0.0, f64::max);
                format!(
                    "{done} of {} routes and events, at most {worst:.0} ms later; now {}",
                    chosen.len(),
                    target.name
                )
            });
            match attacked(&house, &mut talker, target, attack, args.at_once, figures.calm_ms).await {
                Ok(delay) => {
                    if args.most_ms.is_some_and(|most| delay.late_ms > most) {
                        eprintln!("late: {}", delay.line());
                    }
                    delays.push(delay);
                }
                Err(error) => failures.push(format!("{} {}: {error:#}", target.name, attack.name)),
            }
        }
        let was_let_in = delays.iter().any(|delay: &Delay| delay.target == target.name && delay.is_let_in());
        if !was_let_in {
            let answers: Vec<&Delay> = delays.iter().filter(|delay| delay.target == target.name).collect();
            failures.push(format!("{}: no input reaches what it asks for: {answers:?}", target.name));
        }
    }
    talker.end().await.context("the user that talks")?;
    figures.attacks = delays.len();
    figures.taken = delays.iter().map(|delay| delay.taken).sum();
    figures.refused = delays.iter().map(|delay| delay.refused.len()).sum();
    figures.peak_mib = house.peak_bytes() >> 20;
    house.close().await;
    let beyond = delays.iter().find(|delay| delay.peak_mib << 20 > MEMORY);
    let beyond = beyond.map(|delay| format!("with {} {}", delay.target, delay.attack)).unwrap_or_default();
    delays.sort_by(|one, other| other.late_ms.total_cmp(&one.late_ms));
    figures.worst_ms = delays.first().map_or(0.0, |delay| delay.late_ms);
    for delay in &delays {
        if args.most_ms.is_some_and(|most| delay.late_ms > most) {
            failures
                .push(format!("{} {}: a first word came {:.0} ms later", delay.target, delay.attack, delay.late_ms));
        }
    }
    if figures.peak_mib << 20 > MEMORY {
        let peak = figures.peak_mib;
        failures.push(format!("the process took {peak} MiB, and its ceiling is {}: beyond it {beyond}", MEMORY >> 20));
    }
    figures.latest = delays.iter().take(LATEST).cloned().collect();
    let latest: Vec<String> = figures.latest.iter().map(Delay::line).collect();
    let Figures { routes, events, attacks, taken, refused, calm_ms, worst_ms, peak_mib, .. } = &figures;
    let line = format!(
        "{attacks} inputs to {routes} routes and {events} events, {} at once: {taken} taken, {refused} refused; the other \
         user's first word after {calm_ms:.0} ms in calm, at most {worst_ms:.0} ms later; {peak_mib} MiB at most\n  {}",
        args.at_once,
        latest.join("\n  ")
    );
    failures.truncate(MOST_FAILURES);
    let again = "cargo run --release -p proof -- stall --most-ms 150".to_owned();
    let figures = json!(figures);
    Ok(Summary {
        command: "stall",
        seed: 0,
        seconds: budget.seconds(),
        line,
        figures,
        skipped: Vec::new(),
        failures,
        again,
    })
}

async fn attacked(
    house: &StallHouse,
    talker: &mut Talker,
    target: &Target,
    attack: &Attack,
    at_once: usize,
    calm_ms: f64,
) -> Result<Delay> {
    let begin = Instant::now();
    // The attackers are on machines of their own, and leave this one to the service.
    let sent = || -> Result<_> {
        let clients = Builder::new_current_thread().enable_all().build()?;
        clients.block_on(send(house, target, attack, at_once))
    };
    let answers = block_in_place(|| run_last(sent))?;
    talker.take_turns(TURNS_BEHIND).await?;
    let turns = talker.turns_since(begin);
    let latest = turns.iter().max_by_key(|turn| turn.first_word);
    let worst = latest.map_or(0.0, |turn| ms(turn.first_word));
    let waited_for = latest.map(|turn| format!("turn {}, {}", turn.turn + 1, turn.waited_for)).unwrap_or_default();
    let refused = answers.iter().filter_map(|answer| match answer {
        Answer::Taken => None,
        Answer::Refused { status, code } => Some(format!("{status} {code}")),
    });
    let refused: Vec<String> = refused.collect();
    Ok(Delay {
        target: target.name.clone(),
        attack: attack.name.clone(),
        late_ms: worst - calm_ms,
        waited_for,
        turns: turns.len(),
        taken: answers.len() - refused.len(),
        refused,
        peak_mib: house.peak_bytes() >> 20,
    })
}

impl Delay {
    /// Tells whether the input was read and understood: the service took it, or found nothing to do for it.
    fn is_let_in(&self) -> bool {
        let is_known = |refused: &String| {
            let (status, code) = refused.split_once(' ').unwrap_or_default();
            matches!(status, "0" | "404" | "409") && !matches!(code, "not_found" | "invalid_json")
        };
        self.taken > 0 || self.attack == "light" && self.refused.iter().any(is_known)
    }

    fn line(&self) -> String {
        let Delay { target, attack, late_ms, waited_for, turns, taken, refused, peak_mib } = self;
        let refused = refused.first().map(|refused| format!(", refused: {refused}")).unwrap_or_default();
        format!(
            "{late_ms:.0} ms later ({waited_for}), {turns} turns, {peak_mib} MiB: {target} {attack} ({taken} taken{refused})"
        )
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
