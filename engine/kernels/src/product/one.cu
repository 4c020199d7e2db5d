// One row of activations times a quantised matrix, which is what a written token waits for: a warp has two weight rows, or its
// share of them where several warps share the columns.
//
// The memory is at work only while enough is asked of it. So a lane asks for the groups of four steps before it uses the first:
// that is most of its share, and other warps have theirs on the way while it computes.

const u32 ONE_WARPS = 4;
const u32 ONE_ROWS = 2;
const u32 ONE_STEPS = 4;
// Laps ahead of a block for which it brings weights near. A lap: the blocks that are at work at once.
const u32 ONE_LAPS = 3;

// A group of a row of activations as 8-bit integers.
struct Codes {
    uint4 first, second;
    float2 scale, sums;
};

DEVICE Codes codes_at(const uint4* codes, const float2* scales, const float2* sums, u32 group, bool with_sums) {
    Codes out;
    out.first = codes[2 * group];
    out.second = codes[2 * group + 1];
    out.scale = scales[group];
    if (with_sums) out.sums = sums[group];
    return out;
}

// What a lane adds for one group of one weight row. Where both halves of a group have one scale it is multiplied in once.
template <int KIND>
DEVICE float times_group(const Group& w, const Codes& x) {
    const bool IS_ONE = has_one_scale<KIND>();
    int low = dot4(w.q[0], x.first.x, dot4(w.q[1], x.first.y, dot4(w.q[2], x.first.z, dot4(w.q[3], x.first.w, 0))));
    int high = dot4(w.q[4], x.second.x, dot4(w.q[5], x.second.y, dot4(w.q[6], x.second.z, dot4(w.q[7], x.second.w, 0))));
    float first = x.scale.x * static_cast<float>(low), second = x.scale.y * static_cast<float>(high);
    float sum = IS_ONE ? w.scale[0] * (first + second) : w.scale[0] * first + w.scale[1] * second;
    if (has_min<KIND>()) sum += IS_ONE ? w.min[0] * (x.sums.x + x.sums.y) : w.min[0] * x.sums.x + w.min[1] * x.sums.y;
    return sum;
}

// The sums of two numbers over a warp: of the first for lanes below 16, of the second for the others.
DEVICE float sums_of_two(float first, float second, u32 lane) {
    float own = lane < 16 ? first : second;
    own += shuffle_xor(lane < 16 ? second : first, 16);
    for (u32 mask = 8; mask > 0; mask >>= 1) own += shuffle_xor(own, mask);
    return own;
}

template <int KIND>
DEVICE void product_one(const Product& a) {
    __shared__ float shares[ONE_WARPS][ONE_ROWS];
    const Job& job = job_of(a, blockIdx.x);
    const Matrix& w = job.w;
    // One, two or four warps share a row.
    u32 sharing = a.warps_of_row, shift = sharing / 2;
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, share = warp & (sharing - 1);
    u32 rows_of_block = ONE_WARPS * ONE_ROWS >> shift;
    u32 first = (blockIdx.x - job.first_block) * rows_of_block + (warp >> shift) * ONE_ROWS;
    // With experts the rows of each row's expert lie behind those of the experts before.
    if (a.experts.of_row) follow();
    u32 rows = a.experts.of_row ? a.experts.rows_of_one : w.rows;
    u64 offset = a.experts.of_row ? static_cast<u64>(a.experts.of_row[blockIdx.y]) * rows : 0;
    u32 valid = first < rows ? min(rows - first, ONE_ROWS) : 0;
    // A share is whole steps of a warp, one group a lane.
    u32 groups = w.cols / 32, groups_of_share = ((groups + 31) / 32 + sharing - 1 >> shift) * 32;
    u32 from = share * groups_of_share + lane, end = min(groups, (share + 1) * groups_of_share);
    u32 steps = valid > 0 && from < end ? (end - from + 31) / 32 : 0;
    Matrix own[ONE_ROWS];
#pragma unroll
    for (u32 r = 0; r < ONE_ROWS; r++)
        own[r] = from_group<KIND>(w, (offset + first + (r < valid ? r : 0)) * static_cast<u64>(groups) + from);
    Raw ahead[ONE_STEPS][ONE_ROWS];
    auto ask = [&](u32 left) {
#pragma unroll
        for (u32 i = 0; i < ONE_STEPS; i++)
            if (i < left)
#pragma unroll
                for (u32 r = 0; r < ONE_ROWS; r++) ahead[i][r] = read_group<KIND>(own[r], 32 * i);
    };
    ask(steps);
    // Blocks that come later find the memory's work done: kernels in front are often small and leave it idle. The first blocks
    // bring near what the next ones need too.
    u32 from_lap = blockIdx.x < a.blocks_at_once ? 1 : ONE_LAPS;
    for (u32 lap = from_lap; lap <= ONE_LAPS && lane == 0 && share == 0; lap++) {
        u32 later = first + lap * a.blocks_at_once * rows_of_block;
        if (later + ONE_ROWS <= rows)
            bring_all_near(w.codes + (offset + later) * code_bytes<KIND>(w), ONE_ROWS * code_bytes<KIND>(w));
    }
    follow();
    u32 x_row = a.experts.source ? a.experts.source[blockIdx.y] : blockIdx.y;
    u64 x_from = static_cast<u64>(x_row) * a.x.padded / 32 + from;
    const uint4* codes = reinterpret_cast<const uint4*>(a.x.codes) + 2 * x_from;
    const float2* scales = reinterpret_cast<const float2*>(a.x.scales) + x_from;
    const float2* code_sums = reinterpret_cast<const float2*>(a.x.sums) + x_from;
    float sums[ONE_ROWS] = {};
    while (true) {
#pragma unroll
        for (u32 i = 0; i < ONE_STEPS; i++)
            if (i < steps) {
                Codes x = codes_at(codes, scales, code_sums, 32 * i, has_min<KIND>());
#pragma unroll
                for (u32 r = 0; r < ONE_ROWS; r++) sums[r] += times_group<KIND>(group_of<KIND>(ahead[i][r], from), x);
            }
        if (steps <= ONE_STEPS) break;
        steps -= ONE_STEPS;
        codes += 2 * 32 * ONE_STEPS;
        scales += 32 * ONE_STEPS;
        code_sums += 32 * ONE_STEPS;
#pragma unroll
        for (u32 r = 0; r < ONE_ROWS; r++) own[r] = from_group<KIND>(own[r], 32 * ONE_STEPS);
        ask(steps);
    }
    float sum = sums_of_two(sums[0], sums[1], lane);
    u32 r = lane / 16;
    if (sharing > 1) {
        if (lane % 16 == 0) shares[warp][r] = sum;
        __syncthreads();
        sum = 0.0f;
        for (u32 i = 0; i < sharing && share == 0; i++) sum += shares[warp + i][r];
    }
    if (lane % 16 > 0 || share > 0 || r >= valid) return;
    float* out = job.out + static_cast<u64>(blockIdx.y) * rows + first + r;
    *out = a.accumulate ? *out + sum : sum;
}

#define ONE_KERNEL(kind) \
    KERNEL_AHEAD(one_##kind, ONE_WARPS * 32, Product) { product_one<kind>(a); }

FOR_QUANTISED(ONE_KERNEL)
