// Elementwise functions.

const u32 SILU_THREADS = 256;

struct SiluTimes {
    const float* gate; // [rows, cols]
    const float* up;   // [rows, cols]
    Rows to;
    u32 columns; // of a block: all, or a multiple of 64 where no halves are wanted
};

template <bool ALIGNED>
DEVICE void silu_times_part(const SiluTimes& a, float* row, float* scratch) {
    const u32 MOST = 4, STEP = 4 * SILU_THREADS; // fours of a thread that it asks for at once
    u32 first = blockIdx.y * a.columns, end = min(first + a.columns, a.to.padded), behind = min(end, a.to.cols);
    const float* gates = a.gate + static_cast<u64>(blockIdx.x) * a.to.cols;
    const float* ups = a.up + static_cast<u64>(blockIdx.x) * a.to.cols;
    u64 start = static_cast<u64>(blockIdx.x) * a.to.padded;
    u32 own = first + 4 * threadIdx.x, lane = threadIdx.x % 32;
    float largest = 0.0f;
    for (u32 from = own; from - 4 * lane < end; from += MOST * STEP) {
        float4 gate[MOST], up[MOST];
#pragma unroll
        for (u32 j = 0; j < MOST; j++) {
            gate[j] = four_of<ALIGNED>(gates, from + j * STEP, behind);
            up[j] = four_of<ALIGNED>(ups, from + j * STEP, behind);
        }
#pragma unroll
        for (u32 j = 0; j < MOST; j++) {
            u32 i = from + j * STEP;
            if (i - 4 * lane >= end) continue;
            float4 v = {silu(gate[j].x) * up[j].x, silu(gate[j].y) * up[j].y, silu(gate[j].z) * up[j].z,
                        silu(gate[j].w) * up[j].w};
            largest = fmaxf(largest, largest_of(v));
            write_four(v, start + i, i < end, a.to);
            if (a.to.high && i < end) *reinterpret_cast<float4*>(row + i) = v;
        }
    }
    if (a.to.high) write_halves(row, largest, blockIdx.x, a.to, scratch);
}

// silu(gate) · up. A block does a part of a row.
KERNEL(silu_times, SILU_THREADS, SiluTimes) {
    __shared__ float scratch[32];
    SHARED(float, row); // only for halves: then all of the row is the block's
    if (a.to.cols % 4 == 0) silu_times_part<true>(a, row, scratch);
    else silu_times_part<false>(a, row, scratch);
}
