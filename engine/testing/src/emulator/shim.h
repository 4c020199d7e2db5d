// Runs a kernel's source on the CPU: each thread of a block is a fiber, blocks go one after another. Stands in front of
// the source, with the names that the prelude has on a GPU. For tests: exact about what waits for what, slow.

#define EMULATED 1
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

#define __global__
#define __device__
#define __forceinline__ inline
#define __restrict__
#define __align__(n) alignas(n)
#define __shared__ static thread_local
#define DEVICE static inline
#define KERNEL_AHEAD(name, threads, Args)                                                      \
    static void name##_of(const Args& a);                                                      \
    extern "C" unsigned name##_bytes;                                                          \
    unsigned name##_bytes = sizeof(Args);                                                      \
    extern "C" void name(const void* raw) {                                                    \
        if (emulator::block_dim.x != threads) emulator::fail("launched with other threads");   \
        name##_of(*static_cast<const Args*>(raw));                                             \
    }                                                                                          \
    static void name##_of(const Args& a)
#define KERNEL(name, threads, Args)             \
    static void name##_behind(const Args& a);   \
    KERNEL_AHEAD(name, threads, Args) {         \
        follow();                               \
        name##_behind(a);                       \
    }                                           \
    static void name##_behind(const Args& a)
#define RESIDENT(threads, blocks) threads
#define SHARED(T, name) T* name = reinterpret_cast<T*>(emulator::shared)

// Aligned as a GPU wants them. They copy their parts one by one, for only that is checked.
#define VECTOR2(name, T)                                                                        \
    struct alignas(8) name {                                                                    \
        T x, y;                                                                                 \
        name() = default;                                                                       \
        name(T x, T y) : x(x), y(y) {}                                                          \
        name(const name& o) : x(o.x), y(o.y) {}                                                 \
        name& operator=(const name& o) { x = o.x, y = o.y; return *this; }                      \
    };
#define VECTOR4(name, T)                                                                        \
    struct alignas(16) name {                                                                   \
        T x, y, z, w;                                                                           \
        name() = default;                                                                       \
        name(T x, T y, T z, T w) : x(x), y(y), z(z), w(w) {}                                    \
        name(const name& o) : x(o.x), y(o.y), z(o.z), w(o.w) {}                                 \
        name& operator=(const name& o) { x = o.x, y = o.y, z = o.z, w = o.w; return *this; }    \
    };
VECTOR2(uint2, unsigned)
VECTOR2(float2, float)
VECTOR4(uint4, unsigned)
VECTOR4(float4, float)

