// SPDX-License-Identifier: Apache-2.0
/*
 * The NVM command set (NVM Command Set 1.0 §3.2) and four vendor commands:
 * Flush, Write, Read and Deallocate with a tag in CDW2.
 */
#include "command.h"
#include "conn.h"
#include "ctrl.h"
#include "fdp.h"
#include "media.h"

static uint16_t check_namespace(struct request *r)
{
	if (!subsys_has_namespace(r->conn->subsys, request_nsid(r)))
		return request_refuse(r, SC_INVALID_NAMESPACE,
				      offsetof(struct sqe, nsid));
	return SC_SUCCESS;
}

static uint16_t out_of_range(struct request *r)
{
	return request_refuse(r, SC_LBA_OUT_OF_RANGE,
			      offsetof(struct sqe, cdw10));
}

/* Convert a range of the namespace; false if it is out of range. */
static bool find_extent(const struct request *r, uint64_t slba, uint64_t lbas,
			struct extent *e)
{
	const struct subsys *s = r->conn->subsys;
	uint64_t size = subsys_namespace_lbas(s);

	if (slba > size || lbas > size - slba)
		return false;
	e->offset = subsys_first_block(s, request_nsid(r)) * VS_BLOCK +
		    (slba << s->config.lba_shift);
	e->length = lbas << s->config.lba_shift;
	return true;
}

static bool command_extent(const struct request *r, struct extent *e)
{
	uint64_t slba = (uint64_t)le32_to_cpu(r->sqe.cdw11) << 32 |
			le32_to_cpu(r->sqe.cdw10);
	/* NLB is 0's based. */
	uint64_t lbas = (le32_to_cpu(r->sqe.cdw12) & CDW12_NLB) + 1;

	return find_extent(r, slba, lbas, e);
}

static struct extent extent_of(const struct request *r)
{
	struct extent e = { 0, 0 };

	command_extent(r, &e);
	return e;
}

static uint16_t check_extent(struct request *r, struct extent *e)
{
	uint16_t status = check_namespace(r);

	if (status)
		return status;
	if (!command_extent(r, e))
		return out_of_range(r);
	/* MDTS and WZSL, which are equal. */
	if (e->length > MDTS_BYTES)
		return request_invalid(r, cdw12);
	return SC_SUCCESS;
}

static uint16_t transfer_prepare(struct request *r)
{
	struct extent e;
	uint16_t status = check_extent(r, &e);

	if (!status)
		r->length = (uint32_t)e.length;
	return status;
}

static uint16_t check_tag(struct request *r)
{
	if (le32_to_cpu(r->sqe.cdw2) > r->conn->subsys->tags.max)
		return request_invalid(r, cdw2);
	return SC_SUCCESS;
}

static uint16_t tagged_transfer_prepare(struct request *r)
{
	uint16_t status = transfer_prepare(r);

	return status ? status : check_tag(r);
}

static bool is_fua(const struct request *r)
{
	return le32_to_cpu(r->sqe.cdw12) & CDW12_FUA;
}

/* FUA: the data that is read must be durable (Base 1.4 §6.6, §6.9). */
static uint16_t read_begin(struct request *r)
{
	return is_fua(r) ? media_flush(r->conn->subsys, extent_of(r), &r->done) :
			   SC_SUCCESS;
}

static uint16_t do_read(struct request *r, uint32_t tag)
{
	struct subsys *s = r->conn->subsys;
	struct tag_stats *t = tags_get(&s->tags, tag);
	uint16_t status = read_begin(r);

	if (!status)
		status = media_read(s, extent_of(r), r->data, &r->done);
	if (status)
		return status;
	s->health.reads++;
	s->health.sectors_read += r->length / VS_SECTOR;
	t->reads++;
	t->sectors_read += r->length / VS_SECTOR;
	return SC_SUCCESS;
}

static uint16_t do_write(struct request *r, uint32_t tag)
{
	struct subsys *s = r->conn->subsys;
	struct tag_stats *t = tags_get(&s->tags, tag);
	uint32_t handle;
	uint16_t status = fdp_handle(r, &handle);

	if (!status)
		status = media_write(s, (struct owner){ tag, handle },
				     extent_of(r), r->data, is_fua(r),
				     &r->done);
	if (status)
		return status;
	s->health.writes++;
	s->health.sectors_written += r->length / VS_SECTOR;
	t->writes++;
	t->sectors_written += r->length / VS_SECTOR;
	return SC_SUCCESS;
}

