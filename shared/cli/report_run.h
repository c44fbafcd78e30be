/* One run, told to people: what came of it, its latencies, where the time went, and how busy each instance was. */
#ifndef TANDEM_CLI_REPORT_RUN_H
#define TANDEM_CLI_REPORT_RUN_H

#include "host/output.h"
#include "run/results/results.h"

/* A line about a target that was missed: by how much. Nothing where it was met. */
void report_missed_target(const struct run_report *report, const struct target_report *target, FILE *err);

/* Text and Markdown are four tables; JSON is the run's object, and CSV a row with all that it holds. */
void report_run(const struct run_report *report, const struct output *output);

/* What is left to tell when all runs are over, from an array of their JSON: JSON is the run, or of a sweep the array,
 * and CSV a row a run with the same values; the runs of a sweep are otherwise a table, one a row, by what varies. */
void report_runs(const json_t *runs, bool sweep, const struct output *output);

#endif
