use gpu::GpuFeature;
use gpu::check::{TOLERANCE, check, check_rounded};
use testing::device_of_tests;

#[test]
fn a_device_computes_right_with_and_without_groups() {
    let Some(device) = device_of_tests() else { return };
    let checked = check(&device).unwrap();
    println!("{checked:?}");
    assert!(checked.is_right && checked.distance > 0.0);
    let could = device.uses(GpuFeature::GroupProducts);
    for groups in [true, false] {
        device.set_feature(GpuFeature::GroupProducts, groups);
        let rounded = check_rounded(&device).unwrap();
        println!("{rounded:?}");
        assert!(rounded.is_right && rounded.distance > TOLERANCE);
    }
    device.set_feature(GpuFeature::GroupProducts, could);
}
