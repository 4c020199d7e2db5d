// Positions that are worked on together, on their way from the pages into shared memory, where they are halves.

struct Attend {
    Heads heads;
    float* partial; // [splits, rows, q heads, dim], sums that are not divided yet
    float2* stats;  // [splits, rows, q heads]: the largest score and the sum of weights
    u32 rows, splits, row_tiles, unused;
};

// Halves from row to row of a tile: eight rows lie in different banks.
template <u32 DIM>
DEVICE constexpr u32 pitch_of() {
    return DIM + 8;
}

enum Loading {
    DIRECT,  // halves come into their place by themselves
    STAGED,  // blocks come as they are, and become halves when they have come
    AT_ONCE, // numbers that become halves on their way
};

DEVICE bool is_of_blocks(u32 kind) { return kind == Q8_0 || kind == Q4_0 || kind == TQ4 || kind == TQ3; }

DEVICE u32 loading_of(const Lane& lane) {
    if (lane.key_kind == F16 && lane.value_kind == F16) return DIRECT;
    return is_of_blocks(lane.key_kind) && is_of_blocks(lane.value_kind) ? STAGED : AT_ONCE;
}

// Keys or values of one head, and their places in shared memory: as halves, and as blocks that are none yet.
struct Past {
    const Heads* heads;
    const Lane* lane;
    u32 kv_head, end, loading;
    bool value;
    u16* tile;
    u8* raw;
};

DEVICE const u8* rows_at(const Past& past, u32 first) {
    return row_in_page(*past.heads, *past.lane, first, past.kv_head, past.value);
}

DEVICE u32 kind_of(const Past& past) { return past.value ? past.lane->value_kind : past.lane->key_kind; }

// Asks for positions first..first + TILE, up to the end, without waiting for them. The rows of a tile lie in one page.
template <u32 DIM, u32 TILE>
DEVICE void ask(const Past& past, u32 first) {
    u32 loading = past.loading;
    if (first < past.end) {
        const u8* rows = rows_at(past, first);
        u32 count = min(TILE, past.end - first), bytes = count * bytes_of_values(kind_of(past), DIM);
        for (u32 i = threadIdx.x; i < TILE * (DIM / 8) && loading == DIRECT; i += blockDim.x)
            copy_ahead(past.tile + i / (DIM / 8) * pitch_of<DIM>() + i % (DIM / 8) * 8, rows + 16 * i, i / (DIM / 8) < count);
        for (u32 i = 16 * threadIdx.x; i < bytes && loading == STAGED; i += 16 * blockDim.x) copy_ahead(past.raw + i, rows + i, true);
    }
    end_of_copies();
}

// The same positions as far as the shared cache, for a kernel that may not read them yet: the last of them may still be written.
template <u32 DIM, u32 TILE>
DEVICE void bring_tile_near(const Past& past, u32 first) {
    u32 bytes = min(TILE, past.end - first) * bytes_of_values(kind_of(past), DIM);
    bring_near(rows_at(past, first), bytes, threadIdx.x, blockDim.x);
}

// Four codes of a block as halves: to 1024 and what the byte says, of which `zero` is taken away, times the scale.
DEVICE uint2 four_halves(u32 four, u32 zero, u32 scale) {
    const u32 THOUSANDS = 0x64646464u;
    uint2 out;
    out.x = times_halves(minus_halves(bytes_by(four, THOUSANDS, 0x4140u), zero), scale);
    out.y = times_halves(minus_halves(bytes_by(four, THOUSANDS, 0x4342u), zero), scale);
    return out;
}

// Rows of blocks as halves. Eight rows and four blocks of each are a warp's: so they lie in different banks, where they are
// read and where they are written.
template <u32 DIM, u32 TILE, bool EIGHT_BITS>
DEVICE void blocks_to_halves(const u8* rows, u32 count, u16* tile) {
    const u32 BLOCKS = DIM / 32, BYTES = EIGHT_BITS ? 34 : 18, WORDS = EIGHT_BITS ? 8 : 4;
    for (u32 i = threadIdx.x; i < TILE * BLOCKS; i += blockDim.x) {
        u32 row = i % 8 + i / (8 * BLOCKS) * 8, block = i / 8 % BLOCKS;
        uint2 out[8] = {};
        if (row < count) {
            // Every other block begins in the middle of a word. There are as many of both, so that the last one ends with one.
            u32 start = (row * BLOCKS + block) * BYTES;
            const u32* words = reinterpret_cast<const u32*>(rows) + start / 4;
            u32 before = words[0], selector = start % 4 ? 0x7654u : 0x5432u;
            u32 scale = bytes_by(before, 0, start % 4 ? 0x3232u : 0x1010u);
#pragma unroll
            for (u32 j = 0; j < WORDS; j++) {
                u32 next = words[j + 1], four = bytes_by(before, next, selector);
                before = next;
                if (EIGHT_BITS) out[j] = four_halves(four ^ 0x80808080u, 0x64806480u, scale);
                else {
                    out[j] = four_halves(four & 0x0f0f0f0fu, 0x64086408u, scale);
                    out[j + 4] = four_halves(four >> 4 & 0x0f0f0f0fu, 0x64086408u, scale);
                }
            }
        }
        uint4* to = reinterpret_cast<uint4*>(tile + row * pitch_of<DIM>() + block * 32);
#pragma unroll
        for (u32 j = 0; j < 4; j++) to[j] = {out[2 * j].x, out[2 * j].y, out[2 * j + 1].x, out[2 * j + 1].y};
    }
}

