/* AVX-512 in vectors of eight floats, of which there are thirty-two, for processors that halve larger
   ones. */
#define KERNELS asterism_avx512vl
#define WIDTH 8
#define ROWS 24
#define MORE_CASES(CALL) \
    CASE(7, CALL) CASE(8, CALL) CASE(9, CALL) CASE(10, CALL) CASE(11, CALL) CASE(12, CALL) \
    CASE(13, CALL) CASE(14, CALL) CASE(15, CALL) CASE(16, CALL) CASE(17, CALL) CASE(18, CALL) \
    CASE(19, CALL) CASE(20, CALL) CASE(21, CALL) CASE(22, CALL) CASE(23, CALL) CASE(24, CALL)
#define DENSE_ROWS 6
#define DENSE_CASES(CALL) CASE(3, CALL) CASE(4, CALL) CASE(5, CALL) CASE(6, CALL)
#define PANEL_IMAGES 8
#define PLACES 8
#define PANELS 1
#define SUMS 16
#include "kernels.h"