namespace emulator {

struct Dim { unsigned x, y, z; };
enum State { READY, AT_BARRIER, AT_NUMBERED, IN_WARP, DONE };

struct Fiber {
#if defined(__x86_64__)
    void* stack;
#else
    ucontext_t context;
#endif
    Dim thread;
    State state;
    unsigned warp, lane, barrier;
    bool followed;
};

// A barrier with a number: it opens when so many threads have come, and then counts anew.
struct Numbered { unsigned arrived, wanted; };

// What the lanes of a warp do together: the last one to come does it for all.
typedef void (*Work)(void** of_lanes);
struct Warp {
    unsigned arrived;
    Work work;
    void* of_lanes[32];
};

const unsigned MOST_THREADS = 1024;
const size_t STACK = 256 << 10;
static thread_local Fiber* fibers = nullptr;
static thread_local char* stacks = nullptr;
static thread_local Numbered numbered[16];
static thread_local Warp warps[MOST_THREADS / 32];
static thread_local Fiber scheduler;
static thread_local Fiber* self;
static thread_local Dim block, block_dim, grid_dim;
static thread_local unsigned alive, waiting;
static thread_local unsigned char* shared = nullptr;
static thread_local void (*kernel)(const void*);
static thread_local const void* arguments;
static thread_local const char* failure;

#if defined(__x86_64__)
extern "C" __attribute__((visibility("hidden"))) void emulator_switch(void** from, void* to);
asm(R"(
.text
.hidden emulator_switch
.globl emulator_switch
emulator_switch:
    push %rbp
    push %rbx
    push %r12
    push %r13
    push %r14
    push %r15
    mov %rsp, (%rdi)
    mov %rsi, %rsp
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %rbx
    pop %rbp
    ret
)");
static void go(Fiber* from, Fiber* to) { emulator_switch(&from->stack, to->stack); }
#else
static void go(Fiber* from, Fiber* to) { swapcontext(&from->context, &to->context); }
#endif

static void yield() { go(self, &scheduler); }

static void fail(const char* why) {
    failure = why;
    yield();
    abort();
}

// The compiler's check of alignment, which a GPU insists on, calls this.
extern "C" __attribute__((visibility("hidden"), no_sanitize("alignment"))) void __ubsan_handle_type_mismatch_v1(void*, void*) {
    fail("an access is not aligned");
}

static void release(State from, unsigned first, unsigned count) {
    for (unsigned i = first; i < first + count; i++)
        if (fibers[i].state == from) fibers[i].state = READY;
}

static void release_barrier() {
    waiting = 0;
    release(AT_BARRIER, 0, block_dim.x);
}

static void enter() {
    kernel(arguments);
    if (!self->followed) fail("a thread did not wait for the kernel in front");
    self->state = DONE;
    if (--alive > 0 && waiting == alive) release_barrier();
    yield();
    abort();
}

static void barrier() {
    if (++waiting == alive) return release_barrier();
    self->state = AT_BARRIER;
    yield();
}

// Returns whether the barrier opened.
static bool arrive(unsigned which, unsigned threads) {
    if (which == 0 || which > 15 || threads % 32) fail("there is no such barrier");
    Numbered& own = numbered[which];
    if (own.arrived > 0 && own.wanted != threads) fail("a barrier is for different numbers of threads");
    own.wanted = threads;
    if (++own.arrived < threads) return false;
    own.arrived = 0;
    for (unsigned i = 0; i < block_dim.x; i++)
        if (fibers[i].state == AT_NUMBERED && fibers[i].barrier == which) fibers[i].state = READY;
    return true;
}

static void wait_at(unsigned which, unsigned threads) {
    if (arrive(which, threads)) return;
    self->state = AT_NUMBERED;
    self->barrier = which;
    yield();
}

static void together(Work work, void* own) {
    Warp& warp = warps[self->warp];
    if (warp.arrived > 0 && warp.work != work) fail("lanes of a warp do different things");
    warp.work = work;
    warp.of_lanes[self->lane] = own;
    if (++warp.arrived == 32) {
        warp.arrived = 0;
        work(warp.of_lanes);
        return release(IN_WARP, self->warp * 32, 32);
    }
    self->state = IN_WARP;
    yield();
}

static void prepare(Fiber& fiber, char* stack) {
#if defined(__x86_64__)
    void** top = reinterpret_cast<void**>(stack + STACK);
    *--top = nullptr;
    *--top = reinterpret_cast<void*>(enter);
    for (int i = 0; i < 6; i++) *--top = nullptr;
    fiber.stack = top;
#else
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = stack;
    fiber.context.uc_stack.ss_size = STACK;
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, enter, 0);
#endif
}

// Threads run in their order or backwards: what holds only in one of them is a missing barrier.
static void run_block(bool backwards) {
    unsigned threads = block_dim.x;
    alive = threads;
    waiting = 0;
    memset(numbered, 0, sizeof(numbered));
    for (unsigned i = 0; i < threads; i++) {
        Fiber& fiber = fibers[i];
        fiber.thread = {i, 0, 0};
        fiber.state = READY;
        fiber.warp = i / 32;
        fiber.lane = i % 32;
        fiber.followed = false;
        warps[i / 32].arrived = 0;
        prepare(fiber, stacks + i * STACK);
    }
    while (alive > 0) {
        bool moved = false;
        for (unsigned i = 0; i < threads; i++) {
            Fiber& fiber = fibers[backwards ? threads - 1 - i : i];
            if (fiber.state != READY) continue;
            moved = true;
            self = &fiber;
            go(&scheduler, &fiber);
            if (failure) return;
        }
        if (!moved) {
            failure = "threads wait for each other";
            return;
        }
    }
    for (const Numbered& one : numbered)
        if (one.arrived > 0) failure = "threads came to a barrier that never opened";
}

} // namespace emulator

// What is below is told which way the threads run.
namespace emulator { static void begins(bool backwards); }

