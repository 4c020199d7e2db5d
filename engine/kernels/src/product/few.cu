// 2 to 8 rows of activations times a quantised matrix: integers by integers on tensor cores, so that each row means what it
// means alone.
//
// A block multiplies 32 weight rows by all rows of activations. Its warps share the depth: a unit of each comes into a ring of
// its own by copies that run ahead, the weights' and the activations', so that no warp waits for another before the end. Pieces
// of sixteen bytes lie where eight rows' are in different banks.

const u32 FEW_TOKENS = 8;
const u32 FEW_COLUMNS = 32;
const u32 FEW_STAGES = 2;
const u32 FEW_TILES = FEW_COLUMNS / 16;
// Bytes of a token's scales and sums in a unit.
const u32 SCALE_BYTES = 64;
// Floats from token to token where warps add up: those of a warp lie in different banks.
const u32 FEW_PITCH = 36;

// Parts of a stage, in bytes.
template <int KIND>
DEVICE constexpr u32 few_high() {
    return FEW_COLUMNS * UNIT_BYTES;
}

template <int KIND>
DEVICE constexpr u32 few_x() {
    return few_high<KIND>() + FEW_COLUMNS * 16 * high_pieces<KIND>();
}

template <int KIND>
DEVICE constexpr u32 few_scales() {
    return few_x<KIND>() + FEW_TOKENS * 32 * unit_groups<KIND>();
}

template <int KIND>
DEVICE constexpr u32 few_stage() {
    return few_scales<KIND>() + FEW_TOKENS * SCALE_BYTES;
}

// Of each weight row in a unit: four times a scale and a minimum, or the two scales of a group.
const u32 FEW_WEIGHT_SCALES = FEW_COLUMNS * 4 * sizeof(float2);

// The codes of a word of low bits, with its high bits if there are any, as signed bytes. `second`: of the group's second half.
template <int KIND>
DEVICE u32 signed_codes(u32 low, u32 high, bool second) {
    u32 codes = (second ? low >> 4 : low) & 0x0f0f0f0fu;
    if (KIND == IQ4_XS) return static_cast<u32>(iq4_of(codes));
    if (KIND == Q5_K) return codes | (high & 0x01010101u) << 4;
    // No byte borrows from the next one.
    if (KIND == Q6_K) return ((codes | (high & 0x03030303u) << 4 | 0x80808080u) - 0x20202020u) ^ 0x80808080u;
    if (KIND == Q4_0) return ((codes | 0x80808080u) - 0x08080808u) ^ 0x80808080u;
    return codes;
}

