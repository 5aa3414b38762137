#include <stdint.h>
#include <stdlib.h>

#include "model/card.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct model_card card;
    struct error err = ERROR_INIT;
    char spdx[CARD_SPDX_MAX];
    if (model_card_read((const char *)data, size, &card, &err) < 0) {
        if (card.licenses.n || err.code == ERR_NONE)
            abort();
        return 0;
    }
    for (size_t i = 0; i < card.licenses.n; i++)
        card_spdx(card.licenses.items[i], card.license_name, spdx);
    model_card_done(&card);
    return 0;
}
