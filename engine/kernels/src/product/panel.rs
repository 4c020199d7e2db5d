//! Weights in panels: sixteen rows side by side, so that a lane of a register is a row and no sum goes across lanes.
//!
//! A matrix is a sequence of panels, a panel a sequence of blocks of 256 columns, padded with zeros where rows or
//! columns end. A block:
//!
//! ```text
//! scales [group][row], mins [group][row], then d [row], dmin [row] where scales are small integers
//! eight units of 32 columns: the codes' nibbles, [step 0..4][row][4 columns], step s in the low and step s + 4 in the
//! high halves (8-bit codes: [step 0..8][row][4 columns]), then the bits that a nibble has no room for
//! ```
//!
//! The numbers are those of the file, in another order and hardly more bytes: the values are exactly the same.

use half::f16;

use super::{BLOCK, Weights};
use crate::cpu::{CpuLevel, Lanes, at_level};
use crate::format::{Format, IQ4, IQ4_CODES, Ints, unpack_padded};

/// Version of the order written here: packed weights of another order are packed again.
pub const PANEL_ORDER: u32 = 1;
pub const PANEL: usize = 16; // weight rows of a panel: the lanes of a register
pub(super) const STEPS: usize = BLOCK / 4; // steps of four columns in a block
pub(super) const UNIT: usize = 32; // columns

#[derive(Clone, Copy)]
pub(super) struct PanelFormat {
    pub bits: usize,
    pub codes: Codes,
    pub group: usize, // columns that share a scale
    /// True if scales are small integers times one d of the row's block; else each is a half of its own.
    pub shared: bool,
    /// True if value = scale · code + min; else there is no min.
    pub min: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Codes {
    Plain,
    Centred, // the number plus half the range
    Book,
}

impl PanelFormat {
    pub const fn of(format: Format) -> Option<PanelFormat> {
        let (bits, codes, group, shared, min) = match format {
            Format::Q4_0 => (4, Codes::Centred, 32, false, false),
            Format::Q4_1 => (4, Codes::Plain, 32, false, true),
            Format::Q5_0 => (5, Codes::Centred, 32, false, false),
            Format::Q5_1 => (5, Codes::Plain, 32, false, true),
            Format::Q8_0 => (8, Codes::Centred, 32, false, false),
            Format::Q4_K => (4, Codes::Plain, 32, true, true),
            Format::Q5_K => (5, Codes::Plain, 32, true, true),
            Format::Q6_K => (6, Codes::Centred, 16, true, false),
            Format::IQ4_NL => (4, Codes::Book, 32, false, false),
            Format::IQ4_XS => (4, Codes::Book, 32, true, false),
            _ => return None,
        };
        Some(PanelFormat { bits, codes, group, shared, min })
    }

    fn expect(format: Format) -> PanelFormat {
        PanelFormat::of(format).unwrap_or_else(|| panic!("{} has no panels", format.name()))
    }

    pub const fn groups(self) -> usize {
        BLOCK / self.group
    }

    pub const fn scales(self) -> usize {
        // bytes of all scales of a block, and of all mins
        self.groups() * PANEL * if self.shared { 1 } else { 2 }
    }

    pub const fn d_at(self) -> usize {
        self.scales() * (1 + self.min as usize)
    }

    pub const fn units_at(self) -> usize {
        self.d_at() + if self.shared { 2 * PANEL * (1 + self.min as usize) } else { 0 }
    }

    pub const fn unit_bytes(self) -> usize {
        PANEL * UNIT * self.bits / 8
    }

    pub const fn block_bytes(self) -> usize {
        self.units_at() + 8 * self.unit_bytes()
    }

