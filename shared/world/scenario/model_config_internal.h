/* What the reader of a config.json shares with the reader of its number formats. */
#ifndef TANDEM_WORLD_SCENARIO_MODEL_CONFIG_INTERNAL_H
#define TANDEM_WORLD_SCENARIO_MODEL_CONFIG_INTERNAL_H

#include "world/scenario/model_config.h"

#include <jansson.h>

#define LENGTH(list) (sizeof(list) / sizeof((list)[0]))

/* A file being read: the object that holds the language model, and where errors go. */
struct config {
    const char *file;
    char *text;           /* ends with 0 */
    json_t *root;         /* of the file */
    const json_t *object; /* of the language model: root, or what stands in it */
    struct architecture *model;
    struct user_error *error;
};

/* The line where the key first stands in quotes; 0: nowhere. */
int config_line(const struct config *config, const char *key);

/* Says what is wrong under a key; false. */
#define FAIL(config, key, ...)                                                                                         \
    (user_error_set((config)->error, (config)->file, config_line(config, key), key, __VA_ARGS__), false)

static inline bool config_absent(const json_t *value)
{
    return value == NULL || json_is_null(value);
}

/* A key of the language model or, where it has none, of the whole file; NULL where it is missing or null. */
static inline const json_t *config_find(const struct config *config, const char *key)
{
    const json_t *value = json_object_get(config->object, key);
    if (config_absent(value))
        value = json_object_get(config->root, key);
    return config_absent(value) ? NULL : value;
}

/* Formats of weights and cache: what the file says of quantization and of its type, and what `quantization` does, the
 * file beside it (NULL: there is none). `name` is what people call the model. */
bool model_formats_read(const struct config *config, const char *name, const struct config *quantization);

#endif
