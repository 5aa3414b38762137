/* The opcodes of one pickle (Python's Lib/pickletools.py describes them), protocols 0 to 5. */
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "model/pickle_private.h"

#define STRING_MAX 4096u /* longer ones are not kept: no module, name or key has that */

/* What follows an opcode. */
enum form {
    FORM_BAD,
    FORM_NONE,
    FORM_U8,
    FORM_U16,
    FORM_I32,
    FORM_U32,
    FORM_8, /* eight bytes that do not matter */
    FORM_LINE,
    FORM_LINES, /* two */
    FORM_LEN8,  /* a length of 1, 4 or 8 bytes, and as many bytes */
    FORM_LEN32,
    FORM_LEN32S, /* signed */
    FORM_LEN64,
};

/* What it does. */
enum action {
    DO_BLANK,   /* None, booleans, floats, bytes, empty containers, buffers */
    DO_NOTHING, /* frames */
    DO_PROTO,
    DO_STOP,
    DO_STRING,
    DO_BYTES,
    DO_SMALL_INT,
    DO_INT,
    DO_TUPLE,
    DO_CONTAINER,
    DO_MEMO,
    DO_STACK,
    DO_NAMED,
    DO_COMPUTED,
    DO_EXTENSION,
    DO_CALL,
    DO_BUILD,
};

static const struct opcode {
    unsigned char form, action;
} opcodes[256] = {
    ['N'] = {FORM_NONE, DO_BLANK},      [']'] = {FORM_NONE, DO_BLANK},
    ['}'] = {FORM_NONE, DO_BLANK},      [0x88] = {FORM_NONE, DO_BLANK},
    [0x89] = {FORM_NONE, DO_BLANK},     [0x8f] = {FORM_NONE, DO_BLANK},
    [0x97] = {FORM_NONE, DO_BLANK},     ['G'] = {FORM_8, DO_BLANK},
    ['F'] = {FORM_LINE, DO_BLANK},      ['C'] = {FORM_LEN8, DO_BYTES},
    ['B'] = {FORM_LEN32, DO_BYTES},     [0x8e] = {FORM_LEN64, DO_BYTES},
    [0x96] = {FORM_LEN64, DO_BLANK},    [0x98] = {FORM_NONE, DO_NOTHING},
    [0x95] = {FORM_8, DO_NOTHING},      [0x80] = {FORM_U8, DO_PROTO},
    ['.'] = {FORM_NONE, DO_STOP},       ['S'] = {FORM_LINE, DO_STRING},
    ['V'] = {FORM_LINE, DO_STRING},     ['U'] = {FORM_LEN8, DO_STRING},
    [0x8c] = {FORM_LEN8, DO_STRING},    ['X'] = {FORM_LEN32, DO_STRING},
    ['T'] = {FORM_LEN32S, DO_STRING},   [0x8d] = {FORM_LEN64, DO_STRING},
    ['K'] = {FORM_U8, DO_SMALL_INT},    ['M'] = {FORM_U16, DO_SMALL_INT},
    ['J'] = {FORM_I32, DO_SMALL_INT},   ['I'] = {FORM_LINE, DO_INT},
    ['L'] = {FORM_LINE, DO_INT},        [0x8a] = {FORM_LEN8, DO_INT},
    [0x8b] = {FORM_LEN32S, DO_INT},     [')'] = {FORM_NONE, DO_TUPLE},
    [0x85] = {FORM_NONE, DO_TUPLE},     [0x86] = {FORM_NONE, DO_TUPLE},
    [0x87] = {FORM_NONE, DO_TUPLE},     ['a'] = {FORM_NONE, DO_CONTAINER},
    ['d'] = {FORM_NONE, DO_CONTAINER},  ['e'] = {FORM_NONE, DO_CONTAINER},
    ['l'] = {FORM_NONE, DO_CONTAINER},  ['s'] = {FORM_NONE, DO_CONTAINER},
    ['t'] = {FORM_NONE, DO_CONTAINER},  ['u'] = {FORM_NONE, DO_CONTAINER},
    [0x90] = {FORM_NONE, DO_CONTAINER}, [0x91] = {FORM_NONE, DO_CONTAINER},
    [0x94] = {FORM_NONE, DO_MEMO},      ['h'] = {FORM_U8, DO_MEMO},
    ['q'] = {FORM_U8, DO_MEMO},         ['j'] = {FORM_U32, DO_MEMO},
    ['r'] = {FORM_U32, DO_MEMO},        ['g'] = {FORM_LINE, DO_MEMO},
    ['p'] = {FORM_LINE, DO_MEMO},       ['('] = {FORM_NONE, DO_STACK},
    ['0'] = {FORM_NONE, DO_STACK},      ['1'] = {FORM_NONE, DO_STACK},
    ['2'] = {FORM_NONE, DO_STACK},      ['Q'] = {FORM_NONE, DO_STACK},
    ['P'] = {FORM_LINE, DO_STACK},      ['c'] = {FORM_LINES, DO_NAMED},
    [0x93] = {FORM_NONE, DO_COMPUTED},  [0x82] = {FORM_U8, DO_EXTENSION},
    [0x83] = {FORM_U16, DO_EXTENSION},  [0x84] = {FORM_I32, DO_EXTENSION},
    ['R'] = {FORM_NONE, DO_CALL},       ['o'] = {FORM_NONE, DO_CALL},
    [0x81] = {FORM_NONE, DO_CALL},      [0x92] = {FORM_NONE, DO_CALL},
    ['i'] = {FORM_LINES, DO_CALL},      ['b'] = {FORM_NONE, DO_BUILD},
};

