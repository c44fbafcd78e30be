/* The thread that owns an instance's transfer engine. Commands go in and reports come out through bounded rings; only
 * this thread calls into real/fabric once it runs.
 *
 * Commands are carried out in the order given. Each has a number, and fabric_thread_done() says up to which they have
 * been: whoever must not go on before a command is in effect (a message that lets a peer write, before the count of its
 * immediate is armed) waits for that.
 */
#ifndef TANDEM_REAL_FABRIC_FABRIC_THREAD_H
#define TANDEM_REAL_FABRIC_FABRIC_THREAD_H

#include "real/fabric/fabric.h"
#include "host/user_error.h"

/* Reports that may wait for the loop; tickets, hand-offs and peers together stay below. A power of two. */
#define FABRIC_REPORTS_MAX 8192u

struct fabric_thread;

enum report_kind {
    REPORT_EVENT = 1,  /* `event` */
    REPORT_CARD = 2,   /* `card` for `node`, which the reader frees; NULL: `error` */
    REPORT_PEER = 3,   /* the peer's card was learnt, or not: `error` is not empty */
    REPORT_FENCED = 4, /* `node` has been removed; event.count: its incarnation, as it was told */
    REPORT_CLOSED = 5, /* of `node`: rails have been closed, as event.id asked */
};

struct fabric_report {
    enum report_kind kind;
    uint32_t node;
    struct fabric_event event;
    unsigned char *card;
    size_t card_bytes;
    char error[256]; /* of a peer, empty where it was taken */
};

/* Takes the engine over and starts the thread. `crowded`: the machine has more to run than processors, and the thread
 * leaves them to others where it can (real_world_crowded). */
struct fabric_thread *fabric_thread_start(struct fabric *fabric, bool crowded);

/* Ends the thread and frees the engine. False when the thread does not come back from the provider (a peer died or
 * hangs with a lock that shm shares between them): then nothing is freed, for it may still touch all of it, and the
 * process can only end. */
bool fabric_thread_stop(struct fabric_thread *thread);

/* Whether the thread is to be given up, having carried out nothing since `since_ns`, when it had used `cpu_ns`: waiting
 * for a lock it spins, and uses what no healthy command does; held up by a busy machine it uses little, and is waited
 * for longer. */
bool fabric_thread_hopeless(const struct fabric_thread *thread, int64_t since_ns, int64_t cpu_ns);
int64_t fabric_thread_cpu_ns(const struct fabric_thread *thread);

/* Each returns the command's number. Arguments are copied. */
uint64_t fabric_thread_write(struct fabric_thread *thread, const struct paged_write *write, uint64_t counter_base);
uint64_t fabric_thread_write_stop(struct fabric_thread *thread, uint32_t ticket);
uint64_t fabric_thread_expect(struct fabric_thread *thread, uint32_t immediate, uint64_t count);
/* For an engine that stages: takes the bytes of an immediate that was reported on to the device. */
uint64_t fabric_thread_land(struct fabric_thread *thread, uint32_t immediate, uint64_t count,
                            const struct fabric_landing *landing);
bool fabric_thread_staged(const struct fabric_thread *thread);
uint64_t fabric_thread_card(struct fabric_thread *thread, uint32_t node);
uint64_t fabric_thread_peer(struct fabric_thread *thread, uint32_t node, const void *card, size_t bytes,
                            const struct kv_memory *memory);
uint64_t fabric_thread_nic_fail(struct fabric_thread *thread, uint32_t nic);
uint64_t fabric_thread_close(struct fabric_thread *thread, uint32_t node, uint32_t rails, uint32_t id);
uint64_t fabric_thread_remove(struct fabric_thread *thread, uint32_t node, uint32_t incarnation);

uint64_t fabric_thread_done(const struct fabric_thread *thread);

/* Readable when there are reports, or when a command has been carried out that was waited for. */
int fabric_thread_fd(const struct fabric_thread *thread);

/* Resets the descriptor; then reports are to be taken until there is none. */
void fabric_thread_clear(struct fabric_thread *thread);
bool fabric_thread_next(struct fabric_thread *thread, struct fabric_report *report);

/* Immediates that nobody expected any more, so far. */
uint64_t fabric_thread_late(const struct fabric_thread *thread);

/* Bytes copied between devices and pinned memory so far, and the time that took. */
uint64_t fabric_thread_staged_bytes(const struct fabric_thread *thread);
int64_t fabric_thread_staged_ns(const struct fabric_thread *thread);

/* Nothing is in flight, and no command waits. */
bool fabric_thread_quiet(const struct fabric_thread *thread);

#endif
