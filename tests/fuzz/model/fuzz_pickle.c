/* Any bytes as a PyTorch file: nothing outside of it is read, and what is reported holds together.
 */
#include "model/pickle.h"
#include "tests/unit/model/memory_source.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "%s\n", what);
    abort();
}

static void check_report(const struct pickle_report *r)
{
    uint64_t elements = 0;
    enum pickle_verdict worst = PICKLE_ALLOWED;
    for (size_t i = 0; i < r->n_imports; i++) {
        const struct pickle_import *m = &r->imports[i];
        bool loader = strcmp(m->name, "_load_from_bytes") == 0; /* judged by what it loads */
        check(m->verdict >= (loader ? PICKLE_EXTENDED : pickle_judge(m->module, m->name)),
              "a verdict is milder than it may be");
        check(m->count > 0, "an import was not seen");
        worst = m->verdict > worst ? m->verdict : worst;
    }
    check(r->verdict >= worst, "the file is better than its imports");
    check(!r->broken || r->verdict >= PICKLE_UNREADABLE, "a broken file is clean");
    check(r->pickles > 0 || r->n_imports > 0 || r->broken, "a report about nothing");
    for (size_t i = 0; i < r->n_tensors; i++)
        elements += r->tensors[i].alias ? 0 : r->tensors[i].elements;
    check(r->weights.parameters == elements, "the sum of the elements is wrong");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct memory_source memory = {data, size, 0, 0};
    struct byte_source s = memory_source(&memory);
    struct error err = ERROR_INIT;
    struct pickle_report r;
    if (pickle_inspect(&s, &r, &err) == 0)
        check_report(&r);
    else
        check(err.code != ERR_NONE && err.text[0], "failed without a reason");
    pickle_report_done(&r);
    return 0;
}
