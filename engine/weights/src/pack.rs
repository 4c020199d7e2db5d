//! Brings a model's matrices into the order that this processor's products read fastest.

use kernels::cpu::{Cpu, CpuLevel, DisjointParts};
use kernels::format::Format;
use kernels::product::{MatrixOrder, PANEL, PANEL_ORDER, has_panels, pack_panel, panel_bytes};
use sha2::{Digest, Sha256};

use crate::bytes::{ModelBytes, Room};
use crate::error::Error;
use crate::matrix::{BlockMatrix, Matrix};
use crate::model::{Ffn, Mixer, ModelWeights, SwigluWeights};
use crate::packed::{self, Keeping, PackedFolder};

/// Packs what there is a faster order for; the rest stays as it is. Memory of a mapped file is given back along the way,
/// so that a model is hardly ever there twice. `progress` is told bytes that are done, and of how many.
///
/// `part`: what the host computes of the model.
///
/// With a folder, what an earlier start has packed is taken from there, and what was packed is put there: new memory can
/// cost more than the packing (a virtual machine has to ask for every page of it), and a file's is there already.
pub fn pack(
    model: &mut ModelWeights,
    part: PackedPart,
    cpu: &Cpu,
    folder: Option<&PackedFolder>,
    mmap: bool,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Option<Keeping>, Error> {
    if !has_panels(cpu.level) {
        return Ok(None);
    }
    let (fingerprint, files) = (model.fingerprint, model.mapped_files());
    let mut jobs: Vec<Job> = Vec::new();
    for (matrix, used_for) in matrices(model, part) {
        let Some(matrix) = matrix.blocks_mut() else { continue };
        if used_for == MatrixUse::ExactProducts {
            to_f32(matrix)?;
        } else if let Some(size) =
            panel_bytes(matrix.format, matrix.rows, matrix.cols).filter(|_| matrix.order == MatrixOrder::Rows)
        {
            jobs.push((matrix, size));
        }
    }
    let total = jobs.iter().map(|(_, size)| size.next_multiple_of(ALIGNMENT)).sum();
    let kept = folder.filter(|folder| packed::is_worth_keeping(folder, total));
    let kept = kept.map(|folder| (folder, key(&fingerprint, &jobs)));
    // To look at a few bytes of each tensor, as opening a file does, may have brought much more of it into memory.
    jobs.iter().for_each(|(matrix, _)| matrix.data.let_go());
    progress(0, total);
    if let Some((folder, key)) = &kept
        && let Some(all) = folder.find(key, total, mmap, cpu, progress)
    {
        place(jobs, &all);
        return Ok(None);
    }
    let all = pack_all(&jobs, total, cpu, progress)?;
    // What was packed of a file that is gone is not kept.
    if let Some(file) = files.iter().find_map(|file| file.mapped_file().filter(|_| file.is_cut())) {
        return Err(Error::cut(file));
    }
    place(jobs, &all);
    Ok(kept.and_then(|(folder, key)| packed::keep(folder, &key, all)))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PackedPart {
    All,
    /// Feed-forward parts from this layer on.
    FeedForward {
        from: usize,
    },
}

/// Purpose for which the engine reads a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatrixUse {
    /// Row by row, as an embedding that is no head.
    Rows,
    Products,
    /// Products with f32 activations only, of few rows: unpacked once is better than at every token.
    ExactProducts,
}

pub fn packed_bytes(matrix: &Matrix, used_for: MatrixUse, level: CpuLevel) -> usize {
    let Some(blocks) = matrix.blocks() else { return matrix.bytes() };
    let is_packed = has_panels(level) && blocks.order == MatrixOrder::Rows;
    let packed = match used_for {
        MatrixUse::Products if is_packed => {
            let panels = panel_bytes(blocks.format, blocks.rows, blocks.cols);
            panels.map_or(blocks.data.len(), |bytes| bytes.next_multiple_of(ALIGNMENT))
        }
        MatrixUse::ExactProducts if is_packed => blocks.rows * blocks.cols * size_of::<f32>(),
        _ => blocks.data.len(),
    };
    matrix.bytes() - blocks.data.len() + packed
}

/// Bytes that are packed before the file's memory for them goes back.
const AT_ONCE: usize = 8 << 20;
const ALIGNMENT: usize = 64;

/// A matrix that has a faster order, and the bytes that it takes then.
type Job<'a> = (&'a mut BlockMatrix, usize);

