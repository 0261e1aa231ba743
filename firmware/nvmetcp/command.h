/* SPDX-License-Identifier: Apache-2.0 */
/* The commands: one table for each command set. */
#ifndef VCACHE_NVMETCP_COMMAND_H
#define VCACHE_NVMETCP_COMMAND_H

#include <stddef.h>
#include <stdint.h>

#include "nvme.h"

struct request;
struct subsys;

/* Commands Supported and Effects (figure 204) */
#define EFFECT_CSUPP (1u << 0)
#define EFFECT_LBCC (1u << 1)

/**
 * struct command - a command
 * @opcode: opcode or FCTYPE; bits 1:0 are the direction of the data
 * @effects: value for the Commands Supported and Effects log page
 * @prepare: check the fields and set @length; NULL: nothing to check, no data.
 *	Data outside of the capsule has not been requested yet.
 * @execute: execute the command
 *
 * Both return a status; @execute may return STATUS_PARKED.
 */
struct command {
	uint8_t opcode;
	uint32_t effects;
	uint16_t (*prepare)(struct request *r);
	uint16_t (*execute)(struct request *r);
};

/**
 * struct command_set - a set of commands
 * @commands: the commands
 * @count: number of commands
 */
struct command_set {
	const struct command *commands;
	size_t count;
};

extern const struct command_set fabrics_commands;
extern const struct command_set admin_commands;
extern const struct command_set discovery_commands;

/* The I/O commands of an SSD, with or without tagged commands. */
const struct command_set *io_commands(const struct subsys *s);

static inline unsigned int command_transfer(const struct command *command)
{
	return command->opcode & TRANSFER_MASK;
}

/* Admin commands in separate files. */
uint16_t identify_prepare(struct request *r);
uint16_t identify_execute(struct request *r);
uint16_t discovery_identify_prepare(struct request *r);
uint16_t log_prepare(struct request *r);
uint16_t log_execute(struct request *r);
uint16_t features_get(struct request *r);
uint16_t features_set(struct request *r);
uint16_t features_get_prepare(struct request *r);
uint16_t features_set_prepare(struct request *r);

#endif /* VCACHE_NVMETCP_COMMAND_H */
