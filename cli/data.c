#include "cli/data.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/strbuf.h"

int data_in_use(struct error *err, const char *advice)
{
    const struct error was = *err;
    return was.code == ERR_CONFLICT ? err_set(err, was.code, "%s; %s", was.text, advice) : -1;
}

int data_open(const char *dir, struct store **ret, struct error *err)
{
    const struct store_options options = {.dir = dir};
    _cleanup_strbuf_ struct strbuf meta = STRBUF_INIT;
    struct stat st;
    strbuf_printf(&meta, "%s/meta", dir);
    if (strbuf_failed(&meta))
        return err_set(err, ERR_NOMEM, "out of memory");
    int rc = stat(meta.data, &st);
    if (rc < 0 && errno != ENOENT && errno != ENOTDIR)
        return err_errno(err, "%.300s", meta.data);
    if (rc < 0 || !S_ISDIR(st.st_mode))
        return err_set(err, ERR_NOT_FOUND, "%.300s is not a data directory: it holds no meta/",
                       dir);
    if (store_open(&options, ret, err) == 0)
        return 0;
    return data_in_use(err, "a running server is asked by rm and history when --data is left out, "
                            "and has to be stopped for gc");
}

char *format_bytes(uint64_t n, char buf[static 32])
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB"};
    double value = (double)n;
    unsigned unit = 0;
    while (value >= 1024 && unit + 1 < sizeof(units) / sizeof(units[0])) {
        value /= 1024;
        unit++;
    }
    if (unit == 0)
        snprintf(buf, 32, "%" PRIu64 " bytes", n);
    else
        snprintf(buf, 32, "%.1f %s", value, units[unit]);
    return buf;
}