fn pack_all(
    jobs: &[Job],
    total: usize,
    cpu: &Cpu,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<ModelBytes, Error> {
    let mut room = Room::new(total)?;
    let mut done = 0;
    for (matrix, size) in jobs {
        let panels = matrix.rows.div_ceil(PANEL);
        let of_panel = size / panels.max(1);
        let at_once = AT_ONCE.div_ceil(of_panel.max(1));
        let source = matrix.weights();
        for first in (0..panels).step_by(at_once) {
            let count = at_once.min(panels - first);
            let out = DisjointParts::new(&mut room.bytes()[done + first * of_panel..][..count * of_panel]);
            cpu.pool.run(count, |panel| {
                // SAFETY: each task takes the part of its own panel.
                let out = unsafe { out.part(panel * of_panel, of_panel) };
                pack_panel(cpu.level, &source, first + panel, out);
            });
            let rows = PANEL * first..matrix.rows.min(PANEL * (first + count));
            let read = matrix.data.slice(rows.start * matrix.row_bytes()..rows.end * matrix.row_bytes());
            read.iter().for_each(ModelBytes::let_go);
            progress(done + (first + count) * of_panel, total);
        }
        done += size.next_multiple_of(ALIGNMENT);
    }
    progress(total, total);
    room.into_bytes()
}

/// Hashes all that the packed bytes depend on. The fingerprint covers samples of the weights, so the time of writing is a part
/// of it: a file that was changed between them is another one.
fn key(fingerprint: &[u8; 32], jobs: &[Job]) -> packed::Key {
    let mut hash = Sha256::new();
    hash.update(PANEL_ORDER.to_le_bytes());
    hash.update(fingerprint);
    for (matrix, size) in jobs {
        hash.update(matrix.format.name());
        hash.update(matrix.data.modified_ns().to_le_bytes());
        for number in [matrix.rows, matrix.cols, *size] {
            hash.update((number as u64).to_le_bytes());
        }
    }
    hash.finalize().into()
}

fn place(jobs: Vec<Job>, all: &ModelBytes) {
    let mut at = 0;
    for (matrix, size) in jobs {
        matrix.order = MatrixOrder::Panels;
        matrix.data = all.slice(at..at + size).expect("the room was made for all of them");
        at += size.next_multiple_of(ALIGNMENT);
    }
}

fn to_f32(matrix: &mut BlockMatrix) -> Result<(), Error> {
    if matrix.format == Format::F32 {
        return Ok(());
    }
    let mut room = Room::new(matrix.rows * matrix.cols * size_of::<f32>())?;
    let mut values = vec![0.0f32; matrix.cols];
    for (row, out) in room.bytes().chunks_exact_mut(matrix.cols * size_of::<f32>()).enumerate() {
        matrix.weights().row(row, &mut values);
        out.copy_from_slice(bytemuck::cast_slice(&values));
    }
    matrix.data.let_go();
    (matrix.format, matrix.data) = (Format::F32, room.into_bytes()?);
    Ok(())
}

fn matrices(model: &mut ModelWeights, part: PackedPart) -> Vec<(&mut Matrix, MatrixUse)> {
    use MatrixUse::{ExactProducts, Products};
    let (mut all, first) = match part {
        PackedPart::All => (vec![(model.output.as_mut().unwrap_or(&mut model.embed), Products)], 0),
        PackedPart::FeedForward { from } => (Vec::new(), from),
    };
    for layer in model.layers.iter_mut().skip(first) {
        match &mut layer.mixer {
            _ if part != PackedPart::All => {}
            Mixer::Attention(w) => all.extend([&mut w.q, &mut w.k, &mut w.v, &mut w.o].map(|w| (w, Products))),
            Mixer::Delta(w) => {
                all.extend([&mut w.qkv, &mut w.z, &mut w.out].map(|w| (w, Products)));
                all.extend([&mut w.a, &mut w.b].map(|w| (w, ExactProducts)));
            }
        }
        all.extend(ffn_matrices(&mut layer.ffn).map(|w| (w, Products)));
    }
    if let Some(block) = model.prediction.as_mut().filter(|_| part == PackedPart::All) {
        let w = &mut block.attention;
        all.extend([&mut block.join, &mut w.q, &mut w.k, &mut w.v, &mut w.o].map(|w| (w, Products)));
        all.extend(ffn_matrices(&mut block.ffn).map(|w| (w, Products)));
    }
    all
}

fn ffn_matrices(ffn: &mut Ffn) -> impl Iterator<Item = &mut Matrix> {
    let (router, experts) = match ffn {
        Ffn::Dense(weights) => (None, vec![weights]),
        Ffn::Moe(moe) => {
            let shared = moe.shared.iter_mut().map(|shared| &mut shared.expert);
            (Some(&mut moe.router), moe.experts.iter_mut().chain(shared).collect())
        }
    };
    router.into_iter().chain(experts.into_iter().flat_map(SwigluWeights::matrices_mut))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(matrix: &Matrix) -> &BlockMatrix {
        matrix.blocks().unwrap()
    }

    #[test]
    fn a_packed_model_has_the_same_values() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.gguf");
        std::fs::write(&path, include_bytes!("../../../tests/data/reference/gguf/dense-wide.q4_k_m.gguf")).unwrap();
        let open = || crate::open(&path, true).unwrap();
        let (mut plain, mut packed) = (open(), open());
        let mut told = Vec::new();
        let cpu = Cpu::new(2);
        pack(&mut packed, PackedPart::All, &cpu, None, true, &mut |done, all| told.push((done, all))).unwrap();
        if !has_panels(cpu.level) {
            return println!("skipped: this processor has no panels");
        }
        assert!(told.is_sorted() && told.last().is_some_and(|(done, all)| done == all && *done > 0));
        let mut panels = 0;
        for ((plain, used_for), (packed, _)) in
            matrices(&mut plain, PackedPart::All).into_iter().zip(matrices(&mut packed, PackedPart::All))
        {
            panels += usize::from(blocks(packed).order == MatrixOrder::Panels);
            assert!(used_for == MatrixUse::Products || packed.format() == Some(Format::F32));
            let planned = packed_bytes(plain, used_for, cpu.level);
            assert!(planned.abs_diff(packed.data().len()) < ALIGNMENT, "{planned} for {}", packed.data().len());
            assert!(packed_bytes(packed, used_for, cpu.level) == packed.data().len());
            let (mut expected, mut ours) = (vec![0.0; plain.cols()], vec![f32::NAN; plain.cols()]);
            for row in 0..plain.rows() {
                plain.row(row, &mut expected);
                packed.row(row, &mut ours);
                assert_eq!(ours, expected);
            }
        }
        assert!(panels > 10, "only {panels} matrices were packed");
        // Once more with a folder: the first finds nothing there, the second all.
        let kept = PackedFolder { path: folder.path().join("packed"), max_bytes: 1 << 30, min_bytes: 1 };
        for mmap in [true, false, true] {
            let mut found = open();
            if let Some(keeping) = pack(&mut found, PackedPart::All, &cpu, Some(&kept), mmap, &mut |_, _| ()).unwrap() {
                keeping.wait().unwrap();
            }
            for ((packed, _), (found, _)) in
                matrices(&mut packed, PackedPart::All).into_iter().zip(matrices(&mut found, PackedPart::All))
            {
                let (found, packed) = (blocks(found), blocks(packed));
                assert_eq!((found.order, &found.data[..]), (packed.order, &packed.data[..]));
            }
        }
        assert!(pack(&mut open(), PackedPart::All, &cpu, Some(&kept), true, &mut |_, _| ()).unwrap().is_none());
        // A file that was written since may be another one.
        let past = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1);
        std::fs::File::open(&path).unwrap().set_modified(past).unwrap();
        pack(&mut open(), PackedPart::All, &cpu, Some(&kept), true, &mut |_, _| ())
            .unwrap()
            .expect("packed anew")
            .wait()
            .unwrap();
        let too_small = PackedFolder { path: folder.path().join("none"), min_bytes: 1 << 29, ..kept };
        assert!(pack(&mut open(), PackedPart::All, &cpu, Some(&too_small), true, &mut |_, _| ()).unwrap().is_none());
        assert!(!too_small.path.exists());
    }
}
