//! Activations on the device, in the forms that products read.

use bytemuck::{Pod, Zeroable};

use crate::buffer::Buffer;
use crate::device::Device;
use crate::error::Error;

/// Columns are filled up with zeros to whole multiples of this.
pub const PADDED_TO: usize = 64;
/// Values that share a scale in the form of 8-bit integers.
pub const GROUP: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Forms {
    pub values: bool,
    pub integers: bool,
    pub halves: Halves,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Halves {
    #[default]
    No,
    /// 11 bits of each value.
    One,
    /// 22 bits.
    Two,
}

/// Numbers of rows that each form has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct FormRows {
    pub values: usize,
    pub integers: usize,
    pub high: usize,
    pub low: usize,
}

impl FormRows {
    pub fn of(rows: usize, forms: Forms) -> FormRows {
        let of = |wanted: bool| if wanted { rows } else { 0 };
        FormRows {
            values: of(forms.values),
            integers: of(forms.integers),
            high: of(forms.halves != Halves::No),
            low: of(forms.halves == Halves::Two),
        }
    }

    pub fn max(self, other: FormRows) -> FormRows {
        FormRows {
            values: self.values.max(other.values),
            integers: self.integers.max(other.integers),
            high: self.high.max(other.high),
            low: self.low.max(other.low),
        }
    }

    pub fn bytes(self, cols: usize) -> usize {
        let padded = cols.next_multiple_of(PADDED_TO);
        let values = self.values * padded * size_of::<f32>();
        let integers = self.integers * (padded + 2 * size_of::<f32>() * (padded / GROUP));
        let halves = (self.high + self.low) * padded * size_of::<u16>() + self.high * size_of::<f32>();
        values + integers + halves
    }
}

pub struct DeviceRows {
    pub cols: usize,
    pub padded: usize,
    pub values: Buffer<f32>,
    pub codes: Buffer<i8>,
    pub scales: Buffer<f32>,
    pub sums: Buffer<f32>,
    pub high: Buffer<u16>,
    pub low: Buffer<u16>,
    pub row_scales: Buffer<f32>,
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
pub struct RowsArguments {
    values: u64,
    codes: u64,
    scales: u64,
    sums: u64,
    high: u64,
    low: u64,
    row_scales: u64,
    cols: u32,
    padded: u32,
}

impl DeviceRows {
    pub fn new(device: &Device, rows: usize, cols: usize, forms: Forms) -> Result<DeviceRows, Error> {
        DeviceRows::with_room(device, FormRows::of(rows, forms), cols)
    }

    pub fn with_room(device: &Device, rows: FormRows, cols: usize) -> Result<DeviceRows, Error> {
        let padded = cols.next_multiple_of(PADDED_TO);
        Ok(DeviceRows {
            cols,
            padded,
            values: Buffer::new(device, rows.values * padded)?,
            codes: Buffer::new(device, rows.integers * padded)?,
            scales: Buffer::new(device, rows.integers * (padded / GROUP))?,
            sums: Buffer::new(device, rows.integers * (padded / GROUP))?,
            high: Buffer::new(device, rows.high * padded)?,
            low: Buffer::new(device, rows.low * padded)?,
            row_scales: Buffer::new(device, rows.high)?,
        })
    }

    pub fn room(&self) -> FormRows {
        let rows = |len: usize| len.checked_div(self.padded).unwrap_or_default();
        FormRows {
            values: rows(self.values.len()),
            integers: rows(self.codes.len()),
            high: rows(self.high.len()),
            low: rows(self.low.len()),
        }
    }

    pub fn arguments(&self, forms: Forms) -> RowsArguments {
        self.arguments_of(self.cols, forms)
    }

    pub fn arguments_of(&self, cols: usize, forms: Forms) -> RowsArguments {
        let of = |wanted: bool, address: u64| if wanted { address } else { 0 };
        let halves = forms.halves != Halves::No;
        RowsArguments {
            values: of(forms.values, self.values.address()),
            codes: of(forms.integers, self.codes.address()),
            scales: of(forms.integers, self.scales.address()),
            sums: of(forms.integers, self.sums.address()),
            high: of(halves, self.high.address()),
            low: of(forms.halves == Halves::Two, self.low.address()),
            row_scales: of(halves, self.row_scales.address()),
            cols: cols as u32,
            padded: cols.next_multiple_of(PADDED_TO) as u32,
        }
    }
}

impl RowsArguments {
    pub fn cols(&self) -> usize {
        self.cols as usize
    }

    pub fn padded(&self) -> usize {
        self.padded as usize
    }

    pub fn has_halves(&self) -> bool {
        self.high != 0
    }

    pub fn forms(&self) -> Forms {
        let halves = match (self.high, self.low) {
            (0, _) => Halves::No,
            (_, 0) => Halves::One,
            _ => Halves::Two,
        };
        Forms { values: self.values != 0, integers: self.codes != 0, halves }
    }
}
