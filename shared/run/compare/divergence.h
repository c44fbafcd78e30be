/* The first place where two lives of the same nodes part, in words: two simulated runs, a run and a baseline, a
 * recorded real run and its replay. Whoever finds one fills the struct; everybody shows it the same way.
 */
#ifndef TANDEM_RUN_COMPARE_DIVERGENCE_H
#define TANDEM_RUN_COMPARE_DIVERGENCE_H

#include "base/trace.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define DIVERGENCE_BEFORE_MAX 4
#define DIVERGENCE_NODES_MAX 16 /* shown; a larger cluster shows those with most requests */
#define DIVERGENCE_TEXT_SIZE 160

struct divergence_line {
    int64_t at_ns;
    char text[DIVERGENCE_TEXT_SIZE];
};

/* How many requests a node had, by what they were at. */
struct divergence_node {
    uint32_t node; /* its number, as in the operands of records */
    char name[48];
    uint32_t waiting;    /* decoder: for pages */
    uint32_t filling;    /* decoder: pages held, bytes on their way */
    uint32_t ready;      /* decoder: to join a batch */
    uint32_t decoding;   /* decoder */
    uint32_t queued;     /* prefiller */
    uint32_t prefilling; /* prefiller */
    uint32_t draining;   /* prefiller: computed, pages not yet given back */
};

/* The first trace record in which two runs differ. */
struct divergence {
    char unknown[2200]; /* why the traces cannot be had again; empty: they were compared */
    bool found;         /* false: no difference up to the end of the shorter trace */
    const char *what;   /* "trace record", "event"; NULL: "trace record" */
    uint64_t record;    /* its place in both traces, from 0 */
    bool times_alone;   /* the same record at another time */
    char node[48];      /* of the first run's record; empty: not known */
    uint32_t request;   /* that it is about; TRACE_NO_REQUEST: none */
    int64_t time_a_ns;  /* negative: that run has ended before */
    int64_t time_b_ns;
    char a[DIVERGENCE_TEXT_SIZE]; /* "decode-0 dispatched request 17 prefiller=3 writes=96256" */
    char b[DIVERGENCE_TEXT_SIZE];
    uint32_t before_count; /* the records that led to it, the same in both runs */
    struct divergence_line before[DIVERGENCE_BEFORE_MAX];
    uint32_t about_count; /* earlier ones, of its request */
    struct divergence_line about[DIVERGENCE_BEFORE_MAX];
    uint32_t node_count; /* the cluster at that instant; 0: not known */
    uint32_t nodes_left_out;
    struct divergence_node nodes[DIVERGENCE_NODES_MAX];
};

/* "decode-0 dispatched request 17 prefiller=3 writes=96256"; `name` is the node's. */
void trace_record_text(const struct trace_record *record, const char *name, char *text, size_t size);

/* The same without the node. */
void trace_record_words(const struct trace_record *record, char *text, size_t size);

/* Writes what led to it, what either run did, and the state around it, each line after `indent`; `a` and `b` are what
 * the runs are called ("run 3", "baseline"). */
void divergence_write(FILE *file, const struct divergence *divergence, const char *a, const char *b,
                      const char *indent);

/* {record, times_alone, node, request (null: none), time_a_ns, time_b_ns (null: ended), a, b, before, about: [{time_ns,
 * record}], nodes: [{node, name, waiting, filling, ready, decoding, queued, prefilling, draining}]}; null where none
 * was found. */
json_t *divergence_json(const struct divergence *divergence);

#endif
