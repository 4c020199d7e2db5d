//! Home Assistant's requests for a home: its system prompt in its order, which ends with the room of the satellite, and
//! its tools. The words are ours.

use experiment::SeededRandom;
use serde_json::{Value, json};

pub const ROOMS: [&str; 12] = [
    "kitchen",
    "living room",
    "bedroom",
    "bathroom",
    "hall",
    "office",
    "garage",
    "garden",
    "cellar",
    "attic",
    "nursery",
    "balcony",
];

const THINGS: [(&str, &str); 8] = [
    ("ceiling light", "light"),
    ("lamp", "light"),
    ("blind", "cover"),
    ("socket", "switch"),
    ("heating", "climate"),
    ("thermometer", "sensor"),
    ("window contact", "binary_sensor"),
    ("speaker", "media_player"),
];

const RULES: &str = "You are a voice assistant for a smart home.\nAnswer questions about the world truthfully.\nAnswer in plain text. \
Keep it simple and to the point.\nWhen controlling the home always call the tools. When a user names a device, pass its name and \
domain; when a user names an area, pass the area and the domain. When the user asks for the state of something that is listed \
below, first ask the tool for the live state, because the list has no states.\nStatic Context: An overview of the areas and the \
devices in this smart home:\n";

pub fn system(entities: usize, room: &str) -> String {
    let mut made: Vec<(String, &str, &str)> = (0..entities)
        .map(|at| {
            let (room, (thing, domain)) = (ROOMS[at % ROOMS.len()], THINGS[at / ROOMS.len() % THINGS.len()]);
            (format!("{room} {thing} {}", at / (ROOMS.len() * THINGS.len()) + 1), domain, room)
        })
        .collect();
    made.sort();
    let list: String = made
        .iter()
        .map(|(name, domain, area)| format!("- names: {name}\n  domain: {domain}\n  areas: {area}\n"))
        .collect();
    format!(
        "{RULES}{list}When a user asks to turn on all devices of a kind, ask for the area unless there is only one of that \
         kind.\nYou are in area {room} (floor ground) and all generic commands like 'turn on the lights' should target this \
         area.\nThis device is not able to start timers."
    )
}

pub fn tools(count: usize) -> Vec<Value> {
    let verbs = ["TurnOn", "TurnOff", "Set", "Open", "Close", "GetState"];
    let of = |at: usize| {
        let (thing, domain) = THINGS[at % THINGS.len()];
        let verb = verbs[at / THINGS.len() % verbs.len()];
        let name = format!("{domain}__Hass{verb}{at}");
        let text = |about: &str| json!({ "type": "string", "description": about });
        json!({
            "type": "function",
            "function": {
                "name": name,
                "description": format!("{verb} for a {thing} or for all of an area"),
                "parameters": {
                    "type": "object",
                    "properties": {
                        "name": text("as the list has it"),
                        "area": text("where it is"),
                        "domain": { "type": "array", "items": { "type": "string" } },
                    },
                    "required": [],
                },
            },
        })
    };
    (0..count).map(of).collect()
}

pub fn shuffled(tools: &[Value], seed: u64) -> Vec<Value> {
    let mut other = tools.to_vec();
    SeededRandom::new(seed).shuffle(&mut other);
    if other == tools {
        other.reverse();
    }
    other
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_rooms_share_all_but_the_end() {
        let [kitchen, garden] = ["kitchen", "garden"].map(|room| system(100, room));
        let common = kitchen.bytes().zip(garden.bytes()).take_while(|(a, b)| a == b).count();
        assert!(kitchen.len() - common < 200 && common > 4_000, "{common} of {}", kitchen.len());
        assert!(kitchen.contains("- names: attic blind 1\n  domain: cover\n  areas: attic\n"));
    }

    #[test]
    fn shuffled_tools_are_the_same_tools() {
        let tools = tools(30);
        let mut other = shuffled(&tools, 1);
        assert_ne!(tools, other);
        let name = |tool: &Value| tool["function"]["name"].as_str().unwrap().to_owned();
        let mut sorted = tools.clone();
        sorted.sort_by_key(name);
        other.sort_by_key(name);
        assert_eq!(sorted, other);
        sorted.dedup_by_key(|tool| name(tool));
        assert_eq!(sorted.len(), 30, "each has a name of its own");
    }
}
