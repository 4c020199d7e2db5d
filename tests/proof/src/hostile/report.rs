use comfy_table::{Table, presets::NOTHING};
use serde::Serialize;
use std::time::Duration;

#[derive(Clone, Debug, Serialize)]
pub struct Failure {
    pub number: u64,
    pub why: String,
    #[serde(serialize_with = "as_text")]
    pub input: Vec<u8>,
}

#[derive(Clone, Debug, Serialize)]
pub struct TargetReport {
    pub target: &'static str,
    pub seed: u64,
    pub inputs: u64,
    pub taken: u64,
    pub seconds: f64,
    #[serde(serialize_with = "as_ms", rename = "slowest_ms")]
    pub slowest: Duration,
    pub slowest_number: u64,
    pub most_bytes: u64,
    pub most_bytes_number: u64,
    pub kept_bytes: i64,
    pub failures: Vec<Failure>,
}

impl TargetReport {
    pub fn new(target: &'static str, seed: u64) -> TargetReport {
        TargetReport {
            target,
            seed,
            inputs: 0,
            taken: 0,
            seconds: 0.0,
            slowest: Duration::ZERO,
            slowest_number: 0,
            most_bytes: 0,
            most_bytes_number: 0,
            kept_bytes: 0,
            failures: Vec::new(),
        }
    }

    pub fn add(&mut self, other: TargetReport) {
        self.inputs += other.inputs;
        self.taken += other.taken;
        if other.slowest > self.slowest {
            (self.slowest, self.slowest_number) = (other.slowest, other.slowest_number);
        }
        if other.most_bytes > self.most_bytes {
            (self.most_bytes, self.most_bytes_number) = (other.most_bytes, other.most_bytes_number);
        }
        self.kept_bytes += other.kept_bytes;
        self.failures.extend(other.failures);
    }

    pub fn per_second(&self) -> f64 {
        self.inputs as f64 / self.seconds.max(f64::MIN_POSITIVE)
    }
}

pub fn print(reports: &[TargetReport]) {
    let mut table = Table::new();
    table.load_preset(NOTHING);
    table.set_header(["target", "inputs", "taken", "per second", "slowest ms", "most KiB", "kept KiB", "failures"]);
    for report in reports {
        table.add_row([
            report.target.to_owned(),
            report.inputs.to_string(),
            format!("{:.1} %", 100.0 * report.taken as f64 / report.inputs.max(1) as f64),
            format!("{:.0}", report.per_second()),
            format!("{:.1}", report.slowest.as_secs_f64() * 1e3),
            (report.most_bytes >> 10).to_string(),
            (report.kept_bytes / 1024).to_string(),
            report.failures.len().to_string(),
        ]);
    }
    println!("{table}");
    let inputs: u64 = reports.iter().map(|report| report.inputs).sum();
    let seconds: f64 = reports.iter().map(|report| report.seconds).sum();
    println!("{inputs} inputs in {seconds:.0} s");
    for report in reports {
        for Failure { number, why, input } in &report.failures {
            let shown: String = String::from_utf8_lossy(input).chars().take(2000).collect();
            println!("{}, seed {}, input {number}: {why}\n  {shown:?}", report.target, report.seed);
        }
    }
}

pub fn print_json(reports: &[TargetReport]) -> anyhow::Result<()> {
    println!("{}", serde_json::to_string_pretty(reports)?);
    Ok(())
}

fn as_ms<S: serde::Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64() * 1e3)
}

fn as_text<S: serde::Serializer>(input: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&String::from_utf8_lossy(input))
}