/* @start: when the device began, which may be after the command arrived. */
static void note_flush(struct request *r, uint32_t tag, vs_time start)
{
	struct subsys *s = r->conn->subsys;
	struct tag_stats *t = tags_get(&s->tags, tag);
	uint64_t time = r->done > start ? r->done - start : 0;

	subsys_hold(s, r->done);
	s->health.flushes++;
	t->flushes++;
	t->flush_time += time;
	if (time > t->flush_longest)
		t->flush_longest = time;
}

static uint16_t read_execute(struct request *r)
{
	return do_read(r, VS_TAG_HOST);
}

static uint16_t write_execute(struct request *r)
{
	return do_write(r, VS_TAG_HOST);
}

static uint16_t tagged_read_execute(struct request *r)
{
	return do_read(r, le32_to_cpu(r->sqe.cdw2));
}

static uint16_t tagged_write_execute(struct request *r)
{
	return do_write(r, le32_to_cpu(r->sqe.cdw2));
}

static uint16_t compare_execute(struct request *r)
{
	uint16_t status = read_begin(r);

	return status ? status : media_compare(r->conn->subsys, extent_of(r),
					       r->data, &r->done);
}

static uint16_t flush_prepare(struct request *r)
{
	/* VWC bits 2:1: all namespaces may be flushed at once. */
	if (request_nsid(r) == NSID_ALL)
		return SC_SUCCESS;
	return check_namespace(r);
}

static uint16_t flush_execute(struct request *r)
{
	struct subsys *s = r->conn->subsys;
	struct extent e = { 0, s->namespace_blocks * VS_BLOCK };
	vs_time start = subsys_clock(s);
	uint16_t status;

	if (request_nsid(r) == NSID_ALL) {
		status = subsys_flush_all(s, &r->done);
	} else {
		e.offset = subsys_first_block(s, request_nsid(r)) * VS_BLOCK;
		status = media_flush(s, e, &r->done);
	}
	if (!status)
		note_flush(r, VS_TAG_HOST, start);
	return status;
}

static uint16_t tagged_flush_prepare(struct request *r)
{
	uint32_t instance = le32_to_cpu(r->sqe.cdw10);
	uint16_t status = flush_prepare(r);

	/* After a power loss, data that the host has written may be gone. */
	if (!status && instance && instance != r->conn->subsys->instance)
		return request_refuse(r, SC_INSTANCE_MISMATCH,
				      offsetof(struct sqe, cdw10));
	return status ? status : check_tag(r);
}

static uint16_t tagged_flush_execute(struct request *r)
{
	struct subsys *s = r->conn->subsys;
	uint32_t tag = le32_to_cpu(r->sqe.cdw2);
	vs_time start = subsys_clock(s);
	struct vs_result result;
	uint16_t status;

	result = vs_flush_tag(s->config.device.ssd, start, tag);
	r->done = result.done;
	status = subsys_status(s, result.status);
	if (!status)
		note_flush(r, tag, start);
	return status;
}

static uint16_t write_zeroes_prepare(struct request *r)
{
	struct extent e;

	return check_extent(r, &e);
}

static uint16_t write_zeroes_execute(struct request *r)
{
	struct subsys *s = r->conn->subsys;
	struct extent e = extent_of(r);
	struct owner host = { .tag = VS_TAG_HOST };
	uint16_t status = fdp_handle(r, &host.handle);

	if (status)
		return status;
	/* Deallocated blocks read as zeroes, but only whole blocks can be. */
	if (!(le32_to_cpu(r->sqe.cdw12) & CDW12_DEAC) ||
	    !media_whole_blocks(e))
		return media_write(s, host, e, s->zeroes, is_fua(r), &r->done);
	status = media_trim(s, VS_TAG_HOST, e, &r->done);
	if (!status && (is_fua(r) || !s->write_cache))
		status = media_flush(s, e, &r->done);
	return status;
}

/* NR is 0's based and has eight bits. */
static uint32_t dsm_ranges(const struct request *r)
{
	return r->sqe.cdw10.b[0] + 1u;
}

