/* The user's token for the Hub, as the Hub's own clients find it. */
#ifndef WB_CLI_HUB_TOKEN_H
#define WB_CLI_HUB_TOKEN_H

#include "base/err.h"
#include "base/strbuf.h"

/* The value of HF_TOKEN or HUGGING_FACE_HUB_TOKEN; else what stands in the file that HF_TOKEN_PATH
 * names, or in `token` in the folder HF_HOME, $XDG_CACHE_HOME/huggingface or ~/.cache/huggingface.
 * None, "": there is none, or HF_HUB_DISABLE_IMPLICIT_TOKEN is set. A file that is there and can
 * not be read, and a token that can be none, are errors; their texts never have the token. */
int hub_token_find(struct strbuf *to, struct error *err);

#endif
