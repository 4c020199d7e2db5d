//! The methods, on one tensor at a time. The arithmetic is mergekit's, in f32; sums over a tensor are in f64.

use weights::FileTensor;

use super::recipe::{MergeMethod, MergeSwitches};
use super::torch_random::TorchRandom;
use crate::Error;
use crate::tensor_source::{count_of, pieces, read};
pub struct TensorMerge {
    pub method: MergeMethod,
    pub count: usize,
    /// Tensor from which differences are taken.
    pub base: Option<FileTensor>,
    pub inputs: Vec<MergeInput>,
    pub options: MergeSwitches,
}

pub struct MergeInput {
    pub tensor: FileTensor,
    pub weight: f32,
    pub density: f64,
}

type Out<'a> = &'a mut dyn FnMut(&[f32]) -> Result<(), Error>;

impl TensorMerge {
    pub fn check(&self) -> Result<(), String> {
        let sum: f32 = self.inputs.iter().map(|input| input.weight).sum();
        let divides = self.options.normalize && !self.has_signs() && self.method != MergeMethod::Slerp;
        if divides && sum.abs() < 1e-8 {
            return Err(
                "the weights sum to 0, and 'normalize' divides by their sum: change one, or set it to false".into()
            );
        }
        Ok(())
    }

    pub fn run(&self, random: &mut TorchRandom, out: Out) -> Result<(), Error> {
        match (&self.base, self.method, &self.inputs[..]) {
            (_, MergeMethod::Slerp, [one, other]) => self.slerp([&one.tensor, &other.tensor], out),
            (Some(base), ..) => self.differences(base, random, out),
            _ => self.linear(out),
        }
    }

    fn has_signs(&self) -> bool {
        matches!(self.method, MergeMethod::Ties | MergeMethod::DareTies)
    }

    fn linear(&self, out: Out) -> Result<(), Error> {
        let sum: f32 = self.inputs.iter().map(|input| input.weight).sum();
        let mut values = Vec::new();
        for piece in pieces(self.count) {
            let mut merged = vec![0.0; piece.len()];
            for input in &self.inputs {
                read(&input.tensor, piece.clone(), &mut values)?;
                merged.iter_mut().zip(&values).for_each(|(merged, value)| *merged += input.weight * value);
            }
            if self.options.normalize {
                merged.iter_mut().for_each(|merged| *merged /= sum);
            }
            out(&merged)?;
        }
        self.let_go();
        Ok(())
    }

    fn slerp(&self, [one, other]: [&FileTensor; 2], out: Out) -> Result<(), Error> {
        const NEARLY_PARALLEL: f64 = 0.9995;
        let (mut a, mut b) = (Vec::new(), Vec::new());
        let (mut aa, mut bb, mut ab) = (0.0, 0.0, 0.0);
        for piece in pieces(self.count) {
            read(one, piece.clone(), &mut a)?;
            read(other, piece, &mut b)?;
            for (a, b) in a.iter().zip(&b).map(|(a, b)| (f64::from(*a), f64::from(*b))) {
                (aa, bb, ab) = (aa + a * a, bb + b * b, ab + a * b);
            }
        }
        let length = |square: f64| if square.sqrt() > 1e-8 { square.sqrt() } else { 1.0 };
        let cosine = (ab / (length(aa) * length(bb))).clamp(-1.0, 1.0);
        let t = self.options.t;
        let (of_one, of_other) = if cosine.abs() > NEARLY_PARALLEL {
            (1.0 - t, t)
        } else {
            let angle = cosine.acos();
            (((1.0 - t) * angle).sin() / angle.sin(), (t * angle).sin() / angle.sin())
        };
        for piece in pieces(self.count) {
            read(one, piece.clone(), &mut a)?;
            read(other, piece, &mut b)?;
            a.iter_mut().zip(&b).for_each(|(a, b)| *a = of_one as f32 * *a + of_other as f32 * b);
            out(&a)?;
        }
        self.let_go();
        Ok(())
    }

    fn differences(&self, base: &FileTensor, random: &mut TorchRandom, out: Out) -> Result<(), Error> {
        let mut kept = Vec::new();
        for input in &self.inputs {
            kept.push(self.kept(base, input, random)?);
        }
        let (normalize, lambda) = (self.options.normalize, self.options.lambda);
        let weights: f32 = self.inputs.iter().map(|input| input.weight).sum();
        let mut of_base = Vec::new();
        let mut changes: Vec<Vec<f32>> = vec![Vec::new(); self.inputs.len()];
        for piece in pieces(self.count) {
            read(base, piece.clone(), &mut of_base)?;
            for ((input, kept), change) in self.inputs.iter().zip(&mut kept).zip(&mut changes) {
                difference(&input.tensor, &of_base, piece.clone(), change)?;
                kept.apply(change);
                change.iter_mut().for_each(|change| *change *= input.weight);
            }
            for (at, value) in of_base.iter_mut().enumerate() {
                let sum: f32 = changes.iter().map(|change| change[at]).sum();
                let (mut change, mut divisor) = (sum, weights);
                if self.has_signs() {
                    (change, divisor) = (0.0, 0.0);
                    let is_positive = sum >= 0.0;
                    for (one, input) in changes.iter().map(|change| change[at]).zip(&self.inputs) {
                        if one != 0.0 && (one > 0.0) == is_positive {
                            (change, divisor) = (change + one, divisor + input.weight);
                        }
                    }
                    divisor = if divisor == 0.0 { 1.0 } else { divisor };
                }
                if normalize {
                    change /= divisor;
                }
                *value += change * lambda;
            }
            out(&of_base)?;
        }
        self.let_go();
        Ok(())
    }