static uint16_t dsm_prepare(struct request *r)
{
	uint32_t length = le32_to_cpu(r->sqe.sgl.length);

	/* Linux always sends space for all ranges, even for few. */
	if (length < dsm_ranges(r) * sizeof(struct dsm_range) ||
	    length > DSM_RANGES * sizeof(struct dsm_range))
		return request_refuse(r, SC_DATA_SGL_LENGTH_INVALID,
				      offsetof(struct sqe, sgl.length));
	r->length = length;
	return check_namespace(r);
}

static uint16_t deallocate(struct request *r, uint32_t tag, bool wanted)
{
	const struct dsm_range *range = (const void *)r->data;
	uint32_t n = dsm_ranges(r), i;
	struct subsys *s = r->conn->subsys;
	struct extent e[DSM_RANGES];
	uint16_t status = SC_SUCCESS;

	/* Check all ranges first. */
	for (i = 0; i < n; i++) {
		if (!find_extent(r, le64_to_cpu(range[i].slba),
				 le32_to_cpu(range[i].length), &e[i]))
			return out_of_range(r);
	}
	if (!wanted)
		return SC_SUCCESS;
	for (i = 0; i < n && !status; i++)
		status = media_trim(s, tag, e[i], &r->done);
	for (i = 0; i < n && !status && !s->write_cache; i++)
		status = media_flush(s, e[i], &r->done);
	return status;
}

static uint16_t dsm_execute(struct request *r)
{
	/* The other attributes are hints and are ignored. */
	return deallocate(r, VS_TAG_HOST, le32_to_cpu(r->sqe.cdw11) & DSM_AD);
}

static uint16_t tagged_deallocate_prepare(struct request *r)
{
	uint16_t status = dsm_prepare(r);

	return status ? status : check_tag(r);
}

static uint16_t tagged_deallocate_execute(struct request *r)
{
	return deallocate(r, le32_to_cpu(r->sqe.cdw2), true);
}

#define CHANGES (EFFECT_CSUPP | EFFECT_LBCC)
#define PLACEMENT_COMMANDS 2u
#define TAGGED_COMMANDS 4u

/* A drive has consecutive ones: those of FDP are the first, the tagged ones the last. */
static const struct command commands[] = {
	{ IO_MANAGEMENT_RECEIVE, EFFECT_CSUPP, fdp_receive_prepare,
	  fdp_receive_execute },
	{ IO_MANAGEMENT_SEND, EFFECT_CSUPP, fdp_send_prepare,
	  fdp_send_execute },
	{ IO_FLUSH, EFFECT_CSUPP, flush_prepare, flush_execute },
	{ IO_WRITE, CHANGES, transfer_prepare, write_execute },
	{ IO_READ, EFFECT_CSUPP, transfer_prepare, read_execute },
	{ IO_COMPARE, EFFECT_CSUPP, transfer_prepare, compare_execute },
	{ IO_WRITE_ZEROES, CHANGES, write_zeroes_prepare,
	  write_zeroes_execute },
	{ IO_DATASET_MANAGEMENT, CHANGES, dsm_prepare, dsm_execute },
	{ IO_TAGGED_FLUSH, EFFECT_CSUPP, tagged_flush_prepare,
	  tagged_flush_execute },
	{ IO_TAGGED_WRITE, CHANGES, tagged_transfer_prepare,
	  tagged_write_execute },
	{ IO_TAGGED_READ, EFFECT_CSUPP, tagged_transfer_prepare,
	  tagged_read_execute },
	{ IO_TAGGED_DEALLOCATE, CHANGES, tagged_deallocate_prepare,
	  tagged_deallocate_execute },
};

#define COMMANDS (sizeof(commands) / sizeof(commands[0]))

const struct command_set *io_commands(const struct subsys *s)
{
	/* By: has tags, has placement handles. */
	static const struct command_set sets[2][2] = {
		{
			{ commands + PLACEMENT_COMMANDS,
			  COMMANDS - PLACEMENT_COMMANDS - TAGGED_COMMANDS },
			{ commands, COMMANDS - TAGGED_COMMANDS },
		}, {
			{ commands + PLACEMENT_COMMANDS,
			  COMMANDS - PLACEMENT_COMMANDS },
			{ commands, COMMANDS },
		},
	};

	return &sets[s->config.device.tagged][fdp_supported(s)];
}
