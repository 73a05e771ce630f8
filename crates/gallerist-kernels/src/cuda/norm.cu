// Batch norm of maps that are channels last in memory: `rows` pixels of `channels` values.
//
// norm.rs starts the kernels. `Value` is the type of the maps. A thread has VECTOR neighbouring channels, whose coefficients it
// keeps in registers. A block has `lanes` threads along the channels and blockDim.x / lanes along the rows; gridDim.y blocks share
// the rows of the same channels, and in a sum each writes one partial sum.

// 0: none, 1: ReLU, 2: ReLU6.
template <int ACTIVATION>
__device__ __forceinline__ float activated(float value) {
    if (ACTIVATION == 1) return value > 0.0f ? value : (value != value ? value : 0.0f);
    if (ACTIVATION == 2) return value > 0.0f ? fminf(value, 6.0f) : (value != value ? value : 0.0f);
    return value;
}

// Whether a gradient passes, by the value before the activation or after it.
template <int ACTIVATION>
__device__ __forceinline__ bool passes(float value) {
    if (ACTIVATION == 1) return !(value <= 0.0f);
    if (ACTIVATION == 2) return !(value <= 0.0f) && !(value >= 6.0f);
    return true;
}

// The sums of two quantities over the threads of a block that share channels; the first row of threads has them.
template <int VECTOR>
__device__ __forceinline__ void add_up(float (&first)[VECTOR], float (&second)[VECTOR], int lanes, float* shared) {
    const int lane = threadIdx.x % lanes, row = threadIdx.x / lanes, rows = blockDim.x / lanes;
    float* mine = shared + (u64)threadIdx.x * 2 * VECTOR;
    for (int v = 0; v < VECTOR; v++) { mine[v] = first[v]; mine[VECTOR + v] = second[v]; }
    __syncthreads();
    if (row == 0) {
        for (int other = 1; other < rows; other++) {
            const float* theirs = shared + (u64)(other * lanes + lane) * 2 * VECTOR;
            for (int v = 0; v < VECTOR; v++) { first[v] += theirs[v]; second[v] += theirs[VECTOR + v]; }
        }
    }
}

// Sums of the differences from the first pixel and of their squares, which are small where the mean is large.
template <typename Value, int VECTOR>
__device__ void moments(const Value* __restrict__ x, float* partial, u64 rows, int channels, int lanes) {
    extern __shared__ float shared[];
    const int lane = threadIdx.x % lanes, row = threadIdx.x / lanes, height = blockDim.x / lanes;
    const int channel = (blockIdx.x * lanes + lane) * VECTOR;
    const bool inside = channel < channels;
    typedef Packed<Value, VECTOR> Values;
    float sum[VECTOR] = {}, square[VECTOR] = {}, origin[VECTOR] = {};
    if (inside) {
        Values first = *(const Values*)(x + channel);
        for (int v = 0; v < VECTOR; v++) origin[v] = wide(first.at[v]);
        const u64 stride = (u64)gridDim.y * height;
#pragma unroll 4
        for (u64 pixel = (u64)blockIdx.y * height + row; pixel < rows; pixel += stride) {
            Values values = *(const Values*)(x + pixel * channels + channel);
            for (int v = 0; v < VECTOR; v++) {
                const float difference = wide(values.at[v]) - origin[v];
                sum[v] += difference;
                square[v] += difference * difference;
            }
        }
    }
    add_up<VECTOR>(sum, square, lanes, shared);
    if (row == 0 && inside) {
        float* to = partial + ((u64)blockIdx.y * channels + channel) * 2;
        for (int v = 0; v < VECTOR; v++) { to[2 * v] = sum[v]; to[2 * v + 1] = square[v]; }
    }
}

// Mean and biased variance, and the factor and summand of the normalisation.
template <typename Value>
__device__ void affine(const Value* x, const float* partial, int slabs, u64 rows, int channels, const float* gamma,
                       const float* beta, double epsilon, float* mean, float* variance, float* factor, float* summand) {
    const int channel = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    if (channel >= channels) return;
    double sum, square;
    of_slabs(partial, slabs, channels, channel, sum, square);
    if (threadIdx.x % 32 > 0) return;
    const double of_difference = sum / (double)rows;
    double of_square = square / (double)rows - of_difference * of_difference;
    of_square = of_square < 0.0 ? 0.0 : of_square;
    const double average = of_difference + (double)wide(x[channel]);
    mean[channel] = (float)average;
    variance[channel] = (float)of_square;
    const double scale = (double)gamma[channel] / sqrt(of_square + epsilon);
    factor[channel] = (float)scale;
    summand[channel] = (float)((double)beta[channel] - average * scale);
}

