// The types of values on the GPU, before every other source. Kernels are compiled at run time, for one type: OF_F32, OF_BF16 or
// OF_F16 is defined. All computation is in float.

typedef unsigned int u32;
typedef unsigned long long u64;

struct Bfloat { unsigned short bits; };
struct Half { unsigned short bits; };

__device__ __forceinline__ float wide(float value) { return value; }
__device__ __forceinline__ float wide(Bfloat value) { return __uint_as_float((u32)value.bits << 16); }
__device__ __forceinline__ float wide(Half value) {
    float result;
    asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(value.bits));
    return result;
}
__device__ __forceinline__ void narrow(float value, float& to) { to = value; }
__device__ __forceinline__ void narrow(float value, Bfloat& to) {
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(to.bits) : "f"(value));
}
__device__ __forceinline__ void narrow(float value, Half& to) {
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(to.bits) : "f"(value));
}

template <typename Value, int VECTOR>
struct alignas(sizeof(Value) * VECTOR) Packed { Value at[VECTOR]; };

// The two sums of all slabs for a channel (or column), by the threads of a warp; the first has them.
__device__ __forceinline__ void of_slabs(const float* partial, int slabs, int channels, int channel, double& first,
                                         double& second) {
    first = second = 0.0;
    for (int slab = threadIdx.x % 32; slab < slabs; slab += 32) {
        const float2 from = *(const float2*)(partial + ((u64)slab * channels + channel) * 2);
        first += from.x;
        second += from.y;
    }
    for (int step = 16; step > 0; step /= 2) {
        first += __shfl_down_sync(0xffffffffu, first, step);
        second += __shfl_down_sync(0xffffffffu, second, step);
    }
}
