// Many rows of activations times matrices of a few rows, in f32 throughout: routers, and what makes decays.
//
// The matrices of a launch lie side by side, so that two of 32 rows fill a block: a job's first block is its first column of
// all the outputs. A block makes ROWS × 64 of them, in steps along the depth. Each thread has 8 × 4 outputs and a part of
// the depth; the parts are added at the end, always in the same order. While a step is multiplied, the weights of the next
// are on their way into registers and the activations of the step after that into shared memory.

const u32 EXACT_THREADS = 256, EXACT_COLS = 64;
const u32 DOWN = 8, ACROSS = 4; // outputs of a thread
const u32 SIDE = EXACT_COLS / ACROSS; // threads side by side
const u32 STAGES = 3; // steps of activations in shared memory; of weights there are two

// With few rows a step is soon multiplied: it is made longer.
template <u32 ROWS>
DEVICE constexpr u32 step_of() {
    return ROWS == 8 ? 128 : 64;
}

// Where four weights of a row lie. Eight threads write neighbouring pieces of one row, or groups of two or four rows, and
// read the same columns of eight rows: in each case the eight lie in different banks.
DEVICE u32 place_of(u32 row, u32 four) {
    u32 group = four / 8;
    return four ^ (row ^ group % 2 * 7 ^ group / 2 * 2) % 8;
}

// Four columns of the depth, of which a thread has rows of activations `down` apart and of weights `side` apart.
template <u32 WIDTH>
DEVICE void add_products(float (&sums)[DOWN][ACROSS], const float* x, u32 down, const float* w, u32 side) {
    float4 weights[WIDTH];
#pragma unroll
    for (u32 j = 0; j < WIDTH; j++) weights[j] = *reinterpret_cast<const float4*>(w + j * side);
#pragma unroll
    for (u32 i = 0; i < DOWN; i++) {
        float4 four = *reinterpret_cast<const float4*>(x + i * down);
#pragma unroll
        for (u32 j = 0; j < WIDTH; j++) {
            sums[i][j] += four.x * weights[j].x;
            sums[i][j] += four.y * weights[j].y;
            sums[i][j] += four.z * weights[j].z;
            sums[i][j] += four.w * weights[j].w;
        }
    }
}

