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

// out = x / sqrt(mean(x²) + eps) · weight. A block does a row.
KERNEL_AHEAD(norm_rows, NORM_THREADS, NormRows) {
    __shared__ float scratch[32];
    SHARED(float, row);
    if (a.weight) bring_near(a.weight, 4 * a.to.cols, threadIdx.x, NORM_THREADS);
    follow();
    u32 from = a.chosen ? a.chosen[blockIdx.x] : blockIdx.x;
    const float* x = a.x + static_cast<u64>(from) * a.to.cols;
    float squares = 0.0f;
    for (u32 i = threadIdx.x; i < a.to.cols; i += NORM_THREADS) {
        row[i] = x[i];
        squares += x[i] * x[i];
    }
    if (a.weight) {
        float mean = block_sum(squares, scratch) / static_cast<float>(a.to.cols);
        float scale = 1.0f / sqrtf(mean + a.eps);
        for (u32 i = threadIdx.x; i < a.to.cols; i += NORM_THREADS) row[i] = row[i] * scale * a.weight[i];
    }
    __syncthreads();
    write_row(row, blockIdx.x, 0, a.to.cols, a.to, scratch);
}

struct NormHeads {
    const float* x;      // [rows, heads, dim]
    const float* weight; // [dim], shared by the heads
    const float* gate;   // [rows, heads, dim]
    Rows to;             // cols: heads · dim
    u32 dim;
    float eps;
};

// Each head's norm, times silu of the gate. A block does a row, a warp a head.
KERNEL_AHEAD(norm_heads_gated, NORM_THREADS, NormHeads) {
    __shared__ float scratch[32];
    SHARED(float, row);
    bring_near(a.weight, 4 * a.dim, threadIdx.x, NORM_THREADS);
    follow();
    u64 start = static_cast<u64>(blockIdx.x) * a.to.cols;
    for (u32 head = threadIdx.x / 32; head < a.to.cols / a.dim; head += NORM_THREADS / 32) {
        const float* x = a.x + start + head * a.dim;
        float squares = 0.0f;
        for (u32 i = threadIdx.x % 32; i < a.dim; i += 32) squares += x[i] * x[i];
        float scale = 1.0f / sqrtf(warp_sum(squares) / static_cast<float>(a.dim) + a.eps);
        for (u32 i = threadIdx.x % 32; i < a.dim; i += 32)
            row[head * a.dim + i] = x[i] * scale * a.weight[i] * silu(a.gate[start + head * a.dim + i]);
    }
    __syncthreads();
    write_row(row, blockIdx.x, 0, a.to.cols, a.to, scratch);
}
