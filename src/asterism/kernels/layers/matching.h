/* Steps of a slice that can be done without. What a step takes can often go to others, while these change
   places: a matching of each row's columns with the steps that reach them. A step is superfluous if no row
   has more left without it than it may; the last ones, which serve few rows, are tried first. */

enum { SEARCHED = 128 }; /* more steps would take long to search */

typedef struct {
    const Cover *cover;
    int64_t count, gone;           /* steps; the one that is done without */
    int32_t taken[MOST][SEARCHED]; /* of each row by each step, or NOTHING */
    int32_t tried[MOST][SEARCHED]; /* the same without the step that is gone */
    int32_t nonzeros[MOST];        /* of each row, */
    int32_t *columns;              /* and where they are, row after row */
    uint8_t *held;                 /* whether a step of the row at hand has the column */
    uint8_t *near; /* of each column, whether a step's window has it; first of all what is before the first */
} Matching;

static void free_matching(Matching *m)
{
    if (m) free(m->columns), free(m->held), free(m->near);
    free(m);
}

static Matching *new_matching(const Cover *c)
{
    Matching *m = malloc(sizeof *m);
    if (!m) return NULL;
    m->cover = c;
    m->columns = malloc(c->side * c->columns * sizeof *m->columns + 1);
    m->held = calloc(c->columns + 1, 1);
    m->near = calloc(c->columns + 1, SEARCHED + 1);
    if (m->columns && m->held && m->near) return m;
    free_matching(m);
    return NULL;
}

static int reaches(const Matching *m, int64_t step, int32_t column)
{
    const uint8_t *near = m->near + (int64_t)column * (SEARCHED + 1) + 1;
    int64_t before = step - 1 == m->gone ? step - 2 : step - 1;
    return step != m->gone && (near[step] || (is_chained(m->cover) && near[before]));
}

/* Has a step take the column, though others change for it; `seen`: steps that were asked already. */
static int place(const Matching *m, int32_t *taken, int32_t column, uint8_t *seen)
{
    for (int64_t step = 0; step < m->count; step++) {
        if (seen[step] || !reaches(m, step, column)) continue;
        seen[step] = 1;
        if (taken[step] != NOTHING && !place(m, taken, taken[step], seen)) continue;
        taken[step] = column;
        return 1;
    }
    return 0;
}

/* Whether a row has no more left than it may, where its steps take what they still reach. */
static int settle(const Matching *m, int64_t row, int32_t *taken)
{
    const int32_t *columns = m->columns + row * m->cover->columns;
    int32_t excess = m->nonzeros[row] - LEFT;
    for (int64_t step = 0; step < m->count; step++) {
        if (taken[step] == NOTHING) continue;
        if (reaches(m, step, taken[step]))
            m->held[taken[step]] = 1, excess--;
        else
            taken[step] = NOTHING;
    }
    for (int64_t i = 0; i < m->nonzeros[row] && excess > 0; i++) {
        uint8_t seen[SEARCHED] = {0};
        if (!m->held[columns[i]] && place(m, taken, columns[i], seen)) excess--;
    }
    for (int64_t i = 0; i < m->nonzeros[row]; i++) m->held[columns[i]] = 0;
    return excess <= 0;
}

static int is_superfluous(Matching *m, int64_t step)
{
    m->gone = step;
    for (int64_t row = 0; row < m->cover->side; row++) {
        memcpy(m->tried[row], m->taken[row], m->count * sizeof **m->tried);
        if (!settle(m, row, m->tried[row])) return 0;
    }
    return 1;
}

/* Says of each step which columns its window has, or forgets it. */
static void mark_windows(const Matching *m, const uint16_t *starts, uint8_t has)
{
    const Cover *c = m->cover;
    for (int64_t step = -1; step < m->count; step++)
        for (int64_t i = 0; i < c->side; i++) {
            int64_t column = c->column[(step < 0 ? 0 : starts[step]) + i];
            m->near[column * (SEARCHED + 1) + 1 + step] = has;
        }
}

static void leave_out(Matching *m, uint16_t *starts, int64_t step)
{
    mark_windows(m, starts, 0);
    m->count--;
    memmove(starts + step, starts + step + 1, (m->count - step) * sizeof *starts);
    for (int64_t row = 0; row < m->cover->side; row++) {
        memcpy(m->taken[row], m->tried[row], step * sizeof **m->taken);
        memcpy(m->taken[row] + step, m->tried[row] + step + 1,
               (m->count - step) * sizeof **m->taken);
    }
    mark_windows(m, starts, 1);
}

/* Leaves out steps as long as one is superfluous; returns how many stay. `cover` has all non-zeros.

   taken   the columns that each step takes, a row's each
   starts  where its window begins */
static int64_t shorten(Matching *m, int32_t *taken, uint16_t *starts, int64_t count)
{
    const Cover *c = m->cover;
    if (count > SEARCHED) return count;
    m->count = count;
    for (int64_t row = 0; row < c->side; row++) {
        m->nonzeros[row] = 0;
        for (int32_t i = 0; i < c->columns; i++)
            if (c->rows[i] >> row & 1) m->columns[row * c->columns + m->nonzeros[row]++] = i;
        for (int64_t k = 0; k < count; k++) m->taken[row][k] = taken[k * c->side + row];
    }
    mark_windows(m, starts, 1);
    for (int64_t before = -1; before != m->count;) {
        before = m->count;
        for (int64_t step = m->count - 1; step >= 0; step--)
            if (is_superfluous(m, step)) leave_out(m, starts, step);
    }
    mark_windows(m, starts, 0);
    for (int64_t k = 0; k < m->count; k++)
        for (int64_t row = 0; row < c->side; row++) taken[k * c->side + row] = m->taken[row][k];
    return m->count;
}