// Two bytes of a row at an even place.
DEVICE u32 two_bytes(const u8* from) { return *reinterpret_cast<const u16*>(from); }

// Levels of four codes as halves, in two words of neighbours. `selector` has the codes' numbers, four bits each; the tables have
// lower and upper bytes of the levels.
DEVICE void look_up(u32 selector, const u32* lower, const u32* upper, u32& low, u32& high) {
    low = bytes_by(lower[0], lower[1], selector);
    high = bytes_by(upper[0], upper[1], selector);
}

// Rows of levels as halves, with a group of 32 values a thread.
template <u32 DIM, u32 TILE, bool FOUR_BITS>
DEVICE void levels_to_halves(const u8* rows, u32 count, u16* tile) {
    const u32 GROUPS = DIM / 32, BYTES = FOUR_BITS ? 2 + DIM / 2 : 2 + DIM / 8 * 3;
    const u32 LOWER[2] = {FOUR_BITS ? 0x8A41351Cu : 0x4E600CD8u, FOUR_BITS ? 0x77237906u : 0u};
    const u32 UPPER[2] = {FOUR_BITS ? 0x3B393630u : 0x403D3A33u, FOUR_BITS ? 0x41403E3Du : 0u};
    for (u32 i = threadIdx.x; i < TILE * GROUPS; i += blockDim.x) {
        u32 row = i % 8 + i / (8 * GROUPS) * 8, group = i / 8 % GROUPS;
        u32 out[16] = {}; // pairs of neighbours
        if (row < count) {
            const u8* from = rows + row * BYTES;
            u32 scale = two_bytes(from);
            scale |= scale << 16;
            const u8* codes = from + 2 + group * (FOUR_BITS ? 16 : 8);
            u32 low, high;
            if (FOUR_BITS) {
#pragma unroll
                for (u32 j = 0; j < 8; j++) {
                    // Values 2j and 2j + 1, and those sixteen further, alternate.
                    u32 four = two_bytes(codes + 2 * j);
                    look_up(four & 0x7777u, LOWER, UPPER, low, high);
                    u32 near = bytes_by(low, high, 0x6240u) ^ ((four & 0x8u) << 12 | (four & 0x800u) << 20);
                    u32 far = bytes_by(low, high, 0x7351u) ^ ((four & 0x80u) << 8 | (four & 0x8000u) << 16);
                    out[j] = times_halves(near, scale);
                    out[j + 8] = times_halves(far, scale);
                }
            } else {
                const u8* signs = from + 2 + DIM / 4 + group * 4;
#pragma unroll
                for (u32 j = 0; j < 8; j++) {
                    u32 four = codes[j], sign = static_cast<u32>(signs[j / 2]) >> (j % 2 * 4);
                    u32 selector = (four & 0x3u) | (four & 0xCu) << 2 | (four & 0x30u) << 4 | (four & 0xC0u) << 6;
                    look_up(selector, LOWER, UPPER, low, high);
                    u32 near = bytes_by(low, high, 0x5140u) ^ ((sign & 1u) << 15 | (sign & 2u) << 30);
                    u32 far = bytes_by(low, high, 0x7362u) ^ ((sign & 4u) << 13 | (sign & 8u) << 28);
                    out[2 * j] = times_halves(near, scale);
                    out[2 * j + 1] = times_halves(far, scale);
                }
            }
        }
        uint4* to = reinterpret_cast<uint4*>(tile + row * pitch_of<DIM>() + group * 32);
#pragma unroll
        for (u32 j = 0; j < 4; j++) to[j] = {out[4 * j], out[4 * j + 1], out[4 * j + 2], out[4 * j + 3]};
    }
}

template <u32 DIM, u32 TILE>
DEVICE void numbers_to_halves(const u8* rows, u32 kind, u32 count, u16* tile) {
    for (u32 i = threadIdx.x; i < TILE * (DIM / 8); i += blockDim.x) {
        u32 row = i / (DIM / 8), part = i % (DIM / 8);
        uint4 eight = {0, 0, 0, 0};
        if (row < count && kind == F32) {
            float4 low = reinterpret_cast<const float4*>(rows)[2 * i], high = reinterpret_cast<const float4*>(rows)[2 * i + 1];
            eight = {halves(low.x, low.y), halves(low.z, low.w), halves(high.x, high.y), halves(high.z, high.w)};
        } else if (row < count) {
            eight = reinterpret_cast<const uint4*>(rows)[i];
        }
        if (kind == BF16) {
            u32 pairs[4] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
            for (u32 j = 0; j < 4; j++)
                pairs[j] = halves(bf16_to_float(static_cast<u16>(pairs[j])), bf16_to_float(static_cast<u16>(pairs[j] >> 16)));
            eight = {pairs[0], pairs[1], pairs[2], pairs[3]};
        }
        reinterpret_cast<uint4*>(tile + row * pitch_of<DIM>())[part] = eight;
    }
}

