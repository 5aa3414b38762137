#include "cli/hub_token.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "upstream/caller.h"

#define FILE_MAX 4096u
#define WHITE " \t\r\n"

static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

static bool is_set(const char *name)
{
    static const char *const words[] = {"1", "on", "yes", "true"};
    const char *value = getenv(name);
    for (size_t i = 0; value && i < ARRAY_LEN(words); i++)
        if (strcasecmp(value, words[i]) == 0)
            return true;
    return false;
}

/* What is between the white space; from: for error texts. */
static int take(const char *text, const char *from, struct strbuf *to, struct error *err)
{
    text += strspn(text, WHITE);
    size_t n = strlen(text);
    while (n && strchr(WHITE, text[n - 1]))
        n--;
    if (n && !caller_token_is_plain(text, n))
        return err_set(err, ERR_INVALID,
                       "what stands in %.200s is no token: it has more in it than printable ASCII",
                       from);
    if (n > CALLER_TOKEN_MAX)
        return err_set(err, ERR_INVALID, "the token in %.200s has more than %u bytes", from,
                       CALLER_TOKEN_MAX);
    strbuf_put(to, text, n);
    return strbuf_failed(to) ? err_set(err, ERR_NOMEM, "out of memory") : 0;
}

/* A path with the user's home folder for its ~, and `rest` behind it. */
static void put_path(struct strbuf *to, const char *path, const char *rest)
{
    const char *home = variable("HOME");
    if (home && path[0] == '~' && (path[1] == '/' || !path[1])) {
        strbuf_puts(to, home);
        path++;
    }
    strbuf_puts(to, path);
    strbuf_puts(to, rest);
}

static void put_file(struct strbuf *to)
{
    const char *path = variable("HF_TOKEN_PATH"), *home = variable("HF_HOME"),
               *cache = variable("XDG_CACHE_HOME");
    if (path)
        put_path(to, path, "");
    else if (home)
        put_path(to, home, "/token");
    else
        put_path(to, cache ? cache : "~/.cache", "/huggingface/token");
}

static int read_token(struct strbuf *to, struct error *err)
{
    _cleanup_strbuf_ struct strbuf path = STRBUF_INIT, text = STRBUF_INIT;
    struct error why = ERROR_INIT;
    put_file(&path);
    if (strbuf_failed(&path))
        return err_set(err, ERR_NOMEM, "out of memory");
    int rc = fs_read_file(path.data, FILE_MAX, &text, &why);
    if (rc == 0)
        rc = take(strbuf_str(&text), path.data, to, &why);
    else if (why.code == ERR_NOT_FOUND)
        rc = 0;
    if (text.data)
        explicit_bzero(text.data, text.len);
    if (rc < 0)
        *err = why;
    return rc;
}

int hub_token_find(struct strbuf *to, struct error *err)
{
    static const char *const names[] = {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"};
    if (is_set("HF_HUB_DISABLE_IMPLICIT_TOKEN"))
        return 0;
    for (size_t i = 0; i < ARRAY_LEN(names) && !to->len; i++)
        if (variable(names[i]) && take(variable(names[i]), names[i], to, err) < 0)
            return -1;
    return to->len ? 0 : read_token(to, err);
}
