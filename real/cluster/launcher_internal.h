/* What the files of the launcher share. */
#ifndef TANDEM_REAL_CLUSTER_LAUNCHER_INTERNAL_H
#define TANDEM_REAL_CLUSTER_LAUNCHER_INTERNAL_H

#include "host/check_host.h"
#include "run/recorder.h"
#include "world/load/workload.h"
#include "real/control/clock_estimate.h"
#include "real/cluster/children.h"
#include "real/cluster/launcher.h"
#include "real/runtime/real_runtime.h"
#include "real/runtime/recording.h"
#include "real/cluster/summary.h"
#include "real/cluster/trace_merge.h"
#include "real/cluster/transfer_book.h"

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

struct launcher {
    const struct launcher_config *config;
    struct launch_result *result;
    const struct real_world *world;
    uint32_t node_count;
    unsigned char token[CONTROL_TOKEN_BYTES];
    struct mesh *mesh;
    struct real_runtime *real;
    struct recording *recording;
    struct node *node;
    void *node_memory;
    struct children *children;
    struct remote *remotes;
    struct trace_merge *merge;
    struct recorder *recorder;
    struct workload *workload;
    struct answers *request_answers;
    struct token_book *tokens;       /* NULL: not asked for */
    struct transfer_book *transfers; /* NULL: not asked for */
    struct check_context check;

    int arrival_timer;
    uint32_t front_live;     /* requests at the front, after its last event */
    uint32_t *conversations; /* by request; NULL: there are none */
    uint32_t conversation_room;
    struct clients *clients; /* of a load whose requests follow answers, else NULL */
    int64_t counted_ns;      /* arrival of the first request behind a warm-up of so many; TIME_NEVER: not yet */
    int64_t last_record_ns;  /* of the run: when something last happened to a request */

    bool started;
    bool stopping;     /* nothing more arrives, and nobody is replaced any more */
    bool stop;         /* the caller wants no more rows */
    bool broken;       /* result->text says why */
    int64_t began_ns;  /* CLOCK_MONOTONIC */
    int64_t origin_ns; /* time 0 of the run */
};

/* The first thing that goes wrong is the one that is told. */
void launcher_break(struct launcher *launcher, enum launch_status status, const char *format, ...)
    USER_ERROR_FORMAT(3, 4);

const char *launcher_name(const struct launcher *launcher, uint32_t node);

/* launcher_hear.c: what the mesh says. */
void launcher_up(void *self, uint32_t node, const struct hello *hello);
void launcher_frame(void *self, uint32_t node, const struct frame *frame);
void launcher_down(void *self, uint32_t node, const char *why);
void launcher_ask_clocks(struct launcher *launcher); /* once more, of nodes with other clocks */

/* launcher_replace.c: others in place of lost instances. */
bool launcher_start_children(struct launcher *launcher, char *error, size_t error_size);
void launcher_lost(struct launcher *launcher, uint32_t node);    /* it is to be replaced, if that is the policy */
void launcher_in_vain(struct launcher *launcher, uint32_t node); /* a replacement has ended */
void launcher_replace(struct launcher *launcher);                /* what is due */
void launcher_send_start(struct launcher *launcher, uint32_t node, int64_t origin_ns);

/* launcher_load.c: arrivals. */
bool launcher_load_make(struct launcher *launcher);
void launcher_load_free(struct launcher *launcher);
void launcher_feed(void *self, uint32_t argument);
void launcher_after(void *self, const struct event *event); /* the front has handled something */
void launcher_answer(struct launcher *launcher);
void launcher_say_counted(struct launcher *launcher, uint32_t node); /* since when gaps count, if they do */
uint32_t launcher_conversation(const struct launcher *launcher, uint32_t request); /* 0: of none */
bool launcher_served(const struct launcher *launcher); /* every request has arrived and ended */

/* launcher_result.c: what it came to. */
void launcher_judge(struct launcher *launcher);
void launcher_summarize(struct launcher *launcher, int64_t end_ns);
void launcher_diagnose(struct launcher *launcher, char *text, size_t size);

#endif
