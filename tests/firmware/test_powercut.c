// SPDX-License-Identifier: Apache-2.0
/*
 * Power cuts: test_powercut [weighted-][bad-]sweep|long|recovery SHAPE PERSONALITY SEED
 * [CUT].
 *
 * sweep: one short run, cut at every program and erase of it
 * recovery: the same, each time cut again at every one of the recovery
 * long: one device with repeated random cuts
 * weighted-: a tag has a weight, and so a share of the banks
 * bad-: on NAND with bad blocks from the start, on which more fail
 */
#include <string.h>

#include "places.h"
#include "workload.h"

#define SWEEP_STEPS 60
#define LONG_ROUNDS 40
#define WEAR_STEPS 2000
#define AFTER_STEPS 12
/* Bad blocks: from the start, set aside in a lane, and rate of new ones. */
#define FACTORY_BAD 2
#define BAD_BLOCKS 10
#define SWEEP_FAIL_PPM 15000
#define LONG_FAIL_PPM 2500
#define WORN_FAIL_PPM 250000

struct job {
	struct vs_config c;
	uint64_t seed;
	uint32_t factory_bad;
	uint32_t fail_ppm;
	bool weighted;
	uint64_t only;		/* only this cut; 0: all */
	uint64_t cuts;
};

/* Half of the runs begin with a full device, so that collection runs. */
static struct oracle *begin(struct device *d, uint64_t seed)
{
	struct oracle *o = oracle_new(vs_blocks(d->ssd));

	if (seed % 2 == 0) {
		struct vs_result r;

		CHECK(workload_fill(d, o) == VS_OK);
		r = vs_flush(d->ssd, d->now, 0, vs_blocks(d->ssd));
		CHECK(r.status == VS_OK);
		d->now = r.done;
		oracle_flush(o, d->now, true, 0, 0, vs_blocks(d->ssd));
		oracle_tick(o, d->now);
	}
	return o;
}

static void power_on(struct device *d, struct oracle *o)
{
	CHECK(nand_is_off(d->nand));
	oracle_cut(o, nand_cut_time(d->nand));
	nand_power_on(d->nand);
}

/* After recovery, the device works, and keeps all data over a shutdown. */
static void live_on(struct device *d, struct oracle *o, uint64_t seed)
{
	struct vs_result r;

	oracle_check_recovered(o, d);
	CHECK(workload_run(d, o, &seed, AFTER_STEPS) == VS_OK);
	r = vs_flush(d->ssd, d->now, 0, vs_blocks(d->ssd));
	CHECK(r.status == VS_OK);
	d->now = r.done;
	CHECK(device_mount(d) == VS_OK);
	oracle_check_all(o, d);
	check_banks(d->ssd);
	if (d->c.mapping == VS_MAP_FAST)
		check_data_blocks(d->ssd);
}

/* Cut each program and erase of a recovery, and recover from that. */
static void cut_recovery(const struct device *d, struct job *job)
{
	uint64_t i;

	for (i = 1;; i++) {
		struct device copy = device_copy(d);
		enum vs_status status;
		uint32_t hash;

		nand_cut(copy.nand, i, job->seed + i);
		status = device_mount(&copy);
		if (status == VS_EPOWER) {
			nand_power_on(copy.nand);
			CHECK(device_mount(&copy) == VS_OK);
			job->cuts++;
		}
		hash = vs_map_hash(copy.ssd);
		device_free(&copy);
		/* The result is the same with and without interruption. */
		copy = device_copy(d);
		CHECK(device_mount(&copy) == VS_OK);
		CHECK(vs_map_hash(copy.ssd) == hash);
		device_free(&copy);
		if (status == VS_OK)
			return;
	}
}

/* The device forgets it at power-off. */
static void set_weight(const struct job *job, struct device *d)
{
	if (job->weighted)
		CHECK(vs_set_weight(d->ssd, 1, 3 * VS_WEIGHT_DEFAULT) == VS_OK);
}

static bool cut_run(struct job *job, const struct device *fresh,
		    const struct oracle *start, uint64_t cut, bool recovery)
{
	struct device d = device_copy(fresh);
	struct oracle *o = oracle_copy(start);
	uint64_t seed = job->seed * 2 + 1;
	enum vs_status status;

	CHECK(device_mount(&d) == VS_OK);
	set_weight(job, &d);
	nand_cut(d.nand, cut, job->seed * 1000 + cut);
	status = workload_run(&d, o, &seed, SWEEP_STEPS);
	if (status == VS_EPOWER) {
		job->cuts++;
		power_on(&d, o);
		if (recovery)
			cut_recovery(&d, job);
		CHECK(device_mount(&d) == VS_OK);
		live_on(&d, o, job->seed * 77 + cut + 1);
	}
	oracle_free(o);
	device_free(&d);
	return status == VS_EPOWER;
}

