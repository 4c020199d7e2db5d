//! Measures each kernel beside what this machine can do at all: `cargo bench -p kernels [-- [threads=2] WORDS]`.
//!
//! One thread, the shortest of many runs, which other programs disturbed least. Products of few rows are reported in
//! GB/s of weights, which come from memory; those of many rows in operations. 'near': the same with weights that stay
//! in the core's own cache, which tells computing from waiting. Words choose lines that contain one.

use std::hint::black_box;
use std::time::Instant;

use kernels::attention::{self, Queries};
use kernels::cpu::{Cpu, CpuLevel};
use kernels::delta::DeltaHeads;
use kernels::format::{Format, quantize};
use kernels::peak;
use kernels::product::{
    Activations, MatrixOrder, PANEL, Precision, Rounding, Weights, has_panels, pack_panel, panel_bytes, product,
    products,
};
use kernels::recurrence::{OutputGate, RecurrenceRows, RecurrenceState, recur};
use reference::{random, random_codes};

fn main() {
    let mut words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let mut threads = 1;
    words.retain(|word| match word.strip_prefix("threads=") {
        Some(number) => {
            threads = number.parse().expect("threads=NUMBER");
            false
        }
        None => true,
    });
    let cpu = Cpu::new(threads);
    let (memory_gb_per_s, int8_gops) = (memory_gb_per_s(&cpu), int8_gops(cpu.level).map(|gops| gops * threads as f64));
    let bench = Bench { memory_gb_per_s, int8_gops, cpu, words };
    println!("{}, {threads} of the processor's threads", bench.cpu.level.name());
    println!("{:44} {:8.1} GB/s", "memory, only read", bench.memory_gb_per_s);
    if let Some(peak) = bench.int8_gops {
        println!("{:44} {peak:8.0} GOPS", "dot products of bytes, nothing else");
    }
    let formats = [
        Format::Q4_K,
        Format::Q5_K,
        Format::Q6_K,
        Format::Q8_0,
        Format::Q4_0,
        Format::IQ4_XS,
        Format::BF16,
        Format::F16,
        Format::F32,
    ];
    for format in formats {
        bench.product(format);
    }
    bench.token();
    for rows in [1, 4, 64, 256] {
        bench.delta(rows);
    }
    for (rows, past) in [(1, 4096), (1, 16_000), (3, 16_000), (38, 16_000), (256, 4096)] {
        for format in [Format::F16, Format::Q8_0, Format::Q4_0] {
            bench.attention(format, rows, past);
        }
    }
}

struct Bench {
    cpu: Cpu,
    words: Vec<String>,
    memory_gb_per_s: f64,
    int8_gops: Option<f64>,
}

impl Bench {
    fn wants(&self, name: &str) -> bool {
        self.words.is_empty() || self.words.iter().any(|word| name.contains(word))
    }

    fn product(&self, format: Format) {
        // Together the matrices are far larger than any cache, so that a product finds its weights in memory.
        let (rows, cols, copies) = (1024, 3584, 96);
        let near_rows = 192;
        let names = [1, 2, 4, 6, 8, 12, 16, 24, 38, 256].map(|m| (m, format!("{} × {m} rows", format.name())));
        let near = |name: &str| format!("{name}, near");
        if !names.iter().any(|(_, name)| self.wants(&near(name))) {
            return;
        }
        let bytes = random_blocks(format, rows * cols, 1);
        let mut w = Weights { format, rows, cols, order: MatrixOrder::Rows, bytes: &bytes };
        let mut packed = Vec::new();
        if let Some(size) = panel_bytes(format, rows, cols).filter(|_| has_panels(self.cpu.level)) {
            packed.resize(size, 0);
            let one = size / rows.div_ceil(PANEL);
            let begin = Instant::now();
            packed
                .chunks_exact_mut(one)
                .enumerate()
                .for_each(|(panel, out)| pack_panel(self.cpu.level, &w, panel, out));
            let speed = bytes.len() as f64 / begin.elapsed().as_secs_f64() / 1e9;
            println!("{:44} {speed:8.2} GB/s", format!("{} to panels", format.name()));
            w = Weights { order: MatrixOrder::Panels, bytes: &packed, ..w };
        }
        let all = w.bytes.repeat(copies);
        for (m, name) in names.iter().filter(|(_, name)| self.wants(&near(name))) {
            let mut x = Activations::default();
            x.set(*m, cols, &random(m * cols, 2));
            x.quantise(&self.cpu, Rounding::Coarse);
            let mut out = vec![0.0; m * rows];
            let runs = if *m > 8 { 12 } else { copies };
            let mut at = 0;
            let seconds = shortest(runs, || {
                let w = Weights { bytes: &all[at * w.bytes.len()..][..w.bytes.len()], ..w };
                at = (at + 1) % copies;
                product(&self.cpu, Precision::Integer, &x, w, black_box(&mut out));
            });
            let gb_per_s = w.bytes.len() as f64 / seconds / 1e9;
            let gops = 2.0 * (rows * cols * m) as f64 / seconds / 1e9;
            self.line(name, seconds, gb_per_s, gops);
            if self.wants(&near(name)) && *m <= 24 {
                let w = Weights { rows: near_rows, bytes: &all[..w.bytes.len() * near_rows / rows], ..w };
                let mut out = vec![0.0; m * near_rows];
                let seconds = shortest(1000, || product(&self.cpu, Precision::Integer, &x, w, black_box(&mut out)));
                let gb_per_s = w.bytes.len() as f64 / seconds / 1e9;
                self.line(&near(name), seconds, gb_per_s, 2.0 * (near_rows * cols * m) as f64 / seconds / 1e9);
            }
        }
    }

