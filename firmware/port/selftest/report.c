// SPDX-License-Identifier: Apache-2.0
/* The output about a device. */
#include "selftest.h"

static const char *const causes[] = {
	[VS_CAUSE_HOST] = "host",
	[VS_CAUSE_GC] = "gc",
	[VS_CAUSE_LOG] = "log",
	[VS_CAUSE_MAP] = "map",
	[VS_CAUSE_PADDING] = "padding",
	[VS_CAUSE_MERGE] = "merge",
};

_Static_assert(sizeof(causes) / sizeof(causes[0]) == VS_CAUSES, "a name each");

static void begin(const char *kind, const struct st_device *d,
		  const char *phase)
{
	st_print(kind);
	st_print(d->config->name);
	st_print(" ");
	st_print(phase);
}

void st_report_config(const struct st_device *d)
{
	const struct vs_geometry *g = &d->c.geometry;

	begin("config ", d, d->c.personality == VS_TAGGED ? "tagged" :
							     "baseline");
	st_print_number("channels", g->channels);
	st_print_number("ways", g->ways);
	st_print_number("blocks", g->blocks);
	st_print_number("pages", g->pages);
	st_print_number("page_size", g->page_size);
	st_print_number("paired", g->paired);
	st_print_number("lanes", d->c.lanes);
	st_print_number("max_tags", d->c.max_tags);
	st_print_number("buffer_blocks", d->c.buffer_blocks);
	st_print_number("gc", d->c.gc);
	st_print_number("fail_ppm", d->config->fail_ppm);
	st_print_number("capacity", vs_capacity(&d->c));
	/* The size depends on the size of pointers. */
	begin("\nport ", d, "memory");
	st_print_number("bytes", vs_size_needed(&d->c));
	st_print("\n");
}

static void report_tag(const struct st_device *d, const char *phase,
		       uint32_t tag)
{
	struct vs_tag_stats t;

	if (!vs_get_tag_stats(d->ssd, tag, &t) || !t.written)
		return;
	begin("tag ", d, phase);
	st_print_number("tag", tag);
	st_print_number("buffered", t.buffered);
	st_print_number("unlogged", t.unlogged);
	st_print_number("written", t.written);
	st_print_number("flushes", t.flushes);
	st_print_number("flushed", t.flushed);
	st_print_number("log_pages", t.log_pages);
	st_print_number("flush_ns", t.flush_ns);
	st_print_number("flush_max_ns", t.flush_max_ns);
	st_print("\n");
}

void st_report(const struct st_device *d, const char *phase)
{
	struct nand_counters n = nand_count(d->nand);
	struct vs_stats s;
	uint32_t cause, tag;

	vs_get_stats(d->ssd, &s);
	begin("phase ", d, phase);
	st_print_hash("map", vs_map_hash(d->ssd), 8);
	st_print_hash("nand", n.trace, 16);
	st_print_number("now_ns", d->now);
	st_print_number("reads", n.reads);
	st_print_number("programs", n.programs);
	st_print_number("nand_erases", n.erases);
	begin("\nstats ", d, phase);
	for (cause = 0; cause < VS_CAUSES; cause++)
		st_print_number(causes[cause], s.programmed[cause]);
	st_print_number("written", s.written);
	st_print_number("absorbed", s.absorbed);
	st_print_number("skipped", s.skipped);
	st_print_number("erases", s.erases);
	st_print_number("checkpoints", s.checkpoints);
	st_print_number("spilled", s.spilled);
	st_print_number("bad_blocks", s.bad_blocks);
	st_print_number("lost_reads", s.lost_reads);
	st_print_number("recovery_pages", s.recovery_pages);
	st_print_number("replayed", s.replayed);
	st_print("\n");
	for (tag = 0; tag < ST_TAGS; tag++)
		report_tag(d, phase, tag);
}
