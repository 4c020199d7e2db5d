// Weights as halves with few instructions: a code becomes a float where its byte is put into one, and the conversion of
// integers, which is slow, is not needed.

// Whole bytes are signed; all others are below 64.
template <int KIND>
DEVICE constexpr bool has_bytes() {
    return KIND == WIDE || KIND == Q8_0 || KIND == IQ4_XS;
}

// The 32 values of a group, rounded to halves once.
template <int KIND>
DEVICE void halves_of(const Raw (&raw)[1], u32 piece, u32 (&out)[16]) {
    Group group = group_of<KIND>(raw[0], piece);
    // The floats 128 and 32768: with a byte behind them that counts ones they are larger by so much.
    const u32 BEFORE_SIX = 0x43, BEFORE_EIGHT = 0x47;
    float values[32];
#pragma unroll
    for (u32 v = 0; v < 32; v++) {
        u32 four = static_cast<u32>(group.q[v / 4]), which = v % 4;
        float scale = group.scale[v / 16], min = group.min[v / 16];
        if (has_bytes<KIND>()) {
            float code = float_of_bits(bytes_by(four ^ 0x80808080u, BEFORE_EIGHT, 0x4505u | which << 4)) - 32896.0f;
            values[v] = has_min<KIND>() ? scale * code + min : scale * code;
        } else {
            // What 128 is too much goes into the minimum, which is off by less than 2^-16 of the scale: halves do not see it.
            values[v] = scale * float_of_bits(bytes_by(four, BEFORE_SIX, 0x4055u | which << 8)) + (min - 128.0f * scale);
        }
    }
#pragma unroll
    for (u32 i = 0; i < 16; i++) out[i] = halves(values[2 * i], values[2 * i + 1]);
}

// The same of four pieces of numbers.
template <int KIND>
DEVICE void halves_of(const Raw (&raw)[4], u32, u32 (&out)[16]) {
#pragma unroll
    for (u32 part = 0; part < 4; part++) {
        u32 words[4] = {raw[part].codes[0].x, raw[part].codes[0].y, raw[part].codes[0].z, raw[part].codes[0].w};
        float values[8];
        eight_of<KIND>(raw[part], values);
#pragma unroll
        for (u32 i = 0; i < 4; i++) out[4 * part + i] = KIND == F16 ? words[i] : halves(values[2 * i], values[2 * i + 1]);
    }
}
