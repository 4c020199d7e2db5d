// Weight matrices as they lie on a device. The bits are the file's, in an order that threads like: a group is 32
// consecutive values of a row, its codes lie together, and what is apart in its use lies apart.
//
// Four low bits of a code: 16 bytes a group, byte j has value j low and value j + 16 high. Fifth bits: 4 bytes a group,
// bit 8·(v % 4) + v / 4 belongs to value v. Fifth and sixth: two of these numbers a group, one for each 16 values, with
// pairs of bits: bits 8·(v % 4) + 2·(v / 4). Whole bytes: 32 bytes a group.

// The last two are of keys and values alone (`values.cuh`).
enum Kind { F32, F16, BF16, WIDE, Q8_0, Q4_0, IQ4_XS, Q4_K, Q5_K, Q6_K, TQ4, TQ3 };

struct Matrix {
    const u8* codes;
    const u8* high;
    const u8* scales;
    const u8* extra;
    u32 rows, cols;
    u32 stride; // values from row to row: for numbers a multiple of 8, filled up with zeros
    u32 kind;
};

// A group as it was read.
struct Raw {
    uint4 codes[2];
    uint2 high;
    uint4 scales;
};

// Value v of a group is scale[v / 16] · q + min[v / 16], with the q of values 4i..4i + 4 in q[i].
struct Group {
    int q[8];
    float scale[2], min[2];
};

// Bytes of a row's codes, which are most of it.
template <int KIND>
DEVICE u64 code_bytes(const Matrix& w) {
    if (KIND == F32) return 4 * static_cast<u64>(w.stride);
    if (KIND == F16 || KIND == BF16) return 2 * static_cast<u64>(w.stride);
    return KIND == Q8_0 || KIND == WIDE ? w.cols : w.cols / 2;
}

// The nine codes' meaning with a minimum: what is taken away from each code is a minimum too.
template <int KIND>
DEVICE constexpr bool has_min() {
    return KIND != Q8_0 && KIND != IQ4_XS;
}

// Both halves of a group have the same scale and minimum.
template <int KIND>
DEVICE constexpr bool has_one_scale() {
    return KIND != WIDE && KIND != Q6_K;
}

template <class T>
DEVICE T at(const u8* plane, u64 index) {
    return read_weights(reinterpret_cast<const T*>(plane) + index);
}

// What a group's scales are made of. `group` counts through all groups of the matrix.
template <int KIND>
DEVICE void read_scales(const Matrix& w, u64 group, Raw& raw) {
    if (KIND == Q8_0 || KIND == Q4_0) raw.scales.x = at<u16>(w.scales, group);
    if (KIND == WIDE) raw.scales = at<uint4>(w.scales, group);
    if (KIND == IQ4_XS) {
        uint2 both = at<uint2>(w.scales, group / 8);
        raw.scales.x = both.x;
        raw.scales.y = both.y;
    }
    if (KIND == Q4_K || KIND == Q5_K) raw.scales = at<uint4>(w.scales, group / 8);
    if (KIND == Q6_K) {
        raw.scales.x = at<u16>(w.scales, group);
        raw.scales.y = at<u16>(w.extra, group / 8);
    }
}

template <int KIND>
DEVICE Raw read_group(const Matrix& w, u64 group) {
    Raw raw;
    if (KIND == Q8_0 || KIND == WIDE) {
        raw.codes[0] = at<uint4>(w.codes, 2 * group);
        raw.codes[1] = at<uint4>(w.codes, 2 * group + 1);
    } else {
        raw.codes[0] = at<uint4>(w.codes, group);
    }
    if (KIND == Q5_K) raw.high.x = at<u32>(w.high, group);
    if (KIND == Q6_K) raw.high = at<uint2>(w.high, group);
    read_scales<KIND>(w, group, raw);
    return raw;
}

