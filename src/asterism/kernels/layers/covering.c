/* How a slice, eight or sixteen rows of a sparse matrix, is multiplied in few steps (recurrent.h). A step
   takes, of each row, at most one non-zero, and all of them from inputs in a window: as many places side
   by side as there are rows. Of sixteen rows it takes them from the window of the step before as well;
   before the first step that is the first one. Inputs may lie in several orders, one after the other.
   Greedy: the window comes next whose rows have most non-zeros to come, as long as a row has more of them
   than may be left. Then steps go that can be done without (matching.h). */
#include <stdlib.h>
#include <string.h>
#include "../program.h"

enum { MOST = 16, NOTHING = -1 }; /* rows of a slice; no column */

typedef struct {
    const int32_t *column; /* of each place; beyond the last one: no input is there */
    int64_t places, columns, orders;
    int64_t side, apart; /* rows, and places in a window; places from one window to the next */
    int32_t *found;      /* the places of each column */
    uint16_t *rows;      /* of each column, those that still have a non-zero there: a bit each */
    uint16_t *served;    /* of each window, the rows that it would serve */
} Cover;

static int is_chained(const Cover *c) { return c->side == MOST; }
static int64_t count_windows(const Cover *c) { return (c->places - c->side) / c->apart + 1; }

#include "matching.h"

static void find_nonzeros(const Cover *c, const float *weight)
{
    memset(c->rows, 0, (c->columns + 1) * sizeof *c->rows);
    for (int64_t row = 0; row < c->side; row++)
        for (int64_t i = 0; i < c->columns; i++)
            if (weight[row * c->columns + i]) c->rows[i] |= 1 << row;
}

static uint16_t served_by(const Cover *c, int64_t window)
{
    uint16_t rows = 0;
    for (int64_t i = 0; i < c->side; i++) rows |= c->rows[c->column[window * c->apart + i]];
    return rows;
}

static void look_again(const Cover *c, int32_t column)
{
    int64_t windows = count_windows(c);
    for (int64_t order = 0; order < c->orders; order++) {
        int64_t place = c->found[column * c->orders + order];
        int64_t first = place < c->side ? 0 : (place - c->side) / c->apart + 1;
        for (int64_t w = first; w * c->apart <= place && w < windows; w++)
            if (c->served[w]) c->served[w] = served_by(c, w);
    }
}

/* What it is worth to serve a set of rows, the first eight and the others: the non-zeros that they have
   left. Rows that may keep what they have count nothing. */
typedef struct {
    int32_t first[256], others[256];
} Worth;

static int weigh(const int32_t *left, Worth *worth)
{
    worth->first[0] = worth->others[0] = 0;
    for (int set = 1; set < 256; set++) {
        int rest = set & (set - 1), row = __builtin_ctz(set);
        worth->first[set] = worth->first[rest] + (left[row] > LEFT ? left[row] : 0);
        worth->others[set] = worth->others[rest] + (left[row + 8] > LEFT ? left[row + 8] : 0);
    }
    return worth->first[255] + worth->others[255] > 0;
}

/* `too`: rows that are served in any case. */
static int64_t best_window(const Cover *c, const Worth *worth, uint16_t too)
{
    int64_t best = 0, windows = count_windows(c);
    int32_t most = -1;
    for (int64_t w = 0; w < windows; w++) {
        uint16_t rows = c->served[w] | too;
        int32_t sum = worth->first[rows & 255] + worth->others[rows >> 8];
        if (sum > most) most = sum, best = w;
    }
    return best;
}

/* Takes one non-zero of each row that has one in the window, or in the one `before`: these first, as
   the next step has the window still. Writes their columns. */
static void take(const Cover *c, int64_t before, int64_t window, int32_t *left, int32_t *taken)
{
    int64_t side = c->side, both[] = {before, window};
    for (int64_t row = 0; row < side; row++) {
        taken[row] = NOTHING;
        for (int64_t i = is_chained(c) ? 0 : side; i < 2 * side; i++) {
            int32_t column = c->column[both[i / side] * c->apart + i % side];
            if (!(c->rows[column] >> row & 1)) continue;
            taken[row] = column;
            c->rows[column] &= ~(1 << row);
            left[row]--;
            look_again(c, column);
            break;
        }
    }
}

/* Writes the columns that each step takes, a row's each, and where its window begins; returns how many
   steps there are. */
