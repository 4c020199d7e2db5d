use kernels::format::{Format, dequantize, quantize};
use proptest::prelude::*;
use reference::random;

use gpu::buffer::Buffer;
use gpu::snapshot::*;
use testing::{cases, device_of_tests};

const GROUP: usize = 32;

proptest! {
    #![proptest_config(cases(20))]
    #[test]
    fn as_the_cpu_keeps_them(
        groups in 1usize..200,
        format in prop::sample::select(vec![Format::F32, Format::BF16, Format::Q8_0]),
        scale in prop::sample::select(vec![1e-6f32, 1.0, 3e4]),
        seed: u64,
    ) {
        let Some(device) = device_of_tests() else { return Ok(()) };
        let mut values: Vec<f32> = random(groups * GROUP, seed).iter().map(|value| value * scale).collect();
        values[..GROUP].fill(0.0);
        let bytes = format.row_bytes(values.len()).unwrap();
        let there = Buffer::of(&device, &values).unwrap();
        // Behind what is packed lies what is another's.
        let packed = Buffer::of(&device, &vec![0x5au8; bytes + 64]).unwrap();
        pack(&device, format, values.len(), there.address(), packed.address()).unwrap();
        let ours = packed.to_vec().unwrap();
        prop_assert_eq!(&ours[bytes..], &[0x5a; 64][..]);
        let mut theirs = vec![0; bytes];
        quantize(format, &values, &mut theirs);
        prop_assert_eq!(&ours[..bytes], &theirs[..]);

        let back = Buffer::<f32>::new(&device, values.len()).unwrap();
        unpack(&device, format, values.len(), packed.address(), back.address()).unwrap();
        let mut expected = vec![0.0; values.len()];
        dequantize(format, &theirs, &mut expected);
        prop_assert_eq!(back.to_vec().unwrap(), expected);
    }
}

#[test]
fn what_no_kernel_can_do_is_refused() {
    let Some(device) = device_of_tests() else { return };
    assert!(pack(&device, Format::Q4_0, 64, 0, 0).unwrap_err().to_string().contains("q4_0"));
    assert!(unpack(&device, Format::F32, 33, 0, 0).unwrap_err().to_string().contains("33 values"));
}
