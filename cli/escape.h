/* Text out of files and off the network, on its way to a terminal: whatever could steer one is
 * escaped. */
#ifndef WB_CLI_ESCAPE_H
#define WB_CLI_ESCAPE_H

#include <stdint.h>

#include "base/strbuf.h"

/* Appends the text with everything that is no printable UTF-8 as \xHH: control characters, DEL and
 * C1, invalid bytes; and the characters that turn the direction of the text or have no width as
 * \u{HHHH}. A backslash stays as it is. */
void put_plain(struct strbuf *b, const char *text, size_t n);
/* The same for texts of several lines: line ends and tabs stay. */
void put_plain_lines(struct strbuf *b, const char *text, size_t n);
/* A JSON string of the text, in ASCII where a terminal could be steered by it; invalid UTF-8
 * becomes U+FFFD. */
void put_json_text(struct strbuf *b, const char *text, size_t n);
/* A member of an object whose value is such a string. */
void put_json_member(struct strbuf *b, const char *key, const char *text);

/* "1,234,567"; returns buf. */
#define GROUPED_MAX 32
char *format_grouped(uint64_t n, char buf[static GROUPED_MAX]);

#endif
