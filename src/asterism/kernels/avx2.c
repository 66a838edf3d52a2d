/* AVX2 and FMA: sixteen registers of eight floats. */
#define KERNELS asterism_avx2
#define WIDTH 8
#define ROWS 12
#define MORE_CASES(CALL) \
    CASE(7, CALL) CASE(8, CALL) CASE(9, CALL) CASE(10, CALL) CASE(11, CALL) CASE(12, CALL)
#define DENSE_ROWS 3
#define DENSE_CASES(CALL) CASE(3, CALL)
#define PANEL_IMAGES 4
#define PLACES 6
#define PANELS 1
#define SUMS 12
#include "kernels.h"
