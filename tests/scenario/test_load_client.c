/* The client of endpoints against servers that do what servers do: well, badly, and not at all. Every exchange ends
 * once, in the way that it ended; nothing is asked for twice, and nothing hangs. */
#define _POSIX_C_SOURCE 200809L
#include "base/arith.h"
#include "live/load_client.h"
#include "support/scripted_server.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define HEAD "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
#define CHUNKED "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
#define TOKEN "data: {\"choices\":[{\"text\":\" a\",\"finish_reason\":null}]}\n\n"
#define LAST "data: {\"choices\":[{\"text\":\" z\",\"finish_reason\":\"length\"}]}\n\n"
#define DONE "data: [DONE]\n\n"
#define STATUS(line) "HTTP/1.1 " line "\r\nContent-Length: 28\r\n\r\n{\"error\":{\"message\":\"busy\"}}"

/* What was heard of one exchange. */
struct heard {
    uint32_t tokens;
    uint32_t ends;
    enum exchange_end end;
    long status;
    char why[200];
    struct reply reply;
    int64_t first_ns;
    int64_t last_ns;
};

static int64_t clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * NS_PER_S + now.tv_nsec;
}

static void on_tokens(void *self, uint32_t id, uint32_t count, int64_t at_ns)
{
    struct heard *heard = &((struct heard *)self)[id];
    assert_int_equal(heard->ends, 0);
    if (heard->tokens == 0)
        heard->first_ns = at_ns;
    assert_true(at_ns >= heard->last_ns);
    heard->last_ns = at_ns;
    heard->tokens += count;
}

static void on_ended(void *self, uint32_t id, const struct exchange_result *result, int64_t at_ns)
{
    struct heard *heard = &((struct heard *)self)[id];
    (void)at_ns;
    heard->ends++;
    heard->end = result->end;
    heard->status = result->status;
    heard->reply = *result->reply;
    snprintf(heard->why, sizeof heard->why, "%s", result->why);
}

static struct load_client *client_of(uint16_t port, struct heard *heard)
{
    static char url[64];
    struct user_error error = {.set = false};
    snprintf(url, sizeof url, "http://127.0.0.1:%u/v1/completions", (unsigned)port);
    struct load_client *client = load_client_make(
        &(struct load_client_config){
            .url = url, .idle_max_s = 2, .events = {.self = heard, .tokens = on_tokens, .ended = on_ended}},
        &error);
    assert_non_null(client);
    return client;
}

static void send_one(struct load_client *client, uint32_t id)
{
    char *body = strdup("{\"prompt\":[1]}");
    load_client_send(client, id, body, strlen(body));
}

static void until_ended(struct load_client *client, int64_t within_s)
{
    int64_t until_ns = clock_ns() + within_s * NS_PER_S;
    while (load_client_live(client) > 0 && clock_ns() < until_ns)
        load_client_turn(client, clock_ns() + NS_PER_S / 10);
    assert_int_equal(load_client_live(client), 0);
}

/* One exchange with a server that plays the script. */
static struct heard play(const struct script_step *script)
{
    struct heard heard = {0};
    const struct script_step *const scripts[] = {script, NULL};
    struct scripted_server *server = scripted_server_start(scripts);
    struct load_client *client = client_of(scripted_server_port(server), &heard);
    send_one(client, 0);
    until_ended(client, 10);
    assert_int_equal(heard.ends, 1);
    assert_int_equal(scripted_server_connections(server), 1);
    load_client_free(client);
    scripted_server_stop(server);
    return heard;
}

static struct heard send_text(const char *text)
{
    return play((const struct script_step[]){{SCRIPT_SEND, text, 0}, {0}});
}

