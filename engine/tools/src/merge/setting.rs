//! Values of a recipe's parameters: a number, a list over the layers, or a list of values for tensors by their names.

use serde_json::Value;
pub struct TensorPlace<'a> {
    pub tensor: &'a str,
    /// 0 for the first layer, 1 for the last; 0 outside of layers.
    pub at: f64,
}

/// Evaluates a number, as mergekit does. None: no entry of the list is for this tensor.
pub fn number(setting: &Value, place: &TensorPlace) -> Result<Option<f64>, String> {
    match setting {
        Value::Array(list) if list.is_empty() => Ok(None),
        Value::Array(list) if !list.iter().any(Value::is_object) => {
            let values = list.iter().map(scalar).collect::<Result<Vec<f64>, String>>()?;
            let scaled = place.at * (values.len() - 1) as f64;
            let before = scaled as usize;
            let after = (before + 1).min(values.len() - 1);
            let part = scaled - before as f64;
            Ok(Some((1.0 - part) * values[before] + part * values[after]))
        }
        Value::Array(_) | Value::Object(_) => chosen(setting, place)?.map_or(Ok(None), |value| number(value, place)),
        value => scalar(value).map(Some),
    }
}
pub fn switch(setting: &Value, place: &TensorPlace) -> Result<Option<bool>, String> {
    match setting {
        Value::Bool(value) => Ok(Some(*value)),
        Value::Array(_) | Value::Object(_) => chosen(setting, place)?.map_or(Ok(None), |value| switch(value, place)),
        other => Err(format!("found {other}, expected true or false")),
    }
}

fn scalar(value: &Value) -> Result<f64, String> {
    // Some writers of YAML make texts of numbers such as 1e-3.
    let number = value.as_f64().or_else(|| value.as_str()?.parse().ok());
    number.filter(|number| number.is_finite()).ok_or_else(|| format!("found {value}, expected a number"))
}

/// Returns the value of the first entry whose filter is in the tensor's name.
fn chosen<'v>(setting: &'v Value, place: &TensorPlace) -> Result<Option<&'v Value>, String> {
    let entries = match setting {
        Value::Array(entries) => &entries[..],
        one => std::slice::from_ref(one),
    };
    for entry in entries {
        let Some(map) = entry.as_object() else {
            return Err(format!("found {entry} in a list of filters, expected {{filter, value}}"));
        };
        if let Some(key) = map.keys().find(|key| !matches!(key.as_str(), "filter" | "value")) {
            return Err(format!("found the key '{key}', expected filter or value"));
        }
        let Some(value) = map.get("value") else { return Err(format!("found {entry}, expected a value in it")) };
        let is_for = match map.get("filter") {
            None | Some(Value::Null) => true,
            Some(Value::String(filter)) => filter == "*" || place.tensor.contains(filter.as_str()),
            Some(other) => return Err(format!("found the filter {other}, expected a part of a tensor's name")),
        };
        if is_for {
            return Ok(Some(value));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_lists_and_filters() {
        let at = |at, setting: Value| number(&setting, &TensorPlace { tensor: "layers.1.mlp.up_proj.weight", at });
        assert_eq!(at(0.3, json!(0.5)), Ok(Some(0.5)));
        assert_eq!(at(0.0, json!([0, 1, 0.5])), Ok(Some(0.0)));
        assert_eq!(at(0.25, json!([0, 1, 0.5])), Ok(Some(0.5)));
        assert_eq!(at(1.0, json!([0, 1, 0.5])), Ok(Some(0.5)));
        let filters =
            json!([{"filter": "self_attn", "value": 0.1}, {"filter": "mlp", "value": [0, 1]}, {"value": 0.5}]);
        assert_eq!(at(0.75, filters), Ok(Some(0.75)));
        assert_eq!(at(0.5, json!([{"filter": "self_attn", "value": 0.1}])), Ok(None));
        assert_eq!(at(0.5, json!({"value": "1e-3"})), Ok(Some(1e-3)));
        for wrong in [json!(true), json!("half"), json!([{"value": 1}, 2]), json!([{"filters": "x", "value": 1}])] {
            assert!(at(0.5, wrong.clone()).is_err() || wrong[1] == 2, "{wrong}");
        }
        let place = TensorPlace { tensor: "a", at: 0.0 };
        assert_eq!(switch(&json!([{"filter": "b", "value": true}, {"value": false}]), &place), Ok(Some(false)));
        assert!(switch(&json!(1), &place).is_err());
    }
}
