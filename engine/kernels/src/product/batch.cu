// 9 to 64 rows of activations times a quantised matrix, on tensor cores, as fast as the weights come.
//
// A block multiplies 16 · DOWN weight rows by all rows of activations. Its warps share the depth: the units of each come
// into a ring of its own by copies that run ahead, so that no warp waits for another before the end. Weights become halves in
// registers, where the tensor cores want them. Lane 4r + c holds values 8c..8c + 8 of a group: of weight rows r and r + 8, and
// of token r. Any order along the depth is right that both sides have.

// The ring's units.
const u32 STAGES = 3;
// Scales are so much larger in between, for the small ones are not to be subnormal halves.
const float LARGER = 64.0f;
// Floats from token to token where warps add up: those of a warp lie in different banks.
const u32 SHARE_PITCH = 20;

// Bytes from row to row of a unit in the ring: an odd number of sixteens, so that eight rows lie in different banks.
template <int KIND>
DEVICE constexpr u32 unit_pitch() {
    return 16 * ((UNIT_BYTES / 16 + high_pieces<KIND>()) | 1);
}

// What is taken from each code as it lies in a byte without a sign, and 1024.
template <int KIND>
DEVICE constexpr u32 offset_halves() {
    return KIND == Q4_K || KIND == Q5_K ? 0x64006400u : KIND == Q4_0 ? 0x64086408u : KIND == Q6_K ? 0x64206420u : 0x64806480u;
}

// A group's scales and minima as halves: for each half of it (scale, min), or the scales of both. `g`: its number in its unit.
template <int KIND>
DEVICE uint2 scale_halves(const Raw& raw, u32 unit, u32 g) {
    float scale[2], min[2];
    scales_in_unit<KIND>(raw, unit, g, scale, min);
    if (!keeps_min<KIND>()) return {halves(scale[0] * LARGER, scale[1] * LARGER), 0};
    return {halves(scale[0] * LARGER, min[0] * LARGER), halves(scale[1] * LARGER, min[1] * LARGER)};
}

// Values 8c..8c + 8 of a group of a row, as bytes without a sign.
template <int KIND>
DEVICE uint2 codes_of_lane(const u8* row, u32 group, u32 c) {
    uint2 q = *reinterpret_cast<const uint2*>(row + (has_bytes<KIND>() ? 32 * group + 8 * c : 16 * group + c % 2 * 8));
    if (has_bytes<KIND>()) return {q.x ^ 0x80808080u, q.y ^ 0x80808080u};
    q = {q.x >> (c / 2 * 4) & 0x0f0f0f0fu, q.y >> (c / 2 * 4) & 0x0f0f0f0fu};
    if (KIND == IQ4_XS)
        q = {static_cast<u32>(iq4_of(q.x)) ^ 0x80808080u, static_cast<u32>(iq4_of(q.y)) ^ 0x80808080u};
    if (KIND == Q5_K) {
        u32 high = *reinterpret_cast<const u32*>(row + UNIT_BYTES + 4 * group) >> (2 * c);
        q = {q.x | (high & 0x01010101u) << 4, q.y | (high >> 1 & 0x01010101u) << 4};
    }
    if (KIND == Q6_K) {
        u32 high = *reinterpret_cast<const u32*>(row + UNIT_BYTES + 8 * group + c / 2 * 4) >> (c % 2 * 4);
        q = {q.x | (high & 0x03030303u) << 4, q.y | (high >> 2 & 0x03030303u) << 4};
    }
    return q;
}