    fn line(&self, name: &str, seconds: f64, gb_per_s: f64, gops: f64) {
        let of_int8 = self.int8_gops.map_or(String::new(), |peak| format!(", {:3.0} % of bytes", 100.0 * gops / peak));
        println!(
            "{name:44} {gb_per_s:8.2} GB/s ({:3.0} %) {gops:8.0} GOPS{of_int8} {:9.1} µs",
            100.0 * gb_per_s / self.memory_gb_per_s,
            seconds * 1e6
        );
    }

    fn token(&self) {
        let name = "q4_k, all products of a token, 24 layers";
        if !self.wants(name) {
            return;
        }
        let format = Format::Q4_K;
        // Each of these reads the output of the one before it.
        let stages: [(&[usize], usize); 4] =
            [(&[6144, 2048], 1024), (&[1024], 2048), (&[3584, 3584], 1024), (&[1024], 3584)];
        let size = |rows: usize, cols: usize| {
            let panels = has_panels(self.cpu.level).then(|| panel_bytes(format, rows, cols)).flatten();
            panels.unwrap_or_else(|| rows * format.row_bytes(cols).expect("whole blocks"))
        };
        let order = if has_panels(self.cpu.level) { MatrixOrder::Panels } else { MatrixOrder::Rows };
        let of_layer: usize = stages.iter().flat_map(|(rows, cols)| rows.iter().map(|rows| size(*rows, *cols))).sum();
        let all = random_blocks(format, 1 << 20, 1).into_iter().cycle().take(24 * of_layer).collect::<Vec<u8>>();
        let mut activations = [1024, 2048, 3584].map(|cols| {
            let mut x = Activations::default();
            x.set(1, cols, &random(cols, 2));
            (cols, x)
        });
        let mut out = vec![0.0; 6144 + 2048];
        let mut times = Vec::new();
        for _ in 0..40 {
            let begin = Instant::now();
            let mut at = 0;
            for _ in 0..24 {
                for (rows, cols) in stages {
                    let (_, x) = activations.iter_mut().find(|(of, _)| *of == cols).expect("listed");
                    x.quantise(&self.cpu, Rounding::Coarse);
                    let mut weights = |rows: usize| {
                        let bytes = &all[at..][..size(rows, cols)];
                        at += bytes.len();
                        Weights { format, rows, cols, order, bytes }
                    };
                    match *rows {
                        [rows] => product(&self.cpu, Precision::Integer, x, weights(rows), black_box(&mut out[..rows])),
                        [first, second] => {
                            let (a, b) = out.split_at_mut(first);
                            let (a, b) = ((weights(first), a), (weights(second), &mut b[..second]));
                            let matrices = [a, b].map(|(weights, out)| (Precision::Integer, weights, out));
                            products(&self.cpu, x, matrices);
                        }
                        _ => unreachable!("one or two"),
                    }
                }
            }
            times.push(begin.elapsed().as_secs_f64());
        }
        times.sort_by(f64::total_cmp);
        let seconds = times[times.len() / 2];
        self.line(&format!("{name}, median"), seconds, all.len() as f64 / seconds / 1e9, 0.0);
    }