static void answers(void **state)
{
    (void)state;
    struct heard heard = send_text(HEAD TOKEN TOKEN LAST DONE);
    assert_int_equal(heard.end, EXCHANGE_COMPLETE);
    assert_int_equal(heard.tokens, 3);
    /* Drop by drop, in chunks, with comments, CR LF, several data lines, and fields that say nothing here. */
    heard = play((const struct script_step[]){{SCRIPT_DRIP, HEAD TOKEN LAST DONE, 0}, {0}});
    assert_int_equal(heard.tokens, 2);
    heard = send_text(CHUNKED "5\r\ndata:\r\n2f\r\n{\"choices\":[{\"text\":\"b\",\"finish_reason\":null}]}\r\n"
                              "10\r\n\n\ndata: [DONE]\n\n\r\n0\r\n\r\n");
    assert_int_equal(heard.end, EXCHANGE_COMPLETE);
    assert_int_equal(heard.tokens, 1);
    heard =
        send_text(HEAD ": waiting\r\n\r\nid: 7\r\nevent: x\r\ndata: {\"choices\":\r\ndata: [{\"text\":\"c\"}]}\r\n\r\n"
                       "data: [DONE]\r\n\r\n");
    assert_int_equal(heard.end, EXCHANGE_COMPLETE);
    assert_int_equal(heard.tokens, 1);
    /* [DONE] may be missing where the answer says that it is over. */
    heard = send_text(HEAD TOKEN LAST);
    assert_int_equal(heard.end, EXCHANGE_COMPLETE);
    /* Server times are seen: 150 ms between two tokens. */
    heard = play((const struct script_step[]){
        {SCRIPT_SEND, HEAD TOKEN, 0}, {SCRIPT_WAIT, NULL, 150}, {SCRIPT_SEND, LAST DONE, 0}, {0}});
    assert_in_range(heard.last_ns - heard.first_ns, 140000000, 400000000);
}

static void failures(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum exchange_end end;
        uint32_t tokens;
        long status;
        const char *why;
    } cases[] = {
        {STATUS("429 Too Many Requests"), EXCHANGE_OVERLOAD, 0, 429, "busy"},
        {STATUS("503 Service Unavailable"), EXCHANGE_OVERLOAD, 0, 503, "busy"},
        {STATUS("529 Overloaded"), EXCHANGE_OVERLOAD, 0, 529, "busy"},
        {STATUS("400 Bad Request"), EXCHANGE_REFUSED, 0, 400, "busy"},
        {STATUS("500 Oops"), EXCHANGE_REFUSED, 0, 500, "busy"},
        {"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n", EXCHANGE_REFUSED, 0, 302,
         ""},
        {HEAD TOKEN "data: {\"error\":{\"message\":\"out of memory\"}}\n\n" DONE, EXCHANGE_ERROR, 1, 200,
         "out of memory"},
        {HEAD "data: {\"error\":{\"message\":\"aborted\"}}\n\n", EXCHANGE_ERROR, 0, 200, "aborted"},
        {HEAD TOKEN TOKEN, EXCHANGE_CUT, 2, 200, "it ended before"},
        {HEAD TOKEN "data: {\"choices\":[{\"te", EXCHANGE_CUT, 1, 200, "it ended before"},
        {CHUNKED "10\r\ndata: ", EXCHANGE_CUT, 0, 200, ""},
        {HEAD, EXCHANGE_CUT, 0, 200, ""},
        {HEAD "data: {nonsense\n\n", EXCHANGE_MALFORMED, 0, 200, ""},
        {HEAD "data: [1]\n\n", EXCHANGE_MALFORMED, 0, 200, ""},
        {"HTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\n<html></html>\n", EXCHANGE_MALFORMED, 0, 200, "<html>"},
        {HEAD DONE, EXCHANGE_EMPTY, 0, 200, ""},
        {HEAD "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n" DONE, EXCHANGE_EMPTY, 0,
         200, ""},
        {"HTTP/9.9 nonsense\r\n\r\n", EXCHANGE_CUT, 0, 0, ""},
        {"", EXCHANGE_CUT, 0, 0, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct heard heard = send_text(cases[i].text);
        if (heard.end != cases[i].end || heard.tokens != cases[i].tokens || heard.status != cases[i].status ||
            strncmp(heard.why, cases[i].why, strlen(cases[i].why)) != 0)
            fail_msg("case %zu: end %d, %u tokens, status %ld, %s", i, (int)heard.end, heard.tokens, heard.status,
                     heard.why);
    }
}

