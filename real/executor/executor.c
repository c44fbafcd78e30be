/* See executor.h. */
#define _GNU_SOURCE
#include "real/executor/executor.h"

#include "base/check.h"
#include "real/memory/descriptors.h"
#include "real/executor/mailbox.h"
#include "real/memory/shared_memory.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* How long an executor sleeps before it looks whether it is still wanted. */
#define WAIT_NS INT64_C(100000000)

struct executor {
    struct mailbox *mailbox;
    const struct executor_setup *setup;
    uint32_t rank;
    bool stores_tails; /* first rank of its group on the last stage */
    const struct device_ops *ops;
    struct device *device;
    struct collective *collective;
    struct step_change *changes; /* noted for the next step */
    uint32_t change_count;
    uint32_t change_room;
    uint32_t *pages; /* that they name */
    size_t page_count;
    size_t page_room;
};

/* Where the CUDA device is not built in, a program may bring its own. */
#ifdef TANDEM_CUDA
extern const struct device_ops device_cuda;
#else
extern const struct device_ops device_cuda __attribute__((weak));
#endif

const struct device_ops *executor_device(const char *name, struct user_error *error)
{
    const struct device_ops *cuda = &device_cuda;
    if (strcmp(name, "host") == 0)
        return &device_host;
    if (strcmp(name, "cuda") == 0 && cuda != NULL)
        return cuda;
    user_error_set(error, NULL, 0, NULL, "device %s: this tandem was built without it; host is there", name);
    return NULL;
}

/* Of one rank; what it shares with others is still to be filled in. */
static struct device_config config_of(const struct executor_setup *setup, uint32_t rank)
{
    return (struct device_config){
        .architecture = &setup->architecture,
        .memory = setup->memory,
        .rank = rank,
        .device_first = setup->device_first,
        .weight_seed = setup->weight_seed,
        .sequences_max = setup->sequences_max,
        .tokens_max = setup->tokens_max,
        .request_tokens_max = setup->request_tokens_max,
    };
}

bool executor_setup_bytes(const struct executor_setup *setup, struct executor_bytes *bytes, struct user_error *error)
{
    const struct device_ops *ops = executor_device(setup->device, error);
    *bytes = (struct executor_bytes){.buffers = mailbox_bytes(setup)};
    if (ops == NULL)
        return false;
    if (setup->ranks > 1)
        bytes->buffers += collective_bytes(setup->ranks, setup->collective_floats);
    for (uint32_t r = 0; r < setup->ranks && ops->bytes != NULL; r++) {
        struct device_config config = config_of(setup, r);
        uint64_t weights;
        uint64_t buffers;
        if (!ops->bytes(&config, &weights, &buffers, error))
            return false;
        bytes->weights += weights;
        bytes->buffers += buffers;
        bytes->kv += kv_memory_bytes(&setup->memory, r);
    }
    return true;
}

static bool make_device(struct executor *executor, void *kv, void *collective, struct mailbox_reply *reply)
{
    const struct executor_setup *setup = executor->setup;
    const struct parallelism *p = &setup->memory.geometry.parallelism;
    uint32_t place = executor->rank % ((uint32_t)p->data * p->tensor);
    executor->stores_tails = setup->stores_tails && setup->memory.tail_bytes > 0 && place % p->tensor == 0 &&
                             kv_memory_stage(&setup->memory, executor->rank) == (uint32_t)p->pipeline - 1;
    if (setup->ranks > 1)
        executor->collective = collective_join(collective, executor->rank, setup->ranks, setup->collective_floats,
                                               &executor->mailbox->abandon);
    struct device_config config = config_of(setup, executor->rank);
    config.kv = kv;
    config.collective = executor->collective;
    config.abandon = &executor->mailbox->abandon;
    config.layer_counter = &executor->mailbox->layer_counters[place / p->tensor];
    executor->ops = executor_device(setup->device, &reply->error);
    if (executor->ops != NULL)
        executor->device = executor->ops->make(&config, &reply->error);
    return executor->device != NULL;
}

/* ---- Memory of the device's own ---------------------------------------------------------------------------------- */

