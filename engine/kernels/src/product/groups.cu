// Many rows of activations times a matrix on Hopper: as `tiles.cu`, but four warps multiply tiles together, and warps have
// roles. Makers turn weights into halves and copy activations; multipliers only multiply, so that the tensor cores always
// have something to do.
//
// A block makes tiles of ROWS rows × 128 columns of the output, one after the other, in steps of 64 along the depth. A stage
// of shared memory holds what a step reads. Makers fill stages ahead, also those of the next tile; multipliers keep one step's
// products under way while they begin the next. For the tensor cores weights are the left matrix and activations the right
// one: what four warps make are 64 columns of the output, for all rows of the tile.

const u32 STEP = 64;
const u32 COLS = 128;
// Rows of one product: sums of more do not fit into the registers that a thread begins with.
const u32 PART = 128;
const u32 STAGES = 4;
const u32 MULTIPLIERS = 256;
const u32 MAKERS = 256;
const u32 GROUP_THREADS = MULTIPLIERS + MAKERS;
// Of a row of a tile.
const u32 ROW_BYTES = STEP * 2;
// Registers of a thread: all of a processor's for 512 threads.
const int OF_MULTIPLIER = 168;
const int OF_MAKER = 88;

// Where sixteen bytes of a row of a tile lie.
DEVICE u8* place_in_tile(u8* tile, u32 row, u32 place) { return tile + row * ROW_BYTES + (place ^ row % 8) * 16; }

// Barriers of a stage: makers wait until it is free, multipliers until it is full, and each tells the others.
DEVICE u32 full(u32 step) { return 1 + step % STAGES; }
DEVICE u32 free_again(u32 step) { return 1 + STAGES + step % STAGES; }
const u32 AMONG_MULTIPLIERS = 1 + 2 * STAGES;

// Tiles of a block: every `gridDim.x`th of all. `down` tiles have the same columns. Steps count through all tiles of the block.
struct Tiles {
    u8* stages;
    u32 down, count, steps;
};

template <u32 ROWS>
DEVICE Tiles tiles_of(const Product& a) {
    SHARED(u8, shared);
    const Job& last = a.jobs[a.count - 1];
    Tiles out;
    out.stages = shared + (SQUARE_BYTES - shared_address(shared) % SQUARE_BYTES) % SQUARE_BYTES;
    out.down = (a.rows + ROWS - 1) / ROWS;
    out.count = out.down * (last.first_block + (last.w.rows + COLS - 1) / COLS);
    out.steps = a.x.padded / STEP;
    return out;
}

// Where a tile lies. Those of the same weights follow each other, so that blocks which run together read them once.
struct Place {
    const Job& job;
    u32 row, column;
};

template <u32 ROWS>
DEVICE Place place_of(const Product& a, const Tiles& tiles, u32 tile) {
    const Job& job = job_of(a, tile / tiles.down);
    return {job, tile % tiles.down * ROWS, (tile / tiles.down - job.first_block) * COLS};
}

// The activations of a stage; its weights lie behind them.
template <u32 ROWS>
DEVICE u8* stage_of(const Tiles& tiles, u32 step) {
    return tiles.stages + step % STAGES * (ROWS + COLS) * ROW_BYTES;
}

