// A row of activations in the forms that products read.

// Where a row goes; what is null is not wanted. `padded` is `cols` rounded up to 64, and what lies between is zeros. Halves
// beside integers, without second ones, are halves of these.
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

// Writes columns first..last of a row that lies in shared memory and is whole there, in all forms that are wanted. Halves
// share a scale over the row: they want all columns at once. `scratch`: 32 floats.
DEVICE void write_row(const float* row, u32 index, u32 first, u32 last, const Rows& to, float* scratch) {
    u64 start = static_cast<u64>(index) * to.padded;
    u32 end = last == to.cols ? to.padded : last;
    for (u32 i = first + threadIdx.x; i < end && to.values; i += blockDim.x)
        to.values[start + i] = i < to.cols ? row[i] : 0.0f;
    // Four values a thread: a scale's sixteen are four threads'. Whole warps go on together, for they shuffle.
    for (u32 of_warp = first + threadIdx.x / 32 * 128; of_warp < end && to.codes; of_warp += blockDim.x * 4) {
        u32 i = of_warp + threadIdx.x % 32 * 4;
        float values[4];
        float largest = 0.0f;
#pragma unroll
        for (u32 j = 0; j < 4; j++) {
            values[j] = i + j < last ? row[i + j] : 0.0f;
            largest = fmaxf(largest, fabsf(values[j]));
        }
        for (u32 mask = 2; mask > 0; mask >>= 1) largest = fmaxf(largest, shuffle_xor(largest, mask));
        float factor = largest > 0.0f ? 127.0f / largest : 0.0f;
        u32 codes = 0;
        int sum = 0;
#pragma unroll
        for (u32 j = 0; j < 4; j++) {
            int code = nearest(values[j] * factor);
            codes |= (static_cast<u32>(code) & 0xffu) << (8 * j);
            sum += code;
        }
        for (u32 mask = 2; mask > 0; mask >>= 1) sum += shuffle_xor(sum, mask);
        if (i >= end) continue;
        reinterpret_cast<u32*>(to.codes)[(start + i) / 4] = codes;
        if (i % 16 == 0) {
            float scale = largest / 127.0f;
            to.scales[(start + i) / 16] = scale;
            to.sums[(start + i) / 16] = static_cast<float>(sum) * scale;
        }
    }
    if (!to.high) return;
    float largest = 0.0f;
    for (u32 i = threadIdx.x; i < to.cols; i += blockDim.x) largest = fmaxf(largest, fabsf(row[i]));
    float scale = row_scale_of(block_max(largest, scratch));
    if (threadIdx.x == 0) to.row_scales[index] = scale;
    // Then a row means the same alone, as integers, and among a few.
    bool of_integers = to.codes && !to.low;
    for (u32 i = threadIdx.x; i < to.padded; i += blockDim.x) {
        float value = i < to.cols ? row[i] / scale : 0.0f;
        if (of_integers) value = static_cast<float>(to.codes[start + i]) * to.scales[(start + i) / 16] / scale;
        u16 high = float_to_half(value);
        to.high[start + i] = high;
        if (to.low) to.low[start + i] = float_to_half(value - half_to_float(high));
    }
}
