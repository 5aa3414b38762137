/* The stack and memo of an unpickler, of values that matter here and blanks for all others. Where
 * a loader would stop because something is missing, this goes on with a blank and remembers that
 * it did: a loader that is more lenient than Python's must not see more than we do. */
#include <search.h>
#include <string.h>

#include "base/cleanup.h"
#include "model/pickle_private.h"

/* Beyond these, values become blanks: nothing can hide in one, as an import that is computed from
 * blanks is an unknown one. */
#define STACK_MAX (4u << 20)
#define MEMO_MAX (8u << 20)
#define ITEMS_MAX (8u << 20)
#define SPARSE_MAX (64u << 10)
#define WALKS_MAX (4u << 20)
#define TEXT_MAX (128u << 20)

struct memo_entry {
    uint64_t index;
    struct value v;
};

static int compare_entries(const void *a, const void *b)
{
    const struct memo_entry *x = a, *y = b;
    return x->index < y->index ? -1 : x->index > y->index;
}

/* No pickler counts like that: a hundred million walks through the tree would be all that an
 * archive of a megabyte asks for. */
static bool is_worn_out(struct pickle_machine *m)
{
    if (m->sparse_walks < WALKS_MAX)
        return false;
    m->odd = true;
    return true;
}

static struct memo_entry **find_sparse(struct pickle_machine *m, uint64_t index)
{
    const struct memo_entry key = {index, OTHER};
    if (!m->n_sparse || is_worn_out(m))
        return NULL;
    m->sparse_walks++;
    return tfind(&key, &m->sparse_memo, compare_entries);
}

/* Makes room for n values, in steps that follow what was asked for. */
static int reserve(struct value_array *a, size_t n, struct error *err)
{
    size_t cap = a->cap ? a->cap : 64;
    while (cap < n)
        cap *= 2;
    if (cap == a->cap)
        return 0;
    struct value *grown = realloc(a->v, cap * sizeof(*grown));
    if (!grown)
        return err_set(err, ERR_NOMEM, "out of memory");
    a->v = grown;
    a->cap = cap;
    return 0;
}

void machine_reset(struct pickle_machine *m)
{
    m->stack.n = m->items.n = m->memo.n = 0;
    tdestroy(m->sparse_memo, free);
    m->sparse_memo = NULL;
    m->n_sparse = 0;
    m->sparse_walks = 0;
    m->distinct = 0;
    strbuf_reset(&m->text);
    m->first_import = m->scan ? m->scan->n_imports : 0;
    m->odd = false;
    m->torn = false;
    m->frame_end = 0;
    m->result = OTHER;
}

void machine_done(struct pickle_machine *m)
{
    machine_reset(m);
    free(m->stack.v);
    free(m->items.v);
    free(m->memo.v);
    strbuf_done(&m->text);
    strbuf_done(&m->line[0]);
    strbuf_done(&m->line[1]);
}

int machine_push(struct pickle_machine *m, struct value v, struct error *err)
{
    if (m->stack.n == STACK_MAX) {
        m->odd = true;
        return 0;
    }
    if (reserve(&m->stack, m->stack.n + 1, err) < 0)
        return -1;
    m->stack.v[m->stack.n++] = v;
    return 0;
}

int machine_push_string(struct pickle_machine *m, const char *s, size_t len, struct error *err)
{
    struct value v = {VALUE_STRING, (uint32_t)len, m->text.len};
    if (m->text.len + len > TEXT_MAX)
        return machine_push(m, OTHER, err);
    strbuf_put(&m->text, s, len);
    if (strbuf_failed(&m->text))
        return err_set(err, ERR_NOMEM, "out of memory");
    return machine_push(m, v, err);
}

struct value machine_top(struct pickle_machine *m)
{
    if (m->stack.n && m->stack.v[m->stack.n - 1].kind != VALUE_MARK)
        return m->stack.v[m->stack.n - 1];
    m->odd = true;
    return OTHER;
}

struct value machine_pop(struct pickle_machine *m)
{
    struct value v = machine_top(m);
    machine_discard(m);
    return v;
}

void machine_discard(struct pickle_machine *m)
{
    if (m->stack.n)
        m->stack.n--;
    else
        m->odd = true;
}

size_t machine_mark(struct pickle_machine *m)
{
    size_t i = m->stack.n;
    while (i > 0 && m->stack.v[i - 1].kind != VALUE_MARK)
        i--;
    if (i == 0)
        m->odd = true;
    return i;
}

void machine_drop(struct pickle_machine *m, size_t first)
{
    m->stack.n = first ? first - 1 : 0;
}

int machine_push_tuple(struct pickle_machine *m, const struct value *items, size_t n,
                       struct error *err)
{
    struct value v = {VALUE_TUPLE, (uint32_t)n, m->items.n};
    if (m->items.n + n > ITEMS_MAX)
        return machine_push(m, OTHER, err);
    if (reserve(&m->items, m->items.n + n, err) < 0)
        return -1;
    if (n)
        memcpy(m->items.v + m->items.n, items, n * sizeof(*items));
    m->items.n += n;
    return machine_push(m, v, err);
}

/* Picklers number their memo from 0 on. Indexes far beyond how many there were go into a tree, so
 * that a single one does not cost an array. */
int machine_put(struct pickle_machine *m, uint64_t index, struct value v, struct error *err)
{
    struct memo_entry **found = NULL;
    if (index < m->memo.n && m->memo.v[index].kind != VALUE_MARK) {
        m->memo.v[index] = v;
        return 0;
    }
    if ((found = find_sparse(m, index))) {
        (*found)->v = v;
        return 0;
    }
    m->distinct++;
    if (index < MEMO_MAX && index < 2 * m->distinct + 64) {
        if (index >= m->memo.n) {
            if (reserve(&m->memo, index + 1, err) < 0)
                return -1;
            for (size_t i = m->memo.n; i < index; i++)
                m->memo.v[i] = (struct value){VALUE_MARK, 0, 0}; /* not there */
            m->memo.n = index + 1;
        }
        m->memo.v[index] = v;
        return 0;
    }
    if (m->n_sparse == SPARSE_MAX || is_worn_out(m)) {
        m->odd = true;
        return 0;
    }
    struct memo_entry *entry = malloc(sizeof(*entry));
    if (!entry)
        return err_set(err, ERR_NOMEM, "out of memory");
    *entry = (struct memo_entry){index, v};
    if (!tsearch(entry, &m->sparse_memo, compare_entries)) {
        free(entry);
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    m->n_sparse++;
    return 0;
}

struct value machine_get(struct pickle_machine *m, uint64_t index)
{
    if (index < m->memo.n && m->memo.v[index].kind != VALUE_MARK)
        return m->memo.v[index];
    struct memo_entry **found = find_sparse(m, index);
    if (found)
        return (*found)->v;
    m->odd = true;
    return OTHER;
}

bool machine_text(const struct pickle_machine *m, struct value v, char *buf, size_t cap)
{
    if (v.kind != VALUE_STRING || v.size >= cap)
        return false;
    const char *s = strbuf_str(&m->text) + v.n;
    if (memchr(s, 0, v.size))
        return false;
    memcpy(buf, s, v.size);
    buf[v.size] = '\0';
    return true;
}
