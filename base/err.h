/* The one error convention of the project.
 *
 * A function that can fail returns an int: 0 on success, negative on failure, and takes a
 * `struct error *err` as its last parameter, which it fills in on failure. Look-ups return 1 for
 * found, 0 for absent, negative for failed. `err` may be NULL where the caller does not care.
 * Results go to `ret_...` parameters, which are untouched on failure.
 *
 * The text is one line, names what failed and where, and where possible what to do. A lower
 * layer's code is never overwritten; err_wrap() puts context in front of its text. Texts never
 * hold secrets or the query string of a URL. Nothing here allocates, so nothing can fail.
 */
#ifndef WB_BASE_ERR_H
#define WB_BASE_ERR_H

enum err_code {
    ERR_NONE = 0,
    ERR_NOT_FOUND,       /* the thing asked for does not exist */
    ERR_DENIED,          /* known, but not allowed (policy, gated model, refused by the upstream) */
    ERR_UNAUTHORIZED,    /* credentials are missing or were refused */
    ERR_INVALID,         /* the input breaks a rule; sending it again will not help */
    ERR_DIGEST_MISMATCH, /* bytes do not hash to what was promised */
    ERR_TOO_LARGE,       /* over a limit that the text names */
    ERR_NO_SPACE,        /* the disk is full or below its floor */
    ERR_UPSTREAM,        /* the upstream broke a rule, answered 5xx, or cut the connection */
    ERR_TIMEOUT,         /* nothing came for too long */
    ERR_BUSY,            /* try again later: our own limit was reached */
    ERR_RATE_LIMITED,    /* the upstream said 429 */
    ERR_CONFLICT,        /* clashes with what is already there */
    ERR_LOOP,            /* asked for by this very server, as its own upstream */
    ERR_UNSUPPORTED,     /* a known request that this version does not do */
    ERR_CANCELLED,       /* stopped because we are shutting down or nobody wants it any more */
    ERR_IO,              /* the local disk or kernel failed */
    ERR_NOMEM,
    ERR_INTERNAL, /* a promise of our own code did not hold */
};

struct error {
    enum err_code code;
    unsigned retry_after; /* seconds the upstream asked us to wait; 0 = it did not say */
    char text[1024];
};

#define ERROR_INIT ((struct error){.code = ERR_NONE})

/* Sets code and text (printf format; %m is errno's text) and returns -1. err may be NULL. */
int err_set(struct error *err, enum err_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Puts `context: ` in front of the text, keeps the code, returns -1. */
int err_wrap(struct error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Sets the code from errno (ENOSPC and EDQUOT give ERR_NO_SPACE, ENOMEM ERR_NOMEM, others ERR_IO)
 * and the text `<what>: <strerror>`. Returns -1. */
int err_errno(struct error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The static analyzer sees one file at a time: tell it what these always return, so that it does
 * not follow paths where a failure looks like success. */
#if defined(__clang_analyzer__) && !defined(WB_BASE_ERR_C)
#define err_set(...) (err_set(__VA_ARGS__), -1)
#define err_wrap(...) (err_wrap(__VA_ARGS__), -1)
#define err_errno(...) (err_errno(__VA_ARGS__), -1)
#endif

/* A short stable name for logs and metrics: "not_found", "digest_mismatch", ... */
const char *err_name(enum err_code code);

#endif
