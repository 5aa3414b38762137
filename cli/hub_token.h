/* The user's token for the Hub, found as get_token() of huggingface_hub finds it. */
#ifndef WB_CLI_HUB_TOKEN_H
#define WB_CLI_HUB_TOKEN_H

#include "base/err.h"
#include "base/strbuf.h"

/* Appends the value of HF_TOKEN or HUGGING_FACE_HUB_TOKEN; else what stands in the file that
 * HF_TOKEN_PATH names, or in `token` in the folder HF_HOME, $XDG_CACHE_HOME/huggingface or
 * ~/.cache/huggingface. Nothing when there is none, or HF_HUB_DISABLE_IMPLICIT_TOKEN is set. A file
 * that is there and cannot be read, and a token that can be none, are errors; their texts never
 * have the token. The caller wipes `to`. */
int hub_token_find(struct strbuf *to, struct error *err);

#endif
