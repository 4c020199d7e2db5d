use crate::sentences::ends_in_question;
use crate::vocabulary::{ItemBody, Response, ResponseStatus};

impl ResponseStatus {
    pub fn word(self) -> &'static str {
        self.into()
    }
}

impl Response {
    pub fn end_at(&mut self, item: &str, bytes: usize) {
        for told in self.output.iter_mut().filter(|told| told.id == item) {
            told.shorten(bytes);
        }
    }

    /// True if the reply asks the user something. A reply that was cut off, or that has calls to answer, does not yet.
    pub fn expects_answer(&self) -> bool {
        let goes_on = self.output.iter().any(|item| matches!(item.body, ItemBody::FunctionCall { .. }));
        self.status == ResponseStatus::Completed
            && !goes_on
            && self.output.last().is_some_and(|item| ends_in_question(&item.text()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vocabulary::{Item, ItemStatus, MaxTokens, Role};

    fn response(status: ResponseStatus, output: Vec<Item>) -> Response {
        Response {
            id: "r".into(),
            status,
            details: None,
            output,
            conversation_id: None,
            max_output_tokens: MaxTokens::Unlimited,
            usage: None,
            metadata: None,
        }
    }

    #[test]
    fn only_a_reply_that_is_whole_expects_an_answer() {
        let asks = || Item::message("a", Role::Assistant, "Which one?");
        let tells = || Item::message("b", Role::Assistant, "Done.");
        let call = ItemBody::FunctionCall { call_id: "c".into(), name: "f".into(), arguments: "{}".into() };
        let call = || Item::new("c", call.clone(), ItemStatus::Completed);
        let expects = |status, output| response(status, output).expects_answer();
        assert!(expects(ResponseStatus::Completed, vec![asks()]));
        assert!(expects(ResponseStatus::Completed, vec![tells(), asks()]));
        assert!(!expects(ResponseStatus::Completed, vec![asks(), tells()]));
        assert!(!expects(ResponseStatus::Completed, vec![asks(), call()]));
        assert!(!expects(ResponseStatus::Completed, vec![]));
        for status in [ResponseStatus::Cancelled, ResponseStatus::Incomplete, ResponseStatus::Failed] {
            assert!(!expects(status, vec![asks()]));
        }
    }
}