// ACROSS times eight tokens.
template <int KIND, u32 DOWN, u32 WARPS, u32 ACROSS>
DEVICE void product_batch(const Product& a) {
    const u32 ROWS = 16 * DOWN, GROUPS = unit_groups<KIND>(), PITCH = unit_pitch<KIND>(), TOKENS = 8 * ACROSS;
    const u32 AHEAD = 2; // groups of activations that are on their way
    SHARED(u8, shared);
    u32 thread = threadIdx.x, lane = thread % 32, warp = thread / 32, r = lane / 4, c = lane % 4;
    u8* ring = shared + warp * STAGES * ROWS * PITCH;
    // Sixteen bytes a row, of two units: one is read while the other is made.
    u32* scales = reinterpret_cast<u32*>(shared + WARPS * STAGES * ROWS * PITCH) + warp * 2 * ROWS * 4;
    const Job& job = job_of(a, blockIdx.x);
    const Matrix& w = job.w;
    u32 column = (blockIdx.x - job.first_block) * ROWS, rows_of_w = w.rows;
    u32 first = blockIdx.y * TOKENS, last = min(a.rows, first + TOKENS);
    u64 offset = 0;
    if (a.experts.tiles && !tile_of_experts(a.experts, first, last, rows_of_w, offset)) return;
    u32 groups = w.cols / 32, units = (groups + GROUPS - 1) / GROUPS;

    // This lane's part of a unit: sixteen bytes of each eighth row; and of high bits, whose rows have whole units.
    const u32 HIGH = high_pieces<KIND>(), LANES = HIGH > 0 ? HIGH : 1, HIGH_ROWS = 32 / LANES;
    u64 row_bytes = static_cast<u64>(groups) * (UNIT_BYTES / GROUPS), high_bytes = static_cast<u64>(groups) * (4 * HIGH);
    const u8* own_codes = w.codes + (offset + column + r) * row_bytes + 16 * c;
    const u8* own_high = w.high + (offset + column + lane / LANES) * high_bytes + 16 * (lane % LANES);
    auto send = [&](u32 unit, u32 stage) {
        u8* to = ring + stage * ROWS * PITCH;
        if (unit < units) {
            bool has_group = unit * GROUPS + c * GROUPS / 4 < groups;
#pragma unroll
            for (u32 i = 0; i < ROWS; i += 8)
                copy_ahead(to + (i + r) * PITCH + 16 * c, own_codes + i * row_bytes + unit * UNIT_BYTES,
                           has_group && column + i + r < rows_of_w);
#pragma unroll
            for (u32 i = 0; i < ROWS && HIGH > 0; i += HIGH_ROWS)
                copy_ahead(to + (i + lane / LANES) * PITCH + UNIT_BYTES + 16 * (lane % LANES),
                           own_high + i * high_bytes + unit * (16 * HIGH), column + i + lane / LANES < rows_of_w);
        }
        end_of_copies();
    };
    Raw raw[DOWN / 2][GROUPS / scale_groups<KIND>()];
    auto read_raw = [&](u32 unit) {
#pragma unroll
        for (u32 i = 0; i < DOWN / 2; i++)
#pragma unroll
            for (u32 g = 0; g < GROUPS; g += scale_groups<KIND>()) {
                u64 row = offset + min(column + 32 * i + lane, rows_of_w - 1);
                u32 group = min(unit * GROUPS + g, groups - 1);
                if (unit < units) raw[i][g / scale_groups<KIND>()] = read_unit_scales<KIND>(w, row * groups + group);
            }
    };

    // Weights do not wait for the kernel in front.
    for (u32 i = 0; i + 1 < STAGES; i++) send(warp + i * WARPS, i);
    read_raw(warp);
    // Nor does what comes next, as far as the cache that all processors share.
    for (u32 row = warp; row < ROWS && column + row < rows_of_w; row += WARPS)
        bring_near(w.codes + (offset + column + row) * row_bytes, min(w.cols / 2, 2048u), lane, 32);
    follow();
    u32 x_rows[ACROSS];
#pragma unroll
    for (u32 j = 0; j < ACROSS; j++) {
        u32 row = min(first + 8 * j + r, last - 1);
        if (a.experts.source) row = a.experts.source[row];
        x_rows[j] = row * a.x.padded + 8 * c;
    }
    uint4 x[AHEAD][ACROSS];
    auto load_x = [&](uint4(&to)[ACROSS], u32 group) {
        u32 at = 32 * min(group, groups - 1);
#pragma unroll
        for (u32 j = 0; j < ACROSS; j++) to[j] = *reinterpret_cast<const uint4*>(a.x.high + (x_rows[j] + at));
    };
#pragma unroll
    for (u32 g = 0; g < AHEAD; g++) load_x(x[g], warp * GROUPS + g);

    float sums[DOWN][ACROSS][4] = {};
    for (u32 unit = warp, turn = 0; unit < units; unit += WARPS, turn++) {
        u32* of_unit = scales + turn % 2 * ROWS * 4;
#pragma unroll
        for (u32 i = 0; i < DOWN / 2; i++)
#pragma unroll
            for (u32 g = 0; g < GROUPS; g++) {
                uint2 both = scale_halves<KIND>(raw[i][g / scale_groups<KIND>()], unit, g);
                u32* to = of_unit + (32 * i + lane) * 4;
                if (KIND == WIDE) reinterpret_cast<uint2*>(to)[g] = both;
                else to[g] = both.x;
            }
        read_raw(unit + WARPS);
        await_copies<STAGES - 2>();
        warp_barrier();
        send(unit + (STAGES - 1) * WARPS, (turn + STAGES - 1) % STAGES);
        const u8* codes = ring + turn % STAGES * ROWS * PITCH;
#pragma unroll
        for (u32 g = 0; g < GROUPS; g++) {
            if (unit * GROUPS + g < groups)
#pragma unroll
                for (u32 i = 0; i < DOWN; i++) {
                    u32 steps[2][4];
#pragma unroll
                    for (u32 half = 0; half < 2; half++) {
                        u32 row = 16 * i + 8 * half + r;
                        uint2 q = codes_of_lane<KIND>(codes + row * PITCH, g, c);
                        u32 both = of_unit[row * 4 + (KIND == WIDE ? 2 * g + c / 2 : g)];
                        if (KIND == Q6_K) both >>= c / 2 * 16;
                        u32 scale = first_twice(both), min = second_twice(both);
                        auto value = [&](u32 codes, u32 selector) {
                            u32 code = minus_halves(bytes_by(codes, 0x64646464u, selector), offset_halves<KIND>());
                            return keeps_min<KIND>() ? fused_halves(code, scale, min) : times_halves(code, scale);
                        };
                        steps[0][half] = value(q.x, 0x4140);
                        steps[0][half + 2] = value(q.x, 0x4342);
                        steps[1][half] = value(q.y, 0x4140);
                        steps[1][half + 2] = value(q.y, 0x4342);
                    }
                    // Those of one sum wait for each other: they are apart.
#pragma unroll
                    for (u32 j = 0; j < ACROSS; j++) mma(sums[i][j], steps[0], {x[g % AHEAD][j].x, x[g % AHEAD][j].y});
#pragma unroll
                    for (u32 j = 0; j < ACROSS; j++) mma(sums[i][j], steps[1], {x[g % AHEAD][j].z, x[g % AHEAD][j].w});
                }
            bool is_behind = g + AHEAD >= GROUPS;
            load_x(x[g % AHEAD], (is_behind ? unit + WARPS : unit) * GROUPS + g + AHEAD - (is_behind ? GROUPS : 0));
        }
    }

    float* shares = reinterpret_cast<float*>(shared);
#pragma unroll
    for (u32 i = 0; i < DOWN; i++) {
        __syncthreads();
#pragma unroll
        for (u32 j = 0; j < ACROSS; j++)
#pragma unroll
            for (u32 n = 0; n < 4; n++)
                shares[(warp * TOKENS + 8 * j + 2 * c + n % 2) * SHARE_PITCH + n / 2 * 8 + r] = sums[i][j][n];
        __syncthreads();
        for (u32 at = thread; at < 16 * TOKENS; at += 32 * WARPS) {
            u32 token = at / 16, row = column + 16 * i + at % 16;
            if (first + token >= last || row >= rows_of_w) continue;
            float sum = 0.0f;
            for (u32 share = 0; share < WARPS; share++) sum += shares[(share * TOKENS + token) * SHARE_PITCH + at % 16];
            u32 from = a.experts.source ? a.experts.source[first + token] : first + token;
            sum *= a.x.row_scales[from] / LARGER;
            float* out = job.out + static_cast<u64>(first + token) * rows_of_w + row;
            *out = a.accumulate ? *out + sum : sum;
        }
    }
}

#define BATCH_KERNELS(kind)                                                                            \
    KERNEL_AHEAD(batch_##kind##_32_16, RESIDENT(256, 3), Product) { product_batch<kind, 2, 8, 2>(a); } \
    KERNEL_AHEAD(batch_##kind##_32_32, RESIDENT(256, 2), Product) { product_batch<kind, 2, 8, 4>(a); } \
    KERNEL_AHEAD(batch_##kind##_32_64, 256, Product) { product_batch<kind, 2, 8, 8>(a); }              \
    KERNEL_AHEAD(batch_##kind##_64_32, 128, Product) { product_batch<kind, 4, 4, 4>(a); }              \
    KERNEL_AHEAD(batch_##kind##_64_64, 128, Product) { product_batch<kind, 4, 4, 8>(a); }

FOR_QUANTISED(BATCH_KERNELS)