// Runs all blocks. Returns what went wrong, or null.
extern "C" const char* emulate(void (*kernel)(const void*), const void* arguments, unsigned x, unsigned y, unsigned z,
                               unsigned threads, unsigned shared_bytes, int backwards) {
    using namespace emulator;
    const unsigned guard = 64;
    if (threads == 0 || threads % 32 || threads > MOST_THREADS) return "threads are not whole warps";
    if (!fibers) {
        fibers = static_cast<Fiber*>(calloc(MOST_THREADS, sizeof(Fiber)));
        void* memory = mmap(nullptr, MOST_THREADS * STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) return "no memory for stacks";
        stacks = static_cast<char*>(memory);
    }
    failure = nullptr;
    emulator::kernel = kernel;
    emulator::arguments = arguments;
    begins(backwards);
    grid_dim = {x, y, z};
    block_dim = {threads, 1, 1};
    shared = static_cast<unsigned char*>(aligned_alloc(1024, (shared_bytes + guard + 1023) / 1024 * 1024));
    for (unsigned i = 0; i < x * y * z && !failure; i++) {
        unsigned at = backwards ? x * y * z - 1 - i : i;
        block = {at % x, at / x % y, at / x / y};
        memset(shared, 0xff, shared_bytes + guard);
        run_block(backwards);
        for (unsigned byte = 0; byte < guard && !failure; byte++)
            if (shared[shared_bytes + byte] != 0xff) failure = "wrote beyond the shared memory";
    }
    free(shared);
    return failure;
}

#define threadIdx (emulator::self->thread)
#define blockIdx (emulator::block)
#define blockDim (emulator::block_dim)
#define gridDim (emulator::grid_dim)

// A kernel begins when the one before has ended. But a thread that does not wait lets the next kernel's wait end too early.
static inline void follow() { emulator::self->followed = true; }
static inline void bring_near(const void*) {}
static inline void bring_all_near(const void* address, uint64_t bytes) {
    if ((reinterpret_cast<uintptr_t>(address) | bytes) % 16) emulator::fail("what is brought near is not aligned");
}
template <class T>
static inline T read_weights(const T* from) { return *from; }
template <class T>
static inline T read_far(const T* from) { return *from; }

static inline void __syncthreads() { emulator::barrier(); }

static inline int bits_of(float value) {
    int bits;
    memcpy(&bits, &value, 4);
    return bits;
}

static inline float float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

static float half_by_bits(uint16_t half) {
    uint32_t sign = (half & 0x8000u) << 16, exponent = half >> 10 & 31, mantissa = half & 1023;
    if (exponent == 31) return float_of(sign | 0x7f800000u | mantissa << 13);
    if (exponent == 0) return (sign ? -1.0f : 1.0f) * std::ldexp(static_cast<float>(mantissa), -24);
    return float_of(sign | (exponent + 112) << 23 | mantissa << 13);
}

struct EmulatedHalfTable {
    float values[1 << 16];
    EmulatedHalfTable() {
        for (int i = 0; i < 1 << 16; i++) values[i] = half_by_bits(static_cast<uint16_t>(i));
    }
};
static const EmulatedHalfTable half_table;
static inline float half_to_float(uint16_t half) { return half_table.values[half]; }

static inline uint16_t float_to_half(float value) {
    uint32_t bits = static_cast<uint32_t>(bits_of(value));
    uint16_t sign = bits >> 16 & 0x8000u;
    float magnitude = std::fabs(value);
    if (!(magnitude == magnitude)) return sign | 0x7e00u;
    if (magnitude >= 65520.0f) return sign | 0x7c00u;
    if (magnitude < 6.103515625e-5f) return sign | static_cast<uint16_t>(rintf(magnitude * 16777216.0f));
    bits &= 0x7fffffffu;
    bits += 0xfffu + (bits >> 13 & 1);
    return sign | static_cast<uint16_t>((bits >> 13) - (112 << 10));
}

static inline uint32_t halves(float first, float second) {
    return float_to_half(first) | static_cast<uint32_t>(float_to_half(second)) << 16;
}

// Differences and products of two halves are exact in a float.
static inline uint32_t minus_halves(uint32_t a, uint32_t b) {
    return halves(half_to_float(a & 0xffff) - half_to_float(b & 0xffff), half_to_float(a >> 16) - half_to_float(b >> 16));
}
static inline uint32_t times_halves(uint32_t a, uint32_t b) {
    return halves(half_to_float(a & 0xffff) * half_to_float(b & 0xffff), half_to_float(a >> 16) * half_to_float(b >> 16));
}
static inline uint32_t fused_halves(uint32_t a, uint32_t b, uint32_t c) {
    return halves(half_to_float(a & 0xffff) * half_to_float(b & 0xffff) + half_to_float(c & 0xffff),
                  half_to_float(a >> 16) * half_to_float(b >> 16) + half_to_float(c >> 16));
}
static inline uint32_t first_twice(uint32_t both) { return (both & 0xffff) * 0x10001u; }
static inline uint32_t second_twice(uint32_t both) { return (both >> 16) * 0x10001u; }

