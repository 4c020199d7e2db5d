//! States of the turn machine, some thousand, and the explorer itself with a planted fault.

use proof::explore::{Broken, Scene, World, explore};

const STEPS: usize = 6;

#[test]
fn no_order_of_steps_breaks_a_turn() {
    for scene in Scene::ALL {
        let explored = explore(&World::new(scene), STEPS, &|| true);
        println!("{} {} states to depth {}", scene.name, explored.states, explored.depth);
        assert_eq!(explored.failure, None, "{}", scene.name);
        assert!(explored.depth == STEPS && explored.states > 500, "{}: {explored:?}", scene.name);
    }
}

#[test]
fn what_is_broken_is_found() {
    let once = Scene { name: "once", items: 1, responses: 1, ..Scene::NOTHING };
    let cases = [
        (Broken::Journal, once, "is written down"),
        (Broken::Telling, once, "was heard of"),
        (Broken::Inbox, once, "waits for"),
        (Broken::Early, Scene { partials: 1, finals: 1, ticks: 2, ..once }, "a reply that was begun to"),
        (Broken::Swap, Scene { items: 2, responses: 2, compactions: 1, ..once }, "a prompt has"),
    ];
    for (broken, scene, why) in cases {
        let explored = explore(&World::broken(scene, broken), 30, &|| true);
        let failure =
            explored.failure.unwrap_or_else(|| panic!("{broken:?} is not found in {} states", explored.states));
        assert!(failure.contains(why), "{broken:?}: {failure}");
        let sound = explore(&World::new(scene), explored.depth + 1, &|| true);
        assert_eq!(sound.failure, None, "{broken:?} is found where nothing is broken");
    }
}
