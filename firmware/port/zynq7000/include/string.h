/* SPDX-License-Identifier: Apache-2.0 */
/* The part of <string.h> that the compiler and the NAND model use. */
#ifndef ZYNQ_STRING_H
#define ZYNQ_STRING_H

#include <stddef.h>

void *memcpy(void *restrict to, const void *restrict from, size_t n);
void *memmove(void *to, const void *from, size_t n);
void *memset(void *to, int value, size_t n);
int memcmp(const void *a, const void *b, size_t n);

#endif /* ZYNQ_STRING_H */