// Fills stages. A thread has 32 weights of each step and every 32nd row's sixteen bytes of activations. Rows and columns
// behind the last are those of the last: what they make is not written, and where the depth ends activations are zeros.
template <int KIND, u32 ROWS>
DEVICE void make(const Product& a, const Tiles& tiles) {
    u32 thread = threadIdx.x - MULTIPLIERS, done = 0;
    for (u32 tile = blockIdx.x; tile < tiles.count; tile += gridDim.x, done += tiles.steps) {
        Place at = place_of<ROWS>(a, tiles, tile);
        const Matrix& w = at.job.w;
        u32 own_row = min(at.column + thread / 2, w.rows - 1);
        u32 pieces = pieces_of<KIND>(w), steps = tiles.steps;
        u64 own_pieces = static_cast<u64>(own_row) * pieces;
        // Two steps of weights are on their way, to have them when they are wanted.
        Fetched<KIND, STEP / 2> even, odd;
        const u32 MINE = STEP / 2 / piece_len<KIND>();
        auto piece_of = [&](u32 step, u32 i) { return min((2 * step + thread % 2) * MINE + i, pieces - 1); };
        auto fetch_w = [&](Fetched<KIND, STEP / 2>& next, u32 step) {
#pragma unroll
            for (u32 i = 0; i < MINE && step < steps; i++) next.pieces[i] = read_piece<KIND>(w, own_pieces + piece_of(step, i));
        };
        u32 eights = a.x.padded / 8, of_row[ROWS / 32];
#pragma unroll
        for (u32 i = 0; i < ROWS / 32; i++)
            of_row[i] = min(at.row + thread / 8 + 32 * i, a.rows - 1) * eights + thread % 8;
        auto copy_x = [&](u32 step) {
            if (step < steps) {
                u32 to = done + step;
                if (to >= STAGES) wait_at(free_again(to), GROUP_THREADS);
                u8* place = place_in_tile(stage_of<ROWS>(tiles, to), thread / 8, thread % 8);
#pragma unroll
                for (u32 i = 0; i < ROWS / 32; i++)
                    copy_ahead(place + 32 * i * ROW_BYTES, a.x.high + (static_cast<u64>(of_row[i]) + step * 8) * 8, true);
            }
            end_of_copies();
        };
        auto make_step = [&](Fetched<KIND, STEP / 2>& next, u32 step) {
            u32 halves[16];
            halves_of<KIND>(next.pieces, piece_of(step, 0), halves);
            u8* to = stage_of<ROWS>(tiles, done + step) + ROWS * ROW_BYTES;
#pragma unroll
            for (u32 i = 0; i < 4; i++)
                *reinterpret_cast<uint4*>(place_in_tile(to, thread / 2, thread % 2 * 4 + i)) = {
                    halves[4 * i], halves[4 * i + 1], halves[4 * i + 2], halves[4 * i + 3]};
            // To show what was written may be to wait for all that was asked for: what comes next is asked for behind it.
            await_copies<1>();
            show_to_groups();
            arrive_at(full(done + step), GROUP_THREADS);
            fetch_w(next, step + 2);
            copy_x(step + 2);
        };
        fetch_w(even, 0);
        fetch_w(odd, 1);
        // Weights do not wait for the kernel in front.
        if (tile == blockIdx.x) follow();
        copy_x(0);
        copy_x(1);
        for (u32 step = 0; step < steps; step += 2) {
            make_step(even, step);
            if (step + 1 < steps) make_step(odd, step + 1);
        }
    }
}

// Writes what a warp has of a tile: its lanes have eight neighbouring columns each of four rows. WHOLE: all of them are there.
template <bool WHOLE, bool ADD, u32 ROWS>
DEVICE void write_tile(const Product& a, const Job& job, u32 first, u32 column, const float (&sums)[ROWS / PART][64],
                       const float* scales) {
    u32 lane = threadIdx.x % 32, own = column + lane / 4, cols = job.w.rows;
    u32 in_eight = lane % 4 * 2;
    float* to = job.out + static_cast<u64>(first + in_eight) * cols + own;
#pragma unroll
    for (u32 eight = 0; eight < ROWS; eight += 8) {
        float2 both = *reinterpret_cast<const float2*>(scales + eight + in_eight);
#pragma unroll
        for (u32 part = 0; part < 2; part++) {
            bool is_row = WHOLE || first + in_eight + eight + part < a.rows;
#pragma unroll
            for (u32 half = 0; half < 2; half++) {
                float value = sums[eight / PART][eight % PART / 2 + 2 * half + part] * (part ? both.y : both.x);
                if (!WHOLE && (!is_row || own + 8 * half >= cols)) continue;
                if (ADD) add_far(to + 8 * half, value);
                else to[8 * half] = value;
            }
            to += static_cast<u64>(part ? 7 : 1) * cols;
        }
    }
}

