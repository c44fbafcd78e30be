/* Rows of writes, put together to one row a transfer: a prompt that is computed in several chunks is written in as many
 * tickets.
 */
#ifndef TANDEM_REAL_CLUSTER_TRANSFER_BOOK_H
#define TANDEM_REAL_CLUSTER_TRANSFER_BOOK_H

#include "run/run_record.h"

struct transfer_book;

struct transfer_book *transfer_book_make(void);
void transfer_book_free(struct transfer_book *book);

/* Adds one write to its transfer, which is named by request and epoch. Epochs are the decoder's own: of two decoders
 * that a request has been at under the same number, the row of the later one stays. */
void transfer_book_add(struct transfer_book *book, const struct transfer_row *row);

uint32_t transfer_book_count(const struct transfer_book *book);
const struct transfer_row *transfer_book_row(const struct transfer_book *book, uint32_t index);

#endif
