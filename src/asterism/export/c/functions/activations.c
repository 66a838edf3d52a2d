/* Functions of each number by itself. */

/* ---- softplus_of */
static float softplus_of(float v)
{
    return (v > 0 ? v : 0) + log1pf(expf(-fabsf(v)));
}

/* ---- hard_sigmoid_of */
static float hard_sigmoid_of(float v)
{
    v = v / 6 + 0.5f;
    return v < 0 ? 0 : v > 1 ? 1 : v;
}

/* ---- relu */
static void relu(const float *x, float *y, int32_t n)
{
    for (; n > 0; n--, x++) *y++ = *x < 0 ? 0 : *x;
}

/* ---- gelu */
static void gelu(const float *x, float *y, int32_t n)
{
    for (; n > 0; n--, x++) *y++ = 0.5f * *x * (1 + erff(*x * 0.70710678f));
}

/* ---- gelu_tanh */
static void gelu_tanh(const float *x, float *y, int32_t n)
{
    for (; n > 0; n--, x++) *y++ = 0.5f * *x * (1 + tanhf(0.79788456f * (*x + 0.044715f * *x * *x * *x)));
}

/* ---- silu */
static void silu(const float *x, float *y, int32_t n)
{
    for (; n > 0; n--, x++) *y++ = *x / (1 + expf(-*x));
}

/* ---- sigmoid */
static void sigmoid(const float *x, float *y, int32_t n)
{
    for (; n > 0; n--, x++) *y++ = sigmoid_of(*x);
}

/* ---- tanh_each */
static void tanh_each(const float *x, float *y, int32_t n)
{
    for (; n > 0; n--, x++) *y++ = tanhf(*x);
}

/* ---- leaky_relu */
static void leaky_relu(const float *x, float *y, int32_t n, float slope)
{
    for (; n > 0; n--, x++) *y++ = *x < 0 ? *x * slope : *x;
}

/* ---- clamp */
static void clamp(const float *x, float *y, int32_t n, float low, float high)
{
    for (; n > 0; n--, x++) *y++ = *x < low ? low : *x > high ? high : *x;
}

/* ---- elu */
static void elu(const float *x, float *y, int32_t n, float alpha, float factor)
{
    for (; n > 0; n--, x++) *y++ = *x > 0 ? *x : alpha * expm1f(*x * factor);
}

/* ---- power */
static void power(const float *x, float *y, int32_t n, float exponent)
{
    for (; n > 0; n--, x++) *y++ = powf(*x, exponent);
}

/* ---- softplus */
static void softplus(const float *x, float *y, int32_t n)
{
    for (; n > 0; n--, x++) *y++ = softplus_of(*x);
}

/* ---- mish */
static void mish(const float *x, float *y, int32_t n)
{
    for (; n > 0; n--, x++) *y++ = *x * tanhf(softplus_of(*x));
}

/* ---- scale_shift */
static void scale_shift(const float *x, float *y, int32_t n, float factor, float shift)
{
    for (; n > 0; n--, x++) *y++ = *x * factor + shift;
}

/* ---- hard_swish */
static void hard_swish(const float *x, float *y, int32_t n)
{
    for (; n > 0; n--, x++) *y++ = *x * hard_sigmoid_of(*x);
}

/* ---- hard_sigmoid */
static void hard_sigmoid(const float *x, float *y, int32_t n)
{
    for (; n > 0; n--, x++) *y++ = hard_sigmoid_of(*x);
}

/* ---- exp_each */
static void exp_each(const float *x, float *y, int32_t n)
{
    for (; n > 0; n--, x++) *y++ = expf(*x);
}

/* ---- log_each */
static void log_each(const float *x, float *y, int32_t n)
{
    for (; n > 0; n--, x++) *y++ = logf(*x);
}

/* ---- abs_each */
static void abs_each(const float *x, float *y, int32_t n)
{
    for (; n > 0; n--, x++) *y++ = fabsf(*x);
}

/* ---- erf_each */
static void erf_each(const float *x, float *y, int32_t n)
{
    for (; n > 0; n--, x++) *y++ = erff(*x);
}
