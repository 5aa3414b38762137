/* A config.json, a zero, and tensors, one a line: a type, a space and a name. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "model/parameters.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "%s\n", what);
        abort();
    }
}

static void count(char *lines, const struct quantization *q)
{
    struct parameter_count c = {0}, plain = {0};
    struct error err = ERROR_INIT;
    uint64_t elements = 1;
    for (char *line; (line = strsep(&lines, "\n"));) {
        char *type = strsep(&line, " ");
        if (!line)
            continue;
        elements = elements * 31 + strlen(line);
        struct tensor_info t = {.name = line,
                                .name_len = strlen(line),
                                .type = type,
                                .dims = &elements,
                                .n_dims = 1,
                                .elements = elements >> 20};
        int rc = parameters_add(&c, q, WEIGHTS_SAFETENSORS, &t, &err);
        require(rc == 0 || err.code == ERR_INVALID, "an error of another kind");
        require(parameters_add(&plain, NULL, WEIGHTS_GGUF, &t, &err) == 0 || rc < 0,
                "only the plain sum overflows");
    }
    parameters_end(&c, q);
    require(c.rule[0], "no rule");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct quantization q;
    struct error err = ERROR_INIT;
    size_t len = strnlen((const char *)data, size);
    _cleanup_free_ char *lines =
        strndup((const char *)data + len + (len < size), size - len - (len < size));
    int rc = quantization_read((const char *)data, len, &q, &err);
    require(rc == 0 || err.text[0], "an error without text");
    if (rc == 0 && lines)
        count(lines, &q);
    quantization_done(&q);
    return 0;
}
