/* Mixtures of clients, after ServeGen (Xiang et al., 2025): how often each client sent requests in each window of ten
 * minutes, how unevenly, and how long its prompts and answers were. Requests are drawn from that, always the same ones.
 *
 *     lengths,CLIENT,<prompt tokens at each of the quantiles>,<output tokens at each of them>
 *     window,CLIENT,START_S,REQUESTS_PER_1E6_S,gamma|weibull,SHAPE_MILLI
 *
 * Lines that begin with '#' are comments. Within a window the gaps between a client's requests are independent variates
 * of its family, of the window's mean; the first request comes a gap after its start. Lengths lie between quantiles as
 * straight lines have them. Clients are independent of each other, and what one sends does not depend on which others
 * the file holds.
 */
#include "base/arith.h"
#include "base/limits.h"
#include "world/load/trace_format.h"
#include "world/load/variate.h"
#include "host/memory.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define WINDOW_NS (600 * NS_PER_S)
#define QUANTILES 15
#define CLIENTS_MAX 4096

/* Millionths of a request a second, and thousandths of a shape, that a line may hold. */
#define RATE_MAX UINT64_C(10000000000)

/* Draws of a file are the same in every run: a run's seed chooses where in them it begins, as with any trace. */
#define DRAW_SEED 1

static const uint32_t permille[QUANTILES] = {0, 10, 50, 100, 200, 300, 400, 500, 600, 700, 800, 900, 950, 990, 1000};

struct client {
    bool known;
    uint32_t prompt[QUANTILES];
    uint32_t output[QUANTILES];
};

static bool read_number(struct trace_reading *reading, const char *column, const char *text, uint64_t least,
                        uint64_t most, uint64_t *number)
{
    uint64_t value = 0;
    bool digits = *text != '\0';
    for (const char *c = text; *c != '\0' && digits; c++) {
        digits = *c >= '0' && *c <= '9' && value <= most;
        value = value * 10 + (uint64_t)(*c - '0');
    }
    if (!digits || value < least || value > most)
        return trace_wrong(reading, column, "'%.40s', expected a whole number from %" PRIu64 " to %" PRIu64, text,
                           least, most);
    *number = value;
    return true;
}

static bool read_quantiles(struct trace_reading *reading, const char *column, const struct csv_cell *fields,
                           uint32_t *tokens)
{
    for (uint32_t q = 0; q < QUANTILES; q++) {
        uint64_t number;
        uint64_t least = q == 0 ? 1 : tokens[q - 1];
        if (!read_number(reading, column, fields[q].text, least, REQUEST_TOKENS_MAX, &number))
            return false;
        tokens[q] = (uint32_t)number;
    }
    return true;
}

static bool read_lengths(struct trace_reading *reading, const struct csv_cell *fields, uint32_t count,
                         struct client *clients)
{
    uint64_t index;
    if (count != 2 + 2 * QUANTILES)
        return trace_wrong(reading, NULL, "%" PRIu32 " fields, expected lengths, a client and 2 x %d quantiles", count,
                           QUANTILES);
    if (!read_number(reading, "client", fields[1].text, 0, CLIENTS_MAX - 1, &index))
        return false;
    struct client *client = &clients[index];
    client->known = true;
    return read_quantiles(reading, "prompt tokens", fields + 2, client->prompt) &&
           read_quantiles(reading, "output tokens", fields + 2 + QUANTILES, client->output) &&
           trace_tokens_together(reading, "output tokens", client->prompt[QUANTILES - 1],
                                 client->output[QUANTILES - 1]);
}

static uint32_t draw_tokens(const uint32_t *tokens, struct rng *rng)
{
    const uint64_t one = UINT64_C(1) << 32;
    uint64_t at = rng_below(rng, 1000 * one);
    uint32_t q = 1;
    while (at >= permille[q] * one)
        q++;
    uint64_t from = permille[q - 1] * one;
    uint64_t width = permille[q] * one - from;
    uint64_t rise = tokens[q] - tokens[q - 1];
    return (uint32_t)(tokens[q - 1] + ((uint128)rise * (at - from) + width / 2) / width);
}

