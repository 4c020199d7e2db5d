//! Server-sent events from bytes in any pieces. Knows no socket.

/// Reader of a stream. It returns the data of each complete event; names, ids and comments are of no use here.
pub struct Events {
    line: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    /// True after a line that ended with `\r`: a `\n` right behind it belongs to it.
    after_return: bool,
    begun: bool,
    limit_bytes: usize,
}

#[derive(Debug, PartialEq, Eq)]
pub struct TooLarge;

impl Events {
    pub fn new(limit_bytes: usize) -> Events {
        Events { line: Vec::new(), data: Vec::new(), has_data: false, after_return: false, begun: false, limit_bytes }
    }

    pub fn push(&mut self, bytes: &[u8], events: &mut Vec<String>) -> Result<(), TooLarge> {
        for byte in bytes {
            let follows_return = std::mem::replace(&mut self.after_return, *byte == b'\r');
            match byte {
                b'\n' if follows_return => {}
                b'\n' | b'\r' => self.end_of_line(events),
                byte => {
                    if self.line.len() + self.data.len() >= self.limit_bytes {
                        return Err(TooLarge);
                    }
                    self.line.push(*byte);
                }
            }
        }
        Ok(())
    }

    /// Ends the stream. Some servers leave out the empty line after the last event.
    pub fn finish(&mut self, events: &mut Vec<String>) {
        if !self.line.is_empty() {
            self.end_of_line(events);
        }
        self.end_of_event(events);
    }

    fn end_of_line(&mut self, events: &mut Vec<String>) {
        let mut line = std::mem::take(&mut self.line);
        if !std::mem::replace(&mut self.begun, true) && line.starts_with(b"\xef\xbb\xbf") {
            line.drain(..3);
        }
        if line.is_empty() {
            self.end_of_event(events);
            return;
        }
        let (name, value) = match line.iter().position(|byte| *byte == b':') {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (&line[..], &[][..]),
        };
        if name == b"data" {
            if std::mem::replace(&mut self.has_data, true) {
                self.data.push(b'\n');
            }
            self.data.extend_from_slice(value.strip_prefix(b" ").unwrap_or(value));
        }
    }

    fn end_of_event(&mut self, events: &mut Vec<String>) {
        let data = std::mem::take(&mut self.data);
        if std::mem::take(&mut self.has_data) {
            events.push(String::from_utf8_lossy(&data).into_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(parts: &[&[u8]]) -> Vec<String> {
        let mut events = Vec::new();
        let mut reader = Events::new(1 << 20);
        for part in parts {
            reader.push(part, &mut events).unwrap();
        }
        reader.finish(&mut events);
        events
    }

    #[test]
    fn what_the_specification_shows() {
        let cases: [(&str, &[&str]); 9] = [
            ("data: a\n\ndata: b\n\n", &["a", "b"]),
            ("data: YHOO\ndata: +2\ndata: 10\n\n", &["YHOO\n+2\n10"]),
            (": a comment\n\ndata\n\ndata\ndata\n\ndata:", &["", "\n", ""]),
            ("data:test\n\ndata:  test\n\n", &["test", " test"]),
            ("event: x\nid: 1\ndata: a\nretry: 5\n\n", &["a"]),
            ("\u{feff}data: a\r\n\r\ndata: b\r\rdata: c", &["a", "b", "c"]),
            ("event: ping\n\n", &[]),
            (": keep-alive\n\n: keep-alive\n\ndata: [DONE]\n\n", &["[DONE]"]),
            ("", &[]),
        ];
        for (text, expected) in cases {
            assert_eq!(read(&[text.as_bytes()]), expected, "{text:?}");
        }
    }

    #[test]
    fn an_event_without_end_is_refused() {
        let mut reader = Events::new(100);
        let mut events = Vec::new();
        assert_eq!(reader.push(&[b'x'; 100], &mut events), Ok(()));
        assert_eq!(reader.push(b"x", &mut events), Err(TooLarge));
        let mut reader = Events::new(100);
        let many = b"data: 0123456789\n".repeat(12);
        assert_eq!(reader.push(&many, &mut events), Err(TooLarge));
    }

    proptest! {
        #[test]
        fn how_bytes_are_cut_does_not_matter(
            lines in prop::collection::vec(prop_oneof![
                Just(String::new()), Just(": c".into()), "data: ?[a-z é\u{1F600}{}\":]{0,12}", "[a-z:\u{feff}]{0,6}",
            ], 0..20),
            ends in prop::collection::vec(0..3usize, 20),
            cuts in prop::collection::vec(1..7usize, 1..60),
        ) {
            let mut text = String::new();
            for (line, end) in lines.iter().zip(&ends) {
                text.push_str(line);
                text.push_str(["\n", "\r\n", "\r"][*end]);
            }
            let whole = read(&[text.as_bytes()]);
            let mut rest = text.as_bytes();
            let mut parts = Vec::new();
            for cut in cuts.iter().cycle().take(text.len()) {
                let (part, after) = rest.split_at((*cut).min(rest.len()));
                parts.push(part);
                rest = after;
            }
            prop_assert_eq!(read(&parts), whole);
        }

        #[test]
        fn what_was_written_is_read(datas in prop::collection::vec("[^\r]{0,20}", 0..10)) {
            let event = |data: &String| {
                data.split('\n').map(|line| format!("data: {line}\n")).collect::<String>() + "\n"
            };
            let text: String = datas.iter().map(event).collect();
            prop_assert_eq!(read(&[text.as_bytes()]), datas);
        }

        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            read(&[&bytes]);
        }
    }
}
