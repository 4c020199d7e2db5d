//! Output of the terminal.

use serde_json::Value;
use std::io::{self, Write};
use terminal::note;
use terminal::output::{clean, clean_lines, print_rows, stdout};

const BUILT_IN: &str = "reprise-builtin";

const HELP: &str = "\
/context   how full the window is
/summary   what stands for the oldest turns, and what is kept word for word
/sessions  your conversations
/memories  what is remembered, with numbers
/forget    forgets what was learned last here; /forget NUMBER one of the list
/quit      ends this; the session stays
Ctrl-C     stops the reply, or ends this where none runs";

pub struct ChatScreen {
    interactive: bool,
    in_line: bool,
    // Result of the last print. An error ends the conversation.
    printed: io::Result<()>,
}

impl ChatScreen {
    pub fn new(interactive: bool) -> ChatScreen {
        ChatScreen { interactive, in_line: false, printed: Ok(()) }
    }

    pub fn hello(&mut self, session: &Value) {
        let [model, id] = ["model", "id"].map(|key| session[key].as_str().unwrap_or_default());
        self.note(&format!("{} · session {} · /help for help", clean(model), clean(id)));
        if model == BUILT_IN {
            self.note(
                "a tiny demonstration model that knows a few dozen things to say; docs/models.md says how to get a real one",
            );
        }
    }

    pub fn goodbye(&mut self, session: &str) {
        self.note(&format!("continue later with: reprise chat --session {}", clean(session)));
    }

    pub fn help(&mut self) {
        HELP.lines().for_each(|line| self.note(line));
    }

    pub fn prompt(&mut self) {
        if self.interactive {
            self.fresh_line();
            self.put("> ");
        }
    }

    /// Prints words of a reply without control characters, which the terminal would obey.
    pub fn delta(&mut self, text: &str) {
        let safe: String = text.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect();
        self.in_line = if safe.is_empty() { self.in_line } else { !safe.ends_with('\n') };
        self.put(&safe);
    }

    pub fn reply_done(&mut self, response: &Value) {
        self.fresh_line();
        match response["status"].as_str() {
            Some("cancelled") => self.note("stopped"),
            Some("incomplete") => self.note("the reply reached its limit"),
            Some("failed") => {
                let message = response["status_details"]["error"]["message"].as_str();
                self.note(message.unwrap_or("the reply failed"));
            }
            _ => {}
        }
    }

    /// Prints an item that was said before, or on another connection.
    pub fn missed(&mut self, item: &Value) {
        let parts = item["content"].as_array().map(Vec::as_slice).unwrap_or_default();
        let text: String = parts.iter().filter_map(|part| part["text"].as_str()).collect();
        if text.is_empty() {
            return;
        }
        self.fresh_line();
        let before = if item["role"] == "user" { "> " } else { "" };
        self.put(&format!("{before}{}\n", clean(&text)));
    }

    pub fn context(&mut self, context: Option<&Value>) {
        let Some(context) = context else { return self.note("there is no reply yet") };
        let [tokens, size] = ["tokens", "ctx_size"].map(|key| context[key].as_u64().unwrap_or(0));
        let percent = context["fill"].as_f64().unwrap_or(0.0) * 100.0;
        self.note(&format!("{tokens} of {size} tokens ({percent:.1} %)"));
    }

    pub fn summary(&mut self, session: &Value) {
        for pin in session["pins"].as_array().into_iter().flatten() {
            self.note(&format!("kept word for word: {}", clean(pin["text"].as_str().unwrap_or_default())));
        }
        match session["summary"]["text"].as_str().filter(|text| !text.is_empty()) {
            Some(text) => self.note(&clean_lines(text)),
            None if session["summary"].is_null() => self.note("no summary yet: the prompt has all turns"),
            None => self.note("the oldest turns left the prompt; their summary comes later"),
        }
    }

    pub fn sessions(&mut self, sessions: &Value, own: &str) {
        let rows = sessions["data"].as_array().into_iter().flatten().map(|session| {
            let mut row = session.clone();
            if session["id"] == own {
                row["id"] = format!("{own} (this)").into();
            }
            // The first words stand where no title is.
            if row["title"].as_str().is_none_or(str::is_empty) {
                row["title"] = row["first_words"].take();
            }
            row
        });
        let columns = [
            ("session", "id"),
            ("last used (UTC)", "updated_at_ms"),
            ("items", "items"),
            ("person", "person"),
            ("title", "title"),
        ];
        self.fresh_line();
        let _ = print_rows(&rows.collect::<Vec<_>>(), &columns);
    }

    pub fn memories(&mut self, memories: &[Value]) {
        if memories.is_empty() {
            return self.note("nothing is remembered yet");
        }
        for (at, memory) in memories.iter().enumerate() {
            let [person, text] = ["person", "text"].map(|key| clean(memory[key].as_str().unwrap_or_default()));
            let person = if person.is_empty() { String::new() } else { format!("{person}: ") };
            self.note(&format!("{} {person}{text}", at + 1));
        }
    }

    pub fn learned(&mut self, memory: &Value) {
        let text = clean(memory["text"].as_str().unwrap_or_default());
        self.note(&format!("remembered: {text} · /forget takes it back"));
    }

    pub fn unsure(&mut self, near: &[Value], is_wish: bool) {
        let does = if is_wish { "forget" } else { "correct" };
        self.note(&format!("that may {does} either of these memories, so both stay · /forget NUMBER forgets one"));
        self.memories(near);
    }

    pub fn forgotten(&mut self, memory: &Value) {
        self.note(&format!("forgotten: {}", clean(memory["text"].as_str().unwrap_or_default())));
    }

    /// Prints a note to the standard error, so that a pipe gets only what the assistant says.
    pub fn note(&mut self, text: &str) {
        self.fresh_line();
        note!("[{text}]");
    }

    fn fresh_line(&mut self) {
        if self.in_line {
            self.put("\n");
            self.in_line = false;
        }
    }

    fn put(&mut self, text: &str) {
        let mut out = stdout();
        let printed = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        self.printed = std::mem::replace(&mut self.printed, Ok(())).and(printed);
    }

    pub fn check(&mut self) -> io::Result<()> {
        std::mem::replace(&mut self.printed, Ok(()))
    }
}