struct window {
    uint64_t client;
    uint64_t start_s;
    uint64_t rate;
    uint64_t shape;
    bool weibull;
};

static bool draw_window(struct trace_reading *reading, const struct window *window, const struct client *client)
{
    uint64_t component = window->start_s * CLIENTS_MAX + window->client;
    struct rng gaps = rng_stream(DRAW_SEED, component, RNG_ARRIVALS);
    struct rng prompts = rng_stream(DRAW_SEED, component, RNG_PROMPT_LENGTH);
    struct rng outputs = rng_stream(DRAW_SEED, component, RNG_OUTPUT_LENGTH);
    uint32_t shape = (uint32_t)window->shape;
    uint64_t mean = window->weibull ? variate_weibull_mean(shape) : shape * VARIATE_ONE / 1000;
    uint64_t mean_gap_ns = UINT64_C(1000000) * (uint64_t)NS_PER_S / window->rate;
    int64_t at_ns = 0;
    for (;;) {
        uint64_t variate = window->weibull ? variate_weibull(&gaps, shape) : variate_gamma(&gaps, shape);
        uint128 gap_ns = (uint128)variate * mean_gap_ns / max_u64(1, mean);
        if (gap_ns >= (uint128)(WINDOW_NS - at_ns))
            return true;
        at_ns += (int64_t)gap_ns;
        if (!trace_row(reading, (int64_t)window->start_s * NS_PER_S + at_ns, draw_tokens(client->prompt, &prompts),
                       draw_tokens(client->output, &outputs)))
            return false;
    }
}

static bool read_window(struct trace_reading *reading, const struct csv_cell *fields, uint32_t count,
                        const struct client *clients)
{
    struct window window;
    if (count != 6)
        return trace_wrong(reading, NULL,
                           "%" PRIu32 " fields, expected window, client, start, rate, gamma or weibull, shape", count);
    if (!read_number(reading, "client", fields[1].text, 0, CLIENTS_MAX - 1, &window.client) ||
        !read_number(reading, "start", fields[2].text, 0, UINT32_MAX, &window.start_s) ||
        !read_number(reading, "rate", fields[3].text, 1, RATE_MAX, &window.rate) ||
        !read_number(reading, "shape", fields[5].text, VARIATE_SHAPE_MIN, VARIATE_SHAPE_MAX, &window.shape))
        return false;
    window.weibull = strcmp(fields[4].text, "weibull") == 0;
    if (!window.weibull && strcmp(fields[4].text, "gamma") != 0)
        return trace_wrong(reading, "pattern", "'%.40s', expected gamma or weibull", fields[4].text);
    if (!clients[window.client].known)
        return trace_wrong(reading, "client", "%" PRIu64 " has no line with its lengths before this one",
                           window.client);
    return draw_window(reading, &window, &clients[window.client]);
}

bool trace_servegen_read(struct trace_reading *reading)
{
    struct client *clients = memory_zeroed(CLIENTS_MAX, sizeof *clients);
    enum line_result result = LINE_END;
    char *line = NULL;
    size_t length = 0;
    bool read = true;
    while (read && (result = trace_line(reading, &line, &length)) == LINE_READ) {
        struct csv_cell fields[TRACE_COLUMNS_MAX];
        uint32_t count = 0;
        if (line[0] == '#')
            continue;
        read = trace_cells(reading, line, fields, &count);
        if (read && strcmp(fields[0].text, "lengths") == 0)
            read = read_lengths(reading, fields, count, clients);
        else if (read && strcmp(fields[0].text, "window") == 0)
            read = read_window(reading, fields, count, clients);
        else if (read)
            read = trace_wrong(reading, NULL, "'%.40s', expected lengths or window", fields[0].text);
    }
    free(clients);
    return read && result == LINE_END;
}
