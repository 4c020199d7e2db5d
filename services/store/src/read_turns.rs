//! Turns of users at reads whose work a client chooses, so that the searches of one hold up no other.

use crate::Error;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub struct ReadTurns {
    // Permits for searches of all users, which leave half of the readers to conversations.
    searches: Arc<Semaphore>,
    look_ups_of_user: usize,
    users: Mutex<HashMap<String, Weak<UserTurns>>>,
}

struct UserTurns {
    search: Arc<Semaphore>,
    look_ups: Arc<Semaphore>,
}

// Turn of one read. Dropping it gives it to the next one.
pub struct ReadTurn {
    _permits: Vec<OwnedSemaphorePermit>,
    _user: Arc<UserTurns>, // the last read of a user lets go of it
}

impl ReadTurns {
    pub fn new(readers: usize) -> Arc<ReadTurns> {
        let half = (readers / 2).max(1);
        let searches = Arc::new(Semaphore::new(half));
        Arc::new(ReadTurns { searches, look_ups_of_user: half, users: Mutex::default() })
    }

    // Waits for a search. One of each user runs or waits in the queue of all; the others wait before it.
    pub async fn search(&self, user: &str) -> Result<ReadTurn, Error> {
        let user = self.of(user);
        let of_user = permit(&user.search).await?;
        let of_all = permit(&self.searches).await?;
        Ok(ReadTurn { _permits: vec![of_all, of_user], _user: user })
    }

    // Waits for a read that an index bounds, which conversations need to begin: behind those of its user alone.
    pub async fn look_up(&self, user: &str) -> Result<ReadTurn, Error> {
        let user = self.of(user);
        let of_user = permit(&user.look_ups).await?;
        Ok(ReadTurn { _permits: vec![of_user], _user: user })
    }

    fn of(&self, user: &str) -> Arc<UserTurns> {
        let users = &mut *self.users.lock();
        if let Some(turns) = users.get(user).and_then(Weak::upgrade) {
            return turns;
        }
        users.retain(|_, turns| turns.strong_count() > 0);
        let [search, look_ups] = [1, self.look_ups_of_user].map(|permits| Arc::new(Semaphore::new(permits)));
        let turns = Arc::new(UserTurns { search, look_ups });
        users.insert(user.to_owned(), Arc::downgrade(&turns));
        turns
    }
}

async fn permit(semaphore: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, Error> {
    semaphore.clone().acquire_owned().await.map_err(|_| Error::Closed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[tokio::test]
    async fn a_user_has_one_search_in_the_queue_and_the_next_user_comes_behind_it() {
        let turns = ReadTurns::new(2);
        let first = turns.search("bob").await.unwrap();
        let mut crowd: Vec<_> = (0..20).map(|_| Box::pin(turns.search("bob"))).collect();
        assert!(crowd.iter_mut().all(|search| search.now_or_never().is_none()));
        let mut alice = Box::pin(turns.search("alice"));
        assert!((&mut alice).now_or_never().is_none());
        drop(first);
        assert!(crowd[0].as_mut().now_or_never().is_none(), "it is alice's turn");
        drop(alice.now_or_never().expect("her turn").unwrap());
        assert!(crowd[0].as_mut().now_or_never().is_some());
    }

    #[tokio::test]
    async fn two_users_search_at_once_and_one_does_not() {
        let turns = ReadTurns::new(4);
        let of_bob = turns.search("bob").await.unwrap();
        assert!(turns.search("bob").now_or_never().is_none());
        let of_alice = turns.search("alice").now_or_never().expect("the other place").unwrap();
        // What a conversation needs to begin waits for no search, and for no look-up of another user.
        let looks: Vec<_> = (0..2).map(|_| turns.look_up("bob").now_or_never().expect("a place")).collect();
        assert!(turns.look_up("bob").now_or_never().is_none() && turns.look_up("alice").now_or_never().is_some());
        drop((of_bob, of_alice, looks));
        assert!(turns.search("carol").await.is_ok());
        assert_eq!(turns.users.lock().len(), 1, "users without a read are forgotten");
    }
}