template <int KIND, u32 WARPS>
DEVICE void product_few(const Product& a) {
    const u32 GROUPS = unit_groups<KIND>(), HIGH = high_pieces<KIND>(), PIECES = HIGH > 0 ? HIGH : 1;
    const u32 STAGE = few_stage<KIND>();
    const u32 OF_WARP = FEW_STAGES * STAGE + FEW_WEIGHT_SCALES, X_PIECES = 2 * GROUPS;
    const bool IS_BYTES = has_bytes<KIND>(), HAS_TWO_SCALES = !has_one_scale<KIND>();
    // A row is whole units.
    const bool IS_WHOLE = !IS_BYTES && KIND != Q4_0;
    SHARED(u8, shared);
    u32 thread = threadIdx.x, lane = thread % 32, warp = thread / 32, r = lane / 4, c = lane % 4;
    u8* ring = shared + warp * OF_WARP;
    float2* weight_scales = reinterpret_cast<float2*>(ring + FEW_STAGES * STAGE); // [4, rows]
    const Job& job = job_of(a, blockIdx.x);
    const Matrix& w = job.w;
    u32 column = (blockIdx.x - job.first_block) * FEW_COLUMNS, groups = w.cols / 32, units = (groups + GROUPS - 1) / GROUPS;
    u32 row_bytes = groups * (UNIT_BYTES / GROUPS);
    // Where this lane's next pieces come from. What is not there is zeros.
    u32 rows_left = w.rows - column, of_high = lane / PIECES, of_x = lane / X_PIECES;
    const u8* codes = w.codes + static_cast<u64>(column + r) * row_bytes + 16 * c + warp * UNIT_BYTES;
    const u8* high = w.high + static_cast<u64>(column + of_high) * groups * (4 * HIGH) + lane % PIECES * 16 + warp * (16 * HIGH);
    const i8* x_codes = a.x.codes + of_x * a.x.padded + lane % X_PIECES * 16 + warp * (32 * GROUPS);
    const float* x_scales = (c < 2 ? a.x.scales : a.x.sums) + r * (a.x.padded / 16) + c % 2 * 4 + warp * (2 * GROUPS);
    Matrix scales = from_group<KIND>(w, static_cast<u64>(column + min(lane, rows_left - 1)) * groups);

    auto send_weights = [&](u32 unit, u8* to) {
        if (unit >= units) return;
        u8* to_codes = to + r * UNIT_BYTES + 16 * (c ^ r / 2);
#pragma unroll
        for (u32 i = 0; i < FEW_COLUMNS; i += 8)
            copy_ahead(to_codes + i * UNIT_BYTES, codes + i * row_bytes,
                       i + r < rows_left && (IS_WHOLE || unit * GROUPS + c * GROUPS / 4 < groups));
        codes += WARPS * UNIT_BYTES;
#pragma unroll
        for (u32 i = 0; i < HIGH; i++)
            copy_ahead(to + few_high<KIND>() + 16 * (32 * i + lane), high + i * (32 / PIECES) * groups * (4 * HIGH),
                       i * (32 / PIECES) + of_high < rows_left);
        high += WARPS * 16 * HIGH;
    };
    auto send_rows = [&](u32 unit, u8* to) {
        if (unit < units) {
            u8* to_x = to + few_x<KIND>();
#pragma unroll
            for (u32 i = 0; i < FEW_TOKENS; i += 32 / X_PIECES) {
                u32 place = lane % X_PIECES ^ (GROUPS == 4 ? of_x + i : of_x / 2);
                copy_ahead(to_x + (of_x + i) * (16 * X_PIECES) + 16 * place, x_codes + i * a.x.padded,
                           of_x + i < a.rows && (IS_WHOLE || unit * GROUPS + lane % X_PIECES / 2 < groups));
            }
            x_codes += WARPS * 32 * GROUPS;
            // Of each token pieces 0 and 1 are scales, 2 and 3 sums; a unit of two groups has one of each.
            if (c % 2 < GROUPS / 2)
                copy_ahead(to + few_scales<KIND>() + r * SCALE_BYTES + 16 * (c ^ r / 2), x_scales,
                           r < a.rows && (IS_WHOLE || unit * GROUPS + c % 2 * 2 < groups));
            x_scales += WARPS * 2 * GROUPS;
        }
        end_of_copies();
    };
    Raw raw[GROUPS / scale_groups<KIND>()];
    auto read_raw = [&](u32 unit) {
#pragma unroll
        for (u32 g = 0; g < GROUPS; g += scale_groups<KIND>()) {
            u32 group = IS_WHOLE ? unit * GROUPS + g : min(unit * GROUPS + g, groups - 1);
            if (unit < units) raw[g / scale_groups<KIND>()] = read_unit_scales<KIND>(scales, group);
        }
    };

    // Weights do not wait for the kernel in front.
#pragma unroll
    for (u32 i = 0; i < FEW_STAGES; i++) send_weights(warp + i * WARPS, ring + i * STAGE);
    read_raw(warp);
    follow();
#pragma unroll
    for (u32 i = 0; i < FEW_STAGES; i++) send_rows(warp + i * WARPS, ring + i * STAGE);

    // Where this lane's part of four pieces lies: of weight row and of token `lane % 8`.
    u32 own = lane % 8, w_row = (own + lane / 8 % 2 * 8) * UNIT_BYTES;
    float sums[FEW_TILES][4] = {};
    for (u32 unit = warp, turn = 0; unit < units; unit += WARPS, turn++) {
#pragma unroll
        for (u32 g = 0; g < GROUPS; g++) {
            float scale[2], min[2];
            scales_in_unit<KIND>(raw[g / scale_groups<KIND>()], unit, g, scale, min);
            if (KIND == WIDE) {
                weight_scales[(2 * g) * FEW_COLUMNS + lane] = {scale[0], min[0]};
                weight_scales[(2 * g + 1) * FEW_COLUMNS + lane] = {scale[1], min[1]};
            } else {
                weight_scales[g * FEW_COLUMNS + lane] = {scale[0], HAS_TWO_SCALES ? scale[1] : min[0]};
            }
        }
        read_raw(unit + WARPS);
        await_copies<FEW_STAGES - 1>();
        warp_barrier();
        u8* stage = ring + turn % FEW_STAGES * STAGE;
        u32 x[4];
#pragma unroll 1
        for (u32 pair = 0; pair < 2; pair++) {
            u32 codes[FEW_TILES][4];
#pragma unroll
            for (u32 i = 0; i < FEW_TILES; i++)
                load_matrices(codes[i], stage + i * 16 * UNIT_BYTES + w_row + 16 * ((2 * pair + lane / 16) ^ own / 2));
            if (!IS_BYTES || pair == 0) {
                u32 piece = 4 * pair + lane / 8;
                load_matrices(x, stage + few_x<KIND>() + own * (16 * X_PIECES) + 16 * (piece ^ (GROUPS == 4 ? own : own / 2)));
            }
#pragma unroll
            for (u32 part = 0; part < (IS_BYTES ? 1 : 2); part++) {
                u32 g = IS_BYTES ? pair : 2 * pair + part, half_of_x = IS_BYTES ? 2 * pair : 2 * part;
                const u8* of_tokens = stage + few_scales<KIND>() + 2 * c * SCALE_BYTES + 8 * (g % 2);
                float2 x_scale[2], x_sum[2];
#pragma unroll
                for (u32 token = 0; token < 2; token++) {
                    x_scale[token] = *reinterpret_cast<const float2*>(of_tokens + token * SCALE_BYTES + 16 * (g / 2 ^ c));
                    if (keeps_min<KIND>())
                        x_sum[token] = *reinterpret_cast<const float2*>(of_tokens + token * SCALE_BYTES + 16 * ((2 + g / 2) ^ c));
                }
#pragma unroll
                for (u32 i = 0; i < FEW_TILES; i++) {
                    u32 low[2], high[2];
                    float first[4], second[4];
#pragma unroll
                    for (u32 half = 0; half < 2; half++) {
                        if (IS_BYTES) {
                            low[half] = codes[i][half];
                            high[half] = codes[i][2 + half];
                            continue;
                        }
                        const u8* bits = stage + few_high<KIND>() + (16 * i + 8 * half + r) * (16 * HIGH);
                        u32 of_low = 0, of_high = 0;
                        if (KIND == Q5_K) {
                            u32 both = *reinterpret_cast<const u32*>(bits + 4 * g);
                            of_low = both >> c, of_high = both >> (4 + c);
                        }
                        if (KIND == Q6_K) {
                            uint2 both = *reinterpret_cast<const uint2*>(bits + 8 * g);
                            of_low = both.x >> (2 * c), of_high = both.y >> (2 * c);
                        }
                        low[half] = signed_codes<KIND>(codes[i][2 * part + half], of_low, false);
                        high[half] = signed_codes<KIND>(codes[i][2 * part + half], of_high, true);
                    }
                    products_of_codes(first, low, x[half_of_x]);
                    products_of_codes(second, high, x[half_of_x + 1]);
#pragma unroll
                    for (u32 half = 0; half < 2; half++) {
                        const float2* of_row = weight_scales + 16 * i + 8 * half + r;
                        float2 scale = of_row[(KIND == WIDE ? 2 * g : g) * FEW_COLUMNS], other = scale;
                        if (KIND == WIDE) other = of_row[(2 * g + 1) * FEW_COLUMNS];
#pragma unroll
                        for (u32 token = 0; token < 2; token++) {
                            float& sum = sums[i][2 * half + token];
                            float a_first = x_scale[token].x * first[2 * half + token];
                            float a_second = x_scale[token].y * second[2 * half + token];
                            if (KIND == WIDE) sum += scale.x * a_first + other.x * a_second;
                            else if (HAS_TWO_SCALES) sum += scale.x * a_first + scale.y * a_second;
                            else sum += scale.x * (a_first + a_second);
                            if (KIND == WIDE) sum += scale.y * x_sum[token].x + other.y * x_sum[token].y;
                            else if (keeps_min<KIND>()) sum += scale.y * (x_sum[token].x + x_sum[token].y);
                        }
                    }
                }
            }
        }
        // All lanes have read the stage.
        warp_barrier();
        send_weights(unit + FEW_STAGES * WARPS, stage);
        send_rows(unit + FEW_STAGES * WARPS, stage);
    }

    float* own_sums = reinterpret_cast<float*>(ring);
#pragma unroll
    for (u32 i = 0; i < FEW_TILES; i++)
#pragma unroll
        for (u32 n = 0; n < 4; n++) own_sums[(2 * c + n % 2) * FEW_PITCH + 16 * i + n / 2 * 8 + r] = sums[i][n];
    __syncthreads();
    for (u32 at = thread; at < FEW_COLUMNS * a.rows; at += 32 * WARPS) {
        u32 token = at / FEW_COLUMNS, row = at % FEW_COLUMNS;
        if (column + row >= w.rows) continue;
        float sum = 0.0f;
#pragma unroll
        for (u32 share = 0; share < WARPS; share++)
            sum += reinterpret_cast<const float*>(shared + share * OF_WARP)[token * FEW_PITCH + row];
        float* out = job.out + static_cast<u64>(token) * w.rows + column + row;
        *out = a.accumulate ? *out + sum : sum;
    }
}

#define FEW_KERNELS(kind)                                                               \
    KERNEL_AHEAD(few_##kind##_8, RESIDENT(256, 3), Product) { product_few<kind, 8>(a); } \
    KERNEL_AHEAD(few_##kind##_16, 512, Product) { product_few<kind, 16>(a); }

FOR_QUANTISED(FEW_KERNELS)
