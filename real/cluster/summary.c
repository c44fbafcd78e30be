/* See summary.h. */
#include "real/cluster/summary.h"

#include <string.h>

void instance_end_write(struct frame_writer *writer, const struct instance_end *end)
{
    const struct ledger *ledger = &end->ledger;
    const uint64_t numbers[] = {
        (uint64_t)ledger->busy_ns, ledger->launches,          ledger->steps,           ledger->prefill_tokens,
        ledger->decode_tokens,     ledger->pages_held_peak,   ledger->events,          ledger->writes,
        ledger->writes_failed,     ledger->write_bytes,       ledger->pieces_verified, ledger->pieces_differ,
        end->stats.requests_live,  end->stats.waiting,        end->stats.running,      end->stats.transfers,
        end->stats.quarantined,    end->stats.pages_held,     end->stats.pages_total,  end->quiet,
        end->writes_late,          (uint64_t)ledger->node_ns, ledger->staged_bytes,    ledger->staged_ns,
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        write_u64(writer, numbers[i]);
    uint32_t used = 0;
    for (uint32_t i = 0; i < ITL_BUCKETS; i++)
        used += ledger->itl[i] > 0;
    write_u32(writer, used);
    for (uint32_t i = 0; i < ITL_BUCKETS; i++) {
        if (ledger->itl[i] == 0)
            continue;
        write_u32(writer, i);
        write_u64(writer, ledger->itl[i]);
    }
}

bool instance_end_read(const struct frame *frame, struct instance_end *end)
{
    struct frame_reader reader = frame_read(frame);
    memset(end, 0, sizeof *end);
    struct ledger *ledger = &end->ledger;
    ledger->busy_ns = (int64_t)read_u64(&reader);
    uint64_t *counts[] = {&ledger->launches,        &ledger->steps,           &ledger->prefill_tokens,
                          &ledger->decode_tokens,   &ledger->pages_held_peak, &ledger->events,
                          &ledger->writes,          &ledger->writes_failed,   &ledger->write_bytes,
                          &ledger->pieces_verified, &ledger->pieces_differ};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        *counts[i] = read_u64(&reader);
    uint32_t *stats[] = {&end->stats.requests_live, &end->stats.waiting, &end->stats.running, &end->stats.transfers,
                         &end->stats.quarantined};
    for (size_t i = 0; i < sizeof stats / sizeof *stats; i++)
        *stats[i] = (uint32_t)read_u64(&reader);
    end->stats.pages_held = read_u64(&reader);
    end->stats.pages_total = read_u64(&reader);
    end->quiet = read_u64(&reader) != 0;
    end->writes_late = read_u64(&reader);
    ledger->node_ns = (int64_t)read_u64(&reader);
    ledger->staged_bytes = read_u64(&reader);
    ledger->staged_ns = read_u64(&reader);
    uint32_t used = read_u32(&reader);
    for (uint32_t i = 0; i < used && !reader.bad; i++) {
        uint32_t bucket = read_u32(&reader);
        uint64_t tokens = read_u64(&reader);
        if (bucket >= ITL_BUCKETS)
            return false;
        ledger->itl[bucket] = tokens;
    }
    return read_end(&reader) && ledger->busy_ns >= 0 && ledger->node_ns >= 0;
}

/* Ranks are told by the set of their NICs and its distance. */
void ready_write(struct frame_writer *writer, const struct nic_choice *choice, const char *text)
{
    write_u32(writer, choice->ranks);
    for (uint32_t r = 0; r < choice->ranks; r++) {
        write_u16(writer, (uint16_t)nic_choice_set(choice, r));
        write_u16(writer, choice->distance[r]);
    }
    write_bytes(writer, text, strlen(text));
}

bool ready_read(const struct frame *frame, struct nic_choice *choice, char *text)
{
    struct frame_reader reader = frame_read(frame);
    memset(choice, 0, sizeof *choice);
    uint32_t ranks = read_u32(&reader);
    if (reader.bad || ranks > RANKS_MAX)
        return false;
    choice->ranks = ranks;
    for (uint32_t r = 0; r < ranks; r++) {
        uint32_t set = read_u16(&reader);
        uint32_t distance = read_u16(&reader);
        if (reader.bad || set == 0 || distance > NIC_ANYWHERE)
            return false;
        choice->distance[r] = (uint8_t)distance;
        for (uint32_t n = 0; n < TOPOLOGY_NICS_MAX; n++)
            if ((set >> n & 1) != 0)
                choice->nics[r][choice->count[r]++] = (uint8_t)n;
    }
    size_t length = reader.length - reader.at;
    if (length >= NICS_TEXT_BYTES)
        return false;
    read_bytes(&reader, text, length);
    text[length] = '\0';
    return read_end(&reader);
}
