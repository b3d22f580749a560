/* sha256.h - a digest that every weir computes alike (FIPS 180-4): keys in Redis whose text would be too
 * long. */
#ifndef WEIR_LIMIT_SHA256_H
#define WEIR_LIMIT_SHA256_H

#include "base/slice.h"

enum { SHA256_SIZE = 32 };

void sha256(struct slice message, unsigned char digest[SHA256_SIZE]);

#endif