template <typename Value, int VECTOR, int ACTIVATION, bool ADDED>
__device__ void apply(const Value* __restrict__ x, const Value* __restrict__ added, const float* factor, const float* summand,
                      Value* __restrict__ y, u64 rows, int channels, int lanes) {
    const int lane = threadIdx.x % lanes, row = threadIdx.x / lanes, height = blockDim.x / lanes;
    const int channel = (blockIdx.x * lanes + lane) * VECTOR;
    if (channel >= channels) return;
    typedef Packed<Value, VECTOR> Values;
    float scale[VECTOR], shift[VECTOR];
    for (int v = 0; v < VECTOR; v++) { scale[v] = factor[channel + v]; shift[v] = summand[channel + v]; }
    const u64 stride = (u64)gridDim.y * height;
#pragma unroll 4
    for (u64 pixel = (u64)blockIdx.y * height + row; pixel < rows; pixel += stride) {
        const u64 at = pixel * channels + channel;
        Values in = *(const Values*)(x + at), out, more;
        if (ADDED) more = *(const Values*)(added + at);
        for (int v = 0; v < VECTOR; v++) {
            float value = wide(in.at[v]) * scale[v] + shift[v];
            if (ADDED) value += wide(more.at[v]);
            narrow(activated<ACTIVATION>(value), out.at[v]);
        }
        *(Values*)(y + at) = out;
    }
}

// Sums of the gradient g before the activation and of g (x - mean). FROM_RESULT: the activation is judged by its result `y`.
template <typename Value, int VECTOR, int ACTIVATION, bool FROM_RESULT>
__device__ void gradient_sums(const Value* __restrict__ x, const Value* __restrict__ dy, const Value* __restrict__ y,
                              const float* mean, const float* factor, const float* summand, float* partial, u64 rows,
                              int channels, int lanes) {
    extern __shared__ float shared[];
    const int lane = threadIdx.x % lanes, row = threadIdx.x / lanes, height = blockDim.x / lanes;
    const int channel = (blockIdx.x * lanes + lane) * VECTOR;
    const bool inside = channel < channels;
    typedef Packed<Value, VECTOR> Values;
    float sum[VECTOR] = {}, product[VECTOR] = {};
    float center[VECTOR] = {}, scale[VECTOR] = {}, shift[VECTOR] = {};
    if (inside) {
        for (int v = 0; v < VECTOR; v++) {
            center[v] = mean[channel + v];
            scale[v] = factor[channel + v];
            shift[v] = summand[channel + v];
        }
        const u64 stride = (u64)gridDim.y * height;
#pragma unroll 2
        for (u64 pixel = (u64)blockIdx.y * height + row; pixel < rows; pixel += stride) {
            const u64 at = pixel * channels + channel;
            Values values = *(const Values*)(x + at), gradients = *(const Values*)(dy + at), results;
            if (FROM_RESULT) results = *(const Values*)(y + at);
            for (int v = 0; v < VECTOR; v++) {
                const float value = wide(values.at[v]);
                const float judged = FROM_RESULT ? wide(results.at[v]) : value * scale[v] + shift[v];
                const float gradient = passes<ACTIVATION>(judged) ? wide(gradients.at[v]) : 0.0f;
                sum[v] += gradient;
                product[v] += gradient * (value - center[v]);
            }
        }
    }
    add_up<VECTOR>(sum, product, lanes, shared);
    if (row == 0 && inside) {
        float* to = partial + ((u64)blockIdx.y * channels + channel) * 2;
        for (int v = 0; v < VECTOR; v++) { to[2 * v] = sum[v]; to[2 * v + 1] = product[v]; }
    }
}

// Gradients of gamma and beta, and dx = a g + b (x - mean) + c.
extern "C" __global__ void gradient_affine(const float* partial, int slabs, u64 rows, int channels, const float* gamma,
                                           const float* variance, double epsilon, float* dgamma, float* dbeta,
                                           float* coefficients) {
    const int channel = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    if (channel >= channels) return;
    double sum, product;
    of_slabs(partial, slabs, channels, channel, sum, product);
    if (threadIdx.x % 32 > 0) return;
    const double inverse = 1.0 / sqrt((double)variance[channel] + epsilon);
    dbeta[channel] = (float)sum;
    dgamma[channel] = (float)(product * inverse);
    const double scale = (double)gamma[channel] * inverse;
    coefficients[channel] = (float)scale;
    coefficients[channels + channel] = (float)(-scale * product * inverse * inverse / (double)rows);
    coefficients[2 * channels + channel] = (float)(-scale * sum / (double)rows);
}

