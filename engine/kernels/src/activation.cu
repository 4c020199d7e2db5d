// Elementwise functions.

struct SiluTimes {
    const float* gate; // [rows, cols]
    const float* up;   // [rows, cols]
    Rows to;
    u32 columns; // of a block: all, or a multiple of 64 where no halves are wanted
};

// silu(gate) · up. A block does a part of a row.
KERNEL(silu_times, 256, SiluTimes) {
    __shared__ float scratch[32];
    SHARED(float, row);
    u32 first = blockIdx.y * a.columns, last = min(first + a.columns, a.to.cols);
    u64 start = static_cast<u64>(blockIdx.x) * a.to.cols;
    float* shifted = row - first;
    for (u32 i = first + threadIdx.x; i < last; i += 256) shifted[i] = silu(a.gate[start + i]) * a.up[start + i];
    __syncthreads();
    write_row(shifted, blockIdx.x, first, last, a.to, scratch);
}
