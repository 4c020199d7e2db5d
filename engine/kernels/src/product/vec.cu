// Few rows of activations times a matrix: a warp reads two weight rows once for all of them.

const u32 VEC_WARPS = 4;
const u32 VEC_ROWS = 2;

// What a lane adds for one group of one weight row and one row of 8-bit activations: `at` is the group's place there.
template <int KIND>
DEVICE float times_codes(const Group& w, const Rows& x, u64 group) {
    uint4 first = reinterpret_cast<const uint4*>(x.codes)[2 * group];
    uint4 second = reinterpret_cast<const uint4*>(x.codes)[2 * group + 1];
    float2 scale = reinterpret_cast<const float2*>(x.scales)[group];
    int low = dot4(w.q[0], first.x, dot4(w.q[1], first.y, dot4(w.q[2], first.z, dot4(w.q[3], first.w, 0))));
    int high = dot4(w.q[4], second.x, dot4(w.q[5], second.y, dot4(w.q[6], second.z, dot4(w.q[7], second.w, 0))));
    float sum = w.scale[0] * scale.x * static_cast<float>(low) + w.scale[1] * scale.y * static_cast<float>(high);
    if (has_min<KIND>()) {
        float2 sums = reinterpret_cast<const float2*>(x.sums)[group];
        sum += w.min[0] * sums.x + w.min[1] * sums.y;
    }
    return sum;
}

template <int KIND, int M, bool CODES>
DEVICE void product_vec(const Product& a) {
    const Job& job = job_of(a, blockIdx.x);
    const Matrix& w = job.w;
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    u32 first = ((blockIdx.x - job.first_block) * VEC_WARPS + warp) * VEC_ROWS;
    // With experts a row of activations comes alone, and the rows of its expert lie behind those of the ones before.
    u32 rows = a.experts.of_row ? a.experts.rows_of_one : w.rows;
    u64 offset = a.experts.of_row ? static_cast<u64>(a.experts.of_row[blockIdx.y]) * rows : 0;
    u32 from = blockIdx.y * M, count = min(a.rows - from, static_cast<u32>(M));
    if (first >= rows) return;
    u32 valid = min(rows - first, VEC_ROWS);
    float sums[VEC_ROWS][M] = {};
    u64 x_rows[M];
    for (u32 m = 0; m < M; m++) {
        u32 row = from + (m < count ? m : 0);
        x_rows[m] = static_cast<u64>(a.experts.source ? a.experts.source[row] : row) * a.x.padded;
    }
    u32 pieces = is_quantised<KIND>() ? w.cols / 32 : w.stride / 8;
    const u64 starts[VEC_ROWS] = {(offset + first) * pieces, (offset + first + valid - 1) * pieces};
    for (u32 piece = lane; piece < pieces; piece += 32) {
        if (is_quantised<KIND>()) {
            // Both rows are asked for before the first is used.
            Raw raw[VEC_ROWS];
#pragma unroll
            for (u32 r = 0; r < VEC_ROWS; r++) raw[r] = read_group<KIND>(w, starts[r] + piece);
#pragma unroll
            for (u32 r = 0; r < VEC_ROWS; r++) {
                Group group = group_of<KIND>(raw[r], piece);
                if (CODES) {
#pragma unroll
                    for (u32 m = 0; m < M; m++) sums[r][m] += times_codes<KIND>(group, a.x, x_rows[m] / 32 + piece);
                } else {
                    float values[32];
                    values_of<KIND>(group, values);
#pragma unroll
                    for (u32 m = 0; m < M; m++)
#pragma unroll
                        for (u32 i = 0; i < 32; i++) sums[r][m] += values[i] * a.x.values[x_rows[m] + 32 * piece + i];
                }
            }
        } else {
#pragma unroll
            for (u32 r = 0; r < VEC_ROWS; r++) {
                float values[8];
                read_eight<KIND>(w, starts[r] + piece, values);
#pragma unroll
                for (u32 m = 0; m < M; m++)
#pragma unroll
                    for (u32 i = 0; i < 8; i++) sums[r][m] += values[i] * a.x.values[x_rows[m] + 8 * piece + i];
            }
        }
    }
#pragma unroll
    for (u32 r = 0; r < VEC_ROWS; r++)
#pragma unroll
        for (u32 m = 0; m < M; m++) {
            float sum = warp_sum(sums[r][m]);
            if (lane != 0 || r >= valid || m >= count) continue;
            float* out = job.out + static_cast<u64>(from + m) * rows + first + r;
            *out = a.accumulate ? *out + sum : sum;
        }
}

#define CODES_KERNELS(kind)                                                                  \
    KERNEL(vec_codes_##kind##_1, VEC_WARPS * 32, Product) { product_vec<kind, 1, true>(a); } \
    KERNEL(vec_codes_##kind##_4, VEC_WARPS * 32, Product) { product_vec<kind, 4, true>(a); } \
    KERNEL(vec_codes_##kind##_8, VEC_WARPS * 32, Product) { product_vec<kind, 8, true>(a); }
#define VALUES_KERNELS(kind)                                                                   \
    KERNEL(vec_values_##kind##_1, VEC_WARPS * 32, Product) { product_vec<kind, 1, false>(a); } \
    KERNEL(vec_values_##kind##_4, VEC_WARPS * 32, Product) { product_vec<kind, 4, false>(a); }

FOR_QUANTISED(CODES_KERNELS)
FOR_QUANTISED(VALUES_KERNELS)
FOR_NUMBERS(VALUES_KERNELS)

struct Embed {
    Matrix w;
    const u32* tokens;
    float* out; // [rows, w.cols]
};

// The values of some rows of a matrix. A block does a row.
template <int KIND>
DEVICE void embed(const Embed& a) {
    for (u32 first = threadIdx.x * 32; first < a.w.cols; first += 128 * 32) {
        float values[32];
        read_values<KIND>(a.w, a.tokens[blockIdx.x], first, values);
        float* out = a.out + static_cast<u64>(blockIdx.x) * a.w.cols + first;
        for (u32 i = 0; i < 32 && first + i < a.w.cols; i++) out[i] = values[i];
    }
}

#define EMBED_KERNELS(kind) \
    KERNEL(embed_##kind, 128, Embed) { embed<kind>(a); }

FOR_QUANTISED(EMBED_KERNELS)
FOR_NUMBERS(EMBED_KERNELS)