static inline uint32_t bytes_by(uint32_t a, uint32_t b, uint32_t selector) {
    uint64_t both = a | static_cast<uint64_t>(b) << 32;
    uint32_t out = 0;
    for (int i = 0; i < 4; i++) out |= static_cast<uint32_t>(both >> (8 * (selector >> (4 * i) & 7)) & 255) << (8 * i);
    return out;
}

static inline int dot4(int a, int b, int sum) {
    for (int i = 0; i < 4; i++) sum += static_cast<int8_t>(a >> (8 * i)) * static_cast<int8_t>(b >> (8 * i));
    return sum;
}

struct EmulatedShuffled { uint32_t given, taken, from; };
static void shuffle_all(void** lanes) {
    for (int i = 0; i < 32; i++) {
        EmulatedShuffled* own = static_cast<EmulatedShuffled*>(lanes[i]);
        own->taken = static_cast<EmulatedShuffled*>(lanes[own->from % 32])->given;
    }
}
static inline uint32_t shuffled(uint32_t bits, unsigned from) {
    EmulatedShuffled own = {bits, 0, from};
    emulator::together(shuffle_all, &own);
    return own.taken;
}
static inline float shuffle(float value, unsigned lane) {
    return float_of(shuffled(static_cast<uint32_t>(bits_of(value)), lane));
}
static inline float shuffle_xor(float value, unsigned mask) { return shuffle(value, emulator::self->lane ^ mask); }
static inline int shuffle_xor(int value, unsigned mask) {
    return static_cast<int>(shuffled(static_cast<uint32_t>(value), emulator::self->lane ^ mask));
}
struct EmulatedVote { bool given; uint32_t taken; };
static void vote_all(void** lanes) {
    uint32_t votes = 0;
    for (int i = 0; i < 32; i++) votes |= static_cast<uint32_t>(static_cast<EmulatedVote*>(lanes[i])->given) << i;
    for (int i = 0; i < 32; i++) static_cast<EmulatedVote*>(lanes[i])->taken = votes;
}
static inline uint32_t votes(bool given) {
    EmulatedVote own = {given, 0};
    emulator::together(vote_all, &own);
    return own.taken;
}
static inline int count_bits(uint32_t bits) { return __builtin_popcount(bits); }
// A block's threads take turns.
static inline void add_to_shared(uint32_t* sum, uint32_t value) { *sum += value; }
static void nothing(void**) {}
static inline void warp_barrier() { emulator::together(nothing, nullptr); }

struct EmulatedProduct { float* c; const uint32_t *a, *b; };
static void multiply_all(void** lanes) {
    static thread_local float a[16][16], b[16][8];
    auto put = [](uint32_t both, float& first, float& second) {
        first = half_to_float(both & 0xffff);
        second = half_to_float(both >> 16);
    };
    for (int lane = 0; lane < 32; lane++) {
        const EmulatedProduct* own = static_cast<const EmulatedProduct*>(lanes[lane]);
        int row = lane / 4, pair = lane % 4 * 2;
        for (int part = 0; part < 4; part++) {
            float* at = &a[row + part % 2 * 8][pair + part / 2 * 8];
            put(own->a[part], at[0], at[1]);
        }
        for (int part = 0; part < 2; part++) put(own->b[part], b[pair + 8 * part][row], b[pair + 8 * part + 1][row]);
    }
    for (int i = 0; i < 16; i++) {
        float sums[8] = {};
        for (int k = 0; k < 16; k++)
            for (int j = 0; j < 8; j++) sums[j] += a[i][k] * b[k][j];
        for (int j = 0; j < 8; j++) static_cast<const EmulatedProduct*>(lanes[i % 8 * 4 + j / 2])->c[i / 8 * 2 + j % 2] += sums[j];
    }
}
static inline void mma(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    EmulatedProduct own = {c, a, b};
    emulator::together(multiply_all, &own);
}

struct EmulatedCodes { float* c; const uint32_t* a; uint32_t b; };
static void multiply_codes_all(void** lanes) {
    static thread_local int8_t a[16][16], b[8][16];
    for (int lane = 0; lane < 32; lane++) {
        const EmulatedCodes* own = static_cast<const EmulatedCodes*>(lanes[lane]);
        for (int part = 0; part < 2; part++) memcpy(&a[lane / 4 + 8 * part][lane % 4 * 4], &own->a[part], 4);
        memcpy(&b[lane / 4][lane % 4 * 4], &own->b, 4);
    }
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 8; j++) {
            int sum = 0;
            for (int k = 0; k < 16; k++) sum += a[i][k] * b[j][k];
            static_cast<const EmulatedCodes*>(lanes[i % 8 * 4 + j / 2])->c[i / 8 * 2 + j % 2] = static_cast<float>(sum);
        }
}
static inline void products_of_codes(float (&c)[4], const uint32_t (&a)[2], uint32_t b) {
    EmulatedCodes own = {c, a, b};
    emulator::together(multiply_codes_all, &own);
}

