// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: the options of a table line of the target "vcache", and its messages. Options of
 * destage can also be changed by a message. They belong to the table: a message changes what the
 * table shows.
 */
#include "internal.h"

/* The options, for error messages. */
#define VC_LIMIT_OPTIONS "destage_mib <n>, destage_low <percent>, destage_high <percent>"
#define VC_OPTIONS "optional arguments: age_ms <n>, " VC_LIMIT_OPTIONS ", pool <device> <volume>"
#define VC_MESSAGES "messages are: drain, pause <seconds>, " VC_LIMIT_OPTIONS

/**
 * struct vc_limit_option - an option of destage
 * @name: its name
 * @arg: its range
 * @offset: of its value in struct vcache_limits
 * @normal: its default
 */
struct vc_limit_option {
	const char *name;
	struct dm_arg arg;
	size_t offset;
	u32 normal;
};

static const struct vc_limit_option vc_limit_options[] = {
	{
		"destage_mib", { 0, VC_LIMIT_MIB_MAX, "destage_mib must be 0..1048576" },
		offsetof(struct vcache_limits, mib), 0,
	}, {
		"destage_low", { 0, VC_DIRTY_HIGH_MAX, "destage_low must be 0..80" },
		offsetof(struct vcache_limits, low), VC_DIRTY_LOW,
	}, {
		"destage_high", { 1, VC_DIRTY_HIGH_MAX, "destage_high must be 1..80" },
		offsetof(struct vcache_limits, high), VC_DIRTY_HIGH,
	},
};

static u32 *vc_limit_value(struct vcache_limits *limits, const struct vc_limit_option *o)
{
	return (void *)limits + o->offset;
}

/* Find an option of destage by its name, or return NULL. */
static const struct vc_limit_option *vc_limit_option(const char *name)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(vc_limit_options); i++) {
		if (!strcasecmp(name, vc_limit_options[i].name))
			return &vc_limit_options[i];
	}
	return NULL;
}

/* Do the limits fit together? */
static int vc_limits_check(const struct vcache_limits *limits, char **error)
{
	if (limits->low <= limits->high)
		return 0;
	*error = "destage_low must not be greater than destage_high (75 if it is not given)";
	return -EINVAL;
}

static int vc_parse_age(struct vcache_target *vt, struct dm_arg_set *as)
{
	static const struct dm_arg age_arg = {
		1, VC_AGE_MS_MAX, "age_ms must be 1..600000"
	};

	vt->age_given = true;
	return dm_read_arg(&age_arg, as, &vt->age_ms, &vt->ti->error);
}

static int vc_parse_pool(struct vcache_target *vt, struct dm_arg_set *as)
{
	static const struct dm_arg volume_arg = {
		1, UINT_MAX, "the volume must be 1..4294967295"
	};
	const char *path = dm_shift_arg(as);
	int r;

	if (vt->pool_dev) {
		vt->ti->error = "'pool' is given twice";
		return -EINVAL;
	}
	r = dm_read_arg(&volume_arg, as, &vt->volume, &vt->ti->error);
	if (r)
		return r;
	r = dm_get_device(vt->ti, path, dm_table_get_mode(vt->ti->table),
			  &vt->pool_dev);
	if (r) {
		vt->ti->error = "cannot open the device of the pool";
		return r;
	}
	if (!vcache_pool_find(vt->pool_dev->bdev)) {
		vt->ti->error = "the pool device is not an active vcache-pool";
		return -EINVAL;
	}
	return 0;
}

/* Parse the next option of @n words that are left. Return: how many it has, or an error. */
static int vc_parse_option(struct vcache_target *vt, struct dm_arg_set *as, unsigned int n)
{
	const char *name = dm_shift_arg(as);
	const struct vc_limit_option *o = vc_limit_option(name);

	if (n >= 2 && o)
		return dm_read_arg(&o->arg, as, vc_limit_value(&vt->limits, o),
				   &vt->ti->error) ?: 2;
	if (n >= 2 && !strcasecmp(name, "age_ms"))
		return vc_parse_age(vt, as) ?: 2;
	if (n >= 3 && !strcasecmp(name, "pool"))
		return vc_parse_pool(vt, as) ?: 3;
	vt->ti->error = VC_OPTIONS;
	return -EINVAL;
}

/**
 * vcache_options_parse - parse the options of a table line
 * @vt: what the table line says; gets the options
 * @as: the words that are left
 *
 * Return: 0, or a negative errno; then the error of the table has a text.
 */
