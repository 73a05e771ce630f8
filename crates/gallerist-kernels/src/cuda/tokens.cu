// Layers of transformers: layer norm, softmax, activations, and sums over rows. tokens.rs starts the kernels.
//
// `rows` rows of `width` values. The engine pads its rows: `x_row` and `dy_row` are values from one row of `x` and `dy` to the next.
// All other rows are contiguous.

#if defined(OF_F32)
typedef float Value;
#elif defined(OF_BF16)
typedef Bfloat Value;
#elif defined(OF_F16)
typedef Half Value;
#endif

// The sum over the threads of a warp, which all of them get.
__device__ __forceinline__ float warp_sum(float value) {
    for (int offset = 16; offset > 0; offset >>= 1) value += __shfl_xor_sync(0xffffffffu, value, offset);
    return value;
}

// One warp a row; mean and reciprocal deviation of a row go to `moments`.
extern "C" __global__ void layer_norm(const Value* x, const float* weight, const float* bias, Value* y, float* moments,
                                      u64 rows, int width, double epsilon, u64 x_row) {
    const u64 row = (u64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    if (row >= rows) return;
    x += row * x_row;
    y += row * width;
    float sum = 0.0f;
    for (int i = lane; i < width; i += 32) sum += wide(x[i]);
    const float mean = warp_sum(sum) / width;
    float square = 0.0f;
    for (int i = lane; i < width; i += 32) {
        const float difference = wide(x[i]) - mean;
        square += difference * difference;
    }
    const float inverse = rsqrtf(warp_sum(square) / width + (float)epsilon);
    for (int i = lane; i < width; i += 32) narrow((wide(x[i]) - mean) * inverse * weight[i] + bias[i], y[i]);
    if (lane == 0) {
        moments[2 * row] = mean;
        moments[2 * row + 1] = inverse;
    }
}

extern "C" __global__ void layer_norm_input(const Value* x, const Value* dy, const float* weight, const float* moments,
                                            Value* dx, u64 rows, int width, u64 x_row, u64 dy_row) {
    const u64 row = (u64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    if (row >= rows) return;
    x += row * x_row;
    dy += row * dy_row;
    dx += row * width;
    const float mean = moments[2 * row], inverse = moments[2 * row + 1];
    float sum = 0.0f, product = 0.0f;
    for (int i = lane; i < width; i += 32) {
        const float gradient = wide(dy[i]) * weight[i];
        sum += gradient;
        product += gradient * (wide(x[i]) - mean) * inverse;
    }
    sum = warp_sum(sum) / width;
    product = warp_sum(product) / width;
    for (int i = lane; i < width; i += 32) {
        const float normal = (wide(x[i]) - mean) * inverse;
        narrow(inverse * (wide(dy[i]) * weight[i] - sum - normal * product), dx[i]);
    }
}

// Partial sums over rows: of `dy`, and of `dy` times the normalised `x` if there are moments. A block has 32 columns and
// blockDim.x / 32 rows at once; gridDim.y blocks share the rows.
extern "C" __global__ void row_sums(const Value* x, const Value* dy, const float* moments, float* partial, u64 rows, int width,
                                    u64 x_row, u64 dy_row) {
    __shared__ float shared[2][8][33];
    const int lane = threadIdx.x % 32, line = threadIdx.x / 32, lines = blockDim.x / 32;
    const int column = blockIdx.x * 32 + lane;
    float sum = 0.0f, product = 0.0f;
    if (column < width) {
        for (u64 row = (u64)blockIdx.y * lines + line; row < rows; row += (u64)gridDim.y * lines) {
            const float gradient = wide(dy[row * dy_row + column]);
            sum += gradient;
            if (moments) product += gradient * (wide(x[row * x_row + column]) - moments[2 * row]) * moments[2 * row + 1];
        }
    }
    shared[0][line][lane] = sum;
    shared[1][line][lane] = product;
    __syncthreads();
    if (line == 0 && column < width) {
        for (int other = 1; other < lines; other++) {
            sum += shared[0][other][lane];
            product += shared[1][other][lane];
        }
        partial[((u64)blockIdx.y * width + column) * 2] = sum;
        partial[((u64)blockIdx.y * width + column) * 2 + 1] = product;
    }
}

// `x` with `bias` added to every row; a thread has VECTOR neighbouring columns.
template <int VECTOR>
__device__ void add_bias(const Value* x, const Value* bias, Value* y, u64 rows, int width, u64 x_row, int lanes) {
    typedef Packed<Value, VECTOR> Values;
    const int lane = threadIdx.x % lanes, line = threadIdx.x / lanes, lines = blockDim.x / lanes;
    const int column = (blockIdx.x * lanes + lane) * VECTOR;
    if (column >= width) return;
    const Values added = *(const Values*)(bias + column);
    for (u64 row = (u64)blockIdx.y * lines + line; row < rows; row += (u64)gridDim.y * lines) {
        Values values = *(const Values*)(x + row * x_row + column);
        for (int v = 0; v < VECTOR; v++) narrow(wide(values.at[v]) + wide(added.at[v]), values.at[v]);
        *(Values*)(y + row * width + column) = values;
    }
}

extern "C" __global__ void add_bias_1(const Value* x, const Value* bias, Value* y, u64 rows, int width, u64 x_row, int lanes) {
    add_bias<1>(x, bias, y, rows, width, x_row, lanes);
}

extern "C" __global__ void add_bias_4(const Value* x, const Value* bias, Value* y, u64 rows, int width, u64 x_row, int lanes) {
    add_bias<4>(x, bias, y, rows, width, x_row, lanes);
}

// The sums of the partial sums, one warp a column: of the products to `first`, of the gradients to `second` and to `narrowed`; any may
// be absent.
extern "C" __global__ void finish_sums(const float* partial, int slabs, int width, float* first, float* second, Value* narrowed) {
    const int column = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    if (column >= width) return;
    double sum, product;
    of_slabs(partial, slabs, width, column, sum, product);
    if (threadIdx.x % 32 > 0) return;
    if (first) first[column] = (float)product;
    if (second) second[column] = (float)sum;
    if (narrowed) narrow((float)sum, narrowed[column]);
}

// Softmax of `scale` times the scores, one warp a row.
extern "C" __global__ void softmax(const float* scores, Value* y, u64 rows, int width, float scale) {
    const u64 row = (u64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    if (row >= rows) return;
    scores += row * width;
    y += row * width;
    float largest = -__int_as_float(0x7f800000);
    for (int i = lane; i < width; i += 32) largest = fmaxf(largest, scores[i]);
    for (int offset = 16; offset > 0; offset >>= 1) {
        largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, offset));
    }
    float sum = 0.0f;
    for (int i = lane; i < width; i += 32) sum += __expf((scores[i] - largest) * scale);
    const float inverse = 1.0f / warp_sum(sum);
    for (int i = lane; i < width; i += 32) narrow(__expf((scores[i] - largest) * scale) * inverse, y[i]);
}

// The gradient with respect to the scores.
extern "C" __global__ void softmax_gradient(const Value* y, const float* dy, Value* dscores, u64 rows, int width, float scale) {
    const u64 row = (u64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    if (row >= rows) return;
    y += row * width;
    dy += row * width;
    dscores += row * width;
    float product = 0.0f;
    for (int i = lane; i < width; i += 32) product += wide(y[i]) * dy[i];
    product = warp_sum(product);
    for (int i = lane; i < width; i += 32) narrow(wide(y[i]) * (dy[i] - product) * scale, dscores[i]);
}

// 0: exact, 1: by the hyperbolic tangent, 2: x sigmoid(1.702 x).
__device__ __forceinline__ float gelu_of(float x, int kind) {
    if (kind == 0) return 0.5f * x * (1.0f + erff(x * 0.70710678f));
    if (kind == 1) return 0.5f * x * (1.0f + tanhf(0.79788456f * (x + 0.044715f * x * x * x)));
    return x / (1.0f + __expf(-1.702f * x));
}

__device__ __forceinline__ float slope_of(float x, int kind) {
    if (kind == 0) return 0.5f * (1.0f + erff(x * 0.70710678f)) + x * 0.39894228f * __expf(-0.5f * x * x);
    if (kind == 1) {
        const float t = tanhf(0.79788456f * (x + 0.044715f * x * x * x));
        return 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * 0.79788456f * (1.0f + 0.134145f * x * x);
    }
    const float s = 1.0f / (1.0f + __expf(-1.702f * x));
    return s * (1.0f + 1.702f * x * (1.0f - s));
}

extern "C" __global__ void gelu(const Value* x, Value* y, u64 values, int kind) {
    const u64 stride = (u64)gridDim.x * blockDim.x;
    for (u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x; at < values; at += stride) narrow(gelu_of(wide(x[at]), kind), y[at]);
}

extern "C" __global__ void gelu_gradient(const Value* x, const Value* dy, Value* dx, u64 values, int kind) {
    const u64 stride = (u64)gridDim.x * blockDim.x;
    for (u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x; at < values; at += stride) {
        narrow(wide(dy[at]) * slope_of(wide(x[at]), kind), dx[at]);
    }
}
