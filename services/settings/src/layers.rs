//! Each layer as a `config::Source`, and their merge by `config`. The sources that come with `config` know the file but
//! not the line, and the environment but not the variable. These put an [`Origin`] on every value.

use config::{ConfigError, Map, Source, Value, ValueKind};
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use crate::Error;
use crate::origin::{Origin, SettingsLayer, join};
use crate::value::{DATE, IN_WORDS};

pub(crate) type Table = Map<String, Value>;

#[derive(Clone, Debug)]
struct LayerSource(Table);

/// Name above everything, because `config` reads the outermost names as paths (`a.b`, `a[9]`) and all others unchanged.
const ROOT: &str = "settings";

/// Name of a nil in each table that carries its origin, because a merged table loses its own; TOML has no nil.
const TABLE_ORIGIN: &str = "\0";

impl Source for LayerSource {
    fn clone_into_box(&self) -> Box<dyn Source + Send + Sync> {
        Box::new(self.clone())
    }

    fn collect(&self) -> Result<Table, ConfigError> {
        Ok(Table::from([(ROOT.to_string(), Value::new(None, ValueKind::Table(self.0.clone())))]))
    }
}

/// Merges tables, a later one over those before it: tables merge, everything else is replaced.
pub(crate) fn merge<'a>(layers: impl IntoIterator<Item = &'a Table>) -> Result<Table, Error> {
    let layers: Vec<LayerSource> = layers.into_iter().map(|layer| LayerSource(layer.clone())).collect();
    Ok(Source::collect(&layers)?.remove(ROOT).map(Value::into_table).transpose()?.unwrap_or_default())
}

pub(crate) fn parse(text: &str, file: &str, layer: SettingsLayer) -> Result<Table, Error> {
    let line_ends: Vec<usize> = text.match_indices('\n').map(|(at, _)| at).collect();
    let place = |at: usize| format!("{file}:{}", 1 + line_ends.partition_point(|end| *end < at));
    let root = DeTable::parse(text).map_err(|error| Error::Syntax {
        place: place(error.span().map_or(0, |span| span.start)),
        message: error.message().replace('\n', ", "),
    })?;
    Ok(table(root.get_ref(), "", &|at, key| Origin { layer, place: place(at), key }.carried()))
}

pub(crate) fn single(path: &[&str], text: &str, layer: SettingsLayer, place: &str) -> Table {
    fn below(path: &[&str], above: &str, text: &str, carried: &dyn Fn(String) -> String) -> Table {
        let [name, rest @ ..] = path else { return Table::new() };
        let key = join(above, name);
        let origin = carried(key.clone());
        let kind = match rest {
            [] => ValueKind::String(text.to_string()),
            rest => with_origin(below(rest, &key, text, carried), &origin),
        };
        Table::from([(name.to_string(), Value::new(Some(&origin), kind))])
    }
    below(path, "", text, &|key| Origin { layer, place: place.to_string(), key }.carried())
}

pub(crate) fn written_as_in_a_file(text: &str, at: &Origin) -> Option<Value> {
    let line = format!("{VALUE} = {text}");
    let root = DeTable::parse(&line).ok()?;
    let carried = |_, key: String| Origin { key: key.replacen(VALUE, &at.key, 1), ..at.clone() }.carried();
    table(root.get_ref(), "", &carried).remove(VALUE)
}

const VALUE: &str = "value";

pub(crate) fn entries(table: &Table) -> Vec<(&str, &Value)> {
    let mut entries: Vec<_> = table.iter().map(|(name, value)| (name.as_str(), value)).collect();
    entries.retain(|(_, value)| value.kind != ValueKind::Nil);
    entries.sort_by_key(|(name, _)| *name);
    entries
}

pub(crate) fn table_origin(table: &Table) -> Origin {
    Origin::of(table.get(TABLE_ORIGIN).unwrap_or(&Value::default()))
}

pub(crate) fn origin(value: &Value) -> Origin {
    match &value.kind {
        ValueKind::Table(table) => table_origin(table),
        _ => Origin::of(value),
    }
}

fn table(from: &DeTable<'_>, above: &str, carried: &dyn Fn(usize, String) -> String) -> Table {
    let value = |at: usize, key: String, value: &DeValue<'_>| {
        let origin = carried(at, key.clone());
        let kind = match value {
            DeValue::Table(below) => with_origin(table(below, &key, carried), &origin),
            DeValue::Array(values) => list(values, &key, carried),
            other => kind(other),
        };
        Value::new(Some(&origin), kind)
    };
    let entries = from.iter().map(|(name, given)| {
        let key = join(above, name.get_ref());
        (name.get_ref().to_string(), value(name.span().start, key, given.get_ref()))
    });
    entries.collect()
}

