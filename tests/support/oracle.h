/* Knows whose every page is, from nothing but the operations that nodes call and the events they get. See town.h. */
#ifndef TANDEM_TESTS_SUPPORT_ORACLE_H
#define TANDEM_TESTS_SUPPORT_ORACLE_H

#include "runtime.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct oracle;

/* `label` leads every failure, so that it can be played again; it must outlive the oracle. */
struct oracle *oracle_make(const char *label);
void oracle_free(struct oracle *oracle);

/* Called before the operation is passed on. Each fails the test when the operation breaks an invariant. */
void oracle_expect(struct oracle *oracle, uint32_t node, uint32_t immediate, uint64_t count);
void oracle_send(struct oracle *oracle, uint32_t node, uint32_t destination, const void *bytes, size_t length);
void oracle_post(struct oracle *oracle, uint32_t node, const struct paged_write *write);
void oracle_launch(struct oracle *oracle, uint32_t node, uint32_t page_tokens, const struct step_launch *launch);

/* Called before the node gets the event. */
void oracle_event(struct oracle *oracle, uint32_t node, const struct event *event);

/* The node is dead: what it had posted is over. */
void oracle_died(struct oracle *oracle, uint32_t node);

/* Writes that were posted and never answered. */
uint32_t oracle_open(const struct oracle *oracle);

#endif
