/* What the files of the launcher share. */
#ifndef TANDEM_REAL_CLUSTER_LAUNCHER_INTERNAL_H
#define TANDEM_REAL_CLUSTER_LAUNCHER_INTERNAL_H

#include "host/check_host.h"
#include "real/control/clock_estimate.h"
#include "real/cluster/children.h"
#include "real/cluster/launcher.h"
#include "real/runtime/real_runtime.h"
#include "real/cluster/real_node.h"
#include "real/cluster/summary.h"
#include "real/cluster/token_book.h"
#include "real/cluster/trace_merge.h"
#include "real/cluster/transfer_book.h"
#include "host/user_error.h"

/* Exchanges of time stamps with a node on another machine; the quickest is believed. */
#define CLOCK_ASKS 16u

struct remote {
    bool up;
    bool ready;
    bool lost; /* until a replacement takes part */
    bool finished;
    bool replacing;        /* a replacement has been started, and does not take part yet */
    uint32_t incarnation;  /* of the newest process */
    uint32_t in_vain;      /* replacements in a row that ended before they took part */
    int64_t replace_at_ns; /* when the next one is started; TIME_NEVER: none is to be */
    struct hello place;
    bool clock_apart;            /* its clock is another one than ours */
    uint32_t clock_asks;         /* still to be answered */
    struct clock_estimate clock; /* taken out of all its times; zero of a clock that is ours */
    struct clock_estimate clock_after;
    struct nic_choice nics;
    struct instance_end *end;
};

struct requests {
    uint32_t *items;
    uint32_t count;
    uint32_t room;
};

struct launcher {
    struct run *run;
    const struct real_options *options;
    struct pmix_wire *wire;
    struct real_world world; /* borrowed from the run */
    uint32_t node_count;
    unsigned char token[CONTROL_TOKEN_BYTES];
    struct mesh *mesh;
    struct real_runtime *real;
    struct real_node node;
    struct children *children;
    struct remote *remotes;
    struct trace_merge *merge;
    struct answers *request_answers;
    struct token_book *tokens;       /* NULL: not asked for */
    struct transfer_book *transfers; /* NULL: not asked for */
    struct check_context check;

    int arrival_timer;
    int64_t wake_ns;       /* when the next arrival is due */
    uint32_t front_live;   /* requests at the front, after its last event */
    struct requests waits; /* whose clients send more when they are answered, in no particular order */
    struct requests ended; /* of them, those that are to be answered */
    uint64_t trace_hash;

    bool started;
    bool stopping;     /* nothing more arrives, and nobody is replaced any more */
    int64_t began_ns;  /* CLOCK_MONOTONIC */
    int64_t origin_ns; /* time 0 of the run */
};

const char *launcher_name(const struct launcher *launcher, uint32_t node);

/* launcher_hear.c: what the mesh says. */
void launcher_up(void *self, uint32_t node, const struct hello *hello);
void launcher_frame(void *self, uint32_t node, const struct frame *frame);
void launcher_down(void *self, uint32_t node, const char *why);
void launcher_ask_clocks(struct launcher *launcher); /* once more, of nodes with other clocks */

/* launcher_replace.c: others in place of lost instances. */
bool launcher_start_children(struct launcher *launcher, struct user_error *error);
void launcher_lost(struct launcher *launcher, uint32_t node);    /* it is to be replaced, if that is the policy */
void launcher_in_vain(struct launcher *launcher, uint32_t node); /* a replacement has ended */
void launcher_replace(struct launcher *launcher);                /* what is due */
void launcher_send_start(struct launcher *launcher, uint32_t node, int64_t origin_ns);

/* launcher_load.c: arrivals. */
void launcher_load_make(struct launcher *launcher);
void launcher_load_free(struct launcher *launcher);
void launcher_arrive(void *self, const struct event *event);
void launcher_wake(void *self, int64_t at_ns);
void launcher_feed(void *self, uint32_t argument);
void launcher_after(void *self, const struct event *event); /* the front has handled something */
void launcher_answer_soon(void *self, uint32_t request);
void launcher_answer(struct launcher *launcher);
void launcher_count_from(void *self, int64_t from_ns);
void launcher_say_counted(struct launcher *launcher, uint32_t node); /* since when gaps count, if they do */

/* launcher_result.c: what it came to. */
void launcher_judge(struct launcher *launcher);
void launcher_summarize(void *self, struct run_result *result);
void launcher_diagnose(struct launcher *launcher, char *text, size_t size);

#endif
