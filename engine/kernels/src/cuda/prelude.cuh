// What all kernels share: types, and the processor's own operations under names that the emulator has too. No header of
// the CUDA toolkit is included, because where a driver is there need not be a toolkit.

typedef unsigned char u8;
typedef signed char i8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#ifndef EMULATED

#define DEVICE __device__ __forceinline__

// A kernel is put in place while the one before is still at work, and waits here for the end of that. What it does before
// touches nothing that another kernel writes.
DEVICE void follow() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Each kernel takes one structure: what the host fills in is what is written here, field by field.
#define KERNEL(name, threads, Args)       \
    DEVICE void name##_of(const Args& a); \
    KERNEL_AHEAD(name, threads, Args) {   \
        follow();                         \
        name##_of(a);                     \
    }                                     \
    DEVICE void name##_of(const Args& a)
// For `threads`: few enough registers for so many blocks at once.
#define RESIDENT(threads, blocks) threads, blocks
// One that calls `follow` itself, once in each thread at least.
#define KERNEL_AHEAD(name, threads, Args) \
    extern "C" __global__ void __launch_bounds__(threads) name(const __grid_constant__ Args a)
// The block's dynamic shared memory.
extern __shared__ __align__(16) u8 shared_bytes[];
#define SHARED(T, name) T* name = reinterpret_cast<T*>(shared_bytes)

DEVICE float half_to_float(u16 half) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
    return value;
}

DEVICE u16 float_to_half(float value) {
    u16 half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(value));
    return half;
}

// Two halves in one register, the first in its low bits.
DEVICE u32 halves(float first, float second) {
    u32 both;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
    return both;
}

DEVICE u32 minus_halves(u32 a, u32 b) {
    u32 out;
    asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(out) : "r"(a), "r"(b));
    return out;
}

DEVICE u32 times_halves(u32 a, u32 b) {
    u32 out;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(out) : "r"(a), "r"(b));
    return out;
}

// a · b + c, rounded once.
DEVICE u32 fused_halves(u32 a, u32 b, u32 c) {
    u32 out;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(out) : "r"(a), "r"(b), "r"(c));
    return out;
}

// The first and the second of two halves, twice: operands of the arithmetic above take them without an instruction.
DEVICE u32 first_twice(u32 both) {
    u32 out;
    asm("{.reg .b16 low, high; mov.b32 {low, high}, %1; mov.b32 %0, {low, low};}" : "=r"(out) : "r"(both));
    return out;
}

DEVICE u32 second_twice(u32 both) {
    u32 out;
    asm("{.reg .b16 low, high; mov.b32 {low, high}, %1; mov.b32 %0, {high, high};}" : "=r"(out) : "r"(both));
    return out;
}

DEVICE u32 bytes_by(u32 a, u32 b, u32 selector) { return __byte_perm(a, b, selector); }
DEVICE int dot4(int a, int b, int sum) { return __dp4a(a, b, sum); }
DEVICE float shuffle(float value, u32 lane) { return __shfl_sync(0xffffffffu, value, lane); }
DEVICE float shuffle_xor(float value, u32 mask) { return __shfl_xor_sync(0xffffffffu, value, mask); }
DEVICE int shuffle_xor(int value, u32 mask) { return __shfl_xor_sync(0xffffffffu, value, mask); }
// A bit for each lane that says yes.
DEVICE u32 votes(bool yes) { return __ballot_sync(0xffffffffu, yes); }
DEVICE int count_bits(u32 bits) { return __popc(bits); }
DEVICE void add_to_shared(u32* sum, u32 value) { atomicAdd(sum, value); }
DEVICE void warp_barrier() { __syncwarp(); }
DEVICE u32 shared_address(const void* shared) { return static_cast<u32>(__cvta_generic_to_shared(shared)); }
DEVICE int bits_of(float value) { return __float_as_int(value); }

