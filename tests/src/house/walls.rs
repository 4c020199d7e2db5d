//! Walls between crates. The table in ARCHITECTURE.md is the law: the test reads it, so that it cannot differ from the
//! manifests.

use std::collections::BTreeMap;

use serde_json::Value;

#[derive(Clone, Debug, PartialEq)]
pub struct Room {
    pub floor: u32,
    pub name: String,
    pub folder: String,
    /// True: crates use it for their tests alone.
    pub for_tests: bool,
    pub uses: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Crate {
    pub name: String,
    pub folder: String,
    pub dependencies: Vec<Dependency>,
}

/// A crate that another one names in its manifest.
#[derive(Clone, Debug, PartialEq)]
pub struct Dependency {
    pub name: String,
    /// True: only tests, examples and benchmarks use it.
    pub is_dev: bool,
}

/// Begin of the description of a room that only tests may use.
const FOR_TESTS: &str = "for tests:";

/// Foreign crates that rooms must not use, and why.
const OUTSIDE: &[(&[&str], &[&str], &str)] = &[
    (
        &[
            "kernels",
            "text",
            "compaction",
            "remember",
            "settings",
            "experiment",
            "weights",
            "gpu",
            "engine",
            "tools",
            "session",
            "prompt",
            "speech",
        ],
        &["tokio", "tokio-util", "axum", "hyper", "reqwest", "sqlx", "rusqlite", "tokio-tungstenite", "tower-http"],
        "must know no socket, clock or database",
    ),
    (&["session", "prompt"], &["serde_json", "chrono", "jiff", "time"], "must know no JSON and no clock"),
];

pub fn rooms(architecture: &str) -> Vec<Room> {
    let mut rooms: Vec<Room> = architecture.lines().filter_map(room).collect();
    let all = rooms.clone();
    for room in rooms.iter_mut().filter(|room| room.uses == ["all"]) {
        let below = all.iter().filter(|other| other.floor < room.floor && (room.for_tests || !other.for_tests));
        room.uses = below.map(|other| other.name.clone()).collect();
    }
    rooms
}

pub fn crates(metadata: &Value) -> Vec<Crate> {
    let root = metadata["workspace_root"].as_str().unwrap_or_default();
    let packages = metadata["packages"].as_array().cloned().unwrap_or_default();
    packages
        .iter()
        .map(|package| {
            let manifest = package["manifest_path"].as_str().unwrap_or_default();
            let folder = manifest.strip_prefix(root).unwrap_or(manifest).trim_matches('/');
            let dependencies = package["dependencies"].as_array().cloned().unwrap_or_default();
            Crate {
                name: package["name"].as_str().unwrap_or_default().to_string(),
                folder: folder.trim_end_matches("Cargo.toml").trim_end_matches('/').to_string(),
                dependencies: dependencies.iter().filter_map(dependency).collect(),
            }
        })
        .collect()
}

fn dependency(entry: &Value) -> Option<Dependency> {
    Some(Dependency { name: entry["name"].as_str()?.to_string(), is_dev: entry["kind"] == "dev" })
}

pub fn complaints(rooms: &[Room], crates: &[Crate]) -> Vec<String> {
    let floor: BTreeMap<&str, u32> = rooms.iter().map(|room| (room.name.as_str(), room.floor)).collect();
    let mut complaints = Vec::new();
    for room in rooms {
        for used in &room.uses {
            match floor.get(used.as_str()) {
                Some(below) if *below < room.floor => {}
                Some(_) => {
                    complaints.push(format!("ARCHITECTURE.md lets {} use {used}, which is not below it", room.name))
                }
                None => complaints.push(format!("ARCHITECTURE.md lets {} use {used}, which is no room", room.name)),
            }
        }
        if !crates.iter().any(|member| member.name == room.name) {
            complaints.push(format!("ARCHITECTURE.md has the room {}, and the workspace has no such crate", room.name));
        }
    }
    for member in crates {
        let Some(room) = rooms.iter().find(|room| room.name == member.name) else {
            complaints.push(format!("the crate {} has no row in ARCHITECTURE.md", member.name));
            continue;
        };
        if room.folder != member.folder {
            complaints
                .push(format!("{} lies in {}, and ARCHITECTURE.md says {}", room.name, member.folder, room.folder));
        }
        for Dependency { name: dependency, is_dev } in &member.dependencies {
            let inside = floor.contains_key(dependency.as_str());
            let of_tests = *is_dev && rooms.iter().any(|room| room.name == *dependency && room.for_tests);
            if inside && !of_tests && !room.uses.contains(dependency) {
                complaints.push(format!("{} uses {dependency}, and ARCHITECTURE.md does not let it", room.name));
            }
            for (rooms, outside, why) in OUTSIDE {
                if rooms.contains(&room.name.as_str()) && outside.contains(&dependency.as_str()) {
                    complaints.push(format!("{} uses {dependency}, and {why}", room.name));
                }
            }
        }
    }
    complaints
}

fn room(line: &str) -> Option<Room> {
    let cells: Vec<&str> = line.strip_prefix('|')?.split_terminator(" |").map(str::trim).collect();
    // A cell may hold an escaped bar ("serve \| chat"), which ends in a backslash before it and so splits too.
    let mut joined: Vec<String> = Vec::new();
    for cell in cells {
        match joined.last_mut().filter(|last| last.ends_with('\\')) {
            Some(last) => last.push_str(cell),
            None => joined.push(cell.trim_start_matches("| ").to_string()),
        }
    }
    let [floor, name, folder, what, uses] = joined.as_slice() else { return None };
    Some(Room {
        floor: floor.parse().ok()?,
        name: name.trim_matches('`').to_string(),
        folder: folder.trim_matches('`').to_string(),
        for_tests: what.starts_with(FOR_TESTS),
        uses: uses.split(',').map(str::trim).filter(|used| !used.is_empty()).map(str::to_string).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const TABLE: &str = "\
| floor | crate | folder | what it is | uses |
|---|---|---|---|---|
| 0 | `low` | `a/low` | knows nothing | |
| 1 | `high` | `a` | knows a \\| b | low |
| 2 | `top` | `top` | the binary | all |
";

    fn member(name: &str, folder: &str, dependencies: &[&str]) -> Crate {
        let dependency = |name: &&str| Dependency {
            name: name.trim_start_matches("dev ").to_string(),
            is_dev: name.starts_with("dev "),
        };
        let dependencies = dependencies.iter().map(dependency).collect();
        Crate { name: name.to_string(), folder: folder.to_string(), dependencies }
    }

    fn good() -> Vec<Crate> {
        vec![member("low", "a/low", &["serde"]), member("high", "a", &["low"]), member("top", "top", &["low", "high"])]
    }

    #[test]
    fn the_table_is_read() {
        let rooms = rooms(TABLE);
        assert_eq!(rooms.len(), 3);
        assert_eq!((rooms[1].floor, rooms[1].folder.as_str()), (1, "a"));
        assert_eq!((&rooms[0].uses, &rooms[1].uses), (&vec![], &vec!["low".to_string()]));
        assert_eq!(rooms[2].uses, ["low", "high"]);
    }

    #[test]
    fn a_room_for_tests_is_used_by_tests_alone() {
        let table = TABLE.to_owned() + "| 1 | `bench` | `bench` | for tests: measures | low |\n";
        let with = |dependencies: &[&str]| {
            let mut crates = good();
            crates.push(member("bench", "bench", &["low"]));
            crates[2] = member("top", "top", dependencies);
            complaints(&rooms(&table), &crates)
        };
        assert_eq!(with(&["low", "dev bench"]), [""; 0]);
        assert_eq!(with(&["bench"]), ["top uses bench, and ARCHITECTURE.md does not let it"]);
    }

    #[test]
    fn a_house_in_order_has_no_complaints() {
        assert_eq!(complaints(&rooms(TABLE), &good()), Vec::<String>::new());
    }

    #[test]
    fn every_breach_is_found() {
        let breaches = [
            (0, member("low", "a/low", &["high"]), "low uses high, and ARCHITECTURE.md does not let it"),
            (0, member("low", "b/low", &[]), "low lies in b/low, and ARCHITECTURE.md says a/low"),
            (1, member("shed", "a", &[]), "the crate shed has no row in ARCHITECTURE.md"),
            (1, member("shed", "a", &[]), "ARCHITECTURE.md has the room high, and the workspace has no such crate"),
        ];
        for (at, wrong, complaint) in breaches {
            let mut crates = good();
            crates[at] = wrong;
            let said = complaints(&rooms(TABLE), &crates);
            assert!(said.iter().any(|said| said == complaint), "{complaint} is not among {said:?}");
        }
        let beside = TABLE.replace("| knows nothing | |", "| knows nothing | top, cellar |");
        let said = complaints(&rooms(&beside), &good());
        assert!(said.contains(&"ARCHITECTURE.md lets low use top, which is not below it".to_string()), "{said:?}");
        assert!(said.contains(&"ARCHITECTURE.md lets low use cellar, which is no room".to_string()), "{said:?}");
    }

    #[test]
    fn a_socket_in_the_engine_and_json_in_a_session_are_found() {
        let said = |name: &str, dependency: &str| {
            let rooms = [Room { floor: 0, name: name.into(), folder: name.into(), for_tests: false, uses: vec![] }];
            complaints(&rooms, &[member(name, name, &[dependency])])
        };
        assert_eq!(said("engine", "tokio"), ["engine uses tokio, and must know no socket, clock or database"]);
        assert_eq!(said("session", "sqlx"), ["session uses sqlx, and must know no socket, clock or database"]);
        assert_eq!(said("session", "serde_json"), ["session uses serde_json, and must know no JSON and no clock"]);
        assert_eq!(said("prompt", "tokio"), ["prompt uses tokio, and must know no socket, clock or database"]);
        assert_eq!(said("text", "serde_json"), [""; 0]);
    }

    #[test]
    fn metadata_is_read() {
        let metadata = json!({
            "workspace_root": "/r",
            "packages": [{ "name": "low", "manifest_path": "/r/a/low/Cargo.toml", "dependencies": [{ "name": "serde", "kind": null }, { "name": "bench", "kind": "dev" }] }],
        });
        assert_eq!(crates(&metadata), [member("low", "a/low", &["serde", "dev bench"])]);
    }
}
