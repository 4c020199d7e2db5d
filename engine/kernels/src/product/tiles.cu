// Many rows of activations times a matrix, on tensor cores: weights become halves on their way into shared memory,
// activations are halves over their row's scale.
//
// A block makes a tile of ROWS × COLS of the output, in steps of 64 along the depth. While a step is multiplied, the weights of
// the next are on their way into registers and the activations of the step after that into shared memory.
//
// Halves have 11 bits. Where that is too few both are cut in two halves each, high and low, and the depth is gone through
// three times: high · high, low · high, high · low.

const u32 STEP = 64;
// Halves from row to row in shared memory: eight rows lie in different banks.
const u32 PITCH = STEP + 8;
const u32 COLS = 128;

// Steps of activations in shared memory. A few rows are multiplied sooner than they come; of many, two blocks have room in the
// 164 KiB of an A100.
template <u32 ROWS>
DEVICE constexpr u32 stages() {
    return ROWS == 32 ? 5 : 2;
}

// Steps for which weights are on their way, as above.
template <int KIND, u32 ROWS>
DEVICE constexpr u32 steps_ahead() {
    return ROWS == 32 && is_quantised<KIND>() ? 3 : 1;
}

// WARPS_DOWN × (8 / WARPS_DOWN) warps share the tile.
template <int KIND, u32 ROWS, u32 WARPS_DOWN>
DEVICE void product_tiles(const Product& a) {
    const u32 WARPS_ACROSS = 8 / WARPS_DOWN;
    const u32 STAGES = stages<ROWS>(), DOWN = ROWS / WARPS_DOWN / 16, ACROSS = COLS / WARPS_ACROSS / 8;
    SHARED(u16, shared);
    u16* xs = shared;
    u16* ws = shared + STAGES * ROWS * PITCH;
    const Job& job = job_of(a, blockIdx.x);
    const Matrix& w = job.w;
    u32 thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    u32 column = (blockIdx.x - job.first_block) * COLS;
    u32 first = blockIdx.y * ROWS, last = min(a.rows, first + ROWS), rows_of_w = w.rows;
    u64 offset = 0;
    if (a.experts.tiles && !tile_of_experts(a.experts, first, last, rows_of_w, offset)) return;
    u32 steps = a.x.padded / STEP, total = steps * a.passes;

    auto copy_x = [&](u32 step) {
        if (step < total) {
            const u16* plane = step / steps == 1 ? a.x.low : a.x.high;
            for (u32 i = thread; i < ROWS * (STEP / 8); i += 256) {
                u32 row = i / (STEP / 8), part = i % (STEP / 8);
                bool there = first + row < last;
                u32 from = there ? first + row : 0;
                if (there && a.experts.source) from = a.experts.source[from];
                copy_ahead(xs + ((step % STAGES) * ROWS + row) * PITCH + part * 8,
                           plane + static_cast<u64>(from) * a.x.padded + (step % steps) * STEP + part * 8, there);
            }
        }
        end_of_copies();
    };
    // This thread's group of a step: 128 weight rows times two groups.
    const u32 AHEAD = steps_ahead<KIND, ROWS>();
    u32 own_row = thread / 2, own_group = thread % 2 * 32;
    bool there = column + own_row < rows_of_w;
    Fetched<KIND, 32> next[AHEAD]; // of step s: s % AHEAD
    auto fetch_w = [&](u32 step, Fetched<KIND, 32>& to) {
        if (step < total) fetch(to, w, offset + column + own_row, there, step % steps * STEP + own_group);
    };
    auto unpack_w = [&](u32 step, const Fetched<KIND, 32>& from) {
        u16* row = ws + (step % 2 * COLS + own_row) * PITCH + own_group;
        auto place = [&](u32 i) { return reinterpret_cast<uint4*>(row) + i; };
        if (step < total) unpack(from, w, there, step % steps * STEP + own_group, step / steps == 2, place);
    };

    float sums[DOWN][ACROSS][4] = {};
    // Weights do not wait for the kernel in front.
#pragma unroll
    for (u32 i = 0; i < AHEAD; i++) fetch_w(i, next[i]);
    follow();
    for (u32 step = 0; step + 1 < STAGES; step++) copy_x(step);
    unpack_w(0, next[0]);
    fetch_w(AHEAD, next[0]);
    auto multiply = [&](u32 step, Fetched<KIND, 32>& after) {
        await_copies<STAGES - 2>();
        __syncthreads();
        copy_x(step + STAGES - 1);
        const u16* x = xs + ((step % STAGES) * ROWS + warp / WARPS_ACROSS * DOWN * 16) * PITCH;
        const u16* v = ws + ((step % 2) * COLS + warp % WARPS_ACROSS * ACROSS * 8) * PITCH;
#pragma unroll
        for (u32 k = 0; k < STEP; k += 16) {
            u32 xf[DOWN][4], wf[ACROSS][2];
#pragma unroll
            for (u32 i = 0; i < DOWN; i++) load_matrices(xf[i], x + (i * 16 + lane % 16) * PITCH + k + lane / 16 * 8);
#pragma unroll
            for (u32 j = 0; j < ACROSS; j += 2) {
                u32 four[4];
                load_matrices(four, v + (j * 8 + lane % 8 + lane / 16 * 8) * PITCH + k + lane / 8 % 2 * 8);
                wf[j][0] = four[0];
                wf[j][1] = four[1];
                wf[j + 1][0] = four[2];
                wf[j + 1][1] = four[3];
            }
#pragma unroll
            for (u32 i = 0; i < DOWN; i++)
#pragma unroll
                for (u32 j = 0; j < ACROSS; j++) mma(sums[i][j], xf[i], wf[j]);
        }
        unpack_w(step + 1, after);
        fetch_w(step + 1 + AHEAD, after);
    };
    for (u32 first_step = 0; first_step < total; first_step += AHEAD)
#pragma unroll
        for (u32 i = 0; i < AHEAD; i++)
            if (first_step + i < total) multiply(first_step + i, next[(i + 1) % AHEAD]);
#pragma unroll
    for (u32 i = 0; i < DOWN; i++)
#pragma unroll
        for (u32 half = 0; half < 2; half++) {
            u32 row = first + (warp / WARPS_ACROSS * DOWN + i) * 16 + lane / 4 + half * 8;
            if (row >= last) continue;
            float scale = a.x.row_scales[a.experts.source ? a.experts.source[row] : row];
            float values[2 * ACROSS];
#pragma unroll
            for (u32 j = 0; j < 2 * ACROSS; j++) values[j] = sums[i][j / 2][2 * half + j % 2] * scale;
            u32 at = column + warp % WARPS_ACROSS * ACROSS * 8 + lane % 4 * 2;
            write_pairs<ACROSS>(job.out + static_cast<u64>(row) * rows_of_w, at, rows_of_w, a.accumulate, values);
        }
}

#define TILES_KERNELS(kind)                                                          \
    KERNEL_AHEAD(tiles_##kind##_32, 256, Product) { product_tiles<kind, 32, 1>(a); } \
    KERNEL_AHEAD(tiles_##kind##_128, RESIDENT(256, 2), Product) { product_tiles<kind, 128, 2>(a); }

FOR_QUANTISED(TILES_KERNELS)
FOR_NUMBERS(TILES_KERNELS)
