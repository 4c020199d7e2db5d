//! Places for requests until the engine has taken them. Where none is free, one of a user with fewer places takes the
//! newest place of the user with the most, so that the crowd of one keeps no other out.

use parking_lot::Mutex;
use session::Priority;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Requests of waiting users have places of their own: hundreds of clients that reconnect at once warm their prompts,
/// and none of these takes a user's place.
pub(super) struct Places {
    talk: Arc<PlacesOfClass>,
    others: Arc<PlacesOfClass>,
}

struct PlacesOfClass {
    most: usize,
    taken: Mutex<TakenPlaces>,
}

#[derive(Default)]
struct TakenPlaces {
    count: u64,
    places: Vec<TakenPlace>, // the newest last
}

struct TakenPlace {
    user: Option<u64>,
    lost: CancellationToken,
    number: u64,
}

// Slot of one request. Dropping it gives it back.
pub(super) struct Slot {
    of: Arc<PlacesOfClass>,
    number: u64,
    lost: CancellationToken,
}

impl Places {
    pub fn new(max_waiting: usize) -> Places {
        let [talk, others] = [max_waiting, 2 * max_waiting].map(|most| {
            let taken = Mutex::default();
            Arc::new(PlacesOfClass { most, taken })
        });
        Places { talk, others }
    }

    // Takes a place. `None`: all are taken, and no user has so many that this one should get one of them.
    pub fn take(&self, user: Option<u64>, priority: Priority) -> Option<Slot> {
        let of = if priority == Priority::Talk { &self.talk } else { &self.others };
        let TakenPlaces { count: number, places } = &mut *of.taken.lock();
        if places.len() >= of.most {
            let count = |user| places.iter().filter(|place| place.user == user).count();
            // The crowd keeps no fewer places than this user gets.
            let enough = count(user) + 2;
            let crowds = places.iter().enumerate().map(|(at, place)| (count(place.user), at));
            let (_, newest) = crowds.filter(|(taken, _)| *taken >= enough).max()?;
            places.remove(newest).lost.cancel();
        }
        *number += 1;
        let (number, lost) = (*number, CancellationToken::new());
        places.push(TakenPlace { user, lost: lost.clone(), number });
        Some(Slot { of: of.clone(), number, lost })
    }
}

impl Slot {
    // Waits until another user's request takes the place.
    pub async fn lost(&self) {
        self.lost.cancelled().await;
    }

    pub fn is_lost(&self) -> bool {
        self.lost.is_cancelled()
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.of.taken.lock().places.retain(|place| place.number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_crowd_of_one_user_keeps_no_other_out() {
        let places = Places::new(4);
        let take = |user| places.take(Some(user), Priority::Talk);
        let mut crowd: Vec<Slot> = (0..4).map(|_| take(1).unwrap()).collect();
        assert!(take(1).is_none(), "one user has all places");
        let lost = |crowd: &[Slot]| crowd.iter().map(Slot::is_lost).collect::<Vec<_>>();
        let others = [take(2).unwrap(), take(2).unwrap()];
        assert_eq!(lost(&crowd), [false, false, true, true], "the newest ones are lost");
        assert!(take(2).is_none() && take(1).is_none(), "both have as many");
        let third = take(3).unwrap();
        assert!(others[1].is_lost() && !others[0].is_lost() && !third.is_lost());
        // A place that is given back is free; one that was lost is not given back again.
        crowd.truncate(2);
        assert!(take(1).is_none());
        crowd.pop();
        assert!(take(3).is_some_and(|place| !place.is_lost()));
    }

    #[test]
    fn prompts_to_warm_take_no_places_of_users_who_wait() {
        let places = Places::new(1);
        let warm: Vec<_> = (0..3).map(|_| places.take(None, Priority::Speculate)).collect();
        assert_eq!(warm.iter().flatten().count(), 2);
        assert!(places.take(None, Priority::Talk).is_some());
    }
}
