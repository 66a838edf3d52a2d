/* Any machine: vectors of four, and tiles for sixteen registers of them. */
#define KERNELS asterism_portable
#define WIDTH 4
#define ROWS 6
#define MORE_CASES(CALL)
#define DENSE_ROWS 2
#define DENSE_CASES(CALL)
#define PANEL_IMAGES 2
#define PLACES 2
#define PANELS 1
#include "kernels.h"
