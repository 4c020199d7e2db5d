//! Request that waits for a search of the past, and the commands behind it. The session continues meanwhile.

use crate::command::Command;
use crate::look_back::Question;
use futures_util::future::BoxFuture;
use session::Input;
use session::machine::{ConnId, RecallResult};
use std::collections::VecDeque;

/// Commands that wait behind a request. One more ends the search.
const MOST_BEHIND: usize = 64;

pub struct Looking {
    conn: ConnId,
    pub question: Question,
    pub request: Command,
    pub behind: VecDeque<Command>,
    pub search: BoxFuture<'static, Option<RecallResult>>,
}

impl Looking {
    pub fn new(
        conn: ConnId,
        input_id: Option<String>,
        input: Input,
        question: Question,
        search: BoxFuture<'static, Option<RecallResult>>,
    ) -> Looking {
        let request = Command::Said { conn, input_id, input };
        Looking { conn, question, request, behind: VecDeque::new(), search }
    }

    /// Returns true if a command cannot wait for the search: it talks over the reply, wants it now, or ends the
    /// session.
    pub fn ends_with(&self, command: &Command) -> bool {
        match command {
            Command::Said { input, .. } => {
                let interrupts = match input {
                    Input::CancelResponse { response_id } | Input::StopThinking { response_id } => {
                        response_id.is_none()
                    }
                    Input::TakeTurn(turn) => turn.interrupts,
                    _ => false,
                };
                interrupts || self.behind.len() >= MOST_BEHIND
            }
            Command::Drain { .. } | Command::Leave | Command::Deleted => true,
            Command::Mark { .. } => self.behind.len() >= MOST_BEHIND,
            Command::Attach { .. } | Command::Trace { .. } | Command::Reload { .. } => false,
        }
    }

    /// Returns true if a command waits behind the request: inputs of one connection keep their order, and so do the
    /// requests and speech of all.
    pub fn holds_back(&self, command: &Command) -> bool {
        match command {
            Command::Said { conn, input, .. } => {
                let is_speech = matches!(input, Input::Hear { .. } | Input::HeardAll { .. });
                // The id is of another response: this one has none yet.
                let is_of_other = matches!(input, Input::CancelResponse { .. } | Input::StopThinking { .. });
                (*conn == self.conn && !is_of_other) || is_speech || input.wants_response()
            }
            Command::Mark { conn, .. } | Command::Trace { conn, .. } => *conn == self.conn,
            _ => false,
        }
    }

    pub fn is_of(&self, conn: ConnId) -> bool {
        let is_behind = |command: &Command| matches!(command, Command::Said { conn: other, .. } if *other == conn);
        self.conn == conn || self.behind.iter().any(is_behind)
    }
}

pub async fn next_note(looking: &mut Option<Looking>) -> Option<RecallResult> {
    match looking {
        Some(looking) => (&mut looking.search).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use session::NewTurn;

    fn said(conn: u64, input: Input) -> Command {
        Command::Said { conn: ConnId(conn), input_id: None, input }
    }

    fn looking() -> Looking {
        let question = Question { text: "Where?".to_owned(), item_id: None, person: None };
        let search = Box::pin(std::future::pending());
        Looking::new(ConnId(1), None, Input::Respond(Box::default()), question, search)
    }

    #[test]
    fn a_barge_in_of_any_connection_ends_the_search() {
        let looking = looking();
        for conn in [1, 2] {
            let turn = |interrupts| Input::TakeTurn(Box::new(NewTurn { interrupts, ..NewTurn::default() }));
            for input in
                [Input::CancelResponse { response_id: None }, Input::StopThinking { response_id: None }, turn(true)]
            {
                assert!(looking.ends_with(&said(conn, input)));
            }
            for input in [turn(false), Input::Respond(Box::default()), Input::Hear { text: "And".to_owned() }] {
                let command = said(conn, input);
                assert!(!looking.ends_with(&command) && looking.holds_back(&command));
            }
            let other = said(conn, Input::CancelResponse { response_id: Some("resp".to_owned()) });
            assert!(!looking.ends_with(&other) && !looking.holds_back(&other));
            let read = said(conn, Input::ReadItem { item_id: "item".to_owned() });
            assert!(!looking.ends_with(&read));
            assert_eq!(looking.holds_back(&read), conn == 1);
            assert_eq!(looking.is_of(ConnId(conn)), conn == 1);
        }
        assert!(looking.ends_with(&Command::Deleted) && looking.ends_with(&Command::Leave));
    }

    #[test]
    fn what_waits_has_a_limit() {
        let mut looking = looking();
        let more = || said(1, Input::ReadItem { item_id: "item".to_owned() });
        while !looking.ends_with(&more()) {
            looking.behind.push_back(more());
        }
        assert_eq!(looking.behind.len(), MOST_BEHIND);
    }
}
