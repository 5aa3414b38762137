/* How a tag can be read, and which ref a mistyped one resembles. */
#include "upstream/import_private.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define SHOWN_REFS 5

static bool is_commit(const char *s)
{
    return is_lower_hex(s, 40) && s[40] == '\0';
}

static struct tag_reading *add(struct tag_reading *to, size_t *n, const char *revision,
                               const char *spelled, const char *quant)
{
    struct tag_reading *r = &to[(*n)++];
    *r = (struct tag_reading){.is_default = revision == NULL};
    snprintf(r->revision, sizeof(r->revision), "%s", revision ? revision : "");
    snprintf(r->spelled, sizeof(r->spelled), "%s", spelled);
    snprintf(r->quant, sizeof(r->quant), "%s", quant);
    return r;
}

/* refs-pr-N with a decimal N of at most nine digits and no leading zero. */
static bool pull_request(const char *s, char *buf, size_t size)
{
    static const char prefix[] = "refs-pr-";
    if (strncmp(s, prefix, sizeof(prefix) - 1) != 0)
        return false;
    const char *number = s + sizeof(prefix) - 1;
    size_t n = strspn(number, "0123456789");
    if (n == 0 || n > 9 || number[n] || number[0] == '0')
        return false;
    snprintf(buf, size, "refs/pr/%s", number);
    return true;
}

/* Rules 1 to 3, for a whole tag or for what stands before "--<quant>". */
static void add_revision(struct tag_reading *to, size_t *n, const char *s, const char *quant)
{
    char ref[TAG_MAX + 16];
    add(to, n, s, s, quant);
    if (is_commit(s)) /* a commit and nothing else: what it names never changes */
        return;
    if (pull_request(s, ref, sizeof(ref)))
        add(to, n, ref, s, quant);
    else if (strcmp(s, "latest") == 0)
        add(to, n, NULL, s, quant);
}

/* The last "--" of a tag with something on both sides, NULL when there is none. */
static const char *last_separator(const char *tag)
{
    for (const char *p = tag + strlen(tag); p > tag; p--)
        if (p[0] == '-' && p[1] == '-' && p[2])
            return p;
    return NULL;
}

size_t tag_readings(const char *tag, struct tag_reading ret[static TAG_READINGS_MAX])
{
    size_t n = 0;
    char quant[QUANT_LABEL_MAX], rev[TAG_MAX + 1] = "";
    const char *split = last_separator(tag);
    if (split && (size_t)(split - tag) < sizeof(rev) && quant_label_parse(split + 2, quant))
        snprintf(rev, sizeof(rev), "%.*s", (int)(split - tag), tag);
    if (!is_commit(rev)) /* <commit>--<quant> is as fixed as the commit alone */
        add_revision(ret, &n, tag, "");
    if (rev[0]) {
        add_revision(ret, &n, rev, quant);
    } else if (quant_label_parse(tag, quant)) {
        add(ret, &n, NULL, "", quant);
    }
    return n;
}

/* Letters and digits in lower case; whatever stands between two of them becomes one '-'. Bytes of
 * other scripts count as letters, so that refs in them stay apart. */
static size_t plain_form(const char *s, char *buf, size_t size)
{
    size_t n = 0;
    bool gap = false;
    for (; *s && n + 2 < size; s++) {
        unsigned char c = (unsigned char)*s;
        if (c >= 'A' && c <= 'Z')
            c = (unsigned char)(c - 'A' + 'a');
        if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c >= 0x80) {
            if (gap && n)
                buf[n++] = '-';
            gap = false;
            buf[n++] = (char)c;
        } else {
            gap = true;
        }
    }
    buf[n] = '\0';
    return n;
}

static unsigned edit_distance(const char *a, size_t na, const char *b, size_t nb)
{
    unsigned row[256 + 1];
    for (size_t j = 0; j <= nb; j++)
        row[j] = (unsigned)j;
    for (size_t i = 1; i <= na; i++) {
        unsigned corner = row[0];
        row[0] = (unsigned)i;
        for (size_t j = 1; j <= nb; j++) {
            unsigned best = corner + (a[i - 1] != b[j - 1]);
            corner = row[j];
            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            row[j] = best;
        }
    }
    return row[nb];
}

unsigned ref_distance(const char *asked, const char *ref)
{
    char a[256], b[256];
    size_t na = plain_form(asked, a, sizeof(a)), nb = plain_form(ref, b, sizeof(b));
    if (na == 0 || nb == 0)
        return REF_FAR;
    unsigned d = edit_distance(a, na, b, nb);
    /* One slip in four letters, two at most: more than that is another name. */
    size_t longest = na > nb ? na : nb;
    unsigned allowed = longest >= 8 ? 2 : longest >= 4 ? 1 : 0;
    return d <= allowed ? d : REF_FAR;
}

static const struct hub_ref *nearest(const char *asked, const struct hub_ref *refs, size_t n,
                                     unsigned *ret_distance)
{
    const struct hub_ref *best = NULL;
    unsigned least = REF_FAR;
    for (size_t i = 0; i < n; i++) {
        unsigned d = ref_distance(asked, refs[i].name);
        if (d < least) {
            least = d;
            best = &refs[i];
        }
    }
    *ret_distance = least;
    return best;
}

static void list_refs(const struct hub_ref *refs, size_t n, struct strbuf *to)
{
    if (n == 0) {
        strbuf_puts(to, "; it has no branches and no tags");
        return;
    }
    strbuf_puts(to, "; it has ");
    for (size_t i = 0; i < n && i < SHOWN_REFS; i++)
        strbuf_printf(to, "%s\"%.100s\"", i ? ", " : "", refs[i].name);
    if (n > SHOWN_REFS)
        strbuf_printf(to, " and %zu more", n - SHOWN_REFS);
}

void missing_revision_text(const char *repository, const char *asked, const char *suffix,
                           const struct hub_ref *refs, size_t n, char *buf, size_t size)
{
    _cleanup_strbuf_ struct strbuf text = STRBUF_INIT;
    unsigned distance;
    const struct hub_ref *best = nearest(asked, refs, n, &distance);
    strbuf_printf(&text, "%s has no revision \"%s\"", repository, asked);
    if (best && !tag_is_valid(best->name))
        strbuf_printf(&text, "; the revision \"%s\" is commit %s: pull %s:%s%s", best->name,
                      best->commit, repository, best->commit, suffix);
    else if (best)
        strbuf_printf(&text, "; did you mean \"%s\"? pull %s:%s%s", best->name, repository,
                      best->name, suffix);
    else
        list_refs(refs, n, &text);
    snprintf(buf, size, "%s", strbuf_failed(&text) ? "no such revision" : strbuf_str(&text));
}
