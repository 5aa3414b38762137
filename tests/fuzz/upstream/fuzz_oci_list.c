/* What a registry says: a page of referrers, and the texts of its errors. What is taken must keep
 * its promises. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "upstream/oci_private.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
    if (!holds)
        abort();
}

static void check_item(const struct referrer *r, const struct referrer *before)
{
    char text[DIGEST_TEXT_MAX];
    struct digest again;
    require(digest_parse(digest_format(&r->digest, text), &again, NULL) == 0);
    require(!before || !digest_equal(&before->digest, &r->digest));
    require(*r->media_type && strlen(r->media_type) <= 255 && r->artifact_type);
    if (r->annotations) {
        _cleanup_json_ struct json *j = NULL;
        require(json_parse(r->annotations, strlen(r->annotations), &j, NULL) == 0);
        require(json_is_object(j));
    }
}

static void referrers(const char *text, size_t len)
{
    struct oci_referrers_build b = {0};
    struct referrer_list list = {0};
    struct error err = ERROR_INIT;
    size_t half = len / 2;
    /* as one page, and as two, where the second may be any text */
    if (oci_referrers_page(&b, text, len, &err) < 0)
        require(err.code == ERR_UPSTREAM);
    else
        (void)oci_referrers_page(&b, text + half, len - half, &err);
    require(oci_referrers_finish(&b, &list, &err) == 0);
    for (size_t i = 0; i < list.n; i++)
        check_item(&list.items[i], i ? &list.items[i - 1] : NULL);
    referrer_list_done(&list);
    oci_referrers_build_done(&b);
}

static void texts(char *text)
{
    size_t len = strlen(text);
    oci_clean_text(text);
    require(strlen(text) <= len && utf8_is_valid(text, strlen(text)));
    for (const unsigned char *p = (const unsigned char *)text; *p; p++)
        require(*p >= 0x20 && *p != 0x7f);
    for (const char *p = text; (p = strstr(p, "://")); p += 3)
        require(!strchr("?#", p[3 + strcspn(p + 3, " \t\"'<>()[]{},;?#")]) ||
                !p[3 + strcspn(p + 3, " \t\"'<>()[]{},;?#")]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    require(text != NULL);
    memcpy(text, data, size);
    text[size] = '\0';
    referrers(text, size);
    texts(text);
    free(text);
    return 0;
}
