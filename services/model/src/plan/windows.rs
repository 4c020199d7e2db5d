//! Memory of windows, by the formats of keys and values: a help for choices before a start or a purchase.

use super::Plan;
use crate::device::Finder;
use crate::engine_options::limits;
use crate::error::Error;
use engine::network::Network;
use engine::state::{KvFormats, PAGE_TOKENS};
use engine::{DeviceFacts, DeviceMemoryPlan, GpuMemory, LongestConversation};
use settings::Settings;

#[derive(Clone, Debug, serde::Serialize)]
pub struct Cell {
    pub ctx_size: u32,
    pub kv_bytes: u64,
    pub conversation_bytes: u64,
    pub needed_bytes: u64,
    pub full_conversations: u64,
    #[serde(skip)]
    pub plan: Plan,
    #[serde(skip)]
    pub not_on_gpu: Option<String>,
}

/// Computes the table. `card`: the device, if it is not the host. A model that leaves no room for a conversation there
/// runs on the host.
pub fn windows(
    settings: &Settings,
    network: &Network,
    card: Option<&DeviceFacts>,
    kv: KvFormats,
    windows: &[u32],
) -> Result<Vec<Cell>, Error> {
    windows.iter().map(|ctx_size| cell(settings, network, card, kv, *ctx_size)).collect()
}

fn cell(
    settings: &Settings,
    network: &Network,
    card: Option<&DeviceFacts>,
    kv: KvFormats,
    ctx_size: u32,
) -> Result<Cell, Error> {
    let (state, precision, tokens) = (&network.state_shape, network.precision, ctx_size as usize);
    let finder = Finder::new(settings).with_room_for(LongestConversation {
        limits: limits(settings, precision, Some(GpuMemory::Separate)),
        kv,
        tokens,
    });
    let device = card.map(|card| DeviceMemoryPlan::new(card, &network.model, precision, finder.limits()));
    let (device, not_on_gpu) = match device.transpose() {
        Ok(device) => (device, None),
        // The service decides the same way.
        Err(error @ engine::Error::DeviceRoom { .. })
            if !matches!(settings.engine.device, settings::DeviceChoice::Cuda | settings::DeviceChoice::Vulkan) =>
        {
            (None, Some(error.to_string()))
        }
        Err(error) => return Err(error.into()),
    };
    let plan = Plan::without_windows(settings, network, device.as_ref(), ctx_size);
    let limits = plan.limits_there(settings, precision);
    let conversation_bytes = limits.bytes_of(state, kv, tokens)? as u64;
    let pages = tokens.div_ceil(PAGE_TOKENS);
    // A model on both devices needs room on both.
    let has_room = plan.fixed_bytes() <= plan.total_bytes;
    let full_conversations = if has_room { plan.left_bytes / conversation_bytes.max(1) } else { 0 };
    Ok(Cell {
        ctx_size,
        kv_bytes: (pages * state.page_bytes(&state.layout(kv)?)) as u64,
        conversation_bytes,
        needed_bytes: plan.fixed_there_bytes() + conversation_bytes,
        full_conversations,
        plan,
        not_on_gpu,
    })
}