struct step {
    unsigned char op;
    uint64_t at;   /* byte of the opcode */
    int64_t n;     /* the number, or the length of the text */
    uint64_t text; /* byte of the text */
    bool kept[2];  /* line[i] holds all of the text */
};

static uint64_t le(const unsigned char *p, size_t n)
{
    uint64_t v = 0;
    while (n--)
        v = v << 8 | p[n];
    return v;
}

static int cut_off(struct pickle_machine *m, const struct step *s, const char *what)
{
    if (m->scan)
        scan_broken(m->scan, s->at, "%s of the opcode 0x%02x is cut off", what, s->op);
    return 0;
}

/* ---- arguments: 1, 0 when cut off (and noted), -1 ---- */

static int read_bytes(struct pickle_machine *m, struct pickle_input *in, struct step *s,
                      uint64_t len, struct error *err)
{
    int r;
    s->text = in->at;
    if (len > STRING_MAX) {
        if ((r = input_skip(in, len, err)) == 0)
            cut_off(m, s, "the text");
        return r;
    }
    if ((r = input_want(in, (size_t)len, err)) <= 0)
        return r < 0 ? r : cut_off(m, s, "the text");
    strbuf_put(&m->line[0], input_bytes(in), (size_t)len);
    input_take(in, (size_t)len);
    s->kept[0] = true;
    return 1;
}

static int read_line(struct pickle_machine *m, struct pickle_input *in, struct step *s,
                     unsigned which, struct error *err)
{
    uint64_t total = 0;
    for (;;) {
        int r = input_want(in, 1, err);
        if (r <= 0)
            return r < 0 ? r : cut_off(m, s, "the line");
        const unsigned char *p = input_bytes(in);
        size_t here = in->have - in->start;
        const unsigned char *end = memchr(p, '\n', here);
        size_t n = end ? (size_t)(end - p) : here;
        if (total + n <= STRING_MAX)
            strbuf_put(&m->line[which], p, n);
        total += n;
        input_take(in, end ? n + 1 : n);
        if (end)
            break;
    }
    s->kept[which] = total <= STRING_MAX;
    return 1;
}

static int read_number(struct pickle_machine *m, struct pickle_input *in, struct step *s, size_t n,
                       struct error *err)
{
    int r = input_want(in, n, err);
    if (r <= 0)
        return r < 0 ? r : cut_off(m, s, "the argument");
    s->n = (int64_t)le(input_bytes(in), n);
    input_take(in, n);
    return 1;
}

static int read_argument(struct pickle_machine *m, struct pickle_input *in, struct step *s,
                         struct error *err)
{
    static const unsigned char widths[] = {
        [FORM_U8] = 1,   [FORM_U16] = 2,   [FORM_I32] = 4,    [FORM_U32] = 4,   [FORM_8] = 8,
        [FORM_LEN8] = 1, [FORM_LEN32] = 4, [FORM_LEN32S] = 4, [FORM_LEN64] = 8,
    };
    int r;
    enum form form = opcodes[s->op].form;
    strbuf_reset(&m->line[0]);
    strbuf_reset(&m->line[1]);
    if (form == FORM_NONE)
        return 1;
    if (form == FORM_LINE || form == FORM_LINES) {
        r = read_line(m, in, s, 0, err);
        return r <= 0 || form == FORM_LINE ? r : read_line(m, in, s, 1, err);
    }
    if ((r = read_number(m, in, s, widths[form], err)) <= 0)
        return r;
    if (form == FORM_I32 || form == FORM_LEN32S)
        s->n = (int32_t)s->n;
    if (form < FORM_LEN8)
        return 1;
    if (s->n < 0)
        return cut_off(m, s, "the text of a negative or huge length");
    return read_bytes(m, in, s, (uint64_t)s->n, err);
}

