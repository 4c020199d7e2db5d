// A row of activations in the forms that products read.

// Where a row goes; what is null is not wanted. `padded` is `cols` rounded up to 64, and what lies between is zeros.
struct Rows {
    float* values;     // [rows, padded]
    i8* codes;         // [rows, padded], 8-bit integers
    float* scales;     // [rows, padded / 16]
    float* sums;       // [rows, padded / 16], of the codes times their scale
    u16* high;         // [rows, padded], halves of the value over the row's scale
    u16* low;          // [rows, padded], what the first halves leave
    float* row_scales; // [rows], powers of two
    u32 cols, padded;
};

// Two to the power that brings `largest` to between 512 and 1024: halves have room on both sides of that.
DEVICE float row_scale_of(float largest) {
    union {
        u32 bits;
        float value;
    } number;
    number.value = largest;
    u32 exponent = number.bits >> 23;
    number.bits = (exponent > 10 && exponent < 255 ? exponent - 9 : 1) << 23;
    return largest == 0.0f ? 1.0f : number.value;
}

DEVICE float largest_of(const float4& v) { return fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w))); }
DEVICE float squares_of(const float4& v) { return v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w; }

// Four numbers of a row from column i on; zeros from `end` on. ALIGNED: rows are of whole fours, and lie so.
template <bool ALIGNED>
DEVICE float4 four_of(const float* row, u32 i, u32 end) {
    float4 four = {0.0f, 0.0f, 0.0f, 0.0f};
    if (ALIGNED) {
        if (i < end) four = *reinterpret_cast<const float4*>(row + i);
    } else {
        if (i < end) four.x = row[i];
        if (i + 1 < end) four.y = row[i + 1];
        if (i + 2 < end) four.z = row[i + 2];
        if (i + 3 < end) four.w = row[i + 3];
    }
    return four;
}

// Writes four numbers that are `there` as values and as integers, if those are wanted. `at`: their place among all rows. A
// scale's sixteen are four lanes', so whole warps come.
DEVICE void write_four(const float4& v, u64 at, bool there, const Rows& to) {
    if (to.values && there) *reinterpret_cast<float4*>(to.values + at) = v;
    if (!to.codes) return;
    float largest = there ? largest_of(v) : 0.0f;
    for (u32 mask = 2; mask > 0; mask >>= 1) largest = fmaxf(largest, shuffle_xor(largest, mask));
    float factor = largest > 0.0f ? 127.0f / largest : 0.0f;
    const float values[4] = {v.x, v.y, v.z, v.w};
    u32 codes = 0;
    int sum = 0;
#pragma unroll
    for (u32 j = 0; j < 4; j++) {
        int code = nearest(values[j] * factor);
        codes |= (static_cast<u32>(code) & 0xffu) << (8 * j);
        sum += code;
    }
    for (u32 mask = 2; mask > 0; mask >>= 1) sum += shuffle_xor(sum, mask);
    if (!there) return;
    float scale = largest / 127.0f;
    reinterpret_cast<u32*>(to.codes)[at / 4] = codes;
    if (at % 16 > 0) return;
    to.scales[at / 16] = scale;
    to.sums[at / 16] = static_cast<float>(sum) * scale;
}

// Writes the halves of a whole row that lies in shared memory up to `padded`. `largest`: of what the thread has put there.
// `scratch`: 32 floats.
DEVICE void write_halves(const float* row, float largest, u32 index, const Rows& to, float* scratch) {
    // The barriers in it show each thread what the others have put there.
    float scale = row_scale_of(block_max(largest, scratch)), inverse = 1.0f / scale; // exact: powers of two
    if (threadIdx.x == 0) to.row_scales[index] = scale;
    u64 start = static_cast<u64>(index) * to.padded;
    for (u32 i = 4 * threadIdx.x; i < to.padded; i += 4 * blockDim.x) {
        float4 v = *reinterpret_cast<const float4*>(row + i);
        v = {v.x * inverse, v.y * inverse, v.z * inverse, v.w * inverse};
        u32 first = halves(v.x, v.y), second = halves(v.z, v.w);
        *reinterpret_cast<uint2*>(to.high + start + i) = {first, second};
        if (!to.low) continue;
        uint2 low = {halves(v.x - half_to_float(static_cast<u16>(first)), v.y - half_to_float(static_cast<u16>(first >> 16))),
                     halves(v.z - half_to_float(static_cast<u16>(second)), v.w - half_to_float(static_cast<u16>(second >> 16)))};
        *reinterpret_cast<uint2*>(to.low + start + i) = low;
    }
}

// Writes a row that lies in shared memory and is whole there, in all forms that are wanted.
DEVICE void write_row(float* row, u32 index, const Rows& to, float* scratch) {
    u64 start = static_cast<u64>(index) * to.padded;
    u32 lane = threadIdx.x % 32;
    float largest = 0.0f;
    for (u32 i = 4 * threadIdx.x; i - 4 * lane < to.padded; i += 4 * blockDim.x) {
        float4 v = four_of<false>(row, i, to.cols);
        largest = fmaxf(largest, largest_of(v));
        write_four(v, start + i, i < to.padded, to);
        if (to.high && i < to.padded) *reinterpret_cast<float4*>(row + i) = v;
    }
    if (to.high) write_halves(row, largest, index, to, scratch);
}