static int64_t cover(const Cover *c, int32_t *taken, uint16_t *starts)
{
    int32_t left[MOST] = {0};
    int64_t count = 0, before = 0;
    Worth worth;
    for (int64_t i = 0; i < c->columns; i++)
        for (int64_t row = 0; row < c->side; row++) left[row] += c->rows[i] >> row & 1;
    for (int64_t w = 0; w < count_windows(c); w++) c->served[w] = served_by(c, w);
    for (; weigh(left, &worth); count++) {
        int64_t window = best_window(c, &worth, is_chained(c) ? c->served[before] : 0);
        take(c, before, window, left, taken + c->side * count);
        starts[count] = window * c->apart;
        before = window;
    }
    return count;
}

/* The number nearest to the weight whose lowest bits are the place of its input, one of `places`. */
static float with_place(float weight, uint32_t place, uint32_t places)
{
    uint32_t bits;
    memcpy(&bits, &weight, sizeof bits);
    bits = (bits & 0x7fffffff) + places / 2 > place ? bits - place + places / 2 : bits;
    bits = (bits & ~(places - 1)) | place;
    memcpy(&weight, &bits, sizeof weight);
    return weight;
}

/* Writes the weights of each step in place of their columns; the rest of the non-zeros stays. */
static void write_steps(const Cover *c, const float *weight, const uint16_t *starts, int64_t count,
                        float *steps)
{
    int64_t side = c->side, places = is_chained(c) ? 2 * side : side;
    for (int64_t k = 0; k < count; k++)
        for (int64_t row = 0; row < side; row++, steps++) {
            int32_t column;
            memcpy(&column, steps, sizeof column);
            *steps = 0;
            if (column == NOTHING) continue;
            int64_t both[] = {k && is_chained(c) ? starts[k - 1] : 0, starts[k]};
            int64_t i = is_chained(c) ? 0 : side;
            while (c->column[both[i / side] + i % side] != column) i++;
            *steps = with_place(weight[row * c->columns + column], i % places, places);
            c->rows[column] &= ~(1 << row);
        }
}

/* Writes the weights that no step takes, row by row, and their places. */
static void gather_left(const Cover *c, const float *weight, float *left, uint16_t *places)
{
    memset(left, 0, LEFT * c->side * sizeof *left);
    memset(places, 0, LEFT * c->side * sizeof *places);
    for (int64_t row = 0; row < c->side; row++)
        for (int64_t i = 0, k = row; i < c->columns; i++)
            if (c->rows[i] >> row & 1) {
                left[k] = weight[row * c->columns + i], places[k] = i;
                k += c->side;
            }
}

/* Covers slices of `side` rows each, eight or sixteen.

   column  of each place the column that lies there, or `columns` where there is none; `orders` times
           each column, and fewer than 2^16 places, `side` of them at least. The first order is the
           columns' own.
   left    the weights that are left of each slice, LEFT times as many as rows, and their `places`
   steps   room for a weight of each row for each non-zero; `starts`: for one number
   counts  becomes how many steps each slice takes
   Returns 0 if there is no memory for it. */
int asterism_cover(const float *weight, int64_t slices, int64_t columns, const int32_t *column,
                   int64_t places, int64_t orders, int64_t side, float *left, uint16_t *left_places,
                   float *steps, uint16_t *starts, int32_t *counts)
{
    Cover c = {column, places, columns, orders, side, side == MOST ? side : 1,
               malloc(columns * orders * sizeof(int32_t) + 1),
               malloc((columns + 1) * sizeof(uint16_t)), malloc(places * sizeof(uint16_t))};
    Matching *matching = new_matching(&c);
    int ready = c.found && c.rows && c.served && matching;
    if (ready) {
        /* For now: how many places of a column are known. */
        memset(c.rows, 0, (columns + 1) * sizeof *c.rows);
        for (int64_t p = 0; p < places; p++)
            if (column[p] < columns) c.found[column[p] * orders + c.rows[column[p]]++] = p;
        for (int64_t i = 0; i < slices; i++, weight += side * columns) {
            find_nonzeros(&c, weight);
            counts[i] = cover(&c, (int32_t *)steps, starts);
            find_nonzeros(&c, weight);
            counts[i] = shorten(matching, (int32_t *)steps, starts, counts[i]);
            write_steps(&c, weight, starts, counts[i], steps);
            gather_left(&c, weight, left + i * LEFT * side, left_places + i * LEFT * side);
            steps += side * counts[i], starts += counts[i];
        }
    }
    free_matching(matching);
    free(c.found), free(c.rows), free(c.served);
    return ready;
}
