// What both products are given: rows of activations, and up to four matrices of one kind that read them.

struct Job {
    Matrix w;
    float* out;      // [rows, w.rows]
    u32 first_block; // of the grid's x
    u32 unused;
};

// Which weights a row meets where there are experts: the matrix holds all experts' rows, one after the other.
struct Experts {
    const u32* source; // the row of x that output row p reads
    const u32* of_row; // the expert of output row p
    const u32* tiles;  // for products by tiles: [number of tiles, then of each its first row, its rows and its expert]
    u32 rows_of_one;   // rows of one expert's matrix
    u32 unused[3];     // what the host alone has to know
};

struct Product {
    Job jobs[4];
    Rows x;
    Experts experts;
    u32 count; // jobs
    u32 rows;  // of the output
    u32 accumulate;
    u32 passes;       // by tiles: 1, or 3 for products of both halves
    u32 warps_of_row; // by warps: 1, or 2 or 4 that share the columns
    u32 blocks_at_once; // about as many as are at work together
};

DEVICE const Job& job_of(const Product& a, u32 block) {
    u32 job = 0;
    while (job + 1 < a.count && block >= a.jobs[job + 1].first_block) job++;
    return a.jobs[job];
}

// Finds a block's tile where there are experts: its rows, and the weight rows of its expert. False: there is none.
DEVICE bool tile_of_experts(const Experts& experts, u32& first, u32& last, u32& rows_of_w, u64& offset) {
    follow();
    if (blockIdx.y >= experts.tiles[0]) return false;
    const u32* tile = experts.tiles + 1 + 3 * blockIdx.y;
    first = tile[0];
    last = first + tile[1];
    rows_of_w = experts.rows_of_one;
    offset = static_cast<u64>(tile[2]) * rows_of_w;
    return true;
}

// A lane's pairs of one row of the output: pair j at columns first + 8j. What is added to is asked for before any of it is
// written.
template <u32 PAIRS>
DEVICE void write_pairs(float* row, u32 first, u32 cols, bool accumulate, const float (&values)[2 * PAIRS]) {
    if (cols % 2 == 0 && first + 8 * PAIRS - 6 <= cols) {
        float2* to = reinterpret_cast<float2*>(row + first);
        float2 before[PAIRS] = {};
        if (accumulate)
#pragma unroll
            for (u32 j = 0; j < PAIRS; j++) before[j] = to[4 * j];
#pragma unroll
        for (u32 j = 0; j < PAIRS; j++) to[4 * j] = {before[j].x + values[2 * j], before[j].y + values[2 * j + 1]};
        return;
    }
#pragma unroll
    for (u32 j = 0; j < PAIRS; j++)
#pragma unroll
        for (u32 part = 0; part < 2; part++) {
            u32 at = first + 8 * j + part;
            if (at < cols) row[at] = accumulate ? row[at] + values[2 * j + part] : values[2 * j + part];
        }
}

// Values of a piece of a row: a group, or eight numbers.
template <int KIND>
DEVICE constexpr u32 piece_len() {
    return is_quantised<KIND>() ? 32 : 8;
}

// Pieces of a row.
template <int KIND>
DEVICE u32 pieces_of(const Matrix& w) {
    return is_quantised<KIND>() ? w.cols / 32 : w.stride / 8;
}

// `piece` counts through all of the matrix.
template <int KIND>
DEVICE Raw read_piece(const Matrix& w, u64 piece) {
    return is_quantised<KIND>() ? read_group<KIND>(w, piece) : read_eight<KIND>(w, piece);
}

// LEN values of a weight row on their way.
template <int KIND, u32 LEN>
struct Fetched {
    Raw pieces[LEN / piece_len<KIND>()];
};

template <int KIND, u32 LEN>
DEVICE void fetch(Fetched<KIND, LEN>& next, const Matrix& w, u64 row, bool there, u32 first) {
    u32 pieces = pieces_of<KIND>(w), piece = first / piece_len<KIND>();
#pragma unroll
    for (u32 i = 0; i < LEN / piece_len<KIND>(); i++)
        if (there && piece + i < pieces) next.pieces[i] = read_piece<KIND>(w, row * pieces + piece + i);
}

// As halves, eight at a time, into the places that `place` names; `low`: what the halves leave. Zeros where there is nothing.
template <int KIND, u32 LEN, class Place>
DEVICE void unpack(const Fetched<KIND, LEN>& next, const Matrix& w, bool there, u32 first, bool low, Place place) {
    const u32 PIECE = piece_len<KIND>();
#pragma unroll
    for (u32 i = 0; i < LEN / PIECE; i++) {
        float values[PIECE] = {};
        u32 piece = first / PIECE + i;
        if (there && piece < pieces_of<KIND>(w)) values_of_piece<KIND>(next.pieces[i], piece, values);
        if (low)
#pragma unroll
            for (u32 j = 0; j < PIECE; j++) values[j] -= half_to_float(float_to_half(values[j]));
#pragma unroll
        for (u32 j = 0; j < PIECE; j += 8)
            *place((i * PIECE + j) / 8) = {halves(values[j], values[j + 1]), halves(values[j + 2], values[j + 3]),
                                           halves(values[j + 4], values[j + 5]), halves(values[j + 6], values[j + 7])};
    }
}
