// Steps of optimisers, in the order of operations of update.rs. update.rs of this folder starts the kernels.

extern "C" __global__ void sgd(const float* weights, const float* gradient, const float* velocity, float* moved, float* kept,
                               u64 values, float rate, float decay, float momentum, int nesterov, int first) {
    const u64 stride = (u64)gridDim.x * blockDim.x;
    for (u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x; at < values; at += stride) {
        const float w = weights[at];
        const float g = decay > 0.0f ? w * decay + gradient[at] : gradient[at];
        const float v = first ? g : g + velocity[at] * momentum;
        kept[at] = v;
        moved[at] = w - (nesterov ? v * momentum + g : v) * rate;
    }
}

extern "C" __global__ void adam(const float* weights, const float* gradient, const float* first, const float* second,
                                float* moved, float* new_first, float* new_second, u64 values, float beta_1, float beta_2,
                                float factor_1, float factor_2, float correction_1, float correction_2, float epsilon,
                                float rate, float kept, int fresh) {
    const u64 stride = (u64)gridDim.x * blockDim.x;
    for (u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x; at < values; at += stride) {
        const float g = gradient[at];
        float m = g * factor_1, s = g * g * factor_2;
        if (!fresh) {
            m = first[at] * beta_1 + m;
            s = second[at] * beta_2 + s;
        }
        new_first[at] = m;
        new_second[at] = s;
        const float direction = (m / correction_1) / (sqrtf(s / correction_2) + epsilon);
        moved[at] = weights[at] * kept - direction * rate;
    }
}