template <int KIND, u32 ROWS>
DEVICE void product_exact(const Product& a) {
    const u32 STEP = step_of<ROWS>(), PITCH = STEP + 4, TALL = ROWS / DOWN, PARTS = EXACT_THREADS / (SIDE * TALL);
    const u32 PIECE = piece_len<KIND>(), OF_ROW = STEP / PIECE, PIECES = EXACT_COLS * OF_ROW;
    const u32 OWN = (PIECES + EXACT_THREADS - 1) / EXACT_THREADS; // pieces of a thread
    SHARED(float, shared);
    float* ws = shared;
    float* xs = shared + 2 * EXACT_COLS * STEP;
    const Job& last = a.jobs[a.count - 1];
    u32 cols = last.first_block + last.w.rows, from = blockIdx.x * EXACT_COLS, first = blockIdx.y * ROWS;
    u32 thread = threadIdx.x, steps = (a.x.padded + STEP - 1) / STEP, pieces = pieces_of<KIND>(last.w);

    // This thread's piece `i` of a step, while it is one of a weight row.
    auto column_of = [&](u32 i) { return (thread + i * EXACT_THREADS) / OF_ROW; };
    auto piece_of = [&](u32 step, u32 i) { return step * OF_ROW + (thread + i * EXACT_THREADS) % OF_ROW; };
    auto there = [&](u32 step, u32 i) {
        return column_of(i) < min(cols - from, EXACT_COLS) && piece_of(step, i) < pieces;
    };
    Raw next[OWN];
    auto fetch_w = [&](u32 step) {
#pragma unroll
        for (u32 i = 0; i < OWN; i++) {
            if (!there(step, i)) continue;
            const Job& job = job_of(a, from + column_of(i));
            u64 row = from + column_of(i) - job.first_block;
            next[i] = read_piece<KIND>(job.w, row * pieces + piece_of(step, i));
        }
    };
    auto unpack_w = [&](u32 step) {
        if (step >= steps) return;
#pragma unroll
        for (u32 i = 0; i < OWN; i++) {
            u32 row = column_of(i);
            if (row >= EXACT_COLS) continue;
            float values[PIECE] = {};
            if (there(step, i)) values_of_piece<KIND>(next[i], piece_of(step, i), values);
            float* to = ws + (step % 2 * EXACT_COLS + row) * STEP;
#pragma unroll
            for (u32 j = 0; j < PIECE; j += 4) {
                u32 four = (piece_of(0, i) * PIECE + j) / 4;
                *reinterpret_cast<float4*>(to + 4 * place_of(row, four)) = {values[j], values[j + 1], values[j + 2], values[j + 3]};
            }
        }
    };
    auto copy_x = [&](u32 step) {
        for (u32 i = thread; i < ROWS * (STEP / 4) && step < steps; i += EXACT_THREADS) {
            u32 row = i / (STEP / 4), column = i % (STEP / 4) * 4;
            bool is_there = first + row < a.rows && step * STEP + column < a.x.padded;
            u64 at = is_there ? static_cast<u64>(first + row) * a.x.padded + step * STEP + column : 0;
            copy_ahead(xs + (step % STAGES * ROWS + row) * PITCH + column, a.x.values + at, is_there);
        }
        end_of_copies();
    };

    // Weights do not wait for the kernel in front.
    fetch_w(0);
    follow();
    for (u32 step = 0; step + 1 < STAGES; step++) copy_x(step);
    unpack_w(0);
    fetch_w(1);
    u32 across = thread % SIDE, down = thread / SIDE % TALL, part = thread / (SIDE * TALL);
    bool is_narrow = cols - from <= SIDE;
    float sums[DOWN][ACROSS] = {};
    for (u32 step = 0; step < steps; step++) {
        await_copies<STAGES - 2>();
        __syncthreads();
        copy_x(step + STAGES - 1);
        const float* x = xs + (step % STAGES * ROWS + down) * PITCH;
        const float* w = ws + (step % 2 * EXACT_COLS + across) * STEP;
#pragma unroll
        for (u32 i = 0; i < STEP / 4 / PARTS; i++) {
            u32 four = i * PARTS + part;
            const float* weights = w + 4 * place_of(across, four);
            if (is_narrow) add_products<1>(sums, x + 4 * four, TALL * PITCH, weights, SIDE * STEP);
            else add_products<ACROSS>(sums, x + 4 * four, TALL * PITCH, weights, SIDE * STEP);
        }
        unpack_w(step + 1);
        fetch_w(step + 2);
    }
    // All steps are read: the parts take their place.
    __syncthreads();
#pragma unroll
    for (u32 i = 0; i < DOWN; i++)
#pragma unroll
        for (u32 j = 0; j < ACROSS; j++)
            shared[(part * ROWS + i * TALL + down) * EXACT_COLS + j * SIDE + across] = sums[i][j];
    __syncthreads();
    for (u32 i = thread; i < ROWS * EXACT_COLS; i += EXACT_THREADS) {
        u32 row = first + i / EXACT_COLS, column = from + i % EXACT_COLS;
        if (row >= a.rows || column >= cols) continue;
        float sum = 0.0f;
#pragma unroll
        for (u32 p = 0; p < PARTS; p++) sum += shared[p * ROWS * EXACT_COLS + i];
        const Job& job = job_of(a, column);
        job.out[static_cast<u64>(row) * job.w.rows + column - job.first_block] = sum;
    }
}

#define EXACT_KERNELS(kind)                                                                      \
    KERNEL_AHEAD(exact_##kind##_8, RESIDENT(EXACT_THREADS, 2), Product) { product_exact<kind, 8>(a); } \
    KERNEL_AHEAD(exact_##kind##_32, RESIDENT(EXACT_THREADS, 2), Product) { product_exact<kind, 32>(a); }

FOR_QUANTISED(EXACT_KERNELS)
FOR_NUMBERS(EXACT_KERNELS)
