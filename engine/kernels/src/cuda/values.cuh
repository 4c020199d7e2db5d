// Numbers that are kept for later: keys, values and states, in the blocks of the files' formats.

DEVICE u32 bytes_of_values(u32 kind, u32 count) {
    if (kind == F32) return 4 * count;
    if (kind == Q8_0) return count / 32 * 34;
    if (kind == Q4_0) return count / 32 * 18;
    // Rows that are one block each.
    if (kind == TQ4) return 2 + count / 2;
    if (kind == TQ3) return 2 + count / 8 * 3;
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

// The level next to a value that was made normal, and its number: of eight for four bits, of four for three.
template <u32 LEVELS>
DEVICE float level_of(float value, u32& number) {
    const float ALL[12] = {0.128395f, 0.388048f, 0.656759f, 0.94234f,  1.256231f, 1.618046f,
                           2.069017f, 2.73259f,  0.245094f, 0.756005f, 1.343909f, 2.151946f};
    const float* levels = ALL + (LEVELS == 8 ? 0 : 8);
    float size = fabsf(value), level = levels[0];
    number = 0;
#pragma unroll
    for (u32 i = 1; i < LEVELS; i++)
        if (size > (levels[i - 1] + levels[i]) * 0.5f) level = levels[i], number = i;
    return level;
}

// Writes a rotated row as levels with one scale, as the CPU's encoder does.
template <u32 LEVELS>
DEVICE void write_levels(u8* to, const float* row, u32 dim) {
    u32 lane = threadIdx.x % 32, number;
    float squares = 0.0f, of_levels = 0.0f;
    for (u32 i = lane; i < dim; i += 32) squares += row[i] * row[i];
    squares = warp_sum(squares);
    bool plain = squares > 0.0f && squares <= 3.4e38f;
    float inverse = plain ? sqrtf(static_cast<float>(dim) / squares) : 0.0f;
    for (u32 i = lane; i < dim; i += 32) {
        float level = level_of<LEVELS>(row[i] * inverse, number);
        of_levels += level * level;
    }
    of_levels = warp_sum(of_levels);
    u16 scale = float_to_half(plain ? fminf(sqrtf(squares / of_levels), 65504.0f) : 0.0f);
    if (lane == 0) *reinterpret_cast<u16*>(to) = scale;
    for (u32 first = 0; first < dim; first += 32) {
        float value = row[first + lane];
        level_of<LEVELS>(value * inverse, number);
        int code = static_cast<int>(number), sign = value < 0.0f ? 1 : 0;
        if (LEVELS == 8) {
            code |= sign << 3;
            int above = shuffle_xor(code, 16);
            if (lane < 16) to[2 + first / 2 + lane] = static_cast<u8>(code | above << 4);
        } else {
            code <<= 2 * (lane % 4);
            code |= shuffle_xor(code, 1);
            code |= shuffle_xor(code, 2);
            if (lane % 4 == 0) to[2 + (first + lane) / 4] = static_cast<u8>(code);
            sign <<= lane % 8;
            sign |= shuffle_xor(sign, 1);
            sign |= shuffle_xor(sign, 2);
            sign |= shuffle_xor(sign, 4);
            if (lane % 8 == 0) to[2 + dim / 4 + (first + lane) / 8] = static_cast<u8>(sign);
        }
    }
}

// Writes a head's row, which lies in shared memory. A warp does it.
DEVICE void write_values(u8* to, u32 kind, const float* row, u32 dim) {
    u32 lane = threadIdx.x % 32;
    if (kind == TQ4) return write_levels<8>(to, row, dim);
    if (kind == TQ3) return write_levels<4>(to, row, dim);
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