template <typename Value, int VECTOR, int ACTIVATION, bool FROM_RESULT>
__device__ void input_gradient(const Value* __restrict__ x, const Value* __restrict__ dy, const Value* __restrict__ y,
                               const float* mean, const float* factor, const float* summand, const float* coefficients,
                               Value* __restrict__ dx, Value* __restrict__ dadded, u64 rows, int channels, int lanes) {
    const int lane = threadIdx.x % lanes, row = threadIdx.x / lanes, height = blockDim.x / lanes;
    const int channel = (blockIdx.x * lanes + lane) * VECTOR;
    if (channel >= channels) return;
    typedef Packed<Value, VECTOR> Values;
    float center[VECTOR], scale[VECTOR], shift[VECTOR], of_gradient[VECTOR], of_value[VECTOR], constant[VECTOR];
    for (int v = 0; v < VECTOR; v++) {
        const int c = channel + v;
        center[v] = mean[c];
        scale[v] = factor[c];
        shift[v] = summand[c];
        of_gradient[v] = coefficients[c];
        of_value[v] = coefficients[channels + c];
        constant[v] = coefficients[2 * channels + c];
    }
    const u64 stride = (u64)gridDim.y * height;
#pragma unroll 2
    for (u64 pixel = (u64)blockIdx.y * height + row; pixel < rows; pixel += stride) {
        const u64 at = pixel * channels + channel;
        Values in = *(const Values*)(x + at), gradients = *(const Values*)(dy + at), results, out, passed;
        if (FROM_RESULT) results = *(const Values*)(y + at);
        for (int v = 0; v < VECTOR; v++) {
            const float value = wide(in.at[v]);
            const float judged = FROM_RESULT ? wide(results.at[v]) : value * scale[v] + shift[v];
            const float gradient = passes<ACTIVATION>(judged) ? wide(gradients.at[v]) : 0.0f;
            narrow(of_gradient[v] * gradient + of_value[v] * (value - center[v]) + constant[v], out.at[v]);
            if (FROM_RESULT) narrow(gradient, passed.at[v]);
        }
        *(Values*)(dx + at) = out;
        if (FROM_RESULT) *(Values*)(dadded + at) = passed;
    }
}

// The kernels by name: value type, values read at once, activation, with an added map or without.
#define OF_VALUE(NAME, VALUE, V)                                                                                             \
    extern "C" __global__ void moments_##NAME(const VALUE* x, float* partial, u64 rows, int channels, int lanes) {           \
        moments<VALUE, V>(x, partial, rows, channels, lanes);                                                                \
    }                                                                                                                        \
    OF_ACTIVATION(NAME, VALUE, V, 0)                                                                                         \
    OF_ACTIVATION(NAME, VALUE, V, 1)                                                                                         \
    OF_ACTIVATION(NAME, VALUE, V, 2)

#define OF_ACTIVATION(NAME, VALUE, V, A)                                                                                     \
    OF_ADDED(NAME, VALUE, V, A, 0)                                                                                           \
    OF_ADDED(NAME, VALUE, V, A, 1)

#define OF_ADDED(NAME, VALUE, V, A, ADDED)                                                                                   \
    extern "C" __global__ void apply_##NAME##_##A##_##ADDED(const VALUE* x, const VALUE* added, const float* factor,         \
                                                            const float* summand, VALUE* y, u64 rows, int channels,          \
                                                            int lanes) {                                                     \
        apply<VALUE, V, A, ADDED>(x, added, factor, summand, y, rows, channels, lanes);                                      \
    }                                                                                                                        \
    extern "C" __global__ void sums_##NAME##_##A##_##ADDED(                                                                  \
        const VALUE* x, const VALUE* dy, const VALUE* y, const float* mean, const float* factor, const float* summand,       \
        float* partial, u64 rows, int channels, int lanes) {                                                                 \
        gradient_sums<VALUE, V, A, ADDED>(x, dy, y, mean, factor, summand, partial, rows, channels, lanes);                  \
    }                                                                                                                        \
    extern "C" __global__ void input_##NAME##_##A##_##ADDED(                                                                 \
        const VALUE* x, const VALUE* dy, const VALUE* y, const float* mean, const float* factor, const float* summand,       \
        const float* coefficients, VALUE* dx, VALUE* dadded, u64 rows, int channels, int lanes) {                            \
        input_gradient<VALUE, V, A, ADDED>(x, dy, y, mean, factor, summand, coefficients, dx, dadded, rows, channels,        \
                                           lanes);                                                                           \
    }

#define AFFINE(NAME, VALUE)                                                                                                  \
    extern "C" __global__ void affine_##NAME(const VALUE* x, const float* partial, int slabs, u64 rows, int channels,        \
                                             const float* gamma, const float* beta, double epsilon, float* mean,             \
                                             float* variance, float* factor, float* summand) {                               \
        affine<VALUE>(x, partial, slabs, rows, channels, gamma, beta, epsilon, mean, variance, factor, summand);             \
    }

// Only the kernels of one type are compiled.
#if defined(OF_F32)
AFFINE(f32, float)
OF_VALUE(f32x4, float, 4)
OF_VALUE(f32x1, float, 1)
#elif defined(OF_BF16)
AFFINE(bf16, Bfloat)
OF_VALUE(bf16x8, Bfloat, 8)
OF_VALUE(bf16x1, Bfloat, 1)
#elif defined(OF_F16)
AFFINE(f16, Half)
OF_VALUE(f16x8, Half, 8)
OF_VALUE(f16x1, Half, 1)
#endif
