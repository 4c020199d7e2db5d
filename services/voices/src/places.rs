//! Places at a server: the requests that it gets at once. Users take turns at them, so that the crowd of one keeps no
//! other waiting for longer than one request.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::sync::oneshot;

pub struct ServerPlaces {
    state: Mutex<WaitingUsers>,
}

#[derive(Default)]
struct WaitingUsers {
    free: usize,
    // The next user comes first.
    waiting: VecDeque<WaitingUser>,
}

struct WaitingUser {
    name: String,
    requests: VecDeque<oneshot::Sender<ServerPlace>>,
}

/// Place of one request. Dropping it gives it to the next user.
pub struct ServerPlace {
    // `None`: it was given on.
    places: Option<Arc<ServerPlaces>>,
}

impl ServerPlaces {
    pub fn new(free: usize) -> Arc<ServerPlaces> {
        Arc::new(ServerPlaces { state: Mutex::new(WaitingUsers { free, ..WaitingUsers::default() }) })
    }

    /// Waits for a place. `None`: the places are gone.
    pub async fn take(self: &Arc<ServerPlaces>, user: &str) -> Option<ServerPlace> {
        let given = {
            let state = &mut *self.state.lock();
            if state.free > 0 {
                state.free -= 1;
                return Some(ServerPlace { places: Some(self.clone()) });
            }
            state.wait(user)
        };
        given.await.ok()
    }
}

impl WaitingUsers {
    fn wait(&mut self, user: &str) -> oneshot::Receiver<ServerPlace> {
        let (sender, given) = oneshot::channel();
        match self.waiting.iter_mut().find(|waiting| waiting.name == user) {
            Some(waiting) => {
                // Requests that were given up wait no longer.
                waiting.requests.retain(|request| !request.is_closed());
                waiting.requests.push_back(sender);
            }
            None => self.waiting.push_back(WaitingUser { name: user.to_owned(), requests: [sender].into() }),
        }
        given
    }

    // Takes the oldest request of the user whose turn it is.
    fn next(&mut self) -> Option<oneshot::Sender<ServerPlace>> {
        let mut user = self.waiting.pop_front()?;
        let request = user.requests.pop_front();
        if !user.requests.is_empty() {
            self.waiting.push_back(user);
        }
        request
    }
}

impl Drop for ServerPlace {
    fn drop(&mut self) {
        let Some(places) = self.places.take() else { return };
        loop {
            let next = {
                let state = &mut *places.state.lock();
                let next = state.next();
                state.free += usize::from(next.is_none());
                next
            };
            let Some(request) = next else { return };
            match request.send(ServerPlace { places: Some(places.clone()) }) {
                Ok(()) => return,
                // It was given up: the next one gets the place.
                Err(mut place) => place.places = None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    fn free(places: &Arc<ServerPlaces>) -> usize {
        places.state.lock().free
    }

    fn waiting(places: &Arc<ServerPlaces>) -> usize {
        places.state.lock().waiting.iter().map(|user| user.requests.len()).sum()
    }

    #[tokio::test]
    async fn users_take_turns() {
        let places = ServerPlaces::new(1);
        let first = places.take("crowd").await;
        let mut crowd: Vec<_> = (0..50).map(|_| Box::pin(places.take("crowd"))).collect();
        assert!(crowd.iter_mut().all(|one| one.now_or_never().is_none()));
        let mut other = Box::pin(places.take("anna"));
        assert!((&mut other).now_or_never().is_none());
        drop(first);
        let second = crowd[0].as_mut().now_or_never().flatten().expect("the place of the first");
        assert!(crowd[1].as_mut().now_or_never().is_none() && (&mut other).now_or_never().is_none());
        drop(second);
        let place = other.now_or_never().flatten().expect("a place after one request");
        assert!(crowd[1].as_mut().now_or_never().is_none());
        drop(place);
        assert!(crowd[1].as_mut().now_or_never().is_some());
    }

    #[tokio::test]
    async fn a_request_that_was_given_up_loses_no_place() {
        let places = ServerPlaces::new(1);
        for is_given in [false, true] {
            let first = places.take("ann").await;
            let mut gone = Box::pin(places.take("ann"));
            assert!((&mut gone).now_or_never().is_none());
            if is_given {
                drop(first);
                drop(gone);
            } else {
                drop(gone);
                drop(first);
            }
            assert_eq!((free(&places), waiting(&places)), (1, 0));
        }
        let first = places.take("ann").await;
        for _ in 0..1000 {
            assert!(places.take("ben").now_or_never().is_none());
        }
        assert!(waiting(&places) <= 1);
        drop(first);
        assert_eq!((free(&places), waiting(&places)), (1, 0));
    }
}
