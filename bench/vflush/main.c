// SPDX-License-Identifier: Apache-2.0
/*
 * vflush - the vFLUSH paper's experiments in virtual time.
 *
 * The arguments NAME=VALUE define the hardware. The SSD is filled and written at
 * random until garbage collection runs continuously. Then each line of standard input,
 * also NAME=VALUE words, is a run that starts with that SSD and prints one line of
 * JSON.
 */
#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sim.h"

struct sim sim;

static const char *const loads[] = {
	"random", "varmail", "fileserver", "tpcc", "none",
};

__attribute__((noreturn))
static void bad(const char *word)
{
	fprintf(stderr, "vflush: %s: unknown, or not a value for it\n", word);
	exit(2);
}

static uint32_t number(const char *text, const char *word)
{
	char *end;
	unsigned long n;

	errno = 0;
	n = strtoul(text, &end, 10);
	if (errno || end == text || *end || n > UINT32_MAX)
		bad(word);
	return (uint32_t)n;
}

struct field {
	const char *name;
	size_t offset;
};

static bool take(void *to, const struct field *field, size_t n,
		 const char *word)
{
	const char *value = strchr(word, '=');

	for (size_t i = 0; value && i < n; i++) {
		if (strlen(field[i].name) == (size_t)(value - word) &&
		    !strncmp(word, field[i].name, (size_t)(value - word))) {
			uint32_t v = number(value + 1, word);

			memcpy((char *)to + field[i].offset, &v, sizeof(v));
			return true;
		}
	}
	return false;
}

static void take_hardware(char *word)
{
#define FIELD(name) { #name, offsetof(struct hardware, name) }
	static const struct field field[] = {
		FIELD(blocks), FIELD(buffer_blocks), FIELD(file_blocks),
		FIELD(journal_blocks), FIELD(link_mb_s), FIELD(command_us),
		FIELD(software_us), FIELD(queue_depth), FIELD(vms),
	};
#undef FIELD

	if (!strcmp(word, "personality=tagged"))
		sim.hw.personality = VS_TAGGED;
	else if (!strcmp(word, "personality=baseline"))
		sim.hw.personality = VS_BASELINE;
	else if (!take(&sim.hw, field, sizeof(field) / sizeof(*field), word))
		bad(word);
}

static void take_loads(struct scenario *sc, char *list, const char *word)
{
	char *save, *name;
	uint32_t vm = 0, i;

	for (name = strtok_r(list, ",", &save); name;
	     name = strtok_r(NULL, ",", &save)) {
		char *every = strchr(name, '/');

		if (every)
			*every++ = 0;
		for (i = 0; i <= LOAD_NONE && strcmp(name, loads[i]); i++)
			;
		if (i > LOAD_NONE || vm == sim.hw.vms)
			bad(word);
		sc->every[vm] = every ? number(every, word) : NEVER;
		sc->load[vm++] = (enum load_kind)i;
	}
}

static void take_scenario(struct scenario *sc, char *line)
{
#define FIELD(name) { #name, offsetof(struct scenario, name) }
	static const struct field field[] = {
		FIELD(warm_ms), FIELD(run_ms), FIELD(sample_ms),
	};
#undef FIELD
	char *save, *word;

	*sc = (struct scenario){
		.load = { LOAD_NONE, LOAD_NONE, LOAD_NONE }, .seed = 1,
	};
	for (word = strtok_r(line, "\n ", &save); word;
	     word = strtok_r(NULL, "\n ", &save)) {
		if (!strcmp(word, "hold=1"))
			sc->hold = true;
		else if (!strcmp(word, "tags=1"))
			sc->tags = true;
		else if (!strcmp(word, "namespaces=1"))
			sc->namespaces = true;
		else if (!strcmp(word, "write_through=1"))
			sc->write_through = true;
		else if (!strncmp(word, "seed=", 5))
			sc->seed = number(word + 5, word);
		else if (!strncmp(word, "loads=", 6))
			take_loads(sc, word + 6, word);
		else if (!take(sc, field, sizeof(field) / sizeof(*field), word))
			bad(word);
	}
	if (!sc->run_ms || !sc->sample_ms)
		bad("run_ms or sample_ms");
}

/* Write every block of every image once, then at random until space is short. */
static void precondition(void)
{
	uint64_t each = sim.hw.journal_blocks + sim.hw.file_blocks, i, n;
	struct vs_stats s;
	uint32_t owner;

	sim.random = 88172645463325252ULL;
	for (owner = 0; owner <= sim.hw.vms; owner++) {
		for (i = 0; i + 32 <= each; i += 32)
			put_now(owner, vm_base(owner) + i, 32);
	}
	do {
		for (n = 0; n < 4096; n++) {
			owner = 1 + (uint32_t)random_below(sim.hw.vms);
			put_now(owner, vm_base(owner) + sim.hw.journal_blocks +
				random_below(sim.hw.file_blocks), 1);
		}
		vs_get_stats(sim.ssd, &s);
	} while (!s.programmed[VS_CAUSE_GC]);
	/* Writing the size of the images again leads to a steady state of the victims. */
	for (n = 0; n < sim.hw.vms * (uint64_t)sim.hw.file_blocks / 2; n++) {
		owner = 1 + (uint32_t)random_below(sim.hw.vms);
		put_now(owner, vm_base(owner) + sim.hw.journal_blocks +
			random_below(sim.hw.file_blocks), 1);
	}
	sim.now = vs_flush(sim.ssd, sim.now, 0, vs_blocks(sim.ssd)).done;
}

