/* See source_lines.h. */
#include "host/source_lines.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum token_kind { TOKEN_END, TOKEN_NAME, TOKEN_STRING, TOKEN_NUMBER, TOKEN_MARK };

struct token {
    enum token_kind kind;
    const char *text; /* of a string: what is between the quotes, escapes as written */
    size_t length;
    int line;
};

struct scanner {
    const char *at;
    const char *end;
    int line;
};

static bool letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool digit(char c)
{
    return c >= '0' && c <= '9';
}

static char peek(const struct scanner *s, size_t ahead)
{
    return (size_t)(s->end - s->at) > ahead ? s->at[ahead] : '\0';
}

static void advance(struct scanner *s)
{
    if (*s->at == '\n')
        s->line++;
    s->at++;
}

/* Passes [[...]] or [=[...]=], whose first bracket is next; false when it is an ordinary bracket. */
static bool long_bracket(struct scanner *s)
{
    size_t level = 0;
    while (peek(s, 1 + level) == '=')
        level++;
    if (peek(s, 1 + level) != '[')
        return false;
    s->at += level + 2;
    while (s->at < s->end) {
        size_t equals = 0;
        if (*s->at == ']') {
            while (peek(s, 1 + equals) == '=')
                equals++;
            if (equals == level && peek(s, 1 + equals) == ']') {
                s->at += level + 2;
                return true;
            }
        }
        advance(s);
    }
    return true;
}

static void skip_blanks(struct scanner *s)
{
    while (s->at < s->end) {
        if (*s->at == '-' && peek(s, 1) == '-') {
            s->at += 2;
            if (s->at < s->end && *s->at == '[' && long_bracket(s))
                continue;
            while (s->at < s->end && *s->at != '\n')
                s->at++;
        } else if (*s->at == ' ' || *s->at == '\t' || *s->at == '\r' || *s->at == '\n') {
            advance(s);
        } else {
            return;
        }
    }
}

static struct token next(struct scanner *s)
{
    skip_blanks(s);
    struct token token = {.kind = TOKEN_END, .text = s->at, .line = s->line};
    if (s->at >= s->end)
        return token;
    char c = *s->at;
    if (letter(c) || digit(c)) {
        token.kind = letter(c) ? TOKEN_NAME : TOKEN_NUMBER;
        while (letter(peek(s, 0)) || digit(peek(s, 0)) || (token.kind == TOKEN_NUMBER && peek(s, 0) == '.'))
            s->at++;
        token.length = (size_t)(s->at - token.text);
        return token;
    }
    if (c == '"' || c == '\'') {
        s->at++;
        token.kind = TOKEN_STRING;
        token.text = s->at;
        while (s->at < s->end && *s->at != c && *s->at != '\n')
            s->at += peek(s, 0) == '\\' && peek(s, 1) != '\n' && s->end - s->at > 1 ? 2 : 1;
        token.length = (size_t)(s->at - token.text);
        if (s->at < s->end && *s->at == c)
            s->at++;
        return token;
    }
    if (c == '[' && long_bracket(s)) {
        token.kind = TOKEN_STRING;
        return token;
    }
    token.kind = TOKEN_MARK;
    token.length = (c == '=' || c == '~' || c == '<' || c == '>') && peek(s, 1) == '=' ? 2 : 1;
    s->at += token.length;
    return token;
}

static bool is(const struct token *token, const char *text)
{
    return token->length == strlen(text) && memcmp(token->text, text, token->length) == 0;
}

static bool is_mark(const struct token *token, const char *text)
{
    return token->kind == TOKEN_MARK && is(token, text);
}

/* +1 where the token opens a bracket or a block, -1 where it closes one. */
static int nesting(const struct token *token)
{
    static const char *const opens[] = {"function", "if", "do", "repeat"};
    if (token->kind == TOKEN_MARK && token->length == 1)
        return strchr("({[", token->text[0]) != NULL ? 1 : strchr(")}]", token->text[0]) != NULL ? -1 : 0;
    if (token->kind != TOKEN_NAME)
        return 0;
    for (size_t k = 0; k < sizeof opens / sizeof opens[0]; k++) {
        if (is(token, opens[k]))
            return 1;
    }
    return is(token, "end") || is(token, "until") ? -1 : 0;
}

/* Passes the rest of a field; true when another field follows. */
static bool skip_field(struct scanner *s)
{
    int depth = 0;
    for (;;) {
        struct token token = next(s);
        if (token.kind == TOKEN_END)
            return false;
        if (depth == 0 && (is_mark(&token, ",") || is_mark(&token, ";")))
            return true;
        depth += nesting(&token);
        if (depth < 0)
            return false;
    }
}

/* Reads the key of the field that starts here and leaves the scanner at its value. A positional field has none: false,
 * nothing is passed. */
static bool field_key(struct scanner *s, struct token *key)
{
    struct scanner ahead = *s;
    struct token first = next(&ahead);
    struct token after = next(&ahead);
    if (first.kind == TOKEN_NAME && is_mark(&after, "=")) {
        *key = first;
        *s = ahead;
        return true;
    }
    if (!is_mark(&first, "["))
        return false;
    struct token bracket = next(&ahead);
    struct token equals = next(&ahead);
    if (!is_mark(&bracket, "]") || !is_mark(&equals, "="))
        return false;
    *key = after;
    *s = ahead;
    return true;
}

/* Moves into the first table constructor of the field's value; false when it has none. */
static bool enter_value(struct scanner *s)
{
    int depth = 0;
    for (;;) {
        struct token token = next(s);
        if (is_mark(&token, "{"))
            return true;
        if (token.kind == TOKEN_END || (depth == 0 && (is_mark(&token, ",") || is_mark(&token, ";"))))
            return false;
        depth += nesting(&token);
        if (depth < 0)
            return false;
    }
}

/* The scanner is just past the opening brace. Returns 0 when keys[0] is not written there. */
static int find_in_table(struct scanner *s, const char *const *keys, size_t key_count)
{
    unsigned position = 0;
    int line = 0;
    for (;;) {
        struct scanner start = *s;
        struct token first = next(&start);
        if (first.kind == TOKEN_END || is_mark(&first, "}"))
            return line;
        struct token key;
        bool match;
        if (field_key(s, &key)) {
            match = is(&key, keys[0]);
        } else {
            char number[16];
            snprintf(number, sizeof number, "%u", ++position);
            match = strcmp(number, keys[0]) == 0;
        }
        if (match) {
            line = first.line;
            keys++;
            if (--key_count == 0 || !enter_value(s))
                return line;
            position = 0;
            continue;
        }
        if (!skip_field(s))
            return line;
    }
}

int source_line_find(const char *text, size_t length, const char *constructor, int line, const char *const *keys,
                     size_t key_count)
{
    struct scanner s = {.at = text, .end = text + length, .line = 1};
    if (key_count == 0)
        return line;
    for (;;) {
        struct token token = next(&s);
        if (token.kind == TOKEN_END)
            return line;
        if (token.line < line || token.kind != TOKEN_NAME || !is(&token, constructor))
            continue;
        if (!enter_value(&s))
            return line;
        int found = find_in_table(&s, keys, key_count);
        return found == 0 ? line : found;
    }
}