// What was asked for and has come becomes halves; zeros behind the end.
template <u32 DIM, u32 TILE>
DEVICE void make_halves(const Past& past, u32 first) {
    u32 loading = past.loading;
    if (loading == DIRECT) return;
    u32 count = first < past.end ? min(TILE, past.end - first) : 0, kind = kind_of(past);
    const u8* rows = rows_at(past, first);
    const u8* from = loading == STAGED ? past.raw : rows;
    if (kind == Q8_0) blocks_to_halves<DIM, TILE, true>(from, count, past.tile);
    else if (kind == Q4_0) blocks_to_halves<DIM, TILE, false>(from, count, past.tile);
    else if (kind == TQ4) levels_to_halves<DIM, TILE, true>(from, count, past.tile);
    else if (kind == TQ3) levels_to_halves<DIM, TILE, false>(from, count, past.tile);
    else numbers_to_halves<DIM, TILE>(rows, kind, count, past.tile);
}

// Bytes of a tile as halves, and of a second place: for the other tile, or for blocks of keys and of values.
template <u32 DIM, u32 TILE>
DEVICE constexpr u32 tile_bytes() {
    return TILE * pitch_of<DIM>() * 2;
}

template <u32 DIM, u32 TILE>
DEVICE constexpr u32 second_bytes() {
    return tile_bytes<DIM, TILE>() > TILE * (DIM / 32) * 68 ? tile_bytes<DIM, TILE>() : TILE * (DIM / 32) * 68;
}

// Some rows of a block: tokens of a lane times the query heads that share a key head.
struct OfBlock {
    u32 kv_head, first_token, group, used; // `used`: rows; 0 where the lane has no more
    u32 end;                               // of the positions that they see
    u32 begin, behind;                     // the tiles of this part of the past
};

template <u32 ROWS, u32 TILE>
DEVICE OfBlock block_of(const Attend& a, const Lane& lane) {
    OfBlock block;
    block.group = a.heads.q_heads / a.heads.kv_heads;
    u32 tokens = ROWS / block.group, split = blockIdx.y;
    block.kv_head = blockIdx.x / a.row_tiles;
    block.first_token = blockIdx.x % a.row_tiles * tokens;
    block.used = block.first_token < lane.count ? min(tokens, lane.count - block.first_token) * block.group : 0;
    block.end = lane.position + block.first_token + block.used / block.group;
    u32 tiles = (block.end + TILE - 1) / TILE;
    block.begin = split * tiles / a.splits;
    block.behind = (split + 1) * tiles / a.splits;
    return block;
}

// A block's keys, or its values, where `places` has room for a tile and a second place.
template <u32 DIM, u32 TILE>
DEVICE Past past_of(const Heads& h, const Lane& lane, const OfBlock& block, bool value, u16* places) {
    u32 loading = loading_of(lane);
    u8* second = reinterpret_cast<u8*>(places) + tile_bytes<DIM, TILE>();
    bool has_own_tile = value && loading == DIRECT;
    u8* raw = value ? second + TILE * (DIM / 32) * 34 : second;
    return {&h, &lane, block.kv_head, block.end, loading, value, has_own_tile ? reinterpret_cast<u16*>(second) : places, raw};
}

// The query head's row, and where its answer goes.
DEVICE u64 head_of(const Heads& h, const Lane& lane, const OfBlock& block, u32 row) {
    u64 token = lane.first + block.first_token + row / block.group;
    return token * h.q_heads + block.kv_head * block.group + row % block.group;
}

// How many positions a row sees.
DEVICE u32 seen_by(const Lane& lane, const OfBlock& block, u32 row) {
    return row < block.used ? lane.position + block.first_token + row / block.group + 1 : 0;
}

// Scores are powers of two: what queries are multiplied with.
template <u32 DIM>
DEVICE float score_scale() {
    return 1.44269504f / sqrtf(static_cast<float>(DIM));
}

// The queries of a block as halves, 16 bytes a thread.
template <u32 DIM, u32 ROWS>
DEVICE void load_queries(const Heads& h, const Lane& lane, const OfBlock& block, u16* queries) {
    float scale = score_scale<DIM>();
    for (u32 i = threadIdx.x; i < ROWS * (DIM / 8); i += blockDim.x) {
        u32 row = i / (DIM / 8), part = i % (DIM / 8);
        uint4 eight = {0, 0, 0, 0};
        if (row < block.used) {
            const float4* q = reinterpret_cast<const float4*>(h.q + head_of(h, lane, block, row) * 2 * DIM) + 2 * part;
            float4 low = q[0], high = q[1];
            eight = {halves(low.x * scale, low.y * scale), halves(low.z * scale, low.w * scale),
                     halves(high.x * scale, high.y * scale), halves(high.z * scale, high.w * scale)};
        }
        reinterpret_cast<uint4*>(queries + row * pitch_of<DIM>())[part] = eight;
    }
}