// The same matrix from a group on. Where groups share what they need by eight, those that are read are a multiple of eight
// from there.
template <int KIND>
DEVICE Matrix from_group(const Matrix& w, u64 group) {
    Matrix out = w;
    const bool IS_BYTES = KIND == Q8_0 || KIND == WIDE;
    out.codes += group * (IS_BYTES ? 32 : 16);
    if (KIND == Q5_K) out.high += group * 4;
    if (KIND == Q6_K) out.high += group * 8;
    if (KIND == Q6_K) out.extra += group / 8 * 2;
    if (KIND == IQ4_XS) out.scales += group / 8 * 8;
    else if (KIND == Q4_K || KIND == Q5_K) out.scales += group / 8 * 16;
    else out.scales += group * (KIND == WIDE ? 16 : 2);
    return out;
}

// The steps of IQ4 for four codes, one in each byte.
DEVICE int iq4_of(u32 codes) {
    u32 low = codes & 0x07070707u;
    low |= low >> 4;
    u32 selector = (low & 0xffu) | (low >> 8 & 0xff00u);
    u32 below = bytes_by(0xbfad9881u, 0xf6eaddcfu, selector), above = bytes_by(0x26190d01u, 0x71594535u, selector);
    u32 mask = (codes >> 3 & 0x01010101u) * 0xffu;
    return static_cast<int>((below & ~mask) | (above & mask));
}

DEVICE float float_of_bits(u32 bits) {
    union {
        u32 bits;
        float value;
    } number;
    number.bits = bits;
    return number.value;
}

// `group` is the group's number in its row.
template <int KIND>
DEVICE void scales_of(const Raw& raw, u32 group, float (&scale)[2], float (&min)[2]) {
    min[0] = min[1] = 0.0f;
    if (KIND == Q8_0 || KIND == Q4_0) {
        scale[0] = scale[1] = half_to_float(static_cast<u16>(raw.scales.x));
        if (KIND == Q4_0) min[0] = min[1] = -8.0f * scale[0];
    } else if (KIND == WIDE) {
        scale[0] = float_of_bits(raw.scales.x);
        min[0] = float_of_bits(raw.scales.y);
        scale[1] = float_of_bits(raw.scales.z);
        min[1] = float_of_bits(raw.scales.w);
    } else if (KIND == IQ4_XS) {
        u32 j = group % 8;
        int steps = static_cast<int>((raw.scales.y >> (4 * j) & 15u) | (raw.scales.x >> (16 + 2 * j) & 3u) << 4);
        scale[0] = scale[1] = half_to_float(static_cast<u16>(raw.scales.x)) * static_cast<float>(steps - 32);
    } else if (KIND == Q6_K) {
        float d = half_to_float(static_cast<u16>(raw.scales.y));
#pragma unroll
        for (int half = 0; half < 2; half++) {
            scale[half] = d * static_cast<float>(static_cast<i8>(raw.scales.x >> (8 * half)));
            min[half] = -32.0f * scale[half];
        }
    } else {
        // Scale and minimum in a byte each: of four groups whole, of the others in two parts.
        u32 j = group % 8, at = j % 4;
        u32 both = bytes_by(raw.scales.y, raw.scales.z, at | (at + 4) << 4), low = raw.scales.w >> (8 * at);
        both = j < 4 ? both & 0x3f3fu : (both >> 2 & 0x3030u) | (low & 15u) | (low << 4 & 0x0f00u);
        scale[0] = scale[1] = half_to_float(static_cast<u16>(raw.scales.x)) * static_cast<float>(both & 255u);
        min[0] = min[1] = -half_to_float(static_cast<u16>(raw.scales.x >> 16)) * static_cast<float>(both >> 8 & 255u);
    }
}

template <int KIND>
DEVICE Group group_of(const Raw& raw, u32 group) {
    Group out;
    u32 codes[4] = {raw.codes[0].x, raw.codes[0].y, raw.codes[0].z, raw.codes[0].w};
    if (KIND == Q8_0 || KIND == WIDE) {
        u32 more[4] = {raw.codes[1].x, raw.codes[1].y, raw.codes[1].z, raw.codes[1].w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            out.q[i] = static_cast<int>(codes[i]);
            out.q[i + 4] = static_cast<int>(more[i]);
        }
    } else {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            out.q[i] = static_cast<int>(codes[i] & 0x0f0f0f0fu);
            out.q[i + 4] = static_cast<int>(codes[i] >> 4 & 0x0f0f0f0fu);
        }
    }
    if (KIND == IQ4_XS)