    /// Chooses the values of a difference that stay. The method's random numbers are drawn here and again by `apply`.
    fn kept(&self, base: &FileTensor, input: &MergeInput, random: &mut TorchRandom) -> Result<Kept, Error> {
        let density = input.density;
        let choice = match self.method {
            MergeMethod::Task => Choice::All,
            _ if density >= 1.0 => Choice::All,
            MergeMethod::Ties if density <= 0.0 => Choice::Nothing,
            MergeMethod::Ties => {
                let count = ((density * self.count as f64) as usize).max(1);
                self.largest(base, input, count)?
            }
            _ => {
                let choice = Choice::Random { random: random.clone(), density: density as f32 };
                (0..self.count).for_each(|_| {
                    random.is_kept(density as f32);
                });
                choice
            }
        };
        let mut kept = Kept { choice, factor: 1.0 };
        if self.options.rescale && !matches!(kept.choice, Choice::All | Choice::Nothing) {
            let (mut before, mut after) = (0.0, 0.0);
            let mut choice = kept.choice.clone();
            self.over_differences(base, input, &mut |change| {
                before += sum_of_sizes(change);
                choice.apply(change);
                after += sum_of_sizes(change);
            })?;
            const LEAST: f64 = 1e-7;
            kept.factor = if before < LEAST || after < LEAST { 1.0 } else { (before / after) as f32 };
        }
        Ok(kept)
    }

    /// Finds the size from which on differences stay. The bits of sizes are in the sizes' order, so that two counts of 2^16
    /// classes each find it without sorting.
    fn largest(&self, base: &FileTensor, input: &MergeInput, count: usize) -> Result<Choice, Error> {
        const CLASSES: usize = 1 << 16; // not a window: halves of 32 bits
        // Returns the class in which the last of `wanted` lies, and how many of it are wanted.
        let class = |counts: &[usize], mut wanted: usize| {
            for (class, &count) in counts.iter().enumerate().rev() {
                if count >= wanted {
                    return (class as u32, wanted);
                }
                wanted -= count;
            }
            (0, wanted)
        };
        let mut counts = vec![0; CLASSES];
        self.over_differences(base, input, &mut |change| {
            change.iter().for_each(|change| counts[(change.abs().to_bits() >> 16) as usize] += 1);
        })?;
        let (upper, wanted) = class(&counts, count);
        counts.fill(0);
        self.over_differences(base, input, &mut |change| {
            let bits = change.iter().map(|change| change.abs().to_bits()).filter(|bits| bits >> 16 == upper);
            bits.for_each(|bits| counts[(bits & 0xffff) as usize] += 1);
        })?;
        let (lower, equal) = class(&counts, wanted);
        Ok(Choice::Largest { least: upper << 16 | lower, equal })
    }

    fn over_differences(
        &self,
        base: &FileTensor,
        input: &MergeInput,
        visit: &mut dyn FnMut(&mut [f32]),
    ) -> Result<(), Error> {
        let (mut of_base, mut change) = (Vec::new(), Vec::new());
        for piece in pieces(self.count) {
            read(base, piece.clone(), &mut of_base)?;
            difference(&input.tensor, &of_base, piece, &mut change)?;
            visit(&mut change);
        }
        Ok(())
    }
    fn let_go(&self) {
        debug_assert!(self.inputs.iter().all(|input| count_of(&input.tensor) == self.count));
        self.inputs.iter().map(|input| &input.tensor).chain(&self.base).for_each(|tensor| tensor.data.let_go());
    }
}

fn difference(
    tensor: &FileTensor,
    base: &[f32],
    piece: std::ops::Range<usize>,
    out: &mut Vec<f32>,
) -> Result<(), Error> {
    read(tensor, piece, out)?;
    out.iter_mut().zip(base).for_each(|(value, base)| *value -= base);
    Ok(())
}

fn sum_of_sizes(values: &[f32]) -> f64 {
    values.iter().map(|value| f64::from(value.abs())).sum()
}

/// Values of a difference that stay, piece by piece from its beginning.
struct Kept {
    choice: Choice,
    factor: f32,
}

#[derive(Clone)]
#[allow(clippy::large_enum_variant)] // One for each model.
enum Choice {
    All,
    Nothing,
    /// Sizes above the one with the bits `least`, and the first `equal` of that size.
    Largest {
        least: u32,
        equal: usize,
    },
    Random {
        random: TorchRandom,
        density: f32,
    },
}

impl Kept {
    fn apply(&mut self, change: &mut [f32]) {
        self.choice.apply(change);
        if self.factor != 1.0 {
            change.iter_mut().for_each(|change| *change *= self.factor);
        }
    }
}

impl Choice {
    fn apply(&mut self, change: &mut [f32]) {
        match self {
            Choice::All => {}
            Choice::Nothing => change.fill(0.0),
            Choice::Largest { least, equal } => {
                for change in change {
                    let bits = change.abs().to_bits();
                    if bits < *least || bits == *least && *equal == 0 {
                        *change = 0.0;
                    } else if bits == *least {
                        *equal -= 1;
                    }
                }
            }
            Choice::Random { random, density } => {
                change.iter_mut().for_each(|change| {
                    if !random.is_kept(*density) {
                        *change = 0.0;
                    }
                });
            }
        }
    }
}
