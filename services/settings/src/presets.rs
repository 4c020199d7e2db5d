//! Presets from the layers. The rule is the one of all settings, a later layer wins, and within a layer a value for one
//! preset wins over one for all:
//!
//! default `[preset]` <- model file `[preset]` <- model files `[presets.NAME]`, from the base upwards
//!     <- user `[preset]` <- user `[presets.NAME]`, from the base upwards <- the same of the environment, then of flags

use std::collections::{BTreeMap, BTreeSet};

use config::ValueKind;

use crate::error::{Error, Mistake};
use crate::findings::Findings;
use crate::layers::{Table, entries, merge, origin};
use crate::nearest::hint;
use crate::origin::Origin;
use crate::preset::{self, Preset};
use crate::value::Value;
use crate::{built_in, check};

pub(crate) struct PresetLayer {
    for_all: Option<Table>,
    named: BTreeMap<String, Table>,
}

pub(crate) struct PresetLayers {
    pub default: PresetLayer,
    pub models: Vec<PresetLayer>,
    pub overrides: Vec<PresetLayer>,
}

pub(crate) struct Chosen<'a> {
    pub name: &'a str,
    pub overrides: Table,
}

impl PresetLayer {
    pub fn take_from(root: &mut Table, findings: &Findings) -> PresetLayer {
        let for_all = root.remove("preset").and_then(|value| table(value, "a table [preset]", findings));
        if let Some(base) = for_all.as_ref().and_then(|table| table.get("base")) {
            findings.add(mistake(base, "a base only in [presets.NAME]: a preset for all has none"));
        }
        let named = root.remove("presets").and_then(|value| table(value, "tables [presets.NAME]", findings));
        let named = named.unwrap_or_default();
        let named = entries(&named).into_iter();
        let named =
            named.filter_map(|(name, value)| Some((name.to_string(), table(value.clone(), "a table", findings)?)));
        PresetLayer { for_all, named: named.collect() }
    }

    fn of_chain<'a>(&'a self, chain: &'a [&str]) -> impl Iterator<Item = &'a Table> {
        chain.iter().filter_map(|name| self.named.get(*name))
    }
}

pub(crate) fn resolve(
    layers: &PresetLayers,
    chosen: &Chosen<'_>,
    findings: &Findings,
) -> Result<BTreeMap<String, Preset>, Error> {
    let files = || layers.models.iter().chain(&layers.overrides);
    let mut names: BTreeSet<&str> = files().flat_map(|layer| layer.named.keys()).map(String::as_str).collect();
    names.insert("default");
    if let Some(origin) = findings.origin("model", "preset").filter(|_| !names.contains(chosen.name)) {
        findings.add(unknown(chosen.name, format!("{:?}", chosen.name), origin, &names));
    }
    let mut presets = BTreeMap::new();
    for name in &names {
        let Some(chain) = chain(name, layers, &names, findings) else { continue };
        let mut tables: Vec<&Table> = layers.default.for_all.iter().collect();
        let own_models = || layers.models.iter().filter(|layer| layer.of_chain(&chain).next().is_some());
        tables.extend(own_models().filter_map(|layer| layer.for_all.as_ref()));
        tables.extend(own_models().flat_map(|layer| layer.of_chain(&chain)));
        // Values for all presets are meant for real models, and need not fit the built-in one: they matter there only
        // if it is chosen.
        let takes_for_all = !chain.contains(&built_in::BUILT_IN_PRESET) || chosen.name == *name;
        for layer in &layers.overrides {
            tables.extend(layer.for_all.iter().filter(|_| takes_for_all));
            tables.extend(layer.of_chain(&chain));
        }
        tables.extend((chosen.name == *name).then_some(&chosen.overrides));

        let mistakes_before = findings.mistake_count();
        let preset = preset::read(name, &merge(tables)?, findings);
        if findings.mistake_count() == mistakes_before {
            check::preset(&preset, findings);
        }
        presets.insert(name.to_string(), preset);
    }
    Ok(presets)
}

/// Lists the preset and its bases, the deepest first. `None` if a base is missing or the bases form a circle.
fn chain<'a>(
    name: &'a str,
    layers: &'a PresetLayers,
    names: &BTreeSet<&'a str>,
    findings: &Findings,
) -> Option<Vec<&'a str>> {
    let mut chain = vec![name];
    while let Some(value) = base(chain[chain.len() - 1], layers) {
        let (Value::Text(base) | Value::Raw(base)) = Value::of(value) else {
            findings.add(mistake(value, "the name of a preset"));
            return None;
        };
        if base.is_empty() {
            break;
        }
        if chain.contains(&base.as_str()) {
            let circle = chain.iter().rev().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(" <- ");
            findings.add(mistake(value, &format!("a preset that does not lead back here (found the circle {circle})")));
            return None;
        }
        let Some(base) = names.get(base.as_str()) else {
            findings.add(unknown(&base, Value::of(value).in_words(), origin(value), names));
            return None;
        };
        chain.push(base);
    }
    chain.reverse();
    Some(chain)
}

fn base<'a>(name: &str, layers: &'a PresetLayers) -> Option<&'a config::Value> {
    let tables = layers.models.iter().chain(&layers.overrides).filter_map(|layer| layer.named.get(name));
    tables.filter_map(|table| table.get("base")).next_back()
}

fn unknown(name: &str, found: String, origin: Origin, names: &BTreeSet<&str>) -> Mistake {
    let allowed = names.iter().copied().collect::<Vec<_>>().join(", ");
    Mistake { origin, found, allowed, hint: hint(name, names.iter().copied()) }
}

fn table(value: config::Value, allowed: &str, findings: &Findings) -> Option<Table> {
    match value.kind {
        ValueKind::Table(table) => Some(table),
        _ => {
            findings.add(mistake(&value, allowed));
            None
        }
    }
}

fn mistake(value: &config::Value, allowed: &str) -> Mistake {
    let (found, allowed) = (Value::of(value).in_words(), allowed.to_string());
    Mistake { origin: origin(value), found, allowed, hint: None }
}
