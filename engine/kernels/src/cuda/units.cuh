// Weights in units: so many groups of a row that their codes are 64 bytes. Warps copy them piece by piece.

const u32 UNIT_BYTES = 64;

template <int KIND>
DEVICE constexpr bool has_bytes() {
    return KIND == Q8_0 || KIND == WIDE;
}

// Groups of a unit.
template <int KIND>
DEVICE constexpr u32 unit_groups() {
    return has_bytes<KIND>() ? 2 : 4;
}

// Groups whose scales are read at once.
template <int KIND>
DEVICE constexpr u32 scale_groups() {
    return has_bytes<KIND>() || KIND == Q4_0 ? 1 : 4;
}

// Sixteen bytes of high bits of a row in a unit.
template <int KIND>
DEVICE constexpr u32 high_pieces() {
    return KIND == Q6_K ? 2 : KIND == Q5_K ? 1 : 0;
}

// Other kinds' minimum is a fixed number of steps, which is taken from the codes.
template <int KIND>
DEVICE constexpr bool keeps_min() {
    return KIND == Q4_K || KIND == Q5_K || KIND == WIDE;
}

// Scales of `scale_groups` groups from `group` on, as they lie.
template <int KIND>
DEVICE Raw read_unit_scales(const Matrix& w, u64 group) {
    Raw raw;
    if (KIND != Q6_K) {
        read_scales<KIND>(w, group, raw);
        return raw;
    }
    raw.high = at<uint2>(w.scales, group / 4);
    raw.scales.y = at<u16>(w.extra, group / 8);
    return raw;
}

// Scales and minima of group g of a unit.
template <int KIND>
DEVICE void scales_in_unit(Raw raw, u32 unit, u32 g, float (&scale)[2], float (&min)[2]) {
    if (KIND == Q4_K || KIND == Q5_K) {
        // As `scales_of`, for four groups at once: a compiler sees what is common to them.
        u32 first = raw.scales.y, second = raw.scales.z, third = raw.scales.w;
        u32 steps = unit % 2 == 0 ? first & 0x3f3f3f3fu : (third & 0x0f0f0f0fu) | (first >> 2 & 0x30303030u);
        u32 mins = unit % 2 == 0 ? second & 0x3f3f3f3fu : (third >> 4 & 0x0f0f0f0fu) | (second >> 2 & 0x30303030u);
        // A byte behind the bits of 2^23 counts ones.
        auto number = [&](u32 bytes) { return float_of_bits(bytes_by(bytes, 0x4b000000u, 0x7650u | g)) - 8388608.0f; };
        scale[0] = scale[1] = half_to_float(static_cast<u16>(raw.scales.x)) * number(steps);
        min[0] = min[1] = -half_to_float(static_cast<u16>(raw.scales.x >> 16)) * number(mins);
        return;
    }
    if (KIND == Q6_K) raw.scales.x = (g < 2 ? raw.high.x : raw.high.y) >> (16 * (g % 2));
    scales_of<KIND>(raw, unit * unit_groups<KIND>() + g, scale, min);
}