// Multiplies what is in the stages: four warps make 64 columns of all rows.
template <u32 ROWS>
DEVICE void multiply(const Product& a, const Tiles& tiles) {
    u32 warp = threadIdx.x / 32, done = 0;
    float* scales = reinterpret_cast<float*>(stage_of<ROWS>(tiles, 0) + STAGES * (ROWS + COLS) * ROW_BYTES);
    u32 of_block = (tiles.count - blockIdx.x + gridDim.x - 1) / gridDim.x * tiles.steps;
    // Nothing is made behind the last stages.
    auto give_back = [&](u32 step) {
        if (step + STAGES < of_block) arrive_at(free_again(step), GROUP_THREADS);
    };
    follow();
    for (u32 tile = blockIdx.x; tile < tiles.count; tile += gridDim.x) {
        Place at = place_of<ROWS>(a, tiles, tile);
        const Job& job = at.job;
        u32 first = at.row, column = at.column + warp * 16;
        float sums[ROWS / PART][64] = {};
        float scale = a.x.row_scales[min(first + threadIdx.x % ROWS, a.rows - 1)];
        for (u32 step = 0; step < tiles.steps; step++, done++) {
            wait_at(full(done), GROUP_THREADS);
            u8* stage = stage_of<ROWS>(tiles, done);
            u64 w = tile_at(stage + (ROWS + warp / 4 * 64) * ROW_BYTES), x[ROWS / PART];
#pragma unroll
            for (u32 part = 0; part < ROWS / PART; part++) x[part] = tile_at(stage + part * PART * ROW_BYTES);
            begin_products();
#pragma unroll
            for (u32 k = 0; k < STEP; k += 16)
#pragma unroll
                for (u32 part = 0; part < ROWS / PART; part++)
                    multiply_tiles(sums[part], from_column(w, k), from_column(x[part], k));
            end_of_products();
            await_products<1>();
            if (step > 0) give_back(done - 1);
        }
        await_sums(sums);
        give_back(done - 1);
        // All have read the scales before when they are here: they came to the same barriers.
        if (threadIdx.x < ROWS) scales[threadIdx.x] = scale;
        wait_at(AMONG_MULTIPLIERS, MULTIPLIERS);
        bool whole = first + ROWS <= a.rows && at.column + COLS <= job.w.rows;
        if (whole && a.accumulate) write_tile<true, true, ROWS>(a, job, first, column, sums, scales);
        else if (whole) write_tile<true, false, ROWS>(a, job, first, column, sums, scales);
        else if (a.accumulate) write_tile<false, true, ROWS>(a, job, first, column, sums, scales);
        else write_tile<false, false, ROWS>(a, job, first, column, sums, scales);
    }
}

template <int KIND, u32 ROWS>
DEVICE void product_groups(const Product& a) {
    Tiles tiles = tiles_of<ROWS>(a);
    if (threadIdx.x < MULTIPLIERS) {
        take_registers<OF_MULTIPLIER>();
        multiply<ROWS>(a, tiles);
    } else {
        give_registers<OF_MAKER>();
        make<KIND, ROWS>(a, tiles);
    }
}

#define GROUPS_KERNEL(kind)                                                                          \
    KERNEL_AHEAD(groups_##kind##_256, GROUP_THREADS, Product) { product_groups<kind, 256>(a); }      \
    KERNEL_AHEAD(groups_##kind##_128, GROUP_THREADS, Product) { product_groups<kind, 128>(a); }

FOR_QUANTISED(GROUPS_KERNEL)
GROUPS_KERNEL(F16)
GROUPS_KERNEL(BF16)
