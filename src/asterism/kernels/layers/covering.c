/* How eight rows of a sparse matrix are multiplied in few steps (recurrent.h): a step takes, of each row,
   at most one non-zero, and all of them from inputs at eight places side by side. Inputs may lie in
   several orders, one after the other. Greedy: the window that serves most rows comes next, as long as a
   row has more non-zeros than may be left. */
#include <stdlib.h>
#include <string.h>
#include "../program.h"

enum { SIDE = 8 }; /* rows, and places in a window */

typedef struct {
    const int32_t *column; /* of each place; beyond the last one: no input is there */
    int64_t places, columns, orders;
    int32_t *found; /* the places of each column */
    uint8_t *rows;  /* of each column, those that still have a non-zero there: a bit each */
    uint8_t *served; /* of each place, the rows that a window from there on would serve */
} Cover;

static uint8_t served_from(const Cover *c, int64_t place)
{
    uint8_t rows = 0;
    for (int i = 0; i < SIDE; i++) rows |= c->rows[c->column[place + i]];
    return rows;
}

static void look_again(const Cover *c, int32_t column)
{
    for (int64_t order = 0; order < c->orders; order++) {
        int64_t place = c->found[column * c->orders + order];
        int64_t first = place < SIDE ? 0 : place - SIDE + 1;
        for (int64_t p = first; p <= place && p + SIDE <= c->places; p++)
            if (c->served[p]) c->served[p] = served_from(c, p);
    }
}

/* The weight, whose three lowest bits become the place of its input: the nearest such number. */
static float with_place(float weight, int place)
{
    uint32_t bits;
    memcpy(&bits, &weight, sizeof bits);
    bits = (bits & 0x7fffffff) + SIDE / 2 > (uint32_t)place ? bits - place + SIDE / 2 : bits;
    bits = (bits & ~(SIDE - 1u)) | place;
    memcpy(&weight, &bits, sizeof weight);
    return weight;
}

/* Takes one non-zero of each row that is served. */
static void take(const Cover *c, const float *weight, int64_t place, float *step)
{
    uint8_t served = c->served[place];
    for (int row = 0; row < SIDE; row++) {
        int i = 0;
        step[row] = 0;
        if (!(served >> row & 1)) continue;
        while (!(c->rows[c->column[place + i]] >> row & 1)) i++;
        int32_t column = c->column[place + i];
        c->rows[column] &= ~(1 << row);
        step[row] = with_place(weight[row * c->columns + column], i);
    }
    for (int i = 0; i < SIDE; i++)
        if (c->column[place + i] < c->columns) look_again(c, c->column[place + i]);
}

/* Writes the weights of each step, and where its window begins; returns how many steps there are. */
static int64_t cover(const Cover *c, const float *weight, float *steps, uint16_t *starts)
{
    int64_t left[SIDE] = {0}, count = 0;
    uint8_t wanting = 0; /* rows with too many left */
    memset(c->rows, 0, c->columns + 1);
    for (int row = 0; row < SIDE; row++) {
        for (int64_t i = 0; i < c->columns; i++)
            if (weight[row * c->columns + i]) c->rows[i] |= 1 << row, left[row]++;
        wanting |= (left[row] > LEFT) << row;
    }
    for (int64_t p = 0; p + SIDE <= c->places; p++) c->served[p] = served_from(c, p);
    for (int most = SIDE; wanting; most--)
        for (int64_t p = 0; wanting && p + SIDE <= c->places; p++)
            while (wanting && __builtin_popcount(c->served[p] & wanting) >= most) {
                for (int row = 0; row < SIDE; row++)
                    if (c->served[p] >> row & 1 && --left[row] <= LEFT) wanting &= ~(1 << row);
                starts[count] = p;
                take(c, weight, p, steps + SIDE * count++);
            }
    return count;
}

/* Writes the weights that no step takes, row by row, and their places. */
static void gather_left(const Cover *c, const float *weight, float *left, uint16_t *places)
{
    memset(left, 0, LEFT * SIDE * sizeof *left);
    memset(places, 0, LEFT * SIDE * sizeof *places);
    for (int row = 0; row < SIDE; row++)
        for (int64_t i = 0, k = row; i < c->columns; i++)
            if (c->rows[i] >> row & 1) {
                left[k] = weight[row * c->columns + i], places[k] = i;
                k += SIDE;
            }
}

/* Covers slices of eight rows each.

   column  of each place the column that lies there, or `columns` where there is none; `orders` times
           each column, and fewer than 2^16 places, eight of them at least. The first order is the
           columns' own.
   left    the weights that are left of each slice, LEFT times eight, and their `places`
   steps   room for eight weights for each non-zero; `starts`: for one number
   counts  becomes how many steps each slice takes
   Returns 0 if there is no memory for it. */
int asterism_cover(const float *weight, int64_t slices, int64_t columns, const int32_t *column,
                   int64_t places, int64_t orders, float *left, uint16_t *left_places, float *steps,
                   uint16_t *starts, int32_t *counts)
{
    Cover c = {column, places, columns, orders, malloc(columns * orders * sizeof(int32_t) + 1),
               malloc(columns + 1), malloc(places)};
    int ready = c.found && c.rows && c.served;
    if (ready) {
        memset(c.rows, 0, columns + 1); /* for now: how many places of a column are known */
        for (int64_t p = 0; p < places; p++)
            if (column[p] < columns) c.found[column[p] * orders + c.rows[column[p]]++] = p;
        for (int64_t i = 0; i < slices; i++, weight += SIDE * columns) {
            counts[i] = cover(&c, weight, steps, starts);
            gather_left(&c, weight, left + i * LEFT * SIDE, left_places + i * LEFT * SIDE);
            steps += SIDE * counts[i], starts += counts[i];
        }
    }
    free(c.found), free(c.rows), free(c.served);
    return ready;
}