/* Sends what others map. Before the first answer: then the instance reads it. */
static bool share(struct executor *executor, int channel, struct mailbox_reply *reply)
{
    static const enum device_share kinds[] = {DEVICE_SHARE_KV, DEVICE_SHARE_PEERS};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        int descriptor = executor->ops->share(executor->device, kinds[i], &reply->error);
        if (descriptor < 0 && reply->error.set)
            return false;
        bool sent = descriptor_send(channel, kinds[i], descriptor);
        if (descriptor >= 0)
            close(descriptor);
        if (!sent)
            return false;
    }
    return true;
}

/* Takes what the other ranks have shared, which the instance hands on. */
static bool join(struct executor *executor, int channel, struct mailbox_reply *reply)
{
    int peers[RANKS_MAX];
    uint32_t rank = 0;
    int descriptor = -1;
    for (uint32_t r = 0; r < executor->setup->ranks; r++)
        peers[r] = -1;
    while (descriptor_receive(channel, &rank, &descriptor) && rank < executor->setup->ranks && peers[rank] < 0)
        peers[rank] = descriptor;
    bool joined = rank == DESCRIPTOR_END && executor->ops->join(executor->device, peers, &reply->error);
    for (uint32_t r = 0; r < executor->setup->ranks; r++)
        if (peers[r] >= 0)
            close(peers[r]);
    return joined;
}

/* ---- Commands ---------------------------------------------------------------------------------------------------- */

static void *grow(void *items, size_t count, size_t size)
{
    void *grown = realloc(items, count * size);
    CHECK(grown != NULL);
    return grown;
}

/* Page lists are noted by place while they grow, and become pointers when the step comes. */
static bool note_changes(struct executor *executor)
{
    const struct executor_setup *setup = executor->setup;
    const struct step_bounds bounds = {
        .groups = setup->groups,
        .sequences = setup->sequences_max,
        .request_tokens_max = setup->request_tokens_max,
        .pages_per_group = setup->memory.pages,
        .request_pages_max = setup->request_pages_max,
        .vocab = setup->architecture.vocab,
    };
    uint32_t list_max = step_list_max(&bounds);
    size_t length = executor->mailbox->change_bytes;
    size_t at = 0;
    if (length > MAILBOX_CHANGES_BYTES)
        return false;
    for (;;) {
        if (executor->page_room - executor->page_count < list_max) {
            executor->page_room = 2 * executor->page_room + list_max;
            executor->pages = grow(executor->pages, executor->page_room, sizeof *executor->pages);
        }
        if (executor->change_count == executor->change_room) {
            executor->change_room = executor->change_room == 0 ? 256 : executor->change_room * 2;
            executor->changes = grow(executor->changes, executor->change_room, sizeof *executor->changes);
        }
        struct step_change *change = &executor->changes[executor->change_count];
        enum step_decode result = step_change_decode(mailbox_changes(executor->mailbox), length, &at, &bounds,
                                                     executor->pages + executor->page_count, list_max, change);
        if (result != STEP_DECODED)
            return result == STEP_DECODE_END;
        executor->change_count++;
        executor->page_count += change->page_count;
    }
}

/* All changes, then the tokens that are given for the sequences they name: in this order they come. False: they do
 * not. */
static bool apply_changes(struct executor *executor)
{
    size_t place = 0;
    uint32_t changes = 0;
    for (uint32_t i = 0; i < executor->change_count; i++) {
        struct step_change *change = &executor->changes[i];
        change->pages = executor->pages + place;
        place += change->page_count;
        if (change->kind != STEP_GIVEN && changes++ < i)
            return false;
    }
    executor->ops->change(executor->device, executor->changes, changes);
    for (uint32_t i = changes; i < executor->change_count; i++) {
        const struct step_change *given = &executor->changes[i];
        executor->ops->given(executor->device, given->sequence, given->start, given->pages, given->page_count);
    }
    return true;
}

static void store_tails(struct executor *executor)
{
    const struct parallelism *p = &executor->setup->memory.geometry.parallelism;
    uint32_t group = executor->rank % ((uint32_t)p->data * p->tensor) / p->tensor;
    for (uint32_t i = 0; i < executor->change_count && executor->stores_tails; i++) {
        const struct step_change *change = &executor->changes[i];
        if (change->kind == STEP_CHUNK && change->group == group &&
            change->sequence < executor->setup->memory.tail_slots)
            executor->ops->tail_store(executor->device, change->sequence, change->sequence);
    }
}

