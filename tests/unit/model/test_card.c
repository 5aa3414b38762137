#include <criterion/criterion.h>
#include <string.h>

#include "base/cleanup.h"
#include "model/card.h"

static struct model_card card;
static struct error err;

static int read_text(const char *text)
{
    err = ERROR_INIT;
    return model_card_read(text, strlen(text), &card, &err);
}

static void done(void)
{
    model_card_done(&card);
}

TestSuite(card, .fini = done);

Test(card, everything)
{
    cr_assert_eq(read_text("---\nlicense: apache-2.0\nlanguage:\n- en\n- zh\n- en\n"
                           "pipeline_tag: text-generation\nlibrary_name: transformers\n"
                           "tags: [a, \"b c\"]\nbase_model: Org/Base\n"
                           "model-index:\n- name: x\n  license: mit\n---\n# A model\n"),
                 0, "%s", err.text);
    cr_assert_eq(card.licenses.n, 1);
    cr_assert_str_eq(card.licenses.items[0], "apache-2.0");
    cr_assert_eq(card.languages.n, 2);
    cr_assert_str_eq(card.languages.items[1], "zh");
    cr_assert_str_eq(card.pipeline_tag, "text-generation");
    cr_assert_str_eq(card.library_name, "transformers");
    cr_assert_eq(card.tags.n, 2);
    cr_assert_str_eq(card.tags.items[1], "b c");
    cr_assert_str_eq(card.base_models.items[0], "Org/Base");
}

Test(card, none)
{
    const char *const texts[] = {"", "# A model\n", "----\nlicense: mit\n---\n", "---\n---\n",
                                 "text\n---\nlicense: mit\n---\n"};
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        cr_assert_eq(read_text(texts[i]), 0, "%zu: %s", i, err.text);
        cr_assert_eq(card.licenses.n, 0, "%zu", i);
    }
}

Test(card, odd_but_legal)
{
    cr_assert_eq(read_text("\xef\xbb\xbf---  \r\nlicense: [mit, 'gpl-3.0']\r\nlanguage: no\r\n"
                           "license_name: null\r\npipeline_tag:\r\n? [complex, key]\r\n: tags\r\n"
                           "tags: {a: b}\r\nlibrary_name: &x diffusers\r\nbase_model: *x\r\n---"),
                 0, "%s", err.text);
    cr_assert_eq(card.licenses.n, 2);
    cr_assert_str_eq(card.licenses.items[1], "gpl-3.0");
    cr_assert_str_eq(card.languages.items[0], "no");
    cr_assert_null(card.license_name);
    cr_assert_null(card.pipeline_tag);
    cr_assert_eq(card.tags.n, 0);
    cr_assert_eq(card.base_models.n, 0);
    cr_assert_str_eq(card.library_name, "diffusers");
}

Test(card, wrong)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"---\nlicense: mit\n", "at byte 4 has no end"},
        {"---\n\n- license\n---\n", "no YAML mapping at byte 5"},
        {"---\n  just text\n---\n", "no YAML mapping at byte 6"},
        {"---\n\n---\n", "no YAML mapping at byte 4"},
        {"---\nlicense: [mit\n---\n", "no YAML"},
        {"---\n\tlicense: mit\n---\n", "no YAML at byte 4"},
        /* an accent, a BOM, CRLF: libyaml counts characters */
        {"\xef\xbb\xbf---\r\na: \xc3\xa9\xe2\x82\xac\r\nb: }\r\n---\n", "no YAML at byte 21"},
        {"---\nlicense: \xff\n---\n", "not UTF-8 at byte 13"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        cr_assert_eq(read_text(cases[i].text), -1, "%zu", i);
        cr_assert_eq(err.code, ERR_INVALID);
        cr_assert_not_null(strstr(err.text, cases[i].says), "%zu: %s", i, err.text);
        cr_assert_eq(card.licenses.n, 0);
    }
}

/* Deep enough, they would cost a second for each. */
Test(card, depth)
{
    static const char *const nodes[] = {"[", "{a: ", "- ", "? "};
    static char text[CARD_FRONT_MATTER_MAX];
    for (size_t i = 0; i < ARRAY_LEN(nodes); i++) {
        size_t n = (size_t)sprintf(text, "---\nlicense: mit\na:\n  ");
        while (n + 20 < sizeof(text))
            n += (size_t)sprintf(text + n, "%s", nodes[i]);
        strcpy(text + n, "\n---\n");
        cr_assert_eq(read_text(text), -1, "%s", nodes[i]);
        cr_assert_not_null(strstr(err.text, "nested over 100 deep at byte "), "%s: %s", nodes[i],
                           err.text);
        cr_assert_eq(card.licenses.n, 0);
    }
}

/* Aliases of aliases would be gigabytes if they were followed. */
Test(card, billion_laughs)
{
    char text[4096];
    size_t n = (size_t)sprintf(text, "---\na0: &a0 [x, x]\n");
    for (int i = 1; i < 40; i++)
        n += (size_t)sprintf(text + n, "a%d: &a%d [*a%d, *a%d, *a%d]\n", i, i, i - 1, i - 1, i - 1);
    sprintf(text + n, "tags: *a39\nlicense: mit\n---\n");
    cr_assert_eq(read_text(text), 0, "%s", err.text);
    cr_assert_eq(card.tags.n, 0);
    cr_assert_str_eq(card.licenses.items[0], "mit");
}

Test(card, limits)
{
    static char text[CARD_FRONT_MATTER_MAX + 4096];
    size_t n = (size_t)sprintf(text, "---\nlicense: mit\ntags:\n");
    for (int i = 0; i < 200; i++)
        n += (size_t)sprintf(text + n, "- tag-%d\n", i);
    n += (size_t)sprintf(text + n, "library_name: ");
    memset(text + n, 'x', CARD_TEXT_MAX + 1);
    n += CARD_TEXT_MAX + 1;
    strcpy(text + n, "\n---\n");
    cr_assert_eq(read_text(text), 0, "%s", err.text);
    cr_assert_eq(card.tags.n, CARD_ITEMS_MAX);
    cr_assert_null(card.library_name);
    model_card_done(&card);
    memset(text + n, '#', sizeof(text) - n - 1);
    cr_assert_eq(read_text(text), -1);
}

Test(card, licenses)
{
    static const struct {
        const char *license, *name, *spdx;
    } cases[] = {
        {"apache-2.0", NULL, "Apache-2.0"},
        {"mit", NULL, "MIT"},
        {"gpl-3.0", NULL, "GPL-3.0-only"},
        {"cc-by-nc-4.0", NULL, "CC-BY-NC-4.0"},
        {"llama3.1", NULL, "LicenseRef-llama3.1"},
        {"creativeml-openrail-m", NULL, "LicenseRef-creativeml-openrail-m"},
        {"other", "Nvidia Open  Model/License!", "LicenseRef-Nvidia-Open-Model-License"},
        {"other", NULL, ""},
        {"unknown", NULL, ""},
        {"!!", NULL, ""},
    };
    char got[CARD_SPDX_MAX];
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        cr_assert_str_eq(card_spdx(cases[i].license, cases[i].name, got), cases[i].spdx);
}

Test(card, tasks)
{
    const char *in[4], *out[4];
    cr_assert(card_task("image-text-to-text", in, out));
    cr_assert_str_eq(in[1], "text");
    cr_assert_null(in[2]);
    cr_assert_str_eq(out[0], "text");
    cr_assert_not(card_task("reinforcement-learning", in, out));
}
