//! `reprise serve --print-config`: the effective values, as TOML that can be loaded again, each with its origin.

use crate::findings::Effective;
use crate::load::LoadedSettings;
use crate::origin::{SettingsLayer, join};

/// Prints all sections, and of the presets only the chosen one: forty others would hide it.
pub fn print_config(loaded: &LoadedSettings) -> String {
    let chosen = join("presets", &loaded.settings.model.preset);
    let mut text = match &loaded.file {
        Some(file) => format!("# your file: {}\n", file.display()),
        None => "# your file: none\n".to_string(),
    };
    let sections: Vec<&Effective> =
        loaded.origins.iter().filter(|value| !value.section.starts_with("presets.")).collect();
    let preset: Vec<&Effective> = loaded.origins.iter().filter(|value| within(&value.section, &chosen)).collect();
    print_values(&sections, &mut text);
    print_values(&preset, &mut text);
    text
}

fn print_values(values: &[&Effective], text: &mut String) {
    // Some values of a section are read before a section inside it, and some after it.
    let mut sections: Vec<&str> = Vec::new();
    for value in values {
        if !sections.contains(&value.section.as_str()) {
            sections.push(&value.section);
        }
    }
    let width = values.iter().map(|value| line(value).chars().count()).filter(|width| *width <= 60).max().unwrap_or(0);
    for section in sections {
        text.push_str(&format!("\n[{section}]\n"));
        for value in values.iter().filter(|value| value.section == section) {
            text.push_str(&format!("{:<width$}  # {}\n", line(value), origin(value)));
        }
    }
}

fn line(value: &Effective) -> String {
    format!("{} = {}", value.key, value.value)
}

fn origin(value: &Effective) -> String {
    let own = format!("{}.{}", value.section, value.key);
    let (origin, short) = (&value.origin, value.origin.short());
    if origin.layer == SettingsLayer::Default || origin.key == own {
        short.to_string()
    } else {
        format!("{short}, {}", origin.key)
    }
}

fn within(section: &str, outer: &str) -> bool {
    section == outer || section.strip_prefix(outer).is_some_and(|rest| rest.starts_with('.'))
}
