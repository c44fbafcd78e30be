/* See step_table.h. */
#include "world/scenario/step_table.h"

struct place {
    uint32_t index; /* of the breakpoint below; the one above is index + 1 */
    double share;   /* of the way from it to the one above; beyond the axis below 0 or above 1 */
};

static struct place row_place(const struct step_grid *grid, double at)
{
    struct place place = {.index = 0};
    while (place.index + 2 < grid->row_count && grid->rows[place.index + 1] <= at)
        place.index++;
    if (grid->row_count > 1)
        place.share = (at - grid->rows[place.index]) / ((double)grid->rows[place.index + 1] - grid->rows[place.index]);
    return place;
}

static struct place column_place(const struct step_grid *grid, double at)
{
    struct place place = {.index = 0};
    while (place.index + 2 < grid->column_count && (double)grid->columns[place.index + 1] <= at)
        place.index++;
    double low = (double)grid->columns[place.index];
    if (grid->column_count > 1)
        place.share = (at - low) / ((double)grid->columns[place.index + 1] - low);
    return place;
}

static double column_at(const struct step_grid *grid, const struct place *row, uint32_t column)
{
    double low = (double)grid->ns[row->index][column];
    return grid->row_count == 1 ? low : low + ((double)grid->ns[row->index + 1][column] - low) * row->share;
}

double step_grid_at(const struct step_grid *grid, double row, double column)
{
    struct place r = row_place(grid, row);
    struct place c = column_place(grid, column);
    double low = column_at(grid, &r, c.index);
    double ns = low;
    if (grid->column_count > 1)
        ns += (column_at(grid, &r, c.index + 1) - low) * c.share;
    return ns > 1.0 ? ns : 1.0;
}
