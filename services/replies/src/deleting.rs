use crate::completion::failure_of;
use crate::{Completions, Error};
use runtime::{SessionAnswer, wall_ms};
use session::{Event, Input, Refusal};
use store::{SessionRef, StoredResponse};

impl Completions {
    pub async fn delete_items(&self, session: &SessionRef, item_ids: Vec<String>) -> Result<(), Error> {
        for item_id in item_ids {
            let input = vec![Input::DeleteItem { item_id: item_id.clone() }];
            let changes = |event: &Event| matches!(event, Event::ItemDeleted { .. });
            let is_gone = |event: &Event| matches!(event, Event::ItemDeleted { item_id: gone } if *gone == item_id);
            match self.runtime.say_and_wait(session, None, input, changes, is_gone).await? {
                SessionAnswer::Event(_) => {}
                // A summary covers it, and it is not in memory.
                SessionAnswer::Refused(Refusal::NoSuchItem { .. }) => {
                    self.store.delete_item(session, &item_id, wall_ms()).await?;
                }
                SessionAnswer::Refused(refusal) => return Err(failure_of(&refusal).into()),
                SessionAnswer::SessionEnded => return Err(runtime::Error::Stopping.into()),
            }
        }
        self.forget_deleted().await;
        self.store.settle_the_log().await?;
        Ok(())
    }

    /// Deletes a response, with the turn that it answered. In a conversation that a client made by itself the items stay,
    /// as the protocol has it, until they or the conversation are deleted.
    pub async fn delete_response(&self, response: StoredResponse) -> Result<(), Error> {
        let StoredResponse { session, id, .. } = response;
        let is_clients = self.store.session(&session).await?.metadata.is_some();
        if !is_clients {
            self.delete_items(&session, self.store.turn_of_response(&session, &id).await?).await?;
        }
        self.store.delete_response(&session, &id, wall_ms()).await?;
        self.recent.forget(session.user());
        self.store.settle_the_log().await?;
        Ok(())
    }
}
