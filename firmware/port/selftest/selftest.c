// SPDX-License-Identifier: Apache-2.0
/* The phases: fill, load, power cuts, a clean restart. */
#include "selftest.h"

#define SEED 0x76636163u
#define STEPS 1000u
#define CUTS 4u
/* Steps between a power cut and the next one. */
#define STEPS_BETWEEN 150u
/* Largest number of programs and erases before a power cut. */
#define CUT_WITHIN 300u

static uint32_t block_data[VS_BLOCK / 4];

/* The memory of a device is undefined at its start. */
static void forget(const struct st_device *d)
{
	uint8_t *p = d->memory;
	size_t size = vs_size_needed(&d->c);

	while (size--)
		*p++ = 0xa5;
}

static enum vs_status mount(struct st_device *d)
{
	struct vs_result r;

	forget(d);
	r = vs_mount(&d->ssd, d->memory, &d->c, &nand_ops, d->nand, d->now);
	if (r.status == VS_OK)
		d->now = r.done;
	return r.status;
}

static bool check_all(struct st_device *d, const char *phase,
		      bool (*right)(uint32_t block, const void *data))
{
	uint32_t block, wrong = 0;

	for (block = 0; block < vs_blocks(d->ssd); block++) {
		struct vs_result r = vs_read(d->ssd, d->now, block, 1,
					     block_data);

		if (r.status != VS_OK || !right(block, block_data))
			wrong++;
		else
			d->now = r.done;
	}
	st_print("data ");
	st_print(d->config->name);
	st_print(" ");
	st_print(phase);
	st_print_number("blocks", block);
	st_print_number("wrong", wrong);
	st_print("\n");
	return !wrong;
}

/* Data that was relocated to free blocks, by any cause. */
static uint64_t moved(const struct vs_stats *s)
{
	uint64_t sum = 0;
	int i;

	for (i = 0; i < VS_CAUSES; i++)
		sum += s->programmed[i];
	return sum - s->programmed[VS_CAUSE_HOST] -
	       s->programmed[VS_CAUSE_LOG] - s->programmed[VS_CAUSE_MAP] -
	       s->programmed[VS_CAUSE_PADDING];
}

/* Check that the load has caused collection, checkpoints and log pages. */
static bool check_load(const struct st_device *d)
{
	struct vs_stats s;

	vs_get_stats(d->ssd, &s);
	if (!s.erases || !moved(&s) || !s.absorbed)
		return st_fail(d, "no garbage was collected");
	if (!s.checkpoints || !s.programmed[VS_CAUSE_MAP])
		return st_fail(d, "no checkpoint was written");
	if (d->c.personality == VS_TAGGED && !s.programmed[VS_CAUSE_LOG])
		return st_fail(d, "no log page was written");
	return true;
}

/* Dedicate a lane to one tag, until the power cut. */
static bool set_lanes(struct st_device *d)
{
	return d->c.lanes == 1 ||
	       vs_set_lane(d->ssd, 1, d->c.lanes - 1, true) == VS_OK;
}

static bool load(struct st_device *d)
{
	struct vs_result r;

	forget(d);
	r = vs_format(&d->ssd, d->memory, &d->c, &nand_ops, d->nand, d->now);
	if (r.status != VS_OK)
		return st_fail(d, "cannot be formatted");
	d->now = r.done;
	if (!set_lanes(d))
		return st_fail(d, "a tag cannot have a lane");
	if (st_fill(d) != VS_OK)
		return st_fail(d, "cannot be filled");
	st_report(d, "fill");
	if (st_trace(d, STEPS) != VS_OK)
		return st_fail(d, "a command failed");
	st_report(d, "load");
	return check_load(d) && check_all(d, "load", st_oracle_read);
}

/* Every second cut is followed by another one during recovery. */
static bool power_cut(struct st_device *d, uint32_t cut)
{
	enum vs_status status;

	nand_cut(d->nand, 1 + st_below(d, CUT_WITHIN), cut);
	if (st_trace(d, UINT32_MAX) != VS_EPOWER)
		return st_fail(d, "a command failed before the power cut");
	nand_power_on(d->nand);
	if (cut % 2) {
		nand_cut(d->nand, 1 + st_below(d, 2), cut + 100);
		if (mount(d) != VS_EPOWER)
			return st_fail(d, "recovery programmed nothing");
		nand_power_on(d->nand);
	}
	status = mount(d);
	if (status != VS_OK)
		return st_fail(d, "cannot be mounted after a power cut");
	st_report(d, "recovered");
	if (!check_all(d, "recovered", st_oracle_recovered))
		return false;
	if (st_trace(d, STEPS_BETWEEN) != VS_OK)
		return st_fail(d, "a command failed after a power cut");
	st_report(d, "between");
	return true;
}

static bool restart(struct st_device *d)
{
	if (st_flush(d) != VS_OK)
		return st_fail(d, "a flush failed");
	if (mount(d) != VS_OK)
		return st_fail(d, "cannot be mounted");
	st_report(d, "restarted");
	return check_all(d, "restarted", st_oracle_read);
}

static bool run(struct st_device *d)
{
	uint32_t cut;

	if (!load(d))
		return false;
	for (cut = 0; cut < CUTS; cut++) {
		if (!power_cut(d, cut))
			return false;
	}
	return restart(d);
}

static bool try_config(const struct st_config *config)
{
	struct st_device d = { .config = config, .c = *config->drive };
	struct nand_config n = {
		.geometry = d.c.geometry,
		.timing = *config->timing,
		.seed = SEED,
		.fail_ppm = config->fail_ppm,
	};
	bool ok;

	d.c.personality = config->personality;
	d.c.gc = config->gc;
	d.c.mapping = config->mapping;
	if (d.c.mapping == VS_MAP_FAST)
		d.c.lanes = 1;
	d.random = SEED;
	st_report_config(&d);
	if (!vs_size_needed(&d.c) || vs_capacity(&d.c) > ST_BLOCKS)
		return st_fail(&d, "no such device");
	d.memory = port_memory(vs_size_needed(&d.c));
	d.nand = nand_open(&n);
	if (!d.memory || !d.nand)
		return st_fail(&d, "no memory");
	st_oracle_init();
	ok = run(&d);
	nand_close(d.nand);
	return ok;
}

bool selftest_run(void)
{
	bool ok = true;
	uint32_t i;

	st_print("selftest vcache-fw");
	st_print_number("version", 1);
	st_print_number("configs", st_config_count);
	st_print_number("seed", SEED);
	st_print("\n");
	for (i = 0; i < st_config_count; i++)
		ok &= try_config(&st_configs[i]);
	ok &= st_dram();
	port_report();
	st_print(ok ? "RESULT ok\n" : "RESULT fail\n");
	return ok;
}
