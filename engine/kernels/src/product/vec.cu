// Few rows of activations as they are, times a matrix: a warp reads some weight rows once for all of them, or its share of them where
// several warps share the columns.

const u32 VEC_WARPS = 4;

// Weight rows of a warp.
const u32 VEC_ROWS = 2;

// What a lane adds for one piece of a weight row and one row of activations as they are.
template <int LEN>
DEVICE float times_values(const float (&w)[LEN], const float* x) {
    float sum = 0.0f;
#pragma unroll
    for (u32 i = 0; i < LEN; i += 4) {
        float4 four = *reinterpret_cast<const float4*>(x + i);
        sum += w[i] * four.x + w[i + 1] * four.y + w[i + 2] * four.z + w[i + 3] * four.w;
    }
    return sum;
}

// Adds one piece of each weight row times each row of activations, of which each is read once.
template <int KIND, int M>
DEVICE void add_pieces(const Raw (&raw)[VEC_ROWS], u32 piece, const Rows& x, const u64 (&x_rows)[M], float (&sums)[VEC_ROWS][M]) {
#pragma unroll
    for (u32 r = 0; r < VEC_ROWS; r++) {
        const u32 LEN = piece_len<KIND>();
        float values[LEN];
        values_of_piece<KIND>(raw[r], piece, values);
#pragma unroll
        for (u32 m = 0; m < M; m++) sums[r][m] += times_values(values, x.values + x_rows[m] + LEN * piece);
    }
}

template <int KIND, int M>
DEVICE void product_vec(const Product& a) {
    __shared__ float shares[VEC_WARPS][VEC_ROWS * M];
    const Job& job = job_of(a, blockIdx.x);
    const Matrix& w = job.w;
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, share = warp % a.warps_of_row;
    u32 first = ((blockIdx.x - job.first_block) * VEC_WARPS + warp) / a.warps_of_row * VEC_ROWS;
    // With experts a row of activations comes alone, and the rows of its expert lie behind those of the ones before.
    if (a.experts.of_row) follow();
    u32 rows = a.experts.of_row ? a.experts.rows_of_one : w.rows;
    u64 offset = a.experts.of_row ? static_cast<u64>(a.experts.of_row[blockIdx.y]) * rows : 0;
    u32 from = blockIdx.y * M, count = min(a.rows - from, static_cast<u32>(M));
    u32 valid = first < rows ? min(rows - first, VEC_ROWS) : 0;
    u32 pieces = pieces_of<KIND>(w), step = 32 * a.warps_of_row;
    u64 starts[VEC_ROWS];
#pragma unroll
    for (u32 r = 0; r < VEC_ROWS; r++) starts[r] = (offset + first + (r < valid ? r : 0)) * pieces;
    u32 piece = valid > 0 ? 32 * share + lane : pieces;
    // The next pieces are always on their way, the first ones before it is known what they will be multiplied with.
    Raw next[VEC_ROWS];
#pragma unroll
    for (u32 r = 0; r < VEC_ROWS && piece < pieces; r++) next[r] = read_piece<KIND>(w, starts[r] + piece);
    // The rest comes as far as it can: kernels in front are often small and leave the memory idle.
    u64 row_bytes = code_bytes<KIND>(w);
    for (u32 r = 0; r < valid && share == 0; r++) bring_near(w.codes + (offset + first + r) * row_bytes, row_bytes, lane, 32);
    follow();
    u64 x_rows[M];
#pragma unroll
    for (u32 m = 0; m < M; m++) {
        u32 row = from + (m < count ? m : 0);
        x_rows[m] = static_cast<u64>(a.experts.source ? a.experts.source[row] : row) * a.x.padded;
    }
    float sums[VEC_ROWS][M] = {};
    for (; piece < pieces; piece += step) {
        Raw now[VEC_ROWS];
#pragma unroll
        for (u32 r = 0; r < VEC_ROWS; r++) {
            now[r] = next[r];
            if (piece + step < pieces) next[r] = read_piece<KIND>(w, starts[r] + piece + step);
        }
        add_pieces<KIND, M>(now, piece, a.x, x_rows, sums);
    }
#pragma unroll
    for (u32 r = 0; r < VEC_ROWS; r++)
#pragma unroll
        for (u32 m = 0; m < M; m++) {
            sums[r][m] = warp_sum(sums[r][m]);
            if (lane == 0) shares[warp][r * M + m] = sums[r][m];
        }
    if (a.warps_of_row > 1) __syncthreads();
    else warp_barrier();
    u32 r = lane / M, m = lane % M;
    if (share > 0 || r >= valid || m >= count) return;
    float sum = 0.0f;
    for (u32 i = 0; i < a.warps_of_row; i++) sum += shares[warp + i][lane];
    float* out = job.out + static_cast<u64>(from + m) * rows + first + r;
    *out = a.accumulate ? *out + sum : sum;
}

#define VALUES_KERNELS(kind)                                                                   \
    KERNEL_AHEAD(vec_values_##kind##_1, VEC_WARPS * 32, Product) { product_vec<kind, 1>(a); } \
    KERNEL_AHEAD(vec_values_##kind##_4, VEC_WARPS * 32, Product) { product_vec<kind, 4>(a); }

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
