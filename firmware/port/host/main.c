// SPDX-License-Identifier: Apache-2.0
/* The self-test as a program on the host, the reference for other ports. */
#include <stdio.h>
#include <stdlib.h>

#include "../selftest/selftest.h"

static void *memory;

void port_write(const char *text)
{
	fputs(text, stdout);
}

void *port_memory(size_t size)
{
	free(memory);
	memory = malloc(size);
	return memory;
}

void port_report(void)
{
	printf("port host pointer_bytes=%zu\n", sizeof(void *));
}

int main(void)
{
	bool ok = selftest_run();

	free(memory);
	return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
