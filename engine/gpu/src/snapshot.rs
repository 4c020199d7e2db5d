//! States at places to come back to: packed into blocks of a format, and back.

use bytemuck::{Pod, Zeroable};
use kernels::format::Format;

use crate::device::{Device, Launch};
use crate::error::Error;
use crate::matrix::DeviceFormat;

/// `Pack` and `Unpack` in `snapshot.cu`.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Pack {
    from: u64,
    to: u64,
    groups: u64,
    kind: u32,
    unused: u32,
}

/// Values that a block of every format holds whole.
const GROUP: usize = 32;
/// Of eight warps with eight groups each.
const GROUPS_OF_BLOCK: usize = 64;

/// `values` floats at `from` into blocks of `format` at `to`.
pub fn pack(device: &Device, format: Format, values: usize, from: u64, to: u64) -> Result<(), Error> {
    start(device, "pack_state", format, values, from, to)
}

/// Blocks of `format` at `from` into `values` floats at `to`.
pub fn unpack(device: &Device, format: Format, values: usize, from: u64, to: u64) -> Result<(), Error> {
    start(device, "unpack_state", format, values, from, to)
}

/// `values` floats at `from` to `to`, as they are.
pub fn copy(device: &Device, values: usize, from: u64, to: u64) -> Result<(), Error> {
    device.copy_within(to, from, values * size_of::<f32>())
}

fn start(device: &Device, kernel: &str, format: Format, values: usize, from: u64, to: u64) -> Result<(), Error> {
    let refused = |what: String| Err(Error::Shape { what, wanted: "whole groups of 32 as f32, bf16 or q8_0" });
    if ![Format::F32, Format::BF16, Format::Q8_0].contains(&format) {
        return refused(format!("states as {}", format.name()));
    }
    if !values.is_multiple_of(GROUP) {
        return refused(format!("a state of {values} values"));
    }
    let groups = values / GROUP;
    let arguments = Pack { from, to, groups: groups as u64, kind: DeviceFormat::of(format) as u32, unused: 0 };
    let grid = (groups.div_ceil(GROUPS_OF_BLOCK) as u32, 1, 1);
    device.launch("snapshot", kernel, Launch { grid, threads: 256, shared_bytes: 0 }, &arguments)
}

#[cfg(test)]
mod tests {
    use crate::values::random;
    use kernels::format::{dequantize, quantize};
    use proptest::prelude::*;

    use super::*;
    use crate::buffer::Buffer;
    use crate::testing::{cases, device_of_tests};

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
}
