#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "base/digest.h"

#define HEX64 "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define HEX128                                                                                     \
    "cf83e1357eefb8bdf1542850d66d8007d620e4050b5715dc83f4a921d36ce9ce47d0d13c5d85f2b0ff8318d2877e" \
    "ec2f63b931bd47417a81a538327af927da3e"

static void round_trip(const char *text, enum digest_alg alg)
{
    struct digest d;
    struct error err;
    char out[DIGEST_TEXT_MAX];
    cr_assert_eq(digest_parse(text, &d, &err), 0, "%s", text);
    cr_assert_eq(d.alg, alg);
    cr_assert_str_eq(digest_format(&d, out), text);
    cr_assert_str_eq(digest_format_hex(&d, out), strchr(text, ':') + 1);
    for (size_t i = digest_size(alg); i < sizeof(d.raw); i++)
        cr_assert_eq(d.raw[i], 0);
}

Test(digest, both_algorithms_round_trip)
{
    round_trip("sha256:" HEX64, DIGEST_SHA256);
    round_trip("sha512:" HEX128, DIGEST_SHA512);
}

static void refused(const char *text, enum err_code code)
{
    struct digest d = {.alg = DIGEST_SHA512, .raw = {1}}, before = d;
    struct error err = ERROR_INIT;
    cr_assert_eq(digest_parse(text, &d, &err), -1, "%s", text);
    cr_assert_eq(err.code, code, "%s: %s", text, err.text);
    cr_assert_eq(memcmp(&d, &before, sizeof(d)), 0, "a failed parse must not touch the result");
}

Test(digest, wrong_forms_are_invalid)
{
    static const char *const bad[] = {
        "",
        ":",
        "sha256",
        "sha256:",
        "sha256:" HEX64 "0",                                                      /* 65 digits */
        "sha256:3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", /* 63 */
        "sha256:E3B0C44298FC1C149AFBF4C8996FB92427AE41E4649B934CA495991B7852B855",
        "sha256:g3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "sha256: 3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "sha256:" HEX64 "\n",
        "sha512:" HEX64,
        "sha256:" HEX128,
        "SHA256:" HEX64,
        " sha256:" HEX64,
        "blake3:",
        "+sha256:abc",
        "sha256+:abc",
        "a++b:abc",
        "md5:ab cd",
        "md5:ab/cd",
        "md5",
        "latest",
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        refused(bad[i], ERR_INVALID);
}

Test(digest, well_formed_digests_of_others_are_unsupported)
{
    refused("blake3:" HEX64, ERR_UNSUPPORTED);
    refused("md5:d41d8cd98f00b204e9800998ecf8427e", ERR_UNSUPPORTED);
    refused("sha256+b64u:LCa0a2j_xo_5m0U8HTBBNBNCLXBkg7-g-YpeiGJm564=", ERR_UNSUPPORTED);
    refused("sha2:" HEX64, ERR_UNSUPPORTED);
}

Test(digest, hex_of_a_known_algorithm)
{
    struct digest d;
    struct error err;
    cr_assert_eq(digest_parse_hex(DIGEST_SHA256, HEX64, &d, &err), 0);
    cr_assert_eq(d.raw[0], 0xe3);
    cr_assert_eq(d.raw[31], 0x55);
    cr_assert_eq(digest_parse_hex(DIGEST_NONE, "", &d, &err), -1);
    cr_assert_eq(digest_parse_hex(DIGEST_SHA256, "sha256:" HEX64, &d, &err), -1);
}

Test(digest, lower_hex_is_exact)
{
    cr_assert(is_lower_hex("", 0));
    cr_assert(is_lower_hex("09af", 4));
    cr_assert_not(is_lower_hex("09af", 3));
    cr_assert_not(is_lower_hex("09af", 5));
    cr_assert_not(is_lower_hex("09aF", 4));
    cr_assert_not(is_lower_hex("09a/", 4));
    cr_assert_not(is_lower_hex("09a:", 4));
    cr_assert_not(is_lower_hex("09ag", 4));
    cr_assert_not(is_lower_hex("09a`", 4));
}

Test(digest, equality)
{
    struct digest a, b, none = {.alg = DIGEST_NONE};
    digest_of(DIGEST_SHA256, "a", 1, &a, NULL);
    digest_of(DIGEST_SHA256, "b", 1, &b, NULL);
    cr_assert(digest_equal(&a, &a));
    cr_assert_not(digest_equal(&a, &b));
    cr_assert_not(digest_equal(&none, &none), "no digest equals nothing, itself included");
    b = a;
    b.alg = DIGEST_SHA512;
    cr_assert_not(digest_equal(&a, &b));
}

static void hash_is(enum digest_alg alg, const char *data, const char *hex)
{
    struct digest d;
    char out[DIGEST_TEXT_MAX];
    cr_assert_eq(digest_of(alg, data, strlen(data), &d, NULL), 0);
    cr_assert_str_eq(digest_format_hex(&d, out), hex);
}

Test(digest, known_values)
{
    hash_is(DIGEST_SHA256, "", HEX64);
    hash_is(DIGEST_SHA256, "abc",
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    hash_is(DIGEST_SHA512, "", HEX128);
    hash_is(DIGEST_SHA512, "abc",
            "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a"
            "2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f");
}

Test(digest, hasher_runs_on_after_a_peek)
{
    _cleanup_hasher_ struct hasher *h = NULL;
    struct digest whole, part, peeked;
    cr_assert_eq(hasher_new(DIGEST_SHA256, &h, NULL), 0);
    cr_assert_eq(hasher_update(h, "ab", 2, NULL), 0);
    cr_assert_eq(hasher_peek(h, &part, NULL), 0);
    cr_assert_eq(hasher_update(h, "", 0, NULL), 0);
    cr_assert_eq(hasher_update(h, "c", 1, NULL), 0);
    cr_assert_eq(hasher_peek(h, &peeked, NULL), 0);
    digest_of(DIGEST_SHA256, "abc", 3, &whole, NULL);
    cr_assert(digest_equal(&peeked, &whole));
    digest_of(DIGEST_SHA256, "ab", 2, &whole, NULL);
    cr_assert(digest_equal(&part, &whole));
}

Test(digest, no_hasher_for_no_algorithm)
{
    struct hasher *h = NULL;
    struct error err;
    cr_assert_eq(hasher_new(DIGEST_NONE, &h, &err), -1);
    cr_assert_eq(err.code, ERR_UNSUPPORTED);
    cr_assert_null(h);
    hasher_free(NULL);
}

Test(digest, sizes_and_names)
{
    cr_assert_eq(digest_size(DIGEST_NONE), 0);
    cr_assert_eq(digest_size(DIGEST_SHA256), 32);
    cr_assert_eq(digest_size(DIGEST_SHA512), 64);
    cr_assert_eq(digest_size((enum digest_alg)77), 0);
    cr_assert_str_eq(digest_alg_name(DIGEST_SHA512), "sha512");
    cr_assert_str_eq(digest_alg_name((enum digest_alg) - 1), "none");
}

/* The values are what `git hash-object` prints. */
Test(digest, git_object_ids)
{
    char oid[GIT_OID_TEXT];
    cr_assert_eq(git_blob_oid("", 0, oid, NULL), 0);
    cr_assert_str_eq(oid, "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
    cr_assert_eq(git_blob_oid("hello\n", 6, oid, NULL), 0);
    cr_assert_str_eq(oid, "ce013625030ba8dba906f756967f9e9ca394464a");
}
