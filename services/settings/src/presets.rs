//! From the layers to every preset. The rule is the one of all settings, a later layer wins, and within a layer what is
//! written for one preset wins over what is written for all:
//!
//! default `[preset]` <- model file `[preset]` <- model files `[presets.NAME]`, from the base upwards
//!     <- user `[preset]` <- user `[presets.NAME]`, from the base upwards <- the same of environment and flags

use std::collections::{BTreeMap, BTreeSet};

use crate::Mistake;
use crate::built_in;
use crate::nearest::nearest;
use crate::preset::{self, Preset};
use crate::reader::Findings;
use crate::tree::{Leaf, Node, Table, Value, overlay};

/// What one layer says about presets.
#[derive(Default)]
pub(crate) struct Layer {
    for_all: Option<Table>,
    named: BTreeMap<String, Table>,
}

pub(crate) struct Layers {
    pub default: Layer,
    pub models: Vec<Layer>,
    /// The user's file, then environment and flags.
    pub overrides: Vec<Layer>,
}

/// `[model] ctx_size`, where it was set: the window of the chosen preset.
pub(crate) struct ChosenWindow {
    pub preset: String,
    pub leaf: Leaf,
}

impl Layer {
    /// Takes `[preset]` and `[presets.*]` out of a layer.
    pub fn take_from(root: &mut Table, findings: &Findings) -> Layer {
        let for_all = root.entries.remove("preset").and_then(|node| table(node, "a table [preset]", findings));
        if let Some(Node::Leaf(base)) = for_all.as_ref().and_then(|table| table.entries.get("base")) {
            findings.add(mistake(base, "a base only in [presets.NAME]: a preset for all has none"));
        }
        let named = root.entries.remove("presets").and_then(|node| table(node, "tables [presets.NAME]", findings));
        let entries = named.map(|table| table.entries).unwrap_or_default().into_iter();
        let named = entries.filter_map(|(name, node)| Some((name, table(node, "a table", findings)?))).collect();
        Layer { for_all, named }
    }
}

pub(crate) fn resolve(
    layers: &Layers,
    chosen: &str,
    window: Option<&ChosenWindow>,
    findings: &Findings,
) -> BTreeMap<String, Preset> {
    let files = || layers.models.iter().chain(&layers.overrides);
    let mut names: BTreeSet<&str> = files().flat_map(|layer| layer.named.keys()).map(String::as_str).collect();
    names.insert("default");
    let mut presets = BTreeMap::new();
    for name in &names {
        let Some(chain) = chain(name, layers, &names, findings) else { continue };
        let Some(mut merged) = layers.default.for_all.clone() else { continue };
        for layer in &layers.models {
            if let Some(for_all) =
                layer.for_all.as_ref().filter(|_| chain.iter().any(|name| layer.named.contains_key(*name)))
            {
                overlay(&mut merged, for_all.clone());
            }
        }
        for layer in layers.models.iter() {
            lay_chain(&mut merged, &chain, layer);
        }
        // Numbers for real models do not fit the tiny one. Who does not talk with it need not hear of that.
        let takes_for_all = !chain.contains(&built_in::TINY) || chosen == *name;
        for layer in &layers.overrides {
            if let Some(for_all) = layer.for_all.as_ref().filter(|_| takes_for_all) {
                overlay(&mut merged, for_all.clone());
            }
            lay_chain(&mut merged, &chain, layer);
        }
        if let Some(window) = window.filter(|window| window.preset == *name) {
            merged.entries.insert("ctx_size".to_string(), Node::Leaf(window.leaf.clone()));
        }
        presets.insert(name.to_string(), preset::read(name, &merged, findings));
    }
    presets
}

fn lay_chain(merged: &mut Table, chain: &[&str], layer: &Layer) {
    for name in chain {
        if let Some(own) = layer.named.get(*name) {
            overlay(merged, own.clone());
        }
    }
}

/// The preset and its bases, the deepest first. None where a base does not exist or leads round in a circle.
fn chain<'a>(
    name: &'a str,
    layers: &'a Layers,
    names: &BTreeSet<&'a str>,
    findings: &Findings,
) -> Option<Vec<&'a str>> {
    let mut chain = vec![name];
    let mut top = name;
    while let Some(leaf) = base(top, layers) {
        let (Value::Text(base) | Value::Raw(base)) = &leaf.value else {
            findings.add(mistake(leaf, "the name of a preset"));
            return None;
        };
        if base.is_empty() {
            break;
        }
        if chain.contains(&base.as_str()) {
            let circle = chain.iter().rev().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(" <- ");
            findings.add(mistake(leaf, &format!("a preset that does not lead back here (found the circle {circle})")));
            return None;
        }
        if !names.contains(base.as_str()) {
            let hint = nearest(base, names.iter().copied()).map(|near| format!("did you mean {near:?}"));
            let allowed = names.iter().copied().collect::<Vec<_>>().join(", ");
            findings.add(Mistake { hint, ..mistake(leaf, &allowed) });
            return None;
        }
        chain.push(base);
        top = base;
    }
    chain.reverse();
    Some(chain)
}

/// What the last layer that has a base for this preset says.
fn base<'a>(name: &str, layers: &'a Layers) -> Option<&'a Leaf> {
    let tables = layers.models.iter().chain(&layers.overrides).filter_map(|layer| layer.named.get(name));
    tables
        .filter_map(|table| table.entries.get("base"))
        .filter_map(|node| match node {
            Node::Leaf(leaf) => Some(leaf),
            Node::Table(_) => None,
        })
        .next_back()
}

fn table(node: Node, allowed: &str, findings: &Findings) -> Option<Table> {
    match node {
        Node::Table(table) => Some(table),
        Node::Leaf(leaf) => {
            findings.add(mistake(&leaf, allowed));
            None
        }
    }
}

fn mistake(leaf: &Leaf, allowed: &str) -> Mistake {
    Mistake {
        origin: leaf.origin.clone(),
        key: leaf.key.clone(),
        found: leaf.value.in_words(),
        allowed: allowed.to_string(),
        hint: None,
    }
}