fn list(values: &DeArray<'_>, key: &str, carried: &dyn Fn(usize, String) -> String) -> ValueKind {
    let entry = |(at, value): (usize, &Spanned<DeValue<'_>>)| match value.get_ref() {
        DeValue::Table(below) => {
            let key = format!("{key}[{}]", at + 1);
            let origin = carried(value.span().start, key.clone());
            Value::new(Some(&origin), with_origin(table(below, &key, carried), &origin))
        }
        other => Value::new(None, kind(other)),
    };
    ValueKind::Array(values.iter().enumerate().map(entry).collect())
}

fn with_origin(mut table: Table, origin: &String) -> ValueKind {
    table.entry(TABLE_ORIGIN.to_string()).or_insert_with(|| Value::new(Some(origin), ValueKind::Nil));
    ValueKind::Table(table)
}

fn kind(value: &DeValue<'_>) -> ValueKind {
    let in_words = |words: String| ValueKind::String(format!("{IN_WORDS}{words}"));
    match value {
        DeValue::String(text) => ValueKind::String(text.to_string()),
        DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) => ValueKind::I64(number),
            Err(_) => in_words(format!("the number {}", number.as_str())),
        },
        DeValue::Float(number) => match number.as_str().parse() {
            Ok(number) => ValueKind::Float(number),
            Err(_) => in_words(format!("the number {}", number.as_str())),
        },
        DeValue::Boolean(value) => ValueKind::Boolean(*value),
        DeValue::Array(values) => {
            ValueKind::Array(values.iter().map(|value| Value::new(None, kind(value.get_ref()))).collect())
        }
        DeValue::Datetime(date) => in_words(format!("{DATE}{date}")),
        DeValue::Table(_) => in_words("a table".to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn user(text: &str) -> Result<Table, Error> {
        parse(text, "f.toml", SettingsLayer::UserFile)
    }

    fn at<'a>(table: &'a Table, path: &[&str]) -> &'a Value {
        let mut value = &table[path[0]];
        for name in &path[1..] {
            let ValueKind::Table(table) = &value.kind else { panic!("no table around {name}") };
            value = &table[*name];
        }
        value
    }

    #[test]
    fn lines_and_keys_survive_a_merge() {
        let written = user("[a]\nb = 1\n\n[a.\"x.y\"]\nc.d = true\n").unwrap();
        let root = merge([&user("a.b = 2\na.e = 3").unwrap(), &written]).unwrap();
        for (path, key, place) in [
            (&["a"][..], "a", "f.toml:1"),
            (&["a", "b"], "a.b", "f.toml:2"),
            (&["a", "x.y"], "a.\"x.y\"", "f.toml:4"),
            (&["a", "x.y", "c"], "a.\"x.y\".c", "f.toml:5"),
            (&["a", "x.y", "c", "d"], "a.\"x.y\".c.d", "f.toml:5"),
            (&["a", "e"], "a.e", "f.toml:2"),
        ] {
            let origin = origin(at(&root, path));
            assert_eq!((origin.key.as_str(), origin.place.as_str()), (key, place));
        }
    }

    #[test]
    fn a_later_layer_wins_and_leaves_the_rest() {
        let flag = single(&["a", "d"], "4", SettingsLayer::Flag, "flag --d");
        let merged = merge([&user("[a]\nb = 1\nc = 2\n").unwrap(), &user("[a]\nc = 3\n").unwrap(), &flag]).unwrap();
        let kinds = ["b", "c", "d"].map(|name| at(&merged, &["a", name]).kind.clone());
        assert_eq!(kinds, [ValueKind::I64(1), ValueKind::I64(3), ValueKind::String("4".to_string())]);
    }

    #[test]
    fn names_are_no_paths() {
        let merged =
            merge([&user("\"a.b\" = 1\n\"c[99999999999]\" = 2\n\"\" = 3\n\"\\u0000\" = 4\n").unwrap()]).unwrap();
        let names: Vec<&str> = entries(&merged).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["", "\0", "a.b", "c[99999999999]"]);
    }

    proptest! {
        #[test]
        fn any_text_parses_or_is_refused(text in "\\PC{0,40}|([a-c.\"\\[\\]=\n {}'0-9_x]{0,60})") {
            let _ = user(&text);
        }
    }
}
