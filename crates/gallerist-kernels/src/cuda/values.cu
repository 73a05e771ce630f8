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
