/* See transfer_book.h. */
#include "real/cluster/transfer_book.h"

#include "base/arith.h"

#include <stdlib.h>

struct transfer_book {
    struct transfer_row *rows;
    uint32_t count;
    uint32_t room;
};

/* A transfer's writes come close together: it is among the newest rows, or new. */
#define LOOK_BACK 8192u

struct transfer_book *transfer_book_make(void)
{
    struct transfer_book *book = calloc(1, sizeof *book);
    CHECK(book != NULL);
    return book;
}

void transfer_book_free(struct transfer_book *book)
{
    if (book == NULL)
        return;
    free(book->rows);
    free(book);
}

static struct transfer_row *find(const struct transfer_book *book, const struct transfer_row *row)
{
    for (uint32_t i = book->count; i > 0 && book->count - i < LOOK_BACK; i--)
        if (book->rows[i - 1].request == row->request && book->rows[i - 1].epoch == row->epoch)
            return &book->rows[i - 1];
    return NULL;
}

void transfer_book_add(struct transfer_book *book, const struct transfer_row *row)
{
    struct transfer_row *known = find(book, row);
    if (known != NULL && known->source == row->source && known->destination == row->destination) {
        known->layers = max_u32(known->layers, row->layers);
        known->bytes += row->bytes;
        known->writes += row->writes;
        known->posted_ns = min_i64(known->posted_ns, row->posted_ns);
        known->landed_ns = max_i64(known->landed_ns, row->landed_ns);
        known->confirmed_ns = max_i64(known->confirmed_ns, row->confirmed_ns);
        return;
    }
    if (known != NULL) {
        *known = *row;
        return;
    }
    if (book->count == book->room) {
        book->room = book->room == 0 ? 256 : book->room * 2;
        book->rows = realloc(book->rows, book->room * sizeof *book->rows);
        CHECK(book->rows != NULL);
    }
    book->rows[book->count++] = *row;
}

uint32_t transfer_book_count(const struct transfer_book *book)
{
    return book->count;
}

const struct transfer_row *transfer_book_row(const struct transfer_book *book, uint32_t index)
{
    return &book->rows[index];
}