    pub const fn rest(self) -> usize {
        if self.bits == 8 { 0 } else { self.bits - 4 }
    }
}

pub(super) const fn kind_of(format: usize) -> PanelFormat {
    match PanelFormat::of(Format::ALL[format]) {
        Some(kind) => kind,
        None => panic!("no panels"),
    }
}

pub fn panel_bytes(format: Format, rows: usize, cols: usize) -> Option<usize> {
    let blocks = rows.div_ceil(PANEL).checked_mul(cols.div_ceil(BLOCK))?;
    PanelFormat::of(format)?.block_bytes().checked_mul(blocks)
}

/// Packs panel `panel` of `w`, which lies row by row, into `out`: the panel's share of `panel_bytes`.
pub fn pack_panel(level: CpuLevel, w: &Weights, panel: usize, out: &mut [u8]) {
    at_level!(level, pack_body(w: &Weights<'_>, panel: usize, out: &mut [u8]));
}

#[inline(always)]
fn pack_body<L: Lanes>(w: &Weights<'_>, panel: usize, out: &mut [u8]) {
    let kind = PanelFormat::expect(w.format);
    let row_bytes = w.row_bytes();
    let block_bytes = w.format.bytes_of_256();
    let rows = PANEL.min(w.rows - panel * PANEL);
    let mut ints = Ints::default();
    for (block, out) in out.chunks_exact_mut(kind.block_bytes()).enumerate() {
        // [step][row]: four codes each.
        let mut codes = [[0u32; PANEL]; STEPS];
        out.fill(0);
        for row in 0..rows {
            let bytes = &w.bytes[(panel * PANEL + row) * row_bytes..][..row_bytes];
            let bytes = &bytes[block * block_bytes..];
            let bytes = &bytes[..block_bytes.min(bytes.len())];
            unpack_padded(w.format, bytes, &mut ints);
            put_scales(kind, w.format, bytes, &ints, row, out);
            for (step, q) in ints.q.as_chunks::<4>().0.iter().enumerate() {
                codes[step][row] = u32::from_le_bytes(q.map(|q| code_of(kind, q)));
            }
        }
        for (unit, out) in out[kind.units_at()..].chunks_exact_mut(kind.unit_bytes()).enumerate() {
            put_unit(kind, codes[unit * 8..][..8].as_array().expect("eight steps"), out);
        }
    }
}

fn block_of_row(kind: PanelFormat, block: &[u8], row: usize, ints: &mut Ints) {
    let half = |at: usize| f16::from_le_bytes([block[at], block[at + 1]]).to_f32();
    let (d, dmin) = if kind.shared {
        let at = kind.d_at() + 2 * row;
        (half(at), if kind.min { half(at + 2 * PANEL) } else { 0.0 })
    } else {
        (0.0, 0.0)
    };
    for sixteenth in 0..16 {
        let at = sixteenth * 16 / kind.group * PANEL + row;
        let signed = |at: usize| f32::from(if kind.min { i16::from(block[at]) } else { i16::from(block[at] as i8) });
        ints.scale[sixteenth] = if kind.shared { d * signed(at) } else { half(2 * at) };
        ints.min[sixteenth] = match (kind.min, kind.shared) {
            (false, _) => -0.0,
            (true, true) => -(dmin * f32::from(block[kind.scales() + at])),
            (true, false) => half(kind.scales() + 2 * at),
        };
    }
    for (unit, bytes) in block[kind.units_at()..].chunks_exact(kind.unit_bytes()).enumerate() {
        for i in 0..UNIT {
            let (step, column) = (i / 4, i % 4);
            let byte = |vector: usize| bytes[vector * 4 * PANEL + 4 * row + column];
            let code = if kind.bits == 8 {
                byte(step)
            } else {
                let nibble = byte(step % 4) >> (4 * (step / 4)) & 15;
                let rest = kind.rest();
                let bits = match rest {
                    0 => 0,
                    _ => byte(4 + step * rest / 8) >> (step * rest % 8) & ((1 << rest) - 1),
                };
                if kind.codes == Codes::Centred { nibble << rest | bits } else { nibble | bits << 4 }
            };
            ints.q[unit * UNIT + i] = match kind.codes {
                Codes::Plain => code as i8,
                Codes::Centred => code.wrapping_sub(1 << (kind.bits - 1)) as i8,
                Codes::Book => IQ4[usize::from(code)],
            };
        }
    }
}

pub(super) fn row_values(w: &Weights, row: usize, out: &mut [f32]) {
    for (block, out) in out.chunks_mut(BLOCK).enumerate() {
        block_values(w, row, block, out);
    }
}

pub(super) fn block_values(w: &Weights, row: usize, block: usize, out: &mut [f32]) {
    let kind = PanelFormat::expect(w.format);
    let blocks = w.cols.div_ceil(BLOCK);
    let bytes = &w.bytes[(row / PANEL * blocks + block) * kind.block_bytes()..][..kind.block_bytes()];
    let (mut ints, mut values) = (Ints::default(), [0.0; BLOCK]);
    block_of_row(kind, bytes, row % PANEL, &mut ints);
    ints.to_values(&mut values);
    out.copy_from_slice(&values[..out.len()]);
}

#[inline(always)]
fn code_of(kind: PanelFormat, q: i8) -> u8 {
    match kind.codes {
        Codes::Plain => q as u8,
        Codes::Centred => (q as u8).wrapping_add(1 << (kind.bits - 1)),
        Codes::Book => IQ4_CODES[usize::from(q as u8)],
    }
}

#[inline(always)]
fn put_scales(kind: PanelFormat, format: Format, bytes: &[u8], ints: &Ints, row: usize, out: &mut [u8]) {
    let mut put_half = |at: usize, half: f16| out[at..at + 2].copy_from_slice(&half.to_le_bytes());
    if !kind.shared {
        for group in 0..kind.groups() {
            let at = 2 * (group * PANEL + row);
            let first = group * kind.group / 16;
            // Both were halves in the file.
            put_half(at, f16::from_f32(ints.scale[first]));
            if kind.min {
                put_half(kind.scales() + at, f16::from_f32(ints.min[first]));
            }
        }
        return;
    }
    let half_at = |at: usize| f16::from_le_bytes([bytes[at], bytes[at + 1]]);
    let d_at = if format == Format::Q6_K { bytes.len() - 2 } else { 0 };
    let (d, dmin) = (half_at(d_at), half_at(2));
    put_half(kind.d_at() + 2 * row, d);
    if kind.min {
        put_half(kind.d_at() + 2 * PANEL + 2 * row, dmin);
    }
    for group in 0..kind.groups() {
        let first = group * kind.group / 16;
        // d times a small integer is exact in f32, so the quotient is that integer. (If d is not finite, the quotient
        // is zero and the product is as little a number as before.)
        let small = |product: f32, d: f16| (product / d.to_f32()) as i32 as u8;
        out[group * PANEL + row] = small(ints.scale[first], d);
        if kind.min {
            out[kind.scales() + group * PANEL + row] = small(-ints.min[first], dmin);
        }
    }
}

#[inline(always)]
fn put_unit(kind: PanelFormat, codes: &[[u32; PANEL]; 8], out: &mut [u8]) {
    let out = out.as_chunks_mut::<4>().0;
    let rest = kind.rest();
    if kind.bits == 8 {
        for (out, code) in out.iter_mut().zip(codes.as_flattened()) {
            *out = code.to_le_bytes();
        }
        return;
    }
    // Four codes of one byte each in a word: bits that stay inside their byte can be shifted as a word.
    let every = |byte: u32| byte * 0x0101_0101;
    let centred = kind.codes == Codes::Centred;
    let nibble = |code: u32| (if centred { code >> rest } else { code }) & every(15);
    let others = |code: u32| (if centred { code } else { code >> 4 }) & every((1 << rest) - 1);
    for step in 0..4 {
        for row in 0..PANEL {
            let word = nibble(codes[step][row]) | nibble(codes[step + 4][row]) << 4;
            out[step * PANEL + row] = word.to_le_bytes();
        }
    }
    for vector in 0..rest {
        for row in 0..PANEL {
            let steps = 8 / rest;
            let word =
                (0..steps).fold(0, |word, step| word | others(codes[vector * steps + step][row]) << (step * rest));
            out[(4 + vector) * PANEL + row] = word.to_le_bytes();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::dequantize;
    use crate::product::MatrixOrder;
    use crate::testing::random_blocks;

    #[test]
    fn every_row_keeps_its_values_to_the_bit() {
        for format in Format::ALL.iter().copied() {
            for (rows, cols) in [(16, 256), (37, 512), (3, 768), (17, 96)] {
                let Some(size) = panel_bytes(format, rows, cols) else { continue };
                let Some(row_bytes) = format.row_bytes(cols) else { continue };
                let bytes = random_blocks(format, rows * cols, 5);
                let w = Weights { format, rows, cols, order: MatrixOrder::Rows, bytes: &bytes };
                let mut packed = vec![0xAA; size];
                let panel_size = size / rows.div_ceil(PANEL);
                for (panel, out) in packed.chunks_exact_mut(panel_size).enumerate() {
                    pack_panel(CpuLevel::detect(), &w, panel, out);
                }
                let panels = Weights { order: MatrixOrder::Panels, bytes: &packed, ..w };
                let (mut expected, mut ours) = (vec![0.0; cols], vec![f32::NAN; cols]);
                for row in 0..rows {
                    dequantize(format, &bytes[row * row_bytes..][..row_bytes], &mut expected);
                    panels.row(row, &mut ours);
                    assert_eq!(ours, expected, "{} row {row}", format.name());
                }
            }
        }
    }

    #[test]
    fn panels_take_hardly_more_than_rows() {
        for format in Format::ALL.iter().copied() {
            let Some(size) = panel_bytes(format, PANEL, BLOCK) else { continue };
            let before = PANEL * format.row_bytes(BLOCK).unwrap();
            assert!(size <= before + before / 32, "{}: {size} bytes after {before}", format.name());
        }
    }
}