static void take_sample(void *who)
{
	struct sample *s = &sim.sample[sim.samples++];
	struct vs_tag_stats t;

	for (uint32_t i = 0; i < OWNERS; i++)
		s->buffered[i] = vs_get_tag_stats(sim.ssd, i, &t) ?
				 (uint32_t)t.buffered : 0;
	if (sim.now < sim.fig.to)
		at(sim.now + sim.sc.sample_ms * 1000000ULL, take_sample, who);
}

static void print_list(const char *name, const uint64_t *list, size_t stride)
{
	printf("\"%s\": [", name);
	for (size_t i = 0; i < OWNERS; i++)
		printf("%s%" PRIu64, i ? ", " : "", list[i * stride]);
	printf("], ");
}

static void print_flushes(void)
{
	const struct figures *f = &sim.fig;

	printf("\"flushes\": [");
	for (uint32_t i = 0; i < OWNERS; i++) {
		const struct flush_sum *s = &f->flush[i];

		printf("%s{", i ? ", " : "");
		printf("\"count\": %" PRIu64 ", \"ns\": %" PRIu64
		       ", \"max_ns\": %" PRIu64 ", ", s->count, s->ns,
		       s->max_ns);
		print_list("entries", s->entries, 1);
		printf("\"map_pages\": %" PRIu64 ", \"log_pages\": %" PRIu64
		       "}", s->map_pages, s->log_pages);
	}
	printf("], ");
}

static void print_result(void)
{
	static const char *const cause[] = {
		"host", "gc", "log", "map", "padding",
	};
	const struct figures *f = &sim.fig;

	printf("{\"ns\": %" PRIu64 ", \"page_blocks\": %u, ", f->to - f->from,
	       sim.page_blocks);
	print_list("written", f->written, 1);
	print_list("operations", f->operations, 1);
	print_list("fsyncs", f->fsyncs, 1);
	print_list("fsync_ns", f->fsync_ns, 1);
	print_flushes();
	printf("\"programmed\": {");
	for (uint32_t i = 0; i < sizeof(cause) / sizeof(*cause); i++)
		printf("%s\"%s\": %" PRIu64, i ? ", " : "", cause[i],
		       f->after.programmed[i] - f->before.programmed[i]);
	printf("}, \"checkpoints\": %" PRIu64 ", \"absorbed\": %" PRIu64
	       ", \"accepted\": %" PRIu64 ", \"erases\": %" PRIu64 ", ",
	       f->after.checkpoints - f->before.checkpoints,
	       f->after.absorbed - f->before.absorbed,
	       f->after.written - f->before.written,
	       f->after.erases - f->before.erases);
	printf("\"trace\": \"%016" PRIx64 "\", \"buffered\": [",
	       nand_count(sim.nand).trace);
	for (size_t i = 0; i < sim.samples; i++) {
		const uint32_t *b = sim.sample[i].buffered;

		printf("%s[%u, %u, %u, %u]", i ? ", " : "", b[0], b[1], b[2],
		       b[3]);
	}
	printf("]}\n");
}

static void run(void)
{
	struct journal *journal[OWNERS];
	uint32_t i;

	sim.random = sim.sc.seed * 0x9e3779b97f4a7c15ULL + 1;
	for (i = 0; i <= sim.hw.vms; i++) {
		journal[i] = journal_new(i);
		journal_start(journal[i]);
	}
	for (i = 0; i < sim.hw.vms; i++)
		load_start(i, journal[i + 1], journal[0]);
	sim.fig.from = sim.now + sim.sc.warm_ms * 1000000ULL;
	sim.fig.to = sim.fig.from + sim.sc.run_ms * 1000000ULL;
	sim.sample = must(calloc(sim.sc.run_ms / sim.sc.sample_ms + 2,
				 sizeof(*sim.sample)));
	run_until(sim.fig.from);
	sim.measuring = true;
	vs_get_stats(sim.ssd, &sim.fig.before);
	take_sample(NULL);
	run_until(sim.fig.to);
	vs_get_stats(sim.ssd, &sim.fig.after);
	print_result();
}

int main(int argc, char **argv)
{
	char line[512];

	for (int i = 1; i < argc; i++)
		take_hardware(argv[i]);
	if (!sim.hw.vms || sim.hw.vms > MAX_VMS || !sim.hw.link_mb_s ||
	    !sim.hw.queue_depth || sim.hw.file_blocks < 8192 ||
	    sim.hw.journal_blocks < 64)
		bad("hardware");
	power_up();
	precondition();
	while (fgets(line, sizeof(line), stdin)) {
		int status;
		pid_t child;

		take_scenario(&sim.sc, line);
		child = fork();
		if (!child) {
			run();
			fflush(stdout);
			_exit(0);
		}
		if (child < 0 || waitpid(child, &status, 0) < 0 || status)
			return 1;
	}
	return 0;
}
