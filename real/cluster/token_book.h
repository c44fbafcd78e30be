/* The tokens of a run, by request and position, as the executors report them: for --tokens. A request that ran twice
 * must have produced the same tokens twice.
 */
#ifndef TANDEM_REAL_CLUSTER_TOKEN_BOOK_H
#define TANDEM_REAL_CLUSTER_TOKEN_BOOK_H

#include "real/device/device.h"
#include "host/user_error.h"

struct token_book;

struct token_book *token_book_make(void);
void token_book_free(struct token_book *book);

/* False when another token stood at that position already: the first stays. */
bool token_book_add(struct token_book *book, const struct device_token *token);

/* Writes "request,position,token" lines in order. False with a sentence. */
bool token_book_write(const struct token_book *book, const char *path, struct user_error *error);

#endif
