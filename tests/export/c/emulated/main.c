/* Some images through the network; its answers leave bit by bit, as hexadecimal numbers. */

#include <stdint.h>
#include <string.h>

#include "images.h"
#include "net.h"

void begin(void);
void put(char c);
uint32_t count(void);

#ifdef NET_INPUT_SCALE
typedef int8_t number;
#define MADE(pixel) (number)((float)(pixel) / 255 / NET_INPUT_SCALE + 0.5f)
#else
typedef float number;
#define MADE(pixel) (float)(pixel) / 255
#endif

static number out[NET_OUTPUT];
static int32_t workspace[NET_WORKSPACE / sizeof(int32_t)];
#ifdef NET_INPUT_AT
#define in ((number *)workspace + NET_INPUT_AT)
#define RUN() net(out, workspace)
#else
static number in[NET_INPUT];
#define RUN() net(in, out, workspace)
#endif

static void print(uint32_t bits)
{
    for (int shift = 28; shift >= 0; shift -= 4) put("0123456789abcdef"[bits >> shift & 15]);
    put('\n');
}

int main(void)
{
    begin();
    uint32_t spent = 0;
    for (int image = 0; image < IMAGES; image++) {
        for (int i = 0; i < NET_INPUT; i++) in[i] = MADE(PIXEL(image, i));
        uint32_t before = count();
        RUN();
        spent += count() - before;
        for (int i = 0; i < NET_OUTPUT; i++) {
            float answer = (float)out[i];
            uint32_t bits;
            memcpy(&bits, &answer, sizeof bits);
            print(bits);
        }
    }
    print(spent);
    put('.');
    return 0;
}