// c [16, 8] += a [16, 16] · b [16, 8], halves into floats, spread over a warp as the processor wants it.
DEVICE void mma(float (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// c [16, 8] = a [16, 16] · b [16, 8], 8-bit integers. The sums come as floats: integers behind the bits of a float whose last
// place counts ones are that much of it.
DEVICE void products_of_codes(float (&c)[4], const u32 (&a)[2], u32 b) {
    const u32 ONES = 0x4b400000; // 1.5 · 2^23
    u32 sums[4];
    asm volatile("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%7,%7,%7,%7};"
                 : "=r"(sums[0]), "=r"(sums[1]), "=r"(sums[2]), "=r"(sums[3])
                 : "r"(a[0]), "r"(a[1]), "r"(b), "r"(ONES));
    for (u32 i = 0; i < 4; i++) c[i] = __uint_as_float(sums[i]) - __uint_as_float(ONES);
}

DEVICE float float_of(u32 bits) { return __uint_as_float(bits); }

// c [16, 8] += a [16, 8] · b [8, 8]. Tensor cores multiply floats of 11 bits, so each number comes in two of them; what the
// lower ones of both would give is left out.
DEVICE void mma_parts(float (&c)[4], const u32 (&a)[4], const u32 (&a_low)[4], const u32 (&b)[2], const u32 (&b_low)[2]) {
    auto add = [&](const u32 (&of_a)[4], const u32 (&of_b)[2]) {
        asm volatile(
            "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(of_a[0]), "r"(of_a[1]), "r"(of_a[2]), "r"(of_a[3]), "r"(of_b[0]), "r"(of_b[1]));
    };
    add(a_low, b);
    add(a, b_low);
    add(a, b);
}

// Four 8 × 8 matrices of halves from shared memory; lane 8·i + j gives the address of row j of matrix i.
DEVICE void load_matrices(u32 (&out)[4], const void* row) {
    u32 address = shared_address(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(address)
                 : "memory");
}

// The same, each matrix transposed on the way.
DEVICE void load_transposed(u32 (&out)[4], const void* row) {
    u32 address = shared_address(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(address)
                 : "memory");
}

// Asks the memory for the 128 bytes at an address, as far as the cache that all processors share: what others write meanwhile
// is not missed. Only where a kernel comes before its turn, and that cache is large.
DEVICE void bring_near(const void* address) {
#if __CUDA_ARCH__ >= 900
    asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
#endif
}

// The same for so many bytes at once, both a multiple of 16.
DEVICE void bring_all_near(const void* address, u64 bytes) {
#if __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(address), "r"(static_cast<u32>(bytes)));
#endif
}

// Weights are never written while kernels run. They are asked for where it says so: left alone, the compiler asks late,
// to have registers for something else.
DEVICE uint4 read_weights(const uint4* from) {
    uint4 out;
    asm volatile("ld.global.nc.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(out.x), "=r"(out.y), "=r"(out.z), "=r"(out.w) : "l"(from));
    return out;
}

DEVICE float4 read_weights(const float4* from) {
    float4 out;
    asm volatile("ld.global.nc.v4.f32 {%0,%1,%2,%3}, [%4];" : "=f"(out.x), "=f"(out.y), "=f"(out.z), "=f"(out.w) : "l"(from));
    return out;
}

DEVICE uint2 read_weights(const uint2* from) {
    uint2 out;
    asm volatile("ld.global.nc.v2.u32 {%0,%1}, [%2];" : "=r"(out.x), "=r"(out.y) : "l"(from));
    return out;
}

DEVICE u32 read_weights(const u32* from) {
    u32 out;
    asm volatile("ld.global.nc.u32 %0, [%1];" : "=r"(out) : "l"(from));
    return out;
}

DEVICE u16 read_weights(const u16* from) {
    u16 out;
    asm volatile("ld.global.nc.u16 %0, [%1];" : "=h"(out) : "l"(from));
    return out;
}

// What the caches of one processor do not answer.
DEVICE u64 read_far(const u64* from) {
    u64 out;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(out) : "l"(from));
    return out;
}

DEVICE u32 read_far(const u32* from) {
    u32 out;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(out) : "l"(from));
    return out;
}

// Sixteen bytes from global to shared memory while the thread goes on; zeros where there is nothing to copy.
DEVICE void copy_ahead(void* shared, const void* global, bool there) {
    u32 address = shared_address(shared);
    int bytes = there ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(global), "r"(bytes) : "memory");
}

DEVICE void end_of_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Until at most so many of the groups of copies that were begun last are under way.
template <int LEFT>
DEVICE void await_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

#endif

// All of some memory, line by line; `number` of so many that share the work.
DEVICE void bring_near(const void* from, u64 bytes, u32 number, u32 sharing) {
    for (u64 at = 128 * number; at < bytes; at += 128 * sharing) bring_near(static_cast<const u8*>(from) + at);
}

// What stands for nothing in a maximum; the infinity itself would make NaN of a difference.
#define LOWEST (-3.0e38f)

DEVICE float bf16_to_float(u16 value) {
    union {
        u32 bits;
        float value;
    } number;
    number.bits = static_cast<u32>(value) << 16;
    return number.value;
}

DEVICE u16 float_to_bf16(float value) {
    u32 bits = static_cast<u32>(bits_of(value));
    return static_cast<u16>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16); // not a window: half of the last place
}

// Bits of a float of 11 bits, the nearest one.
DEVICE u32 short_float(float value) { return (static_cast<u32>(bits_of(value)) + 0x1000u) & 0xffffe000u; }

// The nearest whole number, ties to even.
DEVICE int nearest(float value) { return static_cast<int>(rintf(value)); }

// One of four 8-bit integers in a register.
DEVICE float code_of(u32 four, u32 which) { return static_cast<float>(static_cast<i8>(four >> (8 * which))); }

DEVICE float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
DEVICE float silu(float x) { return x / (1.0f + expf(-x)); }
DEVICE float softplus(float x) { return x > 20.0f ? x : log1pf(expf(x)); }

DEVICE float warp_sum(float value) {
    for (u32 mask = 16; mask > 0; mask >>= 1) value += shuffle_xor(value, mask);
    return value;
}

DEVICE u32 warp_sum(u32 value) {
    for (u32 mask = 16; mask > 0; mask >>= 1) value += static_cast<u32>(shuffle_xor(static_cast<int>(value), mask));
    return value;
}

DEVICE float warp_max(float value) {
    for (u32 mask = 16; mask > 0; mask >>= 1) value = fmaxf(value, shuffle_xor(value, mask));
    return value;
}

// Over all threads of the block, given to all of them. `scratch` has 32 floats and is free again afterwards.
DEVICE float block_sum(float value, float* scratch) {
    value = warp_sum(value);
    if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = value;
    __syncthreads();
    value = 0.0f;
    for (u32 warp = 0; warp < blockDim.x / 32; warp++) value += scratch[warp];
    __syncthreads();
    return value;
}

DEVICE float block_max(float value, float* scratch) {
    value = warp_max(value);
    if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = value;
    __syncthreads();
    value = scratch[0];
    for (u32 warp = 1; warp < blockDim.x / 32; warp++) value = fmaxf(value, scratch[warp]);
    __syncthreads();
    return value;
}