#pragma unroll
        for (int i = 0; i < 8; i++) out.q[i] = iq4_of(static_cast<u32>(out.q[i]));
    if (KIND == Q5_K)
#pragma unroll
        for (int i = 0; i < 8; i++) out.q[i] |= static_cast<int>((raw.high.x >> i & 0x01010101u) << 4);
    if (KIND == Q6_K)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            out.q[i] |= static_cast<int>((raw.high.x >> (2 * i) & 0x03030303u) << 4);
            out.q[i + 4] |= static_cast<int>((raw.high.y >> (2 * i) & 0x03030303u) << 4);
        }
    scales_of<KIND>(raw, group, out.scale, out.min);
    return out;
}

// The 32 values of a group.
template <int KIND>
DEVICE void values_of(const Group& group, float (&values)[32]) {
#pragma unroll
    for (u32 v = 0; v < 32; v++) {
        float value = group.scale[v / 16] * code_of(group.q[v / 4], v % 4);
        values[v] = has_min<KIND>() ? value + group.min[v / 16] : value;
    }
}

// Eight numbers of a matrix that is not quantised, as they lie; `eight` counts through all of it.
template <int KIND>
DEVICE Raw read_eight(const Matrix& w, u64 eight) {
    Raw raw;
    raw.codes[0] = at<uint4>(w.codes, KIND == F32 ? 2 * eight : eight);
    if (KIND == F32) raw.codes[1] = at<uint4>(w.codes, 2 * eight + 1);
    return raw;
}

template <int KIND>
DEVICE void eight_of(const Raw& raw, float (&values)[8]) {
    u32 words[8] = {raw.codes[0].x, raw.codes[0].y, raw.codes[0].z, raw.codes[0].w,
                    raw.codes[1].x, raw.codes[1].y, raw.codes[1].z, raw.codes[1].w};
#pragma unroll
    for (int i = 0; i < 8; i++) {
        u16 bits = static_cast<u16>(words[i / 2] >> (16 * (i % 2)));
        values[i] = KIND == F32 ? float_of_bits(words[i]) : KIND == F16 ? half_to_float(bits) : bf16_to_float(bits);
    }
}

template <int KIND>
DEVICE constexpr bool is_quantised() {
    return KIND > BF16;
}

// The values of a piece of a row: of group `group`, or eight numbers.
template <int KIND>
DEVICE void values_of_piece(const Raw& raw, u32 group, float (&values)[32]) {
    values_of<KIND>(group_of<KIND>(raw, group), values);
}

template <int KIND>
DEVICE void values_of_piece(const Raw& raw, u32, float (&values)[8]) {
    eight_of<KIND>(raw, values);
}

// A row's 32 values from `first` on; zeros behind its end.
template <int KIND>
DEVICE void read_values(const Matrix& w, u64 row, u32 first, float (&values)[32]) {
    if (is_quantised<KIND>()) {
        if (first >= w.cols) {
#pragma unroll
            for (int i = 0; i < 32; i++) values[i] = 0.0f;
            return;
        }
        u64 group = row * (w.cols / 32) + first / 32;
        values_of<KIND>(group_of<KIND>(read_group<KIND>(w, group), first / 32), values);
        return;
    }
#pragma unroll
    for (u32 part = 0; part < 4; part++) {
        float eight[8] = {};
        if (first + 8 * part < w.stride) eight_of<KIND>(read_eight<KIND>(w, row * (w.stride / 8) + first / 8 + part), eight);
#pragma unroll
        for (u32 i = 0; i < 8; i++) values[8 * part + i] = eight[i];
    }
}

// Calls `name(kind)` for each kind.
#define FOR_QUANTISED(name) name(WIDE) name(Q8_0) name(Q4_0) name(IQ4_XS) name(Q4_K) name(Q5_K) name(Q6_K)
#define FOR_NUMBERS(name) name(F32) name(F16) name(BF16)
