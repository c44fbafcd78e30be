/* Where an estimate of a duration comes from. */
#ifndef TANDEM_SIM_COST_ESTIMATE_H
#define TANDEM_SIM_COST_ESTIMATE_H

enum estimate {
    ESTIMATE_MEASURED = 1,     /* a row of the table */
    ESTIMATE_INTERPOLATED = 2, /* between rows */
    ESTIMATE_MODELLED = 3,     /* beyond the edge of a table, or without one */
};

#endif
