/* Pending events of one simulation, in (time, sequence of push) order.
 *
 * The queue holds small handles, not events: what is pushed is a 64-bit payload of the caller's. With shuffle_seed != 0
 * the order among equal times is a seeded permutation instead of the order of push; times are never reordered.
 */
#ifndef TANDEM_SIM_TIME_EVENT_QUEUE_H
#define TANDEM_SIM_TIME_EVENT_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

struct event_queue;

struct event_queue *event_queue_make(uint64_t shuffle_seed);
void event_queue_free(struct event_queue *queue);

/* A handle that event_queue_cancel() and event_queue_move() take until the entry is popped; reused afterwards. */
uint32_t event_queue_push(struct event_queue *queue, int64_t time_ns, uint64_t payload);
void event_queue_cancel(struct event_queue *queue, uint32_t handle);
/* As cancel and push, but the entry keeps its handle; its sequence is renewed. */
void event_queue_move(struct event_queue *queue, uint32_t handle, int64_t time_ns);

bool event_queue_peek(const struct event_queue *queue, int64_t *time_ns);
bool event_queue_pop(struct event_queue *queue, int64_t *time_ns, uint64_t *payload);
uint32_t event_queue_length(const struct event_queue *queue);

#endif
