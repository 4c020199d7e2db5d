use super::house::{Figures, FullHouse, HouseSizes};
use crate::summary::{Budget, Summary};
use anyhow::Result;
use serde_json::json;
use std::time::Duration;

/// Loads the service with clients, and checks that it stays responsive
#[derive(clap::Args, Clone)]
pub struct Args {
    #[arg(long, default_value_t = 1.0)]
    pub minutes: f64,
    #[command(flatten)]
    pub sizes: HouseSizes,
    #[arg(long)]
    pub json: bool,
}

/// Share of the time for the crowd.
const CROWD: f64 = 0.15;
/// Time after which memory must stay where it is.
const RESTS_AFTER: Duration = Duration::from_secs(100);
const MOST_GROWTH: f64 = 0.02;
/// Drops of turns during which a summary must end once.
const MANY_DROPS: u64 = 40;
/// Factor and seconds by which the other user may wait longer than the crowd.
const FAIR: (f64, f64) = (1.5, 20.0);

pub async fn prove(args: &Args) -> Result<Summary> {
    let time = Duration::from_secs_f64(args.minutes * 60.0);
    let budget = Budget::minutes(args.minutes);
    let mut house = FullHouse::open(&args.sizes).await?;
    house.talk(time.mul_f64(1.0 - CROWD)).await;
    house.crowd(time.mul_f64(CROWD)).await;
    house.too_many().await;
    let (figures, mut failures) = house.close().await;
    let Figures { idle, talking, turns, barge_ins, compactions, storms, back_again, refused, .. } = &figures;
    if time >= RESTS_AFTER && figures.growth > MOST_GROWTH {
        failures.push(format!("memory grew by {:.1} % in the second half", figures.growth * 100.0));
    }
    if compactions.completed == 0 && compactions.dropped >= MANY_DROPS {
        failures.push(format!("turns left the prompt {} times, and no summary came into use", compactions.dropped));
    }
    let (crowd, other) = (&figures.crowd, &figures.beside_the_crowd);
    if other.p50_ms > crowd.p50_ms * FAIR.0 + FAIR.1 {
        failures.push(format!(
            "beside a crowd another user waits {:.0} ms, and the crowd {:.0}",
            other.p50_ms, crowd.p50_ms
        ));
    }
    let line = format!(
        "{idle} idle at {:.0} KiB each, {talking} talking, {turns} turns ({barge_ins} interrupted), first word after {}, \
         {compactions}, {storms} times {back_again} came back at once (the last after {:.0} ms); a crowd of {} waits \
         {}, another user beside it {}; {refused} beyond the limit refused; RSS {:.0} MiB, in the second half {:+.1} %",
        figures.kib_per_idle,
        figures.first_word,
        figures.slowest_storm_ms,
        args.sizes.crowd,
        figures.crowd,
        figures.beside_the_crowd,
        figures.rss_mib,
        figures.growth * 100.0,
    );
    Ok(Summary {
        command: "load",
        seed: args.sizes.seed,
        seconds: budget.seconds(),
        line,
        figures: json!(figures),
        skipped: Vec::new(),
        failures,
        again: format!("cargo run --release -p proof -- load --minutes {} --seed {}", args.minutes, args.sizes.seed),
    })
}
