// Numbers that are kept for later: keys, values and states, in the blocks of the files' formats.

DEVICE u32 bytes_of_values(u32 kind, u32 count) {
    if (kind == F32) return 4 * count;
    if (kind == Q8_0) return count / 32 * 34;
    if (kind == Q4_0) return count / 32 * 18;
    return 2 * count;
}

// The scale that makes the squared error of 32 values small, as the CPU's encoder finds it: a value a lane.
DEVICE float q4_scale(float value) {
    float high = warp_max(value), low = -warp_max(-value);
    float extreme = high >= -low ? high : low;
    if (extreme == 0.0f || !(fabsf(extreme) <= 3.4e38f)) return 0.0f;
    float best_gain = -1.0f, best = extreme / -8.0f;
    for (int step = -6; step < 7; step++) {
        float factor = (-8.0f + 0.15f * static_cast<float>(step)) / extreme;
        float q = static_cast<float>(max(min(nearest(value * factor), 7), -8));
        float xq = warp_sum(value * q), qq = warp_sum(q * q);
        float gain = xq * xq / qq;
        if (qq > 0.0f && gain > best_gain) {
            best_gain = gain;
            best = xq / qq;
        }
    }
    return best;
}

// Writes a head's row, which lies in shared memory. A warp does it.
DEVICE void write_values(u8* to, u32 kind, const float* row, u32 dim) {
    u32 lane = threadIdx.x % 32;
    for (u32 first = 0; first < dim; first += 32) {
        float value = row[first + lane];
        if (kind == F32) reinterpret_cast<float*>(to)[first + lane] = value;
        if (kind == F16) reinterpret_cast<u16*>(to)[first + lane] = float_to_half(value);
        if (kind == BF16) reinterpret_cast<u16*>(to)[first + lane] = float_to_bf16(value);
        if (kind == Q8_0) {
            u16 scale = float_to_half(fminf(warp_max(fabsf(value)) / 127.0f, 65504.0f));
            float kept = half_to_float(scale), inverse = kept == 0.0f ? 0.0f : 1.0f / kept;
            u8* block = to + first / 32 * 34;
            if (lane == 0) *reinterpret_cast<u16*>(block) = scale;
            block[2 + lane] = static_cast<u8>(max(min(nearest(value * inverse), 127), -127));
        }
        if (kind == Q4_0) {
            u16 scale = float_to_half(fminf(fmaxf(q4_scale(value), -65504.0f), 65504.0f));
            float kept = half_to_float(scale), inverse = kept == 0.0f ? 0.0f : 1.0f / kept;
            int code = max(min(nearest(value * inverse), 7), -8) + 8;
            int above = shuffle_xor(code, 16);
            u8* block = to + first / 32 * 18;
            if (lane == 0) *reinterpret_cast<u16*>(block) = scale;
            if (lane < 16) block[2 + lane] = static_cast<u8>(code | above << 4);
        }
    }
}
