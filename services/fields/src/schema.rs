use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::Value;

pub fn read_schema<T: JsonSchema>() -> Value {
    in_one_piece::<T>(SchemaSettings::draft2020_12())
}

pub fn written_schema<T: JsonSchema>() -> Value {
    in_one_piece::<T>(SchemaSettings::draft2020_12().for_serialize())
}

fn in_one_piece<T: JsonSchema>(mut settings: SchemaSettings) -> Value {
    settings.inline_subschemas = true;
    settings.meta_schema = None;
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    schema.remove("title");
    schema.to_value()
}
