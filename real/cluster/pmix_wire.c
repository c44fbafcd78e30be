/* See pmix_wire.h. */
#define _GNU_SOURCE /* wanted by PMIx's own headers */
#include "real/cluster/pmix_wire.h"

#include "real/cluster/children.h"

#include <pmix.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY "tandem.front"

static pmix_proc_t self;

static bool failed(const char *what, pmix_status_t status, struct user_error *error)
{
    user_error_set(error, NULL, 0, NULL, "PMIx: %s: %s", what, PMIx_Error_string(status));
    return false;
}

bool pmix_wire_join(struct pmix_wire *wire, struct user_error *error)
{
    *wire = (struct pmix_wire){.joined = false};
    if (getenv("PMIX_NAMESPACE") == NULL)
        return true;
    pmix_status_t status = PMIx_Init(&self, NULL, 0);
    if (status != PMIX_SUCCESS)
        return failed("the server named in the environment does not answer", status, error);
    pmix_proc_t job;
    PMIX_LOAD_PROCID(&job, self.nspace, PMIX_RANK_WILDCARD);
    pmix_value_t *value = NULL;
    status = PMIx_Get(&job, PMIX_JOB_SIZE, NULL, 0, &value);
    if (status != PMIX_SUCCESS) {
        PMIx_Finalize(NULL, 0);
        return failed("the size of the job is not known", status, error);
    }
    wire->size = value->data.uint32;
    wire->rank = self.rank;
    wire->joined = wire->size > 1;
    PMIX_VALUE_RELEASE(value);
    if (PMIx_Get(&job, PMIX_LOCAL_PEERS, NULL, 0, &value) == PMIX_SUCCESS) {
        if (value->type == PMIX_STRING)
            snprintf(wire->near, sizeof wire->near, "%s", value->data.string);
        PMIX_VALUE_RELEASE(value);
    }
    if (!wire->joined)
        PMIx_Finalize(NULL, 0);
    return true;
}

bool pmix_wire_near(const struct pmix_wire *wire, uint32_t rank)
{
    const char *at = wire->near;
    while (*at != '\0') {
        char *end;
        unsigned long peer = strtoul(at, &end, 10);
        if (end == at)
            return false;
        if (peer == rank)
            return true;
        at = *end == ',' ? end + 1 : end;
    }
    return false;
}

void pmix_wire_leave(struct pmix_wire *wire)
{
    if (wire->joined)
        PMIx_Finalize(NULL, 0);
    wire->joined = false;
}

/* All ranks wait for all, and see what was committed before. */
static bool meet(struct user_error *error)
{
    bool collect = true;
    pmix_info_t info;
    PMIX_INFO_LOAD(&info, PMIX_COLLECT_DATA, &collect, PMIX_BOOL);
    pmix_status_t status = PMIx_Fence(NULL, 0, &info, 1);
    PMIX_INFO_DESTRUCT(&info);
    return status == PMIX_SUCCESS || failed("the processes did not meet", status, error);
}

bool pmix_wire_publish(void *wire, const char *address, uint16_t port, const unsigned char *token,
                       struct user_error *error)
{
    (void)wire;
    char text[2 * CONTROL_TOKEN_BYTES + 1];
    char front[CONTROL_ADDRESS_BYTES + sizeof text + 16];
    token_text(token, text);
    snprintf(front, sizeof front, "%s %u %s", address, port, text);
    pmix_value_t value;
    PMIX_VALUE_LOAD(&value, front, PMIX_STRING);
    pmix_status_t status = PMIx_Put(PMIX_GLOBAL, KEY, &value);
    PMIX_VALUE_DESTRUCT(&value);
    if (status == PMIX_SUCCESS)
        status = PMIx_Commit();
    if (status != PMIX_SUCCESS)
        return failed("the address of the front cannot be published", status, error);
    return meet(error);
}

bool pmix_wire_receive(struct pmix_wire *wire, char *address, uint16_t *port, unsigned char *token,
                       struct user_error *error)
{
    (void)wire;
    if (!meet(error))
        return false;
    pmix_proc_t front;
    PMIX_LOAD_PROCID(&front, self.nspace, 0);
    pmix_value_t *value = NULL;
    pmix_status_t status = PMIx_Get(&front, KEY, NULL, 0, &value);
    if (status != PMIX_SUCCESS)
        return failed("the address of the front is not known", status, error);
    char text[2 * CONTROL_TOKEN_BYTES + 1] = "";
    unsigned number = 0;
    bool good = value->type == PMIX_STRING && sscanf(value->data.string, "%63s %u %32s", address, &number, text) == 3 &&
                number <= UINT16_MAX && token_parse(text, token);
    *port = (uint16_t)number;
    PMIX_VALUE_RELEASE(value);
    if (!good)
        user_error_set(error, NULL, 0, NULL, "PMIx: the address of the front makes no sense");
    return good;
}