static void connections_that_break(void **state)
{
    (void)state;
    struct heard heard = play((const struct script_step[]){{SCRIPT_SEND, HEAD TOKEN, 0}, {SCRIPT_RESET, NULL, 0}, {0}});
    assert_int_equal(heard.end, EXCHANGE_CUT);
    /* Closed before it was read: not asked again, on whatever connection. */
    heard = play((const struct script_step[]){{SCRIPT_UNREAD, NULL, 0}, {SCRIPT_RESET, NULL, 0}, {0}});
    assert_true(heard.end == EXCHANGE_CUT || heard.end == EXCHANGE_UNREACHED);
    /* A server that has shut its side down has said everything, however long it keeps the socket. */
    heard = play((const struct script_step[]){
        {SCRIPT_SEND, HEAD TOKEN, 0}, {SCRIPT_HALF, NULL, 0}, {SCRIPT_WAIT, NULL, 300}, {0}});
    assert_int_equal(heard.end, EXCHANGE_CUT);
    /* One that says nothing more is given up after idle_max_s; one that never says anything likewise. */
    heard = play((const struct script_step[]){{SCRIPT_SEND, HEAD TOKEN, 0}, {SCRIPT_WAIT, NULL, 4500}, {0}});
    assert_int_equal(heard.end, EXCHANGE_STALLED);
    assert_int_equal(heard.tokens, 1);
    heard = play((const struct script_step[]){{SCRIPT_WAIT, NULL, 4500}, {0}});
    assert_int_equal(heard.end, EXCHANGE_STALLED);
    assert_int_equal(heard.tokens, 0);
}

static void nobody_there(void **state)
{
    (void)state;
    static const struct script_step none[] = {{0}};
    const struct script_step *const scripts[] = {none, NULL};
    struct scripted_server *server = scripted_server_start(scripts);
    uint16_t port = scripted_server_port(server);
    scripted_server_stop(server);
    struct heard heard = {0};
    struct load_client *client = client_of(port, &heard);
    send_one(client, 0);
    until_ended(client, 10);
    assert_int_equal(heard.end, EXCHANGE_UNREACHED);
    load_client_free(client);
}

/* The good, the bad and the dying at once, and one whose client goes away. */
static void many(void **state)
{
    (void)state;
    enum { COUNT = 60 };
    static const struct script_step good[] = {{SCRIPT_DRIP, HEAD TOKEN TOKEN LAST DONE, 0}, {0}};
    static const struct script_step busy[] = {{SCRIPT_SEND, STATUS("429 Too Many Requests"), 0}, {0}};
    static const struct script_step dies[] = {{SCRIPT_SEND, HEAD TOKEN, 0}, {SCRIPT_RESET, NULL, 0}, {0}};
    const struct script_step *scripts[COUNT + 1] = {NULL};
    struct heard heard[COUNT] = {{0}};
    uint32_t ends[EXCHANGE_END_COUNT] = {0};
    for (int i = 0; i < COUNT; i++)
        scripts[i] = i % 3 == 0 ? good : i % 3 == 1 ? busy : dies;
    struct scripted_server *server = scripted_server_start(scripts);
    struct load_client *client = client_of(scripted_server_port(server), heard);
    for (uint32_t i = 0; i < COUNT; i++)
        send_one(client, i);
    assert_true(load_client_abort(client, 7));
    assert_false(load_client_abort(client, 7));
    until_ended(client, 20);
    for (uint32_t i = 0; i < COUNT; i++) {
        assert_int_equal(heard[i].ends, i == 7 ? 0 : 1);
        ends[heard[i].end]++;
    }
    /* Which connection came first is the kernel's affair, and the one that left may have had any of them. */
    assert_in_range(ends[EXCHANGE_COMPLETE], COUNT / 3 - 1, COUNT / 3);
    assert_in_range(ends[EXCHANGE_OVERLOAD], COUNT / 3 - 1, COUNT / 3);
    assert_in_range(ends[EXCHANGE_CUT], COUNT / 3 - 1, COUNT / 3);
    assert_true(scripted_server_connections(server) <= COUNT);
    load_client_free(client);
    scripted_server_stop(server);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers),      cmocka_unit_test(failures), cmocka_unit_test(connections_that_break),
        cmocka_unit_test(nobody_there), cmocka_unit_test(many),
    };
    return cmocka_run_group_tests_name("load_client", tests, NULL, NULL);
}
