//! Lines of an import: their content and their allowed order. This file writes nothing.

use crate::export::{ExportLine, FORMAT};
use crate::{Error, SessionRecord};

#[derive(Default)]
pub struct ImportLines {
    line: usize,
    open: Option<OpenSession>,
}

struct OpenSession {
    lines: u64,
    seq: u64,
}

pub(crate) enum ImportStep {
    Nothing,
    Session(Box<SessionRecord>),
    Line(Box<ExportLine>),
    End,
}

impl ImportLines {
    /// Checks a whole file without a store. Returns its number of sessions.
    pub fn check(text: &str) -> Result<usize, Error> {
        let (mut lines, mut sessions) = (ImportLines::default(), 0);
        for line in text.lines() {
            sessions += usize::from(matches!(lines.line(line)?, ImportStep::End));
        }
        lines.finish().map(|()| sessions)
    }

    pub(crate) fn line(&mut self, text: &str) -> Result<ImportStep, Error> {
        self.line += 1;
        if text.trim().is_empty() {
            return Ok(ImportStep::Nothing);
        }
        let line = serde_json::from_str(text);
        self.step(line.map_err(|error| self.refused(format!("not a line of an export: {error}")))?)
    }

    pub(crate) fn finish(&self) -> Result<(), Error> {
        match self.open {
            Some(_) => Err(self.refused("the file ends in the middle of a session".to_owned())),
            None => Ok(()),
        }
    }

    pub(crate) fn refused(&self, cause: String) -> Error {
        Error::Import { line: self.line, cause }
    }

    fn step(&mut self, line: ExportLine) -> Result<ImportStep, Error> {
        let cause = match (line, &mut self.open) {
            (ExportLine::Session { format, session }, None) if format == FORMAT => {
                self.open = Some(OpenSession { lines: 1, seq: 0 });
                return Ok(ImportStep::Session(Box::new(session)));
            }
            (ExportLine::Session { format, .. }, None) => {
                format!("format {format} is not known here, only {FORMAT}: use a newer release")
            }
            (ExportLine::Session { .. }, Some(_)) => "the session before it has no end".to_owned(),
            (_, None) => "a session must come first".to_owned(),
            (ExportLine::End { lines }, Some(open)) if lines == open.lines => {
                self.open = None;
                return Ok(ImportStep::End);
            }
            (ExportLine::End { lines }, Some(open)) => {
                format!("{lines} lines were written and {} are here", open.lines)
            }
            (ExportLine::Item(item), Some(open)) if item.seq != open.seq + 1 => {
                format!("item {:?} has seq {}, expected was {}", item.item_id, item.seq, open.seq + 1)
            }
            (line, Some(open)) => {
                open.lines += 1;
                open.seq += u64::from(matches!(line, ExportLine::Item(_)));
                return Ok(ImportStep::Line(Box::new(line)));
            }
        };
        Err(self.refused(cause))
    }
}
