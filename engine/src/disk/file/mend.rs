//! Corrects the sizes and checksums in a fuzzed file, so that the bytes behind a checksum are read too.

use bytemuck::Zeroable;

use super::{PageHead, PageName, SequenceHead};
use crate::state::PAGE_TOKENS;

const MOST_BYTES: u64 = 1 << 18; // not a window: bytes of a file

pub(in crate::disk) fn mend(line: &mut Vec<u8>, page: &mut [u8]) {
    let Some(head) = head(line) else { return };
    if let Some(bytes) = head.file_bytes().filter(|bytes| *bytes <= MOST_BYTES) {
        line.resize(bytes as usize, 0);
    }
    let index = head.snapshots.saturating_mul(8).saturating_add(head.tokens / PAGE_TOKENS as u64 * 16);
    let mut parts = vec![size_of::<SequenceHead>() as u64, head.tokens.saturating_mul(4), index];
    let state = head.state_bytes().unwrap_or(u64::MAX).saturating_sub(4);
    parts.extend(std::iter::repeat_n(state, head.snapshots.min(1 << 10) as usize));
    parts.push(head.page_bytes);
    sum(line, &parts);
    sum(page, &[size_of::<PageHead>() as u64, (page.len().saturating_sub(size_of::<PageHead>() + 8)) as u64]);
}

pub(in crate::disk) fn first_name(line: &[u8]) -> Option<PageName> {
    let head = head(line)?;
    let at = (size_of::<SequenceHead>() as u64 + 8).checked_add(head.tokens.checked_mul(4)?)?;
    let at = usize::try_from(at.checked_add(head.snapshots.checked_mul(8)?)?).ok()?;
    line.get(at..at.checked_add(size_of::<PageName>())?)?.try_into().ok()
}

fn head(line: &[u8]) -> Option<SequenceHead> {
    let mut head = SequenceHead::zeroed();
    bytemuck::bytes_of_mut(&mut head).copy_from_slice(line.get(..size_of::<SequenceHead>())?);
    Some(head)
}

fn sum(file: &mut [u8], parts: &[u64]) {
    let mut at = 0_usize;
    for bytes in parts {
        let end = usize::try_from(*bytes).ok().and_then(|bytes| at.checked_add(bytes));
        let Some(end) = end.filter(|end| end.checked_add(4).is_some_and(|end| end <= file.len())) else { return };
        let crc = crc32fast::hash(&file[at..end]);
        file[end..end + 4].copy_from_slice(&crc.to_le_bytes());
        at = end + 4;
    }
}
