/* See token_book.h. */
#include "real/cluster/token_book.h"

#include "base/arith.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NO_TOKEN UINT32_MAX

/* Tokens of one request from position `first` on; NO_TOKEN where none is known. */
struct page {
    uint32_t first;
    uint32_t count;
    uint32_t room;
    uint32_t *tokens;
};

struct token_book {
    struct page *pages; /* by request: ids are dense */
    uint32_t count;
};

struct token_book *token_book_make(void)
{
    struct token_book *book = calloc(1, sizeof *book);
    CHECK(book != NULL);
    return book;
}

void token_book_free(struct token_book *book)
{
    if (book == NULL)
        return;
    for (uint32_t i = 0; i < book->count; i++)
        free(book->pages[i].tokens);
    free(book->pages);
    free(book);
}

static struct page *page_of(struct token_book *book, uint32_t request)
{
    if (request >= book->count) {
        uint32_t count = max_u32(request + 1, book->count * 2);
        book->pages = realloc(book->pages, count * sizeof *book->pages);
        CHECK(book->pages != NULL);
        memset(book->pages + book->count, 0, (count - book->count) * sizeof *book->pages);
        book->count = count;
    }
    return &book->pages[request];
}

/* Makes the page cover a position. */
static void cover(struct page *page, uint32_t position)
{
    uint32_t first = page->count == 0 ? position : min_u32(page->first, position);
    uint32_t end = page->count == 0 ? position + 1 : max_u32(page->first + page->count, position + 1);
    if (end - first > page->room) {
        page->room = max_u32(end - first, page->room * 2);
        page->tokens = realloc(page->tokens, page->room * sizeof *page->tokens);
        CHECK(page->tokens != NULL);
    }
    uint32_t shift = page->count == 0 ? 0 : page->first - first;
    memmove(page->tokens + shift, page->tokens, page->count * sizeof *page->tokens);
    for (uint32_t i = 0; i < shift; i++)
        page->tokens[i] = NO_TOKEN;
    for (uint32_t i = shift + page->count; i < end - first; i++)
        page->tokens[i] = NO_TOKEN;
    page->first = first;
    page->count = end - first;
}

bool token_book_add(struct token_book *book, const struct device_token *token)
{
    if (token->request >= UINT32_MAX / 4 || token->position >= REQUEST_TOKENS_MAX)
        return false;
    struct page *page = page_of(book, token->request);
    cover(page, token->position);
    uint32_t *place = &page->tokens[token->position - page->first];
    if (*place != NO_TOKEN)
        return *place == token->token;
    *place = token->token;
    return true;
}

bool token_book_write(const struct token_book *book, const char *path, struct user_error *error)
{
    FILE *file = fopen(path, "w");
    bool good = file != NULL && fputs("request,position,token\n", file) >= 0;
    for (uint32_t r = 0; good && r < book->count; r++)
        for (uint32_t i = 0; i < book->pages[r].count; i++)
            if (book->pages[r].tokens[i] != NO_TOKEN)
                good = fprintf(file, "%" PRIu32 ",%" PRIu32 ",%" PRIu32 "\n", r, book->pages[r].first + i,
                               book->pages[r].tokens[i]) > 0 &&
                       good;
    if (file != NULL)
        good = fclose(file) == 0 && good;
    if (!good)
        user_error_set(error, NULL, 0, NULL, "%s could not be written: %s", path, strerror(errno));
    return good;
}
