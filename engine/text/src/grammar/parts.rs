//! Parts of a schema.

use serde_json::Value;

/// Returns the direct subschemas with their paths.
pub fn children(schema: &Value) -> impl Iterator<Item = (String, &Value)> {
    let named = ["properties", "patternProperties", "$defs", "definitions"].into_iter().flat_map(|key| {
        let map = schema.get(key).and_then(Value::as_object).into_iter().flatten();
        map.map(move |(name, child)| (format!("{key}/{}", escaped(name)), child))
    });
    let listed = ["anyOf", "oneOf", "allOf", "prefixItems"].into_iter().flat_map(|key| {
        let list = schema.get(key).and_then(Value::as_array).into_iter().flatten();
        list.enumerate().map(move |(index, child)| (format!("{key}/{index}"), child))
    });
    let single =
        ["items", "additionalProperties"].into_iter().filter_map(|key| Some((key.to_string(), schema.get(key)?)));
    named.chain(listed).chain(single).filter(|(_, child)| child.is_object())
}

pub fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}
