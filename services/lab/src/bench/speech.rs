//! `reprise bench speech`: our own part of the wait for a spoken reply, and of what a socket with audio costs. Ears, voice
//! and model are stand-ins that take a known time.

mod cuts;
mod microphone;
mod sockets;
mod stand_ins;
mod waits;

use super::service::{BenchTarget, MeasuredService};
use anyhow::{Result, bail};
use experiment::Quantiles;
use serde::Serialize;
use serde_json::json;
use settings::Settings;
use stand_ins::{SpeechStandIns, StandInTimes};
use std::ffi::OsString;
use std::time::Duration;
use terminal::output::{print_json, print_report};

/// Measures spoken turns, barge-ins, sockets with audio, and the words of replies that were cut
///
/// It starts a service of its own, whose ears, voice and model are stand-ins in this process.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Number of spoken turns, and of barge-ins
    #[arg(long, default_value_t = 20)]
    turns: usize,
    /// Number of sockets that are silent, and then talk
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=500))]
    sockets: u64,
    /// Seconds for which they are looked at
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// Number of replies' cuts, with times of words and without
    #[arg(long, default_value_t = 1000)]
    cuts: usize,
    /// Milliseconds that the ears take
    #[arg(long, default_value_t = 100)]
    ears: u64,
    /// Milliseconds until the voice's first audio
    #[arg(long, default_value_t = 50)]
    voice: u64,
    /// Milliseconds until the model's words
    #[arg(long, default_value_t = 0)]
    think: u64,
    /// Prints one JSON object for programs
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct SpeechRow {
    what: String,
    median: Option<f64>,
    p95: Option<f64>,
    max: Option<f64>,
    unit: &'static str,
    must_show: String,
    holds: Option<bool>,
}

impl SpeechRow {
    fn of(what: &str, unit: &'static str, values: impl IntoIterator<Item = f64>) -> SpeechRow {
        let found = Quantiles::of(values);
        let value = |of: fn(&Quantiles) -> f64| found.as_ref().map(of);
        let (median, p95, max) = (value(|found| found.median), value(|found| found.p95), value(|found| found.max));
        SpeechRow { what: what.to_owned(), median, p95, max, unit, must_show: String::new(), holds: None }
    }

    fn at_most(self, most: f64) -> SpeechRow {
        SpeechRow { must_show: format!("<= {most}"), holds: self.median.map(|median| median <= most), ..self }
    }

    fn at_least(self, least: f64) -> SpeechRow {
        SpeechRow { must_show: format!(">= {least}"), holds: self.median.map(|median| median >= least), ..self }
    }
}

struct SpeechBench<'a> {
    args: &'a Args,
    settings: &'a Settings,
    service: &'a MeasuredService,
    stand_ins: &'a SpeechStandIns,
}

/// Longest wait for an event of the service.
const PATIENCE: Duration = Duration::from_secs(60);

pub async fn run(args: &Args, given: &[OsString], settings: &Settings) -> Result<()> {
    if args.turns == 0 || args.cuts == 0 || !(0.1..=3600.0).contains(&args.seconds) {
        bail!("--turns and --cuts are numbers from 1 upwards, and --seconds is a time");
    }
    let ms = Duration::from_millis;
    let times = StandInTimes { ears: ms(args.ears), voice: ms(args.voice), model: ms(args.think) };
    let stand_ins = SpeechStandIns::start(times).await?;
    let target = BenchTarget { url: None, key: None, model: Some(BUILT_IN.to_owned()) };
    let service = MeasuredService::open(&target, given, settings, &needs(args, settings, &stand_ins)).await?;
    let bench = SpeechBench { args, settings, service: &service, stand_ins: &stand_ins };
    let measured = async {
        let mut rows = bench.turns().await?;
        rows.extend(bench.barge_ins().await?);
        rows.extend(bench.sockets().await?);
        rows.extend(bench.cuts(true).await?);
        rows.extend(bench.cuts(false).await?);
        anyhow::Ok(rows)
    };
    let rows = measured.await;
    let machine = service.hardware(settings);
    service.stop().await;
    let measured = json!({
        "bench": "speech",
        "machine": machine,
        "ears_ms": args.ears,
        "voice_ms": args.voice,
        "model_ms": args.think,
        "rows": rows?,
    });
    if args.json { print_json(&measured) } else { print_report(&measured, &[&measured["rows"]]) }
}

// Preset that needs no file. An upstream takes its place.
const BUILT_IN: &str = "builtin";

fn needs(args: &Args, settings: &Settings, stand_ins: &SpeechStandIns) -> Vec<(&'static str, String)> {
    let (limits, connections) = (&settings.limits, args.sockets as usize + SPARE);
    let limits = [
        ("limits.connections", limits.connections),
        ("limits.connections_per_key", limits.connections_per_key),
        ("limits.connections_per_address", limits.connections_per_address),
        ("limits.live_sessions", limits.live_sessions),
        ("limits.live_sessions_per_user", limits.live_sessions_per_user),
    ];
    let limits = limits.map(|(key, limit)| (key, limit.max(connections).to_string()));
    let addresses = [
        ("upstream.url", stand_ins.upstream.clone()),
        ("speech.stt", stand_ins.wyoming.clone()),
        ("speech.tts", stand_ins.wyoming.clone()),
    ];
    limits.into_iter().chain(addresses).collect()
}

const SPARE: usize = 64; // connections beside the counted ones