struct EmulatedParts { float* c; const uint32_t *a, *a_low, *b, *b_low; };
static void multiply_parts_all(void** lanes) {
    static thread_local float a[16][8], b[8][8], a_low[16][8], b_low[8][8];
    auto put = [](uint32_t high, uint32_t low, float& whole, float& rest) {
        if (high & 0x1fffu || low & 0x1fffu) emulator::fail("a float has more than 11 bits");
        rest = float_of(low);
        whole = float_of(high) + rest;
    };
    for (int lane = 0; lane < 32; lane++) {
        const EmulatedParts* own = static_cast<const EmulatedParts*>(lanes[lane]);
        int row = lane / 4, column = lane % 4;
        for (int part = 0; part < 4; part++) {
            int i = row + part % 2 * 8, k = column + part / 2 * 4;
            put(own->a[part], own->a_low[part], a[i][k], a_low[i][k]);
        }
        for (int part = 0; part < 2; part++) {
            int k = column + 4 * part;
            put(own->b[part], own->b_low[part], b[k][row], b_low[k][row]);
        }
    }
    for (int i = 0; i < 16; i++) {
        float sums[8] = {};
        for (int k = 0; k < 8; k++)
            for (int j = 0; j < 8; j++) sums[j] += a[i][k] * b[k][j] - a_low[i][k] * b_low[k][j];
        for (int j = 0; j < 8; j++) static_cast<const EmulatedParts*>(lanes[i % 8 * 4 + j / 2])->c[i / 8 * 2 + j % 2] += sums[j];
    }
}
static inline void mma_parts(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&a_low)[4], const uint32_t (&b)[2],
                             const uint32_t (&b_low)[2]) {
    EmulatedParts own = {c, a, a_low, b, b_low};
    emulator::together(multiply_parts_all, &own);
}

struct EmulatedLoaded { uint32_t* out; const void* row; };
static uint16_t half_of_row(void** lanes, int matrix, int row, int column) {
    return static_cast<const uint16_t*>(static_cast<EmulatedLoaded*>(lanes[8 * matrix + row])->row)[column];
}
template <bool TRANSPOSED>
static void load_all(void** lanes) {
    for (int lane = 0; lane < 32; lane++)
        for (int matrix = 0; matrix < 4; matrix++) {
            uint32_t both = 0;
            for (int i = 0; i < 2; i++) {
                int row = lane / 4, column = lane % 4 * 2 + i;
                uint32_t half = TRANSPOSED ? half_of_row(lanes, matrix, column, row) : half_of_row(lanes, matrix, row, column);
                both |= half << (16 * i);
            }
            static_cast<EmulatedLoaded*>(lanes[lane])->out[matrix] = both;
        }
}
static inline void load_matrices(uint32_t (&out)[4], const void* row) {
    if (reinterpret_cast<uintptr_t>(row) % 16) emulator::fail("a matrix row is not aligned");
    EmulatedLoaded own = {out, row};
    emulator::together(load_all<false>, &own);
}
static inline void load_transposed(uint32_t (&out)[4], const void* row) {
    if (reinterpret_cast<uintptr_t>(row) % 16) emulator::fail("a matrix row is not aligned");
    EmulatedLoaded own = {out, row};
    emulator::together(load_all<true>, &own);
}

