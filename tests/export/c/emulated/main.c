/* Some images through the network; its answers leave bit by bit, as hexadecimal numbers. */

#include <stdint.h>
#include <string.h>

#include "images.h"
#include "net.h"

void begin(void);
void put(char c);
uint32_t count(void);

static float in[NET_INPUT], out[NET_OUTPUT], workspace[NET_WORKSPACE / sizeof(float)];

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
        for (int i = 0; i < NET_INPUT; i++) in[i] = (float)PIXEL(image, i) / 255;
        uint32_t before = count();
        net(in, out, workspace);
        spent += count() - before;
        for (int i = 0; i < NET_OUTPUT; i++) {
            uint32_t bits;
            memcpy(&bits, out + i, sizeof bits);
            print(bits);
        }
    }
    print(spent);
    put('.');
    return 0;
}
