//! Personas: names that clients ask for as for a model, each with a preset and instructions of its own.

use std::collections::BTreeMap;

use config::{Value as ConfigValue, ValueKind};

use crate::error::{Error, Mistake};
use crate::findings::Findings;
use crate::layers::{Table, entries, merge, origin};
use crate::nearest::hint;
use crate::origin::join;
use crate::preset::Preset;
use crate::reader::{self, SectionReader};
use crate::value::Value;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Persona {
    pub name: String,
    pub preset: Option<String>,
    pub instructions: String,
    pub wyoming_port: u16,
    pub voice: Option<String>,
    pub language: Option<String>,
}

type Presets = BTreeMap<String, Preset>;

pub(crate) fn read(merged: &Table, presets: &Presets, findings: &Findings) -> Result<BTreeMap<String, Persona>, Error> {
    let Some(for_all) = table(merged.get("persona"), "a table [persona]", findings) else { return Ok(BTreeMap::new()) };
    reader::read(Some(for_all), "persona", findings, |r| persona("", presets, r));
    let mut personas = BTreeMap::new();
    let named = merged.get("personas").and_then(|named| table(Some(named), "tables [personas.NAME]", findings));
    for (name, value) in named.map(entries).unwrap_or_default() {
        check_name(name, value, presets, findings);
        let Some(own) = table(Some(value), "a table [personas.NAME]", findings) else { continue };
        let own = merge([for_all, own])?;
        let persona = reader::read(Some(&own), &join("personas", name), findings, |r| persona(name, presets, r));
        personas.insert(name.to_string(), persona);
    }
    check_ports(&personas, findings);
    Ok(personas)
}

fn persona(name: &str, presets: &Presets, r: &SectionReader<'_>) -> Persona {
    let names = || presets.keys().map(String::as_str);
    let allowed = format!("\"\" for the chosen one, {}", names().collect::<Vec<_>>().join(", "));
    let preset = r.text_as("preset", None, &allowed, |text| match text {
        "" => Ok(None),
        text if presets.contains_key(text) => Ok(Some(text.to_string())),
        text => Err(hint(text, names())),
    });
    let (instructions, wyoming_port) = (r.text("instructions"), r.whole("wyoming_port", 0..=65535));
    let (voice, language) = (r.optional_text("voice"), r.optional_text("language"));
    Persona { name: name.to_string(), preset, instructions, wyoming_port, voice, language }
}

/// Refuses names that mean two things to a client. `:latest` behind a name means nothing.
fn check_name(name: &str, value: &ConfigValue, presets: &Presets, findings: &Findings) {
    let is_wrong = name.is_empty()
        || name.chars().count() > NAME_CHARS
        || name.chars().any(char::is_control)
        || name.ends_with(":latest");
    let found = format!("the persona {name:?}");
    let (found, allowed) = match (is_wrong, presets.contains_key(name)) {
        (true, _) => {
            (found, format!("a name of 1 to {NAME_CHARS} characters on one line that does not end in \":latest\""))
        }
        (_, true) => (format!("{found}, which is also a preset"), "a name that no preset has".to_string()),
        _ => return,
    };
    findings.add(Mistake { origin: origin(value), found, allowed, hint: None });
}

fn check_ports(personas: &BTreeMap<String, Persona>, findings: &Findings) {
    let mut taken: BTreeMap<u16, &str> = BTreeMap::new();
    for Persona { name, wyoming_port: port, .. } in personas.values().filter(|persona| persona.wyoming_port > 0) {
        if let Some(other) = taken.insert(*port, name) {
            let (own, others) = (join("personas", name), join("personas", other));
            let found = format!("the port {port} for the personas {other:?} and {name:?}");
            let keys = [(own.as_str(), "wyoming_port"), (others.as_str(), "wyoming_port")];
            findings.contradiction(&keys, found, "a port of its own for each persona");
        }
    }
}

fn table<'a>(value: Option<&'a ConfigValue>, allowed: &str, findings: &Findings) -> Option<&'a Table> {
    match value.map(|value| (&value.kind, value))? {
        (ValueKind::Table(table), _) => Some(table),
        (_, value) => {
            let (found, allowed) = (Value::of(value).in_words(), allowed.to_string());
            findings.add(Mistake { origin: origin(value), found, allowed, hint: None });
            None
        }
    }
}

const NAME_CHARS: usize = 64;
