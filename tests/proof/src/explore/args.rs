use super::scene::Scene;
use super::search::explore;
use super::world::World;
use crate::summary::{Budget, Summary};
use serde_json::json;

/// Explores the turn machine and the compactor exhaustively
#[derive(clap::Args, Clone)]
pub struct Args {
    /// Minutes of exploring, deeper and deeper
    #[arg(long, default_value_t = 1.0)]
    pub minutes: f64,
    /// Number of steps, however long they take
    #[arg(long, conflicts_with = "minutes")]
    pub depth: Option<usize>,
    /// Only this scene
    #[arg(long)]
    pub scene: Option<String>,
    #[arg(long)]
    pub json: bool,
}

const DEEPEST: usize = 200;

pub fn prove(args: &Args) -> Summary {
    let budget = Budget::minutes(if args.depth.is_some() { f64::from(u16::MAX) } else { args.minutes });
    let scenes: Vec<Scene> =
        Scene::ALL.into_iter().filter(|scene| args.scene.as_deref().is_none_or(|name| name == scene.name)).collect();
    let share = args.minutes * 60.0 / scenes.len().max(1) as f64;
    let mut failures = Vec::new();
    let mut figures = Vec::new();
    let (mut states, mut steps) = (0, 0);
    let mut depths = Vec::new();
    for (at, scene) in scenes.into_iter().enumerate() {
        let end = if args.depth.is_some() { f64::INFINITY } else { share * (at + 1) as f64 };
        let explored = explore(&World::new(scene), args.depth.unwrap_or(DEEPEST), &|| budget.seconds() < end);
        states += explored.states;
        steps += explored.steps;
        let is_all = if explored.is_all { " (all there are)" } else { "" };
        depths.push(format!("{} {} states to depth {}{is_all}", scene.name, explored.states, explored.depth));
        figures.push(json!({"scene": scene.name, "states": explored.states, "steps": explored.steps,
            "depth": explored.depth, "is_all": explored.is_all, "by_depth": explored.by_depth}));
        failures.extend(explored.failure.map(|failure| format!("{}: {failure}", scene.name)));
    }
    Summary {
        command: "explore",
        seed: 0,
        seconds: budget.seconds(),
        line: format!("{states} states, {steps} steps between them: {}", depths.join(", ")),
        figures: json!(figures),
        skipped: Vec::new(),
        failures,
        again: "cargo run --release -p proof -- explore --scene NAME --depth N".to_owned(),
    }
}
