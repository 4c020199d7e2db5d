//! Round trips: a reader finds the keys and tensors that the writer wrote.

use proptest::prelude::*;

use super::*;

use testing::gguf as write;

fn any_value() -> impl Strategy<Value = write::Value> {
    use write::Value as V;
    prop_oneof![
        any::<u32>().prop_map(V::U32),
        any::<u64>().prop_map(V::U64),
        any::<i32>().prop_map(V::I32),
        any::<f32>().prop_filter("one that equals itself", |number| number.is_finite()).prop_map(V::F32),
        any::<bool>().prop_map(V::Bool),
        ".{0,20}".prop_map(V::Text),
        prop::collection::vec(".{0,6}", 0..10).prop_map(V::Texts),
        prop::collection::vec(any::<u32>(), 0..10).prop_map(V::U32s),
        prop::collection::vec(any::<i32>(), 0..10).prop_map(V::I32s),
        prop::collection::vec(any::<bool>(), 0..10).prop_map(V::Bools),
    ]
}

fn expected(value: &write::Value) -> MetadataValue {
    use write::Value as V;
    match value {
        V::U32(number) => MetadataValue::Unsigned((*number).into()),
        V::U64(number) => MetadataValue::Unsigned(*number),
        V::I32(number) => MetadataValue::Signed((*number).into()),
        V::F32(number) => MetadataValue::Float((*number).into()),
        V::Bool(flag) => MetadataValue::Bool(*flag),
        V::Text(text) => MetadataValue::String(text.clone()),
        V::Texts(texts) => MetadataValue::Strings(texts.clone()),
        V::U32s(list) => numbers(ValueType::U32, list.iter().flat_map(|item| item.to_le_bytes()).collect()),
        V::I32s(list) => numbers(ValueType::I32, list.iter().flat_map(|item| item.to_le_bytes()).collect()),
        V::Bools(list) => numbers(ValueType::Bool, list.iter().map(|&item| item.into()).collect()),
        V::Raw(..) => unreachable!("not among the random ones"),
    }
}

fn numbers(element: ValueType, raw: Vec<u8>) -> MetadataValue {
    MetadataValue::Numbers { element, raw }
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        keys in prop::collection::hash_map("[a-z.]{1,20}", any_value(), 0..12),
        tensors in prop::collection::vec((prop::collection::vec(1u64..5, 1..5), any::<u32>()), 0..6),
        version in 2u32..4,
        alignment in prop::sample::select(vec![8usize, 32, 64, 4096]),
    ) {
        let mut file = write::File { version, alignment, ..write::File::default() };
        for (key, value) in &keys {
            file.set(key, value.clone());
        }
        if alignment != 32 {
            file.set("general.alignment", write::Value::U32(alignment as u32));
        }
        for (i, (dims, type_code)) in tensors.iter().enumerate() {
            let (name, dims, data) = (format!("tensor {i}"), dims.clone(), vec![i as u8; 3 + i]);
            file.tensors.push(write::Tensor { name, dims, type_code: *type_code, data, offset: None });
        }
        let bytes = ModelBytes::copy_of(&file.bytes());
        let header = header(Path::new("random"), &bytes).unwrap();
        for (key, value) in &keys {
            prop_assert_eq!(header.metadata.get(key), Some(&expected(value)));
        }
        prop_assert_eq!(header.alignment, alignment);
        prop_assert_eq!(header.tensors.len(), tensors.len());
        for (i, (dims, type_code)) in tensors.iter().enumerate() {
            let tensor = &header.tensors[i];
            prop_assert_eq!(&tensor.name, &format!("tensor {i}"));
            prop_assert_eq!(tensor.dims.iter().rev().collect::<Vec<_>>(), dims.iter().collect::<Vec<_>>());
            prop_assert_eq!(tensor.type_code, *type_code);
            let start = header.data_start + usize::try_from(tensor.offset).unwrap();
            prop_assert_eq!(&bytes[start..start + 3 + i], &vec![i as u8; 3 + i][..]);
        }
    }
}