    fn delta(&self, rows: usize) {
        let name = format!("delta rule, {rows} rows of 16 heads");
        if !self.wants(&name) {
            return;
        }
        let heads = DeltaHeads { key_heads: 16, value_heads: 16, key_dim: 128, value_dim: 128, tiled: false };
        let inputs = random(rows * heads.channels(), 1);
        let mut qkv = inputs.clone();
        let decay: Vec<f32> = random(rows * heads.value_heads, 2).iter().map(|x| -0.1 * (x + 1.0)).collect();
        let beta: Vec<f32> = random(rows * heads.value_heads, 3).iter().map(|x| (x + 1.0) / 2.0).collect();
        let (taps, z) = (random(4 * heads.channels(), 5), random(rows * heads.values(), 6));
        let norm = random(heads.value_dim, 7);
        // One state for each layer of a model: more than the caches near the core hold.
        let mut states = vec![(random(heads.state(), 4), random(3 * heads.channels(), 8)); 18];
        let mut out = vec![0.0; rows * heads.values()];
        let mut at = 0;
        let seconds = shortest(40, || {
            qkv.copy_from_slice(&inputs);
            let rows = RecurrenceRows { qkv: &mut qkv, decay: &decay, beta: &beta, drafts: 0 };
            let (recurrent, conv) = &mut states[at];
            let gate = OutputGate { z: &z, norm: &norm, eps: 1e-6 };
            recur(&self.cpu, heads, &taps, rows, RecurrenceState { recurrent, conv }, Some(gate), &mut out);
            at = (at + 1) % 18;
        });
        println!("{name:44} {:9.1} µs, {:.2} µs a row", seconds * 1e6, seconds * 1e6 / rows as f64);
    }

    fn attention(&self, format: Format, rows: usize, past: usize) {
        let name = format!("attention, {rows} rows after {past}, {}", format.name());
        if !self.wants(&name) {
            return;
        }
        let signs = format.is_of_rotated_rows().then_some(kernels::hadamard::Signs { seed: 1 });
        let layout = attention::PageLayout {
            key_format: format,
            value_format: format,
            kv_heads: 2,
            head_dim: 256,
            page: 256,
            key_signs: signs,
            value_signs: signs,
        };
        let q_heads = 8;
        let positions: usize = past + rows;
        // One past for each layer of a model: more than any cache holds.
        const LAYERS: usize = 6;
        let mut pages = vec![vec![0u8; LAYERS * layout.bytes()]; positions.div_ceil(layout.page)];
        let (keys, values) = (random(2 * 256, 1), random(2 * 256, 2));
        for position in 0..positions {
            for layer in pages[position / layout.page].chunks_exact_mut(layout.bytes()) {
                layout.write(self.cpu.level, layer, position % layout.page, &keys, &values);
            }
        }
        let q = random(rows * q_heads * 512, 3);
        let queries = Queries { values: &q, stride: q_heads * 512, head_stride: 512, q_heads, rows, first: past };
        let mut out = vec![0.0; rows * q_heads * 256];
        let mut layer = 0;
        let seconds = shortest(if rows > 4 { 3 } else { 60 }, || {
            attention::attend(&self.cpu, layout, &pages, layer * layout.bytes(), queries, &mut out);
            layer = (layer + 1) % LAYERS;
        });
        let bytes = pages.len() * layout.bytes();
        let gflops = 4.0 * (rows * q_heads * 256 * (past + rows / 2)) as f64 / seconds / 1e9;
        println!(
            "{name:44} {:8.2} GB/s ({:3.0} %) {gflops:8.0} GFLOPS {:9.1} µs",
            bytes as f64 / seconds / 1e9,
            100.0 * bytes as f64 / seconds / 1e9 / self.memory_gb_per_s,
            seconds * 1e6
        );
    }
}

fn shortest(runs: usize, mut work: impl FnMut()) -> f64 {
    work();
    let once = |_| {
        let begin = Instant::now();
        work();
        begin.elapsed().as_secs_f64()
    };
    (0..runs).map(once).fold(f64::INFINITY, f64::min)
}

fn memory_gb_per_s(cpu: &Cpu) -> f64 {
    const PARTS: usize = 64;
    let values = vec![1.0f32; 1 << 27]; // not a window: values in memory
    let part = values.len() / PARTS;
    let mut at = 0;
    let seconds = shortest(3 * PARTS, || {
        let part_of = |thread: usize| at * part + thread * part / cpu.pool.threads();
        cpu.pool.run(cpu.pool.threads(), |thread| {
            black_box(peak::read(cpu.level, &values[part_of(thread)..part_of(thread + 1)]));
        });
        at = (at + 1) % PARTS;
    });
    (part * size_of::<f32>()) as f64 / seconds / 1e9
}

fn int8_gops(level: CpuLevel) -> Option<f64> {
    // billions of multiplications and additions a second
    let mut operations = None;
    let seconds = shortest(50, || operations = peak::multiply_bytes(level, black_box(100_000)));
    operations.map(|operations| operations as f64 / seconds / 1e9)
}

fn random_blocks(format: Format, values: usize, seed: u64) -> Vec<u8> {
    let bytes = format.row_bytes(values).expect("whole blocks");
    random_codes(format.name(), bytes, format.block_bytes(), seed).unwrap_or_else(|| {
        let mut blocks = vec![0; bytes];
        quantize(format, &random(values, seed), &mut blocks);
        blocks
    })
}