/* ---- values ---- */

/* Python's int(): blanks around, a sign, underscores between digits. */
static bool parse_int(const char *s, int64_t *ret)
{
    bool negative = false;
    uint64_t n = 0;
    unsigned digits = 0;
    s += strspn(s, " \t\r\v\f");
    if (*s == '+' || *s == '-')
        negative = *s++ == '-';
    for (; (*s >= '0' && *s <= '9') || (*s == '_' && digits); s++) {
        if (*s == '_')
            continue;
        if (digits == 18) /* counts zeros in front too; no index has that many */
            return false;
        n = 10 * n + (uint64_t)(*s - '0');
        digits++;
    }
    s += strspn(s, " \t\r\v\f");
    if (!digits || (*s && strcmp(s, "L") != 0))
        return false;
    *ret = negative ? -(int64_t)n : (int64_t)n;
    return true;
}

/* The numbers of LONG, LONG1, LONG4, INT. */
static struct value number_of(const struct pickle_machine *m, const struct step *s)
{
    static const unsigned char magic[] = {0x6c, 0xfc, 0x9c, 0x46, 0xf9,
                                          0x20, 0x6a, 0xa8, 0x50, 0x19};
    const struct strbuf *b = &m->line[0];
    int64_t n;
    if (!s->kept[0])
        return OTHER;
    if (s->op == 'L' || s->op == 'I') {
        if (strcmp(strbuf_str(b), "119547037146038801333356L") == 0)
            return (struct value){VALUE_MAGIC, 0, 0};
        return parse_int(strbuf_str(b), &n) ? (struct value){VALUE_INT, 0, (uint64_t)n} : OTHER;
    }
    if (b->len == sizeof(magic) && memcmp(b->data, magic, sizeof(magic)) == 0)
        return (struct value){VALUE_MAGIC, 0, 0};
    if (b->len > 8)
        return OTHER;
    uint64_t v = le((const unsigned char *)strbuf_str(b), b->len);
    if (b->len && b->len < 8 && (b->data[b->len - 1] & 0x80))
        v |= UINT64_MAX << 8 * b->len;
    return (struct value){VALUE_INT, 0, v};
}

static int push_string(struct pickle_machine *m, const struct step *s, struct error *err)
{
    const char *p = strbuf_str(&m->line[0]);
    size_t len = m->line[0].len;
    if (!s->kept[0])
        return machine_push(m, OTHER, err);
    if (s->op == 'S') { /* quoted, perhaps with blanks around */
        while (len && strchr(" \t\r\v\f", p[len - 1]))
            len--;
        while (len && strchr(" \t\r\v\f", *p)) {
            p++;
            len--;
        }
        if (len < 2 || (*p != '\'' && *p != '"') || p[len - 1] != *p)
            return machine_push(m, OTHER, err);
        p++;
        len -= 2;
    }
    if ((s->op == 'S' || s->op == 'V') && memchr(p, '\\', len)) /* escapes are not undone */
        return machine_push(m, OTHER, err);
    return machine_push_string(m, p, len, err);
}

/* Where they are; a packed member can not be gone back in. */
static int push_bytes(struct pickle_machine *m, const struct step *s, struct error *err)
{
    struct value v = {VALUE_BYTES, (uint32_t)s->n, s->text};
    return machine_push(m, m->in->z || s->n > UINT32_MAX ? OTHER : v, err);
}

/* ---- imports ---- */

