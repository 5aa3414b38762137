/* The Hub's words for licenses and tasks, in those of SPDX and of the ModelPack specification. */
#include "model/card.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"

/* SPDX's list (version 3.25) as far as the Hub's identifiers for licenses go. */
static const char *const spdx[] = {
    "AFL-3.0",
    "AGPL-3.0-only",
    "Apache-2.0",
    "Artistic-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSD-3-Clause-Clear",
    "BSL-1.0",
    "CC0-1.0",
    "CC-BY-2.0",
    "CC-BY-2.5",
    "CC-BY-3.0",
    "CC-BY-4.0",
    "CC-BY-NC-2.0",
    "CC-BY-NC-3.0",
    "CC-BY-NC-4.0",
    "CC-BY-NC-ND-3.0",
    "CC-BY-NC-ND-4.0",
    "CC-BY-NC-SA-2.0",
    "CC-BY-NC-SA-3.0",
    "CC-BY-NC-SA-4.0",
    "CC-BY-ND-4.0",
    "CC-BY-SA-3.0",
    "CC-BY-SA-4.0",
    "CDLA-Permissive-1.0",
    "CDLA-Permissive-2.0",
    "CDLA-Sharing-1.0",
    "ECL-2.0",
    "EPL-1.0",
    "EPL-2.0",
    "EUPL-1.1",
    "EUPL-1.2",
    "GFDL-1.3-only",
    "ISC",
    "LPPL-1.3c",
    "MIT",
    "MPL-2.0",
    "MS-PL",
    "MulanPSL-2.0",
    "NCSA",
    "ODbL-1.0",
    "OFL-1.1",
    "OSL-3.0",
    "PostgreSQL",
    "Unlicense",
    "WTFPL",
    "Zlib",
    "LGPL-2.1-only",
    "LGPL-3.0-only",
    "GPL-2.0-only",
    "GPL-3.0-only",
    "CC-PDDC",
};

/* Where the Hub's identifier is another one. */
static const struct {
    const char *hub, *spdx;
} renamed[] = {
    {"agpl-3.0", "AGPL-3.0-only"}, {"gfdl", "GFDL-1.3-only"},     {"gpl-2.0", "GPL-2.0-only"},
    {"gpl-3.0", "GPL-3.0-only"},   {"lgpl-2.1", "LGPL-2.1-only"}, {"lgpl-3.0", "LGPL-3.0-only"},
    {"odbl", "ODbL-1.0"},          {"pddl", "PDDL-1.0"},
};

char *card_spdx(const char *license, const char *license_name, char ret[static CARD_SPDX_MAX])
{
    ret[0] = '\0';
    for (size_t i = 0; i < ARRAY_LEN(spdx); i++)
        if (strcasecmp(spdx[i], license) == 0)
            return strcpy(ret, spdx[i]);
    for (size_t i = 0; i < ARRAY_LEN(renamed); i++)
        if (strcasecmp(renamed[i].hub, license) == 0)
            return strcpy(ret, renamed[i].spdx);
    if (strcasecmp(license, "unknown") == 0)
        return ret;
    if (strcasecmp(license, "other") == 0) {
        if (!license_name)
            return ret;
        license = license_name;
    }
    /* An idstring has letters, digits, '-' and '.' (SPDX specification, annex D). */
    size_t used = (size_t)snprintf(ret, CARD_SPDX_MAX, "LicenseRef-"), begin = used;
    for (const char *p = license; *p && used + 1 < CARD_SPDX_MAX; p++) {
        bool plain = isalnum((unsigned char)*p) || *p == '.';
        if (plain)
            ret[used++] = *p;
        else if (used > begin && ret[used - 1] != '-')
            ret[used++] = '-';
    }
    while (used > begin && ret[used - 1] == '-')
        used--;
    ret[used == begin ? 0 : used] = '\0';
    return ret;
}

static const struct {
    const char *task;
    const char *inputs[3], *outputs[3];
} tasks[] = {
    {"text-generation", {"text"}, {"text"}},
    {"text2text-generation", {"text"}, {"text"}},
    {"summarization", {"text"}, {"text"}},
    {"translation", {"text"}, {"text"}},
    {"question-answering", {"text"}, {"text"}},
    {"table-question-answering", {"text"}, {"text"}},
    {"fill-mask", {"text"}, {"text"}},
    {"text-classification", {"text"}, {"other"}},
    {"token-classification", {"text"}, {"other"}},
    {"zero-shot-classification", {"text"}, {"other"}},
    {"text-ranking", {"text"}, {"other"}},
    {"feature-extraction", {"text"}, {"embedding"}},
    {"sentence-similarity", {"text"}, {"embedding"}},
    {"image-feature-extraction", {"image"}, {"embedding"}},
    {"text-to-image", {"text"}, {"image"}},
    {"image-to-image", {"image"}, {"image"}},
    {"unconditional-image-generation", {NULL}, {"image"}},
    {"text-to-video", {"text"}, {"video"}},
    {"image-to-video", {"image"}, {"video"}},
    {"text-to-audio", {"text"}, {"audio"}},
    {"text-to-speech", {"text"}, {"audio"}},
    {"audio-to-audio", {"audio"}, {"audio"}},
    {"automatic-speech-recognition", {"audio"}, {"text"}},
    {"audio-classification", {"audio"}, {"other"}},
    {"voice-activity-detection", {"audio"}, {"other"}},
    {"audio-text-to-text", {"audio", "text"}, {"text"}},
    {"image-to-text", {"image"}, {"text"}},
    {"image-text-to-text", {"image", "text"}, {"text"}},
    {"image-text-to-image", {"image", "text"}, {"image"}},
    {"visual-question-answering", {"image", "text"}, {"text"}},
    {"document-question-answering", {"image", "text"}, {"text"}},
    {"visual-document-retrieval", {"image", "text"}, {"embedding"}},
    {"video-text-to-text", {"video", "text"}, {"text"}},
    {"video-classification", {"video"}, {"other"}},
    {"image-classification", {"image"}, {"other"}},
    {"zero-shot-image-classification", {"image", "text"}, {"other"}},
    {"object-detection", {"image"}, {"other"}},
    {"zero-shot-object-detection", {"image", "text"}, {"other"}},
    {"image-segmentation", {"image"}, {"other"}},
    {"depth-estimation", {"image"}, {"other"}},
    {"keypoint-detection", {"image"}, {"other"}},
    {"mask-generation", {"image"}, {"other"}},
    {"any-to-any", {"text", "image", "audio"}, {"text", "image", "audio"}},
};

bool card_task(const char *pipeline_tag, const char *inputs[static 4],
               const char *outputs[static 4])
{
    for (size_t i = 0; i < ARRAY_LEN(tasks); i++) {
        if (strcmp(tasks[i].task, pipeline_tag) != 0)
            continue;
        for (size_t k = 0; k < 4; k++) {
            inputs[k] = k < 3 ? tasks[i].inputs[k] : NULL;
            outputs[k] = k < 3 ? tasks[i].outputs[k] : NULL;
        }
        return true;
    }
    return false;
}
