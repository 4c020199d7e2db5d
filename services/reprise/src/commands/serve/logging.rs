//! Log lines: to the standard error, for people or for collectors.
//!
//! A thread of its own writes them. It leaves out and counts lines whose reader is too slow or whose disk is full, and no turn waits.

use anyhow::{Result, anyhow};
use settings::{LogFormat, LoggingSettings};
use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

const OURS: [&str; 6] = ["doors", "engine", "model", "reprise", "runtime", "store"];
// Time for the last lines, at the end of the process.
const LAST_LINES: Duration = Duration::from_secs(1);
const SHORT_WAIT: Duration = Duration::from_millis(5);

// Log that is open. Dropped, it waits for its last lines.
pub struct Log {
    lines: SyncSender<LogEntry>,
    ended: Receiver<()>,
}

enum LogEntry {
    Line(Vec<u8>),
    End,
}

#[derive(Clone)]
struct LineSender {
    lines: SyncSender<LogEntry>,
    left_out: Arc<AtomicU64>,
}

pub fn start(logging: &LoggingSettings) -> Result<Log> {
    let level = logging.level.into_str();
    // The libraries tell what they do and not what went wrong for a user: warnings are enough.
    let ours = OURS.map(|name| format!(",{name}={level}")).concat();
    let others = if matches!(level, "error" | "warn") { level } else { "warn" };
    let filter = EnvFilter::try_new(format!("{others}{ours}"))?;
    let (sender, log) = open(logging.waiting_lines, std::io::stderr())?;
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(sender).with_target(false);
    let started = match logging.format {
        LogFormat::Human => lines.with_ansi(std::io::stderr().is_terminal()).compact().try_init(),
        LogFormat::Json => lines.json().flatten_event(true).with_current_span(true).with_span_list(true).try_init(),
    };
    started.map_err(|error| anyhow!("the log cannot be started: {error}"))?;
    Ok(log)
}

fn open(waiting: usize, out: impl Write + Send + 'static) -> Result<(LineSender, Log)> {
    let (lines, entries) = sync_channel(waiting);
    let (end, ended) = sync_channel(1);
    let sender = LineSender { lines: lines.clone(), left_out: Arc::default() };
    let left_out = sender.left_out.clone();
    let writes = move || {
        write_all(&entries, &left_out, out);
        let _ = end.send(());
    };
    std::thread::Builder::new().name("log".to_owned()).spawn(writes)?;
    Ok((sender, Log { lines, ended }))
}

// Writes lines until the end. What cannot be written is left out: there is no other place to tell it.
fn write_all(entries: &Receiver<LogEntry>, left_out: &AtomicU64, mut out: impl Write) {
    while let Ok(LogEntry::Line(line)) = entries.recv() {
        let _ = out.write_all(&line);
        let count = left_out.swap(0, Ordering::Relaxed);
        if count > 0 {
            let _ = writeln!(out, "{count} log lines were left out: their reader is too slow (logging.waiting_lines)");
        }
    }
}

impl Write for LineSender {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        if self.lines.try_send(LogEntry::Line(line.to_vec())).is_err() {
            self.left_out.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for LineSender {
    type Writer = LineSender;

    fn make_writer(&'a self) -> LineSender {
        self.clone()
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        // A reader that stalls does not keep the process.
        let deadline = Instant::now() + LAST_LINES;
        while self.lines.try_send(LogEntry::End).is_err() {
            if Instant::now() >= deadline {
                return;
            }
            std::thread::sleep(SHORT_WAIT);
        }
        let _ = self.ended.recv_timeout(deadline.saturating_duration_since(Instant::now()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    struct Gate {
        opened: Receiver<()>,
        written: Arc<Mutex<Vec<u8>>>,
        fails: bool,
    }

    impl Write for Gate {
        fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
            let _ = self.opened.recv();
            self.written.lock().unwrap().extend_from_slice(line);
            if self.fails { Err(std::io::ErrorKind::BrokenPipe.into()) } else { Ok(line.len()) }
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn written(fails: bool) -> String {
        let (open_gate, opened) = sync_channel(100);
        let written = Arc::<Mutex<Vec<u8>>>::default();
        let (mut sender, log) = open(2, Gate { opened, written: written.clone(), fails }).unwrap();
        // The gate is closed: none of these waits.
        for line in 0..50 {
            sender.write_all(format!("line {line}\n").as_bytes()).unwrap();
        }
        drop(open_gate);
        // The last line finds room once those before it are written.
        while sender.lines.try_send(LogEntry::Line(b"last\n".to_vec())).is_err() {
            std::thread::yield_now();
        }
        drop(log);
        let written = written.lock().unwrap();
        String::from_utf8_lossy(&written).into_owned()
    }

    #[test]
    fn a_line_that_nobody_reads_is_left_out_and_counted() {
        let written = written(false);
        assert!(written.contains("line 0\n") && written.contains("last\n"), "{written}");
        assert!(written.contains("log lines were left out"), "{written}");
    }

    #[test]
    fn a_log_that_cannot_be_written_stops_nothing() {
        assert!(written(true).contains("last\n"));
    }
}
