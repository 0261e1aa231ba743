// SPDX-License-Identifier: Apache-2.0
#include "selftest.h"

void st_print(const char *text)
{
	port_write(text);
}

void st_print_number(const char *key, uint64_t value)
{
	char text[21], *p = text + sizeof(text) - 1;

	*p = 0;
	do {
		*--p = (char)('0' + value % 10);
		value /= 10;
	} while (value);
	st_print(" ");
	st_print(key);
	st_print("=");
	st_print(p);
}

void st_print_hash(const char *key, uint64_t value, unsigned int digits)
{
	char text[17];
	unsigned int i;

	text[digits] = 0;
	for (i = digits; i-- > 0; value >>= 4)
		text[i] = "0123456789abcdef"[value & 15];
	st_print(" ");
	st_print(key);
	st_print("=");
	st_print(text);
}

bool st_fail(const struct st_device *d, const char *what)
{
	st_print("fail ");
	st_print(d->config->name);
	st_print(" ");
	st_print(what);
	st_print("\n");
	return false;
}
