/* Where tables of measured kernels are found and kept: a store holds those of one GPU, of the scenario's own folder
 * first and of the scenario library after it. A table is read when it is first asked for and lives as long as the
 * process; stores and tables may be shared by threads.
 */
#ifndef TANDEM_SIM_COST_KERNEL_STORE_H
#define TANDEM_SIM_COST_KERNEL_STORE_H

#include "world/kernels/kernel_table.h"
#include "host/user_error.h"

struct kernel_store;

/* The tables of a GPU; never NULL, but it may hold none. `folder` is hardware/kernels/GPU beside the scenario, or
 * "". */
const struct kernel_store *kernel_store_open(const char *folder, const char *gpu);

/* How many tables of a kind an engine has; they are numbered from the newest version down, those of the scenario's own
 * folder before the library's. `engine` NULL: any, in the order of names. */
uint32_t kernel_store_count(const struct kernel_store *store, const struct kernel_kind *kind, const char *engine);

/* NULL with `error` described when the table is damaged. */
const struct kernel_table *kernel_store_table(const struct kernel_store *store, const struct kernel_kind *kind,
                                              const char *engine, uint32_t number, struct user_error *error);

/* All tables of a store, in the order of their kinds, engines and versions. */
uint32_t kernel_store_size(const struct kernel_store *store);
const struct kernel_table *kernel_store_at(const struct kernel_store *store, uint32_t index, struct user_error *error);

#endif
