// SPDX-License-Identifier: Apache-2.0
/*
 * This file needs -ffreestanding and -fno-tree-loop-distribute-patterns.
 * Otherwise the compiler replaces each of these loops by a call of itself.
 */
#include <stdint.h>
#include <string.h>

#define WORD sizeof(uint32_t)

/* A word that may alias any object. */
typedef uint32_t __attribute__((may_alias)) word;

static int aligned(const void *a, const void *b)
{
	return ((uintptr_t)a | (uintptr_t)b) % WORD == 0;
}

void *memcpy(void *restrict to, const void *restrict from, size_t n)
{
	uint8_t *t = to;
	const uint8_t *f = from;

	if (aligned(t, f)) {
		for (; n >= WORD; n -= WORD, t += WORD, f += WORD)
			*(word *)t = *(const word *)f;
	}
	while (n--)
		*t++ = *f++;
	return to;
}

void *memmove(void *to, const void *from, size_t n)
{
	uint8_t *t = to;
	const uint8_t *f = from;

	if (t <= f || t >= f + n)
		return memcpy(to, from, n);
	while (n--)
		t[n] = f[n];
	return to;
}

void *memset(void *to, int value, size_t n)
{
	uint8_t *t = to;
	uint32_t four = (uint8_t)value * 0x01010101u;

	if (aligned(t, t)) {
		for (; n >= WORD; n -= WORD, t += WORD)
			*(word *)t = four;
	}
	while (n--)
		*t++ = (uint8_t)value;
	return to;
}

int memcmp(const void *a, const void *b, size_t n)
{
	const uint8_t *x = a, *y = b;

	for (; n; n--, x++, y++) {
		if (*x != *y)
			return *x - *y;
	}
	return 0;
}
