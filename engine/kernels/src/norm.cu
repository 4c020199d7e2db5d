// Norms of rows, and rows as they are, in the forms that products read.

// While a token is written there is one row, and all wait for it.
const u32 NORM_THREADS = 512;

struct NormRows {
    const float* x;      // [rows, cols]
    const float* weight; // [cols]; null: the rows as they are
    const u32* chosen;   // rows to take, in this order; null: all
    Rows to;
    float eps;
};

// A thread has the same columns all the way.
template <bool ALIGNED>
DEVICE void norm_row(const NormRows& a, float* row, float* scratch) {
    const u32 STEP = 4 * NORM_THREADS;
    float* weight = row + a.to.padded;
    u32 own = 4 * threadIdx.x, lane = threadIdx.x % 32, cols = a.to.cols;
    // They come while the kernel before is still at work.
    for (u32 i = own; i < a.to.padded && a.weight; i += STEP)
        if (ALIGNED) copy_ahead(weight + i, a.weight + (i < cols ? i : 0), i < cols);
        else *reinterpret_cast<float4*>(weight + i) = four_of<false>(a.weight, i, cols);
    end_of_copies();
    follow();
    u32 from = a.chosen ? a.chosen[blockIdx.x] : blockIdx.x;
    const float* x = a.x + static_cast<u64>(from) * cols;
    float squares = 0.0f;
    for (u32 first = own; first < a.to.padded; first += 2 * STEP) {
        float4 two[2];
#pragma unroll
        for (u32 j = 0; j < 2; j++) two[j] = four_of<ALIGNED>(x, first + j * STEP, cols);
#pragma unroll
        for (u32 j = 0; j < 2; j++) {
            squares += squares_of(two[j]);
            if (first + j * STEP < a.to.padded) *reinterpret_cast<float4*>(row + first + j * STEP) = two[j];
        }
    }
    float scale = 1.0f, largest = 0.0f;
    if (a.weight) scale = 1.0f / sqrtf(block_sum(squares, scratch) / static_cast<float>(cols) + a.eps);
    await_copies<0>();
    u64 start = static_cast<u64>(blockIdx.x) * a.to.padded;
    for (u32 i = own; i - 4 * lane < a.to.padded; i += STEP) {
        float4 v = four_of<true>(row, i, a.to.padded);
        if (a.weight) {
            float4 w = four_of<true>(weight, i, a.to.padded);
            v = {v.x * scale * w.x, v.y * scale * w.y, v.z * scale * w.z, v.w * scale * w.w};
        }
        largest = fmaxf(largest, largest_of(v));
        write_four(v, start + i, i < a.to.padded, a.to);
        if (a.to.high && i < a.to.padded) *reinterpret_cast<float4*>(row + i) = v;
    }
    if (a.to.high) write_halves(row, largest, blockIdx.x, a.to, scratch);
}

// out = x / sqrt(mean(x²) + eps) · weight. A block does a row.
KERNEL_AHEAD(norm_rows, NORM_THREADS, NormRows) {
    __shared__ float scratch[32];
    SHARED(float, row); // [padded]; then the weights
    if (a.to.cols % 4 == 0) norm_row<true>(a, row, scratch);
    else norm_row<false>(a, row, scratch);
}

const u32 HEADS_THREADS = 256;

struct NormHeads {
    const float* x;      // [rows, heads, dim]
    const float* weight; // [dim], shared by the heads
    const float* gate;   // [rows, heads, dim]
    Rows to;             // cols: heads · dim
    u32 dim;
    float eps;
    u32 heads_of_block; // all where halves are wanted
    u32 in_fours;       // 1: heads of up to 256 values, whose scales are no two heads', in rows that need no zeros
};

DEVICE void norm_heads_in_fours(const NormHeads& a, u32 first, u32 last, float* row, float* scratch) {
    const u32 MOST = 2; // fours of a lane
    u32 own = threadIdx.x % 32 * 4;
    float4 weight[MOST];
#pragma unroll
    for (u32 j = 0; j < MOST; j++) {
        u32 i = own + 128 * j;
        weight[j] = i < a.dim ? read_weights(reinterpret_cast<const float4*>(a.weight + i)) : float4{0.0f, 0.0f, 0.0f, 0.0f};
    }
    follow();
    float largest = 0.0f;
    for (u32 head = first + threadIdx.x / 32; head < last; head += HEADS_THREADS / 32) {
        u64 start = static_cast<u64>(blockIdx.x) * a.to.cols + head * a.dim;
        float4 x[MOST], gate[MOST];
        float squares = 0.0f;
#pragma unroll
        for (u32 j = 0; j < MOST; j++) {
            x[j] = four_of<true>(a.x + start, own + 128 * j, a.dim);
            gate[j] = four_of<true>(a.gate + start, own + 128 * j, a.dim);
        }
#pragma unroll
        for (u32 j = 0; j < MOST; j++) squares += squares_of(x[j]);
        float scale = 1.0f / sqrtf(warp_sum(squares) / static_cast<float>(a.dim) + a.eps);
#pragma unroll
        for (u32 j = 0; j < MOST; j++) {
            u32 i = own + 128 * j;
            if (128 * j >= a.dim) continue;
            float4 v = {x[j].x * scale * weight[j].x * silu(gate[j].x), x[j].y * scale * weight[j].y * silu(gate[j].y),
                        x[j].z * scale * weight[j].z * silu(gate[j].z), x[j].w * scale * weight[j].w * silu(gate[j].w)};
            largest = fmaxf(largest, largest_of(v));
            write_four(v, start + i, i < a.dim, a.to);
            if (a.to.high && i < a.dim) *reinterpret_cast<float4*>(row + head * a.dim + i) = v;
        }
    }
    if (a.to.high) write_halves(row, largest, blockIdx.x, a.to, scratch);
}

// Each head's norm, times silu of the gate. A block does a row or some heads of it, a warp a head.
KERNEL_AHEAD(norm_heads_gated, HEADS_THREADS, NormHeads) {
    __shared__ float scratch[32];
    SHARED(float, row);
    u32 first = blockIdx.y * a.heads_of_block, last = min(first + a.heads_of_block, a.to.cols / a.dim);
    if (a.in_fours) return norm_heads_in_fours(a, first, last, row, scratch);
    follow();
    u64 start = static_cast<u64>(blockIdx.x) * a.to.cols;
    for (u32 head = threadIdx.x / 32; head < last; head += HEADS_THREADS / 32) {
        const float* x = a.x + start + head * a.dim;
        float squares = 0.0f;
        for (u32 i = threadIdx.x % 32; i < a.dim; i += 32) squares += x[i] * x[i];
        float scale = 1.0f / sqrtf(warp_sum(squares) / static_cast<float>(a.dim) + a.eps);
        for (u32 i = threadIdx.x % 32; i < a.dim; i += 32)
            row[head * a.dim + i] = x[i] * scale * a.weight[i] * silu(a.gate[start + head * a.dim + i]);
    }
    __syncthreads();
    write_row(row, blockIdx.x, a.to, scratch);
}
