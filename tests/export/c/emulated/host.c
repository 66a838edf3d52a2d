/* A machine with an operating system, emulated or not. */

#include <stdint.h>
#include <stdio.h>

void begin(void) {}

void put(char c)
{
    putchar(c);
}

uint32_t count(void)
{
    return 0;
}
