/* Which kernels this processor runs, and which of them it runs best. */
#include "program.h"
#ifdef ASTERISM_X86
#include <cpuid.h>
#endif

/* 0 portable, 1 AVX2 and FMA, 2 and 3 AVX-512 in vectors of eight and of sixteen: the last that runs. */
int asterism_level(void)
{
#ifdef ASTERISM_X86
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw"))
        return 3;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return 1;
#endif
    return 0;
}

/* Zen 4, AMD's family 25, loads and multiplies a vector of sixteen as two of eight; where it begins
   inside of a cache line, that takes longer than two vectors of eight do. */
static int halves_vectors(void)
{
#ifdef ASTERISM_X86
    unsigned a, b, c, d;
    int amd = __get_cpuid(0, &a, &b, &c, &d) && b == signature_AMD_ebx && c == signature_AMD_ecx;
    return amd && __get_cpuid(1, &a, &b, &c, &d) && ((a >> 8) & 15) + ((a >> 20) & 255) == 25;
#else
    return 0;
#endif
}

/* The one that is fastest here. */
int asterism_best_level(void)
{
    int level = asterism_level();
    return level == 3 && halves_vectors() ? 2 : level;
}

const Kernels *asterism_kernels_of(int level)
{
#ifdef ASTERISM_X86
    if (level == 1) return &asterism_avx2;
    if (level == 2) return &asterism_avx512vl;
    if (level == 3) return &asterism_avx512;
#else
    (void)level;
#endif
    return &asterism_portable;
}
