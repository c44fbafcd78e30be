/* How a real run differs from a simulated one: one row an option. A row is the field of struct real_options, the line
 * of the help, the limits of the value and what it is otherwise; from it come the options of `tandem run`, those of the
 * instances that the launcher starts, the reading of either, and the refusal of options that the simulator does not
 * know. What is added here is there.
 */
#ifndef TANDEM_REAL_CLUSTER_REAL_OPTIONS_H
#define TANDEM_REAL_CLUSTER_REAL_OPTIONS_H

#include "real/control/mesh.h"
#include "real/fabric/fabric.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* TEXT(field, name, argument, help, otherwise), CHOICE the same, NUMBER(field, name, argument, help, least, most,
 * otherwise), FLAG(field, name, help). Of a choice, `argument` lists the values. */
#define REAL_OPTIONS(TEXT, CHOICE, NUMBER, FLAG)                                                                       \
    TEXT(provider, "provider", "NAME", "of libfabric: shm, tcp, net, verbs, efa (default auto: the best that works)",  \
         NULL)                                                                                                         \
    CHOICE(device, "device", "host|cuda", "what computes the steps (host)", "host")                                    \
    TEXT(bind, "bind", "ADDRESS,...", "own IPv4 address, or its network (10.0.0.0/24), a NIC; default 127.0.0.1",      \
         "127.0.0.1")                                                                                                  \
    NUMBER(nics, "nics", "N", "endpoints an instance writes over (one a rank)", 0, FABRIC_NICS_MAX, 0)                 \
    NUMBER(window, "window", "N", "writes in flight an endpoint (64)", 1, 4096, 64)                                    \
    NUMBER(heartbeats_missed, "heartbeats", "N", "missed, of 200 ms, until a node is lost (10)", 1, 10000,             \
           HEARTBEATS_MISSED_DEFAULT)                                                                                  \
    NUMBER(limit_s, "limit", "SECONDS", "end a run that takes longer (600)", 1, 1000000, 600)                          \
    FLAG(verify, "verify", "compare digests of all KV before and after its transfer")                                  \
    TEXT(tokens, "tokens", "FILE", "write the tokens as request,position,token", NULL)                                 \
    TEXT(record_events, "record-events", "FOLDER", "write down what each node was told and did", NULL)

/* Texts are borrowed; one that is not given is NULL. */
struct real_options {
#define FIELD_TEXT(field, name, argument, help, otherwise) const char *field;
#define FIELD_NUMBER(field, name, argument, help, least, most, otherwise) uint32_t field;
#define FIELD_FLAG(field, name, help) bool field;
    REAL_OPTIONS(FIELD_TEXT, FIELD_TEXT, FIELD_NUMBER, FIELD_FLAG)
#undef FIELD_TEXT
#undef FIELD_NUMBER
#undef FIELD_FLAG
    /* What `bind` comes to on this host: control plane and first NIC, then further NICs. */
    char address[CONTROL_ADDRESS_BYTES];
    char more[FABRIC_NICS_MAX - 1][CONTROL_ADDRESS_BYTES];
    uint32_t more_count;
};

enum real_option_kind { REAL_OPTION_TEXT = 1, REAL_OPTION_NUMBER = 2, REAL_OPTION_FLAG = 3 };

struct real_option {
    const char *name;
    enum real_option_kind kind;
    size_t offset; /* of the field */
    uint32_t least;
    uint32_t most;
    uint32_t number; /* otherwise */
    const char *text;
};

extern const struct real_option real_option_rows[]; /* ends with one without a name */

/* The value of a row: of its kind alone. */
const char *real_option_text(const struct real_options *options, const struct real_option *row);
uint32_t real_option_number(const struct real_options *options, const struct real_option *row);
bool real_option_flag(const struct real_options *options, const struct real_option *row);

#endif
