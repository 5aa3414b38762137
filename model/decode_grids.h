/* The codebooks of the IQ types, packed: element j of an entry is a digit, counted from the lowest
 * bits, that stands for a value.
 *   grid_iq2_*   8 digits of 2 bits: 0 = 8, 1 = 25, 2 = 43
 *   grid_iq3_xxs 4 digits of 3 bits: 4, 12, 20, 28, 36, 44, 52, 62
 *   grid_iq3_s   4 digits of 3 bits: 1, 3, 5 ... 15
 *   grid_iq1_s   8 digits of 2 bits: -1, 0, 1; IQ1_M uses it too
 * Internal to model/. */
#ifndef WB_MODEL_DECODE_GRIDS_H
#define WB_MODEL_DECODE_GRIDS_H

#include <stdint.h>

extern const uint16_t grid_iq2_xxs[256];
extern const uint16_t grid_iq2_xs[512];
extern const uint16_t grid_iq2_s[1024];
extern const uint16_t grid_iq3_xxs[256];
extern const uint16_t grid_iq3_s[512];
extern const uint16_t grid_iq1_s[2048];

#endif