static bool is_identifier(const char *s)
{
    for (const char *p = s; *p; p++)
        if (!((*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || *p == '_' || *p == '.' ||
              ((*p >= '0' && *p <= '9') && p > s)))
            return false;
    return *s != '\0';
}

static void note_use(struct pickle_machine *m, struct value v)
{
    if (v.kind == VALUE_IMPORT && is_loader(m->scan->imports[v.n]))
        m->scan->loader_uses++;
}

static int push_import(struct pickle_machine *m, const char *module, const char *name, uint64_t at,
                       struct error *err)
{
    uint32_t index;
    if (m->strict_names && !(is_identifier(module) && is_identifier(name)))
        return machine_push(m, OTHER, err);
    m->seen_imports++;
    if (!m->scan)
        return machine_push(m, OTHER, err);
    if (scan_import(m->scan, module, name, at, &index, err) < 0)
        return -1;
    struct value v = {VALUE_IMPORT, 0, index};
    note_use(m, v);
    return machine_push(m, v, err);
}

/* The two lines of GLOBAL and INST. */
static int push_named(struct pickle_machine *m, const struct step *s, struct error *err)
{
    const char *text[2];
    for (unsigned i = 0; i < 2; i++) {
        const struct strbuf *b = &m->line[i];
        text[i] = strbuf_str(b);
        if (!s->kept[i] || memchr(text[i], 0, b->len) || !utf8_is_valid(text[i], b->len))
            text[i] = "?";
    }
    return push_import(m, text[0], text[1], s->at, err);
}

static int push_computed(struct pickle_machine *m, const struct step *s, struct error *err)
{
    char module[STRING_MAX + 1], name[STRING_MAX + 1];
    struct value second = machine_pop(m), first = machine_pop(m);
    bool known = machine_text(m, first, module, sizeof(module)) &&
                 machine_text(m, second, name, sizeof(name)) &&
                 utf8_is_valid(module, strlen(module)) && utf8_is_valid(name, strlen(name));
    if (known)
        return push_import(m, module, name, s->at, err);
    if (!machine_text(m, first, module, sizeof(module)) || !utf8_is_valid(module, strlen(module)))
        strcpy(module, "?");
    bool strict = m->strict_names; /* this one counts whatever it is named */
    m->strict_names = false;
    int r = push_import(m, module, "?", s->at, err);
    m->strict_names = strict;
    return r;
}

static int push_extension(struct pickle_machine *m, const struct step *s, struct error *err)
{
    char name[32];
    bool strict = m->strict_names;
    snprintf(name, sizeof(name), "extension %lld", (long long)s->n);
    m->strict_names = false;
    int r = push_import(m, "?", name, s->at, err);
    m->strict_names = strict;
    return r;
}

/* An import is called; of one that is not known, all that were seen may be. */
static void note_call(struct pickle_machine *m, struct value callee)
{
    if (!m->scan || callee.kind == VALUE_TENSOR || callee.kind == VALUE_STORAGE)
        return;
    if (callee.kind == VALUE_IMPORT) {
        m->scan->imports[callee.n]->called = true;
        return;
    }
    for (; m->first_import < m->scan->n_imports; m->first_import++)
        m->scan->imports[m->first_import]->called = true;
}

/* ---- opcodes, by what they do ---- */

static int do_call(struct pickle_machine *m, const struct step *s, struct error *err)
{
    struct value args = OTHER, callee, result = OTHER;
    if (s->op == 'o' || s->op == 'i') {
        size_t first = machine_mark(m);
        callee = s->op == 'o' && first < m->stack.n ? m->stack.v[first] : OTHER;
        machine_drop(m, first);
        if (s->op == 'i') {
            if (push_named(m, s, err) < 0)
                return -1;
            callee = machine_pop(m);
        }
        note_call(m, callee);
        return machine_push(m, OTHER, err);
    }
    if (s->op == 0x92) /* keywords */
        machine_pop(m);
    args = machine_pop(m);
    callee = machine_pop(m);
    note_call(m, callee);
    if (s->op == 'R' && m->scan && tensor_call(m, callee, args, &result, err) < 0)
        return -1;
    return machine_push(m, result, err);
}

/* The state goes to what was built. An import itself has no state to be given: whoever changes a
 * function or class that everything shares is up to something. */
static void do_build(struct pickle_machine *m)
{
    machine_pop(m);
    struct value v = machine_top(m);
    if (v.kind == VALUE_IMPORT && m->scan) {
        struct pickle_import *i = m->scan->imports[v.n];
        m->scan->loader_changed = m->scan->loader_changed || is_loader(i);
        i->verdict = i->verdict > PICKLE_UNKNOWN ? i->verdict : PICKLE_UNKNOWN;
    }
}

static int name_pairs(struct pickle_machine *m, size_t first, struct error *err)
{
    for (size_t i = first; m->scan && i + 1 < m->stack.n; i += 2)
        if (tensor_name(m, m->stack.v[i], m->stack.v[i + 1], err) < 0)
            return -1;
    return 0;
}

/* The keys of a legacy file's storages, each of which stands behind with its length. */
static void sum_key(struct pickle_machine *m, struct value v)
{
    char key[STRING_MAX + 1];
    uint64_t bytes;
    if (!m->sum_keys || !m->scan)
        return;
    struct pickle_storage *s =
        storage_key(m, v, key, sizeof(key)) ? scan_find_storage(m->scan, key) : NULL;
    if (!s || !s->size || s->odd || __builtin_mul_overflow(s->elements, s->size, &bytes) ||
        __builtin_add_overflow(bytes, 8, &bytes) ||
        __builtin_add_overflow(bytes, m->keys_bytes, &m->keys_bytes))
        m->keys_known = false;
}

static int do_container(struct pickle_machine *m, const struct step *s, struct error *err)
{
    size_t first;
    switch (s->op) {
    case 'a': /* APPEND */
        sum_key(m, machine_pop(m));
        return 0;
    case 's': /* SETITEM */
        if (m->stack.n >= 2 && name_pairs(m, m->stack.n - 2, err) < 0)
            return -1;
        machine_pop(m);
        machine_pop(m);
        return 0;
    case 't': /* TUPLE */
        first = machine_mark(m);
        size_t n = m->stack.n - first;
        const struct value *above = n ? m->stack.v + first : NULL;
        machine_drop(m, first); /* the values stay where they are */
        return machine_push_tuple(m, above, n, err);
    case 'l': /* LIST, DICT, FROZENSET */
    case 'd':
    case 0x91:
        first = machine_mark(m);
        if (s->op == 'd' && name_pairs(m, first, err) < 0)
            return -1;
        for (size_t i = first; s->op == 'l' && i < m->stack.n; i++)
            sum_key(m, m->stack.v[i]);
        machine_drop(m, first);
        return machine_push(m, OTHER, err);
    default: /* APPENDS, SETITEMS, ADDITEMS */
        first = machine_mark(m);
        /* [key, tensor] is how an old OrderedDict was given its pairs */
        if ((s->op == 'u' || (s->op == 'e' && m->stack.n - first == 2)) &&
            name_pairs(m, first, err) < 0)
            return -1;
        for (size_t i = first; s->op == 'e' && i < m->stack.n; i++)
            sum_key(m, m->stack.v[i]);
        machine_drop(m, first);
        return 0;
    }
}

static int do_small_tuple(struct pickle_machine *m, const struct step *s, struct error *err)
{
    struct value v[3];
    size_t n = (size_t)(s->op - 0x84);
    for (size_t i = n; i-- > 0;)
        v[i] = machine_pop(m);
    if (n == 2 && m->scan && tensor_name(m, v[0], v[1], err) < 0)
        return -1;
    return machine_push_tuple(m, v, n, err);
}

static int do_memo(struct pickle_machine *m, const struct step *s, struct error *err)
{
    int64_t index = s->n;
    bool text = s->op == 'g' || s->op == 'p';
    bool get = s->op == 'g' || s->op == 'h' || s->op == 'j';
    if (text && !(s->kept[0] && parse_int(strbuf_str(&m->line[0]), &index) && index >= 0)) {
        m->odd = true;
        return get ? machine_push(m, OTHER, err) : 0;
    }
    if (get) {
        struct value v = machine_get(m, (uint64_t)index);
        note_use(m, v);
        return machine_push(m, v, err);
    }
    if (s->op == 0x94)
        index = (int64_t)m->distinct;
    return machine_put(m, (uint64_t)index, machine_top(m), err);
}

static int do_stack(struct pickle_machine *m, const struct step *s, struct error *err)
{
    switch (s->op) {
    case '(':
        return machine_push(m, (struct value){VALUE_MARK, 0, 0}, err);
    case '0': /* a mark as well */
        machine_discard(m);
        return 0;
    case '1':
        machine_drop(m, machine_mark(m));
        return 0;
    case '2':
        note_use(m, machine_top(m));
        return machine_push(m, machine_top(m), err);
    default: { /* BINPERSID, PERSID */
        struct value v = OTHER;
        if (s->op == 'Q') {
            struct value id = machine_pop(m);
            if (m->scan && tensor_persistent(m, id, &v, err) < 0)
                return -1;
        }
        return machine_push(m, v, err);
    }
    }
}

static int do_tuple(struct pickle_machine *m, const struct step *s, struct error *err)
{
    return s->op == ')' ? machine_push_tuple(m, NULL, 0, err) : do_small_tuple(m, s, err);
}

static int execute(struct pickle_machine *m, const struct step *s, struct error *err)
{
    switch ((enum action)opcodes[s->op].action) {
    case DO_NOTHING:
    case DO_STOP:
        return 0;
    case DO_PROTO:
        m->odd = m->odd || s->n > 5;
        return 0;
    case DO_STRING:
        return push_string(m, s, err);
    case DO_BYTES:
        return push_bytes(m, s, err);
    case DO_SMALL_INT:
        return machine_push(m, (struct value){VALUE_INT, 0, (uint64_t)s->n}, err);
    case DO_INT:
        return machine_push(m, number_of(m, s), err);
    case DO_TUPLE:
        return do_tuple(m, s, err);
    case DO_CONTAINER:
        return do_container(m, s, err);
    case DO_MEMO:
        return do_memo(m, s, err);
    case DO_STACK:
        return do_stack(m, s, err);
    case DO_NAMED:
        return push_named(m, s, err);
    case DO_COMPUTED:
        return push_computed(m, s, err);
    case DO_EXTENSION:
        return push_extension(m, s, err);
    case DO_CALL:
        return do_call(m, s, err);
    case DO_BUILD:
        do_build(m);
        return 0;
    case DO_BLANK:
        break;
    }
    return machine_push(m, OTHER, err);
}

/* Frames (protocol 4) say how many bytes to read ahead. Their contents are read in order by most
 * loaders; Python's own, reading from a file, drops what is left of a frame that ends within an
 * opcode's argument or where the next one starts. No pickler writes that: it is there to be read
 * in two ways, and which one counts depends on the loader. */
static void check_frame(struct pickle_machine *m, const struct step *s, uint64_t end)
{
    uint64_t inside = m->frame_end > end ? m->frame_end - end : 0;
    bool torn = s->at < m->frame_end && end > m->frame_end;
    if (s->op == 0x95 && !torn) {
        uint64_t len = (uint64_t)s->n;
        torn = inside && len > inside;
        if (!inside && __builtin_add_overflow(end, len, &m->frame_end))
            m->frame_end = UINT64_MAX;
    }
    m->torn = m->torn || torn;
    if (torn && m->scan)
        scan_broken(m->scan, s->at,
                    "a frame ends within an opcode: loaders differ in what follows");
}

/* A limit was met at this byte of the input; what other failures say is not of the pickle. */
static int wrong_at(const struct pickle_machine *m, uint64_t at, struct error *err)
{
    const char *member = m->scan ? m->scan->member : NULL;
    if (!err || err->code != ERR_TOO_LARGE)
        return -1;
    return member ? err_wrap(err, "member '%.80s', byte %llu", member, (unsigned long long)at)
                  : err_wrap(err, "byte %llu", (unsigned long long)at);
}

int pickle_walk(struct pickle_machine *m, struct pickle_input *in, struct error *err)
{
    machine_reset(m);
    m->in = in;
    for (;;) {
        int r = input_want(in, 1, err);
        if (r < 0)
            return wrong_at(m, in->at, err);
        struct step s = {.at = in->at};
        if (r == 0) {
            if (m->scan)
                scan_broken(m->scan, s.at, "the pickle has no end%s",
                            in->torn ? ", its packed data is damaged" : "");
            return WALK_BROKEN;
        }
        s.op = *input_bytes(in);
        if (opcodes[s.op].form == FORM_BAD) {
            if (m->scan)
                scan_broken(m->scan, s.at, "0x%02x is no opcode", s.op);
            return WALK_BROKEN;
        }
        input_take(in, 1);
        if (opcodes[s.op].action == DO_STOP) {
            m->result = machine_pop(m);
            if (m->odd && m->scan)
                scan_broken(m->scan, s.at, "the pickle before takes more than it puts in");
            return WALK_STOP;
        }
        if ((r = read_argument(m, in, &s, err)) < 0)
            return wrong_at(m, s.at, err);
        check_frame(m, &s, in->at);
        if (r == 0)
            return WALK_BROKEN;
        if (strbuf_failed(&m->line[0]) || strbuf_failed(&m->line[1]))
            return err_set(err, ERR_NOMEM, "out of memory");
        if (execute(m, &s, err) < 0)
            return wrong_at(m, s.at, err);
    }
}