static void sweep(struct job *job, bool recovery)
{
	struct device fresh = device_new_bad(job->c, job->seed,
					     job->factory_bad, job->fail_ppm);
	uint64_t cut = job->only ? job->only : 1;
	struct oracle *start;

	device_format(&fresh);
	start = begin(&fresh, job->seed);
	/* Cuts during recovery square the work: only each seventh. */
	while (cut_run(job, &fresh, start, cut, recovery) && !job->only)
		cut += recovery ? 7 : 1;
	oracle_free(start);
	device_free(&fresh);
}

static enum vs_status one_life(struct device *d, struct oracle *o,
			       uint64_t *seed, bool fill)
{
	enum vs_status status = fill ? workload_fill(d, o) : VS_OK;

	return status == VS_OK ? workload_run(d, o, seed, UINT32_MAX) : status;
}

static void read_all(struct device *d)
{
	static uint8_t data[VS_BLOCK];
	uint64_t i;

	for (i = 0; i < vs_blocks(d->ssd); i++)
		CHECK(vs_read(d->ssd, d->now, i, 1, data).status == VS_OK);
}

/*
 * More blocks have failed than were set aside: writes fail, but all data can be read.
 * After a power cut, blocks may be free again. This repeats until recovery fails.
 */
static void wear_out(struct device *d, struct oracle *o, uint64_t *seed)
{
	enum vs_status status = VS_EREADONLY;
	unsigned int i;

	nand_cut(d->nand, 0, 0);
	nand_wear(d->nand, WORN_FAIL_PPM);
	for (i = 0; i < LONG_ROUNDS && status == VS_EREADONLY; i++) {
		CHECK(nand_failed(d->nand) > d->c.bad_blocks);
		read_all(d);
		oracle_cut(o, d->now);
		status = device_mount(d);
		CHECK(status == VS_OK || status == VS_EREADONLY);
		oracle_check_recovered(o, d);
		if (status == VS_OK)
			status = workload_run(d, o, seed, WEAR_STEPS);
	}
}

static void cut_long(struct job *job)
{
	struct device d = device_new_bad(job->c, job->seed, job->factory_bad,
					 job->fail_ppm);
	uint64_t seed = job->seed * 2 + 1;
	enum vs_status status;
	struct oracle *o;
	unsigned int i;

	device_format(&d);
	o = oracle_new(vs_blocks(d.ssd));
	for (i = 0; i < LONG_ROUNDS; i++) {
		set_weight(job, &d);
		nand_cut(d.nand, 1 + check_below(&seed, 300),
			 check_next(&seed));
		if (one_life(&d, o, &seed, i % 8 == 0) == VS_EREADONLY)
			break;
		do {
			job->cuts++;
			power_on(&d, o);
			/* Two recoveries in three are cut as well. */
			if (check_below(&seed, 3))
				nand_cut(d.nand, 1 + check_below(&seed, 12),
					 check_next(&seed));
			status = device_mount(&d);
		} while (status == VS_EPOWER);
		CHECK(status == VS_OK);
		nand_cut(d.nand, 0, 0);
		oracle_check_recovered(o, &d);
	}
	if (i < LONG_ROUNDS)
		wear_out(&d, o, &seed);
	oracle_free(o);
	device_free(&d);
}

/* More blocks, so that there are enough good ones. */
static void make_bad(struct job *job, bool is_long)
{
	job->c.bad_blocks = BAD_BLOCKS;
	job->c.geometry.blocks += BAD_BLOCKS;
	job->factory_bad = FACTORY_BAD;
	job->fail_ppm = is_long ? LONG_FAIL_PPM : SWEEP_FAIL_PPM;
}

int main(int argc, char **argv)
{
	struct job job = { 0 };
	const char *kind;
	bool bad;

	CHECK(argc == 5 || argc == 6);
	job.weighted = !strncmp(argv[1], "weighted-", 9);
	kind = argv[1] + (job.weighted ? 9 : 0);
	bad = !strncmp(kind, "bad-", 4);
	kind += bad ? 4 : 0;
	job.c = shape((unsigned int)atoi(argv[2]),
		      (enum vs_personality)atoi(argv[3]));
	job.seed = strtoull(argv[4], NULL, 0);
	check_seed = job.seed;
	job.only = argc > 5 ? strtoull(argv[5], NULL, 0) : 0;
	if (bad)
		make_bad(&job, !strcmp(kind, "long"));
	if (!strcmp(kind, "long"))
		cut_long(&job);
	else
		sweep(&job, !strcmp(kind, "recovery"));
	CHECK(job.cuts > 0);
	printf("%llu cuts\n", (unsigned long long)job.cuts);
	return 0;
}