int vcache_options_parse(struct vcache_target *vt, struct dm_arg_set *as)
{
	static const struct dm_arg count_arg = {
		0, 11, "number of optional arguments must be 0..11"
	};
	unsigned int n;
	int r;

	vt->age_ms = VC_AGE_MS_DEFAULT;
	vt->limits = (struct vcache_limits) { .low = VC_DIRTY_LOW, .high = VC_DIRTY_HIGH };
	if (!as->argc)
		return 0;
	r = dm_read_arg_group(&count_arg, as, &n, &vt->ti->error);
	if (r)
		return r;
	for (; n; n -= r) {
		r = vc_parse_option(vt, as, n);
		if (r < 0)
			return r;
	}
	if (as->argc) {
		vt->ti->error = "too many arguments";
		return -EINVAL;
	}
	return vc_limits_check(&vt->limits, &vt->ti->error);
}

/**
 * vcache_options_show - print the options of a table line
 * @vt: what the table line says
 * @result: buffer
 * @maxlen: its size
 * @sz: how much of it is used
 *
 * Return: how much of it is used then.
 */
unsigned int vcache_options_show(struct vcache_target *vt, char *result, unsigned int maxlen,
				 unsigned int sz)
{
	unsigned int n = (vt->age_given ? 2 : 0) + (vt->pool_dev ? 3 : 0), i;
	const struct vc_limit_option *o = vc_limit_options;
	u32 value[ARRAY_SIZE(vc_limit_options)];

	/* A message may change them meanwhile. */
	for (i = 0; i < ARRAY_SIZE(value); i++) {
		value[i] = READ_ONCE(*vc_limit_value(&vt->limits, &o[i]));
		n += value[i] == o[i].normal ? 0 : 2;
	}
	if (n)
		DMEMIT(" %u", n);
	if (vt->age_given)
		DMEMIT(" age_ms %u", vt->age_ms);
	for (i = 0; i < ARRAY_SIZE(value); i++) {
		if (value[i] != o[i].normal)
			DMEMIT(" %s %u", o[i].name, value[i]);
	}
	if (vt->pool_dev)
		DMEMIT(" pool %s %u", vt->pool_dev->name, vt->volume);
	return sz;
}

/* Change a limit of destage. The device is locked. */
static int vc_message_limit(struct vcache_target *vt, const struct vc_limit_option *o,
			    const char *text, char **error)
{
	struct vcache_limits limits = vt->limits;
	unsigned int n;
	int r;

	lockdep_assert_held(&vt->dev->lock);
	if (kstrtouint(text, 10, &n) || n < o->arg.min || n > o->arg.max) {
		*error = o->arg.error;
		return -EINVAL;
	}
	*vc_limit_value(&limits, o) = n;
	r = vc_limits_check(&limits, error);
	if (r)
		return r;
	WRITE_ONCE(*vc_limit_value(&vt->limits, o), n);
	vcache_destage_limit(vt->dev->vol, &limits);
	return 0;
}

/* Pause destage, or end a pause. */
static int vc_message_pause(struct vcache_volume *v, const char *text, char **error)
{
	unsigned int n;

	if (kstrtouint(text, 10, &n) || n > VC_PAUSE_MAX) {
		*error = "pause must be 0..86400 seconds";
		return -EINVAL;
	}
	vcache_destage_pause(v, n);
	return 0;
}

/* Handle a message while the device is locked. */
static int vc_message_locked(struct vcache_target *vt, unsigned int argc, char **argv,
			     char **error)
{
	const struct vc_limit_option *o = vc_limit_option(argv[0]);
	struct vcache_volume *v = vt->dev->vol;

	lockdep_assert_held(&vt->dev->lock);
	if (!v || vt->dev->target != vt) {
		*error = "the device has no cache";
		return -ENODEV;
	}
	if (argc == 2 && o)
		return vc_message_limit(vt, o, argv[1], error);
	if (argc == 2 && !strcasecmp(argv[0], "pause"))
		return vc_message_pause(v, argv[1], error);
	if (argc == 1 && !strcasecmp(argv[0], "drain")) {
		vcache_volume_drain(v);
		return 0;
	}
	return -EINVAL;
}

/**
 * vcache_target_message - handle a message of an operator
 * @ti: the target
 * @argc: number of words
 * @argv: the words
 * @result: not used
 * @maxlen: not used
 *
 * Return: 0, or a negative errno; then the kernel log has the reason.
 */
int vcache_target_message(struct dm_target *ti, unsigned int argc, char **argv, char *result,
			  unsigned int maxlen)
{
	struct vcache_target *vt = ti->private;
	char *error = VC_MESSAGES;
	int r;

	vcache_dev_lock(vt->dev);
	r = vc_message_locked(vt, argc, argv, &error);
	vcache_dev_unlock(vt->dev);
	if (r)
		DMERR("%s: %s", dm_device_name(vt->dev->md), error);
	return r;
}