// Copies that run ahead land as late as they may: when they are awaited. What is read before is what was there.
namespace emulator {
const unsigned MOST_COPIES = 64;
struct Copy { void* to; unsigned char bytes[16]; unsigned group; };
struct Copies { Copy all[MOST_COPIES]; unsigned count, group; };
static thread_local Copies copies[MOST_THREADS];
static void land(unsigned left) {
    Copies& own = copies[self->thread.x];
    unsigned kept = 0;
    for (unsigned i = 0; i < own.count; i++) {
        if (own.all[i].group + left < own.group) memcpy(own.all[i].to, own.all[i].bytes, 16);
        else own.all[kept++] = own.all[i];
    }
    own.count = kept;
}
} // namespace emulator
static inline void copy_ahead(void* shared, const void* global, bool there) {
    emulator::Copies& own = emulator::copies[emulator::self->thread.x];
    if ((reinterpret_cast<uintptr_t>(shared) | (there ? reinterpret_cast<uintptr_t>(global) : 0)) % 16)
        emulator::fail("a copy is not aligned");
    if (own.count == emulator::MOST_COPIES) emulator::fail("too many copies are under way");
    emulator::Copy& copy = own.all[own.count++];
    copy.to = shared;
    copy.group = own.group;
    if (there) memcpy(copy.bytes, global, 16);
    else memset(copy.bytes, 0, 16);
}
static inline void end_of_copies() { emulator::copies[emulator::self->thread.x].group++; }
template <int LEFT>
static inline void await_copies() { emulator::land(LEFT); }

static inline uint32_t shared_address(const void* shared) { return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(shared)); }

// Products of groups of four warps are made as late as they may, or as early: what is written between shows in one of them.
namespace emulator {
struct Products { unsigned count, group; struct { float* c; uint64_t a, b; unsigned group; } all[32]; };
static thread_local Products products[MOST_THREADS];
static thread_local bool late;
static void begins(bool backwards) { late = backwards; }
static float half_in_tile(uint64_t tile, unsigned row, unsigned column) {
    uint64_t at = tile + row * 128 + column * 2;
    return half_to_float(*reinterpret_cast<const uint16_t*>(at ^ (at >> 7 & 7) << 4));
}
static void multiply(float* c, uint64_t a, uint64_t b) {
    unsigned lane = self->lane, first = self->warp % 4 * 16 + lane / 4;
    for (unsigned half = 0; half < 2; half++) {
        float row[16];
        for (unsigned k = 0; k < 16; k++) row[k] = half_in_tile(a, first + 8 * half, k);
        for (unsigned j = 0; j < 16; j++)
            for (unsigned part = 0; part < 2; part++) {
                unsigned column = 8 * j + lane % 4 * 2 + part;
                float sum = 0.0f;
                for (unsigned k = 0; k < 16; k++) sum += row[k] * half_in_tile(b, column, k);
                c[4 * j + 2 * half + part] += sum;
            }
    }
}
static void make_products(unsigned left) {
    Products& own = products[self->thread.x];
    unsigned kept = 0;
    for (unsigned i = 0; i < own.count; i++) {
        if (own.all[i].group + left < own.group) multiply(own.all[i].c, own.all[i].a, own.all[i].b);
        else own.all[kept++] = own.all[i];
    }
    own.count = kept;
}
} // namespace emulator
static inline uint64_t tile_at(const void* tile) {
    if (reinterpret_cast<uintptr_t>(tile) % 1024) emulator::fail("a tile does not begin where its pattern does");
    return reinterpret_cast<uint64_t>(tile);
}
static inline uint64_t from_column(uint64_t tile, unsigned column) { return tile + 2 * column; }
static inline void show_to_groups() {}
static inline void begin_products() {}
static inline void end_of_products() { emulator::products[emulator::self->thread.x].group++; }
static inline void multiply_tiles(float (&c)[64], uint64_t a, uint64_t b) {
    if (!emulator::late) return emulator::multiply(c, a, b);
    emulator::Products& own = emulator::products[emulator::self->thread.x];
    if (own.count == 32) emulator::fail("too many products are under way");
    own.all[own.count++] = {c, a, b, own.group};
}
template <int LEFT>
static inline void await_products() { emulator::make_products(LEFT); }
template <unsigned PARTS>
static inline void await_sums(float (&)[PARTS][64]) { emulator::make_products(0); }
static inline void wait_at(unsigned barrier, unsigned threads) { emulator::wait_at(barrier, threads); }
static inline void arrive_at(unsigned barrier, unsigned threads) { emulator::arrive(barrier, threads); }
template <int REGISTERS>
static inline void take_registers() {}
template <int REGISTERS>
static inline void give_registers() {}
static inline void add_far(float* to, float value) { *to += value; }

template <class T>
static inline T atomicAdd(T* at, T value) {
    T before = *at;
    *at = before + value;
    return before;
}

static inline unsigned min(unsigned a, unsigned b) { return a < b ? a : b; }
static inline unsigned max(unsigned a, unsigned b) { return a > b ? a : b; }
static inline int min(int a, int b) { return a < b ? a : b; }
static inline int max(int a, int b) { return a > b ? a : b; }
static inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
