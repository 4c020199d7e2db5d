// Many rows of activations times a matrix on Hopper: as `tiles.cu`, but four warps multiply tiles together while they make
// halves of the next weights, which are small where they lie and so come in the wider tiles.
//
// A block makes 128 rows × 256 columns of the output, in steps of 64 along the depth: each four warps have 64 rows. While a
// step is multiplied, the weights of the next become halves, those of the step after that are on their way into registers, and
// activations are on their way into shared memory for three steps.

const u32 STEP = 64;
const u32 ROWS = 128;
const u32 COLS = 256;
const u32 STAGES = 4;
const u32 GROUP_THREADS = 256;
// Of a row of a tile.
const u32 ROW_BYTES = STEP * 2;

// Where sixteen bytes of a row of a tile lie.
DEVICE u8* place_in_tile(u8* tile, u32 row, u32 place) { return tile + row * ROW_BYTES + (place ^ row % 8) * 16; }

template <int KIND>
DEVICE void product_groups(const Product& a) {
    SHARED(u8, shared);
    u8* xs = shared + (SQUARE_BYTES - shared_address(shared) % SQUARE_BYTES) % SQUARE_BYTES;
    u8* ws = xs + STAGES * ROWS * ROW_BYTES;
    const Job& job = job_of(a, blockIdx.x);
    const Matrix& w = job.w;
    u32 thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    u32 column = (blockIdx.x - job.first_block) * COLS, own_row = column + thread;
    u32 first = blockIdx.y * ROWS, steps = a.x.padded / STEP;
    auto copy_x = [&](u32 step) {
        u8* tile = xs + step % STAGES * ROWS * ROW_BYTES;
        for (u32 i = thread; i < ROWS * 8 && step < steps; i += GROUP_THREADS) {
            bool there = first + i / 8 < a.rows;
            u64 from = static_cast<u64>(there ? first + i / 8 : 0) * a.x.padded + step * STEP + i % 8 * 8;
            copy_ahead(place_in_tile(tile, i / 8, i % 8), a.x.high + from, there);
        }
        end_of_copies();
    };
    Fetched<KIND, STEP> next;
    auto fetch_w = [&](u32 step) {
        if (step < steps) fetch(next, w, own_row, own_row < w.rows, step * STEP);
    };
    auto unpack_w = [&](u32 step) {
        u8* tile = ws + step % 2 * COLS * ROW_BYTES;
        auto place = [&](u32 i) { return reinterpret_cast<uint4*>(place_in_tile(tile, thread, i)); };
        if (step < steps) unpack(next, w, own_row < w.rows, step * STEP, false, place);
    };
    float sums[128] = {};
    // Weights do not wait for the kernel in front.
    fetch_w(0);
    follow();
    for (u32 step = 0; step + 1 < STAGES; step++) copy_x(step);
    unpack_w(0);
    // To show what was written may be to wait for all that was asked for: weights are asked for behind it.
    await_copies<STAGES - 2>();
    show_to_groups();
    fetch_w(1);
    for (u32 step = 0; step < steps; step++) {
        __syncthreads();
        u64 x = tile_at(xs + (step % STAGES * ROWS + warp / 4 * 64) * ROW_BYTES);
        u64 v = tile_at(ws + step % 2 * COLS * ROW_BYTES);
        begin_products();
#pragma unroll
        for (u32 k = 0; k < STEP; k += 16) multiply_tiles(sums, from_column(x, k), from_column(v, k));
        end_of_products();
        copy_x(step + STAGES - 1);
        unpack_w(step + 1);
        await_copies<STAGES - 2>();
        show_to_groups();
        fetch_w(step + 2);
        await_products(sums);
    }
#pragma unroll
    for (u32 half = 0; half < 2; half++) {
        u32 row = first + warp * 16 + lane / 4 + half * 8;
        if (row >= a.rows) continue;
        float scale = a.x.row_scales[row];
        // In two parts: what is added to needs registers too.
#pragma unroll
        for (u32 part = 0; part < 2; part++) {
            float values[COLS / 8];
#pragma unroll
            for (u32 i = 0; i < COLS / 8; i++) values[i] = sums[64 * part + i / 2 * 4 + 2 * half + i % 2] * scale;
            u32 at = column + part * COLS / 2 + lane % 4 * 2;
            write_pairs<COLS / 16>(job.out + static_cast<u64>(row) * w.rows, at, w.rows, a.accumulate, values);
        }
    }
}

#define GROUPS_KERNEL(kind) \
    KERNEL_AHEAD(groups_##kind, GROUP_THREADS, Product) { product_groups<kind>(a); }

FOR_QUANTISED(GROUPS_KERNEL)
GROUPS_KERNEL(F16)
GROUPS_KERNEL(BF16)
