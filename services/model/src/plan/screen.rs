//! A plan for people: a line for each thing that takes memory.

use super::Plan;
use std::fmt;

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let each = format!("one for each sequence, of which {} are computed at once", self.sequences);
        let spacing =
            format!("a state to come back to, as {}, every {} tokens", self.snapshots, self.snapshot_spacing_tokens);
        let program = [
            ("the program", self.process_bytes, "its file, threads, store and connections"),
            ("allocators", self.unused_bytes, "what they hold and do not use"),
        ];
        let texts = [
            ("vocabulary", self.vocabulary_bytes, ""),
            ("tokens of old turns", self.token_cache_bytes, ""),
            ("requests being read", self.prepare_bytes, "memory.prepare_bytes"),
            ("text of sessions", self.text_bytes, "memory.text_bytes"),
        ];
        let weights = |weights, scratch| [("weights", weights, ""), ("buffers of a step", scratch, "")];
        let sequences = [
            ("conversations", self.left_bytes, "what is left of the ceiling"),
            ("  a state", self.sequence_bytes, each.as_str()),
            ("  a snapshot", self.snapshot_bytes, &spacing),
        ];
        let ceiling = ("ceiling", self.total_bytes, "memory.total");
        let Some(device) = &self.device else {
            let weights = weights(self.weight_bytes, self.scratch_bytes);
            let all = program.into_iter().chain(weights).chain(texts).chain(sequences).chain([ceiling]);
            all.into_iter().try_for_each(|(what, bytes, note)| line(f, what, bytes, note))?;
            return self.write_windows(f);
        };
        let on_host = weights(self.weight_bytes, self.scratch_bytes).into_iter().filter(|(_, bytes, _)| *bytes > 0);
        for (what, bytes, note) in program.into_iter().chain(on_host).chain(texts).chain([ceiling]) {
            line(f, what, bytes, note)?;
        }
        writeln!(f, "  on {}", device.name)?;
        let ceiling = ("ceiling", device.total_bytes as u64, "memory.gpu_total");
        let weights = weights(device.weight_bytes as u64, device.scratch_bytes as u64);
        for (what, bytes, note) in weights.into_iter().chain(sequences).chain([ceiling]) {
            line(f, what, bytes, note)?;
        }
        self.write_windows(f)
    }
}

fn line(f: &mut fmt::Formatter<'_>, what: &str, bytes: u64, note: &str) -> fmt::Result {
    writeln!(f, "  {what:<22}{:>10}  {note}", Bytes(bytes).to_string())
}

impl Plan {
    fn write_windows(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for window in &self.windows {
            let mark = if window.chosen { "*" } else { " " };
            let fit = match window.fit {
                0 => "does not fit".to_owned(),
                1 => "one full conversation fits".to_owned(),
                fit => format!("{fit} full conversations fit"),
            };
            let size = Bytes(window.bytes).to_string();
            writeln!(f, "{mark} {:<22}{:>10}  {} tokens: {fit}", window.preset, size, window.ctx_size)?;
        }
        Ok(())
    }
}

pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
        match units.iter().find(|(_, shift)| self.0 >> shift > 0) {
            Some((unit, shift)) => write!(f, "{:.1} {unit}", self.0 as f64 / (1u64 << shift) as f64),
            None => write!(f, "{} B", self.0),
        }
    }
}