static enum reply_status step(struct executor *executor, struct mailbox_reply *reply)
{
    struct mailbox *mailbox = executor->mailbox;
    if (mailbox->kind == MAILBOX_STEP) {
        if (!note_changes(executor) || !apply_changes(executor))
            return REPLY_BAD_COMMAND;
    }
    bool whole = executor->ops->step(executor->device, mailbox->counter_base, executor->setup->prefill_tokens != 0,
                                     mailbox_tokens(mailbox, executor->rank), &reply->token_count);
    if (!whole)
        return REPLY_ABANDONED;
    if (mailbox->kind == MAILBOX_STEP) {
        store_tails(executor);
        executor->change_count = 0;
        executor->page_count = 0;
    }
    return REPLY_OK;
}

static void answer(struct mailbox *mailbox)
{
    if (atomic_fetch_add_explicit(&mailbox->done, 1, memory_order_acq_rel) + 1 == mailbox->setup.ranks)
        word_wake(&mailbox->done);
}

/* Until its instance wants no more. */
static void serve(struct executor *executor)
{
    struct mailbox *mailbox = executor->mailbox;
    struct mailbox_reply *reply = mailbox_reply(mailbox, executor->rank);
    for (uint32_t seen = 0;;) {
        uint32_t command = atomic_load_explicit(&mailbox->command, memory_order_acquire);
        if (atomic_load_explicit(&mailbox->abandon, memory_order_relaxed))
            return;
        if (command == seen) {
            word_wait(&mailbox->command, seen, WAIT_NS);
            continue;
        }
        seen = command;
        reply->token_count = 0;
        reply->status = REPLY_OK;
        if (mailbox->kind == MAILBOX_CHANGES)
            reply->status = note_changes(executor) ? REPLY_OK : REPLY_BAD_COMMAND;
        else
            reply->status = step(executor, reply);
        answer(mailbox);
    }
}

int executor_main(int argc, char **argv)
{
    CHECK(argc == 7);
    signal(SIGINT, SIG_IGN); /* a Ctrl-C is for the launcher, which ends its instances in order */
    struct shared_memory mailbox;
    struct shared_memory kv = {.fd = -1};
    struct shared_memory collective = {.fd = -1};
    struct executor executor = {.rank = (uint32_t)strtoul(argv[2], NULL, 10)};
    int kv_fd = (int)strtol(argv[4], NULL, 10);
    int collective_fd = (int)strtol(argv[5], NULL, 10);
    int channel = (int)strtol(argv[6], NULL, 10);
    CHECK(shared_memory_map(&mailbox, (int)strtol(argv[3], NULL, 10)));
    CHECK(kv_fd < 0 || shared_memory_map(&kv, kv_fd));
    CHECK(collective_fd < 0 || shared_memory_map(&collective, collective_fd));
    executor.mailbox = mailbox.at;
    executor.setup = &executor.mailbox->setup;
    CHECK(executor.rank < executor.setup->ranks && mailbox.bytes >= mailbox_bytes(executor.setup));
    struct mailbox_reply *reply = mailbox_reply(executor.mailbox, executor.rank);
    bool made =
        make_device(&executor, kv.at, collective.at, reply) && (channel < 0 || share(&executor, channel, reply));
    reply->status = made ? REPLY_OK : REPLY_NO_DEVICE;
    answer(executor.mailbox); /* to the instance, which waits for every device to be there */
    if (made && channel >= 0) {
        made = join(&executor, channel, reply);
        reply->status = made ? REPLY_OK : REPLY_NO_DEVICE;
        answer(executor.mailbox);
    }
    if (made)
        serve(&executor);
    if (executor.device != NULL)
        executor.ops->free(executor.device);
    if (executor.collective != NULL)
        collective_leave(executor.collective);
    free(executor.changes);
    free(executor.pages);
    shared_memory_free(&collective);
    shared_memory_free(&kv);
    shared_memory_free(&mailbox);
    return made ? 0 : 1;
}
